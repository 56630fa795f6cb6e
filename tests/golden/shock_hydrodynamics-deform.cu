// gpuad: adjoint of `deform` (shock_hydrodynamics.cu:203:28), for Duplicated position, velocity, reference, volume, change, rate, length; Active dt; Const corner, elements, nodes.
// 1. put the seeds into dvolume, dchange, drate, dlength. dposition, dvelocity, dreference, ddt are added to: clear first.
// 2. launch deform_reverse with the same grid and block.
// On exit dvolume, dchange, drate, dlength hold the adjoint of the state before the launch; dposition, dvelocity, dreference, ddt have grown by the gradient.
// Holds where no two threads touch one element of dchange, dlength, drate, dreference, dvolume, as for grid (1, 1, 1), block (32, 1, 1), elements = 27, nodes = 64.

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

extern "C" __global__ void deform_reverse(
    const double* position, double* dposition, const double* velocity, double* dvelocity, const int* corner,
    const double* reference, double* dreference, const double* volume, double* dvolume, const double* change,
    double* dchange, const double* rate, double* drate, const double* length, double* dlength, double dt,
    double* ddt, int elements, int nodes)
{
    bool choice_saved[6];
    int choice_top = 0;
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    double ddt_2 = 0.0;
    if (e < elements) {
        const int face[24] = {0, 3, 2, 1, 0, 1, 5, 4, 1, 2, 6, 5, 2, 3, 7, 6, 3, 0, 4, 7, 4, 5, 6, 7};
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
        const double now = (a_x_3 * b_x_6 + a_y_3 * b_y_6 + a_z_3 * b_z_6 + (a_x * b_x_9 + a_y * b_y_9 + a_z * b_z_9)
            + (a_x_6 * b_x_10 + a_y_6 * b_y_10 + a_z_6 * b_z_10)) / 12.0;
        const double reference_2 = reference[e];
        const double relative = now / reference_2;
        double largest = 0.0;
        for (int f = 0; f < 6; ++f) {
            int face_2 = face[f * 4 + 2];
            int face_3 = face[f * 4];
            const double a_x_9 = x[face_2 * 3] - x[face_3 * 3];
            const double a_y_9 = x[face_2 * 3 + 1] - x[face_3 * 3 + 1];
            const double a_z_9 = x[face_2 * 3 + 2] - x[face_3 * 3 + 2];
            int face_4 = face[f * 4 + 3];
            int face_5 = face[f * 4 + 1];
            const double b_x_11 = x[face_4 * 3] - x[face_5 * 3];
            const double b_y_11 = x[face_4 * 3 + 1] - x[face_5 * 3 + 1];
            const double b_z_11 = x[face_4 * 3 + 2] - x[face_5 * 3 + 2];
            const double area_x = a_y_9 * b_z_11 - a_z_9 * b_y_11;
            const double area_y = a_z_9 * b_x_11 - a_x_9 * b_z_11;
            const double area_z = a_x_9 * b_y_11 - a_y_9 * b_x_11;
            const double largest_2 = fmax(largest, 4.0 * (area_x * area_x + area_y * area_y + area_z * area_z));
            choice_saved[choice_top] = largest >= 4.0 * (area_x * area_x + area_y * area_y + area_z * area_z);
            ++choice_top;
            largest = largest_2;
        }
        double axis[9];
        for (int a = 0; a < 3; ++a) {
            axis[a * 3] = 0.0;
            axis[a * 3 + 1] = 0.0;
            axis[a * 3 + 2] = 0.0;
            for (int c = 0; c < 8; ++c) {
                const double s = 0.125 * (2 * ((a == 0 ? (c + 1) / 2 : a == 1 ? c / 2 : c / 4) % 2) - 1);
                const double s_2 = 0.5 * dt;
                const double b_x_11 = s_2 * v[c * 3];
                const double b_y_11 = s_2 * v[c * 3 + 1];
                const double b_z_11 = s_2 * v[c * 3 + 2];
                const double a_x_9 = x[c * 3] - b_x_11;
                const double a_y_9 = x[c * 3 + 1] - b_y_11;
                const double a_z_9 = x[c * 3 + 2] - b_z_11;
                const double b_x_12 = s * a_x_9;
                const double b_y_12 = s * a_y_9;
                const double b_z_12 = s * a_z_9;
                axis[a * 3] += b_x_12;
                axis[a * 3 + 1] += b_y_12;
                axis[a * 3 + 2] += b_z_12;
            }
        }
        const double a_x_9 = axis[3];
        const double a_y_9 = axis[4];
        const double a_z_9 = axis[5];
        const double b_x_11 = axis[6];
        const double b_y_11 = axis[7];
        const double b_z_11 = axis[8];
        const double b_x_12 = axis[0];
        const double b_y_12 = axis[1];
        const double b_z_12 = axis[2];
        const double normal = a_y_9 * b_z_11 - a_z_9 * b_y_11;
        const double normal_2 = a_z_9 * b_x_11 - a_x_9 * b_z_11;
        const double normal_3 = a_x_9 * b_y_11 - a_y_9 * b_x_11;
        const double normal_4 = b_y_11 * b_z_12 - b_z_11 * b_y_12;
        const double normal_5 = b_z_11 * b_x_12 - b_x_11 * b_z_12;
        const double normal_6 = b_x_11 * b_y_12 - b_y_11 * b_x_12;
        const double normal_7 = b_y_12 * a_z_9 - b_z_12 * a_y_9;
        const double normal_8 = b_z_12 * a_x_9 - b_x_12 * a_z_9;
        const double normal_9 = b_x_12 * a_y_9 - b_y_12 * a_x_9;
        double spreads = 0.0;
        for (int c = 0; c < 8; ++c) {
            const double s = 2 * ((c + 1) / 2 % 2) - 1;
            const double s_2 = 2 * (c / 2 % 2) - 1;
            double a_x_10 = s * normal;
            double a_y_10 = s * normal_2;
            double a_z_10 = s * normal_3;
            const double b_x_13 = s_2 * normal_4;
            const double b_y_13 = s_2 * normal_5;
            const double b_z_13 = s_2 * normal_6;
            const double s_3 = 2 * (c / 4 % 2) - 1;
            a_x_10 += b_x_13;
            a_y_10 += b_y_13;
            a_z_10 += b_z_13;
            const double b_x_14 = s_3 * normal_7;
            const double b_y_14 = s_3 * normal_8;
            const double b_z_14 = s_3 * normal_9;
            const double slope_x = a_x_10 + b_x_14;
            const double slope_y = a_y_10 + b_y_14;
            const double slope_z = a_z_10 + b_z_14;
            spreads += slope_x * v[c * 3] + slope_y * v[c * 3 + 1] + slope_z * v[c * 3 + 2];
        }
        double dx[24] = {};
        double dv[24] = {};
        double daxis[9] = {};
        double drate_2 = drate[e];
        drate[e] = 0.0;
        drate_2 = gpuad_chain(drate_2, 1.0 / (8.0 * (b_x_12 * normal + b_y_12 * normal_2 + b_z_12 * normal_3)));
        const double drate_3 = 8.0 * -gpuad_chain(drate_2,
            spreads / (8.0 * (b_x_12 * normal + b_y_12 * normal_2 + b_z_12 * normal_3)));
        double dnormal = 0.0;
        double dnormal_2 = 0.0;
        double dnormal_3 = 0.0;
        double dnormal_4 = 0.0;
        double dnormal_5 = 0.0;
        double dnormal_6 = 0.0;
        double dnormal_7 = 0.0;
        double dnormal_8 = 0.0;
        double dnormal_9 = 0.0;
        for (int c = 0; c < 8; ++c) {
            const double s = 2 * ((c + 1) / 2 % 2) - 1;
            const double s_2 = 2 * (c / 2 % 2) - 1;
            const double s_3 = 2 * (c / 4 % 2) - 1;
            dv[c * 3 + 2] += (s * normal_3 + s_2 * normal_6 + s_3 * normal_9) * drate_2;
            dv[c * 3 + 1] += (s * normal_2 + s_2 * normal_5 + s_3 * normal_8) * drate_2;
            dv[c * 3] += (s * normal + s_2 * normal_4 + s_3 * normal_7) * drate_2;
            const double dslope_z = v[c * 3 + 2] * drate_2;
            const double dslope_y = v[c * 3 + 1] * drate_2;
            const double dslope_x = v[c * 3] * drate_2;
            dnormal += s_3 * dslope_z;
            dnormal_2 += s_3 * dslope_y;
            dnormal_3 += s_3 * dslope_x;
            dnormal_4 += s_2 * dslope_z;
            dnormal_5 += s_2 * dslope_y;
            dnormal_6 += s_2 * dslope_x;
            dnormal_7 += s * dslope_z;
            dnormal_8 += s * dslope_y;
            dnormal_9 += s * dslope_x;
        }
        dnormal_7 += b_z_12 * drate_3;
        dnormal_8 += b_y_12 * drate_3;
        dnormal_9 += b_x_12 * drate_3;
        daxis[2] += normal_3 * drate_3;
        if (dnormal_2 != 0.0) {
            daxis[2] += a_x_9 * dnormal_2;
        }
        if (dnormal_3 != 0.0) {
            daxis[2] -= a_y_9 * dnormal_3;
        }
        if (dnormal_5 != 0.0) {
            daxis[2] -= b_x_11 * dnormal_5;
        }
        if (dnormal_6 != 0.0) {
            daxis[2] += b_y_11 * dnormal_6;
        }
        daxis[1] += normal_2 * drate_3;
        if (dnormal != 0.0) {
            daxis[1] -= a_x_9 * dnormal;
        }
        if (dnormal_3 != 0.0) {
            daxis[1] += a_z_9 * dnormal_3;
        }
        if (dnormal_4 != 0.0) {
            daxis[1] += b_x_11 * dnormal_4;
        }
        if (dnormal_6 != 0.0) {
            daxis[1] -= b_z_11 * dnormal_6;
        }
        daxis[0] += normal * drate_3;
        if (dnormal != 0.0) {
            daxis[0] += a_y_9 * dnormal;
        }
        if (dnormal_2 != 0.0) {
            daxis[0] -= a_z_9 * dnormal_2;
        }
        if (dnormal_4 != 0.0) {
            daxis[0] -= b_y_11 * dnormal_4;
        }
        if (dnormal_5 != 0.0) {
            daxis[0] += b_z_11 * dnormal_5;
        }
        if (dnormal_5 != 0.0) {
            daxis[8] += b_x_12 * dnormal_5;
        }
        if (dnormal_6 != 0.0) {
            daxis[8] -= b_y_12 * dnormal_6;
        }
        daxis[8] += a_y_9 * dnormal_9 - a_x_9 * dnormal_8;
        if (dnormal_4 != 0.0) {
            daxis[7] -= b_x_12 * dnormal_4;
        }
        if (dnormal_6 != 0.0) {
            daxis[7] += b_z_12 * dnormal_6;
        }
        daxis[7] += a_x_9 * dnormal_7 - a_z_9 * dnormal_9;
        if (dnormal_4 != 0.0) {
            daxis[6] += b_y_12 * dnormal_4;
        }
        if (dnormal_5 != 0.0) {
            daxis[6] -= b_z_12 * dnormal_5;
        }
        daxis[6] += a_z_9 * dnormal_8 - a_y_9 * dnormal_7;
        if (dnormal_2 != 0.0) {
            daxis[5] -= b_x_12 * dnormal_2;
        }
        if (dnormal_3 != 0.0) {
            daxis[5] += b_y_12 * dnormal_3;
        }
        daxis[5] += b_x_11 * dnormal_8 - b_y_11 * dnormal_9;
        if (dnormal != 0.0) {
            daxis[4] += b_x_12 * dnormal;
        }
        if (dnormal_3 != 0.0) {
            daxis[4] -= b_z_12 * dnormal_3;
        }
        daxis[4] += b_z_11 * dnormal_9 - b_x_11 * dnormal_7;
        if (dnormal != 0.0) {
            daxis[3] -= b_y_12 * dnormal;
        }
        if (dnormal_2 != 0.0) {
            daxis[3] += b_z_12 * dnormal_2;
        }
        daxis[3] += b_y_11 * dnormal_7 - b_z_11 * dnormal_8;
        for (int a = 2; a >= 0; --a) {
            double ddt_3 = 0.0;
            for (int c = 0; c < 8; ++c) {
                const double s = 0.125 * (2 * ((a == 0 ? (c + 1) / 2 : a == 1 ? c / 2 : c / 4) % 2) - 1);
                const double s_2 = 0.5 * dt;
                const double da_z = s * daxis[a * 3 + 2];
                const double da_y = s * daxis[a * 3 + 1];
                const double da_x = s * daxis[a * 3];
                dv[c * 3 + 2] -= s_2 * da_z;
                dv[c * 3 + 1] -= s_2 * da_y;
                dv[c * 3] -= s_2 * da_x;
                dx[c * 3 + 2] += da_z;
                dx[c * 3 + 1] += da_y;
                dx[c * 3] += da_x;
                ddt_3 += 0.5 * (-(v[c * 3 + 2] * da_z) - v[c * 3 + 1] * da_y - v[c * 3] * da_x);
            }
            daxis[a * 3 + 2] = 0.0;  // overwritten with something inactive
            daxis[a * 3 + 1] = 0.0;  // overwritten with something inactive
            daxis[a * 3] = 0.0;  // overwritten with something inactive
            ddt_2 += ddt_3;
        }
        double dlength_2 = dlength[e];
        dlength[e] = 0.0;
        dlength_2 = gpuad_chain(dlength_2, 1.0 / sqrt(largest));
        double dlargest = -gpuad_chain(gpuad_chain(dlength_2, 4.0 * now / sqrt(largest)), 0.5 / sqrt(largest));
        for (int f = 5; f >= 0; --f) {
            --choice_top;
            bool choice = choice_saved[choice_top];
            int face_2 = face[f * 4 + 2];
            int face_3 = face[f * 4];
            const double a_x_10 = x[face_2 * 3] - x[face_3 * 3];
            const double a_y_10 = x[face_2 * 3 + 1] - x[face_3 * 3 + 1];
            const double a_z_10 = x[face_2 * 3 + 2] - x[face_3 * 3 + 2];
            int face_4 = face[f * 4 + 3];
            int face_5 = face[f * 4 + 1];
            const double b_x_13 = x[face_4 * 3] - x[face_5 * 3];
            const double b_y_13 = x[face_4 * 3 + 1] - x[face_5 * 3 + 1];
            const double b_z_13 = x[face_4 * 3 + 2] - x[face_5 * 3 + 2];
            const double area_x = a_y_10 * b_z_13 - a_z_10 * b_y_13;
            const double area_y = a_z_10 * b_x_13 - a_x_10 * b_z_13;
            const double area_z = a_x_10 * b_y_13 - a_y_10 * b_x_13;
            const double dlargest_2 = 4.0 * (choice
                || 4.0 * (area_x * area_x + area_y * area_y + area_z * area_z)
                != 4.0 * (area_x * area_x + area_y * area_y + area_z * area_z) ? 0.0 : dlargest);
            const double darea_z = 2.0 * (area_z * dlargest_2);
            const double darea_y = 2.0 * (area_y * dlargest_2);
            const double darea_x = 2.0 * (area_x * dlargest_2);
            const double db_z = a_y_10 * darea_x - a_x_10 * darea_y;
            const double db_y = a_x_10 * darea_z - a_z_10 * darea_x;
            const double db_x = a_z_10 * darea_y - a_y_10 * darea_z;
            dx[face_5 * 3 + 2] -= db_z;
            dx[face_5 * 3 + 1] -= db_y;
            dx[face_5 * 3] -= db_x;
            dx[face_4 * 3 + 2] += db_z;
            dx[face_4 * 3 + 1] += db_y;
            dx[face_4 * 3] += db_x;
            const double da_z = b_x_13 * darea_y - b_y_13 * darea_x;
            const double da_y = b_z_13 * darea_x - b_x_13 * darea_z;
            const double da_x = b_y_13 * darea_z - b_z_13 * darea_y;
            dx[face_3 * 3 + 2] -= da_z;
            dx[face_3 * 3 + 1] -= da_y;
            dx[face_3 * 3] -= da_x;
            dx[face_2 * 3 + 2] += da_z;
            dx[face_2 * 3 + 1] += da_y;
            dx[face_2 * 3] += da_x;
            dlargest = choice || 4.0 * (area_x * area_x + area_y * area_y + area_z * area_z)
                != 4.0 * (area_x * area_x + area_y * area_y + area_z * area_z) ? dlargest : 0.0;
        }
        const double dvolume_2 = dvolume[e];
        const double dchange_2 = dchange[e];
        dchange[e] = 0.0;
        dvolume[e] = -dchange_2;
        const double drelative = gpuad_chain(dvolume_2 + dchange_2, 1.0 / reference_2);
        dreference[e] -= gpuad_chain(drelative, relative);
        const double dnow = (4.0 * dlength_2 + drelative) / 12.0;
        const double db_z = a_z_6 * dnow;
        const double db_y = a_y_6 * dnow;
        const double db_x = a_x_6 * dnow;
        const double da_z = b_z_10 * dnow;
        const double da_y = b_y_10 * dnow;
        const double da_x = b_x_10 * dnow;
        const double db_z_2 = a_y_4 * db_x - a_x_4 * db_y;
        const double db_y_2 = a_x_4 * db_z - a_z_4 * db_x;
        const double db_x_2 = a_z_4 * db_y - a_y_4 * db_z;
        const double da_z_2 = b_x_4 * db_y - b_y_4 * db_x;
        const double da_y_2 = b_z_4 * db_x - b_x_4 * db_z;
        const double da_x_2 = b_y_4 * db_z - b_z_4 * db_y;
        const double db_z_3 = a_z * dnow;
        const double db_y_3 = a_y * dnow;
        const double db_x_3 = a_x * dnow;
        const double da_z_3 = b_z_9 * dnow;
        const double da_y_3 = b_y_9 * dnow;
        const double da_x_3 = b_x_9 * dnow;
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
        const double db_z_5 = a_z_3 * dnow;
        const double db_y_5 = a_y_3 * dnow;
        const double db_x_5 = a_x_3 * dnow;
        const double da_z_5 = b_z_6 * dnow;
        const double da_y_5 = b_y_6 * dnow;
        const double da_x_5 = b_x_6 * dnow;
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
    }
    gpuad_block_sum(&ddt[0], ddt_2);
}

