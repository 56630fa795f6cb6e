"""Lowering of CUDA to the surface tree: the shape of the tree for each feature, and for each trap of libclang.

Trees are compared in a short notation: `i8(x)` is a cast that the user wrote, `~i8(x)` one that C adds, `3:int32` a constant.
"""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path

import pytest

from gpuad.errors import CompileError, UnsupportedError
from gpuad.frontend.cuda import parse
from gpuad.ir import surface as s
from gpuad.ir.types import F32, F64, I32, U32, VOID, Array, Pointer
from gpuad.source import SourceFile


def show(node: object) -> str:  # noqa: C901
    """The short notation."""
    match node:
        case s.Constant():
            return f"{node.value}:{node.type}"
        case s.Name():
            return node.declaration.name
        case s.LaunchIndex():
            return f"{node.name}.{node.axis}"
        case s.Cast():
            return f"{'~' if node.implicit else ''}{node.type}({show(node.operand)})"
        case s.Binary() | s.Logical():
            return f"({show(node.left)} {node.op} {show(node.right)})"
        case s.Unary():
            return f"{node.op}{show(node.operand)}"
        case s.Index():
            return f"{show(node.pointer)}[{show(node.index)}]"
        case s.Decay():
            return show(node.array)
        case s.AddressOf():
            return f"&{show(node.lvalue)}"
        case s.Deref():
            return f"*{show(node.pointer)}"
        case s.PointerAdd():
            return f"({show(node.pointer)} @+ {show(node.offset)})"
        case s.Assign():
            return f"{show(node.target)} {node.op or ''}={f'<{node.computation}>' if node.op else ''} {show(node.value)}"
        case s.IncDec():
            return 2 * node.op + show(node.target) if node.prefix else show(node.target) + 2 * node.op
        case s.Conditional():
            return f"({show(node.condition)} ? {show(node.then)} : {show(node.otherwise)})"
        case s.MathCall():
            return f"{node.function}({', '.join(map(show, node.arguments))})"
        case s.HelperCall():
            return f"{node.function.name}!({', '.join(map(show, node.arguments))})"
        case s.AtomicCall():
            return f"atomic_{node.op}({', '.join(map(show, (node.pointer, *node.operands)))})"
        case s.Evaluate():
            return show(node.value)
        case s.Declare():
            d = node.declaration
            return f"{d.type}{'&' if d.reference else ''} {d.name}" + ("" if node.init is None else f" = {show(node.init)}")
        case s.Block():
            return "{" + "; ".join(map(show, node.body)) + "}"
        case tuple():
            return "{" + ", ".join(map(show, node)) + "}"
        case s.Node():
            parts = [show(getattr(node, f.name)) for f in fields(node) if f.name not in ("span", "type")]
            return f"{type(node).__name__}({', '.join(parts)})" if parts else type(node).__name__
        case _:
            return str(node)


def kernel(text: str, name: str = "k", options: tuple[str, ...] = ()) -> s.Function:
    return parse(SourceFile("user.cu", text), options=options).kernel(name)


def body(statements: str, before: str = "") -> list[str]:
    """The statements of a kernel with parameters of every kind."""
    parameters = "float* x, const double* y, int n, unsigned u, long long l, float f, double d, unsigned char c, bool b"
    return [show(stmt) for stmt in kernel(f"{before}\n__global__ void k({parameters}) {{ {statements} }}").body.body]


def one(statement: str, before: str = "") -> str:
    (only,) = body(statement, before)
    return only


