// gpuad: adjoint of `tiled_matmul` (tiled_matmul.cu:22:28), for Duplicated A, B, C; Const m, n, k.
// 1. put the seeds into dC. dA, dB are added to: clear first.
// 2. launch tiled_matmul_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32).
// 3. a_saved_base[0] = 0; a_saved_base[g + 1] = a_saved_base[g] + 32 * (greatest a_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of a_saved, b_saved.
// 4. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 5. launch tiled_matmul_reverse with the same grid and block.
// On exit dC holds the adjoint of the state before the launch; dA, dB have grown by the gradient.
// Holds for every grid and block.

extern "C" __global__ void tiled_matmul_count(
    const float* A, const float* B, const float* C, int m, int n, int k, int* a_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    for (int t = 0; t < (k + 7) / 8; ++t) {
        for (int j = 0; j < 8; ++j) {
            ++depth;
            deepest = max(deepest, depth);
        }
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    a_saved_depth[thread] = deepest;
}

extern "C" __global__ void tiled_matmul_reverse(
    const float* A, float* dA, const float* B, float* dB, const float* C, const float* dC, int m, int n,
    int k, const long long* a_saved_base, float* a_saved, float* b_saved, int* gpuad_overflow)
{
    int a_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long a_saved_base_end = a_saved_base[thread / 32LL + 1LL];
    long long a_saved_base_lane = a_saved_base[thread / 32LL] + thread % 32LL;
    __shared__ float a[64];
    __shared__ float b[64];
    int col = blockIdx.x * 8u + threadIdx.x;
    int row = blockIdx.y * 8u + threadIdx.y;
    for (int t = 0; t < (k + 7) / 8; ++t) {
        int ka = t * 8 + threadIdx.x;
        int kb = t * 8 + threadIdx.y;
        const float value = row < m && ka < k ? A[row * k + ka] : 0.0f;
        a[threadIdx.y * 8LL + threadIdx.x] = value;
        const float value_2 = kb < k && col < n ? B[kb * n + col] : 0.0f;
        b[threadIdx.y * 8LL + threadIdx.x] = value_2;
        __syncthreads();
        for (int j = 0; j < 8; ++j) {
            long long a_at = a_saved_base_lane + a_top * 32LL;
            if (a_at < a_saved_base_end) {
                a_saved[a_at] = a[threadIdx.y * 8LL + j];
                b_saved[a_at] = b[j * 8 + (long long)threadIdx.x];
            } else {
                gpuad_overflow[0] = 1;
            }
            ++a_top;
        }
        __syncthreads();
    }
    __shared__ float da[64];
    for (int k_2 = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); k_2 < 64;
        k_2 += blockDim.x * blockDim.y * blockDim.z) da[k_2] = 0;
    __syncthreads();
    __shared__ float db[64];
    for (int k_3 = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); k_3 < 64;
        k_3 += blockDim.x * blockDim.y * blockDim.z) db[k_3] = 0;
    __syncthreads();
    const float dsum = row < m && col < n ? dC[row * n + col] : 0.0f;
    for (int t = (k + 7) / 8 - 1; t >= 0; --t) {
        int ka = t * 8 + threadIdx.x;
        int kb = t * 8 + threadIdx.y;
        __syncthreads();
        for (int j = 7; j >= 0; --j) {
            --a_top;
            atomicAdd(&db[j * 8 + (long long)threadIdx.x], a_saved[a_saved_base_lane + a_top * 32LL] * dsum);
            atomicAdd(&da[threadIdx.y * 8LL + j], b_saved[a_saved_base_lane + a_top * 32LL] * dsum);
        }
        __syncthreads();
        const float db_2 = atomicExch(&db[threadIdx.y * 8LL + threadIdx.x], 0.0f);
        if (kb < k && col < n) {
            atomicAdd(&dB[kb * n + col], db_2);
        }
        const float da_2 = atomicExch(&da[threadIdx.y * 8LL + threadIdx.x], 0.0f);
        if (row < m && ka < k) {
            atomicAdd(&dA[row * k + ka], da_2);
        }
    }
}

// adjoint of `tiled_matmul`
//   not saved  A                             never overwritten by this launch
//   not saved  B                             never overwritten by this launch
//   not saved  C                             no derivative needs what was overwritten
//   stack      a_saved              scratch  an entry an iteration, needed by tiled_matmul.cu:32:9
//   stack      b_saved              scratch  an entry an iteration, needed by tiled_matmul.cu:32:9
//   shadow     dA                   atomic   it is not proved that no two threads meet in one element (tiled_matmul.cu:29:59)
//   shadow     dB                   atomic   it is not proved that no two threads meet in one element (tiled_matmul.cu:30:59)
//   shadow     dC                   plain    no two threads touch one element (tiled_matmul.cu:35:29)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
