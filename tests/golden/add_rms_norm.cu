// gpuad: adjoint of `add_rms_norm` (add_rms_norm.cu:25:28), for Duplicated x, residual, weight; Const rows, pairs.
// 1. before add_rms_norm runs, copy x to x_saved, residual to residual_saved (all that it may touch). residual_saved will be overwritten.
// 2. put the seeds into dx, dresidual. dweight is added to: clear first.
// 3. launch add_rms_norm_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32). It overwrites the copies: give it copies of its own.
// 4. a_x_saved_base[0] = 0; a_x_saved_base[g + 1] = a_x_saved_base[g] + 32 * (greatest a_x_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of a_x_saved, residual_saved.
// 5. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 6. launch add_rms_norm_reverse with the same grid and block.
// On exit dx, dresidual hold the adjoint of the state before the launch; dweight has grown by the gradient.
// Holds where no two threads touch one element of dresidual, dx, as for grid (5, 1, 1), block (64, 1, 1), rows = 9, pairs = 40.

// A bfloat16 is the upper half of a float: kept as its bits, and computed with in float.
__device__ inline float gpuad_from_bfloat16(unsigned short bits) { return __uint_as_float((unsigned int)bits << 16); }
__device__ inline unsigned short gpuad_to_bfloat16(float value)
{
#if __CUDA_ARCH__ >= 800
    unsigned short result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(value));
    return result;
#else
    const unsigned int bits = __float_as_uint(value);
    return value != value ? 0x7fff : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
#endif
}
__device__ inline float gpuad_bfloat16(float value) { return gpuad_from_bfloat16(gpuad_to_bfloat16(value)); }
__device__ inline double gpuad_bfloat16(double value)
{
    float odd = __double2float_rz(value);  // rounded to odd, so that the second rounding is as if there had been one
    if (odd != value) odd = __uint_as_float(__float_as_uint(odd) | 1u);
    return gpuad_bfloat16(odd);
}

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

// How many iterations `for (i = start; i < stop; i += step)` has.
__device__ inline long long gpuad_trips(long long start, long long stop, long long step)
{
    return start < stop ? (stop - start - 1) / step + 1 : 0;
}

