"""What files offer to be checked: the launches that they describe.

A `.cu` file describes launches in the comment `/*gpuad ... [[case]] ... */` (`cases`). A Python file has one or more functions named
`example` or `example_...`, which are called with a `numpy.random.Generator` if they take an argument, and return

    (call, arguments)    or    (call, arguments, keywords)

where `call` is `kernel[grid, block]`, `(kernel, grid, block)`, an elementwise or a reduction kernel, or a `gpuad.rule`; `arguments` is a
list of arrays and numbers, outputs included, as `gpuad.testing.check_gradient` and `check_rule` take them (what is annotated is active;
where nothing is, every float is); `keywords` are those of an elementwise or reduction call.

Finding examples imports nothing of the user's: cases are read as text, functions found in the syntax tree. Only `Example.launch` runs
their code. Files are known by their path from a root, so that what is generated of them is the same on every machine.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from .. import testing
from ..api import TextKernel, from_file
from ..arguments import layouts
from ..arguments.annotations import Active, BatchDuplicated, Const, Duplicated
from ..arguments.layouts import dtype_leaves
from ..errors import GpuadError
from ..ir.dtypes import is_real
from ..ir.records import is_record
from ..ir.types import Type
from ..source import SourceFile, Span
from ..tape.rules import Rule
from .cases import Case, read

_MARK = "/*gpuad"


@dataclass(frozen=True)
class Launch:
    """One call to be checked. `call`: as `check_gradient` takes it, or a rule; `args` are plain or annotated."""

    call: Any
    args: tuple[Any, ...]
    grid: Any = None
    block: Any = None
    shared_mem: int = 0
    keywords: dict[str, Any] = field(default_factory=dict)

    @property
    def is_rule(self) -> bool:
        """True if it is array code with a reverse of the user's own."""
        return isinstance(self.call, Rule)

    def planned(self) -> testing.PlannedCall:
        """The kernel and its arguments in full, each argument that can be active annotated unless some are already. TypeError for a
        rule, which has no kernel."""
        if self.is_rule:
            raise TypeError(f"the rule `{self.call.name}` has no kernel")
        given = any(isinstance(a, Duplicated | Active | Const | BatchDuplicated) for a in self.args)
        types: Sequence[Type | None] = [d.type for d in getattr(getattr(self.call, "kernel", self.call), "parameters", ())]
        types = types if len(types) == len(self.args) else [None] * len(self.args)
        args = self.args if given else tuple(_annotated(a, t) for a, t in zip(self.args, types, strict=True))
        return testing.planned(self.call, args, self.grid, self.block, self.shared_mem, self.keywords)


def _annotated(value: Any, type_: Type | None) -> Any:
    """A value with a new shadow if it can have one; `type_`: of its parameter, where that is known before the call."""
    if isinstance(value, np.ndarray) and not (type_ is not None and is_record(type_)):
        return Duplicated(value) if any(is_real(leaf) for _, leaf in dtype_leaves(value.dtype)) else value
    if type_ is None:
        return layouts.active(value) if isinstance(value, float | np.inexact) else value
    return layouts.active(value) if layouts.float_types(type_) and layouts.can_be_active(type_) else value


@dataclass(frozen=True)
class Example:
    """One described launch: `file` is the path from the root, with the text; `path` where it lies; `name` its kernel's or function's,
    with a number where a file has several of that name; `span` the place that describes it."""

    path: Path
    file: SourceFile
    name: str
    span: Span
    case: Case | None = None
    function: str | None = None

    @property
    def id(self) -> str:
        """What it is called in a ledger: file and name."""
        return f"{self.file.name}::{self.name}"

    def launch(self, seed: int = 0) -> Launch:
        """The launch with inputs drawn from a seed; GpuadError with a place if the kernel is refused, or the description does not fit."""
        return self._of_case(self.case, seed) if self.case is not None else self._of_function(seed)

    def _of_case(self, case: Case, seed: int) -> Launch:
        kernel = _kernel(self.file, case.kernel)
        made = case.arrays({d.name: d.type for d in kernel.parameters}, seed)
        grid, block, shared_mem = case.geometry()
        args = tuple(case.annotated(name, value) for name, value in made.items())
        return Launch(kernel, args, grid, block, shared_mem)

    def _of_function(self, seed: int) -> Launch:
        function = getattr(_imported(self.path), str(self.function))
        takes = function.__code__.co_argcount
        returned = function(*[np.random.default_rng(seed)][:takes])
        if not isinstance(returned, tuple) or not 2 <= len(returned) <= 3:
            raise GpuadError(
                f"{self.span}: error: `{self.function}` has to return (call, arguments) or (call, arguments, keywords)\n{self.span.caret()}"
            )
        call, args, *rest = returned
        keywords = dict(rest[0]) if rest else {}
        return Launch(call, tuple(args), shared_mem=keywords.pop("shared_mem", 0), keywords=keywords)


@lru_cache(maxsize=8)
def _kernel(file: SourceFile, name: str) -> TextKernel:
    """The kernel of a case, with all that was derived of it for the check before."""
    return from_file(file, name)


def of_file(path: Path, root: Path) -> tuple[Example, ...]:
    """The examples of a file, in order; none if it describes none. Raises CaseError for a description that cannot be read."""
    text = path.read_text(encoding="utf-8")
    if not (_MARK in text if path.suffix == ".cu" else "def example" in text):
        return ()
    file = SourceFile(_relative(path, root), text)
    return tuple(_cases(path, file) if path.suffix == ".cu" else _functions(path, file))


def of_folders(paths: Sequence[Path], root: Path) -> tuple[Example, ...]:
    """The examples of files, and of all `.cu` and `.py` files in folders, ordered by their paths from the root."""
    files = {file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]) if file.suffix in (".cu", ".py")}
    return tuple(example for file in sorted(files, key=lambda f: _relative(f, root)) for example in of_file(file, root))


def _relative(path: Path, root: Path) -> str:
    own, top = path.resolve(), root.resolve()
    return own.relative_to(top).as_posix() if own.is_relative_to(top) else path.as_posix()


def _cases(path: Path, file: SourceFile) -> Iterator[Example]:
    cases = read(file)
    for case, name in zip(cases, _numbered(case.kernel for case in cases), strict=True):
        yield Example(path, file, name, case.span, case=case)


def _functions(path: Path, file: SourceFile) -> Iterator[Example]:
    try:
        tree = ast.parse(file.text)
    except SyntaxError as error:
        span = Span(file, error.lineno or 1, error.offset or 1)
        raise GpuadError(f"{span}: error: {error.msg}\n{span.caret()}") from None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and (node.name == "example" or node.name.startswith("example_")):
            yield Example(path, file, node.name, Span(file, node.lineno, node.col_offset + 1, 4 + len(node.name)), function=node.name)


def _numbered(names: Iterable[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}#{seen[name]}"


def _imported(path: Path) -> Any:
    """A Python file as the module that it is: part of a package if it lies in one, else by itself."""
    parents, top = [path.stem], path.resolve().parent
    while (top / "__init__.py").is_file():
        parents.insert(0, top.name)
        top = top.parent
    if len(parents) > 1:
        sys.path[:0] = [] if str(top) in sys.path else [str(top)]
        return importlib.import_module(".".join(parents))
    name = f"gpuad_example_{path.stem}_{abs(hash(path.resolve()))}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # as functions of the module are looked up by its name
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
