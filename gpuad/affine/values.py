"""Symbolic values: what expressions of a kernel come to, as nodes of one hash-consed graph for all kernels of a launch.

Equal expressions are one node. A node of integers that is quasi-affine in the instance (thread, iterations) has a `text`, which is how isl
writes it, and the interval `low`, `high` in which it lies; a truth value that is a Presburger formula over such nodes has a `text` as well.
Arithmetic that may leave its C type is written modulo the type's width, so a text is exact and not an assumption. Where there is no text
(floating point, loads, products of two unknowns) a node is known by its structure alone.

A choice between integers has no text of its own in isl: it is a new name with a definition (`Graph.named`), one value for each instance.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..ir.nodes import NEGATED
from ..ir.types import BOOL, I64, Scalar

_EXACT = {"+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_, "|": operator.or_, "^": operator.xor}
NONE: frozenset[str] = frozenset()
NOWHERE = -(1 << 40)  # what is read outside of a table
_QUOTIENTS = 3  # that are told apart
_LONGEST = 4000  # characters of a text; a longer one is left out


@dataclass(frozen=True, eq=False)
class Node:
    """`op` over `args`, nodes and other hashable things. `dims`: the dimensions of the instance on which it depends."""

    op: str
    args: tuple[Any, ...]
    type: Scalar
    dims: frozenset[str]
    has_sum: bool
    text: str | None = None
    low: int = 0
    high: int = 0

    @property
    def is_constant(self) -> bool:
        return self.op == "constant"


def limits(kind: Scalar) -> tuple[int, int]:
    """The least and greatest number of an integer type."""
    if kind == BOOL:
        return 0, 1
    return (-(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1) if kind.is_signed else (0, (1 << kind.bits) - 1)


class Graph:
    """Makes nodes. `named`: what names of chosen integers stand for, as formulas."""

    def __init__(self) -> None:
        self._nodes: dict[Hashable, Node] = {}
        self.named: dict[str, str] = {}
        self._fresh = 0

    def node(
        self,
        op: str,
        args: tuple[Any, ...],
        kind: Scalar,
        text: str | None = None,
        low: int = 0,
        high: int = 0,
        dims: frozenset[str] = NONE,
    ) -> Node:
        """The node; an integer without a text lies anywhere in its type. `dims`: those on which it depends beside its arguments."""
        key = op, args, kind
        found = self._nodes.get(key)
        if found is None:
            if text is not None and len(text) > _LONGEST:
                text = None
            if text is None and not kind.is_float:
                low, high = limits(kind)
            inner = [a for a in args if isinstance(a, Node)]
            dims = dims.union(*(a.dims for a in inner))
            found = self._nodes[key] = Node(op, args, kind, dims, op == "sum" or any(a.has_sum for a in inner), text, low, high)
        return found

    def unknown(self, kind: Scalar, dims: Iterable[str] = ()) -> Node:
        """A value of which nothing is known, equal to no other."""
        self._fresh += 1
        low, high = limits(kind) if not kind.is_float else (0, 0)
        return Node("unknown", (self._fresh,), kind, frozenset(dims), False, None, low, high)

    def dim(self, name: str, kind: Scalar, low: int, high: int) -> Node:
        """A dimension of the instance, by its name."""
        if low > high:
            low, high = limits(kind)
        key = "dim", (name, low, high), kind
        return self._nodes.setdefault(key, Node("dim", (name,), kind, frozenset({name}), False, name, low, high))

    def constant(self, value: bool | int | float, kind: Scalar) -> Node:
        if kind == BOOL:
            return self.node("constant", (bool(value),), BOOL, "1 = 1" if value else "1 = 0")
        if kind.is_float:
            return self.node("constant", (float(value).hex(),), kind)
        return self.node("constant", (int(value),), kind, f"({int(value)})", int(value), int(value))

    # --- integers -----------------------------------------------------------------------------------------------------------------

    def wrapped(self, op: str, args: tuple[Any, ...], kind: Scalar, text: str | None, low: int, high: int) -> Node:
        """An integer whose exact value is `text`, as its type holds it."""
        least, most = limits(kind)
        if text is not None and (low < least or high > most):
            width = most - least + 1
            text = f"((({text}) - ({least})) mod {width} + ({least}))" if least else f"(({text}) mod {width})"
            low, high = least, most
        return self.node(op, args, kind, text, low, high)

    def cast(self, a: Node, kind: Scalar) -> Node:
        if a.type == kind:
            return a
        if kind == BOOL:
            return self.compare("!=", a, self.constant(0, a.type))
        if a.type == BOOL and kind.is_integer:
            return self.select(a, self.constant(1, kind), self.constant(0, kind))
        if kind.is_integer and a.type.is_integer:
            least, most = limits(kind)
            if a.text is not None and least <= a.low and a.high <= most:
                return self._same(a, kind)
            return self.wrapped("cast", (a,), kind, a.text, a.low, a.high)
        return self.node("cast", (a,), kind)

    def _same(self, a: Node, kind: Scalar) -> Node:
        """The integer, which fits, in another type."""
        return self.constant(a.low, kind) if a.is_constant else self.node("cast", (a,), kind, a.text, a.low, a.high)

    def arithmetic(self, op: str, a: Node, b: Node, kind: Scalar) -> Node:
        """`a op b` of integers or floats."""
        if kind.is_float or a.text is None or b.text is None:
            return self.node(op, (a, b), kind)
        if a.is_constant and b.is_constant and op in _EXACT:
            least, most = limits(kind)
            return self.constant((_EXACT[op](a.low, b.low) - least) % (most - least + 1) + least, kind)
        match op:
            case "+":
                return self._sum(a, b, kind)
            case "-":
                return self.wrapped(op, (a, b), kind, f"({a.text} - {b.text})", a.low - b.high, a.high - b.low)
            case "*" if a.is_constant or b.is_constant:
                return self.scaled(b, a.low, kind) if a.is_constant else self.scaled(a, b.low, kind)
            case "<<" if b.is_constant and 0 <= b.low < kind.bits:
                return self.scaled(a, 1 << b.low, kind)
            case ">>" if b.is_constant and 0 <= b.low < kind.bits:
                return self.floor(a, 1 << b.low, kind)
            case "&" if b.is_constant and b.low & (b.low + 1) == 0 and b.low > 0:
                return self.node("mod", (a, self.constant(b.low + 1, I64)), kind, f"({a.text} mod {b.low + 1})", 0, b.low)
            case "/" | "%" if b.is_constant and b.low > 0:
                return self._divided(op, a, b, kind)
        return self.node(op, (a, b), kind)

    def _sum(self, a: Node, b: Node, kind: Scalar) -> Node:
        """A thread's number among all is one dimension again, whose parts are a quotient and a remainder."""
        for one, two in ((a, b), (b, a)):
            whole = _whole(one, two)
            if whole is not None:
                return self.cast(whole, kind)
        return self.wrapped("+", (a, b), kind, f"({a.text} + {b.text})", a.low + b.low, a.high + b.high)

    def scaled(self, a: Node, factor: int, kind: Scalar) -> Node:
        ends = sorted((a.low * factor, a.high * factor))
        args = (a, self.constant(factor, kind))
        if factor == 1:
            return self.cast(a, kind)
        text = f"({factor}*{a.text})" if factor >= 0 else f"(-({-factor}*{a.text}))"
        return self.wrapped("*", args, kind, text if a.text is not None else None, ends[0], ends[1])

    def floor(self, a: Node, divisor: int, kind: Scalar) -> Node:
        """The quotient rounded down."""
        if divisor == 1:
            return self.cast(a, kind)
        if a.text is not None and a.low // divisor == a.high // divisor:
            return self.constant(a.low // divisor, kind)
        whole, rest = self._parted(a, divisor)
        if rest is not None:
            return self.cast(whole, kind)
        args = (a, self.constant(divisor, kind))
        return self.node("floor", args, kind, f"floor(({a.text})/{divisor})", a.low // divisor, a.high // divisor)

    def _divided(self, op: str, a: Node, b: Node, kind: Scalar) -> Node:
        """C's quotient and remainder, which round towards zero."""
        if a.is_constant:
            quotient = abs(a.low) // b.low * (1 if a.low >= 0 else -1)
            return self.constant(quotient if op == "/" else a.low - quotient * b.low, kind)
        if a.low < 0:
            zero = self.constant(0, kind)
            other = self.arithmetic("-", zero, a, kind)
            if other.low < 0 < other.high and a.low <= limits(kind)[0]:
                return self.node(op, (a, b), kind)
            upper = self.node("above", (a,), kind, a.text, 0, max(a.high, 0))
            lower = self.node("below", (other,), kind, other.text, 0, max(other.high, 0))
            sides = self._divided(op, upper, b, kind), self.arithmetic("-", zero, self._divided(op, lower, b, kind), kind)
            return self.select(self.compare(">=", a, zero), *sides)
        if op == "/":
            return self.floor(a, b.low, kind)
        if a.high < b.low:
            return self.cast(a, kind)
        _, rest = self._parted(a, b.low)
        if rest is not None:
            return self.cast(rest, kind)
        return self.node("%", (a, b), kind, f"({a.text} mod {b.low})", 0, b.low - 1)

    def _parted(self, a: Node, divisor: int) -> tuple[Node, Node | None]:
        """Quotient and remainder of a sum whose summands are multiples of the divisor, but for some that come to a remainder; None for the
        remainder of other sums."""
        terms, constant = summands(a)
        if not any(factor % divisor == 0 for factor in terms.values()):
            return a, None
        sums = self.constant(constant // divisor, I64), self.constant(constant % divisor, I64)
        for node, factor in terms.items():
            multiple = factor % divisor == 0
            part = self.scaled(self.cast(node, I64), factor // divisor if multiple else factor, I64)
            at = 0 if multiple else 1
            sums = (self.arithmetic("+", sums[0], part, I64), sums[1]) if at == 0 else (sums[0], self.arithmetic("+", sums[1], part, I64))
        whole, rest = sums
        return whole, rest if rest.text is not None and rest.low >= 0 and rest.high < divisor else None

    def select(self, condition: Node, a: Node, b: Node) -> Node:
        if condition.is_constant:
            return a if condition.args[0] else b
        if a is b:
            return a
        if a.type.is_float or a.type == BOOL or None in (condition.text, a.text, b.text):
            if a.type == BOOL:
                return self.either(self.both(condition, a), self.both(self.negated(condition), b))
            return self.node("select", (condition, a, b), a.type)
        made = self._nodes.get(("select", (condition, a, b), a.type))
        if made is not None:
            return made
        name = f"s{len(self.named)}"
        self.named[name] = f"((({condition.text}) and {name} = {a.text}) or (not ({condition.text}) and {name} = {b.text}))"
        return self.node("select", (condition, a, b), a.type, name, min(a.low, b.low), max(a.high, b.high))

    def table(self, element: Node, contents: tuple[tuple[int, Node], ...], kind: Scalar) -> Node:
        """What a table of constants, sorted by their places, has at an element; outside of it a number that is in no table."""
        known = dict(contents)
        if element.is_constant and element.low in known:
            return known[element.low]
        values = [value for _, value in contents]
        args = element, contents
        if kind.is_float or kind == BOOL or element.text is None:
            return self.node("table", args, kind)
        made = self._nodes.get(("table", args, kind))
        if made is not None:
            return made
        name = f"s{len(self.named)}"
        terms = [f"({element.text} = {place} and {name} = {value.low})" for place, value in contents]
        if not all(place in known for place in range(element.low, element.high + 1)[: len(contents) + 1]):
            values.append(self.constant(NOWHERE, I64))
            terms.append(f"({' and '.join(f'{element.text} != {place}' for place in known)} and {name} = {NOWHERE})")
        self.named[name] = f"({' or '.join(terms)})"
        return self.node("table", args, kind, name, min(v.low for v in values), max(v.low for v in values))

    def extreme(self, function: str, a: Node, b: Node, kind: Scalar) -> Node:
        """`min` or `max` of integers."""
        choose = min if function == "min" else max
        if a.text is None or b.text is None:
            return self.node("call", (function, a, b), kind)
        return self.node("call", (function, a, b), kind, f"{function}({a.text},{b.text})", choose(a.low, b.low), choose(a.high, b.high))

    # --- truth values -------------------------------------------------------------------------------------------------------------

    def compare(self, op: str, a: Node, b: Node) -> Node:
        if a.type.is_float or a.text is None or b.text is None or BOOL in (a.type, b.type):
            return self.node("compare", (op, a, b), BOOL)
        verdict = _decided(op, a, b)
        if verdict is not None:
            return self.constant(verdict, BOOL)
        return self.node("compare", (op, a, b), BOOL, f"{a.text} {'=' if op == '==' else op} {b.text}")

    def negated(self, a: Node) -> Node:
        if a.is_constant:
            return self.constant(not a.args[0], BOOL)
        if a.op == "!":
            found: Node = a.args[0]
            return found
        if a.op == "compare" and not a.args[1].type.is_float:
            return self.compare(NEGATED[a.args[0]], a.args[1], a.args[2])
        return self.node("!", (a,), BOOL, None if a.text is None else f"not ({a.text})")

    def both(self, a: Node, b: Node) -> Node:
        return self._joined("&&", "and", a, b, True)

    def either(self, a: Node, b: Node) -> Node:
        return self._joined("||", "or", a, b, False)

    def _joined(self, op: str, word: str, a: Node, b: Node, neutral: bool) -> Node:
        for one, other in ((a, b), (b, a)):
            if one.is_constant:
                return other if one.args[0] == neutral else one
        text = f"(({a.text}) {word} ({b.text}))" if a.text is not None and b.text is not None else None
        return self.node(op, (a, b), BOOL, text)


def conjuncts(guards: Iterable[Node]) -> Iterator[Node]:
    """Guards that hold together, a conjunction as its parts."""
    waiting = list(guards)
    while waiting:
        guard = waiting.pop()
        if guard.op == "&&":
            waiting += guard.args
        else:
            yield guard


def summands(index: Node) -> tuple[dict[Node, int], int]:
    """An index as a sum of nodes with factors, and a constant. What may wrap is one summand."""
    terms: dict[Node, int] = {}
    constant = 0
    waiting = [(index, 1)]
    while waiting:
        node, factor = waiting.pop()
        if node.is_constant:
            constant += factor * node.low
            continue
        parts = exact_parts(node)
        waiting += [(part, factor * by) for part, by in parts]
        if not parts:
            terms[node] = terms.get(node, 0) + factor
    return terms, constant


def exact_parts(node: Node) -> list[tuple[Node, int]]:
    """What a node is the exact sum of; nothing if it is no sum."""
    if node.op not in ("+", "-", "*", "cast") or not all(isinstance(a, Node) for a in node.args):
        return []
    a, *others = node.args
    if not others:
        return [(a, 1)] if a.text == node.text else []
    b = others[0]
    match node.op:
        case "+" if node.text == f"({a.text} + {b.text})":
            return [(a, 1), (b, 1)]
        case "-" if node.text == f"({a.text} - {b.text})":
            return [(a, 1), (b, -1)]
        case "*" if b.is_constant and node.text in (f"({b.low}*{a.text})", f"(-({-b.low}*{a.text}))"):
            return [(a, b.low)]
    return []


def kinks(graph: Graph, value: Node) -> Iterator[Node]:
    """The conditions that tell apart where the quasi-affine parts of a value are affine: those of its selects, minima and maxima, and
    what quotients are, if they are few numbers."""
    seen: set[Node] = set()
    waiting: list[Any] = [value]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Node) or node in seen:
            continue
        seen.add(node)
        if node.type == BOOL and node.text is not None:
            yield node
            continue
        waiting += node.args
        if node.text is not None and node.op == "call":
            yield graph.compare("<=", node.args[1], node.args[2])
        if node.text is not None and node.op in ("%", "mod", "floor") and node.args[0].text is not None:
            a, divisor = node.args[0], node.args[1].low
            first, last = a.low // divisor, a.high // divisor
            for k in range(first + 1, last + 1) if last - first <= _QUOTIENTS else ():
                yield graph.compare("<", a, graph.constant(k * divisor, a.type))


def _decided(op: str, a: Node, b: Node) -> bool | None:
    """What the intervals of two integers say of a comparison."""
    if op in (">", ">="):
        return _decided({">": "<", ">=": "<="}[op], b, a)
    if op == "<":
        return True if a.high < b.low else False if a.low >= b.high else None
    if op == "<=":
        return True if a.high <= b.low else False if a.low > b.high else None
    disjoint = a.high < b.low or b.high < a.low
    same = a.text == b.text or a.low == a.high == b.low == b.high
    if disjoint or same:
        return (op == "==") == same
    return None


def _bare(a: Node) -> Node:
    while a.op == "cast":
        a = a.args[0]
    return a


def _whole(quotient: Node, remainder: Node) -> Node | None:
    """What a quotient times its divisor and the remainder are parts of."""
    product, rest = _bare(quotient), _bare(remainder)
    if product.op != "*" or rest.op not in ("%", "mod") or not product.args[1].is_constant:
        return None
    floor, factor = _bare(product.args[0]), product.args[1]
    if floor.op != "floor" or floor.args[1].low != factor.low or rest.args[1].low != factor.low:
        return None
    a, b = _bare(floor.args[0]), _bare(rest.args[0])
    return floor.args[0] if a.text == b.text and a.text is not None else None


def is_zero(node: Node) -> bool:
    return node.is_constant and node.type.is_float and float.fromhex(node.args[0]) == 0.0


def addends(node: Node) -> Iterator[tuple[int, Node]]:
    """What a sum is made of, with signs."""
    waiting = [(1, node)]
    while waiting:
        sign, found = waiting.pop()
        if found.op in ("+", "-") and found.type.is_float:
            waiting += [(sign if found.op == "+" else -sign, found.args[1]), (sign, found.args[0])]
        elif found.op == "neg":
            waiting.append((-sign, found.args[0]))
        elif not is_zero(found):
            yield sign, found


def vanishes(value: Node, seed: Node) -> bool:
    """True if a value is 0 where a factor of it is."""
    if value is seed or is_zero(value):
        return True
    match value.op:
        case "neg" | "cast":
            return value.args[0].type.is_float and vanishes(value.args[0], seed)
        case "+" | "-":
            return vanishes(value.args[0], seed) and vanishes(value.args[1], seed)
        case "*":
            return vanishes(value.args[0], seed) or vanishes(value.args[1], seed)
        case "/":
            return vanishes(value.args[0], seed)
        case "select":
            return vanishes(value.args[1], seed) and vanishes(value.args[2], seed)
    return False
