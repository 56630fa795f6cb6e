"""A recorded kernel launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import launching
from ..analysis.injectivity import Launch as Numbers
from ..differentiate import Adjoint, Parameter
from ..executors.base import Memory
from ..ir.nodes import Accumulate, Atomic, Buffer, Kernel, Load, Store
from ..ir.rewrite import walk_stmts
from ..launching import Call, State
from .effects import touched
from .memory import Allocation
from .operation import Effects, Resolver, Use
from .region import Region

Find = Callable[[Memory], Allocation]
_WRITES = (Store, Accumulate, Atomic)


@dataclass(eq=False)
class Launched:
    """A launch and its adjoint; `uses` says for each parameter of the reverse kernel that reads primal memory what it reads."""

    name: str
    where: str
    call: Call
    effects: Effects
    adjoint: Adjoint | None
    reverse_kernel: Kernel | None
    uses: dict[tuple[str, int], Use]
    logs: list[Any]
    kernel: Any  # the user's, to be judged again if memory turns out to have a shadow

    def reverse(self, resolver: Resolver) -> None:
        """Runs the reverse kernel on the versions that it needs."""
        if self.adjoint is None or self.reverse_kernel is None:
            return
        with self.call.executor.on(self.call.stream):
            for width in range(self.call.bound.width):
                launching.run_reverse(self.adjoint, self.reverse_kernel, self.call, self.state(resolver), width)

    def state(self, resolver: Resolver) -> State:
        assert self.adjoint is not None
        arguments = self.call.bound.arguments
        state = State({i: (a.memory if a.is_pointer else a.value) for i, a in enumerate(arguments)}, logs=self.logs)
        for (role, position), use in self.uses.items():
            memory = resolver.memory(use, arguments[position].memory, own=role == "working")
            if role == "primal":
                state.primals[position] = memory
            else:
                state.entries[position] = memory
        return state

    def line(self) -> str:
        if self.reverse_kernel is None or self.adjoint is None:
            return f"pass  # {self.where}: {self.name} carries no gradient"
        given = ", ".join(_shown(p, self.call) for p in self.adjoint.parameters)
        return f"{self.reverse_kernel.name}[{self.call.grid}, {self.call.block}]({given})  # {self.where}"


def _shown(p: Parameter, call: Call) -> str:
    value = call.bound.arguments[p.position].value if p.role == "primal" and p.position < len(call.bound.arguments) else None
    return str(value) if value is not None else p.item.name


def effects_of(kernel: Kernel, adjoint: Adjoint | None, call: Call, find: Find) -> tuple[Effects, dict[tuple[str, int], Use]]:
    """The launch's writes, and what its adjoint reads, by the parameter of the reverse kernel that reads it."""
    numbers = call.numbers(kernel)
    writes = tuple(_uses(kernel, call, find, numbers, _WRITES))
    if adjoint is None:
        return Effects(writes), {}
    uses: dict[tuple[str, int], Use] = {}
    before: list[Use] = []
    after: list[Use] = []
    overwritten = {u.position for u in writes}
    for p in adjoint.parameters:
        if p.role not in ("primal", "entry", "working") or not isinstance(p.item, Buffer):
            continue
        use = _read_by_reverse(adjoint, p, call, find)
        if use is None:
            continue
        uses[p.role, p.position] = use
        (after if p.role == "primal" and p.position in overwritten else before).append(use)
    return Effects(writes, tuple(before), tuple(after)), uses


def _read_by_reverse(adjoint: Adjoint, p: Parameter, call: Call, find: Find) -> Use | None:
    assert isinstance(p.item, Buffer)
    body = (*adjoint.layout.body, *adjoint.layout.counting)
    if not any(isinstance(s, Load) and s.buffer == p.item for s in walk_stmts(body)):
        return None
    region = _region(body, p.item, p.position, call, call.numbers(adjoint.primal), (Load, *(_WRITES if p.role == "working" else ())))
    memory = call.bound.arguments[p.position].memory
    return Use(find(memory), region, p.position) if region is not None and memory is not None else None


def _uses(kernel: Kernel, call: Call, find: Find, numbers: Numbers, kinds: tuple[Any, ...]) -> list[Use]:
    found = []
    for position, item in enumerate(kernel.params[: len(call.bound.arguments)]):
        if not isinstance(item, Buffer) or position in call.overlaps:
            continue
        if not any(isinstance(s, kinds) and s.buffer == item for s in walk_stmts(kernel.body)):
            continue
        region = _region(kernel.body, item, position, call, numbers, kinds)
        memory = call.bound.arguments[position].memory
        if region is not None and memory is not None:
            found.append(Use(find(memory), region, position))
    return found


def reads(kernel: Kernel, call: Call, find: Find) -> list[Use]:
    """What the primal reads."""
    return _uses(kernel, call, find, call.numbers(kernel), (Load, Atomic))


def writes(kernel: Kernel, call: Call, find: Find) -> list[Use]:
    """What the primal may write."""
    return _uses(kernel, call, find, call.numbers(kernel), _WRITES)


def _region(body: Any, item: Buffer, position: int, call: Call, numbers: Numbers, kinds: tuple[Any, ...]) -> Region | None:
    argument = call.bound.arguments[position]
    if argument.memory is None:
        return None
    shared = position in {base for base, _ in call.overlaps.values()}  # then more than this view is reached through it
    inside = position not in call.loose and not shared
    return touched(body, item, numbers, kinds, argument.memory, argument.array, inside)
