// What CUDA's two kinds of 16-bit floats have in common, included once for each of them. GPUAD_N is how its functions call it (half,
// bfloat16), GPUAD_T the number, GPUAD_T2 a pair. A number is of its own type to gpuad, kept as 16 bits and computed with in float: what
// the hardware does in 16 bits is the float result rounded once more, which is the same for + - * / and sqrt. What is only declared is
// known by name, or refused by it.
#define GPUAD_H inline __host__ __device__
#define GPUAD_PASTE_(a, b, c) a##b##c
#define GPUAD_PASTE(a, b, c) GPUAD_PASTE_(a, b, c)
#define GPUAD_N2 GPUAD_PASTE(GPUAD_N, 2, )
#define GPUAD_TO GPUAD_PASTE(__, GPUAD_N, 2float)
#define GPUAD_OF GPUAD_PASTE(__float2, GPUAD_N, )
#define GPUAD_OF_DOUBLE GPUAD_PASTE(__double2, GPUAD_N, )

struct __align__(2) GPUAD_T {
  GPUAD_T() = default;
  __host__ __device__ GPUAD_T(float);
  __host__ __device__ GPUAD_T(double);
  __host__ __device__ GPUAD_T(short);
  __host__ __device__ GPUAD_T(unsigned short);
  __host__ __device__ GPUAD_T(int);
  __host__ __device__ GPUAD_T(unsigned);
  __host__ __device__ GPUAD_T(long);
  __host__ __device__ GPUAD_T(unsigned long);
  __host__ __device__ GPUAD_T(long long);
  __host__ __device__ GPUAD_T(unsigned long long);
  __host__ __device__ operator float() const;
 private:
  unsigned short bits;
};
struct __align__(4) GPUAD_T2 {
  GPUAD_T x, y;
  GPUAD_T2() = default;
  __host__ __device__ GPUAD_T2(const GPUAD_T& x, const GPUAD_T& y);
};

__host__ __device__ float GPUAD_TO(GPUAD_T);
__host__ __device__ GPUAD_T GPUAD_OF(float);
__host__ __device__ GPUAD_T GPUAD_PASTE(__float2, GPUAD_N, _rn)(float);
__host__ __device__ GPUAD_T GPUAD_PASTE(__float2, GPUAD_N, _rz)(float);
__host__ __device__ GPUAD_T GPUAD_PASTE(__float2, GPUAD_N, _rd)(float);
__host__ __device__ GPUAD_T GPUAD_PASTE(__float2, GPUAD_N, _ru)(float);
__host__ __device__ GPUAD_T GPUAD_OF_DOUBLE(double);
__host__ __device__ short GPUAD_PASTE(__, GPUAD_N, _as_short)(GPUAD_T);
__host__ __device__ unsigned short GPUAD_PASTE(__, GPUAD_N, _as_ushort)(GPUAD_T);
__host__ __device__ GPUAD_T GPUAD_PASTE(__short_as_, GPUAD_N, )(short);
__host__ __device__ GPUAD_T GPUAD_PASTE(__ushort_as_, GPUAD_N, )(unsigned short);

// --- one number ---

