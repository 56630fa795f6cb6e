// gpuad: adjoint of `bounds` (scatter_max.cu:87:28), for Duplicated x, low, high; Const segment, n.
// 1. launch bounds_augmented instead of bounds: it also fills low_new_saved, high_new_saved, one element a thread of the launch, times the iterations of the loops around the atomic for low_new_saved, high_new_saved.
// 2. put the seeds into dlow, dhigh. dx is added to: clear first.
// 3. launch bounds_reverse with the same grid and block.
// On exit dlow, dhigh hold the adjoint of the state before the launch; dx has grown by the gradient.
// Holds where no two threads touch one element of dx, as for grid (2, 1, 1), block (32, 1, 1), n = 150.

// atomicExch for the types that CUDA lacks, on the bits.
__device__ inline double gpuad_exch(double* target, double value)
{
    return __longlong_as_double(atomicExch((unsigned long long*)target, (unsigned long long)__double_as_longlong(value)));
}
__device__ inline long long gpuad_exch(long long* target, long long value)
{
    return (long long)atomicExch((unsigned long long*)target, (unsigned long long)value);
}

// Keeps the less of the content and a number, which NaN is not.
__device__ inline float gpuad_atomic_fmin(float* target, float value)
{
    int old = __float_as_int(*(volatile float*)target);
    while (value < __int_as_float(old) || (isnan(__int_as_float(old)) && !isnan(value))) {
        const int seen = atomicCAS((int*)target, old, __float_as_int(value));
        if (seen == old) break;
        old = seen;
    }
    return __int_as_float(old);
}
__device__ inline double gpuad_atomic_fmin(double* target, double value)
{
    unsigned long long old = __double_as_longlong(*(volatile double*)target);
    while (value < __longlong_as_double(old) || (isnan(__longlong_as_double(old)) && !isnan(value))) {
        const unsigned long long seen = atomicCAS((unsigned long long*)target, old, __double_as_longlong(value));
        if (seen == old) break;
        old = seen;
    }
    return __longlong_as_double(old);
}

// Keeps the greater of the content and a number.
__device__ inline float gpuad_atomic_max(float* target, float value)
{
    int old = __float_as_int(*(volatile float*)target);
    while (value > __int_as_float(old)) {
        const int seen = atomicCAS((int*)target, old, __float_as_int(value));
        if (seen == old) break;
        old = seen;
    }
    return __int_as_float(old);
}
__device__ inline double gpuad_atomic_max(double* target, double value)
{
    unsigned long long old = __double_as_longlong(*(volatile double*)target);
    while (value > __longlong_as_double(old)) {
        const unsigned long long seen = atomicCAS((unsigned long long*)target, old, __double_as_longlong(value));
        if (seen == old) break;
        old = seen;
    }
    return __longlong_as_double(old);
}

// How many iterations `for (i = start; i < stop; i += step)` has.
__device__ inline long long gpuad_trips(long long start, long long stop, long long step)
{
    return start < stop ? (stop - start - 1) / step + 1 : 0;
}

extern "C" __global__ void bounds_augmented(
    const double* x, const int* segment, double* low, double* high, int n, long long* low_new_saved,
    long long* high_new_saved)
{
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long threads = gridDim.x * (long long)gridDim.y * gridDim.z * blockDim.x * blockDim.y * blockDim.z;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        int segment_2 = segment[i];
        const double x_2 = x[i];
        const double low_old = gpuad_atomic_fmin(&low[segment_2], x_2);
        long long low_new = x_2 < low_old || (low_old != low_old && x_2 == x_2) ? __double_as_longlong(x_2) : -1LL;
        low_new_saved[(i - (long long)(int)(blockIdx.x * blockDim.x + threadIdx.x)) / (int)(gridDim.x * blockDim.x)
            * threads + thread] = low_new;
        const double high_old = gpuad_atomic_max(&high[segment_2], x_2);
        long long high_new = x_2 > high_old ? __double_as_longlong(x_2) : -1LL;
        high_new_saved[(i - (long long)(int)(blockIdx.x * blockDim.x + threadIdx.x)) / (int)(gridDim.x * blockDim.x)
            * threads + thread] = high_new;
    }
}

extern "C" __global__ void bounds_reverse(
    const double* x, double* dx, const int* segment, const double* low, double* dlow, const double* high,
    double* dhigh, int n, const long long* low_new_saved, const long long* high_new_saved)
{
    long long thread = ((blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x)
        * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long threads = gridDim.x * (long long)gridDim.y * gridDim.z * blockDim.x * blockDim.y * blockDim.z;
    for (long long i_count = gpuad_trips((int)(blockIdx.x * blockDim.x + threadIdx.x), n,
            (int)(gridDim.x * blockDim.x)) - 1; i_count >= 0; --i_count) {
        const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x) + i_count * (int)(gridDim.x * blockDim.x);
        int segment_2 = segment[i];
        // as recorded at the launch
        long long low_new = low_new_saved[(i - (long long)(int)(blockIdx.x * blockDim.x + threadIdx.x))
            / (int)(gridDim.x * blockDim.x) * threads + thread];
        // as recorded at the launch
        long long high_new = high_new_saved[(i - (long long)(int)(blockIdx.x * blockDim.x + threadIdx.x))
            / (int)(gridDim.x * blockDim.x) * threads + thread];
        double dhigh_2 = 0.0;
        if (high_new == __double_as_longlong(high[segment_2])) {
            dhigh_2 = gpuad_exch(&dhigh[segment_2], 0.0);
        }
        double dlow_2 = 0.0;
        if (low_new == __double_as_longlong(low[segment_2])) {
            dlow_2 = gpuad_exch(&dlow[segment_2], 0.0);
        }
        const double dx_2 = dhigh_2 + dlow_2;
        if (dx_2 != 0.0) {
            dx[i] += dx_2;
        }
    }
}

// adjoint of `bounds`
//   not saved  x                             never overwritten by this launch
//   not saved  segment                       never overwritten by this launch
//   not saved  low                           needed by scatter_max.cu:89:9, read as this launch leaves it
//   not saved  high                          needed by scatter_max.cu:90:9, read as this launch leaves it
//   saved      low_new_saved        log      what an atomic gave, or whose number it keeps, cannot be computed again
//   saved      high_new_saved       log      what an atomic gave, or whose number it keeps, cannot be computed again
//   shadow     dx                   plain    no two threads touch one element (scatter_max.cu:89:43)
//   shadow     dlow                 atomic   it is not proved that no two threads meet in one element (scatter_max.cu:89:9)
//   shadow     dhigh                atomic   it is not proved that no two threads meet in one element (scatter_max.cu:90:9)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
