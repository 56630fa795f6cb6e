"""The kernel of an elementwise operation, as CUDA text.

    extern "C" __global__ void NAME(const T* x, T* y, int _n0, int _ox, int _oy, ...)
    {
        const T* _raw_x = x; ...
        int _i0 = blockIdx.x * blockDim.x + threadIdx.x;
        if (_i0 >= _n0) return;
        const T& x = _raw_x[_ox + _i0]; ...
        <the operation>
    }

The names are the user's; what the kernel adds begins with an underscore. The text depends on types and on the pattern of strides, not on
sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import CompileError, UnsupportedError
from ...source import SourceFile
from . import fence
from .parameters import Parameter
from .strided import Operand, thread_lines
from .words import Composer, Raw, RawWriter, Texts, check_words, macros, names, span_of, words

POINTERS = ("int", "long", "long long")
_MACROS = {"M_PI": "3.1415926535897932384626433832795", "INFINITY": "__int_as_float(0x7f800000)", "NAN": "__int_as_float(0x7fffffff)"}
_CHANGED = re.compile(r"\bi\s*([-+*/%&|^]|<<|>>)?=(?!=)|\bi\s*(\+\+|--)|(\+\+|--)\s*i\b")
_OWN_COUNTER = re.compile(r"\b(int|long|short|char|unsigned|signed|auto|\w+_t|[A-Z])\s+i\b")


@dataclass(frozen=True)
class Argument:
    """A parameter with what is passed for it: `operand` for an array that follows the elements, `raw` for a raw one, neither for a
    number."""

    parameter: Parameter
    dtype: str
    operand: Operand | None = None
    raw: Raw | None = None

    @property
    def type(self) -> str:
        """The type of the kernel's own parameter."""
        element = self.parameter.cuda_type(np.dtype(self.dtype))
        pointer = "" if self.operand is None and self.raw is None else "*"
        return f"{'' if self.parameter.written else 'const '}{element}{pointer}"


@dataclass(frozen=True)
class ElementwiseSpec:
    """What the text depends on. `letters`: the dtypes that letters stand for. `counter` and `coordinates`: `i` and `_ind.get()` as
    operands, if the operation uses them. `dims` axes, the last `loops` of them as loops. `index`: the integer type of coordinates.
    `looped`: the operation leaves its element with continue or break."""

    arguments: tuple[Argument, ...]
    letters: tuple[tuple[str, str], ...]
    counter: Operand | None
    coordinates: tuple[Operand, ...]
    dims: int
    loops: int
    index: str
    looped: bool = False

    @property
    def operands(self) -> list[Operand]:
        """Everything that is indexed by coordinates."""
        own = [a.operand for a in self.arguments if a.operand is not None]
        return [*own, *([self.counter] if self.counter else []), *self.coordinates]


def elementwise_source(texts: Texts, spec: ElementwiseSpec) -> tuple[SourceFile, tuple[str, ...]]:
    """The text, and the names of the numbers that the kernel takes after the user's parameters."""
    check_texts(texts, spec.arguments)
    if "return" in texts.names("operation") and spec.loops:
        refuse_word(texts["operation"], "return", fence.RETURN)
    used: set[str] = set()
    writer = RawWriter({a.raw.name: a.raw for a in spec.arguments if a.raw}, {"_ind": ("size", "get")}, used)
    body = Composer()
    prep = Composer()
    writer.write(texts["loop_prep"], prep)
    writer.write(texts["operation"], body)
    integers = axis_numbers(spec.dims, spec.operands, spec.index) | raw_numbers(spec.arguments, used)
    integers |= {"_ind_size": "ptrdiff_t"} if "_ind_size" in used or any(_counted(texts)) else {}
    reserve(texts, integers)
    out = Composer()
    head(out, texts, spec.arguments, spec.letters, used)
    signature(out, texts.name, spec.arguments, integers)
    _body(out, texts, spec, used, prep, body)
    return out.made(f"<elementwise kernel {texts.name}>"), tuple(integers)