GPUAD_H GPUAD_T __hadd(GPUAD_T a, GPUAD_T b) { return GPUAD_OF(GPUAD_TO(a) + GPUAD_TO(b)); }
GPUAD_H GPUAD_T __hsub(GPUAD_T a, GPUAD_T b) { return GPUAD_OF(GPUAD_TO(a) - GPUAD_TO(b)); }
GPUAD_H GPUAD_T __hmul(GPUAD_T a, GPUAD_T b) { return GPUAD_OF(GPUAD_TO(a) * GPUAD_TO(b)); }
GPUAD_H GPUAD_T __hdiv(GPUAD_T a, GPUAD_T b) { return GPUAD_OF(GPUAD_TO(a) / GPUAD_TO(b)); }
GPUAD_H GPUAD_T __hadd_rn(GPUAD_T a, GPUAD_T b) { return __hadd(a, b); }
GPUAD_H GPUAD_T __hsub_rn(GPUAD_T a, GPUAD_T b) { return __hsub(a, b); }
GPUAD_H GPUAD_T __hmul_rn(GPUAD_T a, GPUAD_T b) { return __hmul(a, b); }
GPUAD_H GPUAD_T __hadd_sat(GPUAD_T a, GPUAD_T b) { return GPUAD_OF(__saturatef(GPUAD_TO(a) + GPUAD_TO(b))); }
GPUAD_H GPUAD_T __hsub_sat(GPUAD_T a, GPUAD_T b) { return GPUAD_OF(__saturatef(GPUAD_TO(a) - GPUAD_TO(b))); }
GPUAD_H GPUAD_T __hmul_sat(GPUAD_T a, GPUAD_T b) { return GPUAD_OF(__saturatef(GPUAD_TO(a) * GPUAD_TO(b))); }
GPUAD_H GPUAD_T __hneg(GPUAD_T a) { return GPUAD_OF(-GPUAD_TO(a)); }
GPUAD_H GPUAD_T __habs(GPUAD_T a) { return GPUAD_OF(fabsf(GPUAD_TO(a))); }
GPUAD_H double GPUAD_PASTE(gpuad_fma_, GPUAD_N, )(GPUAD_T a, GPUAD_T b, GPUAD_T c) {  // the product is exact in double
  return (double)GPUAD_TO(a) * (double)GPUAD_TO(b) + (double)GPUAD_TO(c);
}
GPUAD_H GPUAD_T __hfma(GPUAD_T a, GPUAD_T b, GPUAD_T c) { return GPUAD_OF_DOUBLE(GPUAD_PASTE(gpuad_fma_, GPUAD_N, )(a, b, c)); }
GPUAD_H GPUAD_T __hfma_sat(GPUAD_T a, GPUAD_T b, GPUAD_T c) {
  return GPUAD_OF(__saturatef(GPUAD_TO(__hfma(a, b, c))));
}
GPUAD_H GPUAD_T __hfma_relu(GPUAD_T a, GPUAD_T b, GPUAD_T c) {
  const float r = GPUAD_TO(__hfma(a, b, c));
  return GPUAD_OF(r < 0.0f ? 0.0f : r);
}
GPUAD_H GPUAD_T __hmax(GPUAD_T a, GPUAD_T b) { return GPUAD_OF(fmaxf(GPUAD_TO(a), GPUAD_TO(b))); }
GPUAD_H GPUAD_T __hmin(GPUAD_T a, GPUAD_T b) { return GPUAD_OF(fminf(GPUAD_TO(a), GPUAD_TO(b))); }
__host__ __device__ GPUAD_T __hmax_nan(GPUAD_T a, GPUAD_T b);
__host__ __device__ GPUAD_T __hmin_nan(GPUAD_T a, GPUAD_T b);
GPUAD_H GPUAD_T operator+(const GPUAD_T& a, const GPUAD_T& b) { return __hadd(a, b); }
GPUAD_H GPUAD_T operator-(const GPUAD_T& a, const GPUAD_T& b) { return __hsub(a, b); }
GPUAD_H GPUAD_T operator*(const GPUAD_T& a, const GPUAD_T& b) { return __hmul(a, b); }
GPUAD_H GPUAD_T operator/(const GPUAD_T& a, const GPUAD_T& b) { return __hdiv(a, b); }
GPUAD_H GPUAD_T operator-(const GPUAD_T& a) { return __hneg(a); }
GPUAD_H GPUAD_T operator+(const GPUAD_T& a) { return a; }
GPUAD_H GPUAD_T& operator+=(GPUAD_T& a, const GPUAD_T& b) { a = __hadd(a, b); return a; }
GPUAD_H GPUAD_T& operator-=(GPUAD_T& a, const GPUAD_T& b) { a = __hsub(a, b); return a; }
GPUAD_H GPUAD_T& operator*=(GPUAD_T& a, const GPUAD_T& b) { a = __hmul(a, b); return a; }
GPUAD_H GPUAD_T& operator/=(GPUAD_T& a, const GPUAD_T& b) { a = __hdiv(a, b); return a; }
GPUAD_H GPUAD_T& operator++(GPUAD_T& a) { a = __hadd(a, GPUAD_OF(1.0f)); return a; }
GPUAD_H GPUAD_T& operator--(GPUAD_T& a) { a = __hsub(a, GPUAD_OF(1.0f)); return a; }
GPUAD_H GPUAD_T operator++(GPUAD_T& a, int) { const GPUAD_T old = a; ++a; return old; }
GPUAD_H GPUAD_T operator--(GPUAD_T& a, int) { const GPUAD_T old = a; --a; return old; }

// The plain comparison is false where one of the two is NaN, that with a u is true there; `!=` is __hneu.
#define GPUAD_COMPARE(name, op, inverse) \
  GPUAD_H bool name(GPUAD_T a, GPUAD_T b) { return GPUAD_TO(a) op GPUAD_TO(b); } \
  GPUAD_H bool name##u(GPUAD_T a, GPUAD_T b) { return !(GPUAD_TO(a) inverse GPUAD_TO(b)); } \
  GPUAD_H bool operator op(const GPUAD_T& a, const GPUAD_T& b) { return GPUAD_TO(a) op GPUAD_TO(b); }
