// gpuad: adjoint of `cumulative_product` (recurrence.cu:61:28), for Duplicated x; Const rows, n.
// 1. before cumulative_product runs, copy x to x_saved (all that it may touch).
// 2. put the seeds into dx.
// 3. launch cumulative_product_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32).
// 4. product_saved_base[0] = 0; product_saved_base[g + 1] = product_saved_base[g] + 32 * (greatest product_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of product_saved.
// 5. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 6. launch cumulative_product_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch.
// Holds where no two threads touch one element of dx, as for grid (2, 1, 1), block (8, 1, 1), rows = 12, n = 30.

extern "C" __global__ void cumulative_product_count(
    const double* x, int rows, int n, const double* x_saved, int* product_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        for (int t = 0; t < n; ++t) {
            ++depth;
            deepest = max(deepest, depth);
        }
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    product_saved_depth[thread] = deepest;
}

extern "C" __global__ void cumulative_product_reverse(
    const double* x, double* dx, int rows, int n, const double* x_saved, const long long* product_saved_base,
    double* product_saved, int* gpuad_overflow)
{
    int product_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long product_saved_base_end = product_saved_base[thread / 32LL + 1LL];
    long long product_saved_base_lane = product_saved_base[thread / 32LL] + thread % 32LL;
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        double product = 1.0;
        for (int t = 0; t < n; ++t) {
            const double product_2 = product * x_saved[r * n + t];
            long long product_at = product_saved_base_lane + product_top * 32LL;
            if (product_at < product_saved_base_end) {
                product_saved[product_at] = product;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++product_top;
            product = product_2;
        }
        double dproduct = 0.0;
        for (int t = n - 1; t >= 0; --t) {
            --product_top;
            const double x_2 = x_saved[r * n + t];
            dproduct += dx[r * n + t];
            dx[r * n + t] = product_saved[product_saved_base_lane + product_top * 32LL] * dproduct;
            dproduct *= x_2;
        }
    }
}

// adjoint of `cumulative_product`
//   saved      x                    copy     needed by recurrence.cu:66:20, overwritten by recurrence.cu:67:9
//   stack      product_saved        scratch  an entry an iteration, needed by recurrence.cu:65:5
//   shadow     dx                   plain    no two threads touch one element (recurrence.cu:67:9)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
