"""The kernel of a reduction, as CUDA text: a thread for each output walks the elements that are reduced, in C order.

CuPy's kernel reduces as a tree over the threads of a block; with an associative operation the result is the same up to rounding. Of equal
elements the first counts, as in C order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...source import SourceFile
from . import fence
from .parameters import CUDA_TYPES
from .strided import Operand, loop_line, thread_lines
from .text import Argument, axis_numbers, check_texts, head, lines, moved, raw_lines, raw_numbers, reference, reserve, signature, splice
from .words import Composer, RawWriter, Texts, check_words


@dataclass(frozen=True)
class ReductionSpec:
    """What the text depends on. Patterns of the inputs have `dims` axes of the outputs first, then `reduced` axes that are reduced; those
    of the outputs only `dims`. `reduce_type`: CUDA's name of the type of partial results. `counter`: `_J` as an operand, if it is
    used."""

    arguments: tuple[Argument, ...]
    letters: tuple[tuple[str, str], ...]
    counter: Operand | None
    dims: int
    reduced: int
    loops: int
    index: str
    reduce_type: str

    @property
    def operands(self) -> list[Operand]:
        """Everything that is indexed by coordinates."""
        return [*(a.operand for a in self.arguments if a.operand is not None), *([self.counter] if self.counter else [])]


_EXPRESSIONS = ("map_expr", "reduce_expr", "post_map_expr")
_ELSEWHERE = dict.fromkeys(("_j", "_i", "_ind"), fence.REDUCTION_INDEX)


def reduction_source(texts: Texts, spec: ReductionSpec) -> tuple[SourceFile, tuple[str, ...]]:
    """The text, and the names of the numbers that the kernel takes after the user's parameters."""
    check_texts(texts, spec.arguments)
    used: set[str] = set()
    writer = RawWriter({a.raw.name: a.raw for a in spec.arguments if a.raw}, {"_in_ind": ("size",), "_out_ind": ("size",)}, used)
    parts = {key: Composer() for key in _EXPRESSIONS}
    for key, part in parts.items():
        check_words(texts[key], _ELSEWHERE)
        writer.write(texts[key], part)
    integers = axis_numbers(spec.dims, spec.operands, spec.index) | dict.fromkeys((f"_m{k}" for k in range(spec.reduced)), spec.index)
    integers |= raw_numbers(spec.arguments, used)
    integers |= {name: "ptrdiff_t" for name in ("_in_ind_size", "_out_ind_size") if name in used}
    reserve(texts, integers)
    out = Composer()
    head(out, texts, spec.arguments, spec.letters, used)
    out.add(f"typedef {spec.reduce_type} _type_reduce;\n")
    signature(out, texts.name, spec.arguments, integers)
    _body(out, texts, spec, used, parts)
    return out.made(f"<reduction kernel {texts.name}>"), tuple(integers)


def _body(out: Composer, texts: Texts, spec: ReductionSpec, used: set[str], parts: dict[str, Composer]) -> None:
    out.add("{\n")
    lines(out, 1, [f"{a.type} _raw_{a.parameter.name} = {a.parameter.name};" for a in spec.arguments if moved(a)])
    out.add("    {\n")
    lines(out, 2, [*raw_lines(spec.arguments, used), *thread_lines(spec.dims - spec.loops, spec.dims, spec.index, "_")])
    out.add("        {\n            _type_reduce _s = ")
    _beginning(out, texts, spec)
    out.add(";\n")
    lines(out, 3, [loop_line(f"_j{k}", f"_m{k}", spec.index) for k in reversed(range(spec.reduced))])
    out.add("            {\n")
    lines(out, 4, _inputs(spec))
    out.add("                _type_reduce _a = static_cast<_type_reduce>(\n")
    splice(out, parts["map_expr"])
    out.add("\n                );\n                {\n                    _type_reduce a = _s, b = _a;\n                    _s = (\n")
    splice(out, parts["reduce_expr"])
    out.add("\n                    );\n                }\n            }\n            {\n")
    lines(out, 4, [reference(a, a.operand.index("_")) for a in spec.arguments if a.operand is not None and a.parameter.output])
    out.add("                _type_reduce a = _s;\n                (\n")
    splice(out, parts["post_map_expr"])
    out.add("\n                );\n            }\n        }\n    }\n}\n")


def _beginning(out: Composer, texts: Texts, spec: ReductionSpec) -> None:
    """The value with which the reduction begins: where none is given the type's own, 0 for a number, as in CuPy."""
    if texts["identity"].text.strip():
        out.add("_type_reduce(\n")
        out.copy(texts["identity"])
        out.add("\n            )")
    else:
        out.add("0" if spec.reduce_type in {*CUDA_TYPES, *(letter for letter, _ in spec.letters)} else "_type_reduce()")


def _inputs(spec: ReductionSpec) -> Iterator[str]:
    coordinates = [f"_i{k}" for k in range(spec.dims)] + [f"_j{k}" for k in range(spec.reduced)]
    if spec.counter:
        yield f"const ptrdiff_t _J = {spec.counter.index('_', coordinates)};"
    for a in spec.arguments:
        if a.operand is not None and not a.parameter.output:
            yield reference(a, a.operand.index("_", coordinates))
