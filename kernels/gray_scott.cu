/*gpuad
title = "Gray-Scott reaction and diffusion with periodic borders, double precision"
[[case]]
kernel = "gray_scott"
sizes = {n = 24}
grid = ["(n + 15) // 16", "(n + 15) // 16"]
block = [16, 16]
[case.arguments]
u = {shape = ["n", "n"], init = "uniform(0.4, 1.0)", active = true}
v = {shape = ["n", "n"], init = "uniform(0.0, 0.5)", active = true}
u_new = {shape = ["n", "n"], init = "zeros", active = true}
v_new = {shape = ["n", "n"], init = "zeros", active = true}
feed = {value = 0.035, active = true}
kill = {value = 0.065, active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 8192}
bytes = "32 * n * n"
*/
#define DU 0.16
#define DV 0.08
#define DT 1.0
#define AT(row, column) (((row) + n) % n * n + ((column) + n) % n)
#define LAPLACE(a) (a[AT(y - 1, x)] + a[AT(y + 1, x)] + a[AT(y, x - 1)] + a[AT(y, x + 1)] - 4.0 * a[AT(y, x)])

extern "C" __global__ void gray_scott(const double* u, const double* v, double* u_new, double* v_new, double feed, double kill, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    int i = AT(y, x);
    double reaction = u[i] * v[i] * v[i];
    u_new[i] = u[i] + DT * (DU * LAPLACE(u) - reaction + feed * (1.0 - u[i]));
    v_new[i] = v[i] + DT * (DV * LAPLACE(v) + reaction - (feed + kill) * v[i]);
}
