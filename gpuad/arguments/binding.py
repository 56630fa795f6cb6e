"""Binds the arguments of a call to the parameters of its kernel, and checks them, before anything runs.

CUDA takes what it is given and checks nothing, so everything that it would take silently is looked at here: how many arguments there are
(`conversions` looks at each one's type), on which device they live, how they are laid out, whether a shadow has the room around it that
its primal has, and how they lie in memory beside each other (`aliasing`). What cannot be judged without knowing the kernel, such as whether
it reaches outside of a view, is handed on as a fact in `Alias`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import LaunchError, ShadowError, near
from ..ir.records import numbers, split_parameter
from ..ir.surface import Declaration
from ..ir.types import Pointer
from ..public_calls import index, show
from ..runtime.array_locks import writeable
from ..runtime.array_types import Extents, NdArray
from ..runtime.base import Dim3
from .aliasing import Alias, judge
from .annotations import Active, BatchDuplicated, Const, Duplicated, DuplicatedNoNeed, Stopped
from .arrays import fills, namespace, resolve
from .conversions import BoundArgument, Place, type_name
from .layouts import repeats
from .records import passed, spread

MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True, eq=False)
class Bound:
    """A checked call. `aliases` has an entry a parameter: None for numbers, null pointers and arrays without elements. `library`: 'numpy'
    or 'cupy', or None when no argument is an array. `width`: number of shadows a batch has, else 1."""

    kernel: str
    arguments: tuple[BoundArgument, ...]
    aliases: tuple[Alias | None, ...]
    library: str | None
    width: int

    @property
    def by_name(self) -> Mapping[str, BoundArgument]:
        """The arguments by parameter name."""
        return {argument.name: argument for argument in self.arguments}

    def overlaps(self) -> dict[int, tuple[int, bool]]:
        """For each pointer whose view shares elements with an earlier one: its position, and whether both begin at one address. Their
        distance is `aliases[position].offset`. LaunchError if it is no whole number of equal elements."""
        found = {p: alias for p, alias in enumerate(self.aliases) if alias is not None and alias.overlap != p}
        for position, alias in found.items():
            if alias.offset is None:
                names = self.arguments[alias.overlap].name, self.arguments[position].name
                raise LaunchError(
                    f"`{names[0]}` and `{names[1]}` of `{self.kernel}` overlap by a part of an element. Nothing was launched."
                )
        return {p: (alias.overlap, alias.offset == 0) for p, alias in found.items()}

    def primals(self) -> tuple[Any, ...]:
        """What an executor takes for the primal launch: Memory, NumPy scalars, None."""
        return tuple([a.memory if a.is_pointer else a.value for a in self.arguments])


def bind(
    kernel: str,
    parameters: Sequence[Declaration],
    args: Sequence[Any],
    *,
    written: Collection[str] | None = None,
    inside: Collection[str] = (),
    strided: bool = False,
    given: Collection[str] = (),
    numbering: Sequence[int] | None = None,
) -> Bound:
    """Binds `args` (arrays, numbers, None, annotations) to `parameters`.

    `written`: names of the parameters through which the kernel may write; by default all pointers that are not const. `inside`: names of
    those through which it provably stays inside of the view, whose shadows need no room around them. `strided`: the kernel is
    told the strides, so any view will do. `given`: names of those that must be an array with elements, since the kernel compares them with
    null. `numbering`: the positions of the parameters for whoever reads an error. Raises LaunchError for what cannot be launched,
    ShadowError for shadows that do not fit. Nothing has been written then.
    """
    check_count(kernel, parameters, args)
    numbers = numbering if numbering is not None else range(len(parameters))
    both = [one for i, d, arg in zip(numbers, parameters, args, strict=True) for one in passed(Place(kernel, i, d), arg)]
    places = [place for place, _ in both]
    bound = tuple(a if a.position == k else replace(a, position=k) for k, (_, a) in enumerate(both))
    library = _one_library(places, bound)
    width, bound = _widths(places, bound)
    stores = {d.name for d in parameters if isinstance(d.type, Pointer) and not d.type.const} if written is None else set(written)
    stores, inside = _whole(bound, stores, any), _whole(bound, inside, all)
    for place, argument in zip(places, bound, strict=True):
        if place.declaration.name in given:
            _check_given(place, argument)
        _check_layout(place, argument, argument.name in stores, argument.name in inside, strided)
    arguments, aliases = spread(kernel, bound, judge(places, bound, stores, frozenset(inside)))
    return Bound(kernel, arguments, aliases, library, width)


def _whole(bound: Sequence[BoundArgument], names: Collection[str], which: Callable[[Iterable[bool]], bool]) -> set[str]:
    """Names of the arguments of whose pointers, one for each type of number behind it, any or all are named."""
    return {a.name for a in bound if which(d.name in names for d in split_parameter(a.declaration))}


# --- all arguments -------------------------------------------------------------------------------------------------------------------


def check_form(kernel: str, args: Any) -> None:
    """Refuses arguments that come as anything but a tuple or a list."""
    if not isinstance(args, tuple | list):
        raise LaunchError(f"`{kernel}`: the arguments come as a tuple or list, got {show(args)}; write (x,) for one argument.")


def check_count(kernel: str, parameters: Sequence[Declaration], args: Sequence[Any]) -> None:
    """Refuses a call with too many arguments or too few."""
    check_form(kernel, args)
    if len(args) == len(parameters):
        return
    described = ", ".join(f"`{type_name(d.type)} {d.name}`" for d in parameters[len(args) :])
    what = f"missing {described}" if described else f"{len(args) - len(parameters)} too many"
    raise LaunchError(f"`{kernel}` takes {len(parameters)} arguments, got {len(args)}: {what}. Nothing was launched.")


def _one_library(places: Sequence[Place], bound: Sequence[BoundArgument]) -> str | None:
    """Arrays pick the executor, so all of them must be of one library."""
    found: dict[str, Place] = {}
    for place, argument in zip(places, bound, strict=True):
        for array in (argument.array, *argument.shadow_arrays):
            if array is not None:
                found.setdefault(namespace(array).__name__, place)
    if len(found) > 1:
        (first, a), (second, b) = list(found.items())[:2]
        raise b.refuse(
            f"is or has as shadow a {second} array, but `{a.name}` a {first} array; a launch has all arrays, shadows too, on one device."
        )
    return next(iter(found), None)


def _widths(places: Sequence[Place], bound: tuple[BoundArgument, ...]) -> tuple[int, tuple[BoundArgument, ...]]:
    """Number of shadows a batch; every argument with a gradient must have as many."""
    batch = next((a for a in bound if a.kind == "batch"), None)
    width = len(batch.shadows) if batch else 1
    split = tuple(_split_active(a, width) for a in bound)
    for place, argument in zip(places, split, strict=True):
        if argument.shadows and len(argument.shadows) != width:
            base = f"`{batch.name}` has {width}" if batch else "only BatchDuplicated arguments make a batch"
            raise place.refuse(f"has {len(argument.shadows)} shadows, but {base}.", ShadowError)
    return width, split


def _split_active(argument: BoundArgument, width: int) -> BoundArgument:
    """An Active's shadow of shape (width,) as `width` views; every shadow of an Active must then have one element."""
    if argument.kind != "active":
        return argument
    arrays = argument.shadow_arrays
    if width > 1 and len(arrays) == 1 and arrays[0].shape == (width,):
        arrays = tuple(arrays[0][i : i + 1] for i in range(width))
    if any(a.size != 1 for a in arrays):
        place = Place("the kernel", argument.position, argument.declaration)
        raise place.refuse(f"has as shadow {show(arrays[0])}; it needs shape () or (1,).", ShadowError)
    return replace(argument, shadow_arrays=arrays, shadows=tuple(resolve(a) for a in arrays))


