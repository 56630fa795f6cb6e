"""The C++ that the CPU's text stands on: CUDA's launch indices, integer operations with PTX's results, atomics, and the functions that CUDA
has and the C++ library has not. Everything lives in a namespace of ours, where it hides whatever the C library calls by the same name."""

from __future__ import annotations

from collections.abc import Iterable

from ..extrema import BITS, host_extrema
from ..gamma import gamma_helpers
from ..helpers import helper_text

PRELUDE = r"""
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#ifndef _WIN32
#include <sys/mman.h>
#endif

// Iterations may be run at once; lanes shall be, whatever branches there are. Floats or doubles that lie side by side: in vectors of the
// full width, which compilers leave alone by themselves. Sums: of iterations in any order.
#define GPUAD_PRAGMA(...) _Pragma(#__VA_ARGS__)
#if defined(__clang__)
#define GPUAD_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define GPUAD_LANES GPUAD_INDEPENDENT
#define GPUAD_FLOATS GPUAD_INDEPENDENT
#define GPUAD_DOUBLES GPUAD_INDEPENDENT
#define GPUAD_SUMS(...) GPUAD_PRAGMA(omp simd reduction(+ : __VA_ARGS__))
#elif defined(__GNUC__)
#define GPUAD_INDEPENDENT _Pragma("GCC ivdep")
#define GPUAD_LANES _Pragma("omp simd")
#if defined(__AVX512F__)
#define GPUAD_FLOATS _Pragma("omp simd simdlen(16)")
#define GPUAD_DOUBLES _Pragma("omp simd simdlen(8)")
#define GPUAD_SUMS(...) GPUAD_PRAGMA(omp simd simdlen(16) reduction(+ : __VA_ARGS__))
#else
#define GPUAD_FLOATS GPUAD_LANES
#define GPUAD_DOUBLES GPUAD_LANES
#define GPUAD_SUMS(...) GPUAD_PRAGMA(omp simd reduction(+ : __VA_ARGS__))
#endif
#else
#define GPUAD_INDEPENDENT
#define GPUAD_LANES
#define GPUAD_FLOATS
#define GPUAD_DOUBLES
#define GPUAD_SUMS(...)
#endif
#define GPUAD_EXPORT __attribute__((visibility("default")))
#ifndef GPUAD_RESTRICT
#define GPUAD_RESTRICT
#endif
#define GPUAD_INLINE static inline __attribute__((always_inline))
// Vectors of 512 bits for what only streams through memory: it reads each line of the cache at once. g++ prefers 256 where there are such.
#if defined(__GNUC__) && !defined(__clang__) && defined(__AVX512FP16__)
#define GPUAD_WIDE __attribute__((noinline, target("prefer-vector-width=512")))
#else
#define GPUAD_WIDE
#endif
#define GPUAD_NOINLINE __attribute__((noinline))

namespace gpuad_host {

struct gpuad_dim { long long x, y, z; };

template <typename T>
GPUAD_INLINE T gpuad_slot(const unsigned long long* slots, int k)
{
    T value;
    std::memcpy(&value, slots + k, sizeof(T));
    return value;
}

// An array that is too large for the stack of a thread.
template <typename T>
struct gpuad_large {
    T* const data;

    explicit gpuad_large(unsigned long long length) : data((T*)std::malloc(length * sizeof(T))) { if (!data) throw std::bad_alloc(); }
    gpuad_large(unsigned long long length, T) : data((T*)std::calloc(length, sizeof(T))) { if (!data) throw std::bad_alloc(); }
    gpuad_large(const gpuad_large&) = delete;
    ~gpuad_large() { std::free((void*)data); }
};

template <typename... T>
static void gpuad_print(const char* text, T... values)
{
    std::printf(text, values...);
    std::fflush(stdout);
}
"""

