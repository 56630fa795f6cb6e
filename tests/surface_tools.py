"""Surface trees by hand, for tests: expressions with Python operators, and an interpreter that executes a tree as C would, one thread at a
time. What the interpreter finds in memory is what the normalized kernel must leave there."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpuad.ir import surface as c
from gpuad.ir.types import BOOL, F32, I32, I64, U32, VOID, Array, Pointer, Scalar, Type
from gpuad.source import SourceFile, Span

FILE = SourceFile("test.cu", "\n" * 500)
_LINES = itertools.count(1)


def span() -> Span:
    return Span(FILE, next(_LINES) % 400 + 1, 1)


class E:
    """An expression of the surface tree with operators; a Python number beside it takes its type."""

    def __init__(self, tree: c.Expr) -> None:
        self.tree = tree

    @property
    def type(self) -> Type:
        return self.tree.type

    def _binary(self, op: str, other: Any, swap: bool = False) -> E:
        right = tree(other, self.type)
        left, right = (right, self.tree) if swap else (self.tree, right)
        both = isinstance(left.type, Pointer) and op == "-"
        kind: Type = I64 if both else BOOL if op in ("<", ">", "<=", ">=", "==", "!=") else self.type
        assert left.type == right.type or op in ("<<", ">>"), (left.type, op, right.type)
        return E(c.Binary(span(), kind, op, left, right))

    def __add__(self, o: Any) -> E:
        if isinstance(self.type, Pointer):
            return E(c.PointerAdd(span(), self.type, self.tree, tree(o, I32)))
        return self._binary("+", o)

    def __sub__(self, o: Any) -> E:
        return self._binary("-", o)

    def __mul__(self, o: Any) -> E:
        return self._binary("*", o)

    def __truediv__(self, o: Any) -> E:
        return self._binary("/", o)

    def __mod__(self, o: Any) -> E:
        return self._binary("%", o)

    def __lt__(self, o: Any) -> E:
        return self._binary("<", o)

    def __le__(self, o: Any) -> E:
        return self._binary("<=", o)

    def __gt__(self, o: Any) -> E:
        return self._binary(">", o)

    def __ge__(self, o: Any) -> E:
        return self._binary(">=", o)

    def eq(self, o: Any) -> E:
        return self._binary("==", o)

    def ne(self, o: Any) -> E:
        return self._binary("!=", o)

    def __neg__(self) -> E:
        return E(c.Unary(span(), self.type, "-", self.tree))

    def __invert__(self) -> E:
        return E(c.Unary(span(), BOOL, "!", self.tree))

    def __and__(self, o: E) -> E:
        return E(c.Logical(span(), BOOL, "&&", self.tree, o.tree))

    def __or__(self, o: E) -> E:
        return E(c.Logical(span(), BOOL, "||", self.tree, o.tree))

    def __getitem__(self, i: Any) -> E:
        base = self.tree
        if isinstance(base.type, Array):
            base = c.Decay(span(), Pointer(base.type.element), base)
        assert isinstance(base.type, Pointer)
        return E(c.Index(span(), base.type.element, base, tree(i, I32)))

    def to(self, kind: Type) -> E:
        return E(c.Cast(span(), kind, self.tree, False))

    # effects

    def set(self, value: Any) -> E:
        return E(c.Assign(span(), self.type, self.tree, tree(value, self.type)))

    def update(self, op: str, value: Any, computation: Scalar | None = None) -> E:
        kind = computation or self.type
        kind = I32 if isinstance(kind, Pointer) else kind
        return E(
            c.Assign(span(), self.type, self.tree, tree(value, kind), op, computation or (kind if isinstance(self.type, Scalar) else None))
        )

    def inc(self, op: str = "+", prefix: bool = True) -> E:
        return E(c.IncDec(span(), self.type, self.tree, op, prefix))

    @property
    def address(self) -> E:
        return E(c.AddressOf(span(), Pointer(self.type), self.tree))

    @property
    def deref(self) -> E:
        assert isinstance(self.type, Pointer)
        return E(c.Deref(span(), self.type.element, self.tree))


def tree(value: Any, kind: Type) -> c.Expr:
    return value.tree if isinstance(value, E) else c.Constant(span(), kind, value)


def const(value: Any, kind: Type = I32) -> E:
    return E(c.Constant(span(), kind, value))


def cond(condition: E, then: E, otherwise: Any) -> E:
    return E(c.Conditional(span(), then.type, condition.tree, then.tree, tree(otherwise, then.type)))


def comma(first: E, second: E) -> E:
    return E(c.Comma(span(), second.type, first.tree, second.tree))


def math_call(name: str, *arguments: E, type: Type | None = None) -> E:
    return E(c.MathCall(span(), type or arguments[0].type, name, tuple(a.tree for a in arguments)))


def atomic(op: str, pointer: E, *operands: Any) -> E:
    assert isinstance(pointer.type, Pointer)
    element = pointer.type.element
    return E(c.AtomicCall(span(), element, op, pointer.tree, tuple(tree(o, element) for o in operands)))


def launch(name: str, axis: str = "x") -> E:
    return E(c.LaunchIndex(span(), U32, name, axis))


_UIDS = itertools.count(1)


def var(name: str, kind: Type = I32, *, reference: bool = False, const: bool = False) -> E:
    return E(c.Name(span(), kind, c.Declaration(span(), name, kind, next(_UIDS), reference, "local", const)))


def pointer(name: str, element: Type = F32, const: bool = False) -> E:
    return var(name, Pointer(element, const))


def decl_of(e: E) -> c.Declaration:
    assert isinstance(e.tree, c.Name)
    return e.tree.declaration


# --- statements: expressions stand for themselves, lists are blocks ---


def stmt(s: Any) -> c.Stmt:
    if isinstance(s, E):
        return c.Evaluate(s.tree.span, s.tree)
    return c.Block(span(), tuple(stmt(x) for x in s)) if isinstance(s, (list, tuple)) else s


def declare(v: E, init: Any = None) -> c.Stmt:
    if isinstance(init, list):
        element = v.type
        while isinstance(element, Array):
            element = element.element
        return c.Declare(span(), decl_of(v), tuple(tree(x, element) for x in init))
    return c.Declare(span(), decl_of(v), None if init is None else tree(init, v.type))


def if_(condition: E, then: Any, otherwise: Any = None) -> c.Stmt:
    return c.If(span(), condition.tree, stmt(then), None if otherwise is None else stmt(otherwise))


def for_(init: Any, condition: E | None, step: E | None, body: Any) -> c.Stmt:
    return c.For(
        span(),
        None if init is None else stmt(init),
        None if condition is None else condition.tree,
        None if step is None else step.tree,
        stmt(body),
    )


def while_(condition: E, body: Any) -> c.Stmt:
    return c.While(span(), condition.tree, stmt(body))


def do_(body: Any, condition: E) -> c.Stmt:
    return c.DoWhile(span(), stmt(body), condition.tree)


def break_() -> c.Stmt:
    return c.Break(span())


def continue_() -> c.Stmt:
    return c.Continue(span())


def return_(value: E | None = None) -> c.Stmt:
    return c.Return(span(), None if value is None else value.tree)


def function(name: str, parameters: Sequence[E], body: Any, result: Type = VOID) -> c.Function:
    block = stmt(body if isinstance(body, list) else [body])
    assert isinstance(block, c.Block)
    return c.Function(span(), name, tuple(decl_of(p) for p in parameters), result, block, result == VOID)


def call(f: c.Function, *arguments: E) -> E:
    return E(c.HelperCall(span(), f.result, f, tuple(a.tree for a in arguments)))


# --- execution -----------------------------------------------------------------------------------------------------------------------


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class Box(list):  # type: ignore[type-arg]
    """A variable: one value."""

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


class Steps(Exception):
    """The program does not end."""


def convert(value: Any, kind: Type) -> Any:
    """C's conversion to a scalar type."""
    if not isinstance(kind, Scalar):
        return value
    if kind == BOOL:
        return bool(value != 0)
    if kind.is_float:
        with np.errstate(all="ignore"):
            return float(np.float32(value)) if kind == F32 else float(value)
    if isinstance(value, float):
        value = 0 if math.isnan(value) else int(max(min(value, 2.0**62), -(2.0**62)))
        low, high = (-(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1) if kind.is_signed else (0, (1 << kind.bits) - 1)
        return max(low, min(high, value))
    value = int(value) & ((1 << kind.bits) - 1)
    return value - (1 << kind.bits) if kind.is_signed and value >> (kind.bits - 1) else value


def compute(op: str, a: Any, b: Any, kind: Scalar) -> Any:
    """The operation on operands of type `kind`."""
    comparisons: dict[str, Callable[[], bool]] = {
        "<": lambda: a < b, ">": lambda: a > b, "<=": lambda: a <= b, ">=": lambda: a >= b, "==": lambda: a == b, "!=": lambda: a != b,
    }  # fmt: skip
    if op in comparisons:
        return comparisons[op]()
    if op in ("/", "%") and kind.is_integer:
        q = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return convert(q if op == "/" else a - q * b, kind)
    with np.errstate(all="ignore"):
        if op == "/":
            return convert(float(np.float64(a) / np.float64(b)), kind)
        table: dict[str, Callable[[], Any]] = {
            "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "&": lambda: a & b, "|": lambda: a | b, "^": lambda: a ^ b,
            "<<": lambda: a << b, ">>": lambda: a >> b,
        }  # fmt: skip
        return convert(table[op](), kind)


class Interpreter:
    """Runs a kernel's surface tree for one thread. Arrays are lists; a pointer is (list, offset)."""

    def __init__(self, index: dict[tuple[str, str], int], limit: int = 20000) -> None:
        self.index, self.left = index, limit
        self.vars: dict[c.Declaration, Any] = {}

    def run(self, f: c.Function, arguments: Sequence[Any]) -> Any:
        saved, self.vars = self.vars, {p: a if p.reference else Box([a]) for p, a in zip(f.parameters, arguments, strict=True)}
        try:
            self.stmt(f.body)
        except _Return as r:
            return r.value
        finally:
            self.vars = saved

    def stmt(self, s: c.Stmt | None) -> None:
        self.left -= 1
        if self.left < 0:
            raise Steps
        match s:
            case c.Declare(declaration=d, init=init):
                self.declare(d, init)
            case c.Evaluate(value=e):
                self.value(e)
            case c.Block(body=body):
                for x in body:
                    self.stmt(x)
            case c.Breakable(body=body):
                with contextlib.suppress(_Break):
                    self.stmt(body)
            case c.If(condition=e, then=then, otherwise=otherwise):
                self.stmt(then) if self.value(e) else otherwise and self.stmt(otherwise)
            case c.For(init=init, condition=e, step=step, body=body):
                if init:
                    self.stmt(init)
                self.loop(e, body, step)
            case c.While(condition=e, body=body):
                self.loop(e, body, None)
            case c.DoWhile(condition=e, body=body):
                self.loop(e, body, None, first=True)
            case _:
                self.exit(s)

    def exit(self, s: c.Stmt | None) -> None:
        match s:
            case c.Break():
                raise _Break
            case c.Continue():
                raise _Continue
            case c.Return(value=e):
                raise _Return(None if e is None else self.value(e))

    def loop(self, e: c.Expr | None, body: c.Stmt, step: c.Expr | None, first: bool = False) -> None:
        while first or e is None or self.value(e):
            first = False
            try:
                self.stmt(body)
            except _Break:
                return
            except _Continue:
                pass
            if step is not None:
                self.value(step)

    def declare(self, d: c.Declaration, init: Any) -> None:
        if d.reference:
            self.vars[d] = self.place(init)
        elif isinstance(d.type, Array):
            n = d.type.length * (d.type.element.length if isinstance(d.type.element, Array) else 1)
            self.vars[d] = ([self.value(x) for x in init] if init is not None else [12345] * n, 0)
        else:
            self.vars[d] = Box([0 if init is None else self.value(init)])

    def place(self, e: c.Expr) -> tuple[list[Any], int]:
        match e:
            case c.Name(declaration=d):
                held = self.vars[d]
                return (held, 0) if isinstance(held, Box) else held
            case c.Index(pointer=p, index=i):
                memory, offset = self.value(p)
                return memory, offset + self.value(i) * (e.type.length if isinstance(e.type, Array) else 1)
            case c.Deref(pointer=p):
                return self.value(p)
        raise AssertionError(e)

    def store(self, at: tuple[list[Any], int], value: Any) -> None:
        assert 0 <= at[1] < len(at[0]), "out of bounds"
        at[0][at[1]] = value

    def value(self, e: c.Expr) -> Any:
        match e:
            case c.Constant(value=v):
                return convert(v, e.type)
            case c.Name() | c.Index() | c.Deref():
                memory, offset = self.place(e)
                assert 0 <= offset < len(memory), "out of bounds"
                return memory[offset]
            case c.LaunchIndex(name=n, axis=a):
                return self.index[n, a]
            case c.Unary(op=op, operand=a):
                v = self.value(a)
                return (not v) if op == "!" else convert(-v if op == "-" else ~v, e.type)
            case c.Binary(op=op, left=a, right=b):
                x, y = self.value(a), self.value(b)
                return (x[1] - y[1] if op == "-" else compute(op, x[1], y[1], I64)) if isinstance(x, tuple) else compute(op, x, y, a.type)
            case c.PointerAdd(pointer=p, offset=o):
                memory, offset = self.value(p)
                return memory, offset + self.value(o)
            case c.Logical(op=op, left=a, right=b):
                return (self.value(a) and self.value(b)) if op == "&&" else (self.value(a) or self.value(b))
            case c.Conditional(condition=q, then=a, otherwise=b):
                return self.value(a) if self.value(q) else self.value(b)
            case c.Cast(operand=a):
                return convert(self.value(a), e.type)
            case c.Decay(array=a) | c.AddressOf(lvalue=a):
                return self.place(a)
            case c.MathCall(function=f, arguments=args):
                return self.math(f, [self.value(a) for a in args], e.type)
        return self.effect(e)

    def effect(self, e: c.Expr) -> Any:
        match e:
            case c.Comma(first=a, second=b):
                self.value(a)
                return self.value(b)
            case c.Assign():
                return self.assign(e)
            case c.IncDec(target=t, op=op, prefix=prefix):
                at = self.place(t)
                old = at[0][at[1]]
                step = 1 if op == "+" else -1
                new = (old[0], old[1] + step) if isinstance(old, tuple) else convert(old + step, t.type)
                self.store(at, new)
                return new if prefix else old
            case c.HelperCall(function=g, arguments=args):
                values = [self.place(a) if p.reference else self.value(a) for p, a in zip(g.parameters, args, strict=True)]
                return self.run(g, values)
            case c.AtomicCall(op=op, pointer=p, operands=ops):
                at, v = self.value(p), self.value(ops[0])
                old = at[0][at[1]]
                new = {"add": lambda: old + v, "sub": lambda: old - v, "max": lambda: max(old, v), "exch": lambda: v}[op]()
                self.store(at, convert(new, e.type))
                return old
        raise AssertionError(e)

    def assign(self, e: c.Assign) -> Any:
        value = self.value(e.value)
        at = self.place(e.target)
        if e.op is not None:
            old = at[0][at[1]]
            if isinstance(old, tuple):
                value = (old[0], old[1] + (value if e.op == "+" else -value))
            else:
                kind = e.computation or e.target.type
                value = convert(compute(e.op, convert(old, kind), value, kind), e.target.type)
        self.store(at, value)
        return value

    def math(self, f: str, args: list[Any], kind: Type) -> Any:
        table = {"sin": math.sin, "fabs": abs, "abs": abs, "min": min, "max": max, "fmax": max}
        return convert(table[f](*args), kind)
