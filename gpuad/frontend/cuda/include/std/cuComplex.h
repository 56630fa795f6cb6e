// cuComplex.h: complex numbers as float2 and double2, with functions in the place of operators.
#pragma once
#define GPUAD_C inline __host__ __device__
typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef cuFloatComplex cuComplex;
// `f` ends the names of the functions of cuFloatComplex; two calls give one macro for both.
#define GPUAD_COMPLEX(C, T, f, make, hypot, fabs, fma) \
  GPUAD_C C make(T re, T im) { \
    C z; \
    z.x = re; \
    z.y = im; \
    return z; \
  } \
  GPUAD_C T cuCreal##f(C z) { return z.x; } \
  GPUAD_C T cuCimag##f(C z) { return z.y; } \
  GPUAD_C C cuConj##f(C z) { return make(z.x, -z.y); } \
  GPUAD_C C cuCadd##f(C a, C b) { return make(a.x + b.x, a.y + b.y); } \
  GPUAD_C C cuCsub##f(C a, C b) { return make(a.x - b.x, a.y - b.y); } \
  GPUAD_C C cuCmul##f(C a, C b) { return make(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); } \
  GPUAD_C C cuCdiv##f(C a, C b) { \
    T scale = T(1) / (fabs(b.x) + fabs(b.y)); \
    C p = make(a.x * scale, a.y * scale), q = make(b.x * scale, b.y * scale); \
    T inverse = T(1) / (q.x * q.x + q.y * q.y); \
    return make((p.x * q.x + p.y * q.y) * inverse, (p.y * q.x - p.x * q.y) * inverse); \
  } \
  GPUAD_C T cuCabs##f(C z) { \
    T r = hypot(z.x, z.y); \
    return r; \
  } \
  GPUAD_C C cuCfma##f(C a, C b, C c) { \
    return make(fma(a.x, b.x, c.x) - a.y * b.y, fma(a.x, b.y, c.y) + a.y * b.x); \
  }
GPUAD_COMPLEX(cuFloatComplex, float, f, make_cuFloatComplex, hypotf, fabsf, fmaf)
GPUAD_COMPLEX(cuDoubleComplex, double, , make_cuDoubleComplex, hypot, fabs, fma)
#undef GPUAD_COMPLEX
GPUAD_C cuComplex make_cuComplex(float re, float im) { return make_cuFloatComplex(re, im); }
GPUAD_C cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex z) { return make_cuFloatComplex((float)z.x, (float)z.y); }
GPUAD_C cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex z) { return make_cuDoubleComplex(z.x, z.y); }
#undef GPUAD_C