SUMS = r"""
// Sums of the contributions that strips of threads leave behind, in double and always in the same order.
struct gpuad_lanes {
    double lane[16] = {};

    template <typename T>
    inline void add(const T* part, long long count)
    {
        long long k = 0;
        for (; k + 16 <= count; k += 16)
            for (int l = 0; l < 16; ++l) lane[l] += (double)part[k + l];
        for (; k < count; ++k) lane[k % 16] += (double)part[k];
    }

    inline double total() const
    {
        double sum = 0.0;
        for (int l = 0; l < 16; ++l) sum += lane[l];
        return sum;
    }
};

template <typename T>
static void gpuad_add_up(const std::vector<double>& done, std::size_t first, std::size_t step, T* target)
{
    double sum = 0.0;
    for (std::size_t k = first; k < done.size(); k += step) sum += done[k];
    if (sum != 0.0) *target += (T)sum;
}
"""

BLOCK_SUMS = r"""
// A sum over threads that is added to memory once, in the order of the workers.
struct gpuad_flushed { void* target; double sum; };
struct gpuad_partial { void* target = nullptr; double sum = 0.0; };

static __attribute__((noinline)) void gpuad_flush(std::vector<gpuad_flushed>& done, void* target, double sum)
{
    if (target) done.push_back({target, sum});
}

template <typename T>
GPUAD_INLINE void gpuad_block_sum(gpuad_partial& partial, std::vector<gpuad_flushed>& done, T* target, double value)
{
    if (__builtin_expect(target != partial.target, 0)) {
        gpuad_flush(done, partial.target, partial.sum);
        partial.target = target;
        partial.sum = 0.0;
    }
    partial.sum += value;
}

template <typename T>
static void gpuad_combine(const std::vector<std::vector<gpuad_flushed>>& done, std::size_t first, std::size_t step)
{
    std::map<void*, std::size_t> places;
    std::vector<gpuad_flushed> sums;
    for (std::size_t k = first; k < done.size(); k += step) {
        for (const gpuad_flushed& part : done[k]) {
            const auto place = places.emplace(part.target, sums.size());
            if (place.second) sums.push_back(part);
            else sums[place.first->second].sum += part.sum;
        }
    }
    for (const gpuad_flushed& part : sums)
        if (part.sum != 0.0) *(T*)part.target += (T)part.sum;
}
"""

ATOMICS = r"""
#ifdef GPUAD_ATOMICS
template <typename T, typename F>
GPUAD_INLINE T gpuad_atomic(T* target, F next)
{
    T old, value;
    __atomic_load(target, &old, __ATOMIC_RELAXED);
    do value = next(old);
    while (!__atomic_compare_exchange(target, &old, &value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}
#else
template <typename T, typename F>
GPUAD_INLINE T gpuad_atomic(T* target, F next)
{
    const T old = *target;
    *target = next(old);
    return old;
}
#endif
template <typename T> struct gpuad_same { typedef T type; };
#define GPUAD_ATOMIC(name, expression) \
    template <typename T> GPUAD_INLINE T name(T* target, typename gpuad_same<T>::type value) \
    { \
        return gpuad_atomic(target, [=](T old) -> T { return expression; }); \
    }
GPUAD_ATOMIC(atomicAdd, old + value)
GPUAD_ATOMIC(atomicSub, old - value)
GPUAD_ATOMIC(atomicExch, ((void)old, value))
GPUAD_ATOMIC(atomicMin, old < value ? old : value)
GPUAD_ATOMIC(atomicMax, old > value ? old : value)
GPUAD_ATOMIC(atomicAnd, old & value)
GPUAD_ATOMIC(atomicOr, old | value)
GPUAD_ATOMIC(atomicXor, old ^ value)
GPUAD_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
GPUAD_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
template <typename T>
GPUAD_INLINE T atomicCAS(T* target, typename gpuad_same<T>::type expected, typename gpuad_same<T>::type value)
{
    return gpuad_atomic(target, [=](T old) -> T { return std::memcmp(&old, &expected, sizeof(T)) == 0 ? value : old; });
}
"""

