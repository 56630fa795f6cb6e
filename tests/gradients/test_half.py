"""Half precision and bfloat16: numbers in memory have 16 bits, their gradient is formed and kept in float32."""

from __future__ import annotations

import re
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpuad
from gpuad import Active, CompileError, Duplicated, LaunchError, ShadowError, UnsupportedError, api, pipeline, testing
from gpuad.codegen.cuda import cuda_source
from gpuad.ir.dtypes import dtype_of
from gpuad.ir.types import BF16
from gpuad.runtime import nvrtc
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {"half": np.dtype(np.float16), "bfloat16": BFLOAT16}
HEADERS = "#include <cuda_fp16.h>\n#include <cooperative_groups.h>\n#include <cuda_bf16.h>\n"

# Bodies of a kernel (const half* x, half* y, float* z, half2* p, half alpha, half2 beta, int n) and an index i below n = 8, of 8 threads.
# They say half; `spelled` makes them bodies in bfloat16.
BODIES: dict[str, str] = {
    "conversions": "z[i] = __half2float(x[i]) * (float)x[i]; y[i] = __float2half(z[i]) ; y[i] = half(2.0f * (float)y[i]);",
    "operators": "half a = x[i], b = a * a; b += a; b = -b / (a + half(3.0)); b *= a; y[i] = b - a;",
    "intrinsics": "y[i] = __hadd(__hmul(x[i], x[i]), __hfma(x[i], y[i], __hsub(x[i], y[i]))); z[i] = __half2float(__hdiv(y[i], x[i]));",
    "functions": "y[i] = hexp(x[i]); z[i] = __half2float(hsqrt(x[i])) + __half2float(hlog(x[i])) * __half2float(hsin(x[i])); "
    "z[i] += __half2float(hrcp(x[i])) + __half2float(hcos(x[i]));",
    "pairs": "half2 a = p[i]; float2 f = __half22float2(__hmul2(a, a)); p[i] = __floats2half2_rn(f.y, f.x * __low2float(a)); z[i] = f.x;",
    "pair operators": "half2 a = p[i] * p[i] + __float2half2_rn(2.0f); z[i] = __low2float(a) * __high2float(a); "
    "p[i] = __hfma2(a, a, p[i]);",
    "views": "const half2* q = reinterpret_cast<const half2*>(x); z[i] = __half2float(q[i / 2].x) * __half2float(((half*)p)[2 * i + 1]);",
    "branch": "half a = x[i]; if (a > half(1.0f)) a = a * a; y[i] = i % 2 ? a : x[n - 1 - i]; z[i] = (float)__hmax(a, y[i]);",
    "loop": "half s = half(0.5f); for (int k = 0; k < 4; k++) s = s * x[i] + half(k); y[i] = s; z[i] = (float)s;",
    "local array": "half t[3] = {x[i], y[i]}; for (int k = 0; k < 3; k++) t[(k + 1) % 3] = t[k] * x[i]; z[i] = (float)t[0] + (float)t[2];",
    "shared": "__shared__ half t[8]; t[i] = x[i] * x[i]; __syncthreads(); z[i] = (float)t[n - 1 - i]; y[i] = t[(i + 1) % n] * y[i];",
    "double": "y[i] = half(sin((double)(float)x[i])); z[i] = (float)half(1.0 / (double)(float)x[i]);",
    "in place": "y[i] = y[i] + x[i]; p[i].x = p[i].x * x[i];",
    "atomic": "atomicAdd(&y[i % 2], x[i] * x[i]); atomicAdd(&z[i % 3], (float)x[i]);",
    "atomic on pairs": "atomicAdd(&p[i % 2], __halves2half2(x[i], x[i] * x[i]));",
    "atomic in shared memory": "__shared__ half t[3]; if (i < 3) t[i] = half(0.0f); __syncthreads(); atomicAdd(&t[i % 3], x[i]); "
    "__syncthreads(); z[i] = (float)t[(i + 1) % 3] * (float)x[i];",
    "by value": "y[i] = x[i] * alpha + half(i); z[i] = (float)alpha * (float)beta.y * (float)x[i]; p[i] = __hmul2(p[i], beta);",
    "shuffle": "half s = x[i]; for (int d = 4; d > 0; d /= 2) s = s + __shfl_xor_sync(0xff, s, d); y[i] = s;",
    "shuffle of pairs": "half2 s = p[i]; for (int d = 4; d > 0; d /= 2) s += __shfl_xor_sync(0xff, s, d); p[i] = s;",
    "pairs made": "half2 s(x[i], y[i]), t = half2(y[i], x[i]), u = {x[i], y[i]}; p[i] = s * t + u; u.x = s.y; z[i] = __low2float(u);",
    "pairs taken apart": "half2 l = __lows2half2(p[i], p[n - 1 - i]), h = __highs2half2(p[i], p[n - 1 - i]); "
    "z[i] = __low2float(__lowhigh2highlow(l * h)) + __high2float(__low2half2(h)); y[i] = __low2half(h) * __high2half(l);",
    "pair functions": "half2 s = __hfma2_relu(p[i], p[i], __hneg2(__half2half2(half(1.0f)))); "
    "p[i] = h2exp(__hmax2(p[i], s)) + h2rcp(__habs2(p[i]));",
    "comparisons": "y[i] = __hgt(x[i], half(1.0f)) ? x[i] : x[i] * x[i]; half2 m = __hgt2(p[i], __float2half2_rn(1.0f)); "
    "p[i] = __hmul2(m, p[i]); if (__hbeq2(m, m)) z[i] *= (float)x[i];",
    "more functions": "y[i] = htanh(x[i]) + hrsqrt(x[i]) * hexp2(x[i]) + __hadd_sat(x[i], y[i]); z[i] += (float)hlog2(x[i]);",
    "loads": "y[i] = __ldg(&x[i]) * __ldg(x + 1); z[i] = __low2float(__ldg(p + i));",
    "stores": "__stcs(y + i, x[i] * x[i]); __stwt(&p[i], __hmul2(p[i], p[i])); __stcg(z + i, __half2float(__ldlu(x + i)));",
    "conversions with float": "z[i] = z[i] * float(x[i]) + 1.0f; float q = x[i]; y[i] = q; z[i] += q;",
    "increments": "y[i] = x[i]; y[i]++; half a = --y[i]; a--; z[i] = (float)(y[i] * x[i]) * (float)a;",
    "tile": "auto t = cooperative_groups::tiled_partition<4>(cooperative_groups::this_thread_block()); y[i] = t.shfl_xor(x[i], 1) * x[i]; "
    "p[i] = t.shfl(p[i], 2);",
    "template": "y[i] = square(x[i]); p[i] = square(p[i]);",
    "struct": "S s; s.a = x[i]; s.b = z[i]; z[i] = s.b * (float)s.a;",
}  # fmt: skip
HELPERS = "template <class T> __device__ T square(T t) { return t * t; }\nstruct S { half a; float b; };\n"


