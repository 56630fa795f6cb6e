"""Wrong calls of `gpuad.ops`: each names the operation, says what is wrong with what, and nothing has been written then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpuad import Duplicated, Tape, ops
from gpuad.errors import GpuadError, ShadowError

AXIS = "axis 5 is out of bounds for an array with 2 axes"
WHOLE = "an axis is a whole number, not 1.5"
ARRAYS = "takes arrays, not float; make one of it before"
ALONG = ["cumsum", "sort", "fft", "ifft", "rfft", "irfft"]
OVER = ["sum", "mean", "max", "min", "prod", "var", "norm"]

WRONG: dict[str, str] = {
    **{f"ops.{name}(M, axis=5)": f"{name}: {AXIS}" for name in (*ALONG, *OVER)},
    **{f"ops.{name}(M, axis=-3)": f"{name}: axis -3 is out of bounds" for name in ALONG},
    **{f"ops.{name}(M, axis=1.5)": f"{name}: {WHOLE}" for name in (*ALONG, *OVER)},
    **{
        f"ops.{name}(3.0)": f"{name} {ARRAYS}"
        for name in (*ALONG, *OVER, "fftn", "roll_", "copy", "ravel", "reshape_", "transpose", "flip")
    },
    **{f"ops.{name}(M, axis=(0, 0))": f"{name}: an axis occurs twice in (0, 0)" for name in OVER},
    **{f"ops.{name}(M, axes=(0, 5))": f"{name}: {AXIS}" for name in ("fft2", "ifftn", "fftn")},
    "ops.sort(S)": "sort: axis -1 is out of bounds for an array with 0 axes",
    "ops.fft2(M, 3)": "fft2: s is a tuple of lengths, one for each axis, not 3",
    "ops.roll(M, 1.5)": "roll: a shift is a whole number of elements, not 1.5",
    "ops.roll(M, 'a')": "roll: a shift is a whole number of elements, not 'a'",
    "ops.roll(M, 1, 5)": f"roll: {AXIS}",
    "ops.roll(M, (1, 2, 3), (0, 1))": "roll: 3 shifts for 2 axes",
    "ops.gemm(M[0, 0], M, N, 0.0, Q)": "gemm: alpha is a number or an Active, not Duplicated; multiply by an array before",
    "ops.gemm(1.0, M, N, None, Q)": "gemm: beta is a number or an Active, not NoneType",
    "ops.gemm('a', M, N, 0.0, Q)": "gemm: alpha is a number or an Active, not str",
    "ops.gemm(1.0, V, N, 0.0, Q)": "gemm takes matrices, not arrays of shapes (4,), (4, 3) and (3, 3)",
    "ops.gemm(1.0, M, M, 0.0, Q)": "gemm: matrices of shapes (3, 4) and (3, 4) do not fit",
    "ops.gemm(1.0, M, N, 0.0, 3.0)": f"gemm {ARRAYS}",
    "ops.matmul(M, 3.0)": f"matmul {ARRAYS}",
    "M @ [1.0]": "unsupported operand type(s) for @",
    "ops.matmul(np.ones((2, 3, 4)), np.ones((5, 4, 2)))": "matmul: stacks of matrices of shapes (2, 3, 4) and (5, 4, 2) do not fit",
    "ops.solve_triangular(Q, None)": "solve_triangular takes arrays, not NoneType",
    "ops.solve_triangular(Q, V[:3], trans=[1])": "solve_triangular: trans is 0, 1, 2",
    "ops.einsum(M, [0, 1])": "einsum: the subscripts come first, as text like 'ij,jk->ik', not Duplicated",
    "ops.einsum('ij,jk', M, 3.0)": f"einsum {ARRAYS}",
    "ops.concatenate([])": "concatenate needs at least one array",
    "ops.concatenate(M)": "concatenate takes a list of arrays, not Duplicated: write [x, y]",
    "ops.concatenate([M, 3.0])": f"concatenate {ARRAYS}",
    "ops.concatenate([M, M], 5)": f"concatenate: {AXIS}",
    "ops.stack([M, V])": "stack: arrays of shapes (3, 4), (4,); they have to have one shape",
    "ops.stack([])": "stack needs at least one array",
    "ops.expand_dims(M, 9)": "expand_dims: axis 9 is out of bounds for an array with 3 axes",
    "ops.swapaxes(M, 0, 5)": f"swapaxes: {AXIS}",
    "ops.take(M, [0], 5)": f"take: {AXIS}",
    "ops.take(M, [0.5])": "take: indices are whole numbers, not float64",
    "ops.take(M, 'a')": "take: indices are whole numbers, not <U1",
    "ops.take(3.0, [0])": f"take {ARRAYS}",
    "ops.put(M, [0, 99], 1.0)": "put: an index is out of bounds for an array of 12 elements",
    "ops.put(M, [0, 1, 2], V[:2])": "values of shape (2,) do not fit (3,) places",
    "ops.scatter_add(3.0, [0], 1.0)": f"scatter_add {ARRAYS}",
    "ops.add(M, V[:3])": "add: arrays of shapes (3, 4), (3,) cannot be broadcast to one shape",
    "ops.axpy(2.0, M, None)": "axpy takes arrays, not NoneType",
    "ops.fill(3.0, 1.0)": f"fill {ARRAYS}",
    "ops.astype(M, int, casting='safe')": "astype: cannot cast from float64 to int64 by the rule 'safe'",
    "ops.exp(W)": "as those of a sliding window, has no adjoint: take the elements by an index array",
    "ops.sum(W)": "as those of a sliding window, has no adjoint: take the elements by an index array",
    "ops.exp(M, out=np.lib.stride_tricks.sliding_window_view(np.zeros(6), 4, writeable=True))": "exp: elements of the output share memory",
}


@pytest.mark.parametrize("call", WRONG)
def test_wrong_call(call: str) -> None:
    arrays = {
        "M": np.arange(12.0).reshape(3, 4), "V": np.arange(4.0), "Q": np.eye(3), "S": np.array(2.0), "N": np.ones((4, 3)),
    }  # fmt: skip
    given: dict[str, Any] = {name: Duplicated(array) if name != "N" else array for name, array in arrays.items()}
    given["W"] = Duplicated(np.lib.stride_tricks.sliding_window_view(np.arange(6.0), 3))
    before = {name: array.copy() for name, array in arrays.items()}
    words, call = WRONG[call], call.replace("roll_(3.0)", "roll(3.0, 1)").replace("reshape_(3.0)", "reshape(3.0, -1)")
    with pytest.raises((TypeError, ValueError, IndexError, GpuadError)) as caught, Tape():
        eval(call, {**given, "ops": ops, "np": np})
    assert words.replace("roll_", "roll").replace("reshape_", "reshape") in str(caught.value)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize(
    ("shift", "axis"), [(1, None), ((1, 2), None), ((1, 2), (0, 1)), (1, (0, 1)), ((1, -2), 1), (np.int64(3), np.int64(-1)), (5, (0, 0))]
)
def test_roll_along_several_axes(shift: Any, axis: Any) -> None:
    x, seed = np.arange(12.0).reshape(3, 4), np.arange(12.0).reshape(3, 4) ** 2
    X = Duplicated(x)
    tape = Tape()
    if axis is None and isinstance(shift, tuple):
        shift, axis = sum(shift), None
    with tape:
        y = ops.roll(X, shift, axis)
    np.testing.assert_array_equal(y.primal, np.roll(x, shift, axis))
    tape.reverse({y: seed})
    back = tuple(-s for s in shift) if isinstance(shift, tuple) else -shift
    np.testing.assert_array_equal(X.shadow, np.roll(seed, back, axis))


def test_concatenate_in_flat_order() -> None:
    X, Y = Duplicated(np.ones((2, 3))), Duplicated(np.ones(2))
    tape = Tape()
    with tape:
        z = ops.concatenate([X, Y], axis=None)
    tape.reverse({z: np.arange(8.0)})
    np.testing.assert_array_equal(X.shadow, np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(Y.shadow, [6, 7])


def test_a_temporary_of_an_earlier_recording() -> None:
    X, tape = Duplicated(np.ones(4)), Tape()
    with tape:
        y = X * 2.0
    tape.reverse({y: np.ones(4)})
    with pytest.raises(ShadowError, match=r"`a` is a temporary of an earlier recording.*go on with Duplicated"), tape:
        y * X
