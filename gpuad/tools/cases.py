"""Launch descriptions that a CUDA file carries with it: which kernel, how large, with which arguments, and which of those get shadows.

Each file of `kernels/` is a test and a benchmark in every configuration without being listed anywhere, so it says itself how it is
launched, in TOML inside a comment that opens with `/*gpuad`:

    /*gpuad
    title = "y += a * x"
    [[case]]                                   # one or more
    kernel = "saxpy"                           # or an instance of a template, "fir<float, 8>"
    sizes = {n = 1000, m = "2 * n"}            # whole numbers, or expressions over the sizes before them
    grid = ["(n + 255) // 256"]                # one to three expressions
    block = [256]
    shared_mem = "4 * n"                       # optional, bytes
    [case.arguments]                           # every parameter, by name
    n = {value = "n"}                          # a scalar by value
    a = {value = 1.5, active = true}           # of a float3 or a complex<float>: its components
    x = {shape = ["n"], init = "normal", active = true}     # an array; its dtype is that of the parameter
    p = {shape = ["n", 4], init = "normal"}    # of a float4*: the last axis has the components
    idx = {shape = ["m"], init = "integers(0, n)"}
    s = {shape = ["n"], init = "normal", members = {cell = "integers(0, 9)"}}      # structs: all fields, and those that differ
    q = {value = "normal", members = {n = "n", rate = 0.1}, active = true}         # a struct by value
    [case.benchmark]                           # optional
    sizes = {n = 16777216}
    bytes = "12 * n"                           # least memory traffic of the primal
    flops = "2 * n"                            # optional
    */

What expressions know stands in `case_expressions`. Random fields depend on the seed and on the argument's name alone.
"""

from __future__ import annotations

import re
import tomllib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..arguments import layouts
from ..arguments.annotations import Duplicated
from ..arguments.layouts import element_dtype
from ..errors import LocatedError
from ..frontend.cuda import legal_name
from ..ir.nodes import Buffer, Kernel
from ..ir.records import holds_pointers
from ..ir.types import Complex, Pointer, Scalar, Struct, Type, Vector
from ..source import SourceFile, Span
from .case_expressions import CaseError as CaseError
from .case_expressions import Expression, Shape, Sizes, parse_expression

Dim3: TypeAlias = "tuple[int, int, int]"

_HEADER = re.compile(r"/\*gpuad[ \t]*\n(.*?)\*/", re.DOTALL)
_TOML_PLACE = re.compile(r"\s*\(at line (\d+), column (\d+)\)$")


# --- cases ---------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Argument:
    """One argument: an array (`init` is its content), or, where `shape` is None, a scalar by value (`init` is that value)."""

    name: str
    shape: tuple[Expression, ...] | None
    init: Expression
    active: bool
    span: Span
    members: Mapping[str, Expression] = field(default_factory=dict)  # of an array of structs: what is not as `init` says


@dataclass(frozen=True)
class Benchmark:
    """What a benchmark of a case needs: sizes to put in the place of the case's own, and the primal's least traffic and arithmetic."""

    sizes: Sizes
    bytes: Expression | None = None
    flops: Expression | None = None


