"""The prelude's overload sets are NVRTC's: every function with every combination of argument types has the same type, or no call, in both.

One program does it for both compilers: for each call an integer that stands for the type of its result, 0 where overload resolution fails.
NVRTC's answers are read from the PTX (no GPU is needed), clang's from the enumerators that it computes.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import re
from pathlib import Path

import pytest
from clang import cindex
from clang.cindex import Cursor, CursorKind, TypeKind

from gpuad.frontend.cuda.clang_c import children
from gpuad.frontend.cuda.translation_unit import MAIN, command_line, is_ours

ALL = [
    "bool",
    "char",
    "signed char",
    "unsigned char",
    "short",
    "unsigned short",
    "int",
    "unsigned int",
    "long",
    "unsigned long",
    "long long",
]
ALL += ["unsigned long long", "float", "double"]
SOME = ["short", "int", "unsigned int", "long", "unsigned long", "long long", "unsigned long long", "float", "double"]
FEW = ["int", "float", "double"]
BY_ARITY = {1: ALL, 2: SOME, 3: FEW}
ATOMICS = ["Add", "Sub", "Min", "Max", "Exch", "And", "Or", "Xor", "Inc", "Dec"]
PAIRS = ["sincos", "sincosf", "sincospi", "sincospif", "__sincosf"]
OWN = {"gpuad_assert"}
# NVRTC has them as templates or with other defaults; all are refused by name, whatever their type
REFUSED = re.compile(r"__shfl.*|__syncwarp|clock|clock64|tex.*|make_.*")


def parsed(text: str) -> Cursor:
    line = command_line(("-default-device",))
    unit = cindex.Index.create().parse(MAIN, args=list(line.arguments), unsaved_files=[(MAIN, line.header + text)])
    assert not [d.spelling for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
    return unit.cursor


def declared() -> dict[str, set[int]]:
    """The prelude's functions of numbers: name to the numbers of arguments."""
    found: dict[str, set[int]] = {}
    for cursor in children(parsed("")):
        if cursor.kind == CursorKind.FUNCTION_DECL and is_ours(cursor):
            kinds = [p.type.get_canonical().kind for p in cursor.get_arguments()]
            if kinds and len(kinds) <= 3 and not {TypeKind.POINTER, TypeKind.RECORD} & set(kinds) and cursor.spelling not in OWN:
                found.setdefault(cursor.spelling, set()).add(len(kinds))
    return {name: arities for name, arities in found.items() if not REFUSED.fullmatch(name)}


def calls() -> list[tuple[str, tuple[str, ...]]]:
    numbers = [(name, types) for name, ns in declared().items() for n in sorted(ns) for types in itertools.product(BY_ARITY[n], repeat=n)]
    atomics = [(f"atomic{op}", (f"{t}*", v)) for op in ATOMICS for t in ALL for v in FEW]
    swaps = [("atomicCAS", (f"{t}*", t, t)) for t in ALL if t != "unsigned char"]
    loads = [(name, (f"const {t}*",)) for name in ("__ldg", "__ldca", "__ldcg", "__ldcs", "__ldlu") for t in ALL]
    stores = [(name, (f"{t}*", v)) for name in ("__stwb", "__stcg", "__stcs", "__stwt") for t in ALL for v in FEW]
    pairs = [(name, (t, f"{p}*", f"{p}*")) for name in PAIRS for t in FEW for p in ("float", "double")]
    return numbers + atomics + swaps + loads + stores + pairs


def program(wanted: list[tuple[str, tuple[str, ...]]]) -> tuple[str, list[str]]:
    """Templates, and an expression for each call."""
    numbers = "".join(f"template<> struct number<{t}> {{ static constexpr int value = {i + 1}; }};\n" for i, t in enumerate(ALL))
    text = "template<class A> A&& any();\ntemplate<class A> struct number { static constexpr int value = 99; };\n" + numbers
    names = list(dict.fromkeys(name for name, _ in wanted))
    for k, name in enumerate(names):
        text += f"template<class... A> constexpr auto probe{k}(int) -> decltype({name}(any<A>()...), 0)"
        text += f" {{ return number<decltype({name}(any<A>()...))>::value; }}\n"
        text += f"template<class... A> constexpr int probe{k}(long) {{ return 0; }}\n"
    place = {name: k for k, name in enumerate(names)}
    return text, [f"probe{place[name]}<{', '.join(types)}>(0)" for name, types in wanted]


