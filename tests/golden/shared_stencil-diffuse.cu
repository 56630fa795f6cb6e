// gpuad: adjoint of `diffuse` (shared_stencil.cu:20:28), for Duplicated u, v; Active c; Const n.
// 1. put the seeds into dv. du, dc are added to: clear first.
// 2. launch diffuse_reverse with the same grid and block.
// On exit dv holds the adjoint of the state before the launch; du, dc have grown by the gradient.
// Holds where no two threads touch one element of dv, as for grid (5, 1, 1), block (32, 1, 1), n = 150.

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

extern "C" __global__ void diffuse_reverse(
    const float* u, float* du, const float* v, float* dv, float c, double* dc, int n)
{
    __shared__ float s[36];
    int t = threadIdx.x;
    int i = blockIdx.x * 32u + t;
    const float value = i < n ? u[i] : 0.0f;
    s[t + 2] = value;
    if (t < 2) {
        const float value_2 = i >= 2 ? u[i - 2] : 0.0f;
        s[t] = value_2;
        const float value_3 = i + 32 < n ? u[i + 32] : 0.0f;
        s[t + 34] = value_3;
    }
    __syncthreads();
    __shared__ float ds[36];
    for (int k = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); k < 36;
        k += blockDim.x * blockDim.y * blockDim.z) ds[k] = 0;
    __syncthreads();
    float dc_2 = 0.0f;
    if (i < n) {
        float sum = 0.0f;
        for (int k_2 = 1; k_2 < 3; ++k_2) {
            const float here = s[t + 2];
            sum += (s[t + 2 - k_2] + s[t + 2 + k_2] - 2.0f * here) * here / k_2;
        }
        const float dv_2 = dv[i];
        dv[i] = 0.0f;
        atomicAdd(&ds[t + 2], dv_2);
        const float dsum = c * dv_2;
        for (int k_2 = 1; k_2 < 3; ++k_2) {
            const float here = s[t + 2];
            const float dsum_2 = gpuad_chain(dsum, 1.0f / k_2);
            const float dsum_3 = here * dsum_2;
            atomicAdd(&ds[t + 2 + k_2], dsum_3);
            atomicAdd(&ds[t + 2], -2.0f * dsum_3 + (s[t + 2 - k_2] + s[t + 2 + k_2] - 2.0f * here) * dsum_2);
            atomicAdd(&ds[t + 2 - k_2], dsum_3);
        }
        dc_2 = sum * dv_2;
    }
    __syncthreads();
    if (t < 2) {
        const float ds_2 = atomicExch(&ds[t + 34], 0.0f);
        if (i + 32 < n) {
            atomicAdd(&du[i + 32], ds_2);
        }
        const float ds_3 = atomicExch(&ds[t], 0.0f);
        if (i >= 2) {
            atomicAdd(&du[i - 2], ds_3);
        }
    }
    const float ds_2 = atomicExch(&ds[t + 2], 0.0f);
    if (i < n) {
        atomicAdd(&du[i], ds_2);
    }
    gpuad_block_sum(&dc[0], (double)dc_2);
}

// adjoint of `diffuse`
//   not saved  u                             never overwritten by this launch
//   not saved  v                             no derivative needs what was overwritten
//   shadow     du                   atomic   it is not proved that no two threads meet in one element (shared_stencil.cu:26:44)
//   shadow     dv                   plain    no two threads touch one element (shared_stencil.cu:35:5)
//   shadow     dc                   reduced  summed over each block, then one atomic addition a block (shared_stencil.cu:20:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
