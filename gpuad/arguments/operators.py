"""Operators and methods of pairs: those of `gpuad.ops`, which a tape records.

That room lies above this one and provides them when it is imported (`deferred_import`). Comparisons give plain arrays of bool, which carry
no gradient.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..deferred_import import import_registered
from ..errors import ArgumentTypeError
from .arrays import is_array, on_its_memory


class Compared:
    """Equality of what is annotated, as the other comparisons have it: that two objects are not the same is no answer."""

    __slots__ = ()

    @property
    def primal(self) -> Any:
        """What is annotated."""
        raise NotImplementedError

    def __eq__(self, other: object) -> Any:
        """Of arrays a plain array of bool. False beside what is no operand."""
        return self.primal == getattr(other, "primal", other) if is_operand(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        """The opposite, for each element."""
        return self.primal != getattr(other, "primal", other) if is_operand(other) else NotImplemented

    __hash__ = object.__hash__  # which object it is: a pair is the key of its seed


_operations: dict[str, Callable[..., Any]] = {}


def provide(operations: Mapping[str, Callable[..., Any]]) -> None:
    """Gives pairs their array operations, by NumPy's names."""
    _operations.update(operations)


def operation(name: str) -> Callable[..., Any]:
    if name not in _operations:
        import_registered()
    if name not in _operations:
        raise ArgumentTypeError(f"gpuad.ops has no operation {name!r}; use `.primal` for the raw array, or a kernel or a rule of your own")
    return _operations[name]


def _operator(name: str) -> Any:
    """`pair <op> other`."""
    return lambda self, other: operation(name)(self, other) if is_operand(other) else NotImplemented


def _reflected(name: str) -> Any:
    """`other <op> pair`."""
    return lambda self, other: operation(name)(other, self) if is_operand(other) else NotImplemented


def _in_place(name: str) -> Any:
    """`pair <op>= other`."""
    return lambda self, other: operation(name)(self, other, out=self) if is_operand(other) else NotImplemented


def _replaced(name: str) -> Any:
    """`pair <op>= other` of an operation that does not work in place."""
    return lambda self, other: operation("copyto")(self, operation(name)(self, other)) or self


def _comparison(name: str) -> Any:
    """`pair < other`: a plain array of bool, which carries no gradient."""
    return lambda self, other: getattr(operator, name)(self.primal, getattr(other, "primal", other))


def is_operand(x: Any) -> bool:
    return isinstance(x, Compared | bool | int | float | complex | np.generic) or is_array(on_its_memory(x))


def _recorded(name: str) -> Any:
    """`pair.method(...)`."""

    def method(self: Any, *args: Any, **keywords: Any) -> Any:
        return operation(name)(self, *args, **keywords)

    method.__name__ = name
    method.__doc__ = f"As `gpuad.ops.{name}(x, ...)`; inside of a tape."
    return method


class Operators:
    """Arithmetic on pairs. In a tape each is recorded; outside of one they raise TapeError. Comparisons give plain arrays of bool."""

    __slots__ = ()

    __add__, __radd__, __iadd__ = _operator("add"), _reflected("add"), _in_place("add")
    __sub__, __rsub__, __isub__ = _operator("subtract"), _reflected("subtract"), _in_place("subtract")
    __mul__, __rmul__, __imul__ = _operator("multiply"), _reflected("multiply"), _in_place("multiply")
    __truediv__, __rtruediv__, __itruediv__ = _operator("divide"), _reflected("divide"), _in_place("divide")
    __pow__, __rpow__, __ipow__ = _operator("power"), _reflected("power"), _in_place("power")
    __mod__, __rmod__, __imod__ = _operator("remainder"), _reflected("remainder"), _in_place("remainder")
    __matmul__, __rmatmul__ = _operator("matmul"), _reflected("matmul")
    __imatmul__ = _replaced("matmul")
    __neg__, __pos__, __abs__ = _recorded("negative"), _recorded("positive"), _recorded("absolute")
    __lt__, __le__, __gt__, __ge__ = _comparison("lt"), _comparison("le"), _comparison("gt"), _comparison("ge")

    fill, copy, astype, sum, mean = _recorded("fill"), _recorded("copy"), _recorded("astype"), _recorded("sum"), _recorded("mean")
    take, put, cumsum = _recorded("take"), _recorded("put"), _recorded("cumsum")
    max, min, prod, var, std = _recorded("max"), _recorded("min"), _recorded("prod"), _recorded("var"), _recorded("std")
    dot, conj, conjugate, clip = _recorded("dot"), _recorded("conjugate"), _recorded("conjugate"), _recorded("clip")
    swapaxes, squeeze = _recorded("swapaxes"), _recorded("squeeze")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **keywords: Any) -> Any:
        """`np.exp(x)`, `numpy_array * x`: NumPy asks here before it computes."""
        return _forwarded(ufunc.__name__, method, inputs, out[0] if isinstance(out, tuple) else out, keywords)

    def __cupy_override_elementwise_kernel__(self, kernel: Any, *inputs: Any, out: Any = None, **keywords: Any) -> Any:
        """How CuPy asks who computes, for its ufuncs and the user's own kernels."""
        if hasattr(kernel, "operation"):
            return operation("elementwise kernel")(kernel, *inputs, *(() if out is None else (out,)), **keywords)
        return _forwarded(kernel.name.removeprefix("cupy_"), "__call__", inputs, out, keywords)

    def __array_function__(self, function: Any, types: Any, args: Any, keywords: Any) -> Any:
        """`np.where(mask, x, y)`, `np.sum(x)`."""
        return operation(function.__name__)(*args, **keywords)


def _forwarded(name: str, method: str, inputs: Sequence[Any], out: Any, keywords: Mapping[str, Any]) -> Any:
    if method == "at" and name == "add":
        return operation("scatter_add")(*inputs)
    if method != "__call__":
        raise ArgumentTypeError(f"{name}.{method} of a Duplicated is not recorded; gpuad.ops has sum, prod, max, cumsum and scatter_add")
    compare = {"less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne"}.get(name)
    if compare and out is None and not keywords:
        return getattr(operator, compare)(*(getattr(x, "primal", x) for x in inputs))
    return operation(name)(*inputs, **({} if out is None else {"out": out}), **keywords)
