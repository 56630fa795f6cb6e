// gpuad: adjoint of `drift` (bodies.cu:54:28), for Duplicated body, velocity, acceleration; Active dt; Const n.
// 1. put the seeds into dbody, dvelocity. dacceleration, ddt are added to: clear first.
// 2. launch drift_reverse with the same grid and block.
// On exit dbody, dvelocity hold the adjoint of the state before the launch; dacceleration, ddt have grown by the gradient.
// Holds where no two threads touch one element of dacceleration, dbody, dvelocity, as for grid (3, 1, 1), block (32, 1, 1), n = 70.

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

extern "C" __global__ void drift_reverse(
    const float* body, float* dbody, const float* velocity, float* dvelocity, const float* acceleration,
    float* dacceleration, float dt, double* ddt, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float ddt_2 = 0.0f;
    if (i < n) {
        const float a_x = acceleration[i * 4LL];
        const float a_y = acceleration[i * 4LL + 1LL];
        const float a_z = acceleration[i * 4LL + 2LL];
        const float velocity_2 = velocity[i * 4LL];
        const float velocity_3 = velocity[i * 4LL + 1LL];
        const float velocity_4 = velocity[i * 4LL + 2LL];
        const float dbody_2 = dbody[i * 4LL + 3LL];
        dbody[i * 4LL + 3LL] = 0.0f;
        const float dbody_3 = dbody[i * 4LL + 2LL];
        dbody[i * 4LL + 2LL] = 0.0f;
        const float dbody_4 = dbody[i * 4LL + 1LL];
        dbody[i * 4LL + 1LL] = 0.0f;
        const float dbody_5 = dbody[i * 4LL];
        dbody[i * 4LL] = 0.0f;
        dvelocity[i * 4LL + 2LL] += dt * dbody_3;
        dvelocity[i * 4LL + 1LL] += dt * dbody_4;
        dvelocity[i * 4LL] += dt * dbody_5;
        dbody[i * 4LL + 3LL] += dbody_2;
        dbody[i * 4LL + 2LL] += dbody_3;
        dbody[i * 4LL + 1LL] += dbody_4;
        dbody[i * 4LL] += dbody_5;
        const float dvelocity_2 = dvelocity[i * 4LL + 2LL];
        const float dvelocity_3 = dvelocity[i * 4LL + 1LL];
        const float dvelocity_4 = dvelocity[i * 4LL];
        dacceleration[i * 4LL + 2LL] += dt * dvelocity_2;
        dacceleration[i * 4LL + 1LL] += dt * dvelocity_3;
        dacceleration[i * 4LL] += dt * dvelocity_4;
        ddt_2 = velocity_4 * dbody_3 + velocity_3 * dbody_4 + velocity_2 * dbody_5 + a_z * dvelocity_2
            + a_y * dvelocity_3 + a_x * dvelocity_4;
    }
    gpuad_block_sum(&ddt[0], (double)ddt_2);
}

// adjoint of `drift`
//   not saved  body                          no derivative needs what was overwritten
//   not saved  velocity                      needed by bodies.cu:63:17, read as this launch leaves it
//   not saved  acceleration                  never overwritten by this launch
//   shadow     dbody                plain    no two threads touch one element (bodies.cu:66:5)
//   shadow     dvelocity            plain    no two threads touch one element (bodies.cu:65:17)
//   shadow     dacceleration        plain    no two threads touch one element (bodies.cu:58:22)
//   shadow     ddt                  reduced  summed over each block, then one atomic addition a block (bodies.cu:54:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
