// CUDA's language for a C++ compiler: what a kernel's text may use, for the device on the CPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include <math.h>  // CUDA has the functions for float and double outside of a namespace
#include <stdlib.h>

#include "../launch.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __managed__
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define CUDART_INF __builtin_inf()
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN __builtin_nan("")
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_PI 3.1415926535897931
#define CUDART_PI_F 3.141592654f

// --- where a thread is ----------------------------------------------------------------------------------------------------------------------

struct uint3 { unsigned x, y, z; };
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
static gpuad_now gpuad_here;
static const uint3& threadIdx = *(const uint3*)gpuad_here.thread;
static const uint3& blockIdx = *(const uint3*)gpuad_here.block;
static const dim3& blockDim = *(const dim3*)gpuad_here.block_size;
static const dim3& gridDim = *(const dim3*)gpuad_here.grid_size;
static const int warpSize = 32;

// --- launches ---------------------------------------------------------------------------------------------------------------------------------

template <class... A, size_t... I>
static void gpuad_apply(void (*f)(A...), void** p, std::index_sequence<I...>) { f(*(std::remove_reference_t<A>*)p[I]...); }

template <bool together, class... A>
static void gpuad_run(void* function, const gpuad_launch* launch, void** parameters) {
  struct Call { void (*f)(A...); void** p; } call = {(void (*)(A...))function, parameters};
  gpuad_threads(launch, &gpuad_here, [](void* c) { gpuad_apply(((Call*)c)->f, ((Call*)c)->p, std::index_sequence_for<A...>{}); }, &call, together);
}

template <bool together, class... A>
static gpuad_kernel gpuad_kernel_of(void (*f)(A...)) {
  static const unsigned sizes[] = {sizeof(A)..., 0u};
  return {(void*)f, gpuad_run<together, A...>, sizes};
}

template <class T>
static gpuad_variable gpuad_variable_of(T& v) { return {(void*)&v, sizeof v}; }

// --- threads together -------------------------------------------------------------------------------------------------------------------------

static inline void __syncthreads() { gpuad_wait_block(); }
static inline int __syncthreads_count(int p) { return gpuad_count(p); }
static inline int __syncthreads_or(int p) { return gpuad_count(p) > 0; }
static inline int __syncthreads_and(int p) { return gpuad_count(!p) == 0; }
static inline void __syncwarp(unsigned mask = 0xffffffffu) { gpuad_wait_warp(mask); }
static inline unsigned __activemask() { return gpuad_lanes(); }
static inline unsigned gpuad_own_lane() { return gpuad_here.rank % 32; }
template <class T>
static inline T gpuad_exchanged(unsigned mask, T mine, unsigned lane) {
  static_assert(sizeof(T) <= 32, "a value of at most 32 bytes");
  memcpy(gpuad_lane(gpuad_own_lane()), &mine, sizeof mine);
  gpuad_wait_warp(mask);
  memcpy((void*)&mine, gpuad_lane(lane), sizeof mine);
  gpuad_wait_warp(mask);
  return mine;
}
template <class T>
static inline T __shfl_sync(unsigned mask, T v, int lane, int width = 32) {
  unsigned own = gpuad_own_lane();
  return gpuad_exchanged(mask, v, own / width * width + (lane & (width - 1)));
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32) {
  unsigned own = gpuad_own_lane();
  return gpuad_exchanged(mask, v, own % width >= by ? own - by : own);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32) {
  unsigned own = gpuad_own_lane();
  return gpuad_exchanged(mask, v, own % width + by < unsigned(width) ? own + by : own);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T v, int by, int width = 32) {
  unsigned own = gpuad_own_lane(), other = own ^ by;
  return gpuad_exchanged(mask, v, other / width <= own / width ? other : own);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate) {
  unsigned all = 0, alive = gpuad_lanes() & mask;
  int mine = predicate != 0;
  memcpy(gpuad_lane(gpuad_own_lane()), &mine, sizeof mine);
  gpuad_wait_warp(mask);
  for (unsigned lane = 0; lane < 32; lane++) {
    if (!(alive >> lane & 1)) continue;
    int theirs;
    memcpy(&theirs, gpuad_lane(lane), sizeof theirs);
    all |= unsigned(theirs) << lane;
  }
  gpuad_wait_warp(mask);
  return all;
}
static inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
static inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, !p) == 0; }
template <class T>
static inline unsigned __match_any_sync(unsigned mask, T v) {
  unsigned same = 0;
  for (unsigned lane = 0; lane < 32; lane++) {
    if (!(mask >> lane & 1)) continue;
    T theirs = gpuad_exchanged(mask, v, lane);
    if (gpuad_lanes() >> lane & 1 && memcmp(&theirs, &v, sizeof v) == 0) same |= 1u << lane;
  }
  return same;
}
template <class T>
static inline unsigned __match_all_sync(unsigned mask, T v, int* all) {
  unsigned same = __match_any_sync(mask, v), alive = gpuad_lanes() & mask;
  *all = (same & alive) == alive;
  return *all ? alive : 0;
}
#define GPUAD_REDUCE(NAME, T, EXPRESSION)                                         \
  static inline T __reduce_##NAME##_sync(unsigned mask, T v) {                    \
    T a = v;                                                                      \
    bool first = true;                                                            \
    for (unsigned lane = 0; lane < 32; lane++)                                    \
      if (mask >> lane & 1) {                                                     \
        T b = gpuad_exchanged(mask, v, lane);                                     \
        if (gpuad_lanes() >> lane & 1) { a = first ? b : (EXPRESSION); first = false; } \
      }                                                                           \
    return a;                                                                     \
  }
