"""Forward and adjoint in one kernel, chosen by a flag: a launch has the adjoint of the side that it takes. The map is linear in `f`, `g`
and `c` each, so that its gradients are known in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, UnsupportedError, pipeline

N = 20
KERNEL = """%s
extern "C" __global__ void k(float* f, float* g, const float* c, int n, %s) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  %s
}"""
ADD = "for (int j = 0; j < 3; j++) s += c[i] * j * f[(i * 7 + j) % n]; g[i] = s;"
SPREAD = "for (int j = 0; j < 3; j++) atomicAdd(&f[(i * 7 + j) % n], c[i] * j * s);"
LOOP = "for (int j = 0; j < 3; j++) { int q = (i * 7 + j) % n; float w = c[i] * j; "
HELPER = (
    f"template <bool back> __device__ void both(float* f, float* g, const float* c, int n, int i) {{ float s = back ? g[i] : 0.f; {LOOP}"
)
HELPER += "if (back) atomicAdd(f + q, w * s); else s += w * f[q]; } if (!back) g[i] = s; }"
WORDS = {
    "bool": ("", "bool back", f"if (i >= n) return; float s = back ? g[i] : 0.f; {LOOP} if (!back) s += w * f[q]; else "
             "atomicAdd(&f[q], w * s); } if (!back) g[i] = s;"),
    "mode": ("", "int mode", f"if (i >= n) return; float s = mode == 1 ? g[i] : 0.f; {LOOP} if (mode == 0) s += w * f[q]; else "
             "atomicAdd(&f[q], w * s); } if (mode != 1) g[i] = s;"),
    "return": ("", "int dir", f"if (i >= n) return; if (dir) {{ float s = g[i]; {SPREAD} return; }} float s = 0; {ADD}"),
    "switch": ("", "int dir", f"if (i >= n) return; float s = 0; switch (dir) {{ case 0: {ADD} break; case 1: s = g[i]; {SPREAD} break; "
               "default: g[i] = 0; }"),
    "inner switch": ("", "const bool back", f"if (i < n) {{ float s = 0; if (back) s = g[i]; {LOOP} switch ((int)back) {{ case 0: s += w * "
                     "f[q]; break; case 1: atomicAdd(f + q, w * s); } } if (!back) g[i] = s; }"),
    "bit": ("", "unsigned bits", f"bool forward = !(bits & 1); if (i < n) {{ float s = forward ? 0.f : g[i]; {LOOP} if (forward && w>-9) "
            "s += w * f[q]; else if (!forward && w > -9) atomicAdd(f + q, w * s); } if (forward) g[i] = s; }"),
    "template": (HELPER, "bool back", "if (i < n) { if (back) both<true>(f, g, c, n, i); else both<false>(f, g, c, n, i); }"),
}  # fmt: skip


def matrix(c: np.ndarray) -> np.ndarray:
    a = np.zeros((N, N))
    for i in range(N):
        for j in range(3):
            a[i, (i * 7 + j) % N] += c[i] * j
    return a


def numbers(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(0.5, 1.5, N).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("words", WORDS)
def test_both_directions_of_one_kernel(words: str, back: int, executor: Any) -> None:
    kernel, one = gpuad.kernel(KERNEL % WORDS[words], "k"), matrix(np.ones(N))
    f, g, c, df, dg = numbers(5)
    a, dc = matrix(c), np.zeros(N, np.float32)
    forth = f, a @ f, df + a.T @ dg, 0 * dg, (one @ f) * dg
    expected = (f + a.T @ g, g, df, dg + a @ df, (one @ df) * g) if back else forth
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(kernel, 1, 32, (Duplicated(f, df), Duplicated(g, dg), Duplicated(c, dc), N, back))
    for found, should in zip((f, g, df, dg, dc), expected, strict=True):
        np.testing.assert_allclose(found, should, rtol=1e-5, atol=1e-5)


def pairs() -> list[Duplicated]:
    return [Duplicated(x, np.ones(N, np.float32)) for x in numbers(3)]


def test_a_program_that_goes_forth_and_back() -> None:
    """Two rounds of one line with either flag, the second from what is known: g = A f, then f += A' g, of which L = sum(f)."""
    kernel = gpuad.kernel(KERNEL % WORDS["mode"], "k")
    tape = gpuad.Tape()
    for _ in range(3):
        f, g, c = pairs()
        start, a = f.primal.copy(), matrix(c.primal)
        with tape:
            for mode in (0, 1, 0, 1):
                kernel[1, 32](f, g, c, N, mode)
        tape.reverse({f: 1.0})
        step = np.eye(N) + a.T @ a
        np.testing.assert_allclose(f.primal, step @ step @ start, rtol=1e-4)
        np.testing.assert_allclose(f.shadow, step @ step @ np.ones(N), rtol=1e-4)


@pytest.mark.parametrize("mode", [0, 1])
def test_split_pairs_and_second_derivatives(mode: int) -> None:
    """With respect to c and to what it is multiplied by the map is bilinear."""
    kernel, one = gpuad.kernel(KERNEL % WORDS["mode"], "k"), matrix(np.ones(N))
    args = pairs()
    augmented, reverse = gpuad.autodiff_thunk(kernel, f=Duplicated, g=Duplicated, c=Duplicated)
    f, g, _ = (p.primal.copy() for p in args)
    reverse(1, 32, (*args, N, mode), augmented(1, 32, (*args, N, mode)))
    np.testing.assert_allclose(args[2].shadow, 1 + (one.sum(1) * g if mode else one @ f), rtol=1e-5)
    args, dots = pairs(), [Duplicated(p.primal.copy(), np.zeros(N, np.float32)) for p in pairs()]
    direction = (g, f)[1 - mode].copy()
    gpuad.hvp(kernel, 1, 32, (*args, N, mode), (*dots, None, None))
    np.testing.assert_allclose(dots[2].shadow, one.sum(1) * direction if mode else one @ direction, rtol=1e-5)


def test_texts_say_for_which_side_they_are() -> None:
    kernel = gpuad.kernel(KERNEL % WORDS["mode"], "k")
    texts = [kernel.adjoint(grid=1, block=32, args=(*pairs(), N, mode)).source for mode in (0, 1, 7)]
    assert "Holds where mode == 1 is false, mode == 0 is true, mode != 1 is true." in texts[0]
    assert "Holds where mode == 1 is true, mode == 0 is false, mode != 1 is false." in texts[1]
    assert ["atomicAdd(&df" in text for text in texts] == [True, False, False]
    with pytest.raises(UnsupportedError, match=r"add atomically in one launch; it may be supported for what `mode == 1`.*pass grid="):
        kernel.adjoint(Duplicated, Duplicated, Duplicated)
    with pytest.raises(UnsupportedError, match="add atomically"):  # no number decides here
        text = f"if (i < n) {{ float s = 0; {LOOP} if (w < 2) s += w * f[q]; else atomicAdd(f + q, w * s); }} g[i] = s; }}"
        gpuad.autodiff(gpuad.kernel(KERNEL % ("", "int mode", text), "k"), 1, 32, (*pairs(), N, 0))
