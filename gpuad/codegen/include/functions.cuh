// The device functions that generated CUDA may need, each behind a line with its name; {prefix} is put in for those that the CPU shares.
//// gpuad_stop
// Ends the launch with an error, as assert does, which says what did not hold.
extern "C" __device__ void __assertfail(const char*, const char*, unsigned int, const char*, size_t);
__device__ inline void gpuad_stop(const char* what) { __assertfail(what, "", 0, "", 1); }
//// gpuad_half
// Halves are kept as their bits, and computed with in float.
__device__ inline float gpuad_from_half(unsigned short bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
__device__ inline unsigned short gpuad_to_half(float value)
{
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
__device__ inline float gpuad_half(float value) { return gpuad_from_half(gpuad_to_half(value)); }
__device__ inline double gpuad_half(double value)
{
    unsigned short bits;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(value));
    return gpuad_from_half(bits);
}
//// gpuad_bfloat16
// A bfloat16 is the upper half of a float: kept as its bits, and computed with in float.
__device__ inline float gpuad_from_bfloat16(unsigned short bits) { return __uint_as_float((unsigned int)bits << 16); }
__device__ inline unsigned short gpuad_to_bfloat16(float value)
{
#if __CUDA_ARCH__ >= 800
    unsigned short result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(value));
    return result;
#else
    const unsigned int bits = __float_as_uint(value);
    return value != value ? 0x7fff : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
#endif
}
__device__ inline float gpuad_bfloat16(float value) { return gpuad_from_bfloat16(gpuad_to_bfloat16(value)); }
__device__ inline double gpuad_bfloat16(double value)
{
    float odd = __double2float_rz(value);  // rounded to odd, so that the second rounding is as if there had been one
    if (odd != value) odd = __uint_as_float(__float_as_uint(odd) | 1u);
    return gpuad_bfloat16(odd);
}
//// gpuad_add_half
// atomicAdd for halves.
__device__ inline float gpuad_add_half(unsigned short* target, float value)
{
    unsigned short old;
    asm volatile("{ atom.add.noftz.f16 %0, [%1], %2; }" : "=h"(old) : "l"(target), "h"(gpuad_to_half(value)) : "memory");
    return gpuad_from_half(old);
}
//// gpuad_add_bfloat16
// atomicAdd for bfloat16.
__device__ inline float gpuad_add_bfloat16(unsigned short* target, float value)
{
    unsigned short old;
#if __CUDA_ARCH__ >= 900
    asm volatile("{ atom.add.noftz.bf16 %0, [%1], %2; }" : "=h"(old) : "l"(target), "h"(gpuad_to_bfloat16(value)) : "memory");
#else
    unsigned short expected;
    old = *(volatile unsigned short*)target;
    do {
        expected = old;
        old = atomicCAS(target, expected, gpuad_to_bfloat16(gpuad_from_bfloat16(expected) + value));
    } while (old != expected);
#endif
    return gpuad_from_bfloat16(old);
}
//// gpuad_chain
// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }
//// gpuad_digamma
// psi(x), the derivative of lgamma: NaN at 0, -1, -2, ...
{prefix} double gpuad_digamma(double x)
{
    const double pi = 3.14159265358979323846;
    double sum = 0.0;
    if (x <= 0.0) {
        sum = -pi / tan(pi * (x - rint(x)));
        if (x == floor(x)) return sum - sum;
        x = 1.0 - x;
    }
    for (; x < 12.0; x += 1.0) sum -= 1.0 / x;
    const double s = 1.0 / (x * x);
    return sum + log(x) - 0.5 / x
        - s * (1.0 / 12 - s * (1.0 / 120 - s * (1.0 / 252 - s * (1.0 / 240 - s * (1.0 / 132 - s * (691.0 / 32760 - s / 12))))));
}
{prefix} float gpuad_digamma(float x) { return (float)gpuad_digamma((double)x); }
//// gpuad_trigamma
// psi'(x), the second derivative of lgamma: infinite at 0, -1, -2, ...
{prefix} double gpuad_trigamma(double x)
{
    const double pi = 3.14159265358979323846;
    double sum = 0.0, sign = 1.0;
    if (x <= 0.0) {
        const double sine = sin(pi * (x - rint(x)));
        if (x == floor(x)) return 1.0 / (sine * sine * 0.0);
        sum = pi * pi / (sine * sine);
        sign = -1.0;
        x = 1.0 - x;
    }
    for (; x < 12.0; x += 1.0) sum += sign / (x * x);
    const double s = 1.0 / (x * x);
    return sum + sign / x * (1.0 + 0.5 / x
        + s * (1.0 / 6 - s * (1.0 / 30 - s * (1.0 / 42 - s * (1.0 / 30 - s * (5.0 / 66 - s * (691.0 / 2730 - s * 7.0 / 6)))))));
}
{prefix} float gpuad_trigamma(float x) { return (float)gpuad_trigamma((double)x); }
//// gpuad_block_sum
// Adds the sum of `value` over all threads of the block to *target, with one atomicAdd if it is not 0. Every thread of the block must make
// the call, with the same target; the block may have any shape. The sum is formed in double.
template <typename T>
__device__ inline void gpuad_block_sum(T* target, double value)
{
    __shared__ double partial[32];
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int threads = blockDim.x * blockDim.y * blockDim.z;
    const int lane = thread % 32;
    const int lanes = min(32, threads - (thread - lane));
    const unsigned int mask = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1u;
    for (int distance = 16; distance > 0; distance /= 2) {
        const double other = __shfl_down_sync(mask, value, distance);
        if (lane + distance < lanes) value += other;
    }
    if (lane == 0) partial[thread / 32] = value;
    __syncthreads();
    if (thread == 0) {
        for (int warp = 1; warp < (threads + 31) / 32; ++warp) value += partial[warp];
        if (value != 0.0) atomicAdd(target, (T)value);
    }
    __syncthreads();
}
//// gpuad_exch
// atomicExch for the types that CUDA lacks, on the bits.
__device__ inline double gpuad_exch(double* target, double value)
{
    return __longlong_as_double(atomicExch((unsigned long long*)target, (unsigned long long)__double_as_longlong(value)));
}
__device__ inline long long gpuad_exch(long long* target, long long value)
{
    return (long long)atomicExch((unsigned long long*)target, (unsigned long long)value);
}
//// gpuad_cas
// atomicCAS for the types that CUDA lacks, on the bits.
__device__ inline float gpuad_cas(float* target, float expected, float value)
{
    return __int_as_float(atomicCAS((int*)target, __float_as_int(expected), __float_as_int(value)));
}
__device__ inline double gpuad_cas(double* target, double expected, double value)
{
    const unsigned long long bits = (unsigned long long)__double_as_longlong(value);
    return __longlong_as_double(atomicCAS((unsigned long long*)target, (unsigned long long)__double_as_longlong(expected), bits));
}
__device__ inline long long gpuad_cas(long long* target, long long expected, long long value)
{
    return (long long)atomicCAS((unsigned long long*)target, (unsigned long long)expected, (unsigned long long)value);
}
//// gpuad_add
// atomicAdd for signed 64-bit integers.
__device__ inline long long gpuad_add(long long* target, long long value)
{
    return (long long)atomicAdd((unsigned long long*)target, (unsigned long long)value);
}
//// gpuad_trips
// How many iterations `for (i = start; i < stop; i += step)` has.
__device__ inline long long gpuad_trips(long long start, long long stop, long long step)
{
    return start < stop ? (stop - start - 1) / step + 1 : 0;
}
//// gpuad_unsigned_trips
// How many iterations the same loop has over an `unsigned long long`.
__device__ inline long long gpuad_unsigned_trips(unsigned long long start, unsigned long long stop, unsigned long long step)
{
    return start < stop ? (stop - start - 1) / step + 1 : 0;
}
//// gpuad_inff
__device__ inline float gpuad_inff() { return __int_as_float(0x7f800000); }
//// gpuad_inf
__device__ inline double gpuad_inf() { return __longlong_as_double(0x7ff0000000000000LL); }
//// gpuad_nanf
__device__ inline float gpuad_nanf() { return __int_as_float(0x7fffffff); }
//// gpuad_nan
__device__ inline double gpuad_nan() { return __longlong_as_double(0x7fffffffffffffffLL); }
