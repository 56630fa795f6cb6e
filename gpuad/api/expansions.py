"""Arguments of a call that are several of the launch: lists of arrays (`const float** rows`) and textures.

What a call says of them beyond types (how many arrays there are, how a texture is read) makes the kernel that it is a launch of: in it each
array is an argument of its own, with its own length, shadow and footprint, judged with all others for what overlaps.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..arguments.arrays import is_array
from ..arguments.textures import Texture
from ..errors import LaunchError
from ..ir.lists import with_lists
from ..ir.records import is_shaped, is_texture, points_to_pointers
from ..ir.shaped_arrays import axes_of, with_pointers
from ..ir.surface import Declaration, Function
from ..ir.textures import EXTENTS, Reading, with_textures

MOST = 64  # arrays in a list: which of them it is decides a chain of comparisons
_MOST_TEXELS = (1 << 31) - 1  # the index of a texel is an int


class Expansion(Protocol):
    """Parameters of one such kind."""

    @property
    def what(self) -> str:
        """What a call passes for them, for messages."""

    def takes(self, declaration: Declaration) -> bool:
        """True if a parameter is one of them."""

    def said(self, parameter: str, arg: Any) -> Hashable:
        """What a call says by its argument. LaunchError for one that is none; `parameter`: which, for messages."""

    def own(self, arg: Any) -> Sequence[Any]:
        """The arguments of the launch, of what `said` has accepted or of its tangent."""

    def count(self, said: Any) -> tuple[int, int]:
        """How many parameters the kernel has for it, and how many of these, the first, are arrays that an annotation is about."""

    def applied(self, function: Function, said: Mapping[str, Any]) -> Function:
        """The kernel for calls that say so, by the names of the parameters."""


@dataclass(frozen=True)
class Lists:
    """Parameters that point to pointers; a call says how many arrays there are."""

    what: str = "lists of arrays"

    def takes(self, declaration: Declaration) -> bool:
        return points_to_pointers(declaration.type)

    def said(self, parameter: str, arg: Any) -> int:
        what = f"{parameter} takes a list of arrays"
        if not isinstance(arg, tuple | list):
            kind = f"an array of {arg.dtype}" if hasattr(arg, "dtype") else f"a {type(arg).__name__}"
            raise LaunchError(
                f"{what}, got {kind}: pass the arrays themselves, not their addresses, each with its shadow. Nothing was launched."
            )
        missing = next((k for k, one in enumerate(arg) if getattr(one, "primal", one) is None), None)
        if missing is not None:
            raise LaunchError(f"{what}, of which number {missing} is None: a list has no gaps. Nothing was launched.")
        if not 1 <= len(arg) <= MOST:
            raise LaunchError(f"{what}, from 1 to {MOST} of them, got {len(arg)}. Nothing was launched.")
        return len(arg)

    def own(self, arg: Any) -> Sequence[Any]:
        return list(arg) if isinstance(arg, tuple | list) else [arg]

    def count(self, said: int) -> tuple[int, int]:
        return said, said

    def applied(self, function: Function, said: Mapping[str, int]) -> Function:
        return with_lists(function, said)


@dataclass(frozen=True)
class Textures:
    """Parameters of type `cudaTextureObject_t`; a call says how each is read. A read is an interpolation written out."""

    what: str = "textures"

    def takes(self, declaration: Declaration) -> bool:
        return is_texture(declaration.type)

    def said(self, parameter: str, arg: Any) -> Reading:
        what = f"{parameter} takes a gpuad.Texture"
        if not isinstance(arg, Texture):
            raise LaunchError(
                f"{what}, got a {type(arg).__name__}: the memory of a texture object cannot be read but by hardware; pass "
                "gpuad.Texture(array, filter=..., address=..., normalized=...) with the array that it was filled from. Nothing was "
                "launched."
            )
        primal = getattr(arg.array, "primal", arg.array)
        if primal.dtype != "float32" or not primal.flags.c_contiguous:
            raise LaunchError(
                f"{what} of a C-contiguous array of float32, got {primal.dtype} with strides {primal.strides}. Nothing was launched."
            )
        if primal.size > _MOST_TEXELS:
            raise LaunchError(f"{what} of at most {_MOST_TEXELS} numbers, got {primal.size}. Nothing was launched.")
        return arg.reading

    def own(self, arg: Any) -> Sequence[Any]:
        """The tangent of a texture is that of its array."""
        return [arg.array, *arg.extents] if isinstance(arg, Texture) else [arg, *[None] * len(EXTENTS)]

    def count(self, said: Reading) -> tuple[int, int]:
        return 1 + len(EXTENTS), 1

    def applied(self, function: Function, said: Mapping[str, Reading]) -> Function:
        return with_textures(function, said)


@dataclass(frozen=True)
class ShapedArrays:
    """Parameters of CuPy's type `CArray<T, axes>`, which has an array's shape and strides with it."""

    what: str = "arrays with their shapes (CArray)"

    def takes(self, declaration: Declaration) -> bool:
        return is_shaped(declaration.type)

    def said(self, parameter: str, arg: Any) -> int:
        primal = getattr(arg, "primal", arg)
        if not is_array(primal):
            raise LaunchError(f"{parameter} takes an array, got a {type(primal).__name__}. Nothing was launched.")
        return int(primal.ndim)

    def own(self, arg: Any) -> Sequence[Any]:
        """The tangent of an array has no numbers of its own."""
        primal = getattr(arg, "primal", arg)
        return [arg, np.int64(primal.size), *map(np.int64, primal.shape), *map(np.int64, primal.strides)]

    def count(self, said: int) -> tuple[int, int]:
        return 2 + 2 * said, 1

    def applied(self, function: Function, said: Mapping[str, int]) -> Function:
        for declaration in function.parameters:
            axes = said.get(declaration.name)
            if is_shaped(declaration.type) and axes != axes_of(declaration):
                raise LaunchError(
                    f"parameter `{declaration.name}` of `{function.name}` ({declaration.span}) takes an array of {axes_of(declaration)} "
                    f"axes, got one of {axes}. Nothing was launched."
                )
        return with_pointers(function)


EXPANSIONS: tuple[Expansion, ...] = (Textures(), Lists(), ShapedArrays())


def expansion(declaration: Declaration) -> Expansion | None:
    """The kind of a parameter; None for one that is one of the launch, too."""
    return next((e for e in EXPANSIONS if e.takes(declaration)), None)
