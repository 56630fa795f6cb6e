"""What the CUDA frontend refuses: each construct with its exact message and its place. `^` in a source marks the place."""

from __future__ import annotations

import pytest

from gpuad.errors import CompileError, LocatedError, UnsupportedError
from gpuad.frontend.cuda import parse
from gpuad.source import SourceFile

VOLATILE_SHARED = (
    "a single volatile number in shared memory is not supported; leave volatile away and write __syncthreads() where it is passed on"
)
ALLOCATION = "memory allocation in a kernel"
NO_ALLOCATION = "is not supported; pass an array, or declare one of constant length"
NO_LVALUE = "only a variable, an element or what a pointer points to can be changed or referred to here"
REINTERPRETED = "a cast from float32* to {} reinterprets memory, which a derivative cannot follow"
VOLATILE = (
    "volatile memory is not supported: other threads may change it, which a reverse pass cannot follow; only arrays of numbers in shared "
    "memory may be volatile"
)
VIRTUAL = "structs with virtual functions, or bases that depend on a template (P), are not supported; write the fields into the struct"
POINTER = (
    "a pointer to a function is supported where it surely is that of one: a parameter, a template's argument or a variable that is given a "
    "function and never changed; else call each by its name under a condition"
)
MEMBER_POINTER = "a pointer to a member is not supported: which member it is has to be known; write s.a, or choose by a condition"
SHARE = "share memory differ in their numbers"
REINTERPRETED_MEMORY = "a derivative cannot follow reinterpreted memory; make it a struct"
SWITCH_HEADER = "an initialiser in the header of a switch is not supported; write it before"
TEXTURES = "tex1Dfetch, tex1D, tex2D and tex3D are supported for float, float2 and float4, layers and levels are not; read an array instead"

