// Atomic functions, barriers and cached loads.
#pragma once
#define GPUAD_ATOMIC(f, T) \
  GPUAD_F T f(T *, T); \
  GPUAD_F T f##_block(T *, T); \
  GPUAD_F T f##_system(T *, T);
#define GPUAD_CAS(T) \
  GPUAD_F T atomicCAS(T *, T, T); \
  GPUAD_F T atomicCAS_block(T *, T, T); \
  GPUAD_F T atomicCAS_system(T *, T, T);
typedef unsigned int gpuad_u32;
typedef unsigned long long gpuad_u64;
GPUAD_ATOMIC(atomicAdd, int) GPUAD_ATOMIC(atomicAdd, gpuad_u32) GPUAD_ATOMIC(atomicAdd, gpuad_u64)
GPUAD_ATOMIC(atomicAdd, float) GPUAD_ATOMIC(atomicAdd, double)
GPUAD_ATOMIC(atomicSub, int) GPUAD_ATOMIC(atomicSub, gpuad_u32)
GPUAD_ATOMIC(atomicExch, int) GPUAD_ATOMIC(atomicExch, gpuad_u32) GPUAD_ATOMIC(atomicExch, gpuad_u64) GPUAD_ATOMIC(atomicExch, float)
GPUAD_ATOMIC(atomicMin, int) GPUAD_ATOMIC(atomicMin, gpuad_u32) GPUAD_ATOMIC(atomicMin, long long) GPUAD_ATOMIC(atomicMin, gpuad_u64)
GPUAD_ATOMIC(atomicMax, int) GPUAD_ATOMIC(atomicMax, gpuad_u32) GPUAD_ATOMIC(atomicMax, long long) GPUAD_ATOMIC(atomicMax, gpuad_u64)
GPUAD_ATOMIC(atomicAnd, int) GPUAD_ATOMIC(atomicAnd, gpuad_u32) GPUAD_ATOMIC(atomicAnd, long long) GPUAD_ATOMIC(atomicAnd, gpuad_u64)
GPUAD_ATOMIC(atomicOr, int) GPUAD_ATOMIC(atomicOr, gpuad_u32) GPUAD_ATOMIC(atomicOr, long long) GPUAD_ATOMIC(atomicOr, gpuad_u64)
GPUAD_ATOMIC(atomicXor, int) GPUAD_ATOMIC(atomicXor, gpuad_u32) GPUAD_ATOMIC(atomicXor, long long) GPUAD_ATOMIC(atomicXor, gpuad_u64)
GPUAD_ATOMIC(atomicInc, gpuad_u32) GPUAD_ATOMIC(atomicDec, gpuad_u32)
GPUAD_CAS(int) GPUAD_CAS(gpuad_u32) GPUAD_CAS(gpuad_u64) GPUAD_CAS(unsigned short)
#undef GPUAD_ATOMIC
#undef GPUAD_CAS

extern "C" __device__ void __syncthreads();
extern "C" __device__ void gpuad_sync_grid();
GPUAD_F void __threadfence();
GPUAD_F void __threadfence_block();
GPUAD_F void __threadfence_system();

// Hints of how long a cache should keep what is read or written: nothing else sets these apart from plain loads and stores.
#define GPUAD_CACHED(T) \
  GPUAD_F T __ldg(const T *); \
  GPUAD_F T __ldca(const T *); \
  GPUAD_F T __ldcg(const T *); \
  GPUAD_F T __ldcs(const T *); \
  GPUAD_F T __ldlu(const T *); \
  inline __device__ void __stwb(T *p, T value) { *p = value; } \
  inline __device__ void __stcg(T *p, T value) { *p = value; } \
  inline __device__ void __stcs(T *p, T value) { *p = value; } \
  inline __device__ void __stwt(T *p, T value) { *p = value; }
GPUAD_CACHED(char) GPUAD_CACHED(signed char) GPUAD_CACHED(unsigned char) GPUAD_CACHED(short) GPUAD_CACHED(unsigned short) GPUAD_CACHED(int)
GPUAD_CACHED(unsigned int) GPUAD_CACHED(long) GPUAD_CACHED(unsigned long) GPUAD_CACHED(long long) GPUAD_CACHED(unsigned long long)
GPUAD_CACHED(float) GPUAD_CACHED(double) GPUAD_CACHED(float2) GPUAD_CACHED(float4) GPUAD_CACHED(double2) GPUAD_CACHED(int2) GPUAD_CACHED(int4)
GPUAD_CACHED(uint2) GPUAD_CACHED(uint4) GPUAD_CACHED(char2) GPUAD_CACHED(char4) GPUAD_CACHED(uchar2) GPUAD_CACHED(uchar4) GPUAD_CACHED(short2)
GPUAD_CACHED(short4) GPUAD_CACHED(ushort2) GPUAD_CACHED(ushort4) GPUAD_CACHED(longlong2) GPUAD_CACHED(ulonglong2)
#undef GPUAD_CACHED
