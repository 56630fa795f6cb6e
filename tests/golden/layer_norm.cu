// gpuad: adjoint of `layer_norm` (layer_norm.cu:18:28), for Duplicated x, scale, shift; Const rows, n.
// 1. before layer_norm runs, copy x to x_saved (all that it may touch).
// 2. put the seeds into dx. dscale, dshift are added to: clear first.
// 3. launch layer_norm_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch; dscale, dshift have grown by the gradient.
// Holds where no two threads touch one element of dx, as for grid (2, 1, 1), block (16, 1, 1), rows = 18, n = 20.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void layer_norm_reverse(
    const float* x, float* dx, const float* scale, float* dscale, const float* shift, float* dshift,
    int rows, int n, const float* x_saved)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float mean = 0.0f;
        for (int k = 0; k < n; ++k) {
            mean += x_saved[r * n + k];
        }
        mean /= (float)n;
        float variance = 0.0f;
        for (int k = 0; k < n; ++k) {
            const float d = x_saved[r * n + k] - mean;
            variance += d * d;
        }
        const float inverse = rsqrtf(variance / n + 1.0e-5f);
        float dmean = 0.0f;
        float dinverse = 0.0f;
        for (int k = 0; k < n; ++k) {
            const float x_2 = x_saved[r * n + k];
            const float dx_2 = dx[r * n + k];
            const float dx_3 = scale[k] * dx_2;
            const float dx_4 = inverse * dx_3;
            atomicAdd(&dshift[k], dx_2);
            atomicAdd(&dscale[k], (x_2 - mean) * inverse * dx_2);
            dx[r * n + k] = dx_4;
            dmean -= dx_4;
            dinverse += (x_2 - mean) * dx_3;
        }
        const float dvariance = dinverse != 0.0f
            ? gpuad_chain(gpuad_chain(dinverse, -0.5f * (inverse * (inverse * inverse))), 1.0f / n) : 0.0f;
        float dmean_2 = 0.0f;
        for (int k = 0; k < n; ++k) {
            const float dd = 2.0f * ((x_saved[r * n + k] - mean) * dvariance);
            dx[r * n + k] += dd;
            dmean_2 -= dd;
        }
        dmean += dmean_2;
        dmean = dmean != 0.0f ? gpuad_chain(dmean, 1.0f / n) : 0.0f;
        for (int k = 0; k < n; ++k) {
            dx[r * n + k] += dmean;
        }
    }
}

// adjoint of `layer_norm`
//   saved      x                    copy     needed by layer_norm.cu:22:41, overwritten by layer_norm.cu:29:33
//   not saved  scale                         never overwritten by this launch
//   not saved  shift                         never overwritten by this launch
//   shadow     dx                   plain    no two threads touch one element (layer_norm.cu:29:33)
//   shadow     dscale               atomic   it is not proved that no two threads meet in one element (layer_norm.cu:29:82)
//   shadow     dshift               atomic   it is not proved that no two threads meet in one element (layer_norm.cu:29:93)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