def _body(out: Composer, texts: Texts, spec: ElementwiseSpec, used: set[str], prep: Composer, body: Composer) -> None:
    out.add("{\n")
    lines(out, 1, [f"{a.type} _raw_{a.parameter.name} = {a.parameter.name};" for a in spec.arguments if moved(a)])
    out.add("    {\n")
    lines(out, 2, [*raw_lines(spec.arguments, used), *_counted(texts)])
    if texts["loop_prep"].text.strip():
        splice(out, prep)
        out.add("\n        ;\n")
    lines(out, 2, thread_lines(spec.dims - spec.loops, spec.dims, spec.index, "_"))
    out.add("        {\n")
    moved_on = spec.counter is not None and _changes_counter(texts["operation"].text)
    lines(out, 3, _element_lines(spec, used, "" if moved_on else "const "))
    out.add("            do {\n" if spec.looped else "            {\n")
    splice(out, body)
    out.add(f"\n            ;}}{' while (0);' if spec.looped else ''}\n")
    lines(out, 3, ["gpuad_assert(i >= 0);"] if moved_on else [])  # CuPy's loop over `i` would go on from there, to elements that are done
    out.add("        }\n    }\n}\n")


def _changes_counter(text: str) -> bool:
    """True if an operation changes CuPy's `i`, not one of its own of that name."""
    return _CHANGED.search(text) is not None and _OWN_COUNTER.search(text) is None


def _counted(texts: Texts) -> Iterator[str]:
    """`n`, the number of elements, as far as nothing else is called so."""
    if "n" in texts.names("operation", "loop_prep") and "n" not in texts.names("in_params", "out_params", "preamble"):
        yield "const ptrdiff_t n = _ind_size;"


def _element_lines(spec: ElementwiseSpec, used: set[str], const: str) -> Iterator[str]:
    if spec.counter:
        yield f"{const}ptrdiff_t i = {spec.counter.index('_')};"
    if "_ind_get" in used:
        yield f"const ptrdiff_t _ind_get[] = {{{', '.join(c.index('_') for c in spec.coordinates) or '0'}}};"
    for a in spec.arguments:
        if a.operand is not None:
            yield reference(a, a.operand.index("_"))


# --- shared with reductions ----------------------------------------------------------------------------------------------------------


def reference(argument: Argument, index: str) -> str:
    """The declaration of the user's name as an element."""
    p = argument.parameter
    const = "" if p.written else "const "
    return f"{const}{p.cuda_type(np.dtype(argument.dtype))}& {p.name} = _raw_{p.name}[{index}];"


def check_texts(texts: Texts, arguments: Sequence[Argument]) -> None:
    """Refuses what no operation may say."""
    for key, file in texts.files.items():
        if key not in ("in_params", "out_params"):
            check_words(file)
        for word in words(file.text):
            if word.text.startswith("_raw_"):
                name = word.text.removeprefix("_raw_")
                raise UnsupportedError(fence.INTERNAL.format(word.text, name), span_of(file, word))
    for a in arguments:
        if a.raw and not a.raw.contiguous and a.raw.name in names(*macros(texts["preamble"].text)):
            refuse_word(texts["preamble"], a.raw.name, fence.MACRO)


def refuse_word(file: SourceFile, name: str, message: str) -> None:
    """Raises UnsupportedError where a name occurs first."""
    word = next(w for w in words(file.text) if w.text == name)
    raise UnsupportedError(message.format(name), span_of(file, word))


def reserve(texts: Texts, generated: Iterable[str]) -> None:
    """Refuses names of the user that the kernel needs itself."""
    taken = set(generated)
    for file in texts.files.values():
        for word in words(file.text):
            if word.text in taken and word.text != "_ind_size":
                raise CompileError(fence.NAME.format(word.text), span_of(file, word))


def axis_numbers(dims: int, operands: Sequence[Operand], index: str) -> dict[str, str]:
    """Lengths, offsets and strides, by name with their type."""
    lengths, offsets = [f"_n{k}" for k in range(dims)], [f"_o{o.key}" for o in operands]
    return dict.fromkeys([*lengths, *offsets, *(n for o in operands for n in o.numbers("_"))], index)


def raw_numbers(arguments: Sequence[Argument], used: set[str]) -> dict[str, str]:
    """What is asked of raw arrays, by name with its type."""
    found: list[str] = []
    for raw in (a.raw for a in arguments if a.raw):
        found += [f"_{raw.name}_size"] if f"_{raw.name}_size" in used else []
        lengths = [f"_{raw.name}_n{k}" for k in range(raw.ndim)] if f"_{raw.name}_shape" in used else []
        strides = [f"_{raw.name}_s{k}" for k in range(raw.ndim)] if f"_{raw.name}_strides" in used else []
        wanted = {*lengths, *strides, *(raw.numbers if f"_{raw.name}_at" in used else [])}
        found += sorted(wanted)
        found += [] if raw.contiguous else [f"_o{raw.name}"]
    return dict.fromkeys(found, "ptrdiff_t")


