// gpuad: adjoint of `median` (insertion_sort.cu:58:28), for Duplicated image, filtered; Const height, width.
// 1. put the seeds into dfiltered. dimage is added to: clear first.
// 2. launch median_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32).
// 3. choice_saved_base[0] = 0; choice_saved_base[g + 1] = choice_saved_base[g] + 32 * (greatest choice_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of choice_saved.
// 4. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 5. launch median_reverse with the same grid and block.
// On exit dfiltered holds the adjoint of the state before the launch; dimage has grown by the gradient.
// Compile median and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dfiltered, as for grid (2, 2, 1), block (8, 8, 1), height = 13, width = 15.

extern "C" __global__ void median_count(
    const float* image, const float* filtered, int height, int width, int* choice_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        for (int i = 0; i < 5; ++i) {
            for (int j = 8; j > i; --j) {
                ++depth;
                deepest = max(deepest, depth);
            }
        }
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    choice_saved_depth[thread] = deepest;
}

extern "C" __global__ void median_reverse(
    const float* image, float* dimage, const float* filtered, float* dfiltered, int height, int width,
    const long long* choice_saved_base, bool* choice_saved, int* gpuad_overflow)
{
    int choice_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long choice_saved_base_end = choice_saved_base[thread / 32LL + 1LL];
    long long choice_saved_base_lane = choice_saved_base[thread / 32LL] + thread % 32LL;
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        float window[9];
        int count = 0;
        for (int dy = -1; dy < 2; ++dy) {
            for (int dx = -1; dx < 2; ++dx) {
                int row = min(max(y + dy, 0), height - 1);
                int column = min(max(x + dx, 0), width - 1);
                int count_2 = count + 1;
                window[count] = image[row * width + column];
                count = count_2;
            }
        }
        for (int i = 0; i < 5; ++i) {
            for (int j = 8; j > i; --j) {
                const float window_2 = window[j - 1];
                const float window_3 = window[j];
                if (window_2 > window_3) {
                    const float t = window[j - 1];
                    window[j - 1] = window[j];
                    window[j] = t;
                }
                long long choice_at = choice_saved_base_lane + choice_top * 32LL;
                if (choice_at < choice_saved_base_end) {
                    choice_saved[choice_at] = window_2 > window_3;
                } else {
                    gpuad_overflow[0] = 1;
                }
                ++choice_top;
            }
        }
        float dwindow[9] = {};
        const float dfiltered_2 = dfiltered[y * width + x];
        dfiltered[y * width + x] = 0.0f;
        dwindow[4] += dfiltered_2;
        for (int i = 4; i >= 0; --i) {
            for (int j = i + 1; j <= 8; ++j) {
                --choice_top;
                if (choice_saved[choice_saved_base_lane + choice_top * 32LL]) {
                    const float dwindow_2 = dwindow[j];
                    dwindow[j] = 0.0f;
                    const float dwindow_3 = dwindow[j - 1];
                    dwindow[j - 1] = 0.0f;
                    dwindow[j] += dwindow_3;
                    dwindow[j - 1] += dwindow_2;
                }
            }
        }
        for (int dy = 1; dy >= -1; --dy) {
            int count_2 = 0 + (dy - (-1)) * 3;
            for (int dx = -1; dx < 2; ++dx) {
                const float dwindow_2 = dwindow[count_2 + (dx - (-1))];
                dwindow[count_2 + (dx - (-1))] = 0.0f;
                atomicAdd(&dimage[min(max(y + dy, 0), height - 1) * width + min(max(x + dx, 0), width - 1)], dwindow_2);
            }
        }
    }
}

// adjoint of `median`
//   not saved  image                         never overwritten by this launch
//   not saved  filtered                      no derivative needs what was overwritten
//   stack      choice_saved         scratch  an entry an iteration, needed by insertion_sort.cu:71:9
//   shadow     dimage               atomic   it is not proved that no two threads meet in one element (insertion_sort.cu:67:31)
//   shadow     dfiltered            plain    no two threads touch one element (insertion_sort.cu:73:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
