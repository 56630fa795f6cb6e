// gpuad: adjoint of `involution` (involution.cu:22:28), for Duplicated x, weight, y; Const n, share, height, width, window.
// 1. put the seeds into dy. dx, dweight are added to: clear first.
// 2. launch involution_gather with grid (1, 10, 2) and the block of involution, threads_x = 10, threads_y = 9.
// 3. launch involution_reverse with the same grid and block.
// On exit dy holds the adjoint of the state before the launch; dx, dweight have grown by the gradient.
// Holds where no two threads touch one element of dy
// and the gather's threads do not meet in dweight, dx, as for grid (6, 1, 1), block (64, 1, 1), n = 360, share = 2, height = 9, width = 10, window = 3.

extern "C" __global__ void involution_gather(
    int n, const float* x, float* dx, const float* weight, float* dweight, const float* dy, int share,
    int height, int width, int window, int threads_x, int threads_y)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int group = blockIdx.z * blockDim.z + threadIdx.z;
    for (int digit = 0; digit < share; ++digit) {
        float dx_2 = 0.0f;
        for (int a = 0; a < window; ++a) {
            if (row - a >= 0 && row - a < threads_y) {
                for (int b = 0; b < window; ++b) {
                    if (column + window / 2 - b >= 0 && column + window / 2 - b < threads_x
                            && ((group * share + digit) * height + (row - a)) * width + (column + window / 2 - b) < n) {
                        int there_row = row - window / 2;
                        if (there_row >= 0 && there_row < height && column < width) {
                            dx_2 += weight[(((group * window + a) * window + b) * height + (row - a)) * width
                                + (column + window / 2 - b)] * dy[((group * share + digit) * height + (row - a))
                                * width + (column + window / 2 - b)];
                        }
                    }
                }
            }
        }
        if (dx_2 != 0.0f) {
            dx[height * share * width * group + width * row + column
                + (digit * height * width - window / 2 * width)] += dx_2;
        }
    }
    for (int a = 0; a < window; ++a) {
        for (int b = 0; b < window; ++b) {
            float dweight_2 = 0.0f;
            if (column < threads_x && row < threads_y) {
                for (int digit = 0; digit < share; ++digit) {
                    if (((group * share + digit) * height + row) * width + column < n) {
                        int there_row = row + a - window / 2;
                        int there_column = column + b - window / 2;
                        if (there_row >= 0 && there_row < height && there_column >= 0 && there_column < width) {
                            dweight_2 += x[((group * share + digit) * height + there_row) * width + there_column]
                                * dy[((group * share + digit) * height + row) * width + column];
                        }
                    }
                }
            }
            if (dweight_2 != 0.0f) {
                dweight[height * width * window * window * group + width * row + column
                    + (a * height * width * window + b * height * width)] += dweight_2;
            }
        }
    }
}

extern "C" __global__ void involution_reverse(
    int n, const float* x, const float* dx, const float* weight, const float* dweight, const float* y,
    float* dy, int share, int height, int width, int window)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        dy[i] = 0.0f;
    }
}

// adjoint of `involution`
//   not saved  x                             never overwritten by this launch
//   not saved  weight                        never overwritten by this launch
//   not saved  y                             no derivative needs what was overwritten
//   shadow     dx                   gather   each thread of involution_gather collects for an element of its own (involution.cu:32:28)
//   shadow     dweight              gather   each thread of involution_gather collects for an element of its own (involution.cu:31:28)
//   shadow     dy                   plain    no two threads touch one element (involution.cu:36:9)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
