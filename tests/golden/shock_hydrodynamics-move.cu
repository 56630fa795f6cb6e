// gpuad: adjoint of `move` (shock_hydrodynamics.cu:187:28), for Duplicated force, mass, velocity, position; Active dt; Const side, nodes.
// 1. before move runs, copy force to force_saved, velocity to velocity_saved (all that it may touch). velocity_saved will be overwritten.
// 2. put the seeds into dforce, dvelocity, dposition. dmass, ddt are added to: clear first.
// 3. launch move_reverse with the same grid and block.
// On exit dforce, dvelocity, dposition hold the adjoint of the state before the launch; dmass, ddt have grown by the gradient.
// Compile move and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of dforce, dmass, dvelocity, as for grid (2, 1, 1), block (32, 1, 1), side = 3, nodes = 64.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

// Adds the sum of `value` over all threads of the block to *target, with one atomicAdd if it is not 0. Every thread of the block must make
// the call, with the same target; the block may have any shape. The sum is formed in double.
template <typename T>
__device__ inline void gpuad_block_sum(T* target, double value)
{
    __shared__ double partial[32];
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int threads = blockDim.x * blockDim.y * blockDim.z;
    const int lane = thread % 32;
    const int lanes = min(32, threads - (thread - lane));
    const unsigned int mask = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1u;
    for (int distance = 16; distance > 0; distance /= 2) {
        const double other = __shfl_down_sync(mask, value, distance);
        if (lane + distance < lanes) value += other;
    }
    if (lane == 0) partial[thread / 32] = value;
    __syncthreads();
    if (thread == 0) {
        for (int warp = 1; warp < (threads + 31) / 32; ++warp) value += partial[warp];
        if (value != 0.0) atomicAdd(target, (T)value);
    }
    __syncthreads();
}

extern "C" __global__ void move_reverse(
    const double* force, double* dforce, const double* mass, double* dmass, const double* velocity,
    double* dvelocity, const double* position, const double* dposition, double dt, double* ddt, int side,
    int nodes, const double* force_saved, double* velocity_saved)
{
    bool mirrored_saved[3];
    bool choice_saved[3];
    int mirrored_top = 0;
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    double ddt_2 = 0.0;
    if (n < nodes) {
        const double mass_2 = mass[n];
        const double kick = dt / mass_2;
        int along = n;
        for (int axis = 0; axis < 3; ++axis) {
            int i = axis * nodes + n;
            bool mirrored = along % (side + 1) == 0;
            const double value = !mirrored ? kick * force_saved[i] : 0.0;
            const double speed = velocity_saved[i] + value;
            velocity_saved[i] = fabs(speed) < 1.0e-7 ? 0.0 : speed;
            along /= side + 1;
            mirrored_saved[mirrored_top] = mirrored;
            choice_saved[mirrored_top] = fabs(speed) < 1.0e-7;
            ++mirrored_top;
        }
        double dkick = 0.0;
        for (int axis = 2; axis >= 0; --axis) {
            --mirrored_top;
            bool choice = choice_saved[mirrored_top];
            int i = axis * nodes + n;
            const double velocity_2 = velocity_saved[i];
            dforce[i] = 0.0;  // overwritten with something inactive
            const double dposition_2 = dposition[i];
            dvelocity[i] += dt * dposition_2;
            const double dvelocity_2 = dvelocity[i];
            dvelocity[i] = 0.0;
            const double dvalue = choice ? 0.0 : dvelocity_2;
            double dkick_2 = 0.0;
            if (!mirrored_saved[mirrored_top]) {
                const double force_2 = force_saved[i];
                dforce[i] += kick * dvalue;
                dkick_2 = force_2 * dvalue;
            }
            if (!choice) {
                dvelocity[i] += dvelocity_2;
            }
            ddt_2 += velocity_2 * dposition_2;
            dkick += dkick_2;
        }
        const double dkick_2 = gpuad_chain(dkick, 1.0 / mass_2);
        if (dkick != 0.0) {
            dmass[n] -= gpuad_chain(dkick_2, kick);
        }
        ddt_2 += dkick != 0.0 ? dkick_2 : 0.0;
    }
    gpuad_block_sum(&ddt[0], ddt_2);
}

// adjoint of `move`
//   saved      force                copy     needed by shock_hydrodynamics.cu:195:69, overwritten by shock_hydrodynamics.cu:198:9
//   not saved  mass                          never overwritten by this launch
//   saved      velocity             copy     needed by shock_hydrodynamics.cu:195:30, overwritten by shock_hydrodynamics.cu:196:9
//   not saved  position                      no derivative needs what was overwritten
//   stack      mirrored_saved       local    3 entries in each thread
//   stack      choice_saved         local    3 entries in each thread
//   shadow     dforce               plain    no two threads touch one element (shock_hydrodynamics.cu:198:9)
//   shadow     dmass                plain    no two threads touch one element (shock_hydrodynamics.cu:190:30)
//   shadow     dvelocity            plain    no two threads touch one element (shock_hydrodynamics.cu:197:29)
//   shadow     dposition            plain    it is only read (shock_hydrodynamics.cu:197:9)
//   shadow     ddt                  reduced  summed over each block, then one atomic addition a block (shock_hydrodynamics.cu:187:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
