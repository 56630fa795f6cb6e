// Arithmetic and conversions that round in a direction: the nearest number, or its neighbour where the error has the wrong sign. Their
// derivatives are those of the functions that they round. `e` is the exact value less the nearest number, as far as its sign goes: floats
// are computed with in double, of doubles the error is a double itself, but where that is subnormal.
#pragma once
#define GPUAD_DIRECTED(T, name, nearest, error, ...) \
  GPUAD_F T name##_ru(__VA_ARGS__) { \
    const T r = nearest; \
    const double e = error; \
    return e > 0 ? nextafter(r, T(__builtin_inf())) : r; \
  } \
  GPUAD_F T name##_rd(__VA_ARGS__) { \
    const T r = nearest; \
    const double e = error; \
    return e < 0 ? nextafter(r, -T(__builtin_inf())) : r; \
  } \
  GPUAD_F T name##_rz(__VA_ARGS__) { \
    const T r = nearest; \
    const double e = error; \
    return (r > 0 ? e < 0 : e > 0) ? nextafter(r, T(0)) : r; \
  }

// The error of a sum, and of a fused product and sum (Boldo and Muller, Exact and approximated error of the FMA, 2011).
namespace gpuad_rounding {
GPUAD_F double sum_error(double a, double b, double sum) {
  double other = sum - a;
  return (a - (sum - other)) + (b - other);
}
GPUAD_F double fma_error(double a, double b, double c, double r) {
  double product = a * b, rest = fma(a, b, -product), low = c + rest, lower = sum_error(c, rest, low);
  double high = product + low, middle = sum_error(product, low, high);
  return ((high - r) + middle) + lower;
}
}  // namespace gpuad_rounding
#define GPUAD_SUM gpuad_rounding::sum_error
#define GPUAD_FMA gpuad_rounding::fma_error
// Where finite numbers give an infinite one, that is too great.
#define GPUAD_FINITE(finite, error) (isinf(r) ? ((finite) ? -r : 0.0) : (error))

GPUAD_DIRECTED(float, __fadd, (float)((double)a + b), ((double)a + b - r) + GPUAD_SUM(a, b, (double)a + b), float a, float b)
GPUAD_DIRECTED(float, __fsub, (float)((double)a - b), ((double)a - b - r) + GPUAD_SUM(a, -b, (double)a - b), float a, float b)
GPUAD_DIRECTED(float, __fmul, a * b, (double)a * b - r, float a, float b)
GPUAD_DIRECTED(
    float, __fdiv, a / b, b > 0 ? fma(-(double)r, (double)b, (double)a) : fma((double)r, (double)b, -(double)a), float a, float b)
GPUAD_DIRECTED(float, __frcp, 1 / b, b > 0 ? fma(-(double)r, (double)b, 1.0) : fma((double)r, (double)b, -1.0), float b)
GPUAD_DIRECTED(float, __fsqrt, sqrt(a), fma(-(double)r, (double)r, (double)a), float a)
GPUAD_DIRECTED(
    float, __fmaf, (float)((double)a * b + c), ((double)a * b + c - r) + GPUAD_SUM((double)a * b, c, (double)a * b + c), float a,
    float b, float c)
GPUAD_DIRECTED(double, __dadd, a + b, GPUAD_FINITE(isfinite(a) && isfinite(b), GPUAD_SUM(a, b, r)), double a, double b)
GPUAD_DIRECTED(double, __dsub, a - b, GPUAD_FINITE(isfinite(a) && isfinite(b), GPUAD_SUM(a, -b, r)), double a, double b)
GPUAD_DIRECTED(double, __dmul, a * b, GPUAD_FINITE(isfinite(a) && isfinite(b), fma(a, b, -r)), double a, double b)
GPUAD_DIRECTED(
    double, __ddiv, a / b, GPUAD_FINITE(isfinite(a) && b != 0, b > 0 ? fma(-r, b, a) : fma(r, b, -a)), double a, double b)
GPUAD_DIRECTED(double, __drcp, 1 / b, GPUAD_FINITE(b != 0, b > 0 ? fma(-r, b, 1.0) : fma(r, b, -1.0)), double b)
GPUAD_DIRECTED(double, __dsqrt, sqrt(a), fma(-r, r, a), double a)
GPUAD_DIRECTED(
    double, __fma, fma(a, b, c), GPUAD_FINITE(isfinite(a) && isfinite(b) && isfinite(c), GPUAD_FMA(a, b, c, r)), double a, double b,
    double c)

// Of a whole number, which the nearest one may leave the range of.
#define GPUAD_WHOLE(T, limit) ((double)r >= limit ? -1.0 : (T)r < x ? 1.0 : (T)r > x ? -1.0 : 0.0)
GPUAD_DIRECTED(float, __double2float, (float)x, x - r, double x)
GPUAD_DIRECTED(float, __int2float, (float)x, (double)x - r, int x)
GPUAD_DIRECTED(float, __uint2float, (float)x, (double)x - r, unsigned int x)
GPUAD_DIRECTED(float, __ll2float, (float)x, GPUAD_WHOLE(long long, 9223372036854775808.0), long long x)
GPUAD_DIRECTED(float, __ull2float, (float)x, GPUAD_WHOLE(unsigned long long, 18446744073709551616.0), unsigned long long x)
GPUAD_DIRECTED(double, __ll2double, (double)x, GPUAD_WHOLE(long long, 9223372036854775808.0), long long x)
GPUAD_DIRECTED(double, __ull2double, (double)x, GPUAD_WHOLE(unsigned long long, 18446744073709551616.0), unsigned long long x)
#undef GPUAD_DIRECTED
#undef GPUAD_SUM
#undef GPUAD_FMA
#undef GPUAD_FINITE
#undef GPUAD_WHOLE
