// Half precision.
#pragma once

#define GPUAD_N half
#define GPUAD_T __half
#define GPUAD_T2 __half2
#include <gpuad/halves.h>
typedef __half half;
typedef __half2 half2;
#define GPUAD_FP16
#include <gpuad/group_halves.h>
