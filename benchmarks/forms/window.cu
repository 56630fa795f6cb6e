// A weighted sum over a window, with zeros outside.
//@ by_hand block=128
K by_hand(out y, out dy, in x, out dx, in w, int n, int m) {
    H;
    double d = 0;
    for (int a = -m; a <= m; ++a) if (i - a >= 0 && i - a < n) d += w[a + m] * dy[i - a];
    dx[i] += d;
}
K by_hand_2(out y, out dy, in x, out dx, in w, int n, int m) { H; dy[i] = 0; }
//@ by_hand_2 block=128
//@ guarded block=128
K guarded(out y, in x, in w, int n, int m) { H; double s = 0; for (int a = -m; a <= m; ++a) if (i + a >= 0 && i + a < n) s += w[a + m] * x[i + a]; y[i] = s; }
//@ continuing block=32
K continuing(out y, in x, in w, int n, int m) {
    H; double s = 0; for (int a = 0; a <= 2 * m; ++a) { int r = i + a - m; if (r < 0 || r >= n) continue; s += w[a] * x[r]; } y[i] = s;
}
//@ chosen block=1024
K chosen(out y, in x, in w, int n, int m) { H; double s = 0; for (int a = -m; a <= m; ++a) s += i + a >= 0 && i + a < n ? w[a + m] * x[i + a] : 0.0; y[i] = s; }
//@ from_to block=256
K from_to(out y, in x, in w, int n, int m) { H; double s = 0; for (int r = max(i - m, 0); r <= min(i + m, n - 1); ++r) s += w[r - i + m] * x[r]; y[i] = s; }
//@ over_the_grid block=256 over=4
K over_the_grid(out y, in x, in w, int n, int m) {
    G(int) { double s = 0; for (int a = -m; a <= m; ++a) if (i + a >= 0 && i + a < n) s += w[a + m] * x[i + a]; y[i] = s; }
}
//@ compensated block=128
K compensated(out y, in x, in w, int n, int m) {
    H; double s = 0, c = 0;
    for (int a = -m; a <= m; ++a) if (i + a >= 0 && i + a < n) { double p = w[a + m] * x[i + a] - c, q = s + p; c = (q - s) - p; s = q; }
    y[i] = s;
}
//@ stored block=128
K stored(out y, in x, in w, int n, int m) { H; y[i] = 0; for (int a = -m; a <= m; ++a) if (i + a >= 0 && i + a < n) y[i] += w[a + m] * x[i + a]; }
