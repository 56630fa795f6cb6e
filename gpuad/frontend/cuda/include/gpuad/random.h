// curand's device interface for the generators XORWOW (Marsaglia, Xorshift RNGs, 2003) and Philox4x32-10 (Salmon et al., Parallel random
// numbers: as easy as 1, 2, 3, 2011), with states that lie in memory as curand's do and give the same numbers. A state is a struct of
// integers like any other: what a kernel overwrites of it is saved, and the reverse pass draws its numbers again. What is only declared is
// refused by name.
#pragma once
#define GPUAD_R inline __device__

struct curandStateXORWOW {
  unsigned int weyl, a, b, c, d, e;
  int has_normal, has_normal_double;
  float normal;
  double normal_double;
};
struct curandStatePhilox4_32_10 {
  uint4 counter, drawn;
  uint2 key;
  unsigned int used;
  int has_normal, has_normal_double;
  float normal;
  double normal_double;
};
typedef curandStateXORWOW curandStateXORWOW_t;
typedef curandStateXORWOW curandState_t;
typedef curandStateXORWOW curandState;
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

namespace gpuad_random {
template <typename S> GPUAD_R void forget_normals(S* s) {
  s->has_normal = 0;
  s->has_normal_double = 0;
  s->normal = 0;
  s->normal_double = 0;
}

// --- XORWOW ---------------------------------------------------------------------------------------------------------------------------
// Its xorshift part is linear over the field of two elements: n steps are the polynomial x^n modulo the characteristic polynomial of one
// step, applied to the state. So skipping ahead is arithmetic with polynomials of 160 bits, without tables of matrices.
struct Bits {
  unsigned int a, b, c, d, e;
};
GPUAD_R void add(Bits& to, Bits x, unsigned int mask) {
  to.a ^= x.a & mask;
  to.b ^= x.b & mask;
  to.c ^= x.c & mask;
  to.d ^= x.d & mask;
  to.e ^= x.e & mask;
}
GPUAD_R unsigned int shift_up(Bits& x) {  // gives a mask: all ones if a one went over the top
  unsigned int top = 0u - (x.e >> 31);
  x.e = x.e << 1 | x.d >> 31;
  x.d = x.d << 1 | x.c >> 31;
  x.c = x.c << 1 | x.b >> 31;
  x.b = x.b << 1 | x.a >> 31;
  x.a <<= 1;
  return top;
}
GPUAD_R unsigned int shift_down(Bits& x) {
  unsigned int bottom = 0u - (x.a & 1u);
  x.a = x.a >> 1 | x.b << 31;
  x.b = x.b >> 1 | x.c << 31;
  x.c = x.c >> 1 | x.d << 31;
  x.d = x.d >> 1 | x.e << 31;
  x.e >>= 1;
  return bottom;
}
GPUAD_R Bits product(Bits x, Bits y) {
  Bits modulus = {0x60001u, 0x8610030u, 0x62121u, 0xf3c0035u, 0xf0eu}, result = {0u, 0u, 0u, 0u, 0u};
  for (int bit = 0; bit < 160; ++bit) {
    unsigned int over = shift_up(result);
    add(result, modulus, over);
    unsigned int factor = shift_up(y);
    add(result, x, factor);
  }
  return result;
}
GPUAD_R Bits times_power(Bits result, Bits base, unsigned long long n) {
  while (n != 0) {
    if (n & 1u) result = product(result, base);
    base = product(base, base);
    n >>= 1;
  }
  return result;
}
GPUAD_R Bits step(Bits v) {
  unsigned int t = v.a ^ v.a >> 2;
  Bits next = {v.b, v.c, v.d, v.e, (v.e ^ v.e << 4) ^ (t ^ t << 1)};
  return next;
}
GPUAD_R Bits applied(Bits power, Bits v) {
  Bits result = {0u, 0u, 0u, 0u, 0u};
  for (int bit = 0; bit < 160; ++bit) {
    unsigned int factor = shift_down(power);
    add(result, v, factor);
    v = step(v);
  }
  return result;
}
GPUAD_R void skip(curandStateXORWOW* s, Bits base, unsigned long long n, unsigned int weyl) {
  Bits one = {1u, 0u, 0u, 0u, 0u}, v = {s->a, s->b, s->c, s->d, s->e};
  if (n != 0) v = applied(times_power(one, base, n), v);
  s->a = v.a;
  s->b = v.b;
  s->c = v.c;
  s->d = v.d;
  s->e = v.e;
  s->weyl += weyl * (unsigned int)n;
}

// --- Philox ---------------------------------------------------------------------------------------------------------------------------
GPUAD_R uint4 rounds(uint4 x, uint2 key) {
  for (int k = 0; k < 10; ++k) {
    unsigned int high = __umulhi(0xD2511F53u, x.x), low = 0xD2511F53u * x.x;
    unsigned int other = __umulhi(0xCD9E8D57u, x.z), lower = 0xCD9E8D57u * x.z;
    x = make_uint4(other ^ x.y ^ key.x, lower, high ^ x.w ^ key.y, low);
    key.x += 0x9E3779B9u;
    key.y += 0xBB67AE85u;
  }
  return x;
}
GPUAD_R void advance(curandStatePhilox4_32_10* s, unsigned long long n) {
  unsigned long long low = s->counter.x | (unsigned long long)s->counter.y << 32, sum = low + n;
  s->counter.x = (unsigned int)sum;
  s->counter.y = (unsigned int)(sum >> 32);
  if (sum < low) {
    unsigned long long high = (s->counter.z | (unsigned long long)s->counter.w << 32) + 1u;
    s->counter.z = (unsigned int)high;
    s->counter.w = (unsigned int)(high >> 32);
  }
}
GPUAD_R unsigned int at(uint4 x, unsigned int k) { return k == 0u ? x.x : k == 1u ? x.y : k == 2u ? x.z : x.w; }
GPUAD_R unsigned int at(uint4 x, uint4 after, unsigned int k) { return k < 4u ? at(x, k) : at(after, k - 4u); }

// --- distributions: of the open interval at 0, and of Box and Muller --------------------------------------------------------------------
GPUAD_R float uniform(unsigned int x) { return x * 2.3283064e-10f + 1.1641532e-10f; }
GPUAD_R double uniform(unsigned int x, unsigned int y) {
  unsigned long long z = (unsigned long long)x ^ (unsigned long long)y << 21;
  return z * 1.1102230246251565e-16 + 5.551115123125783e-17;
}
GPUAD_R float2 normals(unsigned int x, unsigned int y) {
  float u = x * 2.3283064e-10f + 1.1641532e-10f;
  float v = y * 1.46291807e-09f + 7.31459037e-10f;
  float s = sqrtf(-2.0f * logf(u));
  return make_float2(__sinf(v) * s, __cosf(v) * s);
}
GPUAD_R double2 normals(unsigned int x, unsigned int y, unsigned int z, unsigned int w) {
  double u = uniform(x, y);
  double v = ((unsigned long long)z ^ (unsigned long long)w << 21) * 2.220446049250313e-16 + 1.1102230246251565e-16;
  double s = sqrt(-2.0 * log(u));
  return make_double2(sinpi(v) * s, cospi(v) * s);
}
}  // namespace gpuad_random

