// CuPy bundles some of CUDA's named constants under this name.
#pragma once
#include <math_constants.h>
