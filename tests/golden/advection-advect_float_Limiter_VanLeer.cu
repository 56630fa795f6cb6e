// gpuad: adjoint of `advect_float_Limiter_VanLeer` (advection.cu:67:17), for Duplicated u, v, wind; Const n.
// 1. put the seeds into dv. du, dwind are added to: clear first.
// 2. launch advect_float_Limiter_VanLeer_reverse with the same grid and block.
// On exit dv holds the adjoint of the state before the launch; du, dwind have grown by the gradient.
// Compile advect_float_Limiter_VanLeer and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dv, as for grid (5, 1, 1), block (64, 1, 1), n = 300.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void advect_float_Limiter_VanLeer_reverse(
    const float* u, float* du, const float* v, float* dv, const float* wind, float* dwind, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 2 && i + 2 <= n - 1) {
        const float u_2 = u[i];
        const float back = u_2 - u[i - 1];
        const float ahead = u[i + 1] - u_2;
        const float wind_2 = wind[i];
        const float limited = back * ahead <= 0.0f ? 0.0f : 2.0f * back * ahead / (back + ahead);
        int i_2 = i - 1;
        const float u_3 = u[i_2];
        const float back_2 = u_3 - u[i_2 - 1];
        const float ahead_2 = u[i_2 + 1] - u_3;
        const float wind_3 = wind[i_2];
        const float limited_2 = back_2 * ahead_2 <= 0.0f ? 0.0f : 2.0f * back_2 * ahead_2 / (back_2 + ahead_2);
        const float dv_2 = dv[i];
        dv[i] = 0.0f;
        const float dv_3 = -(wind_2 * dv_2);
        const float dv_4 = wind_3 * dv_2;
        float dlimited = 0.5f * ((1.0f - wind_3) * dv_4);
        const float dlimited_2 = gpuad_chain(dlimited, 1.0f / (back_2 + ahead_2));
        dlimited = -gpuad_chain(dlimited, 2.0f * back_2 * ahead_2 / (back_2 + ahead_2) / (back_2 + ahead_2));
        atomicAdd(&dwind[i_2], (u_3 + 0.5f * (1.0f - wind_3) * limited_2) * dv_2 - 0.5f * (limited_2 * dv_4));
        const float dahead = 2.0f * (back_2 * dlimited_2) + dlimited;
        if (!(back_2 * ahead_2 <= 0.0f)) {
            atomicAdd(&du[i_2 + 1], dahead);
        }
        const float dback = 2.0f * (ahead_2 * dlimited_2) + dlimited;
        if (!(back_2 * ahead_2 <= 0.0f)) {
            atomicAdd(&du[i_2 - 1], -dback);
        }
        atomicAdd(&du[i_2], dv_4);
        if (!(back_2 * ahead_2 <= 0.0f)) {
            atomicAdd(&du[i_2], dback - dahead);
        }
        float dlimited_3 = 0.5f * ((1.0f - wind_2) * dv_3);
        const float dlimited_4 = gpuad_chain(dlimited_3, 1.0f / (back + ahead));
        dlimited_3 = -gpuad_chain(dlimited_3, 2.0f * back * ahead / (back + ahead) / (back + ahead));
        atomicAdd(&dwind[i], -((u_2 + 0.5f * (1.0f - wind_2) * limited) * dv_2) - 0.5f * (limited * dv_3));
        const float dahead_2 = 2.0f * (back * dlimited_4) + dlimited_3;
        if (!(back * ahead <= 0.0f)) {
            atomicAdd(&du[i + 1], dahead_2);
        }
        const float dback_2 = 2.0f * (ahead * dlimited_4) + dlimited_3;
        if (!(back * ahead <= 0.0f)) {
            atomicAdd(&du[i - 1], -dback_2);
        }
        atomicAdd(&du[i], dv_2 + dv_3);
        if (!(back * ahead <= 0.0f)) {
            atomicAdd(&du[i], dback_2 - dahead_2);
        }
    }
}

// adjoint of `advect_float_Limiter_VanLeer`
//   not saved  u                             never overwritten by this launch
//   not saved  v                             no derivative needs what was overwritten
//   not saved  wind                          never overwritten by this launch
//   shadow     du                   atomic   it is not proved that no two threads meet in one element (advection.cu:62:48)
//   shadow     dv                   plain    no two threads touch one element (advection.cu:70:5)
//   shadow     dwind                atomic   it is not proved that no two threads meet in one element (advection.cu:63:12)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
