// gpuad: adjoint of `deposit` (plasma.cu:65:28), for Duplicated particle, density; Const particle_int, particles.
// 1. put the seeds into ddensity. dparticle is added to: clear first.
// 2. launch deposit_reverse with the same grid and block.
// On exit ddensity holds the adjoint of the state before the launch; dparticle has grown by the gradient.
// Holds where no two threads touch one element of dparticle, as for grid (2, 1, 1), block (32, 1, 1), particles = 60.

extern "C" __global__ void deposit_reverse(
    const float* particle, float* dparticle, const int* particle_int, const float* density,
    const float* ddensity, int particles)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < particles) {
        int particle_int_2 = particle_int[i * 6LL + 5LL];
        const float particle_2 = particle[i * 6LL];
        const float particle_3 = particle[i * 6LL + 4LL];
        const float ddensity_2 = ddensity[particle_int_2 + 1];
        const float ddensity_3 = ddensity[particle_int_2];
        dparticle[i * 6LL + 4LL] += particle_2 * ddensity_2 + (1.0f - particle_2) * ddensity_3;
        dparticle[i * 6LL] += particle_3 * ddensity_2 - particle_3 * ddensity_3;
    }
}

// adjoint of `deposit`
//   not saved  particle                      never overwritten by this launch
//   not saved  particle_int                  never overwritten by this launch
//   not saved  density                       no derivative needs what was overwritten
//   shadow     dparticle            plain    no two threads touch one element (plasma.cu:69:53)
//   shadow     ddensity             plain    it is only read (plasma.cu:70:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
//   assumed    plasma.cu:69:5: an index of `density` is data, taken to be in bounds
//   assumed    plasma.cu:70:5: an index of `density` is data, taken to be in bounds
