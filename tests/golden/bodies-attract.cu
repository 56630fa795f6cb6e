// gpuad: adjoint of `attract` (bodies.cu:45:28), for Duplicated body, acceleration; Const softening, n.
// 1. put the seeds into dacceleration. dbody is added to: clear first.
// 2. launch attract_gather with grid (3, 1, 1) and the block of attract.
// 3. launch attract_reverse with the same grid and block.
// On exit dacceleration holds the adjoint of the state before the launch; dbody has grown by the gradient.
// Holds where no two threads touch one element of dacceleration
// and the gather's threads do not meet in dbody, as for grid (3, 1, 1), block (16, 1, 1), n = 40.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void attract_gather(
    const float* body, float* dbody, const float* dacceleration, float softening, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float dbody_2 = 0.0f;
    float dbody_3 = 0.0f;
    float dbody_4 = 0.0f;
    float dbody_5 = 0.0f;
    if (i < n) {
        const float self_x = body[i * 4LL];
        const float self_y = body[i * 4LL + 1LL];
        const float self_z = body[i * 4LL + 2LL];
        const float dacceleration_2 = dacceleration[i * 4LL + 2LL];
        const float dacceleration_3 = dacceleration[i * 4LL + 1LL];
        const float dacceleration_4 = dacceleration[i * 4LL];
        for (int j = 0; j < n; ++j) {
            const float to_w = body[j * 4LL + 3LL];
            const float r_x = body[j * 4LL] - self_x;
            const float r_y = body[j * 4LL + 1LL] - self_y;
            const float r_z = body[j * 4LL + 2LL] - self_z;
            const float inverse = rsqrtf(r_x * r_x + r_y * r_y + r_z * r_z + softening * softening);
            const float s = to_w * inverse * inverse * inverse;
            const float dacceleration_5 = dacceleration[j * 4LL + 2LL];
            const float dacceleration_6 = dacceleration[j * 4LL + 1LL];
            const float dacceleration_7 = dacceleration[j * 4LL];
            const float to_w_2 = body[i * 4LL + 3LL];
            const float s_2 = to_w_2 * inverse * inverse * inverse;
            const float minus_ds = inverse * (inverse
                * (r_z * dacceleration_5 + r_y * dacceleration_6 + r_x * dacceleration_7));
            dbody_2 -= inverse * minus_ds;
            const float dr2 = gpuad_chain(to_w_2 * minus_ds
                - to_w * (inverse * (inverse * (r_z * dacceleration_2 + r_y * dacceleration_3
                + r_x * dacceleration_4))), 3.0f * (inverse * (inverse * inverse)));
            dbody_3 += s_2 * dacceleration_5 - r_z * dr2 - s * dacceleration_2;
            dbody_4 += s_2 * dacceleration_6 - r_y * dr2 - s * dacceleration_3;
            dbody_5 += s_2 * dacceleration_7 - r_x * dr2 - s * dacceleration_4;
        }
    }
    if (dbody_2 != 0.0f) {
        dbody[i * 4LL + 3LL] += dbody_2;
    }
    if (dbody_3 != 0.0f) {
        dbody[i * 4LL + 2LL] += dbody_3;
    }
    if (dbody_4 != 0.0f) {
        dbody[i * 4LL + 1LL] += dbody_4;
    }
    if (dbody_5 != 0.0f) {
        dbody[i * 4LL] += dbody_5;
    }
}

extern "C" __global__ void attract_reverse(
    const float* body, const float* dbody, const float* acceleration, float* dacceleration, float softening,
    int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        dacceleration[i * 4LL + 3LL] = 0.0f;  // overwritten with something inactive
        dacceleration[i * 4LL + 2LL] = 0.0f;
        dacceleration[i * 4LL + 1LL] = 0.0f;
        dacceleration[i * 4LL] = 0.0f;
    }
}

// adjoint of `attract`
//   not saved  body                          never overwritten by this launch
//   not saved  acceleration                  no derivative needs what was overwritten
//   shadow     dbody                gather   each thread of attract_gather collects for an element of its own (bodies.cu:50:52)
//   shadow     dacceleration        plain    no two threads touch one element (bodies.cu:51:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
