// Kernels that were written to break gpuad, as CuPy users write them, grouped by the rule that they attack. `attack_cases.py` reads this
// file and says what the lines above each kernel mean.

//@ 1: mask
//@ x=7 a=7 m=[1,0,1,1,0,0,1] <<<2, 4>>>(x, a, m, 7)
extern "C" __global__ void k(double* x, const double* a, const int* m, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && m[i]) x[i] = a[i] * x[i];
}

//@ 1: grid covers half
//@ x=17 a=17 <<<2, 4>>>(x, a, 17)
extern "C" __global__ void k(double* x, const double* a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = a[i] * x[i] * x[i];
}

//@ 1: permuted
//@ x=4 a=4 p=[1,2,3,0] <<<1, 4>>>(x, a, p)
extern "C" __global__ void k(double* x, const double* a, const int* p)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[p[i]] = a[i] * x[p[i]];
}

//@ 1: break before store
//@ x=16 a=4 <<<1, 4>>>(x, a)
extern "C" __global__ void k(double* x, const double* a)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; j < 4; j++) { if (a[i] > 1.0 && j == 2) break; x[i*4+j] = a[i] * x[i*4+j] * x[i*4+j]; }
}

//@ 1: inactive overwrites under a guard
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 2) x[i] = 3.0; y[i] = x[i] * y[i];
}

//@ 1: one trip store of result
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; j < 4; j++) x[i*4] = exp(.1 * x[i*4]);
}

//@ 2: leapfrog in place
//@ p=9 u=9 c=9 <<<3, 4>>>(p, u, c, 9)
//@ host
extern "C" __global__ void k(double* p, const double* u, const double* c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n-1) p[i] = 2*u[i] - p[i] + c[i] * (u[i-1] - 2*u[i] + u[i+1]);
}

//@ 2: unsigned guard
//@ v=10 u=10 <<<3, 4>>>(v, u)
extern "C" __global__ void k(double* v, const double* u)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned j = i; if (j - 1u < 7u) v[j] = u[j-1] * u[j+1] * u[j];
}

//@ 2: clamp
//@ v=10 u=10 <<<3, 4>>>(v, u, 10)
extern "C" __global__ void k(double* v, const double* u, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { int l = max(i-1, 0), r = min(i+1, n-1); v[i] = u[l]*u[r] + u[i]*v[i]; }
}

//@ 2: periodic
//@ v=10 u=10 <<<3, 4>>>(v, u, 10)
extern "C" __global__ void k(double* v, const double* u, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[(i+3) % n] = u[(i+n-1) % n] * u[i];
}

//@ 3: shifted reads of one array
//@ u=10 y=9 <<<3, 4>>>(u[:-1], u[1:], y, 9)
//@ host
extern "C" __global__ void k(const double* a, const double* b, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a[i] * b[i];
}

//@ 3: array passed twice
//@ u=10 y=10 <<<3, 4>>>(u, u, y, 10)
extern "C" __global__ void k(const double* a, const double* b, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a[i] * b[i];
}

//@ 3: in place by another name
//@ u=10 v=10 <<<3, 4>>>(u, v, u, 10)
extern "C" __global__ void k(const double* a, const double* b, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a[i] * b[i];
}

//@ 3: three names
//@ u=10 <<<3, 4>>>(u, u, u, 10)
extern "C" __global__ void k(const double* a, const double* b, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a[i] * b[i] + a[i];
}

//@ 3: thirds of one array
//@ u=12 <<<3, 4>>>(u[:4], u[4:8], u[8:], 4)
extern "C" __global__ void k(const double* a, const double* b, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a[i] * b[i] + a[i];
}

//@ 3: result of exp overwritten by another name
//@ x=8 <<<1, 4>>>(x, x[1:])
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = exp(x[i]); y[i-1] = y[i-1] * y[i-1];
}

//@ 3: exit value under another name
//@ x=8 <<<1, 4>>>(x, x)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = exp(x[i]); y[i] = 2.0;
}

//@ 3: stores of two names meet
//@ x=8 y=16 <<<1, 4>>>(x, y, y[2:])
//@ refused: LaunchError: two threads write
extern "C" __global__ void k(double* x, double* y, double* z)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i] * 2; z[i] = x[i] * 3;
}

//@ 2: pitch below row
//@ x=40 y=40 <<<(2,2), 4>>>(x, y, 5)
//@ host
extern "C" __global__ void k(const double* x, double* y, int p)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j = blockIdx.y*blockDim.y + threadIdx.y; if (i < 6 && j < 5) y[j*6+i] = x[j*p+i] * x[j*p+i];
}

//@ 2: pitch zero
//@ x=4 y=12 <<<3, 4>>>(x, y, 0)
extern "C" __global__ void k(const double* x, double* y, int p)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int t = threadIdx.x, j = blockIdx.x; y[j*4+t] = x[j*p+t] * x[j*p+t];
}

//@ 2: negative pitch
//@ x=12 y=12 <<<3, 4>>>(x, y, -3)
extern "C" __global__ void k(const double* x, double* y, int p)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int t = threadIdx.x, j = blockIdx.x; y[j*4+t] = x[8+j*p+t] * x[8+j*p+t];
}

//@ 2: grid stride too short
//@ x=11 y=11 <<<2, 3>>>(x, y, 11)
extern "C" __global__ void k(const double* x, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = i; j < n; j += blockDim.x) atomicAdd(&y[j], x[j] * x[j]);
}

//@ 2: chunks that overlap
//@ x=19 y=19 <<<2, 3>>>(x, y, 0)
extern "C" __global__ void k(const double* x, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = i*3+3; j >= i*3; j--) atomicAdd(&y[j], x[j] * x[j]);
}

//@ 2: columns too near
//@ x=18 y=18 <<<2, 3>>>(x, y, 5)
extern "C" __global__ void k(const double* x, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; j < 3; j++) atomicAdd(&y[j*n+i], x[j*n+i] * x[j*n+i]);
}

//@ 2: loop variable moved
//@ x=24 y=24 <<<2, 3>>>(x, y, 20)
extern "C" __global__ void k(const double* x, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = i; j < n; j += 6) { if (j == 3) j += 1; atomicAdd(&y[j], x[j] * x[j]); }
}

//@ 2: axis of the grid unused
//@ x=8 y=8 <<<(2,3), 4>>>(x, y)
extern "C" __global__ void k(const double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&y[i], x[i] * x[i]);
}

//@ 2: thread and global index
//@ x=8 y=8 <<<2, 4>>>(x, y)
extern "C" __global__ void k(const double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i] * x[threadIdx.x];
}

//@ 2: block stride below block
//@ x=8 y=8 <<<2, 3>>>(x, y)
extern "C" __global__ void k(const double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j = blockIdx.x*2 + threadIdx.x; atomicAdd(&y[j], x[j] * x[j]);
}

//@ 2: narrow index wraps
//@ x=256 y=6 <<<2, 3>>>(x, y)
extern "C" __global__ void k(const double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned char c = i * 128; y[i] = x[c] * x[c];
}

//@ 2: two guards meet
//@ x=8 y=6 <<<2, 3>>>(x, y)
extern "C" __global__ void k(const double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 2 && i <= 4) y[i-2] = x[i-2] * x[i-2]; else if (i < 2) y[i+4] = x[i+1] * 2;
}

//@ 5: compaction
//@ x=7 y=7 c=[0] <<<2, 4>>>(x, y, c, 7)
//@ only_reverse
extern "C" __global__ void k(const double* x, double* y, int* c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 1.0) { int p = atomicAdd(c, 1); y[p] = x[i] * x[i]; }
}

