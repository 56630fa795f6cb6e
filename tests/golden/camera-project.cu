// gpuad: adjoint of `project` (camera.cu:46:28), for Duplicated points, pixels; Active camera_focal_0, camera_focal_1, camera_centre_0, camera_centre_1, camera_bend_0, camera_bend_1, camera_turn_0, camera_turn_1, camera_turn_2, camera_at_0, camera_at_1, camera_at_2, light_x, light_y, light_z; Const camera_flipped, pixels_int, n.
// 1. put the seeds into dpixels. dpoints, dcamera_focal_0, dcamera_focal_1, dcamera_centre_0, dcamera_centre_1, dcamera_bend_0, dcamera_bend_1, dcamera_turn_0, dcamera_turn_1, dcamera_turn_2, dcamera_at_0, dcamera_at_1, dcamera_at_2, dlight_x, dlight_y, dlight_z are added to: clear first.
// 2. launch project_reverse with the same grid and block.
// On exit dpixels holds the adjoint of the state before the launch; dpoints, dcamera_focal_0, dcamera_focal_1, dcamera_centre_0, dcamera_centre_1, dcamera_bend_0, dcamera_bend_1, dcamera_turn_0, dcamera_turn_1, dcamera_turn_2, dcamera_at_0, dcamera_at_1, dcamera_at_2, dlight_x, dlight_y, dlight_z have grown by the gradient.
// Compile project and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dpixels, dpoints, as for grid (3, 1, 1), block (32, 1, 1), camera_flipped = 1, n = 70.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

// Adds the sum of `value` over all threads of the block to *target, with one atomicAdd if it is not 0. Every thread of the block must make
// the call, with the same target; the block may have any shape. The sum is formed in double.
template <typename T>
__device__ inline void gpuad_block_sum(T* target, double value)
{
    __shared__ double partial[32];
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int threads = blockDim.x * blockDim.y * blockDim.z;
    const int lane = thread % 32;
    const int lanes = min(32, threads - (thread - lane));
    const unsigned int mask = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1u;
    for (int distance = 16; distance > 0; distance /= 2) {
        const double other = __shfl_down_sync(mask, value, distance);
        if (lane + distance < lanes) value += other;
    }
    if (lane == 0) partial[thread / 32] = value;
    __syncthreads();
    if (thread == 0) {
        for (int warp = 1; warp < (threads + 31) / 32; ++warp) value += partial[warp];
        if (value != 0.0) atomicAdd(target, (T)value);
    }
    __syncthreads();
}

