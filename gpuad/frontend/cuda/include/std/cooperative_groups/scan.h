// Scans over the lanes of a tile: each lane gets what the lanes before it (and it itself) have together.
#pragma once
#include "cooperative_groups/reduce.h"
#define GPUAD_G inline __device__

namespace cooperative_groups {

template <unsigned int N, typename P, typename T, typename F>
GPUAD_G T inclusive_scan(const thread_block_tile<N, P>& tile, T value, F op) {
  for (int k = 0; k < gpuad::halvings(N); ++k) {
    T before = tile.shfl_up(value, 1u << k);
    if (tile.thread_rank() >= 1u << k) value = op(before, value);
  }
  return value;
}
template <unsigned int N, typename P, typename T> GPUAD_G T inclusive_scan(const thread_block_tile<N, P>& tile, T value) {
  return inclusive_scan(tile, value, plus<T>());
}
template <unsigned int N, typename P, typename T, typename U>
GPUAD_G T exclusive_scan(const thread_block_tile<N, P>& tile, T value, plus<U> op) {
  T before = tile.shfl_up(inclusive_scan(tile, value, op), 1u);
  return tile.thread_rank() == 0u ? T(0) : before;
}
template <unsigned int N, typename P, typename T> GPUAD_G T exclusive_scan(const thread_block_tile<N, P>& tile, T value) {
  return exclusive_scan(tile, value, plus<T>());
}

}  // namespace cooperative_groups
#undef GPUAD_G
