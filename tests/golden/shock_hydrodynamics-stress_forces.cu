// gpuad: adjoint of `stress_forces` (shock_hydrodynamics.cu:146:28), for Duplicated position, pressure, viscosity, force; Const corner, elements, nodes.
// 1. put the seeds into dforce. dposition, dpressure, dviscosity are added to: clear first.
// 2. launch stress_forces_reverse with the same grid and block.
// On exit dforce holds the adjoint of the state before the launch; dposition, dpressure, dviscosity have grown by the gradient.
// Holds where no two threads touch one element of dpressure, dviscosity, as for grid (1, 1, 1), block (32, 1, 1), elements = 27, nodes = 64.

extern "C" __global__ void stress_forces_reverse(
    const double* position, double* dposition, const int* corner, const double* pressure, double* dpressure,
    const double* viscosity, double* dviscosity, const double* force, const double* dforce, int elements,
    int nodes)
{
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e < elements) {
        const int face[24] = {0, 3, 2, 1, 0, 1, 5, 4, 1, 2, 6, 5, 2, 3, 7, 6, 3, 0, 4, 7, 4, 5, 6, 7};
        double x[24];
        for (int c = 0; c < 8; ++c) {
            int corner_2 = corner[e * 8 + (long long)c];
            x[c * 3] = position[corner_2];
            x[c * 3 + 1] = position[nodes + corner_2];
            x[c * 3 + 2] = position[2 * nodes + corner_2];
        }
        const double pushes = (pressure[e] + viscosity[e]) / 8.0;
        double dx[24] = {};
        double dpush[24] = {};
        for (int c = 0; c < 8; ++c) {
            int corner_2 = corner[e * 8 + (long long)c];
            dpush[c * 3 + 2] += dforce[2 * nodes + corner_2];
            dpush[c * 3 + 1] += dforce[nodes + corner_2];
            dpush[c * 3] += dforce[corner_2];
        }
        double dpushes = 0.0;
        for (int f = 5; f >= 0; --f) {
            int face_2 = face[f * 4 + 2];
            int face_3 = face[f * 4];
            int face_4 = face[f * 4 + 3];
            int face_5 = face[f * 4 + 1];
            const double a_x = x[face_2 * 3] - x[face_3 * 3];
            const double a_y = x[face_2 * 3 + 1] - x[face_3 * 3 + 1];
            const double a_z = x[face_2 * 3 + 2] - x[face_3 * 3 + 2];
            const double b_x = x[face_4 * 3] - x[face_5 * 3];
            const double b_y = x[face_4 * 3 + 1] - x[face_5 * 3 + 1];
            const double b_z = x[face_4 * 3 + 2] - x[face_5 * 3 + 2];
            double darea_z = 0.0;
            double darea_y = 0.0;
            double darea_x = 0.0;
            for (int k = 3; k >= 0; --k) {
                int face_6 = face[f * 4 + k];
                const double dpush_2 = dpush[face_6 * 3 + 2];
                dpush[face_6 * 3 + 2] = 0.0;
                const double dpush_3 = dpush[face_6 * 3 + 1];
                dpush[face_6 * 3 + 1] = 0.0;
                const double dpush_4 = dpush[face_6 * 3];
                dpush[face_6 * 3] = 0.0;
                dpush[face_6 * 3 + 2] += dpush_2;
                dpush[face_6 * 3 + 1] += dpush_3;
                dpush[face_6 * 3] += dpush_4;
                darea_z += dpush_2;
                darea_y += dpush_3;
                darea_x += dpush_4;
            }
            const double da_z = pushes * darea_z;
            const double da_y = pushes * darea_y;
            const double da_x = pushes * darea_x;
            const double db_z = (darea_y != 0.0 ? -(a_x * da_y) : 0.0) + (darea_x != 0.0 ? a_y * da_x : 0.0);
            const double db_y = (darea_z != 0.0 ? a_x * da_z : 0.0) + (darea_x != 0.0 ? -(a_z * da_x) : 0.0);
            const double db_x = (darea_z != 0.0 ? -(a_y * da_z) : 0.0) + (darea_y != 0.0 ? a_z * da_y : 0.0);
            const double da_z_2 = (darea_y != 0.0 ? b_x * da_y : 0.0) + (darea_x != 0.0 ? -(b_y * da_x) : 0.0);
            const double da_y_2 = (darea_z != 0.0 ? -(b_x * da_z) : 0.0) + (darea_x != 0.0 ? b_z * da_x : 0.0);
            const double da_x_2 = (darea_z != 0.0 ? b_y * da_z : 0.0) + (darea_y != 0.0 ? -(b_z * da_y) : 0.0);
            dx[face_5 * 3 + 2] -= db_z;
            dx[face_5 * 3 + 1] -= db_y;
            dx[face_5 * 3] -= db_x;
            dx[face_4 * 3 + 2] += db_z;
            dx[face_4 * 3 + 1] += db_y;
            dx[face_4 * 3] += db_x;
            dx[face_3 * 3 + 2] -= da_z_2;
            dx[face_3 * 3 + 1] -= da_y_2;
            dx[face_3 * 3] -= da_x_2;
            dx[face_2 * 3 + 2] += da_z_2;
            dx[face_2 * 3 + 1] += da_y_2;
            dx[face_2 * 3] += da_x_2;
            const double a_x_2 = a_y * b_z - a_z * b_y;
            const double a_y_2 = a_z * b_x - a_x * b_z;
            const double a_z_2 = a_x * b_y - a_y * b_x;
            dpushes += (darea_z != 0.0 ? a_z_2 * darea_z : 0.0) + (darea_y != 0.0 ? a_y_2 * darea_y : 0.0)
                + (darea_x != 0.0 ? a_x_2 * darea_x : 0.0);
        }
        dpushes /= 8.0;
        if (dpushes != 0.0) {
            dviscosity[e] += dpushes;
        }
        if (dpushes != 0.0) {
            dpressure[e] += dpushes;
        }
        for (int c = 7; c >= 0; --c) {
            dpush[c * 3 + 2] = 0.0;  // overwritten with something inactive
            dpush[c * 3 + 1] = 0.0;  // overwritten with something inactive
            dpush[c * 3] = 0.0;  // overwritten with something inactive
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
}

// adjoint of `stress_forces`
//   not saved  position                      never overwritten by this launch
//   not saved  corner                        never overwritten by this launch
//   not saved  pressure                      never overwritten by this launch
//   not saved  viscosity                     never overwritten by this launch
//   not saved  force                         no derivative needs what was overwritten
//   shadow     dposition            atomic   its index is read from `corner`, so that two threads may meet in one element (shock_hydrodynamics.cu:117:103)
//   shadow     dpressure            plain    no two threads touch one element (shock_hydrodynamics.cu:154:28)
//   shadow     dviscosity           plain    no two threads touch one element (shock_hydrodynamics.cu:154:42)
//   shadow     dforce               plain    it is only read (shock_hydrodynamics.cu:124:9)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
//   assumed    shock_hydrodynamics.cu:117:59: an index of `position` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:117:77: an index of `position` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:117:103: an index of `position` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:156:45: an index of `x` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:156:61: an index of `x` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:156:76: an index of `x` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:156:92: an index of `x` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:157:56: an index of `push` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:157:37: an index of `push` is data, taken to be in bounds and stored to by one thread, which is checked before each launch
//   assumed    shock_hydrodynamics.cu:122:9: an index of `force` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:123:9: an index of `force` is data, taken to be in bounds
//   assumed    shock_hydrodynamics.cu:124:9: an index of `force` is data, taken to be in bounds