extern "C" __global__ void project_reverse(
    const float* points, float* dpoints, float camera_focal_0, float* dcamera_focal_0, float camera_focal_1,
    float* dcamera_focal_1, float camera_centre_0, float* dcamera_centre_0, float camera_centre_1,
    float* dcamera_centre_1, float camera_bend_0, float* dcamera_bend_0, float camera_bend_1,
    float* dcamera_bend_1, float camera_turn_0, float* dcamera_turn_0, float camera_turn_1,
    float* dcamera_turn_1, float camera_turn_2, float* dcamera_turn_2, float camera_at_0,
    float* dcamera_at_0, float camera_at_1, float* dcamera_at_1, float camera_at_2, float* dcamera_at_2,
    int camera_flipped, float light_x, double* dlight_x, float light_y, double* dlight_y, float light_z,
    double* dlight_z, const float* pixels, float* dpixels, const int* pixels_int, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float dlight_z_2 = 0.0f;
    float dlight_y_2 = 0.0f;
    float dlight_x_2 = 0.0f;
    float dcamera_centre_1_2 = 0.0f;
    float dcamera_focal_1_2 = 0.0f;
    float dcamera_centre_0_2 = 0.0f;
    float dcamera_focal_0_2 = 0.0f;
    float dcamera_bend_0_2 = 0.0f;
    float dcamera_bend_1_2 = 0.0f;
    float dcamera_at_2_2 = 0.0f;
    float dcamera_at_1_2 = 0.0f;
    float dcamera_at_0_2 = 0.0f;
    float dcamera_turn_2_2 = 0.0f;
    float dcamera_turn_1_2 = 0.0f;
    float dcamera_turn_0_2 = 0.0f;
    if (i < n) {
        const float p_x = points[i * 3LL];
        const float p_y = points[i * 3LL + 1LL];
        const float p_z = points[i * 3LL + 2LL];
        const float angle = sqrtf(camera_turn_0 * camera_turn_0 + camera_turn_1 * camera_turn_1
            + camera_turn_2 * camera_turn_2) + 1.0e-6f;
        const float axis_x = camera_turn_0 / angle;
        const float axis_y = camera_turn_1 / angle;
        const float axis_z = camera_turn_2 / angle;
        const float c = cosf(angle);
        const float s = sinf(angle);
        const float along = (axis_x * p_x + axis_y * p_y + axis_z * p_z) * (1.0f - c);
        const float aside_x = axis_y * p_z - axis_z * p_y;
        const float aside_y = axis_z * p_x - axis_x * p_z;
        const float aside_z = axis_x * p_y - axis_y * p_x;
        float p_x_2 = c * p_x + s * aside_x + along * axis_x;
        float p_y_2 = c * p_y + s * aside_y + along * axis_y;
        float p_z_2 = c * p_z + s * aside_z + along * axis_z;
        p_x_2 += camera_at_0;
        p_y_2 += camera_at_1;
        p_z_2 += camera_at_2;
        const float u = p_x_2 / p_z_2;
        const float v = p_y_2 / p_z_2;
        const float r2 = u * u + v * v;
        const float stretch = 1.0f + r2 * (camera_bend_0 + r2 * camera_bend_1);
        const float value = camera_flipped != 0 ? -camera_focal_1 : camera_focal_1;
        const float way_x = light_x - p_x_2;
        const float way_y = light_y - p_y_2;
        const float way_z = light_z - p_z_2;
        const float pixels_2 = 1.0f / (1.0f + (way_x * way_x + way_y * way_y + way_z * way_z));
        float dpixels_2 = dpixels[i * 4LL + 2LL];
        dpixels[i * 4LL + 2LL] = 0.0f;
        dpixels_2 = -gpuad_chain(gpuad_chain(dpixels_2, pixels_2), pixels_2);
        const float dway_z = 2.0f * (way_z * dpixels_2);
        const float dway_y = 2.0f * (way_y * dpixels_2);
        const float dway_x = 2.0f * (way_x * dpixels_2);
        const float dpixels_3 = dpixels[i * 4LL + 1LL];
        dpixels[i * 4LL + 1LL] = 0.0f;
        const float dpixels_4 = v * dpixels_3;
        const float dvalue = stretch * dpixels_4;
        dcamera_focal_1_2 = camera_flipped != 0 ? -dvalue : dvalue;
        const float dpixels_5 = dpixels[i * 4LL];
        dpixels[i * 4LL] = 0.0f;
        const float dpixels_6 = u * dpixels_5;
        const float dstretch = value * dpixels_4 + camera_focal_0 * dpixels_6;
        const float dstretch_2 = r2 * dstretch;
        const float dr2 = (camera_bend_0 + r2 * camera_bend_1) * dstretch + camera_bend_1 * dstretch_2;
        const float dv = gpuad_chain(value * stretch * dpixels_3 + 2.0f * (v * dr2), 1.0f / p_z_2);
        const float du = gpuad_chain(camera_focal_0 * stretch * dpixels_5 + 2.0f * (u * dr2), 1.0f / p_z_2);
        const float dp_z = -dway_z - gpuad_chain(dv, v) - gpuad_chain(du, u);
        const float dp_y = dv - dway_y;
        const float dp_x = du - dway_x;
        const float daside_z = s * dp_z;
        const float daside_y = s * dp_y;
        const float daside_x = s * dp_x;
        const float dalong = axis_z * dp_z + axis_y * dp_y + axis_x * dp_x;
        const float dalong_2 = (1.0f - c) * dalong;
        const float daxis_z = gpuad_chain(along * dp_z + p_x * daside_y - p_y * daside_x + p_z * dalong_2,
            1.0f / angle);
        const float daxis_y = gpuad_chain(along * dp_y - p_x * daside_z + p_z * daside_x + p_y * dalong_2,
            1.0f / angle);
        const float daxis_x = gpuad_chain(along * dp_x + p_y * daside_z - p_z * daside_y + p_x * dalong_2,
            1.0f / angle);
        const float dangle = gpuad_chain(cosf(angle) * (aside_z * dp_z + aside_y * dp_y + aside_x * dp_x)
            - sinf(angle) * (p_z * dp_z + p_y * dp_y + p_x * dp_x
            - (axis_x * p_x + axis_y * p_y + axis_z * p_z) * dalong) - gpuad_chain(daxis_z, axis_z)
            - gpuad_chain(daxis_y, axis_y) - gpuad_chain(daxis_x, axis_x),
            0.5f / sqrtf(camera_turn_0 * camera_turn_0 + camera_turn_1 * camera_turn_1
            + camera_turn_2 * camera_turn_2));
        dpoints[i * 3LL + 2LL] += c * dp_z - axis_x * daside_y + axis_y * daside_x + axis_z * dalong_2;
        dpoints[i * 3LL + 1LL] += c * dp_y + axis_x * daside_z - axis_z * daside_x + axis_y * dalong_2;
        dpoints[i * 3LL] += c * dp_x - axis_y * daside_z + axis_z * daside_y + axis_x * dalong_2;
        dlight_z_2 = dway_z;
        dlight_y_2 = dway_y;
        dlight_x_2 = dway_x;
        dcamera_centre_1_2 = dpixels_3;
        dcamera_centre_0_2 = dpixels_5;
        dcamera_focal_0_2 = stretch * dpixels_6;
        dcamera_bend_0_2 = dstretch_2;
        dcamera_bend_1_2 = r2 * dstretch_2;
        dcamera_at_2_2 = dp_z;
        dcamera_at_1_2 = dp_y;
        dcamera_at_0_2 = dp_x;
        dcamera_turn_2_2 = daxis_z + 2.0f * (camera_turn_2 * dangle);
        dcamera_turn_1_2 = daxis_y + 2.0f * (camera_turn_1 * dangle);
        dcamera_turn_0_2 = daxis_x + 2.0f * (camera_turn_0 * dangle);
    }
    gpuad_block_sum(&dcamera_focal_0[0], dcamera_focal_0_2);
    gpuad_block_sum(&dcamera_focal_1[0], dcamera_focal_1_2);
    gpuad_block_sum(&dcamera_centre_0[0], dcamera_centre_0_2);
    gpuad_block_sum(&dcamera_centre_1[0], dcamera_centre_1_2);
    gpuad_block_sum(&dcamera_bend_0[0], dcamera_bend_0_2);
    gpuad_block_sum(&dcamera_bend_1[0], dcamera_bend_1_2);
    gpuad_block_sum(&dcamera_turn_0[0], dcamera_turn_0_2);
    gpuad_block_sum(&dcamera_turn_1[0], dcamera_turn_1_2);
    gpuad_block_sum(&dcamera_turn_2[0], dcamera_turn_2_2);
    gpuad_block_sum(&dcamera_at_0[0], dcamera_at_0_2);
    gpuad_block_sum(&dcamera_at_1[0], dcamera_at_1_2);
    gpuad_block_sum(&dcamera_at_2[0], dcamera_at_2_2);
    gpuad_block_sum(&dlight_x[0], (double)dlight_x_2);
    gpuad_block_sum(&dlight_y[0], (double)dlight_y_2);
    gpuad_block_sum(&dlight_z[0], (double)dlight_z_2);
}

