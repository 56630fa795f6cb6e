// What CuPy's own classes float16 and bfloat16 have in common, included once for each of them: GPUAD_T is the class, GPUAD_HALF CUDA's type.
// An operation of them is one of floats; only what is stored in a variable or an element is rounded.
#define GPUAD_H inline __device__
struct __align__(2) GPUAD_T {
  GPUAD_T() = default;
  __device__ GPUAD_T(float);
  explicit __device__ GPUAD_T(bool);
  explicit __device__ GPUAD_T(double);
  explicit __device__ GPUAD_T(int);
  explicit __device__ GPUAD_T(unsigned);
  explicit __device__ GPUAD_T(long long);
  explicit __device__ GPUAD_T(unsigned long long);
  explicit __device__ GPUAD_T(const GPUAD_HALF&);
  __device__ operator float() const;
  GPUAD_T& operator=(const GPUAD_T&) = default;
  template <class A> __device__ GPUAD_T& operator=(const A&);
 private:
  unsigned short bits;
};
template <class A> GPUAD_H GPUAD_T& operator+=(GPUAD_T& a, const A& b) { a = a + b; return a; }
template <class A> GPUAD_H GPUAD_T& operator-=(GPUAD_T& a, const A& b) { a = a - b; return a; }
template <class A> GPUAD_H GPUAD_T& operator*=(GPUAD_T& a, const A& b) { a = a * b; return a; }
template <class A> GPUAD_H GPUAD_T& operator/=(GPUAD_T& a, const A& b) { a = a / b; return a; }
GPUAD_H GPUAD_T min(GPUAD_T a, GPUAD_T b) { return GPUAD_T(min((float)a, (float)b)); }
GPUAD_H GPUAD_T max(GPUAD_T a, GPUAD_T b) { return GPUAD_T(max((float)a, (float)b)); }
GPUAD_H GPUAD_T fmin(GPUAD_T a, GPUAD_T b) { return GPUAD_T(fmin((float)a, (float)b)); }
GPUAD_H GPUAD_T fmax(GPUAD_T a, GPUAD_T b) { return GPUAD_T(fmax((float)a, (float)b)); }
GPUAD_H int iszero(GPUAD_T a) { return (float)a == 0.0f; }
GPUAD_H int isnan(GPUAD_T a) { return isnan((float)a); }
GPUAD_H int isinf(GPUAD_T a) { return isinf((float)a); }
GPUAD_H int isfinite(GPUAD_T a) { return isfinite((float)a); }
GPUAD_H int signbit(GPUAD_T a) { return signbit((float)a); }
#undef GPUAD_H
#undef GPUAD_HALF
#undef GPUAD_T
