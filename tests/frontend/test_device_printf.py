"""printf and assert: heard once, from the launch that runs forward, and never from the reverse pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, compiled, running

import gpuad
from gpuad import Duplicated
from gpuad.codegen.cuda import cuda_source
from gpuad.errors import LaunchError
from gpuad.ir.nodes import Kernel, Tell
from gpuad.ir.rewrite import walk_stmts
from gpuad.runtime import nvrtc

TEXT = """__device__ float half_of(float v) { assert(v < 90 && "too large"); return v / 2; }
extern "C" __global__ void k(float* x, int n, long long big) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (i == 1) printf("thread %d of %u: %6.3f, %lld %c %%\\n", i, blockDim.x, x[i], big, 'a' + i);
    for (int k = 0; k < 2; ++k) {
        if (i == 0) printf("iteration %i\\n", k);
        x[i] = half_of(x[i]) * x[i];
    }
    printf("%s %p\\n", "strings and addresses are left out", x);
    printf(n > 3 ? "a text" : "that is chosen");
    assert(x[i] >= 0);
    if (i == 2) printf("\\"done\\"\\t\\\\ %x %hd %5ld é|\\n", -1, (short)3, 4L);
}"""
SAID = ["iteration 0", "iteration 1", "thread 1 of 4:  2.000, 1099511627776 b %", '"done"\t\\ ffffffff 3     4 é|']


def launch(x: Any, dx: Any) -> None:
    gpuad.autodiff(compiled(TEXT, "k"), 2, 4, (Duplicated(x, dx), 6, 1 << 40))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_kernel_says_it_once(executor: str, capfd: pytest.CaptureFixture[str]) -> None:
    x, dx = np.arange(1.0, 7, dtype=np.float32), np.ones(6, np.float32)
    with running(executor):
        launch(x, dx)
    assert sorted(capfd.readouterr().out.splitlines()) == sorted(SAID)
    np.testing.assert_allclose(dx, np.arange(1.0, 7) ** 3 / 2, rtol=1e-6)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("value", "what"), [(100.0, r'assert\(v < 90 && "too large"\)'), (np.nan, r"assert\(v < 90")])
def test_an_assertion_that_fails(executor: str, value: float, what: str) -> None:
    x, dx = np.arange(1.0, 7, dtype=np.float32), np.ones(6, np.float32)
    x[3] = value
    with running(executor), pytest.raises(LaunchError, match=rf"an assertion failed.*<source>:1:37: {what}"):
        launch(x, dx)
    assert (dx == 1).all()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_it_is_heard_in_forward_mode(executor: str, capfd: pytest.CaptureFixture[str]) -> None:
    x, dx = np.arange(1.0, 7, dtype=np.float32), np.ones(6, np.float32)
    with running(executor):
        gpuad.autodiff(compiled(TEXT, "k"), 2, 4, (Duplicated(x, dx), 6, 1 << 40), mode=gpuad.Forward)
    assert sorted(capfd.readouterr().out.splitlines()) == sorted(SAID)
    np.testing.assert_allclose(dx, np.arange(1.0, 7) ** 3 / 2, rtol=1e-6)


def tells(kernel: Kernel) -> int:
    return sum(isinstance(s, Tell) for s in walk_stmts(kernel.body))


def test_only_the_primal_has_it() -> None:
    kernel = compiled(TEXT, "k")
    assert tells(kernel.primal()) == 5
    for text in (kernel.adjoint(x=Duplicated).source, kernel.adjoint(x=Duplicated, n=gpuad.Const).source):
        assert "printf" not in text
        assert "gpuad_stop" not in text


def test_what_only_an_assertion_reads_is_not_saved() -> None:
    kernel = compiled('extern "C" __global__ void k(float* x, int n) { assert(sinf(x[n]) > x[0]); x[threadIdx.x] *= 2; }', "k")
    assert "x_saved" not in kernel.adjoint(x=Duplicated).source


def test_a_helper_that_asserts_before_a_barrier(capfd: pytest.CaptureFixture[str]) -> None:
    text = """__device__ int checked(int t) { assert(t < 16); return t; }
extern "C" __global__ void k(float* x, int n) {
    __shared__ float s[16];
    int t = checked(threadIdx.x);
    if (t >= n) return;
    s[t] = x[t];
    __syncthreads();
    if (t == 3) printf("%g\\n", s[n - 1]);
    x[t] = s[n - 1 - t] * s[t];
}"""
    for executor in EXECUTORS:
        x, dx = np.arange(1.0, 9, dtype=np.float32), np.ones(8, np.float32)
        with running(executor):
            gpuad.autodiff(compiled(text, "k"), 1, 16, (Duplicated(x, dx), 8))
        assert capfd.readouterr().out == "8\n"
        np.testing.assert_allclose(dx, 2 * np.arange(8.0, 0, -1))


@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("arch", ["sm_75", "sm_100"])
def test_nvrtc_takes_it(arch: str) -> None:
    text = cuda_source([compiled(TEXT, "k").primal()])
    assert text.count("printf(") == 3
    assert set(nvrtc.resources(nvrtc.compile_cuda(text, arch))) == {"k"}