# Statements of a kernel with the parameters (float* x, int* j, int n).
BODIES: dict[str, tuple[str, str]] = {
    "pointer to a member": ("struct S { float a, b; }; S s = {x[0], 1}; float S::* ^p = &S::a; x[0] = s.*p;", MEMBER_POINTER),
    "goto": ("^goto done; done: x[0] = 1;", "goto is not supported; write a loop, break or return"),
    "label": ("^done: x[0] = 1;", "labels and goto are not supported; write a loop, break or return"),
    "initialiser of a switch": ("^switch (int m = n; m) { case 1: x[0] = 1; }", SWITCH_HEADER),
    "case in a loop of the switch": (
        "switch (n) { case 1: while (n) { ^case 2: n--; } }",
        "a case inside another statement than its switch is not supported",
    ),
    "default in a block of the switch": (
        "switch (n) { case 1: { ^default: n--; } }",
        "a default inside another statement than its switch is not supported",
    ),
    "range of cases": ("switch (n) { ^case 1 ... 3: n--; }", "ranges of cases are not supported"),
    "before the first case": ("switch (n) { ^n--; case 1: n--; }", "a statement before the first case is never run"),
    "goto in a case": ("switch (n) { case 1: ^goto done; } done:;", "goto is not supported; write a loop, break or return"),
    "range for": (
        "struct R { float a[2]; __device__ float* begin() { return a; } __device__ float* end() { return a + 2; } } r; "
        "^for (float v : r) x[0] += v;",
        "a range-based for is supported over an array with a name, and over nothing else; write a loop over an index",
    ),
    "assembly": ('^asm("nop;");', "inline assembly cannot be differentiated; write it in C"),
    "new": ("float* p = ^new float[3];", f"{ALLOCATION} (new) {NO_ALLOCATION}"),
    "delete": ("^delete x;", f"{ALLOCATION} (delete) {NO_ALLOCATION}"),
    "malloc": ("float* p = (float*)^malloc(4);", f"{ALLOCATION} {NO_ALLOCATION}"),
    "free": ("^free(x);", f"{ALLOCATION} {NO_ALLOCATION}"),
    "memmove": (
        "^memmove(x, x + 1, 4);",
        "memcpy and memset are supported between memory of one type, or of numbers of one size, memmove is not; write a loop",
    ),
    "reinterpret_cast": ("auto p = ^reinterpret_cast<double*>(x);", REINTERPRETED.format("float64*")),
    "C pointer cast": ("auto p = ^(char*)x;", REINTERPRETED.format("int8*")),
    "reinterpret_cast of a reference": (
        "n = ^reinterpret_cast<int&>(x[0]);",
        "a cast to a reference of another type reinterprets memory, which a derivative cannot follow",
    ),
    "pointer to integer": ("size_t p = ^(size_t)x;", "a conversion from float32* to uint64 is not supported"),
    "address to pointer": (
        "unsigned long long a[2]; float* p = ^(float*)a[n];",
        "a conversion from uint64 to float32* is not supported: which array lies at an address cannot be told. Of an array of addresses "
        "make the parameter a pointer to pointers, as in `const float** rows`, and pass a list of the arrays",
    ),
    "integer to pointer": ("float* p = ^(float*)8;", "a conversion from int32 to float32* is not supported"),
    "cast to a reference": (
        "n = ^(int&)x[0];",
        "a cast to a reference of another type reinterprets memory, which a derivative cannot follow",
    ),
    "bit cast": ("n = ^__builtin_bit_cast(int, x[0]);", "__builtin_bit_cast is not supported; __float_as_int and its kin are"),
    "volatile shared": ("__shared__ volatile float ^s;", VOLATILE_SHARED),
    "volatile vectors": ("__shared__ volatile float2 ^s[4];", VOLATILE),
    "static": (
        "static float ^a;",
        "static and extern variables in a kernel are not supported unless they have a value and nothing writes them",
    ),
    "volatile elements by reference": ("volatile __shared__ float s[4]; for (auto& ^v : s) v = 1;", VOLATILE),
    "volatile reference": ("volatile float& ^a = x[0];", VOLATILE),
    "assume with effects": ("^__builtin_assume(n++ > 0);", "__builtin_assume with arguments that have side effects is not supported"),
    "long double": ("long double ^a = 1;", "the type long double is not supported"),
    "vector of another element": (
        "double2* p = ^(double2*)x;",
        "a cast from float32* to float64x2* reinterprets memory, which a derivative cannot follow",
    ),
    "list by name": ("float2 a = {^.x = 1};", "this expression is not supported"),
    "anonymous union": ("^union { float a; int b; }; a = 1;", "an anonymous union of a function is not supported; give it a name"),
    "union of sizes": (
        "union U { float a; short b[2]; }; U ^u;",
        f"members of U that {SHARE} (a: float32, b_0: int16): {REINTERPRETED_MEMORY}",
    ),
    "array of pointers": ("float* ^a[2];", "arrays of pointers are not supported"),
    "address of a pointer": ("auto p = ^&x;", "pointers to pointers are not supported"),
    "pointers of which one is null": (
        "float* a[2] = {x, ^nullptr};",
        "an array of pointers of which one is null is not supported",
    ),
    "pointers without a value": ("float* ^a[2] = {x};", "an array of pointers needs a value for each of them"),
    "address of array": (
        "float a[2]; auto p = ^&a;",
        "the address of a whole array is not supported; an array's name is a pointer to its first element",
    ),
    "temporary array by reference": (
        "struct S { float a[2]; static __device__ float f(const float (&r)[2]) { return r[0]; } }; x[0] = S::f(^S{{1, 2}}.a);",
        "a reference to a temporary array is not supported; give the array a name",
    ),
    "reference to a temporary array": (
        "struct S { float a[2]; }; const float (&^r)[2] = S{{1, 2}}.a;",
        "a reference to a temporary array is not supported; give the array a name",
    ),
    "rvalue reference": ("float&& ^a = x[0] + 1;", "references to temporary values (&&) are not supported"),
    "statement expression": ("x[0] = ^({ 3; });", "statement expressions are not supported"),
    "conditional without middle": ("n = ^n ?: 3;", "this expression is not supported"),
    "comma lvalue": ("^(n, x[0]) = 3;", NO_LVALUE),
    "for with declaration": ("^for (; int a = n;) x[0] = a;", "a declaration as the condition of a for is not supported"),
    "for from a macro": ("^FOREVER x[i] = 1;", "a for from a macro must have an initialiser, a condition and a step"),
    "goto from a macro": ("^GO(a); a:;", "goto is not supported; write a loop, break or return"),
    "designated": ("float a[3] = {^[1] = 2};", "this expression is not supported"),
    "texture": ("x[0] = ^tex2D<int>(cudaTextureObject_t(), 1, 2);", TEXTURES),
    "layered texture": ("x[0] = ^tex2DLayered<float>(cudaTextureObject_t(), 1, 2, 0);", TEXTURES),
    "clock": ("x[0] = ^clock();", "clocks are not supported: their values cannot be replayed"),
    "bytes by a selector": ("n = ^__byte_perm(n, 1, 2);", "the function __byte_perm is not supported"),
    "printf with effects": ('^printf("%f", x[0]++);', "printf with arguments that have side effects is not supported"),
    "printf as a value": ('n = ^printf("hello");', "the function printf is not supported"),
    "assert with effects": ("^assert(x[0]++ > 0);", "assert with arguments that have side effects is not supported"),
    "sincos within a loop's header": ("for (; n; ^sincosf(x[0], x, x + 1)) {}", "the function sincosf is not supported"),
    "one of two functions": ("float (*p)(float) = ^n ? square : third; x[0] = p(x[0]);", POINTER),
    "pointer to a function that changes": ("float (*p)(float) = square; ^p = third;", POINTER),
    "pointer to no function": ("float (*^p)(float); p = third;", POINTER),
    "barrier as a value": ("n = (^__syncthreads(), 1);", "the function __syncthreads is not supported"),
}