//@ 5: trip count from a counter
//@ x=5 y=5 c=[0] len=[3,0,2,5,1] <<<2, 4>>>(x, y, c, len, 5)
extern "C" __global__ void k(const double* x, double* y, int* c, const int* len, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { int p = atomicAdd(c, 1); double s = x[i]; int j = 0; while (j < len[p]) { s = s*s*.9 + x[i]; j++; }
    y[i] = s * p; }
}

//@ 5: work queue
//@ x=7 y=7 q=[0] <<<1, 4>>>(x, y, q, 7)
//@ refused: UnsupportedError: inside a loop
extern "C" __global__ void k(const double* x, double* y, int* q, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j; while ((j = atomicAdd(q, 1)) < n) y[j] = x[j] * x[j];
}

//@ 5: old value of an active sum
//@ x=4 y=4 s=1 <<<1, 4>>>(x, y, s)
//@ refused: UnsupportedError: whose result carries one
extern "C" __global__ void k(const double* x, double* y, double* s)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double o = atomicAdd(s, x[i]); y[i] = o * x[i];
}

//@ 5: claims by a counter
//@ x=16 y=16 k=[0] <<<1, 4>>>(x, y, k)
extern "C" __global__ void k(double* x, double* y, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int p = atomicAdd(k, 1); y[p] = x[i] * x[i];
}

//@ 8: reads beside the view
//@ u=24 <<<3, 4>>>(u[1:11], u[13:23], 10)
extern "C" __global__ void k(const double* p, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = p[i-1] * p[i+1];
}

//@ 8: stores beside the view
//@ u=24 <<<3, 4>>>(u[1:11], u[15:20], 10)
extern "C" __global__ void k(const double* p, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i-2] = p[i+1] * y[i-2];
}

//@ 8: reaches another argument
//@ u=12 <<<3, 4>>>(u[:4], u[8:], 4)
extern "C" __global__ void k(const double* a, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a[i] * a[i+4];
}

//@ 10: one value by all threads
//@ m=1 a=1.3 b=0.7 <<<2, 4>>>(m, a, b)
extern "C" __global__ void k(double* m, double a, double b)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    m[0] = a * b;
}

//@ 10: one value from memory
//@ m=1 a=3 b=0.7 <<<2, 4>>>(m, a, b)
extern "C" __global__ void k(double* m, const double* a, double b)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    m[0] = exp(a[2]) * b;
}

//@ 10: one value in a loop
//@ m=3 a=3 b=0.7 <<<2, 4>>>(m, a, b)
extern "C" __global__ void k(double* m, const double* a, double b)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < 3; k++) m[k] = a[k] * b;
}

//@ 10: redundant threads
//@ y=8 a=8 <<<(2,3), 4>>>(y, a, 8)
extern "C" __global__ void k(double* y, const double* a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a[i] * a[i];
}

//@ 10: duplicates
//@ x=4 a=4 p=[1,2,1,0] <<<1, 4>>>(x, a, p)
//@ refused: LaunchError: two threads write
extern "C" __global__ void k(double* x, const double* a, const int* p)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[p[i]] = a[i];
}

//@ 10: two uniform values
//@ m=1 a=1.3 b=0.7 <<<1, 4>>>(m, a, b)
//@ refused: LaunchError: two threads write
extern "C" __global__ void k(double* m, double a, double b)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) m[0] = a; else if (i == 1) m[0] = b;
}

//@ 10: equal by accident
//@ x=16 y=16 <<<1, 4>>>(x, y)
//@ refused: LaunchError: two threads write
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[0] = x[i] * 0;
}

//@ 10: index stored in the kernel
//@ x=16 y=16 k=[0,0,0,0] <<<1, 4>>>(x, y, k)
extern "C" __global__ void k(double* x, double* y, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    k[i] = 3 - i; y[k[i]] = x[i] * x[i];
}

//@ 10: one thread stores twice
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; j < 4; j++) y[i] = x[i*4+j] * x[i*4+j];
}

//@ 11: neighbours in place
//@ x=9 <<<3, 4>>>(x, 9)
//@ refused: UnsupportedError: a data race
extern "C" __global__ void k(double* x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n-1) x[i] = .5 * (x[i-1] + x[i+1]);
}

//@ 11: guard on the thread
//@ x=16 <<<3, 4>>>(x)
extern "C" __global__ void k(double* x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) x[i] = x[i+1] * x[i];
}

//@ 11: guard on the last thread
//@ x=16 <<<3, 4>>>(x)
extern "C" __global__ void k(double* x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == blockDim.x - 1) x[i] = x[i-1] * x[i];
}

//@ 11: guard on the block
//@ x=16 <<<3, 4>>>(x)
extern "C" __global__ void k(double* x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x == 0) x[i] = x[i+4] * x[i];
}

//@ 11: no race: tree step
//@ x=48 <<<3, 4>>>(x, 6)
extern "C" __global__ void k(double* x, int s)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < s) x[i] += x[i+s] * x[i];
}

//@ 11: no race: mirrored swap
//@ x=48 <<<3, 4>>>(x)
extern "C" __global__ void k(double* x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 6) { double t = x[i]; x[i] = x[11-i]; x[11-i] = t * t; }
}

//@ 11: no race: even reads odd
//@ x=48 <<<3, 4>>>(x)
extern "C" __global__ void k(double* x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i % 2 == 0) x[i] = x[i+1] * x[i];
}

//@ 11: no race: boundary
//@ x=48 <<<3, 4>>>(x)
extern "C" __global__ void k(double* x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) { x[0] = x[10] * x[0]; x[11] = x[1] * x[11]; }
}

//@ 11: no race: rows
//@ x=48 <<<3, 4>>>(x)
extern "C" __global__ void k(double* x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; j < 2; j++) x[i*3+j] = x[i*3+j+1] * x[i*3+j];
}

//@ 11: shifted in place
//@ u=10 <<<3, 4>>>(u[1:], u[:-1], 9)
//@ refused: UnsupportedError: a data race
extern "C" __global__ void k(double* y, const double* a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * a[i];
}

//@ 11: plain sums meet
//@ x=4 y=4 q=[1,2,1,0] <<<1, 4>>>(x, y, q)
//@ refused: LaunchError: two threads write
extern "C" __global__ void k(const double* x, double* y, const int* q)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[q[i]] += x[i];
}

//@ 14: other index in between
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i*4+1] = x[i*4] * x[i*4+2]; x[i*4+2] = x[i*4+1] * x[i*4+1]; y[i] = x[i*4+2] * x[i*4];
}

//@ 14: two recurrences
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 1; j < 4; j++) x[i*4+j] = x[i*4+j-1] * x[i*4+j];for (int j = 2; j >= 0;
    j--) x[i*4+j] = x[i*4+j+1] * x[i*4+j] * x[i*4+j];
}

//@ 14: nested recurrence
//@ x=16 y=16 <<<1, 4>>>(x, y)
//@ host
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int t = 0; t < 3; t++) for (int j = 1; j < 3; j++) x[i*4+j] = x[i*4+j-1]*x[i*4+j+1] + x[i*4+j]*x[i*4+j];
}

//@ 14: time loop
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int t = 0; t < 3; t++) { double s = 0; for (int j = 0; j < 4; j++) s += x[i*4+j]*x[i*4+j];for (int j = 0; j < 4;
    j++) x[i*4+j] = x[i*4+j] / sqrt(s) + y[i*4+j]; }
}

//@ 14: branches that store
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; j < 3; j++) { if (x[i*4+j] > 1) x[i*4+j+1] = x[i*4+j]*x[i*4+j+1]; else x[i*4+j] = x[i*4+j]*x[i*4+j+1]; }
}

//@ 14: one element by two pointers
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double *p = x + i*4, *q = p + 2; p[2] = p[0]*p[1]; q[0] = q[0]*q[-1]; *(p+3) = q[0]*p[2]; y[i] = p[3]*q[1];
}

