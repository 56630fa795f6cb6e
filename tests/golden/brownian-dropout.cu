// gpuad: adjoint of `dropout` (brownian.cu:51:28), for Duplicated x; Const keep, seed, n.
// 1. put the seeds into dx.
// 2. launch dropout_reverse with the same grid and block.
// On exit dx holds the adjoint of the state before the launch.
// Compile dropout and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dx, as for grid (2, 1, 1), block (32, 1, 1), seed = 2026, n = 203.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void dropout_reverse(
    const float* x, float* dx, float keep, unsigned long long seed, int n)
{
    int group = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long subsequence = group;
    unsigned int state_counter_z = (unsigned int)subsequence;
    unsigned int state_counter_w = (unsigned int)(subsequence >> 32);
    unsigned int state_key_x = (unsigned int)seed;
    unsigned int state_key_y = (unsigned int)(seed >> 32);
    unsigned int x_x = 0u;
    unsigned int x_y = 0u;
    unsigned int x_z = state_counter_z;
    unsigned int x_w = state_counter_w;
    unsigned int key_x = state_key_x;
    unsigned int key_y = state_key_y;
    for (int k = 0; k < 10; ++k) {
        unsigned int high = __umulhi(3528531795u, x_x);
        unsigned int low = 3528531795u * x_x;
        unsigned int other = __umulhi(3449720151u, x_z);
        unsigned int lower = 3449720151u * x_z;
        x_x = other ^ x_y ^ key_x;
        x_z = high ^ x_w ^ key_y;
        key_x += 2654435769u;
        key_y += 3144134277u;
        x_y = lower;
        x_w = low;
    }
    const float u_x = x_x * 2.3283064e-10f + 1.1641532e-10f;
    const float u_y = x_y * 2.3283064e-10f + 1.1641532e-10f;
    const float u_z = x_z * 2.3283064e-10f + 1.1641532e-10f;
    const float u_w = x_w * 2.3283064e-10f + 1.1641532e-10f;
    int i = 4 * group;
    if (i + 3 < n) {
        const float dx_2 = dx[i + 3];
        dx[i + 3] = 0.0f;
        if (u_w <= keep) {
            dx[i + 3] += gpuad_chain(dx_2, 1.0f / keep);
        }
    }
    if (i + 2 < n) {
        const float dx_2 = dx[i + 2];
        dx[i + 2] = 0.0f;
        if (u_z <= keep) {
            dx[i + 2] += gpuad_chain(dx_2, 1.0f / keep);
        }
    }
    if (i + 1 < n) {
        const float dx_2 = dx[i + 1];
        dx[i + 1] = 0.0f;
        if (u_y <= keep) {
            dx[i + 1] += gpuad_chain(dx_2, 1.0f / keep);
        }
    }
    if (i < n) {
        const float dx_2 = dx[i];
        dx[i] = 0.0f;
        if (u_x <= keep) {
            dx[i] += gpuad_chain(dx_2, 1.0f / keep);
        }
    }
}

// adjoint of `dropout`
//   not saved  x                             no derivative needs what was overwritten
//   shadow     dx                   plain    no two threads touch one element (brownian.cu:60:20)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