def spelled(text: str, kind: str) -> str:
    """Text that says half, for a kind."""
    if kind == "half":
        return text
    text = re.sub(r"(__floats?2|__double2|__float22|__halves2|__lows?2|__highs?2|make_|_as_)half", r"\1bfloat16", text)
    text = re.sub(r"__half(2?)(2float2?|2half2|_as_\w+)\b", lambda m: f"__bfloat16{m[1]}{m[2].replace('half', 'bfloat16')}", text)
    return re.sub(r"\b(?:__)?half(2?)\b", r"__nv_bfloat16\1", text)


def kernel_of(body: str, kind: str = "half") -> Any:
    text = f"""{HELPERS}extern "C" __global__ void k(const half* x, half* y, float* z, half2* p, half alpha, half2 beta, int n) {{
        int i = threadIdx.x;
        {body} }}"""
    return gpuad.kernel(HEADERS + spelled(text, kind), "k")


def arguments(kind: str = "half") -> list[Any]:
    rng, dtype = np.random.default_rng(0), DTYPES[kind]
    made = [rng.uniform(0.6, 1.4, shape) for shape in (8, 8, 8, (8, 2))]
    return [*(a.astype(t) for a, t in zip(made, (dtype, dtype, np.float32, dtype), strict=True)), dtype.type(1.25), (0.5, 0.75), 8]