_INTEGERS = {
    "gpuad_div": r"""
// x / 0 has all bits set, and the least integer divided by -1 is itself. For 32 bits the quotient of two doubles is exact enough, since one
// that is no integer is further from the next than it is rounded by; and a vector of doubles is divided at once.
template <typename T> GPUAD_INLINE T gpuad_div(T a, T b)
{
    const bool minus = T(-1) < T(0) && b == (T)-1;
    const T by = b == 0 || minus ? (T)1 : b;
    const T quotient = sizeof(T) == 4 ? (T)((double)a / (double)by) : (T)(a / by);
    return b == 0 ? (T)-1 : minus ? (T)(0 - (unsigned long long)a) : quotient;
}
""",
    "gpuad_rem": r"""
// x % 0 is x, and x % -1 is 0.
template <typename T> GPUAD_INLINE T gpuad_rem(T a, T b)
{
    const T by = b == 0 || (T(-1) < T(0) && b == (T)-1) ? (T)1 : b;
    const T quotient = sizeof(T) == 4 ? (T)((double)a / (double)by) : (T)(a / by);
    return b == 0 ? a : (T)(a - (unsigned long long)quotient * by);
}
""",
    "gpuad_hidden": r"""
// A subscript made of a truth value: in a vector of threads, g++ 12 reads elsewhere.
template <typename T> GPUAD_INLINE T gpuad_hidden(T index)
{
#if defined(__GNUC__) && !defined(__clang__)
    asm("" : "+r"(index));
#endif
    return index;
}
""",
    "gpuad_row_of": r"""
// The quotient of the thread with index i, and the end of the threads that have the same one, if it is before `end`.
template <typename T> GPUAD_INLINE T gpuad_row_of(long long i, T by, long long& end)
{
    if (by > 0 && (unsigned long long)by <= 0xffffffffu) {
        const long long quotient = i >> 32 == 0 ? (unsigned)i / (unsigned)by : i / (long long)by, next = (quotient + 1) * (long long)by;
        if (next < end) end = next;
        return (T)quotient;
    }
    end = i + 1;
    return by == 0 ? (T)-1 : T(-1) < T(0) && by == (T)-1 ? (T)(0 - i) : (T)((T)i / by);
}
""",
    "gpuad_shl": r"""
// Shifts by the width or more, as unsigned numbers, leave nothing.
template <typename T> GPUAD_INLINE T gpuad_shl(T a, unsigned long long by)
{
    return by < 8 * sizeof(T) ? (T)((unsigned long long)a << by) : (T)0;
}
""",
    "gpuad_shr": r"""
// Shifts by the width or more, as unsigned numbers, leave the sign.
template <typename T> GPUAD_INLINE T gpuad_shr(T a, unsigned long long by)
{
    return by < 8 * sizeof(T) ? (T)(a >> by) : a < 0 ? (T)-1 : (T)0;
}
""",
    "gpuad_f2i": r"""
// Rounds towards zero and saturates. NaN is 0, or the highest bit alone where a double or a 64-bit integer takes part.
template <typename T, typename F> GPUAD_INLINE T gpuad_f2i(F x)
{
    const bool isSigned = T(-1) < T(0);
    const int bits = 8 * sizeof(T) - (isSigned ? 1 : 0);
    const F limit = (F)2 * (F)(1ULL << (bits - 1));
    const T most = (T)(((1ULL << (bits - 1)) - 1) * 2 + 1);
    if (!(x == x)) return sizeof(T) == 8 || sizeof(F) == 8 ? (T)(1ULL << (8 * sizeof(T) - 1)) : (T)0;
    if (x >= limit) return most;
    if (isSigned ? x < -limit : x <= (F)-1) return isSigned ? (T)(-(long long)most - 1) : (T)0;
    return (T)x;
}
""",
    "gpuad_trips": r"""
// How many iterations `for (i = start; i < stop; i += step)` has.
GPUAD_INLINE long long gpuad_trips(long long start, long long stop, long long step)
{
    return start < stop && step > 0 ? (stop - start - 1) / step + 1 : 0;
}
""",
    "gpuad_unsigned_trips": r"""
// How many iterations the same loop has over an `unsigned long long`.
GPUAD_INLINE long long gpuad_unsigned_trips(unsigned long long start, unsigned long long stop, unsigned long long step)
{
    return start < stop && step > 0 ? (stop - start - 1) / step + 1 : 0;
}
""",
}

