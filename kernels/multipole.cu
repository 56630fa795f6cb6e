/*gpuad
title = "neutron cross sections from windowed multipoles: poles near by, Doppler-broadened, and a fit for those far away"
[[case]]
kernel = "multipole"
sizes = {lookups = 60, nuclides = 4, windows = 5, poles = 15, materials = 3, most = 3}
grid = ["(lookups + 31) // 32"]
block = [32]
[case.arguments]
energy = {shape = ["lookups"], init = "uniform(0.06, 0.94)", active = true}
material = {shape = ["lookups"], init = "integers(0, materials)"}
held = {shape = ["materials"], init = "integers(1, most + 1)"}
nuclide = {shape = ["materials", "most"], init = "integers(0, nuclides)"}
concentration = {shape = ["materials", "most"], init = "positive", active = true}
radius = {shape = ["nuclides", 4], init = "uniform(0.2, 0.9)", active = true}
fit = {shape = ["nuclides", "windows", 3], init = "positive", active = true}
first = {shape = ["nuclides", "windows + 1"], init = "index(1) * (poles // windows)"}
pole = {shape = ["nuclides", "poles"], init = "(index(1) + uniform(0.3, 0.7)) / poles", active = true}
width = {shape = ["nuclides", "poles"], init = "uniform(0.005, 0.02)", active = true}
angular = {shape = ["nuclides", "poles"], init = "integers(0, 4)"}
residue = {shape = ["nuclides", "poles", 3], init = "normal", active = true}
broadening = {value = 120.0, active = true}
result = {shape = ["lookups", 4], init = "zeros", active = true}
lookups = {value = "lookups"}
windows = {value = "windows"}
poles = {value = "poles"}
most = {value = "most"}
[case.benchmark]
sizes = {lookups = 20000, nuclides = 68, windows = 100, poles = 1000, materials = 12, most = 34}
bytes = "lookups * (44 + (most + 1) * (48 + 10 * 68) // 2)"
*/
// The method is that of RSBench (Tramm, Siegel, Forget and Josey 2014). The Faddeeva function is the Fourier series of Abrarov and Quine
// (2011) near zero; far away it is the Gauss-Hermite quadrature of its integral with four nodes.
#include <cupy/complex.cuh>

#define TAU 12.0
#define TERMS 10
#define ROOT_PI 1.7724538509055160
#define ROOT_6 2.4494897427831781

typedef complex<double> Complex;

__device__ Complex near_zero(Complex z) {
    const Complex i(0.0, 1.0), turned = exp(i * (TAU * z)), square = TAU * TAU * (z * z);
    Complex sum(0.0, 0.0);
    double sign = -1.0;
    for (int n = 1; n <= TERMS; n++) {
        const double angle = n * 3.14159265358979324, share = exp(-angle * angle / (TAU * TAU)) * (2.0 * ROOT_PI / TAU);
        sum += share * (sign * turned - 1.0) / (angle * angle - square);
        sign = -sign;
    }
    return i * ((1.0 - turned) / (TAU * z) + (TAU * TAU / ROOT_PI) * z * sum);
}

__device__ Complex faddeeva(Complex z) {
    if (abs(z) < 6.0) return near_zero(z);
    const Complex square = z * z;
    const double inner = 0.5 * (3.0 - ROOT_6), outer = 0.5 * (3.0 + ROOT_6);
    return Complex(0.0, 0.25 / ROOT_PI) * z * (1.0 / (inner * (square - inner)) + 1.0 / (outer * (square - outer)));
}

// Twice the phase shift of scattering off a hard sphere, as a turn of the complex plane (Blatt and Biedenharn 1952).
__device__ Complex shifted(int angular, double rho) {
    double phase = rho;
    if (angular == 1) phase -= atan(rho);
    else if (angular == 2) phase -= atan(3.0 * rho / (3.0 - rho * rho));
    else if (angular == 3) phase -= atan(rho * (15.0 - rho * rho) / (15.0 - 6.0 * rho * rho));
    return Complex(cos(2.0 * phase), -sin(2.0 * phase));
}

extern "C" __global__ void multipole(const double* energy, const int* material, const int* held, const int* nuclide,
                                     const double* concentration, const double* radius, const double* fit, const int* first,
                                     const double* pole, const double* width, const int* angular, const Complex* residue,
                                     double broadening, double* result, int lookups, int windows, int poles, int most) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= lookups) return;
    const double e = energy[i], speed = sqrt(e);
    const int window = min((int)floor(e * windows), windows - 1), from = material[i] * most;
    double sum[4] = {0.0, 0.0, 0.0, 0.0};
    for (int k = from; k < from + held[material[i]]; k++) {
        const int who = nuclide[k];
        Complex turn[4];
        for (int l = 0; l < 4; l++) turn[l] = shifted(l, radius[who * 4 + l] * speed);
        const double* far = fit + (who * windows + window) * 3;
        double total = e * far[0], absorbed = e * far[1], fission = e * far[2];
        const int* range = first + who * (windows + 1) + window;
        for (int p = who * poles + range[0]; p < who * poles + range[1]; p++) {
            const Complex w = faddeeva(broadening * Complex(e - pole[p], width[p]));
            total += (residue[p * 3] * turn[angular[p]] * w).real();
            absorbed += (residue[p * 3 + 1] * w).real();
            fission += (residue[p * 3 + 2] * w).real();
        }
        const double there = concentration[k];
        sum[0] += there * total;
        sum[1] += there * absorbed;
        sum[2] += there * fission;
        sum[3] += there * (total - absorbed);
    }
    for (int r = 0; r < 4; r++) result[i * 4 + r] = sum[r];
}
