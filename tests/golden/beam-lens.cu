// gpuad: adjoint of `lens` (beam.cu:51:28), for Duplicated field; Active focus; Const radius, ny, nx.
// 1. before lens runs, copy field to field_saved (all that it may touch).
// 2. put the seeds into dfield. dfocus is added to: clear first.
// 3. launch lens_reverse with the same grid and block.
// On exit dfield holds the adjoint of the state before the launch; dfocus has grown by the gradient.
// Compile lens and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dfield, as for grid (3, 3, 1), block (16, 8, 1), ny = 20, nx = 33.

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

extern "C" __global__ void lens_reverse(
    const float* field, float* dfield, float focus, double* dfocus, float radius, int ny, int nx,
    const float* field_saved)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    float dfocus_2 = 0.0f;
    if (x < nx && y < ny) {
        const float rx = x - 0.5f * nx;
        const float ry = y - 0.5f * ny;
        const float r2 = rx * rx + ry * ry;
        if (r2 > radius * radius) {
            dfield[(y * nx + x) * 2LL + 1LL] = 0.0f;  // overwritten with something inactive
            dfield[(y * nx + x) * 2LL] = 0.0f;  // overwritten with something inactive
        } else {
            const float angle = -r2 / (2.0f * focus);
            const float re = 1.0f * cosf(angle);
            const float im = 1.0f * sinf(angle);
            const float field_2 = field_saved[(y * nx + x) * 2LL];
            const float field_3 = field_saved[(y * nx + x) * 2LL + 1LL];
            const float dfield_2 = dfield[(y * nx + x) * 2LL + 1LL];
            dfield[(y * nx + x) * 2LL + 1LL] = 0.0f;
            const float dfield_3 = dfield[(y * nx + x) * 2LL];
            dfield[(y * nx + x) * 2LL] = 0.0f;
            dfield[(y * nx + x) * 2LL + 1LL] += re * dfield_2 - im * dfield_3;
            dfield[(y * nx + x) * 2LL] += im * dfield_2 + re * dfield_3;
            dfocus_2 = -2.0f * gpuad_chain(gpuad_chain(cosf(angle) * (field_2 * dfield_2 - field_3 * dfield_3)
                - sinf(angle) * (field_3 * dfield_2 + field_2 * dfield_3), 1.0f / (2.0f * focus)), angle);
        }
    }
    gpuad_block_sum(&dfocus[0], (double)dfocus_2);
}

// adjoint of `lens`
//   saved      field                copy     needed by beam.cu:61:9, overwritten by beam.cu:59:9
//   shadow     dfield               plain    no two threads touch one element (beam.cu:59:9)
//   shadow     dfocus               reduced  summed over each block, then one atomic addition a block (beam.cu:51:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
