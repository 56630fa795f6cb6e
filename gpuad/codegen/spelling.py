"""How C++ writes types, numbers, names and the functions of `ir.functions`: the part of printing that depends on one node alone.

Numbers are exact: a float literal is the shortest decimal that reads back as the same value, with the suffix of its type. Infinities and
NaN have no literal and are calls of small helpers. Names are the user's, made unique among those visible by a suffix _2, _3 ...

The device functions that generated CUDA may need beside CUDA's own. Each kernel's text carries only those that it calls.

The derivative of log gamma and its derivative reflect the argument to the positive side (DLMF 5.5.4) and move it up to 12 by the recurrence
(5.5.2), where the asymptotic series (5.11.2, and 5.15.8 for the second) has all digits of a double. Atomic maxima and minima of floats
(`ir.functions`) are loops around atomicCAS; the first read is volatile, since a plain one races with other threads'. Both are shared
with the CPU's text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..errors import UnsupportedError
from ..ir.folding import wrapped
from ..ir.functions import EXTREMA, FUNCTIONS
from ..ir.nodes import Call, Constant
from ..ir.types import F32, F64, Scalar, promoted

C_TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float16": "unsigned short",  # the bits: plain NVRTC has no type for it
    "bfloat16": "unsigned short",
    "float32": "float",
    "float64": "double",
}

_BITS = {
    ("float32", "int32"): "__float_as_int",
    ("float32", "uint32"): "__float_as_uint",
    ("int32", "float32"): "__int_as_float",
    ("uint32", "float32"): "__uint_as_float",
    ("float64", "int64"): "__double_as_longlong",
    ("int64", "float64"): "__longlong_as_double",
}
_SUFFIX = {"uint32": "u", "int64": "LL", "uint64": "ULL"}
_INT_NAMES = {
    "popc": ("__popc", "__popcll", "__popc", "__popcll"),
    "clz": ("__clz", "__clzll", "__clz", "__clzll"),
    "ffs": ("__ffs", "__ffsll", "__ffs", "__ffsll"),
    "brev": ("__brev", "__brevll", "__brev", "__brevll"),
    "mulhi": ("__mulhi", "__mul64hi", "__umulhi", "__umul64hi"),
}


def quoted(text: str) -> str:
    """The text as a string literal of C."""
    plain = {"\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
    encoded = "".join(plain.get(c, c if " " <= c <= "~" else "".join(f"\\{b:03o}" for b in c.encode())) for c in text)
    return f'"{encoded}"'


def c_type(t: Scalar) -> str:
    """C's name of the type; of a half or a bfloat16 that of its bits, since plain NVRTC has no headers."""
    return C_TYPES[str(t)]


def converts_silently(source: Scalar, target: Scalar) -> bool:
    """True if an assignment converts without losing more than an int's sign, so that a cast there says nothing."""
    if target.kind == "bool" or source.is_float:
        return source == target or (source, target) == (F32, F64)
    return target.is_float or target.bits >= promoted(source).bits or source == target


def literal(constant: Constant) -> str:
    """The constant as a C++ expression; a negative one begins with a minus sign, except the least integers, which are in parentheses."""
    t = constant.type
    if t.kind == "bool":
        return "true" if constant.value else "false"
    return _float(float(constant.value), t) if t.is_float else _integer(int(constant.value), t)


def _integer(value: int, t: Scalar) -> str:
    value = wrapped(value, t)
    suffix = _SUFFIX.get(str(t), "")
    if t.is_signed and t.bits >= 32 and value == -(1 << (t.bits - 1)):
        return f"(-{-value - 1}{suffix} - 1{suffix})"
    return f"{value}{suffix}"


def _float(value: float, t: Scalar) -> str:
    c_type(t)
    suffix = "f" if t == F32 else ""
    number = np.float32(value) if t == F32 else np.float64(value)
    if not math.isfinite(number):
        helper = f"gpuad_{'nan' if math.isnan(number) else 'inf'}{suffix}()"
        return "-" + helper if number < 0 else helper
    return _decimal(number) + suffix


def _decimal(number: np.floating) -> str:
    if number == 0 or 1e-4 <= abs(number) < 1e9:
        return np.format_float_positional(number, unique=True, trim="0")
    return np.format_float_scientific(number, unique=True, trim="0", exp_digits=1).replace("e+", "e")


def function_name(call: Call) -> str:
    """The typed CUDA name of the function called: `sinf` at float32, `sin` at float64, `__popcll` at 64 bits."""
    function = FUNCTIONS[call.function]
    t = function.of_one_type(call.arguments)[0].type
    if function.domain == "bits":
        return _BITS[str(t), str(call.type)]
    if function.domain == "int":
        names = _INT_NAMES.get(function.name)
        return function.name if names is None else names[(t.bits == 64) + 2 * (t.kind == "uint")]
    name = function.single if t == F32 else function.double if t == F64 else None
    if name is None:
        raise UnsupportedError(f"{call.function} does not exist for {t}")
    return name


_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl const const_cast constexpr
continue decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long
mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast return short signed
sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned
using virtual void volatile wchar_t while xor xor_eq
threadIdx blockIdx blockDim gridDim warpSize uint3 dim3 NULL EOF NAN INFINITY errno stdin stdout stderr assert signbit isnan isinf isfinite
min max abs linux unix
"""

RESERVED = frozenset(_KEYWORDS.split())


class Names:
    """The names visible at one place of the text, innermost scope last."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self.scopes: list[set[str]] = [set(RESERVED | set(reserved))]

    def open(self) -> None:
        self.scopes.append(set())

    def close(self) -> None:
        self.scopes.pop()

    def new(self, wish: str) -> str:
        """A name not visible so far, `wish` if possible, from now on visible in the current scope."""
        base = identifier(wish)
        name, number = base, 1
        while any(name in scope for scope in self.scopes):
            number += 1
            name = f"{base}_{number}"
        self.scopes[-1].add(name)
        return name


def identifier(wish: str) -> str:
    """The name with everything that C++ does not allow replaced."""
    name = re.sub(r"\W", "_", wish, flags=re.ASCII) or "t"
    return "_" + name if name[0].isdigit() else name


FOLDER = Path(__file__).parent / "include"
_MARK = "//// "  # before the name of the function which follows


def named_functions(file: Path) -> dict[str, str]:
    """The functions of a file of C++ by the names that stand above them, each as text that begins with a line break."""
    _, *pieces = file.read_text(encoding="utf-8").split(_MARK)
    return {name: "\n" + text for name, _, text in (piece.partition("\n") for piece in pieces)}


_FUNCTIONS = named_functions(FOLDER / "functions.cuh")
_LAST = ("gpuad_trips", "gpuad_unsigned_trips", "gpuad_inff", "gpuad_inf", "gpuad_nanf", "gpuad_nan")  # behind the atomics

_COMPARED = """{{
    {bits} old = {read}(*(volatile {kind}*)target);
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
    common = {"read": _READ[kind], "write": _WRITE[kind], "kind": kind}
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