//@ 14: moving pointer
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double* p = x + i*4; for (int j = 0; j < 3; j++) { p[1] = p[0]*p[1]; p++; } y[i] = p[0]*p[-1];
}

//@ 14: chosen pointer
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double* p = x[i*4] > 1 ? x + i*4 : y + i*4; for (int j = 0; j < 3; j++) p[j] = p[j+1]*p[j]; y[i*4] = p[0]*p[1];
}

//@ 14: swapped pointers
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double *p = x + i*4, *q = y + i*4; for (int t = 0; t < 3; t++) {for (int j = 0; j < 4; j++) q[j] = p[j] * p[(j+1)%4];
    double* s = p; p = q; q = s; }
}

//@ 14: overwritten index
//@ x=16 y=16 k=[0,3,1,2,0,3,1,2,0,3,1,2,0,3,1,2] <<<1, 4>>>(x, y, k)
extern "C" __global__ void k(double* x, double* y, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int* q = k + i*4; q[0] = (q[0]+1)%4; y[i*4+q[0]] = x[i*4+q[0]]*x[i*4];q[0] = (q[0]+1)%4;
    y[i*4+q[0]] = x[i*4+q[0]]*2*y[i*4];
}

//@ 14: overwritten bound
//@ x=16 y=16 k=[4,3,1,2] <<<1, 4>>>(x, y, k)
extern "C" __global__ void k(double* x, double* y, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; j < k[i]; j++) { y[i*4+j] = x[i*4+j]*x[i*4+j]; if (j == 1) k[i] = 2; }
}

//@ 14: indices stored in a loop
//@ x=16 y=16 k=[0,3,1,2,0,3,1,2,0,3,1,2,0,3,1,2] <<<1, 4>>>(x, y, k)
extern "C" __global__ void k(double* x, double* y, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; j < 4; j++) { int d = k[i*4+j]; x[i*4+d] = x[i*4+d]*x[i*4+j] + y[i*4+d]; k[i*4+d] = j; }
}

//@ 14: index of a result overwritten
//@ x=8 k=[3,1,5,2] <<<1, 4>>>(x, k)
extern "C" __global__ void k(double* x, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[k[i]] = exp(x[k[i]]); k[i] = 0;
}

//@ 14: result stored twice
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = exp(x[i]); if (y[i] > 1) x[i] = x[i]*y[i];
}

//@ 14: linked list destroyed
//@ x=16 y=16 k=[2,-1,3,1,5,-1,-1,-1,11,-1,9,10,-1,-1,-1,-1] <<<1, 4>>>(x, y, k)
extern "C" __global__ void k(double* x, double* y, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j = i*4; double s = 1; while (j >= 0) { s = s*x[j] + y[j]; x[j] = s; int q = k[j]; k[j] = -1; j = q; } y[i*4] = s;
}

//@ 14: halving
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int w = 2; w > 0; w >>= 1) for (int j = 0; j < w; j++) x[i*4+j] = x[i*4+j]*x[i*4+j+w]; y[i*4] = x[i*4]*x[i*4];
}

//@ 14: narrow index met again
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned char p = i, q = (unsigned char)(i + 256); x[p] = x[p]*x[p]; y[i] = x[q]*x[q];
}

//@ 14: narrow index in a loop
//@ x=193 y=8 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) for (int j = 0; j < 8; j++) { unsigned char p = j*64; x[p] = x[p]*y[j]*x[p]; }
}

//@ 14: unsigned stride wraps
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) for (unsigned j = 0; j < 4; j++) { unsigned p = j*65536u*65536u; x[p] = x[p]*y[j]*x[p]; }
}

//@ 19: stride 0 by a parameter
//@ x=16 y=16 <<<1, 4>>>(x, y, 0)
extern "C" __global__ void k(double* x, double* y, int s)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 1; j < 4; j++) x[i*4+j*s] = x[i*4+(j-1)*s]*y[i*4+j]*x[i*4+j*s];
}

//@ 19: stride 1 by a parameter
//@ x=16 y=16 <<<1, 4>>>(x, y, 1)
extern "C" __global__ void k(double* x, double* y, int s)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 1; j < 4; j++) x[i*4+j*s] = x[i*4+(j-1)*s]*y[i*4+j]*x[i*4+j*s];
}

//@ 19: stride wraps
//@ x=16 y=16 <<<1, 4>>>(x, y, 4294967296)
extern "C" __global__ void k(double* x, double* y, long long s)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) for (int j = 0; j < 4; j++) x[(int)(j*s)] = x[(int)(j*s)]*y[j]*x[(int)(j*s)];
}

//@ 19: difference of strides is 0
//@ x=16 y=16 <<<1, 4>>>(x, y, 3, 3)
extern "C" __global__ void k(double* x, double* y, int s, int t)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; j < 4; j++) x[i*4+j*(s-t)] = x[i*4+j*(s-t)]*y[j+8]*x[i*4+j*(s-t)];
}

//@ 14: local array in a loop
//@ x=16 y=16 <<<1, 4>>>(x, y)
//@ host
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int q = 0; q < 3; q++) { double t[4] = {0}; for (int j = 0; j < 4; j++) t[j] += x[i*4+j]*x[i*4+q];for (int j = 1;
    j < 4; j++) t[j] = t[j]*t[j-1]; x[i*4+q] = t[3]; }
}

//@ 14: local array sorted
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double t[4]; for (int j = 0; j < 4; j++) t[j] = x[i*4+j]; for (int j = 0; j < 4; j++) for (int m = 0; m < 3;
    m++)if (t[m] > t[m+1]) { double s = t[m]; t[m] = t[m+1]; t[m+1] = s; } for (int j = 0; j < 4;
    j++) y[i*4+j] = t[j]*t[j]*(j+1);
}

//@ 14: local array by moving index
//@ x=16 y=16 k=[0,3,1,2,0,3,1,2,0,3,1,2,0,3,1,2] <<<1, 4>>>(x, y, k)
extern "C" __global__ void k(double* x, double* y, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double t[4] = {1, 2, 3, 4}; int p = 0; for (int j = 0; j < 6; j++) { p = (p + k[i])%4;t[p] = t[p]*x[i*4+p] + t[(p+1)%4];
    } y[i] = t[0]*t[1]*t[2]*t[3];
}

//@ 14: local array kept between iterations
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double t[2]; for (int j = 0; j < 4; j++) { if (j > 0) y[i*4+j] = t[0]*x[i*4+j]; t[0] = x[i*4+j]*x[i*4+j]; t[1] = 0; }
}

//@ 14: local array partly rebuilt
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double t[3] = {1, 2, 3}; for (int j = 0; j < 4; j++) { t[0] = x[i*4+j]; t[1] = t[0]*t[0]; y[i*4+j] = t[1]*t[2];
    if (j == 1) t[2] = x[i*4]; }
}

//@ 14: local array rebuilt with a gap
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double t[3] = {1, 1, 1}; for (int j = 0; j < 4; j++) { for (int m = 0; m < 3;
    m += 2) t[m] = x[i*4+m]*y[i*4+j];t[1] = t[1]*x[i*4+j]; x[i*4+j] = t[0]*t[1]*t[2]; }
}

//@ 14: local array rebuilt on a condition
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double t[2]; t[0] = 1; t[1] = 1; for (int j = 0; j < 4; j++) { if (x[i*4+j] > 1) { t[0] = x[i*4+j]; t[1] = 2*t[0];
    }y[i*4+j] = t[0]*t[1]; }
}

//@ 14: pointer between local arrays
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double t[2], u[2]; u[0] = 1; u[1] = 2; for (int j = 0; j < 4; j++) { double* p = j%2 ? t : u;
    p[0] = x[i*4+j];p[1] = p[0]*p[0]; y[i*4+j] = u[1]*u[0]; }
}

