// gpuad: adjoint of `neighbourhood_values` (neighbourhood.cu:57:28), for Duplicated weight, value, output; Const length, depth, window.
// 1. put the seeds into doutput. dweight, dvalue are added to: clear first.
// 2. launch neighbourhood_values_gather with grid (2, 3, 2) and the block of neighbourhood_values.
// 3. launch neighbourhood_values_reverse with the same grid and block.
// On exit doutput holds the adjoint of the state before the launch; dweight, dvalue have grown by the gradient.
// Holds where no two threads touch one element of doutput
// and the gather's threads do not meet in dweight, as for grid (1, 3, 2), block (4, 8, 1), length = 19, depth = 3, window = 5.

extern "C" __global__ void neighbourhood_values_gather(
    float* dweight, const float* value, const float* doutput, int length, int depth, int window)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int head = blockIdx.z * blockDim.z + threadIdx.z;
    float dweight_2 = 0.0f;
    if (k < window && i < length) {
        for (int d = 0; d < depth; ++d) {
            int start = i - window / 2;
            start = start < 0 ? 0 : start;
            start = start > length - window ? length - window : start;
            dweight_2 += value[(head * length + start + k) * depth + d] * doutput[(head * length + i) * depth + d];
        }
    }
    if (dweight_2 != 0.0f) {
        dweight[length * window * head + window * i + k] += dweight_2;
    }
}

extern "C" __global__ void neighbourhood_values_reverse(
    const float* weight, const float* dweight, const float* value, float* dvalue, const float* output,
    float* doutput, int length, int depth, int window)
{
    int d = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int head = blockIdx.z;
    if (d < depth && i < length) {
        int start = i - window / 2;
        start = start < 0 ? 0 : start;
        if (start > length - window) {
            start = length - window;
        }
        const float doutput_2 = doutput[(head * length + i) * depth + d];
        doutput[(head * length + i) * depth + d] = 0.0f;
        for (int k = 0; k < window; ++k) {
            atomicAdd(&dvalue[(head * length + start + k) * depth + d],
                weight[(head * length + i) * window + k] * doutput_2);
        }
    }
}

// adjoint of `neighbourhood_values`
//   not saved  weight                        never overwritten by this launch
//   not saved  value                         never overwritten by this launch
//   not saved  output                        no derivative needs what was overwritten
//   shadow     dweight              gather   each thread of neighbourhood_values_gather collects for an element of its own (neighbourhood.cu:65:16)
//   shadow     dvalue               atomic   what is faster is not certified (another sum for what the plain adjoint adds at gx = 1, gy = 11, gz = 0, l55_1 = 1) (neighbourhood.cu:65:59)
//   shadow     doutput              plain    no two threads touch one element (neighbourhood.cu:67:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