def clang_answers(wanted: list[tuple[str, tuple[str, ...]]]) -> list[int]:
    text, expressions = program(wanted)
    text += "enum answers {" + ", ".join(f"a{i} = {e}" for i, e in enumerate(expressions)) + "};"
    (enum,) = [c for c in children(parsed(text)) if c.kind == CursorKind.ENUM_DECL]
    return [c.enum_value for c in children(enum)]


def nvrtc_answers(wanted: list[tuple[str, tuple[str, ...]]]) -> list[int]:
    text, expressions = program(wanted)
    size = len(expressions)
    text += f"__device__ extern const int answers[{size}];\n__device__ const int answers[{size}] = {{{', '.join(expressions)}}};\n"
    text += 'extern "C" __global__ void reader(int* out, int i) { out[0] = answers[i]; }'
    found = re.search(r"\.b(8|32) answers\[\d+\] = \{([^}]*)\}", compiled(text))
    assert found
    values = [int(v) for v in found[2].split(",")]
    values = values[::4] if found[1] == "8" else values
    return values + [0] * (size - len(values))  # PTX leaves out zeros at the end


def compiled(text: str) -> str:
    """The PTX of a text, by NVRTC's wheel."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(p) for p in spec.submodule_search_locations or ()] if spec else []
    libraries = [p for folder in folders for p in sorted(folder.glob("*/lib/libnvrtc.so.*"))]
    if not libraries:
        pytest.skip("the wheel nvidia-cuda-nvrtc is not installed")
    lib, program_ = ctypes.CDLL(str(libraries[-1])), ctypes.c_void_p()
    lib.nvrtcCreateProgram(ctypes.byref(program_), text.encode(), b"probe.cu", 0, None, None)
    options = (ctypes.c_char_p * 2)(b"-arch=compute_80", b"-default-device")
    status = lib.nvrtcCompileProgram(program_, 2, options)
    log = output(lib, "ProgramLog", program_)
    assert status == 0, log[:2000]
    return output(lib, "PTX", program_)


def output(lib: ctypes.CDLL, what: str, program_: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    getattr(lib, f"nvrtcGet{what}Size")(program_, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(lib, f"nvrtcGet{what}")(program_, buffer)
    return buffer.value.decode()


def test_every_call_has_nvrtcs_type() -> None:
    wanted = calls()
    ours, theirs = clang_answers(wanted), nvrtc_answers(wanted)
    assert len(wanted) > 4000
    assert sum(answer != 0 for answer in theirs) > 2000
    shown = {0: "no call", 99: "another type"} | {i + 1: t for i, t in enumerate(ALL)}
    wrong = [
        f"{name}({', '.join(types)}): {shown[a]} here, {shown[b]} in NVRTC"
        for (name, types), a, b in zip(wanted, ours, theirs, strict=True)
        if a != b
    ]
    assert not wrong, f"{len(wrong)} of {len(wanted)} differ:\n" + "\n".join(wrong[:40])


@pytest.mark.parametrize(
    ("call", "type_"),
    [
        ("pow(1.f, 2)", "float"),
        ("pow(2, 1.f)", "float"),
        ("pow(1.0, 2)", "double"),
        ("abs(1.f)", "float"),
        ("isnan(1.f)", "int"),
        ("max(1, 2u)", "unsigned int"),
    ],
)
def test_types_that_matter(call: str, type_: str) -> None:
    same = "template<class A, class B> constexpr bool same = false; template<class A> constexpr bool same<A, A> = true;"
    parsed(f"{same} static_assert(same<decltype({call}), {type_}>);")
