// gpuad: adjoint of `material` (shock_hydrodynamics.cu:245:28), for Duplicated volume, change, rate, length, energy, pressure, viscosity, sound; Active density; Const elements.
// 1. before material runs, copy energy to energy_saved, pressure to pressure_saved, viscosity to viscosity_saved (all that it may touch).
// 2. put the seeds into denergy, dpressure, dviscosity, dsound. dvolume, dchange, drate, dlength, ddensity are added to: clear first.
// 3. launch material_reverse with the same grid and block.
// On exit denergy, dpressure, dviscosity, dsound hold the adjoint of the state before the launch; dvolume, dchange, drate, dlength, ddensity have grown by the gradient.
// Compile material and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dchange, denergy, dlength, dpressure, drate, dsound, dviscosity, dvolume, as for grid (2, 1, 1), block (32, 1, 1), elements = 60.

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

extern "C" __global__ void material_reverse(
    const double* volume, double* dvolume, const double* change, double* dchange, const double* rate,
    double* drate, const double* length, double* dlength, const double* energy, double* denergy,
    const double* pressure, double* dpressure, const double* viscosity, double* dviscosity,
    const double* sound, double* dsound, double density, double* ddensity, int elements,
    const double* energy_saved, const double* pressure_saved, const double* viscosity_saved)
{
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    double ddensity_2 = 0.0;
    if (e < elements) {
        const double v = volume[e];
        const double dv = change[e];
        const double half = v - 0.5 * dv;
        const double before = pressure_saved[e] + viscosity_saved[e];
        const double length_2 = length[e];
        const double rate_2 = rate[e];
        const double jump = length_2 * fabs(rate_2);
        const double linear = 0.5 * density / v * jump;
        const double quadratic = 2.0 / 3.0 * density / v * jump * jump;
        bool squeezed = dv <= 0.0;
        const double now = energy_saved[e] - 0.5 * dv * before;
        const double p = 2.0 / 3.0 * now / half;
        const double p_half = p < 1.0e-7 ? 0.0 : p;
        double q_half = 0.0;
        if (squeezed) {
            const double square = 2.0 / 3.0 * (now + half * p_half) / density;
            q_half = (square < 1.0e-37 ? 0.0 : sqrt(square)) * linear + quadratic;
        }
        const double now_2 = now + 0.5 * dv * (3.0 * before - 4.0 * (p_half + q_half));
        const double now_3 = fabs(now_2) < 1.0e-7 ? 0.0 : now_2;
        const double p_2 = 2.0 / 3.0 * now_3 / v;
        const double p_3 = p_2 < 1.0e-7 ? 0.0 : p_2;
        double q_new = 0.0;
        if (squeezed) {
            const double square = 2.0 / 3.0 * (now_3 + v * p_3) / density;
            q_new = (square < 1.0e-37 ? 0.0 : sqrt(square)) * linear + quadratic;
        }
        const double now_4 = now_3 - dv / 6.0 * (7.0 * before - 8.0 * (p_half + q_half) + p_3 + q_new);
        const double now_5 = fabs(now_4) < 1.0e-7 ? 0.0 : now_4;
        const double p_4 = 2.0 / 3.0 * now_5 / v;
        const double p_5 = p_4 < 1.0e-7 ? 0.0 : p_4;
        const double square = 2.0 / 3.0 * (now_5 + v * p_5) / density;
        const double c = square < 1.0e-37 ? 0.0 : sqrt(square);
        const double q = squeezed ? c * linear + quadratic : 0.0;
        const double dsound_2 = dsound[e];
        dsound[e] = 0.0;
        const double dviscosity_2 = dviscosity[e];
        const double dsquare = gpuad_chain(gpuad_chain(dsound_2
            + (!(q < 1.0e-7) && squeezed ? linear * dviscosity_2 : 0.0), 0.5 / sqrt(square)), 1.0 / density);
        const double dsquare_2 = 2.0 / 3.0 * dsquare;
        const double dp = gpuad_chain(dpressure[e] + (square < 1.0e-37 ? 0.0 : v * dsquare_2), 1.0 / v);
        const double dnow = denergy[e] + (square < 1.0e-37 ? 0.0 : dsquare_2) + (p_4 < 1.0e-7 ? 0.0 : 2.0 / 3.0 * dp);
        const double dnow_2 = -(dv / 6.0 * dnow);
        const double dnow_3 = -8.0 * dnow_2;
        const double dq_new = fabs(now_4) < 1.0e-7 ? 0.0 : dnow_2;
        double dlinear = 0.0;
        double dquadratic = 0.0;
        double dnow_4 = 0.0;
        double dv_2 = 0.0;
        double dp_2 = 0.0;
        if (squeezed) {
            const double square_2 = 2.0 / 3.0 * (now_3 + v * p_3) / density;
            const double dsquare_3 = gpuad_chain(gpuad_chain(linear * dq_new, 0.5 / sqrt(square_2)), 1.0 / density);
            const double dsquare_4 = 2.0 / 3.0 * dsquare_3;
            dlinear = (square_2 < 1.0e-37 ? 0.0 : sqrt(square_2)) * dq_new;
            dquadratic = dq_new;
            dnow_4 = square_2 < 1.0e-37 ? 0.0 : dsquare_4;
            dv_2 = square_2 < 1.0e-37 ? 0.0 : p_3 * dsquare_4;
            dp_2 = square_2 < 1.0e-37 ? 0.0 : v * dsquare_4;
            ddensity_2 = square_2 < 1.0e-37 ? 0.0 : -gpuad_chain(dsquare_3, square_2);
        }
        dp_2 = gpuad_chain(dp_2 + (fabs(now_4) < 1.0e-7 ? 0.0 : dnow_2), 1.0 / v);
        dnow_4 = dnow_4 + (fabs(now_4) < 1.0e-7 ? 0.0 : dnow) + (p_2 < 1.0e-7 ? 0.0 : 2.0 / 3.0 * dp_2);
        const double dnow_5 = 0.5 * (dv * dnow_4);
        const double dnow_6 = -4.0 * dnow_5;
        const double dq_half = (fabs(now_4) < 1.0e-7 ? 0.0 : dnow_3) + (fabs(now_2) < 1.0e-7 ? 0.0 : dnow_6);
        double dlinear_2 = 0.0;
        double dquadratic_2 = 0.0;
        double dnow_7 = 0.0;
        double dhalf = 0.0;
        double dp_half = 0.0;
        double ddensity_3 = 0.0;
        if (squeezed) {
            const double square_2 = 2.0 / 3.0 * (now + half * p_half) / density;
            const double dsquare_3 = gpuad_chain(gpuad_chain(linear * dq_half, 0.5 / sqrt(square_2)), 1.0 / density);
            const double dsquare_4 = 2.0 / 3.0 * dsquare_3;
            dlinear_2 = (square_2 < 1.0e-37 ? 0.0 : sqrt(square_2)) * dq_half;
            dquadratic_2 = dq_half;
            dnow_7 = square_2 < 1.0e-37 ? 0.0 : dsquare_4;
            dhalf = square_2 < 1.0e-37 ? 0.0 : p_half * dsquare_4;
            dp_half = square_2 < 1.0e-37 ? 0.0 : half * dsquare_4;
            ddensity_3 = square_2 < 1.0e-37 ? 0.0 : -gpuad_chain(dsquare_3, square_2);
        }
        const double dp_3 = gpuad_chain(dp_half + (fabs(now_4) < 1.0e-7 ? 0.0 : dnow_3)
            + (fabs(now_2) < 1.0e-7 ? 0.0 : dnow_6), 1.0 / half);
        dnow_7 = dnow_7 + (fabs(now_2) < 1.0e-7 ? 0.0 : dnow_4) + (p < 1.0e-7 ? 0.0 : 2.0 / 3.0 * dp_3);
        denergy[e] = dnow_7;
        dquadratic = jump * (dquadratic + dquadratic_2 + (!(q < 1.0e-7) && squeezed ? dviscosity_2 : 0.0));
        const double dquadratic_3 = gpuad_chain(jump * dquadratic, 1.0 / v);
        dlinear = dlinear + dlinear_2 + (!(q < 1.0e-7) && squeezed ? c * dviscosity_2 : 0.0);
        const double dlinear_3 = gpuad_chain(jump * dlinear, 1.0 / v);
        const double djump = 2.0 * (2.0 / 3.0 * density / v * dquadratic) + 0.5 * density / v * dlinear;
        drate[e] += rate_2 > 0.0 ? length_2 * djump : rate_2 < 0.0 ? -(length_2 * djump) : 0.0;
        dlength[e] += fabs(rate_2) * djump;
        const double dbefore = -0.5 * (dv * dnow_7) + (fabs(now_4) < 1.0e-7 ? 0.0 : 7.0 * dnow_2)
            + (fabs(now_2) < 1.0e-7 ? 0.0 : 3.0 * dnow_5);
        dviscosity[e] = dbefore;
        dpressure[e] = dbefore;
        dhalf += p < 1.0e-7 ? 0.0 : -gpuad_chain(dp_3, p);
        if (!(fabs(now_4) < 1.0e-7)) {
            dchange[e] -= (7.0 * before - 8.0 * (p_half + q_half) + p_3 + q_new) * dnow / 6.0;
        }
        if (!(fabs(now_2) < 1.0e-7)) {
            dchange[e] += 0.5 * ((3.0 * before - 4.0 * (p_half + q_half)) * dnow_4);
        }
        dchange[e] += -0.5 * (before * dnow_7) - 0.5 * dhalf;
        if (!(square < 1.0e-37)) {
            dvolume[e] += p_5 * dsquare_2;
        }
        if (!(p_4 < 1.0e-7)) {
            dvolume[e] -= gpuad_chain(dp, p_4);
        }
        dvolume[e] += dv_2 - gpuad_chain(dquadratic_3, 2.0 / 3.0 * density / v)
            - gpuad_chain(dlinear_3, 0.5 * density / v) + dhalf;
        if (!(p_2 < 1.0e-7)) {
            dvolume[e] -= gpuad_chain(dp_2, p_2);
        }
        ddensity_2 = ddensity_2 + ddensity_3 + 2.0 / 3.0 * dquadratic_3 + 0.5 * dlinear_3
            + (square < 1.0e-37 ? 0.0 : -gpuad_chain(dsquare, square));
    }
    gpuad_block_sum(&ddensity[0], ddensity_2);
}