//@ 12: while by data
//@ x=16 y=16 <<<1, 4>>>(x, y)
//@ host
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double s = x[i]; int c = 0; while (s < 5) { s = s*1.3 + x[i+4]; c++; } y[i] = s*c; x[i] = s;
}

//@ 12: endless loop with return
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double s = x[i]; while (1) { s = s*1.7; if (s > 4) { y[i] = s*s; return; } x[i] = s; }
}

//@ 12: do while
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double s = x[i]; do { s = s*1.3 + x[i+4]*s; } while (s < 5); y[i] = s*s;
}

//@ 12: break and continue
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double s = x[i]; for (int j = 0; j < 4; j++) { if (x[i*4+j] < .8) continue; if (s > 3) break; s *= x[i*4+j] + .7;
    y[i*4+j] = s; } y[i*4] = s*s;
}

//@ 12: nested breaks
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double s = x[i]; for (int j = 0; j < 4; j++) { for (int m = 0; m < 4; m++) { if (s > 4) break;
    s = s*(1 + .3*x[i*4+m]);if (m == j) continue; s += y[i*4+m]; } if (s > 9) break; } y[i*4] = s*s;
}

//@ 12: newton in place
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int it = 0; it < 20; it++) { double f = x[i]*x[i] - x[i+4]; if (fabs(f) < 1e-14) break; x[i] -= f/(2*x[i]); }
    y[i] = x[i]*x[i]*x[i];
}

//@ 12: return from nested loops
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, const double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; j < 4; j++) { if (j > i) return; for (int m = 0; m < 4; m++) {
    if (m > j) break;if (x[i*4+m] < .6) return; x[i*4+m] = x[i*4+m]*x[i*4+m] + y[j]; } }
}

//@ 12: helper with several returns
//@ x=16 y=16 <<<1, 4>>>(x, y)
__device__ double f(double a, int m) { if (m%3 == 0) return a*a; for (int j = 0; j < m; j++) { if (a > 3) return a*2;
a = a*1.5; } return a-1; }
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = f(x[i], i) + f(y[i], i+1);
}

//@ 12: helper that stores and returns
//@ x=16 y=16 <<<1, 4>>>(x, y)
__device__ void f(double* a, double* b, int i) { if (i == 1) return; for (int j = 0; j < 3; j++) { if (a[i] > 1.3) return;
a[i] *= 1.2; b[i] = a[i]*b[i]; } }
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    f(x, y, i);
}

//@ 12: condition that stores
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j = 0; while ((y[i] = x[i*4+j]*y[i]) < 1.5 && ++j < 4) y[i] += .3;
}

//@ 12: short circuit with increments
//@ x=16 y=16 k=[0,3,1,2,0,3,1,2,0,3,1,2,0,3,1,2] <<<1, 4>>>(x, y, k)
extern "C" __global__ void k(double* x, double* y, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j = i*4; if (k[i] > 0 && x[j++] > .7 && x[j++] > .7) y[i] = x[j]*x[j]; else y[i] = x[j]*3;
}

//@ 12: active step of a float loop
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double s = 0; for (double t = 0; t < 1; t += x[i]*.1 + .05) s += sin(t*x[i])*x[i]; y[i] = s;
}

//@ 13: skewed
//@ x=16 y=16 k=[0,300,-7,2] <<<2, 2>>>(x, y, k)
//@ host
extern "C" __global__ void k(double* x, double* y, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double s = x[i]; for (int j = 0; j < k[i]; j++) s = sin(s) + .3*s*s; y[i] = s;
}

//@ 13: bits
//@ x=16 y=16 k=[0,5,11,2] <<<1, 4>>>(x, y, k)
extern "C" __global__ void k(double* x, double* y, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double s = x[i]; for (unsigned m = k[i]; m; m >>= 1) if (m & 1) s = s*s*x[i+4]; else s += x[i]; y[i] = s;
}

//@ 13: random walk
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned r = i*7 + 1; double s = 1; for (int j = 0; j < 5; j++) { r ^= r << 13; r ^= r >> 17; r ^= r << 5;
    s = s*x[i*4+r%4] + (r & 1); x[i*4+r%4] = s; } y[i] = s;
}

//@ 13: run-time step against the bound
//@ x=8 y=24 <<<1, 4>>>(x, y, 2, -1)
extern "C" __global__ void k(const double* x, double* y, int n, int s)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 5; j < n; j += s) y[i*6+j] = x[j]*x[j];
}

//@ 13: countdown by wrapping
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned j = 3; j < 4; j--) y[i*4+j] = x[i*4+j]*x[i*4+(j+1)%4];
}

//@ 13: bound that shrinks
//@ x=16 y=16 k=[4,3,2,1] <<<1, 4>>>(x, y, k)
extern "C" __global__ void k(double* x, double* y, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double s = 1; for (int j = 0; j < k[i]; j++) { s *= x[i*4+j]; k[i]--; } y[i] = s;
}

//@ 18: read past and thrown away
//@ u=10 v=8 <<<2, 4>>>(u[:8], v, 8)
extern "C" __global__ void k(const double* u, double* v, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { double r = u[i+1]; v[i] = (i+1 < n) ? u[i]*r : u[i]; }
}

//@ 18: guarded neighbour
//@ x=16 y=16 k=[-1,30,1,2] <<<1, 4>>>(x, y, k)
extern "C" __global__ void k(double* x, double* y, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + k[i] >= 0 && i + k[i] < 16 && x[i+k[i]] > .9) y[i] = x[i+k[i]]*x[i]; else y[i] = 0;
}

//@ 18: fractions
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i]*5 - floor(x[i]*5) + fmod(x[i]*7, 2.0)*x[i] + round(x[i]*3)*x[i] + trunc(x[i]*4)*x[i];
}

//@ 18: functions
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = exp2(x[i]) + log2(x[i]) + log1p(x[i]) + expm1(x[i]) + asinh(x[i])
        + acosh(x[i]+1) + atanh(x[i]/2) + erf(x[i]) + hypot(x[i], 2.)
        + atan2(x[i], y[i]) + fma(x[i], y[i], x[i]) + copysign(x[i], -y[i]) + fdim(x[i], y[i]) + j0(x[i]) + j1(x[i])
        + remainder(x[i]*5, 2.) + pow(-x[i], 3) + pow(x[i], x[i]);
}

//@ 21: compound with conversion
//@ x=16 y=16 k=[0,3,1,2,0,3,1,2,0,3,1,2,0,3,1,2] <<<1, 4>>>(x, y, k)
extern "C" __global__ void k(double* x, double* y, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int c = k[i]*5; c *= 0.5; short d = k[i]; d *= 30000; d /= 7; y[i] = x[i]*c + d; double e = x[i]; e /= 3.0f; e -= 1.1f*e;
    y[i] += e*e;
}

//@ 21: signed and unsigned
//@ x=16 y=16 k=[0,3,1,2,0,3,1,2,0,3,1,2,0,3,1,2] <<<1, 4>>>(x, y, k)
extern "C" __global__ void k(double* x, double* y, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned u = 1; if (k[i] - 1 < u) y[i] = x[i]*x[i]; else y[i] = x[i]*((k[i]-5)/2)*((k[i]-5)%3);
}

//@ 21: sums with themselves
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = y[i] + y[i]; y[i] = y[i] + x[i]; y[i] = x[i] - y[i]; y[i] -= x[i]*y[i]; x[i] -= x[i]; y[i] += y[i+4]*y[i];
    y[i+4] = -y[i+4];
}

