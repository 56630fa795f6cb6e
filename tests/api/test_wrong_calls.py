"""Wrong calls of the public interface: each ends in a GpuadError that names the argument, before anything is written; none is taken.

`CALLS` has a right call of each function: its arguments, and what kind of thing each of them is. Wrong calls are generated from it: for
each argument the values of `WRONG`, which are not of its kind; one argument too few, one too many, an unknown name, the order turned.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Active, BatchDuplicated, Duplicated, DuplicatedNoNeed, GpuadError, Tape, Texture, ops

SCALE = gpuad.kernel("""extern "C" __global__ void scale(const double* x, double* y, double a, int n) {
  int i = threadIdx.x;
  if (i < n) y[i] = a * x[i] * x[i];
}""", "scale")  # fmt: skip
SHARED = gpuad.kernel("""extern "C" __global__ void turn(double* x, int n) {
  extern __shared__ double s[];
  s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = s[n - 1 - threadIdx.x];
}""", "turn")  # fmt: skip
SYNCED = gpuad.kernel("""#include <cooperative_groups.h>
extern "C" __global__ void synced(double* x, double* y) {
  x[threadIdx.x] *= 2; cooperative_groups::this_grid().sync(); y[threadIdx.x] = x[3 - threadIdx.x];
}""", "synced")  # fmt: skip
LISTED = gpuad.kernel('extern "C" __global__ void listed(double** rows, double* y) { y[threadIdx.x] = rows[0][threadIdx.x]; }', "listed")
MODULE = gpuad.kernel('__constant__ double w[2]; extern "C" __global__ void module(double* x) { x[threadIdx.x] *= w[0]; }', "module")
SQUARES = gpuad.ElementwiseKernel("float64 x", "float64 y", "y = x * x", "squares")
TOTAL = gpuad.ReductionKernel("float64 x", "float64 y", "x * x", "a + b", "y = a", "0", "total")
TEXT = 'extern "C" __global__ void k(double* x, double* y) { x[threadIdx.x] = y[threadIdx.x]; }'


@gpuad.jit
def jitted(x: Any, y: Any, n: Any) -> None:
    if gpuad.jit.threadIdx.x < n:
        y[gpuad.jit.threadIdx.x] = x[gpuad.jit.threadIdx.x]


def _copied_reverse(dx: Any, dy: Any) -> None:
    dx += dy


@gpuad.rule(reads=("x",), overwrites=("y",), reverse=_copied_reverse)
def copied(x: Any, y: Any) -> None:
    y[...] = x


class Odd:
    """Nothing that anybody takes."""

    def __repr__(self) -> str:
        return "Odd " * 1000


# --- what is wrong -------------------------------------------------------------------------------------------------------------------

VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "text": lambda: "a",
    "bytes": lambda: b"a",
    "negative": lambda: -4,
    "one": lambda: 1,
    "five": lambda: 5,
    "huge": lambda: 2**70,
    "float": lambda: 1.5,
    "nan": lambda: float("nan"),
    "complex": lambda: 1j,
    "true": lambda: True,
    "list": lambda: [1.0, 2.0, 3.0, 4.0],
    "long list": lambda: [1.0] * 20_000,
    "texts": lambda: ["a", "b"],
    "empty": tuple,
    "dict": lambda: {"a": 1},
    "set": lambda: {1, 2},
    "odd": Odd,
    "class": lambda: Duplicated,
    "function": lambda: len,
    "integers": lambda: np.arange(4),
    "halves": lambda: np.zeros(4, np.float16),
    "objects": lambda: np.array([1, None, "a", Odd()], object),
    "masked": lambda: np.ma.masked_array(np.ones(4), [0, 1, 0, 0]),
    "matrix": lambda: np.ones((2, 2)).view(np.matrix),
    "swapped": lambda: np.ones(4, ">f8"),
    "view": lambda: memoryview(np.ones(4)),
    "shape": lambda: np.ones((3, 5, 7)),
    "kernel": lambda: SCALE,
}
_ARRAYS = {"integers", "halves", "objects", "masked", "matrix", "swapped", "view", "shape"}
_NUMBERS = {"negative", "one", "five", "huge", "float", "nan", "complex", "true"}
_OTHERS = {"text", "bytes", "texts", "dict", "set", "odd", "class", "function", "kernel", "long list", "empty"}
_ALL = set(VALUES)

WRONG: dict[str, set[str]] = {  # by what an argument is: the values that it is not
    "array": _ALL - {"shape"},  # a kernel knows no shapes
    "shape array": _ALL,
    "pair": _ALL,
    "shadow": _ALL - {"None", "shape", "integers", "halves", "swapped"},  # of which the type is looked at when it is used
    "primal": _ALL - {"shape", "integers", "halves", "swapped"},
    "number": _ALL - {"negative", "one", "five", "float", "nan", "true", "huge"},
    "whole": _ALL - {"negative", "one", "five", "true"},
    "extent": _ALL - {"one", "five"},
    "block": _ALL - {"one", "five"},
    "bytes": _ALL - {"one", "five", "huge"},
    "stream": _ALL - {"None"},
    "shift": _ALL - {"one", "five", "negative", "huge", "empty", "true", "integers"},
    "array of numbers": _ALL - {"integers", "halves", "shape", "swapped"},
    "new shape": _ALL - {"negative"},
    "args": _ALL,
    "optional args": _ALL - {"None"},
    "array of its type": _ALL - {"shape", "integers", "halves"},
    "flag": _ALL - {"true"},
    "name": _ALL - {"text"},
    "known name": _ALL,
    "texts": _ALL - {"empty", "texts"},
    "optional texts": _ALL - {"empty", "None"},
    "some shadow": _ALL - {"shape", "integers", "halves", "swapped", "matrix"} | {"masked"},
    "value": _ALL - _NUMBERS - {"list", "long list"},  # a vector by value
    "channels": _ALL - {"one"},
    "operand array": _ALL - _NUMBERS,
    "written": _ALL - {"None", "shape", "integers", "halves", "swapped"},
    "given to a rule": {"objects", "masked", "matrix", "view"},
    "seed": _ALL - _NUMBERS - {"list", "integers", "halves", "swapped"},
    "kernel": _ALL - {"kernel"},
    "tuple": _ALL,
    "mode": _ALL,
    "count": _ALL - {"one", "five"},
    "axis": _ALL - {"None", "empty", "one"},
    "dtype": _ALL - {"None"},
    "out": _ALL - {"None"},
    "operand": (_ALL & (_OTHERS | {"objects", "masked", "matrix", "swapped", "view", "shape", "list", "None"})) - {"shape"},
    "budget": _ALL - {"None", "five", "one", "huge"},
    "folder": _ALL - {"None", "text"},
    "choice": _ALL,
    "optional choice": _ALL - {"None"},
    "mapping": _ALL,
    "optional mapping": _ALL - {"None"},
    "callable": _ALL - {"function", "kernel", "class", "None"},
    "positive": _ALL - {"one", "five", "float"},
    "optional positive": _ALL - {"one", "five", "float", "None"},
    "annotation": _ALL - {"class"},
    "anything": set(),
}


@dataclass(frozen=True)
class Right:
    """A right call: how its arguments are made, and of which kind each is. `names`: how a message calls an argument, where not by its name.
    `free`: it takes any number of arguments, or any names."""

    call: Callable[..., Any]
    arguments: Callable[[], dict[str, Any]]
    kinds: dict[str, str]
    names: dict[str, str] = field(default_factory=dict)
    order: bool = True
    count: bool = True


_NAMES = {
    "values": "values?",
    "axis1": "axis",
    "axis2": "axis",
    "args": "arguments?|parameter|`x`",
    "name": "name|no kernel|no variable",
    "k": "k|kernel",
    "directions": "directions?",
}  # how messages call some arguments


def _xy() -> dict[str, Any]:
    return {"x": np.arange(4.0), "y": np.zeros(4)}


def _pairs() -> dict[str, Any]:
    return {"x": Duplicated(np.arange(4.0), np.zeros(4)), "y": Duplicated(np.zeros(4), np.ones(4))}


def _in_tape(call: Callable[..., Any]) -> Callable[..., Any]:
    def within(*args: Any, **keywords: Any) -> Any:
        with Tape():
            return call(*args, **keywords)

    return within


def _recorded() -> tuple[Tape, Duplicated]:
    X, Y, tape = Duplicated(np.arange(4.0), np.zeros(4)), Duplicated(np.zeros(4), np.zeros(4)), Tape()
    with tape:
        ops.exp(X, out=Y)
    return tape, Y


def _of_tape(method: str) -> Callable[..., Any]:
    """A method of a tape that has recorded a program; `seeds` are for its result."""

    def call(*args: Any, **keywords: Any) -> Any:
        tape, Y = _recorded()
        if method in ("reverse", "graph"):
            args = tuple({Y: 1.0} if isinstance(a, str) and a == "seeds" else a for a in args)
        return getattr(tape, method)(*args, **keywords)

    return call


def _launch(kernel: Any, **extra: str) -> dict[str, str]:
    return {"grid": "extent", "block": "block", "args": "args", **extra}


def _spread(call: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """A call whose tuple of arguments is given as arguments, so that each is wrong once."""

    def spread(**arguments: Any) -> Any:
        args = tuple(arguments.pop(name) for name in names)
        return call(args, **arguments)

    return spread


def _thunk(part: str) -> Callable[..., Any]:
    def call(x: Any, y: Any, a: Any, n: Any) -> Any:
        augmented, reverse = gpuad.autodiff_thunk(SCALE, x=Duplicated, y=Duplicated)
        if part == "augmented":
            return augmented(1, 4, (x, y, a, n))
        return reverse(1, 4, (x, y, a, n), augmented(1, 4, (np.arange(4.0), np.zeros(4), 2.0, 4)))

    return call


def _scale_args() -> dict[str, Any]:
    return {**_xy(), "a": 2.0, "n": 4}


def _scale_pairs() -> dict[str, Any]:
    return {**_pairs(), "a": 2.0, "n": 4}


_SCALE_KINDS = {"x": "array", "y": "array", "a": "number", "n": "whole"}
_OPTIONS = {"shared_mem": "bytes", "stream": "stream"}


def _whole_call(**more: Any) -> dict[str, Any]:
    return {"grid": 1, "block": 4, "args": tuple(_scale_args().values()), **more}


CALLS: dict[str, Right] = {
    # kernels
    "kernel": Right(
        gpuad.kernel, lambda: {"source": TEXT, "name": "k", "options": ("-DA=1",)}, {"source": "kernel", "name": "known name",
            "options": "texts"}
    ),
    "launch": Right(SCALE, lambda: _whole_call(shared_mem=0, stream=None), _launch(SCALE, **_OPTIONS)),
    "launch, arguments": Right(_spread(lambda args: SCALE(1, 4, args), "x", "y", "a", "n"), _scale_args, _SCALE_KINDS, count=False),
    "launch, brackets": Right(
        lambda x, y, a, n, **k: SCALE[1, 4](x, y, a, n, **k), lambda: {**_scale_args(), "shared_mem": 0, "stream": None},
        {**_SCALE_KINDS, **_OPTIONS}, count=False,
    ),
    "launch, on a tape": Right(_in_tape(SCALE), lambda: _whole_call(shared_mem=0, stream=None), _launch(SCALE, **_OPTIONS)),
    "launch, dynamic shared memory": Right(
        SHARED, lambda: {"grid": 1, "block": 4, "args": (np.arange(4.0), 4), "shared_mem": 32}, _launch(SHARED, shared_mem="bytes"),
    ),
    "launch, grid.sync()": Right(
        SYNCED, lambda: {"grid": 1, "block": 4, "args": tuple(_xy().values()), "shared_mem": 0}, _launch(SYNCED, shared_mem="bytes"),
    ),
    "launch, list": Right(
        LISTED, lambda: {"grid": 1, "block": 4, "args": ([np.ones(4)], np.zeros(4))}, _launch(LISTED),
    ),
    "launch, list's arguments": Right(
        _spread(lambda args: LISTED(1, 4, args), "rows", "y"), lambda: {"rows": [np.ones(4)], "y": np.zeros(4)},
        {"rows": "tuple", "y": "array"}, count=False,
    ),
    "adjoint": Right(
        lambda x, y, **k: SCALE.adjoint(x=x, y=y, **k), lambda: {"x": Duplicated, "y": Duplicated, "grid": 1, "block": 4,
        "args": tuple(_scale_args().values())},
        {"x": "annotation", "y": "annotation", "grid": "extent", "block": "block", "args": "optional args"}, order=False, count=False,
    ),
    "get_global": Right(MODULE.get_global, lambda: {"name": "w"}, {"name": "known name"}),
    "with_shadow": Right(
        MODULE.with_shadow, lambda: {"name": "w", "shadow": np.zeros(2)}, {"name": "known name", "shadow": "some shadow"}
    ),
    # derivatives
    "autodiff": Right(
        lambda grid, block, args, **k: gpuad.autodiff(SCALE, grid, block, args, **k),
        lambda: {"grid": 1, "block": 4, "args": tuple(_scale_pairs().values()), "mode": gpuad.Reverse, "allow_unused": False,
        "shared_mem": 0,
                 "stream": None},
        _launch(SCALE, mode="mode", allow_unused="flag", **_OPTIONS), count=False,
    ),
    "autodiff, kernel": Right(
        gpuad.autodiff, lambda: {"k": SCALE, "grid": 1, "block": 4, "args": tuple(_scale_pairs().values())}, {"k": "kernel"}, order=False,
    ),
    "autodiff, arguments": Right(
        _spread(lambda args: gpuad.autodiff(SCALE, 1, 4, args), "x", "y", "a", "n"), _scale_pairs, _SCALE_KINDS, count=False
    ),
    "autodiff, forward": Right(
        _spread(lambda args: gpuad.autodiff(SCALE, 1, 4, args, mode=gpuad.Forward), "x", "y", "a", "n"),
        lambda: {**_scale_pairs(), "x": Duplicated(np.arange(4.0), np.ones(4))}, _SCALE_KINDS, count=False,
    ),
    "autodiff, grid.sync()": Right(
        _spread(lambda args: gpuad.autodiff(SYNCED, 1, 4, args), "x", "y"), _pairs, {"x": "array", "y": "array"}, count=False
    ),
    "autodiff, elementwise": Right(
        lambda x, y: gpuad.autodiff(SQUARES, x, y), _pairs, {"x": "operand array", "y": "array"}, count=False, order=False,
    ),
    "autodiff, jit": Right(
        _spread(lambda args: gpuad.autodiff(jitted, 1, 4, args), "x", "y", "n"), lambda: {**_pairs(), "n": 4},
        {"x": "array of its type", "y": "array"}, {"x": "argument 1|x`|error: ", "y": "argument 2|y`|error: "}, count=False, order=False,
    ),
    "hvp": Right(
        lambda directions, **k: gpuad.hvp(SCALE, 1, 4, tuple(_scale_pairs().values()), directions, **k),
        lambda: {"directions": (Duplicated(np.ones(4)), Duplicated(np.zeros(4)), None, None), "allow_unused": False},
        {"directions": "tuple", "allow_unused": "flag"}, count=False,
    ),
    "hvp, arguments": Right(
        _spread(lambda args: gpuad.hvp(SCALE, 1, 4, args, (Duplicated(np.ones(4)), Duplicated(np.zeros(4)), None, None)), "x", "y",
            "a", "n"),
        _scale_pairs, _SCALE_KINDS, count=False,
    ),
    "autodiff_thunk": Right(
        gpuad.autodiff_thunk, lambda: {"k": SCALE, "x": Duplicated, "y": Duplicated, "not_overwritten": ("x",)},
        {"k": "kernel", "x": "annotation", "y": "annotation", "not_overwritten": "optional texts"}, {"k": "k|kernel",
        "not_overwritten": "not_overwritten|no parameter"}, order=False, count=False,
    ),
    "augmented": Right(_thunk("augmented"), _scale_args, _SCALE_KINDS, count=False),
    "reverse of a split": Right(_thunk("reverse"), _scale_pairs, _SCALE_KINDS, count=False),
    # annotations
    "Duplicated": Right(
        Duplicated, lambda: {"x": np.ones(4), "dx": np.zeros(4), "keep": False}, {"x": "primal", "dx": "shadow", "keep": "flag"}
    ),
    "DuplicatedNoNeed": Right(DuplicatedNoNeed, lambda: {"x": np.ones(4), "dx": np.zeros(4)}, {"x": "primal", "dx": "shadow"}, order=False),
    "BatchDuplicated": Right(
        BatchDuplicated, lambda: {"x": np.ones(4), "shadows": (np.zeros(4),)}, {"x": "primal", "shadows": "tuple"}
    ),
    "Active": Right(
        Active, lambda: {"value": 1.5, "shadow": np.zeros(())}, {"value": "value", "shadow": "some shadow"}
    ),
    "Active.many": Right(
        Active.many, lambda: {"values": (1.0, 2.0), "shadows": np.zeros(2)}, {"values": "tuple", "shadows": "shape array"}
    ),
    "Texture": Right(
        Texture,
        lambda: {"array": np.ones(4, np.float32), "filter": "point", "address": "clamp", "normalized": False, "channels": 1, "border": 0.0},
        {"array": "primal", "filter": "choice", "address": "choice", "normalized": "flag", "channels": "channels", "border": "number"},
    ),
    # families
    "ElementwiseKernel": Right(
        gpuad.ElementwiseKernel, lambda: {"in_params": "T x", "out_params": "T y", "operation": "y = x", "name": "k", "options": ()},
        {"in_params": "name", "out_params": "name", "operation": "name", "name": "name", "options": "texts"}, order=False,
    ),
    "elementwise": Right(
        SQUARES, lambda: {**_xy(), "size": None, "stream": None},
        {"x": "operand array", "y": "array", "size": "optional positive", "stream": "stream"}, count=False, order=False,
    ),
    "ReductionKernel": Right(
        gpuad.ReductionKernel,
        lambda: {"in_params": "T x", "out_params": "T y", "map_expr": "x", "reduce_expr": "a + b", "post_map_expr": "y = a",
        "identity": "0",
                 "name": "k", "options": ()},
        {"in_params": "name", "out_params": "name", "map_expr": "name", "reduce_expr": "name", "post_map_expr": "name", "name": "name",
         "options": "texts"}, order=False,
    ),
    "reduction": Right(
        TOTAL, lambda: {"x": np.ones(4), "axis": 0, "keepdims": False, "out": np.zeros(()), "stream": None},
        {"x": "operand array", "axis": "axis", "keepdims": "flag", "out": "out", "stream": "stream"}, {"out": "out|`y`",
        "x": "`x`|size|result"}, count=False, order=False,
    ),
    "jit kernel": Right(
        jitted, lambda: {"grid": 1, "block": 4, "args": (*_xy().values(), 4), "shared_mem": 0, "stream": None}, _launch(jitted, **_OPTIONS)
    ),
    "jit": Right(gpuad.jit, lambda: {"function": len}, {"function": "callable"}, count=False),
    # tapes
    "Tape": Right(
        Tape, lambda: {"restore": False, "check": None, "save": "needed", "budget": None, "offload": None, "store": None},
        {"restore": "flag", "check": "optional choice", "save": "choice", "budget": "budget", "offload": "folder",
        "store": "optional mapping"},
        order=False,
    ),
    "tape.reverse": Right(
        _of_tape("reverse"), lambda: {"seeds": "seeds", "allow_unused": False}, {"seeds": "optional mapping", "allow_unused": "flag"},
        order=False, count=False,
    ),
    "tape.reverse, seed": Right(
        lambda seed: (lambda tape, Y: tape.reverse({Y: seed}))(*_recorded()), lambda: {"seed": 1.0},
        {"seed": "seed"}, count=False,
    ),
    "tape.graph": Right(
        _of_tape("graph"), lambda: {"seeds": "seeds", "allow_unused": False}, {"seeds": "optional mapping", "allow_unused": "flag"},
        order=False, count=False,
    ),
    "tape.plan": Right(_of_tape("plan"), lambda: {"budget": None}, {"budget": "budget"}, count=False),
    "tape.held": Right(_of_tape("held"), lambda: {"budget": None}, {"budget": "budget"}, count=False),
    "tape.tradeoff": Right(_of_tape("tradeoff"), lambda: {"points": 4}, {"points": "count"}, count=False),
    "tape.overwrites": Right(
        lambda array: _announced(array), lambda: {"array": np.ones(4)},
        {"array": "primal"}, {"array": "arrays|overwrites"}, count=False,
    ),
    "rule": Right(
        lambda **k: gpuad.rule(**k)(copied.function), lambda: {"reads": ("x",), "overwrites": ("y",), "adds": (), "sets": (),
        "needs": {}, "pure": False},
        {"reads": "texts", "overwrites": "texts", "adds": "texts", "sets": "texts", "needs": "optional mapping", "reverse": "callable",
         "pure": "flag"},
        {"reads": "reads|parameter", "overwrites": "overwrites|parameter", "adds": "adds|parameter", "sets": "sets|parameter",
         "needs": "needs|parameter"}, order=False, count=False,
    ),
    "call of a rule": Right(_in_tape(copied), _xy, {"x": "given to a rule", "y": "written"}, order=False),
    # the rest
    "deterministic": Right(gpuad.deterministic, lambda: {"wanted": True}, {"wanted": "flag"}),
    "profile": Right(lambda interval: gpuad.profile(interval).__enter__().__class__, lambda: {"interval": 0.01},
    {"interval": "positive"}, count=False),
    "check_gradient": Right(
        gpuad.testing.check_gradient,
        lambda: {"f": SCALE, "args": tuple(_scale_args().values()), "grid": 1, "block": 4, "shared_mem": 0, "tolerance": None,
        "directions": 1,
                 "seed": 0, "race_check": False, "forward_check": True, "differences": True},
        {"f": "kernel", "args": "args", "grid": "extent", "block": "block", "shared_mem": "bytes", "tolerance": "optional positive",
         "directions": "count", "seed": "count", "race_check": "flag", "forward_check": "flag", "differences": "flag"}, order=False,
    ),
    "check_rule": Right(
        gpuad.testing.check_rule, lambda: {"rule": copied, "args": tuple(_xy().values()), "tolerance": None, "directions": 1, "seed": 0},
        {"rule": "mode", "args": "args", "tolerance": "optional positive", "directions": "count", "seed": "count"}, order=False,
    ),
    "assert_memory": Right(
        gpuad.testing.assert_memory, lambda: {"tape": _recorded()[0], "peak": None, "saved": None},
        {"tape": "mode", "peak": "budget", "saved": "budget"}, order=False,
    ),
    "failing_allocations": Right(
        lambda k: gpuad.testing.failing_allocations(k).__enter__().__class__, lambda: {"k": -1}, {"k": "whole"}, count=False
    ),
}  # fmt: skip


def _announced(array: Any) -> None:
    with Tape() as tape:
        tape.overwrites(array)


# --- operations, by the names of their parameters --------------------------------------------------------------------------------------

_SQUARE = lambda: np.array([[2.0, 1.0], [1.0, 3.0]])  # noqa: E731
_BY_NAME: dict[str, tuple[Callable[[], Any], str]] = {
    "x": (_SQUARE, "operand"), "y": (_SQUARE, "operand"), "a": (_SQUARE, "operand"), "b": (_SQUARE, "operand"), "c": (_SQUARE, "operand"),
    "out": (_SQUARE, "out"), "axis": (lambda: 0, "axis"), "axes": (lambda: (0, 1), "axis"), "keepdims": (lambda: False, "flag"),
    "dtype": (lambda: np.float64, "dtype"), "source": (_SQUARE, "operand"), "value": (lambda: 2.0, "operand"),
    "condition": (lambda: np.ones((2, 2), bool), "operand"), "low": (lambda: 0.0, "operand"), "high": (lambda: 9.0, "operand"),
    "arrays": (lambda: [_SQUARE(), _SQUARE()], "mode"), "shape": (lambda: (2, 2), "new shape"), "norm": (lambda: None, "optional choice"),
    "shift": (lambda: 1, "shift"), "indices": (lambda: np.array([0, 1]), "operand"), "values": (_SQUARE, "operand"),
    "ddof": (lambda: 0, "number"), "lower": (lambda: False, "flag"), "unit_diagonal": (lambda: False, "flag"), "trans": (lambda: 0, "mode"),
    "subscripts": (lambda: "ij->i", "mode"), "axis1": (lambda: 0, "axis"), "axis2": (lambda: 1, "axis"), "key": (lambda: np.array([0,
    1]), "operand"),
    "alpha": (lambda: 1.0, "operand"), "beta": (lambda: 1.0, "operand"), "ord": (lambda: 2, "optional choice"),
    "destination": (lambda: 1, "shift"), "n": (lambda: 2, "optional positive"), "s": (lambda: (2, 2), "optional choice"),
}  # fmt: skip


def _operation(name: str) -> Right:
    function = getattr(ops, name)
    special: dict[str, Any] = {
        "moveaxis": {"source": (lambda: 0, "axis")},
        "put": {"values": (lambda: np.ones(2), "operand")},
        "flip": {"x": (_SQUARE, "array of numbers")},
    }
    known = _BY_NAME | special.get(name, {})
    taken = [p for p in inspect.signature(function).parameters.values() if p.name in known]
    shown = [p.name for p in taken if p.default is p.empty]

    def arguments() -> dict[str, Any]:
        return {n: known[n][0]() for n in shown}

    kinds = {p.name: known[p.name][1] for p in taken}
    return Right(function, arguments, kinds, order=False, count=name != "einsum")


CALLS |= {f"ops.{name}": _operation(name) for name in ops.__all__ if name not in ("einsum", "imag")}


# --- wrong calls of them -----------------------------------------------------------------------------------------------------------------


def _wrong_values(call: str) -> Iterator[tuple[str, str]]:
    for argument, kind in CALLS[call].kinds.items():
        values = sorted(WRONG[kind])
        if call.startswith("ops."):  # each function some of them, in turns: all functions together have all
            values = [v for k, v in enumerate(values) if (k + sum(map(ord, call + argument))) % 5 == 0]
        yield from ((argument, value) for value in values)


def _called(right: Right, arguments: dict[str, Any]) -> None:
    """By position as far as the function takes it so."""
    function = right.call
    try:
        positional = [
            p.name for p in inspect.signature(function).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        free = any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(function).parameters.values())
    except ValueError:
        positional, free = [], True
    known = ["grid", "block", "args", "x", "y", "seeds", "directions", "budget", "points", "k"] if free else []
    first = [n for n in arguments if n in known] or [n for n, own in zip(arguments, positional, strict=False) if n == own]
    function(*(arguments[n] for n in first), **{n: v for n, v in arguments.items() if n not in first})


def _memory(x: Any) -> list[bytes]:
    """The bytes of all arrays in some arguments."""
    if isinstance(x, dict):
        return [b for v in x.values() for b in _memory(v)]
    if isinstance(x, tuple | list):
        return [b for v in x for b in _memory(v)] if len(x) < 100 else []
    if isinstance(x, Duplicated):
        return [*_memory(x.primal), *_memory(x._own_shadow)]
    return [x.tobytes()] if isinstance(x, np.ndarray) and x.dtype != object else []


def _refused(right: Right, arguments: dict[str, Any], name: str) -> str:
    before = _memory(arguments)
    with pytest.raises(GpuadError) as refused:
        _called(right, arguments)
    assert _memory(arguments) == before
    message = str(refused.value)
    assert re.search(rf"\b({name})\b|({name})", message), f"names no {name}: {message}"
    assert len(message) < 1500, message
    return message


@pytest.mark.parametrize("call", CALLS)
def test_the_right_call_is_taken(call: str) -> None:
    right = CALLS[call]
    _called(right, right.arguments())


@pytest.mark.parametrize("call", CALLS)
def test_wrong_values(call: str) -> None:
    right = CALLS[call]
    for argument, value in _wrong_values(call):
        arguments = right.arguments()
        arguments[argument] = VALUES[value]()
        try:
            _refused(right, arguments, right.names.get(argument, _NAMES.get(argument, argument)))
        except BaseException as error:
            error.add_note(f"{argument}: {value}")
            raise


@pytest.mark.parametrize("call", [call for call, right in CALLS.items() if right.count])
def test_a_wrong_number_of_arguments(call: str) -> None:
    """One too few is named, one too many is counted, an unknown one is named."""
    right = CALLS[call]
    parameters = inspect.signature(right.call).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD and p.name in right.kinds]
    for name in needed:
        _refused(right, {k: v for k, v in right.arguments().items() if k != name}, name)
    _refused(right, {**right.arguments(), "unheard_of": 1}, "unheard_of")
    if not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        with pytest.raises(GpuadError):
            right.call(*range(20))


@pytest.mark.parametrize("call", [call for call, right in CALLS.items() if right.order])
def test_a_wrong_order(call: str) -> None:
    """The first two arguments that cannot stand for each other change places."""
    right = CALLS[call]
    names = list(right.kinds)
    pairs = [
        (a, b)
        for a in names
        for b in names
        if a < b and {right.kinds[a], right.kinds[b]} not in _ALIKE and right.kinds[a] != right.kinds[b]
    ]
    for a, b in pairs[:3]:
        arguments = right.arguments()
        if a in arguments and b in arguments:
            arguments[a], arguments[b] = arguments[b], arguments[a]
            _refused(right, arguments, f"{right.names.get(a, _NAMES.get(a, a))}|{right.names.get(b, _NAMES.get(b, b))}")


_ALIKE: list[set[str]] = [
    {"number", "whole"},
    {"extent", "block"},
    {"shape array", "array"},
    {"primal", "shadow"},
    {"extent", "bytes"},
    {"block", "bytes"},
    {"flag", "stream"},
    {"known name", "kernel"},
    {"value", "some shadow"},
    {"bytes", "stream"},
]


def test_there_are_enough_of_them() -> None:
    assert sum(len(list(_wrong_values(call))) for call in CALLS) > 4000
