"""Integers that hang on data, as dimensions of their own: whatever an index that was read from memory is, the guards around it hold.

For a question whether something never happens it is enough to know where such a number may lie: what was compared with it, and what it was
made of, since a variable that a loop carries is one of the numbers that were assigned to it. Two uses of one number in an instance are one
dimension; two instances have two. Proofs of equality must not do so: there a number is what it is, and not all that it may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ..ir.types import I64
from .effects import Dim, Effect
from .values import Graph, Node, conjuncts, limits

_WIDE = 1 << 62


@dataclass(eq=False)
class Unknowns:
    """`numbers`: by name, those that have become dimensions; `names`: the other way round. `carried`: by loop and place, what a variable is
    before the loop and after an iteration; `pushed`: by stack and field, what may lie on it."""

    graph: Graph
    numbers: dict[str, Node] = field(default_factory=dict)
    names: dict[Node, str] = field(default_factory=dict)
    carried: dict[tuple[str, int], tuple[Node, Node]] = field(default_factory=dict)
    pushed: dict[tuple[int, int], list[Node]] = field(default_factory=dict)

    def dimension(self, node: Node) -> Node:
        """A dimension in place of an integer that has no text; any other node as it is."""
        if not node.type.is_integer or node.text is not None:
            return node
        name = self.names.setdefault(node, f"u{len(self.names)}")
        self.numbers[name] = node
        return self.graph.dim(name, node.type, *limits(node.type))

    def popped(self, stack: int, place: int, value: Node) -> Node:
        """A value that was pushed, of which no more is known."""
        return replace(value, op="popped", args=(stack, place, *value.args)) if value.type.is_integer else value

    def completed(self, effect: Effect) -> Effect:
        """The access with the dimensions that its element and its guards speak of."""
        guards = tuple(self.parts_of(effect.guards))
        nodes = effect.element, *guards, *(g for d in effect.dims for g in d.guards)
        used = dict.fromkeys(name for node in nodes for name in sorted(node.dims) if name in self.numbers)
        return replace(effect, dims=(*effect.dims, *map(self.dim, used)), guards=guards)

    def parts_of(self, guards: Iterable[Node]) -> Iterator[Node]:
        """Guards one by one, where some of those that hold together have no text."""
        for guard in conjuncts(guards):
            if guard.op == "!" and guard.args[0].op == "||":
                yield from self.parts_of(map(self.graph.negated, guard.args[0].args))
            else:
                yield guard

    def dim(self, name: str) -> Dim:
        low, high = self.range_of(self.numbers[name])
        wide = self.graph.dim(name, I64, -_WIDE, _WIDE - 1)
        ends = self.graph.constant(low, I64), self.graph.constant(high, I64)
        return Dim(name, (self.graph.compare(">=", wide, ends[0]), self.graph.compare("<=", wide, ends[1])), False)

    def range_of(self, number: Node) -> tuple[int, int]:
        """The range of a number that is one of those that it was made of, with constants that were added any number of times; a signed one
        does not leave its type by that."""
        least, most = limits(number.type)
        waiting, seen, leaves = [number], set[Node](), list[Node]()
        grows = shrinks = False
        while waiting:
            node = self.behind(waiting.pop())
            if node in seen:
                continue
            seen.add(node)
            by = self.step(node)
            parts = self.parts(node) if by is None else node.args[:1]
            if parts is None or node.type != number.type:
                leaves.append(node)
                continue
            grows, shrinks = grows or (by or 0) > 0, shrinks or (by or 0) < 0
            waiting += parts
        low, high = min((n.low for n in leaves), default=least), max((n.high for n in leaves), default=most)
        return least if shrinks else low, most if grows else high

    def step(self, node: Node) -> int | None:
        """The constant that was added to one of these numbers."""
        if (
            node.op not in ("+", "-")
            or not node.type.is_signed
            or not node.args[1].is_constant
            or self.behind(node.args[0]) is node.args[0]
        ):
            return None
        by: int = node.args[1].low
        return by if node.op == "+" else -by

    def behind(self, node: Node) -> Node:
        return self.numbers.get(node.args[0], node) if node.op == "dim" else node

    def parts(self, node: Node) -> list[Node] | None:
        """The numbers of which a number is one."""
        match node.op:
            case "select":
                return [node.args[1], node.args[2]]
            case "carried" | "result":
                found = self.carried.get((node.args[0], node.args[1]))
                return None if found is None else [*found]
            case "popped":
                return self.pushed.get((node.args[0], node.args[1]))
        return None
