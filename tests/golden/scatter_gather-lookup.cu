// gpuad: adjoint of `lookup` (scatter_gather.cu:36:28), for Duplicated x, y; Const index, width, count.
// 1. put the seeds into dy. dx is added to: clear first.
// 2. launch lookup_reverse with the same grid and block.
// On exit dy holds the adjoint of the state before the launch; dx has grown by the gradient.
// Holds where no two threads touch one element of dy, as for grid (4, 1, 1), block (64, 1, 1), width = 6, count = 240.

extern "C" __global__ void lookup_reverse(
    const float* x, float* dx, const long long* index, const float* y, float* dy, int width, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        long long index_2 = index[i / width];
        const float dy_2 = dy[i];
        dy[i] = 0.0f;
        atomicAdd(&dx[index_2 * width + i % width], dy_2);
    }
}

// adjoint of `lookup`
//   not saved  x                             never overwritten by this launch
//   not saved  index                         never overwritten by this launch
//   not saved  y                             no derivative needs what was overwritten
//   shadow     dx                   atomic   its index is read from `index`, so that two threads may meet in one element (scatter_gather.cu:39:12)
//   shadow     dy                   plain    no two threads touch one element (scatter_gather.cu:39:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
//   assumed    scatter_gather.cu:39:12: an index of `x` is data, taken to be in bounds
