// CuPy's complex numbers: thrust's, by their names alone, and a few functions more.
#pragma once
#include "gpuad/complex.h"

using thrust::complex;
using thrust::conj;
using thrust::real;
using thrust::imag;
using thrust::arg;
using thrust::exp;
using thrust::log;
using thrust::log10;
using thrust::sin;
using thrust::cos;
using thrust::tan;
using thrust::sinh;
using thrust::cosh;
using thrust::tanh;
using thrust::asinh;
using thrust::acosh;
using thrust::atanh;
using thrust::asin;
using thrust::acos;
using thrust::atan;

#define GPUAD_C inline __host__ __device__
#define GPUAD_COMPLEX(T) \
  GPUAD_C bool isnan(complex<T> z) { return isnan(z.real()) || isnan(z.imag()); } \
  GPUAD_C bool isinf(complex<T> z) { return isinf(z.real()) || isinf(z.imag()); } \
  GPUAD_C bool isfinite(complex<T> z) { return isfinite(z.real()) && isfinite(z.imag()); } \
  GPUAD_C complex<T> log1p(complex<T> z) { return log(z + T(1)); } \
  GPUAD_C complex<T> log2(complex<T> z) { return log(z) / T(0.693147180559945309417); } \
  GPUAD_C complex<T> expm1(complex<T> z) { return exp(z) - T(1); } \
  GPUAD_C complex<T> min(complex<T> a, complex<T> b) { return isnan(a) ? b : isnan(b) || a < b ? a : b; } \
  GPUAD_C complex<T> max(complex<T> a, complex<T> b) { return isnan(a) ? b : isnan(b) || !(a < b) ? a : b; } \
  GPUAD_C complex<T> rint(complex<T> z) { return complex<T>(rint(z.real()), rint(z.imag())); }
GPUAD_COMPLEX(float)
GPUAD_COMPLEX(double)
#undef GPUAD_COMPLEX
#undef GPUAD_C
