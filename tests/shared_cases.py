"""Kernels whose threads share memory and wait for one another, with the arguments of a launch.

Each is small, so that the reference executor runs it in no time, and has values of float64, so that gradients are checked to 1e-12.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuad import Duplicated


@dataclass(frozen=True)
class Shared:
    """A kernel `k`, a function that makes its arguments from a random generator, and the geometry."""

    text: str
    make: Callable[[np.random.Generator], tuple[Any, ...]]
    grid: Any
    block: Any


def active(values: Any) -> Duplicated:
    return Duplicated(np.asarray(values, np.float64))


SHARED: dict[str, Shared] = {}

SHARED["rev"] = Shared(
    """extern "C" __global__ void k(const double* x, double* y, int n) {
  __shared__ double s[64];
  int i = blockIdx.x*blockDim.x+threadIdx.x;
  s[threadIdx.x] = x[i]*x[i];
  __syncthreads();
  y[i] = s[blockDim.x-1-threadIdx.x];
}
""",
    lambda r: (active(r.normal(size=64)), active(r.normal(size=64)), np.int32(64)),
    (2,),
    (32,),
)

SHARED["structs"] = Shared(
    """struct Item { int next; double w; float u[2]; };
extern "C" __global__ void k(const double* x, double* y, int n) {
  __shared__ Item s[32];
  __shared__ Item first;
  int i = blockIdx.x*blockDim.x+threadIdx.x, t = threadIdx.x;
  Item mine = {(5*t+1)%32, x[i]*x[i], {0.5f, 0.0f}};
  s[t] = mine;
  s[t].u[1] = 0.25f*t;
  if (t == 0) { first.next = 3; first.w = x[i]; }
  __syncthreads();
  Item other = s[s[t].next];
  double sum = 0;
  for (int k = 0; k < first.next; k++) { sum += other.w*other.u[1]*first.w; other = s[other.next]; }
  __syncthreads();
  s[t].w = sum;
  s[t].next = 31-t;
  __syncthreads();
  y[i] = s[s[t].next].w*s[t].u[0];
}
""",
    lambda r: (active(r.normal(size=64)), active(r.normal(size=64)), np.int32(64)),
    (2,),
    (32,),
)

SHARED["early"] = Shared(
    """extern "C" __global__ void k(const double* x, double* y, int n) {
  __shared__ double s[32];
  int i = blockIdx.x*blockDim.x+threadIdx.x;
  s[threadIdx.x] = 0;
  __syncthreads();
  if (i >= n) return;
  double v = x[i];
  s[threadIdx.x] = v*v;
  __syncthreads();
  y[i] = s[blockDim.x-1-threadIdx.x]*v;
}
""",
    lambda r: (active(r.normal(size=50)), active(r.normal(size=50)), np.int32(50)),
    (2,),
    (32,),
)

SHARED["treesum"] = Shared(
    """extern "C" __global__ void k(const double* x, double* y, int n) {
  __shared__ double a[32];
  int t = threadIdx.x;
  int i = blockIdx.x*blockDim.x+t;
  a[t] = i < n ? x[i]*x[i] : 0.0;
  __syncthreads();
  for (int s = blockDim.x/2; s > 0; s >>= 1) { if (t < s) a[t] += a[t+s]; __syncthreads(); }
  if (t == 0) y[blockIdx.x] = a[0]*a[0];
}
""",
    lambda r: (active(r.normal(size=50)), active(r.normal(size=2)), np.int32(50)),
    (2,),
    (32,),
)

SHARED["treemax"] = Shared(
    """extern "C" __global__ void k(const double* x, double* y, int n) {
  __shared__ double a[32];
  int t = threadIdx.x;
  int i = blockIdx.x*blockDim.x+t;
  a[t] = x[i];
  __syncthreads();
  for (int s = blockDim.x/2; s > 0; s >>= 1) { if (t < s) a[t] = fmax(a[t], a[t+s]); __syncthreads(); }
  if (t == 0) y[blockIdx.x] = a[0]*a[0];
}
""",
    lambda r: (active(r.permutation(64).astype(float) / 10), active(r.normal(size=2)), np.int32(64)),
    (2,),
    (32,),
)

SHARED["matmul"] = Shared(
    """#define T 8
