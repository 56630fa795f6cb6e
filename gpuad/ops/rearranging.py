"""Functions that put elements elsewhere: tiles, repeats, borders, triangles, stacks. The array library says itself what goes where.

In: what its function of that name takes, with pairs among the data. Its own function is called on whole numbers that stand for the
elements, so the result says where each element comes from, whatever the arguments mean; and on zeros, which gives the shape, the type and
what is constant. Out: a new array, a pair; each element of the result's gradient goes to the element that it came from, and adds up where
that has come more than once.

Raises what the library raises, as an ArgumentError, and TapeError for a pair outside of a tape."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arguments.annotations import BatchDuplicated, Duplicated
from ..arguments.arrays import is_array
from ..arguments.layouts import repeats
from ..errors import ArgumentTypeError, UnsupportedError
from ..tape.rules import rule
from .adjoints import library_of, part_for
from .elementwise import apply, as_pair, check_out, check_recorded, copied
from .indexing import add_at, offsets, place_of_elements, take_elements
from .layout import primal_of
from .plain_results import bare, library_behind
from .reductions import result_for
from .views import view


def _placed_reverse(dx: Any, dy: Any, source: Any, target: Any) -> None:
    flat = dy.reshape(-1)
    if dx is not None:
        add_at(*place_of_elements(dx, source), part_for(dx, flat[target]))
    flat[target] = 0


@rule(reads=("x",), sets=("y",), reverse=_placed_reverse, linear=(("x",),))
def _placed(x: Any, y: Any, source: Any, target: Any) -> None:
    memory, places = place_of_elements(x, source)
    y.reshape(-1)[target] = memory[places]


@dataclass(frozen=True)
class Rearrangement:
    """A function of a library: the places of its arguments that are data, whose elements are put elsewhere."""

    name: str
    data: tuple[int, ...]
    given: tuple[str, ...] = ()  # names of all arguments, of a function of CuPy's and NumPy's alike

    def function(self, library: Any) -> Any:
        """The library's function."""
        return getattr(library, self.name)

    def __call__(self, *args: Any, out: Any = None, **keywords: Any) -> Any:
        library = library_behind(args, list(keywords.values()))
        function = self.function(library)
        parts = self._arguments(function, args, keywords)
        pairs: list[Any] = []
        check_recorded(self.name, tuple(_leaves(parts)))
        if any(isinstance(x, BatchDuplicated) for x in _leaves(parts)):
            raise UnsupportedError(f"gpuad.ops.{self.name} takes arrays with one shadow, not BatchDuplicated")
        numbered = {k: _mapped(x, lambda p: self._numbers(library, p, pairs)) if self._is_data(k) else bare(x) for k, x in parts.items()}
        empty = {k: _mapped(x, lambda p: _zeros(library, p)) if self._is_data(k) else bare(x) for k, x in parts.items()}
        where, base = self._called(function, numbered), self._called(function, empty)
        if not is_array(where):
            raise UnsupportedError(f"{self.name} that gives several arrays is not recorded")
        if not pairs:
            return base if out is None else _into(base, out)
        return self._result(where, base, pairs, out)

    def _arguments(self, function: Any, args: Sequence[Any], keywords: Any) -> dict[Any, Any]:
        """All arguments: by place those that came so, by name the others."""
        if len(args) <= max(self.data, default=0):
            names = self.given or tuple(inspect.signature(function).parameters)
            held = {k: keywords[names[k]] for k in range(len(args), len(names)) if names[k] in keywords}
            moved = [held.get(k) for k in range(len(args), max(held, default=-1) + 1)]
            if len(held) == len(moved):
                args, keywords = (*args, *moved), {k: v for k, v in keywords.items() if k not in [names[i] for i in held]}
        return dict(enumerate(args)) | dict(keywords)

    def _is_data(self, key: Any) -> bool:
        return key in self.data

    def _called(self, function: Any, parts: dict[Any, Any]) -> Any:
        places = [k for k in parts if isinstance(k, int)]
        return function(*(parts[k] for k in sorted(places)), **{k: v for k, v in parts.items() if isinstance(k, str)})

    def _numbers(self, library: Any, x: Any, pairs: list[Any]) -> Any:
        """Whole numbers for the elements of a pair, after those of the pairs before; 0 for what is no pair."""
        if not isinstance(x, Duplicated):
            return library.zeros(np.shape(bare(x)), np.int64) if is_array(x) or np.ndim(x) else np.int64(0)
        first = 1 + sum(pair.size for pair in pairs)
        pairs.append(x)
        return library.arange(first, first + x.size, dtype=np.int64).reshape(x.shape)

    def _result(self, where: Any, base: Any, pairs: list[Any], out: Any) -> Any:
        result = result_for(tuple(pairs), tuple(where.shape), base.dtype)
        if out is not None:
            check_out(self.name, out, where.shape, base.dtype)
        first, flat = 1, where.reshape(-1)
        ends = [first := first + pair.size for pair in pairs]
        whole = len(pairs) == 1 and bool((where > 0).all())
        if not whole:
            apply("copyto", base, out=result)
        for pair, end in zip(pairs, ends, strict=True):
            x = copied(pair) if repeats(pair.primal) else pair
            primal, begin = primal_of(x), end - pair.size
            dense = primal if primal.ndim else primal[None]
            inside = flat if whole else flat[(flat >= begin) & (flat < end)]
            if not inside.size:
                continue
            source = offsets(dense, library_of(primal).unravel_index(inside - begin, dense.shape))
            if whole:
                take_elements(x, result, source.reshape(where.shape))
            else:
                target = library_of(primal).nonzero((flat >= begin) & (flat < end))[0]
                _placed(x, result, source, target)
        return result if out is None else _into(result, out)


