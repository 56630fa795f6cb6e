"""The collectives as linear maps, and their adjoints: the one table by which a collective is reversed.

Let z be the memory of all ranks together. A collective takes from each rank r a vector x_r and gives it a vector y_r (either may be
missing): y = A x, with x and y stacked over the ranks. Its adjoint is the transposed matrix, dx = A^T dy, and every transposed matrix of
the table is in the table again:

    map             y on rank r                      adjoint         dx on rank r
    sum_all         the sum of all x_s               sum_all         the sum of all dy_s
    sum_to_root     at the root: the sum of all x_s  root_to_all     dy of the root
    root_to_all     x of the root                    sum_to_root     at the root: the sum of all dy_s
    gather_all      all x_s, one after the other     sum_blocks      the sum over s of block r of dy_s
    sum_blocks      the sum over s of block r of x_s gather_all      all dy_s, one after the other
    gather_to_root  at the root: all x_s             deal            block r of the root's dy
    deal            block r of the root's x          gather_to_root  at the root: all dy_s
    exchange        block r of every x_s             exchange        block r of every dy_s, what is given and taken swapped

A vector that a rank does not have counts as zero. Where x and y lie in memory, and what else is there, is no concern of this file
(`operations`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol


@dataclass(frozen=True)
class Shape:
    """The sizes of a map on a communicator. `counts`: elements of each rank's block (of sums and copies one number, the vector's length);
    of an exchange what this rank gives to each, and `takes` what it takes from each. `dtype`: of the elements. `in_order`: whether sums
    are formed in the order of the ranks. `new`: makes an array of a length and a dtype, not cleared."""

    root: int
    counts: tuple[int, ...]
    takes: tuple[int, ...]
    dtype: Any
    in_order: bool
    new: Callable[[int, Any], Any] = field(compare=False, repr=False)

    @property
    def transposed(self) -> Shape:
        """The sizes of the adjoint."""
        return replace(self, counts=self.takes, takes=self.counts) if self.takes else self


class Transport(Protocol):
    """Who carries the maps out, on flat contiguous arrays; `x` is None where a rank gives nothing, and so is y where it gets nothing."""

    def sum_all(self, x: Any, shape: Shape) -> Any:
        """The sum, for all."""

    def sum_to_root(self, x: Any, shape: Shape) -> Any:
        """The sum, for the root."""

    def root_to_all(self, x: Any, shape: Shape) -> Any:
        """What the root has, for all."""

    def gather_all(self, x: Any, shape: Shape) -> Any:
        """All blocks, for all."""

    def sum_blocks(self, x: Any, shape: Shape) -> Any:
        """Of the sum, each its block."""

    def gather_to_root(self, x: Any, shape: Shape) -> Any:
        """All blocks, for the root."""

    def deal(self, x: Any, shape: Shape) -> Any:
        """Of what the root has, each its block."""

    def exchange(self, x: Any, shape: Shape) -> Any:
        """From each the block that is meant for this rank."""


ADJOINT = {
    "sum_all": "sum_all",
    "sum_to_root": "root_to_all",
    "root_to_all": "sum_to_root",
    "gather_all": "sum_blocks",
    "sum_blocks": "gather_all",
    "gather_to_root": "deal",
    "deal": "gather_to_root",
    "exchange": "exchange",
}


def apply(transport: Transport, name: str, x: Any, shape: Shape) -> Any:
    """y = A x."""
    return getattr(transport, name)(x, shape)


def apply_adjoint(transport: Transport, name: str, dy: Any, shape: Shape) -> Any:
    """dx = A^T dy."""
    return getattr(transport, ADJOINT[name])(dy, shape.transposed)
