"""`import gpuad.numpy as np`: every public name of NumPy is the same object, a function that records, one with a plain result, or refused
in words; none ends in anything else. Outside of tapes all is NumPy."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import types
import warnings
from typing import Any

import numpy
import pytest
from nightly import share

import gpuad.numpy as np
from gpuad import Active, Duplicated, GpuadError, Tape
from gpuad.ops.plain_results import bare

ROOMS = {"": numpy, "linalg": numpy.linalg, "fft": numpy.fft}
SIDE_EFFECTS = {  # of a call: on files, on the terminal, on NumPy's state
    "fromfile", "genfromtxt", "get_include", "getbufsize", "info", "load", "loadtxt", "save", "savetxt", "savez", "savez_compressed",
    "set_printoptions", "setbufsize", "seterr", "seterrcall", "show_config", "show_runtime", "test",
}  # fmt: skip
NAMES = [
    (room, name)
    for room, library in ROOMS.items()
    for name in sorted({*getattr(library, "__all__", ()), *dir(library)})
    if not name.startswith("_") and hasattr(library, name)
]


def space(room: str) -> Any:
    return getattr(np, room) if room else np


def pair(*shape: int) -> Duplicated:
    values = numpy.random.default_rng(0).uniform(0.2, 1.0, shape)
    return Duplicated(values + (3 * numpy.eye(3) if shape == (3, 3) else 0))


FORMS = {
    "x": lambda x: (x,), "x, x": lambda x: (x, x), "[x, x]": lambda x: ([x, x],), "x, 2": lambda x: (x, 2), "2, x": lambda x: (2, x),
    "(3, 3), x": lambda x: ((3, 3), x), "x, x, x": lambda x: (x, x, x), "x, 0, x": lambda x: (x, 0, x), "x, [0, 1]": lambda x: (x, [0, 1]),
    "x, [0, 1], x": lambda x: (x, [0, 1], x), "mask, x": lambda x: (x.primal > 0.5, x), "v": lambda x: (x[0, 0],),
    "mask, x, x": lambda x: (x.primal > 0.5, x, x), "v, v": lambda x: (x[0], x[1]), "x, v, v": lambda x: (x, x[0], x[1]),
    "number": lambda x: (Active(0.5, numpy.zeros(())),), "number, x": lambda x: (Active(0.5, numpy.zeros(())), x),
}  # fmt: skip


def outcome(function: Any, theirs: Any, form: str, tape: bool) -> str:
    """What a call comes to: 'recorded', 'plain', 'refused', or '' where it is no call of that function with plain arrays either."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs(*bare(FORMS[form](pair(3, 3))))
        except Exception:  # NumPy's own affair
            return ""
        try:
            with Tape() if tape else contextlib.nullcontext():
                found = function(*FORMS[form](pair(3, 3)))
        except GpuadError:
            return "refused"
    parts = found if isinstance(found, tuple | list) else (found,)
    assert not any(isinstance(p, numpy.ndarray) and p.dtype == object for p in parts)
    return "recorded" if any(isinstance(p, Duplicated) for p in parts) else "plain"


@pytest.mark.parametrize(("room", "name"), share(NAMES, 10))
def test_a_public_name(room: str, name: str) -> None:
    theirs, ours = getattr(ROOMS[room], name), getattr(space(room), name)
    if isinstance(theirs, types.ModuleType):
        assert ours is theirs or ours.__name__ == f"gpuad.numpy.{name}"
        return
    if isinstance(theirs, type) or not callable(theirs):
        assert ours is theirs or ours == theirs or (isinstance(theirs, type) and name == "ndarray")
        return
    if name in SIDE_EFFECTS:
        return
    for form in FORMS:
        for tape in (True, False):
            outcome(ours, theirs, form, tape)


