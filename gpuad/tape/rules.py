"""Rules: array code that gpuad does not differentiate itself, stated by what it does to memory and by a reverse of its own.

    def scale_reverse(x, da, dx, dy):
        dx += ...

    @gpuad.rule(reads=("x",), overwrites=("y",), needs={"x": "before"}, reverse=scale_reverse)
    def scale(x, y): ...

A rule never copies or keeps anything: it says which arrays its reverse reads, and in which version; the tape, which sees the whole program,
hands them over. Arguments reach both functions as plain arrays and numbers. The reverse is a module-level function; what it is called with
goes by the names of its parameters, for an array or Active number `x` of the rule:

* `x`: the version of the array that `needs` names (None where only gradients that nobody asked for need it), or the value of an argument
  that is no array;
* `dx`: where `x` is read, its shadow, to be added to; where it is added to, its shadow, to be read only; where some elements are set, its
  shadow, of which the reverse has to read these elements and then clear them; where it is overwritten, what the shadow held, moved to
  memory of the reverse's own: the shadow itself is cleared by then;
* `dx_before`: where `x` is both read and overwritten, the cleared shadow, to be added to;
* `room`: `room(shape, dtype)` gives an array, not cleared, in memory of the tape, that may be used until the function returns. The rule's
  own function may have it as a last parameter too, `room=None`. A rule that takes its intermediates from there allocates nothing when a
  program runs again.

What has no shadow comes as None. An array that is in none of the lists is a constant: it is read, carries no gradient, and the reverse gets
it as it was at the call. So are arrays in tuples, lists and dicts that are passed. What is in other objects nobody may change later. What
the function does, be it launches of gpuad's kernels on the plain arrays, is the rule's own affair and is not recorded.

What is declared is checked (`declared`): arrays that a function may only read it gets as read-only views, of NumPy arrays; CuPy's are
compared, before and after, where a call is recorded and not repeated, and where a reverse runs for the first time. With `check="exact"` all
are compared, at each call. A reverse returns nothing, and binds no shadow anew. `gpuad.testing.check_rule` checks the rest by running it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, update_wrapper
from typing import Any

import numpy as np

from .. import pipeline
from ..arguments.aliasing import hull, overlap
from ..arguments.aliasing import region as place
from ..arguments.annotations import Active, BatchDuplicated, Const, Duplicated, Stopped, address, as_array, leaf_memory, namespace, resolve
from ..arguments.deferred_clearing import deferred_at
from ..arguments.layouts import layout, repeats
from ..arguments.recorder import current
from ..errors import GpuadError, LaunchError, ShadowError, TapeError
from ..ir.dtypes import is_real
from ..runtime.actions import Action, ByPython
from ..runtime.array_locks import writeable
from ..runtime.base import Memory
from .arena import Arena
from .declarations import compare, is_constant, lost_binding, mapped, marks, parameter_of, read_only, run
from .operations import Effects, Use
from .region import Region, of_array
from .temporaries import inner
from .trace_cache import call_key, line_of, place_of, user_frame
from .trace_steps import Step
from .version_finder import VersionFinder
from .versions import Allocation

_VERSIONS = ("before", "after")
_ROOM = "room"


@dataclass(frozen=True)
class Effect:
    """What a rule does to its arguments: names of its parameters."""

    reads: tuple[str, ...]
    overwrites: tuple[str, ...]
    adds: tuple[str, ...]
    sets: tuple[str, ...]
    needs: Mapping[str, tuple[str, ...]]  # 'before' or 'after', then the parameters of which one has to be active for the need to exist

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """All parameters that the rule may write."""
        return (*self.overwrites, *self.adds, *self.sets)

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """All parameters that are arrays (or Active numbers that are read)."""
        return tuple(dict.fromkeys((*self.reads, *self.writes)))


def rule(
    *,
    reads: Sequence[str] = (),
    overwrites: Sequence[str] = (),
    adds: Sequence[str] = (),
    sets: Sequence[str] = (),
    needs: Mapping[str, str | tuple[str, ...]] | None = None,
    reverse: Callable[..., None] | None = None,
    pure: bool = False,
) -> Callable[[Callable[..., Any]], Rule]:
    """Makes a recorded operation of a Python function on arrays.

    `reads`, `overwrites`, `adds`, `sets`: names of parameters that are arrays (a number that may be Active is read). Every element of an
    overwritten one gets a new value, in one that is added to any element may grow, of one in `sets` some elements get new values. An array
    may be read and overwritten; it has one of the other three at most.
    `needs`: {parameter: 'before' or 'after'} for the arrays that the reverse reads; ('before', 'b', 'c') if only for the gradient of b
    or c.
    `reverse`: a module-level function, whose parameters the text of gpuad/tape/rules.py explains. It may also be set later:
    `f.reverse = function`.
    `pure`: whether what the function writes hangs on its arguments and what its arrays hold, and on nothing else, and it does nothing but
    write it: a tape with a budget may call it again then (where it is not, what it wrote is kept).
    Raises TypeError for names that do not fit.
    """
    stated = {k: (v,) if isinstance(v, str) else tuple(v) for k, v in (needs or {}).items()}
    effect = Effect(tuple(reads), tuple(overwrites), tuple(adds), tuple(sets), stated)
    return lambda function: Rule(function, effect, reverse, pure)


class Rule:
    """A function with its effects and its reverse. Called outside of a tape on plain arrays it is the function."""

    def __init__(self, function: Callable[..., Any], effect: Effect, reverse: Callable[..., None] | None, pure: bool = False) -> None:
        self.function, self.effect = function, effect
        self.pure = pure or not self.opaque
        self.rooms: Callable[[Ruled], Sequence[int]] = lambda operation: [int(o.array.nbytes) for o in operation.operands.values()]
        self.name = function.__name__.strip("_")
        self.signature = inspect.signature(function)
        update_wrapper(self, function)
        _check_names(self.name, effect, tuple(self.signature.parameters))
        self._reverse: Callable[..., None] | None = None
        self.wanted: tuple[str, ...] = ()  # the names of the reverse's parameters
        self.deterministic: Callable[..., None] | None = (
            None  # takes the reverse's place where sums must not depend on the order of threads
        )
        if reverse is not None:
            self.reverse = reverse

    @property
    def opaque(self) -> str:
        """Why a graph on a GPU cannot repeat it; empty for the package's own, which only enqueue array operations."""
        own = self.function.__module__.startswith(f"{__package__.partition('.')[0]}.ops.")
        return "" if own else "it is a rule, whose function may do anything"

    @property
    def reverse(self) -> Callable[..., None] | None:
        """The reverse: a module-level function."""
        return self._reverse

    @reverse.setter
    def reverse(self, function: Callable[..., None]) -> None:
        if "<" in getattr(function, "__qualname__", "<") or getattr(function, "__closure__", None):
            raise TypeError(f"rule {self.name}: the reverse must be a module-level function, so that a tape can be stored")
        wanted = tuple(inspect.signature(function).parameters)
        for name in wanted:
            _check_parameter(self.name, self.effect, tuple(self.signature.parameters), name)
        added = [
            n for n in wanted if n not in self.signature.parameters and n.removesuffix("_before").removeprefix("d") in self.effect.reads
        ]
        lost = lost_binding(function, added) if self.opaque else None
        if lost is not None:
            raise TypeError(
                f"rule {self.name}: its reverse binds `{lost}` anew, so the gradient is lost: add to the array in place (`{lost} += ...`)"
            )
        self._reverse, self.wanted = function, wanted

    def __call__(self, *args: Any, **keywords: Any) -> None:
        given = self.signature.bind(*args, **keywords)
        given.apply_defaults()
        tape: Any = current.get()
        if tape is not None:
            _record(self, given.arguments, tape, {})
            return
        if any(isinstance(x, Duplicated | Active) for x in given.arguments.values()):
            raise TapeError(f"{self.name} on a Duplicated outside of a tape is not recorded: enter one (`with tape:`), or pass `.primal`")
        values = {k: _plain(x) for k, x in given.arguments.items()}
        if _ROOM in values:
            values[_ROOM] = partial(_new_room, next(x for x in values.values() if _is_array(x)))
        self.function(**values)

    def within(self, regions: Mapping[str, Region], *args: Any) -> None:
        """As a call, where it is known that less of some arrays is touched: bytes of their allocations."""
        tape: Any = current.get()
        if tape is None:
            self(*args)
        else:
            _record(self, self.signature.bind(*args).arguments, tape, regions)


