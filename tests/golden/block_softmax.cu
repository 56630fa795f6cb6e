// gpuad: adjoint of `block_softmax` (block_softmax.cu:41:28), for Duplicated x; Const n.
// 1. before block_softmax runs, copy x to x_saved (all that it may touch).
// 2. put the seeds into dx.
// 3. launch block_softmax_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch.
// Holds where no two threads touch one element of dx
// and no two threads of a block touch one element of ds between two barriers, as for grid (5, 1, 1), block (32, 1, 1), n = 75.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

// Adds the sum of `value` over all threads of the block to *target, with one atomicAdd if it is not 0. Every thread of the block must make
// the call, with the same target; the block may have any shape. The sum is formed in double.
template <typename T>
__device__ inline void gpuad_block_sum(T* target, double value)
{
    __shared__ double partial[32];
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int threads = blockDim.x * blockDim.y * blockDim.z;
    const int lane = thread % 32;
    const int lanes = min(32, threads - (thread - lane));
    const unsigned int mask = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1u;
    for (int distance = 16; distance > 0; distance /= 2) {
        const double other = __shfl_down_sync(mask, value, distance);
        if (lane + distance < lanes) value += other;
    }
    if (lane == 0) partial[thread / 32] = value;
    __syncthreads();
    if (thread == 0) {
        for (int warp = 1; warp < (threads + 31) / 32; ++warp) value += partial[warp];
        if (value != 0.0) atomicAdd(target, (T)value);
    }
    __syncthreads();
}

extern "C" __global__ void block_softmax_reverse(const float* x, float* dx, int n, const float* x_saved)
{
    bool choice_saved[5];
    int choice_top = 0;
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
    for (int iteration = 0; iteration < 5; ++iteration) {
        int d = 16 >> iteration;
        if (threadIdx.x < d) {
            const float s_2 = s[threadIdx.x];
            const float s_3 = s[threadIdx.x + d];
            const float s_4 = fmaxf(s_2, s_3);
            s[threadIdx.x] = s_4;
            choice_saved[choice_top] = s_2 >= s_3 || s_3 != s_3;
            ++choice_top;
        }
        __syncthreads();
    }
    const float result = s[0];
    __syncthreads();
    float sum = 0.0f;
    for (int k = threadIdx.x; k < n; k += 32) {
        sum += expf(x_saved[blockIdx.x * n + (long long)k] - result);
    }
    s[threadIdx.x] = sum;
    __syncthreads();
    for (int iteration = 0; iteration < 5; ++iteration) {
        int d = 16 >> iteration;
        if (threadIdx.x < d) {
            s[threadIdx.x] += s[threadIdx.x + d];
        }
        __syncthreads();
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
        const float dx_2 = gpuad_chain(dx[blockIdx.x * n + (long long)k_2], 1.0f / result_2);
        const float dx_3 = gpuad_chain(dx_2, expf(x_2 - result));
        dx[blockIdx.x * n + (long long)k_2] = dx_3;
        dresult -= dx_3;
        dresult_2 -= gpuad_chain(dx_2, expf(x_2 - result) / result_2);
    }
    __syncthreads();
    gpuad_block_sum(&ds[0], dresult_2);
    for (int iteration = 4; iteration >= 0; --iteration) {
        int d = 16 >> iteration;
        __syncthreads();
        if (threadIdx.x < d) {
            ds[threadIdx.x + d] += ds[threadIdx.x];
        }
    }
    __syncthreads();
    const float ds_2 = ds[threadIdx.x];
    ds[threadIdx.x] = 0.0f;
    float dresult_3 = 0.0f;
    for (int k_2 = threadIdx.x; k_2 < n; k_2 += 32) {
        const float dsum = gpuad_chain(ds_2, expf(x_saved[blockIdx.x * n + (long long)k_2] - result));
        dx[blockIdx.x * n + (long long)k_2] += dsum;
        dresult_3 -= dsum;
    }
    __syncthreads();
    dresult += dresult_3;
    gpuad_block_sum(&ds[0], dresult);
    for (int iteration = 4; iteration >= 0; --iteration) {
        int d = 16 >> iteration;
        __syncthreads();
        if (threadIdx.x < d) {
            --choice_top;
            bool choice = choice_saved[choice_top];
            const float ds_3 = ds[threadIdx.x];
            ds[threadIdx.x] = 0.0f;
            ds[threadIdx.x + d] += choice ? 0.0f : ds_3;
            ds[threadIdx.x] += choice ? ds_3 : 0.0f;
        }
    }
    __syncthreads();
    const float ds_3 = ds[threadIdx.x];
    ds[threadIdx.x] = 0.0f;
    if (largest_at >= (int)threadIdx.x && largest_at < n && (largest_at - (int)threadIdx.x) % 32 == 0) {
        dx[blockIdx.x * n + (long long)largest_at] += ds_3;
    }
}

// adjoint of `block_softmax`
//   saved      x                    copy     needed by block_softmax.cu:45:75, overwritten by block_softmax.cu:50:50
//   stack      choice_saved         local    5 entries in each thread
//   shadow     dx                   plain    no two threads touch one element (block_softmax.cu:50:50)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
