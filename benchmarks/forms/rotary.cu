// Pairs half a row apart, turned.
//@ by_hand rows block=64
K by_hand(out y, out dy, in x, out dx, in c, int n, int m) {
    int j = threadIdx.x, a = blockIdx.x * m + j;
    if (j >= m) return;
    dx[a] += dy[a] + (j < m / 2 ? dy[a + m / 2] * c[j + m / 2] : -dy[a - m / 2] * c[j - m / 2]);
}
//@ by_hand_2 rows block=64
K by_hand_2(out y, out dy, in x, out dx, in c, int n, int m) { if (threadIdx.x < m) dy[blockIdx.x * m + threadIdx.x] = 0; }
#define TURN(j, a) y[a] = x[a] + (j + m / 2 < m ? -x[a + m / 2] : x[a + m / 2 - m]) * c[j]
//@ a_row_a_block rows block=64
K a_row_a_block(out y, in x, in c, int n, int m) { int j = threadIdx.x, a = blockIdx.x * m + j; if (j < m) TURN(j, a); }
//@ divided all block=128
K divided(out y, in x, in c, int n, int m) { I(int); if (i >= n * m) return; int j = i % m; TURN(j, i); }
//@ strided rows block=32
K strided(out y, in x, in c, int n, int m) { for (int j = threadIdx.x; j < m; j += blockDim.x) { int a = blockIdx.x * m + j; TURN(j, a); } }
//@ nested block=256
K nested(out y, in x, in c, int n, int m) { H; for (int j = 0; j < m; ++j) { int a = i * m + j; TURN(j, a); } }
//@ both block=128
K both(out y, in x, in c, int n, int m) {
    H; for (int j = 0; j < m / 2; ++j) { int a = i * m + j, e = a + m / 2; y[a] = x[a] - x[e] * c[j]; y[e] = x[e] + x[a] * c[j + m / 2]; }
}
//@ pointers block=1024
K pointers(out y, in x, in c, int n, int m) {
    H; const double *p = x + i * m, *q = p + m / 2; double *u = y + i * m, *v = u + m / 2;
    for (int j = 0; j < m / 2; ++j, ++p, ++q, ++u, ++v) { *u = *p - *q * c[j]; *v = *q + *p * c[j + m / 2]; }
}
