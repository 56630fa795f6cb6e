// gpuad: adjoint of `multipole` (multipole.cu:70:28), for Duplicated energy, concentration, radius, fit, pole, width, residue, result; Active broadening; Const material, held, nuclide, first, angular, lookups, windows, poles, most.
// 1. put the seeds into dresult. denergy, dconcentration, dradius, dfit, dpole, dwidth, dresidue, dbroadening are added to: clear first.
// 2. launch multipole_reverse with the same grid and block.
// On exit dresult holds the adjoint of the state before the launch; denergy, dconcentration, dradius, dfit, dpole, dwidth, dresidue, dbroadening have grown by the gradient.
// Compile multipole and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of denergy, dresult, as for grid (2, 1, 1), block (32, 1, 1), lookups = 60, windows = 5, poles = 15, most = 3.

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

extern "C" __global__ void multipole_reverse(
    const double* energy, double* denergy, const int* material, const int* held, const int* nuclide,
    const double* concentration, double* dconcentration, const double* radius, double* dradius,
    const double* fit, double* dfit, const int* first, const double* pole, double* dpole,
    const double* width, double* dwidth, const int* angular, const double* residue, double* dresidue,
    double broadening, double* dbroadening, const double* result, double* dresult, int lookups, int windows,
    int poles, int most)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double dbroadening_2 = 0.0;
    if (i < lookups) {
        const double e = energy[i];
        const double speed = sqrt(e);
        int window = min((int)floor(e * windows), windows - 1);
        int material_2 = material[i];
        int from = material_2 * most;
        int held_2 = held[material_2];
        double dsum[4] = {};
        for (int r = 0; r < 4; ++r) {
            const double dresult_2 = dresult[i * 4 + r];
            dresult[i * 4 + r] = 0.0;
            dsum[r] += dresult_2;
        }
        double de = 0.0;
        double dspeed = 0.0;
        for (int k = from + held_2 - 1; k >= from; --k) {
            int who = nuclide[k];
            double turn[8];
            for (int l = 0; l < 4; ++l) {
                const double rho = radius[who * 4 + l] * speed;
                double phase;
                if (l == 1) {
                    phase = rho - atan(rho);
                } else if (l == 2) {
                    phase = rho - atan(3.0 * rho / (3.0 - rho * rho));
                } else if (l == 3) {
                    phase = rho - atan(rho * (15.0 - rho * rho) / (15.0 - 6.0 * rho * rho));
                } else {
                    phase = rho;
                }
                turn[l * 2] = cos(2.0 * phase);
                turn[l * 2 + 1] = -sin(2.0 * phase);
            }
            const double fit_2 = fit[(who * windows + window) * 3];
            const double fit_3 = fit[(who * windows + window) * 3 + 1LL];
            const double fit_4 = fit[(who * windows + window) * 3 + 2LL];
            int first_2 = first[who * (windows + 1) + (long long)window];
            int first_3 = first[who * (windows + 1) + (long long)window + 1LL];
            double total = e * fit_2;
            double absorbed = e * fit_3;
            double fission = e * fit_4;
            for (int p = who * poles + first_2; p < who * poles + first_3; ++p) {
                double re = (e - pole[p]) * broadening;
                double im = width[p] * broadening;
                double faddeeva_re;
                double faddeeva_im;
                if (hypot(re, im) < 6.0) {
                    const double re_2 = re * 12.0;
                    const double im_2 = im * 12.0;
                    double im_3 = 0.0 * im_2 + 1.0 * re_2;
                    const double m = exp(0.0 * re_2 - 1.0 * im_2);
                    double re_3 = m * cos(im_3);
                    im_3 = m * sin(im_3);
                    const double a = 12.0 * 12.0;
                    const double re_4 = (re * re - im * im) * a;
                    const double im_4 = (re * im + im * re) * a;
                    double sign = -1.0;
                    double sum_re = 0.0;
                    double sum_im = 0.0;
                    for (int n = 1; n < 11; ++n) {
                        const double angle = n * 3.141592653589793;
                        const double share = exp(-angle * angle / (12.0 * 12.0)) * (2.0 * 1.772453850905516 / 12.0);
                        double re_5 = angle * angle - re_4;
                        double im_5 = -im_4;
                        const double scale = 1.0 / (fabs(re_5) + fabs(im_5));
                        const double re_6 = (re_3 * sign - 1.0) * share * scale;
                        const double im_6 = im_3 * sign * share * scale;
                        re_5 *= scale;
                        im_5 *= scale;
                        const double inverse = 1.0 / (re_5 * re_5 + im_5 * im_5);
                        sum_re += (re_6 * re_5 + im_6 * im_5) * inverse;
                        sum_im += (im_6 * re_5 - re_6 * im_5) * inverse;
                        sign = -sign;
                    }
                    double re_5 = re * 12.0;
                    double im_5 = im * 12.0;
                    const double scale = 1.0 / (fabs(re_5) + fabs(im_5));
                    re_3 = (1.0 - re_3) * scale;
                    im_3 = -im_3 * scale;
                    re_5 *= scale;
                    im_5 *= scale;
                    const double inverse = 1.0 / (re_5 * re_5 + im_5 * im_5);
                    const double a_2 = 12.0 * 12.0 / 1.772453850905516;
                    re *= a_2;
                    im *= a_2;
                    const double re_6 = (re_3 * re_5 + im_3 * im_5) * inverse + (re * sum_re - im * sum_im);
                    im_3 = (im_3 * re_5 - re_3 * im_5) * inverse + (re * sum_im + im * sum_re);
                    const double re_7 = 0.0 * re_6 - 1.0 * im_3;
                    im_3 = 0.0 * im_3 + 1.0 * re_6;
                    faddeeva_re = re_7;
                    faddeeva_im = im_3;
                } else {
                    double re_2 = re * re - im * im;
                    double im_2 = re * im + im * re;
                    const double inner = 0.5 * (3.0 - 2.449489742783178);
                    const double outer = 0.5 * (3.0 + 2.449489742783178);
                    const double im_3 = 0.25 / 1.772453850905516;
                    const double re_3 = 0.0 * re - im_3 * im;
                    im = 0.0 * im + im_3 * re;
                    double re_4 = (re_2 - inner) * inner;
                    double im_4 = im_2 * inner;
                    const double scale = 1.0 / (fabs(re_4) + fabs(im_4));
                    const double re_5 = 1.0 * scale;
                    double im_5 = 0.0 * scale;
                    re_4 *= scale;
                    im_4 *= scale;
                    const double inverse = 1.0 / (re_4 * re_4 + im_4 * im_4);
                    re_2 = (re_2 - outer) * outer;
                    im_2 *= outer;
                    const double scale_2 = 1.0 / (fabs(re_2) + fabs(im_2));
                    const double re_6 = 1.0 * scale_2;
                    const double im_6 = 0.0 * scale_2;
                    re_2 *= scale_2;
                    im_2 *= scale_2;
                    const double inverse_2 = 1.0 / (re_2 * re_2 + im_2 * im_2);
                    const double re_7 = (re_5 * re_4 + im_5 * im_4) * inverse + (re_6 * re_2 + im_6 * im_2) * inverse_2;
                    im_5 = (im_5 * re_4 - re_5 * im_4) * inverse + (im_6 * re_2 - re_6 * im_2) * inverse_2;
                    const double re_8 = re_3 * re_7 - im * im_5;
                    im_5 = re_3 * im_5 + im * re_7;
                    faddeeva_re = re_8;
                    faddeeva_im = im_5;
                }
                int angular_2 = angular[p];
                const double residue_2 = residue[p * 3 * 2LL];
                const double turn_2 = turn[angular_2 * 2];
                const double residue_3 = residue[p * 3 * 2LL + 1LL];
                const double turn_3 = turn[angular_2 * 2 + 1];
                total += (residue_2 * turn_2 - residue_3 * turn_3) * faddeeva_re
                    - (residue_2 * turn_3 + residue_3 * turn_2) * faddeeva_im;
                absorbed += residue[(p * 3 + 1) * 2LL] * faddeeva_re - residue[(p * 3 + 1) * 2LL + 1LL] * faddeeva_im;
                fission += residue[(p * 3 + 2) * 2LL] * faddeeva_re - residue[(p * 3 + 2) * 2LL + 1LL] * faddeeva_im;
            }
            const double there = concentration[k];
            double dturn[8] = {};
            const double dsum_2 = dsum[3];
            const double dsum_3 = there * dsum_2;
            const double dsum_4 = dsum[2];
            const double dsum_5 = dsum[1];
            const double dsum_6 = dsum[0];
            atomicAdd(&dconcentration[k], (total - absorbed) * dsum_2 + fission * dsum_4 + absorbed * dsum_5
                + total * dsum_6);
            const double dtotal = dsum_3 + there * dsum_6;
            const double dabsorbed = there * dsum_5 - dsum_3;
            const double dfission = there * dsum_4;
            double dbroadening_3 = 0.0;
            double de_2 = 0.0;
            for (int p = who * poles + first_2; p < who * poles + first_3; ++p) {
                const double re = e - pole[p];
                const double width_2 = width[p];
                const double re_2 = re * broadening;
                const double im = width_2 * broadening;
                const double r = hypot(re_2, im);
                double faddeeva_re;
                double faddeeva_im;
                if (r < 6.0) {
                    const double re_3 = re_2 * 12.0;
                    const double im_2 = im * 12.0;
                    double im_3 = 0.0 * im_2 + 1.0 * re_3;
                    const double m = exp(0.0 * re_3 - 1.0 * im_2);
                    double re_4 = m * cos(im_3);
                    im_3 = m * sin(im_3);
                    const double a = 12.0 * 12.0;
                    const double re_5 = (re_2 * re_2 - im * im) * a;
                    const double im_4 = (re_2 * im + im * re_2) * a;
                    double sign = -1.0;
                    double sum_re = 0.0;
                    double sum_im = 0.0;
                    for (int n = 1; n < 11; ++n) {
                        const double angle = n * 3.141592653589793;
                        const double share = exp(-angle * angle / (12.0 * 12.0)) * (2.0 * 1.772453850905516 / 12.0);
                        double re_6 = angle * angle - re_5;
                        double im_5 = -im_4;
                        const double scale = 1.0 / (fabs(re_6) + fabs(im_5));
                        const double re_7 = (re_4 * sign - 1.0) * share * scale;
                        const double im_6 = im_3 * sign * share * scale;
                        re_6 *= scale;
                        im_5 *= scale;
                        const double inverse = 1.0 / (re_6 * re_6 + im_5 * im_5);
                        sum_re += (re_7 * re_6 + im_6 * im_5) * inverse;
                        sum_im += (im_6 * re_6 - re_7 * im_5) * inverse;
                        sign = -sign;
                    }
                    double re_6 = re_2 * 12.0;
                    double im_5 = im * 12.0;
                    const double scale = 1.0 / (fabs(re_6) + fabs(im_5));
                    re_4 = (1.0 - re_4) * scale;
                    im_3 = -im_3 * scale;
                    re_6 *= scale;
                    im_5 *= scale;
                    const double inverse = 1.0 / (re_6 * re_6 + im_5 * im_5);
                    const double a_2 = 12.0 * 12.0 / 1.772453850905516;
                    const double re_7 = re_2 * a_2;
                    const double im_6 = im * a_2;
                    const double re_8 = (re_4 * re_6 + im_3 * im_5) * inverse + (re_7 * sum_re - im_6 * sum_im);
                    im_3 = (im_3 * re_6 - re_4 * im_5) * inverse + (re_7 * sum_im + im_6 * sum_re);
                    const double re_9 = 0.0 * re_8 - 1.0 * im_3;
                    im_3 = 0.0 * im_3 + 1.0 * re_8;
                    faddeeva_re = re_9;
                    faddeeva_im = im_3;
                } else {
                    double re_3 = re_2 * re_2 - im * im;
                    double im_2 = re_2 * im + im * re_2;
                    const double inner = 0.5 * (3.0 - 2.449489742783178);
                    const double outer = 0.5 * (3.0 + 2.449489742783178);
                    double im_3 = 0.25 / 1.772453850905516;
                    const double re_4 = 0.0 * re_2 - im_3 * im;
                    im_3 = 0.0 * im + im_3 * re_2;
                    double re_5 = (re_3 - inner) * inner;
                    double im_4 = im_2 * inner;
                    const double scale = 1.0 / (fabs(re_5) + fabs(im_4));
                    const double re_6 = 1.0 * scale;
                    double im_5 = 0.0 * scale;
                    re_5 *= scale;
                    im_4 *= scale;
                    const double inverse = 1.0 / (re_5 * re_5 + im_4 * im_4);
                    re_3 = (re_3 - outer) * outer;
                    im_2 *= outer;
                    const double scale_2 = 1.0 / (fabs(re_3) + fabs(im_2));
                    const double re_7 = 1.0 * scale_2;
                    const double im_6 = 0.0 * scale_2;
                    re_3 *= scale_2;
                    im_2 *= scale_2;
                    const double inverse_2 = 1.0 / (re_3 * re_3 + im_2 * im_2);
                    const double re_8 = (re_6 * re_5 + im_5 * im_4) * inverse + (re_7 * re_3 + im_6 * im_2) * inverse_2;
                    im_5 = (im_5 * re_5 - re_6 * im_4) * inverse + (im_6 * re_3 - re_7 * im_2) * inverse_2;
                    const double re_9 = re_4 * re_8 - im_3 * im_5;
                    im_5 = re_4 * im_5 + im_3 * re_8;
                    faddeeva_re = re_9;
                    faddeeva_im = im_5;
                }
                int angular_2 = angular[p];
                const double residue_2 = residue[p * 3 * 2LL];
                const double turn_2 = turn[angular_2 * 2];
                const double residue_3 = residue[p * 3 * 2LL + 1LL];
                const double turn_3 = turn[angular_2 * 2 + 1];
                const double residue_4 = residue[(p * 3 + 1) * 2LL];
                const double residue_5 = residue[(p * 3 + 1) * 2LL + 1LL];
                const double residue_6 = residue[(p * 3 + 2) * 2LL];
                const double residue_7 = residue[(p * 3 + 2) * 2LL + 1LL];
                atomicAdd(&dresidue[(p * 3 + 2) * 2LL + 1LL], -(faddeeva_im * dfission));
                atomicAdd(&dresidue[(p * 3 + 2) * 2LL], faddeeva_re * dfission);
                atomicAdd(&dresidue[(p * 3 + 1) * 2LL + 1LL], -(faddeeva_im * dabsorbed));
                atomicAdd(&dresidue[(p * 3 + 1) * 2LL], faddeeva_re * dabsorbed);
                const double dim = -(faddeeva_im * dtotal);
                const double dre = faddeeva_re * dtotal;
                dturn[angular_2 * 2 + 1] += residue_2 * dim - residue_3 * dre;
                atomicAdd(&dresidue[p * 3 * 2LL + 1LL], turn_2 * dim - turn_3 * dre);
                dturn[angular_2 * 2] += residue_3 * dim + residue_2 * dre;
                atomicAdd(&dresidue[p * 3 * 2LL], turn_3 * dim + turn_2 * dre);
                const double dfaddeeva_re = residue_6 * dfission + residue_4 * dabsorbed
                    + (residue_2 * turn_2 - residue_3 * turn_3) * dtotal;
                const double dfaddeeva_im = -(residue_7 * dfission) - residue_5 * dabsorbed
                    - (residue_2 * turn_3 + residue_3 * turn_2) * dtotal;
                double dim_2;
                double dre_2;
                if (r < 6.0) {
                    const double re_3 = re_2 * 12.0;
                    const double im_2 = im * 12.0;
                    const double im_3 = 0.0 * im_2 + 1.0 * re_3;
                    const double m = exp(0.0 * re_3 - 1.0 * im_2);
                    const double re_4 = m * cos(im_3);
                    const double im_4 = m * sin(im_3);
                    const double a = 12.0 * 12.0;
                    const double re_5 = (re_2 * re_2 - im * im) * a;
                    const double im_5 = (re_2 * im + im * re_2) * a;
                    double sign = -1.0;
                    double sum_re = 0.0;
                    double sum_im = 0.0;
                    for (int n = 1; n < 11; ++n) {
                        const double angle = n * 3.141592653589793;
                        const double share = exp(-angle * angle / (12.0 * 12.0)) * (2.0 * 1.772453850905516 / 12.0);
                        double re_6 = angle * angle - re_5;
                        double im_6 = -im_5;
                        const double scale = 1.0 / (fabs(re_6) + fabs(im_6));
                        const double re_7 = (re_4 * sign - 1.0) * share * scale;
                        const double im_7 = im_4 * sign * share * scale;
                        re_6 *= scale;
                        im_6 *= scale;
                        const double inverse = 1.0 / (re_6 * re_6 + im_6 * im_6);
                        sum_re += (re_7 * re_6 + im_7 * im_6) * inverse;
                        sum_im += (im_7 * re_6 - re_7 * im_6) * inverse;
                        sign = -sign;
                    }
                    const double re_6 = 1.0 - re_4;
                    const double im_6 = -im_4;
                    const double re_7 = re_2 * 12.0;
                    const double im_7 = im * 12.0;
                    const double scale = 1.0 / (fabs(re_7) + fabs(im_7));
                    const double re_8 = re_6 * scale;
                    const double im_8 = im_6 * scale;
                    const double re_9 = re_7 * scale;
                    const double im_9 = im_7 * scale;
                    const double inverse = 1.0 / (re_9 * re_9 + im_9 * im_9);
                    const double a_2 = 12.0 * 12.0 / 1.772453850905516;
                    const double re_10 = re_2 * a_2;
                    const double im_10 = im * a_2;
                    const double dim_3 = -(inverse * dfaddeeva_re);
                    double dre_3 = inverse * dfaddeeva_im;
                    const double dinverse = -gpuad_chain(gpuad_chain((re_8 * re_9 + im_8 * im_9) * dfaddeeva_im
                        - (im_8 * re_9 - re_8 * im_9) * dfaddeeva_re, inverse), inverse);
                    dim_2 = im_8 * dre_3 - re_8 * dim_3 + 2.0 * (im_9 * dinverse);
                    dre_2 = im_8 * dim_3 + re_8 * dre_3 + 2.0 * (re_9 * dinverse);
                    const double dim_4 = re_9 * dim_3 + im_9 * dre_3;
                    dre_3 = re_9 * dre_3 - im_9 * dim_3;
                    const double dscale = -gpuad_chain(gpuad_chain(im_7 * dim_2 + re_7 * dre_2 + im_6 * dim_4
                        + re_6 * dre_3, scale), scale);
                    const double dsum_re = re_10 * dfaddeeva_im - im_10 * dfaddeeva_re;
                    const double dsum_im = -(re_10 * dfaddeeva_re) - im_10 * dfaddeeva_im;
                    double dim_5 = 0.0;
                    double dre_4 = 0.0;
                    double dim_6 = 0.0;
                    double dre_5 = 0.0;
                    for (int n = 1; n < 11; ++n) {
                        const double sign_2 = (n - 1 & 1) != 0 ? 1.0 : -1.0;
                        const double angle = n * 3.141592653589793;
                        const double share = exp(-angle * angle / (12.0 * 12.0)) * (2.0 * 1.772453850905516 / 12.0);
                        const double re_11 = (re_4 * sign_2 - 1.0) * share;
                        const double im_11 = im_4 * sign_2 * share;
                        const double re_12 = angle * angle - re_5;
                        const double im_12 = -im_5;
                        const double scale_2 = 1.0 / (fabs(re_12) + fabs(im_12));
                        const double re_13 = re_11 * scale_2;
                        const double im_13 = im_11 * scale_2;
                        const double re_14 = re_12 * scale_2;
                        const double im_14 = im_12 * scale_2;
                        const double inverse_2 = 1.0 / (re_14 * re_14 + im_14 * im_14);
                        const double dim_7 = inverse_2 * dsum_im;
                        double dre_6 = inverse_2 * dsum_re;
                        const double dinverse_2 = -gpuad_chain(gpuad_chain((im_13 * re_14 - re_13 * im_14) * dsum_im
                            + (re_13 * re_14 + im_13 * im_14) * dsum_re, inverse_2), inverse_2);
                        const double dim_8 = im_13 * dre_6 - re_13 * dim_7 + 2.0 * (im_14 * dinverse_2);
                        const double dre_7 = im_13 * dim_7 + re_13 * dre_6 + 2.0 * (re_14 * dinverse_2);
                        const double dim_9 = re_14 * dim_7 + im_14 * dre_6;
                        dre_6 = re_14 * dre_6 - im_14 * dim_7;
                        const double dscale_2 = -gpuad_chain(gpuad_chain(im_12 * dim_8 + re_12 * dre_7 + im_11 * dim_9
                            + re_11 * dre_6, scale_2), scale_2);
                        dim_5 -= scale_2 * dim_8 + (im_12 > 0.0 ? dscale_2 : im_12 < 0.0 ? -dscale_2 : 0.0);
                        dre_4 -= scale_2 * dre_7 + (re_12 > 0.0 ? dscale_2 : re_12 < 0.0 ? -dscale_2 : 0.0);
                        dim_6 += sign_2 * (share * (scale_2 * dim_9));
                        dre_5 += sign_2 * (share * (scale_2 * dre_6));
                    }
                    const double dim_7 = a * dim_5;
                    const double dre_6 = a * dre_4;
                    dim_6 -= scale * dim_4;
                    dre_5 -= scale * dre_3;
                    const double dim_8 = cos(im_3) * (m * dim_6) - sin(im_3) * (m * dre_5);
                    dre_5 = gpuad_chain(sin(im_3) * dim_6 + cos(im_3) * dre_5, m);
                    dim_2 = a_2 * (-(sum_re * dfaddeeva_re) - sum_im * dfaddeeva_im)
                        + 12.0 * (scale * dim_2 + (im_7 > 0.0 ? dscale : im_7 < 0.0 ? -dscale : 0.0)) - 12.0 * dre_5
                        + (dim_5 != 0.0 ? 2.0 * (re_2 * dim_7) : 0.0) + (dre_4 != 0.0 ? -2.0 * (im * dre_6) : 0.0);
                    dre_2 = a_2 * (sum_re * dfaddeeva_im - sum_im * dfaddeeva_re)
                        + 12.0 * (scale * dre_2 + (re_7 > 0.0 ? dscale : re_7 < 0.0 ? -dscale : 0.0)) + 12.0 * dim_8
                        + (dim_5 != 0.0 ? 2.0 * (im * dim_7) : 0.0) + (dre_4 != 0.0 ? 2.0 * (re_2 * dre_6) : 0.0);
                } else {
                    double re_3 = re_2 * re_2 - im * im;
                    double im_2 = re_2 * im + im * re_2;
                    const double inner = 0.5 * (3.0 - 2.449489742783178);
                    const double outer = 0.5 * (3.0 + 2.449489742783178);
                    const double im_3 = 0.25 / 1.772453850905516;
                    const double re_4 = 0.0 * re_2 - im_3 * im;
                    const double im_4 = 0.0 * im + im_3 * re_2;
                    const double re_5 = (re_3 - inner) * inner;
                    const double im_5 = im_2 * inner;
                    const double scale = 1.0 / (fabs(re_5) + fabs(im_5));
                    const double re_6 = 1.0 * scale;
                    const double im_6 = 0.0 * scale;
                    const double re_7 = re_5 * scale;
                    const double im_7 = im_5 * scale;
                    const double inverse = 1.0 / (re_7 * re_7 + im_7 * im_7);
                    re_3 = (re_3 - outer) * outer;
                    im_2 *= outer;
                    const double scale_2 = 1.0 / (fabs(re_3) + fabs(im_2));
                    const double re_8 = 1.0 * scale_2;
                    const double im_8 = 0.0 * scale_2;
                    const double re_9 = re_3 * scale_2;
                    const double im_9 = im_2 * scale_2;
                    const double inverse_2 = 1.0 / (re_9 * re_9 + im_9 * im_9);
                    const double re_10 = (re_6 * re_7 + im_6 * im_7) * inverse
                        + (re_8 * re_9 + im_8 * im_9) * inverse_2;
                    const double im_10 = (im_6 * re_7 - re_6 * im_7) * inverse
                        + (im_8 * re_9 - re_8 * im_9) * inverse_2;
                    const double dim_3 = re_4 * dfaddeeva_im - im_4 * dfaddeeva_re;
                    const double dre_3 = im_4 * dfaddeeva_im + re_4 * dfaddeeva_re;
                    const double dim_4 = inverse_2 * dim_3;
                    const double dre_4 = inverse_2 * dre_3;
                    const double dinverse = -gpuad_chain(gpuad_chain((im_8 * re_9 - re_8 * im_9) * dim_3
                        + (re_8 * re_9 + im_8 * im_9) * dre_3, inverse_2), inverse_2);
                    dim_2 = im_8 * dre_4 - re_8 * dim_4 + 2.0 * (im_9 * dinverse);
                    dre_2 = im_8 * dim_4 + re_8 * dre_4 + 2.0 * (re_9 * dinverse);
                    const double dscale = -gpuad_chain(gpuad_chain(im_2 * dim_2 + re_3 * dre_2
                        + (re_9 * dre_4 - im_9 * dim_4), scale_2), scale_2);
                    const double dim_5 = inverse * dim_3;
                    const double dre_5 = inverse * dre_3;
                    const double dinverse_2 = -gpuad_chain(gpuad_chain((im_6 * re_7 - re_6 * im_7) * dim_3
                        + (re_6 * re_7 + im_6 * im_7) * dre_3, inverse), inverse);
                    const double dim_6 = im_6 * dre_5 - re_6 * dim_5 + 2.0 * (im_7 * dinverse_2);
                    const double dre_6 = im_6 * dim_5 + re_6 * dre_5 + 2.0 * (re_7 * dinverse_2);
                    const double dscale_2 = -gpuad_chain(gpuad_chain(im_5 * dim_6 + re_5 * dre_6
                        + (re_7 * dre_5 - im_7 * dim_5), scale), scale);
                    dim_2 = outer * (scale_2 * dim_2 + (im_2 > 0.0 ? dscale : im_2 < 0.0 ? -dscale : 0.0))
                        + inner * (scale * dim_6 + (im_5 > 0.0 ? dscale_2 : im_5 < 0.0 ? -dscale_2 : 0.0));
                    dre_2 = outer * (scale_2 * dre_2 + (re_3 > 0.0 ? dscale : re_3 < 0.0 ? -dscale : 0.0))
                        + inner * (scale * dre_6 + (re_5 > 0.0 ? dscale_2 : re_5 < 0.0 ? -dscale_2 : 0.0));
                    const double dim_7 = re_10 * dfaddeeva_im - im_10 * dfaddeeva_re;
                    const double dre_7 = im_10 * dfaddeeva_im + re_10 * dfaddeeva_re;
                    const double next_dim = re_2 * dim_2 - im_3 * dre_7 + re_2 * dim_2 - 2.0 * (im * dre_2);
                    dre_2 = im_3 * dim_7 + im * dim_2 + im * dim_2 + 2.0 * (re_2 * dre_2);
                    dim_2 = next_dim;
                }
                if (dim_2 != 0.0) {
                    atomicAdd(&dwidth[p], broadening * dim_2);
                }
                const double dre_3 = broadening * dre_2;
                if (dre_2 != 0.0) {
                    atomicAdd(&dpole[p], -dre_3);
                }
                dbroadening_3 += (dim_2 != 0.0 ? width_2 * dim_2 : 0.0) + (dre_2 != 0.0 ? re * dre_2 : 0.0);
                de_2 += dre_2 != 0.0 ? dre_3 : 0.0;
            }
            atomicAdd(&dfit[(who * windows + window) * 3 + 2LL], e * dfission);
            atomicAdd(&dfit[(who * windows + window) * 3 + 1LL], e * dabsorbed);
            atomicAdd(&dfit[(who * windows + window) * 3], e * dtotal);
            double dspeed_2 = 0.0;
            for (int l = 3; l >= 0; --l) {
                const double radius_2 = radius[who * 4 + l];
                const double rho = radius_2 * speed;
                double phase;
                if (l == 1) {
                    phase = rho - atan(rho);
                } else if (l == 2) {
                    phase = rho - atan(3.0 * rho / (3.0 - rho * rho));
                } else if (l == 3) {
                    phase = rho - atan(rho * (15.0 - rho * rho) / (15.0 - 6.0 * rho * rho));
                } else {
                    phase = rho;
                }
                const double dturn_2 = dturn[l * 2 + 1];
                dturn[l * 2 + 1] = 0.0;
                const double dturn_3 = dturn[l * 2];
                dturn[l * 2] = 0.0;
                const double dphase = -2.0 * (cos(2.0 * phase) * dturn_2) - 2.0 * (sin(2.0 * phase) * dturn_3);
                double drho;
                if (l == 1) {
                    drho = dphase - 1.0 / (1.0 + rho * rho) * dphase;
                } else if (l == 2) {
                    const double dphase_2 = gpuad_chain(-(1.0
                        / (1.0 + 3.0 * rho / (3.0 - rho * rho) * (3.0 * rho / (3.0 - rho * rho))) * dphase),
                        1.0 / (3.0 - rho * rho));
                    const double dphase_3 = -gpuad_chain(dphase_2, 3.0 * rho / (3.0 - rho * rho));
                    drho = dphase + 3.0 * dphase_2 - 2.0 * (rho * dphase_3);
                } else if (l == 3) {
                    const double dphase_2 = gpuad_chain(-(1.0
                        / (1.0 + rho * (15.0 - rho * rho) / (15.0 - 6.0 * rho * rho)
                        * (rho * (15.0 - rho * rho) / (15.0 - 6.0 * rho * rho))) * dphase),
                        1.0 / (15.0 - 6.0 * rho * rho));
                    const double dphase_3 = rho * dphase_2;
                    const double dphase_4 = -gpuad_chain(dphase_2,
                        rho * (15.0 - rho * rho) / (15.0 - 6.0 * rho * rho));
                    drho = dphase + (15.0 - rho * rho) * dphase_2 - 2.0 * (rho * dphase_3)
                        - 12.0 * (rho * dphase_4);
                } else {
                    drho = dphase;
                }
                if (drho != 0.0) {
                    atomicAdd(&dradius[who * 4 + l], speed * drho);
                }
                dspeed_2 += drho != 0.0 ? radius_2 * drho : 0.0;
            }
            dbroadening_2 += dbroadening_3;
            de += de_2 + fit_4 * dfission + fit_3 * dabsorbed + fit_2 * dtotal;
            dspeed += dspeed_2;
        }
        if (de != 0.0) {
            denergy[i] += de;
        }
        if (dspeed != 0.0) {
            denergy[i] += gpuad_chain(dspeed, 0.5 / speed);
        }
    }
    gpuad_block_sum(&dbroadening[0], dbroadening_2);
}

