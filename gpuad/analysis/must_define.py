"""Must-define before use: whether each iteration of a loop stores all that it reads of a shared array, for the numbers of one launch.

Then no value of the array crosses from one iteration to the next, and the reverse pass may build the tile again instead of recording it.
The loop's body is executed for the threads of one block over what is known before the launch: their indices, integer parameters, bounds of
inner loops. What depends on memory, on the block or on the iteration is unknown; where that does not do, as for a last tile that is filled
in part, the body is executed once more, for all iterations side by side, if their number is known. A store counts where it is surely
executed, a load where it may be; that the loads see the stores across threads is what the barriers of the primal are for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..ir import nodes as ir
from ..ir.dtypes import Array
from ..ir.rewrite import blocks, defined, walk_stmts
from ..ir.types import Scalar
from .affine_forms import Launch, limits

STEPS = 20_000  # iterations of inner loops; beyond them nothing is proved
WORK = 1 << 25  # the same, counted for each thread in each of the iterations that are executed side by side


class Unproved(Exception):
    """A load may see what its iteration has not stored."""


def defines_before_use(kernel: ir.Kernel, loop: ir.For | ir.While, buffer: ir.Buffer, launch: Launch) -> bool:
    """Whether, in this launch, every iteration of the loop stores each element of the shared array before it may load it."""
    return any(_shown(_Walk(buffer, launch, by_iteration), kernel, loop) for by_iteration in (False, True))


def _shown(walk: _Walk, kernel: ir.Kernel, loop: ir.For | ir.While) -> bool:
    try:
        walk.up_to(kernel.body, loop)
    except Unproved:
        return False
    return True


@dataclass
class _Walk:
    """`by_iteration`: iterations are distinguished. An array of threads is `all` in shape, or goes with it: iterations, threads."""

    buffer: ir.Buffer
    launch: Launch
    by_iteration: bool = False
    known: dict[ir.Var, Array] = field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        x, y, z = self.launch.block
        number = np.arange(x * y * z, dtype=np.int64)
        self.index = {"x": number % x, "y": number // x % y, "z": number // (x * y)}
        self.begin(1)
        self.known.update({v: np.array([n], np.int64) for v, n in self.launch.scalars.items()})

    def begin(self, iterations: int) -> None:
        """So many iterations, none of which has stored anything yet."""
        x, y, z = self.launch.block
        self.all = np.ones((iterations, x * y * z), np.bool_)
        self.stored = np.zeros((iterations, self.buffer.length or 0), np.bool_)
        self.rows = np.broadcast_to(np.arange(iterations)[:, None], self.all.shape)

    # --- before the loop -------------------------------------------------------------------------------------------------------------

    def up_to(self, block: ir.Block, loop: ir.Stmt) -> bool:
        """Collects what is known on the way to the loop, then runs one iteration of it; whether it was met."""
        for stmt in block:
            if stmt is loop:
                self.iterate(stmt)
                return True
            if any(any(s is loop for s in walk_stmts(inner)) for inner in blocks(stmt)):
                return any(self.up_to(inner, loop) for inner in blocks(stmt))
            if isinstance(stmt, ir.Let):
                self.let(stmt)
        return False

    def iterate(self, loop: ir.Stmt) -> None:
        """Runs an iteration of the loop, whichever it is, or each of them."""
        if self.by_iteration:
            if not isinstance(loop, ir.For) or loop.backward:
                raise Unproved
            positions = self.positions(loop)
            self.begin(len(positions))
            self.forget(loop)
            self.known[loop.var] = positions[:, None]
        for inner in blocks(loop):
            self.block(inner, self.all, self.all)

    def positions(self, loop: ir.For) -> Array:
        """The values of the loop's variable. Unproved if they are not known, not the same for all threads, or too many."""
        given = [self.value(e) for e in (loop.start, loop.stop, loop.step)]
        if any(g is None or g.size != 1 for g in given):
            raise Unproved
        start, stop, step = (int(g.item()) for g in given if g is not None)
        if step == 0 or len(range(start, stop, step)) * self.all.size > WORK:
            raise Unproved
        return np.arange(start, stop, step, dtype=np.int64)

    # --- an iteration ----------------------------------------------------------------------------------------------------------------

    def block(self, block: ir.Block, may: Array, must: Array) -> None:
        """Runs statements for the threads that may, and those that surely do."""
        for stmt in block:
            self.stmt(stmt, may, must)

    def stmt(self, stmt: ir.Stmt, may: Array, must: Array) -> None:
        match stmt:
            case ir.Let():
                self.let(stmt)
            case ir.Load(buffer=b, index=i) if b == self.buffer:
                self.load(i, may)
            case ir.Store(buffer=b, index=i) if b == self.buffer:
                self.store(i, must)
            case ir.Accumulate(buffer=b, index=i) if b == self.buffer:
                self.load(i, may)
            case ir.Atomic(buffer=b, index=i, var=old) if b == self.buffer:
                self.load(i, may)
                if old is not None:
                    self.known.pop(old, None)
            case ir.Take(buffer=b) if b == self.buffer:
                raise Unproved
            case ir.If():
                self.branch(stmt, may, must)
            case ir.For():
                self.counted(stmt, may, must)
            case ir.While():
                self.somehow(stmt, self.followed(stmt, may, must) if self.by_iteration else may)
            case _:
                for v in defined(stmt):
                    self.known.pop(v, None)

    def let(self, stmt: ir.Let) -> None:
        value = self.value(stmt.value)
        if value is None:
            self.known.pop(stmt.var, None)
        else:
            self.known[stmt.var] = value

    def load(self, index: ir.Expr, may: Array) -> None:
        at = self.value(index)
        if self.stored.all():
            return  # wherever it is, if it is inside
        if at is None or not self.inside(at, may) or not self.stored[self.rows[may], self.spread(at)[may]].all():
            raise Unproved

    def store(self, index: ir.Expr, must: Array) -> None:
        at = self.value(index)
        if at is not None and self.inside(at, must):
            self.stored[self.rows[must], self.spread(at)[must]] = True

    def inside(self, at: Array, threads: Array) -> bool:
        chosen = self.spread(at)[threads]
        return bool(((chosen >= 0) & (chosen < self.stored.shape[1])).all())

    def spread(self, value: Array) -> Array:
        return np.broadcast_to(value, self.all.shape)

    def branch(self, stmt: ir.If, may: Array, must: Array) -> None:
        condition = self.value(stmt.condition)
        if condition is None:
            sides = ((stmt.then, may, ~self.all), (stmt.otherwise, may, ~self.all))
        else:
            holds = self.spread(condition) != 0
            sides = ((stmt.then, may & holds, must & holds), (stmt.otherwise, may & ~holds, must & ~holds))
        for block, some, sure in sides:
            if some.any():
                self.block(block, some, sure)
        for m in stmt.merges:
            a, b = self.value(m.then), self.value(m.otherwise)
            if condition is None or a is None or b is None:
                self.known.pop(m.var, None)
            else:
                self.known[m.var] = np.where(condition != 0, a, b)

    def counted(self, loop: ir.For, may: Array, must: Array) -> None:
        start, stop, step = (self.value(e) for e in (loop.start, loop.stop, loop.step))
        self.forget(loop)
        if start is None or stop is None or step is None or (step == 0).any() or loop.backward:
            self.block(loop.body, may, ~self.all)
        else:
            position = self.spread(start)
            while True:
                live = np.where(step > 0, position < stop, position > stop)
                if not (may & live).any():
                    break
                self.step()
                self.forget(loop)
                self.known[loop.var] = position
                self.block(loop.body, may & live, must & live)
                position = position + step
        self.forget(loop)

    def step(self) -> None:
        self.steps += 1
        if self.steps > STEPS or (self.by_iteration and self.steps * self.all.size > WORK):
            raise Unproved

    def followed(self, loop: ir.While, may: Array, must: Array) -> Array:
        """Executes the loop as long as its condition is known; the threads that may still be in it."""
        state = {c: self.value(c.init) for c in loop.carried}
        while may.any():
            self.forget(loop)
            self.known.update({c.var: value for c, value in state.items() if value is not None})
            self.block(loop.header, may, must)
            condition = self.value(loop.condition)
            if condition is None:
                break
            self.step()
            may, must = (threads & (self.spread(condition) != 0) for threads in (may, must))
            self.block(loop.body, may, must)
            state = {c: _moved(may, self.value(c.next), before) for c, before in state.items()}
        return may

    def somehow(self, loop: ir.While, may: Array) -> None:
        """Executes the loop without knowing anything of the iteration, for the threads that may come to it."""
        self.forget(loop)
        if may.any():
            self.block(loop.header, may, ~self.all)
            self.block(loop.body, may, ~self.all)
            self.forget(loop)

    def forget(self, loop: ir.For | ir.While) -> None:
        """What a loop carries and defines is not known."""
        names = {v for c in loop.carried for v in (c.var, c.result)}
        names |= {v for inner in blocks(loop) for s in walk_stmts(inner) for v in defined(s)}
        if isinstance(loop, ir.While):
            names |= {v for v in (loop.counter, loop.count) if v is not None}
        for v in names:
            self.known.pop(v, None)

    # --- values ----------------------------------------------------------------------------------------------------------------------

    def value(self, expr: ir.Expr) -> Array | None:
        """An integer or bool for each thread (or one for all); None if it is not known, or would leave its type."""
        if expr.type.is_float:
            return None
        found = self._value(expr)
        if found is None or expr.type.kind == "bool":
            return found
        low, high = limits(expr.type)
        return found if ((found >= low) & (found <= high)).all() else None

    def _value(self, expr: ir.Expr) -> Array | None:
        match expr:
            case ir.Constant(value=v):
                return np.array([int(v)], np.int64) if abs(int(v)) < 1 << 40 else None
            case ir.Var():
                return self.known.get(expr)
            case ir.LaunchIndex(name="threadIdx", axis=axis):
                return self.index[axis]
            case ir.LaunchIndex(name="blockDim" | "gridDim" as name, axis=axis):
                extents = self.launch.block if name == "blockDim" else self.launch.grid
                return np.array([extents["xyz".index(axis)]], np.int64)
            case ir.Cast(operand=a, type=t):
                return self._cast(a, t)
        parts = [self.value(c) for c in ir.children(expr)]
        if not parts or any(p is None for p in parts):
            return None
        return _operate(expr, [p for p in parts if p is not None])

    def _cast(self, operand: ir.Expr, kind: Scalar) -> Array | None:
        value = self.value(operand)
        if value is None or kind.is_float:
            return None
        if kind.kind == "bool":
            return np.asarray(value != 0, np.int64)
        bits = kind.bits
        if bits == 64:
            return value
        wrapped = value & ((1 << bits) - 1)
        return np.where(wrapped >= 1 << (bits - 1), wrapped - (1 << bits), wrapped) if kind.is_signed else wrapped