# of all of them, those that came to a gradient in one of the forms above
RECORDED = [
    "abs", "absolute", "add", "append", "arccos", "arcsin", "arctan", "arctan2", "around", "array", "array_split", "asarray",
    "average", "broadcast_arrays", "cbrt", "ceil", "column_stack", "concatenate", "copy", "copysign", "cos", "cosh", "cross",
    "cumprod", "cumsum", "deg2rad", "diag", "diagonal", "diff", "divide", "dot", "dstack", "exp", "expm1", "fabs", "floor", "fmax",
    "fmin", "full", "hstack", "hypot", "inner", "interp", "kron", "log", "log1p", "logaddexp", "matmul", "maximum", "mean", "median",
    "meshgrid", "minimum", "multiply", "negative", "outer", "pad", "power", "prod", "ptp", "ravel", "reciprocal", "repeat",
    "rint", "roll", "rot90", "round", "sign", "sin", "sinc", "sort", "sqrt", "square", "stack", "std", "subtract", "sum",
    "take", "tan", "tanh", "tensordot", "tile", "trace", "transpose", "trapezoid", "tril", "triu", "var", "vdot", "vstack", "where",
    "zeros_like",
]  # fmt: skip
PLAIN = [
    "all", "any", "argmax", "argmin", "argsort", "isfinite", "isnan", "logical_and", "ndim", "nonzero", "searchsorted", "shape",
    "signbit", "size",
]  # fmt: skip


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", RECORDED)
def test_what_is_recorded(name: str) -> None:
    assert "recorded" in {outcome(getattr(np, name), getattr(numpy, name), form, True) for form in FORMS}


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_plain(name: str) -> None:
    assert {outcome(getattr(np, name), getattr(numpy, name), form, True) for form in FORMS} <= {"plain", "refused", ""}
    assert outcome(getattr(np, name), getattr(numpy, name), "x", True) == "plain" or name in ("logical_and", "searchsorted")


def test_most_are_the_same_objects() -> None:
    kept = [name for room, name in NAMES if not room and getattr(np, name) is getattr(numpy, name)]
    assert len(kept) > 0.75 * sum(1 for room, _ in NAMES if not room)
    for name in ("exp", "sum", "where", "pi", "newaxis", "einsum", "concatenate", "float16", "int64", "bool_", "errstate"):
        assert name in kept
    assert np.linalg.solve is numpy.linalg.solve and np.fft.fft is numpy.fft.fft and np.random is numpy.random


def test_what_there_is_not_is_refused_with_what_is_near() -> None:
    with pytest.raises(AttributeError, match=r"gpuad\.numpy.*near it are.*zeros_like"):
        _ = np.zeros_lik
    with pytest.raises(GpuadError, match=r"linalg.*solve"):
        _ = np.linalg.sovle
    with Tape(), pytest.raises(GpuadError, match="near it"):
        np.linalg.eigvals(pair(3, 3))


def test_makers_outside_of_a_tape_are_numpy() -> None:
    calls: list[Any] = [
        lambda xp: xp.zeros((2, 3)), lambda xp: xp.zeros(4, int), lambda xp: xp.ones((2, 3), order="F"), lambda xp: xp.empty(0),
        lambda xp: xp.full((2, 2), 7), lambda xp: xp.full(2, 1.5, dtype="f4"), lambda xp: xp.zeros_like(numpy.ones((2, 2), "f4")),
        lambda xp: xp.full_like([1, 2], 3),
        lambda xp: xp.array([[1, 2], [3, 4]], ndmin=3), lambda xp: xp.asarray([1.0]), lambda xp: xp.ones_like([1, 2], shape=(3,)),
        lambda xp: xp.float32(2.5), lambda xp: xp.float64(),
        lambda xp: xp.copy([1, 2]), lambda xp: xp.ascontiguousarray(numpy.arange(6.0).reshape(2, 3).T), lambda xp: xp.complex128(1j),
        lambda xp: xp.array("text"), lambda xp: xp.asfortranarray(numpy.ones((2, 2))), lambda xp: xp.empty_like(numpy.ones((2, 3)).T) * 0,
    ]  # fmt: skip
    for call in calls:
        one, two = call(np), call(numpy)
        assert type(one) is type(two) and one.dtype == two.dtype and one.shape == two.shape
        numpy.testing.assert_array_equal(one, two)
        assert getattr(one, "strides", 0) == getattr(two, "strides", 0)
    x = numpy.ones(3)
    assert np.asarray(x) is x and np.array(x) is not x and isinstance(x, np.ndarray) and not isinstance([1.0], np.ndarray)


