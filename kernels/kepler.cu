/*gpuad
title = "orbits: an ODE by Runge-Kutta 4 within the thread, and Kepler's equation by Newton's method"
[[case]]
kernel = "orbit"
title = "position and velocity are moved on in place"
sizes = {n = 40, steps = 10}
grid = ["(n + 31) // 32"]
block = [32]
[case.arguments]
state = {shape = [4, "n"], init = "(1 - index(0) // 2) * (1 - index(0)) + (index(0) // 3) + uniform(-0.1, 0.1)", active = true}
mu = {value = 1.0, active = true}
dt = {value = 0.05, active = true}
steps = {value = "steps"}
n = {value = "n"}
[case.benchmark]
sizes = {n = 1048576, steps = 32}
bytes = "64 * n"

[[case]]
kernel = "eccentric_anomaly"
title = "E - e sin E = M, iterated until it no longer moves"
sizes = {n = 120}
grid = ["(n + 31) // 32"]
block = [32]
[case.arguments]
mean = {shape = ["n"], init = "uniform(0.2, 2.9)", active = true}
eccentricity = {shape = ["n"], init = "uniform(0.05, 0.6)", active = true}
anomaly = {shape = ["n"], init = "zeros", active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 16777216}
bytes = "24 * n"
*/
#define DIMENSIONS 4

__device__ void slope(const double* y, double mu, double* dy) {
    double r2 = y[0] * y[0] + y[1] * y[1];
    double pull = -mu / (r2 * sqrt(r2));
    dy[0] = y[2];
    dy[1] = y[3];
    dy[2] = pull * y[0];
    dy[3] = pull * y[1];
}

extern "C" __global__ void orbit(double* state, double mu, double dt, int steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double y[DIMENSIONS], stage[DIMENSIONS], k1[DIMENSIONS], k2[DIMENSIONS], k3[DIMENSIONS], k4[DIMENSIONS];
    for (int d = 0; d < DIMENSIONS; d++) y[d] = state[d * n + i];
    for (int t = 0; t < steps; t++) {
        slope(y, mu, k1);
        for (int d = 0; d < DIMENSIONS; d++) stage[d] = y[d] + 0.5 * dt * k1[d];
        slope(stage, mu, k2);
        for (int d = 0; d < DIMENSIONS; d++) stage[d] = y[d] + 0.5 * dt * k2[d];
        slope(stage, mu, k3);
        for (int d = 0; d < DIMENSIONS; d++) stage[d] = y[d] + dt * k3[d];
        slope(stage, mu, k4);
        for (int d = 0; d < DIMENSIONS; d++) y[d] += dt / 6.0 * (k1[d] + 2.0 * k2[d] + 2.0 * k3[d] + k4[d]);
    }
    for (int d = 0; d < DIMENSIONS; d++) state[d * n + i] = y[d];
}

extern "C" __global__ void eccentric_anomaly(const double* mean, const double* eccentricity, double* anomaly, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double m = mean[i], e = eccentricity[i], E = m;
    int iteration = 0;
    do {
        double f = E - e * sin(E) - m;
        double move = f / (1.0 - e * cos(E));
        E -= move;
        if (fabs(move) < 1e-13) break;
    } while (++iteration < 30);
    anomaly[i] = E;
}
