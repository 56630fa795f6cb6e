"""Prints kernels as self-contained CUDA C++: the comment that is the kernel's contract, the few helpers that it calls, the kernel.

The text compiles with plain NVRTC, without any include.

CUDA text that names the user's lines: what a debugger or compute-sanitizer says of a generated kernel then points at the user's file.

Each printed line is preceded by `#line` with the place of the statement that it comes from. The text is for a compiler with -lineinfo, not
for readers. For readers `located_lines` gives each line with its statement and the places that it comes from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..ir.functions import FUNCTIONS
from ..ir.nodes import Buffer, Call, Kernel, Stmt, Var, variables, walk
from ..ir.rewrite import expressions, expressions_in, walk_stmts
from ..source import Span, traced
from .folded import Read, targets, written
from .scopes import INDENT, WIDTH
from .spelling import CUDA_HELPERS, c_type, function_name, helper_text
from .statements import Statements


@dataclass(frozen=True)
class Line:
    """A line of a generated text. `stmt`: the innermost statement that it prints, None for braces, comments, helpers. `spans`: the places
    of the user's source that it comes from, its statement's first, then those of values that are printed at their use and of adjoints that
    it passes on. `kernel`: the name of its kernel, empty for helpers."""

    text: str
    stmt: Stmt | None = None
    spans: tuple[Span, ...] = ()
    kernel: str = ""


def cuda_source(kernels: Sequence[Kernel], *, located: bool = False) -> str:
    """CUDA C++ text of the kernels, `extern "C"` by their names; `located`: with the user's lines. UnsupportedError for what cannot be
    printed."""
    lines = located_lines(kernels) if located else _lines(kernels, None)
    return "\n".join(directed(lines) if located else (line.text for line in lines)) + "\n"


def located_lines(kernels: Sequence[Kernel], shadows: Collection[Buffer] = ()) -> list[Line]:
    """The lines of `cuda_source`, with what they come from. `shadows`: the arrays of adjoints. A value that depends on them belongs to the
    statement that defines it, and so does what it is used for: that is how a reverse pass passes adjoints on."""
    return _lines(kernels, shadows)


def _lines(kernels: Sequence[Kernel], shadows: Collection[Buffer] | None) -> list[Line]:
    """The lines, without places where `shadows` is None."""
    helpers: set[str] = set()
    parts = []
    for kernel in kernels:
        lines, used = _kernel(kernel, shadows)
        parts.append(lines)
        helpers |= used
    text = helper_text(helpers).rstrip("\n")
    above = [Line(line) for line in text.split("\n")] if text.strip() else []
    return [line for k, part in enumerate([part for part in (above, *parts) if part]) for line in ([Line("")] if k else []) + part]


def _kernel(kernel: Kernel, shadows: Collection[Buffer] | None) -> tuple[list[Line], set[str]]:
    reserved = [*CUDA_HELPERS, *functions(kernel)]
    printer = Statements(kernel, reserved) if shadows is None else Located(kernel, reserved, shadows)
    signature = wrapped(f'extern "C" __global__ void {kernel.name}', list(parameters(printer)))
    body = printer.body()
    found = printer.located(body) if isinstance(printer, Located) else [Line(line) for line in body]
    where = (traced(kernel.span),) if isinstance(printer, Located) and kernel.span is not None else ()
    head = [*map(Line, comment(kernel.header)), *(Line(line, None, where) for line in signature), Line("{")]
    return [replace(line, kernel=kernel.name) for line in [*head, *found, Line("}")]], printer.helpers


def functions(kernel: Kernel) -> set[str]:
    """The C names of the functions that the kernel calls: no variable may hide them."""
    calls = {e for top in expressions_in(kernel.body) for e in walk(top) if isinstance(e, Call) and not isinstance(e, Read)}
    return {function_name(c) for c in calls if c.function in FUNCTIONS and c.function != "gpuad_collected"}


def comment(text: str) -> list[str]:
    """The text as comment lines; what is a comment already stays as it is."""
    return [line if line.lstrip().startswith("//") else f"// {line}".rstrip() for line in text.splitlines()]


def parameters(printer: Statements, qualifier: str = "") -> Iterator[str]:
    """Declares the kernel's parameters; pointers to what the kernel does not write are const."""
    kernel = printer.kernel
    changed = {written(s) for s in walk_stmts(kernel.body)}
    for param in kernel.params:
        if isinstance(param, Var):
            yield f"{c_type(param.type)} {printer.declare(param)}"
            continue
        yield f"{pointer(param, param not in changed)}{qualifier} {printer.declare(param)}"