def test_makers_inside_of_a_tape_are_pairs() -> None:
    x, plain = pair(3, 4), numpy.ones((3, 4))
    with Tape():
        for made, shape in (
            (np.zeros((2, 3)), (2, 3)), (np.empty(4), (4,)), (np.ones_like(x), (3, 4)), (np.full(3, 2.0), (3,)),
            (np.zeros(3, complex), (3,)),
            (np.zeros_like(plain), (3, 4)), (np.empty((2, 3), order="F"), (2, 3)), (np.array(plain), (3, 4)),
            (np.full((4, 2), x[0, :2]), (4, 2)), (np.full((3, 2), [x[0, 0], 1.0]), (3, 2)),
            (np.full_like(x, x[1]), (3, 4)), (np.array([[x[0, 0], 1.0], [2.0, x[1, 1]]]), (2, 2)),
            (np.array(x, ndmin=3), (1, 3, 4)), (np.asarray([x[0], x[1]]), (2, 4)), (np.float64(x[0, 0]), ()), (np.float32(x), (3, 4)),
        ):  # fmt: skip
            assert isinstance(made, Duplicated) and made.shape == shape and isinstance(made, np.ndarray)
        for plain in (
            np.zeros(3, int),
            np.zeros(2, bool),
            np.array([1.0, 2.0]),
            np.zeros(3, object),
            np.arange(3.0),
            np.full(3, 1),
            np.eye(2),
        ):
            assert isinstance(plain, numpy.ndarray)
        assert np.asarray(x) is x and np.ascontiguousarray(x) is x and np.ascontiguousarray(x.T).flags.c_contiguous
        assert np.asfortranarray(x).flags.f_contiguous and np.asarray(x, np.float32).dtype == np.float32
        assert np.empty((2, 3), order="F").flags.f_contiguous and np.zeros_like(x.T).flags.f_contiguous
        assert not np.zeros((2, 3)).primal.any() and np.ones(3).primal.all()


def test_types_of_numbers_are_numpys() -> None:
    kinds: dict[Any, str] = {np.float32: "f", np.float64: "d"}
    assert kinds[numpy.dtype("f8").type] == "d" and np.dtype(np.float32) == numpy.float32 and numpy.zeros(2, np.float32).dtype == np.float32
    assert isinstance(numpy.float64(1), np.float64) and issubclass(numpy.float32, np.float32) and np.issubdtype(numpy.float64, np.float64)
    assert np.finfo(np.float32).eps == numpy.finfo("f4").eps and np.float64(2) == 2 and type(np.float64(2)) is numpy.float64
    assert np.float64 == numpy.float64 and np.float64 != np.float32 and not isinstance(1.0, np.complex128)


def test_a_fill_of_pairs_keeps_their_gradients() -> None:
    x, tape = pair(3, 4), Tape()
    with tape:
        y = np.full((5, 2), [x[0, 0], 1.0]) * np.full((5, 2), x[1, :2])
    tape.reverse({y: 1.0})
    numpy.testing.assert_allclose(x.shadow[0, 0], 5 * x.primal[1, 0])
    numpy.testing.assert_allclose(x.shadow[1, :2], [5 * x.primal[0, 0], 5])


def test_a_room_is_imported_before_anybody_has_looked_at_it() -> None:
    """In a process of its own: here others have."""
    text = (
        "from gpuad.numpy.fft import rfft\nimport gpuad.numpy.linalg as la, numpy, sys\n"
        "assert rfft is numpy.fft.rfft and la.solve is numpy.linalg.solve and sys.modules['gpuad.numpy.fft'].fft is numpy.fft.fft\n"
        "assert numpy.fft.__spec__.name == 'numpy.fft'\ntry:\n    import gpuad.numpy.nothing\n"
        "except ModuleNotFoundError:\n    print('right')"
    )
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "right\n"
