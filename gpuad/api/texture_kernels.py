"""Kernels that take textures. A call says how each is read, and becomes one of the kernel for such textures, in which the table is an
array and a read of it an interpolation written out: with its shadow and footprint, and judged for what overlaps, like any other."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ..arguments.textures import Texture
from ..errors import LaunchError
from ..frontend.cuda import parse
from ..ir.surface import Declaration, Function
from ..ir.textures import EXTENTS, Reading, is_texture, with_textures
from ..memo import specialized
from ..source import SourceFile
from .argument_flattening import ModuleMemory
from .explain import AdjointText
from .kernels import BoundLaunch, Family, Kernel, Planned

_MOST = (1 << 31) - 1  # the index of a texel is an int


class OfTextures(Kernel):
    """The kernel for textures that are read in one way, by the names of its parameters."""

    def __init__(self, family: TextureKernel, readings: Mapping[str, Reading]) -> None:
        self._family, self._readings = family, dict(readings)
        super().__init__(family.file, family.name, family.options, family.raw, family.module)

    def _read(self, name: str) -> Function:
        return with_textures(self._family.function, self._readings)


class TextureKernel(Family):
    """A CUDA kernel with parameters of type `cudaTextureObject_t`. It is launched and differentiated like a `Kernel`, with a
    `gpuad.Texture` for each of these."""

    def __init__(
        self, file: SourceFile, name: str, options: Sequence[str] = (), raw: Any = None, module: ModuleMemory | None = None
    ) -> None:
        self.file, self.options, self.raw = file, tuple(options), raw
        self.module = module or ModuleMemory(raw)
        self.function = parse(file, options=self.options).kernel(name)
        self.name = self.function.name
        self.specializations: dict[Hashable, Any] = {}

    def __repr__(self) -> str:
        return f"<gpuad kernel {self.name} of {self.file.name}, which takes textures>"

    @property
    def source(self) -> str:
        """The CUDA text."""
        return self.file.text

    @property
    def parameters(self) -> tuple[Declaration, ...]:
        """Declarations of the parameters, in order of the call."""
        return self.function.parameters[: len(self.function.parameters) - len(self.function.globals)]

    def __call__(self, grid: Any, block: Any, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> None:
        """Launches the kernel; inside of a tape it is recorded. Raises as a `Kernel` does."""
        plan = self.planned(grid, block, args, shared_mem=shared_mem, stream=stream)
        plan.kernel(plan.grid, plan.block, plan.args, shared_mem=shared_mem, stream=stream)

    def __getitem__(self, geometry: Any) -> BoundLaunch:
        """`kernel[grid, block](*args)`."""
        if not isinstance(geometry, tuple) or len(geometry) != 2:
            raise LaunchError(f"`{self.name}`: write kernel[grid, block](*args), with shared_mem=bytes as a keyword if it needs any")
        return BoundLaunch(self, *geometry)

    def planned(self, grid: Any, block: Any, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> Planned:
        """The kernel and the launch that a call means."""
        if not isinstance(args, tuple | list) or len(args) != len(self.parameters):
            got = f"{len(args)}" if isinstance(args, tuple | list) else type(args).__name__
            raise LaunchError(f"`{self.name}` takes {len(self.parameters)} arguments, got {got}. Nothing was launched.")
        readings = []
        for position, (declaration, arg) in enumerate(zip(self.parameters, args, strict=True)):
            if is_texture(declaration):
                readings.append((declaration.name, self._texture(position, declaration, arg).reading))
        return Planned(self._of(tuple(readings)), grid, block, self.directions(args), shared_mem, stream)

    def directions(self, given: Sequence[Any]) -> list[Any]:
        """A call's arguments, or their tangents, as those of the launch that it means. The tangent of a texture is that of its array."""
        found: list[Any] = []
        for declaration, arg in zip(self.parameters, given, strict=True):
            if not is_texture(declaration):
                found.append(arg)
            elif isinstance(arg, Texture):
                found += [arg.array, *arg.extents]
            else:
                found += [arg, *[None] * len(EXTENTS)]
        return found

    def adjoint(
        self, *annotations: Any, args: Sequence[Any] | None = None, grid: Any = None, block: Any = None, shared_mem: int = 0, **by_name: Any
    ) -> AdjointText:
        """The reverse kernel for textures that are read as those of `args`, as `Kernel.adjoint` gives it. With `grid` and `block` the text
        of this launch."""
        if args is None:
            raise LaunchError(f"`{self.name}` takes textures: pass args=, which say how each is read")
        plan = self.planned(grid, block, args)
        _, named = self.annotated(annotations, by_name)
        launch = {} if grid is None else {"grid": grid, "block": block, "args": plan.args}
        return plan.kernel.adjoint(shared_mem=shared_mem, **launch, **named)

    def annotated(self, positional: Sequence[Any], by_name: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Annotations by position as those by name: the kernel for textures that are read so has more parameters."""
        return (), {**{d.name: a for d, a in zip(self.parameters, positional, strict=False)}, **by_name}

    def _texture(self, position: int, declaration: Declaration, arg: Any) -> Texture:
        """The texture of a call. Raises LaunchError for what is none."""
        what = f"parameter {position + 1} `{declaration.name}` of `{self.name}` ({declaration.span}) takes a gpuad.Texture"
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
        if primal.size > _MOST:
            raise LaunchError(f"{what} of at most {_MOST} numbers, got {primal.size}. Nothing was launched.")
        return arg

    @specialized
    def _of(self, readings: tuple[tuple[str, Reading], ...]) -> OfTextures:
        return OfTextures(self, dict(readings))
