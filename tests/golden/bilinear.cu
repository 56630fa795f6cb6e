// gpuad: adjoint of `bilinear` (bilinear.cu:26:28), for Duplicated image, px, py, sampled; Const height, width, points.
// 1. put the seeds into dsampled. dimage, dpx, dpy are added to: clear first.
// 2. launch bilinear_reverse with the same grid and block.
// On exit dsampled holds the adjoint of the state before the launch; dimage, dpx, dpy have grown by the gradient.
// Compile bilinear and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dpx, dpy, dsampled, as for grid (3, 1, 1), block (64, 1, 1), height = 18, width = 22, points = 130.

extern "C" __global__ void bilinear_reverse(
    const float* image, float* dimage, const float* px, float* dpx, const float* py, float* dpy,
    const float* sampled, float* dsampled, int height, int width, int points)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < points) {
        const float x = px[i];
        const float y = py[i];
        int x0 = (int)floorf(x);
        int y0 = (int)floorf(y);
        const float fx = x - x0;
        const float fy = y - y0;
        int high = width - 1;
        int clamp = 0;
        if (x0 >= 0) {
            clamp = x0 > high ? high : x0;
        }
        int value = x0 + 1;
        int high_2 = width - 1;
        int clamp_2 = 0;
        if (value >= 0) {
            clamp_2 = value > high_2 ? high_2 : value;
        }
        int high_3 = height - 1;
        int clamp_3 = 0;
        if (y0 >= 0) {
            clamp_3 = y0 > high_3 ? high_3 : y0;
        }
        int value_2 = y0 + 1;
        int high_4 = height - 1;
        int clamp_4 = 0;
        if (value_2 >= 0) {
            clamp_4 = value_2 > high_4 ? high_4 : value_2;
        }
        const float image_2 = image[clamp_3 * width + (long long)clamp];
        const float image_3 = image[clamp_3 * width + (long long)clamp_2];
        const float upper = image_2 * (1.0f - fx) + image_3 * fx;
        const float image_4 = image[clamp_4 * width + (long long)clamp];
        const float image_5 = image[clamp_4 * width + (long long)clamp_2];
        const float lower = image_4 * (1.0f - fx) + image_5 * fx;
        const float dsampled_2 = dsampled[i];
        dsampled[i] = 0.0f;
        const float dlower = fy * dsampled_2;
        atomicAdd(&dimage[clamp_4 * width + (long long)clamp_2], fx * dlower);
        atomicAdd(&dimage[clamp_4 * width + (long long)clamp], (1.0f - fx) * dlower);
        const float dupper = (1.0f - fy) * dsampled_2;
        atomicAdd(&dimage[clamp_3 * width + (long long)clamp_2], fx * dupper);
        atomicAdd(&dimage[clamp_3 * width + (long long)clamp], (1.0f - fx) * dupper);
        dpy[i] += lower * dsampled_2 - upper * dsampled_2;
        dpx[i] += image_5 * dlower - image_4 * dlower - image_2 * dupper + image_3 * dupper;
    }
}

// adjoint of `bilinear`
//   not saved  image                         never overwritten by this launch
//   not saved  px                            never overwritten by this launch
//   not saved  py                            never overwritten by this launch
//   not saved  sampled                       no derivative needs what was overwritten
//   shadow     dimage               atomic   it is not proved that no two threads meet in one element (bilinear.cu:36:48)
//   shadow     dpx                  plain    no two threads touch one element (bilinear.cu:29:15)
//   shadow     dpy                  plain    no two threads touch one element (bilinear.cu:29:26)
//   shadow     dsampled             plain    no two threads touch one element (bilinear.cu:37:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