_HALF = """// Halves are kept as their bits, and computed with in float.
GPUAD_INLINE float gpuad_from_half(unsigned short bits)
{
    const unsigned exponent = (bits >> 10) & 31u, mantissa = bits & 1023u;
    unsigned whole = exponent == 31u ? 0x7f800000u | (mantissa << 13) : ((exponent + 112u) << 23) | (mantissa << 13);
    float value;
    __builtin_memcpy(&value, &whole, sizeof value);
    if (exponent == 0u) value = (float)mantissa * 5.9604644775390625e-8f;
    return (bits & 0x8000u) ? -value : value;
}
GPUAD_INLINE unsigned short gpuad_to_half(double value)
{
    if (value != value) return 0x7fffu;
    const unsigned sign = __builtin_signbit(value) ? 0x8000u : 0u;
    const double size = __builtin_fabs(value);
    if (size >= 65520.0) return (unsigned short)(sign | 0x7c00u);
    if (size < 6.103515625e-5) return (unsigned short)(sign | (unsigned)__builtin_nearbyint(size * 16777216.0));
    int exponent;
    __builtin_frexp(size, &exponent);
    const unsigned mantissa = (unsigned)__builtin_nearbyint(__builtin_ldexp(size, 11 - exponent));
    return (unsigned short)(sign | (((unsigned)(exponent + 14) << 10) + (mantissa - 1024u)));
}
GPUAD_INLINE float gpuad_half(float value) { return gpuad_from_half(gpuad_to_half(value)); }
GPUAD_INLINE double gpuad_half(double value) { return gpuad_from_half(gpuad_to_half(value)); }"""

_BFLOAT16 = """// A bfloat16 is the upper half of a float: kept as its bits, and computed with in float.
GPUAD_INLINE float gpuad_from_bfloat16(unsigned short bits)
{
    const unsigned whole = (unsigned)bits << 16;
    float value;
    __builtin_memcpy(&value, &whole, sizeof value);
    return value;
}
GPUAD_INLINE unsigned short gpuad_to_bfloat16(float value)
{
    unsigned bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return value != value ? 0x7fff : (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
GPUAD_INLINE float gpuad_bfloat16(float value) { return gpuad_from_bfloat16(gpuad_to_bfloat16(value)); }
GPUAD_INLINE double gpuad_bfloat16(double value)
{
    float odd = (float)value;  // rounded to odd, so that the second rounding is as if there had been one
    unsigned bits;
    __builtin_memcpy(&bits, &odd, sizeof bits);
    if (__builtin_fabs((double)odd) > __builtin_fabs(value)) --bits;
    if (odd != value) bits |= 1u;
    __builtin_memcpy(&odd, &bits, sizeof odd);
    return gpuad_bfloat16(odd);
}"""


def _add(name: str) -> str:
    next_ = f"gpuad_to_{name}(gpuad_from_{name}(old) + value)"
    return f"""GPUAD_INLINE float gpuad_add_{name}(unsigned short* target, float value)
{{
    return gpuad_from_{name}(gpuad_atomic(target, [=](unsigned short old) -> unsigned short {{ return {next_}; }}));
}}"""