// adjoint of `deform`
//   not saved  position                      never overwritten by this launch
//   not saved  velocity                      never overwritten by this launch
//   not saved  corner                        never overwritten by this launch
//   not saved  reference                     never overwritten by this launch
//   not saved  volume                        no derivative needs what was overwritten
//   not saved  change                        no derivative needs what was overwritten
//   not saved  rate                          no derivative needs what was overwritten
//   not saved  length                        no derivative needs what was overwritten
//   stack      choice_saved         local    6 entries in each thread
//   shadow     dposition            atomic   its index is read from `corner`, so that two threads may meet in one element (shock_hydrodynamics.cu:117:103)
//   shadow     dvelocity            atomic   its index is read from `corner`, so that two threads may meet in one element (shock_hydrodynamics.cu:117:103)
//   shadow     dreference           plain    no two threads touch one element (shock_hydrodynamics.cu:211:55)
//   shadow     dvolume              plain    no two threads touch one element (shock_hydrodynamics.cu:213:5)
//   shadow     dchange              plain    no two threads touch one element (shock_hydrodynamics.cu:212:5)
//   shadow     drate                plain    no two threads touch one element (shock_hydrodynamics.cu:232:5)
//   shadow     dlength              plain    no two threads touch one element (shock_hydrodynamics.cu:219:5)
//   shadow     ddt                  reduced  summed over each block, then one atomic addition a block (shock_hydrodynamics.cu:203:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
//   assumed    shock_hydrodynamics.cu:117:59: an index of `position` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:117:77: an index of `position` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:117:103: an index of `position` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:117:59: an index of `velocity` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:117:77: an index of `velocity` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:117:103: an index of `velocity` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:216:27: an index of `x` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:216:43: an index of `x` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:216:62: an index of `x` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:216:78: an index of `x` is data, taken to be in bounds
