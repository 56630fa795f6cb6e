"""Kernels whose call says more than types, of several kinds at once: lists of arrays, textures, barriers of the grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Const, Duplicated, Texture, api
from gpuad.errors import LaunchError
from gpuad.testing import check_gradient

N = 20
HEAD = "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n"
KERNELS = {
    "textures and lists": (
        "cudaTextureObject_t t, const float** rows, cudaTextureObject_t u, float* y, int n",
        "if (i < n) y[i] += tex1D<float>(t, rows[0][i]) * rows[1][i] + tex1D<float>(u, y[i]);",
    ),
    "textures and barriers of the grid": (
        "cudaTextureObject_t t, float* x, float* y, int n",
        "if (i < n) x[i] *= tex1D<float>(t, x[i]); cg::this_grid().sync(); if (i < n) y[i] = x[(i + 1) % n] * x[i];",
    ),
    "lists and barriers of the grid": (
        "float** rows, float* y, int n",
        "if (i < n) rows[0][i] *= rows[1][i]; cg::this_grid().sync(); if (i < n) y[i] = rows[0][(i + 1) % n] * rows[1][i];",
    ),
    "lists in loops until memory says so": (
        "float** rows, int* left, float* y, int n",
        "auto g = cg::this_grid(); while (left[0] > 0) { g.sync(); if (i < n) rows[0][i] *= rows[1][i]; if (i == 0) left[0]--; g.sync(); } "
        "if (i < n) y[i] = rows[0][(i + 1) % n];",
    ),
    "all": (
        "cudaTextureObject_t t, float** rows, float* y, int n",
        "if (i < n) rows[0][i] *= rows[1][i] * tex1D<float>(t, y[i]); cg::this_grid().sync(); if (i < n) y[i] = rows[0][(i + 3) % n];",
    ),
}


def kernel(parameters: str, body: str) -> Any:
    line = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    return gpuad.kernel(f'{HEAD}extern "C" __global__ void k({parameters}) {{ {line} {body} }}', "k")


def numbers(seed: int) -> Any:
    return np.random.default_rng(seed).uniform(0.6, 0.9, N).astype(np.float32)


def arguments(parameters: str) -> tuple[Any, ...]:
    made: list[Any] = []
    for number, name in enumerate(p.split()[-1] for p in parameters.split(", ")):
        table = Texture(numbers(number), filter="linear")
        made.append(
            {"t": table, "u": table, "rows": [numbers(7), numbers(8)], "n": N, "left": np.array([3], np.int32)}.get(name, numbers(number))
        )
    return tuple(made)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", KERNELS)
def test_several_kinds(name: str) -> None:
    parameters, body = KERNELS[name]
    check_gradient(kernel(parameters, body), arguments(parameters), grid=2, block=16)


def test_a_part_without_a_direction() -> None:
    """None for a list stands for each of its arrays."""
    product = gpuad.kernel(
        'extern "C" __global__ void k(const double** r, double* y) { int i = threadIdx.x; y[i] *= y[i] * r[0][i] * r[1][i]; }', "k"
    )
    r, y, dot = [np.full(4, 2.0), np.full(4, 3.0)], Duplicated(np.full(4, 5.0), np.ones(4)), Duplicated(np.ones(4), np.zeros(4))
    gpuad.hvp(product, 1, 4, (r, y), (None, dot))
    np.testing.assert_array_equal(dot.primal, 60)
    np.testing.assert_array_equal(dot.shadow, 12)
    for directions, message in (((None,), "one for each of the 2 arguments"), (([None], dot), "`r` has 2 arrays, and 1 directions")):
        with pytest.raises(LaunchError, match=message):
            gpuad.hvp(product, 1, 4, (r, y), directions)


def test_annotations_by_position() -> None:
    """A split pair's, too, are those of the call's parameters, and not of the kernel's that it becomes."""
    squares = gpuad.kernel(
        'extern "C" __global__ void k(const double** r, double* w, double* y) { int i = threadIdx.x; y[i] = r[0][i] * r[1][i] * w[i]; }',
        "k",
    )
    r, w, y = [Duplicated(np.full(4, k + 2.0)) for k in range(2)], np.full(4, 5.0), Duplicated(np.zeros(4), np.ones(4))
    augmented, reverse = gpuad.autodiff_thunk(squares, Duplicated, Const, Duplicated)
    saved = augmented(1, 4, (r, Const(w), y))
    reverse(1, 4, (r, Const(w), y), saved)
    np.testing.assert_array_equal(r[0].shadow, 15)
    np.testing.assert_array_equal(r[1].shadow, 10)


