// What CuPy's header of arrays gives to a raw kernel; its arrays themselves are arguments of elementwise kernels.
#pragma once
#include "gpuad/type_traits.h"
namespace cupy {
namespace type_traits {
using std::conditional;
using std::enable_if;
using std::is_same;
}
}
#ifndef M_PI
#define M_PI 3.1415926535897932384626433832795
#endif
#define CUPY_FOR(i, n) \
  for (ptrdiff_t i = static_cast<ptrdiff_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < (n); \
       i += static_cast<ptrdiff_t>(blockDim.x) * gridDim.x)