def raw_lines(arguments: Sequence[Argument], used: set[str]) -> Iterator[str]:
    """Declarations of what is asked of raw arrays."""
    for a in arguments:
        if a.raw is None:
            continue
        name, axes = a.raw.name, range(a.raw.ndim)
        if moved(a):
            yield f"{a.type} {name} = _raw_{name} + _o{name};"
        if f"_{name}_shape" in used:
            yield f"const ptrdiff_t _{name}_shape[] = {{{', '.join(f'_{name}_n{k}' for k in axes) or '0'}}};"
        if f"_{name}_strides" in used:
            size = np.dtype(a.dtype).itemsize
            yield f"const ptrdiff_t _{name}_strides[] = {{{', '.join(f'{size} * _{name}_s{k}' for k in axes) or '0'}}};"


def moved(argument: Argument) -> bool:
    """True if the user's name is not the kernel's parameter itself."""
    return argument.operand is not None or (argument.raw is not None and not argument.raw.contiguous)


def head(out: Composer, texts: Texts, arguments: Sequence[Argument], letters: Sequence[tuple[str, str]], used: set[str]) -> None:
    """Everything before the kernel: the types that letters stand for, the preamble, the functions that index."""
    if any(np.dtype(a.dtype).kind == "c" for a in arguments) or any("complex" in texts.names(key) for key in texts.files):
        out.add("#include <cupy/complex.cuh>\n")
    for half in ("float16", "bfloat16"):
        if any(a.dtype == half for a in arguments) or any(half in texts.names(key) for key in texts.files):
            out.add(f"#include <cupy/{half}.cuh>\n")
    if any({"atomicMax", "atomicMin"} & texts.names(key) for key in texts.files):
        out.add("#include <cupy/atomics.cuh>\n")
    by_letter = {a.parameter.letter: a.parameter for a in reversed(arguments)}
    for letter, dtype in letters:
        out.add(f"typedef {by_letter[letter].cuda_type(np.dtype(dtype))} {letter};\n")
    for name in sorted(_MACROS.keys() & {n for key in texts.files for n in texts.names(key)}):
        out.add(f"#ifndef {name}\n#define {name} {_MACROS[name]}\n#endif\n")
    if texts["preamble"].text.strip():
        out.copy(texts["preamble"])
        out.add("\n")
    for ndim in sorted({a.raw.ndim for a in arguments if a.raw and f"_{a.raw.name}_at" in used}):
        for line in _at(ndim):
            out.add(f"static __device__ inline ptrdiff_t _at{ndim}({line}\n")


def _at(ndim: int) -> Iterator[str]:
    """The element of a strided array: by the number of an element in C order, and by a list of indices."""
    lengths = [f"ptrdiff_t n{k}" for k in range(1, ndim)]
    strides = [f"ptrdiff_t s{k}" for k in range(ndim)]
    terms, rest = [], "i"
    for k in range(ndim - 1, 0, -1):
        terms.append(f"{rest} % n{k} * s{k}")
        rest = f"{rest} / n{k}"
    terms.append(f"{rest} * s0" if ndim else "0 * i")
    yield f"{', '.join(['ptrdiff_t i', *lengths, *strides])}) {{ return {' + '.join(terms)}; }}"
    listed = " + ".join(f"at[{k}] * s{k}" for k in range(ndim))
    for kind in POINTERS if ndim else ():
        yield f"{', '.join([f'const {kind}* at', *lengths, *strides])}) {{ return {listed}; }}"


def signature(out: Composer, name: str, arguments: Sequence[Argument], integers: Mapping[str, str]) -> None:
    """The kernel's head."""
    own = [f"{a.type} {a.parameter.name}" for a in arguments]
    out.add(f'extern "C" __global__ void {name}({", ".join([*own, *(f"{type_} {n}" for n, type_ in integers.items())])})\n')


def lines(out: Composer, depth: int, texts: Iterator[str] | Sequence[str]) -> None:
    """Lines of ours."""
    for line in texts:
        out.add(f"{'    ' * depth}{line}\n")


def splice(out: Composer, part: Composer) -> None:
    """Adds a composed part; the user's text begins on a line of its own, at its first column."""
    base = out.length
    out.pieces += [type(p)(p.begin + base, p.end + base, p.file, p.offset) for p in part.pieces]
    out.add("".join(part.parts))