# --- compound assignment: no conversion is shown by clang ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "tree"),
    [
        ("n *= 0.5;", "n *=<float64> 0.5:float64"),
        ("f /= 2.0;", "f /=<float64> 2.0:float64"),
        ("f += n;", "f +=<float32> ~float32(n)"),
        ("n += f;", "n +=<float32> f"),
        ("n += u;", "n +=<uint32> u"),
        ("u -= n;", "u -=<uint32> ~uint32(n)"),
        ("l += u;", "l +=<int64> ~int64(u)"),
        ("n += l;", "n +=<int64> l"),
        ("c += 1;", "c +=<int32> 1:int32"),
        ("c <<= u;", "c <<=<int32> u"),
        ("u >>= l;", "u >>=<uint32> l"),
        ("b |= n > 3;", "b |=<int32> ~int32((n > 3:int32))"),
        ("f += c;", "f +=<float32> ~float32(~int32(c))"),
        ("c *= f;", "c *=<float32> f"),
        ("x[n] += d;", "x[n] +=<float64> d"),
    ],
)
def test_compound_assignment_is_done_in_the_common_type(statement: str, tree: str) -> None:
    assert one(statement) == tree


# --- for headers: clang drops absent parts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "tree"),
    [
        ("for (;;) break;", "For(None, None, None, Break)"),
        ("for (;; ++n) break;", "For(None, None, ++n, Break)"),
        ("for (; !b;) n++;", "For(None, !b, None, n++)"),
        ("for (n = 0;;) break;", "For(n = 0:int32, None, None, Break)"),
        ("for (b = true;;) break;", "For(b = True:bool, None, None, Break)"),
        ("for (; b; b = false) ;", "For(None, b, b = False:bool, {})"),
        ("for (b = n;; b = !b) break;", "For(b = ~bool(n), None, b = !b, Break)"),
        ("for (int i = 0; i < n;) i += 2;", "For(int32 i = 0:int32, (i < n), None, i +=<int32> 2:int32)"),
        ("for (int i = 0;; i++) continue;", "For(int32 i = 0:int32, None, i++, Continue)"),
        ("for (int i /* ; */ = 0;; i++) {}", "For(int32 i = 0:int32, None, i++, {})"),
        (
            "for (int i = 0, e = n; i < e; i++, n--) ;",
            "For({int32 i = 0:int32; int32 e = n}, (i < e), Comma(i++, n--), {})",
        ),
    ],
)
def test_absent_parts_of_for(statement: str, tree: str) -> None:
    assert one(statement) == tree


def test_whole_for_from_a_macro() -> None:
    macro = "#define LOOP(i, n) for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)"
    start = "~int32(((blockIdx.x * blockDim.x) + threadIdx.x))"
    expected = f"For(int32 i = {start}, (i < n), i +=<uint32> (blockDim.x * gridDim.x), {{x[i] = f}})"
    assert one("LOOP(i, n) { x[i] = f; }", macro) == expected


def test_absent_parts_in_a_macro_are_refused() -> None:
    with pytest.raises(UnsupportedError):
        body("UNTIL(b) n++;", "#define UNTIL(c) for (; !c;)")


# --- numbers --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("literal", "value", "type_"),
    [
        ("0x1.8p3", 12.0, "float64"),
        ("1e-3f", 0.0010000000474974513, "float32"),
        ("18446744073709551615ull", 18446744073709551615, "uint64"),
        ("0xffffffff", 0xFFFFFFFF, "uint32"),
        ("2147483648", 2147483648, "int64"),
        ("'a'", 97, "int8"),
        ("true", True, "bool"),
        ("0b101", 5, "int32"),
        ("1'000", 1000, "int32"),
        ("sizeof(double)", 8, "uint64"),
        ("warpSize", 32, "int32"),
        ("__builtin_inff()", math.inf, "float32"),
        ("__int_as_float(0x7f800000)", math.inf, "float32"),
        ("__int_as_float(0xc0000000)", -2.0, "float32"),
    ],
)
def test_literals_are_exact(literal: str, value: float, type_: str) -> None:
    assert one(f"auto v = {literal};") == f"{type_} v = {value}:{type_}"


def test_unsigned_arithmetic() -> None:
    assert one("u = n - u;") == "u = (~uint32(n) - u)"
    assert one("n = blockIdx.x * blockDim.x + threadIdx.x;") == "n = ~int32(((blockIdx.x * blockDim.x) + threadIdx.x))"
    assert one("b = n < u;") == "b = (~uint32(n) < u)"
    assert one("n = -c;") == "n = -~int32(c)"
    assert one("n = b + b;") == "n = (~int32(b) + ~int32(b))"


