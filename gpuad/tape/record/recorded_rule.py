"""A recorded call of a rule: its arrays with their shadows, and what its reverse is called with.

In: operands that were checked (`rule_calls`). Out: the action that reverses the call, on versions that a finder puts together. Assumed: the
reverse was declared with names that have a meaning (`rule_declaration`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ... import pipeline
from ...arguments.annotations import Active
from ...arguments.arrays import namespace, resolve
from ...errors import TapeError
from ...ir.dtypes import is_real
from ...program.ir.region import Region
from ...runtime.actions import Action, ByPython, clearing
from ...runtime.base import Memory
from ...runtime.tensor_versions import count_writes
from ..memory.arena import Arena
from ..memory.version_finder import VersionFinder
from ..memory.versions import Allocation
from .operations import Effects, Use
from .rule_checks import compare, mapped, marks, parameter_of, read_only, run
from .rule_declaration import ROOM, Declared, Effect


@dataclass(frozen=True, eq=False)
class Operand:
    """An array of a call, with its shadow if it has one, and the region that the rule touches."""

    name: str
    array: Any
    shadow: Any
    stopped: bool
    dropped: bool  # Const: gradients into it are dropped on purpose
    use: Use
    memory: Memory
    extent: Region  # of all the array, of which the rule may touch less

    @property
    def floats(self) -> bool:
        """Whether it could carry a gradient."""
        return self.array.dtype.kind == "c" or is_real(self.array.dtype)


@dataclass(frozen=True, eq=False)
class Ruled:
    """A recorded rule. `needs`: for each array that the reverse reads the use that says in which version."""

    name: str
    where: str
    effects: Effects
    rule: Declared
    operands: Mapping[str, Operand]
    actives: Mapping[str, Active]
    values: Mapping[str, Any]
    needs: Mapping[str, Use]
    effect: Effect  # of this call: what is constant is read

    def reverse(self, finder: VersionFinder) -> list[Action]:
        """What clears the shadows of what was overwritten, and calls the rule's reverse; `finder` puts the versions together before."""
        versions = {name: self._version(name, finder) for name in self.needs if parameter_of(name) in self.rule.wanted}
        arena, place = finder.transient, finder.transient.here()
        ordered = self.rule.deterministic if pipeline.in_fixed_point() else None
        reverse = ordered or self.rule.reverse
        call = _Reversed(self, reverse) if self.rule.opaque and reverse is not None else reverse

        names = (*self.operands, *self.actives)
        shadows = [shadow for name in names if (shadow := self.shadow_of(name)) is not None]

        def run() -> None:
            arena.back_to(place)
            try:
                moved = {n: self._taken(n, arena) for n in self.effect.overwrites if n in self.operands}
                if call is not None and self.flows:
                    call(**{name: self._argument(name, versions, moved, arena) for name in self.rule.wanted})
            finally:
                count_writes(shadows)

        why = self.rule.opaque or ("it looks at values to add them in order" if ordered else "")
        in_place = self._cleared_after()
        if in_place is None:
            return [ByPython(run, self.name, self.where, why)]
        cleared = [clearing(shadow) for shadow in in_place.values() if shadow is not None]
        if reverse is None or not self.flows:
            return list(cleared)
        given = {name: self._argument(name, versions, in_place, arena) for name in self.rule.wanted}
        return [ByPython(_reset(partial(reverse, **given), arena, place, ROOM in given), self.name, self.where, why), *cleared]

    def _cleared_after(self) -> dict[str, Any] | None:
        """The shadows of what was overwritten, where the reverse of one of the package's own rules can have them as they are, for copies,
        since they are cleared after it: it writes no other memory of theirs. None where it takes copies."""
        if self.rule.opaque or self.rule.joint:
            return None
        shadows = {n: self.operands[n].shadow for n in self.effect.overwrites if n in self.operands}
        free = all(n not in self.effect.reads and (s is None or s.flags.c_contiguous) for n, s in shadows.items())
        return shadows if free else None

    def shadow_of(self, name: str) -> Any:
        """The shadow of an array argument or of an Active number, or None."""
        if name in self.actives:
            return self.actives[name].shadow
        return self.operands[name].shadow if name in self.operands else None

    def _taken(self, name: str, arena: Arena) -> Any:
        shadow = self.operands[name].shadow
        if shadow is None:
            return None
        copy = arena.room(shadow.shape, shadow.dtype)
        copy[...] = shadow
        shadow[...] = 0
        return copy

    @property
    def flows(self) -> bool:
        """Whether the reverse has anything to do."""
        if self.rule.joint:
            return True
        written = [n for n in self.effect.writes if n in self.operands and self.operands[n].shadow is not None]
        return bool(written and self.varied) or any(n in written for n in self.effect.sets)

    @property
    def varied(self) -> list[str]:
        """Inputs that carry a gradient."""
        return [n for n in self.effect.reads if n in self.actives or (n in self.operands and self.operands[n].shadow is not None)]

    def meaning(self, name: str) -> tuple[str, Any]:
        """What a parameter of the reverse stands for: ('version', array), ('moved', name), ('shadow', array), ('value', anything), ('room',
        None), or ('none', None)."""
        if name in self.needs:
            return "version", self.operands[name].array
        if name in self.operands:
            return "none", None  # only needed for the gradient of something that is not active here
        if name == ROOM:
            return "room", None
        if name in self.values:
            return "value", self.values[name]
        core = name.removeprefix("d")
        if core in self.effect.overwrites and core in self.operands:
            return ("moved", core) if self.shadow_of(core) is not None else ("none", None)
        shadow = self.shadow_of(core if core in self.effect.arrays else core.removesuffix("_before"))
        return ("shadow", shadow) if shadow is not None else ("none", None)

    def _version(self, name: str, finder: VersionFinder) -> Any:
        array, like = self.operands[name].array, resolve(self.operands[name].array)
        memory = finder.memory(self.needs[name], like, own=False)
        if name not in self.rule.effect.arrays and memory is like:
            return array
        if name not in self.rule.effect.arrays and type(array) not in (np.ndarray, np.memmap, getattr(namespace(array), "ndarray", None)):
            raise TapeError(
                f"`{name}` of {self.name} ({self.where}), a {type(array).__name__}, was overwritten later in the recording, and the "
                "reverse needs it as it was: pass a plain array. No shadow was touched."
            )
        return view_in(memory, array)

    def _argument(self, name: str, versions: Mapping[str, Any], moved: Mapping[str, Any], arena: Arena) -> Any:
        kind, value = self.meaning(name)
        if kind == "version":
            return versions[name]
        if kind == "value":
            return mapped(value, name, lambda part, x: versions.get(part, x))
        if kind == "moved":
            return moved[value]
        return arena.room if kind == "room" else value

    def read_only(self, name: str) -> bool:
        """Whether a parameter of the reverse is to be read only: anything but shadows, and of them those of what is added to."""
        if self.meaning(name)[0] in ("version", "value"):
            return True
        return self.meaning(name)[0] == "shadow" and name.removeprefix("d") in self.effect.adds

    def line(self) -> str:
        """The call of the reverse."""
        names = self.rule.wanted
        called = self.rule.reverse.__name__ if self.rule.reverse else "clear"
        return f"{called}({', '.join(names)})  # {self.where}: {self.name}"

    def read_bare(self) -> list[tuple[Allocation, Region]]:
        """What was read without a shadow, for inactive."""
        read = (self.operands[n] for n in self.effect.reads if n in self.operands)
        return [(o.use.allocation, o.use.region) for o in read if o.shadow is None and not o.stopped]

    def written_bare(self) -> list[tuple[Allocation, Region, bool]]:
        """What was written without a shadow, and whether with values that depend on active data."""
        written = (self.operands[n] for n in self.effect.writes if n in self.operands)
        return [(o.use.allocation, o.use.region, bool(self.varied)) for o in written if o.shadow is None]


