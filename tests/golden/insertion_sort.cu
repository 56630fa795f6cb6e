// gpuad: adjoint of `insertion_sort` (insertion_sort.cu:32:28), for Duplicated x, smallest; Const rows, n.
// 1. before insertion_sort runs, copy x to x_saved (all that it may touch). x_saved will be overwritten.
// 2. put the seeds into dx, dsmallest.
// 3. launch insertion_sort_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32). It overwrites the copies: give it copies of its own.
// 4. j_saved_base[0] = 0; j_saved_base[g + 1] = j_saved_base[g] + 32 * (greatest j_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of j_saved, iterations_saved.
// 5. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 6. launch insertion_sort_reverse with the same grid and block.
// On exit dx, dsmallest hold the adjoint of the state before the launch.
// Compile insertion_sort and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dsmallest, as for grid (3, 1, 1), block (8, 1, 1), rows = 20, n = 11.

// atomicExch for the types that CUDA lacks, on the bits.
__device__ inline double gpuad_exch(double* target, double value)
{
    return __longlong_as_double(atomicExch((unsigned long long*)target, (unsigned long long)__double_as_longlong(value)));
}
__device__ inline long long gpuad_exch(long long* target, long long value)
{
    return (long long)atomicExch((unsigned long long*)target, (unsigned long long)value);
}

extern "C" __global__ void insertion_sort_count(
    const double* x, const double* smallest, int rows, int n, const double* x_saved, int* j_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        for (int i = 1; i < n; ++i) {
            ++depth;
            deepest = max(deepest, depth);
        }
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    j_saved_depth[thread] = deepest;
}

extern "C" __global__ void insertion_sort_reverse(
    const double* x, double* dx, const double* smallest, double* dsmallest, int rows, int n, double* x_saved,
    const long long* j_saved_base, int* j_saved, int* iterations_saved, int* gpuad_overflow)
{
    int j_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long j_saved_base_end = j_saved_base[thread / 32LL + 1LL];
    long long j_saved_base_lane = j_saved_base[thread / 32LL] + thread % 32LL;
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        for (int i = 1; i < n; ++i) {
            const double key = x_saved[r * n + (long long)i];
            int j = i - 1;
            bool both = j >= 0 ? x_saved[r * n + (long long)j] > key : false;
            bool go = both;
            int iterations = 0;
            while (go) {
                x_saved[r * n + (long long)(j + 1)] = x_saved[r * n + (long long)j];
                --j;
                bool both_2 = j >= 0 ? x_saved[r * n + (long long)j] > key : false;
                go = both_2;
                ++iterations;
            }
            x_saved[r * n + (long long)(j + 1)] = key;
            long long j_at = j_saved_base_lane + j_top * 32LL;
            if (j_at < j_saved_base_end) {
                j_saved[j_at] = j;
                iterations_saved[j_at] = iterations;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++j_top;
        }
        const double dsmallest_2 = dsmallest[r];
        dsmallest[r] = 0.0;
        for (int i = 0; i < n / 2; ++i) {
            atomicAdd(&dx[r * n + (long long)i], dsmallest_2);
        }
        for (int i = n - 1; i >= 1; --i) {
            --j_top;
            int iterations = iterations_saved[j_saved_base_lane + j_top * 32LL];
            const double dx_2 = gpuad_exch(&dx[r * n + (long long)(j_saved[j_saved_base_lane + j_top * 32LL] + 1)],
                0.0);
            int j = i - 1;
            for (int iteration = iterations - 1; iteration >= 0; --iteration) {
                int j_2 = j - iteration;
                const double dx_3 = gpuad_exch(&dx[r * n + (long long)(j_2 + 1)], 0.0);
                atomicAdd(&dx[r * n + (long long)j_2], dx_3);
            }
            atomicAdd(&dx[r * n + (long long)i], dx_2);
        }
    }
}

// adjoint of `insertion_sort`
//   saved      x                    copy     needed by insertion_sort.cu:37:22, overwritten by insertion_sort.cu:40:13
//   not saved  smallest                      no derivative needs what was overwritten
//   stack      j_saved              scratch  an entry an iteration, needed by insertion_sort.cu:36:5
//   stack      iterations_saved     scratch  an entry an iteration, needed by insertion_sort.cu:36:5
//   shadow     dx                   atomic   it is not proved that no two threads meet in one element (insertion_sort.cu:46:44)
//   shadow     dsmallest            plain    no two threads touch one element (insertion_sort.cu:47:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
