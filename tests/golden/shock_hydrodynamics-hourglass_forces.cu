// gpuad: adjoint of `hourglass_forces` (shock_hydrodynamics.cu:162:28), for Duplicated position, velocity, mass, sound, force; Active strength; Const corner, elements, nodes.
// 1. put the seeds into dforce. dposition, dvelocity, dmass, dsound, dstrength are added to: clear first.
// 2. launch hourglass_forces_reverse with the same grid and block.
// On exit dforce holds the adjoint of the state before the launch; dposition, dvelocity, dmass, dsound, dstrength have grown by the gradient.
// Holds where no two threads touch one element of dmass, dsound, as for grid (1, 1, 1), block (32, 1, 1), elements = 27, nodes = 64.

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

extern "C" __global__ void hourglass_forces_reverse(
    const double* position, double* dposition, const double* velocity, double* dvelocity, const int* corner,
    const double* mass, double* dmass, const double* sound, double* dsound, double strength,
    double* dstrength, const double* force, const double* dforce, int elements, int nodes)
{
    double s_saved[32];
    double s_saved_2[32];
    double shape_saved[32];
    double bent_x_saved[4];
    double bent_y_saved[4];
    double bent_z_saved[4];
    double moving_x_saved[4];
    double moving_y_saved[4];
    double moving_z_saved[4];
    int s_top = 0;
    int s_top_2 = 0;
    int shape_top = 0;
    int bent_x_top = 0;
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    double dstrength_2 = 0.0;
    if (e < elements) {
        double x[24];
        double v[24];
        for (int c = 0; c < 8; ++c) {
            int corner_2 = corner[e * 8 + (long long)c];
            x[c * 3] = position[corner_2];
            x[c * 3 + 1] = position[nodes + corner_2];
            x[c * 3 + 2] = position[2 * nodes + corner_2];
        }
        for (int c = 0; c < 8; ++c) {
            int corner_2 = corner[e * 8 + (long long)c];
            v[c * 3] = velocity[corner_2];
            v[c * 3 + 1] = velocity[nodes + corner_2];
            v[c * 3 + 2] = velocity[2 * nodes + corner_2];
        }
        double a_x = x[9];
        double a_y = x[10];
        double a_z = x[11];
        const double b_x = x[3];
        const double b_y = x[4];
        const double b_z = x[5];
        const double a_x_2 = x[21];
        const double a_y_2 = x[22];
        const double a_z_2 = x[23];
        double b_x_2 = x[6];
        double b_y_2 = x[7];
        double b_z_2 = x[8];
        double a_x_3 = a_x - b_x;
        double a_y_3 = a_y - b_y;
        double a_z_3 = a_z - b_z;
        const double b_x_3 = a_x_2 - b_x_2;
        const double b_y_3 = a_y_2 - b_y_2;
        const double b_z_3 = a_z_2 - b_z_2;
        double a_x_4 = x[18];
        double a_y_4 = x[19];
        double a_z_4 = x[20];
        double b_x_4 = x[0];
        double b_y_4 = x[1];
        double b_z_4 = x[2];
        const double a_x_5 = a_x_4 - a_x;
        const double a_y_5 = a_y_4 - a_y;
        const double a_z_5 = a_z_4 - a_z;
        const double b_x_5 = b_x_2 - b_x_4;
        const double b_y_5 = b_y_2 - b_y_4;
        const double b_z_5 = b_z_2 - b_z_4;
        a_x_3 += b_x_3;
        a_y_3 += b_y_3;
        a_z_3 += b_z_3;
        const double b_x_6 = a_y_5 * b_z_5 - a_z_5 * b_y_5;
        const double b_y_6 = a_z_5 * b_x_5 - a_x_5 * b_z_5;
        const double b_z_6 = a_x_5 * b_y_5 - a_y_5 * b_x_5;
        double a_x_6 = x[12];
        double a_y_6 = x[13];
        double a_z_6 = x[14];
        const double a_x_7 = x[15];
        const double a_y_7 = x[16];
        const double a_z_7 = x[17];
        a_x = a_x_6 - a_x;
        a_y = a_y_6 - a_y;
        a_z = a_z_6 - a_z;
        const double b_x_7 = a_x_7 - a_x_2;
        const double b_y_7 = a_y_7 - a_y_2;
        const double b_z_7 = a_z_7 - a_z_2;
        const double a_x_8 = a_x_4 - a_x_6;
        const double a_y_8 = a_y_4 - a_y_6;
        const double a_z_8 = a_z_4 - a_z_6;
        const double b_x_8 = a_x_2 - b_x_4;
        const double b_y_8 = a_y_2 - b_y_4;
        const double b_z_8 = a_z_2 - b_z_4;
        a_x += b_x_7;
        a_y += b_y_7;
        a_z += b_z_7;
        const double b_x_9 = a_y_8 * b_z_8 - a_z_8 * b_y_8;
        const double b_y_9 = a_z_8 * b_x_8 - a_x_8 * b_z_8;
        const double b_z_9 = a_x_8 * b_y_8 - a_y_8 * b_x_8;
        a_x_6 = b_x - a_x_6;
        a_y_6 = b_y - a_y_6;
        a_z_6 = b_z - a_z_6;
        b_x_2 -= a_x_7;
        b_y_2 -= a_y_7;
        b_z_2 -= a_z_7;
        a_x_4 -= b_x;
        a_y_4 -= b_y;
        a_z_4 -= b_z;
        b_x_4 = a_x_7 - b_x_4;
        b_y_4 = a_y_7 - b_y_4;
        b_z_4 = a_z_7 - b_z_4;
        a_x_6 += b_x_2;
        a_y_6 += b_y_2;
        a_z_6 += b_z_2;
        const double b_x_10 = a_y_4 * b_z_4 - a_z_4 * b_y_4;
        const double b_y_10 = a_z_4 * b_x_4 - a_x_4 * b_z_4;
        const double b_z_10 = a_x_4 * b_y_4 - a_y_4 * b_x_4;
        const double volume = (a_x_3 * b_x_6 + a_y_3 * b_y_6 + a_z_3 * b_z_6
            + (a_x * b_x_9 + a_y * b_y_9 + a_z * b_z_9) + (a_x_6 * b_x_10 + a_y_6 * b_y_10 + a_z_6 * b_z_10)) / 12.0;
        const double sound_2 = sound[e];
        const double mass_2 = mass[e];
        const double factor = -0.01 * strength * sound_2 * mass_2 / cbrt(volume);
        for (int m = 0; m < 4; ++m) {
            double shape[8];
            double bent_x = 0.0;
            double bent_y = 0.0;
            double bent_z = 0.0;
            for (int c = 0; c < 8; ++c) {
                shape[c] = (m == 0 ? 1 : 2 * ((c + 1) / 2 % 2) - 1) * (m == 1 ? 1 : 2 * (c / 2 % 2) - 1)
                    * (m == 2 ? 1 : 2 * (c / 4 % 2) - 1);
                const double s = shape[c];
                const double b_x_11 = s * x[c * 3];
                const double b_y_11 = s * x[c * 3 + 1];
                const double b_z_11 = s * x[c * 3 + 2];
                bent_x += b_x_11;
                bent_y += b_y_11;
                bent_z += b_z_11;
                s_saved[s_top] = s;
                ++s_top;
            }
            double moving_x = 0.0;
            double moving_y = 0.0;
            double moving_z = 0.0;
            for (int c = 0; c < 8; ++c) {
                const int near[48] = {1, 2, 3, 4, 5, 7, 2, 3, 0, 5, 6, 4, 3, 0, 1, 6, 7, 5, 0, 1, 2, 7, 4, 6, 7, 6, 5,
                    0, 3, 1, 4, 7, 6, 1, 0, 2, 5, 4, 7, 2, 1, 3, 6, 5, 4, 3, 2, 0};
                double p[18];
                for (int k = 0; k < 6; ++k) {
                    int near_2 = near[c * 6 + k];
                    p[k * 3] = x[near_2 * 3];
                    p[k * 3 + 1] = x[near_2 * 3 + 1];
                    p[k * 3 + 2] = x[near_2 * 3 + 2];
                }
                const double s = 1.0 / 12.0;
                const double a_x_9 = p[3];
                const double a_y_9 = p[4];
                const double a_z_9 = p[5];
                const double b_x_11 = p[6];
                const double b_y_11 = p[7];
                const double b_z_11 = p[8];
                double a_x_10 = p[0];
                double a_y_10 = p[1];
                double a_z_10 = p[2];
                const double a_x_11 = a_x_9 + b_x_11;
                const double a_y_11 = a_y_9 + b_y_11;
                const double a_z_11 = a_z_9 + b_z_11;
                const double b_x_12 = a_x_10 + a_x_9;
                const double b_y_12 = a_y_10 + a_y_9;
                const double b_z_12 = a_z_10 + a_z_9;
                double b_x_13 = p[12];
                double b_y_13 = p[13];
                double b_z_13 = p[14];
                const double a_x_12 = p[9];
                const double a_y_12 = p[10];
                const double a_z_12 = p[11];
                a_x_10 += b_x_13;
                a_y_10 += b_y_13;
                a_z_10 += b_z_13;
                b_x_13 += a_x_12;
                b_y_13 += a_y_12;
                b_z_13 += a_z_12;
                double a_x_13 = a_y_11 * b_z_12 - a_z_11 * b_y_12;
                double a_y_13 = a_z_11 * b_x_12 - a_x_11 * b_z_12;
                double a_z_13 = a_x_11 * b_y_12 - a_y_11 * b_x_12;
                const double b_x_14 = a_y_10 * b_z_13 - a_z_10 * b_y_13;
                const double b_y_14 = a_z_10 * b_x_13 - a_x_10 * b_z_13;
                const double b_z_14 = a_x_10 * b_y_13 - a_y_10 * b_x_13;
                double b_x_15 = p[15];
                double b_y_15 = p[16];
                double b_z_15 = p[17];
                const double a_x_14 = b_x_11 + b_x_15;
                const double a_y_14 = b_y_11 + b_y_15;
                const double a_z_14 = b_z_11 + b_z_15;
                b_x_15 += a_x_12;
                b_y_15 += a_y_12;
                b_z_15 += a_z_12;
                a_x_13 += b_x_14;
                a_y_13 += b_y_14;
                a_z_13 += b_z_14;
                const double b_x_16 = a_y_14 * b_z_15 - a_z_14 * b_y_15;
                const double b_y_16 = a_z_14 * b_x_15 - a_x_14 * b_z_15;
                const double b_z_16 = a_x_14 * b_y_15 - a_y_14 * b_x_15;
                a_x_13 -= b_x_16;
                a_y_13 -= b_y_16;
                a_z_13 -= b_z_16;
                a_x_13 *= s;
                a_y_13 *= s;
                a_z_13 *= s;
                shape[c] -= (a_x_13 * bent_x + a_y_13 * bent_y + a_z_13 * bent_z) / volume;
                const double s_2 = shape[c];
                const double b_x_17 = s_2 * v[c * 3];
                const double b_y_17 = s_2 * v[c * 3 + 1];
                const double b_z_17 = s_2 * v[c * 3 + 2];
                moving_x += b_x_17;
                moving_y += b_y_17;
                moving_z += b_z_17;
                s_saved_2[s_top_2] = s_2;
                ++s_top_2;
            }
            for (int c = 0; c < 8; ++c) {
                shape_saved[shape_top] = shape[c];
                ++shape_top;
            }
            bent_x_saved[bent_x_top] = bent_x;
            bent_y_saved[bent_x_top] = bent_y;
            bent_z_saved[bent_x_top] = bent_z;
            moving_x_saved[bent_x_top] = moving_x;
            moving_y_saved[bent_x_top] = moving_y;
            moving_z_saved[bent_x_top] = moving_z;
            ++bent_x_top;
        }
        double dx[24] = {};
        double dv[24] = {};
        double ddamping[24] = {};
        for (int c = 0; c < 8; ++c) {
            int corner_2 = corner[e * 8 + (long long)c];
            ddamping[c * 3 + 2] += dforce[2 * nodes + corner_2];
            ddamping[c * 3 + 1] += dforce[nodes + corner_2];
            ddamping[c * 3] += dforce[corner_2];
        }
        double dfactor = 0.0;
        double dvolume = 0.0;
        for (int m = 3; m >= 0; --m) {
            --bent_x_top;
            const double bent_x = bent_x_saved[bent_x_top];
            const double bent_y = bent_y_saved[bent_x_top];
            const double bent_z = bent_z_saved[bent_x_top];
            const double moving_x = moving_x_saved[bent_x_top];
            const double moving_y = moving_y_saved[bent_x_top];
            const double moving_z = moving_z_saved[bent_x_top];
            double dshape[8] = {};
            double dmoving_z = 0.0;
            double dmoving_y = 0.0;
            double dmoving_x = 0.0;
            double dfactor_2 = 0.0;
            for (int c = 7; c >= 0; --c) {
                --shape_top;
                const double shape = shape_saved[shape_top];
                const double s = factor * shape;
                const double ddamping_2 = ddamping[c * 3 + 2];
                const double ddamping_3 = ddamping[c * 3 + 1];
                const double ddamping_4 = ddamping[c * 3];
                const double ds = moving_z * ddamping_2 + moving_y * ddamping_3 + moving_x * ddamping_4;
                dshape[c] += factor * ds;
                dmoving_z += s * ddamping_2;
                dmoving_y += s * ddamping_3;
                dmoving_x += s * ddamping_4;
                dfactor_2 += shape * ds;
            }
            double dbent_x = 0.0;
            double dbent_y = 0.0;
            double dbent_z = 0.0;
            double dvolume_2 = 0.0;
            for (int c = 7; c >= 0; --c) {
                --s_top_2;
                const double s = s_saved_2[s_top_2];
                const int near[48] = {1, 2, 3, 4, 5, 7, 2, 3, 0, 5, 6, 4, 3, 0, 1, 6, 7, 5, 0, 1, 2, 7, 4, 6, 7, 6, 5,
                    0, 3, 1, 4, 7, 6, 1, 0, 2, 5, 4, 7, 2, 1, 3, 6, 5, 4, 3, 2, 0};
                double p[18];
                for (int k = 0; k < 6; ++k) {
                    int near_2 = near[c * 6 + k];
                    p[k * 3] = x[near_2 * 3];
                    p[k * 3 + 1] = x[near_2 * 3 + 1];
                    p[k * 3 + 2] = x[near_2 * 3 + 2];
                }
                const double s_2 = 1.0 / 12.0;
                const double a_x_9 = p[3];
                const double a_y_9 = p[4];
                const double a_z_9 = p[5];
                const double b_x_11 = p[6];
                const double b_y_11 = p[7];
                const double b_z_11 = p[8];
                double a_x_10 = p[0];
                double a_y_10 = p[1];
                double a_z_10 = p[2];
                const double a_x_11 = a_x_9 + b_x_11;
                const double a_y_11 = a_y_9 + b_y_11;
                const double a_z_11 = a_z_9 + b_z_11;
                const double b_x_12 = a_x_10 + a_x_9;
                const double b_y_12 = a_y_10 + a_y_9;
                const double b_z_12 = a_z_10 + a_z_9;
                double b_x_13 = p[12];
                double b_y_13 = p[13];
                double b_z_13 = p[14];
                const double a_x_12 = p[9];
                const double a_y_12 = p[10];
                const double a_z_12 = p[11];
                a_x_10 += b_x_13;
                a_y_10 += b_y_13;
                a_z_10 += b_z_13;
                b_x_13 += a_x_12;
                b_y_13 += a_y_12;
                b_z_13 += a_z_12;
                double b_x_14 = p[15];
                double b_y_14 = p[16];
                double b_z_14 = p[17];
                const double a_x_13 = b_x_11 + b_x_14;
                const double a_y_13 = b_y_11 + b_y_14;
                const double a_z_13 = b_z_11 + b_z_14;
                b_x_14 += a_x_12;
                b_y_14 += a_y_12;
                b_z_14 += a_z_12;
                const double a_x_14 = s_2 * (a_y_11 * b_z_12 - a_z_11 * b_y_12 + (a_y_10 * b_z_13 - a_z_10 * b_y_13)
                    - (a_y_13 * b_z_14 - a_z_13 * b_y_14));
                const double a_y_14 = s_2 * (a_z_11 * b_x_12 - a_x_11 * b_z_12 + (a_z_10 * b_x_13 - a_x_10 * b_z_13)
                    - (a_z_13 * b_x_14 - a_x_13 * b_z_14));
                const double a_z_14 = s_2 * (a_x_11 * b_y_12 - a_y_11 * b_x_12 + (a_x_10 * b_y_13 - a_y_10 * b_x_13)
                    - (a_x_13 * b_y_14 - a_y_13 * b_x_14));
                double dp[18] = {};
                dv[c * 3 + 2] += s * dmoving_z;
                dv[c * 3 + 1] += s * dmoving_y;
                dv[c * 3] += s * dmoving_x;
                dshape[c] += v[c * 3 + 2] * dmoving_z + v[c * 3 + 1] * dmoving_y + v[c * 3] * dmoving_x;
                const double dshape_2 = -gpuad_chain(dshape[c], 1.0 / volume);
                const double da_z = s_2 * (bent_z * dshape_2);
                const double da_y = s_2 * (bent_y * dshape_2);
                const double da_x = s_2 * (bent_x * dshape_2);
                const double db_z = a_x_13 * da_y - a_y_13 * da_x;
                const double db_y = a_z_13 * da_x - a_x_13 * da_z;
                const double db_x = a_y_13 * da_z - a_z_13 * da_y;
                const double da_z_2 = b_y_14 * da_x - b_x_14 * da_y;
                const double da_y_2 = b_x_14 * da_z - b_z_14 * da_x;
                const double da_x_2 = b_z_14 * da_y - b_y_14 * da_z;
                dp[17] += db_z + da_z_2;
                dp[16] += db_y + da_y_2;
                dp[15] += db_x + da_x_2;
                const double db_z_2 = a_y_10 * da_x - a_x_10 * da_y;
                const double db_y_2 = a_x_10 * da_z - a_z_10 * da_x;
                const double db_x_2 = a_z_10 * da_y - a_y_10 * da_z;
                const double da_z_3 = b_x_13 * da_y - b_y_13 * da_x;
                const double da_y_3 = b_z_13 * da_x - b_x_13 * da_z;
                const double da_x_3 = b_y_13 * da_z - b_z_13 * da_y;
                dp[11] += db_z + db_z_2;
                dp[10] += db_y + db_y_2;
                dp[9] += db_x + db_x_2;
                dp[14] += db_z_2 + da_z_3;
                dp[13] += db_y_2 + da_y_3;
                dp[12] += db_x_2 + da_x_3;
                const double db_z_3 = a_y_11 * da_x - a_x_11 * da_y;
                const double db_y_3 = a_x_11 * da_z - a_z_11 * da_x;
                const double db_x_3 = a_z_11 * da_y - a_y_11 * da_z;
                const double da_z_4 = b_x_12 * da_y - b_y_12 * da_x;
                const double da_y_4 = b_z_12 * da_x - b_x_12 * da_z;
                const double da_x_4 = b_y_12 * da_z - b_z_12 * da_y;
                dp[2] += da_z_3 + db_z_3;
                dp[1] += da_y_3 + db_y_3;
                dp[0] += da_x_3 + db_x_3;
                dp[8] += da_z_2 + da_z_4;
                dp[7] += da_y_2 + da_y_4;
                dp[6] += da_x_2 + da_x_4;
                dp[5] += db_z_3 + da_z_4;
                dp[4] += db_y_3 + da_y_4;
                dp[3] += db_x_3 + da_x_4;
                for (int k = 5; k >= 0; --k) {
                    int near_2 = near[c * 6 + k];
                    const double dp_2 = dp[k * 3 + 2];
                    dp[k * 3 + 2] = 0.0;
                    const double dp_3 = dp[k * 3 + 1];
                    dp[k * 3 + 1] = 0.0;
                    const double dp_4 = dp[k * 3];
                    dp[k * 3] = 0.0;
                    dx[near_2 * 3 + 2] += dp_2;
                    dx[near_2 * 3 + 1] += dp_3;
                    dx[near_2 * 3] += dp_4;
                }
                dbent_x += a_x_14 * dshape_2;
                dbent_y += a_y_14 * dshape_2;
                dbent_z += a_z_14 * dshape_2;
                dvolume_2 -= gpuad_chain(dshape_2, (a_x_14 * bent_x + a_y_14 * bent_y + a_z_14 * bent_z) / volume);
            }
            for (int c = 7; c >= 0; --c) {
                --s_top;
                const double s = s_saved[s_top];
                dx[c * 3 + 2] += s * dbent_z;
                dx[c * 3 + 1] += s * dbent_y;
                dx[c * 3] += s * dbent_x;
                dshape[c] += x[c * 3 + 2] * dbent_z + x[c * 3 + 1] * dbent_y + x[c * 3] * dbent_x;
                dshape[c] = 0.0;  // overwritten with something inactive
            }
            dfactor += dfactor_2;
            dvolume += dvolume_2;
        }
        const double dfactor_2 = gpuad_chain(dfactor, 1.0 / cbrt(volume));
        const double dfactor_3 = mass_2 * dfactor_2;
        if (dfactor != 0.0) {
            dmass[e] += -0.01 * strength * sound_2 * dfactor_2;
        }
        if (dfactor != 0.0) {
            dsound[e] += -0.01 * (strength * dfactor_3);
        }
        dvolume = (dvolume + (dfactor != 0.0 ? -gpuad_chain(gpuad_chain(dfactor_2, factor),
            1.0 / (3.0 * (cbrt(volume) * cbrt(volume)))) : 0.0)) / 12.0;
        const double db_z = a_z_6 * dvolume;
        const double db_y = a_y_6 * dvolume;
        const double db_x = a_x_6 * dvolume;
        const double da_z = b_z_10 * dvolume;
        const double da_y = b_y_10 * dvolume;
        const double da_x = b_x_10 * dvolume;
        const double db_z_2 = a_y_4 * db_x - a_x_4 * db_y;
        const double db_y_2 = a_x_4 * db_z - a_z_4 * db_x;
        const double db_x_2 = a_z_4 * db_y - a_y_4 * db_z;
        const double da_z_2 = b_x_4 * db_y - b_y_4 * db_x;
        const double da_y_2 = b_z_4 * db_x - b_x_4 * db_z;
        const double da_x_2 = b_y_4 * db_z - b_z_4 * db_y;
        const double db_z_3 = a_z * dvolume;
        const double db_y_3 = a_y * dvolume;
        const double db_x_3 = a_x * dvolume;
        const double da_z_3 = b_z_9 * dvolume;
        const double da_y_3 = b_y_9 * dvolume;
        const double da_x_3 = b_x_9 * dvolume;
        const double db_z_4 = a_y_8 * db_x_3 - a_x_8 * db_y_3;
        const double db_y_4 = a_x_8 * db_z_3 - a_z_8 * db_x_3;
        const double db_x_4 = a_z_8 * db_y_3 - a_y_8 * db_z_3;
        const double da_z_4 = b_x_8 * db_y_3 - b_y_8 * db_x_3;
        const double da_y_4 = b_z_8 * db_x_3 - b_x_8 * db_z_3;
        const double da_x_4 = b_y_8 * db_z_3 - b_z_8 * db_y_3;
        dx[17] += db_z_2 - da_z + da_z_3;
        dx[16] += db_y_2 - da_y + da_y_3;
        dx[15] += db_x_2 - da_x + da_x_3;
        dx[14] += -da_z - da_z_4 + da_z_3;
        dx[13] += -da_y - da_y_4 + da_y_3;
        dx[12] += -da_x - da_x_4 + da_x_3;
        const double db_z_5 = a_z_3 * dvolume;
        const double db_y_5 = a_y_3 * dvolume;
        const double db_x_5 = a_x_3 * dvolume;
        const double da_z_5 = b_z_6 * dvolume;
        const double da_y_5 = b_y_6 * dvolume;
        const double da_x_5 = b_x_6 * dvolume;
        const double db_z_6 = a_y_5 * db_x_5 - a_x_5 * db_y_5;
        const double db_y_6 = a_x_5 * db_z_5 - a_z_5 * db_x_5;
        const double db_x_6 = a_z_5 * db_y_5 - a_y_5 * db_z_5;
        const double da_z_6 = b_x_5 * db_y_5 - b_y_5 * db_x_5;
        const double da_y_6 = b_z_5 * db_x_5 - b_x_5 * db_z_5;
        const double da_x_6 = b_y_5 * db_z_5 - b_z_5 * db_y_5;
        dx[2] += -db_z_2 - db_z_4 - db_z_6;
        dx[1] += -db_y_2 - db_y_4 - db_y_6;
        dx[0] += -db_x_2 - db_x_4 - db_x_6;
        dx[20] += da_z_2 + da_z_4 + da_z_6;
        dx[19] += da_y_2 + da_y_4 + da_y_6;
        dx[18] += da_x_2 + da_x_4 + da_x_6;
        dx[8] += da_z + db_z_6 - da_z_5;
        dx[7] += da_y + db_y_6 - da_y_5;
        dx[6] += da_x + db_x_6 - da_x_5;
        dx[23] += db_z_4 - da_z_3 + da_z_5;
        dx[22] += db_y_4 - da_y_3 + da_y_5;
        dx[21] += db_x_4 - da_x_3 + da_x_5;
        dx[5] += da_z - da_z_2 - da_z_5;
        dx[4] += da_y - da_y_2 - da_y_5;
        dx[3] += da_x - da_x_2 - da_x_5;
        dx[11] += -da_z_3 - da_z_6 + da_z_5;
        dx[10] += -da_y_3 - da_y_6 + da_y_5;
        dx[9] += -da_x_3 - da_x_6 + da_x_5;
        for (int c = 7; c >= 0; --c) {
            ddamping[c * 3 + 2] = 0.0;  // overwritten with something inactive
            ddamping[c * 3 + 1] = 0.0;  // overwritten with something inactive
            ddamping[c * 3] = 0.0;  // overwritten with something inactive
        }
        for (int c = 7; c >= 0; --c) {
            int corner_2 = corner[e * 8 + (long long)c];
            const double dv_2 = dv[c * 3 + 2];
            dv[c * 3 + 2] = 0.0;
            const double dv_3 = dv[c * 3 + 1];
            dv[c * 3 + 1] = 0.0;
            const double dv_4 = dv[c * 3];
            dv[c * 3] = 0.0;
            atomicAdd(&dvelocity[2 * nodes + corner_2], dv_2);
            atomicAdd(&dvelocity[nodes + corner_2], dv_3);
            atomicAdd(&dvelocity[corner_2], dv_4);
        }
        for (int c = 7; c >= 0; --c) {
            int corner_2 = corner[e * 8 + (long long)c];
            const double dx_2 = dx[c * 3 + 2];
            dx[c * 3 + 2] = 0.0;
            const double dx_3 = dx[c * 3 + 1];
            dx[c * 3 + 1] = 0.0;
            const double dx_4 = dx[c * 3];
            dx[c * 3] = 0.0;
            atomicAdd(&dposition[2 * nodes + corner_2], dx_2);
            atomicAdd(&dposition[nodes + corner_2], dx_3);
            atomicAdd(&dposition[corner_2], dx_4);
        }
        dstrength_2 = dfactor != 0.0 ? -0.01 * (sound_2 * dfactor_3) : 0.0;
    }
    gpuad_block_sum(&dstrength[0], dstrength_2);
}

