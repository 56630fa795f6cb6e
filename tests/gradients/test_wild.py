"""What published kernels are written with, each construct in the smallest kernel: what is taken, and what refused in which words."""

from __future__ import annotations

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, UnsupportedError
from gpuad.testing import check_gradient

rng = np.random.default_rng(7)


def _kernel(body: str, parameters: str = "const double* x, double* y, int n", before: str = "") -> gpuad.Kernel:
    guard = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
    return gpuad.kernel(f'{before}\nextern "C" __global__ void k({parameters}) {{ {guard}\n{body}\n}}', "k")


def _fields(n: int = 12) -> tuple[np.ndarray, np.ndarray, int]:
    return rng.uniform(0.6, 2.4, n), rng.normal(size=n), n


# --- rounding to a whole number -------------------------------------------------------------------------------------------------------


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "body",
    [
        "int j = floor(x[i]); y[i] = (x[i] - j) * x[j];",
        "double f = ceil(x[i]) - 1.0; int j = f; y[i] = (x[i] - j) * x[j];",
        "int j = 0; j = rint(x[i]) + 2 * i - 2 * i; y[i] = x[i] * x[j];",
        "double f = 0.0; for (int t = 0; t < 2; ++t) f += floor(x[i]); int j = f; y[i] = x[i] * x[j];",
        "unsigned char j = x[i] > 1.0 ? trunc(x[i]) : round(x[i]); y[i] = x[i] * x[j];",
    ],
)
def test_rounded_number_may_become_an_integer(body: str) -> None:
    """The derivative of the rounding is 0 by the table: the conversion that nobody wrote drops nothing."""
    check_gradient(_kernel(body), _fields(), grid=(2,), block=(8,))


@pytest.mark.parametrize(
    "body",
    [
        "int j = floor(x[i]) + x[i]; y[i] = j * x[i];",
        "double f = floor(x[i]); if (i > 2) f = x[i]; int j = f; y[i] = j * x[i];",
        "double f = 0.0; for (int t = 0; t < 2; ++t) { int j = f; y[i] += j * x[i]; f = floor(x[i]) * x[i]; }",
        "y[i] = floor(x[i]) * x[i]; int j = y[i]; y[i] = j * x[i];",
    ],
)
def test_number_that_is_only_partly_rounded_is_refused(body: str) -> None:
    with pytest.raises(UnsupportedError, match="becomes an integer here without a cast") as caught:
        _kernel(body).adjoint(x=Duplicated, y=Duplicated)
    assert caught.value.line == 3


# --- names and headers ------------------------------------------------------------------------------------------------------------------


def test_names_that_nvcc_has_without_an_include() -> None:
    body = "uint j = i; ushort two = 2; y[j] += M_PI * std::sin(x[j]) + std::max(x[j], 1.0) / two + (x[j] < INFINITY ? 1 : INT_MAX) * x[j];"
    check_gradient(_kernel(body), _fields(), grid=(2,), block=(8,))
    template = "template <class T> __device__ T twice(const T* p, uint j) { return 2 * p[j] * (T)M_PI; }"
    check_gradient(_kernel("y[i] = twice<double>(x, i);", before=template), _fields(), grid=(2,), block=(8,))


def test_own_meaning_of_such_a_name_stays() -> None:
    own = "typedef unsigned long long uint; const double M_PI = 3.0; namespace std { __device__ double twice(double a) { return 2 * a; } }"
    x, y, n = _fields()
    _kernel("uint big = 1ull << 40; y[i] = M_PI * std::twice(x[i]) + (big >> 40);", before=own)((2,), (8,), (x, y, n))
    assert np.allclose(y, 6 * x + 1)


def test_missing_name_is_reported_at_its_place() -> None:
    with pytest.raises(gpuad.CompileError, match="unknown type name 'uint7'") as caught:
        _kernel("uint j = i;\nuint7 k = j; y[i] = x[i] * k;").adjoint(x=Duplicated, y=Duplicated)
    assert caught.value.line == 4


