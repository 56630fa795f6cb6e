// gpuad: adjoint of `logistic_map` (recurrence.cu:71:28), for Duplicated x; Const rows, n.
// 1. put the seeds into dx.
// 2. launch logistic_map_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch.
// Holds where no two threads touch one element of dx, as for grid (2, 1, 1), block (8, 1, 1), rows = 12, n = 8.

extern "C" __global__ void logistic_map_reverse(const double* x, double* dx, int rows, int n)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        for (int t = n - 1; t >= 1; --t) {
            const double before = x[r * n + t - 1];
            const double dx_2 = dx[r * n + t];
            const double dx_3 = 0.9 * dx_2;
            dx[r * n + t] = 0.1 * dx_2;
            dx[r * n + t - 1] += 3.2 * ((1.0 - before) * dx_3) - 3.2 * (before * dx_3);
        }
    }
}

// adjoint of `logistic_map`
//   not saved  x                             needed by recurrence.cu:75:25, read as this launch leaves it
//   shadow     dx                   plain    no two threads touch one element (recurrence.cu:76:9)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
