// Built-in variables and vector types.
#pragma once
typedef decltype(sizeof(0)) size_t;
typedef decltype((char *)0 - (char *)0) ptrdiff_t;
typedef size_t cudaSurfaceObject_t;
typedef long clock_t;

// `two` and `four` are CUDA's alignments: they decide where a vector lies in a struct.
#define GPUAD_VECTOR(T, name, two, four) \
  struct name##1 { T x; }; \
  struct __align__(two) name##2 { T x, y; }; \
  struct name##3 { T x, y, z; }; \
  struct __align__(four) name##4 { T x, y, z, w; }; \
  __host__ __device__ name##1 make_##name##1(T x); \
  __host__ __device__ name##2 make_##name##2(T x, T y); \
  __host__ __device__ name##3 make_##name##3(T x, T y, T z); \
  __host__ __device__ name##4 make_##name##4(T x, T y, T z, T w);
GPUAD_VECTOR(signed char, char, 2, 4)
GPUAD_VECTOR(unsigned char, uchar, 2, 4)
GPUAD_VECTOR(short, short, 4, 8)
GPUAD_VECTOR(unsigned short, ushort, 4, 8)
GPUAD_VECTOR(int, int, 8, 16)
GPUAD_VECTOR(unsigned int, uint, 8, 16)
GPUAD_VECTOR(long, long, 2 * sizeof(long), 16)
GPUAD_VECTOR(unsigned long, ulong, 2 * sizeof(long), 16)
GPUAD_VECTOR(long long, longlong, 16, 16)
GPUAD_VECTOR(unsigned long long, ulonglong, 16, 16)
GPUAD_VECTOR(float, float, 8, 16)
GPUAD_VECTOR(double, double, 16, 16)
#undef GPUAD_VECTOR

struct dim3 {
  unsigned int x, y, z;
  __host__ __device__ constexpr dim3(unsigned int a = 1, unsigned int b = 1, unsigned int c = 1) : x(a), y(b), z(c) {}
};

extern const __device__ uint3 threadIdx;
extern const __device__ uint3 blockIdx;
extern const __device__ dim3 blockDim;
extern const __device__ dim3 gridDim;
extern const __device__ int warpSize;
