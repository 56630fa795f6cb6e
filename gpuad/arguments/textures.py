"""`gpuad.Texture`: what a call passes for a texture object.

In: an array of one to three axes, with a last one of 2 or 4 for several channels, plain or annotated; filter, address modes, and the kind
of coordinates. Out: `extents`, as (width, height, depth), and `reading`, the frozen `ir.textures.Reading` for which reads are lowered to
loads and interpolation: a kernel is specialised to it.

Raises LaunchError for a shape, filter or address mode that no texture has. That the array is C-contiguous float32 is checked when the call
is bound (`api.expansions`). The modes are CUDA's (CUDA C++ Programming Guide, Texture Memory)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import LaunchError
from ..ir.textures import ADDRESSES, Reading
from ..public_calls import flag, index, public, show
from ..runtime.array_types import NdArray
from .annotations import array_of

_AXES = 3


@dataclass(frozen=True)
class Texture:
    """An array as a texture: the argument of a kernel for a parameter of type `cudaTextureObject_t`.

    `array`: float32, C-contiguous, of shape (width,), (height, width) or (depth, height, width), with a last axis of 2 or 4 numbers for
    `channels` > 1, alone or annotated, `Duplicated(table, dtable)` for a gradient of the table. `filter`: "point" or "linear". `address`:
    what is outside, "clamp", "border", "wrap" or "mirror", for all axes or as a tuple in the order x, y, z; the last two need
    `normalized`. `normalized`: coordinates count from 0 to 1 along each axis, not in texels. `border`: what "border" gives.

        gpuad.autodiff(warp, grid, block, (Texture(Duplicated(image, dimage), filter="linear"), Duplicated(x, dx), Duplicated(y, dy)))

    Reads interpolate in float, exactly where hardware rounds the weight of a neighbour to a multiple of 1/256 (CUDA C++ Programming Guide,
    Texture Fetching); the derivative with respect to a coordinate is that of the piece of the interpolant to its right, and 0 with
    "point". Raises LaunchError for what is no such texture.
    """

    array: NdArray
    filter: str = "point"
    address: str | Sequence[str] = "clamp"
    normalized: bool = False
    channels: int = 1
    border: float = 0.0

    def __post_init__(self) -> None:
        if not hasattr(type(self.array), "primal"):
            array_of("Texture", "array", self.array, "a texture is an array of one to three axes")
        if not isinstance(self.filter, str) or self.filter not in ("point", "linear"):
            raise LaunchError(f'a texture\'s filter is "point" or "linear", not {show(self.filter)}')
        if index(self.channels) not in (1, 2, 4):
            raise LaunchError(f"a texel has 1, 2 or 4 channels, not {show(self.channels)}")
        flag("normalized", self.normalized)
        if not isinstance(self.border, int | float | np.integer | np.floating) or isinstance(self.border, bool):
            raise LaunchError(f"a texture's border is a number, not {show(self.border)}")
        shape = getattr(getattr(self.array, "primal", self.array), "shape", None)
        if shape is None or not 1 <= len(shape) - (self.channels > 1) <= _AXES or 0 in shape:
            raise LaunchError(f"`array` of a texture has one to three axes, and one more for several channels; this one's shape is {shape}")
        if self.channels > 1 and shape[-1] != self.channels:
            raise LaunchError(f"a texture of {self.channels} channels has them along its last axis; its shape is {shape}")
        if not isinstance(self.address, str | tuple | list) or not all(isinstance(mode, str) for mode in self.address) or not self.address:
            raise LaunchError(f"a texture's address mode is a text or a tuple of texts, not {show(self.address)}")
        modes = self._modes()
        if len(modes) != _AXES or not set(modes) <= set(ADDRESSES):
            raise LaunchError(
                f"a texture's address mode is one of {', '.join(ADDRESSES)}, or a tuple of one for each axis, not {show(self.address)}"
            )
        if not self.normalized and {"wrap", "mirror"} & set(modes):
            raise LaunchError('the address modes "wrap" and "mirror" need normalized coordinates, as in CUDA: pass normalized=True')

    @property
    def extents(self) -> tuple[int, int, int]:
        """Width, height and depth, 1 where it has no such axis."""
        shape = getattr(self.array, "primal", self.array).shape
        sizes = (shape[:-1] if self.channels > 1 else shape)[::-1]
        width, height, depth = (*map(int, sizes), *[1] * (_AXES - len(sizes)))
        return width, height, depth

    @property
    def reading(self) -> Reading:
        """How it is read."""
        x, y, z = self._modes()
        shape = getattr(self.array, "primal", self.array).shape
        axes = len(shape) - (self.channels > 1)
        return Reading(axes, self.channels, (x, y, z), self.filter == "linear", self.normalized, float(self.border))

    def _modes(self) -> tuple[str, ...]:
        modes = (self.address,) * _AXES if isinstance(self.address, str) else tuple(self.address)
        return (*modes, *["clamp"] * (_AXES - len(modes)))


Texture.__init__ = public(Texture.__init__)  # type: ignore[method-assign]  # which the dataclass has made
