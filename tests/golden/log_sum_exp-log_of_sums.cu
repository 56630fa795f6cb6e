// gpuad: adjoint of `log_of_sums` (log_sum_exp.cu:68:28), for Duplicated sum, shift, result; Const blocks.
// 1. put the seeds into dresult. dsum, dshift are added to: clear first.
// 2. launch log_of_sums_reverse with the same grid and block.
// On exit dresult holds the adjoint of the state before the launch; dsum, dshift have grown by the gradient.
// Holds where no two threads touch one element of dresult, dshift, dsum, as for grid (1, 1, 1), block (1, 1, 1), blocks = 5.

// The chain rule's product, but 0 where the seed is 0: an infinite partial that nobody asked for gives no NaN.
__device__ inline float gpuad_chain(float seed, float partial) { return seed == 0.0f ? 0.0f : seed * partial; }
__device__ inline double gpuad_chain(double seed, double partial) { return seed == 0.0 ? 0.0 : seed * partial; }

extern "C" __global__ void log_of_sums_reverse(
    const double* sum, double* dsum, const double* shift, double* dshift, const double* result,
    double* dresult, int blocks)
{
    double total = 0.0;
    for (int b = 0; b < blocks; ++b) {
        total += sum[b];
    }
    const double dresult_2 = dresult[0];
    dresult[0] = 0.0;
    dshift[0] += dresult_2;
    const double dtotal = gpuad_chain(dresult_2, 1.0 / total);
    for (int b = 0; b < blocks; ++b) {
        dsum[b] += dtotal;
    }
}

// adjoint of `log_of_sums`
//   not saved  sum                           never overwritten by this launch
//   not saved  shift                         never overwritten by this launch
//   not saved  result                        no derivative needs what was overwritten
//   shadow     dsum                 plain    no two threads touch one element (log_sum_exp.cu:70:47)
//   shadow     dshift               plain    no two threads touch one element (log_sum_exp.cu:71:30)
//   shadow     dresult              plain    no two threads touch one element (log_sum_exp.cu:71:5)
//   assumed    the launch is free of data races, in bounds, and deterministic; `gpuad check` runs the reference executor to verify it
