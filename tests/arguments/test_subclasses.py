"""An array of a class derived from NumPy's means more than its memory, which is all that a kernel and a gradient see: it is refused
wherever arrays are taken, with the name of the argument. Classes that mean no more are taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Active, BatchDuplicated, Const, Duplicated, GpuadError, Tape, Texture

SQUARE = gpuad.kernel('extern "C" __global__ void k(double* x, int n) { int i = threadIdx.x; if (i < n) x[i] = x[i] * x[i]; }', "k")
SCALED = gpuad.kernel('extern "C" __global__ void k(double* x, double a) { x[threadIdx.x] *= a; }', "k")
LISTED = gpuad.kernel('extern "C" __global__ void k(double** l) { l[0][threadIdx.x] *= 2; }', "k")
SAMPLED = gpuad.kernel(
    'extern "C" __global__ void k(cudaTextureObject_t t, float* y) { y[threadIdx.x] = tex1D<float>(t, threadIdx.x + 0.5f); }', "k"
)
TWICE = gpuad.ElementwiseKernel("T x", "T y", "y = 2 * x", "twice")
TOTAL = gpuad.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total")


@gpuad.jit
def jitted(x: Any, n: Any) -> Any:
    if gpuad.jit.threadIdx.x < n:
        x[gpuad.jit.threadIdx.x] = x[gpuad.jit.threadIdx.x] * x[gpuad.jit.threadIdx.x]


def _copied_reverse(dx: Any, dy: Any) -> None:
    dx += dy


@gpuad.rule(reads=("x",), overwrites=("y",), reverse=_copied_reverse)
def copied(x: Any, y: Any) -> None:
    y[...] = x


class Quantity(np.ndarray):  # type: ignore[type-arg]
    """An array with a unit, as astropy's."""

    unit = "m"

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        raise AssertionError("its own arithmetic")


MEANING_MORE: dict[str, Callable[[Any], Any]] = {
    "MaskedArray": lambda x: np.ma.masked_array(x, np.arange(x.size) == 1),
    "matrix": lambda x: x.reshape(2, 2).view(np.matrix),
    "Quantity": lambda x: x.view(Quantity),
}


