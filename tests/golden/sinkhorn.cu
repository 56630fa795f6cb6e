// gpuad: adjoint of `sinkhorn` (sinkhorn.cu:21:28), for Duplicated cost, log_mass, there, here; Const rows, columns, epsilon.
// 1. before sinkhorn runs, copy here to here_saved (all that it may touch).
// 2. put the seeds into dhere. dcost, dlog_mass, dthere are added to: clear first.
// 3. launch sinkhorn_partials with the same grid and block. It fills dsum_partial, an element for each thread of the launch.
// 4. launch sinkhorn_gather with grid (3, 1, 1) and the block of sinkhorn.
// 5. launch sinkhorn_reverse with the same grid and block.
// On exit dhere holds the adjoint of the state before the launch; dcost, dlog_mass, dthere have grown by the gradient.
// Holds where no two threads touch one element of dcost, dhere, dlog_mass
// and the gather's threads do not meet in dthere, as for grid (2, 1, 1), block (8, 1, 1), rows = 13, columns = 17.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void sinkhorn_partials(
    const float* cost, const float* there, const float* dhere, int rows, int columns, float epsilon,
    const float* here_saved, float* dsum_partial)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows) {
        const float own = here_saved[i];
        float sum = 0.0f;
        for (int j = 0; j < columns; ++j) {
            sum += expf((own + there[j] - cost[i * columns + j]) / epsilon);
        }
        const float dhere_2 = epsilon * dhere[i];
        const float dsum = -gpuad_chain(dhere_2, isinf(sum) ? sum : 1.0f / sum);
        dsum_partial[i] = dsum;
    }
}

extern "C" __global__ void sinkhorn_gather(
    const float* cost, const float* there, float* dthere, int rows, int columns, float epsilon,
    const float* here_saved, const float* dsum_partial)
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    float dthere_2 = 0.0f;
    if (j < columns) {
        for (int i = 0; i < rows; ++i) {
            dthere_2 += gpuad_chain(gpuad_chain(dsum_partial[i],
                expf((here_saved[i] + there[j] - cost[i * columns + j]) / epsilon)), 1.0f / epsilon);
        }
    }
    if (dthere_2 != 0.0f) {
        dthere[j] += dthere_2;
    }
}

extern "C" __global__ void sinkhorn_reverse(
    const float* cost, float* dcost, const float* log_mass, float* dlog_mass, const float* there,
    const float* dthere, const float* here, float* dhere, int rows, int columns, float epsilon,
    const float* here_saved, const float* dsum_partial)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows) {
        const float own = here_saved[i];
        const float dhere_2 = dhere[i];
        dlog_mass[i] += epsilon * dhere_2;
        const float dsum = dsum_partial[i];
        float down = 0.0f;
        for (int j = 0; j < columns; ++j) {
            const float dsum_2 = gpuad_chain(gpuad_chain(dsum,
                expf((own + there[j] - cost[i * columns + j]) / epsilon)), 1.0f / epsilon);
            dcost[i * columns + j] -= dsum_2;
            down += dsum_2;
        }
        dhere[i] = dhere_2 + down;
    }
}

// adjoint of `sinkhorn`
//   not saved  cost                          never overwritten by this launch
//   not saved  log_mass                      never overwritten by this launch
//   not saved  there                         never overwritten by this launch
//   saved      here                 copy     needed by sinkhorn.cu:25:17, overwritten by sinkhorn.cu:27:5
//   partial    dsum_partial         scratch  an element a thread, sinkhorn.cu:26:5, for those that gather
//   shadow     dcost                plain    no two threads touch one element (sinkhorn.cu:26:69)
//   shadow     dlog_mass            plain    no two threads touch one element (sinkhorn.cu:27:32)
//   shadow     dthere               gather   each thread of sinkhorn_gather collects for an element of its own (sinkhorn.cu:26:58)
//   shadow     dhere                plain    no two threads touch one element (sinkhorn.cu:27:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
