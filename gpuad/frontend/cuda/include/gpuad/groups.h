// cooperative_groups: groups of threads as values. A group holds no more than what the index of a thread does not tell: where a tile lies in
// the group that it was cut from. What it does is barriers, shuffles and votes of its lanes, so that nothing here is new to the reverse pass.
// What is only declared is refused by name.
#pragma once
#define GPUAD_GROUPS
#define GPUAD_G inline __device__

namespace cooperative_groups {

template <unsigned int Size, typename Parent = void> class thread_block_tile;

namespace gpuad {
GPUAD_G unsigned int rank_in_block() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
GPUAD_G unsigned int size_of_block() { return blockDim.x * blockDim.y * blockDim.z; }

// The first lane of this thread's tile, and its lanes as the mask that they all name.
GPUAD_G unsigned int first_lane(unsigned int size) { return rank_in_block() & (32u - size); }
GPUAD_G unsigned int lanes(unsigned int size) { return size >= 32u ? 0xffffffffu : ((1u << size) - 1u) << first_lane(size); }

constexpr __device__ bool is_size(unsigned int n) { return n > 0 && (n & (n - 1)) == 0; }
constexpr __device__ int halvings(unsigned int n) { return n > 1 ? 1 + halvings(n / 2) : 0; }
template <bool holds, typename T> struct if_true {};
template <typename T> struct if_true<true, T> { typedef T type; };
}  // namespace gpuad

// Any group: `tile` is 0 for a whole block, else the size of the tile.
class thread_group {
 public:
  GPUAD_G thread_group(unsigned int tile) : tile(tile) {}
  GPUAD_G void sync() const {
    if (tile == 0) __syncthreads();
    else __syncwarp(gpuad::lanes(tile));
  }
  GPUAD_G unsigned int num_threads() const { return tile == 0 ? gpuad::size_of_block() : tile; }
  GPUAD_G unsigned int size() const { return num_threads(); }
  GPUAD_G unsigned int thread_rank() const { return tile == 0 ? gpuad::rank_in_block() : gpuad::rank_in_block() & (tile - 1u); }
  GPUAD_G bool is_valid() const { return true; }
 private:
  unsigned int tile;
};

class thread_block {
 public:
  GPUAD_G static void sync() { __syncthreads(); }
  GPUAD_G static unsigned int thread_rank() { return gpuad::rank_in_block(); }
  GPUAD_G static unsigned int num_threads() { return gpuad::size_of_block(); }
  GPUAD_G static unsigned int size() { return gpuad::size_of_block(); }
  GPUAD_G static dim3 group_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  GPUAD_G static dim3 thread_index() { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
  GPUAD_G static dim3 dim_threads() { return dim3(blockDim.x, blockDim.y, blockDim.z); }
  GPUAD_G static dim3 group_dim() { return dim3(blockDim.x, blockDim.y, blockDim.z); }
  GPUAD_G static bool is_valid() { return true; }
  GPUAD_G operator thread_group() const { return thread_group(0u); }
  __device__ void barrier_arrive();
  __device__ void barrier_wait();
};
GPUAD_G thread_block this_thread_block() { return thread_block(); }

class grid_group {
 public:
  GPUAD_G static void sync() { gpuad_sync_grid(); }
  __device__ void barrier_arrive() const;
  __device__ void barrier_wait() const;
  GPUAD_G static unsigned long long block_rank() {
    return blockIdx.x + gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z);
  }
  GPUAD_G static unsigned long long num_blocks() { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
  GPUAD_G static unsigned long long thread_rank() { return block_rank() * gpuad::size_of_block() + gpuad::rank_in_block(); }
  GPUAD_G static unsigned long long num_threads() { return num_blocks() * gpuad::size_of_block(); }
  GPUAD_G static unsigned long long size() { return num_threads(); }
  GPUAD_G static dim3 block_index() { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  GPUAD_G static dim3 dim_blocks() { return dim3(gridDim.x, gridDim.y, gridDim.z); }
  GPUAD_G static dim3 group_dim() { return dim3(gridDim.x, gridDim.y, gridDim.z); }
};
GPUAD_G grid_group this_grid() { return grid_group(); }

// What lanes can give each other: numbers, and values of several numbers, which go number by number.
#define GPUAD_SHUFFLED(name, op, L) \
  template <typename T> __device__ T name(unsigned int mask, T v, L lane, int width); \
  GPUAD_NUMBER(name, op, L, int, int) GPUAD_NUMBER(name, op, L, unsigned int, unsigned int) GPUAD_NUMBER(name, op, L, long, long) \
  GPUAD_NUMBER(name, op, L, unsigned long, unsigned long) GPUAD_NUMBER(name, op, L, long long, long long) \
  GPUAD_NUMBER(name, op, L, unsigned long long, unsigned long long) GPUAD_NUMBER(name, op, L, float, float) \
  GPUAD_NUMBER(name, op, L, double, double) GPUAD_NUMBER(name, op, L, bool, int) GPUAD_NUMBER(name, op, L, char, int) \
  GPUAD_NUMBER(name, op, L, signed char, int) GPUAD_NUMBER(name, op, L, unsigned char, int) GPUAD_NUMBER(name, op, L, short, int) \
  GPUAD_NUMBER(name, op, L, unsigned short, int) \
  GPUAD_PAIRS(name, L, float) GPUAD_PAIRS(name, L, double) GPUAD_PAIRS(name, L, int) GPUAD_PAIRS(name, L, uint)
#define GPUAD_NUMBER(name, op, L, T, U) \
  template <> GPUAD_G T name(unsigned int mask, T v, L lane, int width) { return (T)__shfl##op##_sync(mask, (U)v, lane, width); }
#define GPUAD_PAIRS(name, L, T) \
  template <> GPUAD_G T##2 name(unsigned int mask, T##2 v, L lane, int width) { \
    T##2 r; \
    r.x = name(mask, v.x, lane, width); \
    r.y = name(mask, v.y, lane, width); \
    return r; \
  } \
  template <> GPUAD_G T##3 name(unsigned int mask, T##3 v, L lane, int width) { \
    T##3 r; \
    r.x = name(mask, v.x, lane, width); \
    r.y = name(mask, v.y, lane, width); \
    r.z = name(mask, v.z, lane, width); \
    return r; \
  } \
  template <> GPUAD_G T##4 name(unsigned int mask, T##4 v, L lane, int width) { \
    T##4 r; \
    r.x = name(mask, v.x, lane, width); \
    r.y = name(mask, v.y, lane, width); \
    r.z = name(mask, v.z, lane, width); \
    r.w = name(mask, v.w, lane, width); \
    return r; \
  }
namespace gpuad {
GPUAD_SHUFFLED(from, , int)
GPUAD_SHUFFLED(from_above, _down, unsigned int)
GPUAD_SHUFFLED(from_below, _up, unsigned int)
GPUAD_SHUFFLED(from_partner, _xor, int)
}  // namespace gpuad
}  // namespace cooperative_groups
#include <gpuad/group_halves.h>
namespace cooperative_groups {
#undef GPUAD_SHUFFLED
#undef GPUAD_NUMBER
#undef GPUAD_PAIRS

// `rank` and `number`: which of how many tiles of its parent a tile is. A tile forgets its parent where its type does.
template <unsigned int Size, typename Parent> class thread_block_tile {
 public:
  GPUAD_G thread_block_tile(unsigned int rank, unsigned int number) : rank(rank), number(number) {}
  template <typename Other> GPUAD_G thread_block_tile(const thread_block_tile<Size, Other>& other)
      : rank(other.meta_group_rank()), number(other.meta_group_size()) {}
  GPUAD_G operator thread_group() const { return thread_group(Size); }

  GPUAD_G void sync() const { __syncwarp(gpuad::lanes(Size)); }
  GPUAD_G static constexpr unsigned int num_threads() { return Size; }
  GPUAD_G static constexpr unsigned int size() { return Size; }
  GPUAD_G static unsigned int thread_rank() { return gpuad::rank_in_block() & (Size - 1u); }
  GPUAD_G unsigned int meta_group_rank() const { return rank; }
  GPUAD_G unsigned int meta_group_size() const { return number; }
  GPUAD_G static bool is_valid() { return true; }

  template <typename T> GPUAD_G T shfl(T v, int from) const { return gpuad::from<T>(gpuad::lanes(Size), v, from, Size); }
  template <typename T> GPUAD_G T shfl_down(T v, unsigned int n) const { return gpuad::from_above<T>(gpuad::lanes(Size), v, n, Size); }
  template <typename T> GPUAD_G T shfl_up(T v, unsigned int n) const { return gpuad::from_below<T>(gpuad::lanes(Size), v, n, Size); }
  template <typename T> GPUAD_G T shfl_xor(T v, int mask) const { return gpuad::from_partner<T>(gpuad::lanes(Size), v, mask, Size); }
  GPUAD_G int any(int predicate) const { return __any_sync(gpuad::lanes(Size), predicate); }
  GPUAD_G int all(int predicate) const { return __all_sync(gpuad::lanes(Size), predicate); }
  GPUAD_G unsigned int ballot(int predicate) const {
    return __ballot_sync(gpuad::lanes(Size), predicate) >> gpuad::first_lane(Size);
  }
  template <typename T> __device__ unsigned int match_any(T) const;
  template <typename T> __device__ unsigned int match_all(T, int&) const;
 private:
  unsigned int rank, number;
};

template <unsigned int Size>
GPUAD_G typename gpuad::if_true<gpuad::is_size(Size) && Size <= 32, thread_block_tile<Size, thread_block>>::type
tiled_partition(const thread_block&) {
  return thread_block_tile<Size, thread_block>(gpuad::rank_in_block() / Size, (gpuad::size_of_block() + Size - 1u) / Size);
}
template <unsigned int Size, unsigned int N, typename P>
GPUAD_G typename gpuad::if_true<gpuad::is_size(Size) && Size <= N, thread_block_tile<Size, thread_block_tile<N, P>>>::type
tiled_partition(const thread_block_tile<N, P>&) {
  return thread_block_tile<Size, thread_block_tile<N, P>>((gpuad::rank_in_block() & (N - 1u)) / Size, N / Size);
}
template <unsigned int Size>  // tiles of several warps
__device__ typename gpuad::if_true<gpuad::is_size(Size) && (Size > 32), thread_block_tile<Size, thread_block>>::type
tiled_partition(const thread_block&);
GPUAD_G thread_group tiled_partition(const thread_group&, unsigned int size) { return thread_group(size); }

template <typename G> GPUAD_G void sync(const G& group) { group.sync(); }
template <typename G> GPUAD_G auto thread_rank(const G& group) -> decltype(group.thread_rank()) { return group.thread_rank(); }
template <typename G> GPUAD_G auto group_size(const G& group) -> decltype(group.size()) { return group.size(); }

// The threads of a warp that have come to a place, ranked by their lanes.
class coalesced_group {
 public:
  GPUAD_G explicit coalesced_group(unsigned int mask) : mask(mask) {}
  GPUAD_G void sync() const { __syncwarp(mask); }
  GPUAD_G unsigned int num_threads() const { return __popc(mask); }
  GPUAD_G unsigned int size() const { return __popc(mask); }
  GPUAD_G unsigned int thread_rank() const { return __popc(mask & ((1u << own_lane()) - 1u)); }
  GPUAD_G static unsigned int meta_group_rank() { return 0u; }
  GPUAD_G static unsigned int meta_group_size() { return 1u; }
  GPUAD_G static bool is_valid() { return true; }
  template <typename T> GPUAD_G T shfl(T v, int from) const { return gpuad::from<T>(mask, v, lane_of(from), 32); }
  template <typename T> GPUAD_G T shfl_up(T v, unsigned int n) const {
    return gpuad::from<T>(mask, v, thread_rank() >= n ? lane_of(thread_rank() - n) : own_lane(), 32);
  }
  template <typename T> GPUAD_G T shfl_down(T v, unsigned int n) const {
    return gpuad::from<T>(mask, v, thread_rank() + n < size() ? lane_of(thread_rank() + n) : own_lane(), 32);
  }
  GPUAD_G int any(int predicate) const { return __any_sync(mask, predicate); }
  GPUAD_G int all(int predicate) const { return __all_sync(mask, predicate); }
  GPUAD_G unsigned int ballot(int predicate) const {
    unsigned int lanes = __ballot_sync(mask, predicate), ranks = 0;
    for (unsigned int k = 0; k < size(); ++k)
      if ((lanes >> lane_of(k)) & 1u) ranks |= 1u << k;
    return ranks;
  }
 private:
  GPUAD_G static int own_lane() { return gpuad::rank_in_block() & 31u; }
  GPUAD_G int lane_of(unsigned int rank) const {
    unsigned int left = mask;
    for (unsigned int k = 0; k < rank; ++k) left &= left - 1u;
    return __ffs(left) - 1;
  }
  unsigned int mask;
};
GPUAD_G coalesced_group coalesced_threads() { return coalesced_group(__activemask()); }

// Known by name, and refused.
class multi_grid_group {
 public:
  __device__ void sync() const;
  __device__ unsigned long long thread_rank() const;
  __device__ unsigned long long size() const;
};
class cluster_group {
 public:
  __device__ void sync() const;
  __device__ unsigned int thread_rank() const;
  __device__ unsigned int size() const;
};
__device__ multi_grid_group this_multi_grid();
__device__ cluster_group this_cluster();
template <typename G> __device__ coalesced_group binary_partition(const G&, bool);
template <typename G> __device__ coalesced_group labeled_partition(const G&, int);
template <typename G, typename F> __device__ void invoke_one(const G&, F);

}  // namespace cooperative_groups
#undef GPUAD_G
