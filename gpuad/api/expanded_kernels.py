"""Kernels whose call decides more than types: lists of arrays and textures, of which each is an argument of its own in the launch.

In: a call. Out: the kernel that is made for what the call says of such parameters (`expansions`), kept for calls that say the same, and the
call's arguments as those of that kernel.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Self

from ..arguments import split_options
from ..errors import LaunchError
from ..ir.surface import Declaration, Function, has_grid_barrier
from ..memo import specialized
from ..runtime.array_types import Extents, NdArray
from ..source import SourceFile
from .adjoint_text import AdjointText
from .argument_flattening import ModuleMemory
from .expansions import EXPANSIONS, expansion
from .forward_over_reverse import check_count
from .grid_kernels import GridKernel
from .kernels import Kernel, OfFunction, Planned, TextKernel, global_of

Said = tuple[tuple[str, Hashable], ...]  # what a call says of the parameters that are expanded, by their names


class ExpandedKernel(TextKernel):
    """A CUDA kernel whose call passes lists of arrays, of `Duplicated` where they have shadows, or textures. It is launched and
    differentiated like a `Kernel`:

        gpuad.autodiff(blend, grid, block, ([Duplicated(a, da), Duplicated(b, db)], Duplicated(y, dy), n))
        gpuad.autodiff(warp, grid, block, (Texture(Duplicated(image, dimage), filter="linear"), Duplicated(y, dy), n))
    """

    def __init__(
        self, file: SourceFile, function: Function, options: Sequence[str] = (), raw: Any = None, module: ModuleMemory | None = None
    ) -> None:
        self.file, self.options, self.raw = file, tuple(options), raw
        self.module = module or ModuleMemory(raw)
        self.function, self.name = function, function.name
        self.in_parts = has_grid_barrier(function)
        self.specializations: dict[Any, Any] = {}
        self.shadows: dict[str, NdArray] = {}  # of variables of the module
        self._kinds = {d.name: kind for d in self.parameters if (kind := expansion(d)) is not None}
        self._what = " and ".join(e.what for e in EXPANSIONS if e in self._kinds.values())

    def __repr__(self) -> str:
        return f"<gpuad kernel {self.name} of {self.file.where}, which takes {self._what}>"

    @property
    def parameters(self) -> tuple[Declaration, ...]:
        """Declarations of the parameters, in order of the call."""
        return self.function.parameters[: len(self.function.parameters) - len(self.function.globals)]

    def get_global(self, name: str) -> Any:
        """A variable of the module, as `Kernel.get_global` gives it."""
        return self.module.get(self.name, global_of(self.function, self.name, name))

    def with_shadow(self, name: str, shadow: NdArray) -> Self:
        """The kernel with a shadow for a variable of its module."""
        other = copy.copy(self)
        other.shadows = {**self.shadows, global_of(self.function, self.name, name).name: shadow}
        other.specializations = {}
        return other

    def __call__(self, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> None:
        """Launches the kernel; inside of a tape it is recorded. Raises as a `Kernel` does."""
        kernel, own = self.meant(args)
        kernel(grid, block, own, shared_mem=shared_mem, stream=stream)

    def meant(self, args: Sequence[Any]) -> tuple[Kernel | GridKernel, list[Any]]:
        """The kernel that a call is one of, and its arguments."""
        if not isinstance(args, tuple | list) or len(args) != len(self.parameters):
            got = f"{len(args)}" if isinstance(args, tuple | list) else type(args).__name__
            raise LaunchError(f"`{self.name}` takes {len(self.parameters)} arguments, got {got}. Nothing was launched.")
        said: list[tuple[str, Hashable]] = []
        for position, (declaration, arg) in enumerate(zip(self.parameters, args, strict=True)):
            if (kind := self._kinds.get(declaration.name)) is not None:
                which = f"parameter {position + 1} `{declaration.name}` of `{self.name}` ({declaration.span})"
                said.append((declaration.name, kind.said(which, arg)))
        return self._of(tuple(said)), self._flat(args, lambda name, arg: self._kinds[name].own(arg))

    def planned(self, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> Planned | None:
        """The kernel and the launch that a call means."""
        kernel, own = self.meant(args)
        if isinstance(kernel, GridKernel):
            return kernel.planned(grid, block, own, shared_mem=shared_mem, stream=stream)
        return Planned(kernel, grid, block, own, shared_mem, stream)

    def launches(self, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> Iterator[Planned]:
        """The launches of the kernel that the call is one of."""
        kernel, own = self.meant(args)
        return kernel.launches(grid, block, own, shared_mem=shared_mem, stream=stream)

    def in_parts_of(
        self, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None
    ) -> tuple[GridKernel, Planned]:
        """The kernel with `grid.sync()` that a call is one of, and the call of it."""
        kernel, own = self.meant(args)
        assert isinstance(kernel, GridKernel)
        return kernel.in_parts_of(grid, block, own, shared_mem=shared_mem, stream=stream)

    def directions(self, given: Sequence[Any], chosen: Kernel | GridKernel) -> list[Any]:
        """Tangents of a call's arguments as those of the launch; of what has none as many as there are arguments of it."""
        counts = {name: self._kinds[name].count(said)[0] for name, said in self._said(chosen)}

        def own(name: str, direction: Any) -> Sequence[Any]:
            if direction is None:
                return [None] * counts[name]
            found = self._kinds[name].own(direction)
            if len(found) != counts[name]:
                raise LaunchError(f"`{self.name}`: `{name}` has {counts[name]} arrays, and {len(found)} directions. Nothing was launched.")
            return found

        check_count(self.name, len(self.parameters), given)
        return self._flat(given, own)

    def adjoint(
        self, /, *annotations: Any, args: Any = None, grid: Any = None, block: Any = None, shared_mem: int = 0, **by_name: Any
    ) -> AdjointText:
        """The reverse kernel for calls like that with `args`, as `Kernel.adjoint` gives it; what annotates a list annotates each array in
        it, what annotates a texture its array. With `grid` and `block` the text of this launch."""
        options = {"grid": grid, "block": block, "args": args, "shared_mem": shared_mem}
        positional, named, launch = split_options(annotations, by_name, options)
        if launch["args"] is None:
            raise LaunchError(f"`{self.name}` takes {self._what}: pass args=, which say what the kernel is made for")
        kernel, own = self.meant(launch["args"])
        launch["args"] = None if launch["grid"] is None else own
        return kernel.adjoint(self.annotated(kernel, positional, named)[1], **launch)

    def annotated(
        self, chosen: Kernel | GridKernel, positional: Sequence[Any], by_name: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """All by name: the kernel that a call becomes has more parameters."""
        said, own, first = dict(self._said(chosen)), [d.name for d in chosen.parameters], 0
        arrays: dict[str, list[str]] = {}
        for declaration in self.parameters:
            kind = self._kinds.get(declaration.name)
            count, annotated = kind.count(said[declaration.name]) if kind is not None else (1, 1)
            arrays[declaration.name] = own[first : first + annotated]
            first += count
        given = {**{d.name: a for d, a in zip(self.parameters, positional, strict=False)}, **by_name}
        return (), {name: a for written, a in given.items() for name in arrays.get(written, [written])}

    def _flat(self, args: Sequence[Any], own: Callable[[str, Any], Sequence[Any]]) -> list[Any]:
        return [a for d, arg in zip(self.parameters, args, strict=True) for a in (own(d.name, arg) if d.name in self._kinds else (arg,))]

    def _said(self, chosen: Kernel | GridKernel) -> Said:
        """What the calls say that become this kernel."""
        said: Said = next(said for (_, said), made in self.specializations.items() if made is chosen)
        return said

    @specialized
    def _of(self, said: Said) -> Kernel | GridKernel:
        function, values = self.function, dict(said)
        for kind in EXPANSIONS:
            function = kind.applied(function, {name: values[name] for name, own in self._kinds.items() if own is kind})
        kernel: Kernel | GridKernel
        if self.in_parts:
            kernel = GridKernel(self.file, function, self.options, self.raw, self.module)
        else:
            kernel = OfFunction(function, self.file, self.name, self.options, self.raw, self.module)
        for name, shadow in self.shadows.items():
            kernel = kernel.with_shadow(name, shadow)
        return kernel
