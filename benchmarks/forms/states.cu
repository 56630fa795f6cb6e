// Four states, which steps in time carry on.
//@ by_hand block=128
K by_hand(out y, out dy, in x, out dx, int n, int m) {
    H;
    double s[4][65], d[4] = {0};
    for (int j = 0; j < 4; ++j) s[j][0] = 0;
    for (int t = 0; t < m; ++t) for (int j = 0; j < 4; ++j) s[j][t + 1] = s[j][t] * x[t * n + i] + j + 1;
    for (int t = m - 1; t >= 0; --t) {
        double g = dy[t * n + i], v = 0;
        dy[t * n + i] = 0;
        d[0] += g * s[3][t + 1]; d[3] += g * s[0][t + 1];
        for (int j = 0; j < 4; ++j) { v += d[j] * s[j][t]; d[j] *= x[t * n + i]; }
        dx[t * n + i] += v;
    }
}
//@ array block=128
K array(out y, in x, int n, int m) {
    H; double s[4] = {0};
    for (int t = 0; t < m; ++t) { for (int j = 0; j < 4; ++j) s[j] = s[j] * x[t * n + i] + j + 1; y[t * n + i] = s[0] * s[3]; }
}
//@ scalars block=32
K scalars(out y, in x, int n, int m) {
    H; double a = 0, b = 0, c = 0, d = 0;
    for (int t = 0; t < m; ++t) { double v = x[t * n + i]; a = a * v + 1; b = b * v + 2; c = c * v + 3; d = d * v + 4; y[t * n + i] = a * d; }
}
//@ over_the_grid block=256 over=4
K over_the_grid(out y, in x, int n, int m) {
    G(int) {
        double s[4] = {0, 0, 0, 0};
        for (int t = 0; t < m; ++t) { for (int j = 0; j < 4; ++j) s[j] = s[j] * x[t * n + i] + j + 1; y[t * n + i] = s[0] * s[3]; }
    }
}
//@ until_returned block=128 over=4
K until_returned(out y, in x, int n, int m) {
    for (I(int);; i += blockDim.x * gridDim.x) {
        if (i >= n) return;
        double s[4] = {0};
        for (int t = 0; t < m; ++t) { for (int j = 0; j < 4; ++j) s[j] = s[j] * x[t * n + i] + j + 1; y[t * n + i] = s[0] * s[3]; }
    }
}
//@ in_pairs block=1024
K in_pairs(out y, in x, int n, int m) {
    H; double s[2][2] = {{0, 0}, {0, 0}};
    for (int t = 0; t < m; ++t) {
        for (int j = 0; j < 2; ++j) for (int k = 0; k < 2; ++k) s[j][k] = s[j][k] * x[t * n + i] + (2 * j + k + 1);
        y[t * n + i] = s[0][0] * s[1][1];
    }
}
//@ pointers block=256
K pointers(out y, in x, int n, int m) {
    I(size_t); if (i >= n) return;
    double s[4] = {0}; const double* p = x + i; double* q = y + i;
    for (int t = 0; t < m; ++t, p += n, q += n) { for (int j = 0; j < 4; ++j) s[j] = s[j] * *p + j + 1; *q = s[0] * s[3]; }
}
