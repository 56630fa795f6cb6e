// gpuad: adjoint of `fisher_kpp` (fisher_kpp.cu:18:28), for Duplicated v, u; Active diffusion, growth; Const n.
// 1. put the seeds into dv. du, ddiffusion, dgrowth are added to: clear first.
// 2. launch fisher_kpp_gather with grid (2, 5, 1) and the block of fisher_kpp.
// 3. launch fisher_kpp_reverse with the same grid and block.
// On exit dv holds the adjoint of the state before the launch; du, ddiffusion, dgrowth have grown by the gradient.
// Holds where no two threads touch one element of dv
// and the gather's threads do not meet in du, as for grid (2, 5, 1), block (32, 8, 1), n = 33.

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

extern "C" __global__ void fisher_kpp_gather(
    const float* dv, const float* u, float* du, float diffusion, float growth, int n)
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    float du_2 = 0.0f;
    if (i != 0 && j != 0 && i < n - 1 && j < n - 1) {
        const float u_2 = u[i * n + (long long)j];
        const float dv_2 = dv[i * n + j];
        du_2 += dv_2 * (1.0f - growth * u_2 - 4.0f * diffusion) + growth * ((1.0f - u_2) * dv_2);
    }
    if (j >= 1 && i != 0 && j != 1 && i < n - 1 && j < n) {
        du_2 += diffusion * dv[i * n + (j - 1)];
    }
    if (i != 0 && i < n - 1 && j < n - 2) {
        du_2 += diffusion * dv[i * n + (j + 1)];
    }
    if (i >= 1 && i != 1 && j != 0 && i < n && j < n - 1) {
        du_2 += diffusion * dv[(i - 1) * n + j];
    }
    if (j != 0 && i < n - 2 && j < n - 1) {
        du_2 += diffusion * dv[(i + 1) * n + j];
    }
    if (du_2 != 0.0f) {
        du[i * n + j] += du_2;
    }
}

extern "C" __global__ void fisher_kpp_reverse(
    const float* v, float* dv, const float* u, const float* du, float diffusion, double* ddiffusion,
    float growth, double* dgrowth, int n)
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    float ddiffusion_2 = 0.0f;
    float dgrowth_2 = 0.0f;
    if (i != 0 && j != 0 && i < n - 1 && j < n - 1) {
        const float u_2 = u[i * n + (long long)j];
        const float laplace = u[i * n + (long long)j + (-n)] + u[i * n + (long long)j + n]
            + u[i * n + (long long)j + (-1LL)] + u[i * n + (long long)j + 1LL] - 4.0f * u_2;
        const float dv_2 = dv[i * n + j];
        dv[i * n + j] = 0.0f;
        const float dv_3 = (1.0f - u_2) * dv_2;
        ddiffusion_2 = laplace * dv_2;
        dgrowth_2 = u_2 * dv_3;
    }
    gpuad_block_sum(&ddiffusion[0], (double)ddiffusion_2);
    gpuad_block_sum(&dgrowth[0], (double)dgrowth_2);
}

// adjoint of `fisher_kpp`
//   not saved  v                             no derivative needs what was overwritten
//   not saved  u                             never overwritten by this launch
//   shadow     dv                   plain    no two threads touch one element (fisher_kpp.cu:24:5)
//   shadow     du                   gather   each thread of fisher_kpp_gather collects for an element of its own (fisher_kpp.cu:23:55)
//   shadow     ddiffusion           reduced  summed over each block, then one atomic addition a block (fisher_kpp.cu:18:28)
//   shadow     dgrowth              reduced  summed over each block, then one atomic addition a block (fisher_kpp.cu:18:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
