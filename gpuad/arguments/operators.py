"""Operators and methods of pairs: those of `gpuad.ops`, which a tape records.

That room lies above this one and provides them when it is imported (`deferred_import`). Comparisons give plain arrays of bool, which carry
no gradient.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..deferred_import import import_registered
from ..errors import ArgumentTypeError, alike
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


class _Operations(dict[str, Callable[..., Any]]):
    """Array operations by NumPy's names. ArgumentTypeError for a name of none, which names those that are near."""

    def __missing__(self, name: str) -> Callable[..., Any]:
        found = offered(name)
        if found is None:
            close = alike(name, self)
            near = f" (near it: {', '.join(close)})" if close else ""
            raise ArgumentTypeError(
                f"gpuad.ops has no operation {name!r}{near}; use `.primal` for the raw array, or a kernel or a rule of your own"
            )
        return found


_operations = _Operations()
_USUAL = frozenset((bool, int, float, complex))
_OPERANDS = (Compared, bool, int, float, complex, np.generic)


def provide(operations: Mapping[str, Callable[..., Any]]) -> None:
    """Gives pairs their array operations, by NumPy's names."""
    _operations.update(operations)
    _known_by.clear()


def operation(name: str) -> Callable[..., Any]:
    """The operation of a name, `linalg.solve` among them. ArgumentTypeError where there is none, which names those that are near."""
    return _operations[name]


def offered(name: str) -> Callable[..., Any] | None:
    """The operation of a name; None where there is none."""
    if name not in _operations:
        import_registered()
    return _operations.get(name)


def names() -> list[str]:
    """The names of all operations."""
    import_registered()
    return list(_operations)


def named(function: Any) -> str:
    """By which name the operation goes that stands for a function of an array library: `exp`, `linalg.solve`."""
    room = str(getattr(function, "__module__", None)).partition(".")[2].removeprefix("lib.").partition(".")[0]
    name = str(function.__name__)
    return f"{room}.{name}" if room in ("linalg", "fft", "random") else name


@lru_cache(4096)
def _called_so(function: Any, own: Callable[..., Any]) -> Mapping[str, str]:
    """By the library's names of arguments those of the operation, where they differ."""
    try:
        theirs, ours = list(inspect.signature(function).parameters), list(inspect.signature(own).parameters)
    except (TypeError, ValueError):
        return {}
    if "keywords" in ours:
        return {}
    return {name: ours[k] for k, name in enumerate(theirs[: len(ours)]) if name not in ours and ours[k] not in theirs}


