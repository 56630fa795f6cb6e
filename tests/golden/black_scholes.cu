// gpuad: adjoint of `black_scholes` (black_scholes.cu:48:28), for Duplicated spot, strike, years, call, put; Active rate, volatility; Const n.
// 1. put the seeds into dcall, dput. dspot, dstrike, dyears, drate, dvolatility are added to: clear first.
// 2. launch black_scholes_reverse with the same grid and block.
// On exit dcall, dput hold the adjoint of the state before the launch; dspot, dstrike, dyears, drate, dvolatility have grown by the gradient.
// Compile black_scholes and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dcall, dput, dspot, dstrike, dyears, as for grid (4, 1, 1), block (128, 1, 1), n = 500.

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

extern "C" __global__ void black_scholes_reverse(
    const float* spot, float* dspot, const float* strike, float* dstrike, const float* years, float* dyears,
    float rate, double* drate, float volatility, double* dvolatility, const float* call, float* dcall,
    const float* put, float* dput, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float drate_2 = 0.0f;
    float dvolatility_2 = 0.0f;
    if (i < n) {
        const float s = spot[i];
        const float x = strike[i];
        const float t = years[i];
        const float root = sqrtf(t);
        const float d1 = (logf(s / x) + (rate + 0.5f * volatility * volatility) * t) / (volatility * root);
        const float d2 = d1 - volatility * root;
        const float discounted = x * expf(-rate * t);
        const float k = 1.0f / (1.0f + 0.2316419f * fabsf(d1));
        const float tail = 0.3989423f * expf(-0.5f * d1 * d1)
            * (k * (0.31938154f + k * (-0.35656378f + k * (1.7814779f + k * (-1.8212559f + k * 1.3302745f)))));
        const float normal_distribution = d1 > 0.0f ? 1.0f - tail : tail;
        const float k_2 = 1.0f / (1.0f + 0.2316419f * fabsf(d2));
        const float tail_2 = 0.3989423f * expf(-0.5f * d2 * d2)
            * (k_2 * (0.31938154f + k_2 * (-0.35656378f
            + k_2 * (1.7814779f + k_2 * (-1.8212559f + k_2 * 1.3302745f)))));
        const float normal_distribution_2 = d2 > 0.0f ? 1.0f - tail_2 : tail_2;
        const float dput_2 = dput[i];
        dput[i] = 0.0f;
        const float dcall_2 = dcall[i];
        dcall[i] = 0.0f;
        const float dnormal_distribution = -(discounted * dput_2) - discounted * dcall_2;
        const float dtail = d2 > 0.0f ? -dnormal_distribution : dnormal_distribution;
        const float dtail_2 = 0.3989423f * (expf(-0.5f * d2 * d2) * dtail);
        const float dtail_3 = k_2 * dtail_2;
        const float dtail_4 = k_2 * dtail_3;
        const float dtail_5 = k_2 * dtail_4;
        const float dnormal_distribution_2 = s * dput_2 + s * dcall_2;
        const float dtail_6 = d1 > 0.0f ? -dnormal_distribution_2 : dnormal_distribution_2;
        const float dtail_7 = 0.3989423f * (expf(-0.5f * d1 * d1) * dtail_6);
        const float dtail_8 = k * dtail_7;
        const float dtail_9 = k * dtail_8;
        const float dtail_10 = k * dtail_9;
        const float ddiscounted = (1.0f - normal_distribution_2) * dput_2 - normal_distribution_2 * dcall_2;
        const float ddiscounted_2 = gpuad_chain(x * ddiscounted, expf(-rate * t));
        const float dd2 = (d2 > 0.0f ? -0.2316419f
            * gpuad_chain(gpuad_chain((0.31938154f
            + k_2 * (-0.35656378f + k_2 * (1.7814779f + k_2 * (-1.8212559f + k_2 * 1.3302745f)))) * dtail_2
            + (-0.35656378f + k_2 * (1.7814779f + k_2 * (-1.8212559f + k_2 * 1.3302745f))) * dtail_3
            + (1.7814779f + k_2 * (-1.8212559f + k_2 * 1.3302745f)) * dtail_4
            + (-1.8212559f + k_2 * 1.3302745f) * dtail_5 + 1.3302745f * (k_2 * dtail_5), k_2), k_2) : d2 < 0.0f
            ? 0.2316419f * gpuad_chain(gpuad_chain((0.31938154f
            + k_2 * (-0.35656378f + k_2 * (1.7814779f + k_2 * (-1.8212559f + k_2 * 1.3302745f)))) * dtail_2
            + (-0.35656378f + k_2 * (1.7814779f + k_2 * (-1.8212559f + k_2 * 1.3302745f))) * dtail_3
            + (1.7814779f + k_2 * (-1.8212559f + k_2 * 1.3302745f)) * dtail_4
            + (-1.8212559f + k_2 * 1.3302745f) * dtail_5 + 1.3302745f * (k_2 * dtail_5), k_2), k_2) : 0.0f)
            - d2 * (expf(-0.5f * d2 * d2) * (0.3989423f
            * (k_2 * (0.31938154f + k_2 * (-0.35656378f + k_2 * (1.7814779f + k_2 * (-1.8212559f + k_2 * 1.3302745f))))
            * dtail)));
        const float dd1 = gpuad_chain((d1 > 0.0f
            ? -0.2316419f * gpuad_chain(gpuad_chain((0.31938154f
            + k * (-0.35656378f + k * (1.7814779f + k * (-1.8212559f + k * 1.3302745f)))) * dtail_7
            + (-0.35656378f + k * (1.7814779f + k * (-1.8212559f + k * 1.3302745f))) * dtail_8
            + (1.7814779f + k * (-1.8212559f + k * 1.3302745f)) * dtail_9 + (-1.8212559f + k * 1.3302745f) * dtail_10
            + 1.3302745f * (k * dtail_10), k), k) : d1 < 0.0f
            ? 0.2316419f * gpuad_chain(gpuad_chain((0.31938154f
            + k * (-0.35656378f + k * (1.7814779f + k * (-1.8212559f + k * 1.3302745f)))) * dtail_7
            + (-0.35656378f + k * (1.7814779f + k * (-1.8212559f + k * 1.3302745f))) * dtail_8
            + (1.7814779f + k * (-1.8212559f + k * 1.3302745f)) * dtail_9 + (-1.8212559f + k * 1.3302745f) * dtail_10
            + 1.3302745f * (k * dtail_10), k), k) : 0.0f)
            - d1 * (expf(-0.5f * d1 * d1) * (0.3989423f
            * (k * (0.31938154f + k * (-0.35656378f + k * (1.7814779f + k * (-1.8212559f + k * 1.3302745f))))
            * dtail_6))) + dd2, 1.0f / (volatility * root));
        const float dd1_2 = gpuad_chain(gpuad_chain(dd1, 1.0f / (s / x)), 1.0f / x);
        const float dd1_3 = t * dd1;
        const float dd1_4 = -gpuad_chain(dd1, d1);
        dyears[i] += (rate + 0.5f * volatility * volatility) * dd1 - rate * ddiscounted_2
            + gpuad_chain(volatility * dd1_4 - volatility * dd2, 0.5f / root);
        dstrike[i] += expf(-rate * t) * ddiscounted - gpuad_chain(dd1_2, s / x);
        dspot[i] += normal_distribution * dcall_2 - (1.0f - normal_distribution) * dput_2 + dd1_2;
        drate_2 = dd1_3 - t * ddiscounted_2;
        dvolatility_2 = volatility * dd1_3 - root * dd2 + root * dd1_4;
    }
    gpuad_block_sum(&drate[0], (double)drate_2);
    gpuad_block_sum(&dvolatility[0], (double)dvolatility_2);
}

// adjoint of `black_scholes`
//   not saved  spot                          never overwritten by this launch
//   not saved  strike                        never overwritten by this launch
//   not saved  years                         never overwritten by this launch
//   not saved  call                          no derivative needs what was overwritten
//   not saved  put                           no derivative needs what was overwritten
//   shadow     dspot                plain    no two threads touch one element (black_scholes.cu:52:15)
//   shadow     dstrike              plain    no two threads touch one element (black_scholes.cu:52:28)
//   shadow     dyears               plain    no two threads touch one element (black_scholes.cu:52:43)
//   shadow     drate                reduced  summed over each block, then one atomic addition a block (black_scholes.cu:48:28)
//   shadow     dvolatility          reduced  summed over each block, then one atomic addition a block (black_scholes.cu:48:28)
//   shadow     dcall                plain    no two threads touch one element (black_scholes.cu:58:5)
//   shadow     dput                 plain    no two threads touch one element (black_scholes.cu:59:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
