"""Forward and reverse in one kernel: the same results as in two, where it is proved, and two where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from launch_tools import CASES, arguments, running

import gpuad
from gpuad import BatchDuplicated, Duplicated, api, fusion, pipeline
from gpuad.codegen.cpu.source import is_flat
from gpuad.codegen.cuda import cuda_source
from gpuad.runtime.reference import Reference

N = 20
# `loop` adds to `w` where no sum over a block can be made of it, which would be a launch of its own.
SOURCE = r"""
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
#define K extern "C" __global__ void
K wave(double* x, const double* w, int n) { I; double s = sin(x[i]); x[i] = s * w[i]; }
K decay(double* x, int n) { I; x[i] = exp(x[i]); }
K both(double* x, double* y, int n) { I; y[i] = exp(y[i]); x[i] = sin(x[i]) * y[i]; }
K zeros(double* x, double* y, int n) { I; y[i] = x[i] * 0.0; x[i] = x[i] * -0.0; }
K loop(double* x, const double* w, int m, int n) { I; double s = 0.0; for (int j = 0; j < m; ++j) s += w[(i + j) % 2] * x[i]; x[i] = s; }
K until(double* x, int n) { I; double s = x[i]; int k = 0; while (k < 3) { s = 0.5 * s; ++k; } x[i] = s; }
K choose(double* x, double* y, int n) { I; double t; if (x[i] > 0.5) t = 2.0 * x[i]; else t = x[i] * x[i]; y[i] += t; x[i] = t; }
K scatter(double* y, const double* x, const int* index, int n) { I; atomicAdd(&y[index[i]], x[i] * x[i]); }
K asserted(double* x, int n) { I; assert(x[i] < 9.0); x[i] = x[i] * x[i]; }
K pick(double* y, const double* x, const int* index, int n) { I; y[i] = x[index[i]] * x[index[i]]; }
K permuted(double* x, const int* index, int n) { I; x[index[i]] = x[index[i]] * x[index[i]]; }
K shifted(double* y, const double* x, int n) { I; y[i] = x[i] * x[i] + (i > 0 ? x[i - 1] : 0.0); }
K blocks(double* x, int n) { __shared__ double s[8]; int i = blockIdx.x * 8 + threadIdx.x; s[threadIdx.x] = i < n ? x[i] : 0.0;
    __syncthreads(); if (i < n) x[i] = s[threadIdx.x] * s[0]; }
