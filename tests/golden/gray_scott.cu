// gpuad: adjoint of `gray_scott` (gray_scott.cu:26:28), for Duplicated u, v, u_new, v_new; Active feed, kill; Const n.
// 1. put the seeds into du_new, dv_new. du, dv, dfeed, dkill are added to: clear first.
// 2. launch gray_scott_gather with grid (2, 2, 1) and the block of gray_scott.
// 3. launch gray_scott_reverse with the same grid and block.
// On exit du_new, dv_new hold the adjoint of the state before the launch; du, dv, dfeed, dkill have grown by the gradient.
// Holds where no two threads touch one element of du_new, dv_new
// and the gather's threads do not meet in du, dv, as for grid (2, 2, 1), block (16, 16, 1), n = 24.

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

extern "C" __global__ void gray_scott_gather(
    const double* u, double* du, const double* v, double* dv, const double* du_new, const double* dv_new,
    double feed, double kill, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    double dv_2 = 0.0;
    double du_2 = 0.0;
    if (x < n && y < n) {
        int i = (y + n) % n * n + (x + n) % n;
        const double v_2 = v[i];
        const double dv_new_2 = dv_new[i];
        const double du_new_2 = du_new[i];
        const double dreaction = v_2 * (dv_new_2 - du_new_2);
        dv_2 += dv_new_2 * (1.0 - 0.32 - (feed + kill)) + 2.0 * (u[i] * dreaction);
        du_2 += du_new_2 * (1.0 - 0.64 - feed) + v_2 * dreaction;
    }
    if (x >= 1 && x < n && y < n) {
        int i = y * n + (x - 1 + n) % n;
        dv_2 += 0.08 * dv_new[i];
        du_2 += 0.16 * du_new[i];
    }
    if (x < 1 && y < n) {
        int i = y * n + (x + 2 * n - 1) % n;
        dv_2 += 0.08 * dv_new[i];
        du_2 += 0.16 * du_new[i];
    }
    if (x >= n - 1 && x < n && x < 2 * n - 1 && y < n) {
        int i = y * n + (x + 1) % n;
        dv_2 += 0.08 * dv_new[i];
        du_2 += 0.16 * du_new[i];
    }
    if (x < n - 1 && y < n) {
        int i = y * n + (x + 1 + n) % n;
        dv_2 += 0.08 * dv_new[i];
        du_2 += 0.16 * du_new[i];
    }
    if (y >= 1 && y < n && x < n) {
        int i = (y - 1 + n) % n * n + x;
        dv_2 += 0.08 * dv_new[i];
        du_2 += 0.16 * du_new[i];
    }
    if (x < n && y < 1) {
        int i = (y + n - 1 + n) % n * n + x;
        dv_2 += 0.08 * dv_new[i];
        du_2 += 0.16 * du_new[i];
    }
    if (y >= n - 1 && y < n && x < n && y < 2 * n - 1) {
        int i = (y + 1 - n + n) % n * n + x;
        dv_2 += 0.08 * dv_new[i];
        du_2 += 0.16 * du_new[i];
    }
    if (x < n && y < n - 1) {
        int i = (y + 1 + n) % n * n + x;
        dv_2 += 0.08 * dv_new[i];
        du_2 += 0.16 * du_new[i];
    }
    if (dv_2 != 0.0) {
        dv[n * y + x] += dv_2;
    }
    if (du_2 != 0.0) {
        du[n * y + x] += du_2;
    }
}

extern "C" __global__ void gray_scott_reverse(
    const double* u, const double* du, const double* v, const double* dv, const double* u_new,
    double* du_new, const double* v_new, double* dv_new, double feed, double* dfeed, double kill,
    double* dkill, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    double dfeed_2 = 0.0;
    double dkill_2 = 0.0;
    if (x < n && y < n) {
        int i = (y + n) % n * n + (x + n) % n;
        const double u_2 = u[i];
        const double v_2 = v[i];
        double dv_new_2 = dv_new[i];
        dv_new[i] = 0.0;
        dv_new_2 = -(v_2 * dv_new_2);
        const double du_new_2 = du_new[i];
        du_new[i] = 0.0;
        dfeed_2 = dv_new_2 + (1.0 - u_2) * du_new_2;
        dkill_2 = dv_new_2;
    }
    gpuad_block_sum(&dfeed[0], dfeed_2);
    gpuad_block_sum(&dkill[0], dkill_2);
}

// adjoint of `gray_scott`
//   not saved  u                             never overwritten by this launch
//   not saved  v                             never overwritten by this launch
//   not saved  u_new                         no derivative needs what was overwritten
//   not saved  v_new                         no derivative needs what was overwritten
//   shadow     du                   gather   each thread of gray_scott_gather collects for an element of its own (gray_scott.cu:32:42)
//   shadow     dv                   gather   each thread of gray_scott_gather collects for an element of its own (gray_scott.cu:33:42)
//   shadow     du_new               plain    no two threads touch one element (gray_scott.cu:32:5)
//   shadow     dv_new               plain    no two threads touch one element (gray_scott.cu:33:5)
//   shadow     dfeed                reduced  summed over each block, then one atomic addition a block (gray_scott.cu:26:28)
//   shadow     dkill                reduced  summed over each block, then one atomic addition a block (gray_scott.cu:26:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