extern "C" __global__ void k(const double* A, const double* B, double* C, int n) {
  __shared__ double As[T][T], Bs[T][T];
  int tx = threadIdx.x, ty = threadIdx.y;
  int row = blockIdx.y*T+ty, col = blockIdx.x*T+tx;
  double acc = 0;
  for (int m = 0; m < (n + T - 1) / T; ++m) {
    As[ty][tx] = row < n && m*T+tx < n ? A[row*n+m*T+tx] : 0.0;
    Bs[ty][tx] = m*T+ty < n && col < n ? B[(m*T+ty)*n+col] : 0.0;
    __syncthreads();
    for (int k = 0; k < T; ++k) acc += As[ty][k]*Bs[k][tx];
    __syncthreads();
  }
  if (row < n && col < n) C[row*n+col] = acc;
}
""",
    lambda r: (active(r.normal(size=(19, 19))), active(r.normal(size=(19, 19))), active(r.normal(size=(19, 19))), np.int32(19)),
    (3, 3),
    (8, 8),
)

SHARED["case60"] = Shared(
    """extern "C" __global__ void k(double* x, int n) {
  int i = threadIdx.x;
  double t = x[n-1-i];
  __syncthreads();
  x[i] = sin(t)*t;
}
""",
    lambda r: (active(r.normal(size=32)), np.int32(32)),
    (1,),
    (32,),
)

SHARED["stencil"] = Shared(
    """#define R 2
