// gpuad: adjoint of `neighbourhood_values` (neighbourhood.cu:57:28), for Duplicated weight, value, output; Const length, depth, window.
// 1. put the seeds into doutput. dweight, dvalue are added to: clear first.
// 2. launch neighbourhood_values_gather with grid (2, 3, 2) and the block of neighbourhood_values.
// 3. launch neighbourhood_values_reverse with the same grid and block.
// On exit doutput holds the adjoint of the state before the launch; dweight, dvalue have grown by the gradient.
// Holds where no two threads touch one element of doutput
// and the gather's threads do not meet in dvalue, dweight, as for grid (1, 3, 2), block (4, 8, 1), length = 19, depth = 3, window = 5.

extern "C" __global__ void neighbourhood_values_gather(
    const float* weight, float* dweight, const float* value, float* dvalue, const float* doutput, int length,
    int depth, int window)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int head = blockIdx.z * blockDim.z + threadIdx.z;
    float dvalue_2 = 0.0f;
    float dweight_2 = 0.0f;
    if (y < window && 0 <= length - window && x < depth) {
        for (int i = 0; i < window / 2; ++i) {
            dvalue_2 += weight[(head * length + i) * window + y] * doutput[(head * length + i) * depth + x];
        }
    }
    if (y >= length - window && y < length && x < depth) {
        for (int i = window / 2 + length + 1 - window; i < length; ++i) {
            dvalue_2 += weight[(head * length + i) * window + (y + window - length)]
                * doutput[(head * length + i) * depth + x];
        }
    }
    if (x < depth) {
        for (int k = 0; k < window; ++k) {
            if (y - k >= 0 && y - k <= length - window && y + window / 2 - k < length) {
                dvalue_2 += weight[(head * length + (y + window / 2 - k)) * window + k]
                    * doutput[(head * length + (y + window / 2 - k)) * depth + x];
            }
        }
    }
    if (x < window && y < length) {
        for (int d = 0; d < depth; ++d) {
            int start = y - window / 2;
            start = start < 0 ? 0 : start;
            start = start > length - window ? length - window : start;
            dweight_2 += value[(head * length + start + x) * depth + d] * doutput[(head * length + y) * depth + d];
        }
    }
    if (dvalue_2 != 0.0f) {
        dvalue[(head * length + y) * depth + x] += dvalue_2;
    }
    if (dweight_2 != 0.0f) {
        dweight[length * window * head + window * y + x] += dweight_2;
    }
}

extern "C" __global__ void neighbourhood_values_reverse(
    const float* weight, const float* dweight, const float* value, const float* dvalue, const float* output,
    float* doutput, int length, int depth, int window)
{
    int d = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int head = blockIdx.z;
    if (d < depth && i < length) {
        doutput[(head * length + i) * depth + d] = 0.0f;
    }
}

// adjoint of `neighbourhood_values`
//   not saved  weight                        never overwritten by this launch
//   not saved  value                         never overwritten by this launch
//   not saved  output                        no derivative needs what was overwritten
//   shadow     dweight              gather   each thread of neighbourhood_values_gather collects for an element of its own (neighbourhood.cu:65:16)
//   shadow     dvalue               gather   each thread of neighbourhood_values_gather collects for an element of its own (neighbourhood.cu:65:59)
//   shadow     doutput              plain    no two threads touch one element (neighbourhood.cu:67:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
