// gpuad: adjoint of `smooth` (smoothing.cu:17:28), for Duplicated noisy, smoothed; Active rate; Const n.
// 1. put the seeds into dsmoothed. dnoisy, drate are added to: clear first.
// 2. launch smooth_gather with grid (8, 1, 1) and the block of smooth.
// 3. launch smooth_reverse with the same grid and block.
// On exit dsmoothed holds the adjoint of the state before the launch; dnoisy, drate have grown by the gradient.
// Holds where no two threads touch one element of dsmoothed
// and the gather's threads do not meet in dnoisy, as for grid (3, 1, 1), block (64, 1, 1), n = 500.

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

extern "C" __global__ void smooth_gather(
    const float* noisy, float* dnoisy, const float* dsmoothed, float rate, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float dnoisy_2 = 0.0f;
    if (i < n) {
        const float here = noisy[i];
        const float left = i > 0 ? noisy[i - 1] - here : 0.0f;
        const float right = i < n - 1 ? noisy[i + 1] - here : 0.0f;
        const float dsmoothed_2 = dsmoothed[i];
        float dsmoothed_3 = rate * dsmoothed_2;
        const float dsmoothed_4 = gpuad_chain(dsmoothed_3, 1.0f / (1.0f + left * left));
        dsmoothed_3 = gpuad_chain(dsmoothed_3, 1.0f / (1.0f + right * right));
        const float dhere = i < n - 1 ? -(dsmoothed_3
            + 2.0f * (right * -gpuad_chain(dsmoothed_3, right / (1.0f + right * right)))) : 0.0f;
        const float dhere_2 = i > 0 ? -(dsmoothed_4
            + 2.0f * (left * -gpuad_chain(dsmoothed_4, left / (1.0f + left * left)))) : 0.0f;
        dnoisy_2 += dsmoothed_2 + dhere + dhere_2;
    }
    if (i >= 1 && i < n + 1) {
        const float right = i - 1 < n - 1 ? noisy[i] - noisy[i - 1] : 0.0f;
        const float dsmoothed_2 = gpuad_chain(rate * dsmoothed[i - 1], 1.0f / (1.0f + right * right));
        if (i < n) {
            dnoisy_2 += dsmoothed_2 + 2.0f * (right * -gpuad_chain(dsmoothed_2, right / (1.0f + right * right)));
        }
    }
    if (i < n - 1) {
        const float left = i + 1 > 0 ? noisy[i] - noisy[i + 1] : 0.0f;
        const float dsmoothed_2 = gpuad_chain(rate * dsmoothed[i + 1], 1.0f / (1.0f + left * left));
        dnoisy_2 += dsmoothed_2 + 2.0f * (left * -gpuad_chain(dsmoothed_2, left / (1.0f + left * left)));
    }
    if (dnoisy_2 != 0.0f) {
        dnoisy[i] += dnoisy_2;
    }
}

extern "C" __global__ void smooth_reverse(
    const float* noisy, const float* dnoisy, const float* smoothed, float* dsmoothed, float rate,
    double* drate, int n)
{
    float drate_2 = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        const float here = noisy[i];
        const float left = i > 0 ? noisy[i - 1] - here : 0.0f;
        const float right = i < n - 1 ? noisy[i + 1] - here : 0.0f;
        const float dsmoothed_2 = dsmoothed[i];
        dsmoothed[i] = 0.0f;
        drate_2 += (left / (1.0f + left * left) + right / (1.0f + right * right)) * dsmoothed_2;
    }
    gpuad_block_sum(&drate[0], (double)drate_2);
}

// adjoint of `smooth`
//   not saved  noisy                         never overwritten by this launch
//   not saved  smoothed                      no derivative needs what was overwritten
//   shadow     dnoisy               gather   each thread of smooth_gather collects for an element of its own (smoothing.cu:22:35)
//   shadow     dsmoothed            plain    no two threads touch one element (smoothing.cu:23:9)
//   shadow     drate                reduced  summed over each block, then one atomic addition a block (smoothing.cu:17:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
