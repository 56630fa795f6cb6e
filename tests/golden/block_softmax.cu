// gpuad: adjoint of `block_softmax` (block_softmax.cu:41:28), for Duplicated x; Const n.
// 1. before block_softmax runs, copy x to x_saved (all that it may touch).
// 2. put the seeds into dx.
// 3. launch block_softmax_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32).
// 4. choice_saved_base[0] = 0; choice_saved_base[g + 1] = choice_saved_base[g] + 32 * (greatest choice_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of choice_saved.
// 5. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 6. launch block_softmax_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch.
// Holds for every grid and block.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void block_softmax_count(
    const float* x, int n, const float* x_saved, int* choice_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    int d = 16;
    while (d > 0) {
        if (threadIdx.x < d) {
            ++depth;
            deepest = max(deepest, depth);
        }
        d = d >> 1;
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    choice_saved_depth[thread] = deepest;
}

extern "C" __global__ void block_softmax_reverse(
    const float* x, float* dx, int n, const float* x_saved, const long long* choice_saved_base,
    bool* choice_saved, int* gpuad_overflow)
{
    int choice_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long choice_saved_base_end = choice_saved_base[thread / 32LL + 1LL];
    long long choice_saved_base_lane = choice_saved_base[thread / 32LL] + thread % 32LL;
    __shared__ float s[32];
    float largest = -3.0e38f;
    int largest_at = (int)threadIdx.x - 32;
    for (int k = threadIdx.x; k < n; k += 32) {
        const float x_2 = x_saved[blockIdx.x * n + (long long)k];
        const float largest_2 = fmaxf(largest, x_2);
        largest_at = largest >= x_2 || x_2 != x_2 ? largest_at : k;
        largest = largest_2;
    }
    s[threadIdx.x] = largest;
    __syncthreads();
    int d = 16;
    int iterations = 0;
    while (d > 0) {
        if (threadIdx.x < d) {
            const float s_2 = s[threadIdx.x];
            const float s_3 = s[threadIdx.x + d];
            const float s_4 = fmaxf(s_2, s_3);
            s[threadIdx.x] = s_4;
            long long choice_at = choice_saved_base_lane + choice_top * 32LL;
            if (choice_at < choice_saved_base_end) {
                choice_saved[choice_at] = s_2 >= s_3 || s_3 != s_3;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++choice_top;
        }
        __syncthreads();
        d = d >> 1;
        ++iterations;
    }
    const float result = s[0];
    __syncthreads();
    float sum = 0.0f;
    for (int k = threadIdx.x; k < n; k += 32) {
        sum += expf(x_saved[blockIdx.x * n + (long long)k] - result);
    }
    s[threadIdx.x] = sum;
    __syncthreads();
    int d_2 = 16;
    int iterations_2 = 0;
    while (d_2 > 0) {
        if (threadIdx.x < d_2) {
            s[threadIdx.x] += s[threadIdx.x + d_2];
        }
        __syncthreads();
        d_2 = d_2 >> 1;
        ++iterations_2;
    }
    const float result_2 = s[0];
    __shared__ float ds[32];
    for (int k = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); k < 32;
        k += blockDim.x * blockDim.y * blockDim.z) ds[k] = 0;
    __syncthreads();
    float dresult = 0.0f;
    float dresult_2 = 0.0f;
    for (int k_2 = threadIdx.x; k_2 < n; k_2 += 32) {
        const float x_2 = x_saved[blockIdx.x * n + (long long)k_2];
        const float dx_2 = atomicExch(&dx[blockIdx.x * n + (long long)k_2], 0.0f);
        const float dx_3 = expf(x_2 - result) * gpuad_chain(dx_2, 1.0f / result_2);
        atomicAdd(&dx[blockIdx.x * n + (long long)k_2], dx_3);
        dresult -= dx_3;
        dresult_2 -= gpuad_chain(dx_2, expf(x_2 - result) / result_2 / result_2);
    }
    __syncthreads();
    if (dresult_2 != 0.0f) {
        atomicAdd(&ds[0], dresult_2);
    }
    for (int iteration = iterations_2 - 1; iteration >= 0; --iteration) {
        int d_3 = 16 >> iteration;
        __syncthreads();
        if (threadIdx.x < d_3) {
            atomicAdd(&ds[threadIdx.x + d_3], ds[threadIdx.x]);
        }
    }
    __syncthreads();
    const float ds_2 = atomicExch(&ds[threadIdx.x], 0.0f);
    float dresult_3 = 0.0f;
    for (int k_2 = threadIdx.x; k_2 < n; k_2 += 32) {
        const float dsum = expf(x_saved[blockIdx.x * n + (long long)k_2] - result) * ds_2;
        atomicAdd(&dx[blockIdx.x * n + (long long)k_2], dsum);
        dresult_3 -= dsum;
    }
    __syncthreads();
    dresult += dresult_3;
    if (dresult != 0.0f) {
        atomicAdd(&ds[0], dresult);
    }
    for (int iteration = iterations - 1; iteration >= 0; --iteration) {
        int d_3 = 16 >> iteration;
        __syncthreads();
        if (threadIdx.x < d_3) {
            --choice_top;
            bool choice = choice_saved[choice_saved_base_lane + choice_top * 32LL];
            const float ds_3 = atomicExch(&ds[threadIdx.x], 0.0f);
            atomicAdd(&ds[threadIdx.x + d_3], choice ? 0.0f : ds_3);
            atomicAdd(&ds[threadIdx.x], choice ? ds_3 : 0.0f);
        }
    }
    __syncthreads();
    const float ds_3 = atomicExch(&ds[threadIdx.x], 0.0f);
    if (largest_at >= (int)threadIdx.x && largest_at < n && (largest_at - (int)threadIdx.x) % 32 == 0) {
        atomicAdd(&dx[blockIdx.x * n + (long long)largest_at], ds_3);
    }
}

// adjoint of `block_softmax`
//   saved      x                    copy     needed by block_softmax.cu:45:75, overwritten by block_softmax.cu:50:50
//   stack      choice_saved         scratch  an entry an iteration, needed by block_softmax.cu:33:9
//   shadow     dx                   atomic   it is not proved that no two threads meet in one element (block_softmax.cu:50:50)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