@dataclass(frozen=True)
class Case:
    """How one kernel of a file is launched. `sizes` are the defaults; methods take others (a mapping of some of them) in their place."""

    file: SourceFile
    kernel: str
    title: str
    sizes: Mapping[str, Expression]
    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    shared_mem: Expression
    arguments: Mapping[str, Argument]
    benchmark: Benchmark | None
    span: Span

    @property
    def id(self) -> str:
        """The name of the test: the file's stem, and the kernel's name where it is another."""
        stem, name = Path(self.file.name).stem, legal_name(self.kernel)
        return stem if stem == name else f"{stem}-{name}"

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the arguments that get shadows."""
        return tuple(a.name for a in self.arguments.values() if a.active)

    def resolve(self, sizes: Sizes | None = None) -> dict[str, int]:
        """All sizes as numbers. Raises CaseError for the name of a size that the case does not have."""
        given = sizes or {}
        if unknown := sorted(set(given) - set(self.sizes)):
            raise CaseError(f"'{self.kernel}' has no size '{unknown[0]}'; it has {', '.join(self.sizes) or 'none'}", self.span)
        values: dict[str, int] = {}
        for name, expression in self.sizes.items():
            values[name] = int(given[name]) if name in given else expression.whole(values)
        return values

    def geometry(self, sizes: Sizes | None = None) -> tuple[Dim3, Dim3, int]:
        """Grid, block and bytes of dynamic shared memory."""
        values = self.resolve(sizes)
        return _dim3(self.grid, values), _dim3(self.block, values), self.shared_mem.whole(values)

    def arrays(self, parameter_types: Mapping[str, Type | np.dtype[Any]], seed: int = 0, sizes: Sizes | None = None) -> dict[str, Any]:
        """The arguments in the order of `parameter_types` (the function of that name makes it): contiguous NumPy arrays, and NumPy scalars
        for what is passed by value (a tuple of them for a vector). The same seed and sizes give the same values. Raises CaseError if header
        and parameters do not fit."""
        self._check_names(parameter_types)
        values = self.resolve(sizes)
        return {name: _make(self.arguments[name], kind, values, seed) for name, kind in parameter_types.items()}

    def annotated(self, name: str, value: Any) -> Any:
        """The argument of a name as it is declared: if it is active, with a new shadow of zeros."""
        if name not in self.active:
            return value
        return Duplicated(value) if isinstance(value, np.ndarray) else layouts.active(value)

    def traffic(self, sizes: Sizes | None = None) -> int | None:
        """The primal's least memory traffic in bytes, at the benchmark's sizes unless others are given; None where the file states none."""
        return self._cost(self.benchmark.bytes, sizes) if self.benchmark else None

    def operations(self, sizes: Sizes | None = None) -> int | None:
        """The primal's floating-point operations, at the benchmark's sizes unless others are given; None where the file states none."""
        return self._cost(self.benchmark.flops, sizes) if self.benchmark else None

    def _cost(self, expression: Expression | None, sizes: Sizes | None) -> int | None:
        if expression is None or self.benchmark is None:
            return None
        return expression.whole(self.resolve(self.benchmark.sizes if sizes is None else sizes))

    def _check_names(self, parameters: Mapping[str, Any]) -> None:
        if missing := [name for name in parameters if name not in self.arguments]:
            raise CaseError(f"'{self.kernel}' has a parameter '{missing[0]}' that the header does not mention", self.span)
        if unknown := [a for a in self.arguments.values() if a.name not in parameters]:
            raise CaseError(f"'{self.kernel}' has no parameter '{unknown[0].name}'; it has {', '.join(parameters)}", unknown[0].span)


def parameter_types(kernel: Kernel) -> dict[str, Type]:
    """The types of a kernel's parameters by name, in order: the element type of a pointer, the type of a scalar."""
    return {p.name: p.element if isinstance(p, Buffer) else p.type for p in kernel.params}


def _dim3(expressions: Sequence[Expression], sizes: Sizes) -> Dim3:
    x, y, z = [*(e.whole(sizes) for e in expressions), 1, 1][:3]
    return x, y, z


def _dtype(kind: Type | np.dtype[Any]) -> np.dtype[Any]:
    """The NumPy dtype of a scalar type, or of what a pointer points at; of a vector's components, which are an array's last axis."""
    if isinstance(kind, Pointer | Vector):
        return _dtype(kind.element)
    if isinstance(kind, Scalar | Complex | Struct) and not holds_pointers(kind):
        return element_dtype(kind)
    if isinstance(kind, Type):
        raise LocatedError(f"inputs of type {kind} cannot be made from a header yet")
    return np.dtype(kind)


def _make(argument: Argument, kind: Type | np.dtype[Any], sizes: Sizes, seed: int) -> Any:
    """One argument's value: an array, or, by value, a scalar of its parameter's type or a tuple of a vector's."""
    shape = tuple(e.whole(sizes) for e in argument.shape or ())
    rng = np.random.default_rng([seed, zlib.crc32(argument.name.encode())])
    dtype = _dtype(kind)
    if dtype.names:
        made = _structs(argument, dtype, shape, sizes, rng)
    elif argument.shape is None and isinstance(kind, Vector):
        return tuple(_numbers(argument, argument.init, dtype, (kind.lanes,), sizes, rng))
    else:
        made = _numbers(argument, argument.init, dtype, shape, sizes, rng)
    return made[()] if argument.shape is None else made


