// gpuad: adjoint of `bilateral` (bilateral.cu:24:28), for Duplicated image, filtered; Active spatial, tonal; Const radius, height, width.
// 1. put the seeds into dfiltered. dimage, dspatial, dtonal are added to: clear first.
// 2. launch bilateral_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32).
// 3. dx_saved_base[0] = 0; dx_saved_base[g + 1] = dx_saved_base[g] + 32 * (greatest dx_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of dx_saved.
// 4. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 5. launch bilateral_reverse with the same grid and block.
// On exit dfiltered holds the adjoint of the state before the launch; dimage, dspatial, dtonal have grown by the gradient.
// Holds where no two threads touch one element of dfiltered, as for grid (3, 2, 1), block (8, 8, 1), radius = 2, height = 14, width = 17.

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

extern "C" __global__ void bilateral_count(
    const float* image, const float* filtered, float spatial, float tonal, int radius, int height, int width,
    int* dx_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        for (int dy = -radius; dy < radius + 1; ++dy) {
            if (y + dy >= 0 && y + dy < height) {
                int dx = -radius;
                depth = 0;
                bool broken = false;
                while (!broken && dx <= radius) {
                    if (x + dx >= 0) {
                        broken = x + dx < width ? false : true;
                    } else {
                        broken = false;
                    }
                    if (!broken) {
                        ++dx;
                        broken = false;
                    }
                    ++depth;
                    deepest = max(deepest, depth);
                }
            }
        }
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    dx_saved_depth[thread] = deepest;
}

extern "C" __global__ void bilateral_reverse(
    const float* image, float* dimage, const float* filtered, float* dfiltered, float spatial,
    double* dspatial, float tonal, double* dtonal, int radius, int height, int width,
    const long long* dx_saved_base, int* dx_saved, int* gpuad_overflow)
{
    int dx_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long dx_saved_base_end = dx_saved_base[thread / 32LL + 1LL];
    long long dx_saved_base_lane = dx_saved_base[thread / 32LL] + thread % 32LL;
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    float dspatial_2 = 0.0f;
    float dtonal_2 = 0.0f;
    if (x < width && y < height) {
        const float centre = image[y * width + x];
        float sum = 0.0f;
        float total = 0.0f;
        for (int dy = -radius; dy < radius + 1; ++dy) {
            if (y + dy >= 0 && y + dy < height) {
                int dx = -radius;
                bool broken = false;
                while (!broken && dx <= radius) {
                    if (x + dx >= 0) {
                        if (x + dx < width) {
                            const float other = image[(y + dy) * width + x + dx];
                            const float distance2 = dx * dx + dy * dy;
                            const float distance2_2 = (other - centre) * (other - centre);
                            const float weight = expf(-distance2 / (2.0f * (spatial * spatial)))
                                * expf(-distance2_2 / (2.0f * (tonal * tonal)));
                            sum += weight * other;
                            total += weight;
                            broken = false;
                        } else {
                            broken = true;
                        }
                    } else {
                        broken = false;
                    }
                    if (!broken) {
                        ++dx;
                        broken = false;
                    }
                }
            }
        }
        float dfiltered_2 = dfiltered[y * width + x];
        dfiltered[y * width + x] = 0.0f;
        dfiltered_2 = gpuad_chain(dfiltered_2, 1.0f / total);
        const float dtotal = -gpuad_chain(dfiltered_2, sum / total);
        float dcentre = 0.0f;
        for (int dy = radius; dy >= -radius; --dy) {
            float dspatial_3 = 0.0f;
            float dtonal_3 = 0.0f;
            float dcentre_2 = 0.0f;
            if (y + dy >= 0 && y + dy < height) {
                int dx = -radius;
                bool broken = false;
                int iterations = 0;
                while (!broken && dx <= radius) {
                    if (x + dx >= 0) {
                        broken = x + dx < width ? false : true;
                    } else {
                        broken = false;
                    }
                    int dx_2 = dx;
                    if (!broken) {
                        dx_2 = dx + 1;
                        broken = false;
                    }
                    long long dx_at = dx_saved_base_lane + dx_top * 32LL;
                    if (dx_at < dx_saved_base_end) {
                        dx_saved[dx_at] = dx;
                    } else {
                        gpuad_overflow[0] = 1;
                    }
                    ++dx_top;
                    dx = dx_2;
                    ++iterations;
                }
                for (int iteration = iterations - 1; iteration >= 0; --iteration) {
                    --dx_top;
                    int dx_2 = dx_saved[dx_saved_base_lane + dx_top * 32LL];
                    float dspatial_4 = 0.0f;
                    float dtonal_4 = 0.0f;
                    float dcentre_3 = 0.0f;
                    if (x + dx_2 >= 0) {
                        if (x + dx_2 < width) {
                            const float other = image[(y + dy) * width + x + dx_2];
                            const float distance2 = dx_2 * dx_2 + dy * dy;
                            const float distance2_2 = (other - centre) * (other - centre);
                            float dweight = dtotal + other * dfiltered_2;
                            float dweight_2 = gpuad_chain(expf(-distance2_2 / (2.0f * (tonal * tonal)))
                                * (expf(-distance2 / (2.0f * (spatial * spatial))) * dweight),
                                1.0f / (2.0f * (tonal * tonal)));
                            const float ddistance2 = -2.0f * ((other - centre) * dweight_2);
                            atomicAdd(&dimage[(y + dy) * width + x + dx_2],
                                expf(-distance2 / (2.0f * (spatial * spatial)))
                                * expf(-distance2_2 / (2.0f * (tonal * tonal))) * dfiltered_2 + ddistance2);
                            dweight = 2.0f * -gpuad_chain(gpuad_chain(expf(-distance2 / (2.0f * (spatial * spatial)))
                                * (expf(-distance2_2 / (2.0f * (tonal * tonal))) * dweight),
                                1.0f / (2.0f * (spatial * spatial))), -distance2 / (2.0f * (spatial * spatial)));
                            dweight_2 = 2.0f * -gpuad_chain(dweight_2, -distance2_2 / (2.0f * (tonal * tonal)));
                            dspatial_4 = 2.0f * (spatial * dweight);
                            dtonal_4 = 2.0f * (tonal * dweight_2);
                            dcentre_3 = -ddistance2;
                        }
                    }
                    dspatial_3 += dspatial_4;
                    dtonal_3 += dtonal_4;
                    dcentre_2 += dcentre_3;
                }
            }
            dspatial_2 += dspatial_3;
            dtonal_2 += dtonal_3;
            dcentre += dcentre_2;
        }
        if (dcentre != 0.0f) {
            atomicAdd(&dimage[y * width + x], dcentre);
        }
    }
    gpuad_block_sum(&dspatial[0], (double)dspatial_2);
    gpuad_block_sum(&dtonal[0], (double)dtonal_2);
}

// adjoint of `bilateral`
//   not saved  image                         never overwritten by this launch
//   not saved  filtered                      no derivative needs what was overwritten
//   stack      dx_saved             scratch  an entry an iteration, needed by bilateral.cu:31:9
//   shadow     dimage               atomic   it is not proved that no two threads meet in one element (bilateral.cu:34:27)
//   shadow     dfiltered            plain    no two threads touch one element (bilateral.cu:40:5)
//   shadow     dspatial             reduced  summed over each block, then one atomic addition a block (bilateral.cu:24:28)
//   shadow     dtonal               reduced  summed over each block, then one atomic addition a block (bilateral.cu:24:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
