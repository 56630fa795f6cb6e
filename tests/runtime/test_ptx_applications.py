"""Kernels as application programmers write them, as NVRTC's PTX against the reference executor: primal, reverse and forward mode, with
everything recorded, and with every addition to a shadow atomic.

Each mixes what a compiler may understand differently: widths of integers and their conversions, halves, vectors of the language, structs
and templates, memory of blocks and warps, early returns, atomics, intrinsics.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from nightly import share
from ptx import nvrtc
from ptx_executor import Ptx

import gpuad
from gpuad import Duplicated, pipeline
from gpuad.runtime.reference import Reference

pytestmark = pytest.mark.skipif(nvrtc.library() is None, reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")

WAYS: dict[str, tuple[Any, Callable[[], AbstractContextManager[None]]]] = {
    "primal": (None, nullcontext),
    "reverse": (gpuad.Reverse, nullcontext),
    "forward": (gpuad.Forward, nullcontext),
    "recorded": (gpuad.Reverse, pipeline.everything_recorded_for_tests),
    "atomic": (gpuad.Reverse, pipeline.nothing_plain_for_tests),
}
CHOSEN = WAYS if os.environ.get("GPUAD_NIGHTLY") else ("reverse",)
EXECUTORS = {"reference": Reference(), "ptx": Ptx("-fmad=false", "-ftz=false")}


class Array(NamedTuple):
    """An argument: numbers of a type between two bounds; with a shadow, unless they are integers or `fixed`."""

    count: int
    type: Any = np.float32
    low: float = -1.0
    high: float = 1.0
    fixed: bool = False

    def made(self, rng: np.random.Generator) -> Any:
        kind = np.dtype(self.type).kind
        if kind in "iub":
            return rng.integers(int(self.low), int(self.high), self.count).astype(self.type)
        values = rng.uniform(self.low, self.high, self.count).astype(self.type)
        shadow = rng.uniform(-1, 1, self.count).astype(self.type if np.dtype(self.type).itemsize > 2 else np.float32)
        return values if self.fixed else Duplicated(values, shadow)


class Application(NamedTuple):
    """A kernel `k` with its launch."""

    name: str
    text: str
    grid: Any
    block: Any
    args: Sequence[Any]
    shared_mem: int = 0


def reals(count: int, low: float = -1.0, high: float = 1.0) -> Array:
    return Array(count, np.float32, low, high)


def doubles(count: int, low: float = -1.0, high: float = 1.0) -> Array:
    return Array(count, np.float64, low, high)


def whole(count: int, low: int, high: int, type_: Any = np.int32) -> Array:
    return Array(count, type_, low, high)


HEAD = 'extern "C" __global__ void k'
AT = "int i = blockIdx.x * blockDim.x + threadIdx.x; "


def per_thread(name: str, params: str, body: str, args: Sequence[Any], before: str = "", threads: int = 64, block: int = 32) -> Application:
    """A kernel with a thread `i` for each element."""
    return Application(name, f"{before}\n{HEAD}({params}) {{ {AT}{body} }}", -(-threads // block), block, args)


# --- integers, bits, conversions ------------------------------------------------------------------------------------------------------

INTEGERS = [
    per_thread(
        "bytes of an image",
        "const unsigned char* image, const float* gain, float* out, int n",
        "if (i < n) { unsigned char p = image[i]; p += 100; float v = p / 255.0f; out[i] = v * gain[i % 3] + (image[i] >> 4); }",
        [whole(60, 0, 256, np.uint8), reals(3), reals(60), 60],
    ),
    per_thread(
        "signed bytes as weights",
        "const signed char* w, const float* x, const float* scale, float* y, int rows, int cols",
        """if (i >= rows) return;
        float sum = 0.f;
        for (short c = 0; c < cols; ++c) sum += (float)(w[i * cols + c] * 2) * x[c];
        y[i] = sum * scale[i] / 127.f;""",
        [whole(40 * 7, -128, 128, np.int8), reals(7), reals(40), reals(40), 40, 7],
    ),
    per_thread(
        "differences of shorts",
        "const short* delta, double* level, int n",
        """if (i >= n) return;
        short total = 0;
        for (int j = 0; j <= i; ++j) total += delta[j];
        level[i] *= 1.0 / (1 << 7) * total;""",
        [whole(50, -30000, 30000, np.int16), doubles(50), 50],
    ),
    per_thread(
        "an index beyond 32 bits",
        "const double* x, double* y, long long stride, int n",
        "if (i < n) { long long at = (i + 1) * stride; y[i] = sin(x[at % n]) * (double)(at >> 33); }",
        [doubles(41), doubles(41), np.int64(3000000001), 41],
    ),
    per_thread(
        "unsigned differences wrap",
        "const unsigned* a, const unsigned* b, const float* x, float* y, unsigned n",
        "if (i < n) { unsigned d = a[i] - b[i]; y[i] = x[d % n] * (float)(d > 0x7fffffffu) + x[i] * (d & 3u); }",
        [whole(50, 0, 100, np.uint32), whole(50, 0, 100, np.uint32), reals(50), reals(50), np.uint32(50)],
    ),
    per_thread(
        "remainders of negative numbers",
        "const int* shift, const double* x, double* y, int n",
        """if (i >= n) return;
        int j = i + shift[i];
        int r = j % n, q = j / 7;
        if (r < 0) r += n;
        y[i] += x[r] * q + x[((i - 9) % n + n) % n];""",
        [whole(45, -200, 200), doubles(45), doubles(45), 45],
    ),
    per_thread(
        "bits",
        "const unsigned* code, const float* x, float* y, int n",
        """if (i >= n) return;
        unsigned c = code[i];
        int count = __popc(c) + __clz(c) - __ffs(c);
        unsigned turned = __brev(c) >> 16 ^ (c << 3 | c >> 29);
        y[i] = x[count & 31] * (turned & 0xff) + x[turned % 40u] * __umulhi(c, 2654435761u) * 1e-9f
            + __mul24((int)c, 3) * 1e-8f * x[i];""",
        [whole(40, 0, 2**32, np.uint32), reals(40), reals(40), 40],
    ),
    per_thread(
        "bits of floats",
        "const float* coded, const float* x, float* y, int n",
        """if (i >= n) return;
        int b = __float_as_int(coded[i]);
        int e = (b >> 23 & 255) - 127;
        float scale = __int_as_float((127 - e) << 23);
        y[i] = x[i] * scale + e;""",
        [Array(40, np.float32, 0.1, 900.0, fixed=True), reals(40), reals(40), 40],
    ),
    per_thread(
        "conversions that saturate",
        "const float* x, const double* z, float* y, int n",
        """if (i >= n) return;
        int a = (int)(x[i] * 3e9f);
        unsigned b = (unsigned)(x[i] * 6e9f);
        unsigned char c = (unsigned char)(int)(x[i] * 1000.f);
        long long d = (long long)(z[i] * 1e19);
        y[i] = x[i] * (a >> 16) + x[i] * (b >> 20) + c * x[i]
            + (float)(d >> 40) * x[i] + (float)z[i];""",
        [reals(48), doubles(48), reals(48), 48],
    ),
    per_thread(
        "rounded to a grid",
        "const float* x, float* y, int n",
        """if (i >= n) return;
        float lo = floorf(x[i] * 8.f), hi = ceilf(x[i] * 8.f), near = rintf(x[i] * 8.f), away = roundf(x[i] * 8.f);
        y[i] = (x[i] * 8.f - lo) * (hi - x[i]) + truncf(x[i]) * near - away * x[i]
            + __float2int_rn(x[i] * 8.f) * x[i] + fmodf(x[i], 0.3f);""",
        [reals(48, -5.0, 5.0), reals(48), 48],
    ),
    per_thread(
        "a hash draws the sample",
        "const unsigned long long* seed, const double* x, double* mean, int n, int samples",
        """if (i >= n) return;
        unsigned long long s = seed[i];
        double sum = 0;
        for (int k = 0; k < samples; ++k) {
            s = s * 6364136223846793005ULL + 1442695040888963407ULL;
            unsigned hi = (unsigned)(s >> 33);
            double u = hi * (1.0 / 2147483648.0);
            sum += exp(-x[hi % n] * u);
        }
        mean[i] = sum / samples;""",
        [whole(30, 0, 2**62, np.uint64), doubles(30), doubles(30), 30, 5],
    ),
]

# --- functions of reals ---------------------------------------------------------------------------------------------------------------

FUNCTIONS = [
    per_thread(
        "fast functions",
        "const float* x, float* y, int n",
        """if (i >= n) return;
        float a = x[i], s, c;
        __sincosf(a, &s, &c);
        y[i] = __expf(-a) * s + __logf(a + 2.f) * c + __fdividef(a, a + 3.f) + rsqrtf(a + 2.f) + __powf(a + 2.f, 1.5f)
            + __saturatef(a) + __tanf(a);""",
        [reals(64), reals(64), 64],
    ),
    per_thread(
        "black and scholes",
        "const double* spot, const double* strike, const double* t, double* call, double rate, double sigma, int n",
        """if (i >= n) return;
        double root = sqrt(t[i]) * sigma;
        double d1 = (log(spot[i] / strike[i]) + (rate + 0.5 * sigma * sigma) * t[i]) / root, d2 = d1 - root;
        call[i] = spot[i] * normcdf(d1) - strike[i] * exp(-rate * t[i]) * 0.5 * erfc(-d2 * 0.7071067811865476);""",
        [doubles(40, 80, 120), doubles(40, 80, 120), doubles(40, 0.1, 2), doubles(40), 0.03, 0.2, 40],
    ),
    per_thread(
        "literals of two precisions",
        "const float* x, const double* z, float* y, double* w, int n",
        "if (i < n) { y[i] = x[i] * 0.1 + z[i] * 0.1f; w[i] = 0.1f * z[i] + 1 / 3.f * x[i] + 1.0 / 3 * x[i]; }",
        [reals(40), doubles(40), reals(40), doubles(40), 40],
    ),
    per_thread(
        "steps of Newton until they are small",
        "const float* a, float* root, int n",
        """if (i >= n) return;
        float r = a[i]; int steps = 0;
        do {
            float next = r - (r * r - a[i]) / (2.f * r);
            if (fabsf(next - r) < 1e-6f) { r = next; break; }
            r = next;
        } while (++steps < 20);
        root[i] = steps > 15 ? -r : r;""",
        [reals(40, 0.2, 9), reals(40), 40],
    ),
    per_thread(
        "fma and its roundings",
        "const double* x, const float* u, double* y, float* v, int n",
        """if (i >= n) return;
        y[i] = fma(x[i], x[n - 1 - i], -y[i]) + __dmul_rn(x[i], 3.0) + __ddiv_rn(x[i], x[i] + 4.0) + hypot(x[i], y[i]);
        v[i] = fmaf(u[i], u[n - 1 - i], v[i]) + __fadd_rn(u[i], 1e-3f) * __frcp_rn(u[i] + 3.f)
            + copysignf(v[i], u[i]) + fdimf(u[i], v[i]);""",
        [doubles(40), reals(40), doubles(40), reals(40), 40],
    ),
    per_thread(
        "a table in constant memory",
        "const float* x, float* y, int n",
        """if (i >= n) return;
        float p = 0.f;
        #pragma unroll
        for (int d = 4; d >= 0; --d) p = p * x[i] + coefficients[d];
        static const int order[3] = {2, 0, 1};
        y[i] = p * gain[order[i % 3]] + 0.5f * gain[0];""",
        [reals(40), reals(40), 40],
        """__constant__ float coefficients[5] = {1.0f, -0.5f, 0.25f, 0.1f, -2.0f};
        __constant__ float gain[] = {1.f, 2.f, -3.f};""",
    ),
    per_thread(
        "a switch with ways through",
        "const int* kind, const double* x, double* y, int n",
        """if (i >= n) return;
        double v = x[i];
        switch (kind[i]) {
            case 0: v = sin(v);
            case 1: v *= v; break;
            case 2: { double t = exp(v); v = t / (1 + t); break; }
            case 3: return;
            default: v = -v;
        }
        y[i] += v;""",
        [whole(60, -1, 6), doubles(60), doubles(60), 60],
    ),
]

# --- structs, templates, vectors of the language -----------------------------------------------------------------------------------------

STRUCTS = [
    per_thread(
        "vectors of four",
        "const float4* __restrict__ body, float4* __restrict__ force, int n",
        """if (i >= n) return;
        float4 me = body[i];
        float3 f = make_float3(0.f, 0.f, 0.f);
        for (int j = 0; j < n; ++j) {
            float4 o = body[j];
            float3 r = {o.x - me.x, o.y - me.y, o.z - me.z};
            float d2 = r.x * r.x + r.y * r.y + r.z * r.z + 0.1f, inv = rsqrtf(d2), s = o.w * inv * inv * inv;
            f.x += s * r.x; f.y += s * r.y; f.z += s * r.z;
        }
        force[i] = make_float4(f.x, f.y, f.z, force[i].w * 2.f);""",
        ["float4", "float4", 24],
        threads=24,
        block=24,
    ),
    per_thread(
        "wide loads by a cast",
        "const float* x, float* y, int quads",
        """if (i >= quads) return;
        float4 v = reinterpret_cast<const float4*>(x)[i];
        float2 a = make_float2(v.x * v.y, v.z - v.w);
        reinterpret_cast<float2*>(y)[i] = a;""",
        [reals(4 * 20), reals(2 * 20), 20],
    ),
    per_thread(
        "methods and operators",
        "const double* x, double* y, int n",
        """if (i >= n) return;
        Dual a(x[i], 1.0), b{x[n - 1 - i], 0.0};
        Dual c = a * b + sine(a) * 2.0;
        c += a;
        y[i] = c.v + c.d;""",
        [doubles(40), doubles(40), 40],
        """struct Dual {
            double v, d;
            __device__ Dual(double v, double d) : v(v), d(d) {}
            __device__ Dual operator*(const Dual& o) const { return Dual(v * o.v, v * o.d + d * o.v); }
            __device__ Dual operator*(double s) const { return Dual(v * s, d * s); }
            __device__ Dual& operator+=(const Dual& o) { v += o.v; d += o.d; return *this; }
        };
        __device__ Dual operator+(const Dual& a, const Dual& b) { return Dual(a.v + b.v, a.d + b.d); }
        __device__ inline Dual sine(const Dual& a) { return Dual(sin(a.v), cos(a.v) * a.d); }""",
    ),
    per_thread(
        "templates of type and number",
        "const float* x, const double* z, float* y, double* w, int n",
        """if (i >= n) return;
        y[i] = Window<float, 3>::sum(x, i, n);
        w[i] = Window<double, 5>::sum(z, i, n) + apply(Square(), z[i]) + apply([](double v) { return exp(-v); }, z[i]);""",
        [reals(40), doubles(40), reals(40), doubles(40), 40],
        """template <typename T, int N> struct Window {
            static __device__ T sum(const T* p, int at, int n) {
                T s = 0;
                #pragma unroll
                for (int k = -N / 2; k <= N / 2; ++k) { int j = min(max(at + k, 0), n - 1); s += p[j] * T(1 + abs(k)); }
                return s;
            }
        };
        struct Square { __device__ double operator()(double v) const { return v * v; } };
        template <class F> __device__ auto apply(F f, double v) { return f(v) + f(2 * v); }""",
    ),
    per_thread(
        "results by pointer and by reference",
        "const float* m, float* inverse, int* singular, int n",
        """if (i >= n) return;
        float a[2][2] = {{m[4 * i], m[4 * i + 1]}, {m[4 * i + 2], m[4 * i + 3]}}, b[2][2], det;
        bool ok = invert(a, b, &det);
        singular[i] = !ok;
        if (!ok) return;
        for (int r = 0; r < 2; ++r) for (int c = 0; c < 2; ++c) inverse[4 * i + 2 * r + c] = b[r][c] * det;""",
        [reals(4 * 30), reals(4 * 30), whole(30, 0, 1), 30],
        """__device__ bool invert(const float (&a)[2][2], float (&b)[2][2], float* det) {
            *det = a[0][0] * a[1][1] - a[0][1] * a[1][0];
            if (fabsf(*det) < 0.05f) return false;
            float s = 1.f / *det;
            b[0][0] = a[1][1] * s; b[0][1] = -a[0][1] * s; b[1][0] = -a[1][0] * s; b[1][1] = a[0][0] * s;
            return true;
        }""",
    ),
    per_thread(
        "enumerations and constants",
        "const float* x, float* y, int n",
        """if (i >= n) return;
        Edge edge = i == 0 ? Edge::left : i == n - 1 ? Edge::right : Edge::inner;
        constexpr float weight[3] = {0.25f, 0.5f, 0.25f};
        float l = edge == Edge::left ? x[0] : x[i - 1], r = edge == Edge::right ? x[n - 1] : x[i + 1];
        y[i] = (l * weight[0] + x[i] * weight[1] + r * weight[2]) * (1 + WIDE);""",
        [reals(40), reals(40), 40],
        "enum class Edge : unsigned char { left, inner, right };\nenum { WIDE = sizeof(double) / 4 };\n#define SQ(v) ((v) * (v))",
    ),
    per_thread(
        "a Thomas solver in local arrays",
        "const double* low, const double* mid, const double* up, double* x, int rows",
        """if (i >= rows) return;
        double c[6], d[6];
        const double *l = low + 6 * i, *m = mid + 6 * i, *u = up + 6 * i;
        double* own = x + 6 * i;
        c[0] = u[0] / m[0]; d[0] = own[0] / m[0];
        for (int k = 1; k < 6; ++k) { double w = m[k] - l[k] * c[k - 1]; c[k] = u[k] / w; d[k] = (own[k] - l[k] * d[k - 1]) / w; }
        own[5] = d[5];
        for (int k = 4; k >= 0; --k) own[k] = d[k] - c[k] * own[k + 1];""",
        [doubles(120), doubles(120, 3, 4), doubles(120), doubles(120), 20],
    ),
    per_thread(
        "a step of Runge and Kutta",
        "double* state, const double* params, int n, int steps",
        """if (i >= n) return;
        double s[3] = {state[i], state[n + i], state[2 * n + i]};
        for (int t = 0; t < steps; ++t) {
            double k1[3], k2[3], mid[3];
            lorenz(s, params, k1);
            for (int j = 0; j < 3; ++j) mid[j] = s[j] + 0.005 * k1[j];
            lorenz(mid, params, k2);
            for (int j = 0; j < 3; ++j) s[j] += 0.01 * k2[j];
        }
        for (int j = 0; j < 3; ++j) state[j * n + i] = s[j];""",
        [doubles(3 * 20), doubles(3, 0.5, 2), 20, 4],
        """__device__ __forceinline__ void lorenz(const double* s, const double* p, double* out) {
            out[0] = p[0] * (s[1] - s[0]); out[1] = s[0] * (p[1] - s[2]) - s[1]; out[2] = s[0] * s[1] - p[2] * s[2];
        }""",
    ),
]

# --- halves ---------------------------------------------------------------------------------------------------------------------------

HALF, BFLOAT = np.float16, np.dtype(ml_dtypes.bfloat16)
HALVES = [
    per_thread(
        "halves",
        "const __half* x, __half* y, float a, int n",
        "if (i < n) { __half h = __float2half(a); y[i] = __hadd(__hmul(h, x[i]), y[i]); y[i] = y[i] * x[i] - h; }",
        [Array(40, HALF), Array(40, HALF), np.float32(0.7), 40],
        "#include <cuda_fp16.h>",
    ),
    per_thread(
        "halves through float",
        "const __half* x, float* sum, __half* y, int n",
        """if (i >= n) return;
        float v = __half2float(x[i]);
        sum[i] += v * v;
        y[i] = __float2half_rn(tanhf(v) * 3.f);
        if (y[i] > x[i]) sum[i] *= 2.f;""",
        [Array(40, HALF), reals(40), Array(40, HALF), 40],
        "#include <cuda_fp16.h>",
    ),
    per_thread(
        "bfloat16 with sums in float",
        "const __nv_bfloat16* w, const __nv_bfloat16* x, __nv_bfloat16* y, int rows, int cols",
        """if (i >= rows) return;
        float sum = 0.f;
        for (int c = 0; c < cols; ++c) sum += __bfloat162float(w[i * cols + c]) * __bfloat162float(x[c]);
        y[i] = __float2bfloat16(sum > 0.f ? sum : 0.1f * sum);""",
        [Array(30 * 9, BFLOAT), Array(9, BFLOAT), Array(30, BFLOAT), 30, 9],
        "#include <cuda_bf16.h>",
    ),
]

# --- blocks and warps -----------------------------------------------------------------------------------------------------------------

BLOCKS = [
    Application(
        "a product of matrices in tiles",
        f"""#define T 8
        {HEAD}(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {{
            __shared__ float sa[T][T + 1], sb[T][T + 1];
            int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
            float sum = 0.f;
            for (int t = 0; t < (n + T - 1) / T; ++t) {{
                int ac = t * T + threadIdx.x, br = t * T + threadIdx.y;
                sa[threadIdx.y][threadIdx.x] = row < n && ac < n ? a[row * n + ac] : 0.f;
                sb[threadIdx.y][threadIdx.x] = br < n && col < n ? b[br * n + col] : 0.f;
                __syncthreads();
                #pragma unroll
                for (int k = 0; k < T; ++k) sum += sa[threadIdx.y][k] * sb[k][threadIdx.x];
                __syncthreads();
            }}
            if (row < n && col < n) c[row * n + col] = sum;
        }}""",
        (2, 2),
        (8, 8),
        [reals(121), reals(121), reals(121), 11],
    ),
    Application(
        "a transpose in a tile",
        f"""{HEAD}(const double* in, double* out, int w, int h) {{
            __shared__ double tile[8][9];
            int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
            if (x < w && y < h) tile[threadIdx.y][threadIdx.x] = in[y * w + x] * in[y * w + x];
            __syncthreads();
            x = blockIdx.y * 8 + threadIdx.x; y = blockIdx.x * 8 + threadIdx.y;
            if (x < h && y < w) out[y * h + x] = tile[threadIdx.x][threadIdx.y];
        }}""",
        (2, 2),
        (8, 8),
        [doubles(13 * 10), doubles(13 * 10), 13, 10],
    ),
    Application(
        "a tree of sums, then a warp",
        f"""template <unsigned N> __device__ void fold(float* s, unsigned t) {{
            if (N >= 64) {{ if (t < 32) s[t] += s[t + 32]; __syncwarp(); }}
        }}
        {HEAD}(const float* x, float* sums, int n) {{
            __shared__ float s[128];
            unsigned t = threadIdx.x, at = blockIdx.x * 256 + t;
            s[t] = (at < n ? x[at] * x[at] : 0.f) + (at + 128 < n ? sinf(x[at + 128]) : 0.f);
            __syncthreads();
            for (unsigned half = 64; half > 32; half >>= 1) {{ if (t < half) s[t] += s[t + half]; __syncthreads(); }}
            fold<64>(s, t);
            __syncthreads();
            float v = s[t & 31];
            for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
            if (t == 0) sums[blockIdx.x] = v;
        }}""",
        2,
        128,
        [reals(500), reals(2), 500],
    ),
    Application(
        "a scan in two buffers",
        f"""{HEAD}(const double* x, double* y, int n) {{
            extern __shared__ double buffer[];
            int t = threadIdx.x, now = 0;
            buffer[t] = t < n ? x[t] : 0.0;
            __syncthreads();
            for (int d = 1; d < blockDim.x; d <<= 1) {{
                now = 1 - now;
                buffer[now * blockDim.x + t] = buffer[(1 - now) * blockDim.x + t] + (t >= d ? buffer[(1 - now) * blockDim.x + t - d] : 0.0);
                __syncthreads();
            }}
            if (t < n) y[t] = buffer[now * blockDim.x + t] * x[t];
        }}""",
        1,
        64,
        [doubles(60), doubles(60), 60],
        64 * 2 * 8,
    ),
    Application(
        "two arrays in dynamic memory",
        f"""{HEAD}(const float* x, const int* key, float* y, int n) {{
            extern __shared__ unsigned char raw[];
            float* value = (float*)raw;
            int* place = (int*)(value + blockDim.x);
            int t = threadIdx.x, at = blockIdx.x * blockDim.x + t;
            value[t] = at < n ? x[at] : 0.f;
            place[t] = at < n ? key[at] & (blockDim.x - 1) : t;
            __syncthreads();
            if (at < n) y[at] = value[place[t]] * value[blockDim.x - 1 - t];
        }}""",
        2,
        32,
        [reals(60), whole(60, 0, 1000), reals(60), 60],
        32 * 8,
    ),
    Application(
        "a softmax of rows by warps",
        """__device__ float largest(float v) { for (int d = 16; d; d >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, d)); return v; }
        __device__ float total(float v) { for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d); return v; }
        extern "C" __global__ void __launch_bounds__(64) k(const float* x, float* y, int rows, int cols) {
            int lane = threadIdx.x & 31, row = blockIdx.x * 2 + (threadIdx.x >> 5);
            if (row >= rows) return;
            float m = -1e30f;
            for (int c = lane; c < cols; c += 32) m = fmaxf(m, x[row * cols + c]);
            m = largest(m);
            float s = 0.f;
            for (int c = lane; c < cols; c += 32) s += __expf(x[row * cols + c] - m);
            s = total(s);
            for (int c = lane; c < cols; c += 32) y[row * cols + c] = __expf(x[row * cols + c] - m) / s;
        }""",
        2,
        64,
        [reals(3 * 45), reals(3 * 45), 3, 45],
    ),
    Application(
        "a scan of a warp",
        f"""{HEAD}(const float* x, float* y, int n) {{
            int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
            float v = i < n ? x[i] : 0.f;
            for (int d = 1; d < 32; d *= 2) {{ float other = __shfl_up_sync(0xffffffffu, v, d); if (lane >= d) v += other; }}
            float last = __shfl_sync(0xffffffffu, v, 31);
            if (i < n) y[i] = v / (fabsf(last) + 1.f);
        }}""",
        2,
        32,
        [reals(50), reals(50), 50],
    ),
    Application(
        "places by a ballot",
        f"""{HEAD}(const float* x, float* kept, int n) {{
            int i = blockIdx.x * 32 + threadIdx.x;
            bool take = i < n && x[i] > 0.f;
            unsigned votes = __ballot_sync(0xffffffffu, take);
            int place = __popc(votes & ((1u << threadIdx.x) - 1u));
            if (take) kept[blockIdx.x * 32 + place] = x[i] * x[i] * __popc(votes);
            if (!__any_sync(0xffffffffu, take) && threadIdx.x == 0) kept[blockIdx.x * 32] = -1.f;
        }}""",
        2,
        32,
        [reals(60), reals(64), 60],
    ),
    Application(
        "sums of tiles of eight",
        f"""#include <cooperative_groups.h>
        namespace cg = cooperative_groups;
        {HEAD}(const double* x, double* y, int n) {{
            auto tile = cg::tiled_partition<8>(cg::this_thread_block());
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            double v = i < n ? x[i] * x[i] : 0.0;
            for (int d = tile.size() / 2; d > 0; d /= 2) v += tile.shfl_down(v, d);
            if (tile.thread_rank() == 0 && i < n) y[i / 8] = sqrt(v + 1.0);
            tile.sync();
        }}""",
        2,
        32,
        [doubles(60), doubles(8), 60],
    ),
    Application(
        "a histogram in shared memory",
        f"""{HEAD}(const unsigned char* bin, const float* weight, float* sums, int* counts, int n) {{
            __shared__ float s[16];
            __shared__ int c[16];
            if (threadIdx.x < 16) {{ s[threadIdx.x] = 0.f; c[threadIdx.x] = 0; }}
            __syncthreads();
            for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {{
                atomicAdd(&s[bin[i] & 15], weight[i] * weight[i]);
                atomicAdd(c + (bin[i] & 15), 1);
            }}
            __syncthreads();
            if (threadIdx.x < 16) {{ atomicAdd(sums + threadIdx.x, s[threadIdx.x]); atomicAdd(&counts[threadIdx.x], c[threadIdx.x]); }}
        }}""",
        2,
        32,
        [whole(150, 0, 256, np.uint8), reals(150), reals(16), whole(16, 0, 1), 150],
    ),
    Application(
        "a stencil with its halo",
        f"""#define R 2
        __constant__ double w[2 * R + 1] = {{0.1, 0.2, 0.4, 0.2, 0.1}};
        {HEAD}(const double* x, double* y, int n) {{
            __shared__ double s[32 + 2 * R];
            int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x + R;
            s[t] = i < n ? x[i] : 0.0;
            if (threadIdx.x < R) {{
                s[t - R] = i >= R ? x[i - R] : 0.0;
                s[t + blockDim.x] = i + blockDim.x < n ? x[i + blockDim.x] : 0.0;
            }}
            __syncthreads();
            if (i >= n) return;
            double sum = 0;
            for (int k = -R; k <= R; ++k) sum += w[k + R] * s[t + k];
            y[i] = sum * sum;
        }}""",
        2,
        32,
        [doubles(55), doubles(55), 55],
    ),
    Application(
        "butterflies of a Fourier transform",
        f"""{HEAD}(double* re, double* im) {{
            __shared__ double r[16], m[16];
            int t = threadIdx.x, turned = __brev((unsigned)t) >> 28;
            r[turned] = re[blockIdx.x * 16 + t]; m[turned] = im[blockIdx.x * 16 + t];
            __syncthreads();
            for (int half = 1; half < 16; half <<= 1) {{
                int pos = t & (half - 1), pair = (t & ~(2 * half - 1)) + pos;
                double angle = -3.14159265358979323846 * pos / half, c = cos(angle), s = sin(angle);
                double ar = r[pair], ai = m[pair], br = r[pair + half], bi = m[pair + half];
                double tr = br * c - bi * s, ti = br * s + bi * c;
                bool upper = t & half;
                __syncthreads();
                r[t] = upper ? ar - tr : ar + tr;
                m[t] = upper ? ai - ti : ai + ti;
                __syncthreads();
            }}
            re[blockIdx.x * 16 + t] = r[t]; im[blockIdx.x * 16 + t] = m[t];
        }}""",
        2,
        16,
        [doubles(32), doubles(32)],
    ),
    Application(
        "a norm of layers",
        f"""__device__ float sum_over_block(float v, float* part) {{
            for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
            if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
            __syncthreads();
            float all = 0.f;
            for (int w = 0; w < blockDim.x / 32; ++w) all += part[w];
            __syncthreads();
            return all;
        }}
        {HEAD}(const float* x, const float* gain, const float* bias, float* y, int cols) {{
            __shared__ float part[4];
            const float* row = x + blockIdx.x * cols;
            float v = 0.f, q = 0.f;
            for (int c = threadIdx.x; c < cols; c += blockDim.x) v += row[c];
            float mean = sum_over_block(v, part) / cols;
            for (int c = threadIdx.x; c < cols; c += blockDim.x) {{ float d = row[c] - mean; q += d * d; }}
            float inv = rsqrtf(sum_over_block(q, part) / cols + 1e-5f);
            for (int c = threadIdx.x; c < cols; c += blockDim.x) y[blockIdx.x * cols + c] = (row[c] - mean) * inv * gain[c] + bias[c];
        }}""",
        2,
        64,
        [reals(2 * 90), reals(90), reals(90), reals(2 * 90), 90],
    ),
]

# --- memory that threads share, grids ---------------------------------------------------------------------------------------------------

MEMORY = [
    per_thread(
        "rows of a sparse matrix",
        "const int* start, const int* column, const double* value, const double* x, double* y, int rows",
        """if (i >= rows) return;
        double sum = 0.0;
        for (int e = start[i], end = start[i + 1]; e < end; e++) { if (column[e] < 0) continue; sum += value[e] * x[column[e]]; }
        y[i] = sum;""",
        ["csr", whole(120, -1, 30), doubles(120), doubles(30), doubles(30), 30],
    ),
    per_thread(
        "an embedding and its scattered sums",
        "const int* token, const float* table, float* pooled, int n, int dim",
        """if (i >= n) return;
        const int row = token[i];
        if (row < 0) return;
        for (int d = 0; d < dim; ++d) atomicAdd(pooled + (row & 3) * dim + d, table[row * dim + d] * table[row * dim + d]);""",
        [whole(50, -2, 10), reals(10 * 4), reals(4 * 4), 50, 4],
    ),
    per_thread(
        "sums in double and the greatest index",
        "const double* x, double* total, int* best, unsigned* mask, int n",
        """if (i >= n) return;
        atomicAdd(total, x[i] * x[i]);
        if (x[i] > 0.5) { atomicMax(best, i); atomicOr(mask, 1u << (i & 31)); }""",
        [doubles(60), doubles(1), whole(1, 0, 1), whole(1, 0, 1, np.uint32), 60],
    ),
    Application(
        "a grid of three dimensions",
        f"""{HEAD}(const float* __restrict__ u, float* __restrict__ v, int nx, int ny, int nz, float c) {{
            int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
            int z = blockIdx.z * blockDim.z + threadIdx.z;
            if (x >= nx || y >= ny || z >= nz) return;
            size_t at = ((size_t)z * ny + y) * nx + x, plane = (size_t)nx * ny;
            float l = -6.f * u[at];
            l += x > 0 ? u[at - 1] : u[at];           l += x + 1 < nx ? u[at + 1] : u[at];
            l += y > 0 ? u[at - nx] : u[at];          l += y + 1 < ny ? u[at + nx] : u[at];
            l += z > 0 ? u[at - plane] : u[at];       l += z + 1 < nz ? u[at + plane] : u[at];
            v[at] = u[at] + c * l;
        }}""",
        (2, 2, 2),
        (4, 2, 2),
        [reals(7 * 4 * 3), reals(7 * 4 * 3), 7, 4, 3, np.float32(0.1)],
    ),
    per_thread(
        "samples between four texels",
        "const float* image, const float* px, const float* py, float* out, int w, int h, int n",
        """if (i >= n) return;
        float x = fminf(fmaxf(px[i], 0.f), w - 1.001f), y = fminf(fmaxf(py[i], 0.f), h - 1.001f);
        int ix = (int)x, iy = (int)y;
        float fx = x - ix, fy = y - iy;
        const float* p = image + iy * w + ix;
        out[i] = (p[0] * (1.f - fx) + p[1] * fx) * (1.f - fy) + (p[w] * (1.f - fx) + p[w + 1] * fx) * fy;""",
        [reals(7 * 5), reals(40, -1, 8), reals(40, -1, 6), reals(40), 7, 5, 40],
    ),
    per_thread(
        "pointers that walk",
        "const double* x, double* y, int n",
        """const double* p = x + i; const double* end = x + n;
        double s = 0.0;
        while (p < end) { s += *p * *p; p += 7; }
        double* q = y; q += i;
        if (i < n) *q++ = s * 2;""",
        [doubles(40), doubles(40), 40],
    ),
    per_thread(
        "in place, from back to front",
        "double* x, const double* w, int rows, int cols",
        """if (i >= rows) return;
        double* row = x + i * cols;
        for (int c = cols - 1; c >= 1; --c) row[c] = row[c] * w[c] + row[c - 1] * row[c];
        row[0] = exp(row[0]);
        for (int c = 1; c < cols; c += 2) { double t = row[c]; row[c] = row[c - 1]; row[c - 1] = t * t; }""",
        [doubles(20 * 6), doubles(6), 20, 6],
    ),
]

APPLICATIONS = {a.name: a for a in (*INTEGERS, *FUNCTIONS, *STRUCTS, *HALVES, *BLOCKS, *MEMORY)}


@cache
def kernel(name: str) -> Any:
    return gpuad.kernel(APPLICATIONS[name].text, "k")


def outcome(name: str, way: str, executor: str) -> list[Any]:
    """All arrays and shadows after the launch."""
    case, rng = APPLICATIONS[name], np.random.default_rng(sum(name.encode()))
    args = [arg.made(rng) if isinstance(arg, Array) else made(arg, rng) if isinstance(arg, str) else arg for arg in case.args]
    mode, setting = WAYS[way]
    with setting(), pipeline.executor_for_tests(EXECUTORS[executor]):
        if mode is None:
            kernel(name)(case.grid, case.block, args, shared_mem=case.shared_mem)
        else:
            gpuad.autodiff(kernel(name), case.grid, case.block, args, mode=mode, shared_mem=case.shared_mem)
    both = [(a.primal, a.shadow) if isinstance(a, Duplicated) else (a,) for a in args]
    return [x for pair in both for x in pair if isinstance(x, np.ndarray)]


def made(what: str, rng: np.random.Generator) -> Any:
    """Arguments of other kinds."""
    if what == "csr":
        return np.minimum(4 * np.arange(31), 120).astype(np.int32)
    dtype = np.dtype([(axis, "f4") for axis in "xyzw"])
    primal, shadow = (rng.uniform(0.1, 1, 4 * 24).astype("f4").view(dtype) for _ in range(2))
    return Duplicated(primal, shadow)


def close(found: Any, expected: Any) -> None:
    """Bits of integers, reals as their type allows, relative to the greatest."""
    if expected.dtype.names:
        found, expected = found.view("f4"), expected.view("f4")
    if expected.dtype.kind in "iub":
        np.testing.assert_array_equal(found, expected)
        return
    tolerance = {2: 2.0**-7 if expected.dtype == BFLOAT else 2.0**-9, 4: 2e-6, 8: 1e-13}[expected.itemsize]
    a, b = found.astype(np.float64), expected.astype(np.float64)
    assert np.isfinite(b).all()
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(float(np.abs(b).max(initial=0.0)), 1e-300))


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", share(list(APPLICATIONS), 2))
def test_application(name: str) -> None:
    for way in CHOSEN:
        with np.errstate(all="ignore"):
            expected, found = (outcome(name, way, executor) for executor in EXECUTORS)
        for a, b in zip(found, expected, strict=True):
            close(a, b)