// adjoint of `material`
//   not saved  volume                        never overwritten by this launch
//   not saved  change                        never overwritten by this launch
//   not saved  rate                          never overwritten by this launch
//   not saved  length                        never overwritten by this launch
//   saved      energy               copy     needed by shock_hydrodynamics.cu:253:18, overwritten by shock_hydrodynamics.cu:266:5
//   saved      pressure             copy     needed by shock_hydrodynamics.cu:249:79, overwritten by shock_hydrodynamics.cu:267:5
//   saved      viscosity            copy     needed by shock_hydrodynamics.cu:249:93, overwritten by shock_hydrodynamics.cu:268:5
//   not saved  sound                         no derivative needs what was overwritten
//   shadow     dvolume              plain    no two threads touch one element (shock_hydrodynamics.cu:249:22)
//   shadow     dchange              plain    no two threads touch one element (shock_hydrodynamics.cu:249:38)
//   shadow     drate                plain    no two threads touch one element (shock_hydrodynamics.cu:250:42)
//   shadow     dlength              plain    no two threads touch one element (shock_hydrodynamics.cu:250:25)
//   shadow     denergy              plain    no two threads touch one element (shock_hydrodynamics.cu:266:5)
//   shadow     dpressure            plain    no two threads touch one element (shock_hydrodynamics.cu:267:5)
//   shadow     dviscosity           plain    no two threads touch one element (shock_hydrodynamics.cu:268:5)
//   shadow     dsound               plain    no two threads touch one element (shock_hydrodynamics.cu:269:5)
//   shadow     ddensity             reduced  summed over each block, then one atomic addition a block (shock_hydrodynamics.cu:245:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
