// gpuad: adjoint of `softmax` (softmax.cu:16:28), for Duplicated x; Const rows, n.
// 1. before softmax runs, copy x to x_saved (all that it may touch). x_saved will be overwritten.
// 2. put the seeds into dx.
// 3. launch softmax_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32). It overwrites the copies: give it copies of its own.
// 4. largest_saved_base[0] = 0; largest_saved_base[g + 1] = largest_saved_base[g] + 32 * (greatest largest_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of largest_saved, x_saved.
// 5. x_saved_base[0] = 0; x_saved_base[g + 1] = x_saved_base[g] + 32 * (greatest x_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of x_saved.
// 6. x_saved_base[0] = 0; x_saved_base[g + 1] = x_saved_base[g] + 32 * (greatest x_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of x_saved.
// 7. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 8. launch softmax_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch.
// Holds where no two threads touch one element of dx, as for grid (2, 1, 1), block (16, 1, 1), rows = 25, n = 17.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void softmax_count(
    const float* x, int rows, int n, const float* x_saved, int* largest_saved_depth, int* x_saved_depth,
    int* x_saved_depth_2)
{
    int depth = 0;
    int depth_2 = 0;
    int depth_3 = 0;
    int deepest = 0;
    int deepest_2 = 0;
    int deepest_3 = 0;
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        for (int k = 1; k < n; ++k) {
            ++depth;
            deepest = max(deepest, depth);
        }
        for (int k = 0; k < n; ++k) {
            ++depth_2;
            deepest_2 = max(deepest_2, depth_2);
        }
        for (int k = 0; k < n; ++k) {
            ++depth_3;
            deepest_3 = max(deepest_3, depth_3);
        }
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    largest_saved_depth[thread] = deepest;
    x_saved_depth[thread] = deepest_2;
    x_saved_depth_2[thread] = deepest_3;
}

extern "C" __global__ void softmax_reverse(
    const float* x, float* dx, int rows, int n, float* x_saved, const long long* largest_saved_base,
    float* largest_saved, float* x_saved_2, const long long* x_saved_base, float* x_saved_3,
    const long long* x_saved_base_2, float* x_saved_4, int* gpuad_overflow)
{
    int largest_top = 0;
    int x_top = 0;
    int x_top_2 = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long largest_saved_base_end = largest_saved_base[thread / 32LL + 1LL];
    long long largest_saved_base_lane = largest_saved_base[thread / 32LL] + thread % 32LL;
    long long x_saved_base_end = x_saved_base[thread / 32LL + 1LL];
    long long x_saved_base_lane = x_saved_base[thread / 32LL] + thread % 32LL;
    long long x_saved_base_end_2 = x_saved_base_2[thread / 32LL + 1LL];
    long long x_saved_base_lane_2 = x_saved_base_2[thread / 32LL] + thread % 32LL;
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float largest = x_saved[r * n];
        for (int k = 1; k < n; ++k) {
            const float x_2 = x_saved[r * n + (long long)k];
            const float largest_2 = fmaxf(largest, x_2);
            long long largest_at = largest_saved_base_lane + largest_top * 32LL;
            if (largest_at < largest_saved_base_end) {
                largest_saved[largest_at] = largest;
                x_saved_2[largest_at] = x_2;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++largest_top;
            largest = largest_2;
        }
        float sum = 0.0f;
        for (int k = 0; k < n; ++k) {
            const float x_2 = x_saved[r * n + (long long)k];
            const float x_3 = expf(x_2 - largest);
            x_saved[r * n + (long long)k] = x_3;
            sum += x_saved[r * n + (long long)k];
            long long x_at = x_saved_base_lane + x_top * 32LL;
            if (x_at < x_saved_base_end) {
                x_saved_3[x_at] = x_2;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++x_top;
        }
        for (int k = 0; k < n; ++k) {
            const float x_2 = x_saved[r * n + (long long)k];
            x_saved[r * n + (long long)k] = x_2 / sum;
            long long x_at = x_saved_base_lane_2 + x_top_2 * 32LL;
            if (x_at < x_saved_base_end_2) {
                x_saved_4[x_at] = x_2;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++x_top_2;
        }
        float dsum = 0.0f;
        for (int k = n - 1; k >= 0; --k) {
            --x_top_2;
            const float x_2 = x_saved_4[x_saved_base_lane_2 + x_top_2 * 32LL];
            const float dx_2 = dx[r * n + (long long)k];
            dx[r * n + (long long)k] = gpuad_chain(dx_2, 1.0f / sum);
            dsum -= gpuad_chain(dx_2, x_2 / sum / sum);
        }
        float dlargest = 0.0f;
        for (int k = n - 1; k >= 0; --k) {
            --x_top;
            const float x_2 = x_saved_3[x_saved_base_lane + x_top * 32LL];
            dx[r * n + (long long)k] += dsum;
            const float dx_2 = expf(x_2 - largest) * dx[r * n + (long long)k];
            dx[r * n + (long long)k] = dx_2;
            dlargest -= dx_2;
        }
        for (int k = n - 1; k >= 1; --k) {
            --largest_top;
            const float largest_2 = largest_saved[largest_saved_base_lane + largest_top * 32LL];
            const float x_2 = x_saved_2[largest_saved_base_lane + largest_top * 32LL];
            dx[r * n + (long long)k] += largest_2 >= x_2 ? 0.0f : x_2 != x_2 ? 0.0f : dlargest;
            dlargest = largest_2 >= x_2 ? dlargest : x_2 != x_2 ? dlargest : 0.0f;
        }
        dx[r * n] += dlargest;
    }
}

// adjoint of `softmax`
//   saved      x                    copy     needed by softmax.cu:20:21, overwritten by softmax.cu:24:9
//   stack      largest_saved        scratch  an entry an iteration, needed by softmax.cu:21:5
//   stack      x_saved              scratch  an entry an iteration, needed by softmax.cu:21:5
//   stack      x_saved              scratch  an entry an iteration, needed by softmax.cu:23:5
//   stack      x_saved              scratch  an entry an iteration, needed by softmax.cu:27:5
//   shadow     dx                   plain    no two threads touch one element (softmax.cu:27:33)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