def _reset(call: Callable[[], Any], arena: Arena, place: tuple[int, int], takes_room: bool) -> Callable[[], None]:
    """A call that may take room behind a place."""
    if not takes_room:
        return call

    def run() -> None:
        arena.back_to(place)
        call()

    return run


def view_in(memory: Memory, like: Any) -> Any:
    """An array laid out like another, in other memory."""
    if isinstance(like, np.ndarray):
        size, whole = like.dtype.itemsize, memory.root
        assert isinstance(whole, np.ndarray)
        return np.ndarray(like.shape, like.dtype, whole, memory.offset * size, like.strides) if like.size else like
    strided = namespace(like).lib.stride_tricks.as_strided
    return strided(memory.root[memory.offset :], like.shape, like.strides) if like.size else like


class _Reversed:
    """Runs a reverse of the caller's; `looks` as before."""

    def __init__(self, operation: Ruled, reverse: Callable[..., Any]) -> None:
        self.operation, self.reverse, self.looks = operation, reverse, True

    def __call__(self, **given: Any) -> None:
        what = f"the reverse of {self.operation.name} ({self.operation.where})"
        kept = {n: x for n, x in given.items() if self.operation.read_only(n)}
        flat: dict[str, Any] = {}
        for n, x in kept.items():
            mapped(x, n, flat.__setitem__)
        before = marks(flat) if self.looks else []
        locked = {n: mapped(x, n, lambda _, part: read_only(part)) for n, x in kept.items()}
        if run(self.reverse, {**given, **locked}, what, _ADDS) is not None:
            raise TapeError(f"{what} returns something, which is not used: {_ADDS}, in place (`dx += ...`), and returns nothing")
        compare(before, what, _ADDS)
        self.looks = False


_ADDS = "it adds to the shadows of what the rule reads, and clears what it sets"
