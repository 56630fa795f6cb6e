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
from typing import Any

import numpy as np

from ..arguments.arrays import namespace
from ..ir.dtypes import is_half


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


class Transport:
    """Who carries the maps out, on flat contiguous arrays; `x` is None where a rank gives nothing, and so is y where it gets nothing.
    `nbytes`: the payload of this rank so far, of which all ranks together count each byte once: what it sent, of copies from and sums to a
    root what is not the root's own. What follows the maps is how a library does the part of each that is not the same for all."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.nbytes = self.messages = 0

    def count(self, nbytes: int) -> None:
        """Notes what is sent."""
        self.nbytes += int(nbytes)
        self.messages += 1

    def sum_all(self, x: Any, shape: Shape) -> Any:
        """The sum, for all."""
        self.count(x.nbytes)
        if shape.in_order:
            return in_rank_order(self.all_blocks(x, (int(x.size),) * self.size, shape), self.size)
        return self.reduced(x, shape, "SUM")

    def sum_to_root(self, x: Any, shape: Shape) -> Any:
        """The sum, for the root."""
        x = zeros(shape, shape.counts[0]) if x is None else x
        self.count(0 if self.rank == shape.root else x.nbytes)
        if shape.in_order:
            parts = self.blocks_at_root(x, replace(shape, counts=(int(x.size),) * self.size))
            return in_rank_order(parts, self.size) if parts is not None else None
        return self.summed_at_root(x, shape)

    def root_to_all(self, x: Any, shape: Shape) -> Any:
        """What the root has, for all."""
        y = shape.new(shape.counts[0], shape.dtype) if x is None or self.rank != shape.root else x
        self.count(0 if self.rank == shape.root else y.nbytes)
        self.copy_from_root(y, shape)
        return y

    def gather_all(self, x: Any, shape: Shape) -> Any:
        """All blocks, for all."""
        y = self.all_blocks(x, shape.counts, shape)
        self.count(y.nbytes - x.nbytes)
        return y

    def sum_blocks(self, x: Any, shape: Shape) -> Any:
        """Of the sum, each its block."""
        own = shape.counts[self.rank]
        self.count(x.nbytes - own * x.dtype.itemsize)
        if shape.in_order:
            return in_rank_order(self.exchanged(x, replace(shape, takes=(own,) * self.size)), self.size)
        return self.summed_block(x, shape)

    def gather_to_root(self, x: Any, shape: Shape) -> Any:
        """All blocks, for the root."""
        x = zeros(shape, shape.counts[self.rank]) if x is None else x
        self.count(0 if self.rank == shape.root else x.nbytes)
        return self.blocks_at_root(x, shape)

    def deal(self, x: Any, shape: Shape) -> Any:
        """Of what the root has, each its block."""
        y = shape.new(shape.counts[self.rank], shape.dtype)
        self.count(0 if self.rank == shape.root else y.nbytes)
        self.scatter_from_root(x, y, shape)
        return y

    def exchange(self, x: Any, shape: Shape) -> Any:
        """From each the block that is meant for this rank."""
        self.count((sum(shape.counts) - shape.counts[self.rank]) * shape.dtype.itemsize)
        return self.exchanged(x, shape)

    def extreme(self, x: Any, name: str, shape: Shape) -> tuple[Any, Any]:
        """The greatest (or least) of all ranks' numbers, for all, and the rank of each: the lowest of those that have it, and where there
        are NaN, which win as in NumPy, the lowest that has one. `name`: MAX or MIN."""
        library = namespace(x)
        given, missing = summable(x), library.isnan(x)
        given = library.where(missing, given.dtype.type(-np.inf if name == "MAX" else np.inf), given)
        self.count(x.nbytes)
        best = self.reduced(given, shape, name)
        rank = library.where(missing, self.rank, library.where(given == best, self.size + self.rank, 2 * self.size)).astype(np.int32)
        first = self.reduced(rank, shape, "MIN")
        best[first < self.size] = np.nan
        return best.astype(x.dtype, copy=False), first % self.size

    def reduced(self, x: Any, shape: Shape, op: str) -> Any:
        """The sum, or MAX or MIN, of all ranks' numbers, for all, in the dtype of `x`."""
        raise NotImplementedError

    def summed_at_root(self, x: Any, shape: Shape) -> Any:
        """The sum, for the root."""
        raise NotImplementedError

    def copy_from_root(self, y: Any, shape: Shape) -> None:
        """Makes `y` what it is at the root."""
        raise NotImplementedError

    def all_blocks(self, x: Any, counts: tuple[int, ...], shape: Shape) -> Any:
        """The ranks' blocks, of so many elements, one after the other."""
        raise NotImplementedError

    def summed_block(self, x: Any, shape: Shape) -> Any:
        """This rank's block of the sum."""
        raise NotImplementedError

    def blocks_at_root(self, x: Any, shape: Shape) -> Any:
        """The ranks' blocks one after the other, for the root."""
        raise NotImplementedError

    def scatter_from_root(self, x: Any, y: Any, shape: Shape) -> None:
        """Fills `y` with this rank's block of what the root has."""
        raise NotImplementedError

    def exchanged(self, x: Any, shape: Shape) -> Any:
        """What each rank has for this one, one after the other."""
        raise NotImplementedError


def summable(x: Any) -> Any:
    """In a dtype that is added exactly enough, and by MPI and NCCL."""
    return x.astype(np.float32) if is_half(x.dtype) else x


def zeros(shape: Shape, count: int) -> Any:
    """A vector of zeros."""
    made = shape.new(count, shape.dtype)
    made.fill(0)
    return made


def in_rank_order(parts: Any, count: int) -> Any:
    """The sum of vectors that lie one after the other, the first two first."""
    rows = parts.reshape(count, -1)
    total = summable(rows[0]).copy()
    for row in rows[1:]:
        total += row
    return total.astype(parts.dtype, copy=False)


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
