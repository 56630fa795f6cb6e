"""What makes arrays: inside of a tape pairs, for arrays of real or complex numbers; outside of one the library's own functions.

In: what the library's function takes. Out: inside of a tape a temporary, whose shadow is made when a gradient comes, and whose memory is
that of the last round. Arrays of whole numbers, truths and objects are plain. `array` of plain numbers is plain, too, as a constant;
of an array it is a new one, into which the program may write what carries a gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import numpy as np

from ..arguments.annotations import Active, Duplicated
from ..arguments.arrays import is_array
from ..arguments.operators import operation
from ..arguments.recorder import current
from ..errors import ArgumentTypeError
from ..ir.dtypes import is_half
from ..ops.elementwise import as_pair
from ..ops.plain_results import bare, library_behind
from ..ops.temporaries import new_array, temporary
from ..ops.trace_cache import by_arguments

PAIRS = (Duplicated, Active)


def holds_pair(x: Any) -> bool:
    """True if it carries a gradient, or something in a list or tuple does."""
    return isinstance(x, PAIRS) or (type(x) in (list, tuple) and any(map(holds_pair, x)))


def carries(dtype: Any) -> bool:
    """True if numbers of a type may have a gradient."""
    return bool(dtype.kind in "fc" and dtype.isnative and (dtype.itemsize <= 8 or (dtype.kind == "c" and dtype.itemsize <= 16)))


def _new(original: Callable[..., Any], library: Any, shape: Any, dtype: Any, order: Any, value: Any) -> Any:
    """A new pair, filled with a value, or (None) with anything."""
    sizes = tuple(int(n) for n in shape) if np.ndim(shape) else (int(shape),)
    if is_half(dtype):
        return Duplicated(original())
    turned = order == "F" and len(sizes) > 1
    made = temporary(new_array(library.empty(0, dtype), sizes[::-1] if turned else sizes, dtype, active=True))
    if value is not None and made.size:
        operation("copyto")(made, value)
    return made.T if turned else made


def makers(library: Any) -> dict[str, Callable[..., Any]]:
    """The makers of a library by name."""
    found = {name: _filled(library, name, value) for name, value in (("zeros", 0.0), ("ones", 1.0), ("empty", None))}
    found |= {f"{name}_like": _like(library, f"{name}_like", value) for name, value in (("zeros", 0.0), ("ones", 1.0), ("empty", None))}
    found |= {"full": _full(library), "full_like": _full_like(library), "array": _array(library), "copy": _copy(library)}
    found |= {
        name: _as_array(library, name) for name in ("asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "asarray_chkfinite")
    }
    found["astype"] = _astype(library)
    return {name: _quick(getattr(library, name), maker) for name, maker in found.items() if hasattr(library, name)}


_PLAIN_KINDS = {
    bool,
    int,
    float,
    complex,
    str,
    type(None),
    type,
    list,
    tuple,
    np.ndarray,
    *(type(np.dtype(code)) for code in "?bhilqBHILQefdgFDG"),
}


def is_plain(args: Iterable[Any]) -> bool:
    """True if all of these are of kinds that carry no gradient, by a look at their types."""
    return all(type(x) in _PLAIN_KINDS for x in args)


def _quick(original: Callable[..., Any], maker: Callable[..., Any]) -> Callable[..., Any]:
    """A maker that outside of tapes is the library's function after a look at its arguments: a list with pairs that function refuses."""
    kinds, recording, known = _PLAIN_KINDS, current.get, by_arguments(maker)

    @wraps(original)
    def make(*args: Any, **keywords: Any) -> Any:
        if recording() is None:
            for x in args:
                if type(x) not in kinds:
                    break
            else:
                if not keywords or is_plain(keywords.values()):
                    return original(*args, **keywords)
        return known(*args, **keywords)

    return make


def _filled(library: Any, name: str, value: Any) -> Callable[..., Any]:
    original = getattr(library, name)

    @wraps(original)
    def make(shape: Any, dtype: Any = float, order: Any = "C", **keywords: Any) -> Any:
        if current.get() is None or keywords or not carries(np.dtype(dtype)):
            return original(shape, dtype, order, **keywords) if order != "C" or keywords else original(shape, dtype)
        return _new(lambda: original(shape, dtype), library, shape, np.dtype(dtype), order, value)

    return make


