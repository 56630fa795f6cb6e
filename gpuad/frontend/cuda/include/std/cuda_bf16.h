// bfloat16: a float without its lower 16 bits.
#pragma once

struct __align__(2) __nv_bfloat16 {
  __nv_bfloat16() = default;
  __host__ __device__ __nv_bfloat16(float);
  __host__ __device__ __nv_bfloat16(double);
  __host__ __device__ __nv_bfloat16(short);
  __host__ __device__ __nv_bfloat16(unsigned short);
  __host__ __device__ __nv_bfloat16(int);
  __host__ __device__ __nv_bfloat16(unsigned);
  __host__ __device__ __nv_bfloat16(long);
  __host__ __device__ __nv_bfloat16(unsigned long);
  __host__ __device__ __nv_bfloat16(long long);
  __host__ __device__ __nv_bfloat16(unsigned long long);
  __host__ __device__ operator float() const;
 private:
  unsigned short bits;
};
typedef __nv_bfloat16 nv_bfloat16;
struct __align__(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  __nv_bfloat162() = default;
  __host__ __device__ __nv_bfloat162(const __nv_bfloat16& x, const __nv_bfloat16& y);
};
typedef __nv_bfloat162 nv_bfloat162;

#define GPUAD_N bfloat16
#define GPUAD_T __nv_bfloat16
#define GPUAD_T2 __nv_bfloat162
#include <gpuad/halves.h>
#define GPUAD_BF16
#include <gpuad/group_halves.h>