extern "C" __global__ void k(const double* u, double* v, int n) {
  __shared__ double s[32+2*R];
  int t = threadIdx.x, i = blockIdx.x*blockDim.x+t;
  s[t+R] = i < n ? u[i] : 0.0;
  if (t < R) {
    s[t] = i-R >= 0 ? u[i-R] : 0.0;
    s[t+blockDim.x+R] = i+(int)blockDim.x < n ? u[i+blockDim.x] : 0.0;
  }
  __syncthreads();
  if (i >= n) return;
  double acc = 0;
  for (int k = -R; k <= R; ++k) acc += s[t+R+k]*s[t+R]*(k+3);
  v[i] = acc;
}
""",
    lambda r: (active(r.normal(size=75)), active(r.normal(size=75)), np.int32(75)),
    (3,),
    (32,),
)

SHARED["scan"] = Shared(
    """extern "C" __global__ void k(double* x, int n) {
  __shared__ double s[2][32];
  int t = threadIdx.x, i = blockIdx.x*blockDim.x+t;
  int out = 0, in = 1;
  s[out][t] = x[i];
  __syncthreads();
  for (int d = 1; d < blockDim.x; d *= 2) {
    out = 1 - out; in = 1 - out;
    if (t >= d) s[out][t] = s[in][t] * s[in][t-d]; else s[out][t] = s[in][t];
    __syncthreads();
  }
  x[i] = s[out][t];
}
""",
    lambda r: (active(r.uniform(0.8, 1.2, size=64)), np.int32(64)),
    (2,),
    (32,),
)

SHARED["softmax"] = Shared(
    """extern "C" __global__ void k(double* x, int n) {
  __shared__ double s[32];
  int t = threadIdx.x;
  double* row = x + blockIdx.x*n;
  double m = -1e300;
  for (int j = t; j < n; j += blockDim.x) m = fmax(m, row[j]);
  s[t] = m;
  __syncthreads();
  for (int d = blockDim.x/2; d > 0; d /= 2) { if (t < d) s[t] = fmax(s[t], s[t+d]); __syncthreads(); }
  m = s[0];
  __syncthreads();
  double sum = 0;
  for (int j = t; j < n; j += blockDim.x) { double e = exp(row[j]-m); row[j] = e; sum += e; }
  s[t] = sum;
  __syncthreads();
  for (int d = blockDim.x/2; d > 0; d /= 2) { if (t < d) s[t] += s[t+d]; __syncthreads(); }
  sum = s[0];
  for (int j = t; j < n; j += blockDim.x) row[j] /= sum;
}
""",
    lambda r: (active(r.permutation(150).reshape(3, 50) / 30.0), np.int32(50)),
    (3,),
    (32,),
)

SHARED["helper"] = Shared(
    """__device__ double total(double v) {
  static __shared__ double s[32];
  s[threadIdx.x] = v;
  __syncthreads();
  double r = 0;
  for (int j = 0; j < 32; ++j) r += s[j]*s[j];
  __syncthreads();
  return r;
}
extern "C" __global__ void k(const double* x, double* y) {
  int i = blockIdx.x*blockDim.x+threadIdx.x;
  double a = total(x[i]);
  double b = total(x[i]*a*0.1);
  y[i] = sin(a)*b;
}
""",
    lambda r: (active(r.normal(size=64)), active(r.normal(size=64))),
    2,
    32,
)

SHARED["timesteps"] = Shared(
    """extern "C" __global__ void k(double* x, int steps) {
  __shared__ double s[34];
  int t = threadIdx.x, i = blockIdx.x*blockDim.x+t;
  s[t+1] = x[i];
  if (t == 0) { s[0] = 0; s[33] = 0; }
  __syncthreads();
  for (int m = 0; m < steps; ++m) {
    double v = s[t+1] + 0.1*sin(s[t]*s[t+2]);
    __syncthreads();
    s[t+1] = v;
    __syncthreads();
  }
  x[i] = s[t+1];
}
""",
    lambda r: (active(r.normal(size=64)), np.int32(4)),
    2,
    32,
)

SHARED["nested"] = Shared(
    """extern "C" __global__ void k(const double* A, double* y, int n) {
  __shared__ double s[8];
  int t = threadIdx.x;
  double acc = 1;
  for (int a = 0; a < 3; ++a) {
    double part = 0;
    for (int b = 0; b < n; b += 8) {
      s[t] = A[b+t]*acc;
      __syncthreads();
      for (int j = 0; j < 8; ++j) part += s[j]*s[(j+t)%8];
      __syncthreads();
    }
    acc = sin(part*0.1) + acc;
  }
  y[t] = acc;
}
""",
    lambda r: (active(r.normal(size=24)), active(r.normal(size=8)), np.int32(24)),
    1,
    8,
)

SHARED["double_buffer"] = Shared(
    """extern "C" __global__ void k(const double* A, double* y, int n) {
  __shared__ double s[2][8];
  int t = threadIdx.x, cur = 0;
  double acc = 0;
  s[0][t] = A[t];
  __syncthreads();
  for (int b = 8; b <= n; b += 8) {
    if (b < n) s[1-cur][t] = A[b+t];
    for (int j = 0; j < 8; ++j) acc += s[cur][j]*s[cur][t]*(j+1);
    __syncthreads();
    cur = 1-cur;
  }
  y[t] = acc*acc;
}
""",
    lambda r: (active(r.normal(size=24)), active(r.normal(size=8)), np.int32(24)),
    1,
    8,
)

SHARED["uniform_if"] = Shared(
    """extern "C" __global__ void k(const double* x, double* y, int flag, int n) {
  __shared__ double s[16];
  int t = threadIdx.x;
  double v = x[t];
  if (flag > blockIdx.x) {
    s[t] = v*v;
    __syncthreads();
    v = s[(t+1)%16]*v;
    __syncthreads();
    s[t] = v;
    __syncthreads();
    v += s[15-t]*s[3];
  } else { v = 2*v; }
  y[blockIdx.x*16+t] = v*v;
}
""",
    lambda r: (active(r.normal(size=16)), active(r.normal(size=32)), np.int32(1), np.int32(3)),
    2,
    16,
)

SHARED["indices"] = Shared(
    """extern "C" __global__ void k(const double* x, const int* p, double* y, int n) {
  __shared__ int idx[16]; __shared__ double w;
  int t = threadIdx.x;
  idx[t] = p[t];
  if (t == 0) w = x[5];
  __syncthreads();
  y[t] = x[idx[15-t]]*x[t]*w;
}
""",
    lambda r: (active(r.normal(size=16)), r.integers(0, 16, 16).astype(np.int32), active(r.normal(size=16)), np.int32(3)),
    1,
    16,
)

SHARED["histogram"] = Shared(
    """extern "C" __global__ void k(const double* x, const int* bin, double* out, int n) {
  __shared__ double s[5];
  int t = threadIdx.x, i = blockIdx.x*blockDim.x+t;
  if (t < 5) s[t] = 0;
  __syncthreads();
  if (i < n) atomicAdd(&s[bin[i]], x[i]*x[i]);
  __syncthreads();
  if (t < 5) atomicAdd(&out[t], s[t]*s[t]);
}
""",
    lambda r: (active(r.normal(size=50)), r.integers(0, 5, 50).astype(np.int32), active(r.normal(size=5)), np.int32(50)),
    2,
    32,
)

SHARED["global_exchange"] = Shared(
    """extern "C" __global__ void k(double* x, double* y, int n) {
  int t = threadIdx.x;
  double* b = x + blockIdx.x*16;
  for (int m = 0; m < 3; ++m) {
    double v = b[(t+1)%16]*b[t];
    __syncthreads();
    b[t] = v + 0.3;
    __syncthreads();
  }
  y[blockIdx.x*16+t] = b[15-t]*b[t];
}
""",
    lambda r: (active(r.uniform(0.5, 1.5, size=32)), active(r.normal(size=32)), np.int32(3)),
    2,
    16,
)

SHARED["middle_return"] = Shared(
    """extern "C" __global__ void k(const double* x, double* y, int n) {
  __shared__ double s[16];
  int t = threadIdx.x, i = blockIdx.x*blockDim.x+t;
  s[t] = i < n ? x[i] : 0.0;
  __syncthreads();
  double v = s[(t+3)%16];
  if (i >= n) { return; }
  double q = v*s[t];
  for (int m = 0; m < 2; ++m) {
    __syncthreads();
    s[t] = q*q + m;
    __syncthreads();
    q += s[t/2]*x[i];
  }
  y[i] = q;
}
""",
    lambda r: (active(r.uniform(0.5, 1, size=28)), active(r.normal(size=28)), np.int32(28)),
    2,
    16,
)

SHARED["grid_stride_tiles"] = Shared(
    """extern "C" __global__ void k(const double* x, double* y, int n) {
  __shared__ double s[8];
  int t = threadIdx.x;
  for (int base = blockIdx.x*8; base < n; base += gridDim.x*8) {
    s[t] = base+t < n ? x[base+t] : 1.0;
    __syncthreads();
    if (base + t < n) y[base+t] = s[7-t]*s[t]*s[0];
    __syncthreads();
  }
}
""",
    lambda r: (active(r.uniform(0.5, 1, size=45)), active(r.normal(size=45)), np.int32(45)),
    2,
    8,
)

SHARED["converge"] = Shared(
    """extern "C" __global__ void k(double* x, double tol) {
  __shared__ double s[8]; __shared__ double err;
  int t = threadIdx.x;
  double v = x[t];
  int it = 0;
  while (it < 50) {
    s[t] = v;
    __syncthreads();
    double nv = 0.5*(s[(t+1)%8] + s[(t+7)%8])*cos(s[t]*0.1);
    if (t == 0) err = fabs(nv - v);
    __syncthreads();
    v = nv;
    it++;
    if (err < tol) break;
  }
  x[t] = v*it;
}
""",
    lambda r: (active(r.uniform(0.5, 1, size=8)), np.float64(0.01)),
    1,
    8,
)

SHARED["same_value"] = Shared(
    """extern "C" __global__ void k(const double* x, double* y) {
  __shared__ double w;
  int t = threadIdx.x;
  double v = x[0]*x[1];
  w = v;
  __syncthreads();
  y[t] = w*x[t];
}
""",
    lambda r: (active(r.uniform(0.5, 1, size=8)), active(r.normal(size=8))),
    1,
    8,
)

SHARED["reuse"] = Shared(
    """extern "C" __global__ void k(const double* x, double* y) {
  __shared__ double s[16];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  double a = 0;
  for (int j = 0; j <= t; ++j) a += s[j]*s[t];
  __syncthreads();
  s[t] = a*a;
  __syncthreads();
  double b = 0;
  for (int j = t; j < 16; ++j) b += s[j]*a;
  y[t] = b;
}
""",
    lambda r: (active(r.uniform(0.5, 1, size=16)), active(r.normal(size=16))),
    1,
    16,
)

SHARED["layernorm"] = Shared(
    """__device__ double red(double v, double* s) {
  s[threadIdx.x] = v; __syncthreads();
  for (int d = blockDim.x/2; d > 0; d >>= 1) { if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x+d]; __syncthreads(); }
  double r = s[0]; __syncthreads(); return r;
}
extern "C" __global__ void k(double* x, const double* g, int n) {
  __shared__ double s[16];
  double* row = x + blockIdx.x*n;
  double m = 0;
  for (int j = threadIdx.x; j < n; j += blockDim.x) m += row[j];
  m = red(m, s)/n;
  double v = 0;
  for (int j = threadIdx.x; j < n; j += blockDim.x) v += (row[j]-m)*(row[j]-m);
  v = rsqrt(red(v, s)/n + 1e-5);
  for (int j = threadIdx.x; j < n; j += blockDim.x) row[j] = (row[j]-m)*v*g[j];
}
""",
    lambda r: (active(r.normal(size=(3, 40))), active(r.normal(size=40)), np.int32(40)),
    3,
    16,
)

SHARED["stencil2d"] = Shared(
    """#define B 4
