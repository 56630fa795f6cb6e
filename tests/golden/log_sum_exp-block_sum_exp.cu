// gpuad: adjoint of `block_sum_exp` (log_sum_exp.cu:55:28), for Duplicated x, shift, sum; Const n.
// 1. put the seeds into dsum. dx, dshift are added to: clear first.
// 2. launch block_sum_exp_reverse with the same grid and block.
// On exit dsum holds the adjoint of the state before the launch; dx, dshift have grown by the gradient.
// Holds where no two threads touch one element of dsum, dx
// and no two threads of a block touch one element of ds between two barriers, as for grid (3, 1, 1), block (64, 1, 1), n = 1000.

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

extern "C" __global__ void block_sum_exp_reverse(
    const double* x, double* dx, const double* shift, double* dshift, const double* sum, double* dsum, int n)
{
    double dshift_2 = 0.0;
    const double a = shift[0];
    __shared__ double ds[64];
    for (int k = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); k < 64;
        k += blockDim.x * blockDim.y * blockDim.z) ds[k] = 0;
    __syncthreads();
    if (threadIdx.x == 0u) {
        const double dsum_2 = dsum[blockIdx.x];
        dsum[blockIdx.x] = 0.0;
        ds[0] += dsum_2;
    }
    for (int iteration = 5; iteration >= 0; --iteration) {
        int d = 32 >> iteration;
        __syncthreads();
        if (threadIdx.x < d) {
            ds[threadIdx.x + d] += ds[threadIdx.x];
        }
    }
    __syncthreads();
    const double ds_2 = ds[threadIdx.x];
    ds[threadIdx.x] = 0.0;
    double da = 0.0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const double dfound = exp(x[i] - a) * ds_2;
        dx[i] += dfound;
        da -= dfound;
    }
    if (da != 0.0) {
        dshift_2 += da;
    }
    gpuad_block_sum(&dshift[0], dshift_2);
}

// adjoint of `block_sum_exp`
//   not saved  x                             never overwritten by this launch
//   not saved  shift                         never overwritten by this launch
//   not saved  sum                           no derivative needs what was overwritten
//   shadow     dx                   plain    no two threads touch one element (log_sum_exp.cu:58:106)
//   shadow     dshift               reduced  summed over each block, then one atomic addition a block (log_sum_exp.cu:57:16)
//   shadow     dsum                 plain    no two threads touch one element (log_sum_exp.cu:65:27)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
