// The type of CuPy's elementwise kernels and jit functions for arrays of bfloat16.
#pragma once
#include <cuda_bf16.h>
#define GPUAD_T bfloat16
#define GPUAD_HALF __nv_bfloat16
#include <gpuad/cupy_halves.h>