def _check_names(name: str, effect: Effect, parameters: Sequence[str]) -> None:
    for p in (*effect.arrays, *effect.needs, *(c for n in effect.needs.values() for c in n[1:])):
        if p not in parameters:
            raise TypeError(f"rule {name} has no parameter {p!r}; it has {', '.join(parameters)}")
    written = [*effect.writes, *(p for p in effect.reads if p in (*effect.adds, *effect.sets))]
    if len(set(written)) < len(written):
        raise TypeError(f"rule {name}: an array is overwritten, added to or set, and only an overwritten one may be listed in reads too")
    for p, need in effect.needs.items():
        if p not in effect.arrays or need[0] not in _VERSIONS:
            raise TypeError(f"rule {name}: needs are {{array: 'before' or 'after'}}, got {p!r}: {need[0]!r}")


def _check_parameter(name: str, effect: Effect, parameters: Sequence[str], wanted: str) -> None:
    """A parameter of a reverse must have a meaning."""
    if wanted in effect.writes and wanted not in effect.needs:
        raise TypeError(f"rule {name}: its reverse takes {wanted!r}, which the rule writes: state the version in needs")
    if wanted == _ROOM or wanted in parameters or wanted.removeprefix("d") in effect.arrays:
        return
    core = wanted.removeprefix("d").removesuffix("_before")
    if core in effect.reads and core in effect.overwrites:
        return
    raise TypeError(f"rule {name}: its reverse takes {wanted!r}, which is nothing that the rule knows")