//@ 21: assignments as values
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double p, q; p = q = x[i]*x[i]; y[i] = x[i] = p*q; y[i] += p *= x[i]; y[i+4] = p;
}

//@ 21: references
//@ x=16 y=16 <<<1, 4>>>(x, y)
__device__ void s(double& a, double& b) { double t = a; a = b*a; b = t; }
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double& r = x[i]; double& q = x[i]; r = r*q; q = q*r; y[i] = r; s(x[i+4], y[i]);
}

//@ 21: pointers to locals
//@ x=16 y=16 <<<1, 4>>>(x, y)
__device__ void s(double* v, double* o) { *o = *v * *v; *v += *o; }
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double v = x[i], w; s(&v, &w); y[i] = v*w; s(x + i, &y[i+4]);
}

//@ 21: sincos into itself
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double s, c; sincos(x[i], &s, &c); y[i] = s*c*s; sincos(y[i], &y[i], &x[i]);
}

//@ 21: pointer loop
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double* p = x + i*4; double* q = p + 3; int n = q - p; for (; p < q; p++) *p = *p * *p; y[i] = n*x[i*4];
}

//@ 21: loop variable afterwards
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j; for (j = 0; j < 4; j++) if (x[i*4+j] > 1.2) break; y[i] = j < 4 ? x[i*4+j]*x[i*4+j] : x[i]; for (j = i; j < 10;
    j += 3) y[i+4] *= x[j] + j; y[i+8] = y[i+4]*j;
}

//@ 21: cholesky
//@ x=16 y=16 <<<1, 4>>>(x, y)
//@ host
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) for (int p = 0; p < 3; p++) { x[p*3+p] = sqrt(x[p*3+p] + 9); for (int q = p+1; q < 3;
    q++) x[q*3+p] /= x[p*3+p];for (int q = p+1; q < 3; q++) for (int r = q; r < 3; r++) x[r*3+q] -= x[r*3+p]*x[q*3+p]; }
}

//@ 21: insertion sort in place
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int p = 1; p < 4; p++) { double t = x[i*4+p]; int q = p-1; while (q >= 0 && x[i*4+q] > t) {
    x[i*4+q+1] = x[i*4+q]*1.1; q--; } x[i*4+q+1] = t*t; }
}

//@ 21: softmax in place
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double m = -1e30; for (int j = 0; j < 4; j++) m = fmax(x[i*4+j], m); double s = 0; for (int j = 0; j < 4; j++) {
    x[i*4+j] = exp(x[i*4+j] - m); s += x[i*4+j]; }for (int j = 0; j < 4; j++) x[i*4+j] /= s;
}

//@ 21: implicit truncation
//@ x=16 y=16 <<<1, 4>>>(x, y)
//@ refused: UnsupportedError: becomes an integer
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int q = x[i]*3; y[i] = q*x[i];
}

//@ 22: unsigned against int 7
//@ x=16 y=16 <<<3, 4>>>(x, y, 7)
extern "C" __global__ void k(double* x, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned j = i; if (j < n) y[j] = x[j]*x[j];
}

//@ 22: unsigned against int 0
//@ x=16 y=16 <<<3, 4>>>(x, y, 0)
extern "C" __global__ void k(double* x, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned j = i; if (j < n) y[j] = x[j]*x[j];
}

//@ 22: unsigned against int -1
//@ x=16 y=16 <<<3, 4>>>(x, y, -1)
//@ host
extern "C" __global__ void k(double* x, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned j = i; if (j < n) y[j] = x[j]*x[j];
}

//@ 22: last by unsigned zero
//@ x=16 y=16 <<<3, 4>>>(x, y, 0)
//@ host
extern "C" __global__ void k(double* x, double* y, unsigned n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned j = i; if (j <= n - 1) y[j] = x[j]*x[j];
}

//@ 22: unsigned offsets
//@ x=16 y=16 <<<3, 4>>>(x, y, 4294967295)
//@ host
extern "C" __global__ void k(double* x, double* y, unsigned n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned j = blockIdx.x*4 + threadIdx.x; y[j] = x[j + 1 + n];
}

//@ 22: short of the bound
//@ x=16 y=16 <<<3, 4>>>(x, y, 3)
//@ host
extern "C" __global__ void k(double* x, double* y, short n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i]*x[i];
}

//@ 25: scalar changed by the kernel
//@ x=8 y=8 a=0.9 <<<2, 4>>>(x, y, a)
extern "C" __global__ void k(double* x, double* y, double a)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    a *= x[i]; a += a*a; y[i] = a*x[i];
}

//@ 25: scalar in a loop
//@ x=8 y=8 a=0.9 <<<2, 4>>>(x, y, a)
extern "C" __global__ void k(double* x, double* y, double a)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    while (a < 5) a = a*1.5 + x[i]; y[i] = a*a;
}

//@ 25: scalar as bound and factor
//@ x=16 y=16 a=2.5 <<<1, 4>>>(x, y, a)
extern "C" __global__ void k(double* x, double* y, double a)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double s = 0; for (int j = 0; j < a; j++) s += x[i*4+j]*a; y[i] = s;
}

//@ 4: no path
//@ x=16 y=16 <<<1, 4>>>(x, y)
//@ refused: ShadowError: no path from an active input
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (x[i] > 1) y[i] = 2.0; else y[i] = 3.0;
}

//@ 14: tracked memory in two loops
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int t = 0; t < 2; t++) { int c = 0; while (x[i*4+t] < 2.5 && c < 5) { x[i*4+t] = x[i*4+t]*1.3 + y[i*4+c%4]*.1; c++; }
    x[i*4+t+1] += x[i*4+t]*c; } y[i*4] = x[i*4+2]*x[i*4];
}

//@ 14: indices in a local array
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int q[3] = {0, 1, 2}; double t[3];
    for (int s = 0; s < 3; s++) { for (int j = 0; j < 3; j++) t[j] = x[i*4+q[j]]*y[i*4+j];
    for (int j = 0; j < 3; j++) { x[i*4+q[j]] = t[j] + t[(j+1)%3]*x[i*4+3]; q[j] = (q[j]+s)%3; } }
}

//@ 12: adaptive steps
//@ x=8 y=8 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double t = 0, h = .3, u = x[i]; int n = 0;
    while (t < 1 && n < 50) { if (t+h > 1) h = 1-t; double e = u + h*u*y[i], m = u + .5*h*u*y[i]; m = m + .5*h*m*y[i];
    if (fabs(m-e) > .02) { h *= .5; n++; continue; } u = m; t += h; h *= 1.3; n++; } x[i] = u;
}

//@ 3: shifted names in a recurrence
//@ u=8 <<<1, 4>>>(u, u[1:])
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) for (int j = 0; j < 3; j++) { y[j] = x[j]*y[j] + x[j+2]; x[j] = y[j]*x[j+1]; }
}

//@ 3: helper with aliased pointers
//@ x=16 <<<1, 4>>>(x)
__device__ void f(double* a, double* b) { *a = *a * *b; *b = *a + *b * *b; }
extern "C" __global__ void k(double* x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    f(x+i*4, x+i*4+1); f(x+i*4+2, x+i*4+2);
}

//@ 14: state machine
//@ x=16 y=16 k=[0,1,2,1] <<<1, 4>>>(x, y, k)
extern "C" __global__ void k(double* x, double* y, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int st = k[i]; double s = x[i];
    for (int j = 0; j < 6; j++) { if (st == 0) { s *= 1.5; st = s > 2 ? 1 : 2; } else if (st == 1) { s -= x[i+4]; st = 2; }
    else { s = s*s*.4; st = 0; } }
    k[i] = st; y[i] = s;
}