def _check_given(place: Place, argument: BoundArgument) -> None:
    if argument.array is None or argument.array.size == 0:
        raise place.refuse(
            "is compared with null in the kernel; an array without elements may be null or not. Pass None where there is none."
        )


def _check_layout(place: Place, argument: BoundArgument, stored: bool, inside: bool, strided: bool) -> None:
    array = argument.array
    if array is None or array.size == 0:
        return
    if not strided:
        _check_strides(place, array)
    if repeats(array) and (stored or argument.shadows):
        raise place.refuse(f"got {_shown_sharing(array)}: its elements share memory; pass a contiguous copy.")
    if stored and not writeable(array):
        raise place.refuse("got a read-only array, but the kernel may write to it; pass a copy.")
    for shadow in argument.shadow_arrays:
        _check_shadow_layout(place, argument, shadow, inside)


def _check_strides(place: Place, array: NdArray) -> None:
    """A raw kernel sees a pointer and no strides. A view with a pitch is legal, since the kernel may take the pitch as a number, and so is
    any order of axes; but where no axis has its elements side by side (`x[::2]`), the kernel would read what lies between them, and where
    elements share memory (broadcast arrays, sliding windows) there are fewer than the shape says: it would read past their end."""
    steps = [s for s, n in zip(array.strides, array.shape, strict=True) if n > 1 and s]
    if any(s < 0 for s in steps):
        raise place.refuse("got a view with a negative stride; a raw kernel ignores strides. Pass a contiguous copy.")
    if repeats(array):
        raise place.refuse(
            f"got {_shown_sharing(array)}; a raw kernel ignores strides and would read past the end of it. Pass a contiguous copy, or the "
            "array that it is a view of with indices to suit."
        )
    if steps and min(steps) != array.dtype.itemsize:
        raise place.refuse(f"got a strided view (strides {array.strides} bytes); a raw kernel ignores strides. Pass a contiguous copy.")


