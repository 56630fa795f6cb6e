// gpuad: adjoint of `soft_histogram` (histogram.cu:37:28), for Duplicated value, counts; Const n, bins.
// 1. put the seeds into dcounts. dvalue is added to: clear first.
// 2. launch soft_histogram_reverse with the same grid and block.
// On exit dcounts holds the adjoint of the state before the launch; dvalue has grown by the gradient.
// Compile soft_histogram and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dvalue, as for grid (4, 1, 1), block (128, 1, 1), n = 400, bins = 6.

extern "C" __global__ void soft_histogram_reverse(
    const float* value, float* dvalue, const float* counts, const float* dcounts, int n, int bins)
{
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) {
        const float position = value[i] * (bins - 1);
        int low = (int)position;
        const float dposition = low >= 0 && low + 1 < bins ? dcounts[low + 1LL] - dcounts[low] : 0.0f;
        if (dposition != 0.0f) {
            dvalue[i] += (bins - 1) * dposition;
        }
    }
}

// adjoint of `soft_histogram`
//   not saved  value                         never overwritten by this launch
//   not saved  counts                        no derivative needs what was overwritten
//   shadow     dvalue               plain    no two threads touch one element (histogram.cu:40:22)
//   shadow     dcounts              plain    it is only read (histogram.cu:45:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
