// gpuad: adjoint of `gray_scott` (gray_scott.cu:26:28), for Duplicated u, v, u_new, v_new; Active feed, kill; Const n.
// 1. put the seeds into du_new, dv_new. du, dv, dfeed, dkill are added to: clear first.
// 2. launch gray_scott_reverse with the same grid and block.
// On exit du_new, dv_new hold the adjoint of the state before the launch; du, dv, dfeed, dkill have grown by the gradient.
// Holds for every grid and block.

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

// atomicExch for the types that CUDA lacks, on the bits.
__device__ inline double gpuad_exch(double* target, double value)
{
    return __longlong_as_double(atomicExch((unsigned long long*)target, (unsigned long long)__double_as_longlong(value)));
}
__device__ inline long long gpuad_exch(long long* target, long long value)
{
    return (long long)atomicExch((unsigned long long*)target, (unsigned long long)value);
}

extern "C" __global__ void gray_scott_reverse(
    const double* u, double* du, const double* v, double* dv, const double* u_new, double* du_new,
    const double* v_new, double* dv_new, double feed, double* dfeed, double kill, double* dkill, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    double dfeed_2 = 0.0;
    double dkill_2 = 0.0;
    if (x < n && y < n) {
        int i = (y + n) % n * n + (x + n) % n;
        const double u_2 = u[i];
        const double v_2 = v[i];
        const double dv_new_2 = gpuad_exch(&dv_new[i], 0.0);
        const double dv_new_3 = 0.08 * dv_new_2;
        const double dv_new_4 = -(v_2 * dv_new_2);
        atomicAdd(&dv[(y + n) % n * n + (x + n) % n], -4.0 * dv_new_3);
        atomicAdd(&dv[(y + n) % n * n + (x + 1 + n) % n], dv_new_3);
        atomicAdd(&dv[(y + n) % n * n + (x - 1 + n) % n], dv_new_3);
        atomicAdd(&dv[(y + 1 + n) % n * n + (x + n) % n], dv_new_3);
        atomicAdd(&dv[(y - 1 + n) % n * n + (x + n) % n], dv_new_3);
        const double du_new_2 = gpuad_exch(&du_new[i], 0.0);
        const double du_new_3 = 0.16 * du_new_2;
        atomicAdd(&du[(y + n) % n * n + (x + n) % n], -4.0 * du_new_3);
        atomicAdd(&du[(y + n) % n * n + (x + 1 + n) % n], du_new_3);
        atomicAdd(&du[(y + n) % n * n + (x - 1 + n) % n], du_new_3);
        atomicAdd(&du[(y + 1 + n) % n * n + (x + n) % n], du_new_3);
        atomicAdd(&du[(y - 1 + n) % n * n + (x + n) % n], du_new_3);
        const double dreaction = dv_new_2 - du_new_2;
        const double dreaction_2 = v_2 * dreaction;
        atomicAdd(&dv[i], dv_new_2 - (feed + kill) * dv_new_2 + u_2 * dreaction_2 + u_2 * v_2 * dreaction);
        atomicAdd(&du[i], du_new_2 - feed * du_new_2 + v_2 * dreaction_2);
        dfeed_2 = dv_new_4 + (1.0 - u_2) * du_new_2;
        dkill_2 = dv_new_4;
    }
    gpuad_block_sum(&dfeed[0], dfeed_2);
    gpuad_block_sum(&dkill[0], dkill_2);
}

// adjoint of `gray_scott`
//   not saved  u                             never overwritten by this launch
//   not saved  v                             never overwritten by this launch
//   not saved  u_new                         no derivative needs what was overwritten
//   not saved  v_new                         no derivative needs what was overwritten
//   shadow     du                   atomic   it is not proved that no two threads meet in one element (gray_scott.cu:32:42)
//   shadow     dv                   atomic   it is not proved that no two threads meet in one element (gray_scott.cu:33:42)
//   shadow     du_new               atomic   it is not proved that no two threads meet in one element (gray_scott.cu:32:5)
//   shadow     dv_new               atomic   it is not proved that no two threads meet in one element (gray_scott.cu:33:5)
//   shadow     dfeed                reduced  summed over each block, then one atomic addition a block (gray_scott.cu:26:28)
//   shadow     dkill                reduced  summed over each block, then one atomic addition a block (gray_scott.cu:26:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