def by_place(function: Any, own: Callable[..., Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of the library's function by the names that the operation has for what stands at the same place."""
    named_so = _called_so(function, own)
    return {named_so.get(name, name): value for name, value in keywords.items()}


def _operator(name: str) -> Any:
    """`pair <op> other`."""

    def compute(self: Any, other: Any) -> Any:
        return _operations[name](self, other) if is_operand(other) else NotImplemented

    return compute


def _reflected(name: str) -> Any:
    """`other <op> pair`."""

    def compute(self: Any, other: Any) -> Any:
        return _operations[name](other, self) if is_operand(other) else NotImplemented

    return compute


def _in_place(name: str) -> Any:
    """`pair <op>= other`."""

    def compute(self: Any, other: Any) -> Any:
        return _operations[name](self, other, out=self) if is_operand(other) else NotImplemented

    return compute


def _replaced(name: str) -> Any:
    """`pair <op>= other` of an operation that does not work in place."""
    return lambda self, other: operation("copyto")(self, operation(name)(self, other)) or self


def _comparison(name: str) -> Any:
    """`pair < other`: a plain array of bool, which carries no gradient."""
    compare = getattr(operator, name)
    return lambda self, other: compare(_values(self), _values(other))


def _values(x: Any) -> Any:
    """The part of an operand that is compared, of which the result has nothing."""
    return x._own_primal if hasattr(type(x), "_own_primal") else getattr(x, "primal", x)


def is_operand(x: Any) -> bool:
    """True if arithmetic takes it: arrays, numbers, sparse matrices."""
    if type(x) in _USUAL or isinstance(x, _OPERANDS):
        return True
    return is_array(on_its_memory(x)) or hasattr(x, "tocsr")


def _recorded(name: str) -> Any:
    """`pair.method(...)`."""

    def method(self: Any, *args: Any, **keywords: Any) -> Any:
        return operation(name)(self, *args, **keywords)

    method.__name__ = name
    method.__doc__ = f"As `gpuad.ops.{name}(x, ...)`; inside of a tape."
    return method


class Arithmetic:
    """Arithmetic on what carries a gradient. In a tape each is recorded; outside of one they raise TapeError. Comparisons give plain arrays
    of bool."""

    __slots__ = ()

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("subtract"), _reflected("subtract")
    __mul__, __rmul__ = _operator("multiply"), _reflected("multiply")
    __truediv__, __rtruediv__ = _operator("divide"), _reflected("divide")
    __pow__, __rpow__ = _operator("power"), _reflected("power")
    __mod__, __rmod__ = _operator("remainder"), _reflected("remainder")
    __matmul__, __rmatmul__ = _operator("matmul"), _reflected("matmul")
    __floordiv__, __rfloordiv__ = _operator("floor_divide"), _reflected("floor_divide")
    __divmod__, __rdivmod__ = _operator("divmod"), _reflected("divmod")
    __neg__, __pos__, __abs__ = _recorded("negative"), _recorded("positive"), _recorded("absolute")
    __lt__, __le__, __gt__, __ge__ = _comparison("lt"), _comparison("le"), _comparison("gt"), _comparison("ge")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **keywords: Any) -> Any:
        """`np.exp(x)`, `numpy_array * x`: NumPy asks here before it computes."""
        if method == "__call__" and out is None and not keywords and ufunc.__name__ not in _COMPARED:
            return _operations[ufunc.__name__](*inputs)
        return _forwarded(ufunc.__name__, method, inputs, out[0] if isinstance(out, tuple) else out, keywords)

    def __cupy_override_elementwise_kernel__(self, kernel: Any, *inputs: Any, out: Any = None, **keywords: Any) -> Any:
        """How CuPy asks who computes, for its ufuncs and the user's own kernels."""
        if hasattr(kernel, "operation"):
            return operation("elementwise kernel")(kernel, *inputs, *(() if out is None else (out,)), **keywords)
        return _forwarded(kernel.name.removeprefix("cupy_"), "__call__", inputs, out, keywords)

    def __array_function__(self, function: Any, types: Any, args: Any, keywords: Any) -> Any:
        """`np.where(mask, x, y)`, `np.sum(x)`."""
        own = _known_by.get(function)
        if own is None:
            own = _known_by[function] = operation(named(function))
        return own(*args, **by_place(function, own, keywords)) if keywords else own(*args)


class Operators(Arithmetic):
    """What arrays have besides: changes in place, and methods."""

    __slots__ = ()

    __iadd__, __isub__, __imul__ = _in_place("add"), _in_place("subtract"), _in_place("multiply")
    __itruediv__, __ipow__, __imod__ = _in_place("divide"), _in_place("power"), _in_place("remainder")
    __imatmul__, __ifloordiv__ = _replaced("matmul"), _replaced("floor_divide")

    fill, copy, astype, sum, mean = _recorded("fill"), _recorded("copy"), _recorded("astype"), _recorded("sum"), _recorded("mean")
    take, put, cumsum = _recorded("take"), _recorded("put"), _recorded("cumsum")
    max, min, prod, var, std = _recorded("max"), _recorded("min"), _recorded("prod"), _recorded("var"), _recorded("std")
    dot, conj, conjugate, clip = _recorded("dot"), _recorded("conjugate"), _recorded("conjugate"), _recorded("clip")
    swapaxes, squeeze = _recorded("swapaxes"), _recorded("squeeze")


_COMPARED = {"less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne"}
_known_by: dict[Any, Callable[..., Any]] = {}  # the operations, by the array library's functions
_METHODS_OF_UFUNCS = {
    ("add", "reduce"): "sum", ("multiply", "reduce"): "prod", ("maximum", "reduce"): "max", ("minimum", "reduce"): "min",
    ("logical_and", "reduce"): "all", ("logical_or", "reduce"): "any",
    ("add", "accumulate"): "cumsum", ("multiply", "accumulate"): "cumprod",
}  # fmt: skip


def _forwarded(name: str, method: str, inputs: Sequence[Any], out: Any, keywords: Mapping[str, Any]) -> Any:
    if method == "at" and name in ("add", "subtract"):
        x, key, values = inputs
        return operation("scatter_add")(x, key, values if name == "add" else operation("negative")(values))
    if method == "outer" and len(inputs) == 2:
        first, second = inputs
        over = (..., *[None] * int(getattr(second, "ndim", np.ndim(second))))
        method, inputs = "__call__", (first[over] if hasattr(first, "ndim") else first, second)
    if (name, method) in _METHODS_OF_UFUNCS:
        (x,) = inputs[:1]
        known = (
            dict(zip(("axis", "dtype"), inputs[1:], strict=False)) | {"axis": 0} | dict(keywords) | ({} if out is None else {"out": out})
        )
        return operation(_METHODS_OF_UFUNCS[name, method])(x, **{k: v for k, v in known.items() if k != "dtype" or v is not None})
    if method != "__call__":
        raise ArgumentTypeError(f"{name}.{method} of a Duplicated is not recorded; gpuad.ops has sum, prod, max, cumsum and scatter_add")
    compare = _COMPARED.get(name)
    if compare and out is None and not keywords:
        return getattr(operator, compare)(*map(_values, inputs))
    return operation(name)(*inputs, **({} if out is None else {"out": out}), **keywords)
