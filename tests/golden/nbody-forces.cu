// gpuad: adjoint of `forces` (nbody.cu:36:28), for Duplicated position, mass, acceleration; Const softening, n.
// 1. put the seeds into dacceleration. dposition, dmass are added to: clear first.
// 2. launch forces_reverse with the same grid and block.
// On exit dacceleration holds the adjoint of the state before the launch; dposition, dmass have grown by the gradient.
// Holds where no two threads touch one element of dacceleration, as for grid (3, 1, 1), block (32, 1, 1), n = 70.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void forces_reverse(
    const float* position, float* dposition, const float* mass, float* dmass, const float* acceleration,
    float* dacceleration, float softening, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float xi = position[3 * i];
        const float yi = position[3 * i + 1];
        const float zi = position[3 * i + 2];
        const float dacceleration_2 = dacceleration[3 * i + 2];
        dacceleration[3 * i + 2] = 0.0f;
        const float dacceleration_3 = dacceleration[3 * i + 1];
        dacceleration[3 * i + 1] = 0.0f;
        const float dacceleration_4 = dacceleration[3 * i];
        dacceleration[3 * i] = 0.0f;
        float dzi = 0.0f;
        float dyi = 0.0f;
        float dxi = 0.0f;
        for (int j = 0; j < n; ++j) {
            const float dx = position[3 * j] - xi;
            const float dy = position[3 * j + 1] - yi;
            const float dz = position[3 * j + 2] - zi;
            const float r2 = dx * dx + dy * dy + dz * dz + softening * softening;
            const float inverse = rsqrtf(r2);
            const float mass_2 = mass[j];
            const float s = mass_2 * inverse * inverse * inverse;
            const float ds = dz * dacceleration_2 + dy * dacceleration_3 + dx * dacceleration_4;
            const float ds_2 = inverse * ds;
            const float ds_3 = inverse * ds_2;
            atomicAdd(&dmass[j], inverse * ds_3);
            const float dr2 = gpuad_chain(mass_2 * ds_3 + mass_2 * inverse * ds_2 + mass_2 * inverse * inverse * ds,
                -0.5f * inverse / r2);
            const float ddz = s * dacceleration_2 + 2.0f * (dz * dr2);
            atomicAdd(&dposition[3 * j + 2], ddz);
            const float ddy = s * dacceleration_3 + 2.0f * (dy * dr2);
            atomicAdd(&dposition[3 * j + 1], ddy);
            const float ddx = s * dacceleration_4 + 2.0f * (dx * dr2);
            atomicAdd(&dposition[3 * j], ddx);
            dzi -= ddz;
            dyi -= ddy;
            dxi -= ddx;
        }
        if (dzi != 0.0f) {
            atomicAdd(&dposition[3 * i + 2], dzi);
        }
        if (dyi != 0.0f) {
            atomicAdd(&dposition[3 * i + 1], dyi);
        }
        if (dxi != 0.0f) {
            atomicAdd(&dposition[3 * i], dxi);
        }
    }
}

// adjoint of `forces`
//   not saved  position                      never overwritten by this launch
//   not saved  mass                          never overwritten by this launch
//   not saved  acceleration                  no derivative needs what was overwritten
//   shadow     dposition            atomic   it is not proved that no two threads meet in one element (nbody.cu:44:20)
//   shadow     dmass                atomic   it is not proved that no two threads meet in one element (nbody.cu:47:19)
//   shadow     dacceleration        plain    no two threads touch one element (nbody.cu:54:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
