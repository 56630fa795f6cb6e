"""Random core IR kernels for comparing executors: every statement and operator of one thread, few names, so that variables collide.

Each thread writes only its own elements, apart from atomic integer sums and sums over the block of whole numbers, so that every order of
threads gives the same bits. Floating point uses only operations that IEEE 754 rounds correctly.
"""

from __future__ import annotations

import random
from dataclasses import replace

from gpuad.ir.nodes import (
    Accumulate,
    Alloc,
    Assign,
    Atomic,
    Binary,
    Block,
    Buffer,
    Call,
    Carried,
    Cast,
    Constant,
    Expr,
    For,
    How,
    If,
    Kernel,
    LaunchIndex,
    Let,
    Load,
    Merge,
    Select,
    Stmt,
    Store,
    Take,
    Unary,
    Var,
    While,
)
from gpuad.ir.types import BOOL, F32, F64, I8, I16, I32, I64, U8, U32, U64, Scalar, Space

TYPES = (I32, I32, I32, F32, F32, F64, U32, I64, U64, BOOL)
SIZE = 64  # elements of each input
SLOTS = 4  # elements of each output that a thread owns
OPERATORS = ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")


class RandomKernel:
    """Builds one kernel from a seed. Parameters: f (float32 in), g (int32 in), p (float32), q (int32), r (float64) out, c (int32) counters,
    d (float64) sums, n (int32). `alone`: no thread meets another at memory, and none has arrays of its own."""

    def __init__(self, seed: int, alone: bool = False) -> None:
        self.alone = alone
        self.random = random.Random(seed)
        self.uid = 100
        self.f, self.g = Buffer("f", F32, uid=1), Buffer("g", I32, uid=2)
        self.p, self.q, self.r = Buffer("p", F32, uid=3), Buffer("q", I32, uid=4), Buffer("r", F64, uid=5)
        self.c, self.d = Buffer("c", I32, uid=6), Buffer("d", F64, uid=7)
        self.n, self.i = Var("n", I32, 8), Var("i", I32, 9)
        self.uniform = True
        self.budget = 40
        body = (self.thread(), *self.block([self.n, self.i], [], 0))
        self.kernel = Kernel(f"k{seed}", (self.f, self.g, self.p, self.q, self.r, self.c, self.d, self.n), body)

    def thread(self) -> Let:
        product = Binary("*", LaunchIndex("blockIdx", "x"), LaunchIndex("blockDim", "x"), U32)
        index = Binary("+", product, LaunchIndex("threadIdx", "x"), U32)
        return Let(self.i, Cast(index, I32))

    def var(self, t: Scalar) -> Var:
        self.uid += 1
        return Var(self.random.choice("absxn"), t, self.uid)

    # --- expressions ---

    def expr(self, t: Scalar, scope: list[Var], depth: int = 0) -> Expr:
        known = [v for v in scope if v.type == t]
        if known and self.random.random() < 0.35 + 0.2 * depth:
            return self.random.choice(known)
        if depth > 2 or self.random.random() < 0.15:
            return self.constant(t)
        if t == BOOL:
            return self.condition(scope, depth)
        return self.float(t, scope, depth) if t.is_float else self.integer(t, scope, depth)

    def constant(self, t: Scalar) -> Constant:
        pick = self.random.choice
        if t == BOOL:
            return Constant(pick((True, False)), t)
        if t.is_float:
            return Constant(pick((0.0, -0.0, 1.0, 0.1, -2.5, 1e-7, 3e20, float("inf"), float("nan"))), t)
        return Constant(pick((0, 1, 2, 3, 7, 31, 40, 100, -1 if t.is_signed else 5, -(2 ** (t.bits - 1)) if t.is_signed else 9)), t)

    def condition(self, scope: list[Var], depth: int) -> Expr:
        if self.random.random() < 0.3:
            a, b = self.expr(BOOL, scope, depth + 1), self.expr(BOOL, scope, depth + 1)
            return self.random.choice((Binary("&&", a, b, BOOL), Binary("||", a, b, BOOL), Unary("!", a, BOOL), Binary("==", a, b, BOOL)))
        t = self.random.choice((I32, I32, F32, F64, U32, I64, U64))
        op = self.random.choice(["<", ">", "<=", ">=", "==", "!="])
        return Binary(op, self.expr(t, scope, depth + 1), self.expr(t, scope, depth + 1), BOOL)

    def float(self, t: Scalar, scope: list[Var], depth: int) -> Expr:
        def inner() -> Expr:
            return self.expr(t, scope, depth + 1)

        match self.random.randrange(8):
            case 0:
                return Unary("-", inner(), t)
            case 1:
                return Cast(self.expr(self.random.choice(TYPES), scope, depth + 1), t)
            case 2:
                return Select(self.expr(BOOL, scope, depth + 1), inner(), inner())
            case 3:
                return Call(self.random.choice(("fabs", "floor", "trunc", "sqrt")), (inner(),), t)
        return Binary(self.random.choice("+-*/"), inner(), inner(), t)

    def integer(self, t: Scalar, scope: list[Var], depth: int) -> Expr:
        def inner() -> Expr:
            return self.expr(t, scope, depth + 1)

        match self.random.randrange(10):
            case 0:
                return Unary(self.random.choice("-~"), inner(), t)
            case 1 | 2:
                return Cast(self.expr(self.random.choice(TYPES), scope, depth + 1), t)
            case 3:
                return Cast(Cast(inner(), self.random.choice((I8, U8, I16))), t)
            case 4:
                return Select(self.expr(BOOL, scope, depth + 1), inner(), inner())
            case 5:
                return Call(self.random.choice(("min", "max")), (inner(), inner()), t)
            case 6 if t == U32:
                return LaunchIndex(self.random.choice(("threadIdx", "blockIdx", "blockDim", "gridDim")), self.random.choice("xy"))
        return Binary(self.random.choice(OPERATORS), inner(), inner(), t)

    # --- statements ---

    def block(self, scope: list[Var], arrays: list[Buffer], depth: int) -> Block:
        """Adds what it defines to `scope` and `arrays`."""
        result: list[Stmt] = []
        for _ in range(self.random.randint(2, 7 if depth == 0 else 4)):
            self.budget -= 1
            if self.budget > 0 or not result:
                result += self.statement(scope, arrays, depth)
        return tuple(result)

    def statement(self, scope: list[Var], arrays: list[Buffer], depth: int) -> list[Stmt]:
        kinds = [
            self.let,
            self.let,
            self.load,
            self.load,
            self.store,
            self.store,
            self.accumulate,
            self.take,
            self.counters,
            self.assigned,
            self.array,
        ]
        if self.alone:
            kinds = [*kinds[:-4], self.assigned]
        if depth < 3:
            kinds += [self.branch, self.branch, self.loop, self.loop, self.while_loop]
        return self.random.choice(kinds)(scope, arrays, depth)

    def let(self, scope: list[Var], arrays: list[Buffer], depth: int) -> list[Stmt]:
        t = self.random.choice(TYPES)
        value = self.expr(t, scope)
        var = self.var(t)
        scope.append(var)
        return [Let(var, value)]

    def assigned(self, scope: list[Var], arrays: list[Buffer], depth: int) -> list[Stmt]:
        var = self.var(self.random.choice((F32, I32)))
        first = Let(var, self.expr(var.type, scope))
        scope.append(var)
        middle = self.statement(scope, arrays, depth + 1)
        second = Assign(var, self.expr(var.type, scope))
        if self.random.random() < 0.4:
            return [first, *middle, If(self.expr(BOOL, scope), (second,))]
        return [first, *middle, second]

    def own(self) -> Expr:
        """The index of one of the thread's own elements."""
        four = Binary("*", self.i, Constant(SLOTS, I32), I32)
        return Binary("+", four, Constant(self.random.randrange(SLOTS), I32), I32)

    def masked(self, scope: list[Var], size: int) -> Expr:
        t = self.random.choice((I32, I32, U32))
        if self.random.random() < 0.3:
            return self.i
        return Binary("&", self.expr(t, scope, 1), Constant(size - 1, t), t)

    def place(self, scope: list[Var], arrays: list[Buffer]) -> tuple[Buffer, Expr]:
        if arrays and self.random.random() < 0.3:
            return self.random.choice(arrays), self.masked_array(scope)
        return self.random.choice((self.p, self.q, self.r)), self.own()

    def masked_array(self, scope: list[Var]) -> Expr:
        return Binary("&", self.expr(I32, scope, 1), Constant(3, I32), I32)

    def load(self, scope: list[Var], arrays: list[Buffer], depth: int) -> list[Stmt]:
        buffer, index = self.place(scope, arrays)
        if self.random.random() < 0.5:
            buffer, index = self.random.choice((self.f, self.g)), self.masked(scope, SIZE)
        var = self.var(buffer.element)
        scope.append(var)
        return [Load(var, buffer, index)]

    def store(self, scope: list[Var], arrays: list[Buffer], depth: int) -> list[Stmt]:
        buffer, index = self.place(scope, arrays)
        return [Store(buffer, index, self.expr(buffer.element, scope))]

    def accumulate(self, scope: list[Var], arrays: list[Buffer], depth: int) -> list[Stmt]:
        buffer, index = self.place(scope, arrays)
        return [Accumulate(buffer, index, self.expr(buffer.element, scope), How.PLAIN)]

    def take(self, scope: list[Var], arrays: list[Buffer], depth: int) -> list[Stmt]:
        buffer, index = self.place(scope, arrays)
        var = self.var(buffer.element)
        how = How.PLAIN if self.alone or buffer.space is Space.LOCAL else self.random.choice((How.PLAIN, How.ATOMIC))
        scope.append(var)
        return [Take(var, buffer, index, how)]

    def counters(self, scope: list[Var], arrays: list[Buffer], depth: int) -> list[Stmt]:
        index = Constant(self.random.randrange(4), I32)
        if depth == 0 and self.random.random() < 0.5:
            whole = Cast(Binary("&", self.expr(I32, scope), Constant(1023, I32), I32), F64)
            return [Accumulate(self.d, index, whole, How.REDUCED)]
        op = self.random.choice(("add", "sub"))
        return [Atomic(op, None, self.c, index, (Binary("&", self.expr(I32, scope), Constant(1023, I32), I32),))]

    def array(self, scope: list[Var], arrays: list[Buffer], depth: int) -> list[Stmt]:
        self.uid += 1
        arrays.append(Buffer(self.random.choice("abl"), self.random.choice((F32, I32)), Space.LOCAL, 4, self.uid))
        return [Alloc(arrays[-1], zero=True)]

    def branch(self, scope: list[Var], arrays: list[Buffer], depth: int) -> list[Stmt]:
        condition = self.expr(BOOL, scope)
        then_scope, else_scope = list(scope), list(scope)
        then: Block = () if self.random.random() < 0.2 else self.block(then_scope, list(arrays), depth + 1)
        otherwise: Block = () if self.random.random() < 0.5 else self.block(else_scope, list(arrays), depth + 1)
        if self.random.random() < 0.15:
            otherwise, else_scope = then, then_scope
        merges = []
        for _ in range(self.random.randrange(3)):
            t = self.random.choice((F32, I32, F64))
            merges.append(Merge(self.var(t), self.expr(t, then_scope, 1), self.expr(t, else_scope, 1)))
        merges = [self.renamed(m) for m in merges]
        scope += [m.var for m in merges]
        return [If(condition, then, otherwise, tuple(merges))]

    def renamed(self, merge: Merge) -> Merge:
        """A merge named like one of its sides, as normalisation leaves them."""
        side = merge.then if isinstance(merge.then, Var) else merge.otherwise
        return replace(merge, var=replace(merge.var, name=side.name)) if isinstance(side, Var) else merge

    def carried(self, scope: list[Var]) -> list[Carried]:
        result = []
        for _ in range(self.random.randrange(4)):
            t = self.random.choice((F32, I32, I32, F64))
            init = self.expr(t, scope, 1)
            var = self.var(t)
            if isinstance(init, Var) and self.random.random() < 0.6:
                var = replace(var, name=init.name)
            self.uid += 1
            result.append(Carried(var, init, var, replace(var, uid=self.uid)))
        return result

    def with_next(self, carried: list[Carried], scope: list[Var]) -> tuple[Carried, ...]:
        return tuple(replace(c, next=self.expr(c.var.type, scope, 1)) for c in carried)

    def loop(self, scope: list[Var], arrays: list[Buffer], depth: int) -> list[Stmt]:
        t = self.random.choice((I32, I32, U32, I64))
        small = Binary("&", self.expr(t, scope, 1), Constant(3, t), t)
        start, stop = Constant(self.random.randrange(3), t), self.random.choice((small, Constant(5, t)))
        step: Expr = Constant(self.random.choice((1, 1, 2, 3)), t)
        if t.is_signed and self.random.random() < 0.3:
            start, stop, step = Constant(4, t), small, Constant(self.random.choice((-1, -2)), t)
        if self.random.random() < 0.2:
            step = Binary("+", Binary("&", self.expr(t, scope, 1), Constant(1, t), t), Constant(1, t), t)
            start, stop = Constant(0, t), Constant(4, t)
        carried = self.carried(scope)
        index = self.var(t)
        inner = [*scope, index, *(c.var for c in carried)]
        body = self.block(inner, list(arrays), depth + 1)
        scope += [c.result for c in carried]
        return [For(index, start, stop, step, body, self.with_next(carried, inner), self.random.random() < 0.4)]

    def while_loop(self, scope: list[Var], arrays: list[Buffer], depth: int) -> list[Stmt]:
        self.uid += 2
        counter, count = Var("k", I32, self.uid - 1), Var("k", I32, self.uid)
        carried = self.carried(scope)
        inner = [*scope, counter, *(c.var for c in carried)]
        header: list[Stmt] = []
        for _ in range(self.random.randrange(3)):
            header += self.random.choice((self.let, self.load))(inner, arrays, depth)
        limit = Binary("<", counter, Constant(self.random.randrange(5), I32), BOOL)
        condition = self.random.choice((limit, Binary("&&", limit, self.expr(BOOL, inner, 1), BOOL)))
        body = self.block(inner, list(arrays), depth + 1)
        scope += [c.result for c in carried]
        wanted = self.random.random() < 0.5
        if wanted:
            scope.append(count)
        return [While(tuple(header), condition, body, self.with_next(carried, inner), counter, count if wanted else None)]