extern "C" __global__ void k(const double* u, double* v, int n) {
  __shared__ double s[B+2][B+2];
  int tx=threadIdx.x, ty=threadIdx.y, x = blockIdx.x*B+tx, y = blockIdx.y*B+ty;
  for (int j = ty*B+tx; j < (B+2)*(B+2); j += B*B) {
    int gx = blockIdx.x*B + j%(B+2) - 1, gy = blockIdx.y*B + j/(B+2) - 1;
    s[j/(B+2)][j%(B+2)] = gx >= 0 && gx < n && gy >= 0 && gy < n ? u[gy*n+gx] : 0.0;
  }
  __syncthreads();
  if (x < n && y < n)
    v[y*n+x] = s[ty+1][tx+1]*(s[ty][tx+1]+s[ty+2][tx+1]+s[ty+1][tx]+s[ty+1][tx+2]);
}
""",
    lambda r: (active(r.normal(size=(10, 10))), active(r.normal(size=(10, 10))), np.int32(10)),
    (3, 3),
    (4, 4),
)

SHARED["dowhile"] = Shared(
    """extern "C" __global__ void k(double* x, int n) {
  __shared__ double s[8];
  int t = threadIdx.x, m = 0;
  double v = x[t];
  do {
    s[t] = v*v;
    __syncthreads();
    v = s[(t+m)%8] + 0.1*v;
    __syncthreads();
  } while (++m < n);
  x[t] = v;
}
""",
    lambda r: (active(r.uniform(0.5, 1, size=8)), np.int32(3)),
    1,
    8,
)

SHARED["lu"] = Shared(
    """extern "C" __global__ void k(double* a) {
  __shared__ double s[6][6];
  int i = threadIdx.y, j = threadIdx.x;
  s[i][j] = a[i*6+j];
  __syncthreads();
  for (int p = 0; p < 5; ++p) {
    if (i > p && j == p) s[i][j] /= s[p][p];
    __syncthreads();
    if (i > p && j > p) s[i][j] -= s[i][p]*s[p][j];
    __syncthreads();
  }
  a[i*6+j] = s[i][j];
}
""",
    lambda r: (active(r.normal(size=(6, 6)) + 6 * np.eye(6)),),
    1,
    (6, 6),
)

SHARED["ordered_reads"] = Shared(
    """extern "C" __global__ void k(const double* x, double* y) {
  __shared__ double s[8];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  double a = s[(t+1)%8];
  __syncthreads();
  if (t % 2 == 0) s[t] = a*a;
  __syncthreads();
  double b = s[(t+1)%8];
  y[t] = a*b*b;
}
""",
    lambda r: (active(r.uniform(0.5, 1, size=8)), active(r.normal(size=8))),
    1,
    8,
)

SHARED["counter"] = Shared(
    """extern "C" __global__ void k(const double* x, double* y, int n) {
  __shared__ int cnt; __shared__ double s[16];
  int t = threadIdx.x;
  if (t == 0) cnt = 0;
  s[t] = 0;
  __syncthreads();
  if (x[t] > 0.7) { int p = atomicAdd(&cnt, 1); s[p] = x[t]*x[t]; }
  __syncthreads();
  if (t < cnt) y[t] = s[t]*s[t];
  else y[t] = x[t];
}
""",
    lambda r: (active(r.uniform(0.5, 1, size=16)), active(r.normal(size=16)), np.int32(3)),
    1,
    16,
)

SHARED["intmax"] = Shared(
    """extern "C" __global__ void k(const double* x, const int* p, double* y, int n) {
  __shared__ int most;
  int t = threadIdx.x;
  if (t == 0) most = 0;
  __syncthreads();
  atomicMax(&most, p[t]);
  __syncthreads();
  double v = x[most];
  __syncthreads();
  if (t == 0) most = 1;
  __syncthreads();
  y[t] = v*v*x[t]*x[most];
}
""",
    lambda r: (active(r.uniform(0.5, 1, size=16)), r.integers(0, 16, 16).astype(np.int32), active(r.normal(size=16)), np.int32(3)),
    1,
    16,
)

SHARED["nested_returns"] = Shared(
    """extern "C" __global__ void k(const double* x, double* y, int n, int m) {
  __shared__ double s[16];
  int t = threadIdx.x, i = blockIdx.x*16+t;
  if (i >= n) return;
  double v = x[i];
  if (t >= m) { y[i] = v*v; return; }
  s[t] = v*v;
  __syncthreads();
  double w = s[t/2]*v;
  if (t >= m-2) { y[i] = w*w; return; }
  __syncthreads();
  s[t] = w;
  __syncthreads();
  y[i] = s[t/2]*w;
}
""",
    lambda r: (active(r.uniform(0.5, 1, size=28)), active(r.normal(size=28)), np.int32(28), np.int32(11)),
    2,
    16,
)

# --- warps ---

WARPS: dict[str, Shared] = {}

WARPS["down_all"] = Shared(
    """extern "C" __global__ void k(double* x) {
  double v = x[threadIdx.x];
  for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffff, v, d);
  x[threadIdx.x] = v;
}
""",
    lambda r: (active(r.normal(size=64)),),
    1,
    64,
)

WARPS["up_all"] = Shared(
    """extern "C" __global__ void k(double* x) {
  double v = x[threadIdx.x];
  for (int d = 1; d < 32; d *= 2) { double o = __shfl_up_sync(0xffffffff, v, d); if ((threadIdx.x & 31) >= d) v = v*o; }
  x[threadIdx.x] = v;
}
""",
    lambda r: (active(r.uniform(0.8, 1.2, size=64)),),
    1,
    64,
)

WARPS["xor"] = Shared(
    """extern "C" __global__ void k(double* x) {
  double v = x[threadIdx.x];
  for (int d = 16; d > 0; d >>= 1) v = sin(v) * __shfl_xor_sync(0xffffffffu, v, d) + v;
  x[threadIdx.x] = v;
}
""",
    lambda r: (active(r.uniform(0.8, 1.2, size=64)),),
    1,
    64,
)

WARPS["idx"] = Shared(
    """extern "C" __global__ void k(double* x, const int* p) {
  double v = x[threadIdx.x];
  double a = __shfl_sync(0xffffffff, v, 0);
  double b = __shfl_sync(0xffffffff, v*v, p[threadIdx.x]);
  double c = __shfl_sync(0xffffffff, v, p[threadIdx.x], 8);
  x[threadIdx.x] = a*b*c+v;
}
""",
    lambda r: (active(r.uniform(0.8, 1.2, size=64)), r.integers(0, 64, 64).astype(np.int32)),
    1,
    64,
)

WARPS["widths"] = Shared(
    """extern "C" __global__ void k(double* x, int w) {
  double v = x[threadIdx.x];
  v += 0.5*__shfl_down_sync(0xffffffff, v, 3, 8);
  v += 0.3*__shfl_up_sync(0xffffffff, v*v, 2, w);
  v += 0.7*__shfl_xor_sync(0xffffffff, v, 5, 8);
  v += 0.7*__shfl_xor_sync(0xffffffff, v*v, 9, 4);
  x[threadIdx.x] = v;
}
""",
    lambda r: (active(r.uniform(0.8, 1.2, size=64)), np.int32(16)),
    1,
    64,
)

WARPS["partial_mask"] = Shared(
    """extern "C" __global__ void k(double* x) {
  double v = x[threadIdx.x];
  if ((threadIdx.x & 31) < 16) { v += __shfl_down_sync(0x0000ffff, v*v, 4, 16); v += __shfl_xor_sync(0xffffu, v, 3); }
  else v *= 2;
  x[threadIdx.x] = v;
}
""",
    lambda r: (active(r.uniform(0.8, 1.2, size=64)),),
    1,
    64,
)

WARPS["odd_mask"] = Shared(
    """extern "C" __global__ void k(double* x) {
  double v = x[threadIdx.x];
  int l = threadIdx.x & 31;
  if (l % 2 == 0) { double o = __shfl_down_sync(0x55555555, v*v, 2); double q = __shfl_up_sync(0x55555555, v, 4);
    double z = __shfl_sync(0x55555555, v, (l*2)%32); v += o*q*z; }
  x[threadIdx.x] = v;
}
""",
    lambda r: (active(r.uniform(0.8, 1.2, size=64)),),
    1,
    64,
)

WARPS["early"] = Shared(
    """extern "C" __global__ void k(const double* x, double* y, int n) {
  int i = blockIdx.x*blockDim.x+threadIdx.x;
  if (i >= n) return;
  double v = x[i];
  int count = min(32, n - (i & ~31));
  for (int d = 16; d > 0; d >>= 1) { double o = __shfl_down_sync(0xffffffff, v, d); if ((i & 31) + d < count) v += o*v; }
  y[i] = v;
}
""",
    lambda r: (active(r.uniform(0.1, 0.2, size=50)), active(r.normal(size=50)), np.int32(50)),
    2,
    32,
)

WARPS["block_reduce"] = Shared(
    """__device__ double warp(double v) { for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d); return v; }
