"""The parameter lists of CuPy's kernels: `"float32 x, raw T y"`.

A type is a dtype's name, or a single letter that stands for the dtype of whatever arrays are passed for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ...errors import CompileError, UnsupportedError
from ...ir.dtypes import DType, dtype_of
from ...ir.types import BF16
from ...source import SourceFile, Span
from . import fence

_CUDA = {
    "bool": "bool", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long", "uint8": "unsigned char",
    "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long long", "float32": "float", "float64": "double",
    "complex64": "complex<float>", "complex128": "complex<double>", "float16": "float16", "bfloat16": "bfloat16",
}  # fmt: skip
CUDA_TYPES = frozenset(_CUDA.values())


@dataclass(frozen=True)
class Parameter:
    """One parameter: `dtype` by name or None, then `letter` stands for it. `raw`: passed whole, indexed by the operation itself.
    `output`: one of the outputs. `written`: not const."""

    name: str
    dtype: DType | None
    letter: str
    raw: bool
    output: bool
    written: bool
    span: Span

    def cuda_type(self, dtype: DType) -> str:
        """The dtype as CUDA spells it. UnsupportedError at the parameter for what elementwise kernels do not take."""
        if dtype.name not in _CUDA:
            raise UnsupportedError(fence.dtype_message(dtype), self.span)
        return _CUDA[dtype.name]


def parse_parameters(file: SourceFile, output: bool) -> tuple[Parameter, ...]:
    """Reads a parameter list. CompileError at the place for what is none."""
    if not file.text.strip():
        return ()
    parts = re.finditer(r"[^,]*(?:,|$)", file.text)
    found = [_parameter(file, m.start(), m[0].removesuffix(","), output) for m in parts if m.start() < len(file.text) or not m.start()]
    names = [p.name for p in found]
    for p in found:
        if names.count(p.name) > 1:
            raise CompileError(f"two parameters are named {p.name!r}", p.span)
    return tuple(found)


def _parameter(file: SourceFile, begin: int, text: str, output: bool) -> Parameter:
    words = text.split()
    span = _span(file, begin + len(text) - len(text.lstrip()), max(1, len(text.strip())))
    if len(words) < 2:
        raise CompileError("a parameter is a type and a name, such as 'float32 x', 'T y' or 'raw T z'", span)
    *keywords, type_, name = words
    unknown = set(keywords) - {"raw", "_non_const"}
    if unknown or not name.isidentifier():
        raise CompileError(f"{sorted(unknown)[0] if unknown else name!r} is not understood in a parameter list", span)
    if name in ("i", "_ind"):
        raise CompileError(f"{name!r} is the operation's index and cannot be a parameter's name", span)
    dtype = _dtype(type_, span) if len(type_) > 1 else None
    return Parameter(name, dtype, "" if dtype is not None else type_, "raw" in keywords, output, output or "_non_const" in keywords, span)


def _dtype(name: str, span: Span) -> DType:
    if name == "bfloat16":
        return dtype_of(BF16)
    try:
        return np.dtype(name)
    except TypeError:
        raise CompileError(f"{name!r} is no data type; write one of NumPy's names, or a single letter", span) from None


def _span(file: SourceFile, at: int, length: int) -> Span:
    before = file.text[:at]
    return Span(file, before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1, length)
