// The sum of squares of four neighbours.
//@ by_hand block=128
K by_hand(out y, out dy, in x, out dx, int n) { H; for (int j = 0; j < 4; ++j) dx[4 * i + j] += 2 * x[4 * i + j] * dy[i]; dy[i] = 0; }
#define SUM(p) double s = 0; for (int j = 0; j < 4; ++j) s += (p)[j] * (p)[j]
//@ by_index block=128
K by_index(out y, in x, int n) { H; SUM(x + 4 * i); y[i] = s; }
//@ vector block=32
K vector(out y, in x, int n) { H; double4 v = ((const double4*)x)[i]; y[i] = v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; }
//@ taken_apart block=256
K taken_apart(out y, in x, int n) { H; double4 v = ((const double4*)x)[i]; SUM((double*)&v); y[i] = s; }
//@ local_array block=1024
K local_array(out y, in x, int n) { H; double p[4]; *(double2*)p = *(double2*)(x + 4 * i); *(double2*)(p + 2) = *(double2*)(x + 4 * i + 2); SUM(p); y[i] = s; }
//@ over_the_grid block=256 over=4
K over_the_grid(out y, in x, int n) { G(size_t) { double4 v = *(double4*)&x[4 * i]; SUM(&v.x); y[i] = s; } }
//@ until_returned block=128 over=4
K until_returned(out y, in x, int n) { for (I(int);; i += blockDim.x * gridDim.x) { if (i >= n) return; SUM(x + 4 * i); y[i] = s; } }
//@ integers block=128
K integers(out y, in x, int n) {
    H; double p[4]; for (int h = 0; h < 2; ++h) { longlong2 v = ((const longlong2*)x)[2 * i + h]; p[2 * h] = __longlong_as_double(v.x); p[2 * h + 1] = __longlong_as_double(v.y); }
    SUM(p); y[i] = s;
}
