// gpuad: adjoint of `move` (nbody.cu:57:28), for Duplicated position, velocity, acceleration; Active dt; Const count.
// 1. put the seeds into dposition, dvelocity. dacceleration, ddt are added to: clear first.
// 2. launch move_reverse with the same grid and block.
// On exit dposition, dvelocity hold the adjoint of the state before the launch; dacceleration, ddt have grown by the gradient.
// Holds where no two threads touch one element of dacceleration, dvelocity, as for grid (4, 1, 1), block (64, 1, 1), count = 210.

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

extern "C" __global__ void move_reverse(
    const float* position, const float* dposition, const float* velocity, float* dvelocity,
    const float* acceleration, float* dacceleration, float dt, double* ddt, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float ddt_2 = 0.0f;
    if (i < count) {
        const float acceleration_2 = acceleration[i];
        const float velocity_2 = velocity[i];
        const float dposition_2 = dposition[i];
        dvelocity[i] += dt * dposition_2;
        const float dvelocity_2 = dvelocity[i];
        dacceleration[i] += dt * dvelocity_2;
        ddt_2 = velocity_2 * dposition_2 + acceleration_2 * dvelocity_2;
    }
    gpuad_block_sum(&ddt[0], (double)ddt_2);
}

// adjoint of `move`
//   not saved  position                      no derivative needs what was overwritten
//   not saved  velocity                      needed by nbody.cu:61:25, read as this launch leaves it
//   not saved  acceleration                  never overwritten by this launch
//   shadow     dposition            plain    it is only read (nbody.cu:61:5)
//   shadow     dvelocity            plain    no two threads touch one element (nbody.cu:61:25)
//   shadow     dacceleration        plain    no two threads touch one element (nbody.cu:60:25)
//   shadow     ddt                  reduced  summed over each block, then one atomic addition a block (nbody.cu:57:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
