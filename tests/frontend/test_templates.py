"""Instances of templates by name expressions: what they compute, what they are called, what is said where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Active, Duplicated, pipeline, testing
from gpuad.errors import CompileError, UnsupportedError
from gpuad.frontend.cuda import legal_name, parse
from gpuad.runtime import nvrtc
from gpuad.source import SourceFile

STEP = """
template <typename T, int N, bool SQUARE = false>
__global__ void step(T* x, T a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    T sum = 0;
    for (int k = 0; k < N; ++k) sum += x[i] * T(k + 1);
    if constexpr (SQUARE) sum *= sum;
    x[i] = a * sum;
}
template <> __global__ void step<float, 1, false>(float* x, float a, int n) { if (threadIdx.x < n) x[threadIdx.x] = a; }
namespace filters { template <class T> __global__ void negate(T* x) { x[threadIdx.x] = -x[threadIdx.x]; } }
extern "C" __global__ void plain(float* x) { x[0] = 1; }
"""


def _x(dtype: Any = np.float64) -> Any:
    return np.random.default_rng(0).uniform(0.6, 1.4, 5).astype(dtype)


@pytest.mark.parametrize(("expression", "dtype", "factor"), [("step<double, 3>", np.float64, 6), ("step<float, 2>", np.float32, 3)])
def test_an_instance(expression: str, dtype: Any, factor: int, executor: Any) -> None:
    x, dx, da = _x(dtype), np.ones(5, dtype), np.zeros((), dtype)
    old = x.copy()
    with pipeline.executor_for_tests(executor):
        gpuad.autodiff(gpuad.kernel(STEP, expression), 2, 4, (Duplicated(x, dx), Active(dtype(0.5), da), 5))
        testing.check_gradient(gpuad.kernel(STEP, expression), (_x(dtype), dtype(0.5), 5), grid=2, block=4)
    assert np.allclose(x, 0.5 * factor * old, rtol=1e-6)
    assert np.allclose(dx, 0.5 * factor, rtol=1e-6)
    assert np.allclose(da, factor * old.sum(), rtol=1e-6)


def test_one_text_has_many_instances() -> None:
    found = {}
    for expression in ("step<double, 2>", "step<double, 2, true>", "step<double, 1>", "filters::negate<double>", "&step< double , 2 >"):
        x = _x()
        gpuad.kernel(STEP, expression)(1, 5, (x,) if "negate" in expression else (x, 1.0, 5))
        found[expression] = x
    old = _x()
    expected = (3 * old, 9 * old * old, old, -old, 3 * old)
    for (expression, got), want in zip(found.items(), expected, strict=True):
        assert np.allclose(got, want), expression


def test_a_specialisation_is_taken_where_there_is_one() -> None:
    x = _x(np.float32)
    gpuad.kernel(STEP, "step<float, 1>")(1, 5, (x, np.float32(7), 5))
    assert (x == 7).all()


def test_names_of_what_is_generated() -> None:
    kernel = gpuad.kernel(STEP, "step<double, 3>")
    assert kernel.name == "step_double_3"
    text = kernel.adjoint(x=Duplicated).source
    assert "step_double_3_reverse(" in text
    assert "<" not in text.split("__global__")[1].split("(")[0]
    assert gpuad.kernel(STEP, "filters::negate<double>").name == "negate_double"


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("step<float, 3>", "step_float_3"),
        ("&a::step<float*,-3>", "step_float_pointer_minus_3"),
        ("step<unsigned int>", "step_unsigned_int"),
        ("step<Border::Wrap, (1 > 0)>", "step_Border_Wrap_1_0"),
        ("step<>", "step"),
        ("plain", "plain"),
    ],
)
def test_an_expression_as_an_identifier(expression: str, name: str) -> None:
    assert legal_name(expression) == name


# --- places and messages ---------------------------------------------------------------------------------------------------------------


KNOWN = "its kernels are: step, filters::negate, plain. A template is named with its arguments: 'step<float, 3>'"


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("step<float>", "no template of this name takes these arguments"),
        ("step<float, 3, 4, 5>", "no template of this name takes these arguments"),
        ("step<float, 1.5f>", "no template of this name takes these arguments"),
        ("stop<float, 3>", "use of undeclared identifier 'stop'"),
        ("negate<float>", "use of undeclared identifier 'negate'"),
        ("step<real, 3>", "use of undeclared identifier 'real'"),
        ("step<float, 3", "expected '>'"),
        ("step<float, 3>; int q", "expected ')'"),
    ],
)
def test_an_expression_that_names_nothing(expression: str, reason: str) -> None:
    with pytest.raises(CompileError) as caught:
        gpuad.kernel(STEP, expression)
    assert caught.value.message == f"no kernel {expression!r} in <source>: {reason}; {KNOWN}"


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("template <class T> __global__ void k(T* x) { foo y; x[0] *= 2; }", 46),
        ("template <class T> __global__ void k(T* x, foo n) { x[0] *= 2; }", 44),
        ("template <class T> __global__ void k(foo* x, T y) {}", 38),
    ],
)
def test_an_error_in_the_template_is_the_reason(text: str, column: int) -> None:
    with pytest.raises(CompileError, match="unknown type name 'foo'") as caught:
        gpuad.kernel(f"// first line\n{text}", "k<float>")
    assert caught.value.span is not None
    assert (caught.value.span.line, caught.value.span.column) == (2, column)


def test_an_expression_that_names_no_kernel() -> None:
    text = "template <class T> __device__ void f(T* x) {}\ntemplate <class T> __global__ void k(T* x);"
    for expression in ("f<float>", "k<float>"):
        with pytest.raises(CompileError, match=r"no kernel '.<float>' in <source>: it is no kernel; its kernels are: none\."):
            gpuad.kernel(text, expression)


def test_a_template_wants_arguments() -> None:
    with pytest.raises(CompileError) as caught:
        gpuad.kernel(STEP, "step")
    message = (
        "'step' is a template; name an instance of it, as in 'step<float, 3, 3>'. The kernels of <source> are: step, filters::negate, plain"
    )
    assert (caught.value.message, caught.value.line, caught.value.column) == (message, 3, 17)


@pytest.mark.parametrize(
    ("body", "example"),
    [
        ("x[threadIdx.x].x *= x[blockDim.y].y;", "k<float2>"),
        ("T v = x[threadIdx.x]; v.z += v.w; x[0] = v;", "k<float4>"),
        ("x[threadIdx.z] *= 2;", "k<float>"),
    ],
)
def test_the_members_that_are_used_say_what_type_is_meant(body: str, example: str) -> None:
    with pytest.raises(CompileError, match=f"as in '{example}'"):
        gpuad.kernel(f"template <class T> __global__ void k(T* x) {{ {body} }}", "k")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("template <class T> __global__ void k(T* x)\n{ ^clock64(); }", UnsupportedError, "clocks are not supported"),
        ("template <class T> __global__ void k(T* x)\n{ x[0] = ^f(x[1]); }", CompileError, "use of undeclared identifier 'f'"),
        ("template <class T> __global__ void k(T* x)\n{ x[0] = T::^value; }", CompileError, "type 'float' cannot be used prior to '::'"),
        ("template <class T> __global__ void k(T* x)\n{ static_assert(^sizeof(T) == 8); }", CompileError, "static assertion failed"),
        (
            "template <class T> __device__ T f(T a) { return a^.b; }\ntemplate <class T> __global__ void k(T* x) { x[0] = f(x[0]); }",
            CompileError,
            "member reference base type 'float' is not a structure or union",
        ),
        (
            "template <class T> struct S { T v[T::^none]; };\ntemplate <class T> __global__ void k(T* x) { S<T> s; }",
            CompileError,
            "type 'float'",
        ),
    ],
)
def test_places_are_in_the_users_text(text: str, error: type[Exception], message: str) -> None:
    before, _, after = text.partition("^")
    with pytest.raises(error) as caught:
        parse(SourceFile("user.cu", before + after)).kernel("k<float>")
    assert message in caught.value.message
    line = before.count("\n") + 1
    column = len(before) - before.rfind("\n")
    assert caught.value.line == line
    assert abs(caught.value.column - column) <= 3 and caught.value.file == "user.cu"


def test_a_name_without_arguments_may_be_that_of_an_instance_alone() -> None:
    """A helper whose instance has an error is an error of the kernels that use it, and of no others."""
    text = """
