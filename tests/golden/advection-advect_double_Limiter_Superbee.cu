// gpuad: adjoint of `advect_double_Limiter_Superbee` (advection.cu:67:17), for Duplicated u, v, wind; Const n.
// 1. put the seeds into dv. du, dwind are added to: clear first.
// 2. launch advect_double_Limiter_Superbee_gather with grid (5, 1, 1) and the block of advect_double_Limiter_Superbee.
// 3. launch advect_double_Limiter_Superbee_reverse with the same grid and block.
// On exit dv holds the adjoint of the state before the launch; du, dwind have grown by the gradient.
// Compile advect_double_Limiter_Superbee and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dv
// and the gather's threads do not meet in du, dwind, as for grid (5, 1, 1), block (64, 1, 1), n = 300.

extern "C" __global__ void advect_double_Limiter_Superbee_gather(
    const double* u, double* du, const double* dv, const double* wind, double* dwind, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double dwind_2 = 0.0;
    double du_2 = 0.0;
    if (i >= 2 && i <= n - 3) {
        const double u_2 = u[i];
        const double u_3 = u[i - 1];
        const double back = u_2 - u_3;
        const double ahead = u[i + 1] - u_2;
        const double wind_2 = wind[i];
        double limited = 0.0;
        if (!(back * ahead <= 0.0)) {
            const double low = fmin(2.0 * fabs(back), fabs(ahead));
            const double high = fmin(fabs(back), 2.0 * fabs(ahead));
            limited = copysign(fmax(low, high), ahead);
        }
        const double back_2 = u_3 - u[i - 2];
        const double wind_3 = wind[i - 1];
        const double dv_2 = dv[i];
        const double dv_3 = -(wind_2 * dv_2);
        double dlimited = 0.5 * ((1.0 - wind_3) * (wind_3 * dv_2));
        double dahead = 0.0;
        if (!(back_2 * back <= 0.0)) {
            const double low = fmin(2.0 * fabs(back_2), fabs(back));
            const double high = fmin(fabs(back_2), 2.0 * fabs(back));
            dlimited = signbit(fmax(low, high)) == signbit(back) ? dlimited : -dlimited;
            const double dhigh = low >= high ? 0.0 : high != high ? 0.0 : dlimited;
            const double dlow = low >= high ? dlimited : high != high ? dlimited : 0.0;
            dahead = (back > 0.0 ? 2.0 * (fabs(back_2) <= 2.0 * fabs(back) ? 0.0 : 2.0 * fabs(back) != 2.0 * fabs(back)
                ? 0.0 : dhigh) : back < 0.0 ? -2.0
                * (fabs(back_2) <= 2.0 * fabs(back) ? 0.0 : 2.0 * fabs(back) != 2.0 * fabs(back) ? 0.0 : dhigh) : 0.0)
                + (back > 0.0 ? (2.0 * fabs(back_2) <= fabs(back) ? 0.0 : fabs(back) != fabs(back) ? 0.0 : dlow)
                : back < 0.0 ? -(2.0 * fabs(back_2) <= fabs(back) ? 0.0 : fabs(back) != fabs(back) ? 0.0 : dlow) : 0.0);
        }
        du_2 += dahead;
        double dlimited_2 = 0.5 * ((1.0 - wind_2) * dv_3);
        double dback = 0.0;
        double dahead_2 = 0.0;
        if (!(back * ahead <= 0.0)) {
            const double low = fmin(2.0 * fabs(back), fabs(ahead));
            const double high = fmin(fabs(back), 2.0 * fabs(ahead));
            dlimited_2 = signbit(fmax(low, high)) == signbit(ahead) ? dlimited_2 : -dlimited_2;
            const double dhigh = low >= high ? 0.0 : high != high ? 0.0 : dlimited_2;
            const double dlow = low >= high ? dlimited_2 : high != high ? dlimited_2 : 0.0;
            dback = (back > 0.0 ? (fabs(back) <= 2.0 * fabs(ahead) ? dhigh : 2.0 * fabs(ahead) != 2.0 * fabs(ahead)
                ? dhigh : 0.0) : back < 0.0 ? -(fabs(back) <= 2.0 * fabs(ahead) ? dhigh
                : 2.0 * fabs(ahead) != 2.0 * fabs(ahead) ? dhigh : 0.0) : 0.0)
                + (back > 0.0 ? 2.0 * (2.0 * fabs(back) <= fabs(ahead) ? dlow : fabs(ahead) != fabs(ahead) ? dlow
                : 0.0) : back < 0.0 ? -2.0 * (2.0 * fabs(back) <= fabs(ahead) ? dlow : fabs(ahead) != fabs(ahead)
                ? dlow : 0.0) : 0.0);
            dahead_2 = (ahead > 0.0 ? 2.0 * (fabs(back) <= 2.0 * fabs(ahead) ? 0.0
                : 2.0 * fabs(ahead) != 2.0 * fabs(ahead) ? 0.0 : dhigh) : ahead < 0.0
                ? -2.0 * (fabs(back) <= 2.0 * fabs(ahead) ? 0.0 : 2.0 * fabs(ahead) != 2.0 * fabs(ahead) ? 0.0 : dhigh)
                : 0.0) + (ahead > 0.0 ? (2.0 * fabs(back) <= fabs(ahead) ? 0.0 : fabs(ahead) != fabs(ahead) ? 0.0
                : dlow) : ahead < 0.0 ? -(2.0 * fabs(back) <= fabs(ahead) ? 0.0 : fabs(ahead) != fabs(ahead) ? 0.0
                : dlow) : 0.0);
        }
        dwind_2 += -((u_2 + 0.5 * (1.0 - wind_2) * limited) * dv_2) - 0.5 * (limited * dv_3);
        du_2 += dv_2 + dv_3 - dahead_2 + dback;
    }
    if (i >= 1 && i <= n - 4) {
        const double u_2 = u[i + 1];
        const double u_3 = u[i];
        const double back = u_2 - u_3;
        const double ahead = u[i + 2] - u_2;
        const double wind_2 = wind[i + 1];
        const double back_2 = u_3 - u[i - 1];
        const double wind_3 = wind[i];
        double limited = 0.0;
        if (!(back_2 * back <= 0.0)) {
            const double low = fmin(2.0 * fabs(back_2), fabs(back));
            const double high = fmin(fabs(back_2), 2.0 * fabs(back));
            limited = copysign(fmax(low, high), back);
        }
        const double dv_2 = dv[i + 1];
        const double dv_3 = wind_3 * dv_2;
        double dlimited = 0.5 * ((1.0 - wind_3) * dv_3);
        double dback = 0.0;
        double dahead = 0.0;
        if (!(back_2 * back <= 0.0)) {
            const double low = fmin(2.0 * fabs(back_2), fabs(back));
            const double high = fmin(fabs(back_2), 2.0 * fabs(back));
            dlimited = signbit(fmax(low, high)) == signbit(back) ? dlimited : -dlimited;
            const double dhigh = low >= high ? 0.0 : high != high ? 0.0 : dlimited;
            const double dlow = low >= high ? dlimited : high != high ? dlimited : 0.0;
            dback = (back_2 > 0.0 ? (fabs(back_2) <= 2.0 * fabs(back) ? dhigh : 2.0 * fabs(back) != 2.0 * fabs(back)
                ? dhigh : 0.0) : back_2 < 0.0 ? -(fabs(back_2) <= 2.0 * fabs(back) ? dhigh
                : 2.0 * fabs(back) != 2.0 * fabs(back) ? dhigh : 0.0) : 0.0)
                + (back_2 > 0.0 ? 2.0 * (2.0 * fabs(back_2) <= fabs(back) ? dlow : fabs(back) != fabs(back) ? dlow
                : 0.0) : back_2 < 0.0 ? -2.0 * (2.0 * fabs(back_2) <= fabs(back) ? dlow : fabs(back) != fabs(back)
                ? dlow : 0.0) : 0.0);
            dahead = (back > 0.0 ? 2.0 * (fabs(back_2) <= 2.0 * fabs(back) ? 0.0 : 2.0 * fabs(back) != 2.0 * fabs(back)
                ? 0.0 : dhigh) : back < 0.0 ? -2.0
                * (fabs(back_2) <= 2.0 * fabs(back) ? 0.0 : 2.0 * fabs(back) != 2.0 * fabs(back) ? 0.0 : dhigh) : 0.0)
                + (back > 0.0 ? (2.0 * fabs(back_2) <= fabs(back) ? 0.0 : fabs(back) != fabs(back) ? 0.0 : dlow)
                : back < 0.0 ? -(2.0 * fabs(back_2) <= fabs(back) ? 0.0 : fabs(back) != fabs(back) ? 0.0 : dlow) : 0.0);
        }
        dwind_2 += (u_3 + 0.5 * (1.0 - wind_3) * limited) * dv_2 - 0.5 * (limited * dv_3);
        du_2 += dv_3 - dahead + dback;
        double dlimited_2 = 0.5 * ((1.0 - wind_2) * -(wind_2 * dv_2));
        double dback_2 = 0.0;
        if (!(back * ahead <= 0.0)) {
            const double low = fmin(2.0 * fabs(back), fabs(ahead));
            const double high = fmin(fabs(back), 2.0 * fabs(ahead));
            dlimited_2 = signbit(fmax(low, high)) == signbit(ahead) ? dlimited_2 : -dlimited_2;
            const double dhigh = low >= high ? 0.0 : high != high ? 0.0 : dlimited_2;
            const double dlow = low >= high ? dlimited_2 : high != high ? dlimited_2 : 0.0;
            dback_2 = (back > 0.0 ? (fabs(back) <= 2.0 * fabs(ahead) ? dhigh : 2.0 * fabs(ahead) != 2.0 * fabs(ahead)
                ? dhigh : 0.0) : back < 0.0 ? -(fabs(back) <= 2.0 * fabs(ahead) ? dhigh
                : 2.0 * fabs(ahead) != 2.0 * fabs(ahead) ? dhigh : 0.0) : 0.0)
                + (back > 0.0 ? 2.0 * (2.0 * fabs(back) <= fabs(ahead) ? dlow : fabs(ahead) != fabs(ahead) ? dlow
                : 0.0) : back < 0.0 ? -2.0 * (2.0 * fabs(back) <= fabs(ahead) ? dlow : fabs(ahead) != fabs(ahead)
                ? dlow : 0.0) : 0.0);
        }
        du_2 -= dback_2;
    }
    if (i <= n - 5) {
        const double u_2 = u[i + 1];
        const double back = u_2 - u[i];
        const double ahead = u[i + 2] - u_2;
        const double wind_2 = wind[i + 1];
        double dlimited = 0.5 * ((1.0 - wind_2) * (wind_2 * dv[i + 2]));
        double dback = 0.0;
        if (!(back * ahead <= 0.0)) {
            const double low = fmin(2.0 * fabs(back), fabs(ahead));
            const double high = fmin(fabs(back), 2.0 * fabs(ahead));
            dlimited = signbit(fmax(low, high)) == signbit(ahead) ? dlimited : -dlimited;
            const double dhigh = low >= high ? 0.0 : high != high ? 0.0 : dlimited;
            const double dlow = low >= high ? dlimited : high != high ? dlimited : 0.0;
            dback = (back > 0.0 ? (fabs(back) <= 2.0 * fabs(ahead) ? dhigh : 2.0 * fabs(ahead) != 2.0 * fabs(ahead)
                ? dhigh : 0.0) : back < 0.0 ? -(fabs(back) <= 2.0 * fabs(ahead) ? dhigh
                : 2.0 * fabs(ahead) != 2.0 * fabs(ahead) ? dhigh : 0.0) : 0.0)
                + (back > 0.0 ? 2.0 * (2.0 * fabs(back) <= fabs(ahead) ? dlow : fabs(ahead) != fabs(ahead) ? dlow
                : 0.0) : back < 0.0 ? -2.0 * (2.0 * fabs(back) <= fabs(ahead) ? dlow : fabs(ahead) != fabs(ahead)
                ? dlow : 0.0) : 0.0);
        }
        du_2 -= dback;
    }
    if (i >= 3 && i <= n - 2) {
        const double u_2 = u[i - 1];
        const double back = u_2 - u[i - 2];
        const double ahead = u[i] - u_2;
        const double wind_2 = wind[i - 1];
        double dlimited = 0.5 * ((1.0 - wind_2) * -(wind_2 * dv[i - 1]));
        double dahead = 0.0;
        if (!(back * ahead <= 0.0)) {
            const double low = fmin(2.0 * fabs(back), fabs(ahead));
            const double high = fmin(fabs(back), 2.0 * fabs(ahead));
            dlimited = signbit(fmax(low, high)) == signbit(ahead) ? dlimited : -dlimited;
            const double dhigh = low >= high ? 0.0 : high != high ? 0.0 : dlimited;
            const double dlow = low >= high ? dlimited : high != high ? dlimited : 0.0;
            dahead = (ahead > 0.0 ? 2.0 * (fabs(back) <= 2.0 * fabs(ahead) ? 0.0
                : 2.0 * fabs(ahead) != 2.0 * fabs(ahead) ? 0.0 : dhigh) : ahead < 0.0
                ? -2.0 * (fabs(back) <= 2.0 * fabs(ahead) ? 0.0 : 2.0 * fabs(ahead) != 2.0 * fabs(ahead) ? 0.0 : dhigh)
                : 0.0) + (ahead > 0.0 ? (2.0 * fabs(back) <= fabs(ahead) ? 0.0 : fabs(ahead) != fabs(ahead) ? 0.0
                : dlow) : ahead < 0.0 ? -(2.0 * fabs(back) <= fabs(ahead) ? 0.0 : fabs(ahead) != fabs(ahead) ? 0.0
                : dlow) : 0.0);
        }
        du_2 += dahead;
    }
    if (dwind_2 != 0.0) {
        dwind[i] += dwind_2;
    }
    if (du_2 != 0.0) {
        du[i] += du_2;
    }
}

extern "C" __global__ void advect_double_Limiter_Superbee_reverse(
    const double* u, const double* du, const double* v, double* dv, const double* wind, const double* dwind,
    int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 2 && i + 2 <= n - 1) {
        dv[i] = 0.0;
    }
}

// adjoint of `advect_double_Limiter_Superbee`
//   not saved  u                             never overwritten by this launch
//   not saved  v                             no derivative needs what was overwritten
//   not saved  wind                          never overwritten by this launch
//   shadow     du                   gather   each thread of advect_double_Limiter_Superbee_gather collects for an element of its own (advection.cu:62:48)
//   shadow     dv                   plain    no two threads touch one element (advection.cu:70:5)
//   shadow     dwind                gather   each thread of advect_double_Limiter_Superbee_gather collects for an element of its own (advection.cu:63:12)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
