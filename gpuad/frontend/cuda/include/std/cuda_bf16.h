// bfloat16: a float without its lower 16 bits.
#pragma once

#define GPUAD_N bfloat16
#define GPUAD_T __nv_bfloat16
#define GPUAD_T2 __nv_bfloat162
#include <gpuad/halves.h>
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
#define GPUAD_BF16
#include <gpuad/group_halves.h>