# Whole sources.
SOURCES: dict[str, tuple[str, str]] = {
    "functions in a struct": (
        "struct P { float (*f)(float); }; __device__ float g(float a) { return a; } "
        "__global__ void k(float* x) { P ^p{g}; x[0] = p.f(x[0]); }",
        POINTER,
    ),
    "inside an instance": (
        "template <class T> __device__ T f(T a) { T b = a; ^goto done; done: return b; } __global__ void k(float* x) { x[0] = f(x[0]); }",
        "goto is not supported; write a loop, break or return",
    ),
    "array without elements": (
        "template <int N> __device__ int f() { int ^a[N]; return 1; } __global__ void k(float* x) { x[0] = f<0>(); }",
        "an array without elements is not supported",
    ),
    "bit-field of which others begin in the same bytes": (
        "struct P { union { char a[4]; int b : 20; }; }; __global__ void k(P* ^p) { p->b = 1; }",
        "bit-fields beside other members of the same bytes (P) are not supported; make them integers",
    ),
    "virtual": (
        "struct P { float a; virtual __device__ float f() { return 1; } }; __global__ void k(float* x) { P ^p; x[0] = p.f(); }",
        VIRTUAL,
    ),
    "virtual function beside a base": (
        "struct Q { float b; }; struct P : Q { virtual __device__ float f() { return b; } }; __global__ void k(float* x) { P ^p; }",
        VIRTUAL,
    ),
    "virtual base": (
        "struct Q { float b; }; struct P : virtual Q { __device__ P() {} }; __global__ void k(float* x) { P ^p; x[0] = p.b; }",
        VIRTUAL,
    ),
    "base that depends on a template": (
        "template <class T> struct Q { T b; }; template <class T> struct P : Q<T> { T a; }; __global__ void k(P<float>* ^p) { p->a = 1; }",
        VIRTUAL,
    ),
    "bases of which one has padding": (
        "struct Q { double b; char c; }; struct R { char d; }; struct P : Q, R { }; __global__ void k(P* ^p) { p->b = 1; }",
        "structs with several bases of one name or with padding (P) are not supported",
    ),
    "base that only a constructor with arguments makes": (
        "struct Q { float b; __device__ Q(float b = 1) : b(b) {} }; struct P : Q { float a; }; __global__ void k(float* x) { P ^p; }",
        "list the constructor of the base Q before the body",
    ),
    "destructor": (
        "struct P { float* a; __device__ ~P() { *a = 1; } }; __global__ void k(float* x) { P ^p = {x}; }",
        "structs with destructors (P) are not supported",
    ),
    "packed": (
        "struct __attribute__((packed)) P { char c; float a; }; __global__ void k(P* ^p) { p->a = 1; }",
        "packed structs (P) are not supported",
    ),
    "base beside shared memory": (
        "struct Q { float b; }; struct P : Q { struct { float a; }; }; __global__ void k(P* ^p) { p->a = 1; }",
        "structs with bases or virtual functions whose members share memory (P) are not supported",
    ),
    "reference member": (
        "struct P { float& a; }; __global__ void k(float* x) { P ^p{x[0]}; p.a = 1; }",
        "structs with references are not supported",
    ),
    "linked": (
        "struct P { float a; P* next; }; __global__ void k(P* ^p) { p->a = 1; }",
        "structs that hold pointers to their own kind (P) are not supported",
    ),
    "pointer to a struct with a pointer": (
        "struct P { float* a; }; __global__ void k(P* ^p) { p->a[0] = 1; }",
        "pointers in structs behind pointers are not supported; pass the arrays alone",
    ),
    "union of sizes in a struct": (
        "struct P { union U { double d; float f[2]; } u; }; __global__ void k(P* ^p) { p->u.d = 1; }",
        f"members of U that {SHARE} (d: float64, f_0: float32): {REINTERPRETED_MEMORY}",
    ),
    "union of numbers that overlap": (
        "struct P { union { float f[3]; struct { float a; double d; }; }; }; __global__ void k(P* ^p) { p->d = 1; }",
        f"members of P that {SHARE} (f_2: float32, d: float64): {REINTERPRETED_MEMORY}",
    ),
    "union with a pointer": (
        "union P { float* p; long n; }; __global__ void k(float* x) { P ^u; u.p = x; u.p[0] = 1; }",
        "pointers in unions and beside bit-fields (P) are not supported; make it a struct",
    ),
    "array of other numbers in a union": (
        "union P { float f[2]; int n[2]; }; __global__ void k(float* x) { P u; u.f[0] = x[0]; x[0] = u.^n[1]; }",
        "the member n consists of int32, where the memory holds float32: only single numbers may differ",
    ),
    "return in a constructor": (
        "struct P { float a; __device__ P(float v) { a = v; ^return; } }; __global__ void k(float* x) { x[0] = P(1.0f).a; }",
        "return in a constructor is not supported",
    ),
    "list for a constructor": (
        "struct P { float a, b; __device__ P(float v) : a(v), b(v) {} }; __global__ void k(float* x) { P p[1] = {^{2}}; x[0] = p[0].b; }",
        "a list in braces for P is not supported here; write its constructor",
    ),
    "list for fields with values": (
        "struct P { float a, b = 3; }; __global__ void k(float* x) { P p = ^{2.0f}; x[0] = p.b; }",
        "a list in braces for P is not supported here; write its constructor",
    ),
    "array of constructed": (
        "struct P { float a; __device__ P() : a(1) {} }; __global__ void k(float* x) { P ^p[2]; x[0] = p[0].a; }",
        "an array can only be initialised by a list in braces",
    ),
    "static member": (
        "struct P { static const int a = 2; float b; }; __global__ void k(float* x) { P p; x[0] = p.^a; }",
        "the member a is not supported here",
    ),
    "void pointer": ("__global__ void k(void* ^x) {}", "void pointers are not supported; give the type of what they point to"),
    "pointer to pointers to pointers": (
        "__global__ void k(float*** ^x) { x[0][0][0] = 1; }",
        "pointers to pointers to pointers are not supported; pass a list of arrays for each",
    ),
    "recursion": (
        "__device__ float f(float a) { return a < 0 ? a : ^f(a - 1); } __global__ void k(float* x) { x[0] = f(x[0]); }",
        "recursion is not supported: this call of f leads back to it; write a loop",
    ),
    "mutual recursion": (
        "__device__ float g(float a); __device__ float f(float a) { return g(a); } __device__ float g(float a) { return ^f(a); }"
        " __global__ void k(float* x) { x[0] = f(x[0]); }",
        "recursion is not supported: this call of f leads back to it; write a loop",
    ),
    "no body": ("__device__ float f(float a); __global__ void k(float* x) { x[0] = ^f(1); }", "the function f has no body in this source"),
    "pointers to functions in an array": (
        "__device__ float f(float a) { return a; } __global__ void k(float* x) { float (*^p[1])(float) = {f}; x[0] = p[0](x[0]); }",
        POINTER,
    ),
    "variadic": (
        "__device__ float f(float a, ...) { return a; } __global__ void k(float* x) { x[0] = ^f(1, 2); }",
        "functions with a variable number of arguments are not supported",
    ),
    "std::complex": (
        "#include ^<complex>\n__global__ void k(float* x) {}",
        "the header 'complex' cannot be used: std::complex is not supported in device code; use cupy/complex.cuh",
    ),
    "CUB": (
        "#include ^<cub/device/device_reduce.cuh>\n",
        "the header 'cub/device/device_reduce.cuh' cannot be used: of CUB BlockReduce, BlockScan, BlockLoad, BlockStore, WarpReduce and "
        "WarpScan are supported (cub/cub.cuh)",
    ),
    "matrix fragments": (
        "#include ^<mma.h>\n",
        "the header 'mma.h' cannot be used: matrix fragments (wmma) are not supported; write the product as a loop over shared memory",
    ),
    "a header of the user's own": (
        '#include ^"cubic_complex.h"\n',
        "the header 'cubic_complex.h' was not found; give its folder with the option -I",
    ),
    "unknown header": ('#include ^"mine.h"\n', "the header 'mine.h' was not found; give its folder with the option -I"),
}