// adjoint of `multipole`
//   not saved  energy                        never overwritten by this launch
//   not saved  material                      never overwritten by this launch
//   not saved  held                          never overwritten by this launch
//   not saved  nuclide                       never overwritten by this launch
//   not saved  concentration                 never overwritten by this launch
//   not saved  radius                        never overwritten by this launch
//   not saved  fit                           never overwritten by this launch
//   not saved  first                         never overwritten by this launch
//   not saved  pole                          never overwritten by this launch
//   not saved  width                         never overwritten by this launch
//   not saved  angular                       never overwritten by this launch
//   not saved  residue                       never overwritten by this launch
//   not saved  result                        no derivative needs what was overwritten
//   shadow     denergy              plain    no two threads touch one element (multipole.cu:76:22)
//   shadow     dconcentration       atomic   it is not proved that no two threads meet in one element (multipole.cu:92:30)
//   shadow     dradius              atomic   its index is read from `nuclide`, so that two threads may meet in one element (multipole.cu:82:58)
//   shadow     dfit                 atomic   its index is read from `nuclide`, so that two threads may meet in one element (multipole.cu:84:73)
//   shadow     dpole                atomic   it is not proved that no two threads meet in one element (multipole.cu:87:65)
//   shadow     dwidth               atomic   it is not proved that no two threads meet in one element (multipole.cu:87:53)
//   shadow     dresidue             atomic   it is not proved that no two threads meet in one element (multipole.cu:90:25)
//   shadow     dbroadening          reduced  summed over each block, then one atomic addition a block (multipole.cu:70:28)
//   shadow     dresult              plain    no two threads touch one element (multipole.cu:98:33)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
//   assumed    multipole.cu:79:35: an index of `held` is data, taken to be in bounds
//   assumed    multipole.cu:82:58: an index of `radius` is data, taken to be in bounds
//   assumed    multipole.cu:84:28: an index of `fit` is data, taken to be in bounds
//   assumed    multipole.cu:84:51: an index of `fit` is data, taken to be in bounds
//   assumed    multipole.cu:84:73: an index of `fit` is data, taken to be in bounds
//   assumed    multipole.cu:86:36: an index of `first` is data, taken to be in bounds
//   assumed    multipole.cu:86:64: an index of `first` is data, taken to be in bounds
//   assumed    multipole.cu:88:23: an index of `turn` is data, taken to be in bounds
