"""What a caller says about an argument: whether it carries a gradient, and where that gradient lives.

An annotation holds references and decides nothing: it pairs an array (or a number) with its shadow. Views of a pair are pairs of views,
so whatever a user slices from a `Duplicated` keeps primal and shadow at the same places. A pair never turns into a plain array on its own:
code that computed with it would be invisible to the reverse pass, so `.primal` is the only door to the raw array.
"""

from __future__ import annotations

import copy
import operator
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ..errors import (
    ArgumentIndexError,
    ArgumentTypeError,
    ArgumentValueError,
    GpuadError,
    ShadowError,
    TapeError,
    UnknownNameError,
    UnsupportedError,
)
from ..public_calls import flag, public, show
from ..runtime.array_locks import derived
from ..runtime.array_types import NdArray
from .arrays import address, as_array, is_array, leaf_memory, refuse_subclass, zeros_like
from .deferred_clearing import DeferredClearing, made
from .operators import Arithmetic, Compared, Operators, offered, operation
from .recorder import current

_MAKING = threading.RLock()  # threads that come to a pair at once get one shadow; that of a view is made of another's

_NO_NUMBERS = frozenset("OSUMm")  # kinds of dtypes: Python objects, texts, dates
_SHADOW_OF_NUMBER = "it needs an array of shape () or (1,), such as zeros(()): `dtheta[i]` is a copy, `dtheta[i, ...]` a view"
_SHADOW = "a shadow is an array like its primal, made with zeros_like(x): `dx[i]` is a copy, `dx[i, ...]` or `dx[i:i+1]` a view"
_FOREIGN_NAMES = {
    "grad": "the gradient is `.shadow`",
    "backward": "call `gpuad.autodiff(kernel, grid, block, args)`, or `tape.reverse({out: seed})`",
    "requires_grad": "an array carries a gradient because it is Duplicated",
    "zero_grad": "clear the gradient with `.shadow.fill(0)`",
    "detach": "the array without its gradient is `.primal`; to stop a gradient on purpose pass `gpuad.stop_gradient(x)`",
    "value": "the array is `.primal`",
    "derivative": "the gradient is `.shadow`",
} | dict.fromkeys(("item", "tolist", "tobytes", "get"), "what leaves the array has no gradient: say so by `.primal`")
_METHODS = frozenset(("all", "any", "argmax", "argmin", "argpartition", "argsort", "choose", "compress", "cumprod")) | frozenset(
    ("diagonal", "nonzero", "ptp", "repeat", "round", "searchsorted", "trace")
)


class _Annotated(Compared):
    """An array with something said about it: has an array's attributes, and no way to a raw array but `.primal`."""

    __slots__ = ("_primal",)

    def __init__(self, x: Any) -> None:
        if isinstance(x, _Annotated | Active | Const | Stopped):
            raise ShadowError(f"{type(self).__name__}({type(x).__name__}(...)): an array is annotated once; pass `.primal`")
        self._primal = array_of(type(self).__name__, "x", x, "a number by value takes Active(value, shadow)")

    @property
    def primal(self) -> Any:
        """The array itself."""
        return self._primal

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return tuple(self._primal.shape)

    @property
    def dtype(self) -> Any:
        """Data type of the array."""
        return self._primal.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self._primal.size)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return int(self._primal.ndim)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return int(self._primal.nbytes)

    def __repr__(self) -> str:
        array = self._primal
        return (
            f"{type(self).__name__}({type(array).__module__.partition('.')[0]} {getattr(array, 'dtype', '')} {getattr(array, 'shape', '')})"
        )

    def __getattr__(self, name: str) -> NoReturn:
        hint = _FOREIGN_NAMES.get(name, "the array and its methods are at `.primal`, its gradient at `.shadow`")
        raise UnknownNameError(f"{type(self).__name__} has no attribute {name!r}: {hint}")

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self._primal.itemsize)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        return tuple(self._primal.strides)

    @property
    def flags(self) -> Any:
        """How the array lies in memory."""
        return self._primal.flags

    def _closed(self, *_: Any, **__: Any) -> NoReturn:
        raise ArgumentTypeError(
            f"a {type(self).__name__} is no array: code that gpuad does not see would drop its gradient; use `.primal` for the raw array"
        )

    def __iter__(self) -> Iterator[Any]:
        self._closed()

    __array__ = __array_ufunc__ = __array_function__ = __dlpack__ = __dlpack_device__ = _closed
    __float__ = __int__ = __complex__ = __bool__ = __index__ = __len__ = __setitem__ = __contains__ = _closed


