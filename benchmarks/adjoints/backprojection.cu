/*gpuad
[[case]]
kernel = "back_projection_sinogram"
title = "back_projection"
sizes = {n = 14, angles = 6, detectors = 22}
grid = ["(n + 31) // 32", "(n + 7) // 8"]
block = [32, 8]
[case.arguments]
angle = {shape = ["angles"], init = "zeros"}
dimage = {shape = ["n", "n"], init = "zeros"}
dsinogram = {shape = ["angles", "detectors"], init = "zeros"}
n = {value = "n"}
angles = {value = "angles"}
detectors = {value = "detectors"}
[case.benchmark]
sizes = {n = 256, angles = 90, detectors = 368}
*/
// Every pixel gives its number to the two cells of the detector that it lies between, at each angle.
extern "C" __global__ void back_projection_sinogram(const float* angle, const float* dimage, float* dsinogram, int n, int angles, int detectors) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    float from_x = x - 0.5f * (n - 1), from_y = y - 0.5f * (n - 1), share = dimage[y * n + x];
    if (share == 0.0f) return;
    for (int a = 0; a < angles; ++a) {
        float place = from_y * cosf(angle[a]) - from_x * sinf(angle[a]) + 0.5f * (detectors - 1);
        int d = (int)floorf(place);
        if (d < 0 || d + 1 >= detectors) continue;
        float right = place - d;
        atomicAdd(&dsinogram[a * detectors + d], (1.0f - right) * share);
        atomicAdd(&dsinogram[a * detectors + d + 1], right * share);
    }
}
