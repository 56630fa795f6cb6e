// gpuad: adjoint of `dense` (dense.cu:21:28), for Duplicated x, weights, bias, y; Const batch, inputs, outputs.
// 1. put the seeds into dy. dx, dweights, dbias are added to: clear first.
// 2. launch dense_partials with the same grid and block, threads_x = 32. It fills dsum_partial, an element for each thread of the launch.
// 3. launch dense_gather with grid (2, 4, 1) and the block of dense, threads_x = 32.
// 4. launch dense_reverse with the same grid and block, threads_x = 32.
// On exit dy holds the adjoint of the state before the launch; dx, dweights, dbias have grown by the gradient.
// Holds where no two threads touch one element of dy
// and the gather's threads do not meet in dweights, dx, as for grid (2, 4, 1), block (16, 4, 1), batch = 13, inputs = 10, outputs = 18.

extern "C" __global__ void dense_partials(
    const float* x, const float* weights, const float* bias, const float* dy, int batch, int inputs,
    int outputs, float* dsum_partial, int threads_x)
{
    int unit = blockIdx.x * blockDim.x + threadIdx.x;
    int sample = blockIdx.y * blockDim.y + threadIdx.y;
    if (unit < outputs && sample < batch) {
        float sum = bias[unit];
        for (int i = 0; i < inputs; ++i) {
            sum += x[sample * inputs + i] * weights[i * outputs + unit];
        }
        const float dy_2 = dy[sample * outputs + unit];
        const float dsum = 0.5f * ((1.0f + erff(sum * 0.70710677f)) * dy_2)
            + 0.70710677f * (0.5641896f * (expf(-(sum * 0.70710677f * (sum * 0.70710677f))) * (sum * dy_2)));
        dsum_partial[sample * threads_x + unit] = dsum;
    }
}

extern "C" __global__ void dense_gather(
    const float* x, float* dx, const float* weights, float* dweights, int batch, int inputs, int outputs,
    const float* dsum_partial, int threads_x)
{
    int x_2 = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    float dweights_2 = 0.0f;
    float dx_2 = 0.0f;
    if (y < inputs && x_2 < outputs) {
        for (int sample = 0; sample < batch; ++sample) {
            dweights_2 += x[sample * inputs + y] * dsum_partial[sample * threads_x + x_2];
        }
    }
    if (x_2 < inputs && y < batch) {
        for (int unit = 0; unit < outputs; ++unit) {
            dx_2 += weights[x_2 * outputs + unit] * dsum_partial[y * threads_x + unit];
        }
    }
    if (dweights_2 != 0.0f) {
        dweights[y * outputs + x_2] += dweights_2;
    }
    if (dx_2 != 0.0f) {
        dx[inputs * y + x_2] += dx_2;
    }
}

extern "C" __global__ void dense_reverse(
    const float* x, const float* dx, const float* weights, const float* dweights, const float* bias,
    float* dbias, const float* y, float* dy, int batch, int inputs, int outputs, const float* dsum_partial,
    int threads_x)
{
    int unit = blockIdx.x * blockDim.x + threadIdx.x;
    int sample = blockIdx.y * blockDim.y + threadIdx.y;
    if (unit < outputs && sample < batch) {
        dy[sample * outputs + unit] = 0.0f;
        atomicAdd(&dbias[unit], dsum_partial[sample * threads_x + unit]);
    }
}

// adjoint of `dense`
//   not saved  x                             never overwritten by this launch
//   not saved  weights                       never overwritten by this launch
//   not saved  bias                          never overwritten by this launch
//   not saved  y                             no derivative needs what was overwritten
//   partial    dsum_partial         scratch  an element a thread, dense.cu:26:5, for those that gather
//   shadow     dx                   gather   each thread of dense_gather collects for an element of its own (dense.cu:26:45)
//   shadow     dweights             gather   each thread of dense_gather collects for an element of its own (dense.cu:26:70)
//   shadow     dbias                atomic   it is not proved that no two threads meet in one element (dense.cu:25:17)
//   shadow     dy                   plain    no two threads touch one element (dense.cu:27:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
