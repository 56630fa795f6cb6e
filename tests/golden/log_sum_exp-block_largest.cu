// gpuad: adjoint of `block_largest` (log_sum_exp.cu:42:28), for Duplicated x, largest; Const n.
// 1. put the seeds into dlargest. dx is added to: clear first.
// 2. launch block_largest_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32).
// 3. choice_saved_base[0] = 0; choice_saved_base[g + 1] = choice_saved_base[g] + 32 * (greatest choice_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of choice_saved.
// 4. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 5. launch block_largest_reverse with the same grid and block.
// On exit dlargest holds the adjoint of the state before the launch; dx has grown by the gradient.
// Holds where no two threads touch one element of dlargest
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

// How many iterations `for (i = start; i < stop; i += step)` has.
__device__ inline long long gpuad_trips(long long start, long long stop, long long step)
{
    return start < stop ? (stop - start - 1) / step + 1 : 0;
}

extern "C" __global__ void block_largest_count(
    const double* x, const double* largest, int n, int* choice_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        ++depth;
        deepest = max(deepest, depth);
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    choice_saved_depth[thread] = deepest;
}

extern "C" __global__ void block_largest_reverse(
    const double* x, double* dx, const double* largest, double* dlargest, int n,
    const long long* choice_saved_base, bool* choice_saved, int* gpuad_overflow)
{
    double dx_2 = 0.0;
    bool choice_saved_2[6];
    int choice_top = 0;
    int choice_top_2 = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long choice_saved_base_end = choice_saved_base[thread / 32LL + 1LL];
    long long choice_saved_base_lane = choice_saved_base[thread / 32LL] + thread % 32LL;
    __shared__ double s[64];
    double found = x[0];
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const double x_2 = x[i];
        const double found_2 = fmax(found, x_2);
        long long choice_at = choice_saved_base_lane + choice_top * 32LL;
        if (choice_at < choice_saved_base_end) {
            choice_saved[choice_at] = found >= x_2;
        } else {
            gpuad_overflow[0] = 1;
        }
        ++choice_top;
        found = found_2;
    }
    s[threadIdx.x] = found;
    __syncthreads();
    for (int iteration = 0; iteration < 6; ++iteration) {
        int d = 32 >> iteration;
        if (threadIdx.x < d) {
            const double s_2 = s[threadIdx.x];
            const double s_3 = s[threadIdx.x + d];
            const double s_4 = fmax(s_2, s_3);
            s[threadIdx.x] = s_4;
            choice_saved_2[choice_top_2] = s_2 >= s_3 || s_3 != s_3;
            ++choice_top_2;
        }
        __syncthreads();
    }
    __shared__ double ds[64];
    for (int k = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); k < 64;
        k += blockDim.x * blockDim.y * blockDim.z) ds[k] = 0;
    __syncthreads();
    if (threadIdx.x == 0u) {
        const double dlargest_2 = dlargest[blockIdx.x];
        dlargest[blockIdx.x] = 0.0;
        ds[0] += dlargest_2;
    }
    for (int iteration = 5; iteration >= 0; --iteration) {
        int d = 32 >> iteration;
        __syncthreads();
        if (threadIdx.x < d) {
            --choice_top_2;
            bool choice = choice_saved_2[choice_top_2];
            const double ds_2 = ds[threadIdx.x];
            ds[threadIdx.x] = 0.0;
            ds[threadIdx.x + d] += choice ? 0.0 : ds_2;
            ds[threadIdx.x] += choice ? ds_2 : 0.0;
        }
    }
    __syncthreads();
    const double ds_2 = ds[threadIdx.x];
    ds[threadIdx.x] = 0.0;
    double dfound = ds_2;
    for (long long i_count = gpuad_trips((int)(blockIdx.x * blockDim.x + threadIdx.x), n,
            (int)(gridDim.x * blockDim.x)) - 1; i_count >= 0; --i_count) {
        const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x) + i_count * (int)(gridDim.x * blockDim.x);
        --choice_top;
        bool choice = choice_saved[choice_saved_base_lane + choice_top * 32LL];
        const double x_2 = x[i];
        atomicAdd(&dx[i], choice || x_2 != x_2 ? 0.0 : dfound);
        dfound = choice || x_2 != x_2 ? dfound : 0.0;
    }
    dx_2 += dfound;
    gpuad_block_sum(&dx[0], dx_2);
}

// adjoint of `block_largest`
//   not saved  x                             never overwritten by this launch
//   not saved  largest                       no derivative needs what was overwritten
//   stack      choice_saved         local    6 entries in each thread
//   stack      choice_saved         scratch  an entry an iteration, needed by log_sum_exp.cu:45:5
//   shadow     dx                   atomic   threads meet in elements; what all add to one element is summed over each block first (log_sum_exp.cu:45:113)
//   shadow     dlargest             plain    no two threads touch one element (log_sum_exp.cu:52:27)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
