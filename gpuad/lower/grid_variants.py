"""Which parts of a kernel with `grid.sync()` a call may come to, and which of a few numbers they are made for, before any call is known.

In: the kernel as parts (`grid_parts.Plan`). Out: numbers of parts, each with what its `fixed` numbers are, in the order in which they are
first met. Found by abstract interpretation of the control flow around the barriers: a number that is one of a few (which of two pointers
it is) is followed exactly, any condition may go either way, any loop may have any number of iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from ..errors import UnsupportedError
from ..ir import nodes as ir
from .grid_parts import Choose, Plan, Repeat, Step

MOST = 256  # states of the numbers that are followed
_TOO_MANY = (
    "`{}`: the numbers that decide between its parts have more than {} states together, so that its text is that of a launch: pass grid=, "
    "block= and args="
)

State = frozenset[tuple[ir.Var, int]]  # what each number is that is one of a few
Variant = tuple[int, tuple[int, ...]]  # a part, and what its fixed numbers are


def variants(plan: Plan) -> tuple[Variant, ...]:
    """The parts that calls may come to. UnsupportedError where there are too many."""
    walk = _Walk(plan)
    walk.steps(plan.steps, {State()})
    return tuple(walk.found)


class _Walk:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.found: dict[Variant, None] = {}

    def steps(self, steps: Sequence[Step], states: set[State]) -> set[State]:
        """The states after some steps, by those before them."""
        for step in steps:
            if isinstance(step, int):
                self.reach(step, states)
            elif isinstance(step, Choose):
                states = self.steps(step.then, states) | self.steps(step.otherwise, states)
            else:
                states = self.repeated(step, states)
        return states

    def reach(self, number: int, states: set[State]) -> None:
        fixed = self.plan.signature(number).fixed
        for known in sorted((dict(state) for state in states), key=lambda d: sorted((v.uid, n) for v, n in d.items())):
            self.found[number, tuple(known[v] for v in fixed)] = None

    def repeated(self, step: Repeat, states: set[State]) -> set[State]:
        """Any number of iterations: until no state is new."""
        carried = [c for c in step.loop.carried if c.var in self.plan.tags]
        seen: set[State] = set()
        waiting = {new for state in states for new in _with(state, [(c.var, c.init) for c in carried])}
        while waiting:
            seen |= waiting
            if len(seen) > MOST:
                kernel = self.plan.kernel
                raise UnsupportedError(_TOO_MANY.format(kernel.name, MOST), kernel.span)
            after = self.steps(step.steps, self.steps(step.header, waiting))
            waiting = {new for state in after for new in _with(state, [(c.var, c.next) for c in carried])} - seen
        ended = self.steps(step.header, seen)
        return {new for state in ended for new in _with(state, [(c.result, c.var) for c in carried])}


def _with(state: State, given: Sequence[tuple[ir.Var, ir.Expr]]) -> Iterator[State]:
    """The states in which numbers are what expressions may be."""
    known = dict(state)
    for values in product(*(sorted(_values(expr, known)) for _, expr in given)):
        yield frozenset({**known, **dict(zip((v for v, _ in given), values, strict=True))}.items())


def _values(expr: ir.Expr, known: dict[ir.Var, int]) -> set[int]:
    """What an expression may be that is one of a few numbers."""
    if isinstance(expr, ir.Select):
        return _values(expr.then, known) | _values(expr.otherwise, known)
    if isinstance(expr, ir.Constant):
        return {int(expr.value)}
    assert isinstance(expr, ir.Var), "what is one of a few is a constant or another one"
    return {known[expr]}
