// thrust::complex<float> and <double>, which CuPy's complex.cuh and thrust/complex.h offer: two numbers side by side, and functions of them.
// Division scales by |re| + |im| as CuPy's does; the functions with branch cuts follow Kahan (Branch cuts for complex elementary functions,
// 1987), so that they are accurate near their branch points too. Everything here is inlined into the kernel and differentiated like it.
#pragma once
#define GPUAD_DEFAULT complex() = default;
namespace thrust {
#include "gpuad/complex_numbers.h"
}
#undef GPUAD_DEFAULT
