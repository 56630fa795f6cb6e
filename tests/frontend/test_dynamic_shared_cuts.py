"""Dynamic shared memory that a kernel cuts into arrays of several types."""

from __future__ import annotations

import numpy as np
import pytest
from launch_tools import EXECUTORS, running

import gpuad
from gpuad import Duplicated, UnsupportedError
from gpuad.runtime import nvrtc
from gpuad.runtime.reference import BoundsError
from gpuad.testing import check_gradient

rng = np.random.default_rng(7)
WHERE = "shared memory can be cut into arrays of several types where each begins behind the one before"
HEAD = """struct Item { double w; int from; };
extern "C" __global__ void k(double* x, const float* z, int n) { int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;\n"""
USE = """v[t] = x[i] * x[i]; keys[t] = n - 1 - t; w[t] = z[i];
    __syncthreads();
    x[i] = v[keys[t]] * w[keys[t]] + v[t];"""
CUTS = {
    "bytes": "extern __shared__ unsigned char s[]; double* v = (double*)s; float* w = (float*)(v + n); int* keys = (int*)(w + n);",
    "bytes counted": "extern __shared__ char s[]; double* v = (double*)s; int* keys = (int*)(s + n * sizeof(double)); "
    "float* w = reinterpret_cast<float*>(&s[n * (sizeof(double) + sizeof(int))]);",
    "numbers": "extern __shared__ double v[]; float* const w = (float*)&v[n]; const int m = n; int* keys = (int*)(w + m);",
    "sizes of the block": "extern __shared__ double s[]; auto* v = s; auto keys = (int*)(v + blockDim.x); "
    "float* w = (float*)&keys[blockDim.x];",
    "two of a type": "extern __shared__ int s[]; int* keys = s; double* v = (double*)(s + n); double* u = v + n; "
    "float* w = (float*)(u + n); u[t] = x[i]; x[i] = u[t];",
    "structs": "extern __shared__ char s[]; Item* items = (Item*)s; double* v = (double*)(items + n); int* keys = (int*)(v + n); "
    "float* w = (float*)(keys + n); items[t].w = x[i]; items[t].from = t; x[i] = items[items[t].from].w;",
}


def _kernel(cuts: str, use: str = USE) -> gpuad.Kernel:
    return gpuad.kernel(f"{HEAD}{cuts}\n{use} }}", "k")


@pytest.mark.one_of(2)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", CUTS)
def test_gradient(name: str, executor: str) -> None:
    kernel, x, z, dx = _kernel(CUTS[name]), rng.normal(size=16), rng.normal(size=16).astype(np.float32), np.ones(16)
    with running(executor):
        check_gradient(kernel, (Duplicated(x), z, 8), grid=2, block=8, shared_mem=512)
        check_gradient(kernel, (x, z, 8), grid=2, block=8, shared_mem=512, directions=1)
        before = x.copy()
        gpuad.autodiff(kernel, 2, 8, (Duplicated(x, dx), z, 8), shared_mem=512)
    turned = z.reshape(2, 8)[:, ::-1].reshape(-1)
    v = before**2
    assert np.allclose(x, v.reshape(2, 8)[:, ::-1].reshape(-1) * turned + v, rtol=1e-12)
    assert np.allclose(dx, 2 * before * (z + 1.0), rtol=1e-6)


TEMPLATE = """template <int N, class T> __global__ void k(T* x) {
    extern __shared__ unsigned char s[];
    int* keys = (int*)s; T* v = (T*)(keys + N); T* u = v + N;
    int t = threadIdx.x;
    for (int i = t; i < N; i += blockDim.x) { v[i] = x[i] * x[i]; u[i] = x[i]; keys[i] = N - 1 - i; }
    __syncthreads();
    for (int i = t; i < N; i += blockDim.x) x[i] = v[keys[i]] * u[i];
}"""


@pytest.mark.parametrize("type_", ["float", "double"])
def test_sizes_of_a_template(type_: str) -> None:
    kernel, x = gpuad.kernel(TEMPLATE, f"k<6, {type_}>"), rng.normal(size=6)
    check_gradient(kernel, (x.astype({"float": np.float32, "double": np.float64}[type_]),), grid=1, block=4, shared_mem=128)


@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
def test_generated_text_compiles() -> None:
    args = (Duplicated(np.ones(8), np.ones(8)), np.ones(8, np.float32), 8)
    text = _kernel(CUTS["bytes"]).adjoint(grid=1, block=8, args=args, shared_mem=128).source
    assert "__shared__ double ds_double[16];" in text
    assert "__shared__ int s_int[32];" in text
    assert "char" not in text  # of which there are none in the memory
    nvrtc.compile_cuda(text)


def test_what_reaches_into_another_array_is_found() -> None:
    """Which a kernel is taken not to do."""
    kernel = _kernel(CUTS["bytes"], "v[t + n] = x[i]; __syncthreads(); x[i] = keys[t] > 3 ? x[i] : 1.0;")
    with pytest.raises(BoundsError, match="depends on uninitialised `s_int`"):
        check_gradient(kernel, (np.ones(8), np.ones(8, np.float32), 8), grid=1, block=8, shared_mem=256)


REFUSED = {
    "one place": "extern __shared__ char s[]; double* v = (double*)s; int* keys = ^(int*)s; float* w = (float*)(v + n);",
    "an element": "extern __shared__ double v[]; float* w = (float*)(v + n); int* keys = ^(int*)(w + t);",
    "an element by a variable": "extern __shared__ double v[]; int m = 2 * t; float* w = ^(float*)(v + m); int* keys = (int*)(w + n);",
    "a variable that changes": "extern __shared__ double v[]; int m = n; m += t; float* w = ^(float*)(v + m); int* keys = (int*)(w + n);",
    "backwards": "extern __shared__ double v[]; float* w = (float*)(v + n); int* keys = ^(int*)(w + -n);",
    "bits": "extern __shared__ double v[]; float* w = (float*)(v + n); int* keys = (int*)(w + n); keys[t] = *^(int*)w;",
    "bits of an element": "extern __shared__ double v[]; float* w = (float*)(v + n); int* keys = (int*)(w + n); keys[t] = *^(int*)(w + t);",
    "later": "extern __shared__ double v[]; float* w = (float*)(v + n); int* keys; keys = ^(int*)(w + n);",
    "bytes too": "extern __shared__ char ^s[]; double* v = (double*)s; float* w = (float*)(v + n); int* keys = (int*)(w + n); s[t] = 1;",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    cuts = REFUSED[name]
    with pytest.raises(UnsupportedError, match=WHERE) as caught:
        _kernel(cuts.replace("^", ""))
    assert (caught.value.line, caught.value.column) == (3, cuts.index("^") + 1)