def _shown_sharing(array: NdArray) -> str:
    broadcast = any(s == 0 and n > 1 for s, n in zip(array.strides, array.shape, strict=True))
    return "a broadcast array (a stride of 0)" if broadcast else f"a view whose elements overlap (strides {array.strides} bytes)"


def _check_shadow_layout(place: Place, argument: BoundArgument, shadow: NdArray, inside: bool) -> None:
    array, memory = argument.array, argument.memory
    if not writeable(shadow):
        raise place.refuse("has a read-only array as shadow.", ShadowError)
    steps, theirs = _element_strides(array), _element_strides(shadow)
    if steps != theirs:
        raise place.refuse(
            f"and its shadow have different strides ({array.strides} and {shadow.strides} bytes): the kernel would reach other elements; "
            f"make the shadow with zeros_like(x), or slice the pair: Duplicated(base, dbase)[...].", ShadowError,
        )  # fmt: skip
    if inside or memory is None or fills(array, memory):
        return
    other = resolve(shadow)
    if other.offset != resolve(array).offset or not _same_room(array, shadow):
        raise place.refuse(
            "is a view of a larger array, and a kernel may reach outside of a view: its shadow must be the same view of an equally large "
            "array. Make the shadow of the whole once and slice the pair: D = Duplicated(base, dbase); D[...].", ShadowError,
        )  # fmt: skip


