"""Prints kernels as self-contained CUDA C++: the comment that is the kernel's contract, the few helpers that it calls, the kernel.

The text compiles with plain NVRTC, without any include.

CUDA text that names the user's lines: what a debugger or compute-sanitizer says of a generated kernel then points at the user's file.

Each printed line is preceded by `#line` with the place of the statement that it comes from. The text is for a compiler with -lineinfo, not
for readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..ir.functions import FUNCTIONS
from ..ir.nodes import Buffer, Call, Kernel, Stmt, Var, walk
from ..ir.rewrite import expressions_in, walk_stmts
from ..source import traced
from .folded import Read, written
from .scopes import INDENT, WIDTH
from .spelling import CUDA_HELPERS, c_type, function_name, helper_text
from .statements import Statements


def cuda_source(kernels: Sequence[Kernel], *, located: bool = False) -> str:
    """CUDA C++ text of the kernels, `extern "C"` by their names; `located`: with the user's lines. UnsupportedError for what cannot be
    printed."""
    helpers: set[str] = set()
    texts = []
    for kernel in kernels:
        text, used = _kernel(kernel, located)
        texts.append(text)
        helpers |= used
    return "\n".join([part for part in (helper_text(helpers).rstrip("\n") + "\n",) if part.strip()] + texts)


def _kernel(kernel: Kernel, located: bool) -> tuple[str, set[str]]:
    printer = (Located if located else Statements)(kernel, [*CUDA_HELPERS, *functions(kernel)])
    signature = wrapped(f'extern "C" __global__ void {kernel.name}', list(parameters(printer)))
    body = directed(printer.body()) if located else printer.body()
    lines = [*comment(kernel.header), *signature, "{", *body, "}"]
    return "\n".join(lines) + "\n", printer.helpers


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


_TAG = "\0"  # what follows in a line is its place


class Located(Statements):
    """Prints one kernel's body; every line but closing braces carries the place of its innermost statement."""

    def statement(self, stmt: Stmt) -> None:
        before = len(self.lines)
        super().statement(stmt)
        if stmt.span is None:
            return
        where = traced(stmt.span)
        for k in range(before, len(self.lines)):
            if _TAG not in self.lines[k] and self.lines[k].strip(" }{") not in ("", "else"):
                self.lines[k] += f"{_TAG}{where.line} {where.file.name}"


def directed(lines: Sequence[str]) -> Iterator[str]:
    """The lines with directives in the place of tags."""
    for line in lines:
        text, tag, rest = line.partition(_TAG)
        if tag:
            number, _, name = rest.partition(" ")
            quoted = name.replace("\\", "\\\\").replace('"', '\\"')
            yield f'#line {number} "{quoted}"'
        yield text
