/*gpuad
title = "each row is sorted in place by insertion, and the smaller half of it summed"
[[case]]
kernel = "insertion_sort"
sizes = {rows = 20, n = 11}
grid = ["(rows + 7) // 8"]
block = [8]
[case.arguments]
x = {shape = ["rows", "n"], init = "spread(-20.0, 20.0)", active = true}
smallest = {shape = ["rows"], init = "zeros", active = true}
rows = {value = "rows"}
n = {value = "n"}
[case.benchmark]
sizes = {rows = 1048576, n = 16}
bytes = "16 * rows * n + 8 * rows"

[[case]]
kernel = "median"
title = "3 x 3 median filter through a sorted local array"
sizes = {height = 13, width = 15}
grid = ["(width + 7) // 8", "(height + 7) // 8"]
block = [8, 8]
[case.arguments]
image = {shape = ["height", "width"], init = "spread(-20.0, 20.0)", active = true}
filtered = {shape = ["height", "width"], init = "zeros", active = true}
height = {value = "height"}
width = {value = "width"}
[case.benchmark]
sizes = {height = 4096, width = 4096}
bytes = "8 * height * width"
*/
extern "C" __global__ void insertion_sort(double* x, double* smallest, int rows, int n) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    double* row = x + r * n;
    for (int i = 1; i < n; i++) {
        double key = row[i];
        int j = i - 1;
        while (j >= 0 && row[j] > key) {
            row[j + 1] = row[j];
            j--;
        }
        row[j + 1] = key;
    }
    double sum = 0.0;
    for (int i = 0; i < n / 2; i++) sum += row[i];
    smallest[r] = sum;
}

__device__ void order(float& a, float& b) {
    if (a > b) {
        float t = a;
        a = b;
        b = t;
    }
}

extern "C" __global__ void median(const float* image, float* filtered, int height, int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float window[9];
    int count = 0;
    for (int dy = -1; dy <= 1; dy++) {
        for (int dx = -1; dx <= 1; dx++) {
            int row = min(max(y + dy, 0), height - 1), column = min(max(x + dx, 0), width - 1);
            window[count++] = image[row * width + column];
        }
    }
    for (int i = 0; i < 5; i++) {
        for (int j = 8; j > i; j--) order(window[j - 1], window[j]);
    }
    filtered[y * width + x] = window[4];
}