def _plain(x: Any) -> Any:
    """What the function is called with; a number that sits in an array is copied, since it may be changed later."""
    if isinstance(x, Active):
        return x.value.item() if isinstance(x.value, np.ndarray) else x.value
    return x.primal if isinstance(x, Duplicated | Const) else x


def _new_room(like: Any, shape: Any, dtype: Any) -> Any:
    return namespace(like).empty(shape, dtype)


# --- recording -----------------------------------------------------------------------------------------------------------------------


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
    rule: Rule
    operands: Mapping[str, Operand]
    actives: Mapping[str, Active]
    values: Mapping[str, Any]
    needs: Mapping[str, Use]
    effect: Effect  # of this call: what is constant is read

    def reverse(self, finder: VersionFinder) -> Action:
        """What clears the shadows of what was overwritten, and calls the rule's reverse; `finder` puts the versions together before."""
        versions = {name: self._version(name, finder) for name in self.needs if parameter_of(name) in self.rule.wanted}
        arena, place = finder.transient, finder.transient.here()
        ordered = self.rule.deterministic if pipeline.in_fixed_point() else None
        reverse = ordered or self.rule.reverse
        call = _Reversed(self, reverse) if self.rule.opaque and reverse is not None else reverse

        def run() -> None:
            arena.back_to(place)
            moved = {n: self._taken(n, arena) for n in self.effect.overwrites if n in self.operands}
            if call is not None and self.flows:
                call(**{name: self._argument(name, versions, moved, arena) for name in self.rule.wanted})

        return ByPython(run, self.name, self.where, self.rule.opaque or ("it looks at values to add them in order" if ordered else ""))

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
        if name == _ROOM:
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

    def with_new_shadows(self, tape: Any) -> Ruled:
        """This operation, now that memory which it wrote is known to have a shadow: its reverse clears it."""
        found = dict(self.operands)
        for n in self.effect.writes:
            o = found.get(n)
            if o is not None and o.shadow is None:
                found[n] = replace(o, shadow=_known_shadow(self.rule, self.effect, n, o.array, o.use, tape))
        return replace(self, operands=found)


