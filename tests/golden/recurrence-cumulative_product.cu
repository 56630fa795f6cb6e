// gpuad: adjoint of `cumulative_product` (recurrence.cu:61:28), for Duplicated x; Const rows, n.
// 1. before cumulative_product runs, copy x to x_saved (all that it may touch).
// 2. put the seeds into dx.
// 3. launch cumulative_product_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch.
// Holds where no two threads touch one element of dx, as for grid (2, 1, 1), block (8, 1, 1), rows = 12, n = 30.

extern "C" __global__ void cumulative_product_reverse(
    const double* x, double* dx, int rows, int n, const double* x_saved)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        double dproduct = 0.0;
        for (int t = n - 1; t >= 0; --t) {
            double product = 1.0;
            if (t != 0) {
                product = x[r * n + (t - 1)];  // the result is still there
            }
            const double x_2 = x_saved[r * n + t];
            dproduct += dx[r * n + t];
            dx[r * n + t] = product * dproduct;
            dproduct *= x_2;
        }
    }
}

// adjoint of `cumulative_product`
//   saved      x                    copy     needed by recurrence.cu:66:20, overwritten by recurrence.cu:67:9
//   shadow     dx                   plain    no two threads touch one element (recurrence.cu:67:9)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
