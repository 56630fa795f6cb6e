// Reductions over the lanes of a tile, by a butterfly, so that every lane gets the result. Of two values the one of the lower lanes stands
// first: all lanes compute one and the same tree, and where an operation has to choose between equal values it chooses the first lane's.
#pragma once
#include "gpuad/groups.h"
#define GPUAD_G inline __device__

namespace cooperative_groups {

template <typename T> struct plus { GPUAD_G T operator()(T a, T b) const { return a + b; } };
template <typename T> struct less { GPUAD_G T operator()(T a, T b) const { return b < a ? b : a; } };
template <typename T> struct greater { GPUAD_G T operator()(T a, T b) const { return a < b ? b : a; } };
template <typename T> struct bit_and { GPUAD_G T operator()(T a, T b) const { return a & b; } };
template <typename T> struct bit_or { GPUAD_G T operator()(T a, T b) const { return a | b; } };
template <typename T> struct bit_xor { GPUAD_G T operator()(T a, T b) const { return a ^ b; } };

template <unsigned int N, typename P, typename T, typename F>
GPUAD_G T reduce(const thread_block_tile<N, P>& tile, T value, F op) {
  for (int k = 0; k < gpuad::halvings(N); ++k) {
    T other = gpuad::from_partner<T>(gpuad::lanes(N), value, 1 << k, 32);
    bool first = (tile.thread_rank() >> k & 1u) == 0u;
    value = op(first ? value : other, first ? other : value);
  }
  return value;
}
template <unsigned int N, typename P, typename T, typename U>
GPUAD_G T reduce(const thread_block_tile<N, P>& tile, T value, plus<U>) {
  for (int k = 0; k < gpuad::halvings(N); ++k) value = value + gpuad::from_partner<T>(gpuad::lanes(N), value, 1 << k, 32);
  return value;
}
template <typename T, typename F> GPUAD_G T reduce(const coalesced_group& group, T value, F op) {
  T all = group.shfl(value, 0);
  for (unsigned int k = 1; k < group.size(); ++k) all = op(all, group.shfl(value, k));
  return all;
}

}  // namespace cooperative_groups
#undef GPUAD_G
