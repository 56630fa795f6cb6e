"""How a call of a rule is recorded: its arguments are judged by the memory behind them, and the tape may know the call from the last time.

In: a rule and the arguments of a call. Out: a `Ruled` among the operations of the tape, made. What would drop a gradient, and arrays that a
rule cannot tell apart, are refused before anything is run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ...arguments.aliasing import hull, overlap
from ...arguments.aliasing import region as place
from ...arguments.annotations import Active, BatchDuplicated, Const, Duplicated, Stopped
from ...arguments.arrays import address, leaf_memory, namespace, on_its_memory, refuse_subclass, reinterpreted, resolve
from ...arguments.arrays import is_array as is_an_array
from ...arguments.deferred_clearing import deferred_at
from ...arguments.layouts import layout, repeats
from ...errors import ArgumentTypeError, GpuadError, LaunchError, ShadowError
from ...ir.dtypes import is_real, shadow_dtype
from ...program.ir.region import Region, of_array
from ...public_calls import show
from ...runtime.array_locks import writeable
from ...runtime.base import Memory
from ..reverse.shadows import Shadows
from .call_keys import CallKey, RuleKey, lasting
from .known_calls import KnownCall, call_key, line_of, place_of, user_frame
from .operations import Effects, Use
from .recorded_rule import Operand, Ruled, view_in
from .rule_checks import compare, is_constant, mapped, marks, parameter_of, read_only, run
from .rule_declaration import ROOM, Declared, Effect


@dataclass(frozen=True, eq=False)
class KnownRule(KnownCall):
    """A call of a rule."""

    operation: Ruled
    library: str


def record(rule: Declared, arguments: Mapping[str, Any], tape: Any, regions: Mapping[str, Region]) -> None:
    """Hands a call to the tape, which may know it from the last time."""
    given = tuple(map(_own, tape.inner(tuple(arguments.values()))))
    if not tape.learns and tape.repeats(rule, tape.staged(rule, given), given, regions):
        return
    frame = user_frame()
    line = line_of(frame)
    args, before = tape.staged(rule, given, line), tape.cursor.replaced
    if before is not None and before.regions is not None and before.regions != regions:
        regions = {}  # another part in each round: any
    try:
        _recorded(RuleKey(rule, args, line, place_of(frame), tuple(arguments), regions), tape)
    except BaseException:
        tape.unknown()
        raise
    tape.guard.follow(args, given)


def _own(x: Any) -> Any:
    """An argument; of lists and dicts, which may be changed later, copies."""
    return x if lasting(x) else mapped(x, "", lambda _, part: part)


def _recorded(key: RuleKey, tape: Any) -> None:
    """Checks a call, unless it was made before in the same words, and records it."""
    rule, given, regions = key.what, key.args, key.regions
    fixed = not regions and not any(isinstance(x, Active | list | dict | set) for x in given)
    words = call_key(rule, None, None, given, 0, None, key.line) if fixed else None

    def judge() -> KnownRule:
        operation, library = _checked(rule, dict(zip(key.names, given, strict=True)), tape, regions, key.where)
        bare = any(o.shadow is None and o.floats for o in operation.operands.values())
        arrays = _arrays(operation)
        return KnownRule(given, bare, tape.shadows, tape.shadows.count, arrays, tuple(map(layout, arrays)), operation, library)

    known = tape.known_call(words, judge)
    tape.record(known, _Run(known.operation, tape).action(), key)


def _arrays(operation: Ruled) -> tuple[Any, ...]:
    """Whose memory a call works on."""
    operands = operation.operands.values()
    actives = [x.shadow for x in operation.actives.values()]
    return (*(o.array for o in operands), *(o.shadow for o in operands if o.shadow is not None), *actives)


def _checked(rule: Declared, arguments: Mapping[str, Any], tape: Any, regions: Mapping[str, Region], where: str) -> tuple[Ruled, str]:
    """A call as an operation of the tape, and the library of its arrays."""
    if any(isinstance(x, BatchDuplicated) for x in arguments.values()):
        raise GpuadError(f"{rule.name}: rules take one shadow an array; BatchDuplicated is for kernels and elementwise operations")
    _refuse_dropped(rule, arguments)
    check_listed(rule, arguments)
    constants = _constants(rule, arguments) if rule.opaque else {}
    effect = _with_constants(rule, constants)
    given = {**arguments, **constants}
    operands = {n: _operand(rule, effect, n, given[n], tape, regions.get(n)) for n in effect.arrays if is_array(given[n])}
    actives = {n: x for n, x in arguments.items() if isinstance(x, Active)}
    values = {n: mapped(plain(x), n, lambda _, part: part) for n, x in arguments.items()}  # lists may be changed later
    for n, x in actives.items():
        _note_number(rule, n, x, tape)
    _check_disjoint(rule, operands)
    draft = Ruled(rule.name, where, Effects(), rule, operands, actives, values, {}, effect)
    _check_flow(rule, draft)
    _adopt(operands, given, tape)
    for o in operands.values():
        if o.shadow is not None:
            _show(rule, o.shadow)
    needs = _needs(draft)
    effects = Effects(
        tuple(operands[n].use for n in effect.writes if n in operands),
        tuple(use for n, use in needs.items() if effect.needs[n][0] == "before"),
        tuple(use for n, use in needs.items() if effect.needs[n][0] == "after"),
    )
    library = next((namespace(o.array).__name__ for o in operands.values()), "numpy")
    return replace(draft, effects=effects, needs=needs), library


def _adopt(operands: Mapping[str, Operand], given: Mapping[str, Any], tape: Any) -> None:
    """Notes the shadows of a call's arrays."""
    for n, o in operands.items():
        if o.shadow is not None:
            tape.judge.adopt(o.use.allocation, o.extent, o.memory, leaf_memory(o.shadow), n)
            tape.judge.note_array(given.get(n))