def test_launch_indices_are_unsigned() -> None:
    (declare,) = kernel("__global__ void k() { auto i = threadIdx.y; }").body.body
    assert isinstance(declare, s.Declare) and isinstance(declare.init, s.LaunchIndex)
    assert declare.init.type == declare.declaration.type == U32


def test_casts_know_who_asked() -> None:
    assert one("n = f;") == "n = ~int32(f)"
    for spelling in ("(int)f", "int(f)", "static_cast<int>(f)", "(int)(f)", "int{(int)f}"):
        assert one(f"n = {spelling};") == "n = int32(f)"
    assert one("f = (float)n / (float)u;") == "f = (float32(n) / float32(u))"
    assert one("f = (int)d;") == "f = ~float32(int32(d))"
    assert one("int v{n};") == "int32 v = n"


def test_short_circuit_and_conditions() -> None:
    assert one("if (n > 0 && x[n] > 0) n = 1; else n = 2;") == "If(((n > 0:int32) && (x[n] > ~float32(0:int32))), n = 1:int32, n = 2:int32)"
    assert one("while (n-- || b) ;") == "While((~bool(n--) || b), {})"
    assert one("do { n--; } while (n);") == "DoWhile({n--}, ~bool(n))"
    assert one("switch (n) { case 1: case 2: n--; break; default: n++; }") == ("{If(((n == 1:int32) || (n == 2:int32)), {n--}, n++)}")
    assert one("switch (n) { case 1: n--; case 2: n++; }") == "{If((n == 1:int32), {n--; n++}, If((n == 2:int32), {n++}, None))}"
    assert one("switch (-n) { case 1: n--; }") == "{int32 choice = -n; If((choice == 1:int32), {n--}, None)}"
    assert one("switch (n) { case 1: if (b) break; n--; }") == "{If((n == 1:int32), {If(b, {}, {n--})}, None)}"
    assert one("switch (n) { case 1: if (b) if (u) break; n--; }").startswith("Breakable({If((n == 1:int32), {If(b, If(")
    assert one("b = !n;") == "b = !~bool(n)"
    assert one("if (x) n = 1;") == "If((x != 0:float32*), n = 1:int32, None)"
    assert one("f = n > 0 ? f : 0;") == "f = ((n > 0:int32) ? f : ~float32(0:int32))"


def test_comma_statement_is_two_statements() -> None:
    assert body("n = 1, u = 2;") == ["n = 1:int32", "u = ~uint32(2:int32)"]


# --- memory ---------------------------------------------------------------------------------------------------------------------------


def test_pointers() -> None:
    assert body("const double* p = y + n; p++; p += 2; p -= u; p = p - u; d = *p; d = p[-1]; l = p - y; b = p < y;") == [
        "const float64* p = (y @+ n)",
        "p++",
        "p = (p @+ 2:int32)",
        "p = (p @+ -~int64(u))",
        "p = (p @+ -~int64(u))",
        "d = *p",
        "d = p[-1:int32]",
        "l = (p - y)",
        "b = (p < y)",
    ]


def test_addresses() -> None:
    assert one("float* p = &x[n];") == "float32* p = &x[n]"
    assert one("f = *&x[n];") == "f = x[n]"
    assert one("f = n[x];") == "f = x[n]"
    assert one("float* p = nullptr;") == "float32* p = 0:float32*"
    assert one("d = __ldg(&y[n]) + __ldg(y + 1);") == "d = (y[n] + *(y @+ 1:int32))"


def test_arrays() -> None:
    assert one("float a[3] = {1, 2.5};") == "float32[3] a = {~float32(1:int32), ~float32(2.5:float64), 0.0:float32}"
    assert one("int a[2][2] = {{1}, {2, 3}};") == "int32[2][2] a = {1:int32, 0:int32, 2:int32, 3:int32}"
    assert one("int a[2][2] = {1, 2, 3};") == "int32[2][2] a = {1:int32, 2:int32, 3:int32, 0:int32}"
    assert one("double a[2] = {};") == "float64[2] a = {0.0:float64, 0.0:float64}"
    assert body("float a[2][3]; a[1][n] = f; float* p = a[0];")[1:] == ["a[1:int32][n] = f", "float32* p = a[0:int32]"]
    (declare,) = kernel("__global__ void k() { float a[2][3]; }").body.body
    assert isinstance(declare, s.Declare) and declare.declaration.type == Array(Array(F32, 3), 2)


