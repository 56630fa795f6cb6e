// Expansion by minors. minors[s] is the determinant of the last rows, as many as s has bits, and of the columns in s; a launch expands the
// minors of one size along their first row, in place in the array that has the smaller ones.
extern "C" __global__ void expand(const double* a, double* minors, int n, int size) {
    int s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= 1 << n || __popc(s) != size) return;
    double sum = 0.0, sign = 1.0;
    for (int j = 0; j < n; j++) {
        if (s >> j & 1) {
            sum += sign * a[(n - size) * n + j] * minors[s ^ 1 << j];
            sign = -sign;
        }
    }
    minors[s] = sum;
}