class Duplicated(Operators, _Annotated):
    """An array and its shadow, the array that holds (on entry) the adjoint of its state after a call and (on exit) of its state before.

    `x`: an array of floats, any shape. `dx`: an array of the same shape, dtype and strides (float32 for float16 and bfloat16); None makes a
    zero shadow when it is first needed. `keep`: where the kernel overwrites `x`, the seed in `dx` is read and not taken.
    Raises ShadowError when `x` is an annotation itself.
    """

    __slots__ = ("__weakref__", "_deferred", "_keep", "_make", "_of", "_shadow")

    @public
    def __init__(self, x: Any, dx: Any = None, *, keep: bool = False) -> None:
        super().__init__(x)
        self._shadow = None if dx is None else array_of(type(self).__name__, "dx", dx, _SHADOW)
        if keep is not False:
            flag("keep", keep)
        self._deferred = DeferredClearing() if dx is None else None
        self._make: Callable[[], Any] | None = None  # not a method of its own: a pair is freed with its last reference
        self._keep = keep
        self._of: Duplicated | None = None  # the pair that the caller made, of which this is a view

    @property
    def _own_primal(self) -> Any:
        """The array, for code that does not let the caller have it."""
        return self._primal

    @property
    def shadow(self) -> NdArray:
        """The shadow array; made (zeros, laid out like the primal) at the first use if none was given."""
        if self._deferred is not None:
            self._deferred.looked = True
        return self._passed_shadow

    @property
    def _passed_shadow(self) -> NdArray:
        """The shadow, for a call that the pair is passed to."""
        if self._deferred is not None:
            self._deferred.show()
        shadow: NdArray = self._own_shadow
        return shadow

    @property
    def _own_shadow(self) -> Any:
        """The shadow, for code that neither reads it nor lets the caller see it (`deferred_clearing`)."""
        if self._shadow is None:
            with _MAKING:
                if self._shadow is None:
                    self._shadow = self._make() if self._make is not None else self._made()
        return self._shadow

    def __copy__(self) -> Duplicated:
        """A pair of this array and its shadow, also if that has not been asked for yet."""
        return self._view(lambda array: array)

    def __deepcopy__(self, memo: Any) -> Any:
        """Inside of a tape a recorded copy, as `x.copy()`; outside of one a pair of copies."""
        if _recording():
            return operation("copy")(self)
        return _pair(self._plain, copy.deepcopy(self.primal, memo), copy.deepcopy(self.shadow, memo), self._keep)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """For `pickle`: the array and its shadow. TapeError inside of a tape."""
        _refuse_leaving(self)
        return _pair, (self._plain, self.primal, self.shadow, self._keep)

    @property
    def _plain(self) -> type[Duplicated]:
        """The class of a pair that is made of this one's arrays."""
        return type(self)

    def _made(self) -> Any:
        shadow = zeros_like(self._primal)
        if self._deferred is not None and self.size and isinstance(shadow, np.ndarray):  # elsewhere clearing would wait for a stream
            made(self._deferred, shadow, address(leaf_memory(shadow).root))
        return shadow

    @property
    def has_shadow(self) -> bool:
        """True if the shadow exists already."""
        return self._shadow is not None

    @property
    def _is_unseeded(self) -> bool:
        """True if the shadow was made here, the caller has not asked for it, and it holds zeros."""
        if self._deferred is None or self._deferred.looked:
            return False
        shadow = self._own_shadow
        return not bool((shadow if shadow.dtype.names is None else shadow.reshape(-1).view(np.uint8)).any())

    @property
    def keep(self) -> bool:
        """True if the seed is only read."""
        return self._keep

    def __getitem__(self, key: Any) -> Duplicated:
        """Basic slicing, and a field of structs by its name: the pair of views. Index arrays and masks: a recorded copy (inside of a tape),
        a pair of its own."""
        said = _said(key)
        if said is not None or _all_basic(key):
            return self._sliced(key, said)
        taken: Duplicated = operation("getitem")(self, key)
        return taken

    def __setitem__(self, key: Any, value: Any) -> None:  # type: ignore[override]  # closed for the others
        """A recorded copy into these elements. `x[1:4] += v` ends here with a view of the same memory, which is nothing to do. With index
        arrays no element may be named twice."""
        said = _said(key)
        if said is None and not _all_basic(key):
            operation("setitem")(self, key, value)
            return
        target = self._sliced(key, said)
        surplus = getattr(value, "ndim", 0) - target.ndim
        if surplus > 0 and value.shape[:surplus] == (1,) * surplus:  # an assignment drops leading axes of one element, as in NumPy
            value = value[(0,) * surplus]
        if not (isinstance(value, Duplicated) and _same_view(target, value)):
            operation("assign")(target, value)

    def __len__(self) -> int:  # type: ignore[override]  # closed for the others
        """The length of the first axis. TypeError where there is none."""
        if not self.ndim:
            raise ArgumentTypeError("len() of a pair of shape ()")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """The pairs of views `x[0]`, `x[1]`, ..."""
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:  # type: ignore[override]
        """Of one element: whether it is not 0, as a comparison has it, which carries no gradient."""
        if self.size != 1:
            raise ArgumentValueError("the truth value of a pair of several elements is ambiguous: compare, and use .any() or .all()")
        return bool(self.primal.any())

    def __int__(self) -> int:  # type: ignore[override]
        """Of one element the whole number towards 0, whose derivative is 0."""
        if self.size != 1 or self.dtype.kind == "c":
            raise ArgumentTypeError(f"int() takes a pair of one real element, not {self!r}")
        return int(self.primal.reshape(()))

    __trunc__ = __int__

    def __contains__(self, value: Any) -> bool:  # type: ignore[override]
        """True if an element is equal to a value."""
        return bool((self == value).any())

    def __getattr__(self, name: str) -> Any:
        """A method of arrays that is an operation, such as `x.argmax()`."""
        if name in _METHODS and (own := offered(name)) is not None:
            return partial(own, self)
        return super().__getattr__(name)

    def view(self, dtype: Any = None) -> Duplicated:
        """The pair of views; of a complex array also as real numbers (`x.view(float)`, for a kernel), and the other way round. ShadowError
        for another dtype: its bits would be no numbers that the gradient belongs to."""
        own, other = self.dtype, self.dtype if dtype is None else np.dtype(dtype)
        if own != other and (own.kind not in "fc" or other.kind not in "fc" or _of_numbers(own) != _of_numbers(other)):
            raise ShadowError(f"{self!r}.view({other}): the bits as other numbers have no gradient; take x.primal.view({other.name!r})")
        return self._view(lambda array: array if array.dtype == other else array.view(other))

    def ravel(self, order: str = "C") -> Duplicated:
        """The pair of flat views; where that needs a copy, inside of a tape a recorded one, outside ShadowError."""
        return self.reshape(-1, order=order)

    def flatten(self, order: str = "C") -> Duplicated:
        """A flat copy, as a temporary; inside of a tape."""
        flat: Duplicated = operation("copy")(self.T if _order(order, self) == "F" else self).reshape(-1)
        return flat

    @property
    def T(self) -> Duplicated:
        """The pair of transposed views."""
        return self._view(lambda array: array.T, "T")

    @property
    def mT(self) -> Duplicated:
        """The pair of views of transposed matrices."""
        return self._view(lambda array: array.swapaxes(-1, -2), "mT")

    def transpose(self, *axes: Any) -> Duplicated:
        """The pair of views with the axes in another order, reversed by default."""
        return self._view(lambda array: array.transpose(*axes))

    @property
    def real(self) -> Duplicated:
        """The pair of the real parts; the pair itself if it is real."""
        return self if self.dtype.kind != "c" else self._view(lambda array: array.real, "real")

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Any:
        """The pair of the imaginary parts; of a real array zeros, plain and read-only, as in NumPy."""
        if self.dtype.kind != "c":
            return self.primal.imag
        return self._view(lambda array: array.imag, "imag")

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag[...] = value

    def reshape(self, *shape: Any, order: str = "C") -> Duplicated:
        """The pair of reshaped views; where the shape needs a copy, inside of a tape of a recorded one, outside ShadowError."""
        if _order(order, self) == "F":
            wanted = shape[0] if len(shape) == 1 else shape
            sizes = (wanted,) if np.ndim(wanted) == 0 else tuple(wanted)
            return self.T.reshape(sizes[::-1]).T
        if _recording() and not _is_view(self._primal, shape):
            copied: Duplicated = operation("copy")(self)
            return copied._view(lambda array: _reshaped(array, shape))
        return self._view(lambda array: _reshaped(array, shape), _sizes(shape))

    def _sliced(self, key: Any, said: Hashable) -> Duplicated:
        """The pair of views of a basic key."""
        return self._view(_basic(key), said)

    def _view(self, take: Callable[[Any], Any], key: Hashable = None) -> Duplicated:
        """The pair of views; `key`: what says the same as `take`. A tape has one pair for the same view of the same pair."""
        tape = current.get() if key is not None else None
        if tape is None:
            return self._new_view(take)
        view: Duplicated = tape.view_of(self, key, lambda: self._new_view(take))
        return view

    def _new_view(self, take: Callable[[Any], Any]) -> Duplicated:
        try:
            view = type(self)(take(self._primal), keep=self._keep)
        except (TypeError, ValueError, IndexError) as error:  # NumPy's, of a key, a shape or axes
            if isinstance(error, GpuadError):
                raise
            kind = ArgumentIndexError if isinstance(error, IndexError) else ArgumentValueError
            raise kind(f"a view of {self!r}: {error}") from None
        derived(view._primal, self._primal)
        view._deferred, view._of = self._deferred, self if self._of is None else self._of
        if self._shadow is None:
            view._make = lambda: take(self._own_shadow)
        else:
            view._shadow = take(self._shadow)
        return view


