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
GPUAD_F void __threadfence();
GPUAD_F void __threadfence_block();
GPUAD_F void __threadfence_system();

#define GPUAD_LOADS(T) \
  GPUAD_F T __ldg(const T *); \
  GPUAD_F T __ldca(const T *); \
  GPUAD_F T __ldcg(const T *); \
  GPUAD_F T __ldcs(const T *);
GPUAD_LOADS(char) GPUAD_LOADS(signed char) GPUAD_LOADS(unsigned char) GPUAD_LOADS(short) GPUAD_LOADS(unsigned short) GPUAD_LOADS(int)
GPUAD_LOADS(unsigned int) GPUAD_LOADS(long) GPUAD_LOADS(unsigned long) GPUAD_LOADS(long long) GPUAD_LOADS(unsigned long long)
GPUAD_LOADS(float) GPUAD_LOADS(double) GPUAD_LOADS(float2) GPUAD_LOADS(float4) GPUAD_LOADS(double2) GPUAD_LOADS(int2) GPUAD_LOADS(int4)
GPUAD_LOADS(uint2) GPUAD_LOADS(uint4)
#undef GPUAD_LOADS