def test_header_of_constants_that_cupy_bundles() -> None:
    kernel = _kernel("y[i] = i == 3 ? CUDART_INF : fmin(x[i], CUDART_INF) * x[i];", before="#include <cupy/math_constants.h>")
    x, y, n = _fields()
    check_gradient(kernel, (x[:3], y[:3], 3), grid=(1,), block=(8,))
    kernel((2,), (8,), (x, y, n))
    assert np.isinf(y[3]) and np.allclose(y[4:], x[4:] ** 2)


def test_names_of_std_that_cupy_lacks_may_be_declared() -> None:
    before = """
    #include <cupy/cuda_workaround.h>
    namespace std { template <class T, class U> inline constexpr bool is_same_v = is_same<T, U>::value; }
    template <class T> __device__ T twice(T a) { if constexpr (std::is_same_v<T, double>) return 2 * a; else return a; }"""
    check_gradient(_kernel("y[i] += twice(x[i] * x[i]);", before=before), _fields(), grid=(2,), block=(8,))


def test_header_of_arrays() -> None:
    text = """
    #include <cupy/carray.cuh>
    extern "C" __global__ void k(const double* x, double* y, int n) { CUPY_FOR(i, n) { y[i] += M_PI * x[i] * x[i]; } }"""
    check_gradient(gpuad.kernel(text, "k"), _fields(), grid=(2,), block=(3,))


@pytest.mark.parametrize("folder", ["", "cuda/std/"])
def test_limits_and_type_traits(folder: str) -> None:
    space = "cuda::std" if folder else "std"
    text = f"""
    #include <{folder}limits>
    #include <{folder}type_traits>
    namespace s = {space};
    template <class T> __device__ s::enable_if_t<s::is_floating_point<T>::value, T> half(T a) {{ return a / 2; }}
    template <class T> __device__ s::enable_if_t<s::is_integral<T>::value, T> half(T a) {{ return a >> 1; }}
    template <class T> __global__ void k(const T* x, T* y, int n) {{
        typename s::conditional<s::is_same<T, float>::value, float, double>::type best = -s::numeric_limits<T>::infinity();
        T least = s::numeric_limits<T>::max();
        for (int j = 0; j < n; ++j) {{ best = max(best, x[j]); least = min(least, x[j]); }}
        int i = threadIdx.x;
        if (i < n) y[i] += (best - least) * half(x[i]) * half(n) * (best < s::numeric_limits<T>::epsilon() ? 0 : 1);
        if (i == n) y[i] = s::numeric_limits<int>::max() + (double)s::numeric_limits<unsigned char>::max() + s::numeric_limits<T>::lowest();
    }}"""
    kernel = gpuad.kernel(text, "k<double>")
    x, y, n = _fields()
    check_gradient(kernel, (x, y, n), grid=(1,), block=(12,))
    z = np.zeros(n + 1)
    kernel((1,), (n + 1,), (x, z, n))
    assert z[n] == 2147483647 + 255 - np.finfo(np.float64).max and np.allclose(z[:n], (x.max() - x.min()) * x / 2 * 6)


# --- functions ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["float", "double"])
def test_parts_of_a_number(kind: str) -> None:
    suffix = "f" if kind == "float" else ""
    body = f"{kind} a, b; {kind} f = modf(x[i], &a); f += modf{suffix}(-x[i], &b); int e; {kind} m = frexp(x[i] * x[i], &e);"
    body += " y[i] += f * x[i] + a * x[i] * b + m * ldexp(x[i], e);"
    x, y, n = _fields()
    fields = x.astype(np.float32 if kind == "float" else np.float64), y.astype(np.float32 if kind == "float" else np.float64), n
    check_gradient(_kernel(body, f"const {kind}* x, {kind}* y, int n"), fields, grid=(2,), block=(8,))


def test_values_of_parts_are_cs() -> None:
    x = np.array([0.0, -2.75, 3.5, np.inf, -np.inf, 5e-324, 1e300, 1.0])
    y, z, e = np.zeros(8), np.zeros(8), np.zeros(8, np.int32)
    text = "double a; y[i] = modf(x[i], &a) + 1000 * (isinf(a) ? 1 : a); int k; z[i] = frexp(x[i], &k); e[i] = k;"
    _kernel(text, "const double* x, double* y, double* z, int* e, int n")((1,), (8,), (x, y, z, e, 8))
    fraction, whole = np.modf(x)
    assert np.array_equal(y[:6], (fraction + 1000 * np.where(np.isinf(whole), 1, whole))[:6])
    mantissa, exponent = np.frexp(x)
    finite = np.isfinite(x)
    assert np.array_equal(z, mantissa) and np.array_equal(e[finite], exponent[finite])


