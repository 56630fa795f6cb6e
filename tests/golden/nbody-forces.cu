// gpuad: adjoint of `forces` (nbody.cu:36:28), for Duplicated position, mass, acceleration; Const softening, n.
// 1. put the seeds into dacceleration. dposition, dmass are added to: clear first.
// 2. launch forces_gather with grid (3, 1, 1) and the block of forces.
// 3. launch forces_reverse with the same grid and block.
// On exit dacceleration holds the adjoint of the state before the launch; dposition, dmass have grown by the gradient.
// Holds where no two threads touch one element of dacceleration
// and the gather's threads do not meet in dmass, dposition, as for grid (3, 1, 1), block (32, 1, 1), n = 70.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void forces_gather(
    const float* position, float* dposition, const float* mass, float* dmass, const float* dacceleration,
    float softening, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float dmass_2 = 0.0f;
    float dposition_2 = 0.0f;
    float dposition_3 = 0.0f;
    float dposition_4 = 0.0f;
    if (i < n) {
        const float xi = position[3 * i];
        const float yi = position[3 * i + 1];
        const float zi = position[3 * i + 2];
        const float dacceleration_2 = dacceleration[3 * i + 2];
        const float dacceleration_3 = dacceleration[3 * i + 1];
        const float dacceleration_4 = dacceleration[3 * i];
        for (int j = 0; j < n; ++j) {
            const float dx = position[3 * j] - xi;
            const float dy = position[3 * j + 1] - yi;
            const float dz = position[3 * j + 2] - zi;
            const float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + softening * softening);
            const float mass_2 = mass[j];
            const float s = mass_2 * inverse * inverse * inverse;
            const float dacceleration_5 = dacceleration[3 * j + 2];
            const float dacceleration_6 = dacceleration[3 * j + 1];
            const float dacceleration_7 = dacceleration[3 * j];
            const float mass_3 = mass[i];
            const float s_2 = mass_3 * inverse * inverse * inverse;
            const float minus_ds = inverse * (inverse
                * (dz * dacceleration_5 + dy * dacceleration_6 + dx * dacceleration_7));
            dmass_2 -= inverse * minus_ds;
            const float dr2 = gpuad_chain(mass_3 * minus_ds
                - mass_2 * (inverse * (inverse * (dz * dacceleration_2 + dy * dacceleration_3
                + dx * dacceleration_4))), 3.0f * (inverse * (inverse * inverse)));
            dposition_2 += s_2 * dacceleration_5 - dz * dr2 - s * dacceleration_2;
            dposition_3 += s_2 * dacceleration_6 - dy * dr2 - s * dacceleration_3;
            dposition_4 += s_2 * dacceleration_7 - dx * dr2 - s * dacceleration_4;
        }
    }
    if (dmass_2 != 0.0f) {
        dmass[i] += dmass_2;
    }
    if (dposition_2 != 0.0f) {
        dposition[3 * i + 2] += dposition_2;
    }
    if (dposition_3 != 0.0f) {
        dposition[3 * i + 1] += dposition_3;
    }
    if (dposition_4 != 0.0f) {
        dposition[3 * i] += dposition_4;
    }
}

extern "C" __global__ void forces_reverse(
    const float* position, const float* dposition, const float* mass, const float* dmass,
    const float* acceleration, float* dacceleration, float softening, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        dacceleration[3 * i + 2] = 0.0f;
        dacceleration[3 * i + 1] = 0.0f;
        dacceleration[3 * i] = 0.0f;
    }
}

// adjoint of `forces`
//   not saved  position                      never overwritten by this launch
//   not saved  mass                          never overwritten by this launch
//   not saved  acceleration                  no derivative needs what was overwritten
//   shadow     dposition            gather   each thread of forces_gather collects for an element of its own (nbody.cu:44:20)
//   shadow     dmass                gather   each thread of forces_gather collects for an element of its own (nbody.cu:47:19)
//   shadow     dacceleration        plain    no two threads touch one element (nbody.cu:54:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
