// Functions that are made of others, inlined into the kernel and differentiated like it.
#pragma once
// The parts of a number: the derivative of the fraction is 1, that of the whole number 0.
#define GPUAD_MODF(T, name) \
  GPUAD_F T name(T x, T *whole) { \
    T part = trunc(x); \
    *whole = part; \
    return isinf(x) ? T(0) : x - part; \
  }
GPUAD_MODF(float, modf) GPUAD_MODF(double, modf) GPUAD_MODF(float, modff)
#undef GPUAD_MODF

#define GPUAD_FREXP(T, name) \
  GPUAD_F T name(T x, int *exponent) { \
    int power = x != T(0) && isfinite(x) ? (int)logb(x) + 1 : 0; \
    *exponent = power; \
    return ldexp(ldexp(x, -(power / 2)), -(power - power / 2)); \
  }
GPUAD_FREXP(float, frexp) GPUAD_FREXP(double, frexp) GPUAD_FREXP(float, frexpf)
#undef GPUAD_FREXP

// An exponent beyond these leaves the range whatever the number is.
#define GPUAD_SCALBLN(T, name) \
  GPUAD_F T name(T x, long power) { return ldexp(x, power > 10000 ? 10000 : power < -10000 ? -10000 : (int)power); }
GPUAD_SCALBLN(float, scalbln) GPUAD_SCALBLN(double, scalbln) GPUAD_SCALBLN(float, scalblnf)
#undef GPUAD_SCALBLN

#define GPUAD_ILOGB(T, name) \
  GPUAD_F int name(T x) { return x == T(0) || isnan(x) ? -2147483647 - 1 : isinf(x) ? 2147483647 : (int)logb(x); }
GPUAD_ILOGB(float, ilogb) GPUAD_ILOGB(double, ilogb) GPUAD_ILOGB(float, ilogbf)
#undef GPUAD_ILOGB

// The quotient's last three bits and its sign: of x by 8 y without a rest, a number small enough to be divided exactly.
#define GPUAD_REMQUO(T, name) \
  GPUAD_F T name(T x, T y, int *quotient) { \
    T rest = remainder(x, y), size = fabs(y), small = isfinite(8 * size) ? fmod(fabs(x), 8 * size) : fabs(x); \
    T signed_rest = signbit(x) ? -rest : rest; \
    int bits = isfinite(x) && isfinite(y) && size > 0 ? (int)rint((small - signed_rest) / size) & 7 : 0; \
    *quotient = signbit(x) == signbit(y) ? bits : -bits; \
    return rest; \
  }
GPUAD_REMQUO(float, remquo) GPUAD_REMQUO(double, remquo) GPUAD_REMQUO(float, remquof)
#undef GPUAD_REMQUO

#define GPUAD_NORM(T, f) \
  GPUAD_F T norm3d##f(T a, T b, T c) { return hypot(hypot(a, b), c); } \
  GPUAD_F T norm4d##f(T a, T b, T c, T d) { return hypot(hypot(a, b), hypot(c, d)); } \
  GPUAD_F T rnorm3d##f(T a, T b, T c) { return T(1) / norm3d##f(a, b, c); } \
  GPUAD_F T rnorm4d##f(T a, T b, T c, T d) { return T(1) / norm4d##f(a, b, c, d); }
GPUAD_NORM(float, f) GPUAD_NORM(double, )
#undef GPUAD_NORM

#define GPUAD_NORM(T, f) \
  GPUAD_F T norm##f(int length, const T *v) { \
    T size = 0; \
    for (int i = 0; i < length; i++) size = hypot(size, v[i]); \
    return size; \
  } \
  GPUAD_F T rnorm##f(int length, const T *v) { return T(1) / norm##f(length, v); }
GPUAD_NORM(float, f) GPUAD_NORM(double, )
#undef GPUAD_NORM