def _moved(threads: Array, after: Array | None, before: Array | None) -> Array | None:
    """What a variable is once some threads have gone on, if it is known."""
    return None if after is None or before is None else np.where(threads, after, before)


def _operate(expr: ir.Expr, parts: list[Array]) -> Array | None:
    match expr:
        case ir.Unary(op="-"):
            return -parts[0]
        case ir.Unary(op="!"):
            return 1 - parts[0]
        case ir.Call(function="min"):
            return np.minimum(*parts)
        case ir.Call(function="max"):
            return np.maximum(*parts)
        case ir.Select():
            return np.where(parts[0] != 0, parts[1], parts[2])
        case ir.Binary(op=op):
            return _binary(op, *parts)
    return None


def _binary(op: str, a: Array, b: Array) -> Array | None:
    if max(int(abs(a).max()), int(abs(b).max())) >= 1 << 31 and op in ("*", "<<", ">>", "/", "%"):
        return None
    match op:
        case "/" | "%":
            if (b == 0).any():
                return None
            quotient = np.sign(a) * np.sign(b) * (abs(a) // abs(b))  # towards zero
            return np.asarray(quotient if op == "/" else a - b * quotient)
        case "<<" | ">>":
            if ((b < 0) | (b > 30)).any():
                return None
            return np.asarray(np.left_shift(a, b) if op == "<<" else np.right_shift(a, b))
    simple = _SIMPLE.get(op)
    return None if simple is None else np.asarray(simple(a, b)).astype(np.int64)


_SIMPLE: Mapping[str, Any] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
    "==": np.equal, "!=": np.not_equal, "&&": np.logical_and, "||": np.logical_or,
    "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
}  # fmt: skip
