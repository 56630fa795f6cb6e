"""Bits: random numbers made of integers, memory seen through pointers of another type, and what is refused because a gradient would be
lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, api, pipeline, testing
from gpuad.codegen.cuda import cuda_source
from gpuad.errors import UnsupportedError
from gpuad.runtime import nvrtc

DROPOUT = """
__device__ float uniform(unsigned int state) {
    state ^= state << 13; state ^= state >> 17; state ^= state << 5;
    return __uint_as_float((state >> 9) | 0x3f800000u) - 1.0f;
}
extern "C" __global__ void k(float* x, const unsigned int* seed, const int* flags, float keep, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float scale = reinterpret_cast<const float*>(flags)[i];
    int exponent = (__float_as_int(scale) >> 23) & 255;
    x[i] = uniform(seed[i]) < keep ? x[i] * x[i] * scale * exponent : 0.0f;
}
"""


def _arguments() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.5, 4, 50).astype(np.float32)
    return rng.normal(size=50).astype(np.float32), rng.integers(1, 2**32, 50, np.uint32), scale.view(np.int32), np.float32(0.6), 50


def test_a_random_mask(executor: Any) -> None:
    x, seed, flags, keep, n = _arguments()
    dx, state = np.ones(50, np.float32), seed.astype(np.uint64)
    for shift in (13, -17, 5):
        state ^= (state << shift if shift > 0 else state >> -shift) & 0xFFFFFFFF
    uniform = (state >> 9) / 2**23
    scale = flags.view(np.float32) * (np.frexp(flags.view(np.float32))[1] + 126)
    old = x.copy()
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(gpuad.kernel(DROPOUT, "k"), 2, 32, (Duplicated(x, dx), seed, flags, keep, n))
        testing.check_gradient(gpuad.kernel(DROPOUT, "k"), (Duplicated(old.copy(), dx), *_arguments()[1:]), grid=2, block=32)
    assert 10 < (uniform < keep).sum() < 40
    np.testing.assert_allclose(x, np.where(uniform < keep, old**2 * scale, 0), rtol=1e-6)
    np.testing.assert_allclose(dx, np.where(uniform < keep, 2 * old * scale, 0), rtol=1e-6)


@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("type_", ["float", "double"])
def test_generated_text_compiles(type_: str) -> None:
    integer, to, back = ("int", "int", "float") if type_ == "float" else ("long long", "longlong", "double")
    text = f"""extern "C" __global__ void k({type_}* x, {integer}* m, unsigned {integer}* u) {{
        {type_} t = __{to}_as_{back}(m[0]), v = (({type_}*)u)[1];
        x[0] *= t + v + (__{back}_as_{to}(t) & 3) + (*(unsigned {integer}*)&t >> 5);
        *(unsigned {integer}*)&x[1] = u[0];
        u[0] += 1;
    }}"""
    kernel = gpuad.kernel(text, "k")
    nvrtc.compile_cuda(kernel.adjoint(x=Duplicated).source)
    assert f"__{back}_as_{to}" in cuda_source([api.kernel(kernel).primal()])
    nvrtc.compile_cuda(cuda_source([api.kernel(kernel).primal()]))


def test_the_place_of_the_bits_is_named() -> None:
    text = "__device__ float f(float a) {\n  int b = __float_as_int(a);\n  return __int_as_float(b & 0x7fffffff); }\n"
    text += 'extern "C" __global__ void k(float* x) { x[0] = f(x[0]); }'
    kernel = gpuad.kernel(text, "k")
    x = np.full(1, -2, np.float32)
    kernel(1, 1, (x,))  # without a gradient there is nothing to lose
    assert x == 2
    for mode in (gpuad.Reverse, gpuad.Forward):
        with pytest.raises(UnsupportedError, match="the bits of a value that carries a gradient") as caught:
            gpuad.autodiff(kernel, 1, 1, (Duplicated(x, np.ones(1, np.float32)),), mode=mode)
        assert caught.value.line == 2
    assert x == 2
