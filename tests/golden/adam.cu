// gpuad: adjoint of `adam` (adam.cu:23:28), for Duplicated parameter, gradient, first, second; Active rate; Const step, n.
// 1. put the seeds into dparameter, dfirst, dsecond. dgradient, drate are added to: clear first.
// 2. launch adam_reverse with the same grid and block.
// On exit dparameter, dfirst, dsecond hold the adjoint of the state before the launch; dgradient, drate have grown by the gradient.
// Holds where no two threads touch one element of dfirst, dgradient, dsecond, as for grid (4, 1, 1), block (128, 1, 1), step = 3, n = 400.

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

extern "C" __global__ void adam_reverse(
    const float* parameter, const float* dparameter, const float* gradient, float* dgradient,
    const float* first, float* dfirst, const float* second, float* dsecond, float rate, double* drate,
    int step, unsigned int n)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    float drate_2 = 0.0f;
    if (i < n) {
        const float g = gradient[i];
        const float m = first[i] / (1.0f - powf(0.9f, (float)step));
        const float v = second[i] / (1.0f - powf(0.999f, (float)step));
        const float dparameter_2 = -gpuad_chain(dparameter[i], 1.0f / (sqrtf(v) + 0.001f));
        dsecond[i] -= gpuad_chain(gpuad_chain(gpuad_chain(dparameter_2, rate * m / (sqrtf(v) + 0.001f)),
            0.5f / sqrtf(v)), 1.0f / (1.0f - powf(0.999f, (float)step)));
        dfirst[i] += gpuad_chain(rate * dparameter_2, 1.0f / (1.0f - powf(0.9f, (float)step)));
        const float dsecond_2 = dsecond[i];
        dsecond[i] = 0.999f * dsecond_2;
        const float dfirst_2 = dfirst[i];
        dfirst[i] = 0.9f * dfirst_2;
        dgradient[i] += 2.0f * ((1.0f - 0.999f) * (g * dsecond_2)) + (1.0f - 0.9f) * dfirst_2;
        drate_2 = m * dparameter_2;
    }
    gpuad_block_sum(&drate[0], (double)drate_2);
}

// adjoint of `adam`
//   not saved  parameter                     no derivative needs what was overwritten
//   not saved  gradient                      never overwritten by this launch
//   not saved  first                         needed by adam.cu:29:15, read as this launch leaves it
//   not saved  second                        needed by adam.cu:30:15, read as this launch leaves it
//   shadow     dparameter           plain    it is only read (adam.cu:31:5)
//   shadow     dgradient            plain    no two threads touch one element (adam.cu:26:15)
//   shadow     dfirst               plain    no two threads touch one element (adam.cu:29:15)
//   shadow     dsecond              plain    no two threads touch one element (adam.cu:30:15)
//   shadow     drate                reduced  summed over each block, then one atomic addition a block (adam.cu:23:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