GPUAD_COMPARE(__hlt, <, >=)
GPUAD_COMPARE(__hle, <=, >)
GPUAD_COMPARE(__hgt, >, <=)
GPUAD_COMPARE(__hge, >=, <)
#undef GPUAD_COMPARE
GPUAD_H bool __heq(GPUAD_T a, GPUAD_T b) { return GPUAD_TO(a) == GPUAD_TO(b); }
GPUAD_H bool __hne(GPUAD_T a, GPUAD_T b) { return GPUAD_TO(a) < GPUAD_TO(b) || GPUAD_TO(a) > GPUAD_TO(b); }
GPUAD_H bool __hequ(GPUAD_T a, GPUAD_T b) { return !__hne(a, b); }
GPUAD_H bool __hneu(GPUAD_T a, GPUAD_T b) { return GPUAD_TO(a) != GPUAD_TO(b); }
GPUAD_H bool operator==(const GPUAD_T& a, const GPUAD_T& b) { return GPUAD_TO(a) == GPUAD_TO(b); }
GPUAD_H bool operator!=(const GPUAD_T& a, const GPUAD_T& b) { return GPUAD_TO(a) != GPUAD_TO(b); }
GPUAD_H bool __hisnan(GPUAD_T a) { return isnan(GPUAD_TO(a)); }
GPUAD_H int __hisinf(GPUAD_T a) { return isinf(GPUAD_TO(a)) ? (GPUAD_TO(a) > 0.0f ? 1 : -1) : 0; }