# What clang itself rejects.
INVALID: dict[str, tuple[str, str]] = {
    "no semicolon": ("__global__ void k(float* x) { x[0] = 1^ }", "expected ';' after expression"),
    "undeclared": ("__global__ void k(float* x) { ^foo(x[0]); }", "use of undeclared identifier 'foo'"),
    "a macro that is not given": (
        "__global__ void k(float* x) { __shared__ float s[^TILE_2]; }",
        "use of undeclared identifier 'TILE_2'; if it is a macro, define it by the option -DTILE_2=...",
    ),
    "columns in characters": ("__global__ void k(float* x) { /* 漢字漢字 */ x[0] = ^foo; }", "use of undeclared identifier 'foo'"),
    "after another line": ("// é\r\n__global__ void k(float* x) {\r\n\tx[0] = ^foo;\r\n}", "use of undeclared identifier 'foo'"),
    "kernel launched by a kernel": (
        "__global__ void s(float* x) {} __global__ void k(float* x) { ^s<<<1, 1>>>(x); }",
        "reference to __global__ function 's' in __global__ function",
    ),
    "exception": ("__global__ void k(float* x) { ^throw 1; }", "cannot use 'throw' in __global__ function"),
    "try": ("__global__ void k(float* x) { ^try { x[0] = 1; } catch (...) {} }", "cannot use 'try' in __global__ function"),
    "array of unknown length": (
        "__global__ void k(float* x, int n) { float a^[n]; }",
        "cannot use variable-length arrays in __global__ functions",
    ),
    "ambiguous as in NVRTC": ("__global__ void k(float* x, int n) { x[0] = ^sqrt(n); }", "call to 'sqrt' is ambiguous"),
    "within a helper": (
        "__device__ float f() { return ^foo; } __global__ void k(float* x) { x[0] = f(); }",
        "use of undeclared identifier 'foo'",
    ),
}

