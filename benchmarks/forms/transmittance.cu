// What is left of light behind the layers of a row, until it is hardly any.
//@ by_hand block=128
K by_hand(out y, out dy, in x, out dx, int n, int m) {
    H;
    double p = 1, d = dy[i];
    int t = 0;
    for (; t < m; ++t) { p *= 1 - x[i * m + t]; if (p < 0.01) { ++t; break; } }
    dy[i] = 0;
    for (int k = 0; k < t; ++k) dx[i * m + k] -= d * p / (1 - x[i * m + k]);
}
//@ by_break block=128
K by_break(out y, in x, int n, int m) { H; double p = 1; for (int t = 0; t < m; ++t) { p *= 1 - x[i * m + t]; if (p < 0.01) break; } y[i] = p; }
//@ by_condition block=32
K by_condition(out y, in x, int n, int m) { H; double p = 1; for (int t = 0; t < m && p >= 0.01; ++t) p *= 1 - x[i * m + t]; y[i] = p; }
//@ by_flag block=256
K by_flag(out y, in x, int n, int m) {
    H; double p = 1; bool done = false;
    for (int t = 0; !done && t < m; ++t) { p *= 1 - x[i * m + t]; done = p < 0.01; }
    y[i] = p;
}
//@ over_the_grid block=256 over=4
K over_the_grid(out y, in x, int n, int m) {
    G(int) { double p = 1; int t = 0; while (t < m) { p *= 1 - x[i * m + t]; if (p < 0.01) break; ++t; } y[i] = p; }
}
//@ until_returned block=128 over=4
K until_returned(out y, in x, int n, int m) {
    I(int);
    for (;;) {
        if (i >= n) return;
        double p = 1;
        for (int t = 0; t < m; ++t) { p *= 1 - x[i * m + t]; if (p < 0.01) break; }
        y[i] = p;
        i += blockDim.x * gridDim.x;
    }
}
//@ pointers block=1024
K pointers(out y, in x, int n, int m) {
    I(size_t); if (i >= n) return;
    double p = 1; const double* row = x + i * m;
    for (size_t t = 0; t < m; ++t) { p *= 1 - *row++; if (p < 0.01) break; }
    y[i] = p;
}
