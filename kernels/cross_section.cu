/*gpuad
title = "macroscopic neutron cross sections: a binary search in a unionised grid, then five interpolated reactions of each nuclide"
[[case]]
kernel = "macroscopic"
sizes = {lookups = 60, nuclides = 6, points = 20, materials = 3, most = 4}
grid = ["(lookups + 31) // 32"]
block = [32]
[case.arguments]
energy = {shape = ["lookups"], init = "uniform(0.06, 0.94)", active = true}
material = {shape = ["lookups"], init = "integers(0, materials)"}
held = {shape = ["materials"], init = "integers(1, most + 1)"}
nuclide = {shape = ["materials", "most"], init = "integers(0, nuclides)"}
concentration = {shape = ["materials", "most"], init = "positive", active = true}
unionised = {shape = ["nuclides * points"], init = "(arange + 0.5) / (nuclides * points)"}
below = {shape = ["nuclides * points", "nuclides"], init = "min(max((index(0) - index(1)) // nuclides, 0), points - 2)"}
table = {shape = ["nuclides", "points"], init = "positive", members = {energy = "(index(1) + (index(0) + 0.5) / nuclides) / points"}, active = true}
result = {shape = ["lookups", 5], init = "zeros", active = true}
lookups = {value = "lookups"}
nuclides = {value = "nuclides"}
points = {value = "points"}
most = {value = "most"}
[case.benchmark]
sizes = {lookups = 100000, nuclides = 68, points = 1000, materials = 12, most = 34}
bytes = "lookups * (52 + (most + 1) * 60)"
*/
// The method is that of XSBench (Tramm, Siegel, Islam and Schulz 2014), which stands for the lookups of Monte Carlo neutron transport: all
// nuclides' energies are in one sorted grid, each point of which knows the interval that it lies in on the grid of every nuclide.
struct Point {
    double energy, total, elastic, absorption, fission, neutrons;
};

__device__ int interval(const double* sorted, int n, double energy) {
    int low = 0, high = n - 1;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (sorted[middle] > energy) high = middle;
        else low = middle;
    }
    return low;
}

extern "C" __global__ void macroscopic(const double* energy, const int* material, const int* held, const int* nuclide,
                                       const double* concentration, const double* unionised, const int* below, const Point* table,
                                       double* result, int lookups, int nuclides, int points, int most) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= lookups) return;
    const double e = energy[i];
    const int* rows = below + interval(unionised, nuclides * points, e) * nuclides;
    const int first = material[i] * most;
    double sum[5] = {0.0, 0.0, 0.0, 0.0, 0.0};
    for (int k = first; k < first + held[material[i]]; k++) {
        const Point* low = table + nuclide[k] * points + rows[nuclide[k]];
        const Point a = low[0], b = low[1];
        const double share = (b.energy - e) / (b.energy - a.energy), there = concentration[k];
        sum[0] += there * (b.total - share * (b.total - a.total));
        sum[1] += there * (b.elastic - share * (b.elastic - a.elastic));
        sum[2] += there * (b.absorption - share * (b.absorption - a.absorption));
        sum[3] += there * (b.fission - share * (b.fission - a.fission));
        sum[4] += there * (b.neutrons - share * (b.neutrons - a.neutrons));
    }
    for (int r = 0; r < 5; r++) result[i * 5 + r] = sum[r];
}