#define GPUAD_INTEGER(name, type) \
  GPUAD_H GPUAD_T GPUAD_PASTE(__##name##2, GPUAD_N, _rn)(type a) { return GPUAD_T(a); } \
  GPUAD_H type GPUAD_PASTE(__, GPUAD_N, 2##name##_rn)(GPUAD_T a) { return (type)rintf(GPUAD_TO(a)); } \
  GPUAD_H type GPUAD_PASTE(__, GPUAD_N, 2##name##_rz)(GPUAD_T a) { return (type)GPUAD_TO(a); } \
  GPUAD_H type GPUAD_PASTE(__, GPUAD_N, 2##name##_rd)(GPUAD_T a) { return (type)floorf(GPUAD_TO(a)); } \
  GPUAD_H type GPUAD_PASTE(__, GPUAD_N, 2##name##_ru)(GPUAD_T a) { return (type)ceilf(GPUAD_TO(a)); }
GPUAD_INTEGER(short, short)
GPUAD_INTEGER(ushort, unsigned short)
GPUAD_INTEGER(int, int)
GPUAD_INTEGER(uint, unsigned)
GPUAD_INTEGER(ll, long long)
GPUAD_INTEGER(ull, unsigned long long)
#undef GPUAD_INTEGER

// --- two numbers side by side ---

GPUAD_H GPUAD_T2 GPUAD_PASTE(make_, GPUAD_N2, )(GPUAD_T a, GPUAD_T b) { return {a, b}; }
GPUAD_H GPUAD_T2 GPUAD_PASTE(__halves2, GPUAD_N2, )(GPUAD_T a, GPUAD_T b) { return {a, b}; }
GPUAD_H GPUAD_T2 GPUAD_PASTE(__, GPUAD_N, GPUAD_PASTE(2, GPUAD_N2, ))(GPUAD_T a) { return {a, a}; }
GPUAD_H GPUAD_T2 GPUAD_PASTE(__float2, GPUAD_N2, _rn)(float a) { return {GPUAD_OF(a), GPUAD_OF(a)}; }
GPUAD_H GPUAD_T2 GPUAD_PASTE(__floats2, GPUAD_N2, _rn)(float a, float b) { return {GPUAD_OF(a), GPUAD_OF(b)}; }
GPUAD_H GPUAD_T2 GPUAD_PASTE(__float22, GPUAD_N2, _rn)(float2 a) { return {GPUAD_OF(a.x), GPUAD_OF(a.y)}; }
GPUAD_H float2 GPUAD_PASTE(__, GPUAD_N2, 2float2)(GPUAD_T2 a) { return make_float2(GPUAD_TO(a.x), GPUAD_TO(a.y)); }
GPUAD_H GPUAD_T GPUAD_PASTE(__low2, GPUAD_N, )(GPUAD_T2 a) { return a.x; }
GPUAD_H GPUAD_T GPUAD_PASTE(__high2, GPUAD_N, )(GPUAD_T2 a) { return a.y; }
GPUAD_H GPUAD_T2 GPUAD_PASTE(__low2, GPUAD_N2, )(GPUAD_T2 a) { return {a.x, a.x}; }
GPUAD_H GPUAD_T2 GPUAD_PASTE(__high2, GPUAD_N2, )(GPUAD_T2 a) { return {a.y, a.y}; }
GPUAD_H GPUAD_T2 GPUAD_PASTE(__lows2, GPUAD_N2, )(GPUAD_T2 a, GPUAD_T2 b) { return {a.x, b.x}; }
GPUAD_H GPUAD_T2 GPUAD_PASTE(__highs2, GPUAD_N2, )(GPUAD_T2 a, GPUAD_T2 b) { return {a.y, b.y}; }
GPUAD_H GPUAD_T2 __lowhigh2highlow(GPUAD_T2 a) { return {a.y, a.x}; }
GPUAD_H float __low2float(GPUAD_T2 a) { return GPUAD_TO(a.x); }
GPUAD_H float __high2float(GPUAD_T2 a) { return GPUAD_TO(a.y); }

#define GPUAD_PAIR(name, one) \
  GPUAD_H GPUAD_T2 name(GPUAD_T2 a, GPUAD_T2 b) { return {one(a.x, b.x), one(a.y, b.y)}; }
#define GPUAD_OPERATOR(name, one, op) \
  GPUAD_PAIR(name, one) \
  GPUAD_H GPUAD_T2 operator op(const GPUAD_T2& a, const GPUAD_T2& b) { return {one(a.x, b.x), one(a.y, b.y)}; } \
  GPUAD_H GPUAD_T2& operator op##=(GPUAD_T2& a, const GPUAD_T2& b) { a = {one(a.x, b.x), one(a.y, b.y)}; return a; }
GPUAD_OPERATOR(__hadd2, __hadd, +)
GPUAD_OPERATOR(__hsub2, __hsub, -)
GPUAD_OPERATOR(__hmul2, __hmul, *)
GPUAD_OPERATOR(__h2div, __hdiv, /)
GPUAD_PAIR(__hadd2_rn, __hadd)
GPUAD_PAIR(__hsub2_rn, __hsub)
GPUAD_PAIR(__hmul2_rn, __hmul)
GPUAD_PAIR(__hadd2_sat, __hadd_sat)
GPUAD_PAIR(__hsub2_sat, __hsub_sat)
GPUAD_PAIR(__hmul2_sat, __hmul_sat)
GPUAD_PAIR(__hmax2, __hmax)
GPUAD_PAIR(__hmin2, __hmin)
#undef GPUAD_OPERATOR
#undef GPUAD_PAIR
GPUAD_H GPUAD_T2 __hfma2(GPUAD_T2 a, GPUAD_T2 b, GPUAD_T2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
GPUAD_H GPUAD_T2 __hfma2_sat(GPUAD_T2 a, GPUAD_T2 b, GPUAD_T2 c) { return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)}; }
GPUAD_H GPUAD_T2 __hfma2_relu(GPUAD_T2 a, GPUAD_T2 b, GPUAD_T2 c) { return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)}; }
__host__ __device__ GPUAD_T2 __hcmadd(GPUAD_T2 a, GPUAD_T2 b, GPUAD_T2 c);
GPUAD_H GPUAD_T2 __hneg2(GPUAD_T2 a) { return {__hneg(a.x), __hneg(a.y)}; }
GPUAD_H GPUAD_T2 __habs2(GPUAD_T2 a) { return {__habs(a.x), __habs(a.y)}; }
GPUAD_H GPUAD_T2 operator-(const GPUAD_T2& a) { return __hneg2(a); }
GPUAD_H GPUAD_T2 operator+(const GPUAD_T2& a) { return a; }

// Of two pairs: 1 or 0 for each number, and whether it holds for both of them.
#define GPUAD_COMPARE(name) \
  GPUAD_H GPUAD_T2 __h##name##2(GPUAD_T2 a, GPUAD_T2 b) { \
    return {GPUAD_OF(__h##name(a.x, b.x) ? 1.0f : 0.0f), GPUAD_OF(__h##name(a.y, b.y) ? 1.0f : 0.0f)}; \
  } \
  GPUAD_H bool __hb##name##2(GPUAD_T2 a, GPUAD_T2 b) { return __h##name(a.x, b.x) && __h##name(a.y, b.y); }
#define GPUAD_COMPARE_BOTH(name, op, comparison) \
  GPUAD_COMPARE(name) \
  GPUAD_COMPARE(name##u) \
  GPUAD_H bool operator op(const GPUAD_T2& a, const GPUAD_T2& b) { return comparison(a, b); }
GPUAD_COMPARE_BOTH(eq, ==, __hbeq2)
GPUAD_COMPARE_BOTH(ne, !=, __hbneu2)
GPUAD_COMPARE_BOTH(lt, <, __hblt2)
GPUAD_COMPARE_BOTH(le, <=, __hble2)
GPUAD_COMPARE_BOTH(gt, >, __hbgt2)
GPUAD_COMPARE_BOTH(ge, >=, __hbge2)
#undef GPUAD_COMPARE_BOTH
#undef GPUAD_COMPARE

#define GPUAD_FUNCTION(name, f) \
  GPUAD_H GPUAD_T h##name(GPUAD_T a) { return GPUAD_OF(f(GPUAD_TO(a))); } \
  GPUAD_H GPUAD_T2 h2##name(GPUAD_T2 a) { return {h##name(a.x), h##name(a.y)}; }
GPUAD_FUNCTION(sqrt, sqrtf)
GPUAD_FUNCTION(rsqrt, rsqrtf)
GPUAD_FUNCTION(exp, expf)
GPUAD_FUNCTION(exp2, exp2f)
GPUAD_FUNCTION(exp10, exp10f)
GPUAD_FUNCTION(log, logf)
GPUAD_FUNCTION(log2, log2f)
GPUAD_FUNCTION(log10, log10f)
GPUAD_FUNCTION(sin, sinf)
GPUAD_FUNCTION(cos, cosf)
GPUAD_FUNCTION(tanh, tanhf)
GPUAD_FUNCTION(tanh_approx, tanhf)
GPUAD_FUNCTION(floor, floorf)
GPUAD_FUNCTION(ceil, ceilf)
GPUAD_FUNCTION(trunc, truncf)
GPUAD_FUNCTION(rint, rintf)
#undef GPUAD_FUNCTION
GPUAD_H GPUAD_T hrcp(GPUAD_T a) { return GPUAD_OF(1.0f / GPUAD_TO(a)); }
GPUAD_H GPUAD_T2 h2rcp(GPUAD_T2 a) { return {hrcp(a.x), hrcp(a.y)}; }

// --- memory and other threads ---

#define GPUAD_LOAD(name) \
  __device__ GPUAD_T name(const GPUAD_T*); \
  GPUAD_H GPUAD_T2 name(const GPUAD_T2* p) { return *p; }
GPUAD_LOAD(__ldg)
GPUAD_LOAD(__ldca)
GPUAD_LOAD(__ldcg)
GPUAD_LOAD(__ldcs)
GPUAD_LOAD(__ldlu)
#undef GPUAD_LOAD
#define GPUAD_STORE(name) \
  GPUAD_H void name(GPUAD_T* p, GPUAD_T value) { *p = value; } \
  GPUAD_H void name(GPUAD_T2* p, GPUAD_T2 value) { *p = value; }
GPUAD_STORE(__stwb)
GPUAD_STORE(__stcg)
GPUAD_STORE(__stcs)
GPUAD_STORE(__stwt)
#undef GPUAD_STORE
#define GPUAD_SHUFFLE(name, lane) \
  __device__ GPUAD_T name(unsigned mask, GPUAD_T value, lane, int width = 32); \
  inline __device__ GPUAD_T2 name(unsigned mask, GPUAD_T2 value, lane, int width = 32) { \
    return {name(mask, value.x, from, width), name(mask, value.y, from, width)}; \
  }
GPUAD_SHUFFLE(__shfl_sync, int from)
GPUAD_SHUFFLE(__shfl_up_sync, unsigned from)
GPUAD_SHUFFLE(__shfl_down_sync, unsigned from)
GPUAD_SHUFFLE(__shfl_xor_sync, int from)
#undef GPUAD_SHUFFLE
__device__ GPUAD_T atomicAdd(GPUAD_T*, GPUAD_T);
inline __device__ GPUAD_T2 atomicAdd(GPUAD_T2* target, GPUAD_T2 value) {  // each of the two by itself
  return {atomicAdd(&target->x, value.x), atomicAdd(&target->y, value.y)};
}

#undef GPUAD_OF_DOUBLE
#undef GPUAD_OF
#undef GPUAD_TO
#undef GPUAD_N2
#undef GPUAD_PASTE
#undef GPUAD_PASTE_
#undef GPUAD_H
#undef GPUAD_T2
#undef GPUAD_T
#undef GPUAD_N
