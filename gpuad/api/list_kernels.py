"""Kernels that take lists of arrays, as an array of their addresses (`const float** rows`).

A call says how many arrays there are, and becomes one of the kernel for so many, in which each is an argument of its own: with its own
length, shadow and footprint, judged with all others for what overlaps.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ..errors import LaunchError
from ..frontend.cuda import parse
from ..ir.lists import is_list, with_lists
from ..ir.surface import Declaration, Function
from ..memo import specialized
from ..source import SourceFile
from .argument_flattening import ModuleMemory
from .explain import AdjointText
from .kernels import BoundLaunch, Family, Kernel, Planned

MOST = 64  # arrays in a list: which of them it is decides a chain of comparisons


class OfLists(Kernel):
    """The kernel for lists of so many arrays, by the names of its parameters."""

    def __init__(self, family: ListKernel, lengths: Mapping[str, int]) -> None:
        self._family, self._lengths = family, dict(lengths)
        super().__init__(family.file, family.name, family.options, family.raw, family.module)

    def _read(self, name: str) -> Function:
        return with_lists(self._family.function, self._lengths)


class ListKernel(Family):
    """A CUDA kernel with parameters that point to pointers. It is launched and differentiated like a `Kernel`, with a list of arrays, of
    `Duplicated` where they have shadows, for each of these:

        gpuad.autodiff(blend, grid, block, ([Duplicated(a, da), Duplicated(b, db)], Duplicated(y, dy), n))
    """

    def __init__(
        self, file: SourceFile, name: str, options: Sequence[str] = (), raw: Any = None, module: ModuleMemory | None = None
    ) -> None:
        self.file, self.options, self.raw = file, tuple(options), raw
        self.module = module or ModuleMemory(raw)
        self.function = parse(file, options=self.options).kernel(name)
        self.name = self.function.name
        self.requested = name
        self.specializations: dict[Hashable, Any] = {}

    def __repr__(self) -> str:
        return f"<gpuad kernel {self.name} of {self.file.name}, which takes lists of arrays>"

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
        lengths = tuple((d.name, self._length(i, d, args[i])) for i, d in self._lists(args))
        return Planned(self._of(lengths), grid, block, self.directions(args), shared_mem, stream)

    def directions(self, given: Sequence[Any]) -> list[Any]:
        """A call's arguments, or their tangents, as those of the launch that it means."""
        lists = {i for i, d in enumerate(self.parameters) if is_list(d)}
        return [own for i, arg in enumerate(given) for own in (arg if i in lists and isinstance(arg, tuple | list) else (arg,))]

    def adjoint(
        self, *annotations: Any, args: Sequence[Any] | None = None, grid: Any = None, block: Any = None, shared_mem: int = 0, **by_name: Any
    ) -> AdjointText:
        """The reverse kernel for lists as long as those of `args`, as `Kernel.adjoint` gives it; what annotates a list annotates each
        array in it. With `grid` and `block` the text of this launch."""
        if args is None:
            raise LaunchError(f"`{self.name}` takes lists of arrays: pass args=, which say how many there are in each")
        plan = self.planned(grid, block, args)
        each = {d.name: [own.name for own in plan.kernel.parameters[first:end]] for d, first, end in self._places(args)}
        positional = [a for a, own in zip(annotations, each.values(), strict=False) for _ in own]
        named = {own: a for name, a in by_name.items() for own in each.get(name, [name])}
        launch = {} if grid is None else {"grid": grid, "block": block, "args": plan.args}
        return plan.kernel.adjoint(*positional, shared_mem=shared_mem, **launch, **named)

    def _places(self, args: Sequence[Any]) -> list[tuple[Declaration, int, int]]:
        """Where the arguments of each parameter are among those of the launch."""
        found, first = [], 0
        for declaration, arg in zip(self.parameters, args, strict=True):
            end = first + (len(arg) if is_list(declaration) else 1)
            found.append((declaration, first, end))
            first = end
        return found

    def _lists(self, args: Sequence[Any]) -> list[tuple[int, Declaration]]:
        if not isinstance(args, tuple | list) or len(args) != len(self.parameters):
            got = f"{len(args)}" if isinstance(args, tuple | list) else type(args).__name__
            raise LaunchError(f"`{self.name}` takes {len(self.parameters)} arguments, got {got}. Nothing was launched.")
        return [(i, d) for i, d in enumerate(self.parameters) if is_list(d)]

    def _length(self, position: int, declaration: Declaration, arg: Any) -> int:
        """How many arrays a list has. Raises LaunchError for what is no list of arrays."""
        what = f"parameter {position + 1} `{declaration.name}` of `{self.name}` ({declaration.span}) takes a list of arrays"
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

    @specialized
    def _of(self, lengths: tuple[tuple[str, int], ...]) -> OfLists:
        return OfLists(self, dict(lengths))
