// gpuad: adjoint of `histogram` (histogram.cu:32:28), for Duplicated weight, counts; Const bin, n.
// 1. put the seeds into dcounts. dweight is added to: clear first.
// 2. launch histogram_reverse with the same grid and block.
// On exit dcounts holds the adjoint of the state before the launch; dweight has grown by the gradient.
// Holds where no two threads touch one element of dweight, as for grid (4, 1, 1), block (128, 1, 1), n = 400.

extern "C" __global__ void histogram_reverse(
    const int* bin, const float* weight, float* dweight, const float* counts, const float* dcounts, int n)
{
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) {
        dweight[i] += dcounts[bin[i]];
    }
}

// adjoint of `histogram`
//   not saved  bin                           never overwritten by this launch
//   not saved  weight                        never overwritten by this launch
//   not saved  counts                        no derivative needs what was overwritten
//   shadow     dweight              plain    no two threads touch one element (histogram.cu:34:43)
//   shadow     dcounts              plain    it is only read (histogram.cu:34:16)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
//   assumed    histogram.cu:34:16: an index of `counts` is data, taken to be in bounds
