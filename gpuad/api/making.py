"""A kernel from what a user has.

In: CUDA text, a path, a kernel of CuPy's, or another kernel of the module. Out: a `Family`, whose class is decided by the text alone: one
launch (`Kernel`), several (`GridKernel`), or one that is made for each call's lists and textures (`ExpandedKernel`).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..deferred_import import import_registered
from ..errors import CompileError, LaunchError, MissingFileError
from ..frontend.cuda import parse
from ..ir.records import is_expanded
from ..ir.surface import has_grid_barrier
from ..literals import calling_file
from ..public_calls import flag, show, text, texts
from ..source import SourceFile
from .argument_flattening import ModuleMemory
from .bounds_checked import BoundsCheckedKernel
from .expanded_kernels import ExpandedKernel
from .grid_kernels import GridKernel
from .kept_kernels import of_text
from .kernels import BoundLaunch, Family, Kernel, OfFunction, TextKernel, inside

_families: list[Callable[[Any], Family | None]] = []


def offer(recognise: Callable[[Any], Family | None]) -> None:
    """Adds a way to make a kernel: `recognise` gives one for the objects that it knows, else None."""
    _families.append(recognise)


def kernel(source: Any, name: str | None = None, *, options: Sequence[str] = (), bounds: bool = False) -> Any:
    """As `gpuad.kernel`, for code of the package: the inside of the kernel that users hold."""
    source = inside(source)
    options = texts("options", options)
    if name is not None:
        text("name", name)
    if flag("bounds", bounds):
        return _checked(kernel(source, name, options=options))
    if isinstance(source, BoundsCheckedKernel) and name is not None:
        return _checked(kernel(source.kernel, name))
    if isinstance(source, Kernel | ExpandedKernel | GridKernel) and name is not None:
        return _made(source.file, name, source.options, source.raw, source.module)
    if isinstance(source, Family):
        return source
    if isinstance(source, Path) or (isinstance(source, str) and "\n" not in source and source.endswith((".cu", ".cuh"))):
        return _made(SourceFile(str(source), _read(Path(source))), _chosen(name, str(source)), options)
    if isinstance(source, str):
        return _made(SourceFile("<source>", source, python=calling_file()), _chosen(name, "<source>"), options)
    if isinstance(source, BoundLaunch):
        raise LaunchError(
            "kernel[grid, block] is a launch: pass the kernel, and grid and block after it, as in autodiff(k, grid, block, args)"
        )
    import_registered()
    made = next((m for m in (recognise(source) for recognise in _families) if m is not None), None)
    return made or _from_cupy(source, name, options)


def _checked(family: Any) -> Any:
    """A kernel of text with its accesses looked at."""
    if isinstance(family, BoundsCheckedKernel):
        return family
    if not isinstance(family, TextKernel):
        raise LaunchError(f"`bounds`: {show(family)} is no kernel of CUDA text: its indices are gpuad's own")
    if isinstance(family, Kernel) and (names := {g.pointer.name for g in family.function.globals} & set(family.written)):
        raise LaunchError(f"`bounds`: `{family.name}` writes `{min(names)}` of its module, which would be written twice")
    return BoundsCheckedKernel(family)


def _read(path: Path) -> str:
    """The text of a file. MissingFileError where there is none, CompileError where it is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CompileError(f"`source`: the file {path} is no text in UTF-8 ({error})") from None
    except OSError as error:
        raise MissingFileError(
            f"`source`: the file {path} cannot be read ({error.strerror}): the path is taken from {Path.cwd()}"
        ) from None


def from_file(file: SourceFile, name: str, options: Sequence[str] = ()) -> TextKernel:
    """The kernel of a file that was read, of whichever kind it is. Raises as `kernel` does."""
    return _made(file, name, options)


_KEEPS_SUBNORMALS = re.compile(r"--?ftz=false")


def _made(file: SourceFile, name: str, options: Sequence[str], raw: Any = None, module: ModuleMemory | None = None) -> TextKernel:
    """A kernel of a text."""
    for option in options:
        if _KEEPS_SUBNORMALS.fullmatch(option.strip()):
            message = f"option {option.strip()!r} has no effect: CuPy appends -ftz=true, so float32 subnormals are 0 on a GPU"
            warnings.warn(message, stacklevel=5)
    kept = of_text("", file, name, options)
    function = kept.function
    if any(is_expanded(d.type) for d in function.parameters):
        return ExpandedKernel(file, function, options, raw, module)
    if has_grid_barrier(function):
        return GridKernel(file, function, options, raw, module)
    return OfFunction(function, file, name, options, raw, module, kept)


def _chosen(name: str | None, where: str) -> str:
    if name is None:
        raise LaunchError(f"{where}: give the kernel's `name` as second argument")
    return name


def _from_cupy(source: Any, name: str | None, options: Sequence[str]) -> Family:
    """From a RawKernel or RawModule, known by what they offer."""
    code = getattr(source, "code", None)
    if code is None:
        what = "was made from a binary and has no source" if hasattr(source, "file_path") else "is no kernel"
        raise LaunchError(f"`source`: {show(source)} {what}; pass CUDA text and a name, a .cu path and a name, or a CuPy RawKernel")
    given = (*getattr(source, "options", ()), *options)
    file, own = SourceFile(f"<{type(source).__name__}>", code, python=calling_file()), getattr(source, "name", None)
    expressions = _expressions(source)
    if (
        name is None and own is not None and expressions is not None
    ):  # a function that was taken from a RawModule has its name as the compiler made it
        own = parse(file, options=given).called(own, expressions)
    return _made(file, _chosen(name or own, "<module>"), given, source)


def _expressions(source: Any) -> Sequence[str] | None:
    """The name expressions of a function's module: CuPy's RawModule shows them, its RawKernel tells them to `pickle` alone."""
    shown: Sequence[str] | None = getattr(source, "name_expressions", None)
    state = source.__getstate__() if shown is None and hasattr(source, "__getstate__") else None
    return state.get("name_expressions") if isinstance(state, dict) else shown
