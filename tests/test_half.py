"""Half precision: numbers in memory are halves, their gradient is formed and kept in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, LaunchError, ShadowError, UnsupportedError, launching, testing

# Bodies of a kernel (const __half* x, half* y, float* z, half2* p, int n) and an index i below n.
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
}  # fmt: skip


def kernel_of(body: str) -> Any:
    text = f"""#include <cuda_fp16.h>
    extern "C" __global__ void k(const __half* x, half* y, float* z, half2* p, int n) {{
        int i = threadIdx.x;
        {body} }}"""
    return gpuad.kernel(text, "k")


def arguments() -> list[Any]:
    rng = np.random.default_rng(0)
    made = [rng.uniform(0.6, 1.4, shape) for shape in (8, 8, 8, (8, 2))]
    return [*(a.astype(t) for a, t in zip(made, "eefe", strict=True)), 8]


@pytest.mark.parametrize("name", BODIES)
def test_gradient(executor: Any, name: str) -> None:
    with launching.executor_for_tests(executor):
        testing.check_gradient(kernel_of(BODIES[name]), [*map(Duplicated, arguments()[:-1]), 8], grid=1, block=8)


@pytest.mark.parametrize("name", BODIES)
def test_executors_agree(name: str) -> None:
    """Bit for bit in the primal: rounding to half is the same everywhere."""
    from gpuad.executors.host import Host
    from gpuad.executors.reference import Reference

    sides = []
    for executor in (Host(), Reference()):
        args = arguments()
        with launching.executor_for_tests(executor):
            kernel_of(BODIES[name])(1, 8, args)
        sides.append(args[:-1])
    for host, reference in zip(*sides, strict=True):
        assert np.allclose(host.astype(float), reference.astype(float), rtol=0 if host.dtype == np.float16 else 1e-6, atol=0)


def test_every_half_is_kept(executor: Any) -> None:
    """All bit patterns go through float and back; sums round to the nearest even, overflow to infinity, underflow to subnormals."""
    text = """#include <cuda_fp16.h>
    extern "C" __global__ void k(const half* x, half* same, const float* f, half* rounded, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { same[i] = half((float)x[i]); rounded[i] = __float2half(f[i]); } }"""
    bits = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    rng = np.random.default_rng(1)
    f = (rng.normal(size=1 << 16) * 2.0 ** rng.integers(-28, 18, 1 << 16)).astype(np.float32)
    f[: 1 << 14] = bits[: 1 << 14].astype(np.float32) * np.float32(1 + 2.0**-11)  # ties
    same, rounded = np.zeros_like(bits), np.zeros_like(bits)
    with launching.executor_for_tests(executor):
        gpuad.kernel(text, "k")(256, 256, (bits, same, f, rounded, 1 << 16))
    real = ~np.isnan(bits)
    assert np.array_equal(same[real].view(np.uint16), bits[real].view(np.uint16))
    assert np.isnan(same[~real]).all()
    with np.errstate(over="ignore"):
        assert np.array_equal(rounded, f.astype(np.float16))


def test_contributions_too_small_for_a_half_are_kept(executor: Any) -> None:
    """4096 threads read one half: a half shadow would stop at 2048."""
    text = """#include <cuda_fp16.h>
    extern "C" __global__ void k(const half* x, float* y) { y[blockIdx.x * blockDim.x + threadIdx.x] = __half2float(x[0]); }"""
    x, y = Duplicated(np.ones(1, np.float16)), Duplicated(np.zeros(4096, np.float32), np.ones(4096, np.float32))
    with launching.executor_for_tests(executor):
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
    with launching.executor_for_tests(executor):
        with tape:
            square[1, 4](a, 4)
            square[1, 4](a[1:], 2)
        tape.reverse({a: np.ones(4, np.float32)})
    assert np.allclose(a.shadow, [3, 4 * 8, 4 * 27, 1])


def test_refused() -> None:
    header = '#include <cuda_fp16.h>\nextern "C" __global__ void '
    with pytest.raises(UnsupportedError, match="'a' is a half by value"):
        gpuad.kernel(header + "k(half a, float* x) { x[0] = (float)a; }", "k")
    with pytest.raises(LaunchError, match="its elements are not half"):
        kernel_of(BODIES["in place"])(1, 8, [arguments()[0].astype(np.float32), *arguments()[1:]])
    with pytest.raises(ShadowError, match="a half would lose small contributions"):
        args = arguments()
        gpuad.autodiff(kernel_of(BODIES["in place"]), 1, 8, [Duplicated(args[0], np.zeros(8, np.float16)), *args[1:]])
    text = "struct P { half a; float b; };\n" + header.split("\n")[1] + "k(P* p) { p[0].b = (float)p[0].a; }"
    pairs = np.zeros(3, np.dtype([("a", "f2"), ("b", "f4")], align=True))
    with pytest.raises(ShadowError, match="structs with halves in them"):
        gpuad.autodiff(gpuad.kernel("#include <cuda_fp16.h>\n" + text, "k"), 1, 1, (Duplicated(pairs),))


def test_atomics_on_halves_are_refused() -> None:
    with pytest.raises((UnsupportedError, gpuad.CompileError)):
        kernel_of("atomicAdd(&y[0], x[i]);")
