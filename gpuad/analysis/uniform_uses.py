"""What a kernel makes of the whole numbers of its launch before a thread has a part in it: `it % 3 == 0`, `it / 2 * n`.

A launch whose numbers come to the same values there is the same launch: each thread does the same to memory. So what memory is touched by
launches with `it % 3 == 0` is found out for two values, however many steps there are. What only becomes a floating-point value is left out:
no fact about memory depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..ir.folding import evaluated, negate, whole
from ..ir.nodes import Assign, Binary, Block, Cast, Constant, Expr, Kernel, Let, Select, Unary, Var, children, variables, walk
from ..ir.rewrite import expressions, is_short, substitute, walk_stmts
from ..ir.types import BOOL
from ..memo import Memo, Same


@dataclass(frozen=True, eq=False)
class UniformUses:
    """`uses`: the greatest expressions of a kernel in which nothing stands but whole numbers of its launch, `numbers`, and constants."""

    numbers: Mapping[Var, int]  # with their positions
    uses: tuple[Expr, ...]
    known: Memo = field(default_factory=Memo)

    def values(self, given: Mapping[int, int]) -> tuple[int, ...] | None:
        """What they come to for numbers by position; None where that is not known."""
        constants = {v: Constant(given[k], v.type) for v, k in self.numbers.items() if k in given}
        found = [whole(evaluated(e, constants)) for e in self.uses]
        return tuple(n for n in found if n is not None) if None not in found else None

    def determine(self, origin: object, blocks: Callable[[], Iterable[Block]], params: Iterable[object]) -> bool:
        """True if other code, that of `origin`, has the numbers nowhere but in these expressions: then it does the same where they do.
        `params`: its parameters that are the launch's."""

        def find() -> bool:
            known = all(p in self.numbers for p in params if isinstance(p, Var) and _is_whole(p))
            return known and all(self._holds(e) for e in _uses(blocks(), self.numbers))

        found: bool = self.known.get(("determined", Same(origin)), find)
        return found

    def _holds(self, expr: Expr) -> bool:
        mine = {*self.uses, *(negate(e) for e in self.uses if e.type == BOOL)}
        return not any(v in self.numbers for v in _left(expr, mine))


def uniform_uses(kernel: Kernel) -> UniformUses:
    """The uses in a kernel's body."""
    numbers = {p: k for k, p in enumerate(kernel.params) if isinstance(p, Var) and _is_whole(p)}
    return UniformUses(numbers, tuple(_uses((kernel.body,), numbers)))


def uniform_lets(kernel: Kernel) -> dict[Var, Expr]:
    """The variables of a kernel that stand for uniform expressions, with these in terms of its whole numbers."""
    return _uniform_lets(walk_stmts(kernel.body), {p: k for k, p in enumerate(kernel.params) if isinstance(p, Var) and _is_whole(p)})


def _is_whole(expr: Expr) -> bool:
    return expr.type.is_integer or expr.type == BOOL


def _left(expr: Expr, these: set[Expr]) -> Iterator[Var]:
    """The Vars of an expression outside of the greatest of `these` in it."""
    if expr in these:
        return
    if isinstance(expr, Var):
        yield expr
    for child in children(expr):
        yield from _left(child, these)


def _uses(blocks: Iterable[Block], numbers: Mapping[Var, int]) -> Iterator[Expr]:
    """The greatest uniform expressions with a number in them, each once."""
    stmts = [s for block in blocks for s in walk_stmts(block)]
    lets = _uniform_lets(stmts, numbers)
    found: dict[Expr, None] = {}
    for stmt in stmts:
        if not (isinstance(stmt, Let) and stmt.var in lets):
            for expr in expressions(stmt):
                found.update(dict.fromkeys(_greatest(expr, lets, numbers)))
    return iter(found)


def _uniform_lets(stmts: Iterable[object], numbers: Mapping[Var, int]) -> dict[Var, Expr]:
    """Variables that stand for uniform expressions, with these in terms of the numbers; one that has several values is none."""
    lets: dict[Var, Expr] = {}
    made_of: dict[Var, set[Var]] = {}
    several: set[Var] = set()
    for stmt in stmts:
        if isinstance(stmt, Assign):
            several.add(stmt.var)
        elif isinstance(stmt, Let) and _is_uniform(stmt.value, lets, numbers):
            value = substitute(stmt.value, lets)
            made_of.setdefault(stmt.var, set()).update(variables(stmt.value))
            if not is_short(value) or lets.setdefault(stmt.var, value) != value:
                several.add(stmt.var)
        elif isinstance(stmt, Let):
            several.add(stmt.var)
    while more := {v for v in lets if v not in several and not several.isdisjoint(made_of[v])}:  # what is made of such a one has several
        several |= more
    return {v: e for v, e in lets.items() if v not in several}


def _is_uniform(expr: Expr, lets: Mapping[Var, Expr], numbers: Mapping[Var, int]) -> bool:
    return all(
        _is_whole(e) and (isinstance(e, Constant | Unary | Binary | Cast | Select) or (isinstance(e, Var) and (e in numbers or e in lets)))
        for e in walk(expr)
    )


def _greatest(expr: Expr, lets: Mapping[Var, Expr], numbers: Mapping[Var, int]) -> Iterator[Expr]:
    if _is_uniform(expr, lets, numbers):
        full = substitute(expr, lets)
        if any(v in numbers for v in variables(full)):
            yield full
    elif isinstance(expr, Cast) and expr.type.is_float and _is_uniform(expr.operand, lets, numbers):
        return
    else:
        for child in children(expr):
            yield from _greatest(child, lets, numbers)


__all__ = ["UniformUses", "uniform_uses"]
