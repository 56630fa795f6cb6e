"""One argument of a call: is it what its parameter takes, and where does its memory lie?

A raw kernel receives a pointer where its caller passed an array, and eight bytes where they passed a Python number. Here an array's
numbers are compared with those that the pointer points at, and a number is converted to the parameter's type if that loses nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentTypeError, GpuadError, LaunchError, ShadowError
from ..ir.dtypes import dtype_of, is_bfloat16, is_half, is_real, shadow_dtype, to_bfloat16
from ..ir.records import numbers, size_of
from ..ir.surface import Declaration
from ..ir.types import BF16, HALVES, Complex, Pointer, Scalar, Struct, Type, Vector
from ..public_calls import show
from ..runtime.array_locks import writeable
from ..runtime.array_types import NdArray
from ..runtime.base import Memory
from .annotations import Active, BatchDuplicated, Const, Duplicated, DuplicatedNoNeed, Stopped
from .arrays import as_array, resolve
from .layouts import described, fits, same_number

_SHADOWED = ("duplicated", "noneed", "batch")


@dataclass(frozen=True, eq=False)
class BoundArgument:
    """One parameter with what it was given.

    `kind`: 'const', 'bare', 'stopped', 'duplicated', 'noneed', 'batch' or 'active'. For a pointer: `memory` (None for a null pointer), the
    `shadows` (one, several for 'batch', none for the inactive kinds) and the arrays they come from. For a number: `value`, a NumPy scalar
    of the parameter's type; an 'active' one has its 0-d `shadows`. `keep`: the seed is read, not taken.
    """

    position: int
    declaration: Declaration
    kind: str
    memory: Memory | None = None
    shadows: tuple[Memory, ...] = ()
    value: Any = None
    array: Any = None
    shadow_arrays: tuple[Any, ...] = ()
    keep: bool = False
    pieces: tuple[int, ...] = ()  # where in each `struct` behind the pointer its numbers are, in bytes; none: everywhere
    struct: Type | None = None

    @property
    def name(self) -> str:
        """The parameter's name."""
        return self.declaration.name

    @property
    def is_pointer(self) -> bool:
        """True if the parameter is a pointer."""
        return isinstance(self.declaration.type, Pointer)

    @property
    def shadow(self) -> Memory | None:
        """The only or first shadow."""
        return self.shadows[0] if self.shadows else None

    @property
    def shadow_array(self) -> Any:
        """The only or first shadow as the user's array."""
        return self.shadow_arrays[0] if self.shadow_arrays else None


# --- words for messages --------------------------------------------------------------------------------------------------------------

CUDA_NAMES = {  # of dtypes
    "bool": "bool", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long", "uint8": "unsigned char",
    "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long long", "float16": "half", "float32": "float",
    "float64": "double", "bfloat16": "bfloat16",
}  # fmt: skip


_VECTOR_WORDS = {"int8": "char", "uint8": "uchar", "uint16": "ushort", "uint32": "uint", "int64": "longlong", "uint64": "ulonglong"}


def type_name(type_: Type) -> str:
    """A type as CUDA spells it."""
    if isinstance(type_, Pointer):
        return f"{'const ' if type_.const else ''}{type_name(type_.element)}*"
    if isinstance(type_, Vector):
        return f"{_VECTOR_WORDS.get(str(type_.element), type_name(type_.element))}{type_.lanes}"
    if isinstance(type_, Complex):
        return f"complex<{type_name(type_.element)}>"
    if isinstance(type_, Struct):
        return type_.name
    return CUDA_NAMES.get(str(type_), str(type_))


