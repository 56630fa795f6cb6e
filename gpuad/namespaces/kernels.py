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

    def ours(self) -> Any:
        """Makes gpuad's kernel, once. Raises what `gpuad.kernel` raises; a property's AttributeError would be taken for one of CuPy's."""
        if self._ours is None:
            self._ours = kernel(self._theirs)
        return self._ours

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)


class Raw(_Theirs):
    """A RawKernel, which is launched with a grid, a block and a tuple of arguments."""

    def __call__(self, grid: Any, block: Any, args: Any, **keywords: Any) -> None:
        if current.get() is not None or holds_pair(list(args)):
            self.ours()(grid, block, tuple(args), **keywords)
        else:
            self._theirs(grid, block, args, **keywords)


class Jit(_Theirs):
    """A function that `jit.rawkernel` has made a kernel of, launched in either of CuPy's ways."""

    def __call__(self, grid: Any, block: Any, args: Any, **keywords: Any) -> None:
        active = current.get() is not None or holds_pair(list(args))
        (self.ours() if active else self._theirs)(grid, block, tuple(args), **keywords)

    def __getitem__(self, geometry: Any) -> Callable[..., None]:
        grid, block = geometry
        return lambda *args, **keywords: self(grid, block, args, **keywords)


class Mapped(_Theirs):
    """An ElementwiseKernel or ReductionKernel, which is called with arrays."""

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        active = any(map(holds_pair, (*args, *keywords.values())))
        return self.ours()(*args, **keywords) if active else self._theirs(*args, **keywords)


class Module(_Theirs):
    """A RawModule."""

    def __init__(self, theirs: Any) -> None:
        super().__init__(theirs)
        self._functions: dict[str, Raw] = {}

    def get_function(self, name: str) -> Raw:
        """A kernel of the module, always the same one."""
        if name not in self._functions:
            self._functions[name] = Raw(self._theirs.get_function(name))
        return self._functions[name]


class Fused:
    """A function that CuPy fuses; of pairs its operations one by one."""

    def __init__(self, theirs: Any) -> None:
        self.function, self._theirs = theirs.func, theirs

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
        found = theirs(*args, **keywords)
        return Fused(found) if args else lambda function: Fused(found(function))

    return fuse


def jit() -> Any:
    """`gpuad.jit`, in the place of `cupyx.jit`."""
    from ..jit_kernels import jit as own

    return own


_WRAPPED = {
    "RawKernel": Raw, "RawModule": Module, "ElementwiseKernel": Mapped, "ReductionKernel": Mapped, "Fusion": Fused, "_JitRawKernel": Jit,
}  # fmt: skip
_known: dict[int, tuple[Any, Any]] = {}


def wrapped(theirs: Any) -> Any:
    """A kernel object of CuPy's, made before, as one that can be differentiated; always the same one. None for anything else."""
    kind = _WRAPPED.get(type(theirs).__name__) if type(theirs).__module__.partition(".")[0] in ("cupy", "cupyx") else None
    if kind is None:
        return None
    if id(theirs) not in _known:
        _known[id(theirs)] = (theirs, kind(theirs))
    return _known[id(theirs)][1]


KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "RawKernel": lambda library, theirs: Maker(library, theirs, Raw),
    "RawModule": lambda library, theirs: Maker(library, theirs, Module),
    "ElementwiseKernel": lambda library, theirs: Maker(library, theirs, Mapped),
    "ReductionKernel": lambda library, theirs: Maker(library, theirs, Mapped),
    "fuse": _fuse,
}