// adjoint of `hourglass_forces`
//   not saved  position                      never overwritten by this launch
//   not saved  velocity                      never overwritten by this launch
//   not saved  corner                        never overwritten by this launch
//   not saved  mass                          never overwritten by this launch
//   not saved  sound                         never overwritten by this launch
//   not saved  force                         no derivative needs what was overwritten
//   stack      s_saved              local    32 entries in each thread
//   stack      s_saved              local    32 entries in each thread
//   stack      shape_saved          local    32 entries in each thread
//   stack      bent_x_saved         local    4 entries in each thread
//   stack      bent_y_saved         local    4 entries in each thread
//   stack      bent_z_saved         local    4 entries in each thread
//   stack      moving_x_saved       local    4 entries in each thread
//   stack      moving_y_saved       local    4 entries in each thread
//   stack      moving_z_saved       local    4 entries in each thread
//   shadow     dposition            atomic   its index is read from `corner`, so that two threads may meet in one element (shock_hydrodynamics.cu:117:103)
//   shadow     dvelocity            atomic   its index is read from `corner`, so that two threads may meet in one element (shock_hydrodynamics.cu:117:103)
//   shadow     dmass                plain    no two threads touch one element (shock_hydrodynamics.cu:170:80)
//   shadow     dsound               plain    no two threads touch one element (shock_hydrodynamics.cu:170:69)
//   shadow     dstrength            reduced  summed over each block, then one atomic addition a block (shock_hydrodynamics.cu:162:28)
//   shadow     dforce               plain    it is only read (shock_hydrodynamics.cu:124:9)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
//   assumed    shock_hydrodynamics.cu:117:59: an index of `position` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:117:77: an index of `position` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:117:103: an index of `position` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:117:59: an index of `velocity` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:117:77: an index of `velocity` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:117:103: an index of `velocity` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:142:40: an index of `x` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:122:9: an index of `force` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:123:9: an index of `force` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:124:9: an index of `force` is data, taken to be in bounds
