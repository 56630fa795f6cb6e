// gpuad: adjoint of `tile_softmax` (tile_softmax.cu:27:28), for Duplicated x; Const rows, n.
// 1. before tile_softmax runs, copy x to x_saved (all that it may touch).
// 2. put the seeds into dx.
// 3. launch tile_softmax_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch.
// Compile tile_softmax and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dx, as for grid (3, 1, 1), block (64, 1, 1), rows = 19, n = 21.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void tile_softmax_reverse(
    const float* x, float* dx, int rows, int n, const float* x_saved)
{
    float value_saved[3];
    int value_top = 0;
    unsigned int rank = (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 8u;
    unsigned int number = (blockDim.x * blockDim.y * blockDim.z + 7u) / 8u;
    unsigned int a = blockIdx.x;
    int i = a * number + rank;
    unsigned int active = i < rows ? 1u : 0u;
    unsigned int ballot = __ballot_sync(0xffffffffu, active);
    if (i < rows) {
        float result = -3.0e38f;
        int result_at = (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z) & 7u) - 8;
        for (int k = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z) & 7u; k < n; k += 8) {
            const float x_2 = x_saved[i * n + (long long)k];
            const float result_2 = fmaxf(result, x_2);
            result_at = result >= x_2 || x_2 != x_2 ? result_at : k;
            result = result_2;
        }
        float value = result;
        for (int k = 0; k < 3; ++k) {
            unsigned int mask = 255u << (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z) & 24u);
            int lane = 1 << k;
            const float other = __shfl_xor_sync(mask & ballot, value, lane);
            bool first = ((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z) & 7u) >> k & 1u) == 0u;
            const float a_2 = first ? value : other;
            const float b = first ? other : value;
            const float value_2 = a_2 < b ? b : a_2;
            value_saved[value_top] = value;
            ++value_top;
            value = value_2;
        }
        float sum = 0.0f;
        for (int k = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z) & 7u; k < n; k += 8) {
            sum += expf(x_saved[i * n + (long long)k] - value);
        }
        float value_2 = sum;
        for (int k = 0; k < 3; ++k) {
            unsigned int mask = 255u << (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z) & 24u);
            int lane = 1 << k;
            const float other = __shfl_xor_sync(mask & ballot, value_2, lane);
            value_2 += other;
        }
        float dvalue = 0.0f;
        float dvalue_2 = 0.0f;
        for (int k = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z) & 7u; k < n; k += 8) {
            const float x_2 = x_saved[i * n + (long long)k];
            const float dx_2 = gpuad_chain(dx[i * n + (long long)k], 1.0f / value_2);
            const float dx_3 = gpuad_chain(dx_2, expf(x_2 - value));
            dx[i * n + (long long)k] = dx_3;
            dvalue -= dx_3;
            dvalue_2 -= gpuad_chain(dx_2, expf(x_2 - value) / value_2);
        }
        for (int k = 2; k >= 0; --k) {
            unsigned int mask = 255u << (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z) & 24u);
            int thread = (int)threadIdx.x + (int)blockDim.x * ((int)threadIdx.y + (int)blockDim.y * (int)threadIdx.z);
            int lane = thread & 31;
            int distance = 1 << k & 31;
            int other = lane ^ distance;
            float dother = __shfl_xor_sync(mask & ballot, dvalue_2, distance);
            dother = thread - lane + other < (int)blockDim.x * ((int)blockDim.y * (int)blockDim.z)
                && ((mask & ballot) >> (unsigned int)other & 1u) != 0u ? dother : 0.0f;
            dvalue_2 += dother;
        }
        float dvalue_3 = 0.0f;
        for (int k = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z) & 7u; k < n; k += 8) {
            const float dsum = gpuad_chain(dvalue_2, expf(x_saved[i * n + (long long)k] - value));
            dx[i * n + (long long)k] += dsum;
            dvalue_3 -= dsum;
        }
        dvalue += dvalue_3;
        for (int k = 2; k >= 0; --k) {
            --value_top;
            const float value_3 = value_saved[value_top];
            unsigned int mask = 255u << (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z) & 24u);
            int lane = 1 << k;
            const float other = __shfl_xor_sync(mask & ballot, value_3, lane);
            bool first = ((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z) & 7u) >> k & 1u) == 0u;
            const float a_2 = first ? value_3 : other;
            const float b = first ? other : value_3;
            int thread = (int)threadIdx.x + (int)blockDim.x * ((int)threadIdx.y + (int)blockDim.y * (int)threadIdx.z);
            int lane_2 = thread & 31;
            int distance = lane & 31;
            int other_2 = lane_2 ^ distance;
            float dother = __shfl_xor_sync(mask & ballot,
                (a_2 < b && first ? dvalue : 0.0f) + (!(a_2 < b) && !first ? dvalue : 0.0f), distance);
            dother = thread - lane_2 + other_2 < (int)blockDim.x * ((int)blockDim.y * (int)blockDim.z)
                && ((mask & ballot) >> (unsigned int)other_2 & 1u) != 0u ? dother : 0.0f;
            dvalue = dother + (a_2 < b && !first ? dvalue : 0.0f) + (!(a_2 < b) && first ? dvalue : 0.0f);
        }
        if (result_at >= (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z) & 7u)
                && result_at < n && (result_at - (int)(threadIdx.x
                + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z) & 7u)) % 8 == 0) {
            dx[i * n + (long long)result_at] += dvalue;
        }
    }
}

// adjoint of `tile_softmax`
//   saved      x                    copy     needed by tile_softmax.cu:23:88, overwritten by tile_softmax.cu:37:63
//   stack      value_saved          local    3 entries in each thread
//   shadow     dx                   plain    no two threads touch one element (tile_softmax.cu:37:63)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
