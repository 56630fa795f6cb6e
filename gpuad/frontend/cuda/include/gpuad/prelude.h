// What every CUDA source finds declared before its first line, as NVRTC declares it: qualifiers, built-in variables, functions.
// Declarations, to which the frontend gives their meaning by name, but for composed.h. The overload sets decide which types a call computes in, so
// tests/frontend/test_shim_types.py compares them with NVRTC's.
#pragma once
#include "gpuad/qualifiers.h"
#include "gpuad/types.h"
#include "gpuad/math.h"
#include "gpuad/integers.h"
#include "gpuad/conversions.h"
#include "gpuad/atomics.h"
#include "gpuad/refused.h"
#include "gpuad/composed.h"
#include "gpuad/rounding.h"
#include "gpuad/texture.h"
