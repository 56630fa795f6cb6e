// gpuad: adjoint of `csr_spmv` (csr_spmv.cu:20:28), for Duplicated value, x, y; Const row, column, rows.
// 1. put the seeds into dy. dvalue, dx are added to: clear first.
// 2. launch csr_spmv_reverse with the same grid and block.
// On exit dy holds the adjoint of the state before the launch; dvalue, dx have grown by the gradient.
// Holds where no two threads touch one element of dy, as for grid (2, 1, 1), block (32, 1, 1), rows = 60.

extern "C" __global__ void csr_spmv_reverse(
    const int* row, const int* column, const float* value, float* dvalue, const float* x, float* dx,
    const float* y, float* dy, int rows)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows) {
        int k = row[i];
        int row_2 = row[i + 1];
        const float dy_2 = dy[i];
        dy[i] = 0.0f;
        for (int k_2 = k; k_2 < row_2; ++k_2) {
            int column_2 = column[k_2];
            const float x_2 = x[column_2];
            atomicAdd(&dx[column_2], value[k_2] * dy_2);
            atomicAdd(&dvalue[k_2], x_2 * dy_2);
        }
    }
}

// adjoint of `csr_spmv`
//   not saved  row                           never overwritten by this launch
//   not saved  column                        never overwritten by this launch
//   not saved  value                         never overwritten by this launch
//   not saved  x                             never overwritten by this launch
//   not saved  y                             no derivative needs what was overwritten
//   shadow     dvalue               atomic   it is not proved that no two threads meet in one element (csr_spmv.cu:25:20)
//   shadow     dx                   atomic   its index is read from `column`, so that two threads may meet in one element (csr_spmv.cu:25:31)
//   shadow     dy                   plain    no two threads touch one element (csr_spmv.cu:27:9)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
//   assumed    csr_spmv.cu:25:31: an index of `x` is data, taken to be in bounds