def shadows_of_array(pair: Duplicated | BatchDuplicated) -> tuple[Any, ...]:
    """The shadows of all of the array that the caller has paired with them, where `pair` is a view of that pair; for code that does not let
    the caller see them."""
    array = pair if pair._of is None else pair._of
    return (array._own_shadow,) if isinstance(array, Duplicated) else array.shadows


def _pair(kind: type[Duplicated], primal: Any, shadow: NdArray, keep: bool) -> Duplicated:
    """A pair of arrays, as `pickle` makes one again."""
    return kind(primal, shadow, keep=keep)


def _recording() -> bool:
    """True if a tape records in this thread."""
    return current.get() is not None


def _refuse_leaving(x: Any) -> None:
    """TapeError inside of a tape, which does not see what is made of a pickled pair, or number."""
    if _recording():
        raise TapeError(
            f"a {type(x).__name__} was pickled inside of a tape, which does not see what is made of the bytes: the gradient of the copy "
            "would be dropped. For a copy write `y = x.copy()` or copy.deepcopy(x), which are recorded; to keep values pickle `x.primal`."
        )


def _same_view(a: Duplicated, b: Duplicated) -> bool:
    """True if two pairs are the same elements and, as far as they are there yet, the same shadow."""
    one, two = a._primal, b._primal
    if type(one) is type(two) is np.ndarray and _disjoint(one, two):
        return False
    if (one.shape, one.strides, one.dtype) != (two.shape, two.strides, two.dtype) or address(one) != address(two):
        return False
    return bool(one.size == 0 or address(a._own_shadow) == address(b._own_shadow))