def test_references() -> None:
    assert body("float& r = x[n]; r += f; const float& q = x[0]; const float& t = f + 1;") == [
        "float32& r = x[n]",
        "r +=<float32> f",
        "float32& q = x[0:int32]",
        "float32 t = (f + ~float32(1:int32))",
    ]


def test_shadowed_names_have_their_own_identity() -> None:
    outer, block = kernel("__global__ void k(int n) { int i = n; { int i = n; i++; } }").body.body
    assert isinstance(outer, s.Declare) and isinstance(block, s.Block)
    inner, step = block.body
    assert isinstance(inner, s.Declare) and isinstance(step, s.Evaluate) and isinstance(step.value, s.IncDec)
    assert isinstance(step.value.target, s.Name) and step.value.target.declaration == inner.declaration != outer.declaration


def test_parameters() -> None:
    function = kernel(
        "__global__ void k(float* __restrict__ x, const double* y, const int n, float a[], const float b[3]) { x[n] = a[n] + b[1]; }"
    )
    assert [p.type for p in function.parameters] == [Pointer(F32), Pointer(F64, const=True), I32, Pointer(F32), Pointer(F32, const=True)]
    assert [p.const for p in function.parameters] == [False, False, True, False, False]
    assert function.is_kernel and function.result == VOID
    assert show(function.body) == "{x[n] = (a[n] + b[1:int32])}"


def test_array_parameters_are_pointers() -> None:
    text = "__device__ float f(float a[3], const float b[]) { a++; float* p = a + 1; const float* q = b - 1; return *p + *q + (a > p); }"
    (statement,) = kernel(text + "__global__ void k(float* x) { float v[3]; x[0] = f(v, x); }").body.body[1:]
    assert isinstance(statement, s.Evaluate) and isinstance(statement.value, s.Assign) and isinstance(statement.value.value, s.HelperCall)
    assert show(statement.value.value) == "f!(v, ~const float32*(x))"
    assert [show(stmt) for stmt in statement.value.value.function.body.body] == [
        "a++",
        "float32* p = (a @+ 1:int32)",
        "const float32* q = (b @+ -~int64(1:int32))",
        "Return(((*p + *q) + ~float32(~int32((a > p)))))",
    ]


def test_atomics() -> None:
    assert one("atomicAdd(&x[n], f);") == "atomic_add(&x[n], f)"
    assert one("atomicAdd(x + u, 1);") == "atomic_add((x @+ u), ~float32(1:int32))"
    assert body("int m; int old = atomicCAS(&m, 1, 2);")[1] == "int32 old = atomic_cas(&m, 1:int32, 2:int32)"
    assert body("unsigned m; atomicMax(&m, u); atomicInc(&m, n);")[1:] == ["atomic_max(&m, u)", "atomic_inc(&m, ~uint32(n))"]


