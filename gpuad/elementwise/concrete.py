"""The kernels behind an elementwise call: one for each pattern of types and strides, built when it is first needed.

In: generated text and the names of the numbers that it takes after the user's parameters. Out: a `Kernel` that is told offsets and strides,
and a launch of it for arrays that are laid out so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..api import Kernel, Planned
from ..source import SourceFile


class Concrete(Kernel):
    """A generated kernel that is told offsets and strides. `numbers`: what it takes after the user's parameters. `follow`: the parameters
    that it indexes by coordinates only, and so inside of their views."""

    _strided = True

    def __init__(self, file: SourceFile, name: str, options: Sequence[str], numbers: tuple[str, ...], follow: frozenset[str]) -> None:
        self.numbers, self._inside = numbers, follow
        super().__init__(file, name, options)

    def arranged(self, grid: tuple[int, ...], block: tuple[int, ...], values: Mapping[str, int]) -> Arranged:
        """A launch with the numbers by name."""
        return Arranged(self, grid, block, tuple(values[name] for name in self.numbers))


@dataclass(frozen=True)
class Arranged:
    """What a call comes to but for its own arrays and numbers: the kernel, its geometry, the numbers that it takes after them."""

    concrete: Concrete
    grid: tuple[int, ...]
    block: tuple[int, ...]
    numbers: tuple[int, ...]

    def planned(self, own: Sequence[Any], stream: Any) -> Planned:
        """The launch for arrays and numbers that are laid out so."""
        return Planned(self.concrete, self.grid, self.block, [*own, *self.numbers], stream=stream)
