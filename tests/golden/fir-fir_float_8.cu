// gpuad: adjoint of `fir_float_8` (fir.cu:47:17), for Duplicated y, x, taps; Const n.
// 1. put the seeds into dy. dx, dtaps are added to: clear first.
// 2. launch fir_float_8_gather with grid (8, 1, 1) and the block of fir_float_8.
// 3. launch fir_float_8_reverse with the same grid and block.
// On exit dy holds the adjoint of the state before the launch; dx, dtaps have grown by the gradient.
// Holds where no two threads touch one element of dy
// and the gather's threads do not meet in dx, as for grid (8, 1, 1), block (128, 1, 1), n = 1000.

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

extern "C" __global__ void fir_float_8_gather(const float* dy, float* dx, const float* taps, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float dx_2 = 0.0f;
    if (i < n) {
        dx_2 += taps[0] * dy[i];
    }
    for (int k = 1; k < 8; ++k) {
        if (i + k < n) {
            dx_2 += taps[k] * dy[i + k];
        }
    }
    if (dx_2 != 0.0f) {
        dx[i] += dx_2;
    }
}

extern "C" __global__ void fir_float_8_reverse(
    const float* y, float* dy, const float* x, const float* dx, const float* taps, float* dtaps, int n)
{
    float dtaps_2 = 0.0f;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float x_2 = x[i];
        const float dy_2 = dy[i];
        dy[i] = 0.0f;
        for (int k = 1; k < 8; ++k) {
            int i_2 = i - k;
            const float value = i_2 >= 0 ? x[i_2] : 0.0f;
            atomicAdd(&dtaps[k], value * dy_2);
        }
        dtaps_2 += x_2 * dy_2;
    }
    gpuad_block_sum(&dtaps[0], dtaps_2);
}

// adjoint of `fir_float_8`
//   not saved  y                             no derivative needs what was overwritten
//   not saved  x                             never overwritten by this launch
//   not saved  taps                          never overwritten by this launch
//   shadow     dy                   plain    no two threads touch one element (fir.cu:53:5)
//   shadow     dx                   gather   each thread of fir_float_8_gather collects for an element of its own (fir.cu:41:40)
//   shadow     dtaps                atomic   threads meet in elements; what all add to one element is summed over each block first (fir.cu:52:45)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
