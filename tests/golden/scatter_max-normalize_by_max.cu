// gpuad: adjoint of `normalize_by_max` (scatter_max.cu:94:28), for Duplicated x, y; Const width.
// 1. put the seeds into dy. dx is added to: clear first.
// 2. launch normalize_by_max_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32).
// 3. largest_new_saved_base[0] = 0; largest_new_saved_base[g + 1] = largest_new_saved_base[g] + 32 * (greatest largest_new_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of largest_new_saved.
// 4. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 5. launch normalize_by_max_reverse with the same grid and block.
// On exit dy holds the adjoint of the state before the launch; dx has grown by the gradient.
// Holds where no two threads touch one element of dx, dy, as for grid (3, 1, 1), block (32, 1, 1), width = 75.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

// Keeps the greater of the content and a number, by their bits as signed integers.
__device__ inline float gpuad_atomic_imax(float* target, float value)
{
    return __int_as_float(atomicMax((int*)target, __float_as_int(value)));
}
__device__ inline double gpuad_atomic_imax(double* target, double value)
{
    return __longlong_as_double(atomicMax((long long*)target, __double_as_longlong(value)));
}

// How many iterations `for (i = start; i < stop; i += step)` has.
__device__ inline long long gpuad_trips(long long start, long long stop, long long step)
{
    return start < stop ? (stop - start - 1) / step + 1 : 0;
}

extern "C" __global__ void normalize_by_max_count(
    const float* x, const float* y, int width, int* largest_new_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        ++depth;
        deepest = max(deepest, depth);
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    largest_new_saved_depth[thread] = deepest;
}

extern "C" __global__ void normalize_by_max_reverse(
    const float* x, float* dx, const float* y, float* dy, int width, const long long* largest_new_saved_base,
    int* largest_new_saved, int* gpuad_overflow)
{
    int largest_new_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long largest_new_saved_base_end = largest_new_saved_base[thread / 32LL + 1LL];
    long long largest_new_saved_base_lane = largest_new_saved_base[thread / 32LL] + thread % 32LL;
    __shared__ float largest[1];
    if (threadIdx.x == 0u) {
        largest[0] = 1.0e-20f;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        const float value = fabsf(x[blockIdx.x * width + (long long)i]);
        const float largest_old = gpuad_atomic_imax(&largest[0], value);
        long long largest_new_at = largest_new_saved_base_lane + largest_new_top * 32LL;
        if (largest_new_at < largest_new_saved_base_end) {
            largest_new_saved[largest_new_at] = __float_as_int(value) > __float_as_int(largest_old)
                ? __float_as_int(value) : -1;
        } else {
            gpuad_overflow[0] = 1;
        }
        ++largest_new_top;
    }
    __syncthreads();
    __shared__ float dlargest[1];
    for (int k = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); k < 1;
        k += blockDim.x * blockDim.y * blockDim.z) dlargest[k] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        const float x_2 = x[blockIdx.x * width + (long long)i];
        const float largest_2 = largest[0];
        float dy_2 = dy[blockIdx.x * width + i];
        dy[blockIdx.x * width + i] = 0.0f;
        dy_2 = gpuad_chain(dy_2, 1.0f / largest_2);
        atomicAdd(&dlargest[0], -gpuad_chain(dy_2, x_2 / largest_2));
        dx[blockIdx.x * width + (long long)i] += dy_2;
    }
    __syncthreads();
    for (long long i_count = gpuad_trips((int)threadIdx.x, width, (int)blockDim.x) - 1; i_count >= 0; --i_count) {
        const int i = (int)threadIdx.x + i_count * (int)blockDim.x;
        --largest_new_top;
        const float x_2 = x[blockIdx.x * width + (long long)i];
        float dlargest_2 = 0.0f;
        if (largest_new_saved[largest_new_saved_base_lane + largest_new_top * 32LL] == __float_as_int(largest[0])) {
            dlargest_2 = atomicExch(&dlargest[0], 0.0f);
        }
        if (dlargest_2 != 0.0f) {
            dx[blockIdx.x * width + (long long)i] += x_2 > 0.0f ? dlargest_2 : x_2 < 0.0f ? -dlargest_2 : 0.0f;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0u) {
        dlargest[0] = 0.0f;  // overwritten with something inactive
    }
}

// adjoint of `normalize_by_max`
//   not saved  x                             never overwritten by this launch
//   not saved  y                             no derivative needs what was overwritten
//   stack      largest_new_saved    scratch  an entry an iteration, needed by scatter_max.cu:99:5
//   shadow     dx                   plain    no two threads touch one element (scatter_max.cu:104:37)
//   shadow     dy                   plain    no two threads touch one element (scatter_max.cu:104:9)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
