// gpuad: adjoint of `render` (volume.cu:46:28), for Duplicated density, palette, image; Const n, colours, width, height, tilt, step.
// 1. put the seeds into dimage. ddensity, dpalette are added to: clear first.
// 2. launch render_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32).
// 3. clear_saved_base[0] = 0; clear_saved_base[g + 1] = clear_saved_base[g] + 32 * (greatest clear_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of clear_saved, p_x_saved, p_z_saved.
// 4. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 5. launch render_reverse with the same grid and block.
// On exit dimage holds the adjoint of the state before the launch; ddensity, dpalette have grown by the gradient.
// Compile render and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dimage, as for grid (1, 2, 1), block (16, 4, 1), n = 8, colours = 4, width = 7, height = 6.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void render_count(
    const float* density, const float* palette, const float* image, int n, int colours, int width,
    int height, float tilt, float step, int* clear_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    int px = blockIdx.x * blockDim.x + threadIdx.x;
    int py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px < width && py < height) {
        float p_x = (px + 0.5f) * n / width;
        const float p_y = (py + 0.5f) * n / height;
        float clear = 1.0f;
        float p_z = 0.0f;
        bool broken = false;
        while (!broken && p_z < n - 1) {
            const float p_x_2 = fminf(fmaxf(p_x, 0.0f), n - 1.001f);
            const float p_y_2 = fminf(fmaxf(p_y, 0.0f), n - 1.001f);
            const float p_z_2 = fminf(fmaxf(p_z, 0.0f), n - 1.001f);
            int c_x = (int)p_x_2;
            int c_y = (int)p_y_2;
            int c_z = (int)p_z_2;
            const float f_x = p_x_2 - c_x;
            const float f_y = p_y_2 - c_y;
            const float f_z = p_z_2 - c_z;
            float sum = 0.0f;
            for (int k = 0; k < 8; ++k) {
                int dx = k & 1;
                int dy = k >> 1 & 1;
                int dz = k >> 2;
                const float weight = (dx != 0 ? f_x : 1.0f - f_x) * (dy != 0 ? f_y : 1.0f - f_y)
                    * (dz != 0 ? f_z : 1.0f - f_z);
                sum += weight * density[(c_z * n + c_y) * n + (long long)c_x + ((dz * n + dy) * n + dx)];
            }
            const float opacity = 1.0f - expf(-sum * step);
            clear *= 1.0f - opacity;
            if (!(clear < 0.05f)) {
                p_x += tilt * step;
                p_z += step;
                broken = false;
            } else {
                broken = true;
            }
            ++depth;
            deepest = max(deepest, depth);
        }
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    clear_saved_depth[thread] = deepest;
}

