// Lanes of a tile can give each other halves and bfloat16 too, whichever of the headers comes first.
#define GPUAD_GIVEN(T) \
  template <> inline __device__ T from(unsigned int mask, T v, int lane, int width) { return __shfl_sync(mask, v, lane, width); } \
  template <> inline __device__ T from_above(unsigned int mask, T v, unsigned int lane, int width) { \
    return __shfl_down_sync(mask, v, lane, width); \
  } \
  template <> inline __device__ T from_below(unsigned int mask, T v, unsigned int lane, int width) { \
    return __shfl_up_sync(mask, v, lane, width); \
  } \
  template <> inline __device__ T from_partner(unsigned int mask, T v, int lane, int width) { \
    return __shfl_xor_sync(mask, v, lane, width); \
  }
#if defined(GPUAD_GROUPS) && defined(GPUAD_FP16) && !defined(GPUAD_FP16_GIVEN)
#define GPUAD_FP16_GIVEN
namespace cooperative_groups { namespace gpuad { GPUAD_GIVEN(__half) GPUAD_GIVEN(__half2) } }
#endif
#if defined(GPUAD_GROUPS) && defined(GPUAD_BF16) && !defined(GPUAD_BF16_GIVEN)
#define GPUAD_BF16_GIVEN
namespace cooperative_groups { namespace gpuad { GPUAD_GIVEN(__nv_bfloat16) GPUAD_GIVEN(__nv_bfloat162) } }
#endif
#undef GPUAD_GIVEN