def note_shadows(operation: Ruled, key: CallKey, tape: Any) -> None:
    """Meets the memory of a call that was recorded, and notes its shadows."""
    assert isinstance(key, RuleKey)
    for n, o in operation.operands.items():
        tape.allocation(o.memory).name = n
    for n, x in operation.actives.items():
        _note_number(operation.rule, n, x, tape)
    _adopt(operation.operands, dict(zip(key.names, key.args, strict=True)), tape)


def _show(rule: Declared, shadow: Any) -> None:
    """The caller's reverse gets the shadow; ours does not show it."""
    deferred = deferred_at(address(leaf_memory(shadow).root)) if rule.opaque else None
    if deferred is not None:
        deferred.show()


def check_listed(rule: Declared, arguments: Mapping[str, Any]) -> None:
    """Refuses what a parameter that a rule lists cannot be: it is an array, one that is only read may be a number; None is left to the
    rule."""
    for n in rule.effect.arrays:
        x = arguments[n]
        written = n in rule.effect.writes
        if x is not None and not is_array(x) and (written or not isinstance(x, Active | bool | int | float | complex | np.generic | Const)):
            takes = "is written, so it takes an array" if written else "takes an array or a number"
            raise LaunchError(f"`{n}` of {rule.name} {takes}, not {show(x)}. Nothing was run.")


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

    def action(self) -> Callable[[], Any]:
        """Gives the call that runs it, with as little around it as it can do with."""
        fixed = not self.operation.rule.opaque and ROOM not in self.values
        return partial(self.operation.rule.function, **self.values) if fixed else self

    def __call__(self) -> None:
        rule, values = self.operation.rule, dict(self.values)
        if ROOM in values:
            values[ROOM] = self.tape.room
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


def _refuse_dropped(rule: Declared, arguments: Mapping[str, Any]) -> None:
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