//@ 14: array of bools
//@ x=16 y=16 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool b[4]; for (int j = 0; j < 4; j++) b[j] = x[i*4+j] > 1;
    for (int j = 0; j < 4; j++) if (b[j]) { x[i*4+j] *= x[i*4+(j+1)%4]; b[(j+1)%4] = !b[(j+1)%4]; } y[i] = x[i*4]*b[0];
}

//@ 13: ends of int
//@ x=8 y=8 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double s = x[i]; for (int j = 2147483645; j < 2147483647; j++) s = sin(s)*(2147483647-j) + s;
    for (int j = -2000000000; j < 2000000000; j += 1000000000) s = sin(s) + s; y[i] = s;
}

//@ 13: triangle by thread
//@ x=8 y=8 <<<1, 4>>>(x, y)
extern "C" __global__ void k(double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double s = x[i]; for (int j = 0; j < i; j++) for (int m = j; m < i; m++) s = sin(s)*1.2 + x[i+4]*.1; y[i] = s;
}

//@ 18: capped mean of none
//@ x=16 y=16 k=[0,1,2,0] <<<1, 4>>>(x, y, k)
extern "C" __global__ void k(double* x, double* y, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = fmin(x[i] / k[i], 5.0);
}

//@ 18: saturated mean of none
//@ x=16 y=16 k=[0,1,2,0] <<<1, 4>>>(x, y, k)
//@ only_reverse
extern "C" __global__ void k(double* x, double* y, int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = exp(-x[i+4] / k[i]) + tanh(x[i+8] / k[i]);
}

//@ 10: one value in each iteration
//@ m=1 a=3 b=0.7 <<<1, 4>>>(m, a, b)
//@ refused: LaunchError: two threads write
extern "C" __global__ void k(double* m, const double* a, double b)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < 3; k++) if (i == k) m[0] = a[k] * b;
}

//@ 10: one element read by all through an index
//@ m=2 a=4 k=[2,2,2,2] <<<1, 4>>>(m, a, k)
extern "C" __global__ void k(double* m, const double* a, const int* k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    m[0] = a[k[i]] * a[0];
}

//@ 11: all read what one writes
//@ x=8 <<<2, 4>>>(x)
//@ refused: UnsupportedError: a data race
extern "C" __global__ void k(double* x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = x[0] * x[i];
}

//@ 21: templates deduced and given
//@ x=8 y=8 <<<2, 4>>>(x, y, 8)
template <typename T> __device__ T square(T a) { return a * a; }
template <> __device__ float square<float>(float a) { return a * a * a; }
template <typename T, typename U> __device__ T mixed(T a, U b, T c = T(1) / T(4)) { return a * b + c; }
template <int N> __device__ double power(double a) { if constexpr (N == 0) return 1; else return a * power<N - 1>(a); }
__device__ double pick(double a) { return 2 * a; }
__device__ double pick(float a) { return 3 * a; }
__device__ double pick(int a) { return 5 * a; }
extern "C" __global__ void k(double* x, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    auto a = square(x[i]) + square((float)i) + square(3);
    auto b = mixed(y[i], i) + mixed<double>(a, y[i], 2);
    x[i] = a * power<3>(0.1 * b) + pick(x[i]) + pick((float)i) * 1e-3 + pick(i);
}

//@ 21: template with arrays, references and a constant of each instance
//@ x=12 y=4 <<<1, 4>>>(x, y)
template <typename T, int N> struct Traits { static constexpr int half = N / 2; static constexpr T scale = T(N) / 4; enum { last = N - 1 }; };
template <typename T> constexpr T third = T(1) / T(3);
template <typename T, int N> __device__ void blend(T (&a)[N], T& out, const T* x) {
    for (int j = 0; j < N; j++) a[j] = x[j] * (j < Traits<T, N>::half ? Traits<T, N>::scale : third<T>);
    out += a[Traits<T, N>::last] * a[0];
}
extern "C" __global__ void k(double* x, double* y)
{
    double a[3], b[2];
    blend(a, y[threadIdx.x], x + 3 * threadIdx.x);
    blend(b, y[threadIdx.x], a);
    x[3 * threadIdx.x] = a[1] + b[1];
}

//@ 21: if constexpr discards what could not be read
//@ x=4 <<<1, 4>>>(x)
constexpr bool fancy = false;
template <bool F, typename T> __device__ T step(T a) { if constexpr (F) { return missing(a); } else if constexpr (sizeof(double) == 8) { a *= a; } return sin(a); }
extern "C" __global__ void k(double* x)
{
    double s = x[threadIdx.x];
    if constexpr (fancy) { int* p = new int[2]; s += p[0]; } else s *= 2;
    if constexpr (!fancy) if (s > 1.5) s *= s;
    x[threadIdx.x] = step<fancy>(s);
}

//@ 21: one template entered twice with different arguments keeps its variables apart
//@ x=4 y=4 <<<1, 4>>>(x, y)
template <int N, typename T> __device__ T tower(T a) { T local = a * N; if constexpr (N > 1) local += tower<N - 1>(local * a); return local * a; }
extern "C" __global__ void k(double* x, double* y)
{
    int i = threadIdx.x;
    x[i] = tower<3>(x[i]) - tower<2>(y[i]) + tower<3>((float)i);
}

//@ 21: namespaces, aliases and casts of every kind
//@ x=4 <<<1, 4>>>(x)
namespace a { namespace b { using real = double; typedef float single; constexpr real c = 1.25; template <class T> __device__ T f(T v) { return v * T(c); } } namespace d = b; }
using a::b::f;
extern "C" __global__ void k(double* x)
{
    using namespace a;
    using R = b::real;
    auto i = static_cast<int>(threadIdx.x);
    const auto v = R(x[i]) + d::f(static_cast<d::single>(0.7) * static_cast<b::single>(0.3)) + f(x[i]) + R{2} * int(2.9) + static_cast<R>(i);
    auto* p = &x[i];
    auto& r = *p;
    r = v * r;
}

//@ 12: switch with fall through, default in the middle and returns
//@ x=16 y=16 m=[0,1,2,3,4,5,6,7,-1,-7,1,2,0,3,200,2] <<<4, 4>>>(x, y, m, 16)
//@ host
__device__ double choose(double a, int m) {
    switch (m) { case 1: return a * a; case 2: a *= 3; default: a += 1; case 7: { a *= a; break; } case 5: case -7: return 1 / a; }
    return a * m;
}
extern "C" __global__ void k(double* x, double* y, const int* m, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i];
    switch (m[i] & 7) {
        case 0:
        case 1: v = v * y[i]; break;
        case 1 + 1: { double t = sin(v); v = t * t; }
        case 4: if (v > 0.7) break; v += y[i] * y[i]; break;
        case 6: return;
        default: v = exp(v);
    }
    x[i] = v * choose(v, m[i]);
}

//@ 12: switch in loops, breaks and continues of both
//@ x=8 y=8 m=[0,1,2,3,3,2,1,0] <<<2, 4>>>(x, y, m, 8)
//@ host
extern "C" __global__ void k(double* x, double* y, const int* m, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i];
    for (int j = 0; j < 6; j++) {
        int t;
        switch ((m[i] + j) % 4) {
            case 0: continue;
            case 1: for (int q = 0; q < 3; q++) { if (q == 2) break; v *= 1 + 0.1 * y[i]; } break;
            case 2: t = j; if (v > 1.2) { if (j > 3) continue; break; } v += t * y[i]; break;
            default: { int t = 2; v = v * v / t; }
        }
        v += 0.1 * j;
        if (v > 40) break;
    }
    int left = 3;
    while (true) { switch (left--) { case 2: v *= y[i]; case 1: continue; case 0: x[i] = v; return; } v = sin(v) + v; }
}

