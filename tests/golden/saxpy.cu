// gpuad: adjoint of `saxpy` (saxpy.cu:18:28), for Duplicated x, y; Active a; Const n.
// 1. put the seeds into dy. da, dx are added to: clear first.
// 2. launch saxpy_reverse with the same grid and block.
// On exit dy holds the adjoint of the state before the launch; da, dx have grown by the gradient.
// Holds where no two threads touch one element of dx, as for grid (4, 1, 1), block (256, 1, 1), n = 1000.

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

extern "C" __global__ void saxpy_reverse(
    int n, float a, double* da, const float* x, float* dx, const float* y, const float* dy)
{
    float da_2 = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        const float x_2 = x[i];
        const float dy_2 = dy[i];
        dx[i] += a * dy_2;
        da_2 += x_2 * dy_2;
    }
    gpuad_block_sum(&da[0], (double)da_2);
}

// adjoint of `saxpy`
//   not saved  x                             never overwritten by this launch
//   not saved  y                             no derivative needs what was overwritten
//   shadow     da                   reduced  summed over each block, then one atomic addition a block (saxpy.cu:18:28)
//   shadow     dx                   plain    no two threads touch one element (saxpy.cu:20:21)
//   shadow     dy                   plain    it is only read (saxpy.cu:20:9)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
