// gpuad: adjoint of `softmax` (softmax.cu:16:28), for Duplicated x; Const rows, n.
// 1. before softmax runs, copy x to x_saved (all that it may touch). x_saved will be overwritten.
// 2. put the seeds into dx.
// 3. launch softmax_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32). It overwrites the copies: give it copies of its own.
// 4. choice_saved_base[0] = 0; choice_saved_base[g + 1] = choice_saved_base[g] + 32 * (greatest choice_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of choice_saved.
// 5. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 6. launch softmax_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch.
// Holds where no two threads touch one element of dx, as for grid (2, 1, 1), block (16, 1, 1), rows = 25, n = 17.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void softmax_count(
    const float* x, int rows, int n, const float* x_saved, int* choice_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        for (int k = 1; k < n; ++k) {
            ++depth;
            deepest = max(deepest, depth);
        }
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    choice_saved_depth[thread] = deepest;
}

extern "C" __global__ void softmax_reverse(
    const float* x, float* dx, int rows, int n, float* x_saved, const long long* choice_saved_base,
    bool* choice_saved, int* gpuad_overflow)
{
    int choice_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long choice_saved_base_end = choice_saved_base[thread / 32LL + 1LL];
    long long choice_saved_base_lane = choice_saved_base[thread / 32LL] + thread % 32LL;
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float largest = x_saved[r * n];
        for (int k = 1; k < n; ++k) {
            const float x_2 = x_saved[r * n + (long long)k];
            const float largest_2 = fmaxf(largest, x_2);
            long long choice_at = choice_saved_base_lane + choice_top * 32LL;
            if (choice_at < choice_saved_base_end) {
                choice_saved[choice_at] = largest >= x_2 || x_2 != x_2;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++choice_top;
            largest = largest_2;
        }
        float sum = 0.0f;
        for (int k = 0; k < n; ++k) {
            const float x_2 = expf(x_saved[r * n + (long long)k] - largest);
            x_saved[r * n + (long long)k] = x_2;
            sum += x_2;
        }
        float dsum = 0.0f;
        for (int k = 0; k < n; ++k) {
            const float x_2 = x_saved[r * n + (long long)k];
            const float dx_2 = dx[r * n + (long long)k];
            dx[r * n + (long long)k] = gpuad_chain(dx_2, 1.0f / sum);
            dsum -= gpuad_chain(dx_2, x_2 / sum / sum);
        }
        float dlargest = 0.0f;
        for (int k = 0; k < n; ++k) {
            const float dx_2 = x_saved[r * n + (long long)k] * (dsum + dx[r * n + (long long)k]);
            dx[r * n + (long long)k] = dx_2;
            dlargest -= dx_2;
        }
        for (int k = n - 1; k >= 1; --k) {
            --choice_top;
            bool choice = choice_saved[choice_saved_base_lane + choice_top * 32LL];
            dx[r * n + (long long)k] += choice ? 0.0f : dlargest;
            dlargest = choice ? dlargest : 0.0f;
        }
        dx[r * n] += dlargest;
    }
}

// adjoint of `softmax`
//   saved      x                    copy     needed by softmax.cu:20:21, overwritten by softmax.cu:24:9
//   stack      choice_saved         scratch  an entry an iteration, needed by softmax.cu:21:5
//   shadow     dx                   plain    no two threads touch one element (softmax.cu:27:33)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
