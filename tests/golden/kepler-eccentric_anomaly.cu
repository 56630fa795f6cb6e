// gpuad: adjoint of `eccentric_anomaly` (kepler.cu:63:28), for Duplicated mean, eccentricity, anomaly; Const n.
// 1. put the seeds into danomaly. dmean, deccentricity are added to: clear first.
// 2. launch eccentric_anomaly_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32).
// 3. E_saved_base[0] = 0; E_saved_base[g + 1] = E_saved_base[g] + 32 * (greatest E_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of E_saved.
// 4. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 5. launch eccentric_anomaly_reverse with the same grid and block.
// On exit danomaly holds the adjoint of the state before the launch; dmean, deccentricity have grown by the gradient.
// Compile eccentric_anomaly and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of danomaly, deccentricity, dmean, as for grid (4, 1, 1), block (32, 1, 1), n = 120.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void eccentric_anomaly_count(
    const double* mean, const double* eccentricity, const double* anomaly, int n, int* E_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const double m = mean[i];
        const double e = eccentricity[i];
        bool go = true;
        int iteration = 0;
        double E = m;
        while (go) {
            const double f = E - e * sin(E) - m;
            const double move = f / (1.0 - e * cos(E));
            E -= move;
            bool broken = fabs(move) < 1.0e-13;
            if (!broken) {
                ++iteration;
                go = iteration < 30;
            } else {
                go = false;
            }
            ++depth;
            deepest = max(deepest, depth);
        }
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    E_saved_depth[thread] = deepest;
}

extern "C" __global__ void eccentric_anomaly_reverse(
    const double* mean, double* dmean, const double* eccentricity, double* deccentricity,
    const double* anomaly, double* danomaly, int n, const long long* E_saved_base, double* E_saved,
    int* gpuad_overflow)
{
    int E_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long E_saved_base_end = E_saved_base[thread / 32LL + 1LL];
    long long E_saved_base_lane = E_saved_base[thread / 32LL] + thread % 32LL;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const double m = mean[i];
        const double e = eccentricity[i];
        bool go = true;
        int iteration = 0;
        double E = m;
        int iterations = 0;
        while (go) {
            const double f = E - e * sin(E) - m;
            const double move = f / (1.0 - e * cos(E));
            const double E_2 = E - move;
            bool broken = fabs(move) < 1.0e-13;
            if (!broken) {
                ++iteration;
                go = iteration < 30;
            } else {
                go = false;
            }
            long long E_at = E_saved_base_lane + E_top * 32LL;
            if (E_at < E_saved_base_end) {
                E_saved[E_at] = E;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++E_top;
            E = E_2;
            ++iterations;
        }
        const double danomaly_2 = danomaly[i];
        danomaly[i] = 0.0;
        double dE = danomaly_2;
        double de = 0.0;
        double dm = 0.0;
        for (int iteration_2 = iterations - 1; iteration_2 >= 0; --iteration_2) {
            --E_top;
            const double E_2 = E_saved[E_saved_base_lane + E_top * 32LL];
            const double dmove = -gpuad_chain(dE, 1.0 / (1.0 - e * cos(E_2)));
            const double dmove_2 = -gpuad_chain(dmove, (E_2 - e * sin(E_2) - m) / (1.0 - e * cos(E_2)));
            dE = dE + sin(E_2) * (e * dmove_2) + dmove - cos(E_2) * (e * dmove);
            de += -(cos(E_2) * dmove_2) - sin(E_2) * dmove;
            dm -= dmove;
        }
        if (de != 0.0) {
            deccentricity[i] += de;
        }
        dmean[i] += dE + dm;
    }
}

// adjoint of `eccentric_anomaly`
//   not saved  mean                          never overwritten by this launch
//   not saved  eccentricity                  never overwritten by this launch
//   not saved  anomaly                       no derivative needs what was overwritten
//   stack      E_saved              scratch  an entry an iteration, needed by kepler.cu:68:5
//   shadow     dmean                plain    no two threads touch one element (kepler.cu:66:16)
//   shadow     deccentricity        plain    no two threads touch one element (kepler.cu:66:29)
//   shadow     danomaly             plain    no two threads touch one element (kepler.cu:74:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
