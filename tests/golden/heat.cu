// gpuad: adjoint of `heat` (heat.cu:19:28), for Duplicated u, v; Active alpha; Const ny, nx.
// 1. put the seeds into dv. du, dalpha are added to: clear first.
// 2. launch heat_gather with grid (3, 5, 1) and the block of heat.
// 3. launch heat_reverse with the same grid and block.
// On exit dv holds the adjoint of the state before the launch; du, dalpha have grown by the gradient.
// Holds where no two threads touch one element of dv
// and the gather's threads do not meet in du, as for grid (3, 5, 1), block (16, 8, 1), ny = 37, nx = 41.

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

extern "C" __global__ void heat_gather(float* du, const float* dv, float alpha, int ny, int nx)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int i = y * nx + x;
    float du_2 = 0.0f;
    if (x > 0 && x < nx - 1 && y > 0 && y < ny - 1) {
        du_2 += dv[i] * (1.0f - 4.0f * alpha);
    }
    if (x > 0 && x < nx - 1 && y > 1 && y < ny) {
        du_2 += alpha * dv[i - nx];
    }
    if (x > 0 && x < nx - 1 && y < ny - 2) {
        du_2 += alpha * dv[i + nx];
    }
    if (x > 1 && x < nx && y > 0 && y < ny - 1) {
        du_2 += alpha * dv[i - 1];
    }
    if (x < nx - 2 && y > 0 && y < ny - 1) {
        du_2 += alpha * dv[i + 1];
    }
    if (du_2 != 0.0f) {
        du[i] += du_2;
    }
}

extern "C" __global__ void heat_reverse(
    const float* u, const float* du, const float* v, float* dv, float alpha, double* dalpha, int ny, int nx)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    float dalpha_2 = 0.0f;
    if (x > 0 && x < nx - 1 && y > 0 && y < ny - 1) {
        int i = y * nx + x;
        const float u_2 = u[i];
        const float u_3 = u[i - 1];
        const float u_4 = u[i + 1];
        const float u_5 = u[i - nx];
        const float u_6 = u[i + nx];
        const float dv_2 = dv[i];
        dv[i] = 0.0f;
        dalpha_2 = (u_3 + u_4 + u_5 + u_6 - 4.0f * u_2) * dv_2;
    }
    gpuad_block_sum(&dalpha[0], (double)dalpha_2);
}

// adjoint of `heat`
//   not saved  u                             never overwritten by this launch
//   not saved  v                             no derivative needs what was overwritten
//   shadow     du                   gather   each thread of heat_gather collects for an element of its own (heat.cu:24:66)
//   shadow     dv                   plain    no two threads touch one element (heat.cu:24:9)
//   shadow     dalpha               reduced  summed over each block, then one atomic addition a block (heat.cu:19:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
