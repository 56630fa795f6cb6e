/*gpuad
title = "advection in a variable wind by a second-order upwind scheme; precision and flux limiter are template arguments"
[[case]]
kernel = "advect<float, Limiter::VanLeer>"
sizes = {n = 300}
grid = ["(n + 63) // 64"]
block = [64]
[case.arguments]
u = {shape = ["n"], init = "normal", active = true}
v = {shape = ["n"], init = "zeros", active = true}
wind = {shape = ["n"], init = "uniform(0.1, 0.9)", active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 16777216}
bytes = "12 * n"
[[case]]
kernel = "advect<double, Limiter::Superbee>"
sizes = {n = 300}
grid = ["(n + 63) // 64"]
block = [64]
[case.arguments]
u = {shape = ["n"], init = "normal", active = true}
v = {shape = ["n"], init = "zeros", active = true}
wind = {shape = ["n"], init = "uniform(0.1, 0.9)", active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 16777216}
bytes = "24 * n"
*/
namespace scheme {

constexpr int halo = 2;

template <typename T>
constexpr T half = T(1) / 2;

template <typename T>
using Field = const T* __restrict__;

}  // namespace scheme

enum class Limiter { None, VanLeer, Superbee };

template <Limiter L, typename T>
__device__ __forceinline__ T limited(T back, T ahead) {
    if constexpr (L == Limiter::None) return ahead;
    if (back * ahead <= T(0)) return T(0);
    switch (L) {
        case Limiter::VanLeer:
            return 2 * back * ahead / (back + ahead);
        case Limiter::Superbee: {
            const T low = min(2 * fabs(back), fabs(ahead)), high = min(fabs(back), 2 * fabs(ahead));
            return copysign(max(low, high), ahead);
        }
        default:
            return ahead;
    }
}

template <Limiter L, typename T>
__device__ T flux(scheme::Field<T> u, scheme::Field<T> wind, int i) {
    const auto back = u[i] - u[i - 1], ahead = u[i + 1] - u[i];
    return wind[i] * (u[i] + scheme::half<T> * (1 - wind[i]) * limited<L>(back, ahead));
}

template <typename T, Limiter L = Limiter::VanLeer>
__global__ void advect(scheme::Field<T> u, T* v, scheme::Field<T> wind, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < scheme::halo || i + scheme::halo > n - 1) return;
    v[i] = u[i] - (flux<L>(u, wind, i) - flux<L>(u, wind, i - 1));
}