GPUAD_REDUCE(add, unsigned, a + b) GPUAD_REDUCE(add, int, a + b) GPUAD_REDUCE(min, unsigned, a < b ? a : b) GPUAD_REDUCE(min, int, a < b ? a : b)
GPUAD_REDUCE(max, unsigned, a > b ? a : b) GPUAD_REDUCE(max, int, a > b ? a : b) GPUAD_REDUCE(and, unsigned, a & b)
GPUAD_REDUCE(or, unsigned, a | b) GPUAD_REDUCE(xor, unsigned, a ^ b)
// Without a mask, as HIP has them: by all lanes of the warp.
template <class T> static inline T __shfl(T v, int lane, int width = 32) { return __shfl_sync(0xffffffffu, v, lane, width); }
template <class T> static inline T __shfl_up(T v, unsigned by, int width = 32) { return __shfl_up_sync(0xffffffffu, v, by, width); }
template <class T> static inline T __shfl_down(T v, unsigned by, int width = 32) { return __shfl_down_sync(0xffffffffu, v, by, width); }
template <class T> static inline T __shfl_xor(T v, int by, int width = 32) { return __shfl_xor_sync(0xffffffffu, v, by, width); }
static inline unsigned long long __ballot(int p) { return __ballot_sync(0xffffffffu, p); }
static inline int __any(int p) { return __any_sync(0xffffffffu, p); }
static inline int __all(int p) { return __all_sync(0xffffffffu, p); }

static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline void __nanosleep(unsigned) {}
static inline void __trap() { gpuad_stop("a kernel has called __trap()"); }
static inline long long clock64() { return 0; }
static inline long long clock() { return 0; }
template <class T> static inline T __ldg(const T* p) { return *p; }
template <class T> static inline T __ldcg(const T* p) { return *p; }
template <class T> static inline T __ldca(const T* p) { return *p; }
template <class T> static inline T __ldcs(const T* p) { return *p; }
template <class T> static inline void __stcg(T* p, T v) { *p = v; }
template <class T> static inline void __stcs(T* p, T v) { *p = v; }

// --- atomics: one thread runs at a time -------------------------------------------------------------------------------------------------------

#define GPUAD_ATOMIC(NAME, T, NEW) \
  static inline T NAME(T* p, T v) { T old = *p; *p = NEW; return old; } \
  static inline T NAME##_block(T* p, T v) { return NAME(p, v); } \
  static inline T NAME##_system(T* p, T v) { return NAME(p, v); }
