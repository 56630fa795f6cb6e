// gpuad: adjoint of `propagate` (beam.cu:39:28), for Duplicated field, next, index; Active dz, kerr; Const ny, nx.
// 1. put the seeds into dnext. dfield, dindex, ddz, dkerr are added to: clear first.
// 2. launch propagate_gather with grid (3, 3, 1) and the block of propagate.
// 3. launch propagate_reverse with the same grid and block.
// On exit dnext holds the adjoint of the state before the launch; dfield, dindex, ddz, dkerr have grown by the gradient.
// Holds where no two threads touch one element of dindex, dnext
// and the gather's threads do not meet in dfield, as for grid (3, 3, 1), block (16, 8, 1), ny = 20, nx = 33.

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

extern "C" __global__ void propagate_gather(
    const float* field, float* dfield, const float* dnext, const float* index, float dz, float kerr, int ny,
    int nx)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int i = y * nx + x;
    float dfield_2 = 0.0f;
    float dfield_3 = 0.0f;
    if (x >= 1 && y >= 1 && x < nx - 1 && y < ny - 1) {
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
        const float im_3 = dz * (index[i] + kerr * (u_re * u_re + u_im * u_im));
        const float m = expf(0.0f);
        const float re_3 = m * cosf(im_3);
        const float im_4 = m * sinf(im_3);
        const float im_5 = 0.5f * dz;
        float re_4 = 0.0f * re - im_5 * im;
        im = 0.0f * im + im_5 * re;
        re_4 += u_re;
        im += u_im;
        const float dnext_2 = dnext[i * 2LL + 1LL];
        const float dnext_3 = dnext[i * 2LL];
        const float dim = re_3 * dnext_2 - im_4 * dnext_3;
        const float dre = im_4 * dnext_2 + re_3 * dnext_3;
        const float dim_2 = 2.0f * (kerr * (dz
            * (cosf(im_3) * (m * (re_4 * dnext_2 - im * dnext_3))
            - sinf(im_3) * (m * (im * dnext_2 + re_4 * dnext_3)))));
        dfield_2 += dim + u_im * dim_2 + 4.0f * (im_5 * dre);
        dfield_3 += dre + u_re * dim_2 - 4.0f * (im_5 * dim);
    }
    if (x >= 1 && y >= 2 && x < nx - 1 && y < ny) {
        const float u_re = field[(i - nx) * 2LL];
        const float u_im = field[(i - nx) * 2LL + 1LL];
        float im = dz * (index[i - nx] + kerr * (u_re * u_re + u_im * u_im));
        const float m = expf(0.0f);
        const float re = m * cosf(im);
        im = m * sinf(im);
        const float im_2 = 0.5f * dz;
        const float dnext_2 = dnext[(i - nx) * 2LL + 1LL];
        const float dnext_3 = dnext[(i - nx) * 2LL];
        dfield_2 -= im_2 * (im * dnext_2 + re * dnext_3);
        dfield_3 += im_2 * (re * dnext_2 - im * dnext_3);
    }
    if (x >= 1 && x < nx - 1 && y < ny - 2) {
        const float u_re = field[(i + nx) * 2LL];
        const float u_im = field[(i + nx) * 2LL + 1LL];
        float im = dz * (index[i + nx] + kerr * (u_re * u_re + u_im * u_im));
        const float m = expf(0.0f);
        const float re = m * cosf(im);
        im = m * sinf(im);
        const float im_2 = 0.5f * dz;
        const float dnext_2 = dnext[(i + nx) * 2LL + 1LL];
        const float dnext_3 = dnext[(i + nx) * 2LL];
        dfield_2 -= im_2 * (im * dnext_2 + re * dnext_3);
        dfield_3 += im_2 * (re * dnext_2 - im * dnext_3);
    }
    if (x >= 2 && y >= 1 && x < nx && y < ny - 1) {
        const float u_re = field[(i - 1) * 2LL];
        const float u_im = field[(i - 1) * 2LL + 1LL];
        float im = dz * (index[i - 1] + kerr * (u_re * u_re + u_im * u_im));
        const float m = expf(0.0f);
        const float re = m * cosf(im);
        im = m * sinf(im);
        const float im_2 = 0.5f * dz;
        const float dnext_2 = dnext[(i - 1) * 2LL + 1LL];
        const float dnext_3 = dnext[(i - 1) * 2LL];
        dfield_2 -= im_2 * (im * dnext_2 + re * dnext_3);
        dfield_3 += im_2 * (re * dnext_2 - im * dnext_3);
    }
    if (y >= 1 && x < nx - 2 && y < ny - 1) {
        const float u_re = field[(i + 1) * 2LL];
        const float u_im = field[(i + 1) * 2LL + 1LL];
        float im = dz * (index[i + 1] + kerr * (u_re * u_re + u_im * u_im));
        const float m = expf(0.0f);
        const float re = m * cosf(im);
        im = m * sinf(im);
        const float im_2 = 0.5f * dz;
        const float dnext_2 = dnext[(i + 1) * 2LL + 1LL];
        const float dnext_3 = dnext[(i + 1) * 2LL];
        dfield_2 -= im_2 * (im * dnext_2 + re * dnext_3);
        dfield_3 += im_2 * (re * dnext_2 - im * dnext_3);
    }
    if (dfield_2 != 0.0f) {
        dfield[i * 2LL + 1LL] += dfield_2;
    }
    if (dfield_3 != 0.0f) {
        dfield[i * 2LL] += dfield_3;
    }
}

extern "C" __global__ void propagate_reverse(
    const float* field, const float* dfield, const float* next, float* dnext, const float* index,
    float* dindex, float dz, double* ddz, float kerr, double* dkerr, int ny, int nx)
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
        float im_5 = 0.5f * dz;
        float re_4 = 0.0f * re - im_5 * im;
        im_5 = 0.0f * im + im_5 * re;
        re_4 += u_re;
        im_5 += u_im;
        const float dnext_2 = dnext[i * 2LL + 1LL];
        dnext[i * 2LL + 1LL] = 0.0f;
        const float dnext_3 = dnext[i * 2LL];
        dnext[i * 2LL] = 0.0f;
        const float dim = cosf(im_3) * (m * (re_4 * dnext_2 - im_5 * dnext_3))
            - sinf(im_3) * (m * (im_5 * dnext_2 + re_4 * dnext_3));
        const float dim_2 = dz * dim;
        dindex[i] += dim_2;
        const float dim_3 = re_3 * dnext_2 - im_4 * dnext_3;
        const float dre = im_4 * dnext_2 + re_3 * dnext_3;
        ddz_2 = 0.5f * (re * dim_3 - im * dre) + (index_2 + kerr * (u_re * u_re + u_im * u_im)) * dim;
        dkerr_2 = (u_re * u_re + u_im * u_im) * dim_2;
    }
    gpuad_block_sum(&ddz[0], (double)ddz_2);
    gpuad_block_sum(&dkerr[0], (double)dkerr_2);
}

// adjoint of `propagate`
//   not saved  field                         never overwritten by this launch
//   not saved  next                          no derivative needs what was overwritten
//   not saved  index                         never overwritten by this launch
//   shadow     dfield               gather   each thread of propagate_gather collects for an element of its own (beam.cu:46:29)
//   shadow     dnext                plain    no two threads touch one element (beam.cu:48:5)
//   shadow     dindex               plain    no two threads touch one element (beam.cu:47:64)
//   shadow     ddz                  reduced  summed over each block, then one atomic addition a block (beam.cu:39:28)
//   shadow     dkerr                reduced  summed over each block, then one atomic addition a block (beam.cu:39:28)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
