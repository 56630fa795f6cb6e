// Integer functions, and min and max of all types.
#pragma once
GPUAD_F int abs(int);
GPUAD_F long abs(long);
GPUAD_F long long abs(long long);
GPUAD_F float abs(float);
GPUAD_F double abs(double);
GPUAD_F long labs(long);
GPUAD_F long long llabs(long long);

#define GPUAD_EXTREME(f) \
  GPUAD_F int f(int, int); \
  GPUAD_F unsigned int f(unsigned int, unsigned int); \
  GPUAD_F unsigned int f(int, unsigned int); \
  GPUAD_F unsigned int f(unsigned int, int); \
  GPUAD_F long f(long, long); \
  GPUAD_F unsigned long f(unsigned long, unsigned long); \
  GPUAD_F unsigned long f(long, unsigned long); \
  GPUAD_F unsigned long f(unsigned long, long); \
  GPUAD_F long long f(long long, long long); \
  GPUAD_F unsigned long long f(unsigned long long, unsigned long long); \
  GPUAD_F unsigned long long f(long long, unsigned long long); \
  GPUAD_F unsigned long long f(unsigned long long, long long); \
  GPUAD_F float f(float, float); \
  GPUAD_F double f(double, double); \
  GPUAD_F double f(float, double); \
  GPUAD_F double f(double, float); \
  GPUAD_F unsigned int u##f(unsigned int, unsigned int); \
  GPUAD_F long long ll##f(long long, long long); \
  GPUAD_F unsigned long long ull##f(unsigned long long, unsigned long long);
GPUAD_EXTREME(min) GPUAD_EXTREME(max)
#undef GPUAD_EXTREME

GPUAD_F int __popc(unsigned int);
GPUAD_F int __popcll(unsigned long long);
GPUAD_F int __clz(int);
GPUAD_F int __clzll(long long);
GPUAD_F int __ffs(int);
GPUAD_F int __ffsll(long long);
GPUAD_F unsigned int __brev(unsigned int);
GPUAD_F unsigned long long __brevll(unsigned long long);
GPUAD_F int __mulhi(int, int);
GPUAD_F unsigned int __umulhi(unsigned int, unsigned int);
GPUAD_F long long __mul64hi(long long, long long);
GPUAD_F unsigned long long __umul64hi(unsigned long long, unsigned long long);
GPUAD_F int __mul24(int, int);
GPUAD_F unsigned int __umul24(unsigned int, unsigned int);
GPUAD_F unsigned int __byte_perm(unsigned int, unsigned int, unsigned int);