def _disjoint(one: np.ndarray[Any, Any], two: np.ndarray[Any, Any]) -> bool:
    """True if two arrays lie in memory of different arrays of NumPy that own it."""
    a, b = (x if x.base is None else x.base for x in (one, two))
    return type(a) is type(b) is np.ndarray and a is not b and a.flags.owndata and b.flags.owndata


class DuplicatedNoNeed(Duplicated):
    """Like `Duplicated(x, dx, keep=...)`, for an output whose primal result is not wanted: the kernel's store to it may be left out, and
    what `x` holds afterwards is undefined."""

    __slots__ = ()


class BatchDuplicated(_Annotated):
    """An array with several shadows, each with a seed of its own, reversed in one call, in which the primal is read once.

    `x`: an array of floats, any shape. `shadows`: one or more arrays of its shape, dtype and strides, as for `Duplicated`; all batches of a
    call have the same number. Raises ShadowError without a shadow, or for what is no array."""

    __slots__ = ("_of", "_shadows")

    @public
    def __init__(self, x: Any, shadows: Sequence[Any]) -> None:
        super().__init__(x)
        self._of: BatchDuplicated | None = None
        if not isinstance(shadows, tuple | list) or not shadows:
            raise ShadowError(f"BatchDuplicated(x, (dx1, dx2, ...)): `shadows` is a tuple of one shadow or more, not {show(shadows)}")
        self._shadows = tuple(array_of("BatchDuplicated", f"shadows[{k}]", shadow, _SHADOW) for k, shadow in enumerate(shadows))

    @property
    def shadows(self) -> tuple[Any, ...]:
        """The shadows, in the order given."""
        return self._shadows

    def __copy__(self) -> BatchDuplicated:
        """A pair of this array and its shadows."""
        return self[...]

    def __deepcopy__(self, memo: Any) -> Any:
        """Inside of a tape a recorded copy; outside of one copies of the array and of all shadows."""
        if _recording():
            return operation("copy")(self)
        return BatchDuplicated(copy.deepcopy(self._primal, memo), copy.deepcopy(self._shadows, memo))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """For `pickle`: the array and its shadows. TapeError inside of a tape."""
        _refuse_leaving(self)
        return BatchDuplicated, (self._primal, self._shadows)

    def __getitem__(self, key: Any) -> BatchDuplicated:
        """Basic slicing: views of the array and of each shadow."""
        take = _basic(key)
        view = BatchDuplicated(take(self._primal), tuple(take(shadow) for shadow in self._shadows))
        view._of = self if self._of is None else self._of
        return view


