// gpuad: adjoint of `projection` (projection.cu:19:28), for Duplicated image, sinogram; Const angle, n, detectors, step.
// 1. put the seeds into dsinogram. dimage is added to: clear first.
// 2. launch projection_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32).
// 3. travelled_saved_base[0] = 0; travelled_saved_base[g + 1] = travelled_saved_base[g] + 32 * (greatest travelled_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of travelled_saved.
// 4. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 5. launch projection_reverse with the same grid and block.
// On exit dsinogram holds the adjoint of the state before the launch; dimage has grown by the gradient.
// Compile projection and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dsinogram, as for grid (1, 7, 1), block (32, 1, 1), n = 16, detectors = 19.

extern "C" __global__ void projection_count(
    const float* image, const float* angle, const float* sinogram, int n, int detectors, float step,
    int* travelled_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    int d = blockIdx.x * blockDim.x + threadIdx.x;
    if (d < detectors) {
        const float reach = 0.75f * n;
        float travelled = -reach;
        while (travelled < reach) {
            travelled += step;
            ++depth;
            deepest = max(deepest, depth);
        }
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    travelled_saved_depth[thread] = deepest;
}

extern "C" __global__ void projection_reverse(
    const float* image, float* dimage, const float* angle, const float* sinogram, float* dsinogram, int n,
    int detectors, float step, const long long* travelled_saved_base, float* travelled_saved,
    int* gpuad_overflow)
{
    int travelled_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long travelled_saved_base_end = travelled_saved_base[thread / 32LL + 1LL];
    long long travelled_saved_base_lane = travelled_saved_base[thread / 32LL] + thread % 32LL;
    int d = blockIdx.x * blockDim.x + threadIdx.x;
    int a = blockIdx.y * blockDim.y + threadIdx.y;
    if (d < detectors) {
        const float angle_2 = angle[a];
        const float direction_x = cosf(angle_2);
        const float direction_y = sinf(angle_2);
        const float offset = d - 0.5f * (detectors - 1);
        const float half = 0.5f * (n - 1);
        const float reach = 0.75f * n;
        float travelled = -reach;
        int iterations = 0;
        while (travelled < reach) {
            const float travelled_2 = travelled + step;
            long long travelled_at = travelled_saved_base_lane + travelled_top * 32LL;
            if (travelled_at < travelled_saved_base_end) {
                travelled_saved[travelled_at] = travelled;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++travelled_top;
            travelled = travelled_2;
            ++iterations;
        }
        const float dsinogram_2 = dsinogram[a * detectors + d];
        dsinogram[a * detectors + d] = 0.0f;
        const float dsum = step * dsinogram_2;
        for (int iteration = iterations - 1; iteration >= 0; --iteration) {
            --travelled_top;
            const float travelled_2 = travelled_saved[travelled_saved_base_lane + travelled_top * 32LL];
            const float x = half + travelled_2 * direction_x - offset * direction_y;
            const float y = half + travelled_2 * direction_y + offset * direction_x;
            if (!(x < 0.0f || y < 0.0f)) {
                int x0 = (int)x;
                int y0 = (int)y;
                if (x0 < n - 1 && y0 < n - 1) {
                    const float fx = x - x0;
                    const float fy = y - y0;
                    const float dsum_2 = (1.0f - fy) * dsum;
                    const float dsum_3 = fy * dsum;
                    atomicAdd(&dimage[y0 * n + x0 + (long long)(n + 1)], fx * dsum_3);
                    atomicAdd(&dimage[y0 * n + x0 + (long long)n], (1.0f - fx) * dsum_3);
                    atomicAdd(&dimage[y0 * n + x0 + 1LL], fx * dsum_2);
                    atomicAdd(&dimage[y0 * n + x0], (1.0f - fx) * dsum_2);
                }
            }
        }
    }
}

// adjoint of `projection`
//   not saved  image                         never overwritten by this launch
//   not saved  angle                         never overwritten by this launch
//   not saved  sinogram                      no derivative needs what was overwritten
//   stack      travelled_saved      scratch  an entry an iteration, needed by projection.cu:27:5
//   shadow     dimage               atomic   it is not proved that no two threads meet in one element (projection.cu:36:112)
//   shadow     dsinogram            plain    no two threads touch one element (projection.cu:38:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