GPUAD_R unsigned int curand(curandStateXORWOW* s) {
  gpuad_random::Bits v = {s->a, s->b, s->c, s->d, s->e};
  v = gpuad_random::step(v);
  s->a = v.a;
  s->b = v.b;
  s->c = v.c;
  s->d = v.d;
  s->e = v.e;
  s->weyl += 362437u;
  return v.e + s->weyl;
}
GPUAD_R void skipahead(unsigned long long n, curandStateXORWOW* s) {
  gpuad_random::Bits x = {2u, 0u, 0u, 0u, 0u};
  gpuad_random::skip(s, x, n, 362437u);
}
GPUAD_R void skipahead_sequence(unsigned long long n, curandStateXORWOW* s) {  // by n times 2^67, of which the Weyl sequence knows nothing
  gpuad_random::Bits far = {0x26294934u, 0x77bbc248u, 0x1a87dad0u, 0x930052d4u, 0x947e6dd2u};
  gpuad_random::skip(s, far, n, 0u);
}
GPUAD_R void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset, curandStateXORWOW* s) {
  unsigned int low = 1099087573u * ((unsigned int)seed ^ 0xaad26b49u);
  unsigned int high = 2591861531u * ((unsigned int)(seed >> 32) ^ 0xf7dcefddu);
  s->weyl = 6615241u + high + low;
  s->a = 123456789u + low;
  s->b = 362436069u ^ low;
  s->c = 521288629u + high;
  s->d = 88675123u ^ high;
  s->e = 5783321u + low;
  gpuad_random::forget_normals(s);
  skipahead_sequence(subsequence, s);
  skipahead(offset, s);
}

