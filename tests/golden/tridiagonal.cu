// gpuad: adjoint of `tridiagonal` (tridiagonal.cu:20:28), for Duplicated lower, diagonal, upper, x, scratch; Const n, systems.
// 1. before tridiagonal runs, copy x to x_saved (all that it may touch). x_saved will be overwritten.
// 2. put the seeds into dx, dscratch. dlower, ddiagonal, dupper are added to: clear first.
// 3. launch tridiagonal_count with the same grid and block: it writes each thread's stack depths (int, zeroed, one a thread, threads rounded up to 32). It overwrites the copies: give it copies of its own.
// 4. x_saved_base[0] = 0; x_saved_base[g + 1] = x_saved_base[g] + 32 * (greatest x_saved_depth of threads 32 g to 32 g + 31); its last entry is the length of x_saved, x_saved.
// 5. gpuad_overflow is one int, 0; if it is not 0 afterwards, the shadows are undefined.
// 6. launch tridiagonal_reverse with the same grid and block.
// On exit dx, dscratch hold the adjoint of the state before the launch; dlower, ddiagonal, dupper have grown by the gradient.
// Holds where no two threads touch one element of ddiagonal, dlower, dscratch, dupper, dx, as for grid (2, 1, 1), block (16, 1, 1), n = 13, systems = 20.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void tridiagonal_count(
    const double* lower, const double* diagonal, const double* upper, const double* x, const double* scratch,
    int n, int systems, const double* x_saved, int* x_saved_depth)
{
    int depth = 0;
    int deepest = 0;
    int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s < systems) {
        for (int i = 1; i < n; ++i) {
            ++depth;
            deepest = max(deepest, depth);
        }
    }
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    x_saved_depth[thread] = deepest;
}

extern "C" __global__ void tridiagonal_reverse(
    const double* lower, double* dlower, const double* diagonal, double* ddiagonal, const double* upper,
    double* dupper, const double* x, double* dx, const double* scratch, double* dscratch, int n, int systems,
    double* x_saved, const long long* x_saved_base, double* x_saved_2, double* x_saved_3, int* gpuad_overflow)
{
    int x_top = 0;
    long long block = (blockIdx.z * (long long)gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long thread = block * (blockDim.x * (long long)blockDim.y * blockDim.z)
        + ((threadIdx.z * (long long)blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
    long long x_saved_base_end = x_saved_base[thread / 32LL + 1LL];
    long long x_saved_base_lane = x_saved_base[thread / 32LL] + thread % 32LL;
    int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s < systems) {
        const double upper_2 = upper[s];
        const double diagonal_2 = diagonal[s];
        const double x_2 = x_saved[s];
        x_saved[s] = x_2 / diagonal_2;
        for (int i = 1; i < n; ++i) {
            int at = i * systems + s;
            int before = at - systems;
            const double lower_2 = lower[at];
            const double pivot = 1.0 / (diagonal[at] - lower_2 * scratch[before]);
            const double x_3 = x_saved[at];
            const double x_4 = x_saved[before];
            x_saved[at] = (x_3 - lower_2 * x_4) * pivot;
            long long x_at = x_saved_base_lane + x_top * 32LL;
            if (x_at < x_saved_base_end) {
                x_saved_2[x_at] = x_3;
                x_saved_3[x_at] = x_4;
            } else {
                gpuad_overflow[0] = 1;
            }
            ++x_top;
        }
        for (int i = n - 2; i > -1; --i) {
            x_saved[i * systems + s] -= scratch[i * systems + s] * x_saved[(i + 1) * systems + s];
        }
        for (int i = 0; i <= n - 2; ++i) {
            const double x_3 = x_saved[(i + 1) * systems + s];
            const double dx_2 = dx[i * systems + s];
            dx[(i + 1) * systems + s] -= scratch[i * systems + s] * dx_2;
            dscratch[i * systems + s] -= x_3 * dx_2;
        }
        for (int i = n - 1; i >= 1; --i) {
            --x_top;
            const double x_3 = x_saved_2[x_saved_base_lane + x_top * 32LL];
            const double x_4 = x_saved_3[x_saved_base_lane + x_top * 32LL];
            int at = i * systems + s;
            int before = at - systems;
            const double lower_2 = lower[at];
            const double scratch_2 = scratch[before];
            const double pivot = 1.0 / (diagonal[at] - lower_2 * scratch_2);
            const double upper_3 = upper[at];
            const double dx_2 = dx[at];
            dx[at] = 0.0;
            const double dx_3 = pivot * dx_2;
            dx[before] -= lower_2 * dx_3;
            dx[at] += dx_3;
            const double dscratch_2 = dscratch[at];
            dscratch[at] = 0.0;
            dupper[at] += pivot * dscratch_2;
            const double dpivot = -gpuad_chain(gpuad_chain((x_3 - lower_2 * x_4) * dx_2 + upper_3 * dscratch_2, pivot),
                pivot);
            dscratch[before] -= lower_2 * dpivot;
            dlower[at] += -(x_4 * dx_3) - scratch_2 * dpivot;
            ddiagonal[at] += dpivot;
        }
        const double dx_2 = gpuad_chain(dx[s], 1.0 / diagonal_2);
        dx[s] = dx_2;
        double dscratch_2 = dscratch[s];
        dscratch[s] = 0.0;
        dscratch_2 = gpuad_chain(dscratch_2, 1.0 / diagonal_2);
        ddiagonal[s] += -gpuad_chain(dx_2, x_2 / diagonal_2) - gpuad_chain(dscratch_2, upper_2 / diagonal_2);
        dupper[s] += dscratch_2;
    }
}

// adjoint of `tridiagonal`
//   not saved  lower                         never overwritten by this launch
//   not saved  diagonal                      never overwritten by this launch
//   not saved  upper                         never overwritten by this launch
//   saved      x                    copy     needed by tridiagonal.cu:25:12, overwritten by tridiagonal.cu:25:5
//   not saved  scratch                       needed by tridiagonal.cu:28:58, read as this launch leaves it
//   stack      x_saved              scratch  an entry an iteration, needed by tridiagonal.cu:26:5
//   stack      x_saved              scratch  an entry an iteration, needed by tridiagonal.cu:26:5
//   shadow     dlower               plain    no two threads touch one element (tridiagonal.cu:28:46)
//   shadow     ddiagonal            plain    no two threads touch one element (tridiagonal.cu:28:31)
//   shadow     dupper               plain    no two threads touch one element (tridiagonal.cu:29:23)
//   shadow     dx                   plain    no two threads touch one element (tridiagonal.cu:33:9)
//   shadow     dscratch             plain    no two threads touch one element (tridiagonal.cu:33:31)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
