// gpuad: adjoint of `neighbourhood_scores` (neighbourhood.cu:44:28), for Duplicated query, key, score; Const length, depth, window.
// 1. put the seeds into dscore. dquery, dkey are added to: clear first.
// 2. launch neighbourhood_scores_gather with grid (1, 19, 2) and the block of neighbourhood_scores.
// 3. launch neighbourhood_scores_reverse with the same grid and block.
// On exit dscore holds the adjoint of the state before the launch; dquery, dkey have grown by the gradient.
// Holds where no two threads touch one element of dscore
// and the gather's threads do not meet in dkey, dquery, as for grid (2, 5, 2), block (16, 1, 1), length = 19, depth = 3, window = 5.

extern "C" __global__ void neighbourhood_scores_gather(
    const float* query, float* dquery, const float* key, float* dkey, const float* dscore, int length,
    int depth, int window)
{
    int d = blockIdx.x * blockDim.x + threadIdx.x;
    int k = blockIdx.y * blockDim.y + threadIdx.y;
    int head = blockIdx.z * blockDim.z + threadIdx.z;
    float dkey_2 = 0.0f;
    float dquery_2 = 0.0f;
    if (d < depth && 0 <= length - window && k < window) {
        for (int i = 0; i < window / 2; ++i) {
            dkey_2 += query[(head * length + i) * depth + d] * dscore[(head * length + i) * window + k];
        }
    }
    if (d < depth && k >= length - window && k < length) {
        for (int i = window / 2 + length + 1 - window; i < length; ++i) {
            dkey_2 += query[(head * length + i) * depth + d]
                * dscore[(head * length + i) * window + (k + window - length)];
        }
    }
    if (d < depth) {
        for (int k_2 = 0; k_2 < window; ++k_2) {
            if (k - k_2 >= 0 && k - k_2 <= length - window && k + window / 2 - k_2 < length) {
                dkey_2 += query[(head * length + (k + window / 2 - k_2)) * depth + d]
                    * dscore[(head * length + (k + window / 2 - k_2)) * window + k_2];
            }
        }
    }
    if (d < depth && k < length) {
        for (int k_2 = 0; k_2 < window; ++k_2) {
            int start = k - window / 2;
            start = start < 0 ? 0 : start;
            start = start > length - window ? length - window : start;
            dquery_2 += key[(head * length + (start + k_2)) * depth + d] * dscore[(head * length + k) * window + k_2];
        }
    }
    if (dkey_2 != 0.0f) {
        dkey[depth * length * head + depth * k + d] += dkey_2;
    }
    if (dquery_2 != 0.0f) {
        dquery[depth * length * head + depth * k + d] += dquery_2;
    }
}

extern "C" __global__ void neighbourhood_scores_reverse(
    const float* query, const float* dquery, const float* key, const float* dkey, const float* score,
    float* dscore, int length, int depth, int window)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int k = blockIdx.y * blockDim.y + threadIdx.y;
    int head = blockIdx.z;
    if (i < length && k < window) {
        dscore[(head * length + i) * window + k] = 0.0f;
    }
}

// adjoint of `neighbourhood_scores`
//   not saved  query                         never overwritten by this launch
//   not saved  key                           never overwritten by this launch
//   not saved  score                         no derivative needs what was overwritten
//   shadow     dquery               gather   each thread of neighbourhood_scores_gather collects for an element of its own (neighbourhood.cu:52:16)
//   shadow     dkey                 gather   each thread of neighbourhood_scores_gather collects for an element of its own (neighbourhood.cu:52:57)
//   shadow     dscore               plain    no two threads touch one element (neighbourhood.cu:54:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