def view_in(memory: Memory, like: Any) -> Any:
    """An array laid out like another, in other memory."""
    if isinstance(like, np.ndarray):
        size = like.dtype.itemsize
        return np.ndarray(like.shape, like.dtype, memory.root, memory.offset * size, like.strides) if like.size else like
    strided = namespace(like).lib.stride_tricks.as_strided
    return strided(memory.root[memory.offset :], like.shape, like.strides) if like.size else like


@dataclass(frozen=True, eq=False)
class _Known:
    """A call that was checked in this `recording`, as it may be made again; see `recipe.Recipe`."""

    operation: Ruled
    library: str
    arguments: tuple[Any, ...]
    bare: bool
    recording: Any
    pairs: int
    arrays: tuple[Any, ...]
    layouts: list[Any]


@dataclass(eq=False, slots=True)
class RuleStep(Step):
    """A call of a rule, as a program that repeats itself makes it again."""

    names: tuple[str, ...]
    regions: Mapping[str, Region]

    def again(self, tape: Any) -> None:
        """Records the call once more."""
        _recorded(self, tape)


def _record(rule: Rule, arguments: Mapping[str, Any], tape: Any, regions: Mapping[str, Region]) -> None:
    """Hands a call to the tape, which may know it from the last time."""
    given = tuple(inner(x, tape) for x in arguments.values())
    if tape.repeats(rule, given, regions):
        return
    frame = user_frame()
    try:
        _recorded(RuleStep(rule, given, line_of(frame), place_of(frame), tuple(arguments), regions), tape)
    except BaseException:
        tape.unknown()
        raise


def _recorded(step: RuleStep, tape: Any) -> None:
    """Checks a call, unless it was made before in the same words, and records it."""
    rule, given, regions = step.what, step.args, step.regions
    fixed = not regions and not any(isinstance(x, Active | list | dict | set) for x in given)
    key = call_key(rule, None, None, given, 0, None, step.line) if fixed else None
    known = tape.recipes.get(key) if key is not None else None
    if known is None or not tape.holds(known):
        operation, library = _checked(rule, dict(zip(step.names, given, strict=True)), tape, regions, step.where)
        bare = any(o.shadow is None and o.floats for o in operation.operands.values())
        arrays = _arrays(operation)
        known = _Known(operation, library, given, bare, tape.shadows, tape.shadows.count, arrays, list(map(layout, arrays)))
        if key is not None:
            tape.recipes[key] = known
    step.arrays = known.arrays
    tape.record(known.operation, _Run(known.operation, tape), known.library, step)


def _arrays(operation: Ruled) -> tuple[Any, ...]:
    """Whose memory a call works on."""
    operands = operation.operands.values()
    actives = [x.shadow for x in operation.actives.values()]
    return (*(o.array for o in operands), *(o.shadow for o in operands if o.shadow is not None), *actives)


def _checked(rule: Rule, arguments: Mapping[str, Any], tape: Any, regions: Mapping[str, Region], where: str) -> tuple[Ruled, str]:
    """A call as an operation of the tape, and the library of its arrays."""
    if any(isinstance(x, BatchDuplicated) for x in arguments.values()):
        raise GpuadError(f"{rule.name}: rules take one shadow an array; BatchDuplicated is for kernels and elementwise operations")
    _refuse_dropped(rule, arguments)
    constants = _constants(rule, arguments) if rule.opaque else {}
    effect = _with_constants(rule, constants)
    given = {**arguments, **constants}
    operands = {n: _operand(rule, effect, n, given[n], tape, regions.get(n)) for n in effect.arrays if _is_array(given[n])}
    actives = {n: x for n, x in arguments.items() if isinstance(x, Active)}
    values = {n: mapped(_plain(x), n, lambda _, part: part) for n, x in arguments.items()}  # lists may be changed later
    for n, x in actives.items():
        _note_number(rule, n, x, tape)
    _check_disjoint(rule, operands)
    draft = Ruled(rule.name, where, Effects(), rule, operands, actives, values, {}, effect)
    _check_flow(rule, draft)
    for n, o in operands.items():
        if o.shadow is not None:
            tape.adopt(o.use.allocation, o.extent, o.memory, leaf_memory(o.shadow), n)
            tape.note_array(given[n])
            _show(rule, o.shadow)
    needs = _needs(draft)
    effects = Effects(
        tuple(operands[n].use for n in effect.writes if n in operands),
        tuple(use for n, use in needs.items() if effect.needs[n][0] == "before"),
        tuple(use for n, use in needs.items() if effect.needs[n][0] == "after"),
    )
    library = next((namespace(o.array).__name__ for o in operands.values()), "numpy")
    return replace(draft, effects=effects, needs=needs), library


