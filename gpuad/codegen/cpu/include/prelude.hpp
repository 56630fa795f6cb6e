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
