// The softmax of each row.
//@ by_hand block=128
K by_hand(out y, out dy, in x, out dx, int n, int m) {
    H;
    double s = 0;
    for (int t = 0; t < m; ++t) s += dy[i * m + t] * y[i * m + t];
    for (int t = 0; t < m; ++t) { dx[i * m + t] += y[i * m + t] * (dy[i * m + t] - s); dy[i * m + t] = 0; }
}
#define ROW double b = -1e30, s = 0
//@ thrice block=128
K thrice(out y, in x, int n, int m) {
    H; ROW;
    for (int t = 0; t < m; ++t) b = fmax(b, x[i * m + t]);
    for (int t = 0; t < m; ++t) s += exp(x[i * m + t] - b);
    for (int t = 0; t < m; ++t) y[i * m + t] = exp(x[i * m + t] - b) / s;
}
//@ inverse block=32
K inverse(out y, in x, int n, int m) {
    H; ROW;
    for (int t = 0; t < m; ++t) b = x[i * m + t] > b ? x[i * m + t] : b;
    for (int t = 0; t < m; ++t) s += exp(x[i * m + t] - b);
    double r = 1 / s;
    for (int t = 0; t < m; ++t) y[i * m + t] = exp(x[i * m + t] - b) * r;
}
//@ stored block=256
K stored(out y, in x, int n, int m) {
    H; ROW;
    for (int t = 0; t < m; ++t) b = fmax(b, x[i * m + t]);
    for (int t = 0; t < m; ++t) { double e = exp(x[i * m + t] - b); y[i * m + t] = e; s += e; }
    for (int t = 0; t < m; ++t) y[i * m + t] /= s;
}
//@ over_the_grid block=256 over=4
K over_the_grid(out y, in x, int n, int m) {
    G(size_t) {
        ROW; const double* p = x + i * m;
        for (int t = 0; t < m; ++t) b = fmax(b, p[t]);
        for (int t = 0; t < m; ++t) s += exp(p[t] - b);
        for (int t = 0; t < m; ++t) y[i * m + t] = exp(p[t] - b) / s;
    }
}
//@ pointers block=1024
K pointers(out y, in x, int n, int m) {
    H; ROW; const double* p = x + i * m; double* q = y + i * m;
    for (int t = 0; t < m; ++t) b = fmax(b, *p++);
    p = x + i * m;
    for (int t = 0; t < m; ++t) s += exp(*p++ - b);
    p = x + i * m;
    for (int t = 0; t < m; ++t) *q++ = exp(*p++ - b) / s;
}
//@ logarithm block=128
K logarithm(out y, in x, int n, int m) {
    H; ROW;
    for (int t = 0; t < m; ++t) b = fmax(b, x[i * m + t]);
    for (int t = 0; t < m; ++t) s += exp(x[i * m + t] - b);
    double l = b + log(s);
    for (int t = 0; t < m; ++t) y[i * m + t] = exp(x[i * m + t] - l);
}