def _structs(argument: Argument, dtype: np.dtype[Any], shape: Shape, sizes: Sizes, rng: np.random.Generator) -> Any:
    made = np.zeros(shape, dtype)
    if unknown := [name for name in argument.members if name not in (dtype.names or ())]:
        known = ", ".join(dtype.names or ())
        raise CaseError(f"the struct of '{argument.name}' has no field '{unknown[0]}'; it has {known}", argument.span)
    for name in dtype.names or ():
        init = argument.members.get(name, argument.init)
        made[name] = _numbers(argument, init, made[name].dtype, made[name].shape, sizes, rng)
    return made


def _numbers(argument: Argument, init: Expression, dtype: np.dtype[Any], shape: Shape, sizes: Sizes, rng: np.random.Generator) -> Any:
    exact = init.array(sizes, shape, rng)
    if dtype.kind == "c":
        exact = exact + 1j * init.array(sizes, shape, rng)
    made = exact.astype(dtype, order="C")
    if dtype.kind in "iub" and not np.array_equal(made, exact):
        raise CaseError(f"'{init.text}' has values that {dtype.name}, the type of '{argument.name}', cannot hold", argument.span)
    return made


# --- reading -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Header:
    """A header's text and where it lies, to find the line of whatever is wrong in it."""

    file: SourceFile
    text: str
    line: int  # of the text's first line, in the file

    def span(self, line: int, column: int = 1, length: int = 1) -> Span:
        return Span(self.file, self.line + line, column, length)

    def find(self, case: int, *words: str) -> Span:
        """The place of the last of the words, each sought after the one before it, in the case of this number."""
        lines, at = self.text.split("\n"), 0
        for _ in range(case + 1):
            at = next((k for k in range(at + 1, len(lines)) if lines[k].strip().startswith("[[case]]")), at)
        column, length = 1, 1
        for word in words:
            hits = ((k, re.search(rf"(?<![\w.]){re.escape(word)}(?!\w)", lines[k])) for k in range(at, len(lines)))
            at, column, length = next(((k, m.start() + 1, len(word)) for k, m in hits if m), (at, column, length))
        return self.span(at, column, length)


class _Table:
    """One TOML table of a header with the place to blame; takes its keys one by one and refuses those left over."""

    def __init__(self, header: _Header, case: int, words: tuple[str, ...], table: Any) -> None:
        self.header, self.case, self.words = header, case, words
        if not isinstance(table, dict):
            raise CaseError("a table belongs here", self.span())
        self.rest = dict(table)

    def span(self, *words: str) -> Span:
        return self.header.find(self.case, *self.words, *words)

    def take(self, key: str, kind: type, default: Any = ...) -> Any:
        """The value of a key, of this type; without a default the key is required."""
        if key not in self.rest and default is ...:
            raise CaseError(f"'{key}' is missing", self.span())
        value = self.rest.pop(key, default)
        if value is not default and not isinstance(value, kind):
            raise CaseError(f"'{key}' has to be a {_TOML_NAMES[kind]}, not {value!r}", self.span(key))
        return value

    def expression(self, key: str, sizes: Mapping[str, Any], default: Any = ...) -> Expression | None:
        value = self.take(key, object, default)
        return None if value is None else parse_expression(value, sizes, self.span(key))

    def expressions(self, key: str, sizes: Mapping[str, Any]) -> tuple[Expression, ...]:
        return tuple(parse_expression(item, sizes, self.span(key)) for item in self.take(key, list))

    def close(self) -> None:
        if self.rest:
            key = next(iter(self.rest))
            raise CaseError(f"'{key}' is not known here", self.span(key))


_TOML_NAMES: dict[type, str] = {str: "string", list: "list", dict: "table", bool: "true or false", object: "value"}


def read(source: str | Path | SourceFile) -> tuple[Case, ...]:
    """The cases of a CUDA file, in order: from a path, from a `SourceFile`, or from text (a string with a line break in it).

    Raises CaseError, with file and line, if there is no header or something is wrong with it, and OSError if the file cannot be read."""
    header = _header(_source(source))
    document = _Table(header, -1, (), _toml(header))
    title, tables = document.take("title", str, ""), document.take("case", list)
    document.close()
    return tuple(_case(header, number, title, table) for number, table in enumerate(tables))


def is_described(file: Path) -> bool:
    """True if a CUDA file has a launch description."""
    return _HEADER.search(file.read_text(encoding="utf-8")) is not None


