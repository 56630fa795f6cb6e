// Half precision.
#pragma once

struct __align__(2) __half {
  __half() = default;
  __host__ __device__ __half(float);
  __host__ __device__ __half(double);
  __host__ __device__ __half(short);
  __host__ __device__ __half(unsigned short);
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
struct __align__(4) __half2 {
  __half x, y;
  __half2() = default;
  __host__ __device__ __half2(const __half& x, const __half& y);
};
typedef __half2 half2;

#define GPUAD_N half
#define GPUAD_T __half
#define GPUAD_T2 __half2
#include <gpuad/halves.h>
#define GPUAD_FP16
#include <gpuad/group_halves.h>