def test_norms() -> None:
    body = "y[i] = norm3d(x[i], x[0], -x[i]) + rnorm3d(x[i], 1.0, x[1]) + norm4d(x[i], x[i], 1.0, 2.0) * rnorm4d(x[i], 0.0, 0.0, x[2]);"
    check_gradient(_kernel(body), _fields(), grid=(2,), block=(8,))


# --- initialisers, shared memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.one_of(2)
@pytest.mark.parametrize("start", ["complex<double> s{};", "complex<double> s = {};", "complex<double> s {}, unused;"])
def test_complex_number_from_empty_braces_is_zero(start: str) -> None:
    z, y = rng.normal(size=12) + 1j * rng.normal(size=12), np.zeros(12)
    kernel = _kernel(
        f"{start} for (int k = 0; k <= i; ++k) s += z[k] * z[i]; y[i] += s.real();",
        "const complex<double>* z, double* y, int n",
        "#include <cupy/complex.cuh>",
    )
    check_gradient(kernel, (z, y, 12), grid=(2,), block=(8,))


def test_complex_number_without_a_value_is_still_refused() -> None:
    text = "complex<double> s; for (int k = 0; k <= i; ++k) s += z[k]; y[i] += s.real();"
    with pytest.raises(UnsupportedError, match="used before it has a value"):
        _kernel(text, "const complex<double>* z, double* y, int n", "#include <cupy/complex.cuh>").adjoint(z=Duplicated, y=Duplicated)


BYTES = """
template <class T> __global__ void k(const T* x, T* y, int n) {
    extern __shared__ __align__(16) RAW raw[];
    T* s = %s;
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] * x[i] : T(0);
    __syncthreads();
    if (i < n) y[i] += s[(t + 1) %% blockDim.x] * s[t];
}"""


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("raw", "cast"),
    [
        ("unsigned char", "reinterpret_cast<T*>(raw)"),
        ("char", "(T*)raw"),
        ("int4", "(T*)(raw)"),
        ("float", "(T*)raw"),
        ("char", "(T*)(raw + 8)"),
    ],
)
def test_bytes_of_shared_memory_used_as_one_type(raw: str, cast: str) -> None:
    kernel = gpuad.kernel(BYTES.replace("RAW", raw) % cast, "k<double>")
    x, y, n = _fields()
    check_gradient(kernel, (x, y, n), grid=(2,), block=(8,), shared_mem=72)


@pytest.mark.parametrize("cast", ["(T*)raw; float* f = (float*)raw; f[0] = 1", "(T*)raw; raw[3] = 1"])
def test_bytes_of_shared_memory_used_as_several_types_are_refused(cast: str) -> None:
    with pytest.raises(UnsupportedError, match=r"reinterprets memory|each begins behind the one before"):
        gpuad.kernel(BYTES.replace("RAW", "unsigned char") % cast, "k<double>").adjoint(x=Duplicated, y=Duplicated, shared_mem=64)


# --- elementwise kernels ------------------------------------------------------------------------------------------------------------------