# --- functions ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "tree"),
    [
        ("sinf(f)", "sin(f)"),
        ("sin(f)", "sin(f)"),
        ("sin(d)", "sin(d)"),
        ("sinf(d)", "sin(~float32(d))"),
        ("__expf(f)", "__expf(f)"),
        ("pow(f, 2)", "pow(f, ~float32(2:int32))"),
        ("pow(n, f)", "pow(~float32(n), f)"),
        ("pow(f, 2.0f)", "pow(f, 2.0:float32)"),
        ("pow(d, 2)", "pow(d, ~float64(2:int32))"),
        ("fmaxf(f, 0)", "fmax(f, ~float32(0:int32))"),
        ("max(f, 0.0f)", "fmax(f, 0.0:float32)"),
        ("max(f, d)", "fmax(~float64(f), d)"),
        ("max(n, u)", "max(~uint32(n), u)"),
        ("min(n, 3)", "min(n, 3:int32)"),
        ("abs(f)", "fabs(f)"),
        ("abs(n)", "abs(n)"),
        ("fabs(d)", "fabs(d)"),
        ("isnan(f)", "~int32(isnan(f))"),
        ("__float2int_rn(f)", "int32(rint(f))"),
        ("__float2int_rz(f)", "int32(f)"),
        ("__double2uint_ru(d)", "uint32(ceil(d))"),
        ("lrintf(f)", "int64(rint(f))"),
        ("llround(d)", "int64(round(d))"),
        ("__int2float_rn(n)", "float32(n)"),
        ("__double2float_rn(d)", "float32(d)"),
        ("fdividef(f, 2.0f)", "(f / 2.0:float32)"),
        ("ldexpf(f, n)", "ldexp(f, n)"),
        ("fma(f, f, 1.0f)", "fma(f, f, 1.0:float32)"),
        ("rsqrtf(f)", "rsqrt(f)"),
        ("__popc(u)", "popc(u)"),
        ("__clzll(l)", "clz(l)"),
        ("__umulhi(u, u)", "mulhi(u, u)"),
        ("__umul24(u, 3)", "((u & 16777215:uint32) * (~uint32(3:int32) & 16777215:uint32))"),
        ('nanf("")', "nan:float32"),
    ],
)
def test_functions(call: str, tree: str) -> None:
    assert one(f"auto v = {call};").partition(" = ")[2] == tree


def test_functions_of_std() -> None:
    headers = "#include <cmath>\n#include <algorithm>\n"
    assert one("d = std::sqrt(d) + std::abs(f);", headers) == "d = (sqrt(d) + ~float64(fabs(f)))"
    assert one("f = std::max(f, x[0]);", headers) == "f = ((f < x[0:int32]) ? x[0:int32] : f)"
    assert one("n = std::min(n, 3);", headers) == "n = ((3:int32 < n) ? 3:int32 : n)"


def test_sincos_evaluates_its_argument_once() -> None:
    assert one("sincosf(f, &f, &x[n]);") == "{float32 angle = f; f = sin(angle); x[n] = cos(angle)}"
    assert one("sincosf(f, &f, &x[(int)f]);") == "{float32 angle = f; float32* cosine = &x[int32(f)]; f = sin(angle); *cosine = cos(angle)}"
    assert one("sincospi(d, &d, &d);") == "{float64 angle = d; d = sinpi(angle); d = cospi(angle)}"


def test_printf_and_assert() -> None:
    told = "Tell(%d %lld %f %%, {n, int64(n), ~float64(x[n])}, False)"
    assert one(r'printf("%hd %ld %f %%", n, (long)n, x[n]);').replace("~int64", "int64") == told
    assert one("assert(n > 0);") == "If((n > 0:int32), {}, Tell(user.cu:2:124: assert(n > 0), {}, True))"
    for left_out in ('printf("%s", "text");', 'printf("%d", x[n]);', 'printf("%*d", n, n);', 'printf("%d");', 'printf("%p", x);'):
        assert body(left_out + " n = 1;") == ["n = 1:int32"]


def test_what_leaves_nothing() -> None:
    assert body("__builtin_assume(n > 0); n = 1;") == ["n = 1:int32"]
    assert body("(void)n; ; n = 1;") == ["n = 1:int32"]


def test_barrier() -> None:
    assert one("__syncthreads();") == "Barrier(block, None)"
    assert one("__syncwarp();") == one("__syncwarp(0xffffffff);") == "Barrier(warp, None)"
    assert one("__syncwarp(7);") == "Barrier(warp, ~uint32(7:int32))"


