// Halves: kept as bits, computed with in float, each result rounded.
#pragma once
#include "../gpuad_device.h"

struct __half_raw { unsigned short x; };
struct __half {
  unsigned short bits;
  __half() = default;
  __half(float v) : bits(gpuad_library::gpuad_to_half(v)) {}
  __half(double v) : bits(gpuad_library::gpuad_to_half(v)) {}
  __half(const __half_raw& v) : bits(v.x) {}
  template <class T, class = std::enable_if_t<std::is_integral<T>::value>> __half(T v) : bits(gpuad_library::gpuad_to_half(double(v))) {}
  operator float() const { return gpuad_library::gpuad_from_half(bits); }
  operator __half_raw() const { return {bits}; }
};
typedef __half half;
static inline float __half2float(__half v) { return v; }
static inline __half __float2half(float v) { return v; }
static inline __half __float2half_rn(float v) { return v; }
static inline __half __double2half(double v) { return v; }
static inline unsigned short __half_as_ushort(__half v) { return v.bits; }
static inline short __half_as_short(__half v) { return short(v.bits); }
static inline __half __ushort_as_half(unsigned short v) { return __half(__half_raw{v}); }
static inline __half __short_as_half(short v) { return __half(__half_raw{(unsigned short)v}); }
#define GPUAD_SMALL __half
#include "../gpuad_small_floats.h"
#undef GPUAD_SMALL
struct alignas(4) __half2 { __half x, y; };
typedef __half2 half2;
static inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
static inline __half2 make_half2(__half a, __half b) { return {a, b}; }
static inline __half2 __float2half2_rn(float v) { return {v, v}; }
static inline __half2 __floats2half2_rn(float a, float b) { return {a, b}; }
static inline __half2 __half2half2(__half v) { return {v, v}; }
static inline float2 __half22float2(__half2 v) { return {v.x, v.y}; }
static inline __half __low2half(__half2 v) { return v.x; }
static inline __half __high2half(__half2 v) { return v.y; }
static inline float __low2float(__half2 v) { return v.x; }
static inline float __high2float(__half2 v) { return v.y; }
static inline __half2 __hadd2(__half2 a, __half2 b) { return {__half(float(a.x) + float(b.x)), __half(float(a.y) + float(b.y))}; }
static inline __half2 __hmul2(__half2 a, __half2 b) { return {__half(float(a.x) * float(b.x)), __half(float(a.y) * float(b.y))}; }
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
static inline __half2 atomicAdd(__half2* p, __half2 v) { __half2 old = *p; *p = __hadd2(old, v); return old; }
