// gpuad: adjoint of `softmax` (softmax.cu:16:28), for Duplicated x; Const rows, n.
// 1. before softmax runs, copy x to x_saved (all that it may touch).
// 2. put the seeds into dx.
// 3. launch softmax_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch.
// Holds where no two threads touch one element of dx, as for grid (2, 1, 1), block (16, 1, 1), rows = 25, n = 17.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void softmax_reverse(const float* x, float* dx, int rows, int n, const float* x_saved)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float largest = x_saved[r * n];
        int largest_at = 0;
        for (int k = 1; k < n; ++k) {
            const float x_2 = x_saved[r * n + (long long)k];
            const float largest_2 = fmaxf(largest, x_2);
            largest_at = largest >= x_2 || x_2 != x_2 ? largest_at : k;
            largest = largest_2;
        }
        float sum = 0.0f;
        for (int k = 0; k < n; ++k) {
            const float x_2 = expf(x_saved[r * n + (long long)k] - largest);
            sum += x_2;
        }
        float dsum = 0.0f;
        for (int k = 0; k < n; ++k) {
            float x_2 = x[r * n + (long long)k];  // the quotient is still there
            const float dx_2 = gpuad_chain(dx[r * n + (long long)k], 1.0f / sum);
            dx[r * n + (long long)k] = dx_2;
            x_2 *= sum;
            dsum -= gpuad_chain(dx_2, x_2 / sum);
        }
        float dlargest = 0.0f;
        for (int k = 0; k < n; ++k) {
            const float x_2 = x[r * n + (long long)k];  // the quotient is still there
            const float dx_2 = gpuad_chain(dsum + dx[r * n + (long long)k], x_2 * sum);
            dx[r * n + (long long)k] = dx_2;
            dlargest -= dx_2;
        }
        if (largest_at >= 1 && largest_at < n) {
            dx[r * n + (long long)largest_at] += dlargest;
        }
        dx[r * n] += largest_at != 0 ? 0.0f : dlargest;
    }
}

// adjoint of `softmax`
//   saved      x                    copy     needed by softmax.cu:20:21, overwritten by softmax.cu:24:9
//   shadow     dx                   plain    no two threads touch one element (softmax.cu:27:33)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