PREAMBLE = """#define FOREVER for (int i = 0;; i++)
#define GO(label) goto label
__device__ float square(float a) { return a * a; }
__device__ float third(float a) { return a / 3; }
"""


def refused(marked: str) -> tuple[LocatedError, int, int]:
    """The error for kernel `k`, and the line and column that the source marks by `^`."""
    before = marked[: marked.index("^")]
    text = marked.replace("^", "", 1)
    with pytest.raises(LocatedError) as caught:
        parse(SourceFile("user.cu", text)).kernel("k")
    return caught.value, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


@pytest.mark.parametrize("name", BODIES)
def test_refused_in_a_body(name: str) -> None:
    body, message = BODIES[name]
    error, line, column = refused(f"{PREAMBLE}__global__ void k(float* x, int* j, int n) {{\n  {body}\n}}\n")
    assert isinstance(error, UnsupportedError)
    assert (error.message, error.file, error.line, error.column) == (message, "user.cu", line, column)


@pytest.mark.parametrize("name", SOURCES)
def test_refused_in_a_source(name: str) -> None:
    source, message = SOURCES[name]
    error, line, column = refused(source)
    assert isinstance(error, UnsupportedError)
    assert (error.message, error.file, error.line, error.column) == (message, "user.cu", line, column)


@pytest.mark.parametrize("name", INVALID)
def test_rejected_by_clang(name: str) -> None:
    source, message = INVALID[name]
    error, line, column = refused(source)
    assert isinstance(error, CompileError)
    assert (error.message, error.line, error.column) == (message, line, column)


def test_error_shows_the_line_with_a_caret() -> None:
    error, _, _ = refused("__global__ void k(float* x) {\n  ^clock64();\n}")
    assert str(error) == "user.cu:2:3: error: clocks are not supported: their values cannot be replayed\n  clock64();\n  ^~~~~~~~~"


def test_error_elsewhere_does_not_matter() -> None:
    module = parse(SourceFile("user.cu", "__global__ void bad(float* x) { x[0] = foo; }\n__global__ void k(float* x) { x[0] = 1; }"))
    assert module.kernels == ("bad", "k")
    assert module.kernel("k").name == "k"
    with pytest.raises(CompileError):
        module.kernel("bad")


def test_unknown_kernel_names_those_that_exist() -> None:
    module = parse(SourceFile("user.cu", "__global__ void a() {} namespace n { __global__ void b() {} }"))
    with pytest.raises(CompileError, match=r"no kernel 'c' in user.cu; its kernels are: a, n::b"):
        module.kernel("c")
