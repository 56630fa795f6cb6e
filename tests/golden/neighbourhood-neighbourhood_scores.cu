// gpuad: adjoint of `neighbourhood_scores` (neighbourhood.cu:44:28), for Duplicated query, key, score; Const length, depth, window.
// 1. put the seeds into dscore. dquery, dkey are added to: clear first.
// 2. launch neighbourhood_scores_gather with grid (2, 3, 2) and the block of neighbourhood_scores.
// 3. launch neighbourhood_scores_reverse with the same grid and block.
// On exit dscore holds the adjoint of the state before the launch; dquery, dkey have grown by the gradient.
// Holds where no two threads touch one element of dscore
// and the gather's threads do not meet in dquery, as for grid (2, 5, 2), block (16, 1, 1), length = 19, depth = 3, window = 5.

extern "C" __global__ void neighbourhood_scores_gather(
    float* dquery, const float* key, const float* dscore, int length, int depth, int window)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int d = blockIdx.y * blockDim.y + threadIdx.y;
    int head = blockIdx.z * blockDim.z + threadIdx.z;
    float dquery_2 = 0.0f;
    if (d < depth && i < length) {
        for (int k = 0; k < window; ++k) {
            int start = i - window / 2;
            start = start < 0 ? 0 : start;
            start = start > length - window ? length - window : start;
            dquery_2 += key[(head * length + (start + k)) * depth + d] * dscore[(head * length + i) * window + k];
        }
    }
    if (dquery_2 != 0.0f) {
        dquery[depth * length * head + depth * i + d] += dquery_2;
    }
}

extern "C" __global__ void neighbourhood_scores_reverse(
    const float* query, const float* dquery, const float* key, float* dkey, const float* score,
    float* dscore, int length, int depth, int window)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int k = blockIdx.y * blockDim.y + threadIdx.y;
    int head = blockIdx.z;
    if (i < length && k < window) {
        int start = i - window / 2;
        start = start < 0 ? 0 : start;
        if (start > length - window) {
            start = length - window;
        }
        int j = start + k;
        const float dscore_2 = dscore[(head * length + i) * window + k];
        dscore[(head * length + i) * window + k] = 0.0f;
        for (int d = 0; d < depth; ++d) {
            atomicAdd(&dkey[(head * length + j) * depth + d], query[(head * length + i) * depth + d] * dscore_2);
        }
    }
}

// adjoint of `neighbourhood_scores`
//   not saved  query                         never overwritten by this launch
//   not saved  key                           never overwritten by this launch
//   not saved  score                         no derivative needs what was overwritten
//   shadow     dquery               gather   each thread of neighbourhood_scores_gather collects for an element of its own (neighbourhood.cu:52:16)
//   shadow     dkey                 atomic   what is faster is not certified (two threads may touch one element) (neighbourhood.cu:52:57)
//   shadow     dscore               plain    no two threads touch one element (neighbourhood.cu:54:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
