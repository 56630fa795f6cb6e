/*gpuad
[[case]]
kernel = "projection_image"
title = "projection"
sizes = {n = 16, angles = 7, detectors = 19}
grid = ["(detectors + 31) // 32", "angles"]
block = [32, 1]
[case.arguments]
angle = {shape = ["angles"], init = "zeros"}
dsinogram = {shape = ["angles", "detectors"], init = "zeros"}
dimage = {shape = ["n", "n"], init = "zeros"}
n = {value = "n"}
detectors = {value = "detectors"}
step = {value = 0.5}
[case.benchmark]
sizes = {n = 192, angles = 120, detectors = 256}
*/
// Along the same ray once more, to give each sample's share to the four pixels around it.
extern "C" __global__ void projection_image(const float* angle, const float* dsinogram, float* dimage, int n, int detectors, float step) {
    int d = blockIdx.x * blockDim.x + threadIdx.x, a = blockIdx.y * blockDim.y + threadIdx.y;
    if (d >= detectors) return;
    float direction_x = cosf(angle[a]), direction_y = sinf(angle[a]);
    float offset = d - 0.5f * (detectors - 1), half = 0.5f * (n - 1), reach = 0.75f * n;
    float share = dsinogram[a * detectors + d] * step;
    if (share == 0.0f) return;
    for (float travelled = -reach; travelled < reach; travelled += step) {
        float x = half + travelled * direction_x - offset * direction_y, y = half + travelled * direction_y + offset * direction_x;
        if (x < 0.0f || y < 0.0f) continue;
        int x0 = (int)x, y0 = (int)y;
        if (x0 >= n - 1 || y0 >= n - 1) continue;
        float fx = x - x0, fy = y - y0;
        float* corner = &dimage[y0 * n + x0];
        atomicAdd(&corner[0], share * (1.0f - fy) * (1.0f - fx));
        atomicAdd(&corner[1], share * (1.0f - fy) * fx);
        atomicAdd(&corner[n], share * fy * (1.0f - fx));
        atomicAdd(&corner[n + 1], share * fy * fx);
    }
}
