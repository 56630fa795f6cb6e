// What CuPy adds to CUDA's atomic functions, for elementwise kernels.
#pragma once
static __device__ float atomicMax(float *, float);
static __device__ float atomicMin(float *, float);