def _constants(rule: Declared, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays that a call passes besides those that the rule lists, by the names of their parameters, or their places in these."""
    found: dict[str, Any] = {}

    def collect(name: str, x: Any) -> None:
        if is_constant(x.primal if isinstance(x, Const) else x):
            found[name] = x

    for name, x in arguments.items():
        if name not in rule.effect.arrays and name != ROOM:
            mapped(x, name, collect)
    return found


def _with_constants(rule: Declared, constants: Mapping[str, Any]) -> Effect:
    """The effect of a call with such constants: they are read, and needed where the reverse takes them."""
    if not constants:
        return rule.effect
    needs = {n: ("before",) for n in constants if parameter_of(n) in rule.wanted}
    return replace(rule.effect, reads=(*rule.effect.reads, *constants), needs={**rule.effect.needs, **needs})


def _note_number(rule: Declared, name: str, x: Active, tape: Any) -> None:
    """One shadow for two values would hide that host arithmetic lies between them."""
    tape.judge.adopt_number(resolve(x.shadow), name)
    value = np.asarray(x.value)[()]
    known = tape.judge.values.setdefault(address(x.shadow), value)
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


def is_array(x: Any) -> bool:
    x = x.primal if isinstance(x, Duplicated | Const) else on_its_memory(x)
    return is_an_array(x)


def _operand(rule: Declared, effect: Effect, name: str, x: Any, tape: Any, known: Region | None) -> Operand:
    """An array argument; a bare one that is only written takes the shadow that its memory has."""
    array = x.primal if isinstance(x, Duplicated | Const) else on_its_memory(x)
    if name in rule.effect.arrays:  # others go to the caller's functions as they are
        refuse_subclass(array, f"`{name}` of {rule.name}")
        if array.dtype.hasobject:
            raise LaunchError(f"`{name}` of {rule.name} is an array of numbers, not {show(array)}. Nothing was run.")
    memory = leaf_memory(array)
    extent = of_array(array, memory.offset * int(memory.root.dtype.itemsize))
    region = known or extent
    use = Use(tape.allocation(memory), region, effect.arrays.index(name))
    use.allocation.name = name
    if tape.shadows.is_shadow(use.allocation.address, region):
        raise ShadowError(f"`{name}` of {rule.name} is the shadow of another array of this recording. Nothing was run.")
    shadow = x._own_shadow if isinstance(x, Duplicated) else None
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
        shadow = _known_shadow(rule, effect, name, array, use, tape.shadows)
    return Operand(name, array, shadow, isinstance(x, Stopped), isinstance(x, Const), use, memory, extent)


def _check_operand(rule: Declared, name: str, array: Any, shadow: Any) -> None:
    """Whether an array can be what it is in the rule, with that shadow."""
    if shadow is not None and _layout(shadow) != _layout(array, halves=rule.joint):
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


def _layout(array: Any, *, halves: bool = False) -> Any:
    """How an array is laid out; of halves, if they are taken, how their shadow is."""
    dtype = shadow_dtype(array.dtype) if halves else array.dtype
    size = array.dtype.itemsize
    steps = [s // size * dtype.itemsize for s, n in zip(array.strides, array.shape, strict=True) if n > 1] if array.size else []
    return tuple(array.shape), dtype, steps


def with_new_shadows(operation: Ruled, shadows: Shadows) -> Ruled:
    """A recorded call, now that memory which it wrote is known to have a shadow: its reverse clears it."""
    found = dict(operation.operands)
    for n in operation.effect.writes:
        o = found.get(n)
        if o is not None and o.shadow is None:
            found[n] = replace(o, shadow=_known_shadow(operation.rule, operation.effect, n, o.array, o.use, shadows))
    return replace(operation, operands=found)


def _known_shadow(rule: Declared, effect: Effect, name: str, array: Any, use: Use, shadows: Shadows) -> Any:
    """The shadow that an array's memory has, if the rule only writes there."""
    pairing = shadows.of(use.allocation, use.region)
    if pairing is not None and shadows.width > 1:
        raise ShadowError(
            f"`{name}` of {rule.name} is memory with {shadows.width} shadows; rules take one shadow an array. Nothing was run."
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
    return view_in(Memory(reinterpreted(pairing.root, array.dtype), (memory.offset + pairing.shift) // parts), array)


def _check_disjoint(rule: Declared, operands: Mapping[str, Operand]) -> None:
    """What a rule writes may not overlap another of its arrays: its function and its reverse know them apart."""
    hulls = {n: hull(o.array) for n, o in operands.items()}
    for n in (n for n in rule.effect.writes if n in operands):
        low, high = hulls[n]
        for m in (m for m, (begin, end) in hulls.items() if m != n and low < end and begin < high):
            one, two = operands[n], operands[m]
            if namespace(one.array) is namespace(two.array) and overlap(place(one.array, one.memory), place(two.array, two.memory)):
                raise LaunchError(f"`{n}` of {rule.name} is written and overlaps `{m}`: pass a copy. Nothing was run.")


def _check_flow(rule: Declared, operation: Ruled) -> None:
    """Nothing may be dropped by forgetting (rule 4 of the contract)."""
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
            raise ArgumentTypeError(
                f"rule {rule.name}: its reverse takes the array {name!r}, so the tape has to keep it: state the version in needs"
            )
    for o in (operation.operands[n] for n in operation.effect.reads if n in operation.operands):
        if o.shadow is None and not o.stopped and o.use.allocation.tainted & o.use.region:
            raise ShadowError(
                f"`{o.name}` of {rule.name} holds values that depend on active data, but has no shadow: give it one, Duplicated({o.name}), "
                f"or stop_gradient({o.name}). Nothing was run."
            )


def plain(x: Any) -> Any:
    """What the function is called with; a number that sits in an array is copied, since it may be changed later."""
    if isinstance(x, Active):
        return x.value.item() if isinstance(x.value, np.ndarray) else x.value
    return x.primal if isinstance(x, Duplicated | Const) else x
