// What an index picks of each row.
//@ by_hand block=128
K by_hand(out y, out dy, in x, out dx, const int* at, int n, int m) {
    H;
    int c = at[i];
    if (c >= 0 && c < m) { dx[i * m + c] += 2 * x[i * m + c] * dy[i]; dy[i] = 0; }
}
//@ guarded block=128
K guarded(out y, in x, const int* at, int n, int m) { H; int c = at[i]; if (c >= 0 && c < m) y[i] = x[i * m + c] * x[i * m + c]; }
//@ returning block=32
K returning(out y, in x, const int* at, int n, int m) { H; int c = at[i]; if (c < 0 || c >= m) return; y[i] = x[i * m + c] * x[i * m + c]; }
//@ continuing block=256 over=4
K continuing(out y, in x, const int* at, int n, int m) {
    G(int) { int c = at[i]; if (c < 0 || c >= m) continue; y[i] = x[i * m + c] * x[i * m + c]; }
}
//@ until_returned block=256 over=4
K until_returned(out y, in x, const int* at, int n, int m) {
    for (I(int);; i += blockDim.x * gridDim.x) { if (i >= n) return; int c = at[i]; if (c >= 0 && c < m) y[i] = x[i * m + c] * x[i * m + c]; }
}
//@ sizes block=1024 over=4
K sizes(out y, in x, const int* at, int n, int m) { G(size_t) { size_t c = at[i]; if (c < m) y[i] = x[i * m + c] * x[c + i * m]; } }
//@ pointers block=128
K pointers(out y, in x, const int* at, int n, int m) { H; const double* row = x + i * m; int c = at[i]; if (c >= 0 && c < m) y[i] = row[c] * row[c]; }