class Active(Arithmetic, Compared):
    """A number, vector or struct passed by value whose gradient is wanted.

    `value`: a Python or NumPy number, a tuple of numbers for a vector, a NumPy scalar or array of shape () of a struct's dtype. `shadow`:
    an array into which the gradient is added, of shape () or (1,), (n,) for a vector of n, () and the struct's dtype for a struct (on a GPU
    its bytes); the dtype of a number's may be wider than the parameter's. In forward mode it holds the tangent. A tuple of them goes with
    `BatchDuplicated`. A shadow that does not fit is refused when it is used (ShadowError).
    """

    __slots__ = ("_shadow", "_value")

    @public
    def __init__(self, value: Any, shadow: NdArray) -> None:
        if not _is_number(value) and not (isinstance(value, tuple | list) and value and all(map(_is_number, value))):
            raise ShadowError(f"Active: `value` is a number, a tuple of numbers or a struct, not {show(value)}; an array takes Duplicated")
        for part in shadow if isinstance(shadow, tuple | list) and shadow else (shadow,):
            array_of("Active", "shadow", part, _SHADOW_OF_NUMBER)
        self._value, self._shadow = value, shadow

    @property
    def value(self) -> Any:
        """The number."""
        return self._value

    @property
    def primal(self) -> Any:
        """The number, under the name that arrays use."""
        return self._value

    @property
    def shadow(self) -> Any:
        """Where the gradient is added."""
        return self._shadow

    _passed_shadow = shadow

    def __copy__(self) -> Active:
        """A pair of this number and its shadow."""
        return Active(self._value, self._shadow)

    def __deepcopy__(self, memo: Any) -> Active:
        """Inside of a tape the number with the same shadow, where its gradient is; outside of one with a copy of it."""
        return Active(copy.deepcopy(self._value, memo), self._shadow if _recording() else copy.deepcopy(self._shadow, memo))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """For `pickle`: the number and its shadow. TapeError inside of a tape."""
        _refuse_leaving(self)
        return Active, (self._value, self._shadow)

    def __repr__(self) -> str:
        return f"Active({self._value!r})"

    @classmethod
    @public
    def many(cls, values: Sequence[Any], shadows: Any) -> tuple[Active, ...]:
        """One Active for each component of the vector `values`; component i of the array `shadows` (shape (n,)) is the shadow of values[i].

        Raises ShadowError when the lengths differ.
        """
        if not isinstance(values, tuple | list) and getattr(values, "ndim", 0) != 1:
            raise ArgumentTypeError(f"Active.many: `values` are a vector of numbers, not {show(values)}")
        if getattr(shadows, "shape", None) != (len(values),):
            raise ShadowError(
                f"Active.many: `shadows`: {len(values)} `values` need an array of shape ({len(values)},), got {show(shadows)}"
            )
        return tuple(cls(_python_number(value), shadows[i, ...]) for i, value in enumerate(values))


class Const(Compared):
    """The caller says: no gradient through here. `x`: an array or a number. What a launch writes into it carries no gradient, on
    purpose."""

    __slots__ = ("_primal",)

    @public
    def __init__(self, x: Any) -> None:
        self._primal = getattr(x, "primal", x)
        refuse_subclass(self._primal)

    @property
    def primal(self) -> Any:
        """The array or number."""
        return self._primal

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_brief(self._primal)})"


class Stopped(Const):
    """What `stop_gradient` returns."""

    __slots__ = ()


@public
def stop_gradient(x: Any) -> Stopped:
    """Marks an array whose content depends on shadowed inputs as a constant of this call: the gradient that would flow through it is
    dropped on purpose. `x`: an array, a number or a Duplicated. ShadowError, at the launch, where its memory is also another argument's
    that has a shadow."""
    return Stopped(x)