def _into(result: Any, out: Any) -> Any:
    apply("copyto", result, out=out)
    return out


def _leaves(x: Any) -> list[Any]:
    if isinstance(x, dict):
        x = list(x.values())
    return [leaf for part in x for leaf in _leaves(part)] if type(x) in (list, tuple) else [x]


def _mapped(x: Any, make: Callable[[Any], Any]) -> Any:
    return type(x)(_mapped(part, make) for part in x) if type(x) in (list, tuple) else make(as_pair(x))


def _zeros(library: Any, x: Any) -> Any:
    """What of an operand is constant: a pair's elements are not."""
    return library.zeros(x.shape, x.dtype) if isinstance(x, Duplicated) else bare(x)


_DATA: dict[str, tuple[int, ...]] = {
    "block": (0,), "choose": (1,), "compress": (1,), "delete": (0,), "extract": (1,), "insert": (0, 2),
    "repeat": (0,), "resize": (0,), "take_along_axis": (0,),
}  # fmt: skip
TABLE: dict[str, Callable[..., Any]] = {name: Rearrangement(name, data) for name, data in _DATA.items()}

_MODES = ("edge", "reflect", "symmetric", "wrap")
_edges = Rearrangement("pad", (0,))


def pad(array: Any, pad_width: Any, mode: str = "constant", **keywords: Any) -> Any:
    """The array with a border, as `numpy.pad`, in the modes 'constant', 'empty', 'edge', 'reflect' (of even kind), 'symmetric' and 'wrap'.
    UnsupportedError for others."""
    if mode in _MODES and keywords.get("reflect_type", "even") == "even":
        return _edges(array, pad_width, mode, **keywords)
    if mode not in ("constant", "empty"):
        raise UnsupportedError(
            f"gpuad.ops.pad: mode {mode!r} is not recorded; there are 'constant', 'empty', {', '.join(map(repr, _MODES))}"
        )
    check_recorded("pad", (array, keywords.get("constant_values")))
    if any(isinstance(x, Duplicated) for x in _leaves(keywords)):
        raise ArgumentTypeError("pad: constant_values carry no gradient here; write `y = np.zeros(...)`, `y[...] = value` and the inside")
    primal, library = primal_of(array), library_behind([array])
    base = library.pad(library.zeros(primal.shape, primal.dtype), pad_width, mode, **keywords)
    result = result_for((array,), tuple(base.shape), base.dtype)
    apply("copyto", base, out=result)
    widths = (
        [pad_width.get(k, pad_width.get(k - primal.ndim, (0, 0))) for k in range(primal.ndim)] if isinstance(pad_width, dict) else pad_width
    )
    before = np.broadcast_to(np.asarray(widths), (primal.ndim, 2))[:, 0]
    inside = tuple(slice(int(low), int(low) + n) for low, n in zip(before, primal.shape, strict=True))
    apply("copyto", array, out=view(result, lambda a: a[(*inside, ...)]))
    return result


TABLE["pad"] = pad
