// gpuad: adjoint of `separable` (separable.cu:22:28), for Duplicated padded, vertical, horizontal, output; Const n, height, width, taps.
// 1. put the seeds into doutput. dpadded, dvertical, dhorizontal are added to: clear first.
// 2. launch separable_gather with grid (1, 13, 5) and the block of separable, threads_x = 12, threads_y = 9, threads_z = 4.
// 3. launch separable_reverse with the same grid and block.
// On exit doutput holds the adjoint of the state before the launch; dpadded, dvertical, dhorizontal have grown by the gradient.
// Holds where no two threads touch one element of doutput
// and the gather's threads do not meet in dhorizontal, dpadded, dvertical, as for grid (6, 1, 1), block (64, 1, 1), n = 324, height = 9, width = 12, taps = 5.

extern "C" __global__ void separable_gather(
    int n, const float* padded, float* dpadded, const float* vertical, float* dvertical,
    const float* horizontal, float* dhorizontal, const float* doutput, int height, int width, int taps,
    int threads_x, int threads_y, int threads_z)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int c = blockIdx.z * blockDim.z + threadIdx.z;
    float dhorizontal_2 = 0.0f;
    float dvertical_2 = 0.0f;
    float dpadded_2 = 0.0f;
    if (x < threads_x && y < threads_y && c < taps) {
        for (int v = 0; v < taps; ++v) {
            for (int c_2 = 0; c_2 < threads_z; ++c_2) {
                if ((c_2 * height + y) * width + x < n) {
                    int pitch = width + taps - 1;
                    int rows = height + taps - 1;
                    dhorizontal_2 += padded[(c_2 * rows + y + v) * pitch + x + c]
                        * vertical[(v * height + y) * width + x] * doutput[(c_2 * height + y) * width + x];
                }
            }
            for (int c_2 = 0; c_2 < threads_z; ++c_2) {
                if ((c_2 * height + y) * width + x < n) {
                    dvertical_2 += padded[(c_2 * (height + taps - 1) + y + c) * (width + taps - 1) + x + v]
                        * (horizontal[(v * height + y) * width + x] * doutput[(c_2 * height + y) * width + x]);
                }
            }
        }
    }
    for (int v = 0; v < taps; ++v) {
        if (y - v >= 0 && y - v < threads_y) {
            for (int h = 0; h < taps; ++h) {
                if (x - h >= 0 && x - h < threads_x && (c * height + (y - v)) * width + (x - h) < n) {
                    dpadded_2 += vertical[(v * height + (y - v)) * width + (x - h)]
                        * (horizontal[(h * height + (y - v)) * width + (x - h)]
                        * doutput[(c * height + (y - v)) * width + (x - h)]);
                }
            }
        }
    }
    if (dhorizontal_2 != 0.0f) {
        dhorizontal[(c * height + y) * width + x] += dhorizontal_2;
    }
    if (dvertical_2 != 0.0f) {
        dvertical[(c * height + y) * width + x] += dvertical_2;
    }
    if (dpadded_2 != 0.0f) {
        dpadded[(height * taps + height * width + taps * taps + taps * width + 1 - height - 2 * taps - width) * c
            + (taps + width - 1) * y + x] += dpadded_2;
    }
}

extern "C" __global__ void separable_reverse(
    int n, const float* padded, const float* dpadded, const float* vertical, const float* dvertical,
    const float* horizontal, const float* dhorizontal, const float* output, float* doutput, int height,
    int width, int taps)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        doutput[i] = 0.0f;
    }
}

// adjoint of `separable`
//   not saved  padded                        never overwritten by this launch
//   not saved  vertical                      never overwritten by this launch
//   not saved  horizontal                    never overwritten by this launch
//   not saved  output                        no derivative needs what was overwritten
//   shadow     dpadded              gather   each thread of separable_gather collects for an element of its own (separable.cu:31:20)
//   shadow     dvertical            gather   each thread of separable_gather collects for an element of its own (separable.cu:31:65)
//   shadow     dhorizontal          gather   each thread of separable_gather collects for an element of its own (separable.cu:31:106)
//   shadow     doutput              plain    no two threads touch one element (separable.cu:34:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