def test_operation_may_change_its_counter() -> None:
    """CuPy's `i` is the variable of its loop: it may be taken apart in place."""
    text = "const int b = i / m; i -= b * m; const int r = i / 2; i -= 2 * r; y += (b + 1) * x[2 * r + i] * x[i];"
    kernel = gpuad.ElementwiseKernel("raw T x, int32 m", "T y", text, "apart")
    x, y = rng.uniform(0.5, 1.5, 6), np.zeros(12)
    kernel(x, 6, y)
    at = np.arange(12)
    assert np.allclose(y, (at // 6 + 1) * x[at % 6] * x[at % 2])
    check_gradient(kernel, (x, 6, y))


@pytest.mark.cpu
def test_counter_below_zero_is_an_error() -> None:
    """CuPy's loop would come back to elements that other threads have."""
    kernel = gpuad.ElementwiseKernel("T x", "T y", "y = x * i; i -= 4;", "back")
    with pytest.raises(gpuad.LaunchError, match="i >= 0"):
        kernel(np.ones(5), np.zeros(5))


def test_counter_of_an_own_loop_is_another_one() -> None:
    kernel = gpuad.ElementwiseKernel("T x, int32 m", "T y", "y = 0; for (int i = 0; i < m; i++) y += x * x * i;", "inner")
    check_gradient(kernel, (rng.normal(size=7), 3, np.zeros(7)))


# --- functions in Python ------------------------------------------------------------------------------------------------------------------


@gpuad.jit.rawkernel()
def _damped(x, y, rate):  # type: ignore[no-untyped-def]
    i = gpuad.jit.grid(1)
    if i < x.shape[0]:
        y[i] += x[i] * np.exp(np.sin(rate * 3.0) * rate)


def test_precision_is_that_of_an_active_scalar() -> None:
    """A Python float is a float32 in a jit function: what is computed with it has no more digits, however wide the arrays are."""
    check_gradient(gpuad.kernel(_damped), (rng.normal(size=9), rng.normal(size=9), 0.7), grid=(2,), block=(8,))


def test_precision_is_that_of_what_is_computed() -> None:
    """`fabsf` of a double is a float."""
    report = check_gradient(_kernel("y[i] += (1 - fabsf(x[i])) * (1 - fabsf(x[i])) * sin(x[i]);"), _fields(), grid=(2,), block=(8,))
    assert any("computes in float32" in note for note in report.notes)
    report = check_gradient(_kernel("y[i] += 0.5f * x[i] * fabs(x[i]);"), _fields(), grid=(2,), block=(8,))
    assert not report.notes


# --- a second round ---------------------------------------------------------------------------------------------------------------------

VOTES = """
extern "C" __global__ void k(const double* x, double* y, int n) {
    __shared__ double tile[8];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool done = i >= n;
    double left = 1.0;
    for (int start = 0; start < n; start += 8) {
        %s
        tile[threadIdx.x] = start + threadIdx.x < n ? x[start + threadIdx.x] : 0.0;
        __syncthreads();
        for (int j = 0; !done && j < min(8, n - start); ++j) {
            left *= 1.0 - 0.3 * tile[j];
            if (left < 0.2) done = true;
        }
        __syncthreads();
    }
    if (i < n) y[i] += left * left * (i + 1);
}"""


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    "leave",
    [
        "if (__syncthreads_count(done) == 8) break;",
        "int finished = __syncthreads_count(done); if (finished == blockDim.x) break;",
        "if (__syncthreads_and(done)) break;",
        "if (!__syncthreads_or(!done)) break;",
        "if (__syncthreads_and(done) && __syncthreads_count(done) == 8) break;",
    ],
)
def test_barrier_that_counts(leave: str) -> None:
    """A tile of a front to back sum ends where all of its pixels are full."""
    check_gradient(gpuad.kernel(VOTES % leave, "k"), (rng.uniform(0.2, 0.9, 20), np.zeros(20), 20), grid=(3,), block=(8,))


def test_answers_of_barriers_that_count() -> None:
    body = "z[3 * i] = __syncthreads_count(m[i]); z[3 * i + 1] = __syncthreads_and(m[i]); z[3 * i + 2] = __syncthreads_or(m[i]);"
    kernel = gpuad.kernel(f'extern "C" __global__ void k(const int* m, int* z) {{ int i = blockIdx.x * 4 + threadIdx.x; {body} }}', "k")
    z = np.zeros((3, 4, 3), np.int32)
    kernel((3,), (4,), (np.array([0, 2, -1, 0, 0, 0, 0, 0, 1, 1, 5, 9], np.int32), z))
    assert z[:, 0].tolist() == [[2, 0, 1], [0, 0, 0], [4, 1, 1]]
    assert (z == z[:, :1]).all()


def test_barrier_that_counts_needs_all_threads() -> None:
    text = VOTES % "if (i > 3) { if (__syncthreads_and(done)) break; }"
    with pytest.raises(UnsupportedError, match="each of them has to reach it"):
        check_gradient(gpuad.kernel(text, "k"), (rng.uniform(0.2, 0.9, 20), np.zeros(20), 20), grid=(3,), block=(8,))


def test_register_variables() -> None:
    check_gradient(
        _kernel("register double s = x[i]; for (register int j = 0; j < 3; ++j) s *= x[j]; y[i] += s;"), _fields(), grid=(2,), block=(8,)
    )


def test_pointers_in_braces() -> None:
    body = "const double* p{x + i}; double* q{reinterpret_cast<double*>(y)}; const double* none{}; none = p; q[i] += *none * p[0];"
    check_gradient(_kernel(body), _fields(), grid=(2,), block=(8,))


def test_number_without_a_value_may_be_passed_on() -> None:
    """Reductions with and without an index share their helpers."""
    before = """
    template <bool greatest> __device__ void update(double* best, double v, int* at, int j) {
        if (!greatest) *best += v; else if (v > *best) { *best = v; *at = j; }
    }
    template <bool greatest> __device__ void write(double* out, double v, int* where, int at) { *out = v; if (greatest) *where = at; }
    template <bool greatest> __global__ void k(const double* x, double* y, int* where, int n) {
        int i = threadIdx.x;
        double best = greatest ? -1e30 : 0.0;
        int at;
        for (int j = 0; j <= i; ++j) update<greatest>(&best, x[j] * x[j], &at, j);
        if (i < n) write<greatest>(y + i, best, where + i, at);
    }"""
    for name in ("k<true>", "k<false>"):
        check_gradient(gpuad.kernel(before, name), (*_fields()[:2], np.zeros(12, np.int32), 12), grid=(1,), block=(12,))


def test_number_without_a_value_is_refused_where_it_is_used() -> None:
    before = "__device__ double twice(double a, bool b) { return b ? 2 * a : 1.0; }"
    with pytest.raises(UnsupportedError, match="'a' is used before it has a value"):
        _kernel("double s; y[i] = x[i] * twice(s, i > 3);", before=before)


def test_struct_by_value_is_varied_in_a_check() -> None:
    kernel = _kernel(
        "if (i < p.m) y[i] += p.a * x[i] * x[i];", "const double* x, double* y, Par p, int n", "struct Par { double a; int m; };"
    )
    p = np.zeros((), np.dtype([("a", "f8"), ("m", "i4")], align=True))
    p["a"], p["m"] = 2.0, 9
    x, y, n = _fields()
    assert not check_gradient(kernel, (x, y, p[()], n), grid=(2,), block=(8,)).notes
    active = gpuad.Active(p[()], np.zeros_like(p))
    assert check_gradient(kernel, (Duplicated(x), Duplicated(y), active, n), grid=(2,), block=(8,)).passed


@pytest.mark.parametrize("name", ["grid", "block", "args", "shared_mem", "k", "self"])
def test_parameter_named_as_an_option_of_ours(name: str) -> None:
    """Annotated by its name it is a parameter: its gradient is no less wanted than that of others."""
    kernel = _kernel(f"atomicAdd(&{name}[i / 2], x[i] * x[i]);", f"const double* x, double* {name}, int n")
    text = kernel.adjoint(x=Duplicated, **{name: Duplicated}).source
    assert text == kernel.adjoint(Duplicated, Duplicated).source
    assert f"d{name}[i / 2]" in text
    x, y, n = _fields()
    launch = {"grid": (2,), "block": (8,), "args": (Duplicated(x), Duplicated(y), n)}
    if name not in launch:
        assert f"d{name}[i / 2]" in kernel.adjoint(x=Duplicated, **{name: Duplicated}, **launch).source
    augmented, reverse = gpuad.autodiff_thunk(kernel, x=Duplicated, **{name: Duplicated})
    dx, dy = np.zeros(n), rng.normal(size=n)
    reverse((2,), (8,), (Duplicated(x, dx), Duplicated(y, dy), n), augmented((2,), (8,), (x, y, n)))
    assert np.allclose(dx, 2 * x * dy[np.arange(n) // 2])


def test_option_of_ours_without_such_a_parameter() -> None:
    with pytest.raises(gpuad.LaunchError, match="no parameter `grid`"):
        _kernel("y[i] = x[i];").adjoint(x=Duplicated, y=Duplicated, grid=Duplicated)


def test_matrix_of_a_template_in_braces() -> None:
    """The bound of an array in a template is no default value of the field."""
    matrix = """
    template <int N> struct Mat { double m[N][N]; __device__ double& operator()(int i, int j) { return m[i][j]; } };
    template <int N> __device__ Mat<N> operator*(const Mat<N>& a, const Mat<N>& b) {
        Mat<N> r = {};
        for (int i = 0; i < N; ++i) for (int j = 0; j < N; ++j) for (int k = 0; k < N; ++k) r(i, j) += a.m[i][k] * b.m[k][j];
        return r;
    }"""
    body = "Mat<2> a = {{{x[i], 1}, {2 * x[i], x[0]}}}; Mat<2> b = {}; b(1, 0) = x[i]; b(0, 1) = 3; y[i] += (a * b)(0, 0) + (b * a)(1, 1);"
    check_gradient(_kernel(body, before=matrix), _fields(), grid=(2,), block=(8,))


def test_array_of_a_template_with_a_default_value() -> None:
    weights = "template <int N> struct Weights { double w[N] = {1.0, 2.0}; };"
    check_gradient(_kernel("Weights<2> p; y[i] += x[i] * x[i] * p.w[1];", before=weights), _fields(), grid=(2,), block=(8,))
    x, y, n = _fields()
    _kernel("Weights<2> p; y[i] = x[i] * p.w[1] + p.w[0];", before=weights)((2,), (8,), (x, y, n))
    assert np.allclose(y, 2 * x + 1)


@pytest.mark.parametrize("store", ["__stwb", "__stcg", "__stcs", "__stwt"])
def test_store_with_a_hint_for_the_caches(store: str) -> None:
    """A store like any other: what was there before does not reach the output."""
    body = f"{store}(y + i, __ldlu(x + i) * x[i]); {store}(&p[i], make_double2(x[i], p[i].y * x[i]));"
    kernel = _kernel(body, "const double* x, double* y, double2* p, int n")
    x, y, n = _fields()
    check_gradient(kernel, (x, y, rng.normal(size=(n, 2)), n), grid=(2,), block=(8,))
    dx, dy = np.zeros(n), np.ones(n)
    gpuad.autodiff(kernel, (2,), (8,), (Duplicated(x, dx), Duplicated(y, dy), Duplicated(np.zeros((n, 2))), n))
    assert np.allclose(dx, 2 * x) and not dy.any()


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "body",
    [
        "y[i] = *&(i > 3 ? x[i] : x[0]) * x[i];",
        "(i % 3 ? y[i] : p[i].y) += x[i] * x[i]; y[i] *= p[i].y;",
        "double a = x[i], b = 2.0; double& c = i % 2 ? a : b; c *= x[i]; y[i] = a * b;",
        "double* q = &(x[i] > 1.0 ? i > 4 ? y[i] : p[i].x : p[i].y); *q = *q * x[i];",
        "__shared__ double s[8], t[8]; s[threadIdx.x] = x[i]; t[threadIdx.x] = x[i] * x[i]; __syncthreads(); "
        "y[i] = __ldg(&(i % 2 ? s[threadIdx.x ^ 1] : t[threadIdx.x ^ 1]));",
    ],
)
def test_one_of_two_places(body: str) -> None:
    kernel = _kernel(body, "const double* x, double* y, double2* p, int n")
    x, y, n = _fields(16)
    check_gradient(kernel, (x, y, rng.normal(size=(n, 2)), n), grid=(2,), block=(8,))


def test_matrices_behind_a_pointer_are_arrays_of_three_axes() -> None:
    """A struct's numbers lie side by side along more than one axis."""
    text = """struct M { double m[2][3]; };
    extern "C" __global__ void k(const M* a, double* y) { y[threadIdx.x] += a[threadIdx.x].m[1][2] * a[threadIdx.x].m[0][1]; }"""
    a, da, y = rng.normal(size=(4, 2, 3)), np.zeros((4, 2, 3)), np.zeros(4)
    check_gradient(gpuad.kernel(text, "k"), (a, y), grid=1, block=4)
    gpuad.autodiff(gpuad.kernel(text, "k"), 1, 4, (Duplicated(a, da), Duplicated(y, np.ones(4))))
    assert np.allclose(da[:, 1, 2], a[:, 0, 1]) and np.allclose(da[:, 0, 1], a[:, 1, 2]) and np.count_nonzero(da) == 8
