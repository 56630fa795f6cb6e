"""What is computed: a problem has inputs from a seed, a floor, a witness for its gradient, and a program for each runner.

The gradient of a problem is J^T w: `w`, the input `seed`, is what arrives at the output. A framework may not skip the primal: everybody
gives the output and the gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Arrays: TypeAlias = "dict[str, NDArray[Any]]"
Size: TypeAlias = "Mapping[str, int]"
Record: TypeAlias = "dict[str, Any]"


class Runner(Protocol):
    """Somebody who computes a problem. Its constructor takes the problem, the size, the inputs, and the place: 'cpu' or 'gpu'."""

    def prepare(self) -> None:
        """Puts back what the last run overwrote, and clears the gradients. Not timed."""

    def primal(self) -> Any:
        """Runs the problem alone, to its end."""

    def gradient(self) -> Any:
        """Runs the problem and its reverse, to their end."""

    def found(self) -> Arrays:
        """The gradients that the last `gradient()` computed, by the names of the inputs."""

    def about(self) -> Record:
        """What else is to be said: bytes, allocations."""


class Missing(Exception):
    """This runner cannot take part, and why."""


@dataclass(frozen=True)
class Floor:
    """What a machine has to do at least, with perfect caching: bytes, and operations where these are what takes the time. `saved_bytes`:
    what the reverse needs of states that are overwritten; among the other two it counts twice, when it is written and when it is read."""

    primal_bytes: int
    reverse_bytes: int
    primal_flops: int = 0
    reverse_flops: int = 0
    saved_bytes: int = 0

    @property
    def by_arithmetic(self) -> bool:
        """Whether operations are what takes the time."""
        return bool(self.primal_flops)

    @property
    def ratio(self) -> float:
        """Reverse over primal."""
        return self.reverse_flops / self.primal_flops if self.primal_flops else self.reverse_bytes / self.primal_bytes

    def ratio_at(self, rates: Rates) -> float:
        """Reverse over primal in time, if what is saved moves at the far rate and all else at the near one."""
        far = 2 * self.saved_bytes * (rates.near / rates.far)
        return (self.primal_bytes + self.reverse_bytes - 2 * self.saved_bytes + far) / self.primal_bytes - 1


@dataclass(frozen=True)
class Rates:
    """Bytes a second of a plain copy, read and written: `near`, through as much memory as one launch of the primal goes through; `far`,
    through as much as is saved."""

    near: float
    far: float


class Problem(ABC):
    """One row of the table, at several sizes."""

    name: ClassVar[str]
    title: ClassVar[str]
    active: ClassVar[tuple[str, ...]]
    """The inputs whose gradient is wanted."""
    sizes: ClassVar[tuple[Size, ...]]
    """Sizes for a CPU, from small to large."""
    large: ClassVar[tuple[Size, ...]]
    """Sizes for a GPU."""
    quick: ClassVar[Size]
    """A size at which everything takes no time."""
    required: ClassVar[float | None] = None
    """The most that reverse over primal may be of the floor's ratio, where that is required."""
    of_hand: ClassVar[float | None] = None
    """The most that a gradient may take of that by hand, where that is required; then it has to be ahead of everybody else, too."""
    keeps: ClassVar[bool] = False
    """Whether by hand all states are kept, so that memory is compared, too."""
    tolerance: ClassVar[float] = 1e-4
    """Of a float32 gradient, relative to its largest entry."""
    launches: ClassVar[Callable[[Size], int]] = staticmethod(lambda size: size.get("steps", 1))
    """Launches of the primal."""
    cpp: ClassVar[str | None] = None
    """The primal and the gradient written by hand, see `runners/by_hand.py`; None: nobody has written it."""

    @abstractmethod
    def inputs(self, size: Size, rng: np.random.Generator) -> Arrays:
        """The inputs, `seed` among them."""

    @abstractmethod
    def floor(self, size: Size) -> Floor:
        """What the primal and its reverse move and compute at least."""

    @abstractmethod
    def wanted(self, size: Size, given: Arrays) -> Arrays:
        """The gradients in float64: a closed form, or a reverse that is written by hand in NumPy."""

    @abstractmethod
    def gpuad(self, size: Size, given: Arrays, library: Any) -> Runner:
        """The kernels of `kernels/` on arrays of `library`."""

    def jax(self, jax: Any, size: Size, x: Mapping[str, Any]) -> Any:
        """The output as a function of the inputs, in JAX."""
        raise Missing("nobody has written it")

    def torch(self, torch: Any, size: Size, x: Mapping[str, Any]) -> Any:
        """The output as a function of the inputs, in PyTorch."""
        raise Missing("nobody has written it")

    def warp(self, wp: Any, size: Size, x: Mapping[str, Any], new: Callable[..., Any]) -> Callable[[], Any]:
        """A function that makes the launches and gives the output; `new(*shape)` is an array for intermediates."""
        raise Missing("nobody has written it")

    def by_hand(self, size: Size) -> Record:
        """For `cpp`: further arrays by name, as shapes; gradients are there already."""
        return {}

    def error(self, found: Arrays, wanted: Arrays) -> float:
        """How wrong a gradient is: the largest difference, relative to the largest entry; above `tolerance` it is wrong."""
        return max(relative(found[name], wanted[name]) for name in self.active)


def relative(found: Any, wanted: Any) -> float:
    """The largest difference over the largest entry; infinite for what is not a number or has another shape."""
    if found.shape != wanted.shape or not np.isfinite(found).all():
        return float("inf")
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def label(size: Size) -> str:
    """The size in words."""
    return ", ".join(f"{name} {value}" for name, value in size.items())


def uniform(rng: np.random.Generator, shape: Sequence[int] | int, low: float = 0.5, high: float = 1.5) -> NDArray[np.float32]:
    """Numbers of float32 of about one size."""
    return rng.uniform(low, high, shape).astype(np.float32)


def blocks(extent: int, block: int) -> int:
    """How many blocks cover an extent."""
    return -(-extent // block)
