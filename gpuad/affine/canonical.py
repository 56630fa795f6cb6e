"""Value numbering: one number for all nodes that are the same function of memory and the instance, however their integers are written.

Two texts of one computation differ in how indices and guards are spelled: `i <= n - 1` and `i < n`, `(y + 1) * w` and `y * w + w`. Integers
are compared as sums of terms with factors, truth values as inequalities between such sums, conjunctions as sets. Floating point is compared
as it stands, except that the square of a difference is that of the opposite one: nothing else is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from math import gcd

from ..ir.types import I64
from .effects import Dim
from .values import Graph, Node, conjuncts, exact_parts

Terms = tuple[frozenset[tuple[Hashable, int]], int]
Guards = frozenset[int]


class Canonical:
    """Numbers the nodes of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.numbers: dict[Hashable, int] = {}
        self.known: dict[Node, int] = {}
        self.sums: dict[Node, Terms] = {}
        self.opposites: dict[int, int] = {}

    def number(self, node: Node) -> int:
        if node not in self.known:
            self.known[node] = self.interned(self.form(node))
        return self.known[node]

    def interned(self, form: Hashable) -> int:
        return self.numbers.setdefault(form, len(self.numbers))

    def terms(self, node: Node) -> Terms:
        """An integer as a sum of terms with factors, and a constant."""
        if node not in self.sums:
            found: Counter[Hashable] = Counter()
            constant = 0
            waiting = [(node, 1)]
            while waiting:
                part, factor = waiting.pop()
                if part.is_constant:
                    constant += factor * part.low
                    continue
                parts = exact_parts(part) if part.text is not None else _address_parts(part)
                waiting += [(inner, factor * by) for inner, by in parts]
                if not parts:
                    found[part.text if part.text is not None else self.number_of_term(part)] += factor
            self.sums[node] = frozenset((t, f) for t, f in found.items() if f), constant
        return self.sums[node]

    def number_of_term(self, node: Node) -> int:
        return self.interned(self.whole(node))

    def guards(self, guards: Iterable[Node]) -> Guards:
        """A conjunction."""
        found: set[int] = set()
        for guard in conjuncts(guards):
            if not guard.is_constant or not guard.args[0]:
                number = self.number(guard)
                if number not in self.opposites:
                    other = self.number(self.graph.negated(guard))
                    self.opposites |= {number: other, other: number}
                found.add(number)
        return frozenset(found)

    def spelled(self, condition: Node) -> Hashable | None:
        """A conjunction of inequalities as what is equal in other graphs, too; None if it is something else."""
        found: set[Hashable] = set()
        for part in conjuncts((condition,)):
            if part.op == "compare" and part.text is not None and not self.graph.named:
                found.add(self.form(part))
            elif not part.is_constant:
                return None
            elif not part.args[0]:
                found.add(False)
        return frozenset(found)

    def exclusive(self, one: Guards, other: Guards) -> bool:
        """True if a guard of one is the negation of a guard of the other."""
        return any(self.opposites.get(g) in other for g in one)

    def dims(self, dims: Iterable[Dim]) -> tuple[tuple[str, Guards], ...]:
        return tuple((d.name, self.guards(d.guards)) for d in dims)

    def form(self, node: Node) -> Hashable:
        """What is the same for nodes that are."""
        if node.type.is_integer and not node.is_constant:
            terms, constant = self.terms(node)
            if len(terms) != 1 or constant or next(iter(terms))[1] != 1:
                return "sum", terms, constant, node.type if node.text is None else None
            ((term, _),) = terms
            return ("int", term) if isinstance(term, str) else self.whole(node)
        if node.op == "compare" and node.args[1].type.is_integer and node.args[1].type == node.args[2].type:
            found = self.compared(*node.args)
            if found is not None:
                return found
        if node.op in ("&&", "||"):
            return node.op, frozenset(self.number(a) for a in node.args)
        if node.op == "*" and node.args[0] is node.args[1] and node.args[0].op == "-" and node.type.is_float:
            return "square", frozenset(self.number(a) for a in node.args[0].args), node.type
        return self.whole(node)

    def compared(self, op: str, a: Node, b: Node) -> Hashable | None:
        """An inequality of exact integers as one with 0."""
        if a.text is None or b.text is None:
            return None
        if op in (">", "<="):
            op, a, b = {">": "<", "<=": ">="}[op], b, a
        (left, first), (right, second) = self.terms(a), self.terms(b)
        difference = Counter(dict(left))
        difference.subtract(dict(right))
        terms, constant = {t: f for t, f in difference.items() if f}, first - second
        if op == ">=":  # a >= b as b - a - 1 < 0
            op, terms, constant = "<", {t: -f for t, f in terms.items()}, -constant - 1
        if op in ("==", "!=") and terms and min(terms.items(), key=lambda item: str(item[0]))[1] < 0:
            terms, constant = {t: -f for t, f in terms.items()}, -constant
        common = gcd(*terms.values()) if op == "<" else 1
        if common > 1:
            terms, constant = {t: f // common for t, f in terms.items()}, constant // common
        return op, frozenset(terms.items()), constant

    def whole(self, node: Node) -> Hashable:
        return node.op, node.type, tuple(self.argument(a) for a in node.args)

    def argument(self, argument: object) -> Hashable:
        if isinstance(argument, Node):
            return "node", self.number(argument)
        if isinstance(argument, Dim):
            return "dim", self.dims([argument])
        found: Hashable = argument
        return found


def _address_parts(node: Node) -> list[tuple[Node, int]]:
    """Summands of an index that is not quasi-affine: what is added to it as a 64-bit number, which no address exceeds."""
    if node.type != I64:
        return []
    if node.op == "cast" and node.args[0].type.is_integer:
        return [(node.args[0], 1)]
    if node.op in ("+", "-"):
        return [(node.args[0], 1), (node.args[1], 1 if node.op == "+" else -1)]
    return []
