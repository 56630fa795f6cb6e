// Squares of what is small enough.
//@ by_hand block=128
K by_hand(out y, out dy, in x, out dx, int n) { H; if (x[i] <= 0.8) { dx[i] += 2 * x[i] * dy[i]; dy[i] = 0; } }
//@ guarded block=128
K guarded(out y, in x, int n) { H; if (x[i] <= 0.8) y[i] = x[i] * x[i]; }
//@ returning block=32
K returning(out y, in x, int n) { H; if (x[i] > 0.8) return; y[i] = x[i] * x[i]; }
//@ continuing block=256 over=4
K continuing(out y, in x, int n) { G(int) { if (x[i] > 0.8) continue; y[i] = x[i] * x[i]; } }
//@ sizes block=1024 over=4
K sizes(out y, in x, int n) { G(size_t) { if (x[i] <= 0.8) y[i] = x[i] * x[i]; } }
//@ until_returned block=128 over=4
K until_returned(out y, in x, int n) {
    for (I(int);; i += blockDim.x * gridDim.x) { if (i >= n) return; if (x[i] > 0.8) continue; y[i] = x[i] * x[i]; }
}
//@ pointers block=256 over=4
K pointers(out y, in x, int n) {
    I(int); const double* p = x + i; double* q = y + i;
    for (; i < n; i += blockDim.x * gridDim.x, p += blockDim.x * gridDim.x, q += blockDim.x * gridDim.x) if (*p <= 0.8) *q = *p * *p;
}
//@ in_twos block=128 each=2
K in_twos(out y, in x, int n) { I(int); for (int k = 2 * i; k < 2 * i + 2 && k < n; ++k) if (x[k] <= 0.8) y[k] = x[k] * x[k]; }