_SMALL = {
    "gpuad_any": """
GPUAD_INLINE bool gpuad_any(const int* mask, long long count)
{
    int some = 0;
    for (long long k = 0; k < count; ++k) some |= mask[k];
    return some != 0;
}""",
    "gpuad_half": _HALF,
    "gpuad_bfloat16": _BFLOAT16,
    "gpuad_add_half": _add("half"),
    "gpuad_add_bfloat16": _add("bfloat16"),
    **{name: text.strip() for name, text in gamma_helpers("GPUAD_INLINE").items()},
    "gpuad_chain": "template <typename T> GPUAD_INLINE T gpuad_chain(T seed, T partial) { return seed == 0 ? (T)0 : seed * partial; }",
    **host_extrema(),
    "gpuad_exch": "#define gpuad_exch atomicExch",
    "gpuad_cas": "#define gpuad_cas atomicCAS",
    "gpuad_add": "#define gpuad_add atomicAdd",
    "gpuad_inff": "GPUAD_INLINE float gpuad_inff() { return __builtin_inff(); }",
    "gpuad_inf": "GPUAD_INLINE double gpuad_inf() { return __builtin_inf(); }",
    "gpuad_nanf": 'GPUAD_INLINE float gpuad_nanf() { return __builtin_nanf(""); }',
    "gpuad_nan": 'GPUAD_INLINE double gpuad_nan() { return __builtin_nan(""); }',
    "min": "template <typename T> GPUAD_INLINE T min(T a, T b) { return b < a ? b : a; }",
    "max": "template <typename T> GPUAD_INLINE T max(T a, T b) { return a < b ? b : a; }",
    "abs": "template <typename T> GPUAD_INLINE T abs(T a) { return a < 0 ? (T)(0 - a) : a; }",
    "__popc": "GPUAD_INLINE int __popc(unsigned int x) { return __builtin_popcount(x); }",
    "__popcll": "GPUAD_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }",
    "__clz": "GPUAD_INLINE int __clz(unsigned int x) { return x ? __builtin_clz(x) : 32; }",
    "__clzll": "GPUAD_INLINE int __clzll(unsigned long long x) { return x ? __builtin_clzll(x) : 64; }",
    "__ffs": "GPUAD_INLINE int __ffs(int x) { return __builtin_ffs(x); }",
    "__ffsll": "GPUAD_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }",
    "__brev": r"""
GPUAD_INLINE unsigned int __brev(unsigned int x)
{
    unsigned int y = 0;
    for (int k = 0; k < 32; ++k) y |= (x >> k & 1u) << (31 - k);
    return y;
}""",
    "__brevll": r"""
GPUAD_INLINE unsigned long long __brevll(unsigned long long x)
{
    unsigned long long y = 0;
    for (int k = 0; k < 64; ++k) y |= (x >> k & 1ull) << (63 - k);
    return y;
}""",
    "__mulhi": "GPUAD_INLINE int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }",
    "__umulhi": """
GPUAD_INLINE unsigned int __umulhi(unsigned int a, unsigned int b)
{
    return (unsigned int)((unsigned long long)a * b >> 32);
}""",
    "__mul64hi": "GPUAD_INLINE long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }",
    "__umul64hi": """
GPUAD_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}""",
    **{
        name: f"template <typename T> GPUAD_INLINE bool {name}(T x) {{ return __builtin_{name}(x); }}"
        for name in ("isnan", "isinf", "isfinite")
    },
    "signbit": "GPUAD_INLINE bool signbit(double x) { return __builtin_signbit(x); }",
}

_UNARY = {
    "rcbrt": "1 / std::cbrt(x)",
    "exp10": "std::pow(10.0, x)",
    "sinpi": "gpuad_sinpi(x)",
    "cospi": "gpuad_cospi(x)",
    "erfinv": "gpuad_erfinv(x)",
    "erfcinv": "gpuad_erfcinv(x)",
    "erfcx": "gpuad_erfcx(x)",
    "normcdf": "0.5 * std::erfc(x * -0.70710678118654752440)",
    "normcdfinv": "-1.41421356237309504880 * gpuad_erfcinv(2 * x)",
    "j0": "::j0(x)",
    "j1": "::j1(x)",
    "y0": "::y0(x)",
    "y1": "::y1(x)",
}