extern "C" __global__ void render_reverse(
    const float* density, float* ddensity, const float* palette, float* dpalette, const float* image,
    float* dimage, int n, int colours, int width, int height, float tilt, float step,
    const long long* clear_saved_base, float* clear_saved, float* p_x_saved, float* p_z_saved,
    int* gpuad_overflow)
{
    int clear_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long clear_saved_base_end = clear_saved_base[thread / 32LL + 1LL];
    long long clear_saved_base_lane = clear_saved_base[thread / 32LL] + thread % 32LL;
    int px = blockIdx.x * blockDim.x + threadIdx.x;
    int py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px < width && py < height) {
        float p_x = (px + 0.5f) * n / width;
        const float p_y = (py + 0.5f) * n / height;
        float clear = 1.0f;
        float p_z = 0.0f;
        bool broken = false;
        int iterations = 0;
        while (!broken && p_z < n - 1) {
            const float p_x_2 = fminf(fmaxf(p_x, 0.0f), n - 1.001f);
            const float p_y_2 = fminf(fmaxf(p_y, 0.0f), n - 1.001f);
            const float p_z_2 = fminf(fmaxf(p_z, 0.0f), n - 1.001f);
            int c_x = (int)p_x_2;
            int c_y = (int)p_y_2;
            int c_z = (int)p_z_2;
            const float f_x = p_x_2 - c_x;
            const float f_y = p_y_2 - c_y;
            const float f_z = p_z_2 - c_z;
            float sum = 0.0f;
            for (int k = 0; k < 8; ++k) {
                int dx = k & 1;
                int dy = k >> 1 & 1;
                int dz = k >> 2;
                const float weight = (dx != 0 ? f_x : 1.0f - f_x) * (dy != 0 ? f_y : 1.0f - f_y)
                    * (dz != 0 ? f_z : 1.0f - f_z);
                sum += weight * density[(c_z * n + c_y) * n + (long long)c_x + ((dz * n + dy) * n + dx)];
            }
            const float opacity = 1.0f - expf(-sum * step);
            const float clear_2 = clear * (1.0f - opacity);
            if (!(clear_2 < 0.05f)) {
                p_x += tilt * step;
                p_z += step;
                broken = false;
            } else {
                broken = true;
            }
            long long clear_at = clear_saved_base_lane + clear_top * 32LL;
            if (clear_at < clear_saved_base_end) {
                clear_saved[clear_at] = clear;
                p_x_saved[clear_at] = p_x_2;
                p_z_saved[clear_at] = p_z_2;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++clear_top;
            clear = clear_2;
            ++iterations;
        }
        const float dimage_2 = dimage[(py * width + px) * 4LL + 3LL];
        dimage[(py * width + px) * 4LL + 3LL] = 0.0f;
        const float dimage_3 = dimage[(py * width + px) * 4LL + 2LL];
        dimage[(py * width + px) * 4LL + 2LL] = 0.0f;
        const float dimage_4 = dimage[(py * width + px) * 4LL + 1LL];
        dimage[(py * width + px) * 4LL + 1LL] = 0.0f;
        const float dimage_5 = dimage[(py * width + px) * 4LL];
        dimage[(py * width + px) * 4LL] = 0.0f;
        float dclear = -dimage_2;
        for (int iteration = iterations - 1; iteration >= 0; --iteration) {
            --clear_top;
            const float clear_2 = clear_saved[clear_saved_base_lane + clear_top * 32LL];
            const float p_x_2 = p_x_saved[clear_saved_base_lane + clear_top * 32LL];
            const float p_z_2 = p_z_saved[clear_saved_base_lane + clear_top * 32LL];
            const float p_y_2 = fminf(fmaxf(p_y, 0.0f), n - 1.001f);
            int c_x = (int)p_x_2;
            int c_y = (int)p_y_2;
            int c_z = (int)p_z_2;
            const float f_x = p_x_2 - c_x;
            const float f_y = p_y_2 - c_y;
            const float f_z = p_z_2 - c_z;
            float sum = 0.0f;
            for (int k = 0; k < 8; ++k) {
                int dx = k & 1;
                int dy = k >> 1 & 1;
                int dz = k >> 2;
                sum += (dx != 0 ? f_x : 1.0f - f_x) * (dy != 0 ? f_y : 1.0f - f_y) * (dz != 0 ? f_z : 1.0f - f_z)
                    * density[(c_z * n + c_y) * n + (long long)c_x + ((dz * n + dy) * n + dx)];
            }
            const float opacity = 1.0f - expf(-sum * step);
            const float place = fminf(sum, 0.999f) * (colours - 1);
            int k = (int)place;
            const float f = place - k;
            const float a_x = palette[k * 4LL];
            const float a_y = palette[k * 4LL + 1LL];
            const float a_z = palette[k * 4LL + 2LL];
            const float b_x = palette[(k + 1) * 4LL];
            const float b_y = palette[(k + 1) * 4LL + 1LL];
            const float b_z = palette[(k + 1) * 4LL + 2LL];
            const float dpixel_z = (a_z + f * (b_z - a_z)) * dimage_3;
            const float dpixel_y = (a_y + f * (b_y - a_y)) * dimage_4;
            const float dpixel_x = (a_x + f * (b_x - a_x)) * dimage_5;
            const float dlight_z = clear_2 * opacity * dimage_3;
            const float dlight_z_2 = f * dlight_z;
            const float dlight_y = clear_2 * opacity * dimage_4;
            const float dlight_y_2 = f * dlight_y;
            const float dlight_x = clear_2 * opacity * dimage_5;
            const float dlight_x_2 = f * dlight_x;
            atomicAdd(&dpalette[(k + 1) * 4LL + 2LL], dlight_z_2);
            atomicAdd(&dpalette[(k + 1) * 4LL + 1LL], dlight_y_2);
            atomicAdd(&dpalette[(k + 1) * 4LL], dlight_x_2);
            atomicAdd(&dpalette[k * 4LL + 2LL], dlight_z - dlight_z_2);
            atomicAdd(&dpalette[k * 4LL + 1LL], dlight_y - dlight_y_2);
            atomicAdd(&dpalette[k * 4LL], dlight_x - dlight_x_2);
            const float dsum = (sum <= 0.999f ? (colours - 1)
                * ((b_z - a_z) * dlight_z + (b_y - a_y) * dlight_y + (b_x - a_x) * dlight_x) : 0.0f)
                + step * gpuad_chain(clear_2 * dpixel_z - clear_2 * dclear + clear_2 * dpixel_y + clear_2 * dpixel_x,
                expf(-sum * step));
            for (int k_2 = 0; k_2 < 8; ++k_2) {
                int dx = k_2 & 1;
                int dy = k_2 >> 1 & 1;
                int dz = k_2 >> 2;
                atomicAdd(&ddensity[(c_z * n + c_y) * n + (long long)c_x + ((dz * n + dy) * n + dx)],
                    (dx != 0 ? f_x : 1.0f - f_x) * (dy != 0 ? f_y : 1.0f - f_y) * (dz != 0 ? f_z : 1.0f - f_z) * dsum);
            }
            dclear = (1.0f - opacity) * dclear + opacity * dpixel_z + opacity * dpixel_y + opacity * dpixel_x;
        }
    }
}

// adjoint of `render`
//   not saved  density                       never overwritten by this launch
//   not saved  palette                       never overwritten by this launch
//   not saved  image                         no derivative needs what was overwritten
//   stack      clear_saved          scratch  an entry an iteration, needed by volume.cu:53:5
//   stack      p_x_saved            scratch  an entry an iteration, needed by volume.cu:53:5
//   stack      p_z_saved            scratch  an entry an iteration, needed by volume.cu:53:5
//   shadow     ddensity             atomic   it is not proved that no two threads meet in one element (volume.cu:33:25)
//   shadow     dpalette             atomic   it is not proved that no two threads meet in one element (volume.cu:42:32)
//   shadow     dimage               plain    no two threads touch one element (volume.cu:66:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
