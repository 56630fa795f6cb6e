// Floating-point functions. `pow(float, double)` is ambiguous and `sqrt(int)` too, as in NVRTC.
#pragma once
#define GPUAD_F static __device__

#define GPUAD_UNARY(name) \
  GPUAD_F float name(float); \
  GPUAD_F double name(double); \
  GPUAD_F float name##f(float);
GPUAD_UNARY(sqrt) GPUAD_UNARY(rsqrt) GPUAD_UNARY(cbrt) GPUAD_UNARY(rcbrt)
GPUAD_UNARY(exp) GPUAD_UNARY(exp2) GPUAD_UNARY(exp10) GPUAD_UNARY(expm1)
GPUAD_UNARY(log) GPUAD_UNARY(log2) GPUAD_UNARY(log10) GPUAD_UNARY(log1p)
GPUAD_UNARY(sin) GPUAD_UNARY(cos) GPUAD_UNARY(tan) GPUAD_UNARY(asin) GPUAD_UNARY(acos) GPUAD_UNARY(atan)
GPUAD_UNARY(sinh) GPUAD_UNARY(cosh) GPUAD_UNARY(tanh) GPUAD_UNARY(asinh) GPUAD_UNARY(acosh) GPUAD_UNARY(atanh)
GPUAD_UNARY(sinpi) GPUAD_UNARY(cospi)
GPUAD_UNARY(erf) GPUAD_UNARY(erfc) GPUAD_UNARY(erfinv) GPUAD_UNARY(erfcinv) GPUAD_UNARY(erfcx)
GPUAD_UNARY(normcdf) GPUAD_UNARY(normcdfinv) GPUAD_UNARY(tgamma) GPUAD_UNARY(lgamma)
GPUAD_UNARY(j0) GPUAD_UNARY(j1) GPUAD_UNARY(y0) GPUAD_UNARY(y1)
GPUAD_UNARY(cyl_bessel_i0) GPUAD_UNARY(cyl_bessel_i1)
GPUAD_UNARY(fabs) GPUAD_UNARY(floor) GPUAD_UNARY(ceil) GPUAD_UNARY(trunc) GPUAD_UNARY(round) GPUAD_UNARY(rint)
GPUAD_UNARY(nearbyint) GPUAD_UNARY(logb)
#undef GPUAD_UNARY

#define GPUAD_BINARY(name) \
  GPUAD_F float name(float, float); \
  GPUAD_F double name(double, double); \
  GPUAD_F float name##f(float, float);
GPUAD_BINARY(pow) GPUAD_BINARY(atan2) GPUAD_BINARY(fmin) GPUAD_BINARY(fmax) GPUAD_BINARY(fmod) GPUAD_BINARY(remainder)
GPUAD_BINARY(hypot) GPUAD_BINARY(fdim) GPUAD_BINARY(nextafter) GPUAD_BINARY(copysign)
#undef GPUAD_BINARY
GPUAD_F float pow(float, int);
GPUAD_F double pow(double, int);
GPUAD_F double copysign(double, float);
GPUAD_F double copysign(float, double);
GPUAD_F double rhypot(double, double);
GPUAD_F float rhypotf(float, float);
GPUAD_F float fma(float, float, float);
GPUAD_F double fma(double, double, double);
GPUAD_F float fmaf(float, float, float);
GPUAD_F float fdividef(float, float);

#define GPUAD_TO(R, name) \
  GPUAD_F R name(float); \
  GPUAD_F R name(double); \
  GPUAD_F R name##f(float);
GPUAD_TO(long, lrint) GPUAD_TO(long, lround) GPUAD_TO(long long, llrint) GPUAD_TO(long long, llround)
#undef GPUAD_TO

#define GPUAD_CLASSIFY(f) \
  GPUAD_F int f(float); \
  GPUAD_F int f(double);
GPUAD_CLASSIFY(isnan) GPUAD_CLASSIFY(isinf) GPUAD_CLASSIFY(isfinite) GPUAD_CLASSIFY(signbit)
#undef GPUAD_CLASSIFY
GPUAD_F int __isnan(double);
GPUAD_F int __isinf(double);
GPUAD_F int __finite(double);
GPUAD_F int __signbit(double);
GPUAD_F int __isnanf(float);
GPUAD_F int __isinff(float);
GPUAD_F int __finitef(float);
GPUAD_F int __signbitf(float);

#define GPUAD_SCALED(name, N) \
  GPUAD_F float name(float, N); \
  GPUAD_F double name(double, N); \
  GPUAD_F float name##f(float, N);
GPUAD_SCALED(ldexp, int) GPUAD_SCALED(scalbn, int)
#undef GPUAD_SCALED
GPUAD_F float jn(int, float);
GPUAD_F double jn(int, double);
GPUAD_F float yn(int, float);
GPUAD_F double yn(int, double);
GPUAD_F float jnf(int, float);
GPUAD_F float ynf(int, float);

GPUAD_F void sincos(float, float *, float *);
GPUAD_F void sincos(double, double *, double *);
GPUAD_F void sincosf(float, float *, float *);
GPUAD_F void sincospi(float, float *, float *);
GPUAD_F void sincospi(double, double *, double *);
GPUAD_F void sincospif(float, float *, float *);
GPUAD_F void __sincosf(float, float *, float *);
GPUAD_F float nanf(const char *);
GPUAD_F double nan(const char *);

#define GPUAD_FAST(f) GPUAD_F float f(float);
GPUAD_FAST(__expf) GPUAD_FAST(__exp10f) GPUAD_FAST(__logf) GPUAD_FAST(__log2f) GPUAD_FAST(__log10f) GPUAD_FAST(__sinf) GPUAD_FAST(__cosf)
GPUAD_FAST(__tanf) GPUAD_FAST(__tanhf) GPUAD_FAST(__saturatef) GPUAD_FAST(__frsqrt_rn)
#undef GPUAD_FAST
GPUAD_F float __powf(float, float);
GPUAD_F float __fdividef(float, float);
#define GPUAD_ROUNDED(r) \
  GPUAD_F float __frcp_##r(float); \
  GPUAD_F float __fsqrt_##r(float); \
  GPUAD_F float __fadd_##r(float, float); \
  GPUAD_F float __fsub_##r(float, float); \
  GPUAD_F float __fmul_##r(float, float); \
  GPUAD_F float __fdiv_##r(float, float); \
  GPUAD_F float __fmaf_##r(float, float, float); \
  GPUAD_F double __drcp_##r(double); \
  GPUAD_F double __dsqrt_##r(double); \
  GPUAD_F double __dadd_##r(double, double); \
  GPUAD_F double __dsub_##r(double, double); \
  GPUAD_F double __dmul_##r(double, double); \
  GPUAD_F double __ddiv_##r(double, double); \
  GPUAD_F double __fma_##r(double, double, double);
GPUAD_ROUNDED(rn) GPUAD_ROUNDED(rz) GPUAD_ROUNDED(ru) GPUAD_ROUNDED(rd)
#undef GPUAD_ROUNDED
