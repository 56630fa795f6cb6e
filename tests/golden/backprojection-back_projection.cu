// gpuad: adjoint of `back_projection` (backprojection.cu:20:28), for Duplicated sinogram, image; Const angle, n, angles, detectors.
// 1. put the seeds into dimage. dsinogram is added to: clear first.
// 2. launch back_projection_reverse with the same grid and block.
// On exit dimage holds the adjoint of the state before the launch; dsinogram has grown by the gradient.
// Compile back_projection and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds for every grid and block.

extern "C" __global__ void back_projection_reverse(
    const float* sinogram, float* dsinogram, const float* angle, const float* image, const float* dimage,
    int n, int angles, int detectors)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < n && y < n) {
        const float from_x = x - 0.5f * (n - 1);
        const float from_y = y - 0.5f * (n - 1);
        const float dimage_2 = dimage[y * n + x];
        for (int a = 0; a < angles; ++a) {
            const float angle_2 = angle[a];
            const float place = from_y * cosf(angle_2) - from_x * sinf(angle_2) + 0.5f * (detectors - 1);
            int d = (int)floorf(place);
            if (d >= 0 && d + 1 < detectors) {
                const float right = place - d;
                atomicAdd(&dsinogram[a * detectors + d + 1], right * dimage_2);
                atomicAdd(&dsinogram[a * detectors + d], (1.0f - right) * dimage_2);
            }
        }
    }
}

// adjoint of `back_projection`
//   not saved  sinogram                      never overwritten by this launch
//   not saved  angle                         never overwritten by this launch
//   not saved  image                         no derivative needs what was overwritten
//   shadow     dsinogram            atomic   it is not proved that no two threads meet in one element (backprojection.cu:31:71)
//   shadow     dimage               plain    it is only read (backprojection.cu:33:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
