// gpuad: adjoint of `softsplat` (softsplat.cu:19:28), for Duplicated image, flow, splatted; Const n, height, width.
// 1. put the seeds into dsplatted. dimage, dflow are added to: clear first.
// 2. launch softsplat_reverse with the same grid and block.
// On exit dsplatted holds the adjoint of the state before the launch; dimage, dflow have grown by the gradient.
// Compile softsplat and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dimage, as for grid (4, 1, 1), block (128, 1, 1), n = 476, height = 14, width = 17.

extern "C" __global__ void softsplat_reverse(
    int n, const float* image, float* dimage, const float* flow, float* dflow, const float* splatted,
    const float* dsplatted, int height, int width)
{
    for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < n; index += blockDim.x * gridDim.x) {
        int c = index / width / height;
        int y = index / width % height;
        int x = index % width;
        const float to_x = x + flow[y * width + x];
        const float to_y = y + flow[(height + y) * width + x];
        const float value = image[index];
        int west = (int)floorf(to_x);
        int north = (int)floorf(to_y);
        int east = west + 1;
        int south = north + 1;
        float dvalue = 0.0f;
        float dsouth_east = 0.0f;
        if (south >= 0 && south < height && east >= 0 && east < width) {
            const float dsplatted_2 = dsplatted[(c * height + south) * width + east];
            dvalue = (to_x - west) * (to_y - north) * dsplatted_2;
            dsouth_east = value * dsplatted_2;
        }
        float dvalue_2 = 0.0f;
        float dsouth_west = 0.0f;
        if (south >= 0 && south < height && west >= 0 && west < width) {
            const float dsplatted_2 = dsplatted[(c * height + south) * width + west];
            dvalue_2 = (east - to_x) * (to_y - north) * dsplatted_2;
            dsouth_west = value * dsplatted_2;
        }
        float dvalue_3 = 0.0f;
        float dnorth_east = 0.0f;
        if (north >= 0 && north < height && east >= 0 && east < width) {
            const float dsplatted_2 = dsplatted[(c * height + north) * width + east];
            dvalue_3 = (to_x - west) * (south - to_y) * dsplatted_2;
            dnorth_east = value * dsplatted_2;
        }
        float dvalue_4 = 0.0f;
        float dnorth_west = 0.0f;
        if (north >= 0 && north < height && west >= 0 && west < width) {
            const float dsplatted_2 = dsplatted[(c * height + north) * width + west];
            dvalue_4 = (east - to_x) * (south - to_y) * dsplatted_2;
            dnorth_west = value * dsplatted_2;
        }
        dvalue = dvalue + dvalue_2 + dvalue_3 + dvalue_4;
        if (dvalue != 0.0f) {
            dimage[index] += dvalue;
        }
        atomicAdd(&dflow[(height + y) * width + x],
            (dsouth_east != 0.0f ? (to_x - west) * dsouth_east : 0.0f)
            + (dsouth_west != 0.0f ? (east - to_x) * dsouth_west : 0.0f)
            + (dnorth_east != 0.0f ? -((to_x - west) * dnorth_east) : 0.0f)
            + (dnorth_west != 0.0f ? -((east - to_x) * dnorth_west) : 0.0f));
        atomicAdd(&dflow[y * width + x], (dsouth_east != 0.0f ? (to_y - north) * dsouth_east : 0.0f)
            + (dsouth_west != 0.0f ? -((to_y - north) * dsouth_west) : 0.0f)
            + (dnorth_east != 0.0f ? (south - to_y) * dnorth_east : 0.0f)
            + (dnorth_west != 0.0f ? -((south - to_y) * dnorth_west) : 0.0f));
    }
}

// adjoint of `softsplat`
//   not saved  image                         never overwritten by this launch
//   not saved  flow                          never overwritten by this launch
//   not saved  splatted                      no derivative needs what was overwritten
//   shadow     dimage               plain    no two threads touch one element (softsplat.cu:25:29)
//   shadow     dflow                atomic   it is not proved that no two threads meet in one element (softsplat.cu:24:41)
//   shadow     dsplatted            plain    no two threads touch one element (softsplat.cu:44:13)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
