"""What a text of CUDA declares, for the table that goes with it to a C++ compiler."""

from __future__ import annotations

import pytest

from gpuad.cpu_device.kernel_text import kernel_text

KERNELS = {
    'extern "C" __global__ void k(int x) {}': ["k"],
    'extern "C" __global__ __launch_bounds__(64, 2) void k(int x) {}': ["k"],
    'extern "C" __global__ void __launch_bounds__(64) k(int x) {}': ["k"],
    'extern "C"\n__global__\nvoid\nk(const float* __restrict__ x)\n{\n}': ["k"],
    'extern "C" { __global__ void a() { if (1) { } } __global__ void b() {} }': ["a", "b"],
    "namespace p { namespace q { __global__ void k() {} } }": ["p::q::k"],
    "namespace p::q { __global__ void k() {} } __global__ void l() {}": ["p::q::k", "l"],
    "template <class T> __global__ void k(T* x) {} __global__ void l() {}": ["l"],
    "static __global__ void k() {}": [],
    "// __global__ void k() {}\n/* __global__ void l() {} */": [],
    'const char* s = "__global__ void k() {"; __global__ void l() {}': ["l"],
    "#define KERNEL __global__ void\n__global__ void l() {}": ["l"],
    "__global__ void k(); __global__ void k() {}": ["k"],
}
VARIABLES = {
    "__constant__ float c[3];": ["c"],
    "__device__ int counter = 0;": ["counter"],
    "__device__ __align__(16) double4 v;": ["v"],
    "namespace p { __constant__ double c; }": ["p::c"],
    "__device__ double f(double x) { return x; }": [],
    "struct S { __device__ int f() { __shared__ int s[2]; return s[0]; } };": [],
    "static __device__ int hidden;": [],
    "template <class T> __device__ T t;": [],
}


@pytest.mark.parametrize("text", KERNELS)
def test_kernels(text: str) -> None:
    assert list(kernel_text(text).kernels) == KERNELS[text]


@pytest.mark.parametrize("text", VARIABLES)
def test_variables(text: str) -> None:
    assert list(kernel_text(text).variables) == VARIABLES[text]


@pytest.mark.parametrize(
    ("text", "cpp"),
    [
        ("extern __shared__ float s[];", "float* s = (float*)gpuad_here.shared;"),
        ("extern __shared__ __align__(16) unsigned char raw[];", "unsigned char* raw = (unsigned char*)gpuad_here.shared;"),
        ("static __shared__ int s[4];", "__shared__ int s[4];"),
    ],
)
def test_shared_memory(text: str, cpp: str) -> None:
    assert cpp in kernel_text(f"__global__ void k() {{ {text} }}").text


def test_lines_stay() -> None:
    text = '__global__ void k()\n{\n  extern __shared__ float s[];\n  "a // b";\n}\n'
    assert kernel_text(text).text.count("\n") == text.count("\n")


def test_named_kernels_come_first() -> None:
    table = kernel_text("template <class T> __global__ void k(T*) {} __global__ void l() {}").with_table(["k<float>", "l"])
    assert "{gpuad_kernel_of<false>(&k<float>), gpuad_kernel_of<false>(&l), {}}" in table


def test_only_threads_that_wait_have_stacks() -> None:
    assert kernel_text("__global__ void k() { __syncthreads(); }").together
    assert not kernel_text("__global__ void k() {} // no sync").together