#define GPUAD_ATOMICS_OF_ORDER(T) GPUAD_ATOMIC(atomicMin, T, old < v ? old : v) GPUAD_ATOMIC(atomicMax, T, old > v ? old : v) \
  GPUAD_ATOMIC(atomicAnd, T, old & v) GPUAD_ATOMIC(atomicOr, T, old | v) GPUAD_ATOMIC(atomicXor, T, old ^ v)
#define GPUAD_ATOMICS_OF_WORDS(T) GPUAD_ATOMIC(atomicExch, T, v) \
  static inline T atomicCAS(T* p, T compare, T v) { T old = *p; if (old == compare) *p = v; return old; }
GPUAD_ATOMICS_OF_ORDER(int) GPUAD_ATOMICS_OF_ORDER(unsigned) GPUAD_ATOMICS_OF_ORDER(long long) GPUAD_ATOMICS_OF_ORDER(unsigned long long)
GPUAD_ATOMICS_OF_WORDS(int) GPUAD_ATOMICS_OF_WORDS(unsigned) GPUAD_ATOMICS_OF_WORDS(unsigned long long)
GPUAD_ATOMIC(atomicExch, float, v) GPUAD_ATOMIC(atomicSub, int, old - v) GPUAD_ATOMIC(atomicSub, unsigned, old - v)
GPUAD_ATOMIC(atomicAdd, int, old + v) GPUAD_ATOMIC(atomicAdd, unsigned, old + v) GPUAD_ATOMIC(atomicAdd, unsigned long long, old + v)
GPUAD_ATOMIC(atomicAdd, float, old + v) GPUAD_ATOMIC(atomicAdd, double, old + v)
static inline unsigned short atomicCAS(unsigned short* p, unsigned short compare, unsigned short v) { auto old = *p; if (old == compare) *p = v; return old; }
static inline unsigned atomicInc(unsigned* p, unsigned most) { unsigned old = *p; *p = old >= most ? 0 : old + 1; return old; }
static inline unsigned atomicDec(unsigned* p, unsigned most) { unsigned old = *p; *p = old == 0 || old > most ? most : old - 1; return old; }

// --- vectors ------------------------------------------------------------------------------------------------------------------------------------

#define GPUAD_VECTORS(T, NAME, A2, A4) \
  struct NAME##1 { T x; }; struct alignas(A2) NAME##2 { T x, y; }; struct NAME##3 { T x, y, z; }; struct alignas(A4) NAME##4 { T x, y, z, w; }; \
  static inline NAME##1 make_##NAME##1(T x) { return {x}; } static inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; } \
  static inline NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; } static inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
#define uint3 gpuad_uint3
GPUAD_VECTORS(signed char, char, 2, 4) GPUAD_VECTORS(unsigned char, uchar, 2, 4) GPUAD_VECTORS(short, short, 4, 8) GPUAD_VECTORS(unsigned short, ushort, 4, 8)
GPUAD_VECTORS(int, int, 8, 16) GPUAD_VECTORS(unsigned, uint, 8, 16) GPUAD_VECTORS(long, long, 16, 16) GPUAD_VECTORS(unsigned long, ulong, 16, 16)
GPUAD_VECTORS(long long, longlong, 16, 16) GPUAD_VECTORS(unsigned long long, ulonglong, 16, 16) GPUAD_VECTORS(float, float, 8, 16)
GPUAD_VECTORS(double, double, 16, 16)
#undef uint3
#define make_uint3 gpuad_uint3_of
static inline uint3 gpuad_uint3_of(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }

// --- bits ---------------------------------------------------------------------------------------------------------------------------------------