template <class T> __device__ T f(T a) { return a.b; }
__global__ void bad(float* x) { x[0] = f(x[0]); }
__global__ void good(float* x) { x[0] *= x[0]; }
"""
    assert gpuad.kernel(text, "good").name == "good"
    with pytest.raises(CompileError, match="is not a structure or union"):
        gpuad.kernel(text, "bad")


def test_instances_that_the_text_asks_for_itself_are_no_other_kernels() -> None:
    text = "template <class T> __global__ void k(T* x) { x[0] *= x[0]; }\ntemplate __global__ void k<float>(float*);"
    assert parse(SourceFile("user.cu", text)).kernels == ("k",)
    assert gpuad.kernel(text, "k<float>").name == "k_float"


def test_parameter_packs_have_names_of_their_own() -> None:
    text = """
template <typename... T> __device__ double sum(T... a) { return (a + ... + 0.0); }
template <typename... T> __global__ void k(double* x, T... a) { x[threadIdx.x] *= sum(a...); }
"""
    kernel = gpuad.kernel(text, "k<double, double>")
    assert [p.name for p in kernel.parameters] == ["x", "a_1", "a_2"]
    testing.check_gradient(kernel, (_x(), 0.5, 1.5), grid=1, block=5)


@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
def test_symbols_are_those_of_the_compiler() -> None:
    """CuPy gives a function that was taken from a module the compiler's name."""
    module = parse(SourceFile("user.cu", STEP))
    names = ["step<double, 3>", "step<float, 1>", "filters::negate<float>", "plain"]
    asked = "template __global__ void step<double, 3>(double*, double, int);\ntemplate __global__ void filters::negate<float>(float*);"
    assert set(nvrtc.resources(nvrtc.compile_cuda(f"{STEP}\n{asked}"))) == {module.symbol(name) for name in names}
    for name in names:
        assert module.called(module.symbol(name), ["no_kernel<3>", *names]) == name
    with pytest.raises(CompileError, match=r"no kernel '_Z1kv' in user\.cu; its kernels are: step, filters::negate, plain"):
        module.called("_Z1kv", names)
