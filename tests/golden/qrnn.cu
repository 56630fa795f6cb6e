// gpuad: adjoint of `qrnn` (qrnn.cu:20:28), for Duplicated forget, candidate, gate, cell, hidden; Const steps, n.
// 1. before qrnn runs, copy cell to cell_saved (all that it may touch). cell_saved will be overwritten.
// 2. put the seeds into dcell, dhidden. dforget, dcandidate, dgate are added to: clear first.
// 3. launch qrnn_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32). It overwrites the copies: give it copies of its own.
// 4. cell_saved_base[0] = 0; cell_saved_base[g + 1] = cell_saved_base[g] + 32 * (greatest cell_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of cell_saved.
// 5. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 6. launch qrnn_reverse with the same grid and block.
// On exit dcell, dhidden hold the adjoint of the state before the launch; dforget, dcandidate, dgate have grown by the gradient.
// Holds where no two threads touch one element of dcandidate, dcell, dforget, dgate, dhidden, as for grid (2, 1, 1), block (16, 1, 1), steps = 9, n = 20.

extern "C" __global__ void qrnn_count(
    const float* forget, const float* candidate, const float* gate, const float* cell, const float* hidden,
    int steps, int n, const float* cell_saved, int* cell_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        for (int t = 0; t < steps; ++t) {
            ++depth;
            deepest = max(deepest, depth);
        }
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    cell_saved_depth[thread] = deepest;
}

extern "C" __global__ void qrnn_reverse(
    const float* forget, float* dforget, const float* candidate, float* dcandidate, const float* gate,
    float* dgate, const float* cell, float* dcell, const float* hidden, float* dhidden, int steps, int n,
    float* cell_saved, const long long* cell_saved_base, float* cell_saved_2, int* gpuad_overflow)
{
    int cell_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long cell_saved_base_end = cell_saved_base[thread / 32LL + 1LL];
    long long cell_saved_base_lane = cell_saved_base[thread / 32LL] + thread % 32LL;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        for (int t = 0; t < steps; ++t) {
            int at = t * n + i;
            const float f = forget[at];
            const float cell_2 = cell_saved[at];
            cell_saved[at + n] = f * cell_2 + (1.0f - f) * candidate[at];
            long long cell_at = cell_saved_base_lane + cell_top * 32LL;
            if (cell_at < cell_saved_base_end) {
                cell_saved_2[cell_at] = cell_2;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++cell_top;
        }
        for (int t = steps - 1; t >= 0; --t) {
            --cell_top;
            const float cell_2 = cell_saved_2[cell_saved_base_lane + cell_top * 32LL];
            int at = t * n + i;
            const float f = forget[at];
            const float candidate_2 = candidate[at];
            const float gate_2 = gate[at];
            const float cell_3 = cell_saved[at + n];
            const float dhidden_2 = dhidden[at];
            dhidden[at] = 0.0f;
            dcell[at + n] += gate_2 * dhidden_2;
            dgate[at] += cell_3 * dhidden_2;
            const float dcell_2 = dcell[at + n];
            dcell[at + n] = 0.0f;
            dcandidate[at] += (1.0f - f) * dcell_2;
            dcell[at] += f * dcell_2;
            dforget[at] += cell_2 * dcell_2 - candidate_2 * dcell_2;
        }
    }
}

// adjoint of `qrnn`
//   not saved  forget                        never overwritten by this launch
//   not saved  candidate                     never overwritten by this launch
//   not saved  gate                          never overwritten by this launch
//   saved      cell                 copy     needed by qrnn.cu:26:28, overwritten by qrnn.cu:26:9
//   not saved  hidden                        no derivative needs what was overwritten
//   stack      cell_saved           scratch  an entry an iteration, needed by qrnn.cu:23:5
//   shadow     dforget              plain    no two threads touch one element (qrnn.cu:25:19)
//   shadow     dcandidate           plain    no two threads touch one element (qrnn.cu:26:52)
//   shadow     dgate                plain    no two threads touch one element (qrnn.cu:27:22)
//   shadow     dcell                plain    no two threads touch one element (qrnn.cu:27:33)
//   shadow     dhidden              plain    no two threads touch one element (qrnn.cu:27:9)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
