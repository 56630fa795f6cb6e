/*gpuad
title = "prices of European options, with the polynomial approximation of the normal distribution that CUDA's sample uses"
[[case]]
kernel = "black_scholes"
sizes = {n = 500}
grid = ["(n + 127) // 128"]
block = [128]
[case.arguments]
spot = {shape = ["n"], init = "uniform(20.0, 30.0)", active = true}
strike = {shape = ["n"], init = "10 + 40 * integers(0, 2) + uniform(0.0, 3.0)", active = true} # the approximation jumps at the money
years = {shape = ["n"], init = "uniform(0.25, 4.0)", active = true}
rate = {value = 0.02, active = true}
volatility = {value = 0.3, active = true}
call = {shape = ["n"], init = "zeros", active = true}
put = {shape = ["n"], init = "zeros", active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 67108864}
bytes = "20 * n"

[[case]]
kernel = "black_scholes_erf"
title = "the same by the error function, in double precision, over the spot in place"
sizes = {n = 300}
grid = ["(n + 127) // 128"]
block = [128]
[case.arguments]
price = {shape = ["n"], init = "uniform(20.0, 30.0)", active = true}
strike = {value = 25.0, active = true}
years = {value = 1.5, active = true}
rate = {value = 0.02, active = true}
volatility = {value = 0.3, active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 67108864}
bytes = "16 * n"
*/
#define RSQRT2PI 0.39894228040143267794f

__device__ float normal_distribution(float d) {
    const float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    float tail = RSQRT2PI * expf(-0.5f * d * d) *
                 (k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f)))));
    if (d > 0.0f) return 1.0f - tail;
    return tail;
}

extern "C" __global__ void black_scholes(const float* spot, const float* strike, const float* years, float rate, float volatility,
                                         float* call, float* put, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s = spot[i], x = strike[i], t = years[i];
    float root = sqrtf(t);
    float d1 = (logf(s / x) + (rate + 0.5f * volatility * volatility) * t) / (volatility * root);
    float d2 = d1 - volatility * root;
    float discounted = x * expf(-rate * t);
    float cd1 = normal_distribution(d1), cd2 = normal_distribution(d2);
    call[i] = s * cd1 - discounted * cd2;
    put[i] = discounted * (1.0f - cd2) - s * (1.0f - cd1);
}

__device__ double phi(double d) { return 0.5 * (1.0 + erf(d * 0.70710678118654752)); }

extern "C" __global__ void black_scholes_erf(double* price, double strike, double years, double rate, double volatility, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double spot = price[i];
    double d1 = (log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / (volatility * sqrt(years));
    double d2 = d1 - volatility * sqrt(years);
    price[i] = spot * phi(d1) - strike * exp(-rate * years) * phi(d2);
}
