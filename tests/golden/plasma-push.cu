// gpuad: adjoint of `push` (plasma.cu:49:28), for Duplicated particle, electric; Active magnetic, dt; Const particle_int, particles, cells.
// 1. before push runs, copy particle to particle_saved, particle_int to particle_int_saved (all that it may touch).
// 2. put the seeds into dparticle. delectric, dmagnetic, ddt are added to: clear first.
// 3. launch push_reverse with the same grid and block.
// On exit dparticle holds the adjoint of the state before the launch; delectric, dmagnetic, ddt have grown by the gradient.
// Compile push and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dparticle, as for grid (2, 1, 1), block (32, 1, 1), particles = 60, cells = 8.

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

extern "C" __global__ void push_reverse(
    const float* particle, float* dparticle, const int* particle_int, const float* electric,
    float* delectric, float magnetic, double* dmagnetic, float dt, double* ddt, int particles, int cells,
    const float* particle_saved, const int* particle_int_saved)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float ddt_2 = 0.0f;
    float dmagnetic_2 = 0.0f;
    if (i < particles) {
        const float p_offset = particle_saved[i * 6LL];
        const float p_velocity_y = particle_saved[i * 6LL + 3LL];
        int p_cell = particle_int_saved[i * 6LL + 5LL];
        const float electric_2 = electric[p_cell];
        const float electric_3 = electric[p_cell + 1];
        const float kick = 0.5f * dt * ((1.0f - p_offset) * electric_2 + p_offset * electric_3);
        const float t = 0.5f * dt * magnetic;
        const float s = 2.0f * t / (1.0f + t * t);
        const float v_x = particle_saved[i * 6LL + 2LL] + kick;
        const float turned_x = v_x + t * p_velocity_y;
        const float turned_y = p_velocity_y - t * v_x;
        float v_x_2 = v_x + s * turned_y;
        v_x_2 += kick;
        const float dparticle_2 = dparticle[i * 6LL + 4LL];
        dparticle[i * 6LL + 4LL] = 0.0f;
        const float dparticle_3 = dparticle[i * 6LL + 3LL];
        dparticle[i * 6LL + 3LL] = 0.0f;
        const float dparticle_4 = dparticle[i * 6LL + 2LL];
        dparticle[i * 6LL + 2LL] = 0.0f;
        const float dparticle_5 = dparticle[i * 6LL];
        dparticle[i * 6LL] = 0.0f;
        const float dv_x = dparticle_4 + dt * dparticle_5;
        const float dturned_y = s * dv_x;
        const float dturned_x = -(s * dparticle_3);
        const float dv_x_2 = dv_x - t * dturned_y + dturned_x;
        const float ds = gpuad_chain(turned_y * dv_x - turned_x * dparticle_3, 1.0f / (1.0f + t * t));
        const float dt_2 = p_velocity_y * dturned_x - v_x * dturned_y + 2.0f * ds + 2.0f * (t * -gpuad_chain(ds, s));
        const float dkick = dv_x + dv_x_2;
        const float dkick_2 = 0.5f * (dt * dkick);
        atomicAdd(&delectric[p_cell + 1], p_offset * dkick_2);
        atomicAdd(&delectric[p_cell], (1.0f - p_offset) * dkick_2);
        dparticle[i * 6LL + 4LL] += dparticle_2;
        dparticle[i * 6LL + 3LL] += dparticle_3 + dturned_y + t * dturned_x;
        dparticle[i * 6LL + 2LL] += dv_x_2;
        dparticle[i * 6LL] += dparticle_5 - electric_2 * dkick_2 + electric_3 * dkick_2;
        ddt_2 = v_x_2 * dparticle_5 + 0.5f * (magnetic * dt_2)
            + 0.5f * (((1.0f - p_offset) * electric_2 + p_offset * electric_3) * dkick);
        dmagnetic_2 = 0.5f * (dt * dt_2);
    }
    gpuad_block_sum(&dmagnetic[0], (double)dmagnetic_2);
    gpuad_block_sum(&ddt[0], (double)ddt_2);
}

// adjoint of `push`
//   saved      particle             copy     needed by plasma.cu:52:18, overwritten by plasma.cu:62:5
//   saved      particle_int         copy     needed by plasma.cu:52:18, overwritten by plasma.cu:62:5
//   not saved  electric                      never overwritten by this launch
//   shadow     dparticle            plain    no two threads touch one element (plasma.cu:62:5)
//   shadow     delectric            atomic   its index is read from `particle_int`, so that two threads may meet in one element (plasma.cu:40:111)
//   shadow     dmagnetic            reduced  summed over each block, then one atomic addition a block (plasma.cu:49:28)
//   shadow     ddt                  reduced  summed over each block, then one atomic addition a block (plasma.cu:49:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
//   assumed    plasma.cu:40:88: an index of `electric` is data, taken to be in bounds
//   assumed    plasma.cu:40:111: an index of `electric` is data, taken to be in bounds