GPUAD_R unsigned int curand(curandStatePhilox4_32_10* s) {
  unsigned int result = gpuad_random::at(s->drawn, s->used);
  s->used += 1u;
  if (s->used == 4u) {
    gpuad_random::advance(s, 1u);
    s->drawn = gpuad_random::rounds(s->counter, s->key);
    s->used = 0u;
  }
  return result;
}
GPUAD_R uint4 curand4(curandStatePhilox4_32_10* s) {
  uint4 before = s->drawn;
  gpuad_random::advance(s, 1u);
  s->drawn = gpuad_random::rounds(s->counter, s->key);
  unsigned int k = s->used;
  return make_uint4(gpuad_random::at(before, s->drawn, k), gpuad_random::at(before, s->drawn, k + 1u),
                    gpuad_random::at(before, s->drawn, k + 2u), gpuad_random::at(before, s->drawn, k + 3u));
}
GPUAD_R void skipahead(unsigned long long n, curandStatePhilox4_32_10* s) {
  unsigned int k = s->used + (unsigned int)(n & 3u);
  s->used = k & 3u;
  gpuad_random::advance(s, (n >> 2) + (k >> 2));
  s->drawn = gpuad_random::rounds(s->counter, s->key);
}
GPUAD_R void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10* s) {
  unsigned long long high = (s->counter.z | (unsigned long long)s->counter.w << 32) + n;
  s->counter.z = (unsigned int)high;
  s->counter.w = (unsigned int)(high >> 32);
  s->drawn = gpuad_random::rounds(s->counter, s->key);
}
GPUAD_R void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset, curandStatePhilox4_32_10* s) {
  s->counter = make_uint4(0u, 0u, (unsigned int)subsequence, (unsigned int)(subsequence >> 32));
  s->key = make_uint2((unsigned int)seed, (unsigned int)(seed >> 32));
  s->used = 0u;
  gpuad_random::forget_normals(s);
  skipahead(offset, s);
}

