// gpuad: adjoint of `activation` (activation.cu:19:28), for Duplicated x; Active slope; Const kind, n.
// 1. before activation runs, copy x to x_saved (all that it may touch).
// 2. put the seeds into dx. dslope is added to: clear first.
// 3. launch activation_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch; dslope has grown by the gradient.
// Compile activation and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dx, as for grid (1, 12, 1), block (64, 1, 1), n = 50.

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

extern "C" __global__ void activation_reverse(
    const float* x, float* dx, const int* kind, float slope, double* dslope, int n, const float* x_saved)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y;
    float dslope_2 = 0.0f;
    if (i < n) {
        const float value = x_saved[row * n + i];
        int choice = kind[row];
        float dvalue = 0.0f;
        if (choice != 0) {
            const float dx_2 = dx[row * n + i];
            dx[row * n + i] = 0.0f;
            if (choice == 1) {
                dvalue = !(value >= 0.0f) ? 0.0f : dx_2;
            } else if (choice == 2) {
                if (!(value >= 0.0f)) {
                    dvalue = slope * dx_2;
                    dslope_2 = value * dx_2;
                } else {
                    dvalue = dx_2;
                }
            } else if (choice == 4) {
                dvalue = gpuad_chain(dx_2, 1.0f / (1.0f + expf(-value)));
                const float value_2 = value / (1.0f + expf(-value));
                dvalue += gpuad_chain(dvalue, value_2 * expf(-value));
            } else if (choice == 3) {
                const float value_2 = 1.0f / (1.0f + expf(-value));
                dvalue = gpuad_chain(gpuad_chain(dx_2, value_2), value_2 * expf(-value));
            } else {
                dvalue = choice == 5 ? 1.0f / coshf(value) * (1.0f / coshf(value)) * dx_2 : 0.0f;
            }
        }
        if (dvalue != 0.0f) {
            dx[row * n + i] += dvalue;
        }
    }
    gpuad_block_sum(&dslope[0], (double)dslope_2);
}

// adjoint of `activation`
//   saved      x                    copy     needed by activation.cu:23:19, overwritten by activation.cu:45:5
//   not saved  kind                          never overwritten by this launch
//   shadow     dx                   plain    no two threads touch one element (activation.cu:45:5)
//   shadow     dslope               reduced  summed over each block, then one atomic addition a block (activation.cu:19:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
