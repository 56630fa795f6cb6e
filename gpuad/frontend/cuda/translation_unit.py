"""A text as clang reads it: its translation unit, the compiler options as libclang's, and where cursors are in the user's text.

The user's text is parsed with a few lines of ours before it; clang counts columns in bytes, a `Span` counts characters. Both are put right
here, and here only.

NVRTC reads its own declarations before a `-D` can change a name in them. So macros of the user do not go onto clang's command line, where
they would be defined while the prelude is read: they become lines between the prelude and the user's text. Options that change neither
names nor types (`--use_fast_math`, `-lineinfo`) are of no interest here.

`PRELUDE` is kept in clang's own form, which reads in a third of the time: one file for each language standard, in a folder that goes with
the process (https://clang.llvm.org/docs/PCHInternals.html). What cannot be written is done without.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from clang.cindex import (
    Cursor,
    CursorKind,
    Diagnostic,
    Index,
    SourceLocation,
    TranslationUnit,
    TranslationUnitLoadError,
    TranslationUnitSaveError,
)

from ...source import SourceFile, Span, traced
from .clang_c import file_location, file_name, file_number, library, numbered_location

MAIN = "gpuad-input.cu"
_NAMED_DECLARATIONS = {
    CursorKind.VAR_DECL,
    CursorKind.PARM_DECL,
    CursorKind.FUNCTION_DECL,
    CursorKind.FUNCTION_TEMPLATE,
    CursorKind.MEMBER_REF_EXPR,
}


class Places:
    """Spans of cursors and locations of one translation unit."""

    def __init__(self, source: SourceFile, header: str) -> None:
        self.source = source
        self._header_lines = header.count("\n")
        self._header_bytes = len(header.encode())
        self._files: dict[str, SourceFile] = {}
        self._names: dict[int, str] = {}  # of files by their numbers

    def of(self, cursor: Cursor) -> Span:
        """The place of a declaration's name, else of the first character."""
        start = cursor.location if cursor.kind in _NAMED_DECLARATIONS else cursor.extent.start
        if file_number(start) is None:
            start = cursor.location
        return self.at(start, cursor.extent.end if start == cursor.extent.start else None)

    def at(self, start: SourceLocation, end: SourceLocation | None = None) -> Span:
        """The span that begins at `start`; a single character wide unless `end` is on its line."""
        number, line, column, offset = numbered_location(start)
        name = self._name(number)
        file = self.file(name)
        line -= self._header_lines if name == MAIN else 0
        if line < 1:
            return Span(self.source, 1, 1)
        text = _line(file.text, line)
        first = len(text.encode()[: column - 1].decode(errors="ignore"))
        length = 1
        until = None if end is None else numbered_location(end)
        if until is not None and until[0] == number and (size := until[3] - offset) > 0:
            length = min(len(text) - first, len(text.encode()[column - 1 : column - 1 + size].decode(errors="ignore")))
        return traced(Span(file, line, first + 1, max(1, length)))

    def _name(self, number: int | None) -> str | None:
        if number is not None and number not in self._names:
            self._names[number] = file_name(number)
        return None if number is None else self._names[number]

    def is_beyond(self, line: int) -> bool:
        """True if a line of the parsed text is after the user's last."""
        return line - self._header_lines > self.source.text.count("\n") + 1

    def offset(self, location: SourceLocation) -> int:
        """Offset in bytes in the parsed text of the file where `location` is."""
        return file_location(location)[3]

    def file(self, name: str | None) -> SourceFile:
        """The user's source, or the file that it includes."""
        if name is None or name == MAIN:
            return self.source
        if name not in self._files:
            path = Path(name)
            shown = f"<{path.name}>" if _is_own(name) else name
            self._files[name] = SourceFile(shown, path.read_text(errors="replace") if path.is_file() else "")
        return self._files[name]

    def is_ours(self, span: Span) -> bool:
        """True if a place is in one of our headers."""
        return any(file is span.file and _is_own(name) for name, file in self._files.items())


def is_ours(cursor: Cursor) -> bool:
    """True for what the prelude and our standard headers declare, and for clang's built-in functions."""
    name = file_location(cursor.location)[0]
    return name is None or _is_own(name)


