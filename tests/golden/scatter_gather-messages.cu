// gpuad: adjoint of `messages` (scatter_gather.cu:42:28), for Duplicated weight, x, y; Const source, target, edges.
// 1. put the seeds into dy. dweight, dx are added to: clear first.
// 2. launch messages_reverse with the same grid and block.
// On exit dy holds the adjoint of the state before the launch; dweight, dx have grown by the gradient.
// Holds where no two threads touch one element of dweight, as for grid (3, 1, 1), block (64, 1, 1), edges = 150.

extern "C" __global__ void messages_reverse(
    const int* source, const int* target, const double* weight, double* dweight, const double* x, double* dx,
    const double* y, const double* dy, int edges)
{
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e < edges) {
        int s = source[e];
        int t = target[e];
        const double weight_2 = weight[e];
        const double x_2 = x[s];
        const double dy_2 = dy[t];
        const double dy_3 = 1.0 / cosh(weight_2 * x_2) * (1.0 / cosh(weight_2 * x_2)) * dy_2;
        atomicAdd(&dx[t], -0.1 * dy_2);
        atomicAdd(&dx[s], weight_2 * dy_3);
        dweight[e] += x_2 * dy_3;
    }
}

// adjoint of `messages`
//   not saved  source                        never overwritten by this launch
//   not saved  target                        never overwritten by this launch
//   not saved  weight                        never overwritten by this launch
//   not saved  x                             never overwritten by this launch
//   not saved  y                             no derivative needs what was overwritten
//   shadow     dweight              plain    no two threads touch one element (scatter_gather.cu:46:27)
//   shadow     dx                   atomic   its index is read from `source`, `target`, so that two threads may meet in one element (scatter_gather.cu:46:53)
//   shadow     dy                   plain    it is only read (scatter_gather.cu:46:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
//   assumed    scatter_gather.cu:46:39: an index of `x` is data, taken to be in bounds
//   assumed    scatter_gather.cu:46:53: an index of `x` is data, taken to be in bounds
//   assumed    scatter_gather.cu:46:5: an index of `y` is data, taken to be in bounds
