/*gpuad
title = "Lennard-Jones forces and energies over a neighbour list with a cutoff, shifted so that both vanish there"
[[case]]
kernel = "lennard_jones"
sizes = {side = 5, n = "side * side * side", neighbours = 12}
grid = ["(n + 31) // 32"]
block = [32]
[case.arguments]
x = {shape = ["n"], init = "1.2 * (arange % side) + uniform(-0.05, 0.05)", active = true}
y = {shape = ["n"], init = "1.2 * (arange // side % side) + uniform(-0.05, 0.05)", active = true}
z = {shape = ["n"], init = "1.2 * (arange // side // side) + uniform(-0.05, 0.05)", active = true}
list = {shape = ["n", "neighbours"], init = "(arange // neighbours + 1 + integers(0, n - 1)) % n"}
neighbours = {value = "neighbours"}
sigma = {value = 1.0, active = true}
epsilon = {value = 0.7, active = true}
cutoff = {value = 3.1}
force = {shape = [3, "n"], init = "zeros", active = true}
energy = {shape = ["n"], init = "zeros", active = true}
n = {value = "n"}
[case.benchmark]
sizes = {side = 100, neighbours = 32}
bytes = "n * (12 + 4 * neighbours + 16) * 2"
*/
__device__ void pair(double r2, double sigma, double epsilon, double& potential, double& slope) {
    double s2 = sigma * sigma / r2;
    double s6 = s2 * s2 * s2;
    potential = 4.0 * epsilon * (s6 * s6 - s6);
    slope = -24.0 * epsilon * (2.0 * s6 * s6 - s6) / sqrt(r2);
}

extern "C" __global__ void lennard_jones(const double* x, const double* y, const double* z, const int* list, int neighbours, double sigma,
                                         double epsilon, double cutoff, double* force, double* energy, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double at_cutoff, slope_there;
    pair(cutoff * cutoff, sigma, epsilon, at_cutoff, slope_there);
    double fx = 0.0, fy = 0.0, fz = 0.0, sum = 0.0;
    for (int k = 0; k < neighbours; k++) {
        int j = list[i * neighbours + k];
        double dx = x[j] - x[i], dy = y[j] - y[i], dz = z[j] - z[i];
        double r2 = dx * dx + dy * dy + dz * dz;
        if (r2 > cutoff * cutoff) continue;
        double potential, slope, r = sqrt(r2);
        pair(r2, sigma, epsilon, potential, slope);
        sum += 0.5 * (potential - at_cutoff - (r - cutoff) * slope_there);
        double pull = (slope - slope_there) / r;
        fx += pull * dx;
        fy += pull * dy;
        fz += pull * dz;
    }
    force[i] = fx;
    force[n + i] = fy;
    force[2 * n + i] = fz;
    energy[i] = sum;
}