def _source(source: str | Path | SourceFile) -> SourceFile:
    if isinstance(source, SourceFile):
        return source
    if isinstance(source, str) and "\n" in source:
        return SourceFile("kernel.cu", source)
    return SourceFile(str(source), Path(source).read_text(encoding="utf-8"))


def _header(file: SourceFile) -> _Header:
    found = _HEADER.search(file.text)
    if not found:
        how = "begin the file with a comment '/*gpuad ... */', as docs/api/descriptions.md shows it"
        raise CaseError(f"no launch description: {how}", Span(file, 1, 1))
    return _Header(file, found[1], file.text.count("\n", 0, found.start(1)) + 1)


def _toml(header: _Header) -> dict[str, Any]:
    try:
        return tomllib.loads(header.text)
    except tomllib.TOMLDecodeError as error:
        place = _TOML_PLACE.search(str(error))
        line, column = (int(place[1]) - 1, int(place[2])) if place else (header.text.count("\n") - 1, 1)
        raise CaseError(f"the launch description is no TOML: {_TOML_PLACE.sub('', str(error))}", header.span(line, column)) from error


def _case(header: _Header, number: int, title: str, content: Any) -> Case:
    table = _Table(header, number, (), content)
    sizes = _sizes(_Table(header, number, ("sizes",), table.take("sizes", dict, {})))
    arguments = _Table(header, number, ("[case.arguments]",), table.take("arguments", dict))
    zero = parse_expression(0, {}, table.span())
    case = Case(
        file=header.file,
        kernel=table.take("kernel", str),
        title=table.take("title", str, title),
        sizes=sizes,
        grid=_extent(table, "grid", sizes),
        block=_extent(table, "block", sizes),
        shared_mem=table.expression("shared_mem", sizes, 0) or zero,
        arguments={name: _argument(arguments, name, sizes) for name in list(arguments.rest)},
        benchmark=_benchmark(header, number, table, sizes),
        span=table.span("kernel"),
    )
    table.close()
    return case


def _sizes(table: _Table) -> dict[str, Expression]:
    sizes: dict[str, Expression] = {}
    for name, value in table.rest.items():
        sizes[name] = parse_expression(value, sizes, table.span(name))
    return sizes


def _extent(table: _Table, key: str, sizes: Mapping[str, Any]) -> tuple[Expression, ...]:
    expressions = table.expressions(key, sizes)
    if not 1 <= len(expressions) <= 3:
        raise CaseError(f"'{key}' has one to three entries", table.span(key))
    return expressions


def _argument(arguments: _Table, name: str, sizes: Mapping[str, Any]) -> Argument:
    table = _Table(arguments.header, arguments.case, (*arguments.words, name), arguments.take(name, dict))
    span, active = table.span(), table.take("active", bool, False)
    if "value" in table.rest:
        shape, init = None, table.expression("value", sizes)
    else:
        shape, init = table.expressions("shape", sizes), table.expression("init", sizes)
    members = {key: parse_expression(value, sizes, span) for key, value in table.take("members", dict, {}).items()}
    table.close()
    assert init is not None  # required: `expression` has refused its absence
    return Argument(name, shape, init, active, span, members)


def _benchmark(header: _Header, number: int, case: _Table, sizes: Mapping[str, Any]) -> Benchmark | None:
    content = case.take("benchmark", dict, None)
    if content is None:
        return None
    table = _Table(header, number, ("[case.benchmark]",), content)
    others = table.take("sizes", dict, {})
    for name, value in others.items():
        if name not in sizes or type(value) is not int:
            raise CaseError(f"'{name} = {value!r}' is not one of the case's sizes with a whole number", table.span(name))
    benchmark = Benchmark(others, table.expression("bytes", sizes, None), table.expression("flops", sizes, None))
    table.close()
    return benchmark


# --- the kernels that ship -----------------------------------------------------------------------------------------------------------


def kernel_folder() -> Path:
    """Where the kernels that ship with gpuad lie: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    return package / "kernels" if (package / "kernels").is_dir() else package.parent / "kernels"


def all_cases(folder: str | Path | None = None) -> tuple[Case, ...]:
    """The cases of every `.cu` file of a folder (by default `kernel_folder()`), in the order of the file names. Their sources are known by
    these names alone, so that what is generated from them is the same wherever the folder lies."""
    files = sorted(Path(folder or kernel_folder()).glob("*.cu"))
    return tuple(case for file in files for case in read(SourceFile(file.name, file.read_text(encoding="utf-8"))))
