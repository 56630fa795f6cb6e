// What a compiled text and the device know of one another.
#pragma once

extern "C" {
struct gpuad_launch { unsigned grid[3], block[3], shared; unsigned long long order; };  // order: 0 in order, else a seed
struct gpuad_kernel { void* function; void (*run)(void* function, const gpuad_launch*, void** parameters); const unsigned* sizes; };  // in bytes, 0 behind the last
struct gpuad_variable { void* address; unsigned long bytes; };
struct gpuad_now { unsigned thread[3], block[3], block_size[3], grid_size[3], rank; char* shared; };  // the thread that is running

// Runs `call` for each thread of each block. With `together` each thread has a stack of its own and may wait.
void gpuad_threads(const gpuad_launch*, gpuad_now*, void (*call)(void*), void* data, int together);
void gpuad_wait_block();
void gpuad_wait_warp(unsigned mask);
void* gpuad_lane(unsigned lane);  // 32 bytes that the lanes of a warp see of one another; of this thread's warp
unsigned gpuad_lanes();           // those of this thread's warp that have not ended
int gpuad_count(int predicate);   // over the block
[[noreturn]] void gpuad_stop(const char* why);  // the launch that is running
}
