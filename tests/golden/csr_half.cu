// gpuad: adjoint of `csr_half` (csr_half.cu:29:28), for Duplicated value, x, bias, y; Const row, column, rows.
// 1. put the seeds into dy. dvalue, dx, dbias are added to: clear first.
// 2. launch csr_half_reverse with the same grid and block.
// On exit dy holds the adjoint of the state before the launch; dvalue, dx, dbias have grown by the gradient.
// Holds where no two threads touch one element of dbias, dy, as for grid (1, 1, 1), block (32, 1, 1), rows = 60.

// Halves are kept as their bits, and computed with in float.
__device__ inline float gpuad_from_half(unsigned short bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
__device__ inline unsigned short gpuad_to_half(float value)
{
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
__device__ inline float gpuad_half(float value) { return gpuad_from_half(gpuad_to_half(value)); }
__device__ inline double gpuad_half(double value)
{
    unsigned short bits;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(value));
    return gpuad_from_half(bits);
}

extern "C" __global__ void csr_half_reverse(
    const int* row, const int* column, const unsigned short* value, float* dvalue, const unsigned short* x,
    float* dx, const unsigned short* bias, float* dbias, const float* y, float* dy, int rows)
{
    int pair = blockIdx.x * blockDim.x + threadIdx.x;
    if (2 * pair < rows) {
        const float a_x = gpuad_from_half(bias[pair * 2LL]);
        const float a_y = gpuad_from_half(bias[pair * 2LL + 1LL]);
        int i = 2 * pair;
        int k = row[i];
        int row_2 = row[i + 1];
        float sum = 0.0f;
        for (int k_2 = k; k_2 < row_2; ++k_2) {
            sum += gpuad_from_half(value[k_2]) * gpuad_from_half(x[column[k_2]]);
        }
        int i_2 = 2 * pair + 1;
        int k_2 = row[i_2];
        int row_3 = row[i_2 + 1];
        float sum_2 = 0.0f;
        for (int k_3 = k_2; k_3 < row_3; ++k_3) {
            sum_2 += gpuad_from_half(value[k_3]) * gpuad_from_half(x[column[k_3]]);
        }
        float dy_2 = dy[2 * pair + 1];
        dy[2 * pair + 1] = 0.0f;
        dy_2 = sum_2 + a_y >= 0.0f ? dy_2 : 0.0f;
        for (int k_3 = k_2; k_3 < row_3; ++k_3) {
            int column_2 = column[k_3];
            const float x_2 = gpuad_from_half(x[column_2]);
            atomicAdd(&dx[column_2], gpuad_from_half(value[k_3]) * dy_2);
            atomicAdd(&dvalue[k_3], x_2 * dy_2);
        }
        float dy_3 = dy[2 * pair];
        dy[2 * pair] = 0.0f;
        dy_3 = sum + a_x >= 0.0f ? dy_3 : 0.0f;
        for (int k_3 = k; k_3 < row_2; ++k_3) {
            int column_2 = column[k_3];
            const float x_2 = gpuad_from_half(x[column_2]);
            atomicAdd(&dx[column_2], gpuad_from_half(value[k_3]) * dy_3);
            atomicAdd(&dvalue[k_3], x_2 * dy_3);
        }
        dbias[pair * 2LL + 1LL] += dy_2;
        dbias[pair * 2LL] += dy_3;
    }
}

// adjoint of `csr_half`
//   not saved  row                           never overwritten by this launch
//   not saved  column                        never overwritten by this launch
//   not saved  value                         never overwritten by this launch
//   not saved  x                             never overwritten by this launch
//   not saved  bias                          never overwritten by this launch
//   not saved  y                             no derivative needs what was overwritten
//   shadow     dvalue               atomic   it is not proved that no two threads meet in one element (csr_half.cu:25:67)
//   shadow     dx                   atomic   its index is read from `column`, so that two threads may meet in one element (csr_half.cu:25:92)
//   shadow     dbias                plain    no two threads touch one element (csr_half.cu:33:37)
//   shadow     dy                   plain    no two threads touch one element (csr_half.cu:35:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
//   assumed    csr_half.cu:25:92: an index of `x` is data, taken to be in bounds