@cache
def _is_own(name: str) -> bool:
    """True if a file is a header of ours. Every declaration of the prelude is asked for its file, a thousand in each text."""
    return Path(name).is_relative_to(INCLUDE)


@lru_cache(maxsize=16)
def _lines(text: str) -> list[str]:
    return text.split("\n")


def _line(text: str, number: int) -> str:
    """Line `number` as clang counts lines: only line feeds end one."""
    lines = _lines(text)
    return lines[number - 1].removesuffix("\r") if number <= len(lines) else ""


INCLUDE = Path(__file__).parent / "include"
HOST_NAMES = ("-include", "gpuad/host.h")  # the options that give a text the names that nvcc has without an #include
_DEFAULT_ARCHITECTURE = 80
_HOST = {
    "__GNUC__",
    "__clang__",
    "__CUDA__",
    "__linux__",
    "__linux",
    "linux",
    "__unix__",
    "__unix",
    "unix",
    "__x86_64__",
    "__x86_64",
    "__amd64__",
}
_HOST |= {"_WIN32", "_WIN64", "_MSC_VER", "__gnu_linux__", "__ELF__", "__llvm__", "_GNU_SOURCE", "__NVPTX__", "__PTX__"}
PRELUDE = "".join(f"#undef {name}\n" for name in sorted(_HOST))
PRELUDE += '#include "gpuad/prelude.h"\n#undef GPUAD_F\n#undef __CUDA_ARCH__\n'
_SEPARATE = {
    "-D",
    "--define-macro",
    "-U",
    "--undefine-macro",
    "-I",
    "--include-path",
    "-include",
    "--pre-include",
    "-std",
    "--std",
    "-arch",
}
_SEPARATE |= {"--gpu-architecture"}


@dataclass(frozen=True)
class CommandLine:
    """For clang: `own` arguments, which the prelude is read with, then the `directories` that are searched as well; and the lines that go
    before the user's text, `PRELUDE` and what the options say."""

    own: tuple[str, ...]
    directories: tuple[str, ...]
    header: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """All of them."""
        return self.own + self.directories

    @property
    def blank_header(self) -> str:
        """The header for a text whose prelude is precompiled: the lines are there, and as long."""
        return re.sub(r"[^\n]", " ", PRELUDE) + self.header.removeprefix(PRELUDE)


def command_line(options: tuple[str, ...], name: str = "") -> CommandLine:
    """clang's command line for NVRTC's (or nvcc's) `options`. `name`: the source's; where it is that of a file, what the file includes in
    quotes is sought beside it first."""
    pairs = _pairs(options)
    directories = [f"-iquote{Path(name).parent}"] if name and Path(name).is_file() else []
    directories += [f"-I{v}" for k, v in pairs if k in ("-I", "--include-path")]
    standards = [v for k, v in pairs if k in ("-std", "--std")] or ["c++17"]
    own = (*_BASE, f"--target={_target()}", f"-std={standards[-1]}", f"-I{INCLUDE / 'std'}", f"-I{INCLUDE}")
    return CommandLine(own, tuple(directories), _header(options, pairs))


