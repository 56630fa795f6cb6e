"""What the frontend of jit functions refuses: each construct with its exact message and its place. `^` marks the place."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from gpuad import CompileError, UnsupportedError, jit
from gpuad.frontend.python_jit import fence

COUNT = itertools.count()

# Bodies of a function of (x, y, n): two arrays of float64, of one axis and of two, and an int.
BODIES: dict[str, tuple[str, str]] = {
    "nested function": ("^def f():\n        pass", "nested functions are not supported; write a device function at the top of the file"),
    "class": ("^class C:\n        pass", "classes in a kernel are not supported"),
    "del": ("^del n", "del is not supported"),
    "with": ("^with x:\n        pass", "with is not supported in a kernel"),
    "raise": ("^raise ValueError", "exceptions are not supported in a kernel"),
    "try": ("^try:\n        pass\n    finally:\n        pass", "exceptions are not supported in a kernel"),
    "assert": ("^assert n", "assert is not supported in a kernel"),
    "import": ("^import math", "imports in a kernel are not supported; import at the top of the file"),
    "import from": ("^from math import pi", "imports in a kernel are not supported; import at the top of the file"),
    "annotated": ("^a: float = 0.0", "annotated assignments are not supported; the value decides the type"),
    "match": ("^match n:\n        case 1:\n            pass", "match is not supported; write if and elif"),
    "lambda": ("f = ^lambda a: a", fence.LAMBDA),
    "comprehension": ("a = ^[x[i] for i in range(3)]", "comprehensions are not supported; write a loop"),
    "list": ("a = ^[1, 2]", "lists are not supported"),
    "dictionary": ("a = ^{}", "dictionaries are not supported"),
    "walrus": ("x[0] = (^a := 1.0)", "assignments in expressions are not supported"),
    "slice": ("^x[1:3] = 0", "slices are not supported; index element by element"),
    "star": ("x[0] = max(^*y)", "* is not supported"),
    "two targets": ("^a = b = 1", fence.TARGETS),
    "chained comparison": ("if ^0 < n < 3:\n        x[0] = 1", fence.CHAINED),
    "loop over an array": ("for i in ^x:\n        pass", fence.LOOPS),
    "for else": ("for i in range(3):\n        pass\n    else:\n        ^x[0] = 1", fence.ORELSE),
    "while else": ("while n > 0:\n        n -= 1\n    else:\n        ^x[0] = 1", fence.ORELSE),
    "a row is stored": ("^y[0] = x[0]", fence.SLICED),
    "a row for a name": ("^a = y[0]", "a part of an array cannot be assigned to a name; index it where it is used"),
    "shared in a branch": ("if n > 1:\n        ^s = jit.shared_memory(np.float32, 32)", fence.SHARED_PLACE),
    "shared without a name": ("^jit.shared_memory(np.float32, 32)", fence.SHARED_PLACE),
    "shared memory passed on": ("s = jit.shared_memory(np.float64, 3)\n    x[0] = ^endless(s)", fence.SHARED_ARGUMENT),
    "shared dates": ("s = ^jit.shared_memory('M8[s]', 3)", "shared memory of datetime64[s] comes in a later release"),
    "shared half": ("s = ^jit.shared_memory(np.float16, 3)", fence.SHARED_HALF),
    "math.floor": ("x[0] = ^math.floor(x[0])", "math.floor gives an int in Python; write int(x), or cupy.floor(x)"),
    "power of integers": ("n = ^n ** n", fence.INT_POWER),
    "reciprocal of an integer": ("x[0] = ^np.reciprocal(n)", fence.INT_RECIPROCAL),
    "plain function": ("x[0] = ^plain(x[0])", "'plain' cannot be called in a kernel; decorate it with jit.rawkernel(device=True)"),
    "unknown function": ("x[0] = ^np.nextafter(x[0], x[0])", "the function nextafter of 2 arguments is not supported in a kernel"),
    "keywords": ("x[0] = np.sqrt(x[0], dtype=^np.float32)", "keyword arguments are not supported here"),
    "negative index": (
        "x[0] = ^x[-1]", "a negative index (-1) does not count from the end in a kernel; write a.shape[0] - 1",
    ),
    "cast to a date": ("x[0] = ^np.datetime64(x[0])", "numbers of type datetime64 in jit functions come in a later release"),
    "two bools": ("x[0] = ^(n > 1) + (n > 2)", "arithmetic of two bools is not supported; convert one with int(...)"),
    "recursion": ("x[0] = ^endless(x[0])", "recursion is not supported"),
    "matrix product": ("x[0] = ^x[0] @ x[1]", "this is not supported in a kernel (MatMult)"),
    "identity": ("if ^n is None:\n        x[0] = 1", "this is not supported in a kernel (Is)"),
    "identity of constants": ("if ^None is None:\n        x[0] = 1", "this is not supported in a kernel (Is)"),
    "membership": ("if ^n in (1, 2):\n        x[0] = 1", "this is not supported in a kernel (In)"),
    "rounding": ("x[0] = ^round(x[0])", "'round' cannot be called in a kernel; decorate it with jit.rawkernel(device=True)"),
    "array for a name in a branch": ("if n > 1:\n        ^a = x", "`a` = an array: only numbers can be assigned here"),
}  # fmt: skip

MISTAKES: dict[str, tuple[str, str]] = {
    "unknown name": ("x[0] = ^nowhere", "the name 'nowhere' has no value here"),
    "float for an integer": ("^n = x[0]", "`n` is int32 and cannot take a float64; convert it with int(...), or begin with a float"),
    "float added to an integer": ("a = 0\n    ^a += x[0]", "the target is int32 and cannot take a float64; begin with a float"),
    "too many indices": ("x[0] = ^x[0, 1]", "2 indices for an array of 1 axes"),
    "index of an element": ("x[0] = ^x[0][1]", "a number cannot be indexed by int 1"),
    "float index": ("x[0] = ^x[x[0]]", "an index is an integer, not a float64"),
    "sides of a condition": ("x[0] = ^x[0] if n > 1 else n", "the sides of this are float64 and int32; convert one"),
    "whole index": ("a = ^jit.threadIdx.w", "jit.threadIdx has no attribute 'w'"),
    "attribute of an array": ("a = ^x.T", "an array has no 'T' in a kernel; it has shape, strides, size, ndim and dtype"),
    "attribute of a number": ("a = ^n.real", "a number has no attribute 'real' in a kernel"),
    "grid of four": ("a = ^jit.grid(4)", "jit.grid takes 1, 2 or 3, as a constant"),
    "returned": ("^return n", "a kernel returns nothing; write into an array"),
    "unpacked": ("^a, b = jit.grid(3)", "3 values for 2 names"),
    "array as a number": ("x[0] = ^x + 1", "a number is needed here, not an array"),
    "range of floats": ("for i in ^range(x[0]):\n        pass", "range takes integers"),
    "step of 0": ("for i in ^range(0, n, 0):\n        pass", "range with a step of 0"),
    "shift of floats": ("x[0] = ^x[0] << 1", "this operator is not for float64"),
    "division of constants": ("x[0] = ^1 / 0", "ZeroDivisionError: division by zero"),
    "loop variable": (
        "a = 0.5\n    for ^a in range(3):\n        pass",
        "`a` is something else already; name the loop's variable differently",
    ),
    "atomic without an index": ("^jit.atomic_add(y, 0, x[0])", "jit.atomic_add needs an index for each axis"),
    "atomic of numbers": ("^jit.atomic_add(n, 0, x[0])", "jit.atomic_add takes an array, an index and a number"),
    "size of shared memory": ("s = ^jit.shared_memory(np.float32, n)", "jit.shared_memory takes a dtype and a size, a constant or None"),
    "indices of shared memory": ("s = jit.shared_memory(np.float64, 3)\n    x[0] = ^s[0, 1]", "2 indices for an array of 1 axes"),
    "barrier's arguments": ("^jit.syncthreads(1)", "jit.syncthreads takes no arguments"),
    "barrier as a number": ("x[0] = ^jit.syncthreads() + 1.0", "a number is needed here, not nothing"),
    "mask": ("x[0] = ^jit.shfl_down_sync(n, x[0], 1)", "jit.shfl_down_sync takes a mask, a constant of 32 bits, a number and a lane"),
    "lane": ("x[0] = ^jit.shfl_sync(0xff, x[0], x[0])", "a lane is an integer, not a float64"),
    "small number": ("a = ^jit.shfl_sync(0xff, n > 1, 0)", "jit.shfl_sync moves numbers of 32 or 64 bits, not bool"),
    "keyword": ("i = jit.grid(1, width=^1)", "jit.grid takes no keyword 'width'"),
    "nothing returned": ("x[0] = ^silent(n)", "this function returns nothing"),
    "two types returned": ("x[0] = either(x[0])", "this returns a int64, another return of the function a float64"),
}


def plain(a: float) -> float:
    return a


@jit(device=True)
def endless(a):
    return endless(a)


@jit(device=True)
def silent(a):
    a += 1


@jit(device=True)
def either(a):
    if a > 1:
        return a
    return int(a)


def kernel(body: str, tmp_path: Path) -> tuple[Any, Path, int, int]:
    """A kernel with this body in a file of its own, and the place that is marked."""
    text = f"@jit\ndef k(x, y, n):\n    # é, of two bytes\n    {body}\n"
    before = text.partition("^")[0]
    file = tmp_path / f"k{next(COUNT)}.py"
    file.write_text(text.replace("^", "", 1) if "^" in text else text, encoding="utf-8")
    names: dict[str, Any] = {
        "jit": jit, "np": np, "math": math, "plain": plain, "endless": endless, "silent": silent, "either": either,
    }  # fmt: skip
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)
    return names["k"], file, before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1


@pytest.mark.parametrize("name", BODIES)
def test_construct(name: str, tmp_path: Path) -> None:
    body, message = BODIES[name]
    made, file, line, column = kernel(body, tmp_path)
    with pytest.raises(UnsupportedError) as caught:
        made(1, 1, (np.ones(3), np.ones((3, 3)), 2))
    assert caught.value.message == message
    if name != "recursion":
        assert (caught.value.file, caught.value.line, caught.value.column) == (str(file), line, column)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name: str, tmp_path: Path) -> None:
    body, message = MISTAKES[name]
    made, file, line, column = kernel(body, tmp_path)
    with pytest.raises(CompileError) as caught:
        made(1, 1, (np.ones(3), np.ones((3, 3)), 2))
    assert caught.value.message == message
    if name != "two types returned":
        assert (caught.value.file, caught.value.line, caught.value.column) == (str(file), line, column)


@pytest.mark.parametrize("head", ["*args", "a=1", "**keywords", "*, a", "a, /"])
def test_parameters(head: str, tmp_path: Path) -> None:
    file = tmp_path / "k.py"
    file.write_text(f"@jit\ndef k({head}):\n    pass\n")
    names: dict[str, Any] = {"jit": jit}
    exec(compile(file.read_text(), str(file), "exec"), names)
    with pytest.raises(UnsupportedError) as caught:
        names["k"](1, 1, (1,))
    assert (caught.value.message, caught.value.line) == (fence.PARAMETERS, 2)


def test_dtypes() -> None:
    with pytest.raises(UnsupportedError, match="arrays of bfloat16 in jit functions come in a later release"):
        jit(plain)(1, 1, (np.zeros(3, bfloat16),))


def test_a_function_without_source() -> None:
    names: dict[str, Any] = {}
    exec("def k(x):\n    pass\n", names)
    with pytest.raises(UnsupportedError, match="`k`: its Python source cannot be read"):
        jit(names["k"])(1, 1, (1,))
    with pytest.raises(UnsupportedError, match="lambdas are not supported"):
        jit(lambda x: None)(1, 1, (1,))
    with pytest.raises(UnsupportedError, match="`len` is no Python function"):
        jit(len)(1, 1, (1,))
