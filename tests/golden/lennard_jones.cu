// gpuad: adjoint of `lennard_jones` (lennard_jones.cu:31:28), for Duplicated x, y, z, force, energy; Active sigma, epsilon; Const list, neighbours, cutoff, n.
// 1. put the seeds into dforce, denergy. dx, dy, dz, dsigma, depsilon are added to: clear first.
// 2. launch lennard_jones_reverse with the same grid and block.
// On exit dforce, denergy hold the adjoint of the state before the launch; dx, dy, dz, dsigma, depsilon have grown by the gradient.
// Compile lennard_jones and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of denergy, dforce, as for grid (4, 1, 1), block (32, 1, 1), neighbours = 12, n = 125.

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

extern "C" __global__ void lennard_jones_reverse(
    const double* x, double* dx, const double* y, double* dy, const double* z, double* dz, const int* list,
    int neighbours, double sigma, double* dsigma, double epsilon, double* depsilon, double cutoff,
    const double* force, double* dforce, const double* energy, double* denergy, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double depsilon_2 = 0.0;
    double dsigma_2 = 0.0;
    if (i < n) {
        const double r2 = cutoff * cutoff;
        const double s2 = sigma * sigma / r2;
        const double s6 = s2 * s2 * s2;
        const double slope_there = -24.0 * epsilon * (2.0 * s6 * s6 - s6) / sqrt(r2);
        const double denergy_2 = denergy[i];
        denergy[i] = 0.0;
        const double dforce_2 = dforce[2 * n + i];
        dforce[2 * n + i] = 0.0;
        const double dforce_3 = dforce[n + i];
        dforce[n + i] = 0.0;
        const double dforce_4 = dforce[i];
        dforce[i] = 0.0;
        double dz_2 = 0.0;
        double dy_2 = 0.0;
        double dx_2 = 0.0;
        double dslope_there = 0.0;
        double dat_cutoff = 0.0;
        for (int k = 0; k < neighbours; ++k) {
            int j = list[i * neighbours + k];
            const double dx_3 = x[j] - x[i];
            const double dy_3 = y[j] - y[i];
            const double dz_3 = z[j] - z[i];
            const double r2_2 = dx_3 * dx_3 + dy_3 * dy_3 + dz_3 * dz_3;
            double ddz = 0.0;
            double ddy = 0.0;
            double ddx = 0.0;
            double dslope_there_2 = 0.0;
            double dat_cutoff_2 = 0.0;
            double depsilon_3 = 0.0;
            double dr2 = 0.0;
            double dsigma_3 = 0.0;
            if (!(r2_2 > cutoff * cutoff)) {
                const double r = sqrt(r2_2);
                const double s2_2 = sigma * sigma / r2_2;
                const double s6_2 = s2_2 * s2_2 * s2_2;
                const double slope = -24.0 * epsilon * (2.0 * s6_2 * s6_2 - s6_2) / sqrt(r2_2);
                const double pull = (slope - slope_there) / r;
                const double dpull = gpuad_chain(dz_3 * dforce_2 + dy_3 * dforce_3 + dx_3 * dforce_4, 1.0 / r);
                const double dsum = 0.5 * denergy_2;
                const double dslope = gpuad_chain(dpull, 1.0 / sqrt(r2_2));
                const double dslope_2 = -24.0 * (epsilon * dslope);
                const double dpotential = 4.0 * (epsilon * dsum);
                const double ds2 = gpuad_chain(3.0
                    * (s2_2 * (s2_2 * (4.0 * (s6_2 * dslope_2) - dslope_2 + 2.0 * (s6_2 * dpotential) - dpotential))),
                    1.0 / r2_2);
                ddz = pull * dforce_2;
                ddy = pull * dforce_3;
                ddx = pull * dforce_4;
                dslope_there_2 = -dpull - (r - cutoff) * dsum;
                dat_cutoff_2 = -dsum;
                depsilon_3 = -24.0 * ((2.0 * s6_2 * s6_2 - s6_2) * dslope) + 4.0 * ((s6_2 * s6_2 - s6_2) * dsum);
                dr2 = -gpuad_chain(gpuad_chain(dslope, slope), 0.5 / sqrt(r2_2)) - gpuad_chain(ds2, s2_2)
                    + gpuad_chain(-gpuad_chain(dpull, pull) - slope_there * dsum, 0.5 / r);
                dsigma_3 = 2.0 * (sigma * ds2);
            }
            ddz += dr2 != 0.0 ? 2.0 * (dz_3 * dr2) : 0.0;
            dz_2 -= ddz;
            atomicAdd(&dz[j], ddz);
            ddy += dr2 != 0.0 ? 2.0 * (dy_3 * dr2) : 0.0;
            dy_2 -= ddy;
            atomicAdd(&dy[j], ddy);
            ddx += dr2 != 0.0 ? 2.0 * (dx_3 * dr2) : 0.0;
            dx_2 -= ddx;
            atomicAdd(&dx[j], ddx);
            dslope_there += dslope_there_2;
            dat_cutoff += dat_cutoff_2;
            depsilon_2 += depsilon_3;
            dsigma_2 += dsigma_3;
        }
        if (dz_2 != 0.0) {
            atomicAdd(&dz[i], dz_2);
        }
        if (dy_2 != 0.0) {
            atomicAdd(&dy[i], dy_2);
        }
        if (dx_2 != 0.0) {
            atomicAdd(&dx[i], dx_2);
        }
        const double dslope_there_2 = gpuad_chain(dslope_there, 1.0 / sqrt(r2));
        const double dslope_there_3 = -24.0 * (epsilon * dslope_there_2);
        const double dat_cutoff_2 = 4.0 * (epsilon * dat_cutoff);
        const double ds2 = gpuad_chain(3.0 * (s2
            * (s2 * ((dslope_there != 0.0 ? 4.0 * (s6 * dslope_there_3) - dslope_there_3 : 0.0)
            + (dat_cutoff != 0.0 ? 2.0 * (s6 * dat_cutoff_2) - dat_cutoff_2 : 0.0)))), 1.0 / r2);
        depsilon_2 = depsilon_2 + (dslope_there != 0.0 ? -24.0 * ((2.0 * s6 * s6 - s6) * dslope_there_2) : 0.0)
            + (dat_cutoff != 0.0 ? 4.0 * ((s6 * s6 - s6) * dat_cutoff) : 0.0);
        dsigma_2 += 2.0 * (sigma * ds2);
    }
    gpuad_block_sum(&dsigma[0], dsigma_2);
    gpuad_block_sum(&depsilon[0], depsilon_2);
}