extern "C" __global__ void add_rms_norm_count(
    const unsigned short* x, const unsigned short* residual, const unsigned short* weight, int rows,
    int pairs, const unsigned short* x_saved, const unsigned short* residual_saved, int* a_x_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32u;
    int lane = threadIdx.x % 32u;
    if (row < rows) {
        for (int k = lane; k < pairs; k += 32) {
            ++depth;
            deepest = max(deepest, depth);
        }
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    a_x_saved_depth[thread] = deepest;
}

extern "C" __global__ void add_rms_norm_reverse(
    const unsigned short* x, float* dx, const unsigned short* residual, float* dresidual,
    const unsigned short* weight, float* dweight, int rows, int pairs, const unsigned short* x_saved,
    unsigned short* residual_saved, const long long* a_x_saved_base, float* a_x_saved,
    float* residual_saved_2, int* gpuad_overflow)
{
    int a_x_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long a_x_saved_base_end = a_x_saved_base[thread / 32LL + 1LL];
    long long a_x_saved_base_lane = a_x_saved_base[thread / 32LL] + thread % 32LL;
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32u;
    int lane = threadIdx.x % 32u;
    unsigned int active = row < rows ? 1u : 0u;
    unsigned int ballot = __ballot_sync(0xffffffffu, active);
    if (row < rows) {
        float sum = 0.0f;
        for (int k = lane; k < pairs; k += 32) {
            const float a = gpuad_from_bfloat16(residual_saved[(row * pairs + k) * 2LL + 1LL]);
            const float b = gpuad_from_bfloat16(x_saved[(row * pairs + k) * 2LL + 1LL]);
            const float residual_2 = gpuad_bfloat16(gpuad_from_bfloat16(residual_saved[(row * pairs + k) * 2LL])
                + gpuad_from_bfloat16(x_saved[(row * pairs + k) * 2LL]));
            residual_saved[(row * pairs + k) * 2LL] = gpuad_to_bfloat16(residual_2);
            const float residual_3 = gpuad_bfloat16(a + b);
            residual_saved[(row * pairs + k) * 2LL + 1LL] = gpuad_to_bfloat16(residual_3);
            const float a_x = gpuad_from_bfloat16(residual_saved[(row * pairs + k) * 2LL]);
            sum += a_x * a_x + residual_3 * residual_3;
            long long a_x_at = a_x_saved_base_lane + a_x_top * 32LL;
            if (a_x_at < a_x_saved_base_end) {
                a_x_saved[a_x_at] = a_x;
                residual_saved_2[a_x_at] = residual_3;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++a_x_top;
        }
        float value = sum;
        for (int iteration = 0; iteration < 5; ++iteration) {
            int d = 16 >> iteration;
            const float other = __shfl_xor_sync(ballot, value, d);
            value += other;
        }
        const float inverse = rsqrtf(value / (2 * pairs) + 1.0e-5f);
        float dinverse = 0.0f;
        for (long long k_count = gpuad_trips(lane, pairs, 32) - 1; k_count >= 0; --k_count) {
            const int k = lane + k_count * 32;
            const float a_x = gpuad_from_bfloat16(residual_saved[(row * pairs + k) * 2LL]);
            const float a_y = gpuad_from_bfloat16(residual_saved[(row * pairs + k) * 2LL + 1LL]);
            const float b_x = gpuad_from_bfloat16(weight[k * 2LL]);
            const float b_y = gpuad_from_bfloat16(weight[k * 2LL + 1LL]);
            const float dx_2 = dx[(row * pairs + k) * 2LL + 1LL];
            dx[(row * pairs + k) * 2LL + 1LL] = 0.0f;
            const float dx_3 = dx[(row * pairs + k) * 2LL];
            dx[(row * pairs + k) * 2LL] = 0.0f;
            atomicAdd(&dweight[k * 2LL + 1LL], gpuad_bfloat16(a_y * inverse) * dx_2);
            atomicAdd(&dweight[k * 2LL], gpuad_bfloat16(a_x * inverse) * dx_3);
            const float db = b_y * dx_2;
            const float da = b_x * dx_3;
            dresidual[(row * pairs + k) * 2LL + 1LL] += inverse * db;
            dresidual[(row * pairs + k) * 2LL] += inverse * da;
            dinverse += a_y * db + a_x * da;
        }
        float dvalue = dinverse != 0.0f ? gpuad_chain(gpuad_chain(dinverse, -0.5f * (inverse * (inverse * inverse))),
            1.0f / (2 * pairs)) : 0.0f;
        for (int iteration = 4; iteration >= 0; --iteration) {
            int thread_2 = (int)threadIdx.x + (int)blockDim.x * ((int)threadIdx.y + (int)blockDim.y * (int)threadIdx.z);
            int lane_2 = thread_2 & 31;
            int distance = 16 >> iteration & 31;
            int other = lane_2 ^ distance;
            float dother = __shfl_xor_sync(ballot, dvalue, distance);
            dother = thread_2 - lane_2 + other < (int)blockDim.x * ((int)blockDim.y * (int)blockDim.z)
                && (ballot >> (unsigned int)other & 1u) != 0u ? dother : 0.0f;
            dvalue += dother;
        }
        for (long long k_count = gpuad_trips(lane, pairs, 32) - 1; k_count >= 0; --k_count) {
            const int k = lane + k_count * 32;
            --a_x_top;
            const float residual_2 = residual_saved_2[a_x_saved_base_lane + a_x_top * 32LL];
            dresidual[(row * pairs + k) * 2LL] += 2.0f * (a_x_saved[a_x_saved_base_lane + a_x_top * 32LL] * dvalue);
            float dresidual_2 = dresidual[(row * pairs + k) * 2LL + 1LL];
            dresidual[(row * pairs + k) * 2LL + 1LL] = 0.0f;
            dresidual_2 += 2.0f * (residual_2 * dvalue);
            const float dresidual_3 = dresidual[(row * pairs + k) * 2LL];
            dresidual[(row * pairs + k) * 2LL] = 0.0f;
            dx[(row * pairs + k) * 2LL + 1LL] += dresidual_2;
            dresidual[(row * pairs + k) * 2LL + 1LL] += dresidual_2;
            dx[(row * pairs + k) * 2LL] += dresidual_3;
            dresidual[(row * pairs + k) * 2LL] += dresidual_3;
        }
    }
}

// adjoint of `add_rms_norm`
//   saved      x                    copy     needed by add_rms_norm.cu:31:9, overwritten by add_rms_norm.cu:38:9
//   saved      residual             copy     needed by add_rms_norm.cu:31:9, overwritten by add_rms_norm.cu:31:9
//   not saved  weight                        never overwritten by this launch
//   stack      a_x_saved            scratch  an entry an iteration, needed by add_rms_norm.cu:30:5
//   stack      residual_saved       scratch  an entry an iteration, needed by add_rms_norm.cu:30:5
//   shadow     dx                   plain    no two threads touch one element (add_rms_norm.cu:38:9)
//   shadow     dresidual            plain    no two threads touch one element (add_rms_norm.cu:37:45)
//   shadow     dweight              atomic   it is not proved that no two threads meet in one element (add_rms_norm.cu:38:91)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
