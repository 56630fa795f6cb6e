"""Applies an elementwise operation: types and shapes as NumPy has them, then an ordinary launch of a generated kernel.

Inside a tape that launch is recorded like any other. An input that overlaps the output without being it is copied first, as NumPy and CuPy
do, by a launch that is recorded too; so the meaning is the same in the reverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

import numpy as np

from ..arguments.aliasing import hull, overlap, region
from ..arguments.annotations import Active, BatchDuplicated, Const, Duplicated
from ..arguments.arrays import as_array, is_array, namespace
from ..arguments.layouts import repeats
from ..arguments.recorder import current
from ..errors import ArgumentTypeError, ArgumentValueError, ShadowError, TapeError, UnsupportedError
from ..ir.dtypes import is_half
from ..runtime.array_types import NdArray
from .complex import result_type as complex_result_type
from .complex import run as run_complex
from .layout import Axes, axes, broadcast_shape, hull_size, primal_of, reached, refuse_repeated, refuse_windows, same, shadows_of
from .temporaries import carried, new_array, paired, refuse_swapped, temporary
from .text import TABLE, Array, Elementwise, Number, Spec, built, result_type
from .trace_cache import Launch, by_arguments, known, made_again, remember

_MOST_BLOCKS = 65535  # along y and z
_THREADS = 256
_INT = 2**31 - 2**11  # a thread's number may be a block beyond the end


@by_arguments
def apply(name: str, *operands: Any, out: Any = None) -> Any:
    """Runs operation `name` on arrays (annotated or not) and numbers; gives `out`, or a new array or pair."""
    given = out is not None
    if given:
        again = known(name, (*operands, out))
        if again is not None:
            again()
            return out
    elif (made := made_again(name, operands)) is not None:
        return made
    operation = TABLE[name]
    inputs = [_operand(x, name) for x in operands]
    check_recorded(name, (*operands, out))
    values = [_value(x) for x in inputs]
    if _is_complex((*values, primal_of(out))):
        return _complex(name, inputs, values, out)
    compute = _compute_type(operation, values, out)
    arrays = _arrays(values)
    if out is None:
        out = _result(name, inputs, arrays, compute)
    target = primal_of(out)
    _check_output(name, target, arrays, compute)
    if target.size:
        separate = [are_disjoint(x, target, True) for x in inputs]
        launch = _launch(operation, compute, out, separate)
        if all(map(is_, separate, operands)):
            remember(name, (*operands, out) if given else operands, launch, None if given else out)
        launch()
    return out


def check_into(name: str, operands: Sequence[Any], out: Any) -> None:
    """Raises what operation `name` into `out` would raise for the shapes and types of these operands."""
    values = [_value(_operand(x, name)) for x in operands]
    check_recorded(name, (*operands, out))
    given = (*values, primal_of(out))
    compute = complex_result_type(name, values) if _is_complex(given) else _compute_type(TABLE[name], values, out)
    _check_output(name, primal_of(out), _arrays(values), compute)


def _is_complex(values: Sequence[Any]) -> bool:
    return any(isinstance(v, complex) or getattr(getattr(v, "dtype", None), "kind", "") == "c" for v in values)


def _arrays(values: Sequence[Any]) -> list[Any]:
    return [v for v in values if hasattr(v, "shape") and not isinstance(v, np.generic)]


def _compute_type(operation: Elementwise, values: Sequence[Any], out: Any) -> np.dtype[Any]:
    """The type in which real numbers are computed with."""
    first = values[0]
    weak = operation.name == "copyto" and isinstance(first, bool | int | float) and out is not None and not isinstance(first, np.generic)
    compute = np.dtype(primal_of(out).dtype) if weak else result_type(operation, values)
    return np.dtype(np.float64) if operation.floating and compute.kind != "f" else compute


def _complex(name: str, inputs: list[Any], values: list[Any], out: Any) -> Any:
    """An operation on complex numbers, by rules."""
    compute = complex_result_type(name, values)
    arrays = _arrays(values)
    if out is None:
        out = _result(name, inputs, arrays, compute)
    target = primal_of(out)
    _check_output(name, target, arrays, np.dtype(target.dtype) if name == "copyto" and not arrays and target.dtype.kind == "c" else compute)
    if target.size:
        run_complex(name, [x if is_output(x, out) else are_disjoint(as_pair(x), target) for x in inputs], out)
    return out


def as_pair(x: Any) -> Any:
    """An Active number as a pair of shape (), by a recorded copy; anything else as it is. Inside of a tape."""
    if not isinstance(x, Active):
        return x
    if np.iscomplexobj(x.value) and not np.iscomplexobj(x.shadow):
        raise ShadowError("a complex Active number has a real shadow, which would drop half of its gradient")
    return apply("copyto", x)


def check_recorded(name: str, operands: Sequence[Any]) -> None:
    """What carries a gradient is computed with inside of a tape only: TapeError. Arrays are of types that shadows and generated kernels
    have: UnsupportedError, and ShadowError for a pair of integers."""
    if current.get() is None and any(isinstance(x, Duplicated | BatchDuplicated | Active) for x in operands):
        raise TapeError(f"{name} on a Duplicated outside of a tape is not recorded: enter one (`with tape:`), or compute with `.primal`")
    for x in operands:
        _check_type(name, x)


def _check_type(name: str, x: Any) -> None:
    dtype = getattr(primal_of(x), "dtype", None)
    if not isinstance(dtype, np.dtype):
        return
    if not dtype.isnative:
        refuse_swapped(dtype)
    if not isinstance(x, Duplicated | BatchDuplicated) or dtype.kind == "c":
        return
    if is_half(dtype):
        raise UnsupportedError(f"gpuad.ops.{name} takes no gradient in {dtype}; use a kernel, whose shadows are float32")
    if dtype.kind in "biu":
        raise ShadowError(f"gpuad.ops.{name}: an array of {dtype} carries no gradient; pass the array itself, not {type(x).__name__}")


def _operand(x: Any, name: str) -> Any:
    if isinstance(x, Const) and not hasattr(x.primal, "shape"):
        return x.primal
    if isinstance(x, Active) and not np.issubdtype(np.asarray(x.value).dtype, np.number):
        raise ArgumentTypeError(f"{name} takes arrays and numbers; an Active struct goes to kernels")
    if isinstance(x, Active) and np.ndim(x.value):
        raise ArgumentTypeError(f"{name} takes arrays and numbers; an Active vector goes to kernels, its numbers come from Active.many")
    if isinstance(x, Duplicated | BatchDuplicated | Active | Const | bool | int | float | complex | np.generic):
        return x
    x = as_array(x)
    if not is_array(x):
        raise ArgumentTypeError(f"{name} takes arrays and numbers, not {type(x).__name__}")
    return x


def _value(x: Any) -> Any:
    """The array or number behind an operand."""
    return x.value if isinstance(x, Active) else primal_of(x)


def _result(name: str, inputs: Sequence[Any], arrays: Sequence[Any], dtype: np.dtype[Any]) -> Any:
    like = arrays[0] if arrays else next((x.shadow for x in inputs if isinstance(x, Active)), None)
    if not is_array(like):
        raise ArgumentTypeError(f"{name} needs an array among its operands, or out=")
    array = new_array(like, broadcast_shape(name, arrays), dtype, active=carried(inputs))
    pair = paired(array, inputs)
    return temporary(array) if pair is array and any(isinstance(x, Active) for x in inputs) else pair


def _check_output(name: str, target: NdArray, arrays: Sequence[Any], compute: np.dtype[Any]) -> None:
    if not hasattr(target, "strides") or isinstance(target, np.generic):
        raise ArgumentTypeError(f"{name}: out is no array")
    shape = tuple(target.shape)
    if broadcast_shape(name, [target, *arrays]) != shape:
        raise ArgumentValueError(
            f"{name}: operands of shapes {[tuple(a.shape) for a in arrays]} do not fit into an output of shape {shape}"
        )
    if not np.can_cast(compute, target.dtype, "same_kind"):
        raise ArgumentTypeError(f"{name}: cannot cast the result from {compute} to {target.dtype}")
    refuse_repeated(target, name)


def check_out(name: str, out: Any, shape: Sequence[int], dtype: Any) -> None:
    """Whether a result of the given shape and type may go into `out`, as NumPy judges it; ValueError and TypeError if not."""
    target = primal_of(out)
    if not hasattr(target, "strides") or isinstance(target, np.generic):
        raise ArgumentTypeError(f"{name}: out is no array")
    if tuple(target.shape) != tuple(shape):
        raise ArgumentValueError(f"{name}: out has shape {tuple(target.shape)}, the result {tuple(shape)}")
    if not np.can_cast(dtype, target.dtype, "same_kind"):
        raise ArgumentTypeError(f"{name}: cannot cast the result from {np.dtype(dtype)} to {target.dtype}")
    refuse_repeated(target, name)


def are_disjoint(x: Any, target: NdArray, in_place: bool = False) -> Any:
    """The operand, or a copy of it where it overlaps the output; but not if it is the output, for an operation that works in place. A pair
    whose elements share memory (broadcast) is copied for an operation that does not."""
    array = primal_of(x)
    if isinstance(x, Active) or not hasattr(array, "strides") or isinstance(array, np.generic):
        return x
    if not in_place and isinstance(x, Duplicated | BatchDuplicated) and repeats(array):
        return copied(x)
    if namespace(array) is not namespace(target) or (in_place and same(array, target)) or not _overlap(array, target):
        return x
    return copied(x)


def is_output(x: Any, out: Any) -> bool:
    """Whether an operand is the output itself, and says the same about it: a stopped one is not. ShadowError where it has another
    shadow."""
    array = primal_of(x)
    alike = hasattr(array, "strides") and not isinstance(array, np.generic) and same(array, primal_of(out))
    return alike and _one_activity(out, x)


def copied(x: Any) -> Any:
    """A copy of an operand, recorded, and annotated like it."""
    array = primal_of(x)
    copy = new_array(array, array.shape, array.dtype, active=carried((x,)))
    pair = paired(copy, (x,))
    apply("copyto", _narrowed(x), out=pair)
    return type(x)(copy) if isinstance(x, Const) else pair


def _narrowed(x: Any) -> Any:
    """A pair that was broadcast as it was before, so that the operation broadcasts it, and its adjoint adds up; UnsupportedError for one
    whose elements share memory in another way."""
    array = primal_of(x)
    if not isinstance(x, Duplicated | BatchDuplicated) or not repeats(array):
        return x
    refuse_windows(x)
    return x[tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)]


def _overlap(a: Any, b: Any) -> bool:
    (low, high), (begin, end) = hull(a), hull(b)
    return low < end and begin < high and overlap(region(a), region(b))


# --- launching -----------------------------------------------------------------------------------------------------------------------


def _launch(operation: Elementwise, compute: np.dtype[Any], out: Any, inputs: Sequence[Any]) -> Launch:
    pointers, numbers, places = _gather(out, inputs, compute)
    layout = axes(primal_of(out).shape, [primal_of(p) for p in pointers])
    block, grid, loops = geometry(layout.lengths)
    wide = any(hull_size(primal_of(p)) > _INT for p in pointers) or max(layout.lengths) > _INT
    patterns = ["".join(_pattern(s) for s in steps) for steps in layout.steps]
    in_place = operation.inplace is not None and places[0] == 0 and np.dtype(primal_of(out).dtype) == compute
    spec = Spec(
        operation.name,
        (operation.inplace if in_place else None) or operation.expression,
        compute.name,
        tuple(Array(np.dtype(primal_of(p).dtype).name, pattern) for p, pattern in zip(pointers, patterns, strict=True)),
        tuple(Number(compute.name) for _ in numbers),
        tuple(places),
        operation.raw,
        loops,
        "long long" if wide else "int",
    )
    strides = [s for steps in layout.steps for s in steps if _pattern(s) == "s"]
    return Launch(built(spec), grid, block, (*map(reached, pointers), *numbers, *layout.lengths, *layout.offsets, *strides))


def _pattern(step: int) -> str:
    return {0: "0", 1: "1"}.get(step, "s")


def _gather(out: Any, inputs: Sequence[Any], compute: np.dtype[Any]) -> tuple[list[Any], list[Any], list[int]]:
    """The arrays, each once, the numbers, and for each input which of them it is."""
    pointers: list[Any] = [out]
    numbers: list[Any] = []
    places: list[int] = []
    for x in inputs:
        if isinstance(x, Active) and any(x is n for n in numbers):
            places.append(next(-1 - i for i, n in enumerate(numbers) if n is x))
            continue
        if isinstance(x, Active | bool | int | float | np.generic):
            numbers.append(_converted(x, compute))
            places.append(-len(numbers))
            continue
        place = next((i for i, p in enumerate(pointers) if same(primal_of(p), primal_of(x)) and _one_activity(p, x)), len(pointers))
        if place == len(pointers):
            pointers.append(x)
        places.append(place)
    return pointers, numbers, places


def _one_activity(p: Any, x: Any) -> bool:
    """Whether two names of the same elements say the same about them; ShadowError where they have different shadows."""
    if isinstance(p, Duplicated | BatchDuplicated) and isinstance(x, Duplicated | BatchDuplicated):
        one, two = shadows_of(p), shadows_of(x)
        if len(one) != len(two) or not all(map(same, one, two)):
            raise ShadowError("two operands are the same array with different shadows; make the shadow once and use that pair")
        return True
    return type(p) is type(x)


def _converted(x: Any, compute: np.dtype[Any]) -> Any:
    """A number in the type of the computation; Python's numbers adapt at the launch."""
    return compute.type(x) if isinstance(x, np.generic) else x


def geometry(lengths: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Block, grid, and how many of the outermost axes have to be loops in each thread."""
    block: list[int] = []
    grid: list[int] = []
    for axis, n in enumerate(lengths[:3]):
        free = _THREADS
        for b in block:
            free //= b
        size = min(free, 64 if axis == 2 else _THREADS, 1 << (n - 1).bit_length())
        if axis and -(-n // size) > _MOST_BLOCKS:
            break
        block.append(size)
        grid.append(-(-n // size))
    return tuple(block), tuple(grid), len(lengths) - len(block)


__all__ = ["Axes", "apply", "are_disjoint", "check_out", "check_recorded", "geometry"]