def active(kind: str = "half") -> list[Any]:
    *arrays, a, b, n = arguments(kind)
    return [*map(Duplicated, arrays), Active(a, np.zeros((), np.float32)), b, n]


@pytest.mark.one_of(8)
@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("name", BODIES)
def test_gradient(name: str, kind: str) -> None:
    with pipeline.executor_for_tests(Reference()):
        testing.check_gradient(kernel_of(BODIES[name], kind), active(kind), grid=1, block=8)


@pytest.mark.one_of(4)
@pytest.mark.parametrize(("name", "kind"), [(name, [*DTYPES][k % 2]) for k, name in enumerate(BODIES)])
def test_executors_agree(name: str, kind: str) -> None:
    """Bit for bit in the primal: rounding to 16 bits is the same everywhere; adjoints are formed from the same numbers. Each body in one of
    the two types, since what the text calls differs in the rounding alone."""
    sides = []
    for executor in (Host(), Reference()):
        args = active(kind)
        for k, argument in enumerate(args[:4]):
            argument.shadow[...] = np.arange(argument.shadow.size).reshape(argument.shadow.shape) * 0.125 + k
        with pipeline.executor_for_tests(executor):
            gpuad.autodiff(kernel_of(BODIES[name], kind), 1, 8, args)
        sides.append([x for a in args[:5] for x in (getattr(a, "primal", None), a.shadow) if x is not None])
    for host, reference in zip(*sides, strict=True):
        exact = host.dtype == DTYPES[kind]
        assert np.allclose(host.astype(float), reference.astype(float), rtol=0 if exact else 1e-5, atol=0 if exact else 1e-6)


@pytest.mark.one_of(2)
@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
@pytest.mark.parametrize("name", ["atomic", "by value", "double"])
def test_nvrtc_compiles_it(name: str, arch: str) -> None:
    """Without any header: the instructions differ between GPUs."""
    for kind in DTYPES:
        kernel = kernel_of(BODIES[name], kind)
        adjoint = kernel.adjoint(x=Duplicated, y=Duplicated, z=Duplicated, p=Duplicated, alpha=Active)
        for text in (adjoint.source, cuda_source([api.kernel(kernel).primal()])):
            assert nvrtc.compile_cuda(text, arch)


@pytest.mark.parametrize("kind", DTYPES)
def test_every_number_is_kept(executor: Any, kind: str) -> None:
    """All bit patterns go through float and back; floats and doubles are rounded once, to the nearest even, overflow to infinity,
    underflow to subnormals; NaN stays NaN."""
    text = """extern "C" __global__ void k(const half* x, half* same, const float* f, half* rounded, const double* d, half* once, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) { same[i] = half((float)x[i]); rounded[i] = __float2half(f[i]); once[i] = __double2half(d[i]); } }"""
    dtype, size = DTYPES[kind], 1 << 16
    bits = np.arange(size, dtype=np.uint16).view(dtype)
    rng = np.random.default_rng(1)
    low, high = (-28, 18) if kind == "half" else (-140, 130)
    with np.errstate(over="ignore", under="ignore"):
        f = (rng.normal(size=size) * 2.0 ** rng.integers(low, high, size)).astype(np.float32)
    f[: 1 << 14] = bits[: 1 << 14].astype(np.float32) * np.float32(1 + 2.0 ** (-11 if kind == "half" else -8))  # ties
    f[1 << 14 : (1 << 14) + 3] = np.nan, np.inf, -np.inf
    d = f.astype(np.float64) * (1 + np.where(np.arange(size) % 2, 1, -1) * 2.0**-40)  # beside a tie, where a float would be on it
    same, rounded, once = (np.zeros_like(bits) for _ in range(3))
    with pipeline.executor_for_tests(executor):
        gpuad.kernel(HEADERS + spelled(text, kind), "k")(256, 256, (bits, same, f, rounded, d, once, size))
    with np.errstate(invalid="ignore"):  # signalling NaNs
        real = ~np.isnan(bits)
    assert np.array_equal(same[real].view(np.uint16), bits[real].view(np.uint16))
    assert np.isnan(same[~real]).all()
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.array_equal(rounded, f.astype(dtype), equal_nan=True)
        assert np.array_equal(np.signbit(rounded)[f == f], np.signbit(f)[f == f])
        assert np.array_equal(once[f == f], nearest(d[f == f], dtype))


