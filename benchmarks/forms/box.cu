// The greatest in a box of a plane, as for regions of interest. What overlaps is added to atomically, once a box.
//@ by_hand block=128
K by_hand(out y, out dy, in x, out dx, const int* at, int n, int m) {
    H;
    double b = -1e30;
    int found = -1;
    for (int r = at[4 * i]; r < at[4 * i + 1]; ++r)
        for (int c = at[4 * i + 2]; c < at[4 * i + 3]; ++c) if (x[r * m + c] > b) { b = x[r * m + c]; found = r * m + c; }
    if (found >= 0) atomicAdd(dx + found, dy[i]);
    dy[i] = 0;
}
#define BOX(T) T r0 = at[4 * i], r1 = at[4 * i + 1], c0 = at[4 * i + 2], c1 = at[4 * i + 3]; double b = -1e30
//@ by_if block=128
K by_if(out y, in x, const int* at, int n, int m) {
    H; const int* q = at + 4 * i; double b = -1e30;
    for (int r = q[0]; r < q[1]; ++r) for (int c = q[2]; c < q[3]; ++c) if (x[r * m + c] > b) b = x[r * m + c];
    y[i] = b;
}
//@ by_fmax block=32
K by_fmax(out y, in x, const int* at, int n, int m) { H; BOX(int); for (int r = r0; r < r1; ++r) for (int c = c0; c < c1; ++c) b = fmax(b, x[r * m + c]); y[i] = b; }
//@ chosen block=1024
K chosen(out y, in x, const int* at, int n, int m) {
    H; BOX(int); for (int r = r0; r < r1; ++r) for (int c = c0; c < c1; ++c) { double v = x[r * m + c]; b = v > b ? v : b; } y[i] = b;
}
//@ over_the_grid block=256 over=4
K over_the_grid(out y, in x, const int* at, int n, int m) {
    G(size_t) { BOX(size_t); for (size_t r = r0; r < r1; ++r) for (size_t c = c0; c < c1; ++c) if (x[r * m + c] > b) b = x[r * m + c]; y[i] = b; }
}
//@ pointers block=256
K pointers(out y, in x, const int* at, int n, int m) {
    H; BOX(int);
    for (int r = r0; r < r1; ++r) { const double* p = x + r * m + c0; for (int c = c0; c < c1; ++c, ++p) if (*p > b) b = *p; }
    y[i] = b;
}
//@ until_returned block=128 over=4
K until_returned(out y, in x, const int* at, int n, int m) {
    for (I(int);; i += blockDim.x * gridDim.x) {
        if (i >= n) return;
        BOX(int); for (int r = r0; r < r1; ++r) for (int c = c0; c < c1; ++c) if (x[r * m + c] > b) b = x[r * m + c];
        y[i] = b;
    }
}
