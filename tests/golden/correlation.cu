// gpuad: adjoint of `correlation` (correlation.cu:21:28), for Duplicated first, second, cost; Const channels, height, width, reach.
// 1. put the seeds into dcost. dfirst, dsecond are added to: clear first.
// 2. launch correlation_gather with grid (2, 2, 3) and the block of correlation, threads_z = 5.
// 3. launch correlation_reverse with the same grid and block.
// On exit dcost holds the adjoint of the state before the launch; dfirst, dsecond have grown by the gradient.
// Holds where no two threads touch one element of dcost
// and the gather's threads do not meet in dfirst, dsecond, as for grid (2, 2, 25), block (8, 8, 1), channels = 3, height = 11, width = 14, reach = 2.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void correlation_gather(
    const float* first, float* dfirst, const float* second, float* dsecond, const float* dcost, int channels,
    int height, int width, int reach, int threads_z)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int c = blockIdx.z * blockDim.z + threadIdx.z;
    float dsecond_2 = 0.0f;
    float dfirst_2 = 0.0f;
    if (c < channels) {
        for (int digit = 0; digit < 2 * reach + 1; ++digit) {
            if (x + reach - digit >= 0 && x + reach - digit < width) {
                for (int z = 0; z < threads_z; ++z) {
                    if (y - z >= 0 && y - z < height) {
                        if (x < width && y - reach >= 0 && y - reach < height) {
                            dsecond_2 += first[(c * height + (y - z)) * width + (x + reach - digit)]
                                * dcost[((z * (2 * reach + 1) + digit) * (unsigned int)height + (y - z)) * width
                                + (x + reach - digit)];
                        }
                    }
                }
            }
        }
    }
    if (c < channels && x < width && y < height) {
        for (int digit = 0; digit < 2 * reach + 1; ++digit) {
            int there_x = x + digit - reach;
            for (int z = 0; z < threads_z; ++z) {
                int there_y = y + z - reach;
                if (there_x >= 0 && there_x < width && there_y >= 0 && there_y < height) {
                    dfirst_2 += second[(c * height + there_y) * width + there_x]
                        * dcost[((z * (2 * reach + 1) + digit) * (unsigned int)height + y) * width + x];
                }
            }
        }
    }
    if (dsecond_2 != 0.0f) {
        dsecond[height * width * c + width * y + x + (-(reach * width))] += gpuad_chain(dsecond_2, 1.0f / channels);
    }
    if (dfirst_2 != 0.0f) {
        dfirst[height * width * c + width * y + x] += gpuad_chain(dfirst_2, 1.0f / channels);
    }
}

extern "C" __global__ void correlation_reverse(
    const float* first, const float* dfirst, const float* second, const float* dsecond, const float* cost,
    float* dcost, int channels, int height, int width, int reach)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        dcost[(blockIdx.z * height + y) * width + x] = 0.0f;
    }
}

// adjoint of `correlation`
//   not saved  first                         never overwritten by this launch
//   not saved  second                        never overwritten by this launch
//   not saved  cost                          no derivative needs what was overwritten
//   shadow     dfirst               gather   each thread of correlation_gather collects for an element of its own (correlation.cu:31:20)
//   shadow     dsecond              gather   each thread of correlation_gather collects for an element of its own (correlation.cu:31:58)
//   shadow     dcost                plain    no two threads touch one element (correlation.cu:34:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