// --- for both ---------------------------------------------------------------------------------------------------------------------------
template <typename S> GPUAD_R float curand_uniform(S* s) { return gpuad_random::uniform(curand(s)); }
GPUAD_R double curand_uniform_double(curandStateXORWOW* s) {
  unsigned int x = curand(s), y = curand(s);
  return gpuad_random::uniform(x, y);
}
GPUAD_R double curand_uniform_double(curandStatePhilox4_32_10* s) {  // of one number of 32 bits
  return curand(s) * 2.3283064365386963e-10 + 1.1641532182693481e-10;
}
template <typename S> GPUAD_R float2 curand_normal2(S* s) {
  unsigned int x = curand(s), y = curand(s);
  return gpuad_random::normals(x, y);
}
template <typename S> GPUAD_R double2 curand_normal2_double(S* s) {
  unsigned int x = curand(s), y = curand(s), z = curand(s), w = curand(s);
  return gpuad_random::normals(x, y, z, w);
}
// Normals are drawn in pairs, of which the second is kept; that it is one that is kept, of which kind, is what the number says.
template <typename S> GPUAD_R float curand_normal(S* s) {
  if (s->has_normal == 1) {
    s->has_normal = 0;
    return s->normal;
  }
  float2 pair = curand_normal2(s);
  s->normal = pair.y;
  s->has_normal = 1;
  return pair.x;
}
template <typename S> GPUAD_R double curand_normal_double(S* s) {
  if (s->has_normal_double == 1) {
    s->has_normal_double = 0;
    return s->normal_double;
  }
  double2 pair = curand_normal2_double(s);
  s->normal_double = pair.y;
  s->has_normal_double = 1;
  return pair.x;
}
template <typename S> GPUAD_R float2 curand_log_normal2(S* s, float mean, float stddev) {
  float2 pair = curand_normal2(s);
  return make_float2(expf(mean + stddev * pair.x), expf(mean + stddev * pair.y));
}
template <typename S> GPUAD_R double2 curand_log_normal2_double(S* s, double mean, double stddev) {
  double2 pair = curand_normal2_double(s);
  return make_double2(exp(mean + stddev * pair.x), exp(mean + stddev * pair.y));
}
template <typename S> GPUAD_R float curand_log_normal(S* s, float mean, float stddev) {
  if (s->has_normal == 2) {
    s->has_normal = 0;
    return s->normal;
  }
  float2 pair = curand_log_normal2(s, mean, stddev);
  s->normal = pair.y;
  s->has_normal = 2;
  return pair.x;
}
template <typename S> GPUAD_R double curand_log_normal_double(S* s, double mean, double stddev) {
  if (s->has_normal_double == 2) {
    s->has_normal_double = 0;
    return s->normal_double;
  }
  double2 pair = curand_log_normal2_double(s, mean, stddev);
  s->normal_double = pair.y;
  s->has_normal_double = 2;
  return pair.x;
}

// --- four at once, of Philox ------------------------------------------------------------------------------------------------------------
GPUAD_R float4 curand_uniform4(curandStatePhilox4_32_10* s) {
  uint4 x = curand4(s);
  return make_float4(gpuad_random::uniform(x.x), gpuad_random::uniform(x.y), gpuad_random::uniform(x.z), gpuad_random::uniform(x.w));
}
GPUAD_R double2 curand_uniform2_double(curandStatePhilox4_32_10* s) {
  uint4 x = curand4(s);
  return make_double2(gpuad_random::uniform(x.x, x.y), gpuad_random::uniform(x.z, x.w));
}
GPUAD_R float4 curand_normal4(curandStatePhilox4_32_10* s) {
  uint4 x = curand4(s);
  float2 first = gpuad_random::normals(x.x, x.y), second = gpuad_random::normals(x.z, x.w);
  return make_float4(first.x, first.y, second.x, second.y);
}
GPUAD_R float4 curand_log_normal4(curandStatePhilox4_32_10* s, float mean, float stddev) {
  float4 x = curand_normal4(s);
  return make_float4(expf(mean + stddev * x.x), expf(mean + stddev * x.y), expf(mean + stddev * x.z), expf(mean + stddev * x.w));
}

// --- known by name, and refused -----------------------------------------------------------------------------------------------------------
#define GPUAD_OTHER(S) \
  struct S { \
    unsigned int kept; \
  }; \
  typedef S S##_t; \
  __device__ void curand_init(unsigned long long, unsigned long long, unsigned long long, S*); \
  __device__ void skipahead(unsigned long long, S*); \
  __device__ unsigned int curand(S*); \
  __device__ float curand_uniform(S*); \
  __device__ double curand_uniform_double(S*); \
  __device__ float curand_normal(S*); \
  __device__ double curand_normal_double(S*); \
  __device__ float curand_log_normal(S*, float, float); \
  __device__ double curand_log_normal_double(S*, double, double);
GPUAD_OTHER(curandStateMRG32k3a)
GPUAD_OTHER(curandStateMtgp32)
GPUAD_OTHER(curandStateSobol32)
GPUAD_OTHER(curandStateSobol64)
GPUAD_OTHER(curandStateScrambledSobol32)
GPUAD_OTHER(curandStateScrambledSobol64)
#undef GPUAD_OTHER
template <typename S> __device__ unsigned int curand_poisson(S*, double);
template <typename S> __device__ uint4 curand_poisson4(S*, double);
template <typename S, typename D> __device__ unsigned int curand_discrete(S*, D);
#undef GPUAD_R