template <class To, class From>
static inline To gpuad_bits(From v) { static_assert(sizeof(To) == sizeof(From), "the same bits"); To r; memcpy(&r, &v, sizeof r); return r; }
static inline int __float_as_int(float v) { return gpuad_bits<int>(v); }
static inline unsigned __float_as_uint(float v) { return gpuad_bits<unsigned>(v); }
static inline float __int_as_float(int v) { return gpuad_bits<float>(v); }
static inline float __uint_as_float(unsigned v) { return gpuad_bits<float>(v); }
static inline long long __double_as_longlong(double v) { return gpuad_bits<long long>(v); }
static inline double __longlong_as_double(long long v) { return gpuad_bits<double>(v); }
static inline int __double2hiint(double v) { return int(gpuad_bits<long long>(v) >> 32); }
static inline int __double2loint(double v) { return int(gpuad_bits<long long>(v)); }
static inline double __hiloint2double(int hi, int lo) { return gpuad_bits<double>((long long)(((unsigned long long)(unsigned)hi << 32) | (unsigned)lo)); }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static inline int __clz(int v) { return v ? __builtin_clz(unsigned(v)) : 32; }
static inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __ffsll(long long v) { return __builtin_ffsll(v); }
static inline unsigned __brev(unsigned v) { unsigned r = 0; for (int i = 0; i < 32; i++) r |= (v >> i & 1) << (31 - i); return r; }
static inline unsigned long long __brevll(unsigned long long v) { return (unsigned long long)__brev(unsigned(v)) << 32 | __brev(unsigned(v >> 32)); }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) r |= unsigned(both >> (s >> 4 * i & 7) * 8 & 255) << 8 * i;
  return r;
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
static inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
static inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
static inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
static inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
static inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) { s &= 31; return s ? hi << s | lo >> (32 - s) : hi; }
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) { s &= 31; return s ? lo >> s | hi << (32 - s) : lo; }

// --- mathematics that C++ does not have ---------------------------------------------------------------------------------------------------------

using std::max; using std::min;
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline float rcbrtf(float x) { return 1 / cbrtf(x); }
static inline double rcbrt(double x) { return 1 / cbrt(x); }
static inline double sinpi(double x) { return gpuad_library::gpuad_sinpi(x); }
static inline double cospi(double x) { return gpuad_library::gpuad_cospi(x); }
static inline double erfcx(double x) { return gpuad_library::gpuad_erfcx(x); }
static inline double erfinv(double x) { return gpuad_library::gpuad_erfinv(x); }
static inline double erfcinv(double x) { return gpuad_library::gpuad_erfcinv(x); }
static inline double normcdf(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }
static inline double normcdfinv(double x) { return -M_SQRT2 * gpuad_library::gpuad_erfcinv(2 * x); }
static inline double cyl_bessel_i0(double x) { return gpuad_library::gpuad_bessel_i(x, 0); }
static inline double cyl_bessel_i1(double x) { return gpuad_library::gpuad_bessel_i(x, 1); }
#define GPUAD_SINGLE(NAME) \
  static inline float NAME##f(float x) { return float(NAME(double(x))); } \
  static inline float NAME(float x) { return NAME##f(x); }
GPUAD_SINGLE(sinpi) GPUAD_SINGLE(cospi) GPUAD_SINGLE(erfcx) GPUAD_SINGLE(erfinv) GPUAD_SINGLE(erfcinv) GPUAD_SINGLE(normcdf) GPUAD_SINGLE(normcdfinv)
GPUAD_SINGLE(cyl_bessel_i0) GPUAD_SINGLE(cyl_bessel_i1)
static inline void sincospi(double x, double* s, double* c) { *s = sinpi(x); *c = cospi(x); }
static inline void sincospif(float x, float* s, float* c) { *s = sinpif(x); *c = cospif(x); }
static inline double rhypot(double a, double b) { return 1 / hypot(a, b); }
static inline float rhypotf(float a, float b) { return 1 / hypotf(a, b); }
static inline double norm3d(double a, double b, double c) { return sqrt(a * a + b * b + c * c); }
static inline float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); }
static inline double norm4d(double a, double b, double c, double d) { return sqrt(a * a + b * b + c * c + d * d); }
static inline double rnorm3d(double a, double b, double c) { return 1 / norm3d(a, b, c); }
static inline float rnorm3df(float a, float b, float c) { return 1 / norm3df(a, b, c); }
static inline float fdividef(float a, float b) { return a / b; }
static inline float saturate(float x) { return x < 0 ? 0 : x > 1 ? 1 : x == x ? x : 0; }
#define __saturatef saturate
#define __expf expf
#define __exp10f exp10f
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __powf powf
#define __sincosf sincosf
static inline float __fdividef(float a, float b) { return a / b; }
#define GPUAD_ROUNDED(MODE) \
  static inline float __fadd_##MODE(float a, float b) { return a + b; } static inline float __fsub_##MODE(float a, float b) { return a - b; } \
  static inline float __fmul_##MODE(float a, float b) { return a * b; } static inline float __fdiv_##MODE(float a, float b) { return a / b; } \
  static inline float __fmaf_##MODE(float a, float b, float c) { return fmaf(a, b, c); } static inline float __frcp_##MODE(float a) { return 1 / a; } \
  static inline float __fsqrt_##MODE(float a) { return sqrtf(a); } static inline double __dadd_##MODE(double a, double b) { return a + b; } \
  static inline double __dsub_##MODE(double a, double b) { return a - b; } static inline double __dmul_##MODE(double a, double b) { return a * b; } \
  static inline double __ddiv_##MODE(double a, double b) { return a / b; } static inline double __fma_##MODE(double a, double b, double c) { return fma(a, b, c); } \
  static inline double __drcp_##MODE(double a) { return 1 / a; } static inline double __dsqrt_##MODE(double a) { return sqrt(a); }
