// gpuad: adjoint of `relu_bias` (relu_bias.cu:31:28), for Duplicated x, bias; Const rows, columns.
// 1. before relu_bias runs, copy x to x_saved (all that it may touch).
// 2. put the seeds into dx. dbias is added to: clear first.
// 3. launch relu_bias_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch; dbias has grown by the gradient.
// Compile relu_bias and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dx, as for grid (1, 20, 1), block (32, 1, 1), rows = 20, columns = 30.

extern "C" __global__ void relu_bias_reverse(
    const float* x, float* dx, const float* bias, float* dbias, int rows, int columns, const float* x_saved)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && column < columns) {
        const float value = x_saved[row * columns + column] + bias[column];
        const float dx_2 = dx[row * columns + column];
        const float dvalue = value > 0.0f ? dx_2 : 0.01f * dx_2;
        atomicAdd(&dbias[column], dvalue);
        dx[row * columns + column] = dvalue;
    }
}

// adjoint of `relu_bias`
//   saved      x                    copy     needed by relu_bias.cu:35:19, overwritten by relu_bias.cu:36:5
//   not saved  bias                          never overwritten by this launch
//   shadow     dx                   plain    no two threads touch one element (relu_bias.cu:36:5)
//   shadow     dbias                atomic   it is not proved that no two threads meet in one element (relu_bias.cu:35:47)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
