// gpuad: adjoint of `channel` (channel.cu:24:28), for Duplicated f, g; Active omega, push; Const solid, ny, nx.
// 1. put the seeds into dg. df, domega, dpush are added to: clear first.
// 2. launch channel_reverse with the same grid and block.
// On exit dg holds the adjoint of the state before the launch; df, domega, dpush have grown by the gradient.
// Holds where no two threads touch one element of df, dg, as for grid (1, 5, 1), block (32, 4, 1), ny = 20, nx = 24.

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

extern "C" __global__ void channel_reverse(
    const float* f, float* df, const float* g, float* dg, const int* solid, float omega, double* domega,
    float push, double* dpush, int ny, int nx)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    float domega_2 = 0.0f;
    float dpush_2 = 0.0f;
    if (x < nx && y < ny) {
        int here = y * nx + x;
        int cells = nx * ny;
        if (!(solid[here] != 0)) {
            int left = (x + nx - 1) % nx;
            int right = (x + 1) % nx;
            int below = (y + ny - 1) % ny * nx;
            int above = (y + 1) % ny * nx;
            int row = y * nx;
            const float f_2 = f[here];
            const float f_3 = f[cells + row + left];
            const float f_4 = f[2 * cells + below + x];
            const float f_5 = f[3 * cells + row + right];
            const float f_6 = f[4 * cells + above + x];
            const float f_7 = f[5 * cells + below + left];
            const float f_8 = f[6 * cells + below + right];
            const float f_9 = f[7 * cells + above + right];
            const float f_10 = f[8 * cells + above + left];
            const float rho = f_2 + f_3 + f_4 + f_5 + f_6 + f_7 + f_8 + f_9 + f_10;
            const float ux = 3.0f * (f_3 - f_5 + f_7 - f_8 - f_9 + f_10) / rho + push;
            const float uy = 3.0f * (f_4 - f_6 + f_7 + f_8 - f_9 - f_10) / rho;
            const float square = (ux * ux + uy * uy) / 6.0f;
            const float weight = 4.0f / 9.0f;
            const float weight_2 = 1.0f / 9.0f;
            const float weight_3 = 1.0f / 9.0f;
            const float weight_4 = 1.0f / 9.0f;
            const float eu = -ux;
            const float weight_5 = 1.0f / 9.0f;
            const float eu_2 = -uy;
            const float weight_6 = 1.0f / 36.0f;
            const float eu_3 = ux + uy;
            const float weight_7 = 1.0f / 36.0f;
            const float eu_4 = uy - ux;
            const float weight_8 = 1.0f / 36.0f;
            const float eu_5 = -ux - uy;
            const float weight_9 = 1.0f / 36.0f;
            const float eu_6 = ux - uy;
            const float dg_2 = dg[8 * cells + here];
            dg[8 * cells + here] = 0.0f;
            const float dg_3 = omega * dg_2;
            const float dg_4 = weight_9 * rho * dg_3;
            const float deu = dg_4 + eu_6 * dg_4;
            const float dg_5 = dg[7 * cells + here];
            dg[7 * cells + here] = 0.0f;
            const float dg_6 = omega * dg_5;
            const float dg_7 = weight_8 * rho * dg_6;
            const float deu_2 = dg_7 + eu_5 * dg_7;
            const float dg_8 = dg[6 * cells + here];
            dg[6 * cells + here] = 0.0f;
            const float dg_9 = omega * dg_8;
            const float dg_10 = weight_7 * rho * dg_9;
            const float deu_3 = dg_10 + eu_4 * dg_10;
            const float dg_11 = dg[5 * cells + here];
            dg[5 * cells + here] = 0.0f;
            const float dg_12 = omega * dg_11;
            const float dg_13 = weight_6 * rho * dg_12;
            const float deu_4 = dg_13 + eu_3 * dg_13;
            const float dg_14 = dg[4 * cells + here];
            dg[4 * cells + here] = 0.0f;
            const float dg_15 = omega * dg_14;
            const float dg_16 = weight_5 * rho * dg_15;
            const float dg_17 = dg[3 * cells + here];
            dg[3 * cells + here] = 0.0f;
            const float dg_18 = omega * dg_17;
            const float dg_19 = weight_4 * rho * dg_18;
            const float dg_20 = dg[2 * cells + here];
            dg[2 * cells + here] = 0.0f;
            const float dg_21 = omega * dg_20;
            const float dg_22 = weight_3 * rho * dg_21;
            const float dg_23 = dg[cells + here];
            dg[cells + here] = 0.0f;
            const float dg_24 = omega * dg_23;
            const float dg_25 = weight_2 * rho * dg_24;
            const float dg_26 = dg[here];
            dg[here] = 0.0f;
            const float dg_27 = omega * dg_26;
            const float dsquare = (-dg_4 - dg_7 - dg_10 - dg_13 - dg_16 - dg_19 - dg_22 - dg_25 - weight * rho * dg_27)
                / 6.0f;
            const float duy = gpuad_chain(-deu - deu_2 + deu_3 + deu_4 - (dg_16 + eu_2 * dg_16) + dg_22 + uy * dg_22
                + 2.0f * (uy * dsquare), 1.0f / rho);
            const float duy_2 = 3.0f * duy;
            const float dux = deu - deu_2 - deu_3 + deu_4 - (dg_19 + eu * dg_19) + dg_25 + ux * dg_25
                + 2.0f * (ux * dsquare);
            const float dux_2 = gpuad_chain(dux, 1.0f / rho);
            const float dux_3 = 3.0f * dux_2;
            const float drho = weight_9 * ((1.0f + eu_6 + 0.5f * eu_6 * eu_6 - square) * dg_3)
                + weight_8 * ((1.0f + eu_5 + 0.5f * eu_5 * eu_5 - square) * dg_6)
                + weight_7 * ((1.0f + eu_4 + 0.5f * eu_4 * eu_4 - square) * dg_9)
                + weight_6 * ((1.0f + eu_3 + 0.5f * eu_3 * eu_3 - square) * dg_12)
                + weight_5 * ((1.0f + eu_2 + 0.5f * eu_2 * eu_2 - square) * dg_15)
                + weight_4 * ((1.0f + eu + 0.5f * eu * eu - square) * dg_18)
                + weight_3 * ((1.0f + uy + 0.5f * uy * uy - square) * dg_21)
                + weight_2 * ((1.0f + ux + 0.5f * ux * ux - square) * dg_24)
                + weight * ((1.0f + 0.0f + 0.5f * 0.0f * 0.0f - square) * dg_27) - gpuad_chain(duy, uy)
                - gpuad_chain(dux_2, 3.0f * (f_3 - f_5 + f_7 - f_8 - f_9 + f_10) / rho);
            df[8 * cells + above + left] += dg_2 - dg_3 - duy_2 + dux_3 + drho;
            df[7 * cells + above + right] += dg_5 - dg_6 - duy_2 - dux_3 + drho;
            df[6 * cells + below + right] += dg_8 - dg_9 + duy_2 - dux_3 + drho;
            df[5 * cells + below + left] += dg_11 - dg_12 + duy_2 + dux_3 + drho;
            df[4 * cells + above + x] += dg_14 - dg_15 - duy_2 + drho;
            df[3 * cells + row + right] += dg_17 - dg_18 - dux_3 + drho;
            df[2 * cells + below + x] += dg_20 - dg_21 + duy_2 + drho;
            df[cells + row + left] += dg_23 - dg_24 + dux_3 + drho;
            df[here] += dg_26 - dg_27 + drho;
            domega_2 = (weight_9 * rho * (1.0f + eu_6 + 0.5f * eu_6 * eu_6 - square) - f_10) * dg_2
                + (weight_8 * rho * (1.0f + eu_5 + 0.5f * eu_5 * eu_5 - square) - f_9) * dg_5
                + (weight_7 * rho * (1.0f + eu_4 + 0.5f * eu_4 * eu_4 - square) - f_8) * dg_8
                + (weight_6 * rho * (1.0f + eu_3 + 0.5f * eu_3 * eu_3 - square) - f_7) * dg_11
                + (weight_5 * rho * (1.0f + eu_2 + 0.5f * eu_2 * eu_2 - square) - f_6) * dg_14
                + (weight_4 * rho * (1.0f + eu + 0.5f * eu * eu - square) - f_5) * dg_17
                + (weight_3 * rho * (1.0f + uy + 0.5f * uy * uy - square) - f_4) * dg_20
                + (weight_2 * rho * (1.0f + ux + 0.5f * ux * ux - square) - f_3) * dg_23
                + (weight * rho * (1.0f + 0.0f + 0.5f * 0.0f * 0.0f - square) - f_2) * dg_26;
            dpush_2 = dux;
        }
    }
    gpuad_block_sum(&domega[0], (double)domega_2);
    gpuad_block_sum(&dpush[0], (double)dpush_2);
}

// adjoint of `channel`
//   not saved  f                             never overwritten by this launch
//   not saved  g                             no derivative needs what was overwritten
//   not saved  solid                         never overwritten by this launch
//   shadow     df                   plain    no two threads touch one element (channel.cu:40:12)
//   shadow     dg                   plain    no two threads touch one element (channel.cu:53:5)
//   shadow     domega               reduced  summed over each block, then one atomic addition a block (channel.cu:24:28)
//   shadow     dpush                reduced  summed over each block, then one atomic addition a block (channel.cu:24:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
