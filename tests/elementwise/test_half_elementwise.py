"""Elementwise and reduction kernels on arrays of float16 and bfloat16, with CuPy's own classes of these names: an operation is one of
floats, and what is stored is rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import running
from ml_dtypes import bfloat16

from gpuad import Active, Duplicated, ElementwiseKernel, ReductionKernel, Tape, UnsupportedError
from gpuad.testing import check_gradient

DTYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(bfloat16)}


def uniform(dtype: Any, *shape: int) -> Any:
    return np.random.default_rng(len(shape)).uniform(0.6, 1.4, shape).astype(dtype)


def elementwise(name: str) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Kernels with arguments. Named types and letters, raw arrays, numbers by value, variables of the class, its functions."""
    dtype = DTYPES[name]
    x, z, w = (Duplicated(uniform(dtype, 4, 5)) for _ in range(3))
    mixed = "own q = x; q += y; q *= 1.5; z = min(q, x) + (isnan(x) ? y : (float)x)"
    product = "z = x * s + w[0] * w[n - 1 - i]"
    return {
        "letters": (ElementwiseKernel("T x, T y", "T z", "z = x * y + sin(x) * 2", "letters"), (uniform(dtype, 5), x, z)),
        "mixed": (
            ElementwiseKernel(f"{name} x, float32 y", f"{name} z", mixed, "mixed", preamble=f"typedef {name} own;"),
            (x, Duplicated(uniform(np.float32, 4, 5)), z),
        ),
        "raw": (ElementwiseKernel("T x, T s, raw T w", "T z", product, "raw"), (x, Active(0.75, np.zeros((), np.float32)), w, z)),
    }


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("name", "executor"), [*((name, "reference") for name in DTYPES), ("bfloat16", "host")])
@pytest.mark.parametrize("kernel", ["letters", "mixed", "raw"])
def test_elementwise(kernel: str, name: str, executor: str) -> None:
    k, args = elementwise(name)[kernel]
    with running(executor):
        check_gradient(k, args)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize(
    ("map_expr", "reduce_expr", "post", "identity", "reduce_type"),
    [("x * x", "a + b", "y = sqrt(a)", "0", "float"), ("x * x", "a + b", "y = a", "0", None), ("x", "max(a, b)", "y = a * a", "-10", None)],
)
def test_reductions(name: str, map_expr: str, reduce_expr: str, post: str, identity: str, reduce_type: str | None) -> None:
    k = ReductionKernel("T x", "T y", map_expr, reduce_expr, post, identity, "reduction", reduce_type=reduce_type)
    with running("reference"):
        check_gradient(k, (Duplicated(uniform(DTYPES[name], 4, 5)), Duplicated(uniform(DTYPES[name], 4))), axis=1)


@pytest.mark.parametrize("executor", ["reference", "host"])
@pytest.mark.parametrize("name", DTYPES)
def test_rounded_once(name: str, executor: str) -> None:
    """A product and a sum of floats, rounded where they are stored: also into a variable of the class."""
    dtype = DTYPES[name]
    x, y = (np.random.default_rng(k).normal(size=1000).astype(dtype) for k in range(2))
    once, twice = np.empty(1000, dtype), np.empty(1000, dtype)
    k = ElementwiseKernel("T x, T y", "T once, T twice", "once = x * y + x; T q = x * y; twice = q + x", "rounded")
    with running(executor):
        k(x, y, once, twice)
    wide = x.astype(np.float32), y.astype(np.float32)
    assert np.array_equal(once, (wide[0] * wide[1] + wide[0]).astype(dtype))
    assert np.array_equal(twice, ((wide[0] * wide[1]).astype(dtype).astype(np.float32) + wide[0]).astype(dtype))


@pytest.mark.parametrize("name", DTYPES)
def test_outputs_that_a_tape_makes(name: str) -> None:
    """Their shadows are float32 too. z = (x * x) * x."""
    k, x = ElementwiseKernel("T x, T y", "T z", "z = x * y", "product"), Duplicated(np.array([0.5, 1, 2, 4], DTYPES[name]))
    tape = Tape()
    with running("reference"):
        with tape:
            z = k(k(x, x), x)
        tape.reverse({z: np.ones(4, DTYPES[name])})
    assert x.shadow.dtype == z.shadow.dtype == np.float32
    assert np.array_equal(x.shadow, [0.75, 3, 12, 48])


def test_bits_are_refused() -> None:
    """What CuPy's class offers beside numbers."""
    k = ElementwiseKernel("float16 x", "uint16 y", "y = __half_as_ushort(half(x))", "bits")
    with pytest.raises(UnsupportedError, match="__half_as_ushort is not supported") as caught:
        k(np.ones(3, np.float16), np.ones(3, np.uint16))
    assert (caught.value.file, caught.value.line, caught.value.column) == ("<operation of bits>", 1, 5)