_BASE = (
    *("-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "-nostdinc", "--cuda-gpu-arch=sm_80"),
    *("-Wno-unknown-cuda-version", "-Wno-error=c++11-narrowing", "-Wno-c++11-narrowing", "-fno-builtin", "-ferror-limit=0"),
    "-Werror=unsequenced",  # undefined in C++: compilers differ in what comes of it
    "-Wno-register",  # clang would refuse the word in C++17; to CUDA's compilers it is worth a warning
)


def _target() -> str:
    """`long` has 64 bits but on Windows, as in NVRTC there."""
    return "x86_64-pc-windows-msvc" if sys.platform == "win32" else "x86_64-unknown-linux-gnu"


def _pairs(options: tuple[str, ...]) -> list[tuple[str, str]]:
    """(flag, value) of every option, whether written `-Dx`, `-D x`, `--std=c++17` or `-fmad`."""
    pairs, rest = [], list(options)
    while rest:
        option = rest.pop(0).strip()
        if option in _SEPARATE and rest:
            pairs.append((option, rest.pop(0)))
        elif match := re.fullmatch(r"(-[DUI])(.+)|(--?[\w-]+)=(.*)", option, re.DOTALL):
            pairs.append((match[1] or match[3], match[2] if match[1] else match[4]))
        else:
            pairs.append((option, ""))
    return pairs


def _header(options: tuple[str, ...], pairs: list[tuple[str, str]]) -> str:
    lines = [f"#define __CUDA_ARCH__ {10 * _architecture(pairs)}"]
    lines += [_macro(flag, value) for flag, value in pairs if flag in ("-D", "--define-macro", "-U", "--undefine-macro")]
    if {"-default-device", "--device-as-default-execution-space"} & set(options):
        lines.append("#pragma clang force_cuda_host_device begin")
    lines += [f'#include "{value}"' for flag, value in pairs if flag in ("-include", "--pre-include")]
    return PRELUDE + "\n".join(lines) + "\n"


def _macro(flag: str, value: str) -> str:
    if flag in ("-U", "--undefine-macro"):
        return f"#undef {value}"
    name, equals, text = value.partition("=")
    return f"#define {name} {text if equals else 1}"


def _architecture(pairs: list[tuple[str, str]]) -> int:
    for flag, value in reversed(pairs):
        if flag in ("-arch", "--gpu-architecture") and (digits := re.search(r"\d+", value)):
            return int(digits[0])
    return _DEFAULT_ARCHITECTURE


_PATIENCE = 2  # texts that a process reads before it precompiles the prelude, which takes as long as it saves of two
_FOR_SERIALIZATION = 0x10  # CXTranslationUnit_ForSerialization, for which the bindings have no name
_NAME = "gpuad-prelude.cu"


@dataclass(frozen=True)
class _Kept:
    folder: tempfile.TemporaryDirectory[str]  # removed with the process
    path: Path


_asked: Counter[tuple[str, ...]] = Counter()
_kept: dict[tuple[str, ...], _Kept | None] = {}


def _precompiled(arguments: tuple[str, ...], prelude: str) -> Path | None:
    """The file for clang's `-include-pch` which stands for `prelude` in texts that are read with these arguments and more directories; None
    for the first texts of a process, and where it cannot be made."""
    _asked[arguments] += 1
    if _asked[arguments] <= _PATIENCE:
        return None
    kept = _kept.get(arguments)
    if arguments not in _kept or (kept is not None and not kept.path.is_file()):  # folders of temporary files are tidied
        kept = _kept[arguments] = _written(arguments, prelude)
    return kept.path if kept is not None else None


def _written(arguments: tuple[str, ...], prelude: str) -> _Kept | None:
    options = TranslationUnit.PARSE_INCOMPLETE | _FOR_SERIALIZATION
    try:
        folder = tempfile.TemporaryDirectory(prefix="gpuad-prelude-", ignore_cleanup_errors=True)
        unit = Index.create().parse(_NAME, args=list(arguments), unsaved_files=[(_NAME, prelude)], options=options)
        if any(d.severity >= Diagnostic.Error for d in unit.diagnostics):
            return None
        path = Path(folder.name) / "prelude.pch"
        unit.save(str(path))
    except (OSError, TranslationUnitLoadError, TranslationUnitSaveError):
        return None
    return _Kept(folder, path)


def translation_unit(source: SourceFile, options: tuple[str, ...], tail: str = "") -> TranslationUnit:
    """The text as clang reads it, with a few lines of ours before it and `tail` after it."""
    library()
    line = command_line(options, source.name)
    if (prelude := _precompiled(line.own, PRELUDE)) is not None:
        try:
            return _read(line, line.blank_header + source.text + tail, "-include-pch", str(prelude))
        except TranslationUnitLoadError:  # damaged, or of headers that have changed since
            _kept[line.own] = None
    return _read(line, line.header + source.text + tail)


def _read(line: CommandLine, text: str, *more: str) -> TranslationUnit:
    index = Index.create(excludeDecls=True)  # goes through the text's declarations, not those of what is precompiled
    return index.parse(MAIN, args=[*line.arguments, *more], unsaved_files=[(MAIN, text)])
