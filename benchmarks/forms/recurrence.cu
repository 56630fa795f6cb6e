// A gate and a product, which steps in time carry on.
//@ by_hand block=128
K by_hand(out y, out dy, in x, out dx, int n, int m) {
    H;
    double d = 0;
    for (int t = m - 1; t >= 0; --t) {
        int k = 3 * (t * n + i);
        d += dy[t * n + i];
        dy[t * n + i] = 0;
        dx[k] += t > 0 ? d * y[(t - 1) * n + i] : 0.0;
        dx[k + 1] += d * x[k + 2];
        dx[k + 2] += d * x[k + 1];
        d *= x[k];
    }
}
#define C(p) c = c * p[0] + p[1] * p[2]
//@ by_index block=128
K by_index(out y, in x, int n, int m) { H; double c = 0; for (int t = 0; t < m; ++t) { int k = 3 * (t * n + i); C((x + k)); y[t * n + i] = c; } }
//@ pointers block=256
K pointers(out y, in x, int n, int m) {
    H; double c = 0; const double* p = x + 3 * i; double* q = y + i;
    for (int t = 0; t < m; ++t) { C(p); *q = c; p += 3 * n; q += n; }
}
//@ commas block=32
K commas(out y, in x, int n, int m) {
    H; double c = 0; const double* p = x + 3 * i; double* q = y + i;
    for (int t = 0; t < m; ++t, p += 3 * n, q += n) { C(p); *q = c; }
}
//@ places block=1024
K places(out y, in x, int n, int m) {
    I(size_t); if (i >= n) return;
    double c = 0; size_t at = 3 * i, to = i;
    for (int t = 0; t < m; ++t) { C((x + at)); y[to] = c; at += 3 * n; to += n; }
}
//@ counted_down block=128
K counted_down(out y, in x, int n, int m) {
    H; double c = 0; const double* p = x + 3 * i; double* q = y + i; int t = m;
    while (t > 0) { C(p); *q = c; p += 3 * n; q += n; --t; }
}
//@ over_the_grid block=256 over=4
K over_the_grid(out y, in x, int n, int m) {
    G(int) { double c = 0; const double* p = x + 3 * i; for (int t = 0; t < m; ++t) { C(p); y[t * n + i] = c; p += 3 * n; } }
}
//@ until_returned block=256 over=4
K until_returned(out y, in x, int n, int m) {
    for (I(int);; i += blockDim.x * gridDim.x) {
        if (i >= n) return;
        double c = 0; for (int t = 0; t < m; ++t) { int k = 3 * (t * n + i); C((x + k)); y[t * n + i] = c; }
    }
}