def test_helpers() -> None:
    helpers = """
    namespace inner { __device__ __forceinline__ float twice(float a) { return 2 * a; } }
    static inline __device__ float scaled(float a, float& out, const float& by, int n = 4) {
      if (a < 0) return -a;
      out = a * n;
      return inner::twice(a) * by;
    }
    """
    function = kernel(helpers + "__global__ void k(float* x) { x[0] = scaled(x[1], x[2], 3) + scaled(x[0], x[1], x[2], 1); }")
    assert show(function.body) == (
        "{x[0:int32] = (scaled!(x[1:int32], x[2:int32], ~float32(3:int32), 4:int32)"
        " + scaled!(x[0:int32], x[1:int32], x[2:int32], 1:int32))}"
    )
    (statement,) = function.body.body
    assert isinstance(statement, s.Evaluate) and isinstance(statement.value, s.Assign) and isinstance(statement.value.value, s.Binary)
    left, right = statement.value.value.left, statement.value.value.right
    assert isinstance(left, s.HelperCall) and isinstance(right, s.HelperCall)
    assert left.function is right.function and not left.function.is_kernel
    assert [(p.name, p.reference, p.const) for p in left.function.parameters] == [
        ("a", False, False), ("out", True, False), ("by", True, True), ("n", False, False),
    ]  # fmt: skip
    assert show(left.function.body) == (
        "{If((a < ~float32(0:int32)), Return(-a), None); out = (a * ~float32(n)); Return((twice!(a) * by))}"
    )


# --- macros, constants, options -------------------------------------------------------------------------------------------------------


def test_macros_and_constants() -> None:
    before = """
    #include <math.h>
    #define BLOCK 128
    #define SQUARE(a) ((a) * (a))
    const float HALF = 1.0f / 2;
    constexpr double TWO_PI = 2 * M_PI;
    const double FOUR_PI = 2 * TWO_PI;
    enum { FIRST = 3, SECOND };
    namespace grid { constexpr int width = 7; }
    """
    assert one("n = BLOCK * SQUARE(n);", before) == "n = (128:int32 * (n * n))"
    assert one("f = HALF;", before) == "f = 0.5:float32"
    assert one("d = FOUR_PI;", before) == f"d = {4 * math.pi}:float64"
    assert one("u = SECOND;", before) == "u = 4:uint32"
    assert one("n = grid::width;", before) == "n = 7:int32"


def test_table_of_the_file_is_a_local_array() -> None:
    table = "__device__ const float weight[3] = {1, 2};"
    assert body("x[n] = weight[n] + weight[0];", table) == [
        "float32[3] weight = {~float32(1:int32), ~float32(2:int32), 0.0:float32}",
        "x[n] = (weight[n] + weight[0:int32])",
    ]


@pytest.mark.parametrize(
    ("call", "tree"),
    [
        ("__float_as_int(f)", "bits(f)"),
        ("__uint_as_float(u)", "bits(u)"),
        ("__int_as_float(0x7f800000)", "inf:float32"),
        ("__double_as_longlong(d)", "bits(d)"),
        ("__double2loint(d)", "int32(bits(d))"),
        ("__double2hiint(d)", "int32((bits(d) >> 32:int32))"),
        ("*(int*)&f", "*int32*(&f)"),
        ("reinterpret_cast<const unsigned long long*>(y)[n]", "const uint64*(y)[n]"),
    ],
)
def test_bits(call: str, tree: str) -> None:
    assert one(f"auto v = {call};").partition(" = ")[2] == tree


def test_options(tmp_path: Path) -> None:
    (tmp_path / "mine.h").write_text("#define SHIFT 3\n")
    text = '#include "mine.h"\n__global__ void k(T* x) { x[N] = SHIFT * __CUDA_ARCH__ + sizeof(x); }'
    function = kernel(text, options=("-DT=float", "-D", "N=4", "-I", str(tmp_path), "--std=c++14", "-arch=sm_90", "--use_fast_math"))
    assert function.parameters[0].type == Pointer(F32)
    assert show(function.body).startswith("{x[4:int32] = ~float32((~uint64((3:int32 * 900:int32)) + 8:uint64))")


def test_macros_of_options_do_not_change_the_prelude() -> None:
    assert show(kernel("__global__ void k(float* p) { *p = sin(*p) + x; }", options=("-Dx=3", "-DT=int", "-Dname=1")).body)


