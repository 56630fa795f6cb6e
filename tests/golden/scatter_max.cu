// gpuad: adjoint of `scatter_max` (scatter_max.cu:78:28), for Duplicated feature, weight, pooled; Const cell, points, channels.
// 1. launch scatter_max_augmented instead of scatter_max: it also fills pooled_new_saved, pooled_new_saved, one element a thread of the launch, times the iterations of the loops around the atomic for pooled_new_saved, pooled_new_saved.
// 2. put the seeds into dpooled. dfeature, dweight are added to: clear first.
// 3. launch scatter_max_reverse with the same grid and block.
// On exit dpooled holds the adjoint of the state before the launch; dfeature, dweight have grown by the gradient.
// Compile scatter_max and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dfeature, as for grid (2, 1, 1), block (64, 1, 1), points = 120, channels = 3.

// Keeps the greater of the content and a number, by their bits as signed integers.
__device__ inline float gpuad_atomic_imax(float* target, float value)
{
    return __int_as_float(atomicMax((int*)target, __float_as_int(value)));
}
__device__ inline double gpuad_atomic_imax(double* target, double value)
{
    return __longlong_as_double(atomicMax((long long*)target, __double_as_longlong(value)));
}

// Keeps the less of the content and a number, by their bits as unsigned integers.
__device__ inline float gpuad_atomic_umin(float* target, float value)
{
    return __int_as_float(atomicMin((unsigned int*)target, __float_as_int(value)));
}
__device__ inline double gpuad_atomic_umin(double* target, double value)
{
    return __longlong_as_double(atomicMin((unsigned long long*)target, __double_as_longlong(value)));
}

extern "C" __global__ void scatter_max_augmented(
    const float* feature, const int* cell, const float* weight, float* pooled, int points, int channels,
    int* pooled_new_saved, int* pooled_new_saved_2)
{
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long threads = gridDim.x * (long long)gridDim.y * gridDim.z * blockDim.x * blockDim.y * blockDim.z;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool either = i < points ? cell[i] < 0 : true;
    if (!either) {
        for (int c = 0; c < channels; ++c) {
            int cell_2 = cell[i];
            const float value = weight[c] * feature[i * channels + c];
            if (value >= 0.0f) {
                const float pooled_old = gpuad_atomic_imax(&pooled[cell_2 * channels + c], value);
                int pooled_new = __float_as_int(value) > __float_as_int(pooled_old) ? __float_as_int(value) : -1;
                pooled_new_saved[c * threads + thread] = pooled_new;
            } else {
                const float pooled_old = gpuad_atomic_umin(&pooled[cell_2 * channels + c], value);
                int pooled_new = __float_as_uint(value) < __float_as_uint(pooled_old) ? __float_as_int(value) : -1;
                pooled_new_saved_2[c * threads + thread] = pooled_new;
            }
        }
    }
}

extern "C" __global__ void scatter_max_reverse(
    const float* feature, float* dfeature, const int* cell, const float* weight, float* dweight,
    const float* pooled, float* dpooled, int points, int channels, const int* pooled_new_saved,
    const int* pooled_new_saved_2)
{
    long long thread = ((blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x)
        * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long threads = gridDim.x * (long long)gridDim.y * gridDim.z * blockDim.x * blockDim.y * blockDim.z;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool either = i < points ? cell[i] < 0 : true;
    if (!either) {
        for (int c = channels - 1; c >= 0; --c) {
            int cell_2 = cell[i];
            const float weight_2 = weight[c];
            const float feature_2 = feature[i * channels + c];
            float dvalue;
            if (weight_2 * feature_2 >= 0.0f) {
                int pooled_new = pooled_new_saved[c * threads + thread];  // as recorded at the launch
                float dpooled_2 = 0.0f;
                if (pooled_new == __float_as_int(pooled[cell_2 * channels + c])) {
                    dpooled_2 = atomicExch(&dpooled[cell_2 * channels + c], 0.0f);
                }
                dvalue = dpooled_2;
            } else {
                int pooled_new = pooled_new_saved_2[c * threads + thread];  // as recorded at the launch
                float dpooled_2 = 0.0f;
                if (pooled_new == __float_as_int(pooled[cell_2 * channels + c])) {
                    dpooled_2 = atomicExch(&dpooled[cell_2 * channels + c], 0.0f);
                }
                dvalue = dpooled_2;
            }
            if (dvalue != 0.0f) {
                dfeature[i * channels + c] += weight_2 * dvalue;
            }
            if (dvalue != 0.0f) {
                atomicAdd(&dweight[c], feature_2 * dvalue);
            }
        }
    }
}

// adjoint of `scatter_max`
//   not saved  feature                       never overwritten by this launch
//   not saved  cell                          never overwritten by this launch
//   not saved  weight                        never overwritten by this launch
//   not saved  pooled                        needed by scatter_max.cu:54:41, read as this launch leaves it
//   saved      pooled_new_saved     log      what an atomic gave, or whose number it keeps, cannot be computed again
//   saved      pooled_new_saved     log      what an atomic gave, or whose number it keeps, cannot be computed again
//   shadow     dfeature             plain    no two threads touch one element (scatter_max.cu:83:69)
//   shadow     dweight              atomic   it is not proved that no two threads meet in one element (scatter_max.cu:83:57)
//   shadow     dpooled              atomic   it is not proved that no two threads meet in one element (scatter_max.cu:54:41)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
