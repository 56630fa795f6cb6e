// Names that the frontend knows in order to refuse them with a reason, and those without numerical effect.
#pragma once
GPUAD_F int printf(const char *, ...);
GPUAD_F void gpuad_assert(bool);
#ifdef NDEBUG
#define assert(...) ((void)0)
#else
#define assert(...) gpuad_assert(static_cast<bool>(__VA_ARGS__))
#endif

#define GPUAD_SHUFFLES(T) \
  GPUAD_F T __shfl_sync(unsigned, T, int, int = 32); \
  GPUAD_F T __shfl_up_sync(unsigned, T, unsigned, int = 32); \
  GPUAD_F T __shfl_down_sync(unsigned, T, unsigned, int = 32); \
  GPUAD_F T __shfl_xor_sync(unsigned, T, int, int = 32);
GPUAD_SHUFFLES(int) GPUAD_SHUFFLES(unsigned) GPUAD_SHUFFLES(long) GPUAD_SHUFFLES(unsigned long) GPUAD_SHUFFLES(long long)
GPUAD_SHUFFLES(unsigned long long) GPUAD_SHUFFLES(float) GPUAD_SHUFFLES(double)
#undef GPUAD_SHUFFLES
GPUAD_F void __syncwarp(unsigned = 0xffffffffu);
GPUAD_F unsigned __activemask();
GPUAD_F unsigned __ballot_sync(unsigned, int);
GPUAD_F int __all_sync(unsigned, int);
GPUAD_F int __any_sync(unsigned, int);
GPUAD_F long clock();
GPUAD_F long long clock64();
GPUAD_F void __trap();
GPUAD_F void __nanosleep(unsigned);
GPUAD_F void *malloc(size_t);
GPUAD_F void free(void *);
GPUAD_F void *memcpy(void *, const void *, size_t);
GPUAD_F void *memmove(void *, const void *, size_t);
GPUAD_F void *memset(void *, int, size_t);