def nearest(d: Any, dtype: Any) -> Any:
    """Doubles rounded once, from the two neighbours of what rounding twice gives."""
    twice = d.astype(np.float32).astype(dtype)
    finite = np.isfinite(twice.astype(np.float64))
    best = twice.copy()
    for step in (-1, 1):
        other = (twice.view(np.uint16) + np.uint16(step % (1 << 16))).view(dtype)
        wide, own = other.astype(np.float64), best.astype(np.float64)
        with np.errstate(invalid="ignore"):
            closer = finite & np.isfinite(wide) & (np.sign(wide) * np.sign(own) >= 0) & (np.abs(wide - d) < np.abs(own - d))
        best = np.where(closer, other, best)
    return best


def test_contributions_too_small_for_a_half_are_kept(executor: Any) -> None:
    """4096 threads read one half: a half shadow would stop at 2048."""
    text = """#include <cuda_fp16.h>
    extern "C" __global__ void k(const half* x, float* y) { y[blockIdx.x * blockDim.x + threadIdx.x] = __half2float(x[0]); }"""
    x, y = Duplicated(np.ones(1, np.float16)), Duplicated(np.zeros(4096, np.float32), np.ones(4096, np.float32))
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(gpuad.kernel(text, "k"), 16, 256, (x, y))
    assert x.shadow.dtype == np.float32
    assert x.shadow[0] == 4096


def test_tape_and_views(executor: Any) -> None:
    square = gpuad.kernel(
        '#include <cuda_fp16.h>\nextern "C" __global__ void k(half* x, int n) { int i = threadIdx.x; if (i < n) x[i] = x[i] * x[i]; }', "k"
    )
    x = np.array([1.5, 2.0, 3.0, 0.5], np.float16)
    a = Duplicated(x.copy())
    tape = gpuad.Tape()
    with pipeline.executor_for_tests(executor):
        with tape:
            square[1, 4](a, 4)
            square[1, 4](a[1:], 2)
        tape.reverse({a: np.ones(4, np.float32)})
    assert np.allclose(a.shadow, [3, 4 * 8, 4 * 27, 1])


def test_numbers_by_value() -> None:
    """What CuPy would hand over is what is meant: two bytes of the parameter's own type, or a Python number."""
    for kind, dtype in DTYPES.items():
        k = gpuad.kernel(HEADERS + spelled('extern "C" __global__ void k(half a, float* x) { x[0] = (float)a; }', kind), "k")
        x = np.zeros(1, np.float32)
        for given in (0.1, dtype.type(0.1), 3, np.int32(3), 0.1, 0.3):  # also where a launch is like an earlier one
            k(1, 1, (given, x))
            assert x[0] == np.float32(np.float32(given).astype(dtype))
        shadow = np.zeros((), np.float64)
        gpuad.autodiff(k, 1, 1, (Active(0.1, shadow), Duplicated(x, np.full(1, 2.5, np.float32))))
        assert shadow == 2.5
        for wrong in (np.float32(0.1), next(d for d in DTYPES.values() if d != dtype).type(0.1)):
            with pytest.raises(LaunchError, match=f"CuPy would hand over 2 of its . bytes; pass .*{dtype.name}"):
                k(1, 1, (wrong, x))
        with pytest.raises(LaunchError, match="cannot hold"):
            k(1, 1, (2049, x))
        with pytest.raises(ShadowError, match="float32 or wider"):
            gpuad.autodiff(k, 1, 1, (Active(0.1, np.zeros((), np.float16)), Duplicated(x)))
    whole = gpuad.kernel('extern "C" __global__ void k(int n, float* x) { x[0] = n; }', "k")
    with pytest.raises(LaunchError, match="no whole number"):
        whole(1, 1, (BFLOAT16.type(2.5), x))