def test_a_barrier_of_the_grid_beside_lists() -> None:
    """The text of all parts, and second derivatives: against differences of gradients."""
    parameters, body = KERNELS["all"]
    made, args = kernel(parameters, body), arguments(parameters)
    text = made.adjoint(rows=Duplicated, y=Duplicated, args=args)
    assert text.parts == ("k_part0", "k_part1") and len(list(api.kernel(made).launches(2, 16, args))) == 2
    assert "which takes textures and lists of arrays" in repr(made)
    with pytest.raises(LaunchError, match="pass args=, which say what the kernel is made for"):
        made.adjoint(rows=Duplicated)


def test_second_derivatives_with_a_barrier_of_the_grid() -> None:
    line = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    code = f'{HEAD}extern "C" __global__ void k(double** r, double* y) {{ {line} r[0][i] *= r[1][i] * y[i]; cg::this_grid().sync(); '
    made, rng = gpuad.kernel(code + "y[i] = r[0][(i + 3) % 8] * r[0][i]; }", "k"), np.random.default_rng(3)
    start, seeds, dots = rng.uniform(0.5, 1, (3, 8)), rng.normal(size=(3, 8)), rng.normal(size=(3, 8))

    def gradients(by: float) -> Any:
        p, q, y = (Duplicated(x.copy(), dx.copy()) for x, dx in zip(start + by * dots, seeds, strict=True))
        gpuad.autodiff(made, 2, 4, ([p, q], y))
        return np.stack([p.shadow, q.shadow, y.shadow])

    own = [Duplicated(x.copy(), dx.copy()) for x, dx in zip(start, seeds, strict=True)]
    along = [Duplicated(x.copy(), np.zeros(8)) for x in dots]
    gpuad.hvp(made, 2, 4, (own[:2], own[2]), (along[:2], along[2]))
    wide, narrow = ((gradients(h) - gradients(-h)) / (2 * h) for h in (1e-4, 5e-5))
    np.testing.assert_allclose([d.shadow for d in along], (4 * narrow - wide) / 3, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose([d.shadow for d in own], gradients(0), rtol=1e-13)


@pytest.mark.parametrize("name", ["textures and lists", "lists and barriers of the grid"])
def test_variables_of_the_module(name: str) -> None:
    """Their arrays and shadows, as of kernels whose call says types alone; one pair of each serves calls with lists of other lengths."""
    parameters, body = KERNELS[name]
    written = (
        f"{HEAD}__constant__ float w[2];\n"
        + f'extern "C" __global__ void k({parameters}) {{ int i = threadIdx.x; {body} y[i] *= w[i % 2]; }}'
    )
    k, dw, args = gpuad.kernel(written, "k"), np.zeros(2, np.float32), arguments(parameters)
    k.get_global("w")[:] = 2, 3
    with_shadow, y = k.with_shadow("w", dw), parameters.count(",") - 1
    pair = Duplicated(args[y], np.ones(N, np.float32))
    gpuad.autodiff(with_shadow, 1, N, (*args[:y], pair, *args[y + 1 :]))
    assert np.allclose(dw, [(pair.primal[0::2] / 2).sum(), (pair.primal[1::2] / 3).sum()], rtol=1e-5)
    with pytest.raises(LaunchError, match="`k` reaches no variable `v`; of its module it reaches `w`"):
        k.get_global("v")