def _like(library: Any, name: str, value: Any) -> Callable[..., Any]:
    original = getattr(library, name, None)
    if original is None:
        return lambda: None

    @wraps(original)
    def make(a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, **keywords: Any) -> Any:
        array = bare(a)
        if (
            current.get() is None
            or keywords
            or not (hasattr(array, "dtype") or dtype is not None)
            or not carries(np.dtype(dtype or array.dtype))
        ):
            given = {"order": order} if order != "K" else {}
            given |= {} if shape is None else {"shape": shape}
            return original(array, dtype, **given, **keywords) if dtype is not None else original(array, **given, **keywords)
        upright = order == "F" or (order in "AK" and getattr(array, "flags", None) is not None and _is_upright(array))
        sizes = np.shape(array) if shape is None else shape
        return _new(lambda: original(array, dtype), library, sizes, np.dtype(dtype or array.dtype), "F" if upright else "C", value)

    return make


def _is_upright(array: Any) -> bool:
    return bool(array.flags.f_contiguous and not array.flags.c_contiguous)


def _full(library: Any) -> Callable[..., Any]:
    original = library.full if hasattr(library, "full") else None

    def make(shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C", **keywords: Any) -> Any:
        active = holds_pair(fill_value)
        value = fill_value if isinstance(fill_value, PAIRS) else _stacked(library, fill_value) if active else bare(fill_value)
        kind = np.dtype(dtype) if dtype is not None else np.result_type(_kind(value))
        if current.get() is None and active:
            operation("copy")(value)  # says that it is not recorded
        if current.get() is None or keywords or not carries(kind):
            return original(shape, bare(fill_value), dtype, **({} if order == "C" else {"order": order}), **keywords)  # type: ignore[misc]
        value = value if isinstance(value, PAIRS) or np.ndim(value) == 0 else library.asarray(value)
        return _new(lambda: original(shape, bare(fill_value), dtype), library, shape, kind, order, value)  # type: ignore[misc]

    return wraps(original)(make) if original is not None else make


def _kind(value: Any) -> Any:
    """The type of an array, or of a number."""
    return bare(value).dtype if hasattr(bare(value), "dtype") else np.asarray(bare(value)).dtype


def _full_like(library: Any) -> Callable[..., Any]:
    original = getattr(library, "full_like", None)
    full = _full(library)

    def make(a: Any, fill_value: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, **keywords: Any) -> Any:
        array = bare(a)
        if current.get() is None and not holds_pair(fill_value):
            return original(array, fill_value, dtype, order, **({} if shape is None else {"shape": shape}), **keywords)  # type: ignore[misc]
        upright = order == "F" or (order in "AK" and _is_upright(array))
        return full(np.shape(array) if shape is None else shape, fill_value, dtype or array.dtype, "F" if upright else "C", **keywords)

    return wraps(original)(make) if original is not None else make


def _stacked(library: Any, x: Any) -> Any:
    """Nested lists, with pairs in them, as one array."""
    if type(x) not in (list, tuple):
        return as_pair(x) if isinstance(x, PAIRS) else library.asarray(x)
    return operation("stack")([_stacked(library, part) for part in x]) if len(x) else library.zeros(0)


def _array(library: Any) -> Callable[..., Any]:
    original = library.array

    @wraps(original)
    def make(object: Any, dtype: Any = None, *args: Any, copy: Any = True, order: Any = "K", ndmin: int = 0, **keywords: Any) -> Any:
        active = holds_pair(object)
        plain_array = current.get() is not None and is_array(object) and copy is True and carries(np.dtype(dtype or object.dtype))
        if not active and not plain_array:
            given = {
                k: v for k, v, usual in (("copy", copy, True), ("order", order, "K"), ("ndmin", ndmin, 0)) if v is not usual and v != usual
            }
            return original(object, *args, **given, **keywords) if dtype is None else original(object, dtype, *args, **given, **keywords)
        if args or any(value for key, value in keywords.items() if key not in ("subok", "blocking")):
            raise ArgumentTypeError(f"array of a pair takes dtype, copy, order and ndmin, not {', '.join(keywords) or 'more'}")
        if plain_array:
            found = _new(lambda: object.copy(), library, object.shape, np.dtype(dtype or object.dtype), _layout(order, object), object)
        else:
            whole = object if isinstance(object, Duplicated) else _stacked(library, object)
            found = operation("astype")(whole, dtype or whole.dtype, order, copy=bool(copy) and whole is object)
        missing = ndmin - found.ndim
        return found if missing <= 0 else found[(None,) * missing]

    return make


def _layout(order: str, array: Any) -> str:
    return "F" if order == "F" or (order in "AK" and _is_upright(array)) else "C"


def _copy(library: Any) -> Callable[..., Any]:
    original, array = library.copy, _array(library)

    @wraps(original)
    def make(a: Any, order: Any = "K", subok: bool = False) -> Any:
        if current.get() is None or not (isinstance(a, PAIRS) or is_array(a)):
            return original(a, order)
        return array(a, order=order)

    return make


def _as_array(library: Any, name: str) -> Callable[..., Any]:
    original = getattr(library, name, None)
    fixed = {"ascontiguousarray": "C", "asfortranarray": "F"}.get(name)

    def make(a: Any, dtype: Any = None, *args: Any, **keywords: Any) -> Any:
        if not holds_pair(a):
            return original(a, dtype, *args, **keywords) if dtype is not None or args else original(a, **keywords)  # type: ignore[misc]
        found = a if isinstance(a, Duplicated) else _stacked(library, a)
        order = fixed or keywords.pop("order", args[0] if args else "K") or "K"
        if keywords.pop("copy", None):
            return operation("astype")(found, dtype or found.dtype, order)
        if fixed and found.ndim == 0:
            found = found.reshape(1)
        if found.dtype == np.dtype(dtype or found.dtype) and order in "AK":
            return found
        return operation("astype")(found, dtype or found.dtype, order, copy=False)

    return wraps(original)(make) if original is not None else make


def _astype(library: Any) -> Callable[..., Any]:
    original = getattr(library, "astype", None)

    def make(x: Any, dtype: Any, /, *, copy: bool = True, **keywords: Any) -> Any:
        return operation("astype")(x, dtype, copy=copy) if holds_pair(x) else original(x, dtype, copy=copy, **keywords)  # type: ignore[misc]

    return wraps(original)(make) if original is not None else make


_NUMBERS = frozenset((bool, int, float, complex, str, np.ndarray))


class _Kinds(type):
    """The class of a type of numbers that takes pairs: for everything else it is the library's own."""

    _own: type

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        if len(args) == 1 and type(args[0]) not in _NUMBERS and holds_pair(args[0]):
            whole = args[0] if isinstance(args[0], Duplicated) else _stacked(library_behind([args[0]]), args[0])
            return operation("astype")(whole, cls._own, copy=False)
        return cls._own(*args, **keywords)

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, cls._own)

    def __subclasscheck__(cls, other: Any) -> bool:
        return other is cls or issubclass(other, cls._own)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls._own

    def __hash__(cls) -> int:
        return hash(cls._own)


class _Arrays(_Kinds):
    """The class of arrays, to which pairs count."""

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        return cls._own(*args, **keywords)

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, (cls._own, Duplicated))


_PLAIN_KINDS |= {_Kinds, _Arrays}


def number_type(kind: type) -> type:
    """A type of real or complex numbers, of pairs too: `np.float64(pair)` is a pair."""
    return _Kinds(kind.__name__, (kind,), {"_own": kind, "__module__": kind.__module__, "__doc__": kind.__doc__})


def array_type(kind: type) -> type:
    """The class of arrays: `isinstance(pair, np.ndarray)` holds."""
    try:
        return _Arrays(kind.__name__, (kind,), {"_own": kind, "__module__": kind.__module__, "__doc__": kind.__doc__})
    except TypeError:  # a class that may not be derived from
        return kind
