"""A recorded program beside a framework: it comes again on the same arrays, so that its tape knows it, whatever the framework's memory.

A `Session` is a tape with arrays of the program's own, which the framework's are copied into and out of; one that waits for its reverse is
in use, and a further call gets another. `Running` and `Pushing` run a program without a tape: as it is, and with tangents."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from ..api import FlatArguments, Kernel, push_forward
from ..arguments.annotations import Active, Const, Duplicated
from ..arguments.recorder import unrecorded
from ..errors import LaunchError
from ..ir.dtypes import is_half
from ..runtime.array_types import Extents, NdArray
from ..tape.facade import Tape, recording_of
from ..tape.rule_tangents import push_rule

Program = Callable[..., Any]


class Session:
    """A tape, and what the program is given: pairs, arrays, None for what comes with each call. `outputs`: pairs, of the last recording."""

    def __init__(self, given: Sequence[Any], budget: int | float | str | None) -> None:
        self.tape, self.given = Tape(budget=budget), list(given)
        self.outputs: tuple[Duplicated, ...] = ()

    def record(self, fn: Program, args: Sequence[Any]) -> tuple[Duplicated, ...]:
        """Records the program on what its arrays hold; `args`: of the call, for what is not one of them."""
        with self.tape:
            found = fn(*(x if own is None else own for own, x in zip(self.given, args, strict=True)))
        self.outputs = outputs_of(fn, found)
        return self.outputs

    def reverse(self, seeds: Sequence[Any]) -> None:
        """Pulls seeds back, arrays for the outputs or None, into the shadows of what was given."""
        for pair in self.given:
            if isinstance(pair, Duplicated) and pair.has_shadow:
                pair.shadow.fill(0)
        merged: dict[Duplicated, Any] = {}  # of a pair that is returned several times the sum
        still: list[tuple[Duplicated, Any]] = []  # of what the program has never met, the gradient
        for pair, seed in zip(self.outputs, seeds, strict=True):
            if seed is None or not seed.size:
                continue
            whole = seed.astype("float32") if is_half(seed.dtype) else seed
            if not recording_of(self.tape).knows_pair(pair):
                still.append((pair, whole))
            else:
                merged[pair] = merged[pair] + whole if pair in merged else whole
        self.tape.reverse(merged, allow_unused=True)
        for pair, seed in still:
            pair.shadow[...] += seed


def outputs_of(fn: Program, found: Any) -> tuple[Duplicated, ...]:
    """What a program returns: a pair or a tuple of pairs. Raises LaunchError for anything else."""
    outputs = found if isinstance(found, tuple) else (found,)
    for pair in outputs:
        if not isinstance(pair, Duplicated):
            raise LaunchError(
                f"`{fn.__name__}` returned {type(pair).__name__}; a program returns its outputs as the pairs that it works on"
            )
    return outputs


class Running:
    """A recorder that runs what it is told of and keeps nothing."""

    learns = False
    awaited: Any = None

    def __init__(self) -> None:
        self.words: dict[Any, Any] = {}

    def launch(self, kernel: Kernel, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int, stream: Any) -> None:
        """Makes a launch."""
        with unrecorded():
            plain = (FlatArguments if type(args) is FlatArguments else tuple)(map(_plain, args))
            kernel(grid, block, plain, shared_mem=shared_mem, stream=stream)

    def decided(self, name: str) -> None:
        """Nothing is repeated."""

    def rule(self, rule: Any, arguments: Mapping[str, Any], regions: Mapping[str, Any]) -> None:
        """Runs a rule."""
        with unrecorded():
            rule(**{name: _plain(x) for name, x in arguments.items()})

    def new(self, library: Any, shape: tuple[int, ...], dtype: Any, active: bool) -> Any:
        """An array for an operation that makes one."""
        return library.empty(shape, dtype)

    def as_known(self, x: Any) -> Any:
        """An argument as it is."""
        return x

    def maker(self, array: NdArray) -> None:
        """Nothing is known of one."""

    def view_of(self, pair: Any, key: Hashable, make: Callable[[], Any]) -> Any:
        """The view of a pair: a new one."""
        return make()

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any], by_content: bool = False) -> Any:
        """The result of a function: it is called."""
        return function(*args, **keywords)

    def make_again(self) -> bool:
        """None is made again."""
        return False


class Pushing(Running):
    """A recorder that pushes tangents, which the shadows hold, through every launch."""

    def launch(self, kernel: Kernel, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int, stream: Any) -> None:
        """Makes a launch, with tangents where it has shadows."""
        if not any(isinstance(x, Duplicated | Active) for x in args):
            super().launch(kernel, grid, block, args, shared_mem, stream)
            return
        with unrecorded():
            push_forward(kernel, grid, block, args, shared_mem)

    def rule(self, rule: Any, arguments: Mapping[str, Any], regions: Mapping[str, Any]) -> None:
        """Runs a rule, and pushes the tangents of its arguments through it."""
        if any(isinstance(x, Duplicated | Active) for x in arguments.values()):
            push_rule(rule, arguments)
            return
        super().rule(rule, arguments, regions)


def _plain(x: Any) -> Any:
    return x.value if isinstance(x, Active) else x.primal if isinstance(x, Duplicated | Const) else x
