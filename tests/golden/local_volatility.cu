// gpuad: adjoint of `local_volatility` (local_volatility.cu:22:28), for Duplicated payoff; Active spot, level, skew, rate; Const normals, dt, steps, paths.
// 1. put the seeds into dpayoff. dspot, dlevel, dskew, drate are added to: clear first.
// 2. launch local_volatility_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32).
// 3. s_saved_base[0] = 0; s_saved_base[g + 1] = s_saved_base[g] + 32 * (greatest s_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of s_saved.
// 4. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 5. launch local_volatility_reverse with the same grid and block.
// On exit dpayoff holds the adjoint of the state before the launch; dspot, dlevel, dskew, drate have grown by the gradient.
// Holds where no two threads touch one element of dpayoff, as for grid (3, 1, 1), block (32, 1, 1), steps = 20, paths = 90.

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

extern "C" __global__ void local_volatility_count(
    const double* normals, double spot, double level, double skew, double rate, double dt,
    const double* payoff, int steps, int paths, int* s_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    int path = blockIdx.x * blockDim.x + threadIdx.x;
    if (path < paths) {
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

extern "C" __global__ void local_volatility_reverse(
    const double* normals, double spot, double* dspot, double level, double* dlevel, double skew,
    double* dskew, double rate, double* drate, double dt, const double* payoff, double* dpayoff, int steps,
    int paths, const long long* s_saved_base, double* s_saved, int* gpuad_overflow)
{
    int s_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long s_saved_base_end = s_saved_base[thread / 32LL + 1LL];
    long long s_saved_base_lane = s_saved_base[thread / 32LL] + thread % 32LL;
    int path = blockIdx.x * blockDim.x + threadIdx.x;
    double drate_2 = 0.0;
    double dspot_2 = 0.0;
    double dlevel_2 = 0.0;
    double dskew_2 = 0.0;
    if (path < paths) {
        double s = spot;
        double average = 0.0;
        for (int t = 0; t < steps; ++t) {
            const double volatility = level * exp(-skew * log(s / spot)) + 0.02 * sin(0.1 * s);
            const double s_2 = s * (1.0 + rate * dt + volatility * sqrt(dt) * normals[t * paths + path]);
            average += s_2 / steps;
            long long s_at = s_saved_base_lane + s_top * 32LL;
            if (s_at < s_saved_base_end) {
                s_saved[s_at] = s;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++s_top;
            s = s_2;
        }
        const double gain = average - spot;
        const double dpayoff_2 = dpayoff[path];
        dpayoff[path] = 0.0;
        const double dpayoff_3 = gpuad_chain(dpayoff_2, exp(-rate * dt * steps) * 0.5);
        const double dgain = dpayoff_3 + 2.0 * gpuad_chain(gpuad_chain(dpayoff_3,
            isinf(gain * gain + 25.0) ? gain * gain + 25.0 : 0.5 / sqrt(gain * gain + 25.0)), gain);
        double ds = 0.0;
        for (int t = steps - 1; t >= 0; --t) {
            --s_top;
            const double s_2 = s_saved[s_saved_base_lane + s_top * 32LL];
            const double normals_2 = normals[t * paths + path];
            ds += gpuad_chain(dgain, 1.0 / steps);
            const double ds_2 = gpuad_chain(ds, s_2);
            const double dvolatility = sqrt(dt) * (normals_2 * ds_2);
            const double dvolatility_2 = gpuad_chain(level * dvolatility, exp(-skew * log(s_2 / spot)));
            const double dvolatility_3 = gpuad_chain(gpuad_chain(-(skew * dvolatility_2),
                isinf(s_2 / spot) ? s_2 / spot : 1.0 / (s_2 / spot)), 1.0 / spot);
            const double volatility = level * exp(-skew * log(s_2 / spot)) + 0.02 * sin(0.1 * s_2);
            ds = gpuad_chain(ds, 1.0 + rate * dt + volatility * sqrt(dt) * normals_2) + dvolatility_3
                + 0.1 * (0.02 * (cos(0.1 * s_2) * dvolatility));
            drate_2 += dt * ds_2;
            dlevel_2 += gpuad_chain(dvolatility, exp(-skew * log(s_2 / spot)));
            dskew_2 -= gpuad_chain(dvolatility_2, log(s_2 / spot));
            dspot_2 -= gpuad_chain(dvolatility_3, s_2 / spot);
        }
        drate_2 -= dt * (steps * gpuad_chain(0.5 * gpuad_chain(dpayoff_2, gain + sqrt(gain * gain + 25.0)),
            exp(-rate * dt * steps)));
        dspot_2 += ds - dgain;
    }
    gpuad_block_sum(&dspot[0], dspot_2);
    gpuad_block_sum(&dlevel[0], dlevel_2);
    gpuad_block_sum(&dskew[0], dskew_2);
    gpuad_block_sum(&drate[0], drate_2);
}

// adjoint of `local_volatility`
//   not saved  normals                       never overwritten by this launch
//   not saved  payoff                        no derivative needs what was overwritten
//   stack      s_saved              scratch  an entry an iteration, needed by local_volatility.cu:27:5
//   shadow     dspot                reduced  summed over each block, then one atomic addition a block (local_volatility.cu:22:28)
//   shadow     dlevel               reduced  summed over each block, then one atomic addition a block (local_volatility.cu:22:28)
//   shadow     dskew                reduced  summed over each block, then one atomic addition a block (local_volatility.cu:22:28)
//   shadow     drate                reduced  summed over each block, then one atomic addition a block (local_volatility.cu:22:28)
//   shadow     dpayoff              plain    no two threads touch one element (local_volatility.cu:33:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
