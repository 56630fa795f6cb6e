/*gpuad
title = "tomographic projection: each thread marches one ray through the image and sums what it samples"
[[case]]
kernel = "projection"
sizes = {n = 16, angles = 7, detectors = 19}
grid = ["(detectors + 31) // 32", "angles"]
block = [32, 1]
[case.arguments]
image = {shape = ["n", "n"], init = "positive", active = true}
angle = {shape = ["angles"], init = "0.137 + 3.14159 * index(0) / angles"}
sinogram = {shape = ["angles", "detectors"], init = "zeros", active = true}
n = {value = "n"}
detectors = {value = "detectors"}
step = {value = 0.5}
[case.benchmark]
sizes = {n = 1024, angles = 720, detectors = 1024}
bytes = "4 * n * n + 4 * angles * detectors"
*/
extern "C" __global__ void projection(const float* image, const float* angle, float* sinogram, int n, int detectors, float step) {
    int d = blockIdx.x * blockDim.x + threadIdx.x;
    int a = blockIdx.y * blockDim.y + threadIdx.y;
    if (d >= detectors) return;
    float direction_x = cosf(angle[a]), direction_y = sinf(angle[a]);
    float offset = d - 0.5f * (detectors - 1);
    float half = 0.5f * (n - 1), reach = 0.75f * n;
    float sum = 0.0f, travelled = -reach;
    while (travelled < reach) {
        float x = half + travelled * direction_x - offset * direction_y;
        float y = half + travelled * direction_y + offset * direction_x;
        travelled += step;
        if (x < 0.0f || y < 0.0f) continue;
        int x0 = (int)x, y0 = (int)y;
        if (x0 >= n - 1 || y0 >= n - 1) continue;
        float fx = x - x0, fy = y - y0;
        const float* corner = &image[y0 * n + x0];
        sum += (1.0f - fy) * ((1.0f - fx) * corner[0] + fx * corner[1]) + fy * ((1.0f - fx) * corner[n] + fx * corner[n + 1]);
    }
    sinogram[a * detectors + d] = sum * step;
}
