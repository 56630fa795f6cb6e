"""The fence: what this frontend refuses, and the words in which it does.

Lowering is a whitelist: a kind of node without a handler ends here. tests/frontend/test_fence.py holds a test for each construct, on its
exact message and place.
"""

from __future__ import annotations

import re

from clang.cindex import Cursor, CursorKind

_LATER = "come in a later release"
_JUMP = "write a loop, break or return"
_ROOM = "pass an array, or declare one of constant length"

TEMPORARY_ARRAY = "a reference to a temporary array is not supported; give the array a name"
FUNCTION_POINTER = (
    "a pointer to a function is supported where it surely is that of one: a parameter, a template's argument or a variable that is given a "
    "function and never changed; else call each by its name under a condition"
)
RETURNED_FUNCTION = (
    "a call of the function that another call returns is not supported: which one it is has to be known; call each by its name under a "
    "condition, or pass the function on as an argument"
)
LAMBDA = (
    "a lambda can be called and passed to functions and other lambdas, but not stored in a struct or returned; else write a __device__ "
    "function"
)
MUTABLE = "a copy of a mutable lambda, with values of its own, is not supported; pass the lambda by reference, or capture by reference"
MEMBER_POINTER = "a pointer to a member is not supported: which member it is has to be known; write s.a, or choose by a condition"
STRUCTURED = (
    "structured bindings (auto [a, b] = ...) are supported of arrays of numbers, vectors and structs without bases, with a name for each "
    "part; give each part a variable of its own"
)

KINDS: dict[CursorKind, str] = {
    CursorKind.GOTO_STMT: f"goto is not supported; {_JUMP}",
    CursorKind.INDIRECT_GOTO_STMT: f"goto is not supported; {_JUMP}",
    CursorKind.LABEL_STMT: f"labels and goto are not supported; {_JUMP}",
    CursorKind.CASE_STMT: "a case inside another statement than its switch is not supported",
    CursorKind.DEFAULT_STMT: "a default inside another statement than its switch is not supported",
    CursorKind.CXX_TRY_STMT: "exceptions are not supported",
    CursorKind.CXX_THROW_EXPR: "exceptions are not supported",
    CursorKind.ASM_STMT: "inline assembly cannot be differentiated; write it in C",
    CursorKind.MS_ASM_STMT: "inline assembly cannot be differentiated; write it in C",
    CursorKind.CXX_NEW_EXPR: f"memory allocation in a kernel (new) is not supported; {_ROOM}",
    CursorKind.CXX_DELETE_EXPR: f"memory allocation in a kernel (delete) is not supported; {_ROOM}",
    CursorKind.LAMBDA_EXPR: LAMBDA,
    CursorKind.BUILTIN_BIT_CAST_EXPR: "__builtin_bit_cast is not supported; __float_as_int and its kin are",
    CursorKind.CXX_DYNAMIC_CAST_EXPR: "dynamic_cast is not supported",
    CursorKind.CXX_THIS_EXPR: f"member functions {_LATER}",
    CursorKind.STRING_LITERAL: "string literals are not supported",
    CursorKind.IMAGINARY_LITERAL: "imaginary literals are not supported; use cupy/complex.cuh",
    CursorKind.COMPOUND_LITERAL_EXPR: "compound literals are not supported",
    CursorKind.StmtExpr: "statement expressions are not supported",
    CursorKind.GENERIC_SELECTION_EXPR: "_Generic is not supported",
    CursorKind.MEMBER_REF_EXPR: f"structs and vector types {_LATER}",
    CursorKind.STRUCT_DECL: f"structs {_LATER}",
    CursorKind.CLASS_DECL: f"structs {_LATER}",
    CursorKind.UNION_DECL: "an anonymous union of a function is not supported; give it a name",
}

_TEXTURE = "tex1Dfetch, tex1D, tex2D and tex3D are supported for float, float2 and float4, layers and levels are not; read an array instead"
_MALLOC = f"memory allocation in a kernel is not supported; {_ROOM}"
_COPIED = "memcpy and memset are supported between memory of one type, or of numbers of one size, memmove is not; write a loop"
_CLOCK = "clocks are not supported: their values cannot be replayed"

