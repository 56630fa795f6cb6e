"""Whether threads of two blocks of a launch surely come to one element: no barrier orders them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .injectivity import NODES, Digit, Launch, Reach, Unknown

_AXES = "xyz"


@dataclass(frozen=True)
class _Difference:
    """An unknown of the search: by how much two threads differ in a digit. `apart(d)`: whether two that differ by `d` may be of different
    blocks; exact for one digit at a time, since each has its own range."""

    coefficient: int
    left: tuple[int, int]
    right: tuple[int, int]
    width: int  # of the blocks in this digit; 0: it does not tell blocks apart

    @property
    def low(self) -> int:
        return self.left[0] - self.right[1]

    @property
    def high(self) -> int:
        return self.left[1] - self.right[0]

    def apart(self, by: int) -> bool:
        first, last = max(self.left[0], self.right[0] + by), min(self.left[1], self.right[1] + by)
        if not self.width or not by or first > last:
            return False
        return abs(by) >= self.width or last - first >= self.width or any(self.parted(n, by) for n in range(first, last + 1))

    def parted(self, one: int, by: int) -> bool:
        return one // self.width != (one - by) // self.width

    def parted_anyhow(self) -> bool:
        """Whether two threads may be of different blocks, whatever the element."""
        return self.width > 0 and len({n // self.width for n in (*self.left, *self.right)}) > 1


def blocks_meet(a: Reach, b: Reach, launch: Launch) -> bool:
    """Whether two threads of different blocks, one at each access, surely touch one element; False where that is not known. Assumes that
    both accesses are executed for certain within their ranges."""
    unknowns = _differences(a, b, launch)
    if unknowns is None or any(u.low > u.high for u in unknowns):
        return False
    free = any(u.coefficient == 0 and u.parted_anyhow() for u in unknowns)
    bound = sorted((u for u in unknowns if u.coefficient), key=lambda u: -abs(u.coefficient))
    try:
        return _search(bound, 0, a.form.constant - b.form.constant, free, [NODES])
    except Unknown:
        return False


def _differences(a: Reach, b: Reach, launch: Launch) -> list[_Difference] | None:
    """None where the two forms have other factors, iterations, or ranges that their digits do not tell."""
    left, right = dict(a.form.terms), dict(b.form.terms)
    if left != right or any(not d.is_thread for d in left):
        return None
    found: list[_Difference] = []
    for axis, extent, blocks in zip(_AXES, launch.block, launch.grid, strict=True):
        whole, thread, block = (Digit(kind, axis) for kind in ("global", "thread", "block"))
        if thread not in left and block not in left:
            found.append(_Difference(left.get(whole, 0), a.ranges[whole], b.ranges[whole], extent))
            continue
        if whole in left or any(r.ranges[whole] != (0, extent * blocks - 1) for r in (a, b)):
            return None
        found.append(_Difference(left.get(thread, 0), a.ranges[thread], b.ranges[thread], 0))
        found.append(_Difference(left.get(block, 0), a.ranges[block], b.ranges[block], 1))
    return found


def _search(unknowns: Sequence[_Difference], at: int, target: int, apart: bool, budget: list[int]) -> bool:
    """Whether the differences from `at` on can make `target + sum == 0` with threads of two blocks."""
    budget[0] -= 1
    if budget[0] < 0:
        raise Unknown
    if at == len(unknowns):
        return target == 0 and apart
    unknown = unknowns[at]
    return any(
        _search(unknowns, at + 1, target + unknown.coefficient * v, apart or unknown.apart(v), budget)
        for v in _values(unknowns, at, target)
    )


def _values(unknowns: Sequence[_Difference], at: int, target: int) -> Iterator[int]:
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
    yield from range(first, last + 1)
