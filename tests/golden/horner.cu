// gpuad: adjoint of `horner` (horner.cu:17:28), for Duplicated x, coefficients; Const degree, n.
// 1. before horner runs, copy x to x_saved (all that it may touch).
// 2. put the seeds into dx. dcoefficients is added to: clear first.
// 3. launch horner_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32).
// 4. value_saved_base[0] = 0; value_saved_base[g + 1] = value_saved_base[g] + 32 * (greatest value_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of value_saved.
// 5. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 6. launch horner_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch; dcoefficients has grown by the gradient.
// Holds where no two threads touch one element of dx, as for grid (4, 1, 1), block (64, 1, 1), degree = 6, n = 200.

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

extern "C" __global__ void horner_count(
    const double* x, const double* coefficients, int degree, int n, const double* x_saved,
    int* value_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        long long p_offset = 1LL;
        while (p_offset <= degree) {
            ++depth;
            deepest = max(deepest, depth);
            ++p_offset;
        }
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    value_saved_depth[thread] = deepest;
}

extern "C" __global__ void horner_reverse(
    const double* x, double* dx, const double* coefficients, double* dcoefficients, int degree, int n,
    const double* x_saved, const long long* value_saved_base, double* value_saved, int* gpuad_overflow)
{
    double dcoefficients_2 = 0.0;
    int value_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long value_saved_base_end = value_saved_base[thread / 32LL + 1LL];
    long long value_saved_base_lane = value_saved_base[thread / 32LL] + thread % 32LL;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        double value = coefficients[0];
        long long p_offset = 1LL;
        int iterations = 0;
        while (p_offset <= degree) {
            const double value_2 = value * x_saved[i] + coefficients[p_offset];
            long long value_at = value_saved_base_lane + value_top * 32LL;
            if (value_at < value_saved_base_end) {
                value_saved[value_at] = value;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++value_top;
            value = value_2;
            ++p_offset;
            ++iterations;
        }
        const double dx_2 = dx[i];
        dx[i] = 0.0;
        double dvalue = dx_2;
        for (int iteration = iterations - 1; iteration >= 0; --iteration) {
            --value_top;
            const double value_2 = value_saved[value_saved_base_lane + value_top * 32LL];
            const double x_2 = x_saved[i];
            atomicAdd(&dcoefficients[1LL + iteration], dvalue);
            dx[i] += value_2 * dvalue;
            dvalue *= x_2;
        }
        dcoefficients_2 += dvalue;
    }
    gpuad_block_sum(&dcoefficients[0], dcoefficients_2);
}

// adjoint of `horner`
//   saved      x                    copy     needed by horner.cu:22:56, overwritten by horner.cu:23:5
//   not saved  coefficients                  never overwritten by this launch
//   stack      value_saved          scratch  an entry an iteration, needed by horner.cu:22:5
//   shadow     dx                   plain    no two threads touch one element (horner.cu:23:5)
//   shadow     dcoefficients        atomic   threads meet in elements; what all add to one element is summed over each block first (horner.cu:22:64)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