// adjoint of `project`
//   not saved  points                        never overwritten by this launch
//   not saved  pixels                        no derivative needs what was overwritten
//   not saved  pixels_int                    no derivative needs what was overwritten
//   shadow     dpoints              plain    no two threads touch one element (camera.cu:49:23)
//   shadow     dcamera_focal_0      reduced  summed over each block, then one atomic addition a block (camera.cu:46:28)
//   shadow     dcamera_focal_1      reduced  summed over each block, then one atomic addition a block (camera.cu:46:28)
//   shadow     dcamera_centre_0     reduced  summed over each block, then one atomic addition a block (camera.cu:46:28)
//   shadow     dcamera_centre_1     reduced  summed over each block, then one atomic addition a block (camera.cu:46:28)
//   shadow     dcamera_bend_0       reduced  summed over each block, then one atomic addition a block (camera.cu:46:28)
//   shadow     dcamera_bend_1       reduced  summed over each block, then one atomic addition a block (camera.cu:46:28)
//   shadow     dcamera_turn_0       reduced  summed over each block, then one atomic addition a block (camera.cu:46:28)
//   shadow     dcamera_turn_1       reduced  summed over each block, then one atomic addition a block (camera.cu:46:28)
//   shadow     dcamera_turn_2       reduced  summed over each block, then one atomic addition a block (camera.cu:46:28)
//   shadow     dcamera_at_0         reduced  summed over each block, then one atomic addition a block (camera.cu:46:28)
//   shadow     dcamera_at_1         reduced  summed over each block, then one atomic addition a block (camera.cu:46:28)
//   shadow     dcamera_at_2         reduced  summed over each block, then one atomic addition a block (camera.cu:46:28)
//   shadow     dlight_x             reduced  summed over each block, then one atomic addition a block (camera.cu:46:28)
//   shadow     dlight_y             reduced  summed over each block, then one atomic addition a block (camera.cu:46:28)
//   shadow     dlight_z             reduced  summed over each block, then one atomic addition a block (camera.cu:46:28)
//   shadow     dpixels              plain    no two threads touch one element (camera.cu:56:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
