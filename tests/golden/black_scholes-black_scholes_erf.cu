// gpuad: adjoint of `black_scholes_erf` (black_scholes.cu:64:28), for Duplicated price; Active strike, years, rate, volatility; Const n.
// 1. before black_scholes_erf runs, copy price to price_saved (all that it may touch).
// 2. put the seeds into dprice. dstrike, dyears, drate, dvolatility are added to: clear first.
// 3. launch black_scholes_erf_reverse with the same grid and block.
// On exit dprice holds the adjoint of the state before the launch; dstrike, dyears, drate, dvolatility have grown by the gradient.
// Holds where no two threads touch one element of dprice, as for grid (3, 1, 1), block (128, 1, 1), n = 300.

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

extern "C" __global__ void black_scholes_erf_reverse(
    const double* price, double* dprice, double strike, double* dstrike, double years, double* dyears,
    double rate, double* drate, double volatility, double* dvolatility, int n, const double* price_saved)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double dstrike_2 = 0.0;
    double drate_2 = 0.0;
    double dyears_2 = 0.0;
    double dvolatility_2 = 0.0;
    if (i < n) {
        const double spot = price_saved[i];
        const double d1 = (log(spot / strike) + (rate + 0.5 * volatility * volatility) * years)
            / (volatility * sqrt(years));
        const double d2 = d1 - volatility * sqrt(years);
        const double dprice_2 = dprice[i];
        const double dprice_3 = -0.5 * ((1.0 + erf(d2 * 0.7071067811865476)) * dprice_2);
        const double dprice_4 = gpuad_chain(strike * dprice_3, exp(-rate * years));
        const double dd2 = 0.7071067811865476
            * (-0.5641895835477563 * (exp(-(d2 * 0.7071067811865476 * (d2 * 0.7071067811865476)))
            * (strike * exp(-rate * years) * dprice_2)));
        const double dd1 = gpuad_chain(0.7071067811865476
            * (0.5641895835477563 * (exp(-(d1 * 0.7071067811865476 * (d1 * 0.7071067811865476))) * (spot * dprice_2)))
            + dd2, 1.0 / (volatility * sqrt(years)));
        const double dd1_2 = gpuad_chain(gpuad_chain(dd1, 1.0 / (spot / strike)), 1.0 / strike);
        const double dd1_3 = years * dd1;
        const double dd1_4 = -gpuad_chain(dd1, d1);
        dprice[i] = 0.5 * ((1.0 + erf(d1 * 0.7071067811865476)) * dprice_2) + dd1_2;
        dstrike_2 = exp(-rate * years) * dprice_3 - gpuad_chain(dd1_2, spot / strike);
        drate_2 = dd1_3 - years * dprice_4;
        dyears_2 = -(rate * dprice_4) - gpuad_chain(volatility * dd2, 0.5 / sqrt(years))
            + (rate + 0.5 * volatility * volatility) * dd1 + gpuad_chain(volatility * dd1_4, 0.5 / sqrt(years));
        dvolatility_2 = volatility * dd1_3 - sqrt(years) * dd2 + sqrt(years) * dd1_4;
    }
    gpuad_block_sum(&dstrike[0], dstrike_2);
    gpuad_block_sum(&dyears[0], dyears_2);
    gpuad_block_sum(&drate[0], drate_2);
    gpuad_block_sum(&dvolatility[0], dvolatility_2);
}

// adjoint of `black_scholes_erf`
//   saved      price                copy     needed by black_scholes.cu:67:19, overwritten by black_scholes.cu:70:5
//   shadow     dprice               plain    no two threads touch one element (black_scholes.cu:70:5)
//   shadow     dstrike              reduced  summed over each block, then one atomic addition a block (black_scholes.cu:64:28)
//   shadow     dyears               reduced  summed over each block, then one atomic addition a block (black_scholes.cu:64:28)
//   shadow     drate                reduced  summed over each block, then one atomic addition a block (black_scholes.cu:64:28)
//   shadow     dvolatility          reduced  summed over each block, then one atomic addition a block (black_scholes.cu:64:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
