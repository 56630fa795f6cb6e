"""The kernels that users hold: what `gpuad.kernel` gives offers what its page lists, and nothing else.

What it does is done by its `TextKernel`, which no user sees; code of the package that is given a kernel asks `api.kernel` for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from ..arguments.annotations import shadow_array
from ..ir.surface import Declaration
from ..public_calls import public, taking, text
from ..runtime.array_types import Extents, NdArray
from . import making
from .adjoint_text import AdjointText
from .kernels import BoundLaunch, Held, TextKernel, bound_launch


class Kernel(Held):
    """A CUDA kernel that can be launched and differentiated. Make one with `gpuad.kernel`.

    One kernel serves any dtype that its parameters have, any grid and any sizes; what was found out about a launch is kept for launches
    like it.
    """

    __slots__ = ()
    _family: TextKernel

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self._family.name

    @property
    def source(self) -> str:
        """The CUDA text."""
        return self._family.source

    @property
    def parameters(self) -> tuple[Declaration, ...]:
        """Declarations of the parameters, in order of the call."""
        return self._family.parameters

    @public
    def __call__(self, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> None:
        """Launches the kernel as it is; inside of a tape it is recorded. `grid`, `block`: ints or tuples of up to three, in blocks and in
        threads; `args`: arrays (annotated or not), numbers, None for an array that is left out; `shared_mem`: bytes of dynamic shared
        memory; `stream`: of CuPy, the current one by default. Raises LaunchError, and in a tape ShadowError and TapeError, before anything
        is launched."""
        self._family(grid, block, args, shared_mem=shared_mem, stream=stream)

    def __getitem__(self, geometry: tuple[Extents, Extents]) -> BoundLaunch:
        """`kernel[grid, block](*args)`."""
        return bound_launch(self, geometry)

    @public
    def launches(
        self, grid: Extents, block: Extents, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None
    ) -> Iterator[tuple[Kernel, Extents, Extents, Sequence[Any], int, Any]]:
        """The launches of a call, in order, without making them: each a tuple of kernel, grid, block, arguments, bytes of shared memory and
        stream. There is one, but of a kernel with `grid.sync()` one for each part. Raises as the call does."""
        plans = self._family.launches(grid, block, args, shared_mem=shared_mem, stream=stream)
        return ((Kernel(plan.kernel), *plan[1:]) for plan in plans)

    @public
    def adjoint(
        self, /, *annotations: Any, grid: Any = None, block: Any = None, args: Any = None, shared_mem: int = 0, **by_name: Any
    ) -> AdjointText:
        """The reverse kernel before any launch: `.source` is self-contained CUDA text under a header that is its contract, `.explain()`
        says what it saves and why. `annotations`, `by_name`: classes or instances, by position or by parameter name, or a mapping from
        names (for a parameter that has the name of an option, as `grid`); who is not named is Const. With `grid`, `block` and `args` the
        text is the one that this launch would use. `shared_mem`: bytes of dynamic shared memory, which a kernel needs that uses it. Of a
        kernel with `grid.sync()` the text has the parts as kernels and the adjoint of each, its contract the order of their launches,
        `.parts` their names. Raises UnsupportedError, with its place, for what cannot be differentiated, ShadowError and LaunchError as
        `autodiff` does."""
        return self._family.adjoint(*annotations, grid=grid, block=block, args=args, shared_mem=shared_mem, **by_name)

    @taking(name=text)
    def get_global(self, name: str) -> Any:
        """A `__constant__` or `__device__` variable that the kernel reaches, as an array on its memory: a NumPy array for a kernel from
        text (of shape () for a single number or struct, a struct's fields under their names), a CuPy array on the module's memory for one
        from a RawModule (of the numbers of a struct, or of its bytes if these are of several types). Raises LaunchError for any other
        name."""
        return self._family.get_global(name)

    @taking(name=text, shadow=shadow_array)
    def with_shadow(self, name: str, shadow: NdArray) -> Kernel:
        """The kernel, of this module, with a shadow for one of its variables: `get_global(name)` is then Duplicated with it."""
        return Kernel(self._family.with_shadow(name, shadow))


@overload
def kernel(source: str | Path | Kernel, name: str | None = None, *, options: Sequence[str] = (), bounds: bool = False) -> Kernel: ...
@overload
def kernel(source: Any, name: str | None = None, *, options: Sequence[str] = (), bounds: bool = False) -> Any: ...
@public
def kernel(source: Any, name: str | None = None, *, options: Sequence[str] = (), bounds: bool = False) -> Any:
    """A differentiable kernel from `source`: CUDA text and a name, a path of a .cu file and a name, a CuPy RawKernel, a CuPy RawModule
    and a name, or a CuPy ElementwiseKernel, ReductionKernel or jit.rawkernel. A template is named with its arguments: `step<float, 3>`.
    From a gpuad kernel and a name: another kernel of its module, with which it shares the module's memory.

        square = gpuad.kernel(text, "square")

    `options` are those of the compilation (-D, -I, -std). `bounds=True`, of kernels of CUDA text: before each launch or derivative the
    interpreter runs the kernel on copies of the arrays, and raises BoundsError, with line, array and index, for the first access outside of
    one; for tests, since that takes a hundred times as long or more. Raises CompileError for text that is no CUDA or an unknown name,
    UnsupportedError (with file, line and column) for what gpuad cannot represent.
    """
    family = making.kernel(source, name, options=options, bounds=bounds)
    if isinstance(source, Kernel) and family is source._family:
        return source
    return Kernel(family) if isinstance(family, TextKernel) else family