//@ 12: switch on types, enumerations, constants, and on what a case changes
//@ x=8 m=[0,1,2,255,-1,-2,3,4] <<<2, 4>>>(x, m, 8)
enum class Kind : short { A = -1, B = 3 };
enum Plain { P = 4, Q = 255 };
template <int N> __device__ double fixed(double a) { switch (N) { case 0: return a; case 3: return a * a * a; } return 0; }
extern "C" __global__ void k(double* x, const int* m, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int w = m[i];
    double v = x[i];
    switch ((unsigned char)m[i]) { case Q: v *= 2; break; case 254: v *= 3; }
    switch ((Kind)m[i]) { case Kind::A: v += 1; break; case Kind::B: v *= v; break; default:; }
    switch ((Plain)w) { case P: w = 255; v *= 5; break; case Q: w = 4; v *= 7; }
    switch (w) case 3: v = sin(v);
    switch (w) {}
    switch ((long long)w << 33) { case 0: v += 0.25; break; case 1ll << 33: v *= v; }
    switch (threadIdx.x) { case 0u: v *= 1.5; break; case 3: v *= 2.5; }
    switch (v > 1) { case true: v -= 1; break; case false: v = -v; }
    x[i] = fixed<3>(v) + fixed<0>(v) + fixed<1>(v) * w;
}

//@ 3: bits of integers become floats
//@ x=8 m=[1,7,-5,123456789,0,2,99,-1] <<<2, 4>>>(x, m, 8)
//@ host
__device__ float uniform(unsigned& state) { state ^= state << 13; state ^= state >> 17; state ^= state << 5; return __uint_as_float((state >> 9) | 0x3f800000u) - 1.0f; }
extern "C" __global__ void k(double* x, const int* m, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned state = 747796405u * m[i] + 2891336453u;
    for (int j = 0; j < 3; j++) x[i] = x[i] * x[i] + uniform(state);
    float f = m[i];
    int low = __float_as_int(f) & 0xffff, *p = (int*)&f;
    *p ^= 1 << 22;
    double h = __hiloint2double(0x3ff00000 | (m[i] & 0xfffff), ~m[i]);
    x[i] *= 1 + 1e-6 * f + low * 1e-6 + h + __int_as_float(0x40000000 + (m[i] & 255));
    x[i] += (__double2loint(h) & 7) + (__double2hiint(h) & 3) + (__double_as_longlong(h) & 15) + (__float_as_uint(f) & 1u);
}

//@ 3: integer memory as floats, float memory as integers
//@ x=8 y=8 m=[1065353216,1073741824,-1082130432,1056964608,3,4,5,6] c=[0,0] <<<1, 8>>>(x, y, m, c)
//@ host
extern "C" __global__ void k(double* x, double* y, int* m, int* c)
{
    int i = threadIdx.x;
    float* w = reinterpret_cast<float*>(m);
    float t = w[i];
    if (i < 4) w[i] += 2.0f;
    x[i] = x[i] * x[i] * (t + w[i]);
    ((long long*)y)[i] = ((const long long*)x)[i];
    if (i == 3) *(long long*)&x[i] = 0x4000000000000000ll;
    if (i == 5) { unsigned long long* p = (unsigned long long*)(x + i); p[0] = 0; }
    atomicAdd((unsigned*)&c[i & 1], 3u);
    signed char small[2] = {-1, 5};
    x[i] *= ((unsigned char*)small)[i & 1];
}

//@ 3: a pointer to one of two memories, of which one is reinterpreted
//@ x=4 m=[1065353216,1073741824,3,4] <<<1, 4>>>(x, m)
extern "C" __global__ void k(double* x, int* m)
{
    int i = threadIdx.x;
    int own[2] = {0x40400000, 0x40800000};
    float f[2] = {7, 8};
    float* p = i & 1 ? (float*)m + i : i & 2 ? f : (float*)own;
    x[i] = x[i] * x[i] * *p;
    if (i != 1) *p += 1; else p[0] = 1;
    x[i] += own[0] * 1e-9 + f[0] * x[i];
}

//@ 3: bits of an active value
//@ x=4 <<<1, 4>>>(x)
//@ refused: UnsupportedError: the bits of a value that carries a gradient are read here
extern "C" __global__ void k(double* x)
{
    x[threadIdx.x] = __longlong_as_double(__double_as_longlong(x[threadIdx.x]) & 0x7fffffffffffffffll);
}

//@ 3: bits of an active value through memory
//@ x=4 <<<1, 4>>>(x)
//@ refused: UnsupportedError: the bits of a value that carries a gradient are read here
extern "C" __global__ void k(double* x)
{
    double t = x[threadIdx.x] * 2;
    long long* p = (long long*)&t;
    if (*p > 0x4000000000000000ll) x[threadIdx.x] = 3;
}

//@ 3: active values in integer memory
//@ x=4 m=[0,0,0,0,0,0,0,0] <<<1, 4>>>(x, m)
//@ refused: UnsupportedError: the bits of a value that carries a gradient are read here
extern "C" __global__ void k(double* x, int* m)
{
    ((float*)m)[threadIdx.x] = (float)x[threadIdx.x];
    x[threadIdx.x] = ((float*)m)[threadIdx.x];
}

//@ 3: atomic maximum through integers
//@ x=5 <<<1, 4>>>(x)
extern "C" __global__ void k(double* x)
{
    atomicMax((long long*)x, __double_as_longlong(x[1 + threadIdx.x]));
}

//@ 3: atomic sum through integers
//@ x=4 <<<1, 4>>>(x)
//@ refused: UnsupportedError: an atomic operation of uint64 on 'x', which is memory of float64
extern "C" __global__ void k(double* x)
{
    atomicAdd((unsigned long long*)x, 3ull);
}

//@ 21: volatile variables and advice to the compiler
//@ x=8 <<<2, 4>>>(x, 8)
extern "C" __global__ void k(double* __restrict__ x, volatile int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) { return; __builtin_unreachable(); }
    __builtin_assume(n > 0);
    volatile double v = x[i], w = 1;
    const volatile int two = 2;
    w = v * two;
    v += w * v;
    for (volatile int j = 0; j < two; j++) v *= w;
    x[i] = v;
}

//@ 21: template arguments that are numbers of every kind
//@ x=4 <<<1, 4>>>(x)
enum class Mode : unsigned char { A = 3, Z = 250 };
template <int N = -3, unsigned U = 4000000000u, long long L = -5000000000ll, char C = 'a', bool B = true, Mode M = Mode::Z>
__device__ double numbers(double v) {
    enum { P = 3, Q };
    static constexpr double c[2] = {1.5, double(P)};
    v *= (N + U * 1.0 + L + C + B) * 1e-9 + (float)N + (int)M + (unsigned char)N + -N + !B;
    switch (M) { case Mode::A: return 0; case Mode::Z: v *= 2; }
    double a[U > 3 ? 2 : 1];
    a[0] = c[1] * Q; a[1] = v;
    return M == Mode::Z ? a[0] * a[1] + c[0] : v;
}
extern "C" __global__ void k(double* x) { x[threadIdx.x] = numbers<>(x[threadIdx.x]) * 1e-3 + numbers<2, 5, 7, 'b', false, Mode::A>(x[threadIdx.x]); }

