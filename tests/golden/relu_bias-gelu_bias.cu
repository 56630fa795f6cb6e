// gpuad: adjoint of `gelu_bias` (relu_bias.cu:39:28), for Duplicated x, bias; Const columns, count.
// 1. before gelu_bias runs, copy x to x_saved (all that it may touch).
// 2. put the seeds into dx. dbias is added to: clear first.
// 3. launch gelu_bias_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch; dbias has grown by the gradient.
// Holds where no two threads touch one element of dx, as for grid (5, 1, 1), block (128, 1, 1), columns = 30, count = 600.

extern "C" __global__ void gelu_bias_reverse(
    const float* x, float* dx, const float* bias, float* dbias, int columns, int count, const float* x_saved)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        const float v = x_saved[i] + bias[i % columns];
        const float dx_2 = dx[i];
        const float dx_3 = 0.7978846f * (1.0f / coshf(0.7978846f * (v + 0.044715f * v * v * v))
            * (1.0f / coshf(0.7978846f * (v + 0.044715f * v * v * v))) * (0.5f * (v * dx_2)));
        const float dv = 0.5f * ((1.0f + tanhf(0.7978846f * (v + 0.044715f * v * v * v))) * dx_2) + dx_3
            + 3.0f * (0.044715f * (v * (v * dx_3)));
        atomicAdd(&dbias[i % columns], dv);
        dx[i] = dv;
    }
}

// adjoint of `gelu_bias`
//   saved      x                    copy     needed by relu_bias.cu:42:15, overwritten by relu_bias.cu:43:5
//   not saved  bias                          never overwritten by this launch
//   shadow     dx                   plain    no two threads touch one element (relu_bias.cu:43:5)
//   shadow     dbias                atomic   it is not proved that no two threads meet in one element (relu_bias.cu:42:22)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
