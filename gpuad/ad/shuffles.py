"""The adjoint of a warp shuffle: each lane gets back what the lanes that read it have collected.

A shuffle moves values between lanes; its adjoint moves adjoints the other way. `down` is undone by `up`, `up` by `down`, `xor` by itself; a
lane that got its own value, because it asked for one beyond its segment, keeps its adjoint (RULES, V6). For `__shfl_sync` every lane may
have read any lane: each asks all others in turn. A lane collects only from lanes that took part in the shuffle: those that the mask names
and that the block has.
"""

from __future__ import annotations

from ..ir import build as b
from ..ir.names import Names
from ..ir.nodes import Binary, Block, Carried, Constant, Expr, For, LaunchIndex, Let, Shuffle, Stmt, Var
from ..ir.types import BOOL, I32, U32

WARP = 32


def adjoint_of(stmt: Shuffle, seed: Var, names: Names) -> tuple[Block, Expr]:
    """Statements, and the adjoint of the shuffled value, from the adjoint `seed` of what the shuffle gave. All lanes that ran the shuffle
    have to run them."""
    task = _Adjoint(stmt, seed, names)
    result = task.gathered() if stmt.op == "" else task.sent_back()
    return tuple(task.out), result


def thread_of_block() -> Expr:
    """The number of this thread in its block, an int32."""
    return Binary("+", _index("threadIdx", "x"), _times(_index("blockDim", "x"), _rest()), I32)


def _rest() -> Expr:
    return Binary("+", _index("threadIdx", "y"), _times(_index("blockDim", "y"), _index("threadIdx", "z")), I32)


def _index(name: str, axis: str) -> Expr:
    return b.cast(LaunchIndex(name, axis), I32)


def _times(x: Expr, y: Expr) -> Expr:
    return Binary("*", x, y, I32)


class _Adjoint:
    def __init__(self, stmt: Shuffle, seed: Var, names: Names) -> None:
        self.stmt = stmt
        self.seed = seed
        self.names = names
        self.out: list[Stmt] = []
        self.thread = self.let("thread", thread_of_block())
        self.lane = self.let("lane", Binary("&", self.thread, b.const(WARP - 1, I32), I32))
        self.width = b.cast(stmt.width, I32)
        last = Binary("-", self.width, b.const(1, I32), I32) if not isinstance(self.width, Constant) else b.const(self.width.value - 1, I32)
        self.low = self.lane if b.is_const(self.width, WARP) else self.let("low", Binary("&", self.lane, last, I32))
        self.last = last

    def let(self, name: str, value: Expr) -> Var:
        var = self.names.var(name, value.type)
        self.out.append(Let(var, value, span=self.stmt.span))
        return var

    def shuffle(self, op: str, value: Expr, lane: Expr, width: Expr) -> Var:
        var = self.names.var(self.seed.name, value.type)
        self.out.append(Shuffle(var, op, self.stmt.mask, value, lane, width, span=self.stmt.span))
        return var

    def takes_part(self, lane: Expr) -> Expr:
        """Whether a lane of this warp ran the shuffle."""
        bit = Binary("&", Binary(">>", self.stmt.mask, b.cast(lane, U32), U32), b.const(1, U32), U32)
        size = _times(_index("blockDim", "x"), _times(_index("blockDim", "y"), _index("blockDim", "z")))
        there = b.compare("<", Binary("+", Binary("-", self.thread, self.lane, I32), lane, I32), size)
        return there if _is_full(self.stmt.mask) else Binary("&&", there, b.compare("!=", bit, b.const(0, U32)), BOOL)

    def kept(self, condition: Expr, value: Expr) -> Expr:
        return b.select(condition, value, b.zero(value.type))

    def sent_back(self) -> Expr:
        """For `up`, `down` and `xor`."""
        stmt, low, width = self.stmt, b.cast(self.low, U32), b.cast(self.width, U32)
        room = Binary("-", width, low, U32)
        if stmt.op == "xor":
            return self.exchanged()
        step = self.let("distance", b.cast(stmt.lane, U32))
        if stmt.op == "down":
            own, comes, sign = b.compare(">=", step, room), b.compare("<=", step, low), "-"
        else:
            own, comes, sign = b.compare(">", step, low), b.compare("<", step, room), "+"
        got = self.shuffle("up" if stmt.op == "down" else "down", self.seed, stmt.lane, stmt.width)
        source = Binary(sign, self.lane, b.cast(step, I32), I32)
        return self.both(own, comes, source, got)

    def exchanged(self) -> Expr:
        """For `xor`. A lane may read a segment before its own, but gets its own value where the other lies in a segment after it."""
        step = self.let("distance", Binary("&", b.cast(self.stmt.lane, I32), b.const(WARP - 1, I32), I32))
        other = self.let("other", Binary("^", self.lane, step, I32))
        start = Binary("-", self.lane, self.low, I32)
        theirs = Binary("-", other, Binary("&", other, self.last, I32), I32)
        own = b.compare(">=", other, Binary("+", start, self.width, I32))
        comes = b.compare("<", self.lane, Binary("+", theirs, self.width, I32))
        got = self.shuffle("xor", self.seed, step, b.const(WARP, I32))
        if b.is_const(self.width, WARP):
            return self.kept(self.takes_part(other), got)
        return self.both(own, comes, other, got)

    def both(self, own: Expr, comes: Expr, source: Expr, got: Var) -> Expr:
        """What a lane keeps for its own value, and what comes from the lane that read it."""
        valid = Binary("&&", comes, self.takes_part(source), BOOL)
        return Binary("+", self.kept(own, self.seed), self.kept(valid, got), self.seed.type)

    def gathered(self) -> Expr:
        """For `__shfl_sync`: the sum over the lanes of the segment that read this one."""
        stmt = self.stmt
        wanted = self.let("source", Binary("&", b.cast(stmt.lane, I32), self.last, I32))
        other, total = self.names.var("other", I32), self.names.var(self.seed.name, self.seed.type)
        reader, given = self.names.var("source", I32), self.names.var(self.seed.name, self.seed.type)
        lane = Binary("+", Binary("-", self.lane, self.low, I32), other, I32)
        ask = Shuffle(reader, "", stmt.mask, wanted, other, stmt.width, span=stmt.span)
        give = Shuffle(given, "", stmt.mask, self.seed, other, stmt.width, span=stmt.span)
        mine = Binary("&&", b.compare("==", reader, self.low), self.takes_part(lane), BOOL)
        result = self.names.var(self.seed.name, self.seed.type)
        carried = Carried(total, b.zero(self.seed.type), Binary("+", total, self.kept(mine, given), total.type), result)
        zero, one = b.const(0, I32), b.const(1, I32)
        self.out.append(For(other, zero, self.width, one, (ask, give), (carried,), span=stmt.span))
        return result


def _is_full(mask: Expr) -> bool:
    return isinstance(mask, Constant) and int(mask.value) & 0xFFFFFFFF == 0xFFFFFFFF
