// Cooperative groups: blocks, warps and tiles of them.
#pragma once
#include "gpuad_device.h"

namespace cooperative_groups {

struct thread_block {
  static void sync() { __syncthreads(); }
  static unsigned thread_rank() { return gpuad_here.rank; }
  static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned num_threads() { return size(); }
  static dim3 thread_index() { return threadIdx; }
  static dim3 group_index() { return blockIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};
static inline thread_block this_thread_block() { return {}; }
static inline void sync(const thread_block&) { __syncthreads(); }

template <unsigned N, class Parent = void>
struct thread_block_tile {
  static_assert(N <= 32 && (N & (N - 1)) == 0, "a tile of at most a warp");
  static unsigned first() { return gpuad_here.rank % 32 / N * N; }
  static unsigned mask() { return N == 32 ? 0xffffffffu : ((1u << N % 32) - 1) << first(); }
  static void sync() { __syncwarp(mask()); }
  static unsigned thread_rank() { return gpuad_here.rank % N; }
  static unsigned meta_group_rank() { return gpuad_here.rank / N; }
  static unsigned meta_group_size() { return (thread_block::size() + N - 1) / N; }
  static constexpr unsigned size() { return N; }
  static constexpr unsigned num_threads() { return N; }
  template <class T> static T shfl(T v, int lane) { return __shfl_sync(mask(), v, lane, N); }
  template <class T> static T shfl_up(T v, unsigned by) { return __shfl_up_sync(mask(), v, by, N); }
  template <class T> static T shfl_down(T v, unsigned by) { return __shfl_down_sync(mask(), v, by, N); }
  template <class T> static T shfl_xor(T v, unsigned by) { return __shfl_xor_sync(mask(), v, by, N); }
  static int any(int p) { return __any_sync(mask(), p); }
  static int all(int p) { return __all_sync(mask(), p); }
  static unsigned ballot(int p) { return __ballot_sync(mask(), p) >> first(); }
};
template <unsigned N, class Parent>
static thread_block_tile<N, Parent> tiled_partition(const Parent&) { return {}; }
template <unsigned N, class Parent>
static void sync(const thread_block_tile<N, Parent>& tile) { tile.sync(); }

template <class T> struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T> struct less { T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T> struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template <unsigned N, class Parent, class T, class Op>
static T reduce(const thread_block_tile<N, Parent>& tile, T v, Op op) {
  for (unsigned by = N / 2; by; by /= 2) v = op(v, tile.shfl_xor(v, by));
  return v;
}

}  // namespace cooperative_groups
