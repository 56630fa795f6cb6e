// gpuad: adjoint of `convolve_image` (convolution.cu:67:28), for Duplicated image, weight, filtered; Const height, width.
// 1. put the seeds into dfiltered. dimage, dweight are added to: clear first.
// 2. launch convolve_image_gather with grid (4, 3, 1) and the block of convolve_image.
// 3. launch convolve_image_reverse with the same grid and block.
// On exit dfiltered holds the adjoint of the state before the launch; dimage, dweight have grown by the gradient.
// Holds where no two threads touch one element of dfiltered
// and the gather's threads do not meet in dimage, as for grid (4, 3, 1), block (8, 8, 1), height = 21, width = 26.

extern "C" __global__ void convolve_image_gather(
    float* dimage, const float* weight, const float* dfiltered, int height, int width)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    float dimage_2 = 0.0f;
    if (y < height && x < width) {
        for (int dy = -1; dy < 2; ++dy) {
            if (y - dy >= 0 && y - dy < height) {
                for (int dx = -1; dx < 2; ++dx) {
                    if (x - dx >= 0 && x - dx < width) {
                        dimage_2 += weight[(dy + 1) * 3 + dx + 1] * dfiltered[(y - dy) * width + (x - dx)];
                    }
                }
            }
        }
    }
    if (dimage_2 != 0.0f) {
        dimage[y * width + x] += dimage_2;
    }
}

extern "C" __global__ void convolve_image_reverse(
    const float* image, const float* dimage, const float* weight, float* dweight, const float* filtered,
    float* dfiltered, int height, int width)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        const float dfiltered_2 = dfiltered[y * width + x];
        dfiltered[y * width + x] = 0.0f;
        for (int dy = -1; dy < 2; ++dy) {
            for (int dx = -1; dx < 2; ++dx) {
                int row = y + dy;
                int column = x + dx;
                const float pixel = row >= 0 && row < height && column >= 0 && column < width
                    ? image[row * width + column] : 0.0f;
                atomicAdd(&dweight[(dy + 1) * 3 + dx + 1], pixel * dfiltered_2);
            }
        }
    }
}

// adjoint of `convolve_image`
//   not saved  image                         never overwritten by this launch
//   not saved  weight                        never overwritten by this launch
//   not saved  filtered                      no derivative needs what was overwritten
//   shadow     dimage               gather   each thread of convolve_image_gather collects for an element of its own (convolution.cu:75:87)
//   shadow     dweight              atomic   it is not proved that no two threads meet in one element (convolution.cu:76:28)
//   shadow     dfiltered            plain    no two threads touch one element (convolution.cu:79:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
