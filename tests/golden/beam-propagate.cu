// gpuad: adjoint of `propagate` (beam.cu:39:28), for Duplicated field, next, index; Active dz, kerr; Const ny, nx.
// 1. put the seeds into dnext. dfield, dindex, ddz, dkerr are added to: clear first.
// 2. launch propagate_reverse with the same grid and block.
// On exit dnext holds the adjoint of the state before the launch; dfield, dindex, ddz, dkerr have grown by the gradient.
// Holds where no two threads touch one element of dindex, dnext, as for grid (3, 3, 1), block (16, 8, 1), ny = 20, nx = 33.

// Adds the sum of `value` over all threads of the block to *target, with one atomicAdd. Every thread of the block must make the call,
// with the same target; the block may have any shape. The sum is formed in double.
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
        atomicAdd(target, (T)value);
    }
    __syncthreads();
}

extern "C" __global__ void propagate_reverse(
    const float* field, float* dfield, const float* next, float* dnext, const float* index, float* dindex,
    float dz, double* ddz, float kerr, double* dkerr, int ny, int nx)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    float ddz_2 = 0.0f;
    float dkerr_2 = 0.0f;
    if (x >= 1 && y >= 1 && x < nx - 1 && y < ny - 1) {
        int i = y * nx + x;
        const float u_re = field[i * 2LL];
        const float u_im = field[i * 2LL + 1LL];
        float re = field[(i - 1) * 2LL] + field[(i + 1) * 2LL];
        float im = field[(i - 1) * 2LL + 1LL] + field[(i + 1) * 2LL + 1LL];
        re += field[(i - nx) * 2LL];
        im += field[(i - nx) * 2LL + 1LL];
        re += field[(i + nx) * 2LL];
        im += field[(i + nx) * 2LL + 1LL];
        const float re_2 = u_re * 4.0f;
        const float im_2 = u_im * 4.0f;
        re -= re_2;
        im -= im_2;
        const float index_2 = index[i];
        const float im_3 = dz * (index_2 + kerr * (u_re * u_re + u_im * u_im));
        const float m = expf(0.0f);
        const float re_3 = m * cosf(im_3);
        const float im_4 = m * sinf(im_3);
        const float im_5 = 0.5f * dz;
        float re_4 = 0.0f * re - im_5 * im;
        float im_6 = 0.0f * im + im_5 * re;
        re_4 += u_re;
        im_6 += u_im;
        const float dnext_2 = dnext[i * 2LL + 1LL];
        dnext[i * 2LL + 1LL] = 0.0f;
        const float dnext_3 = dnext[i * 2LL];
        dnext[i * 2LL] = 0.0f;
        const float dim = re_3 * dnext_2 - im_4 * dnext_3;
        const float dre = im_4 * dnext_2 + re_3 * dnext_3;
        const float dim_2 = cosf(im_3) * (m * (re_4 * dnext_2 - im_6 * dnext_3))
            - sinf(im_3) * (m * (im_6 * dnext_2 + re_4 * dnext_3));
        const float dim_3 = dz * dim_2;
        const float dim_4 = kerr * dim_3;
        dindex[i] += dim_3;
        const float dim_5 = -(im_5 * dre);
        const float dre_2 = im_5 * dim;
        atomicAdd(&dfield[(i + nx) * 2LL + 1LL], dim_5);
        atomicAdd(&dfield[(i + nx) * 2LL], dre_2);
        atomicAdd(&dfield[(i - nx) * 2LL + 1LL], dim_5);
        atomicAdd(&dfield[(i - nx) * 2LL], dre_2);
        atomicAdd(&dfield[(i + 1) * 2LL + 1LL], dim_5);
        atomicAdd(&dfield[(i - 1) * 2LL + 1LL], dim_5);
        atomicAdd(&dfield[(i + 1) * 2LL], dre_2);
        atomicAdd(&dfield[(i - 1) * 2LL], dre_2);
        atomicAdd(&dfield[i * 2LL + 1LL], dim + 2.0f * (u_im * dim_4) - 4.0f * dim_5);
        atomicAdd(&dfield[i * 2LL], dre + 2.0f * (u_re * dim_4) - 4.0f * dre_2);
        ddz_2 = 0.5f * (re * dim - im * dre) + (index_2 + kerr * (u_re * u_re + u_im * u_im)) * dim_2;
        dkerr_2 = (u_re * u_re + u_im * u_im) * dim_3;
    }
    gpuad_block_sum(&ddz[0], (double)ddz_2);
    gpuad_block_sum(&dkerr[0], (double)dkerr_2);
}

// adjoint of `propagate`
//   not saved  field                         never overwritten by this launch
//   not saved  next                          no derivative needs what was overwritten
//   not saved  index                         never overwritten by this launch
//   shadow     dfield               atomic   it is not proved that no two threads meet in one element (beam.cu:46:29)
//   shadow     dnext                plain    no two threads touch one element (beam.cu:48:5)
//   shadow     dindex               plain    no two threads touch one element (beam.cu:47:64)
//   shadow     ddz                  reduced  summed over each block, then one atomic addition a block (beam.cu:39:28)
//   shadow     dkerr                reduced  summed over each block, then one atomic addition a block (beam.cu:39:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
