// Functions that CUDA has and C++ has not; each is printed where it is used. A line of four slashes names what follows.
//// gpuad_div
// x / 0 has all bits set, and the least integer divided by -1 is itself. For 32 bits the quotient of two doubles is exact enough, since one
// that is no integer is further from the next than it is rounded by; and a vector of doubles is divided at once.
template <typename T> GPUAD_INLINE T gpuad_div(T a, T b)
{
    const bool minus = T(-1) < T(0) && b == (T)-1;
    const T by = b == 0 || minus ? (T)1 : b;
    const T quotient = sizeof(T) == 4 ? (T)((double)a / (double)by) : (T)(a / by);
    return b == 0 ? (T)-1 : minus ? (T)(0 - (unsigned long long)a) : quotient;
}

//// gpuad_rem
// x % 0 is x, and x % -1 is 0.
template <typename T> GPUAD_INLINE T gpuad_rem(T a, T b)
{
    const T by = b == 0 || (T(-1) < T(0) && b == (T)-1) ? (T)1 : b;
    const T quotient = sizeof(T) == 4 ? (T)((double)a / (double)by) : (T)(a / by);
    return b == 0 ? a : (T)(a - (unsigned long long)quotient * by);
}

//// gpuad_hidden
// A subscript made of a truth value: in a vector of threads, g++ 12 reads elsewhere.
template <typename T> GPUAD_INLINE T gpuad_hidden(T index)
{
#if defined(__GNUC__) && !defined(__clang__)
    asm("" : "+r"(index));
#endif
    return index;
}

//// gpuad_row_of
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

//// gpuad_shl
// Shifts by the width or more, as unsigned numbers, leave nothing.
template <typename T> GPUAD_INLINE T gpuad_shl(T a, unsigned long long by)
{
    return by < 8 * sizeof(T) ? (T)((unsigned long long)a << by) : (T)0;
}

//// gpuad_shr
// Shifts by the width or more, as unsigned numbers, leave the sign.
template <typename T> GPUAD_INLINE T gpuad_shr(T a, unsigned long long by)
{
    return by < 8 * sizeof(T) ? (T)(a >> by) : a < 0 ? (T)-1 : (T)0;
}

//// gpuad_f2i
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

//// gpuad_trips
// How many iterations `for (i = start; i < stop; i += step)` has.
GPUAD_INLINE long long gpuad_trips(long long start, long long stop, long long step)
{
    return start < stop && step > 0 ? (stop - start - 1) / step + 1 : 0;
}

//// gpuad_unsigned_trips
// How many iterations the same loop has over an `unsigned long long`.
GPUAD_INLINE long long gpuad_unsigned_trips(unsigned long long start, unsigned long long stop, unsigned long long step)
{
    return start < stop && step > 0 ? (stop - start - 1) / step + 1 : 0;
}

