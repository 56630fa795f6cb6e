"""The fence: what an operation may not say, and the words in which it is refused. One test each in
tests/frontend/test_fence_elementwise.py.

Which element a thread has is the kernel's own affair: CuPy does not promise it, and here it follows the strides. So an operation that
asks for its thread would mean something else.
"""

from __future__ import annotations

from ...ir.dtypes import DType

_THREADS = "an operation does not choose its threads: use `i`, the index of the element, or write a RawKernel"
_SHARED = "threads of an elementwise operation do not work together; write a RawKernel"

WORDS: dict[str, str] = {
    **dict.fromkeys(("threadIdx", "blockIdx", "blockDim", "gridDim", "CUPY_FOR"), _THREADS),
    **dict.fromkeys(("__syncthreads", "__syncwarp", "__shared__"), _SHARED),
    **dict.fromkeys(("CArray", "CIndexer"), "CuPy's own classes (CArray, CIndexer) are not available; pass `&x[0]` and numbers"),
}
INTERNAL = "{} is a name of CuPy's own; use `{}[...]` of a raw parameter"
WHOLE = "`{0}` is raw and not contiguous, so only its elements can be used, as `{0}[...]`; or pass a contiguous array"
MACRO = "`{0}` is raw and not contiguous: a macro of the preamble cannot index it; write `{0}[...]` here, or pass a contiguous array"
MEMBER = "`{0}` is not supported; there is {1}"
INDEXER = "`{0}` is no value; there is `{0}.size()`"
BRACES = "an index list in braces is not supported; write `const ptrdiff_t at[] = {{...}}; {0}[at]`"
RETURN = "return in an operation over more than three axes is not supported; write if and else"
AFTER = "after_loop is not supported: threads of an elementwise operation do not work together"
NAME = "{} is a name that the generated kernel uses itself; rename it"
REDUCTION_INDEX = "{} is not available in a reduction; `_J` counts the elements that are reduced"


def dtype_message(dtype: DType) -> str:
    """Why arrays of this type are refused."""
    return f"elementwise and reduction kernels take bool, integers, floats and complex numbers, not {dtype}"
