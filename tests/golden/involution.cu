// gpuad: adjoint of `involution` (involution.cu:22:28), for Duplicated x, weight, y; Const n, share, height, width, window.
// 1. put the seeds into dy. dx, dweight are added to: clear first.
// 2. launch involution_reverse with the same grid and block.
// On exit dy holds the adjoint of the state before the launch; dx, dweight have grown by the gradient.
// Holds where no two threads touch one element of dy, as for grid (6, 1, 1), block (64, 1, 1), n = 360, share = 2, height = 9, width = 10, window = 3.

extern "C" __global__ void involution_reverse(
    int n, const float* x, float* dx, const float* weight, float* dweight, const float* y, float* dy,
    int share, int height, int width, int window)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        int c = i / height / width;
        int row = i / width % height;
        int column = i % width;
        int group = c / share;
        const float dy_2 = dy[i];
        dy[i] = 0.0f;
        for (int a = 0; a < window; ++a) {
            for (int b = 0; b < window; ++b) {
                int there_row = row + a - window / 2;
                int there_column = column + b - window / 2;
                if (there_row >= 0 && there_row < height && there_column >= 0 && there_column < width) {
                    const float x_2 = x[(c * height + there_row) * width + there_column];
                    atomicAdd(&dx[(c * height + there_row) * width + there_column],
                        weight[(((group * window + a) * window + b) * height + row) * width + column] * dy_2);
                    atomicAdd(&dweight[(((group * window + a) * window + b) * height + row) * width + column],
                        x_2 * dy_2);
                }
            }
        }
    }
}

// adjoint of `involution`
//   not saved  x                             never overwritten by this launch
//   not saved  weight                        never overwritten by this launch
//   not saved  y                             no derivative needs what was overwritten
//   shadow     dx                   atomic   it is not proved that no two threads meet in one element (involution.cu:32:28)
//   shadow     dweight              atomic   it is not proved that no two threads meet in one element (involution.cu:31:28)
//   shadow     dy                   plain    no two threads touch one element (involution.cu:36:9)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
