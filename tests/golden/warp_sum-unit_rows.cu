// gpuad: adjoint of `unit_rows` (warp_sum.cu:22:28), for Duplicated x, length; Const rows, n.
// 1. before unit_rows runs, copy x to x_saved (all that it may touch).
// 2. put the seeds into dx, dlength.
// 3. launch unit_rows_reverse with the same grid and block.
// On exit dx, dlength hold the adjoint of the state before the launch.
// Holds where no two threads touch one element of dlength, dx, as for grid (7, 1, 1), block (64, 1, 1), rows = 13, n = 45.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void unit_rows_reverse(
    const float* x, float* dx, const float* length, float* dlength, int rows, int n, const float* x_saved)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32u;
    int lane = threadIdx.x % 32u;
    unsigned int active = row < rows ? 1u : 0u;
    unsigned int ballot = __ballot_sync(0xffffffffu, active);
    if (row < rows) {
        float sum = 0.0f;
        for (int k = lane; k < n; k += 32) {
            const float x_2 = x_saved[row * n + k];
            sum += x_2 * x_2;
        }
        float value = sum;
        for (int iteration = 0; iteration < 5; ++iteration) {
            int d = 16 >> iteration;
            const float other = __shfl_xor_sync(ballot, value, d);
            value += other;
        }
        const float sum_2 = sqrtf(value);
        float dsum = 0.0f;
        if (lane == 0) {
            const float dlength_2 = dlength[row];
            dlength[row] = 0.0f;
            dsum = dlength_2;
        }
        float dsum_2 = 0.0f;
        for (int k = lane; k < n; k += 32) {
            const float x_2 = x_saved[row * n + k];
            const float dx_2 = gpuad_chain(dx[row * n + k], 1.0f / sum_2);
            dx[row * n + k] = dx_2;
            dsum_2 -= gpuad_chain(dx_2, x_2 / sum_2);
        }
        dsum += dsum_2;
        float dvalue = dsum != 0.0f ? gpuad_chain(dsum, 0.5f / sum_2) : 0.0f;
        for (int iteration = 4; iteration >= 0; --iteration) {
            int thread = (int)threadIdx.x + (int)blockDim.x * ((int)threadIdx.y + (int)blockDim.y * (int)threadIdx.z);
            int lane_2 = thread & 31;
            int distance = 16 >> iteration & 31;
            int other = lane_2 ^ distance;
            float dother = __shfl_xor_sync(ballot, dvalue, distance);
            dother = thread - lane_2 + other < (int)blockDim.x * ((int)blockDim.y * (int)blockDim.z)
                && (ballot >> (unsigned int)other & 1u) != 0u ? dother : 0.0f;
            dvalue += dother;
        }
        for (int k = lane; k < n; k += 32) {
            dx[row * n + k] += 2.0f * (x_saved[row * n + k] * dvalue);
        }
    }
}

// adjoint of `unit_rows`
//   saved      x                    copy     needed by warp_sum.cu:27:47, overwritten by warp_sum.cu:29:40
//   not saved  length                        no derivative needs what was overwritten
//   shadow     dx                   plain    no two threads touch one element (warp_sum.cu:29:40)
//   shadow     dlength              plain    no two threads touch one element (warp_sum.cu:30:20)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
