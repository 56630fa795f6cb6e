// gpuad: adjoint of `paths` (brownian.cu:38:28), for Duplicated price; Active drift, volatility; Const dt, states, states_int, states_float, states_double, steps, n.
// 1. before paths runs, copy price to price_saved, states to states_saved, states_int to states_int_saved, states_float to states_float_saved (all that it may touch).
// 2. put the seeds into dprice. ddrift, dvolatility are added to: clear first.
// 3. launch paths_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32).
// 4. s_saved_base[0] = 0; s_saved_base[g + 1] = s_saved_base[g] + 32 * (greatest s_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of s_saved, curand_normal_saved.
// 5. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 6. launch paths_reverse with the same grid and block.
// On exit dprice holds the adjoint of the state before the launch; ddrift, dvolatility have grown by the gradient.
// Holds where no two threads touch one element of dprice, as for grid (3, 1, 1), block (32, 1, 1), steps = 6, n = 70.

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

extern "C" __global__ void paths_count(
    const float* price, float drift, float volatility, float dt, const unsigned int* states,
    const int* states_int, const float* states_float, const double* states_double, int steps, int n,
    const float* price_saved, const unsigned int* states_saved, const int* states_int_saved,
    const float* states_float_saved, int* s_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        for (int t = 0; t < steps; ++t) {
            ++depth;
            deepest = max(deepest, depth);
        }
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    s_saved_depth[thread] = deepest;
}

extern "C" __global__ void paths_reverse(
    const float* price, float* dprice, float drift, double* ddrift, float volatility, double* dvolatility,
    float dt, const unsigned int* states, const int* states_int, const float* states_float,
    const double* states_double, int steps, int n, const float* price_saved,
    const unsigned int* states_saved, const int* states_int_saved, const float* states_float_saved,
    const long long* s_saved_base, float* s_saved, float* curand_normal_saved, int* gpuad_overflow)
{
    int s_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long s_saved_base_end = s_saved_base[thread / 32LL + 1LL];
    long long s_saved_base_lane = s_saved_base[thread / 32LL] + thread % 32LL;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float ddrift_2 = 0.0f;
    float dvolatility_2 = 0.0f;
    if (i < n) {
        float s = price_saved[i];
        unsigned int state_weyl = states_saved[i * 12LL];
        unsigned int state_a = states_saved[i * 12LL + 1LL];
        unsigned int state_b = states_saved[i * 12LL + 2LL];
        unsigned int state_c = states_saved[i * 12LL + 3LL];
        unsigned int state_d = states_saved[i * 12LL + 4LL];
        unsigned int state_e = states_saved[i * 12LL + 5LL];
        int state_has_normal = states_int_saved[i * 12LL + 6LL];
        float state_normal = states_float_saved[i * 12LL + 8LL];
        for (int t = 0; t < steps; ++t) {
            float curand_normal = state_normal;
            if (state_has_normal != 1) {
                unsigned int t_2 = state_a ^ state_a >> 2;
                unsigned int next_e = state_e ^ state_e << 4 ^ (t_2 ^ t_2 << 1);
                state_weyl += 362437u;
                unsigned int x = next_e + state_weyl;
                unsigned int t_3 = state_b ^ state_b >> 2;
                unsigned int next_e_2 = next_e ^ next_e << 4 ^ (t_3 ^ t_3 << 1);
                state_weyl += 362437u;
                unsigned int y = next_e_2 + state_weyl;
                const float u = x * 2.3283064e-10f + 1.1641532e-10f;
                const float v = y * 1.4629181e-9f + 7.3145906e-10f;
                const float s_2 = sqrtf(-2.0f * logf(u));
                const float pair_x = __sinf(v) * s_2;
                const float pair_y = __cosf(v) * s_2;
                state_a = state_c;
                state_b = state_d;
                state_c = state_e;
                state_d = next_e;
                state_e = next_e_2;
                state_has_normal = 1;
                state_normal = pair_y;
                curand_normal = pair_x;
            } else {
                state_has_normal = 0;
            }
            const float s_2 = s * expf((drift - 0.5f * volatility * volatility) * dt
                + volatility * sqrtf(dt) * curand_normal);
            long long s_at = s_saved_base_lane + s_top * 32LL;
            if (s_at < s_saved_base_end) {
                s_saved[s_at] = s;
                curand_normal_saved[s_at] = curand_normal;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++s_top;
            s = s_2;
        }
        float ds = dprice[i];
        for (int t = steps - 1; t >= 0; --t) {
            --s_top;
            const float curand_normal = curand_normal_saved[s_saved_base_lane + s_top * 32LL];
            const float ds_2 = gpuad_chain(s_saved[s_saved_base_lane + s_top * 32LL] * ds,
                expf((drift - 0.5f * volatility * volatility) * dt + volatility * sqrtf(dt) * curand_normal));
            const float ds_3 = dt * ds_2;
            ds *= expf((drift - 0.5f * volatility * volatility) * dt + volatility * sqrtf(dt) * curand_normal);
            ddrift_2 += ds_3;
            dvolatility_2 += sqrtf(dt) * (curand_normal * ds_2) - volatility * ds_3;
        }
        dprice[i] = ds;
    }
    gpuad_block_sum(&ddrift[0], (double)ddrift_2);
    gpuad_block_sum(&dvolatility[0], (double)dvolatility_2);
}

// adjoint of `paths`
//   saved      price                copy     needed by brownian.cu:42:15, overwritten by brownian.cu:47:5
//   saved      states               copy     needed by brownian.cu:41:25, overwritten by brownian.cu:48:5
//   saved      states_int           copy     needed by brownian.cu:41:25, overwritten by brownian.cu:48:5
//   saved      states_float         copy     needed by brownian.cu:41:25, overwritten by brownian.cu:48:5
//   not saved  states_double                 no derivative needs what was overwritten
//   stack      s_saved              scratch  an entry an iteration, needed by brownian.cu:43:5
//   stack      curand_normal_saved  scratch  an entry an iteration, needed by brownian.cu:43:5
//   shadow     dprice               plain    no two threads touch one element (brownian.cu:47:5)
//   shadow     ddrift               reduced  summed over each block, then one atomic addition a block (brownian.cu:38:28)
//   shadow     dvolatility          reduced  summed over each block, then one atomic addition a block (brownian.cu:38:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
