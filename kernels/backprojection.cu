/*gpuad
title = "back projection: every pixel collects from each angle what the detector has seen along its ray"
[[case]]
kernel = "back_projection"
sizes = {n = 14, angles = 6, detectors = 22}
grid = ["(n + 7) // 8", "(n + 7) // 8"]
block = [8, 8]
[case.arguments]
sinogram = {shape = ["angles", "detectors"], init = "normal", active = true}
angle = {shape = ["angles"], init = "0.137 + 3.14159 * index(0) / angles"}
image = {shape = ["n", "n"], init = "zeros", active = true}
n = {value = "n"}
angles = {value = "angles"}
detectors = {value = "detectors"}
[case.benchmark]
sizes = {n = 512, angles = 180, detectors = 736}
bytes = "4 * n * n + 4 * angles * detectors"
flops = "10 * angles * n * n"
*/
extern "C" __global__ void back_projection(const float* sinogram, const float* angle, float* image, int n, int angles, int detectors) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    float from_x = x - 0.5f * (n - 1), from_y = y - 0.5f * (n - 1);
    float sum = 0.0f;
    for (int a = 0; a < angles; ++a) {
        float place = from_y * cosf(angle[a]) - from_x * sinf(angle[a]) + 0.5f * (detectors - 1);
        int d = (int)floorf(place);
        if (d < 0 || d + 1 >= detectors) continue;
        float right = place - d;
        sum += (1.0f - right) * sinogram[a * detectors + d] + right * sinogram[a * detectors + d + 1];
    }
    image[y * n + x] += sum;
}
