"""The C++ runtime that the CPU's text includes: CUDA's launch indices, integer operations with PTX's results, atomics, and the functions
that CUDA has and the C++ library has not, from the files of `include`, whole or function by function.

Everything lives in a namespace of ours, where it hides whatever the C library calls by the same name.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ..spelling import BITS, gamma_helpers, helper_text, host_extrema

FOLDER = Path(__file__).parent / "include"
_MARK = "//// "  # a line of `functions.hpp` that names the function which follows


def text(name: str) -> str:
    """A file."""
    return (FOLDER / name).read_text(encoding="utf-8")


@cache
def functions() -> dict[str, str]:
    """The pieces of `functions.hpp` by name."""
    pieces = ("\n" + text("functions.hpp")).split("\n" + _MARK)[1:]
    return dict(piece.removesuffix("\n").split("\n", 1) if k == len(pieces) - 1 else piece.split("\n", 1) for k, piece in enumerate(pieces))


_FUNCTIONS = functions()

PRELUDE = "\n" + text("prelude.hpp")

SUMS = "\n" + text("sums.hpp")

BLOCK_SUMS = "\n" + text("block_sums.hpp")

ATOMICS = "\n" + text("atomics.hpp")

ROWS = "\n" + text("rows.hpp")

_INTEGERS = {
    "gpuad_div": _FUNCTIONS["gpuad_div"],
    "gpuad_rem": _FUNCTIONS["gpuad_rem"],
    "gpuad_hidden": _FUNCTIONS["gpuad_hidden"],
    "gpuad_row_of": _FUNCTIONS["gpuad_row_of"],
    "gpuad_shl": _FUNCTIONS["gpuad_shl"],
    "gpuad_shr": _FUNCTIONS["gpuad_shr"],
    "gpuad_f2i": _FUNCTIONS["gpuad_f2i"],
    "gpuad_trips": _FUNCTIONS["gpuad_trips"],
    "gpuad_unsigned_trips": _FUNCTIONS["gpuad_unsigned_trips"],
}

_HALF = _FUNCTIONS["half"]

_BFLOAT16 = _FUNCTIONS["bfloat16"]


def _add(name: str) -> str:
    next_ = f"gpuad_to_{name}(gpuad_from_{name}(old) + value)"
    return f"""GPUAD_INLINE float gpuad_add_{name}(unsigned short* target, float value)
{{
    return gpuad_from_{name}(gpuad_atomic(target, [=](unsigned short old) -> unsigned short {{ return {next_}; }}));
}}"""


_SMALL = {
    "gpuad_any": _FUNCTIONS["gpuad_any"],
    "gpuad_half": _HALF,
    "gpuad_bfloat16": _BFLOAT16,
    "gpuad_add_half": _add("half"),
    "gpuad_add_bfloat16": _add("bfloat16"),
    **{name: text.strip() for name, text in gamma_helpers("GPUAD_INLINE").items()},
    "gpuad_chain": "template <typename T> GPUAD_INLINE T gpuad_chain(T seed, T partial) { return seed == 0 ? (T)0 : seed * partial; }",
    **host_extrema(),
    "gpuad_exch": "#define gpuad_exch atomicExch",
    "gpuad_cas": "#define gpuad_cas atomicCAS",
    "gpuad_add": "#define gpuad_add atomicAdd",
    "gpuad_inff": "GPUAD_INLINE float gpuad_inff() { return __builtin_inff(); }",
    "gpuad_inf": "GPUAD_INLINE double gpuad_inf() { return __builtin_inf(); }",
    "gpuad_nanf": 'GPUAD_INLINE float gpuad_nanf() { return __builtin_nanf(""); }',
    "gpuad_nan": 'GPUAD_INLINE double gpuad_nan() { return __builtin_nan(""); }',
    "min": "template <typename T> GPUAD_INLINE T min(T a, T b) { return b < a ? b : a; }",
    "max": "template <typename T> GPUAD_INLINE T max(T a, T b) { return a < b ? b : a; }",
    "abs": "template <typename T> GPUAD_INLINE T abs(T a) { return a < 0 ? (T)(0 - a) : a; }",
    "__popc": "GPUAD_INLINE int __popc(unsigned int x) { return __builtin_popcount(x); }",
    "__popcll": "GPUAD_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }",
    "__clz": "GPUAD_INLINE int __clz(unsigned int x) { return x ? __builtin_clz(x) : 32; }",
    "__clzll": "GPUAD_INLINE int __clzll(unsigned long long x) { return x ? __builtin_clzll(x) : 64; }",
    "__ffs": "GPUAD_INLINE int __ffs(int x) { return __builtin_ffs(x); }",
    "__ffsll": "GPUAD_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }",
    "__brev": _FUNCTIONS["__brev"],
    "__brevll": _FUNCTIONS["__brevll"],
    "__mulhi": "GPUAD_INLINE int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }",
    "__umulhi": _FUNCTIONS["__umulhi"],
    "__mul64hi": "GPUAD_INLINE long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }",
    "__umul64hi": _FUNCTIONS["__umul64hi"],
    **{
        name: f"template <typename T> GPUAD_INLINE bool {name}(T x) {{ return __builtin_{name}(x); }}"
        for name in ("isnan", "isinf", "isfinite")
    },
    "signbit": "GPUAD_INLINE bool signbit(double x) { return __builtin_signbit(x); }",
}

_UNARY = {
    "rcbrt": "1 / std::cbrt(x)",
    "exp10": "std::pow(10.0, x)",
    "sinpi": "gpuad_sinpi(x)",
    "cospi": "gpuad_cospi(x)",
    "erfinv": "gpuad_erfinv(x)",
    "erfcinv": "gpuad_erfcinv(x)",
    "erfcx": "gpuad_erfcx(x)",
    "normcdf": "0.5 * std::erfc(x * -0.70710678118654752440)",
    "normcdfinv": "-1.41421356237309504880 * gpuad_erfcinv(2 * x)",
    "j0": "::j0(x)",
    "j1": "::j1(x)",
    "y0": "::y0(x)",
    "y1": "::y1(x)",
    "cyl_bessel_i0": "gpuad_bessel_i(x, 0)",
    "cyl_bessel_i1": "gpuad_bessel_i(x, 1)",
}

_SPECIAL = {
    "gpuad_sinpi": _FUNCTIONS["gpuad_sinpi"],
    "gpuad_cospi": _FUNCTIONS["gpuad_cospi"],
    "gpuad_erfcinv": _FUNCTIONS["gpuad_erfcinv"],
    "gpuad_erfinv": _FUNCTIONS["gpuad_erfinv"],
    "gpuad_erfcx": _FUNCTIONS["gpuad_erfcx"],
    "gpuad_bessel_i": _FUNCTIONS["gpuad_bessel_i"],
}
_SAME = {
    "__expf": "expf", "__logf": "logf", "__log2f": "log2f", "__log10f": "log10f", "__sinf": "sinf", "__cosf": "cosf", "__tanf": "tanf",
    "__tanhf": "tanhf",
    "__fsqrt_rn": "sqrtf", "__dsqrt_rn": "sqrt",
}  # fmt: skip
_OPERATORS = {
    "__fdividef": ("float", "a / b"), "__fadd_rn": ("float", "a + b"), "__fsub_rn": ("float", "a - b"), "__fmul_rn": ("float", "a * b"),
    "__fdiv_rn": ("float", "a / b"), "__dadd_rn": ("double", "a + b"), "__dsub_rn": ("double", "a - b"), "__dmul_rn": ("double", "a * b"),
    "__ddiv_rn": ("double", "a / b"), "__powf": ("float", "powf(a, b)"), "rhypot": ("double", "1.0 / std::hypot(a, b)"),
    "rhypotf": ("float", "(float)(1.0 / std::hypot((double)a, (double)b))"),
}  # fmt: skip
_BITS = {
    "__float_as_int": ("float", "int"),
    "__float_as_uint": ("float", "unsigned int"),
    "__int_as_float": ("int", "float"),
    "__uint_as_float": ("unsigned int", "float"),
    "__double_as_longlong": ("double", "long long"),
    "__longlong_as_double": ("long long", "double"),
}
# Cephes' polynomial, to little more than 1 ulp (CUDA's: 2), with 2^n in two factors so that small results are rounded once. It is
# made of operations that vectors have, and the last of them wait for few of the first: alone it takes little longer than the C library's.
# At float64: Taylor's polynomial of degree 13 within half of ln 2 around 0, which it leaves by 4e-18, in the same manner; to 1 ulp.
_EXP = _FUNCTIONS["expf"]
_OTHER = {
    "exp": _FUNCTIONS["exp"],
    "expf": _EXP,
    **{
        f"f{name}{suffix}": f"GPUAD_INLINE {t} f{name}{suffix}({t} a, {t} b) {{ return a {sign} b || b != b ? a : b; }}"
        for name, sign in (("max", ">"), ("min", "<"))
        for suffix, t in (("f", "float"), ("", "double"))
    },
    **{
        f"{name}{suffix}": f'GPUAD_INLINE {t} {name}{suffix}(int n, {t} x) {{ return n < 0 ? __builtin_nan("") : ({t})::{name}(n, x); }}'
        for name in ("jn", "yn")
        for suffix, t in (("f", "float"), ("", "double"))
    },
    "rsqrt": "GPUAD_INLINE double rsqrt(double x) { return 1.0 / std::sqrt(x); }",
    "rsqrtf": "GPUAD_INLINE float rsqrtf(float x) { return 1.0f / std::sqrt(x); }",
    "__exp10f": "GPUAD_INLINE float __exp10f(float x) { return (float)std::pow(10.0, (double)x); }",
    "__frcp_rn": "GPUAD_INLINE float __frcp_rn(float x) { return 1.0f / x; }",
    "__drcp_rn": "GPUAD_INLINE double __drcp_rn(double x) { return 1.0 / x; }",
    "__frsqrt_rn": "GPUAD_INLINE float __frsqrt_rn(float x) { return (float)(1.0 / std::sqrt((double)x)); }",
    "__fmaf_rn": "GPUAD_INLINE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }",
    "__fma_rn": "GPUAD_INLINE double __fma_rn(double a, double b, double c) { return fma(a, b, c); }",
    "__saturatef": "GPUAD_INLINE float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }",
}


def _table() -> dict[str, str]:
    """Each function's definition. Those at float32 that the C library has not are computed in double."""
    table = _INTEGERS | _SMALL | _SPECIAL
    for name, expression in _UNARY.items():
        table[name] = f"GPUAD_INLINE double {name}(double x) {{ return {expression}; }}"
        table[name + "f"] = f"GPUAD_INLINE float {name}f(float a) {{ const double x = a; return (float)({expression}); }}"
    table |= {name: f"GPUAD_INLINE {_kind(name)} {name}({_kind(name)} x) {{ return {same}(x); }}" for name, same in _SAME.items()}
    table |= {
        name: f"GPUAD_INLINE {result} {name}({argument} x) {{ {result} y; __builtin_memcpy(&y, &x, sizeof x); return y; }}"
        for name, (argument, result) in _BITS.items()
    }
    table |= {n: f"GPUAD_INLINE {t} {n}({t} a, {t} b) {{ return {e}; }}" for n, (t, e) in _OPERATORS.items()}
    return table | _OTHER


