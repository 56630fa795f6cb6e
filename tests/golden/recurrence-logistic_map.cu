// gpuad: adjoint of `logistic_map` (recurrence.cu:71:28), for Duplicated x; Const rows, n.
// 1. before logistic_map runs, copy x to x_saved (all that it may touch). x_saved will be overwritten.
// 2. put the seeds into dx.
// 3. launch logistic_map_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch.
// Holds where no two threads touch one element of dx, as for grid (2, 1, 1), block (8, 1, 1), rows = 12, n = 8.

extern "C" __global__ void logistic_map_reverse(const double* x, double* dx, int rows, int n, double* x_saved)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        for (int t = 1; t < n; ++t) {
            const double before = x_saved[r * n + t - 1];
            x_saved[r * n + t] = 0.1 * x_saved[r * n + t] + 3.2 * before * (1.0 - before) * 0.9;
        }
        for (int t = n - 1; t >= 1; --t) {
            const double before = x_saved[r * n + t - 1];
            const double dx_2 = dx[r * n + t];
            const double dx_3 = 0.9 * dx_2;
            dx[r * n + t] = 0.1 * dx_2;
            dx[r * n + t - 1] += 3.2 * ((1.0 - before) * dx_3) - 3.2 * (before * dx_3);
        }
    }
}

// adjoint of `logistic_map`
//   saved      x                    copy     needed by recurrence.cu:75:25, overwritten by recurrence.cu:76:9
//   shadow     dx                   plain    no two threads touch one element (recurrence.cu:76:9)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
