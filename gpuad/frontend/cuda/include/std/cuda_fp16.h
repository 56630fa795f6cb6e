// Half precision. A __half is a number of its own to gpuad, kept as 16 bits and computed with in float: what the hardware does in half is
// the float result rounded once more, which is the same for + - * / and sqrt; conversions are declared here and known by name.
#pragma once
#define GPUAD_H inline __host__ __device__

struct __align__(2) __half {
  __half() = default;
  __host__ __device__ __half(float);
  __host__ __device__ __half(double);
  __host__ __device__ __half(int);
  __host__ __device__ __half(unsigned);
  __host__ __device__ __half(long);
  __host__ __device__ __half(unsigned long);
  __host__ __device__ __half(long long);
  __host__ __device__ __half(unsigned long long);
  __host__ __device__ operator float() const;
 private:
  unsigned short bits;
};
typedef __half half;
struct __align__(4) __half2 { __half x, y; };
typedef __half2 half2;

__host__ __device__ float __half2float(__half);
__host__ __device__ __half __float2half(float);
__host__ __device__ __half __float2half_rn(float);
__host__ __device__ __half __double2half(double);

GPUAD_H __half __hadd(__half a, __half b) { return __float2half(__half2float(a) + __half2float(b)); }
GPUAD_H __half __hsub(__half a, __half b) { return __float2half(__half2float(a) - __half2float(b)); }
GPUAD_H __half __hmul(__half a, __half b) { return __float2half(__half2float(a) * __half2float(b)); }
GPUAD_H __half __hdiv(__half a, __half b) { return __float2half(__half2float(a) / __half2float(b)); }
GPUAD_H __half __hneg(__half a) { return __float2half(-__half2float(a)); }
GPUAD_H __half __habs(__half a) { return __float2half(fabsf(__half2float(a))); }
GPUAD_H __half __hfma(__half a, __half b, __half c) {  // the product of two halves is exact in float, so one rounding to half is left
  return __double2half((double)(__half2float(a) * __half2float(b)) + (double)__half2float(c));
}
GPUAD_H __half __hmax(__half a, __half b) { return __float2half(fmaxf(__half2float(a), __half2float(b))); }
GPUAD_H __half __hmin(__half a, __half b) { return __float2half(fminf(__half2float(a), __half2float(b))); }
GPUAD_H __half operator+(const __half& a, const __half& b) { return __hadd(a, b); }
GPUAD_H __half operator-(const __half& a, const __half& b) { return __hsub(a, b); }
GPUAD_H __half operator*(const __half& a, const __half& b) { return __hmul(a, b); }
GPUAD_H __half operator/(const __half& a, const __half& b) { return __hdiv(a, b); }
GPUAD_H __half operator-(const __half& a) { return __hneg(a); }
GPUAD_H __half operator+(const __half& a) { return a; }
GPUAD_H __half& operator+=(__half& a, const __half& b) { a = __hadd(a, b); return a; }
GPUAD_H __half& operator-=(__half& a, const __half& b) { a = __hsub(a, b); return a; }
GPUAD_H __half& operator*=(__half& a, const __half& b) { a = __hmul(a, b); return a; }
GPUAD_H __half& operator/=(__half& a, const __half& b) { a = __hdiv(a, b); return a; }

#define GPUAD_COMPARE(name, op) \
  GPUAD_H bool name(__half a, __half b) { return __half2float(a) op __half2float(b); } \
  GPUAD_H bool operator op(const __half& a, const __half& b) { return __half2float(a) op __half2float(b); }
GPUAD_COMPARE(__hlt, <)
GPUAD_COMPARE(__hle, <=)
GPUAD_COMPARE(__hgt, >)
GPUAD_COMPARE(__hge, >=)
GPUAD_COMPARE(__heq, ==)
GPUAD_COMPARE(__hne, !=)
#undef GPUAD_COMPARE
GPUAD_H bool __hisnan(__half a) { return isnan(__half2float(a)); }

#define GPUAD_FUNCTION(name, f) \
  GPUAD_H __half name(__half a) { return __float2half(f(__half2float(a))); }
GPUAD_FUNCTION(hsqrt, sqrtf)
GPUAD_FUNCTION(hrsqrt, rsqrtf)
GPUAD_FUNCTION(hexp, expf)
GPUAD_FUNCTION(hexp2, exp2f)
GPUAD_FUNCTION(hexp10, exp10f)
GPUAD_FUNCTION(hlog, logf)
GPUAD_FUNCTION(hlog2, log2f)
GPUAD_FUNCTION(hlog10, log10f)
GPUAD_FUNCTION(hsin, sinf)
GPUAD_FUNCTION(hcos, cosf)
GPUAD_FUNCTION(hfloor, floorf)
GPUAD_FUNCTION(hceil, ceilf)
GPUAD_FUNCTION(htrunc, truncf)
GPUAD_FUNCTION(hrint, rintf)
#undef GPUAD_FUNCTION
GPUAD_H __half hrcp(__half a) { return __float2half(1.0f / __half2float(a)); }
GPUAD_H __half __int2half_rn(int a) { return __double2half(a); }
GPUAD_H __half __uint2half_rn(unsigned a) { return __double2half(a); }
GPUAD_H int __half2int_rz(__half a) { return (int)__half2float(a); }
GPUAD_H int __half2int_rn(__half a) { return __float2int_rn(__half2float(a)); }

GPUAD_H __half2 __halves2half2(__half a, __half b) { return {a, b}; }
GPUAD_H __half2 make_half2(__half a, __half b) { return {a, b}; }
GPUAD_H __half2 __half2half2(__half a) { return {a, a}; }
GPUAD_H __half2 __float2half2_rn(float a) { return {__float2half(a), __float2half(a)}; }
GPUAD_H __half2 __floats2half2_rn(float a, float b) { return {__float2half(a), __float2half(b)}; }
GPUAD_H __half2 __float22half2_rn(float2 a) { return {__float2half(a.x), __float2half(a.y)}; }
GPUAD_H float2 __half22float2(__half2 a) { return make_float2(__half2float(a.x), __half2float(a.y)); }
GPUAD_H __half __low2half(__half2 a) { return a.x; }
GPUAD_H __half __high2half(__half2 a) { return a.y; }
GPUAD_H float __low2float(__half2 a) { return __half2float(a.x); }
GPUAD_H float __high2float(__half2 a) { return __half2float(a.y); }
#define GPUAD_PAIR(name, one, op) \
  GPUAD_H __half2 name(__half2 a, __half2 b) { return {one(a.x, b.x), one(a.y, b.y)}; } \
  GPUAD_H __half2 operator op(const __half2& a, const __half2& b) { return {one(a.x, b.x), one(a.y, b.y)}; }
GPUAD_PAIR(__hadd2, __hadd, +)
GPUAD_PAIR(__hsub2, __hsub, -)
GPUAD_PAIR(__hmul2, __hmul, *)
GPUAD_PAIR(__h2div, __hdiv, /)
#undef GPUAD_PAIR
GPUAD_H __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
GPUAD_H __half2 __hneg2(__half2 a) { return {__hneg(a.x), __hneg(a.y)}; }
#undef GPUAD_H