def _kind(name: str) -> str:
    return "double" if name.startswith("__d") else "float"


HOST_HELPERS = _table()


def host_helper_text(used: Iterable[str]) -> str:
    """The definitions of those of the names that CUDA has and C++ has not, and of what they stand on."""
    wanted = {name for name in used if name in HOST_HELPERS}
    while True:
        needed = {name for name in (*_SPECIAL, *BITS) for user in wanted if name != user and f"{name}(" in HOST_HELPERS[user]}
        if needed <= wanted:
            return helper_text(wanted, HOST_HELPERS)
        wanted |= needed


_COMMON = PRELUDE.lstrip("\n") + "\n" + text("tasks.hpp")
_SHARED_OUT_BY = "\nint (*gpuad_shared_out_by)(gpuad_task*, int, int) = {};\n"

WITHOUT_POOL = _COMMON + _SHARED_OUT_BY.format("nullptr")
WITH_POOL = (
    text("includes.hpp") + _COMMON + "\n" + text("threads.hpp") + "\n" + text("batch.hpp") + _SHARED_OUT_BY.format("gpuad_share_out")
)
POOL = WITH_POOL + "}  // namespace\n"  # the library that lends its threads to all others of a process
HEADERS = "#ifndef _WIN32\n#include <sys/mman.h>\n#endif\n" + "".join(
    f"#include <{name}>\n" for name in ("cmath", "cstdint", "cstdio", "cstdlib", "cstring", "new", "vector")
)  # all that kernels' texts include
