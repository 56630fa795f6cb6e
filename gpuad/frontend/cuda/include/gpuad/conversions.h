// Conversions with a stated rounding, and bit casts.
#pragma once
#define GPUAD_ROUNDINGS(R, f, T) \
  GPUAD_F R f##_rn(T); \
  GPUAD_F R f##_rz(T); \
  GPUAD_F R f##_ru(T); \
  GPUAD_F R f##_rd(T);
GPUAD_ROUNDINGS(int, __float2int, float)
GPUAD_ROUNDINGS(unsigned int, __float2uint, float)
GPUAD_ROUNDINGS(long long, __float2ll, float)
GPUAD_ROUNDINGS(unsigned long long, __float2ull, float)
GPUAD_ROUNDINGS(int, __double2int, double)
GPUAD_ROUNDINGS(unsigned int, __double2uint, double)
GPUAD_ROUNDINGS(long long, __double2ll, double)
GPUAD_ROUNDINGS(unsigned long long, __double2ull, double)
GPUAD_ROUNDINGS(float, __int2float, int)
GPUAD_ROUNDINGS(float, __uint2float, unsigned int)
GPUAD_ROUNDINGS(float, __ll2float, long long)
GPUAD_ROUNDINGS(float, __ull2float, unsigned long long)
GPUAD_ROUNDINGS(double, __ll2double, long long)
GPUAD_ROUNDINGS(double, __ull2double, unsigned long long)
GPUAD_ROUNDINGS(float, __double2float, double)
#undef GPUAD_ROUNDINGS
GPUAD_F double __int2double_rn(int);
GPUAD_F double __uint2double_rn(unsigned int);

GPUAD_F int __float_as_int(float);
GPUAD_F unsigned int __float_as_uint(float);
GPUAD_F float __int_as_float(int);
GPUAD_F float __uint_as_float(unsigned int);
GPUAD_F long long __double_as_longlong(double);
GPUAD_F double __longlong_as_double(long long);
GPUAD_F int __double2hiint(double);
GPUAD_F int __double2loint(double);
GPUAD_F double __hiloint2double(int, int);
