"""Textures as parameters: a call says what the texture is, and the kernel for such ones has the array and its extents as parameters
in the place of each; how it is read is known while the kernel is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..errors import LaunchError
from .records import is_texture
from .surface import Block, Constant, Declaration, Declare, Expr, Function, Name, Record, walk
from .types import BOOL, F32, I32, Pointer, Struct

EXTENTS = ("width", "height", "depth")
ADDRESSES = ("wrap", "clamp", "mirror", "border")  # as cudaTextureAddressMode counts them


@dataclass(frozen=True)
class Reading:
    """How a texture is read. `axes`: how many it has; `address`: of x, y and z, of `ADDRESSES`."""

    axes: int
    channels: int
    address: tuple[str, str, str]
    linear: bool
    normalized: bool
    border: float


def with_textures(function: Function, readings: Mapping[str, Reading]) -> Function:
    """The kernel for textures that are read so, by the names of its parameters: an array of the same name, and `tex_width`, `tex_height`
    and `tex_depth`, in the place of `tex`."""
    taken = {d.name for d in function.parameters}
    uid = max((n.uid for n in walk(function) if isinstance(n, Declaration)), default=0) + 1
    parameters: list[Declaration] = []
    made: list[Declare] = []
    for declaration in function.parameters:
        if not is_texture(declaration.type):
            parameters.append(declaration)
            continue
        own = [replace(declaration, type=Pointer(F32, const=True), uid=uid)]
        for k, extent in enumerate(EXTENTS):
            name = f"{declaration.name}_{extent}"
            if name in taken:
                raise LaunchError(f"`{function.name}`: a parameter is called `{name}`, as an extent of the texture `{declaration.name}` is")
            own.append(replace(declaration, name=name, type=I32, uid=uid + k + 1))
        uid += len(own)
        parameters += own
        made.append(Declare(declaration.span, declaration, _texture(declaration, own, readings[declaration.name])))
    return replace(function, parameters=tuple(parameters), body=Block(function.body.span, (*made, *function.body.body)))


def _texture(declaration: Declaration, own: list[Declaration], how: Reading) -> Record:
    """The struct that the kernel was written with."""
    span, kind = declaration.span, declaration.type
    assert isinstance(kind, Struct)
    values: dict[str, Expr] = {name: Name(span, d.type, d) for name, d in zip(("data", *EXTENTS), own, strict=True)}
    values |= {"axes": Constant(span, I32, how.axes), "channels": Constant(span, I32, how.channels)}
    values |= {f"address_{axis}": Constant(span, I32, ADDRESSES.index(mode)) for axis, mode in zip("xyz", how.address, strict=True)}
    values |= {"linear": Constant(span, BOOL, how.linear), "normalized": Constant(span, BOOL, how.normalized)}
    values["border"] = Constant(span, F32, how.border)
    return Record(span, kind, tuple(values[field.name] for field in kind.fields))
