"""What the elementwise frontend refuses: each with its exact message and its place. `^` in a text marks the place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpuad import CompileError, ElementwiseKernel, ReductionKernel, UnsupportedError
from gpuad.errors import LocatedError
from gpuad.frontend.elementwise import fence

THREADS = "an operation does not choose its threads: use `i`, the index of the element, or write a RawKernel"
SHARED = "threads of an elementwise operation do not work together; write a RawKernel"
CLASSES = "CuPy's own classes (CArray, CIndexer) are not available; pass `&x[0]` and numbers"

# Operations on (T x, raw T z) giving (T y), z strided; with the argument whose text is at fault, if it is another.
OPERATIONS: dict[str, tuple[dict[str, str], str]] = {
    "thread index": ({"operation": "y = x *\n  ^threadIdx.x"}, THREADS),
    "block index": ({"operation": "y = x * ^blockIdx.x"}, THREADS),
    "in the preamble": ({"preamble": "__device__ int f() { return\n ^gridDim.x; }", "operation": "y = x * f()"}, THREADS),
    "barrier": ({"operation": "^__syncthreads(); y = x"}, SHARED),
    "shared memory": ({"operation": "^__shared__ T s[4]; y = x"}, SHARED),
    "class": ({"preamble": "__device__ float f(^CArray<float, 1, 1, 1> x);", "operation": "y = x"}, CLASSES),
    "internal name": ({"operation": "y = ^_raw_x[0]"}, "_raw_x is a name of CuPy's own; use `x[...]` of a raw parameter"),
    "strided raw whole": (
        {"operation": "const T* p = ^z; y = p[i]"},
        "`z` is raw and not contiguous, so only its elements can be used, as `z[...]`; or pass a contiguous array",
    ),
    "strided raw in a macro": (
        {"preamble": "#define AT(k) ^z[k]", "operation": "y = AT(i)"},
        "`z` is raw and not contiguous: a macro of the preamble cannot index it; write `z[...]` here, or pass a contiguous array",
    ),
    "member": ({"operation": "y = ^z.data()[0]"}, "`z.data` is not supported; there is `z[...]`, `ndim`, `size()`, `shape()`, `strides()`"),
    "member of the index": ({"operation": "y = ^_ind.shape()[0]"}, "`_ind.shape` is not supported; there is `size()`, `get()`"),
    "the index itself": ({"operation": "auto k = ^_ind; y = x"}, "`_ind` is no value; there is `_ind.size()`"),
    "braces": (
        {"operation": "y = ^z[{0, 1}]"}, "an index list in braces is not supported; write `const ptrdiff_t at[] = {...}; z[at]`",
    ),
    "after_loop": ({"after_loop": "^y = 0;", "operation": "y = x"}, fence.AFTER),
    "return over many axes": (
        {"operation": "if (x > 0) ^return; y = x"}, "return in an operation over more than three axes is not supported; write if and else",
    ),
    "what CUDA's frontend refuses": ({"operation": "y = x;\n  ^goto out; out:"}, "goto is not supported; write a loop, break or return"),
}  # fmt: skip


def refused(texts: dict[str, str], make: Any) -> tuple[LocatedError, str, int, int]:
    """The error, and the place that is marked."""
    key = next(k for k, text in texts.items() if "^" in text)
    before = texts[key].partition("^")[0]
    with pytest.raises((UnsupportedError, CompileError)) as caught:
        make({k: text.replace("^", "") for k, text in texts.items()})
    return caught.value, key, before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name: str) -> None:
    texts, message = OPERATIONS[name]
    axes = (2, 4, 2, 4) if "axes" in name else (4,)
    x = np.ones((4, 8, 4, 8))[::2, ::2, ::2, ::2] if "axes" in name else np.ones(4)

    def make(plain: dict[str, str]) -> None:
        ElementwiseKernel("T x, raw T z", "T y", name="k", **plain)(x, np.ones((3, 4))[:, ::2], np.ones(axes))

    error, key, line, column = refused(texts, make)
    assert (error.message, error.file, error.line, error.column) == (message, f"<{key} of k>", line, column)


PARAMETERS: dict[str, tuple[str, str, str]] = {
    "no name": ("T x, ^T", "T y", "a parameter is a type and a name, such as 'float32 x', 'T y' or 'raw T z'"),
    "unknown keyword": ("T x, ^cooked T z", "T y", "'cooked' is not understood in a parameter list"),
    "no name at all": ("^T 3", "T y", "'3' is not understood in a parameter list"),
    "unknown type": ("T x,\n  ^float33 z", "T y", "'float33' is no data type; write one of NumPy's names, or a single letter"),
    "index": ("^T i", "T y", "'i' is the operation's index and cannot be a parameter's name"),
    "twice": ("^T x, T x", "T y", "two parameters are named 'x'"),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name: str) -> None:
    ins, outs, message = PARAMETERS[name]
    error, _, line, column = refused({"in_params": ins}, lambda plain: ElementwiseKernel(plain["in_params"], outs, "y = 1", "k"))
    assert (error.message, error.file, error.line, error.column) == (message, "<in_params of k>", line, column)


DTYPES = {
    "g": f"elementwise and reduction kernels take bool, integers, floats and complex numbers, not {np.dtype('g')}",
    "M8[s]": "elementwise and reduction kernels take bool, integers, floats and complex numbers, not datetime64[s]",
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str) -> None:
    kernel = ElementwiseKernel("float32 s, T x", "T y", "y = x", "k")
    with pytest.raises(UnsupportedError) as caught:
        kernel(np.float32(1), np.zeros(3, dtype))
    assert (caught.value.message, caught.value.file, caught.value.column) == (DTYPES[dtype], "<in_params of k>", 12)


def test_names_of_the_kernel_s_own() -> None:
    with pytest.raises(CompileError, match="_n0 is a name that the generated kernel uses itself") as caught:
        ElementwiseKernel("T x", "T y", "int _n0 = 3; y = x * _n0", "k")(np.ones(3))
    assert caught.value.column == 5


REDUCTIONS: dict[str, tuple[dict[str, str], str]] = {
    "index": ({"map_expr": "x * ^_j"}, "_j is not available in a reduction; `_J` counts the elements that are reduced"),
    "output index": ({"post_map_expr": "y = a * ^_i"}, "_i is not available in a reduction; `_J` counts the elements that are reduced"),
    "indexer": ({"map_expr": "^_in_ind.get()[0]"}, "`_in_ind.get` is not supported; there is `size()`"),
    "threads": ({"reduce_expr": "a + b *\n ^threadIdx.x"}, THREADS),
    "mistake": ({"post_map_expr": "y = ^c"}, "use of undeclared identifier 'c'"),
    "mistake in the identity": ({"identity": "^c"}, "use of undeclared identifier 'c'"),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name: str) -> None:
    texts, message = REDUCTIONS[name]
    usual = {"map_expr": "x", "reduce_expr": "a + b", "post_map_expr": "y = a", "identity": "0"}
    error, key, line, column = refused(texts, lambda plain: ReductionKernel("T x", "T y", **{**usual, **plain}, name="k")(np.ones((2, 3))))
    assert (error.message, error.file, error.line, error.column) == (message, f"<{key} of k>", line, column)


def test_fuse() -> None:
    from gpuad import LaunchError, kernel

    class Fusion:
        """As what cupy.fuse makes."""

    with pytest.raises(LaunchError, match=r"cupy.fuse is not supported in this release"):
        kernel(Fusion())
