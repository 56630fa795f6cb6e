// gpuad: adjoint of `convolve_channels` (convolution.cu:82:28), for Duplicated x, weight, bias, y; Const inputs, height, width.
// 1. put the seeds into dy. dx, dweight, dbias are added to: clear first.
// 2. launch convolve_channels_partials with the same grid and block, threads_x = 24, threads_y = 16. It fills dsum_partial, an element for each thread of the launch.
// 3. launch convolve_channels_gather with grid (3, 2, 4) and the block of convolve_channels, threads_x = 24, threads_y = 16, threads_z = 4.
// 4. launch convolve_channels_reverse with the same grid and block, threads_x = 24, threads_y = 16.
// On exit dy holds the adjoint of the state before the launch; dx, dweight, dbias have grown by the gradient.
// Compile convolve_channels and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dy
// and the gather's threads do not meet in dweight, dx, as for grid (3, 2, 4), block (8, 8, 1), inputs = 3, height = 13, width = 18.

extern "C" __global__ void convolve_channels_partials(
    const float* x, const float* weight, const float* bias, const float* dy, int inputs, int height,
    int width, float* dsum_partial, int threads_x, int threads_y)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int out = blockIdx.z;
    if (row < height - 2 && column < width - 2) {
        float sum = bias[out];
        for (int in = 0; in < inputs; ++in) {
            for (int dy_2 = 0; dy_2 < 3; ++dy_2) {
                for (int dx = 0; dx < 3; ++dx) {
                    sum += weight[((out * inputs + in) * 3 + dy_2) * 3 + dx]
                        * x[(in * height + row + dy_2) * width + column + dx];
                }
            }
        }
        const float dy_2 = dy[(out * (height - 2) + row) * (width - 2) + column];
        const float dsum = sum > 0.0f ? dy_2 : 0.1f * dy_2;
        dsum_partial[(out * threads_y + row) * threads_x + column] = dsum;
    }
}

extern "C" __global__ void convolve_channels_gather(
    const float* x, float* dx, const float* weight, float* dweight, int inputs, int height, int width,
    const float* dsum_partial, int threads_x, int threads_y, int threads_z)
{
    int x_2 = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z * blockDim.z + threadIdx.z;
    float dx_2 = 0.0f;
    float dweight_2 = 0.0f;
    if (z < inputs) {
        for (int dy = 0; dy < 3; ++dy) {
            if (y - dy >= 0 && y - dy < height - 2) {
                for (int dx_3 = 0; dx_3 < 3; ++dx_3) {
                    if (x_2 - dx_3 >= 0 && x_2 - dx_3 < width - 2) {
                        for (int out = 0; out < threads_z; ++out) {
                            dx_2 += weight[((out * inputs + z) * 3 + dy) * 3 + dx_3]
                                * dsum_partial[(out * threads_y + (y - dy)) * threads_x + (x_2 - dx_3)];
                        }
                    }
                }
            }
        }
    }
    if (x_2 < 3) {
        for (int in = 0; in < inputs; ++in) {
            if (y - 3 * in >= 0 && y - 3 * in < 3) {
                for (int row = 0; row < height - 2; ++row) {
                    for (int column = 0; column < width - 2; ++column) {
                        dweight_2 += x[(in * height + row + (y - 3 * in)) * width + column + x_2]
                            * dsum_partial[(z * threads_y + row) * threads_x + column];
                    }
                }
            }
        }
    }
    if (dx_2 != 0.0f) {
        dx[height * width * z + width * y + x_2] += dx_2;
    }
    if (dweight_2 != 0.0f) {
        dweight[9 * inputs * z + 3 * y + x_2] += dweight_2;
    }
}

extern "C" __global__ void convolve_channels_reverse(
    const float* x, const float* dx, const float* weight, const float* dweight, const float* bias,
    float* dbias, const float* y, float* dy, int inputs, int height, int width, const float* dsum_partial,
    int threads_x, int threads_y)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int out = blockIdx.z;
    if (row < height - 2 && column < width - 2) {
        dy[(out * (height - 2) + row) * (width - 2) + column] = 0.0f;
        atomicAdd(&dbias[out], dsum_partial[(out * threads_y + row) * threads_x + column]);
    }
}

// adjoint of `convolve_channels`
//   not saved  x                             never overwritten by this launch
//   not saved  weight                        never overwritten by this launch
//   not saved  bias                          never overwritten by this launch
//   not saved  y                             no derivative needs what was overwritten
//   partial    dsum_partial         scratch  an element a thread, convolution.cu:89:5, for those that gather
//   shadow     dx                   gather   each thread of convolve_channels_gather collects for an element of its own (convolution.cu:92:74)
//   shadow     dweight              gather   each thread of convolve_channels_gather collects for an element of its own (convolution.cu:92:24)
//   shadow     dbias                atomic   it is not proved that no two threads meet in one element (convolution.cu:88:17)
//   shadow     dy                   plain    no two threads touch one element (convolution.cu:96:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