GPUAD_ROUNDED(rn)  // the other modes round otherwise: a text that asks for them does not compile
static inline float __frsqrt_rn(float x) { return rsqrtf(x); }
#define GPUAD_TO(NAME, FROM, TO, LOW, HIGH) \
  static inline TO __##FROM##2##NAME##_rn(FROM x) { return x != x ? 0 : x <= LOW ? (TO)LOW : x >= HIGH ? std::numeric_limits<TO>::max() : (TO)nearbyint(x); } \
  static inline TO __##FROM##2##NAME##_rz(FROM x) { return x != x ? 0 : x <= LOW ? (TO)LOW : x >= HIGH ? std::numeric_limits<TO>::max() : (TO)x; } \
  static inline TO __##FROM##2##NAME##_rd(FROM x) { return __##FROM##2##NAME##_rz(floor(x)); } \
  static inline TO __##FROM##2##NAME##_ru(FROM x) { return __##FROM##2##NAME##_rz(ceil(x)); }
GPUAD_TO(int, float, int, -2147483648.0, 2147483648.0) GPUAD_TO(int, double, int, -2147483648.0, 2147483648.0)
GPUAD_TO(uint, float, unsigned, 0.0, 4294967296.0) GPUAD_TO(uint, double, unsigned, 0.0, 4294967296.0)
GPUAD_TO(ll, float, long long, -9223372036854775808.0, 9223372036854775808.0) GPUAD_TO(ll, double, long long, -9223372036854775808.0, 9223372036854775808.0)
GPUAD_TO(ull, float, unsigned long long, 0.0, 18446744073709551616.0) GPUAD_TO(ull, double, unsigned long long, 0.0, 18446744073709551616.0)
static inline float __int2float_rn(int x) { return float(x); }
static inline float __uint2float_rn(unsigned x) { return float(x); }
static inline float __ll2float_rn(long long x) { return float(x); }
static inline float __ull2float_rn(unsigned long long x) { return float(x); }
static inline double __int2double_rn(int x) { return double(x); }
static inline double __uint2double_rn(unsigned x) { return double(x); }
static inline double __ll2double_rn(long long x) { return double(x); }
static inline double __ull2double_rn(unsigned long long x) { return double(x); }
static inline float __double2float_rn(double x) { return float(x); }
static inline float __double2float_rz(double x) { float f = float(x); return fabs(double(f)) > fabs(x) ? nextafterf(f, 0) : f; }
static inline float __double2float_ru(double x) { float f = float(x); return f < x ? nextafterf(f, HUGE_VALF) : f; }
static inline float __double2float_rd(double x) { float f = float(x); return f > x ? nextafterf(f, -HUGE_VALF) : f; }

#include "hip/hip_fp16.h"  // which hiprtc knows without an include
