// gpuad: adjoint of `qrnn` (qrnn.cu:20:28), for Duplicated forget, candidate, gate, cell, hidden; Const steps, n.
// 1. put the seeds into dcell, dhidden. dforget, dcandidate, dgate are added to: clear first.
// 2. launch qrnn_reverse with the same grid and block.
// On exit dcell, dhidden hold the adjoint of the state before the launch; dforget, dcandidate, dgate have grown by the gradient.
// Holds where no two threads touch one element of dcandidate, dcell, dforget, dgate, dhidden, as for grid (2, 1, 1), block (16, 1, 1), steps = 9, n = 20.

extern "C" __global__ void qrnn_reverse(
    const float* forget, float* dforget, const float* candidate, float* dcandidate, const float* gate,
    float* dgate, const float* cell, float* dcell, const float* hidden, float* dhidden, int steps, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        for (int t = steps - 1; t >= 0; --t) {
            int at = t * n + i;
            const float f = forget[at];
            const float cell_2 = cell[at];
            const float candidate_2 = candidate[at];
            const float gate_2 = gate[at];
            const float cell_3 = cell[at + n];
            const float dhidden_2 = dhidden[at];
            dhidden[at] = 0.0f;
            dcell[at + n] += gate_2 * dhidden_2;
            dgate[at] += cell_3 * dhidden_2;
            const float dcell_2 = dcell[at + n];
            dcell[at + n] = 0.0f;
            dcandidate[at] += (1.0f - f) * dcell_2;
            dcell[at] += f * dcell_2;
            dforget[at] += cell_2 * dcell_2 - candidate_2 * dcell_2;
        }
    }
}

// adjoint of `qrnn`
//   not saved  forget                        never overwritten by this launch
//   not saved  candidate                     never overwritten by this launch
//   not saved  gate                          never overwritten by this launch
//   not saved  cell                          needed by qrnn.cu:26:28, read as this launch leaves it
//   not saved  hidden                        no derivative needs what was overwritten
//   shadow     dforget              plain    no two threads touch one element (qrnn.cu:25:19)
//   shadow     dcandidate           plain    no two threads touch one element (qrnn.cu:26:52)
//   shadow     dgate                plain    no two threads touch one element (qrnn.cu:27:22)
//   shadow     dcell                plain    no two threads touch one element (qrnn.cu:27:33)
//   shadow     dhidden              plain    no two threads touch one element (qrnn.cu:27:9)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
