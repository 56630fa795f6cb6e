// gpuad: adjoint of `softsplat` (softsplat.cu:19:28), for Duplicated image, flow, splatted; Const n, height, width.
// 1. put the seeds into dsplatted. dimage, dflow are added to: clear first.
// 2. launch softsplat_gather with grid (1, 14, 1) and the block of softsplat, threads_x = 17, threads_z = 3.
// 3. launch softsplat_reverse with the same grid and block.
// On exit dsplatted holds the adjoint of the state before the launch; dimage, dflow have grown by the gradient.
// Compile softsplat and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dimage
// and the gather's threads do not meet in dflow, as for grid (4, 1, 1), block (128, 1, 1), n = 476, height = 14, width = 17.

extern "C" __global__ void softsplat_gather(
    int n, const float* image, const float* flow, float* dflow, const float* dsplatted, int height,
    int width, int threads_x, int threads_z)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    float dflow_2 = 0.0f;
    float dflow_3 = 0.0f;
    if (x < threads_x) {
        for (int c = 0; c < threads_z; ++c) {
            if ((c * height + y) * width + x < n) {
                const float to_x = x + flow[y * width + x];
                const float to_y = y + flow[(height + y) * width + x];
                const float value = image[(c * height + y) * width + x];
                int west = (int)floorf(to_x);
                int north = (int)floorf(to_y);
                float dto_x = 0.0f;
                float dto_y = 0.0f;
                if (north + 1 >= 0 && north + 1 < height && west + 1 >= 0 && west + 1 < width) {
                    const float dsouth_east = value * dsplatted[(c * height + (north + 1)) * width + (west + 1)];
                    dto_x = (to_y - north) * dsouth_east;
                    dto_y = (to_x - west) * dsouth_east;
                }
                float dto_x_2 = 0.0f;
                float dto_y_2 = 0.0f;
                if (north + 1 >= 0 && north + 1 < height && west >= 0 && west < width) {
                    const float dsouth_west = value * dsplatted[(c * height + (north + 1)) * width + west];
                    dto_x_2 = -((to_y - north) * dsouth_west);
                    dto_y_2 = (west + 1 - to_x) * dsouth_west;
                }
                float dto_x_3 = 0.0f;
                float dto_y_3 = 0.0f;
                if (north >= 0 && north < height && west + 1 >= 0 && west + 1 < width) {
                    const float dnorth_east = value * dsplatted[(c * height + north) * width + (west + 1)];
                    dto_x_3 = (north + 1 - to_y) * dnorth_east;
                    dto_y_3 = -((to_x - west) * dnorth_east);
                }
                float dto_x_4 = 0.0f;
                float dto_y_4 = 0.0f;
                if (north >= 0 && north < height && west >= 0 && west < width) {
                    const float dnorth_west = value * dsplatted[(c * height + north) * width + west];
                    dto_x_4 = -((north + 1 - to_y) * dnorth_west);
                    dto_y_4 = -((west + 1 - to_x) * dnorth_west);
                }
                dflow_2 += dto_y + dto_y_2 + dto_y_3 + dto_y_4;
                dflow_3 += dto_x + dto_x_2 + dto_x_3 + dto_x_4;
            }
        }
    }
    if (dflow_2 != 0.0f) {
        dflow[(height + y) * width + x] += dflow_2;
    }
    if (dflow_3 != 0.0f) {
        dflow[y * width + x] += dflow_3;
    }
}

extern "C" __global__ void softsplat_reverse(
    int n, const float* image, float* dimage, const float* flow, const float* dflow, const float* splatted,
    const float* dsplatted, int height, int width)
{
    for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < n; index += blockDim.x * gridDim.x) {
        int c = index / width / height;
        int y = index / width % height;
        int x = index % width;
        const float to_x = x + flow[y * width + x];
        const float to_y = y + flow[(height + y) * width + x];
        int west = (int)floorf(to_x);
        int north = (int)floorf(to_y);
        int east = west + 1;
        int south = north + 1;
        float dvalue = 0.0f;
        if (south >= 0 && south < height && east >= 0 && east < width) {
            const float south_east = (to_x - west) * (to_y - north);
            dvalue = south_east * dsplatted[(c * height + south) * width + east];
        }
        float dvalue_2 = 0.0f;
        if (south >= 0 && south < height && west >= 0 && west < width) {
            const float south_west = (east - to_x) * (to_y - north);
            dvalue_2 = south_west * dsplatted[(c * height + south) * width + west];
        }
        float dvalue_3 = 0.0f;
        if (north >= 0 && north < height && east >= 0 && east < width) {
            const float north_east = (to_x - west) * (south - to_y);
            dvalue_3 = north_east * dsplatted[(c * height + north) * width + east];
        }
        float dvalue_4 = 0.0f;
        if (north >= 0 && north < height && west >= 0 && west < width) {
            const float north_west = (east - to_x) * (south - to_y);
            dvalue_4 = north_west * dsplatted[(c * height + north) * width + west];
        }
        dvalue = dvalue + dvalue_2 + dvalue_3 + dvalue_4;
        if (dvalue != 0.0f) {
            dimage[index] += dvalue;
        }
    }
}

// adjoint of `softsplat`
//   not saved  image                         never overwritten by this launch
//   not saved  flow                          never overwritten by this launch
//   not saved  splatted                      no derivative needs what was overwritten
//   shadow     dimage               plain    no two threads touch one element (softsplat.cu:25:29)
//   shadow     dflow                gather   each thread of softsplat_gather collects for an element of its own (softsplat.cu:24:41)
//   shadow     dsplatted            plain    it is only read (softsplat.cu:44:13)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