_SPECIAL = {
    "gpuad_sinpi": r"""
GPUAD_INLINE double gpuad_sinpi(double x)
{
    const double r = std::remainder(x, 2.0), a = std::fabs(r);
    const double s = a <= 0.25 ? std::sin(M_PI * a) : a <= 0.75 ? std::cos(M_PI * (0.5 - a)) : std::sin(M_PI * (1.0 - a));
    return std::copysign(s, r);
}""",
    "gpuad_cospi": r"""
GPUAD_INLINE double gpuad_cospi(double x)
{
    const double a = std::fabs(std::remainder(x, 2.0));
    return a <= 0.25 ? std::cos(M_PI * a) : a <= 0.75 ? std::sin(M_PI * (0.5 - a)) : -std::cos(M_PI * (1.0 - a));
}""",
    "gpuad_erfcinv": r"""
// A rational guess (Abramowitz and Stegun 26.2.23), then Halley's iteration on erfc.
static double gpuad_erfcinv(double p)
{
    if (!(p > 0.0 && p < 2.0)) return p == 0.0 ? __builtin_inf() : p == 2.0 ? -__builtin_inf() : __builtin_nan("");
    const double q = p < 1.0 ? p : 2.0 - p;
    const double t = std::sqrt(-2.0 * std::log(0.5 * q));
    double x = -0.70711 * ((2.30753 + t * 0.27061) / (1.0 + t * (0.99229 + t * 0.04481)) - t);
    for (int k = 0; k < 3; ++k) {
        const double error = std::erfc(x) - q;
        x += error / (1.12837916709551257 * std::exp(-x * x) - x * error);
    }
    return p < 1.0 ? x : -x;
}""",
    "gpuad_erfinv": r"""
// Near 0 Halley's iteration on erf, elsewhere by erfcinv.
static double gpuad_erfinv(double y)
{
    if (!(std::fabs(y) < 0.5)) return gpuad_erfcinv(1.0 - y);
    double x = 0.886226925452758 * y;
    for (int k = 0; k < 4; ++k) {
        const double error = std::erf(x) - y;
        x -= error / (1.12837916709551257 * std::exp(-x * x) + x * error);
    }
    return x;
}""",
    "gpuad_erfcx": r"""
// exp(x^2) erfc(x); the asymptotic series where erfc would underflow.
static double gpuad_erfcx(double x)
{
    if (x < 20.0) {
        const double square = x * x, rest = std::fma(x, x, -square);
        const double power = std::exp(square);
        return power < 1e308 ? power * (1.0 + rest) * std::erfc(x) : x < 0.0 ? __builtin_inf() : 0.0;
    }
    const double z = 0.5 / (x * x);
    double term = 1.0, sum = 1.0;
    for (int k = 1; k < 9; ++k) {
        term *= -(2 * k - 1) * z;
        sum += term;
    }
    return 0.56418958354775628695 * sum / x;
}""",
}
_SAME = {
    "__expf": "expf", "__logf": "logf", "__log2f": "log2f", "__log10f": "log10f", "__sinf": "sinf", "__cosf": "cosf", "__tanf": "tanf",
    "__fsqrt_rn": "sqrtf", "__dsqrt_rn": "sqrt",
}  # fmt: skip
_OPERATORS = {
    "__fdividef": ("float", "a / b"), "__fadd_rn": ("float", "a + b"), "__fsub_rn": ("float", "a - b"), "__fmul_rn": ("float", "a * b"),
    "__fdiv_rn": ("float", "a / b"), "__dadd_rn": ("double", "a + b"), "__dsub_rn": ("double", "a - b"), "__dmul_rn": ("double", "a * b"),
    "__ddiv_rn": ("double", "a / b"), "__powf": ("float", "powf(a, b)"), "rhypot": ("double", "1.0 / std::hypot(a, b)"),
    "rhypotf": ("float", "(float)(1.0 / std::hypot((double)a, (double)b))"),
}  # fmt: skip
_BITS = {
    "__float_as_int": ("float", "int"),
    "__float_as_uint": ("float", "unsigned int"),
    "__int_as_float": ("int", "float"),
    "__uint_as_float": ("unsigned int", "float"),
    "__double_as_longlong": ("double", "long long"),
    "__longlong_as_double": ("long long", "double"),
}
# Cephes' polynomial, to little more than 1 ulp (CUDA's: 2), with 2^n in two factors so that small results are rounded once. It is
# made of operations that vectors have, and the last of them wait for few of the first: alone it takes little longer than the C library's.
_EXP = r"""
GPUAD_INLINE float gpuad_multiply_add(float a, float b, float c)
{
#ifdef __FMA__
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

GPUAD_INLINE float expf(float x)
{
    const float shifted = gpuad_multiply_add(x, 1.44269504088896341f, 12582912.0f), n = shifted - 12582912.0f;  // n is whole
    const float r = gpuad_multiply_add(n, 2.12194440e-4f, gpuad_multiply_add(n, -0.693359375f, x)), square = r * r;
    const float middle = gpuad_multiply_add(4.1665795894e-2f, r, 1.6666665459e-1f);
    const float high = gpuad_multiply_add(1.9875691500e-4f, square, gpuad_multiply_add(1.3981999507e-3f, r, 8.3334519073e-3f));
    const float rest = gpuad_multiply_add(r, gpuad_multiply_add(square, high, middle), 5.0000001201e-1f);
    int bits;
    __builtin_memcpy(&bits, &shifted, sizeof bits);
    bits -= 0x4b400000;  // n, the last bits of `shifted`
    const int half = bits >> 1, powers = (half + 127) << 23, others = (bits - half + 127) << 23;
    float first, second;
    __builtin_memcpy(&first, &powers, sizeof first);
    __builtin_memcpy(&second, &others, sizeof second);
    const float y = (1.0f + gpuad_multiply_add(square, rest, r)) * first * second;
    return x > 88.8f ? __builtin_inff() : x < -104.0f ? 0.0f : y;
}"""
_OTHER = {
    "expf": _EXP,
    **{
        f"f{name}{suffix}": f"GPUAD_INLINE {t} f{name}{suffix}({t} a, {t} b) {{ return a {sign} b || b != b ? a : b; }}"
        for name, sign in (("max", ">"), ("min", "<"))
        for suffix, t in (("f", "float"), ("", "double"))
    },
    "rsqrt": "GPUAD_INLINE double rsqrt(double x) { return 1.0 / std::sqrt(x); }",
    "rsqrtf": "GPUAD_INLINE float rsqrtf(float x) { return 1.0f / std::sqrt(x); }",
    "__exp10f": "GPUAD_INLINE float __exp10f(float x) { return (float)std::pow(10.0, (double)x); }",
    "__frcp_rn": "GPUAD_INLINE float __frcp_rn(float x) { return 1.0f / x; }",
    "__drcp_rn": "GPUAD_INLINE double __drcp_rn(double x) { return 1.0 / x; }",
    "__frsqrt_rn": "GPUAD_INLINE float __frsqrt_rn(float x) { return (float)(1.0 / std::sqrt((double)x)); }",
    "__fmaf_rn": "GPUAD_INLINE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }",
    "__fma_rn": "GPUAD_INLINE double __fma_rn(double a, double b, double c) { return fma(a, b, c); }",
    "__saturatef": "GPUAD_INLINE float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }",
}