def _show(rule: Rule, shadow: Any) -> None:
    """The caller's reverse gets the shadow; ours lets nobody see it."""
    deferred = deferred_at(address(leaf_memory(shadow).root)) if rule.opaque else None
    if deferred is not None:
        deferred.show()


def _opened(operation: Ruled) -> dict[str, Any]:
    """The values that the function is called with. What it writes comes as a view that stays writable while the tape has locked the
    array."""
    written = (operation.operands[n] for n in operation.rule.effect.writes if n in operation.operands)
    return {**operation.values, **{o.name: _open_view(o.array) for o in written if isinstance(o.array, np.ndarray)}}


def _open_view(array: Any) -> Any:
    view = view_in(resolve(array), array)
    return view if type(view) is type(array) else view.view(type(array))


class _Run:
    """Runs the function of a recorded call. `looks`: whether arrays that cannot be locked are compared before and after."""

    def __init__(self, operation: Ruled, tape: Any) -> None:
        self.operation, self.tape, self.looks, self.values = operation, tape, True, _opened(operation)

    def __call__(self) -> None:
        rule, values = self.operation.rule, dict(self.values)
        if _ROOM in values:
            values[_ROOM] = self.tape.room
        if not rule.opaque:
            rule.function(**values)
            return
        what, looks, exact = f"{rule.name} ({self.operation.where})", self.looks, self.tape.exact
        operands = {n: o.array for n, o in self.operation.operands.items() if n not in rule.effect.writes}
        before = marks(operands, everything=exact) if looks or exact else []
        run(rule.function, {n: mapped(x, n, self._part) for n, x in values.items()}, what, _LISTS)
        compare(before, what, _LISTS)
        self.looks = False

    def _part(self, name: str, x: Any) -> Any:
        """What the function gets for an array, or a part of an argument."""
        handed_out = self.tape.made.handed_out(x)
        return handed_out if name in self.operation.rule.effect.writes else read_only(handed_out)


_LISTS = "what the rule writes stands in overwrites, adds or sets"


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
            raise TapeError(f"{what} returns something, which nobody takes: {_ADDS}, in place (`dx += ...`), and returns nothing")
        compare(before, what, _ADDS)
        self.looks = False


_ADDS = "it adds to the shadows of what the rule reads, and clears what it sets"


def _refuse_dropped(rule: Rule, arguments: Mapping[str, Any]) -> None:
    """A gradient is asked for by a parameter for which the rule has none."""

    def look(name: str, x: Any) -> None:
        known = name in rule.effect.arrays if isinstance(x, Duplicated) else name in rule.effect.reads
        if isinstance(x, Duplicated | BatchDuplicated | Active) and not known:
            where = f"does not list `{parameter_of(name)}` in reads" if isinstance(x, Active) else f"lists `{parameter_of(name)}` nowhere"
            raise ShadowError(
                f"`{name}` of {rule.name} is {type(x).__name__}, but the rule {where}; its gradient would be dropped. Add it to the "
                f"rule's reads, with a gradient in the reverse, or pass stop_gradient({parameter_of(name)}). Nothing was run."
            )

    for name, x in arguments.items():
        mapped(x, name, look)