def _tape(action: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """An action in the block of a tape that has met another pair."""

    def call(m: Any) -> Any:
        X = Duplicated(np.ones(4))
        with Tape() as tape:
            X *= 2.0
            action(m, X)
        tape.reverse({X: 1.0})

    return call


def _seed(m: Any) -> None:
    X = Duplicated(np.ones(4))
    with Tape() as tape:
        X *= 2.0
    tape.reverse({X: m})


def _announced(m: Any) -> None:
    with Tape() as tape:
        tape.overwrites(m)


PLACES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "launch": ("`double* x`", lambda m: SQUARE(1, 32, (m, 4))),
    "launch, const": ("`x`", lambda m: SQUARE[1, 32](Const(m), 4)),
    "launch, stopped": ("`x`", lambda m: SQUARE[1, 32](gpuad.stop_gradient(m), 4)),
    "autodiff": ("`double* x`", lambda m: gpuad.autodiff(SQUARE, 1, 32, (m, 4))),
    "Duplicated": ("`x`", lambda m: Duplicated(m)),
    "Duplicated, shadow": ("`dx`", lambda m: Duplicated(np.ones(m.shape), m)),
    "BatchDuplicated": ("`x`", lambda m: BatchDuplicated(m, (np.ones(4),))),
    "BatchDuplicated, shadow": ("`shadows", lambda m: BatchDuplicated(np.ones(4), (np.ones(4), m))),
    "Active, shadow": ("`shadow`", lambda m: gpuad.autodiff(SCALED, 1, 4, (Duplicated(np.ones(4)), Active(2.0, m.reshape(-1)[:1])))),
    "texture": ("`array`", lambda m: SAMPLED(1, 4, (Texture(m), np.zeros(4, np.float32)))),
    "list": ("`double* l_0`", lambda m: LISTED(1, 4, ([m, np.ones(4)],))),
    "jit": ("1", lambda m: jitted((1,), (4,), (m, 4))),
    "elementwise": ("`x`", lambda m: TWICE(m)),
    "elementwise, out": ("`y`", lambda m: TWICE(np.ones(m.shape), m)),
    "reduction": ("`x`", lambda m: TOTAL(m)),
    "operation": ("`x`", lambda m: gpuad.ops.exp(m)),
    "operation, out": ("`out`", lambda m: gpuad.ops.exp(np.ones(m.shape), out=m)),
    "operation, mean": ("`x`", lambda m: gpuad.ops.mean(m)),
    "operation, list": ("`arrays[1]`", lambda m: gpuad.ops.concatenate([np.ones(4), m])),
    "operation, fill": ("`x`", lambda m: gpuad.ops.fill(m, 2.0)),
    "operator": ("`y`", _tape(lambda m, X: X * m)),
    "assignment": ("`source`", _tape(lambda m, X: X.__setitem__(..., m))),
    "overwrites": ("`arrays[0]`", _announced),
    "rule": ("`x`", _tape(lambda m, X: copied(m, X))),
    "rule, written": ("`y`", _tape(lambda m, X: copied(X, m))),
    "seed": ("`seeds", _seed),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", MEANING_MORE)
def test_it_is_refused_by_name(kind: str, place: str) -> None:
    values = np.array([1.0, 2, 3, 4], np.float32 if place == "texture" else np.float64)
    array, (name, call) = MEANING_MORE[kind](values), PLACES[place]
    with pytest.raises(GpuadError) as refused:
        call(array)
    assert name in str(refused.value) and kind in str(refused.value), refused.value
    assert np.array_equal(values, [1, 2, 3, 4])


def test_a_class_of_the_mask_s_own_class_says_mask() -> None:
    class Mine(np.ma.MaskedArray):  # type: ignore[type-arg]
        pass

    with pytest.raises(GpuadError, match=r"Duplicated: `x` is a .*Mine, an array with a mask, .*x\.filled"):
        Duplicated(Mine(np.ones(3)))


def test_classes_that_mean_no_more_are_taken(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "x", np.float64, "w+", shape=4)
    mapped[:] = [1, 2, 3, 4]
    X = Duplicated(mapped, np.ones(4))
    gpuad.autodiff(SQUARE, 1, 32, (X, 4))
    assert np.array_equal(mapped, [1, 4, 9, 16]) and np.array_equal(X.shadow, [2, 4, 6, 8])
    record = np.array([(1.0,), (2.0,)], [("at", np.float64)]).view(np.recarray)
    gpuad.autodiff(SQUARE, 1, 32, (Duplicated(record, seed := np.ones(2).view(record.dtype)), 2))
    assert np.array_equal(record["at"], [1, 4]) and np.array_equal(seed["at"], [2, 4])


def test_a_constant_of_a_rule_is_its_own_affair() -> None:
    """An array that a rule lists nowhere goes to its functions as it is, mask and all."""

    @gpuad.rule(overwrites=("y",))
    def filled(y: Any, mask: Any) -> None:
        y[...] = mask.filled(7.0)

    y = np.zeros(3)
    with Tape():
        filled(y, np.ma.masked_array(np.ones(3), [False, True, False]))
    assert np.array_equal(y, [1, 7, 1])


class Series:
    """As pandas has them: shape, dtype and arithmetic, and no memory of its own."""

    shape, dtype, ndim, size = (3,), np.dtype(np.float64), 1, 3

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.ones(3)


NO_ARRAYS: dict[str, Callable[[], Any]] = {
    "memoryview": lambda: memoryview(np.ones(3)),
    "Series": Series,
    "list": lambda: [1.0, 2.0, 3.0],
    "long list": lambda: [1.0] * 100_000,
    "objects": lambda: np.array([1.0, None, "a"], object),
    "texts": lambda: np.array(["a", "b"]),
    "dates": lambda: np.array(["2026-01-01"], "M8[D]"),
    "pair": lambda: Duplicated(np.ones(3)),
    "number": lambda: np.float64(2),
}


@pytest.mark.parametrize("what", NO_ARRAYS)
def test_what_is_no_array_of_numbers_has_no_shadow(what: str) -> None:
    with pytest.raises(GpuadError) as refused:
        Duplicated(NO_ARRAYS[what]())
    assert "Duplicated" in str(refused.value) and len(str(refused.value)) < 300
    with pytest.raises(GpuadError) as refused:
        gpuad.autodiff(SQUARE, 1, 32, (Duplicated(np.ones(3), NO_ARRAYS[what]()), 3))
    assert "dx" in str(refused.value) or "shadow" in str(refused.value)
    assert len(str(refused.value)) < 400