def _table() -> dict[str, str]:
    """Each function's definition. Those at float32 that the C library has not are computed in double."""
    table = _INTEGERS | _SMALL | _SPECIAL
    for name, expression in _UNARY.items():
        table[name] = f"GPUAD_INLINE double {name}(double x) {{ return {expression}; }}"
        table[name + "f"] = f"GPUAD_INLINE float {name}f(float a) {{ const double x = a; return (float)({expression}); }}"
    table |= {name: f"GPUAD_INLINE {_kind(name)} {name}({_kind(name)} x) {{ return {same}(x); }}" for name, same in _SAME.items()}
    table |= {
        name: f"GPUAD_INLINE {result} {name}({argument} x) {{ {result} y; __builtin_memcpy(&y, &x, sizeof x); return y; }}"
        for name, (argument, result) in _BITS.items()
    }
    table |= {n: f"GPUAD_INLINE {t} {n}({t} a, {t} b) {{ return {e}; }}" for n, (t, e) in _OPERATORS.items()}
    return table | _OTHER


def _kind(name: str) -> str:
    return "double" if name.startswith("__d") else "float"


HOST_HELPERS = _table()


def host_helper_text(used: Iterable[str]) -> str:
    """The definitions of those of the names that CUDA has and C++ has not, and of what they stand on."""
    wanted = {name for name in used if name in HOST_HELPERS}
    while True:
        needed = {name for name in (*_SPECIAL, *BITS) for user in wanted if name != user and f"{name}(" in HOST_HELPERS[user]}
        if needed <= wanted:
            return helper_text(wanted, HOST_HELPERS)
        wanted |= needed
