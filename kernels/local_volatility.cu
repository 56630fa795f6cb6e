/*gpuad
title = "Monte Carlo paths under a local volatility that depends on the price: a nonlinear recurrence over the steps"
[[case]]
kernel = "local_volatility"
sizes = {paths = 90, steps = 20}
grid = ["(paths + 31) // 32"]
block = [32]
[case.arguments]
normals = {shape = ["steps", "paths"], init = "normal"}
spot = {value = 100.0, active = true}
level = {value = 0.25, active = true}
skew = {value = 0.4, active = true}
rate = {value = 0.03, active = true}
dt = {value = 0.02}
payoff = {shape = ["paths"], init = "zeros", active = true}
steps = {value = "steps"}
paths = {value = "paths"}
[case.benchmark]
sizes = {paths = 1048576, steps = 64}
bytes = "8 * paths * (steps + 1)"
*/
extern "C" __global__ void local_volatility(const double* normals, double spot, double level, double skew, double rate, double dt,
                                            double* payoff, int steps, int paths) {
    int path = blockIdx.x * blockDim.x + threadIdx.x;
    if (path >= paths) return;
    double s = spot, average = 0.0;
    for (int t = 0; t < steps; t++) {
        double volatility = level * exp(-skew * log(s / spot)) + 0.02 * sin(0.1 * s);
        s *= 1.0 + rate * dt + volatility * sqrt(dt) * normals[t * paths + path];
        average += s / steps;
    }
    double gain = average - spot;
    payoff[path] = exp(-rate * dt * steps) * 0.5 * (gain + sqrt(gain * gain + 25.0));
}
