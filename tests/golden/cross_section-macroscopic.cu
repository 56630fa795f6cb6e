// gpuad: adjoint of `macroscopic` (cross_section.cu:42:28), for Duplicated energy, concentration, table, result; Const material, held, nuclide, unionised, below, lookups, nuclides, points, most.
// 1. put the seeds into dresult. denergy, dconcentration, dtable are added to: clear first.
// 2. launch macroscopic_reverse with the same grid and block.
// On exit dresult holds the adjoint of the state before the launch; denergy, dconcentration, dtable have grown by the gradient.
// Compile macroscopic and these kernels with -fmad=false: branches depend on floating-point values and must agree.
// Holds where no two threads touch one element of denergy, dresult, as for grid (2, 1, 1), block (32, 1, 1), lookups = 60, nuclides = 6, points = 20, most = 4.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void macroscopic_reverse(
    const double* energy, double* denergy, const int* material, const int* held, const int* nuclide,
    const double* concentration, double* dconcentration, const double* unionised, const int* below,
    const double* table, double* dtable, const double* result, double* dresult, int lookups, int nuclides,
    int points, int most)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < lookups) {
        const double e = energy[i];
        int n = nuclides * points;
        int high = n - 1;
        int low = 0;
        while (high - low > 1) {
            int middle = (low + high) / 2;
            const double unionised_2 = unionised[middle];
            low = unionised_2 > e ? low : middle;
            high = unionised_2 > e ? middle : high;
        }
        int material_2 = material[i];
        int first = material_2 * most;
        int held_2 = held[material_2];
        double dsum[5] = {};
        for (int r = 0; r < 5; ++r) {
            const double dresult_2 = dresult[i * 5 + r];
            dresult[i * 5 + r] = 0.0;
            dsum[r] += dresult_2;
        }
        double de = 0.0;
        for (int k = first; k < first + held_2; ++k) {
            int nuclide_2 = nuclide[k];
            int below_2 = below[low * nuclides + (long long)nuclide_2];
            const double a_energy = table[nuclide_2 * points * 6LL + below_2 * 6LL];
            const double a_total = table[nuclide_2 * points * 6LL + below_2 * 6LL + 1LL];
            const double a_elastic = table[nuclide_2 * points * 6LL + below_2 * 6LL + 2LL];
            const double a_absorption = table[nuclide_2 * points * 6LL + below_2 * 6LL + 3LL];
            const double a_fission = table[nuclide_2 * points * 6LL + below_2 * 6LL + 4LL];
            const double a_neutrons = table[nuclide_2 * points * 6LL + below_2 * 6LL + 5LL];
            const double b_energy = table[nuclide_2 * points * 6LL + below_2 * 6LL + 6LL];
            const double b_total = table[nuclide_2 * points * 6LL + below_2 * 6LL + 7LL];
            const double b_elastic = table[nuclide_2 * points * 6LL + below_2 * 6LL + 8LL];
            const double b_absorption = table[nuclide_2 * points * 6LL + below_2 * 6LL + 9LL];
            const double b_fission = table[nuclide_2 * points * 6LL + below_2 * 6LL + 10LL];
            const double b_neutrons = table[nuclide_2 * points * 6LL + below_2 * 6LL + 11LL];
            const double share = (b_energy - e) / (b_energy - a_energy);
            const double there = concentration[k];
            const double dsum_2 = dsum[4];
            const double dsum_3 = there * dsum_2;
            const double dsum_4 = -(share * dsum_3);
            const double dsum_5 = dsum[3];
            const double dsum_6 = there * dsum_5;
            const double dsum_7 = -(share * dsum_6);
            const double dsum_8 = dsum[2];
            const double dsum_9 = there * dsum_8;
            const double dsum_10 = -(share * dsum_9);
            const double dsum_11 = dsum[1];
            const double dsum_12 = there * dsum_11;
            const double dsum_13 = -(share * dsum_12);
            const double dsum_14 = dsum[0];
            const double dsum_15 = there * dsum_14;
            const double dsum_16 = -(share * dsum_15);
            atomicAdd(&dconcentration[k], (b_neutrons - share * (b_neutrons - a_neutrons)) * dsum_2
                + (b_fission - share * (b_fission - a_fission)) * dsum_5
                + (b_absorption - share * (b_absorption - a_absorption)) * dsum_8
                + (b_elastic - share * (b_elastic - a_elastic)) * dsum_11
                + (b_total - share * (b_total - a_total)) * dsum_14);
            const double dshare = gpuad_chain(-((b_neutrons - a_neutrons) * dsum_3) - (b_fission - a_fission) * dsum_6
                - (b_absorption - a_absorption) * dsum_9 - (b_elastic - a_elastic) * dsum_12
                - (b_total - a_total) * dsum_15, 1.0 / (b_energy - a_energy));
            const double dshare_2 = -gpuad_chain(dshare, share);
            atomicAdd(&dtable[nuclide_2 * points * 6LL + below_2 * 6LL + 11LL], dsum_3 + dsum_4);
            atomicAdd(&dtable[nuclide_2 * points * 6LL + below_2 * 6LL + 10LL], dsum_6 + dsum_7);
            atomicAdd(&dtable[nuclide_2 * points * 6LL + below_2 * 6LL + 9LL], dsum_9 + dsum_10);
            atomicAdd(&dtable[nuclide_2 * points * 6LL + below_2 * 6LL + 8LL], dsum_12 + dsum_13);
            atomicAdd(&dtable[nuclide_2 * points * 6LL + below_2 * 6LL + 7LL], dsum_15 + dsum_16);
            atomicAdd(&dtable[nuclide_2 * points * 6LL + below_2 * 6LL + 6LL], dshare + dshare_2);
            atomicAdd(&dtable[nuclide_2 * points * 6LL + below_2 * 6LL + 5LL], -dsum_4);
            atomicAdd(&dtable[nuclide_2 * points * 6LL + below_2 * 6LL + 4LL], -dsum_7);
            atomicAdd(&dtable[nuclide_2 * points * 6LL + below_2 * 6LL + 3LL], -dsum_10);
            atomicAdd(&dtable[nuclide_2 * points * 6LL + below_2 * 6LL + 2LL], -dsum_13);
            atomicAdd(&dtable[nuclide_2 * points * 6LL + below_2 * 6LL + 1LL], -dsum_16);
            atomicAdd(&dtable[nuclide_2 * points * 6LL + below_2 * 6LL], -dshare_2);
            de -= dshare;
        }
        if (de != 0.0) {
            denergy[i] += de;
        }
    }
}

// adjoint of `macroscopic`
//   not saved  energy                        never overwritten by this launch
//   not saved  material                      never overwritten by this launch
//   not saved  held                          never overwritten by this launch
//   not saved  nuclide                       never overwritten by this launch
//   not saved  concentration                 never overwritten by this launch
//   not saved  unionised                     never overwritten by this launch
//   not saved  below                         never overwritten by this launch
//   not saved  table                         never overwritten by this launch
//   not saved  result                        no derivative needs what was overwritten
//   shadow     denergy              plain    no two threads touch one element (cross_section.cu:47:22)
//   shadow     dconcentration       atomic   it is not proved that no two threads meet in one element (cross_section.cu:54:78)
//   shadow     dtable               atomic   its index is read from `below`, `nuclide`, so that two threads may meet in one element (cross_section.cu:53:37)
//   shadow     dresult              plain    no two threads touch one element (cross_section.cu:61:33)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
//   assumed    cross_section.cu:51:37: an index of `held` is data, taken to be in bounds
//   assumed    cross_section.cu:52:58: an index of `below` is data, taken to be in bounds
//   assumed    cross_section.cu:53:25: an index of `table` is data, taken to be in bounds
//   assumed    cross_section.cu:53:37: an index of `table` is data, taken to be in bounds
