/*gpuad
title = "a filter with a compile-time number of taps, for any number type"
[[case]]
kernel = "fir<float, 8>"
sizes = {n = 1000}
grid = ["(n + 127) // 128"]
block = [128]
[case.arguments]
y = {shape = ["n"], init = "normal", active = true}
x = {shape = ["n"], init = "normal", active = true}
taps = {shape = [8], init = "normal", active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 16777216}
bytes = "8 * n"
[[case]]
kernel = "fir<double, 3, Border::Wrap>"
title = "the same filter of another type, on a ring"
sizes = {n = 500}
grid = ["(n + 127) // 128"]
block = [128]
[case.arguments]
y = {shape = ["n"], init = "normal", active = true}
x = {shape = ["n"], init = "normal", active = true}
taps = {shape = [3], init = "normal", active = true}
n = {value = "n"}
[case.benchmark]
sizes = {n = 16777216}
bytes = "16 * n"
*/
enum class Border { Zero, Wrap };

template <typename T>
using Wide = T;

template <typename T, Border border>
__device__ inline T sample(const T* x, int i, int n) {
    if constexpr (border == Border::Wrap) {
        return x[i < 0 ? i + n : i];
    } else {
        const T value = i < 0 ? T(0) : x[i];
        return value;
    }
}

template <typename T, int N, Border border = Border::Zero>
__global__ void fir(T* y, const T* x, const T* taps, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    constexpr auto last = N - 1;
    Wide<T> sum = taps[0] * x[i];
    for (auto k = 1; k <= last; ++k) sum += taps[k] * sample<T, border>(x, i - k, n);
    y[i] = sum;
}
