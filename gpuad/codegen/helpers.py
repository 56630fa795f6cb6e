"""The device functions that generated CUDA may need beside CUDA's own. Each kernel's text carries only those that it calls.

The derivative of log gamma and its derivative reflect the argument to the positive side (DLMF 5.5.4) and move it up to 12 by the recurrence
(5.5.2), where the asymptotic series (5.11.2, and 5.15.8 for the second) has all digits of a double. Atomic maxima and minima of floats
(`ir.functions`) are loops around atomicCAS; the first read is volatile, since a plain one races with other threads'. Both are shared
with the CPU's text.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..ir.functions import EXTREMA

FOLDER = Path(__file__).parent / "include"
_MARK = "//// "  # before the name of the function which follows


def named_functions(file: Path) -> dict[str, str]:
    """The functions of a file of C++ by the names that stand above them, each as text that begins with a line break."""
    _, *pieces = file.read_text(encoding="utf-8").split(_MARK)
    return {name: "\n" + text for name, _, text in (piece.partition("\n") for piece in pieces)}


_FUNCTIONS = named_functions(FOLDER / "functions.cuh")
_LAST = ("gpuad_trips", "gpuad_unsigned_trips", "gpuad_inff", "gpuad_inf", "gpuad_nanf", "gpuad_nan")  # behind the atomics

_COMPARED = """{{
    {bits} old = *(volatile {bits}*)target;
    while ({condition}) {{
        const {bits} seen = atomicCAS(({bits}*)target, old, {read}(value));
        if (seen == old) break;
        old = seen;
    }}
    return {write}(old);
}}
"""
_BY_BITS = """{{
    return {write}({function}(({bits}*)target, {read}(value)));
}}
"""
_INTEGERS = {("float", "i"): "int", ("float", "u"): "unsigned int", ("double", "i"): "long long", ("double", "u"): "unsigned long long"}
_READ = {"float": "__float_as_int", "double": "__double_as_longlong"}
_WRITE = {"float": "__int_as_float", "double": "__longlong_as_double"}


def cuda_extrema() -> dict[str, str]:
    """For each operation a device function for float and one for double, as CUDA text."""
    return {f"gpuad_atomic_{op}": f"\n{_comment(op)}" + "".join(_function(op, kind) for kind in _READ) for op in sorted(EXTREMA)}


def _comment(op: str) -> str:
    kinds = {
        "i": ", by their bits as signed integers",
        "u": ", by their bits as unsigned integers",
        "f": ", which NaN is not",
        "n": ", which NaN is",
    }
    how = kinds.get(op[0], "")
    return f"// Keeps the {'greater' if op.endswith('max') else 'less'} of the content and a number{how}.\n"


def _function(op: str, kind: str) -> str:
    head = f"__device__ inline {kind} gpuad_atomic_{op}({kind}* target, {kind} value)\n"
    common = {"read": _READ[kind], "write": _WRITE[kind]}
    if op[0] in "iu":
        function = "atomicMax" if op.endswith("max") else "atomicMin"
        return head + _BY_BITS.format(**common, bits=_INTEGERS[kind, op[0]], function=function)
    old = f"{_WRITE[kind]}(old)"
    condition = f"value {'>' if op.endswith('max') else '<'} {old}"
    if op[0] == "f":
        condition = f"{condition} || (isnan({old}) && !isnan(value))"
    if op[0] == "n":
        condition = f"!({old} {'>=' if op.endswith('max') else '<='} value)"
    return head + _COMPARED.format(**common, bits="int" if kind == "float" else "unsigned long long", condition=condition)


# --- for the CPU -------------------------------------------------------------------------------------------------------------------------

BITS = {
    "gpuad_signed": """
GPUAD_INLINE int gpuad_signed(float x) { int bits; __builtin_memcpy(&bits, &x, sizeof x); return bits; }
GPUAD_INLINE long long gpuad_signed(double x) { long long bits; __builtin_memcpy(&bits, &x, sizeof x); return bits; }""",
    "gpuad_unsigned": """
GPUAD_INLINE unsigned gpuad_unsigned(float x) { unsigned bits; __builtin_memcpy(&bits, &x, sizeof x); return bits; }
GPUAD_INLINE unsigned long long gpuad_unsigned(double x)
{
    unsigned long long bits;
    __builtin_memcpy(&bits, &x, sizeof x);
    return bits;
}""",
}


def host_extrema() -> dict[str, str]:
    """The operations as C++, by the macro that makes atomic operations, and what it stands on."""
    return BITS | {f"gpuad_atomic_{op}": _macro(op) for op in sorted(EXTREMA)}


def _macro(op: str) -> str:
    sign = ">" if op.endswith("max") else "<"
    number = {"i": "gpuad_signed({})", "u": "gpuad_unsigned({})"}.get(op[0], "{}")
    condition = f"{number.format('value')} {sign} {number.format('old')}"
    if op[0] == "f":
        condition = f"{condition} || (old != old && value == value)"
    if op[0] == "n":
        condition = f"!(old {sign}= value)"
    return f"GPUAD_ATOMIC(gpuad_atomic_{op}, ({condition}) ? value : old)"


def gamma_helpers(prefix: str) -> dict[str, str]:
    """The definitions by name; `prefix` is what stands before a function's type."""
    return {name: _FUNCTIONS[name].replace("{prefix}", prefix) for name in ("gpuad_digamma", "gpuad_trigamma")}


CUDA_HELPERS = {
    **{name: text for name, text in _FUNCTIONS.items() if name not in _LAST},
    **gamma_helpers("__device__ inline"),
    **cuda_extrema(),
    **{name: _FUNCTIONS[name] for name in _LAST},
}


def helper_text(used: Iterable[str], table: dict[str, str] = CUDA_HELPERS) -> str:
    """The definitions of those of the names that the table has, in the order of the table."""
    wanted = set(used)
    return "".join(text.lstrip("\n") + "\n" for name, text in table.items() if name in wanted)