def pointer(buffer: Buffer, const: bool) -> str:
    return f"{'const ' if const else ''}{c_type(buffer.element)}*"


def wrapped(head: str, params: list[str]) -> list[str]:
    """A function's head, its parameters on lines of their own where they do not fit."""
    one = f"{head}({', '.join(params)})"
    if len(one) <= WIDTH:
        return [one]
    lines, row = [f"{head}("], INDENT
    for k, param in enumerate(params):
        piece = param + (", " if k + 1 < len(params) else ")")
        if len(row) + len(piece) > WIDTH and row.strip():
            lines.append(row.rstrip())
            row = INDENT
        row += piece
    return [*lines, row]


_TAG = "\0"  # what follows in a line is the number of its statement


class Located(Statements):
    """Prints one kernel's body; every line but closing braces knows its innermost statement."""

    def __init__(self, kernel: Kernel, reserved: Sequence[str], shadows: Collection[Buffer]) -> None:
        super().__init__(kernel, reserved)
        self.printed: list[Stmt] = []
        self.sources = _sources(kernel, self.kernel, shadows)

    def statement(self, stmt: Stmt) -> None:
        before = len(self.lines)
        super().statement(stmt)
        if stmt.span is None:
            return
        for k in range(before, len(self.lines)):
            if _TAG not in self.lines[k] and self.lines[k].strip(" }{") not in ("", "else"):
                self.lines[k] += f"{_TAG}{len(self.printed)}"
        self.printed.append(stmt)

    def located(self, lines: Sequence[str]) -> list[Line]:
        """The lines of the body, without tags."""
        found = []
        for line in lines:
            text, tag, number = line.partition(_TAG)
            stmt = self.printed[int(number)] if tag else None
            own = (stmt.span, *self.sources.get(_key(stmt), ())) if stmt is not None else ()
            found.append(Line(text, stmt, tuple(dict.fromkeys(traced(span) for span in own if span is not None))))
        return found


def _key(stmt: Stmt) -> object:
    """What is the same of a statement before and after folding."""
    return type(stmt), stmt.span, targets(stmt), written(stmt)


def _sources(kernel: Kernel, folded: Kernel, shadows: Collection[Buffer]) -> Mapping[object, tuple[Span, ...]]:
    """The places of the values that are printed inside of another statement, and of the adjoints that it uses, by that statement's key."""
    kept = {v for s in walk_stmts(folded.body) for v in targets(s)}
    stmts = list(walk_stmts(kernel.body))
    adjoints = _adjoints(stmts, shadows)
    places: dict[Var, dict[Span, None]] = {}

    def spans(stmt: Stmt) -> dict[Span, None]:
        return {span: None for e in expressions(stmt) for v in variables(e) for span in places.get(v, ())}

    for stmt in stmts:
        own = {stmt.span: None} if stmt.span is not None else {}
        places.update({v: {**own, **spans(stmt)} if v not in kept else own for v in targets(stmt) if v not in kept or v in adjoints})
    found: dict[object, tuple[Span, ...]] = {}
    for stmt in stmts:  # of a loop only now: what its body defines, the next value of what it carries may use
        if more := tuple(spans(stmt)):
            found[_key(stmt)] = (*found.get(_key(stmt), ()), *more)
    return found


def _adjoints(stmts: Sequence[Stmt], shadows: Collection[Buffer]) -> set[Var]:
    """The values that depend on shadows, or on arrays into which such values are written."""
    arrays, found, before = set(shadows), set[Var](), -1
    while shadows and before != len(arrays) + len(found):
        before = len(arrays) + len(found)
        for stmt in stmts:
            if getattr(stmt, "buffer", None) in arrays or any(v in found for e in expressions(stmt) for v in variables(e)):
                found.update(targets(stmt))
                arrays.update({buffer} if (buffer := written(stmt)) is not None else ())
    return found


def directed(lines: Sequence[Line]) -> Iterator[str]:
    """The texts of the lines, with directives before those that have a place."""
    for line in lines:
        if line.stmt is not None:
            where = line.spans[0]
            quoted = where.file.name.replace("\\", "\\\\").replace('"', '\\"')
            yield f'#line {where.line} "{quoted}"'
        yield line.text