def _constants(rule: Rule, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays that a call passes besides those that the rule lists, by the names of their parameters, or their places in these."""
    found: dict[str, Any] = {}

    def collect(name: str, x: Any) -> None:
        if is_constant(x.primal if isinstance(x, Const) else x):
            found[name] = x

    for name, x in arguments.items():
        if name not in rule.effect.arrays and name != _ROOM:
            mapped(x, name, collect)
    return found


def _with_constants(rule: Rule, constants: Mapping[str, Any]) -> Effect:
    """The effect of a call with such constants: they are read, and needed where the reverse takes them."""
    if not constants:
        return rule.effect
    needs = {n: ("before",) for n in constants if parameter_of(n) in rule.wanted}
    return replace(rule.effect, reads=(*rule.effect.reads, *constants), needs={**rule.effect.needs, **needs})


def _note_number(rule: Rule, name: str, x: Active, tape: Any) -> None:
    """One shadow for two values would hide that host arithmetic lies between them."""
    tape.adopt_number(resolve(x.shadow), name)
    value = np.asarray(x.value)[()]
    known = tape.actives.setdefault(address(x.shadow), value)
    if known.dtype == value.dtype and known.tobytes() != value.tobytes():
        raise ShadowError(
            f"`{name}` of {rule.name}: one shadow for two values ({known} and {value}): host arithmetic on a scalar is not recorded; give "
            "each value its own shadow"
        )


def _needs(operation: Ruled) -> dict[str, Use]:
    """What the reverse reads of the arrays, as far as gradients are asked for that need it."""
    if not operation.flows:
        return {}
    stated = operation.effect.needs
    varied = set(operation.varied)
    wanted = (n for n, need in stated.items() if n in operation.operands and (len(need) == 1 or varied & set(need[1:])))
    return {n: replace(operation.operands[n].use) for n in wanted}


def _is_array(x: Any) -> bool:
    x = x.primal if isinstance(x, Duplicated | Const) else as_array(x)
    return hasattr(x, "strides") and not isinstance(x, np.generic)


def _operand(rule: Rule, effect: Effect, name: str, x: Any, tape: Any, known: Region | None) -> Operand:
    """An array argument; a bare one that is only written takes the shadow that its memory has."""
    array = x.primal if isinstance(x, Duplicated | Const) else as_array(x)
    memory = leaf_memory(array)
    extent = of_array(array, memory.offset * int(memory.root.dtype.itemsize))
    region = known or extent
    use = Use(tape.allocation(memory), region, effect.arrays.index(name))
    use.allocation.name = name
    if tape.shadows.is_shadow(use.allocation.address, region):
        raise ShadowError(f"`{name}` of {rule.name} is the shadow of another array of this recording. Nothing was run.")
    shadow = x.own_shadow if isinstance(x, Duplicated) else None
    if shadow is not None and x.keep:
        raise ShadowError(
            f"`{name}` of {rule.name}: keep=True has no meaning inside a tape: seeds are given to reverse(). Nothing was run."
        )
    _check_operand(rule, name, array, shadow)
    if isinstance(x, Stopped) and name in effect.writes and tape.shadows.of(use.allocation, region) is not None:
        raise ShadowError(
            f"`{name}` of {rule.name} is stopped, but written too, and its memory has a shadow: pass the Duplicated, or a stopped "
            "copy where the rule reads it. Nothing was run."
        )
    if shadow is None and not isinstance(x, Stopped):
        shadow = _known_shadow(rule, effect, name, array, use, tape)
    return Operand(name, array, shadow, isinstance(x, Stopped), isinstance(x, Const), use, memory, extent)


def _check_operand(rule: Rule, name: str, array: Any, shadow: Any) -> None:
    """Whether an array can be what it is in the rule, with that shadow."""
    if shadow is not None and _layout(shadow) != _layout(array):
        raise ShadowError(
            f"`{name}` of {rule.name} and its shadow are not laid out alike; make the shadow with zeros_like(x), or slice the pair"
        )
    if shadow is not None and not writeable(shadow):
        raise ShadowError(f"`{name}` of {rule.name} has a read-only array as shadow. Nothing was run.")
    if name in rule.effect.writes and not writeable(array):
        raise LaunchError(f"`{name}` of {rule.name} is written, but is a read-only array. Nothing was run.")
    if shadow is not None and repeats(shadow):
        raise LaunchError(
            f"`{name}` of {rule.name}: some of its elements are the same memory (a broadcast array?); pass a copy. Nothing was run."
        )


def _layout(array: Any) -> Any:
    steps = [s for s, n in zip(array.strides, array.shape, strict=True) if n > 1] if array.size else []
    return tuple(array.shape), array.dtype, steps


def _known_shadow(rule: Rule, effect: Effect, name: str, array: Any, use: Use, tape: Any) -> Any:
    """The shadow that an array's memory has, if the rule only writes there."""
    pairing = tape.shadows.of(use.allocation, use.region)
    if pairing is not None and tape.shadows.width > 1:
        raise ShadowError(
            f"`{name}` of {rule.name} is memory with {tape.shadows.width} shadows; rules take one shadow an array. Nothing was run."
        )
    if pairing is None:
        return None
    if name in effect.reads or name in effect.adds:
        raise ShadowError(
            f"`{name}` of {rule.name} is read bare, but its memory has a shadow (`{pairing.name}`): the gradient would be dropped. Pass "
            f"the Duplicated, or stop_gradient({name}). Nothing was run."
        )
    memory = leaf_memory(array)
    if not (array.dtype.kind == "c" or is_real(array.dtype)) or int(memory.root.dtype.itemsize) != pairing.size:
        raise ShadowError(
            f"`{name}` of {rule.name} is written as {array.dtype}, but its memory has a shadow as elements of {pairing.size} bytes "
            f"(`{pairing.name}`); write it in its own type. Nothing was run."
        )
    if pairing.root.dtype != memory.root.dtype:
        raise ShadowError(f"`{name}` of {rule.name} is half precision, which rules do not take. Nothing was run.")
    parts = array.dtype.itemsize // memory.root.dtype.itemsize
    return view_in(Memory(pairing.root.view(array.dtype), (memory.offset + pairing.shift) // parts), array)


def _check_disjoint(rule: Rule, operands: Mapping[str, Operand]) -> None:
    """What a rule writes may not overlap another of its arrays: its function and its reverse know them apart."""
    hulls = {n: hull(o.array) for n, o in operands.items()}
    for n in (n for n in rule.effect.writes if n in operands):
        low, high = hulls[n]
        for m in (m for m, (begin, end) in hulls.items() if m != n and low < end and begin < high):
            one, two = operands[n], operands[m]
            if namespace(one.array) is namespace(two.array) and overlap(place(one.array, one.memory), place(two.array, two.memory)):
                raise LaunchError(f"`{n}` of {rule.name} is written and overlaps `{m}`: pass a copy. Nothing was run.")


def _check_flow(rule: Rule, operation: Ruled) -> None:
    """Nothing may be dropped by forgetting (RULES 4)."""
    written = [operation.operands[n] for n in rule.effect.writes if n in operation.operands]
    for o in written:
        if operation.varied and o.shadow is None and not o.dropped and o.floats:
            raise ShadowError(
                f"`{o.name}` of {rule.name} gets values that depend on `{operation.varied[0]}`, but has no shadow: pass "
                f"Duplicated({o.name}) to keep its gradient, or Const({o.name}) to drop it on purpose. Nothing was run."
            )
    if rule.reverse is None and operation.flows:
        raise ShadowError(f"rule {rule.name} has no reverse: set `{rule.name}.reverse`, or pass stop_gradient(x). Nothing was run.")
    for name in rule.wanted:
        if name in operation.operands and name not in operation.effect.needs:
            raise TypeError(
                f"rule {rule.name}: its reverse takes the array {name!r}, so the tape has to keep it: state the version in needs"
            )
    for o in (operation.operands[n] for n in operation.effect.reads if n in operation.operands):
        if o.shadow is None and not o.stopped and o.use.allocation.tainted & o.use.region:
            raise ShadowError(
                f"`{o.name}` of {rule.name} holds values that depend on active data, but has no shadow: give it one, Duplicated({o.name}), "
                f"or stop_gradient({o.name}). Nothing was run."
            )