__device__ double block(double v) {
  static __shared__ double s[32];
  int l = threadIdx.x % 32, w = threadIdx.x / 32;
  v = warp(v);
  if (l == 0) s[w] = v;
  __syncthreads();
  v = threadIdx.x < blockDim.x/32 ? s[l] : 0;
  if (w == 0) v = warp(v);
  return v;
}
extern "C" __global__ void k(const double* x, double* y, int n) {
  double sum = 0;
  for (int i = blockIdx.x*blockDim.x+threadIdx.x; i < n; i += blockDim.x*gridDim.x) sum += x[i]*x[i];
  sum = block(sum);
  if (threadIdx.x == 0) atomicAdd(y, sum*sum);
}
""",
    lambda r: (active(r.uniform(0.1, 0.2, size=300)), active(r.normal(size=1)), np.int32(300)),
    2,
    96,
)

WARPS["votes"] = Shared(
    """extern "C" __global__ void k(double* x, const int* f) {
  int t = threadIdx.x;
  unsigned b = __ballot_sync(0xffffffff, f[t]);
  int any = __any_sync(0xffffffff, f[t] > 1), all = __all_sync(0xffffffff, f[t] < 3);
  double v = x[t]*x[t];
  if (b >> (t & 31) & 1) v *= __popc(b);
  if (any) v += x[t];
  if (all) v *= 2;
  x[t] = v;
}
""",
    lambda r: (active(r.uniform(0.8, 1.2, size=64)), r.integers(0, 3, 64).astype(np.int32)),
    1,
    64,
)

WARPS["syncwarp"] = Shared(
    """extern "C" __global__ void k(double* x) {
  __shared__ double s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncwarp();
  double v = s[t ^ 1] * s[t];
  __syncwarp();
  s[t] = v;
  __syncthreads();
  if (t < 32) {
    s[t] += s[t+32]*s[t]; __syncwarp();
    double u = s[(t+16)%32]; __syncwarp();
    s[t] += u*u; __syncwarp();
    x[t] = s[31-t];
  }
}
""",
    lambda r: (active(r.uniform(0.8, 1.2, size=64)),),
    1,
    64,
)

WARPS["ints"] = Shared(
    """extern "C" __global__ void k(double* x, int n) {
  int t = threadIdx.x;
  int j = __shfl_xor_sync(0xffffffff, t, 1);
  double v = x[j];
  int src = __shfl_sync(0xffffffff, (t*7)%32, 3);
  v *= __shfl_sync(0xffffffff, v, src);
  __syncthreads();
  x[t] = v;
}
""",
    lambda r: (active(r.uniform(0.8, 1.2, size=32)), np.int32(3)),
    1,
    32,
)

WARPS["small_block"] = Shared(
    """extern "C" __global__ void k(double* x) {
  double v = x[blockIdx.x*blockDim.x+threadIdx.x];
  for (int d = 4; d > 0; d >>= 1) v += sin(v)*__shfl_down_sync(0xffffffff, v, d, 8);
  x[blockIdx.x*blockDim.x+threadIdx.x] = v;
}
""",
    lambda r: (active(r.normal(size=48)),),
    2,
    24,
)

WARPS["loop_nonuniform"] = Shared(
    """extern "C" __global__ void k(double* x, int n) {
  int t = threadIdx.x, w = t/32;
  double v = x[t];
  for (int m = 0; m <= w; ++m) {
    double u = v*v;
    for (int d = 1; d < 32; d *= 2) u += __shfl_xor_sync(0xffffffff, u, d);
    v = v/sqrt(u);
  }
  x[t] = v;
}
""",
    lambda r: (active(r.uniform(0.8, 1.2, size=64)), np.int32(3)),
    1,
    64,
)