// adjoint of `lennard_jones`
//   not saved  x                             never overwritten by this launch
//   not saved  y                             never overwritten by this launch
//   not saved  z                             never overwritten by this launch
//   not saved  list                          never overwritten by this launch
//   not saved  force                         no derivative needs what was overwritten
//   not saved  energy                        no derivative needs what was overwritten
//   shadow     dx                   atomic   its index is read from `list`, so that two threads may meet in one element (lennard_jones.cu:40:28)
//   shadow     dy                   atomic   its index is read from `list`, so that two threads may meet in one element (lennard_jones.cu:40:46)
//   shadow     dz                   atomic   its index is read from `list`, so that two threads may meet in one element (lennard_jones.cu:40:64)
//   shadow     dsigma               reduced  summed over each block, then one atomic addition a block (lennard_jones.cu:31:28)
//   shadow     depsilon             reduced  summed over each block, then one atomic addition a block (lennard_jones.cu:31:28)
//   shadow     dforce               plain    no two threads touch one element (lennard_jones.cu:53:5)
//   shadow     denergy              plain    no two threads touch one element (lennard_jones.cu:54:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
//   assumed    lennard_jones.cu:40:21: an index of `x` is data, taken to be in bounds
//   assumed    lennard_jones.cu:40:39: an index of `y` is data, taken to be in bounds
//   assumed    lennard_jones.cu:40:57: an index of `z` is data, taken to be in bounds
