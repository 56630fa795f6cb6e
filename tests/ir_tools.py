"""Short spellings of core IR for tests that build kernels by hand."""

from __future__ import annotations

import itertools

from gpuad.ir.nodes import Binary, Block, Buffer, Call, Cast, Constant, Expr, Kernel, LaunchIndex, Var
from gpuad.ir.types import BOOL, F32, I32, U32, Scalar

_uids = itertools.count(1)


def var(name: str, type: Scalar = F32) -> Var:
    return Var(name, type, next(_uids))


def buffer(name: str, element: Scalar = F32) -> Buffer:
    return Buffer(name, element, uid=next(_uids))


def const(value: float, type: Scalar = I32) -> Constant:
    return Constant(value, type)


def f32(value: float) -> Constant:
    return Constant(value, F32)


def op(symbol: str, left: Expr, right: Expr) -> Binary:
    """A binary operation; comparisons and logic give bools."""
    return Binary(symbol, left, right, BOOL if symbol in ("<", ">", "<=", ">=", "==", "!=", "&&", "||") else left.type)


def call(name: str, *arguments: Expr) -> Call:
    return Call(name, arguments, arguments[0].type)


def unsigned_index(axis: str = "x") -> Expr:
    """blockIdx.x * blockDim.x + threadIdx.x"""
    return op("+", op("*", LaunchIndex("blockIdx", axis), LaunchIndex("blockDim", axis)), LaunchIndex("threadIdx", axis))


def index(axis: str = "x") -> Expr:
    """(int)(blockIdx.x * blockDim.x + threadIdx.x)"""
    return Cast(unsigned_index(axis), I32)


def kernel(name: str, params: tuple[Var | Buffer, ...], *body: object, header: str = "") -> Kernel:
    return Kernel(name, params, tuple(body), header=header)  # type: ignore[arg-type]


__all__ = ["BOOL", "F32", "I32", "U32", "Block", "buffer", "call", "const", "f32", "index", "kernel", "op", "unsigned_index", "var"]