def array_of(kind: str, name: str, x: Any, hint: str) -> Any:
    """The array that an annotation is made with. ShadowError for what is none; ArgumentTypeError for one of a derived class."""
    array = as_array(x) if not isinstance(x, Compared | type) else None
    if not is_array(array) and not (hasattr(array, "shape") and (hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__"))):
        raise ShadowError(f"{kind}: `{name}` takes an array, got {show(x)}; {hint}")
    if getattr(getattr(array, "dtype", None), "kind", None) in _NO_NUMBERS:
        raise ShadowError(f"{kind}: `{name}` is {show(x)}, which holds no numbers, and so has no gradient")
    return array


def shadow_array(name: str, x: Any) -> Any:
    """The array that a shadow is. ShadowError for what is none, ArgumentTypeError for one of a derived class."""
    return array_of("a shadow", name, x, _SHADOW)


def _is_number(x: Any) -> bool:
    """True if it is a number or a struct, as Python, NumPy or an array of shape () or one element has them."""
    return isinstance(x, bool | int | float | complex | np.generic) or (hasattr(x, "dtype") and getattr(x, "size", 0) == 1)


def _brief(x: Any) -> str:
    return f"{x.dtype} {x.shape}" if hasattr(x, "shape") else show(x)


def _python_number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic | np.ndarray) else value


def _said(key: Any) -> Hashable:
    """A hashable form of a key of numbers and slices, to look it up by; None for any other."""
    if type(key) is not tuple:
        return _said_alone(key)
    parts = []
    for part in key:
        said = _said_alone(part)
        if said is None:
            return None
        parts.append(said)
    return tuple(parts)


def _said_alone(key: Any) -> Hashable:
    kind = type(key)
    if kind is slice:
        begin, end, step = key.start, key.stop, key.step
        plain = (begin is None or type(begin) is int) and (end is None or type(end) is int) and (step is None or type(step) is int)
        return (begin, end, step) if plain else None
    if kind is int:
        return (key,)
    return str(key) if key is None or key is Ellipsis else None


def _basic(key: Any) -> Callable[[Any], Any]:
    """A function that takes the view `key` of an array; always a view, of shape () where a plain index would copy the element out."""
    if isinstance(key, str):
        return lambda array: array[key]
    parts = key if isinstance(key, tuple) else (key,)
    if not _all_basic(key):
        raise UnsupportedError("only basic slicing (integers, slices, `...`, None) gives a pair of views; index arrays and masks copy")
    whole = parts if any(part is Ellipsis for part in parts) else (*parts, Ellipsis)
    return lambda array: array[whole]


def _all_basic(key: Any) -> bool:
    return isinstance(key, str) or all(map(_is_basic, key if isinstance(key, tuple) else (key,)))


def _is_basic(part: Any) -> bool:
    if part is None or part is Ellipsis or isinstance(part, slice):
        return True
    if isinstance(part, bool | np.bool_) or getattr(part, "ndim", 0) != 0:
        return False
    try:
        operator.index(part)
    except TypeError:
        return False
    return True


def _is_view(array: NdArray, shape: tuple[Any, ...]) -> bool:
    """True if an array has that shape without a copy; errors of the shape are left to who reshapes."""
    if array.flags.c_contiguous:
        return True
    try:
        return not array.size or address(array.reshape(*shape)) == address(array)
    except (TypeError, ValueError):
        return True


def _order(order: Any, x: Any) -> str:
    """The order of elements, "C" or "F"; ArgumentValueError for none."""
    if order not in ("C", "F", "A", "K"):
        raise ArgumentValueError(f"`order` is 'C', 'F', 'A' or 'K', not {show(order)}")
    alone = x.flags.f_contiguous and not x.flags.c_contiguous
    return "F" if order == "F" or (order in "AK" and alone) else "C"


def _sizes(shape: tuple[Any, ...]) -> Hashable:
    """A hashable form of a shape of whole numbers, to look it up by; None for any other."""
    sizes = shape[0] if len(shape) == 1 and type(shape[0]) is tuple else shape
    return ("reshape", *sizes) if all(type(n) is int for n in sizes) else None


def _of_numbers(dtype: Any) -> Any:
    """The real numbers that a dtype consists of."""
    return dtype if dtype.kind == "f" else np.dtype(f"f{dtype.itemsize // 2}")


def _reshaped(array: NdArray, shape: tuple[Any, ...]) -> Any:
    view = array.reshape(*shape)
    if array.size and address(view) != address(array):
        raise ShadowError(f"reshape{shape} of these strides would copy; a copy has no place in the pair")
    return view
