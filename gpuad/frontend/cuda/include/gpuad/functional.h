// Function objects of cuda::std and cuda, with a type and without.
#pragma once
#include <type_traits>
#define GPUAD_OBJECT(name, result) \
  template <class T = void> struct name { \
    inline __device__ T operator()(const T& a, const T& b) const { return result; } \
  }; \
  template <> struct name<void> { \
    template <class A, class B> inline __device__ auto operator()(const A& a, const B& b) const { return result; } \
  };
namespace cuda {
namespace std {
using namespace ::std;
GPUAD_OBJECT(plus, a + b) GPUAD_OBJECT(minus, a - b) GPUAD_OBJECT(multiplies, a * b) GPUAD_OBJECT(divides, a / b)
}
GPUAD_OBJECT(maximum, a < b ? b : a) GPUAD_OBJECT(minimum, b < a ? b : a)
}
#undef GPUAD_OBJECT
