// gpuad: adjoint of `scan` (block_scan.cu:16:28), for Duplicated x; Const n.
// 1. before scan runs, copy x to x_saved (all that it may touch).
// 2. put the seeds into dx.
// 3. launch scan_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32).
// 4. buffer_saved_base[0] = 0; buffer_saved_base[g + 1] = buffer_saved_base[g] + 32 * (greatest buffer_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of buffer_saved, buffer_saved.
// 5. now_saved_base[0] = 0; now_saved_base[g + 1] = now_saved_base[g] + 32 * (greatest now_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of now_saved, next_saved.
// 6. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 7. launch scan_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch.
// Holds where no two threads touch one element of dx, as for grid (4, 1, 1), block (32, 1, 1), n = 120.

extern "C" __global__ void scan_count(
    const float* x, int n, const float* x_saved, int* buffer_saved_depth, int* now_saved_depth)
{
    int depth = 0;
    int depth_2 = 0;
    int deepest = 0;
    int deepest_2 = 0;
    int t = threadIdx.x;
    int d = 1;
    while (d < blockDim.x) {
        if (t >= d) {
            ++depth;
            deepest = max(deepest, depth);
        }
        d *= 2;
        ++depth_2;
        deepest_2 = max(deepest_2, depth_2);
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    buffer_saved_depth[thread] = deepest;
    now_saved_depth[thread] = deepest_2;
}

extern "C" __global__ void scan_reverse(
    const float* x, float* dx, int n, const float* x_saved, const long long* buffer_saved_base,
    float* buffer_saved, float* buffer_saved_2, const long long* now_saved_base, int* now_saved,
    int* next_saved, int* gpuad_overflow)
{
    int buffer_top = 0;
    int now_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long buffer_saved_base_end = buffer_saved_base[thread / 32LL + 1LL];
    long long buffer_saved_base_lane = buffer_saved_base[thread / 32LL] + thread % 32LL;
    long long now_saved_base_end = now_saved_base[thread / 32LL + 1LL];
    long long now_saved_base_lane = now_saved_base[thread / 32LL] + thread % 32LL;
    __shared__ float buffer[64];
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    int next = blockDim.x;
    const float value = i < n ? x_saved[i] : 1.0f;
    buffer[t] = value;
    __syncthreads();
    int now = 0;
    int d = 1;
    int iterations = 0;
    while (d < blockDim.x) {
        float value_2;
        if (t >= d) {
            const float buffer_2 = buffer[now + t];
            const float buffer_3 = buffer[now + t - d];
            long long buffer_at = buffer_saved_base_lane + buffer_top * 32LL;
            if (buffer_at < buffer_saved_base_end) {
                buffer_saved[buffer_at] = buffer_2;
                buffer_saved_2[buffer_at] = buffer_3;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++buffer_top;
            value_2 = buffer_2 * buffer_3;
        } else {
            value_2 = buffer[now + t];
        }
        buffer[next + t] = value_2;
        __syncthreads();
        int now_2 = blockDim.x - now;
        int next_2 = blockDim.x - next;
        d *= 2;
        long long now_at = now_saved_base_lane + now_top * 32LL;
        if (now_at < now_saved_base_end) {
            now_saved[now_at] = now;
            next_saved[now_at] = next;
        } else {
            gpuad_overflow[0] = 1;
        }
        ++now_top;
        now = now_2;
        next = next_2;
        ++iterations;
    }
    __shared__ float dbuffer[64];
    for (int k = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); k < 64;
        k += blockDim.x * blockDim.y * blockDim.z) dbuffer[k] = 0;
    __syncthreads();
    if (i < n) {
        const float dx_2 = dx[i];
        dx[i] = 0.0f;
        atomicAdd(&dbuffer[now + t], dx_2);
    }
    for (int iteration = iterations - 1; iteration >= 0; --iteration) {
        --now_top;
        int now_2 = now_saved[now_saved_base_lane + now_top * 32LL];
        int next_2 = next_saved[now_saved_base_lane + now_top * 32LL];
        int d_2 = 1 << iteration;
        __syncthreads();
        const float dbuffer_2 = atomicExch(&dbuffer[next_2 + t], 0.0f);
        if (t >= d_2) {
            --buffer_top;
            atomicAdd(&dbuffer[now_2 + t - d_2], buffer_saved[buffer_saved_base_lane + buffer_top * 32LL] * dbuffer_2);
            atomicAdd(&dbuffer[now_2 + t], buffer_saved_2[buffer_saved_base_lane + buffer_top * 32LL] * dbuffer_2);
        } else {
            atomicAdd(&dbuffer[now_2 + t], dbuffer_2);
        }
    }
    __syncthreads();
    const float dbuffer_2 = atomicExch(&dbuffer[t], 0.0f);
    if (i < n) {
        dx[i] += dbuffer_2;
    }
}

// adjoint of `scan`
//   saved      x                    copy     needed by block_scan.cu:20:31, overwritten by block_scan.cu:28:16
//   stack      buffer_saved         scratch  an entry an iteration, needed by block_scan.cu:23:28
//   stack      buffer_saved         scratch  an entry an iteration, needed by block_scan.cu:23:28
//   stack      now_saved            scratch  an entry an iteration, needed by block_scan.cu:22:5
//   stack      next_saved           scratch  an entry an iteration, needed by block_scan.cu:22:5
//   shadow     dx                   plain    no two threads touch one element (block_scan.cu:28:16)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