//// half
// Halves are kept as their bits, and computed with in float.
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
GPUAD_INLINE double gpuad_half(double value) { return gpuad_from_half(gpuad_to_half(value)); }
//// bfloat16
// A bfloat16 is the upper half of a float: kept as its bits, and computed with in float.
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
}
//// gpuad_any
GPUAD_INLINE bool gpuad_any(const int* mask, long long count)
{
    int some = 0;
    for (long long k = 0; k < count; ++k) some |= mask[k];
    return some != 0;
}
//// __brev
GPUAD_INLINE unsigned int __brev(unsigned int x)
{
    unsigned int y = 0;
    for (int k = 0; k < 32; ++k) y |= (x >> k & 1u) << (31 - k);
    return y;
}
//// __brevll
GPUAD_INLINE unsigned long long __brevll(unsigned long long x)
{
    unsigned long long y = 0;
    for (int k = 0; k < 64; ++k) y |= (x >> k & 1ull) << (63 - k);
    return y;
}
//// __umulhi
GPUAD_INLINE unsigned int __umulhi(unsigned int a, unsigned int b)
{
    return (unsigned int)((unsigned long long)a * b >> 32);
}
//// __umul64hi
GPUAD_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
//// gpuad_sinpi
GPUAD_INLINE double gpuad_sinpi(double x)
{
    const double r = std::remainder(x, 2.0), a = std::fabs(r);
    const double s = a <= 0.25 ? std::sin(M_PI * a) : a <= 0.75 ? std::cos(M_PI * (0.5 - a)) : std::sin(M_PI * (1.0 - a));
    return std::copysign(s, r);
}
//// gpuad_cospi
GPUAD_INLINE double gpuad_cospi(double x)
{
    const double a = std::fabs(std::remainder(x, 2.0));
    return a <= 0.25 ? std::cos(M_PI * a) : a <= 0.75 ? std::sin(M_PI * (0.5 - a)) : -std::cos(M_PI * (1.0 - a));
}
//// gpuad_erfcinv
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
}
//// gpuad_erfinv
// Near 0 Halley's iteration on erf, elsewhere by erfcinv.
static double gpuad_erfinv(double y)
{
    if (!(std::fabs(y) < 0.5)) return std::copysign(gpuad_erfcinv(1.0 - std::fabs(y)), y);  // 1 - y would round near -1
    double x = 0.886226925452758 * y;
    for (int k = 0; k < 4; ++k) {
        const double error = std::erf(x) - y;
        x -= error / (1.12837916709551257 * std::exp(-x * x) + x * error);
    }
    return x;
}
//// gpuad_erfcx
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
}
//// gpuad_bessel_i
// The modified Bessel function of order 0 or 1: its power series, whose terms are all positive, and beyond 20 the asymptotic one (Abramowitz
// and Stegun 9.6.10, 9.7.1). The exponential of the whole would leave the range before the function does.
static double gpuad_bessel_i(double x, int order)
{
    const double size = std::fabs(x), quarter = 0.25 * size * size;
    double sum = 1.0, term = 1.0;
    if (!(size >= 20.0)) {
        for (int k = 1; k < 60; ++k) sum += term *= quarter / (k * (k + order));
        return order ? 0.5 * x * sum : sum;
    }
    for (int k = 1; k < 30; ++k) sum += term *= ((2 * k - 1) * (2 * k - 1) - 4 * order) / (8.0 * k * size);
    const double root = std::exp(0.5 * size);
    return std::copysign(root * (sum / std::sqrt(6.28318530717958647693 * size)) * root, order ? x : 1.0);
}
//// exp
GPUAD_INLINE double gpuad_multiply_add(double a, double b, double c)
{
#ifdef __FMA__
    return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}

GPUAD_INLINE double exp(double x)
{
    const double whole = 6755399441055744.0;  // added to a number and taken away again, it rounds that number
    const double shifted = gpuad_multiply_add(x, 1.4426950408889634, whole), n = shifted - whole;
    const double r = gpuad_multiply_add(n, -1.90821492927058770002e-10, gpuad_multiply_add(n, -6.93147180369123816490e-1, x));
    const double r2 = r * r, r4 = r2 * r2;
    const double a = gpuad_multiply_add(r, 1.0 / 6, 1.0 / 2), b = gpuad_multiply_add(r, 1.0 / 120, 1.0 / 24);
    const double c = gpuad_multiply_add(r, 1.0 / 5040, 1.0 / 720), d = gpuad_multiply_add(r, 1.0 / 362880, 1.0 / 40320);
    const double e = gpuad_multiply_add(r, 1.0 / 39916800, 1.0 / 3628800), f = gpuad_multiply_add(r, 1.0 / 6227020800, 1.0 / 479001600);
    const double low = gpuad_multiply_add(r2, b, a), middle = gpuad_multiply_add(r2, d, c), high = gpuad_multiply_add(r2, f, e);
    const double rest = gpuad_multiply_add(r4, gpuad_multiply_add(r4, high, middle), low);
    const double halved = gpuad_multiply_add(n, 0.5, whole);
    long long bits, half;
    __builtin_memcpy(&bits, &shifted, sizeof bits);
    __builtin_memcpy(&half, &halved, sizeof half);
    const unsigned long long one = 1023, powers = (half - 0x4338000000000000 + one) << 52, others = (bits - half + one) << 52;
    double first, second;
    __builtin_memcpy(&first, &powers, sizeof first);
    __builtin_memcpy(&second, &others, sizeof second);
    const double y = (1.0 + gpuad_multiply_add(r2, rest, r)) * first * second;
    return x > 709.79 ? __builtin_inf() : x < -745.2 ? 0.0 : y;
}
//// expf
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
}
