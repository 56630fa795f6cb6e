"""The objects that users hold in the place of a family of kernels, and `kernel[grid, block]`.

A `Held` shows the names of the interface alone; code of the package that is given one asks for the family `inside`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import LaunchError
from ..public_calls import public


class Held:
    """The object that users hold of a family of kernels: its names are those of the interface."""

    __slots__ = ("__weakref__", "_family")

    def __init__(self, family: Any) -> None:
        self._family = family

    def __repr__(self) -> str:
        return repr(self._family)


def inside(kernel: Any) -> Any:
    """The family of what users hold; anything else as it is."""
    return kernel._family if isinstance(kernel, Held) else kernel


@dataclass(frozen=True)
class BoundLaunch:
    """`kernel[grid, block]`, to be called with the arguments."""

    kernel: Callable[..., None]
    grid: Any
    block: Any

    @public
    def __call__(self, *args: Any, shared_mem: int = 0, stream: Any = None) -> None:
        self.kernel(self.grid, self.block, args, shared_mem=shared_mem, stream=stream)


def bound_launch(kernel: Any, geometry: Any) -> BoundLaunch:
    """`kernel[grid, block]`. LaunchError for another index."""
    if not isinstance(geometry, tuple) or len(geometry) != 2:
        raise LaunchError(f"`{kernel.name}`: write kernel[grid, block](*args), with shared_mem=bytes as a keyword if it needs any")
    return BoundLaunch(kernel, *geometry)


__all__ = ["BoundLaunch", "Held", "bound_launch", "inside"]
