"""What an expression is while it is lowered: known already, a number of the kernel, an array, or several of them.

Frozen records, made by `expressions`, `arrays`, `calls` and `warps`: `Static` holds a Python object known at lowering, `Value` a typed node
of the surface tree, `ArrayValue` an array parameter with the indices given so far, `SharedValue` shared memory, `Items` a tuple of numbers,
`Range` the arguments of `range`, `Action` a statement without a value. Reading the type of a `Value` raises CompileError where the function
called returns nothing, or where a real number is needed and it is complex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from ...errors import CompileError
from ...ir.surface import Declaration, Expr, Stmt
from ...ir.types import Complex, Scalar
from .signature import ArrayType

Number: TypeAlias = "Scalar | Complex"


@dataclass(frozen=True)
class Static:
    """Known when the kernel is lowered: a constant, a module, a function, a tuple of constants."""

    value: Any


@dataclass(frozen=True)
class Value:
    """A number that the kernel computes. `narrow`: CuPy counts it as an integer of less than 32 bits, but C++ has computed an int, which
    is cut to that type only where the number is stored."""

    expr: Expr
    narrow: Scalar | None = None

    @property
    def kind(self) -> Number:
        """Its type. CompileError for what a function without a result gives."""
        if not isinstance(self.expr.type, Scalar | Complex):
            raise CompileError("this function returns nothing", self.expr.span)
        return self.narrow or self.expr.type

    @property
    def type(self) -> Scalar:
        """The type of a real number. CompileError for a complex one."""
        kind = self.kind
        if isinstance(kind, Complex):
            raise CompileError(f"a real number is needed here, not a {kind}", self.expr.span)
        return kind


@dataclass(frozen=True)
class ArrayValue:
    """An array parameter with the first of its `indices` given, by `a[i]` of `a[i][j]`. `name` is the kernel's parameter whose layout it
    has."""

    name: str
    pointer: Declaration
    type: ArrayType
    indices: tuple[Value, ...] = ()

    @property
    def ndim(self) -> int:
        """Number of axes that are left."""
        return self.type.ndim - len(self.indices)


@dataclass(frozen=True)
class SharedValue:
    """An array in shared memory, of one axis."""

    declaration: Declaration
    type: Number


@dataclass(frozen=True)
class Action:
    """What is done and gives nothing, such as a barrier."""

    statement: Stmt


@dataclass(frozen=True)
class Items:
    """A tuple of values, such as `a.shape` or `jit.grid(2)`."""

    items: tuple[Static | Value, ...]


@dataclass(frozen=True)
class Range:
    """`range(start, stop, step)`."""

    start: Static | Value
    stop: Static | Value
    step: Static | Value


Any_: TypeAlias = "Static | Value | ArrayValue | SharedValue | Items | Range | Action"