// Averages without the bit that a sum would overflow into, rounded down and up; a sum of distances.
#define GPUAD_AVERAGES(T, average, upwards, distances) \
  GPUAD_F T average(T a, T b) { return (a & b) + ((a ^ b) >> 1); } \
  GPUAD_F T upwards(T a, T b) { return (a | b) - ((a ^ b) >> 1); } \
  GPUAD_F unsigned distances(T a, T b, unsigned sum) { return sum + (a > b ? (unsigned)a - (unsigned)b : (unsigned)b - (unsigned)a); }
GPUAD_AVERAGES(int, __hadd, __rhadd, __sad) GPUAD_AVERAGES(unsigned, __uhadd, __urhadd, __usad)
#undef GPUAD_AVERAGES

// 32 of 64 bits, shifted by the amount modulo 32, or by 32 at most.
#define GPUAD_FUNNEL(name, shift, rest) \
  GPUAD_F unsigned name(unsigned low, unsigned high, unsigned by) { \
    return (unsigned)(((unsigned long long)high << 32 | low) shift rest); \
  }
GPUAD_FUNNEL(__funnelshift_l, << (by & 31), >> 32) GPUAD_FUNNEL(__funnelshift_lc, << (by < 32 ? by : 32), >> 32)
GPUAD_FUNNEL(__funnelshift_r, >> (by & 31), ) GPUAD_FUNNEL(__funnelshift_rc, >> (by < 32 ? by : 32), )
#undef GPUAD_FUNNEL

// Memory of one type, or of numbers of one size; what remains of the declared ones is refused. What bytes come to is a zero, or a whole number.
template <class T, class U, int = sizeof(T) == sizeof(U)> struct gpuad_same_size {};
template <class T, class U> struct gpuad_same_size<T, U, 1> { typedef T *type; };
template <class T, class U> GPUAD_F typename gpuad_same_size<T, U>::type memcpy(T *to, const U *from, size_t bytes) {
  assert(bytes % sizeof(T) == 0);
  const T *seen = (const T *)from;
  if (bytes == sizeof(T)) *to = *seen;
  else
    for (size_t i = 0; i < bytes / sizeof(T); i++) to[i] = seen[i];
  return to;
}
template <class T, class U, size_t N> GPUAD_F T *memcpy(T (*to)[N], const U *from, size_t bytes) { return memcpy((T *)to, from, bytes); }
template <class T, class U, size_t N> GPUAD_F T *memcpy(T *to, const U (*from)[N], size_t bytes) { return memcpy(to, (const U *)from, bytes); }
template <class T, class U, size_t N, size_t M> GPUAD_F T *memcpy(T (*to)[N], const U (*from)[M], size_t bytes) {
  return memcpy((T *)to, (const U *)from, bytes);
}
template <class T, bool whole> struct gpuad_bytes {
  static __device__ T of(int value) {
    assert(value == 0);
    return T();
  }
};
template <class T> struct gpuad_bytes<T, true> {
  static __device__ T of(int value) { return (T)(0x0101010101010101ull * (unsigned char)value); }
};
template <class T> GPUAD_F T *memset(T *to, int value, size_t bytes) {
  assert(bytes % sizeof(T) == 0);
  const T filled = gpuad_bytes<T, __is_integral(T)>::of(value);
  if (bytes == sizeof(T)) *to = filled;
  else
    for (size_t i = 0; i < bytes / sizeof(T); i++) to[i] = filled;
  return to;
}
template <class T, size_t N> GPUAD_F T *memset(T (*to)[N], int value, size_t bytes) { return memset((T *)to, value, bytes); }

// Barriers that count: barriers, and a number in shared memory.
GPUAD_F int __syncthreads_count(int vote) {
  __shared__ int votes;
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) votes = 0;
  __syncthreads();
  if (vote) atomicAdd(&votes, 1);
  __syncthreads();
  const int count = votes;
  __syncthreads();  // the next one may only clear them when all threads have read them
  return count;
}
GPUAD_F int __syncthreads_and(int vote) { return __syncthreads_count(!vote) == 0; }
GPUAD_F int __syncthreads_or(int vote) { return __syncthreads_count(vote) != 0; }
