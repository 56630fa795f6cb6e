// CUB's collectives of a block and of a warp, as operations of their own: what they compute and where they wait, in plain CUDA, so that their
// adjoints are theirs backwards. A block's go by raking: 32 threads go through a piece of the items each, one after the other, and what the
// pieces come to is put together by the first. TempStorage is memory that is used as CUB uses it: between two uses of it a block has to wait.
// Results that CUB leaves undefined, of other threads than the first, are some number.
#pragma once
#include "gpuad/groups.h"
#include "gpuad/functional.h"
#define GPUAD_G inline __device__

#define GPUAD_COMMA ,

namespace cub {

enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
enum BlockLoadAlgorithm {
  BLOCK_LOAD_DIRECT, BLOCK_LOAD_STRIPED, BLOCK_LOAD_VECTORIZE, BLOCK_LOAD_TRANSPOSE, BLOCK_LOAD_WARP_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};
enum BlockStoreAlgorithm {
  BLOCK_STORE_DIRECT, BLOCK_STORE_STRIPED, BLOCK_STORE_VECTORIZE, BLOCK_STORE_TRANSPOSE, BLOCK_STORE_WARP_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};

struct Sum { template <class T> GPUAD_G T operator()(const T& a, const T& b) const { return a + b; } };
struct Max { template <class T> GPUAD_G T operator()(const T& a, const T& b) const { return b > a ? b : a; } };
struct Min { template <class T> GPUAD_G T operator()(const T& a, const T& b) const { return b < a ? b : a; } };
struct Difference { template <class T> GPUAD_G T operator()(const T& a, const T& b) const { return a - b; } };
struct Equality { template <class T> GPUAD_G bool operator()(const T& a, const T& b) const { return a == b; } };

// A thread's items, reduced in their order.
template <class T, int Items, class Op> GPUAD_G T gpuad_reduced(T (&items)[Items], Op op) {
  T total = items[0];
  for (int k = 1; k < Items; k++) total = op(total, items[k]);
  return total;
}

template <class T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1, int = 0> class BlockReduce {
 public:
  static constexpr int threads = X * Y * Z, each = (threads + 31) / 32;
  struct TempStorage { T items[threads]; };
  GPUAD_G BlockReduce(TempStorage& storage) { s = &storage; }
  template <class Op> GPUAD_G T Reduce(T value, Op op, int valid) {
    const int t = cooperative_groups::gpuad::rank_in_block(), first = t * each;
    T total = value;
    s->items[t] = value;
    __syncthreads();
    if (t < 32 && first < valid) {
      total = s->items[first];
      for (int k = 1; k < each; k++)
        if (first + k < valid) total = op(total, s->items[first + k]);
      s->items[first] = total;
    }
    __syncthreads();
    if (t == 0)
      for (int k = each; k < threads; k += each)
        if (k < valid) total = op(total, s->items[k]);
    return total;
  }
  template <class Op> GPUAD_G T Reduce(T value, Op op) { return Reduce(value, op, threads); }
  template <int Items, class Op> GPUAD_G T Reduce(T (&items)[Items], Op op) { return Reduce(gpuad_reduced(items, op), op, threads); }
  GPUAD_G T Sum(T value) { return Reduce(value, cub::Sum(), threads); }
  GPUAD_G T Sum(T value, int valid) { return Reduce(value, cub::Sum(), valid); }
  template <int Items> GPUAD_G T Sum(T (&items)[Items]) { return Reduce(items, cub::Sum()); }
 private:
  TempStorage* s;
};

template <class T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int = 0> class BlockScan {
 public:
  static constexpr int threads = X * Y * Z, each = (threads + 31) / 32, pieces = (threads + each - 1) / each;
  struct TempStorage { T items[threads], before[pieces], prefix; };
  GPUAD_G BlockScan(TempStorage& storage) { s = &storage; }

#define GPUAD_SCANS(name, leading, ...) \
  template <class Op> GPUAD_G void name(T in, T& out, leading Op op) { T all; scan(in, op, all); out = __VA_ARGS__; } \
  template <class Op> GPUAD_G void name(T in, T& out, leading Op op, T& all) { scan(in, op, all); out = __VA_ARGS__; }
  GPUAD_SCANS(InclusiveScan, , upto(t(), op))
  GPUAD_SCANS(InclusiveScan, T initial GPUAD_COMMA, op(initial, upto(t(), op)))
  GPUAD_SCANS(ExclusiveScan, , t() > 0 ? upto(t() - 1, op) : in)
  GPUAD_SCANS(ExclusiveScan, T initial GPUAD_COMMA, t() > 0 ? op(initial, upto(t() - 1, op)) : initial)
#undef GPUAD_SCANS
  template <class Op, class Prefix> GPUAD_G void InclusiveScan(T in, T& out, Op op, Prefix& prefix) {
    T all;
    scan(in, op, all);
    out = op(given(prefix, all), upto(t(), op));
  }
  template <class Op, class Prefix> GPUAD_G void ExclusiveScan(T in, T& out, Op op, Prefix& prefix) {
    T all;
    scan(in, op, all);
    T before = given(prefix, all);
    out = t() > 0 ? op(before, upto(t() - 1, op)) : before;
  }
  GPUAD_G void InclusiveSum(T in, T& out) { InclusiveScan(in, out, cub::Sum()); }
  template <class All> GPUAD_G void InclusiveSum(T in, T& out, All& all) { InclusiveScan(in, out, cub::Sum(), all); }
  GPUAD_G void ExclusiveSum(T in, T& out) { ExclusiveScan(in, out, T(), cub::Sum()); }
  GPUAD_G void ExclusiveSum(T in, T& out, T& all) { ExclusiveScan(in, out, T(), cub::Sum(), all); }
  template <class Prefix> GPUAD_G void ExclusiveSum(T in, T& out, Prefix& prefix) { ExclusiveScan(in, out, cub::Sum(), prefix); }

  // Several items of a thread: what they come to is scanned, and what comes before it goes into each.
  template <int Items, class Op, class... Rest> GPUAD_G void InclusiveScan(T (&in)[Items], T (&out)[Items], Op op, Rest&... rest) {
    T before;
    ExclusiveScan(gpuad_reduced(in, op), before, op, rest...);
    T total = t() > 0 || sizeof...(Rest) > holds_all<Rest...>() ? op(before, in[0]) : in[0];
    out[0] = total;
    for (int k = 1; k < Items; k++) {
      total = op(total, in[k]);
      out[k] = total;
    }
  }
  template <int Items, class Op, class... Rest>
  GPUAD_G void ExclusiveScan(T (&in)[Items], T (&out)[Items], T initial, Op op, Rest&... rest) {
    T before;
    ExclusiveScan(gpuad_reduced(in, op), before, initial, op, rest...);
    spread(in, out, before, op);
  }
  template <int Items, class Op, class Prefix> GPUAD_G void ExclusiveScan(T (&in)[Items], T (&out)[Items], Op op, Prefix& prefix) {
    T before;
    ExclusiveScan(gpuad_reduced(in, op), before, op, prefix);
    spread(in, out, before, op);
  }
  template <int Items, class... Rest> GPUAD_G void InclusiveSum(T (&in)[Items], T (&out)[Items], Rest&... rest) {
    InclusiveScan(in, out, cub::Sum(), rest...);
  }
  template <int Items> GPUAD_G void ExclusiveSum(T (&in)[Items], T (&out)[Items]) { ExclusiveScan(in, out, T(), cub::Sum()); }
  template <int Items> GPUAD_G void ExclusiveSum(T (&in)[Items], T (&out)[Items], T& all) {
    ExclusiveScan(in, out, T(), cub::Sum(), all);
  }
  template <int Items, class Prefix> GPUAD_G void ExclusiveSum(T (&in)[Items], T (&out)[Items], Prefix& prefix) {
    ExclusiveScan(in, out, cub::Sum(), prefix);
  }

 private:
  TempStorage* s;
  template <class... Rest> static constexpr int holds_all() { return (0 + ... + (int)std::is_same<Rest, T>::value); }
  GPUAD_G static int t() { return cooperative_groups::gpuad::rank_in_block(); }
  // Of the items up to one the piece that it is in, and what was before that.
  template <class Op> GPUAD_G T upto(int k, Op op) const {
    return k < each ? s->items[k] : op(s->before[k / each], s->items[k]);
  }
  template <class Op> GPUAD_G void scan(T in, Op op, T& all) {
    const int first = t() * each;
    s->items[t()] = in;
    __syncthreads();
    if (t() < pieces) {
      T total = s->items[first];
      for (int k = 1; k < each; k++)
        if (first + k < threads) {
          total = op(total, s->items[first + k]);
          s->items[first + k] = total;
        }
    }
    __syncthreads();
    if (t() == 0) {
      T total = s->items[each < threads ? each - 1 : 0];
      for (int k = 1; k < pieces; k++) {
        s->before[k] = total;
        if (k + 1 < pieces) total = op(total, s->items[k * each + each - 1]);
      }
    }
    __syncthreads();
    all = upto(threads - 1, op);
  }
  // What a function of the whole that the first warp calls gives to the first thread, for all.
  template <class Prefix> GPUAD_G T given(Prefix& prefix, T all) {
    if (t() < 32) {
      T value = prefix(all);
      if (t() == 0) s->prefix = value;
    }
    __syncthreads();
    return s->prefix;
  }
  template <int Items, class Op> GPUAD_G static void spread(T (&in)[Items], T (&out)[Items], T before, Op op) {
    T total = before;
    for (int k = 0; k < Items; k++) {
      T item = in[k];
      out[k] = total;
      total = op(total, item);
    }
  }
};

namespace gpuad {
// The lanes of a logical warp, and which of them a thread is.
template <int Size> GPUAD_G unsigned lanes() {
  static_assert(Size <= 32 && (Size & (Size - 1)) == 0, "logical warps of 1, 2, 4, 8, 16 and 32 threads are supported");
  return cooperative_groups::gpuad::lanes(Size);
}
template <int Size> GPUAD_G int lane() { return cooperative_groups::gpuad::rank_in_block() & (Size - 1); }
}  // namespace gpuad

template <class T, int Size = 32, int = 0> class WarpReduce {
 public:
  struct TempStorage { T item; };
  GPUAD_G WarpReduce(TempStorage&) {}
  template <class Op> GPUAD_G T Reduce(T value, Op op, int valid) {
    for (unsigned by = 1; by < Size; by *= 2) {
      T other = cooperative_groups::gpuad::from_above<T>(gpuad::lanes<Size>(), value, by, Size);
      if (gpuad::lane<Size>() + (int)by < valid) value = op(value, other);
    }
    return value;
  }
  template <class Op> GPUAD_G T Reduce(T value, Op op) { return Reduce(value, op, Size); }
  template <int Items, class Op> GPUAD_G T Reduce(T (&items)[Items], Op op) { return Reduce(gpuad_reduced(items, op), op, Size); }
  GPUAD_G T Sum(T value) { return Reduce(value, cub::Sum(), Size); }
  GPUAD_G T Sum(T value, int valid) { return Reduce(value, cub::Sum(), valid); }
  template <int Items> GPUAD_G T Sum(T (&items)[Items]) { return Reduce(items, cub::Sum()); }
  GPUAD_G T Max(T value) { return Reduce(value, cub::Max(), Size); }
  GPUAD_G T Min(T value) { return Reduce(value, cub::Min(), Size); }
};

template <class T, int Size = 32, int = 0> class WarpScan {
 public:
  struct TempStorage { T item; };
  GPUAD_G WarpScan(TempStorage&) {}
  GPUAD_G T Broadcast(T value, unsigned lane) {
    return cooperative_groups::gpuad::from<T>(gpuad::lanes<Size>(), value, lane, Size);
  }
  template <class Op> GPUAD_G void InclusiveScan(T in, T& out, Op op) {
    T total = in;
    for (unsigned by = 1; by < Size; by *= 2) {
      T before = cooperative_groups::gpuad::from_below<T>(gpuad::lanes<Size>(), total, by, Size);
      if (gpuad::lane<Size>() >= (int)by) total = op(before, total);
    }
    out = total;
  }
  template <class Op> GPUAD_G void InclusiveScan(T in, T& out, Op op, T& all) {
    T total;
    InclusiveScan(in, total, op);
    all = Broadcast(total, Size - 1);
    out = total;
  }
  template <class Op> GPUAD_G void Scan(T in, T& inclusive, T& exclusive, Op op) {
    T total;
    InclusiveScan(in, total, op);
    exclusive = cooperative_groups::gpuad::from_below<T>(gpuad::lanes<Size>(), total, 1u, Size);
    inclusive = total;
  }
  template <class Op> GPUAD_G void Scan(T in, T& inclusive, T& exclusive, T initial, Op op) {
    T total, before;
    Scan(in, total, before, op);
    inclusive = op(initial, total);
    exclusive = gpuad::lane<Size>() > 0 ? op(initial, before) : initial;
  }
  template <class Op> GPUAD_G void ExclusiveScan(T in, T& out, Op op) {
    T total;
    Scan(in, total, out, op);
  }
  template <class Op> GPUAD_G void ExclusiveScan(T in, T& out, T initial, Op op) {
    T total;
    Scan(in, total, out, initial, op);
  }
  template <class Op> GPUAD_G void ExclusiveScan(T in, T& out, T initial, Op op, T& all) {
    T total, before;
    Scan(in, total, before, op);
    all = Broadcast(total, Size - 1);
    out = gpuad::lane<Size>() > 0 ? op(initial, before) : initial;
  }
  GPUAD_G void InclusiveSum(T in, T& out) { InclusiveScan(in, out, cub::Sum()); }
  GPUAD_G void InclusiveSum(T in, T& out, T& all) { InclusiveScan(in, out, cub::Sum(), all); }
  GPUAD_G void ExclusiveSum(T in, T& out) { ExclusiveScan(in, out, T(), cub::Sum()); }
  GPUAD_G void ExclusiveSum(T in, T& out, T& all) { ExclusiveScan(in, out, T(), cub::Sum(), all); }
};

// Which element a thread's item is: of a blocked arrangement one after the other, of a striped one a block's threads apart.
template <class T, int X, int Items, BlockLoadAlgorithm A = BLOCK_LOAD_DIRECT, int Y = 1, int Z = 1, int = 0> class BlockLoad {
 public:
  struct TempStorage { T item; };
  GPUAD_G BlockLoad(TempStorage&) {}
  template <class From> GPUAD_G void Load(From from, T (&items)[Items]) {
    for (int k = 0; k < Items; k++) items[k] = from[place(k)];
  }
  template <class From> GPUAD_G void Load(From from, T (&items)[Items], int valid) {
    for (int k = 0; k < Items; k++)
      if (place(k) < valid) items[k] = from[place(k)];
  }
  template <class From, class Rest> GPUAD_G void Load(From from, T (&items)[Items], int valid, Rest rest) {
    for (int k = 0; k < Items; k++) items[k] = place(k) < valid ? (T)from[place(k)] : (T)rest;
  }
 private:
  GPUAD_G static int place(int k) {
    const int t = cooperative_groups::gpuad::rank_in_block();
    return A == BLOCK_LOAD_STRIPED ? k * X * Y * Z + t : t * Items + k;
  }
};

template <class T, int X, int Items, BlockStoreAlgorithm A = BLOCK_STORE_DIRECT, int Y = 1, int Z = 1, int = 0> class BlockStore {
 public:
  struct TempStorage { T item; };
  GPUAD_G BlockStore(TempStorage&) {}
  template <class To> GPUAD_G void Store(To to, T (&items)[Items]) {
    for (int k = 0; k < Items; k++) to[place(k)] = items[k];
  }
  template <class To> GPUAD_G void Store(To to, T (&items)[Items], int valid) {
    for (int k = 0; k < Items; k++)
      if (place(k) < valid) to[place(k)] = items[k];
  }
 private:
  GPUAD_G static int place(int k) {
    const int t = cooperative_groups::gpuad::rank_in_block();
    return A == BLOCK_STORE_STRIPED ? k * X * Y * Z + t : t * Items + k;
  }
};
}  // namespace cub
#undef GPUAD_G
#undef GPUAD_COMMA