//@ 21: constants that the compiler computes
//@ x=4 <<<1, 4>>>(x)
constexpr __device__ int factorial(int n) { return n < 2 ? 1 : n * factorial(n - 1); }
template <typename A, typename B> struct same { static constexpr bool value = false; };
template <typename A> struct same<A, A> { static constexpr bool value = true; };
template <bool B, typename X, typename Y> struct either { using type = X; };
template <typename X, typename Y> struct either<false, X, Y> { using type = Y; };
template <bool B, class T> struct enabled {};
template <class T> struct enabled<true, T> { typedef T type; };
template <typename T> __device__ typename enabled<sizeof(T) == 8, T>::type wide(T a) { return 2 * a; }
template <typename T> __device__ typename enabled<sizeof(T) == 4, T>::type wide(T a) { return 3 * a; }
template <typename T> __device__ T late(T a, T b = T(3));
template <typename T> struct Table { static constexpr T w[3] = {1, 2, 5}; static constexpr int n = 3; };
extern "C" __global__ void k(double* x)
{
    typename either<(sizeof(x[0]) > 4), double, int>::type v = x[threadIdx.x];
    double a[factorial(3)];
    for (int i = 0; i < factorial(3); i++) a[i] = v * i * factorial(4) * 0.01;
    for (int i = 0; i < Table<double>::n; i++) v += Table<double>::w[i] * a[i + 1];
    if (same<decltype(v), double>::value) v *= a[4];
    x[threadIdx.x] = late(v) + wide(v) * wide(2.0f);
}
template <typename T> __device__ T late(T a, T b) { return a * b; }

//@ 21: base classes
//@ x=12 y=4 w=3 <<<1, 4>>>(x, y, w, 4)
struct Place { double x, y; __device__ double norm() const { return x * x + y; } __device__ void move(double d) { x += d; y *= d; } };
struct Charge { double q; __device__ Charge() : q(0.25) {} __device__ Charge(double q) : q(q) {} __device__ double force() const { return q * q; } };
struct Particle : Place, Charge {
    double m = 2.0;
    __device__ Particle(double a, double b, double c) : Place{a, b}, Charge(c), m(a * b) {}
    __device__ Particle(double a) { x = a; y = 3 * a; }
    __device__ double norm() const { return m * Place::norm() + force(); }
    __device__ double all() { move(q); return norm() + this->x * y; }
};
struct Heavy : Particle { double extra; __device__ Heavy(double a) : Particle(a, 2 * a, a * a), extra(a) { m += extra; move(0.5); } };
__device__ double of_base(const Place& p) { return p.x * p.norm(); }
__device__ double of_value(Place p, double s) { p.x *= s; return p.x + p.norm(); }
__device__ void change(Place& p, Charge* c) { p.y += p.x * c->q; c->q *= p.y; }
extern "C" __global__ void k(double* x, double* y, const double* w, int n)
{
    int i = threadIdx.x;
    if (i >= n) return;
    Particle p(x[3 * i], x[3 * i + 1], x[3 * i + 2]), q(x[3 * i]);
    Heavy h(y[i]);
    change(p, &q);
    change(h, &h);
    Place only = h;
    only.move(w[0]);
    static_cast<Place&>(q) = p;
    q.Place::move(w[1]);
    const Place* at = &p;
    Particle copy = h;
    copy = q;
    y[i] = of_base(p) * of_value(h, w[2]) + p.all() * h.norm() + only.norm() + q.norm() + at->x * (*at).norm() + copy.all() + h.extra;
    x[3 * i] = ((Place)h).y + h.Particle::norm();
}

//@ 21: base that is cast back
//@ x=9 y=3 <<<1, 4>>>(x, y, 3)
template <class D> struct Shape {
    double scale;
    __device__ const D& self() const { return static_cast<const D&>(*this); }
    __device__ double area() const { return static_cast<const D*>(this)->raw() * scale; }
    __device__ void grow(double s) { static_cast<D*>(this)->a += s * scale; scale *= s; }
    __device__ double twice() const { return self().raw() + area(); }
};
template <class D> struct Printable { __device__ double shown() const { return 3 * static_cast<const D*>(this)->raw(); } };
struct Box : Shape<Box>, Printable<Box> { double a, b; __device__ double raw() const { return a * b; } };
struct Disc : Shape<Disc> { double a; __device__ double raw() const { return 3 * a * a; } };
struct Ring : Disc { double hole; __device__ double raw() const { return Disc::raw() - hole; } };
template <class T> __device__ double generic(const Shape<T>& s) { return s.scale; }
template <class T> struct Wide : Shape<Disc> { T more; __device__ T sum() const { return more + this->scale; } };
extern "C" __global__ void k(double* x, double* y, int n)
{
    int i = threadIdx.x;
    if (i >= n) return;
    Box b;
    b.scale = x[3 * i]; b.a = x[3 * i + 1]; b.b = x[3 * i + 2];
    b.grow(0.5);
    Ring r;
    r.scale = x[3 * i + 1]; r.a = y[i]; r.hole = x[3 * i];
    r.grow(x[3 * i + 2]);
    Wide<double> w;
    w.scale = y[i]; w.more = y[i] * x[3 * i];
    y[i] = b.area() * b.twice() + b.shown() + r.area() + r.raw() + generic(b) * w.sum();
    x[3 * i] += r.twice();
}

//@ 21: inherited constructors and hidden fields
//@ x=8 y=4 <<<1, 4>>>(x, y, 4)
struct First { double v; double pad; __device__ First(double v) : v(v), pad(2.0f) {} __device__ First() : First(4.0) {} };
struct Second { double v = 1.5; double w = 2.5; };
struct Both : Second { double v; __device__ Both(double a) : v(a) { w *= a; Second::v += v * w; } __device__ double sum() const { return v + 2 * Second::v + 3 * w; } };
struct Plain : Second { double u; };
struct More : First, Both { __device__ More(double a) : Both(a) { v2() *= 2; } __device__ double& v2() { return First::v; } };
struct Planar : double2 { __device__ Planar(double a) { x = a; y = 2 * a; } __device__ double dot(Planar o) const { return x * o.x + y * o.y; } };
struct Tripled : First { using Base = First; __device__ Tripled(double a) : Base(3 * a) {} __device__ Tripled() : Tripled(0.5) { v += 1; } };
extern "C" __global__ void k(double* x, double* y, int n)
{
    int i = threadIdx.x;
    if (i >= n) return;
    Both b(x[i]);
    b.v *= x[i + 4];
    Plain p;
    p.u = y[i];
    More m(x[i]);
    Planar d(y[i]);
    double2 plain = d;
    Tripled t(x[i]), s;
    y[i] = b.sum() * p.v + p.w * p.u + b.w + m.v2() * m.sum() + d.dot(d) * plain.y + t.v * s.v * t.pad;
}

//@ 21: behind a pointer
//@ x=12 <<<1, 4>>>(x, 3)
struct Origin { double x; __device__ void scale(double s) { x *= s; } };
struct Point : Origin { double y; double z[2]; __device__ void mix() { y += x * z[0]; z[1] = x * y; scale(z[1]); } };
extern "C" __global__ void k(double* x, int n)
{
    Point* p = (Point*)x + threadIdx.x;
    if (threadIdx.x >= n) return;
    p->mix();
    Origin* o = p;
    o->scale(p->y);
    p->z[0] = o->x;
}

//@ 21: object that is cast back from a pointer to its base
//@ x=4 <<<1, 4>>>(x)
struct Low { double a; };
struct High : Low { double b; };
extern "C" __global__ void k(double* x)
{
    High p;
    p.a = 2 * x[threadIdx.x];
    p.b = x[threadIdx.x] * x[threadIdx.x];
    Low* q = &p;
    q->a *= 3;
    x[threadIdx.x] = static_cast<High*>(q)->b * static_cast<High*>(q)->a;
}

//@ 21: object that is cast back from a pointer to its second base
//@ x=4 <<<1, 1>>>(x)
//@ refused: UnsupportedError: a base behind the beginning of struct Both
struct One { double a; };
struct Two { double b; };
struct Both : One, Two { double c, d; };
extern "C" __global__ void k(double* x)
{
    Two* q = (Both*)x;
    x[0] = static_cast<Both*>(q)->b * static_cast<Both*>(q)->c;
}
