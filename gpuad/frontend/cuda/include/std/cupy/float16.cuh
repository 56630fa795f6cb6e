// The type of CuPy's elementwise kernels and jit functions for arrays of float16.
#pragma once
#include <cuda_fp16.h>
#define GPUAD_T float16
#define GPUAD_HALF __half
#include <gpuad/cupy_halves.h>
