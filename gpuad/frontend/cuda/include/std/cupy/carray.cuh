// What CuPy's header of arrays gives to a raw kernel.
#pragma once
#include "gpuad/type_traits.h"
namespace cupy {
namespace type_traits {
using std::conditional;
using std::enable_if;
using std::is_same;
}
}
#ifndef M_PI
#define M_PI 3.1415926535897932384626433832795
#endif
#define CUPY_FOR(i, n) \
  for (ptrdiff_t i = static_cast<ptrdiff_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < (n); \
       i += static_cast<ptrdiff_t>(blockDim.x) * gridDim.x)

// An array with its shape, and its strides in bytes; an index is a whole number, in C order, or one for each axis.
template <typename T, int axes, bool dense = false, bool narrow = false> class CArray {
 public:
  static const int ndim = axes;
  static const bool c_contiguous = dense;
  typedef typename cupy::type_traits::conditional<narrow, int, ptrdiff_t>::type index_t;
  __device__ ptrdiff_t size() const { return size_; }
  __device__ const ptrdiff_t* shape() const { return shape_; }
  __device__ const ptrdiff_t* strides() const { return strides_; }
  template <typename I> __device__ T& operator[](const I (&index)[axes]) const {
    index_t at = 0;
    for (int k = 0; k < axes; ++k) at += (index_t)index[k] * ((index_t)strides_[k] / (index_t)sizeof(T));
    return data_[at];
  }
  __device__ T& operator[](ptrdiff_t i) const {
    if (dense) return data_[(index_t)i];
    index_t at = 0, left = i;
    for (int k = axes - 1; k > 0; --k) {
      at += left % (index_t)shape_[k] * ((index_t)strides_[k] / (index_t)sizeof(T));
      left /= (index_t)shape_[k];
    }
    return data_[at + left * ((index_t)strides_[0] / (index_t)sizeof(T))];
  }

  T* data_;
  ptrdiff_t size_, shape_[axes], strides_[axes];
};
template <typename T, bool dense, bool narrow> class CArray<T, 0, dense, narrow> {
 public:
  static const int ndim = 0;
  static const bool c_contiguous = true;
  __device__ ptrdiff_t size() const { return size_; }
  __device__ T& operator[](ptrdiff_t) const { return *data_; }

  T* data_;
  ptrdiff_t size_;
};