FUNCTIONS: dict[str, str] = {
    **dict.fromkeys(("tex1Dfetch", "tex1D", "tex2D", "tex3D"), _TEXTURE),
    **dict.fromkeys(("tex1DLod", "tex2DLod", "tex3DLod", "tex1DLayered", "tex2DLayered"), _TEXTURE),
    **dict.fromkeys(("malloc", "free"), _MALLOC),
    **dict.fromkeys(("memcpy", "memset", "memmove"), _COPIED),
    **dict.fromkeys(("clock", "clock64"), _CLOCK),
}

_CLUSTERS = "clusters of blocks are not supported"
_MULTI_GRID = "groups of several devices are not supported"
_TILE = "cut the tile that is meant by tiled_partition"
_SPLIT_BARRIER = "barriers of which the arrival and the wait are two calls are not supported; write sync()"
_SHUFFLED = "lanes can only give each other numbers and float2 to float4 and their kin; give a struct number by number"
_MATCH = "match_any and match_all are not supported"

GROUPS: dict[str, str] = {
    **dict.fromkeys((f"{g}::barrier_{w}" for g in ("thread_block", "grid_group") for w in ("arrive", "wait")), _SPLIT_BARRIER),
    "this_multi_grid": _MULTI_GRID,
    "this_cluster": _CLUSTERS,
    "binary_partition": f"binary_partition is not supported: the groups that it makes hang on data; {_TILE}",
    "labeled_partition": f"labeled_partition is not supported: the groups that it makes hang on data; {_TILE}",
    "invoke_one": "invoke_one is not supported; write if (group.thread_rank() == 0)",
    "tiled_partition": "tiles of more than 32 threads are not supported",
    **dict.fromkeys(("thread_block_tile::match_any", "thread_block_tile::match_all"), _MATCH),
    **dict.fromkeys((f"gpuad::{name}" for name in ("from", "from_above", "from_below", "from_partner")), _SHUFFLED),
}

_ASYNC = "asynchronous copies are not supported; copy in a loop, then sync()"

HEADERS: dict[str, str] = {  # patterns of whole names: a user's own cubic.h is none of CUB's
    r"(cooperative_groups/memcpy_async|cuda/(barrier|pipeline)|cuda_pipeline\w*|cuda_awbarrier\w*)(\.h)?": _ASYNC,
    r"cooperative_groups/.*": "this part of cooperative groups is not supported",
    r"complex(\.h)?": "std::complex is not supported in device code; use cupy/complex.cuh",
    r"curand\w*\.h": "this part of curand is not supported; curand_kernel.h is",
    r"cub/.*": "of CUB BlockReduce, BlockScan, BlockLoad, BlockStore, WarpReduce and WarpScan are supported (cub/cub.cuh)",
    r"thrust/.*": "Thrust is not supported; of its headers thrust/complex.h is",
    r"(crt/)?mma\.h": "matrix fragments (wmma) are not supported; write the product as a loop over shared memory",
}


def kind_message(cursor: Cursor) -> str:
    """Why a node of this kind is refused."""
    if cursor.kind == CursorKind.UNEXPOSED_DECL and any(token.spelling == "[" for token in cursor.get_tokens()):
        return STRUCTURED
    return KINDS.get(cursor.kind) or f"this construct is not supported ({cursor.kind.name.lower().replace('_', ' ')})"


def function_message(name: str, owner: str = "") -> str:
    """Why a function that CUDA declares is refused; `owner` is the class or namespace that it is a member of."""
    if (group := GROUPS.get(f"{owner}::{name}") or GROUPS.get(name)) is not None:
        return group
    if name.startswith(("curand_poisson", "curand_discrete")):
        return f"random numbers of this distribution ({name}) are not supported; those of uniform, normal and log-normal ones are"
    if name.startswith(("curand", "skipahead")):
        return "random numbers of this generator are not supported; those of curandStateXORWOW and curandStatePhilox4_32_10 are"
    if name.startswith("make_"):
        return f"vector types {_LATER}"
    if re.fullmatch(r"__\w+_(rd|ru|rz)", name):
        return f"{name} rounds in a direction of its own, which is not supported; {name[:-2]}rn rounds to the nearest number"
    return FUNCTIONS.get(name) or f"the function {name} is not supported"


def header_message(header: str) -> str:
    """Why a header that was not found is refused."""
    for pattern, message in HEADERS.items():
        if re.fullmatch(pattern, header):
            return f"the header '{header}' cannot be used: {message}"
    return f"the header '{header}' was not found; give its folder with the option -I"
