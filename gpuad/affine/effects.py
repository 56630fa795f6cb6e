"""Effects of a launch as data: the dimensions of statement instances, accesses over them, and the recurrences of loops.

An instance of a statement is a thread and an iteration of each loop around it. Its dimensions are `gx, gy, gz`, the thread's number among
all along each axis with more threads than one, and one a loop, the value of the loop's variable. Elements, guards and values are nodes of a
`values.Graph` over these; `Substitution` writes such a node for other instances.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..ir.nodes import Buffer, How, Stmt, Var
from ..ir.types import BOOL
from .values import Graph, Node

AXES = "xyz"


@dataclass(frozen=True)
class Dim:
    """A dimension of the instance, and what holds of it. `bounds`: start, stop and step of a loop that counts."""

    name: str
    guards: tuple[Node, ...]
    thread: bool
    bounds: tuple[Node, Node, int] | None = None


@dataclass(frozen=True, eq=False)
class Effect:
    """An access. `kind`: 'read', 'add', 'set', 'clear' (a read and a write of 0) or 'change' (any other read-modify-write). `order`: its
    place in the text. `idle`: nothing is touched where what would be added is 0; that is no guard, since 0 may as well be added."""

    kind: str
    buffer: Buffer
    element: Node
    value: Node | None
    dims: tuple[Dim, ...]
    guards: tuple[Node, ...]
    how: How | None
    order: int
    stmt: Stmt
    idle: bool = False

    @property
    def writes(self) -> bool:
        return self.kind != "read"


@dataclass(frozen=True, eq=False)
class Recurrence:
    """A loop that carries values: `variables` become `nexts` in each iteration, `first` before. `condition`: what has to hold for an
    iteration, of a loop that does not count."""

    dim: Node
    start: Node
    stop: Node
    step: int
    backward: bool
    variables: tuple[Node, ...]
    firsts: tuple[Node, ...]
    nexts: tuple[Node, ...]
    condition: Node | None = None


@dataclass(frozen=True, eq=False)
class Shape:
    """A launch: grid, block, the numbers of scalar parameters."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    numbers: Mapping[Var, int]

    @property
    def threads(self) -> tuple[int, int, int]:
        x, y, z = (g * b for g, b in zip(self.grid, self.block, strict=True))
        return x, y, z


_ARITHMETIC = ("+", "-", "*", "/", "%", "<<", ">>", "&")


class Substitution:
    """Puts nodes in the place of dimensions."""

    def __init__(self, graph: Graph, mapping: Mapping[str, Node]) -> None:
        self.graph = graph
        self.mapping = mapping
        self.known: dict[Node, Any] = {}

    def node(self, node: Node) -> Node:
        if not node.dims & self.mapping.keys():
            return node
        if node not in self.known:
            self.known[node] = self.made(node)
        found: Node = self.known[node]
        return found

    def made(self, node: Node) -> Node:
        graph = self.graph
        if node.op == "dim":
            return graph.cast(self.mapping[node.args[0]], node.type)
        if node.op == "sum":
            dim, added = node.args
            return graph.node("sum", (self.dim(dim), self.node(added)), node.type)
        if node.op in ("carried", "result", "unknown"):
            return self.closed(node)
        args: tuple[Any, ...] = tuple(self.node(a) if isinstance(a, Node) else a for a in node.args)
        if node.type == BOOL:
            return self.truth(node, args)
        if node.op in _ARITHMETIC:
            return graph.arithmetic(node.op, args[0], args[1], node.type)
        match node.op:
            case "cast":
                return graph.cast(args[0], node.type)
            case "floor":
                return graph.floor(args[0], args[1].low, node.type)
            case "mod":
                return graph.arithmetic("&", args[0], graph.constant(args[1].low - 1, node.type), node.type)
            case "table":
                return graph.table(args[0], args[1], node.type)
            case "select":
                return graph.select(args[0], args[1], args[2])
            case "call" if node.args[0] in ("min", "max") and node.type.is_integer:
                return graph.extreme(args[0], args[1], args[2], node.type)
        return graph.node(node.op, args, node.type)

    def truth(self, node: Node, args: tuple[Any, ...]) -> Node:
        graph = self.graph
        match node.op:
            case "cast":
                return graph.cast(args[0], BOOL)
            case "select":
                return graph.select(args[0], args[1], args[2])
            case "compare":
                return graph.compare(args[0], args[1], args[2])
            case "!":
                return graph.negated(args[0])
            case "&&" | "||":
                return (graph.both if node.op == "&&" else graph.either)(args[0], args[1])
        return graph.node(node.op, args, BOOL)

    def dim(self, dim: Dim) -> Dim:
        """A loop's dimension where its bounds hang on what is put in."""
        bounds = None if dim.bounds is None else (self.node(dim.bounds[0]), self.node(dim.bounds[1]), dim.bounds[2])
        return Dim(dim.name, tuple(self.node(g) for g in dim.guards), dim.thread, bounds)

    def closed(self, node: Node) -> Node:
        """What a loop comes to for another instance: the same node, with the dimensions it is seen for."""
        names = tuple(sorted(node.dims & self.mapping.keys()))
        return self.graph.node("at", (node, names, *(self.mapping[n] for n in names)), node.type)


def inside(parts: Iterable[object], *, dims: bool = False) -> Iterator[Node]:
    """The nodes that some parts are made of, each once; with `dims` also those of the guards of dimensions that are summed over."""
    seen: set[Node] = set()
    waiting = list(parts)
    while waiting:
        part = waiting.pop()
        if isinstance(part, Node) and part not in seen:
            seen.add(part)
            waiting += part.args
            yield part
        elif dims and isinstance(part, Dim):
            waiting += part.guards
