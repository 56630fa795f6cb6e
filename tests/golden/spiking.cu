// gpuad: adjoint of `spiking` (spiking.cu:21:28), for Duplicated current, membrane, spike, leak, threshold; Const slope, steps, n.
// 1. put the seeds into dmembrane, dspike. dcurrent, dleak, dthreshold are added to: clear first.
// 2. launch spiking_reverse with the same grid and block.
// On exit dmembrane, dspike hold the adjoint of the state before the launch; dcurrent, dleak, dthreshold have grown by the gradient.
// Holds where no two threads touch one element of dcurrent, dleak, dmembrane, dspike, dthreshold, as for grid (2, 1, 1), block (16, 1, 1), steps = 9, n = 20.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void spiking_reverse(
    const float* current, float* dcurrent, const float* membrane, float* dmembrane, const float* spike,
    float* dspike, const float* leak, float* dleak, const float* threshold, float* dthreshold, float slope,
    int steps, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float limit = threshold[i];
        const float factor = leak[i];
        float dlimit = 0.0f;
        float dfactor = 0.0f;
        for (int t = steps - 1; t >= 0; --t) {
            int at = t * n + i;
            const float membrane_2 = membrane[at];
            const float potential = factor * membrane_2 + current[at];
            const float fired = 1.0f / (1.0f + expf(slope * (limit - potential)));
            const float dmembrane_2 = dmembrane[at + n];
            dmembrane[at + n] = 0.0f;
            const float dspike_2 = dspike[at];
            dspike[at] = 0.0f;
            const float dfired = slope * -gpuad_chain(gpuad_chain(dspike_2 - limit * dmembrane_2, fired),
                fired * expf(slope * (limit - potential)));
            const float dpotential = dmembrane_2 - dfired;
            dcurrent[at] += dpotential;
            dmembrane[at] += factor * dpotential;
            dlimit += dfired - fired * dmembrane_2;
            dfactor += membrane_2 * dpotential;
        }
        if (dfactor != 0.0f) {
            dleak[i] += dfactor;
        }
        if (dlimit != 0.0f) {
            dthreshold[i] += dlimit;
        }
    }
}

// adjoint of `spiking`
//   not saved  current                       never overwritten by this launch
//   not saved  membrane                      needed by spiking.cu:28:36, read as this launch leaves it
//   not saved  spike                         no derivative needs what was overwritten
//   not saved  leak                          never overwritten by this launch
//   not saved  threshold                     never overwritten by this launch
//   shadow     dcurrent             plain    no two threads touch one element (spiking.cu:28:51)
//   shadow     dmembrane            plain    no two threads touch one element (spiking.cu:31:9)
//   shadow     dspike               plain    no two threads touch one element (spiking.cu:30:9)
//   shadow     dleak                plain    no two threads touch one element (spiking.cu:25:42)
//   shadow     dthreshold           plain    no two threads touch one element (spiking.cu:25:19)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
