"""CuPy's kernel objects as programs make them: outside of tapes CuPy's own, inside of one, and for pairs, gpuad's.

In: what CuPy's constructor takes. Out: an object that has CuPy's object, which it asks for everything but a launch, and gpuad's kernel,
which is made at the first launch that needs it: a kernel that gpuad cannot read stops no program that does not differentiate it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..api import kernel
from ..arguments.recorder import current
from .making import holds_pair


class _Theirs:
    """A kernel of CuPy's, and of gpuad's."""

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs
        self._ours: Any = None

    @property
    def ours(self) -> Any:
        """gpuad's kernel. Raises what `gpuad.kernel` raises."""
        if self._ours is None:
            self._ours = kernel(self._theirs)
        return self._ours

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)


class Raw(_Theirs):
    """A RawKernel, which is launched with a grid, a block and a tuple of arguments."""

    def __call__(self, grid: Any, block: Any, args: Any, **keywords: Any) -> None:
        if current.get() is not None or holds_pair(list(args)):
            self.ours(grid, block, tuple(args), **keywords)
        else:
            self._theirs(grid, block, args, **keywords)


class Mapped(_Theirs):
    """An ElementwiseKernel or ReductionKernel, which is called with arrays."""

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        active = any(map(holds_pair, (*args, *keywords.values())))
        return self.ours(*args, **keywords) if active else self._theirs(*args, **keywords)


class Module(_Theirs):
    """A RawModule."""

    def get_function(self, name: str) -> Raw:
        """A kernel of the module."""
        return Raw(self._theirs.get_function(name))


class Fused:
    """A function that CuPy fuses; of pairs, and inside of a tape, its operations one by one."""

    def __init__(self, function: Callable[..., Any], fuse: Callable[..., Any], options: dict[str, Any]) -> None:
        self.function, self._theirs = function, fuse(**options)(function) if options else fuse(function)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        active = any(map(holds_pair, (*args, *keywords.values())))
        return self.function(*args, **keywords) if active else self._theirs(*args, **keywords)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)


class Maker:
    """In the place of a class of CuPy's: makes objects of it that can be differentiated, and counts them as its instances."""

    def __init__(self, library: Any, theirs: Any, kind: type) -> None:
        self._theirs, self.kind = theirs, kind

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.kind(self._theirs(*args, **keywords))

    def __instancecheck__(self, x: Any) -> bool:
        return isinstance(x, (self.kind, self._theirs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)


def _fuse(library: Any, theirs: Any) -> Callable[..., Any]:
    def fuse(*args: Any, **keywords: Any) -> Any:
        if args and callable(args[0]) and not keywords:
            return Fused(args[0], theirs, {})
        return lambda function: Fused(function, theirs, keywords)

    return fuse


def jit() -> Any:
    """`gpuad.jit`, in the place of `cupyx.jit`."""
    from ..jit_kernels import jit as own

    return own


KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "RawKernel": lambda library, theirs: Maker(library, theirs, Raw),
    "RawModule": lambda library, theirs: Maker(library, theirs, Module),
    "ElementwiseKernel": lambda library, theirs: Maker(library, theirs, Mapped),
    "ReductionKernel": lambda library, theirs: Maker(library, theirs, Mapped),
    "fuse": _fuse,
}
