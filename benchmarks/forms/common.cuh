// What the forms share: a thread's number, loops over the grid.
#define K extern "C" __global__ void
#define I(T) T i = (T)blockIdx.x * blockDim.x + threadIdx.x
#define H I(int); if (i >= n) return
#define G(T) for (I(T); i < n; i += blockDim.x * gridDim.x)
typedef double* __restrict__ out;
typedef const double* __restrict__ in;
