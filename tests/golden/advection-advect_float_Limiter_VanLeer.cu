// gpuad: adjoint of `advect_float_Limiter_VanLeer` (advection.cu:67:17), for Duplicated u, v, wind; Const n.
// 1. put the seeds into dv. du, dwind are added to: clear first.
// 2. launch advect_float_Limiter_VanLeer_gather with grid (5, 1, 1) and the block of advect_float_Limiter_VanLeer.
// 3. launch advect_float_Limiter_VanLeer_reverse with the same grid and block.
// On exit dv holds the adjoint of the state before the launch; du, dwind have grown by the gradient.
// Compile advect_float_Limiter_VanLeer and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dv
// and the gather's threads do not meet in du, dwind, as for grid (5, 1, 1), block (64, 1, 1), n = 300.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void advect_float_Limiter_VanLeer_gather(
    const float* u, float* du, const float* dv, const float* wind, float* dwind, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float dwind_2 = 0.0f;
    float du_2 = 0.0f;
    if (i >= 2 && i <= n - 3) {
        const float u_2 = u[i];
        const float u_3 = u[i - 1];
        const float back = u_2 - u_3;
        const float ahead = u[i + 1] - u_2;
        const float wind_2 = wind[i];
        const float limited = back * ahead <= 0.0f ? 0.0f : 2.0f * back * ahead / (back + ahead);
        const float back_2 = u_3 - u[i - 2];
        const float wind_3 = wind[i - 1];
        const float dv_2 = dv[i];
        const float minus_dv = wind_2 * dv_2;
        const float dlimited = gpuad_chain(0.5f * ((1.0f - wind_3) * (wind_3 * dv_2)), 1.0f / (back_2 + back));
        if (!(back_2 * back <= 0.0f)) {
            du_2 += 2.0f * (back_2 * dlimited) + (-gpuad_chain(dlimited, 2.0f * back_2 * back / (back_2 + back)));
        }
        const float minus_dlimited = gpuad_chain(0.5f * ((1.0f - wind_2) * minus_dv), 1.0f / (back + ahead));
        dwind_2 += 0.5f * (limited * minus_dv) - (u_2 + 0.5f * (1.0f - wind_2) * limited) * dv_2;
        du_2 += dv_2 - minus_dv;
        if (!(back * ahead <= 0.0f)) {
            du_2 -= 2.0f * (minus_dlimited * (ahead - back));
        }
    }
    if (i >= 1 && i <= n - 4) {
        const float u_2 = u[i + 1];
        const float u_3 = u[i];
        const float back = u_2 - u_3;
        const float ahead = u[i + 2] - u_2;
        const float wind_2 = wind[i + 1];
        const float back_2 = u_3 - u[i - 1];
        const float wind_3 = wind[i];
        const float limited = back_2 * back <= 0.0f ? 0.0f : 2.0f * back_2 * back / (back_2 + back);
        const float dv_2 = dv[i + 1];
        const float dv_3 = wind_3 * dv_2;
        const float dlimited = gpuad_chain(0.5f * ((1.0f - wind_3) * dv_3), 1.0f / (back_2 + back));
        dwind_2 += (u_3 + 0.5f * (1.0f - wind_3) * limited) * dv_2 - 0.5f * (limited * dv_3);
        du_2 += dv_3;
        if (!(back_2 * back <= 0.0f)) {
            du_2 += 2.0f * (dlimited * (back - back_2));
        }
        const float dlimited_2 = gpuad_chain(0.5f * ((1.0f - wind_2) * -(wind_2 * dv_2)), 1.0f / (back + ahead));
        if (!(back * ahead <= 0.0f)) {
            du_2 -= 2.0f * (ahead * dlimited_2) + (-gpuad_chain(dlimited_2, 2.0f * back * ahead / (back + ahead)));
        }
    }
    if (i <= n - 5) {
        const float u_2 = u[i + 1];
        const float back = u_2 - u[i];
        const float ahead = u[i + 2] - u_2;
        const float wind_2 = wind[i + 1];
        const float dlimited = gpuad_chain(0.5f * ((1.0f - wind_2) * (wind_2 * dv[i + 2])), 1.0f / (back + ahead));
        if (!(back * ahead <= 0.0f)) {
            du_2 -= 2.0f * (ahead * dlimited) + (-gpuad_chain(dlimited, 2.0f * back * ahead / (back + ahead)));
        }
    }
    if (i >= 3 && i <= n - 2) {
        const float u_2 = u[i - 1];
        const float back = u_2 - u[i - 2];
        const float ahead = u[i] - u_2;
        const float wind_2 = wind[i - 1];
        const float dlimited = gpuad_chain(0.5f * ((1.0f - wind_2) * -(wind_2 * dv[i - 1])), 1.0f / (back + ahead));
        if (!(back * ahead <= 0.0f)) {
            du_2 += 2.0f * (back * dlimited) + (-gpuad_chain(dlimited, 2.0f * back * ahead / (back + ahead)));
        }
    }
    if (dwind_2 != 0.0f) {
        dwind[i] += dwind_2;
    }
    if (du_2 != 0.0f) {
        du[i] += du_2;
    }
}

extern "C" __global__ void advect_float_Limiter_VanLeer_reverse(
    const float* u, const float* du, const float* v, float* dv, const float* wind, const float* dwind, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 2 && i + 2 <= n - 1) {
        dv[i] = 0.0f;
    }
}

// adjoint of `advect_float_Limiter_VanLeer`
//   not saved  u                             never overwritten by this launch
//   not saved  v                             no derivative needs what was overwritten
//   not saved  wind                          never overwritten by this launch
//   shadow     du                   gather   each thread of advect_float_Limiter_VanLeer_gather collects for an element of its own (advection.cu:62:48)
//   shadow     dv                   plain    no two threads touch one element (advection.cu:70:5)
//   shadow     dwind                gather   each thread of advect_float_Limiter_VanLeer_gather collects for an element of its own (advection.cu:63:12)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