def _element_strides(array: NdArray) -> tuple[int, ...]:
    """Strides in elements, of the axes along which there is a step to take."""
    return tuple(s // array.dtype.itemsize for s, n in zip(array.strides, array.shape, strict=True) if n > 1)


def _same_room(array: NdArray, shadow: NdArray) -> bool:
    room, other = resolve(array).root, resolve(shadow).root
    return int(room.size) == int(other.size) or (room.dtype != other.dtype and other.size >= room.size)


# --- activities before a launch ------------------------------------------------------------------------------------------------------

_KINDS: dict[type, str] = {
    DuplicatedNoNeed: "noneed", Duplicated: "duplicated", BatchDuplicated: "batch", Active: "active", Stopped: "const", Const: "const",
}  # fmt: skip


def activities(kernel: str, parameters: Sequence[Declaration], positional: Sequence[Any], by_name: Mapping[str, Any]) -> tuple[str, ...]:
    """The kind of each parameter from annotations given by position or by name, as classes or instances; whoever is not named is 'const'.

    Raises LaunchError for too many annotations or an unknown name, ShadowError for an annotation that does not fit its parameter.
    """
    names = [d.name for d in parameters]
    if len(positional) > len(parameters):
        raise LaunchError(f"`{kernel}` has {len(parameters)} parameters, got {len(positional)} annotations.")
    for name in by_name:
        if name not in names:
            raise LaunchError(f"`{kernel}` has no parameter `{name}`; it has {', '.join(names)}{near(name, names) or '.'}")
        if name in names[: len(positional)]:
            raise LaunchError(f"`{kernel}`: parameter `{name}` is annotated twice, by position and by name.")
    given = {**dict(zip(names, positional, strict=False)), **by_name}
    return tuple(_activity(Place(kernel, i, d), given.get(d.name, Const)) for i, d in enumerate(parameters))


def split_options(
    positional: Sequence[Any], by_name: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Sequence[Any], dict[str, Any], dict[str, Any]]:
    """Annotations by position, by parameter name, and a call's own options. A parameter may be named as an option is, `grid` for instance:
    no option is an annotation, so one that was given is that of the parameter, and None as an option; where both are meant, annotations
    come in a mapping, which is the only one by position."""
    if len(positional) == 1 and isinstance(positional[0], Mapping):
        by_name = {**positional[0], **by_name}
        positional = []
    meant = {name: value for name, value in options.items() if _kind(value) is not None}
    return positional, {**by_name, **meant}, {name: None if name in meant else value for name, value in options.items()}


def _kind(annotation: Any) -> str | None:
    class_ = annotation if isinstance(annotation, type) else type(annotation)
    return next((k for c, k in _KINDS.items() if issubclass(class_, c)), None)


def _activity(place: Place, annotation: Any) -> str:
    class_ = annotation if isinstance(annotation, type) else type(annotation)
    kind = _kind(annotation)
    if kind is None:
        raise place.refuse(f"is annotated with {show(annotation)}; use Duplicated, Active or Const.")
    type_ = place.declaration.type
    if kind == "const":
        return kind
    if not any(number.is_float for number in numbers(type_.element if isinstance(type_, Pointer) else type_)):
        raise place.refuse("holds integers, which carry no gradient; it is Const.", ShadowError)
    if (kind == "active") == isinstance(type_, Pointer):
        raise place.refuse(f"takes {'Duplicated' if isinstance(type_, Pointer) else 'Active'}, not {class_.__name__}.", ShadowError)
    return kind


# --- geometry ------------------------------------------------------------------------------------------------------------------------


def geometry(grid: Extents, block: Extents) -> tuple[Dim3, Dim3]:
    """Grid and block as three positive ints each; ints, tuples and lists of up to three are taken. As in CuPy, 1 is launched for a 0.

    Raises LaunchError for what no device can launch.
    """
    blocks, threads = _dim3("grid", grid), _dim3("block", block)
    total = math.prod(threads)
    if total > MAX_THREADS or any(t > limit for t, limit in zip(threads, MAX_BLOCK, strict=True)):
        swapped = (
            total > math.prod(blocks) > 1
            and math.prod(blocks) <= MAX_THREADS
            and all(b <= limit for b, limit in zip(blocks, MAX_BLOCK, strict=True))
        )
        hint = f" Are grid and block swapped? The grid given is {blocks}." if swapped else ""
        limits = f"the limit is {MAX_THREADS}, and {MAX_BLOCK} along the axes"
        raise LaunchError(f"a block of {threads} has {total} threads; {limits}.{hint} Nothing was launched.")
    if any(b > limit for b, limit in zip(blocks, MAX_GRID, strict=True)):
        raise LaunchError(f"a grid of {blocks} is beyond the limit {MAX_GRID}. Nothing was launched.")
    return blocks, threads


def check_launch(kernel: str, shared_mem: Any, stream: Any) -> None:
    """Refuses what is no number of bytes, and what is no stream."""
    if (index(shared_mem) if type(shared_mem) is not int else shared_mem) is None or shared_mem < 0:
        raise LaunchError(f"`{kernel}`: `shared_mem` is a number of bytes, 0 or more, not {show(shared_mem)}. Nothing was launched.")
    if stream is not None and not hasattr(stream, "ptr"):
        raise LaunchError(f"`{kernel}`: `stream` is a stream of CuPy's or None, not {show(stream)}. Nothing was launched.")


def _dim3(what: str, given: Any) -> Dim3:
    parts = tuple(given) if isinstance(given, tuple | list) else (given,)
    if not 1 <= len(parts) <= 3:
        raise LaunchError(f"the {what} has one to three numbers, got {show(given)}.")
    numbers = tuple(n for n in map(index, parts) if n is not None)
    if len(numbers) < len(parts):
        raise LaunchError(f"the {what} {show(given)} is not made of whole numbers; a number of blocks is -(-n // 256), not n / 256.")
    if min(numbers) < 0:
        raise LaunchError(f"the {what} {show(given)} has a negative number. Nothing was launched.")
    x, y, z = (max(n, 1) for n in (*numbers, 1, 1)[:3])
    return x, y, z