K compact(double* out, const double* x, int* count, int n) { I; int k = atomicAdd(count, 1); out[k] = x[i] * x[i]; }
"""
LAUNCH = -(-N // 8), 8


@contextmanager
def watched(fuse: bool = True) -> Iterator[list[str]]:
    """The kernels that are launched, but for inspectors before them."""
    ran: list[str] = []

    class Watched(Reference):
        def launch(self, kernel: Any, *args: Any, **keywords: Any) -> None:
            if not kernel.name.endswith("_injectivity"):
                ran.append(kernel.name)
            super().launch(kernel, *args, **keywords)

    with pytest.MonkeyPatch.context() as patch, pipeline.executor_for_tests(Watched()):
        patch.setattr("gpuad.fusion.forward_reverse.has_atomics", lambda _: False)  # as on a GPU, where atomics cost no cores
        if not fuse:
            patch.setattr(fusion, "fusing", lambda *_: None)
        yield ran


def made(values: Any) -> Duplicated:
    array = np.array(values, float)
    return Duplicated(array, np.linspace(0.5, 1.5, array.size))


def operands(name: str) -> tuple[Any, ...]:
    x, y, w, index = (made(np.linspace(a, a + 0.8, N)) for a in (0.1, 0.3, 0.2)), None, None, np.arange(N, dtype=np.int32)[::-1].copy()
    x, y, w = x
    return {
        "wave": (x, w, N), "decay": (x, N), "both": (x, y, N), "zeros": (x, y, N), "loop": (x, w, 3, N), "until": (x, N),
        "asserted": (x, N), "choose": (x, y, N), "pick": (y, x, index, N),
        "scatter": (y, x, index % 5, N), "permuted": (x, index, N), "shifted": (y, x, N), "blocks": (x, N),
        "compact": (y, x, np.zeros(1, np.int32), N),
    }[name]  # fmt: skip


def run(name: str, fuse: bool) -> tuple[list[str], list[Any]]:
    args = operands(name)
    with watched(fuse) as ran:
        gpuad.autodiff(gpuad.kernel(SOURCE, name), *LAUNCH, args)
    return ran, [a.tobytes() for x in args if isinstance(x, Duplicated) for a in (x.primal, x.shadow)]


@pytest.mark.parametrize("name", ["wave", "decay", "zeros", "loop", "until", "choose", "scatter"])
def test_one_launch(name: str) -> None:
    ran, results = run(name, True)
    assert ran == [f"{name}_autodiff"]
    apart, expected = run(name, False)
    assert apart[-1] == f"{name}_reverse" and results == expected


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ["both", "permuted", "shifted", "blocks", "compact", "asserted"])
def test_two_launches(name: str) -> None:
    """Values from before and after are needed; an index from data; a gather; threads that meet; results of atomics; a launch that may end
    before its reverse."""
    ran, results = run(name, True)
    assert f"{name}_autodiff" not in ran and (ran, results) == run(name, False)


def test_overlap_batches_and_atomics_for_tests() -> None:
    kernel, x, w = gpuad.kernel(SOURCE, "wave"), made(np.linspace(0.1, 0.9, N)), made(np.linspace(0.2, 1, N))
    with watched() as ran:
        gpuad.autodiff(kernel, *LAUNCH, (x, x, N))
        batch = BatchDuplicated(x.primal, (x.shadow, x.shadow.copy()))
        gpuad.autodiff(kernel, *LAUNCH, (batch, BatchDuplicated(w.primal, (w.shadow, w.shadow.copy())), N))
        with pipeline.nothing_plain_for_tests():
            gpuad.autodiff(kernel, *LAUNCH, (x, w, N))
        with gpuad.deterministic():
            gpuad.autodiff(gpuad.kernel(SOURCE, "pick"), *LAUNCH, (w, x, np.zeros(N, np.int32), N))
        assert not [name for name in ran if name.endswith("_autodiff")]


def test_a_seed_that_is_kept() -> None:
    kernel, x, y = gpuad.kernel(SOURCE, "scatter"), made(np.linspace(0.1, 0.9, N)), np.zeros(N)
    seed = np.linspace(1, 2, N)
    with watched() as ran:
        x.shadow[...] = 0
        gpuad.autodiff(kernel, *LAUNCH, (Duplicated(y, seed, keep=True), x, np.arange(N, dtype=np.int32), N))
    assert ran == ["scatter_autodiff"] and np.array_equal(seed, np.linspace(1, 2, N)) and np.allclose(x.shadow, 2 * x.primal * seed)


def test_on_a_cpu_atomics_do_not_take_the_cores_of_the_primal() -> None:
    kernel, args = api.kernel(SOURCE, "loop"), operands("loop")
    with running("reference"):
        call = kernel.bind(*LAUNCH, args, 0, None)
        adjoint = kernel.reverse_for(api.pattern_of(kernel, call), call)
        assert fusion.fusing(kernel.primal(), adjoint, call, pipeline.stages(adjoint, call)) is None


def test_no_copy_is_made() -> None:
    x, w = made(np.linspace(0.1, 0.9, N)), made(np.linspace(0.2, 1, N))
    with watched(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reference, "copy", lambda *_: pytest.fail("memory was copied"))
        gpuad.autodiff(gpuad.kernel(SOURCE, "wave"), *LAUNCH, (x, w, N))


def text(name: str) -> str:
    kernel, args = api.kernel(SOURCE, name), operands(name)
    with running("reference"):
        call = kernel.bind(*LAUNCH, args, 0, None)
        adjoint = kernel.reverse_for(api.pattern_of(kernel, call), call)
        both = fusion.fusing(kernel.primal(), adjoint, call, pipeline.stages(adjoint, call))
    assert both is not None
    return cuda_source([both.kernel])


def test_the_text_is_that_of_one_kernel() -> None:
    assert (
        text("wave")
        == """\
extern "C" __global__ void wave_autodiff(double* x, double* dx, const double* w, double* dw, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const double x_2 = x[i];
        const double s = sin(x_2);
        const double w_2 = w[i];
        const double dx_2 = dx[i];
        dw[i] += s * dx_2;
        dx[i] = cos(x_2) * (w_2 * dx_2);
        x[i] = s * w_2;
    }
}
"""
    )


def test_the_reverse_comes_last_where_it_reads_the_result() -> None:
    found = text("decay")
    assert found.index("x[i] = exp(x[i])") < found.index("dx[i]")


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ["black_scholes", "saxpy", "activation", "relu_bias", "masked_update"])
def test_shipped_kernels(name: str) -> None:
    """A grid-stride loop stays alone on a CPU, which runs it as one flat loop."""
    grid, block, shared_mem = CASES[name].geometry()
    kernel = api.Kernel(CASES[name].file, CASES[name].kernel)  # of which nothing is known from where atomics cost cores
    stays = is_flat(kernel.primal())
    assert stays == (name == "saxpy")
    results = []
    for fuse in (True, False):
        args = arguments(name)
        for a in args:
            if isinstance(a, Duplicated):
                a.shadow[...] = np.linspace(0.1, 1, a.size).reshape(a.shape)
        with watched(fuse) as ran:
            gpuad.autodiff(kernel, grid, block, args, shared_mem=shared_mem)
        assert (f"{kernel.name}_autodiff" in ran) is (fuse and not stays)
        results.append([x.tobytes() for a in args if hasattr(a, "shadow") for x in (np.asarray(a.primal), a.shadow)])
    assert results[0] == results[1]