def test_parse_is_cached() -> None:
    file = SourceFile("user.cu", "__global__ void k(float* x) {}")
    assert parse(file) is parse(file)
    assert parse(file) is not parse(file, options=("-DN=1",))
    assert parse(file).kernel("k") is parse(file).kernel("k")


def test_standard_headers() -> None:
    names = "math.h cmath stdint.h cstdint cuda_runtime.h stdio.h cstdio float.h cfloat limits.h climits assert.h stdlib.h cstdlib string.h"
    includes = "".join(f"#include <{name}>\n" for name in [*names.split(), "device_launch_parameters.h", "math_constants.h", "cuda.h"])
    assert one("uint64_t v = INT_MAX;", includes) == "uint64 v = ~uint64(2147483647:int32)"
    assert one("f = CUDART_PI_F + FLT_MAX;", includes).startswith("f = (3.14159")


def test_kernels_and_their_places() -> None:
    module = parse(
        SourceFile("user.cu", 'extern "C" {\n__global__ void a() {}\n}\nnamespace n {\n  __global__ void b() {}\n}\n__global__ void c();')
    )
    assert module.kernels == ("a", "n::b")
    assert str(module.span("b")) == "user.cu:5:19"
    assert module.kernel("n::b").name == "b"


def test_spans_count_characters() -> None:
    text = "__global__ void k(float* x) {\n  /* 温度 */ x[0] = 1;\n}"
    (statement,) = kernel(text).body.body
    assert (str(statement.span), statement.span.length) == ("user.cu:2:12", 8)
    assert statement.span.caret() == "  /* 温度 */ x[0] = 1;\n           ^~~~~~~~"


def test_place_of_a_macro_is_its_use() -> None:
    text = "#define SET(a) x[a] = 1\n__global__ void k(float* x, int n) {\n  SET(n);\n}"
    (statement,) = kernel(text).body.body
    assert str(statement.span) == "user.cu:3:3"


def test_pragmas_and_attributes() -> None:
    assert one('_Pragma("unroll") for (int i = 0; i < 3; ++i) n++;') == "For(int32 i = 0:int32, (i < 3:int32), ++i, n++)"
    text = "__global__ void __launch_bounds__(256, 2) k(int n) {\n#pragma unroll 4\n  for (;;) break;\n}"
    assert show(kernel(text).body) == "{For(None, None, None, Break)}"


def test_overloaded_kernels_are_told_apart() -> None:
    with pytest.raises(CompileError, match="several kernels"):
        kernel("__global__ void k(float* x) {} __global__ void k(double* x) {}")


@pytest.mark.parametrize(
    ("statement", "column"),
    [
        ("x[0] = (a *= 3) + (a += 1) * 2;", 11),
        ("x[0] = a++ * a;", 9),
        ("x[i] = i++ + i;", 9),
        ("x[0] = product(a++, a);", 17),
        ("x[0] = grown<float>(a);", -1),
    ],
)
def test_unsequenced_expressions_are_refused(statement: str, column: int) -> None:
    helpers = (
        "__device__ float product(float p, float q) { return p * q; }\ntemplate <class T> __device__ T grown(T p) { return p++ + p; }\n"
    )
    text = f"{helpers}__global__ void k(float* x) {{\nint i = 0; float a = x[i];\n{statement}\n}}\n"
    with pytest.raises(CompileError, match=r"unsequenced .*: write two statements") as caught:
        parse(SourceFile("<test>", text)).kernel("k")
    assert caught.value.span is not None
    if column > 0:
        assert (caught.value.span.line, caught.value.span.column) == (5, column)
    else:
        assert caught.value.span.line == 2


@pytest.mark.parametrize("statement", ["i = i++ + 1;", "x[i++] = x[i++];", "a = (i++, i) + 1;", "a = i ? i++ : i;", "a = i++ && i;"])
def test_sequenced_expressions_are_taken(statement: str) -> None:
    parse(SourceFile("<test>", f"__global__ void k(float* x) {{\nint i = 0; float a = x[i];\n{statement}\nx[0] = a; }}\n")).kernel("k")