@pytest.mark.parametrize("kind", DTYPES)
def test_an_atomic_addition_rounds_each_time(executor: Any, kind: str) -> None:
    """600 ones: of a bfloat16 the sum stops at 256, as on a GPU; the gradient does not."""
    text = """extern "C" __global__ void k(const half* x, half* y) { atomicAdd(y, x[blockIdx.x * blockDim.x + threadIdx.x]); }"""
    dtype = DTYPES[kind]
    x, y = Duplicated(np.ones(600, dtype)), Duplicated(np.zeros(1, dtype), np.ones(1, np.float32))
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(gpuad.kernel(HEADERS + spelled(text, kind), "k"), 3, 200, (x, y))
    assert y.primal[0] == (600 if kind == "half" else 256)
    assert (x.shadow == 1).all()


def test_module_memory(executor: Any) -> None:
    """Variables of the module hold such numbers; their shadows are float32."""
    text = """__constant__ half w[3]; __device__ half2 sums[1];
        extern "C" __global__ void k(const half* x) { int i = threadIdx.x; atomicAdd(sums, half2(x[i] * w[i % 3], x[i])); }"""
    k, dw, dsums = gpuad.kernel(HEADERS + spelled(text, "bfloat16"), "k"), np.zeros(3, np.float32), np.ones((1, 2), np.float32)
    k.get_global("w")[...] = [1, 2, 4]
    x = Duplicated(np.array([0.5, 0.25, 2, 1], BFLOAT16))
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(k.with_shadow("w", dw).with_shadow("sums", dsums), 1, 4, (x,))
    assert np.array_equal(k.get_global("sums").astype(float).ravel(), [0.5 + 0.5 + 8 + 1, 3.75])
    assert np.array_equal(dw, [1.5, 0.25, 2])
    assert np.array_equal(x.shadow, [2, 3, 5, 2])


def test_the_result_of_an_atomic(executor: Any) -> None:
    """It may say where to write, not what."""
    slot = 'extern "C" __global__ void k(half* c, const float* x, float* y) { y[(int)(float)atomicAdd(c, half(1.0f))] = x[0]; }'
    x, y = Duplicated(np.ones(1, np.float32)), Duplicated(np.zeros(5, np.float32), np.arange(5, dtype=np.float32))
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(gpuad.kernel(HEADERS + spelled(slot, "bfloat16"), "k"), 1, 5, (np.zeros(1, BFLOAT16), x, y))
    assert x.shadow[0] == 10


def test_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    dtype_of.cache_clear()
    with pytest.raises(LaunchError, match=r"pip install 'gpuad\[bfloat16\]'"):
        dtype_of(BF16)
    dtype_of.cache_clear()


def test_refused() -> None:
    header = '#include <cuda_fp16.h>\nextern "C" __global__ void '
    with pytest.raises(LaunchError, match="its elements are not half"):
        kernel_of(BODIES["in place"])(1, 8, [arguments()[0].astype(np.float32), *arguments()[1:]])
    with pytest.raises(ShadowError, match="a half would lose small contributions"):
        args = arguments()
        gpuad.autodiff(kernel_of(BODIES["in place"]), 1, 8, [Duplicated(args[0], np.zeros(8, np.float16)), *args[1:]])
    text = "struct P { half a; float b; };\n" + header.split("\n")[1] + "k(P* p) { p[0].b = (float)p[0].a; }"
    pairs = np.zeros(3, np.dtype([("a", "f2"), ("b", "f4")], align=True))
    with pytest.raises(ShadowError, match="halves beside other numbers, which cannot have a shadow; make the halves an array of their own"):
        gpuad.autodiff(gpuad.kernel("#include <cuda_fp16.h>\n" + text, "k"), 1, 1, (Duplicated(pairs),))


