// gpuad: adjoint of `tiled_matmul` (tiled_matmul.cu:22:28), for Duplicated A, B, C; Const m, n, k.
// 1. put the seeds into dC. dA, dB are added to: clear first.
// 2. launch tiled_matmul_reverse with the same grid and block.
// On exit dC holds the adjoint of the state before the launch; dA, dB have grown by the gradient.
// Holds for every grid and block.
// Holds where each iteration of the loop at tiled_matmul.cu:27:5 stores what it reads of a, as for block (8, 8, 1).
// Holds where each iteration of the loop at tiled_matmul.cu:27:5 stores what it reads of b, as for block (8, 8, 1).

extern "C" __global__ void tiled_matmul_reverse(
    const float* A, float* dA, const float* B, float* dB, const float* C, const float* dC, int m, int n,
    int k)
{
    __shared__ float a[64];
    __shared__ float b[64];
    int col = blockIdx.x * 8u + threadIdx.x;
    int row = blockIdx.y * 8u + threadIdx.y;
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
        __syncthreads();
        int ka = t * 8 + threadIdx.x;
        int kb = t * 8 + threadIdx.y;
        const float value = row < m && ka < k ? A[row * k + ka] : 0.0f;
        a[threadIdx.y * 8LL + threadIdx.x] = value;
        const float value_2 = kb < k && col < n ? B[kb * n + col] : 0.0f;
        b[threadIdx.y * 8LL + threadIdx.x] = value_2;
        __syncthreads();
        for (int j = 0; j < 8; ++j) {
            atomicAdd(&db[j * 8 + (long long)threadIdx.x], a[threadIdx.y * 8LL + j] * dsum);
            atomicAdd(&da[threadIdx.y * 8LL + j], b[j * 8 + (long long)threadIdx.x] * dsum);
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
//   shadow     dA                   atomic   it is not proved that no two threads meet in one element (tiled_matmul.cu:29:59)
//   shadow     dB                   atomic   it is not proved that no two threads meet in one element (tiled_matmul.cu:30:59)
//   shadow     dC                   plain    it is only read (tiled_matmul.cu:35:29)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
