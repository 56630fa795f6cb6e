// gpuad: adjoint of `orbit` (kepler.cu:45:28), for Duplicated state; Active mu, dt; Const steps, n.
// 1. before orbit runs, copy state to state_saved (all that it may touch).
// 2. put the seeds into dstate. dmu, ddt are added to: clear first.
// 3. launch orbit_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32).
// 4. y_saved_base[0] = 0; y_saved_base[g + 1] = y_saved_base[g] + 32 * (greatest y_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of y_saved, y_saved, y_saved, y_saved.
// 5. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 6. launch orbit_reverse with the same grid and block.
// On exit dstate holds the adjoint of the state before the launch; dmu, ddt have grown by the gradient.
// Holds where no two threads touch one element of dstate, as for grid (2, 1, 1), block (32, 1, 1), steps = 10, n = 40.

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

extern "C" __global__ void orbit_count(
    const double* state, double mu, double dt, int steps, int n, const double* state_saved,
    int* y_saved_depth)
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
    y_saved_depth[thread] = deepest;
}

extern "C" __global__ void orbit_reverse(
    const double* state, double* dstate, double mu, double* dmu, double dt, double* ddt, int steps, int n,
    const double* state_saved, const long long* y_saved_base, double* y_saved, double* y_saved_2,
    double* y_saved_3, double* y_saved_4, int* gpuad_overflow)
{
    int y_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long y_saved_base_end = y_saved_base[thread / 32LL + 1LL];
    long long y_saved_base_lane = y_saved_base[thread / 32LL] + thread % 32LL;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double ddt_2 = 0.0;
    double dmu_2 = 0.0;
    if (i < n) {
        double y[4];
        for (int d = 0; d < 4; ++d) {
            y[d] = state_saved[d * n + i];
        }
        for (int t = 0; t < steps; ++t) {
            const double y_2 = y[0];
            const double y_3 = y[1];
            const double y_4 = y[2];
            const double y_5 = y[3];
            double k4[4];
            double k3[4];
            double k2[4];
            double k1[4];
            double stage[4];
            const double r2 = y_2 * y_2 + y_3 * y_3;
            const double pull = -mu / (r2 * sqrt(r2));
            k1[0] = y_4;
            k1[1] = y_5;
            k1[2] = pull * y_2;
            k1[3] = pull * y_3;
            for (int d = 0; d < 4; ++d) {
                stage[d] = y[d] + 0.5 * dt * k1[d];
            }
            const double stage_2 = stage[0];
            const double stage_3 = stage[1];
            const double r2_2 = stage_2 * stage_2 + stage_3 * stage_3;
            const double pull_2 = -mu / (r2_2 * sqrt(r2_2));
            k2[0] = stage[2];
            k2[1] = stage[3];
            k2[2] = pull_2 * stage_2;
            k2[3] = pull_2 * stage_3;
            for (int d = 0; d < 4; ++d) {
                stage[d] = y[d] + 0.5 * dt * k2[d];
            }
            const double stage_4 = stage[0];
            const double stage_5 = stage[1];
            const double r2_3 = stage_4 * stage_4 + stage_5 * stage_5;
            const double pull_3 = -mu / (r2_3 * sqrt(r2_3));
            k3[0] = stage[2];
            k3[1] = stage[3];
            k3[2] = pull_3 * stage_4;
            k3[3] = pull_3 * stage_5;
            for (int d = 0; d < 4; ++d) {
                stage[d] = y[d] + dt * k3[d];
            }
            const double stage_6 = stage[0];
            const double stage_7 = stage[1];
            const double r2_4 = stage_6 * stage_6 + stage_7 * stage_7;
            const double pull_4 = -mu / (r2_4 * sqrt(r2_4));
            k4[0] = stage[2];
            k4[1] = stage[3];
            k4[2] = pull_4 * stage_6;
            k4[3] = pull_4 * stage_7;
            for (int d = 0; d < 4; ++d) {
                y[d] += dt / 6.0 * (k1[d] + 2.0 * k2[d] + 2.0 * k3[d] + k4[d]);
            }
            long long y_at = y_saved_base_lane + y_top * 32LL;
            if (y_at < y_saved_base_end) {
                y_saved[y_at] = y_2;
                y_saved_2[y_at] = y_3;
                y_saved_3[y_at] = y_4;
                y_saved_4[y_at] = y_5;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++y_top;
        }
        double dy[4] = {};
        for (int d = 3; d >= 0; --d) {
            const double dstate_2 = dstate[d * n + i];
            dstate[d * n + i] = 0.0;
            dy[d] += dstate_2;
        }
        for (int t = steps - 1; t >= 0; --t) {
            --y_top;
            const double y_2 = y_saved[y_saved_base_lane + y_top * 32LL];
            const double y_3 = y_saved_2[y_saved_base_lane + y_top * 32LL];
            const double y_4 = y_saved_3[y_saved_base_lane + y_top * 32LL];
            const double y_5 = y_saved_4[y_saved_base_lane + y_top * 32LL];
            const double y_6[4] = {y_2, y_3, y_4, y_5};
            double k4[4];
            double k3[4];
            double k2[4];
            double k1[4];
            double stage[4];
            const double r2 = y_2 * y_2 + y_3 * y_3;
            const double pull = -mu / (r2 * sqrt(r2));
            k1[0] = y_4;
            k1[1] = y_5;
            k1[2] = pull * y_2;
            k1[3] = pull * y_3;
            for (int d = 0; d < 4; ++d) {
                stage[d] = y_6[d] + 0.5 * dt * k1[d];
            }
            const double stage_2 = stage[0];
            const double stage_3 = stage[1];
            const double r2_2 = stage_2 * stage_2 + stage_3 * stage_3;
            const double pull_2 = -mu / (r2_2 * sqrt(r2_2));
            k2[0] = stage[2];
            k2[1] = stage[3];
            k2[2] = pull_2 * stage_2;
            k2[3] = pull_2 * stage_3;
            for (int d = 0; d < 4; ++d) {
                stage[d] = y_6[d] + 0.5 * dt * k2[d];
            }
            const double stage_4 = stage[0];
            const double stage_5 = stage[1];
            const double r2_3 = stage_4 * stage_4 + stage_5 * stage_5;
            const double pull_3 = -mu / (r2_3 * sqrt(r2_3));
            k3[0] = stage[2];
            k3[1] = stage[3];
            k3[2] = pull_3 * stage_4;
            k3[3] = pull_3 * stage_5;
            for (int d = 0; d < 4; ++d) {
                stage[d] = y_6[d] + dt * k3[d];
            }
            const double stage_6 = stage[0];
            const double stage_7 = stage[1];
            const double r2_4 = stage_6 * stage_6 + stage_7 * stage_7;
            const double pull_4 = -mu / (r2_4 * sqrt(r2_4));
            k4[0] = stage[2];
            k4[1] = stage[3];
            k4[2] = pull_4 * stage_6;
            k4[3] = pull_4 * stage_7;
            double dk4[4] = {};
            double dk3[4] = {};
            double dk2[4] = {};
            double dk1[4] = {};
            double dstage[4] = {};
            double ddt_3 = 0.0;
            for (int d = 0; d < 4; ++d) {
                const double dy_2 = dy[d];
                const double dy_3 = dt / 6.0 * dy_2;
                dk4[d] += dy_3;
                dk3[d] += 2.0 * dy_3;
                dk2[d] += 2.0 * dy_3;
                dk1[d] += dy_3;
                ddt_3 += (k1[d] + 2.0 * k2[d] + 2.0 * k3[d] + k4[d]) * dy_2 / 6.0;
            }
            const double dk4_2 = dk4[3];
            dk4[3] = 0.0;
            const double dk4_3 = dk4[2];
            dk4[2] = 0.0;
            const double dk4_4 = dk4[1];
            dk4[1] = 0.0;
            dstage[3] += dk4_4;
            const double dk4_5 = dk4[0];
            dk4[0] = 0.0;
            dstage[2] += dk4_5;
            const double dpull = gpuad_chain(stage_7 * dk4_2 + stage_6 * dk4_3, 1.0 / (r2_4 * sqrt(r2_4)));
            const double dpull_2 = -gpuad_chain(dpull, pull_4);
            const double dr2 = sqrt(r2_4) * dpull_2 + gpuad_chain(r2_4 * dpull_2, 0.5 / sqrt(r2_4));
            dstage[1] += pull_4 * dk4_2 + 2.0 * (stage_7 * dr2);
            dstage[0] += pull_4 * dk4_3 + 2.0 * (stage_6 * dr2);
            double ddt_4 = 0.0;
            for (int d = 0; d < 4; ++d) {
                const double dstage_2 = dstage[d];
                dstage[d] = 0.0;
                dk3[d] += dt * dstage_2;
                dy[d] += dstage_2;
                ddt_4 += k3[d] * dstage_2;
            }
            const double dk3_2 = dk3[3];
            dk3[3] = 0.0;
            const double dk3_3 = dk3[2];
            dk3[2] = 0.0;
            const double dk3_4 = dk3[1];
            dk3[1] = 0.0;
            dstage[3] += dk3_4;
            const double dk3_5 = dk3[0];
            dk3[0] = 0.0;
            dstage[2] += dk3_5;
            const double dpull_3 = gpuad_chain(stage_5 * dk3_2 + stage_4 * dk3_3, 1.0 / (r2_3 * sqrt(r2_3)));
            const double dpull_4 = -gpuad_chain(dpull_3, pull_3);
            const double dr2_2 = sqrt(r2_3) * dpull_4 + gpuad_chain(r2_3 * dpull_4, 0.5 / sqrt(r2_3));
            dstage[1] += pull_3 * dk3_2 + 2.0 * (stage_5 * dr2_2);
            dstage[0] += pull_3 * dk3_3 + 2.0 * (stage_4 * dr2_2);
            double ddt_5 = 0.0;
            for (int d = 0; d < 4; ++d) {
                const double dstage_2 = dstage[d];
                dstage[d] = 0.0;
                dk2[d] += 0.5 * (dt * dstage_2);
                dy[d] += dstage_2;
                ddt_5 += 0.5 * (k2[d] * dstage_2);
            }
            const double dk2_2 = dk2[3];
            dk2[3] = 0.0;
            const double dk2_3 = dk2[2];
            dk2[2] = 0.0;
            const double dk2_4 = dk2[1];
            dk2[1] = 0.0;
            dstage[3] += dk2_4;
            const double dk2_5 = dk2[0];
            dk2[0] = 0.0;
            dstage[2] += dk2_5;
            const double dpull_5 = gpuad_chain(stage_3 * dk2_2 + stage_2 * dk2_3, 1.0 / (r2_2 * sqrt(r2_2)));
            const double dpull_6 = -gpuad_chain(dpull_5, pull_2);
            const double dr2_3 = sqrt(r2_2) * dpull_6 + gpuad_chain(r2_2 * dpull_6, 0.5 / sqrt(r2_2));
            dstage[1] += pull_2 * dk2_2 + 2.0 * (stage_3 * dr2_3);
            dstage[0] += pull_2 * dk2_3 + 2.0 * (stage_2 * dr2_3);
            double ddt_6 = 0.0;
            for (int d = 0; d < 4; ++d) {
                const double dstage_2 = dstage[d];
                dstage[d] = 0.0;
                dk1[d] += 0.5 * (dt * dstage_2);
                dy[d] += dstage_2;
                ddt_6 += 0.5 * (k1[d] * dstage_2);
            }
            const double dk1_2 = dk1[3];
            dk1[3] = 0.0;
            const double dk1_3 = dk1[2];
            dk1[2] = 0.0;
            const double dk1_4 = dk1[1];
            dk1[1] = 0.0;
            dy[3] += dk1_4;
            const double dk1_5 = dk1[0];
            dk1[0] = 0.0;
            dy[2] += dk1_5;
            const double dpull_7 = gpuad_chain(y_3 * dk1_2 + y_2 * dk1_3, 1.0 / (r2 * sqrt(r2)));
            const double dpull_8 = -gpuad_chain(dpull_7, pull);
            const double dr2_4 = sqrt(r2) * dpull_8 + gpuad_chain(r2 * dpull_8, 0.5 / sqrt(r2));
            dy[1] += pull * dk1_2 + 2.0 * (y_3 * dr2_4);
            dy[0] += pull * dk1_3 + 2.0 * (y_2 * dr2_4);
            ddt_2 += ddt_3 + ddt_4 + ddt_5 + ddt_6;
            dmu_2 += -dpull - dpull_3 - dpull_5 - dpull_7;
        }
        for (int d = 0; d < 4; ++d) {
            const double dy_2 = dy[d];
            dy[d] = 0.0;
            dstate[d * n + i] += dy_2;
        }
    }
    gpuad_block_sum(&dmu[0], dmu_2);
    gpuad_block_sum(&ddt[0], ddt_2);
}

// adjoint of `orbit`
//   saved      state                copy     needed by kepler.cu:49:49, overwritten by kepler.cu:60:42
//   stack      y_saved              scratch  an entry an iteration, needed by kepler.cu:50:5
//   stack      y_saved              scratch  an entry an iteration, needed by kepler.cu:50:5
//   stack      y_saved              scratch  an entry an iteration, needed by kepler.cu:50:5
//   stack      y_saved              scratch  an entry an iteration, needed by kepler.cu:50:5
//   shadow     dstate               plain    no two threads touch one element (kepler.cu:60:42)
//   shadow     dmu                  reduced  summed over each block, then one atomic addition a block (kepler.cu:45:28)
//   shadow     ddt                  reduced  summed over each block, then one atomic addition a block (kepler.cu:45:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
