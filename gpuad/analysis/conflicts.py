"""Conflicts: whether two accesses of different threads, or of threads of different blocks, come to one element, by their affine forms.

They do where a difference of the forms is zero. By how much two threads differ in each digit of an index are unknowns; whether a sum of
multiples of them can cancel, with two threads that are different ones, is decided by a search over the values that the others can make up
for, the greatest coefficient first (`can_cancel`): a mixed-radix argument that also knows offsets, halos and grid strides. A search that
takes too long decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..ir.nodes import Block, Buffer, Stmt
from ..ir.rewrite import blocks
from .affine_forms import Digit, Launch, Ranges, Reach, Unknown, Walk

NODES = 20_000  # of a search; beyond it nothing is decided
ALL_NODES = 400_000  # of all searches for one kernel; each pair of accesses is one at least


class Nodes:
    """What is `left` of the nodes of all searches for one kernel."""

    def __init__(self) -> None:
        self.left = ALL_NODES


def seem_to_conflict(body: Block, buffer: Buffer, launch: Launch) -> bool:
    """True if two threads touch one element of the buffer as far as the accesses show that are affine in the thread, all others and what
    guards say beyond ranges aside."""
    walk = _Affine(launch, frozenset({buffer}))
    try:
        reaches = walk.run(body)
    except Unknown:
        return False
    nodes = Nodes()
    return any(conflict(a, b, launch, nodes) for i, a in enumerate(reaches) for b in reaches[i:] if nodes.left > 0)


class _Affine(Walk):
    """Leaves out the accesses that are not affine."""

    def stmt(self, stmt: Stmt, ranges: Ranges) -> None:
        try:
            super().stmt(stmt, ranges)
        except Unknown:
            if blocks(stmt):
                raise


def conflict(a: Reach, b: Reach, launch: Launch, nodes: Nodes) -> bool:
    """True if two different threads, one at each access, touch one element; False where the search for them takes too long."""
    unknowns, shift = _differences(a, b, launch)
    return can_cancel(unknowns, shift, any(u.thread and not u.coefficient and (u.low < 0 or u.high > 0) for u in unknowns), nodes)


@dataclass(frozen=True)
class Term:
    """An unknown of the sum: by how much two accesses differ in a digit, between `low` and `high`, times a coefficient; of two threads
    (`thread`), or of two iterations."""

    coefficient: int
    low: int
    high: int
    thread: bool = False

    def differs(self, by: int) -> bool:
        """True if accesses that differ by so much are of those that are to be told from each other."""
        return self.thread and by != 0


def can_cancel(unknowns: Sequence[Term], shift: int, differ: bool, nodes: Nodes) -> bool:
    """True if the unknowns can make `shift + sum == 0` where one of them differs, or something else does (`differ`); False where the search
    takes too long, and where none of the nodes is left."""
    if any(u.low > u.high for u in unknowns) or nodes.left <= 0:
        return False
    bound = sorted((u for u in unknowns if u.coefficient), key=lambda u: -abs(u.coefficient))
    budget = [NODES]
    try:
        return _search(bound, 0, shift, differ, budget)
    except Unknown:
        return False
    finally:
        nodes.left -= NODES - budget[0]


def _search(unknowns: Sequence[Term], at: int, target: int, differ: bool, budget: list[int]) -> bool:
    """`can_cancel` for the unknowns from `at` on."""
    budget[0] -= 1
    if budget[0] < 0:
        raise Unknown
    if at == len(unknowns):
        return target == 0 and differ
    unknown = unknowns[at]
    return any(
        _search(unknowns, at + 1, target + unknown.coefficient * v, differ or unknown.differs(v), budget)
        for v in _values(unknowns, at, target)
    )


def _values(unknowns: Sequence[Term], at: int, target: int) -> range:
    """What the difference may be, for all that the others can make up for."""
    low = high = 0
    for u in unknowns[at + 1 :]:
        ends = u.coefficient * u.low, u.coefficient * u.high
        low, high = low + min(ends), high + max(ends)
    unknown = unknowns[at]
    ends = (-target - high, -target - low) if unknown.coefficient > 0 else (target + low, target + high)
    size = abs(unknown.coefficient)
    first, last = max(unknown.low, -(-ends[0] // size)), min(unknown.high, ends[1] // size)
    if last - first > NODES:
        raise Unknown
    return range(first, last + 1)


def _differences(a: Reach, b: Reach, launch: Launch) -> tuple[list[Term], int]:
    """By how much two accesses differ: unknowns and a number."""
    left, right = dict(a.form.terms), dict(b.form.terms)
    unknowns: list[Term] = []
    for axis in "xyz":
        whole = Digit("global", axis)
        parts = [Digit("thread", axis), Digit("block", axis)]
        split = any(d in left or d in right for d in parts)
        if split:
            left, right = _expanded(left, axis, launch), _expanded(right, axis, launch)
        for digit in parts if split else [whole]:
            unknowns.extend(_pair(left.pop(digit, 0), right.pop(digit, 0), a.ranges[digit], b.ranges[digit], True))
    unknowns.extend(_loops(left, right, a.ranges, b.ranges))
    return unknowns, a.form.constant - b.form.constant


def _loops(left: dict[Digit, int], right: dict[Digit, int], a: Ranges, b: Ranges) -> Iterator[Term]:
    """Iteration numbers of the two accesses are independent; two with one factor count as their difference."""
    spare = dict(right)
    for digit, c in left.items():
        partner = next((d for d, e in spare.items() if e == c), None)
        if partner is None:
            yield Term(c, *a[digit])
        else:
            del spare[partner]
            yield Term(c, a[digit][0] - b[partner][1], a[digit][1] - b[partner][0])
    for digit, c in spare.items():
        yield Term(-c, *b[digit])


def _expanded(terms: dict[Digit, int], axis: str, launch: Launch) -> dict[Digit, int]:
    whole = Digit("global", axis)
    if whole not in terms:
        return terms
    rest = {d: c for d, c in terms.items() if d != whole}
    c = terms[whole]
    return {**rest, Digit("thread", axis): c, Digit("block", axis): c * launch.block["xyz".index(axis)]}


def _pair(c: int, d: int, left: tuple[int, int], right: tuple[int, int], thread: bool) -> list[Term]:
    if c == d:
        return [Term(c, left[0] - right[1], left[1] - right[0], thread)]
    # two unknowns x and y with different factors: x - y tells threads apart, so c x - d y = d (x - y) + (c - d) x
    return [Term(d, left[0] - right[1], left[1] - right[0], thread), Term(c - d, *left)]
