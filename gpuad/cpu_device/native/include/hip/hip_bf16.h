// bfloat16: kept as bits, computed with in float, each result rounded.
#pragma once
#include "../gpuad_device.h"

struct __hip_bfloat16_raw { unsigned short x; };
struct __hip_bfloat16 {
  unsigned short bits;
  __hip_bfloat16() = default;
  __hip_bfloat16(float v) : bits(gpuad_library::gpuad_to_bfloat16(v)) {}
  __hip_bfloat16(double v) : bits(gpuad_library::gpuad_to_bfloat16(float(v))) {}
  __hip_bfloat16(const __hip_bfloat16_raw& v) : bits(v.x) {}
  template <class T, class = std::enable_if_t<std::is_integral<T>::value>> __hip_bfloat16(T v) : bits(gpuad_library::gpuad_to_bfloat16(float(v))) {}
  operator float() const { return gpuad_library::gpuad_from_bfloat16(bits); }
};
typedef __hip_bfloat16 __nv_bfloat16;
static inline float __bfloat162float(__hip_bfloat16 v) { return v; }
static inline __hip_bfloat16 __float2bfloat16(float v) { return v; }
static inline __hip_bfloat16 __float2bfloat16_rn(float v) { return v; }
static inline __hip_bfloat16 __double2bfloat16(double v) { return v; }
static inline unsigned short __bfloat16_as_ushort(__hip_bfloat16 v) { return v.bits; }
static inline __hip_bfloat16 __ushort_as_bfloat16(unsigned short v) { return __hip_bfloat16(__hip_bfloat16_raw{v}); }
#define GPUAD_SMALL __hip_bfloat16
#include "../gpuad_small_floats.h"
#undef GPUAD_SMALL
struct alignas(4) __nv_bfloat162 { __hip_bfloat16 x, y; };
static inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {v.x, v.y}; }
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {a, b}; }
static inline float __low2float(__nv_bfloat162 v) { return v.x; }
static inline float __high2float(__nv_bfloat162 v) { return v.y; }