# --- one argument --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A parameter of a kernel: where an argument goes, and how errors speak about it."""

    kernel: str
    position: int
    declaration: Declaration

    @property
    def name(self) -> str:
        return self.declaration.name

    def __str__(self) -> str:
        d = self.declaration
        return f"parameter {self.position + 1} `{type_name(d.type)} {d.name}` of `{self.kernel}` ({d.span})"

    def refuse(self, message: str, error: type[GpuadError] = LaunchError) -> GpuadError:
        return error(f"{self} {message} Nothing was launched.")

    def bind(self, arg: Any) -> BoundArgument:
        if isinstance(arg, type):
            raise self.refuse(f"got the class {arg.__name__}; a launch needs {arg.__name__}(x, ...).")
        type_ = self.declaration.type
        if isinstance(type_, Pointer):
            return self._pointer(arg, type_)
        if isinstance(type_, Scalar):
            return self._number(arg, type_)
        raise self.refuse(f"is a {type_name(type_)} by value, which gpuad cannot pass.")

    def _pointer(self, arg: Any, type_: Pointer) -> BoundArgument:
        if isinstance(arg, Active):
            raise self.refuse(
                "got Active(value, shadow), which is for numbers passed by value; use Duplicated(array, shadow).", ShadowError
            )
        kind, primal, shadows = opened(arg)
        if is_null(primal) and not shadows:
            return BoundArgument(self.position, self.declaration, kind)
        array = self._array(primal)
        leaf = self._element(array, type_)
        if kind in _SHADOWED and not leaf.is_float:
            raise self.refuse(f"holds integers, which carry no gradient; pass the array itself, not {type(arg).__name__}.", ShadowError)
        if kind in _SHADOWED and set(HALVES) & set(numbers(type_.element)):
            self._check_halves(array, type_)
        made = tuple(self._shadow(array, shadow) for shadow in shadows)
        return BoundArgument(
            self.position, self.declaration, kind, _memory(array, type_.element), tuple(_memory(s, type_.element) for s in made),
            array=array, shadow_arrays=made, keep=isinstance(arg, Duplicated) and arg.keep,
        )  # fmt: skip

    def _check_halves(self, array: NdArray, type_: Pointer) -> None:
        """Refuses what cannot have a shadow of float32 for each half: that has as many numbers as there are halves, and no others."""
        if len(numbers(type_.element)) > 1:
            what = "points to structs in which there are halves beside other numbers, which cannot have a shadow"
            raise self.refuse(f"{what}; make the halves an array of their own.", ShadowError)
        if array.dtype.names:
            what = "points to structs of halves, passed as an array of structs, which cannot have a shadow"
            raise self.refuse(f"{what}; pass x.view('{dtype_of(numbers(type_.element)[0])}'), with a shadow of float32.", ShadowError)

    def _array(self, x: Any) -> Any:
        try:
            x = as_array(x)
        except ArgumentTypeError as error:
            raise self.refuse(str(error)) from None
        if isinstance(x, np.ndarray) or type(x).__module__.partition(".")[0] == "cupy":
            return x
        if isinstance(x, bool | int | np.integer):
            raise self.refuse(f"got {show(x)}; pass the array itself, not its address (for a torch tensor: the tensor, not data_ptr()).")
        if isinstance(x, float | complex | np.generic):
            raise self.refuse(f"got the number {show(x)}; pass an array (`x[i:i+1]` is a view of one element, `x[i]` a copy).")
        if isinstance(x, list | tuple):
            raise self.refuse(f"got a {type(x).__name__}; pass a NumPy or CuPy array, so that the kernel writes into memory that you keep.")
        if hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__"):
            what = f"a {type(x).__module__}.{type(x).__name__} on a device"
            raise self.refuse(f"got {what}; it is used through CuPy, which is not installed.")
        raise self.refuse(f"got {show(x)}; pass a NumPy or CuPy array.")

    def _element(self, array: NdArray, type_: Pointer) -> Scalar:
        """Checks an array's dtype against the pointer's element, by kind and size of the numbers in it; gives the kind of number."""
        kinds = numbers(type_.element)
        if not kinds:
            raise self.refuse("points to something that gpuad cannot pass; it takes pointers to numbers and to structs of them.")
        carrier = next((kind for kind in kinds if kind.is_float), kinds[0])
        if array.dtype.names:
            if not fits(array.dtype, type_.element):
                raise self.refuse(f"got {show(array)}: a {type_name(type_.element)} is {described(type_.element)}.")
            return carrier
        if len(kinds) > 1:
            if array.dtype.kind not in "uiV" or _run(array) * array.dtype.itemsize % size_of(type_.element):
                what = f"a {type_name(type_.element)} is {described(type_.element)}"
                raise self.refuse(f"got {show(array)}: {what}; pass such an array, or its bytes as integers.")
            return carrier
        leaf, count = kinds[0], size_of(type_.element) // kinds[0].size
        dtype, each = array_leaf(array.dtype)
        if not same_number(leaf, dtype):
            raise self.refuse(f"got {show(array)}: its elements are not {type_name(leaf)}. {_cast_hint(leaf, array)}")
        if each != count and (count % each or not _side_by_side(array, count // each)):
            raise self.refuse(f"got {show(array)}: a {type_name(type_.element)} is {count} numbers that lie side by side.")
        return leaf

    def _shadow(self, array: NdArray, shadow: NdArray) -> Any:
        shadow = self._array(shadow)
        if tuple(shadow.shape) != tuple(array.shape):
            raise self.refuse(
                f"has shape {tuple(array.shape)} but its shadow {tuple(shadow.shape)}; make it with zeros_like(x).", ShadowError
            )
        if is_half(array.dtype):
            if shadow.dtype != np.float32:
                what = f"is of {array.dtype}, whose shadow is of float32, not {shadow.dtype}"
                raise self.refuse(f"{what}: a half would lose small contributions. Make it with zeros(x.shape, 'float32').", ShadowError)
        elif shadow.dtype != array.dtype:
            raise self.refuse(f"holds {array.dtype} but its shadow {shadow.dtype}; make it with zeros_like(x).", ShadowError)
        return shadow

    # numbers

    def _number(self, arg: Any, type_: Scalar) -> BoundArgument:
        if isinstance(arg, Duplicated | BatchDuplicated):
            raise self.refuse(f"is passed by value: use Active(value, shadow), not {type(arg).__name__}.", ShadowError)
        if isinstance(arg, Active):
            return self._active(arg, type_)
        kind, value, _ = opened(arg)
        return BoundArgument(self.position, self.declaration, kind, value=self.convert(value, type_))

    def _active(self, arg: Active, type_: Scalar) -> BoundArgument:
        if not type_.is_float:
            raise self.refuse("is an integer, which carries no gradient; pass the number itself, not Active.", ShadowError)
        value = self.convert(arg.value, type_)
        given = arg.shadow if isinstance(arg.shadow, tuple | list) else (arg.shadow,)
        shadows = tuple(self._active_shadow(s, type_) for s in given)
        memories = tuple(resolve(s) for s in shadows)
        return BoundArgument(self.position, self.declaration, "active", None, memories, value, shadow_arrays=shadows)

    def _active_shadow(self, shadow: NdArray, type_: Scalar) -> Any:
        if isinstance(shadow, np.generic):
            raise self.refuse(
                "has a NumPy number as shadow: `dtheta[i]` is a copy; write `dtheta[i, ...]` or `dtheta[i:i+1]`, a view.", ShadowError
            )
        if not hasattr(shadow, "shape"):
            raise self.refuse(f"has {show(shadow)} as shadow; it needs an array of shape () or (1,), such as zeros(()).", ShadowError)
        array, least = self._array(shadow), shadow_dtype(dtype_of(type_))
        if array.ndim > 1 or array.dtype.kind != "f" or array.dtype.itemsize < least.itemsize:
            raise self.refuse(f"has as shadow {show(array)}; it needs shape () or (1,) and {least} or wider.", ShadowError)
        if not writeable(array):
            raise self.refuse("has a read-only array as shadow.", ShadowError)
        return array

    def convert(self, value: Any, type_: Scalar) -> np.generic:
        """A number as a NumPy scalar of the parameter's type, if that loses nothing."""
        if value is None or isinstance(value, str | bytes | list | tuple | dict | complex | np.complexfloating):
            raise self.refuse(f"got {show(value)}; pass a number.")
        if hasattr(value, "shape") and not isinstance(value, np.generic):
            raise self.refuse(f"got {show(value)}; it is passed by value: float(x) or int(x), or make the parameter a pointer.")
        if not isinstance(value, bool | int | float | np.generic):
            raise self.refuse(f"got {show(value)}; pass a number.")
        return self._to_float(value, type_) if type_.is_float else self._to_integer(value, type_)

    def _to_float(self, value: Any, type_: Scalar) -> np.generic:
        """The nearest number of the type; a half or a bfloat16 as the float32 that kernels compute with."""
        dtype = dtype_of(type_)
        if _is_floating(value) and isinstance(value, np.generic) and _bits_differ(value.dtype, dtype):
            bytes_ = f"{dtype.itemsize} of its {value.dtype.itemsize} bytes"
            raise self.refuse(f"got {show(value)}. CuPy would hand over {bytes_}; pass {_module(dtype)}.{dtype}({value}).")
        with np.errstate(over="ignore", under="ignore"):
            try:
                made = _nearest(value, dtype)
            except OverflowError:
                made = shadow_dtype(dtype).type(math.inf)
        if _loses(value, made):
            raise self.refuse(f"got {show(value)}, which a {type_name(type_)} cannot hold.")
        return made

    def _to_integer(self, value: Any, type_: Scalar) -> np.generic:
        if _is_floating(value) and not (math.isfinite(value) and value == int(value)):
            raise self.refuse(f"got {show(value)}, which is no whole number; pass int(x) (sizes: `n // 2`, not `n / 2`).")
        whole, dtype = int(value), dtype_of(type_)
        low, high = (0, 1) if type_.kind == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if not low <= whole <= high:
            raise self.refuse(f"got {show(value)}, beyond the range {low} to {high} of {type_name(type_)}.")
        return dtype.type(whole)  # type: ignore[no-any-return]


def _is_floating(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, np.generic) and is_real(value.dtype))


def _loses(value: Any, made: np.generic) -> bool:
    """True if a number is no longer what it was: rounding, to 0 too, is what a float does."""
    if _is_floating(value):
        return math.isfinite(value) and not np.isfinite(made)
    return not np.isfinite(made) or int(made) != int(value)


def _bits_differ(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """True if CuPy, which hands over a NumPy number's bytes, would pass another value than the caller meant. Those of a narrower number
    would as well; gpuad converts it."""
    return given.itemsize > wanted.itemsize or (given.itemsize == wanted.itemsize and given != wanted)


def _module(dtype: np.dtype[Any]) -> str:
    return "ml_dtypes" if is_bfloat16(dtype) else "numpy"


def _nearest(value: Any, dtype: np.dtype[Any]) -> np.generic:
    """A number rounded to a dtype, as a NumPy scalar of the type in which that is computed with."""
    if is_bfloat16(dtype):
        return np.float32(to_bfloat16(np.array([float(value)]))[0])
    return shadow_dtype(dtype).type(dtype.type(value))  # type: ignore[no-any-return]


def opened(arg: Any) -> tuple[str, Any, tuple[Any, ...]]:
    """The kind of an argument, its array or number, and its shadows."""
    if isinstance(arg, DuplicatedNoNeed):
        return "noneed", arg.primal, (arg._passed_shadow,)
    if isinstance(arg, Duplicated):
        return "duplicated", arg.primal, (arg._passed_shadow,)
    if isinstance(arg, BatchDuplicated):
        return "batch", arg.primal, arg.shadows
    if isinstance(arg, Stopped):
        return "stopped", arg.primal, ()
    if isinstance(arg, Const):
        return "const", arg.primal, ()
    return "bare", arg, ()


def is_null(pointer: Any) -> bool:
    """None, or 0 as Python's number, which CuPy passes in the eight bytes of a pointer."""
    return pointer is None or (type(pointer) is int and pointer == 0)


def array_leaf(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], int]:
    return (np.dtype(f"f{dtype.itemsize // 2}"), 2) if dtype.kind == "c" else (dtype, 1)


def _cast_hint(leaf: Scalar, array: NdArray) -> str:
    if (array.dtype.kind in "iub" or is_real(array.dtype)) and array.dtype.isnative:
        wanted = "ml_dtypes.bfloat16" if leaf == BF16 else repr(str(dtype_of(leaf)))
        bytes_ = f", or x.view({wanted}) if its bytes are such numbers" if array.dtype == np.uint8 else ""
        return f"A raw kernel would read its bytes as they are; pass x.astype({wanted}){bytes_}."
    return "A raw kernel would read its bytes as they are."


def _side_by_side(array: NdArray, count: int) -> bool:
    """True if each so many elements lie side by side: along the last axis, or as all there are along the last axes."""
    run = 1
    for axis in reversed(range(array.ndim)):
        if array.strides[axis] != run * array.dtype.itemsize:
            return False
        run *= array.shape[axis]
        if run >= count:
            return bool(run == count or axis == array.ndim - 1)
    return False


def _run(array: NdArray) -> int:
    """Number of elements that lie side by side along the last axis."""
    return int(array.shape[-1]) if array.ndim and array.strides[-1] == array.dtype.itemsize else 1


def _memory(array: NdArray, element: Type) -> Memory:
    """The memory behind an array, counted in the numbers that `element` consists of; in bytes if they are of several types."""
    kinds = numbers(element)
    if array.dtype.names or len(kinds) > 1:
        return resolve(array, np.dtype(np.uint8) if len(kinds) > 1 else dtype_of(kinds[0]))
    memory = resolve(array, array_leaf(array.dtype)[0])
    root = memory.root
    if isinstance(element, Scalar) and element.is_integer and root.dtype.itemsize == element.size:
        root = root.view(np.dtype(f"{element.kind}{element.bits}"))  # CUDA reads the bytes of a mask or of the other signedness as they are
    return Memory(root, memory.offset)