def test_structs_of_halves() -> None:
    """Structs of nothing but halves, in unions too: as an array of their numbers, which has a shadow of as many floats."""
    text = """#include <cuda_fp16.h>
    struct P { union { __half2 h; __half g[2]; struct { __half a, b; }; }; };
    extern "C" __global__ void k(P* p, float* q) { int i = threadIdx.x; P t = p[i];
      q[i] *= __half2float(t.a) * __half2float(p[i].h.y); t.g[1] = __float2half(q[i]); p[i] = t; }"""
    x = np.random.default_rng(0).uniform(0.5, 1.5, (8, 2)).astype(np.float16)
    kernel = gpuad.kernel(text, "k")
    testing.check_gradient(kernel, (x, np.ones(8, np.float32)), grid=(1,), block=(8,))
    structs = x.view(np.dtype([("a", "f2"), ("b", "f2")])).reshape(8)
    with pytest.raises(ShadowError, match=r"passed as an array of structs, .* pass x.view\('float16'\), with a shadow of float32"):
        gpuad.autodiff(kernel, 1, 8, (Duplicated(structs, np.zeros((8, 2), np.float32)), Duplicated(np.ones(8, np.float32))))


@pytest.mark.one_of(2)
@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize(
    ("body", "message"),
    {
        "y[i] = __float2half_rz(z[i]);": "__float2half_rz rounds in a direction of its own, which is not supported",
        "y[i] = __hmax_nan(x[i], y[i]);": "the function __hmax_nan is not supported",
        "z[i] = __half_as_ushort(x[i]);": "the function __half_as_ushort is not supported",
        "y[i] = __ushort_as_half(i);": "the function __ushort_as_half is not supported",
        "p[i] = __hcmadd(p[i], p[i], p[i]);": "the function __hcmadd is not supported",
        "z[i] = ((unsigned short*)x)[i];": "reinterprets memory",
        "z[i] = (float)atomicAdd(&y[0], x[i]);": "whose result carries one",
    }.items(),
)
def test_refused_in_a_source(body: str, message: str, kind: str) -> None:
    with pytest.raises(UnsupportedError, match=spelled(message, kind)) as caught:
        gpuad.autodiff(kernel_of(body, kind), 1, 8, active(kind))
    assert caught.value.line == 8
    assert caught.value.column


@pytest.mark.parametrize("kind", DTYPES)
def test_second_derivatives(kind: str) -> None:
    """y = 2 x^3 in place: the directions are float32, as the shadows are."""
    text = """extern "C" __global__ void k(half* x, half a, half2* p) {
        int i = threadIdx.x; x[i] = x[i] * x[i] * x[i] * a; p[i].x = x[i] * p[i].y; }"""
    k, dtype, one = gpuad.kernel(HEADERS + spelled(text, kind), "k"), DTYPES[kind], np.ones(4, np.float32)
    value = np.array([1.5, 2, 1, 0.5])
    x, x_dot = Duplicated(value.astype(dtype), one.copy()), Duplicated(one.copy(), np.zeros(4, np.float32))
    p, p_dot = Duplicated(np.zeros((4, 2), dtype)), Duplicated(np.zeros((4, 2), np.float32))
    with pipeline.executor_for_tests(Reference()):
        gpuad.hvp(k, 1, 4, (x, 2.0, p), (x_dot, None, p_dot))
    assert np.array_equal(x.shadow, 6 * value**2)
    assert np.array_equal(x_dot.shadow, 12 * value)
    with pytest.raises(LaunchError, match="its elements are not float"):
        gpuad.hvp(k, 1, 4, (x, 2.0, p), (Duplicated(value.astype(dtype)), None, p_dot))


def test_other_types_are_no_halves() -> None:
    with pytest.raises(CompileError, match="no matching function for call to 'atomicAdd'"):
        kernel_of("atomicAdd(&y[0], 1.0f, 2);")
    with pytest.raises(LaunchError, match="its elements are not bfloat16"):
        kernel_of(BODIES["in place"], "bfloat16")(1, 8, arguments("half"))
    with pytest.raises(ShadowError, match="whose shadow is of float32, not bfloat16"):
        x, *rest = active("bfloat16")
        gpuad.autodiff(kernel_of(BODIES["in place"], "bfloat16"), 1, 8, [Duplicated(x.primal, x.primal.copy()), *rest])
