"""Argmax recording: the iteration that set a running maximum or minimum is recorded in place of one bool per iteration.

A loop that keeps the greatest of many numbers (`m = fmaxf(m, x[k])`, `if (d < best) { best = d; ... }`) chooses in each iteration, and the
reverse of an iteration has to know how: a stack of bools. But only the last number that was put in place of another one has an adjoint. So
the forward loop notes the iteration that put it there (`m_at`), and the reversed loop does something in that iteration alone.

That is so if three things hold for the reversed loop, all found by following zeros through its body. Under the choice that keeps the old
value an iteration does nothing: it adds zeros, and hands on the adjoints that it carries. Under the other choice these are zero afterwards.
And if they are zero already, an iteration does nothing under either choice. A product with zero is zero here (see `derivatives`: nothing
comes from a seed of 0).

Assumes and guarantees: valid IR with unique definitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.folding import FALSE, integer, logical
from ..ir.rewrite import (
    Names,
    assigned_vars,
    blocks,
    bound,
    bound_in,
    defined,
    edit,
    holds,
    map_blocks,
    map_expr,
    map_stmt_exprs,
    substitute,
    substituted,
    used_vars,
    walk_stmts,
    written_in,
)
from ..ir.types import BOOL
from ..optimize.unique import make_unique

_EFFECTS = (ir.Take, ir.Store, ir.Atomic, ir.Barrier, ir.Shuffle, ir.Assign)


def record_argmax(body: ir.Block, names: Names) -> ir.Block:
    """The body with such stacks replaced, those of inner loops before those around them."""
    before: ir.Block = ()
    while body is not before:
        before = body
        for stack in dict.fromkeys(s.stack for s in walk_stmts(body) if isinstance(s, ir.Push)):
            pair = _pair(body, stack)
            found = pair and _Rewrite(pair, body, names).run()
            body = edit(body, partial(_found, found)) if found else body
    return body


def _found(found: Mapping[int, ir.Block], stmt: ir.Stmt) -> ir.Block | None:
    return found.get(id(stmt))


@dataclass(frozen=True)
class _Pair:
    """The loop that pushes, in each iteration once, the one that pops, and what is defined where the first begins."""

    forward: ir.For
    push: ir.Push
    backward: ir.For
    pop: ir.Pop
    visible: frozenset[ir.Var]


def _pair(body: ir.Block, stack: ir.Stack) -> _Pair | None:
    pushes = [s for s in walk_stmts(body) if isinstance(s, ir.Push) and s.stack == stack]
    pops = [s for s in walk_stmts(body) if isinstance(s, ir.Pop) and s.stack == stack]
    if len(pushes) != 1 or len(pops) != 1:
        return None
    loops = [s for s in walk_stmts(body) if isinstance(s, ir.For)]
    forward = next((s for s in loops if any(each is pushes[0] for each in s.body)), None)
    backward = next((s for s in loops if any(each is pops[0] for each in s.body)), None)
    if forward is None or backward is None or forward.backward or not backward.backward:
        return None
    same = (forward.start, forward.stop, forward.step) == (backward.start, backward.stop, backward.step)
    visible = _visible(body, forward, backward)
    if not same or visible is None or not isinstance(forward.step, ir.Constant):
        return None
    return _Pair(forward, pushes[0], backward, pops[0], visible)


def _visible(block: ir.Block, forward: ir.For, backward: ir.For) -> frozenset[ir.Var] | None:
    """What is defined within a block before the forward loop; None where the backward loop does not see what that loop gives."""
    seen: set[ir.Var] = set()
    for at, stmt in enumerate(block):
        if stmt is forward:
            return frozenset(seen) if any(s is backward for s in walk_stmts(block[at + 1 :])) else None
        for inner in blocks(stmt):
            if any(s is forward for s in walk_stmts(inner)):
                within = _visible(inner, forward, backward)
                loop = {stmt.var, *(c.var for c in stmt.carried)} if isinstance(stmt, ir.For) else set()
                return None if within is None or isinstance(stmt, ir.While) else within | seen | loop
        seen.update(defined(stmt))
    return None


class _Rewrite:
    """Of one pair of loops: the proof, then what stands in their places."""

    def __init__(self, pair: _Pair, body: ir.Block, names: Names) -> None:
        self.pair, self.body, self.names = pair, body, names

    def run(self) -> dict[int, ir.Block] | None:
        """The statements that take the places of others, by id; None where nothing is proved."""
        inside = tuple(walk_stmts(self.pair.backward.body))
        outer = {s.stack for s in inside if isinstance(s, ir.Pop)} - {s.stack for s in inside if isinstance(s, ir.Push)}
        if outer != {self.pair.pop.stack} or holds(self.pair.forward.body, ir.Barrier, ir.Shuffle):
            return None
        for condition in self._conditions():
            gated = self._cleared(condition)
            if gated and self._is_choice(condition, gated):
                return self._written(condition, gated)
        return None

    # --- the proof -------------------------------------------------------------------------------------------------------------------

    def _conditions(self) -> Iterator[ir.Expr]:
        """What an adjoint that is carried depends on: 0 if it is true, else what it was."""
        merges = {m.var: (s.condition, m.then, m.otherwise) for s in self.pair.backward.body if isinstance(s, ir.If) for m in s.merges}
        lets = {s.var: s.value for s in self.pair.backward.body if isinstance(s, ir.Let)}
        for c in self.pair.backward.carried:
            match lets.get(c.next, c.next) if isinstance(c.next, ir.Var) else c.next:
                case ir.Select(condition=condition, then=then, otherwise=otherwise):
                    pass
                case ir.Var() as var if var in merges:
                    condition, then, otherwise = merges[var]
                case _:
                    continue
            if _is_zero(then) and otherwise == c.var:
                yield condition
            elif _is_zero(otherwise) and then == c.var:
                yield b.negate(condition)

    def _is_choice(self, condition: ir.Expr, gated: set[ir.Var]) -> bool:
        idle = _Null(_assumed(condition, False), {})
        still = _Null({}, {v: b.zero(v.type) for v in gated})
        for null in (idle, still):
            if not null.run(self.pair.backward.body):
                return False
            for c in self.pair.backward.carried:
                after = null.value(c.next)
                if after != (b.zero(c.var.type) if null is still and c.var in gated else c.var):
                    return False
        return True

    def _cleared(self, condition: ir.Expr) -> set[ir.Var]:
        """The adjoints that are zero after an iteration with this choice."""
        null = _Null(_assumed(condition, True), {})
        null.run(self.pair.backward.body)
        return {c.var for c in self.pair.backward.carried if _is_zero(null.value(c.next))}

    # --- the text --------------------------------------------------------------------------------------------------------------------

    def _written(self, condition: ir.Expr, gated: set[ir.Var]) -> dict[int, ir.Block] | None:
        forward, backward = self.pair.forward, self.pair.backward
        slice_ = _Slice(self.pair, self.body, self.names)
        made = slice_.of(condition)
        conditions = _assumed(condition, True)
        inside = _with_known_conditions(tuple(s for s in backward.body if s is not self.pair.pop), conditions)
        wanted = set(used_vars(inside))
        wanted |= {v for c in backward.carried for v in ir.variables(_known(c.next, conditions))}
        popped = [(v, e) for v, e in zip(self.pair.pop.vars, self.pair.push.values, strict=True) if v in wanted]
        if made is None or any(v in assigned_vars(self.body) for e in (made, *(e for _, e in popped)) for v in ir.variables(e)):
            return None
        first = next(c for c in backward.carried if c.var in gated)
        name = first.var.name.removeprefix("d") or first.var.name
        at = self.names.var(f"{name}_at", forward.var.type)
        carried, seen = [], self.names.var(at.name, at.type)
        none = _before(forward)
        carried.append(ir.Carried(at, none, b.select(made, forward.var, at), seen))
        here, any_ = b.compare("==", backward.var, seen), b.compare("!=", seen, none)
        values: dict[ir.Var, ir.Expr] = {}
        for var, pushed in popped:
            held, result = (self.names.var(var.name, var.type) for _ in range(2))
            carried.append(ir.Carried(held, b.zero(var.type), b.select(made, pushed, held), result))
            values[var] = result
        noted = replace(
            forward,
            body=tuple(
                s for stmt in forward.body for s in (slice_.copies if stmt is self.pair.push else slice_.loops.get(id(stmt), (stmt,)))
            ),
            carried=(*forward.carried, *carried),
        )
        before, starts = self._starts(gated)
        values |= starts
        inside = tuple(substituted(s, values) for s in inside)
        sums = [c for c in backward.carried if c.var not in gated]
        merges = tuple(
            ir.Merge(self.names.var(c.var.name, c.var.type), substitute(_known(c.next, conditions), values), c.var) for c in sums
        )
        loop = replace(
            backward,
            body=(ir.If(here, inside, (), merges),),
            carried=tuple(replace(c, next=m.var) for c, m in zip(sums, merges, strict=True)),
        )
        after = [
            ir.Let(c.result, b.select(any_, b.zero(c.var.type), starts[c.var]))
            for c in backward.carried
            if c.var in gated and c.result is not None
        ]
        return {id(forward): (noted,), id(backward): (*before, loop, *after)}

    def _starts(self, gated: set[ir.Var]) -> tuple[list[ir.Stmt], dict[ir.Var, ir.Expr]]:
        """What the adjoints are where the reversed loop begins."""
        lets: list[ir.Stmt] = []
        starts: dict[ir.Var, ir.Expr] = {}
        for c in self.pair.backward.carried:
            if c.var not in gated:
                continue
            if not isinstance(c.init, ir.Var | ir.Constant):
                lets.append(ir.Let(self.names.var(c.var.name, c.var.type), c.init))
            starts[c.var] = lets[-1].var if not isinstance(c.init, ir.Var | ir.Constant) else c.init  # type: ignore[attr-defined]
        return lets, starts


class _Slice:
    """A condition of the reversed iteration, in terms of the forward one: with what was pushed in the place of what is popped, and with
    copies of what it is made of, unless that is there. `loops`: loops of the forward iteration that find out more, by id."""

    def __init__(self, pair: _Pair, body: ir.Block, names: Names) -> None:
        self.pair, self.names = pair, names
        self.values: dict[ir.Var, ir.Expr] = dict(zip(pair.pop.vars, pair.push.values, strict=True))
        self.values[pair.backward.var] = pair.forward.var
        self.own = {v: s for s in pair.backward.body if isinstance(s, ir.Let | ir.Load | ir.For) for v in defined(s)}
        self.loops: dict[int, ir.Block] = {}
        self.inner = bound_in(pair.backward)
        self.changed = written_in(body)
        self.parameters = _free(body)
        self.copies: list[ir.Stmt] = []

    def of(self, expr: ir.Expr) -> ir.Expr | None:
        """The expression there; None where it cannot be had."""
        for var in dict.fromkeys(ir.variables(expr)):
            if var not in self.values and not self._take(var):
                return None
        return substitute(expr, {v: self.values[v] for v in ir.variables(expr)})

    def _take(self, var: ir.Var) -> bool:
        if var not in self.inner:
            self.values[var] = var
            return var in self.pair.visible or var in self.parameters
        stmt = self.own.get(var)
        if stmt is None or self._is_changed(stmt):
            return False
        if isinstance(stmt, ir.For):
            return self._gone_through(stmt)
        made = self.of(stmt.value if isinstance(stmt, ir.Let) else stmt.index)
        if made is None:
            return False
        self.values[var] = self._there(stmt, made) or self._copied(stmt, made)
        return True

    def _is_changed(self, stmt: ir.Stmt) -> bool:
        return isinstance(stmt, ir.Load) and (stmt.buffer in self.changed or stmt.buffer.length is not None)

    def _gone_through(self, stmt: ir.For) -> bool:
        """A loop in which the reversed iteration finds out more than the forward one did takes that one's place there."""
        inside, own = tuple(walk_stmts((stmt,))), {v for s in walk_stmts((stmt,)) for v in bound(s)}
        pure = all(isinstance(s, ir.Let | ir.Load | ir.If | ir.For) and not self._is_changed(s) for s in inside)
        if not pure or not all(v in own or v in self.values or self._take(v) for v in dict.fromkeys(used_vars((stmt,)))):
            return False
        (_, made), *_ = make_unique((stmt, substituted(stmt, {v: e for v, e in self.values.items() if v not in own})), self.names)
        assert isinstance(made, ir.For)
        seen: set[ir.Expr] = {*self.pair.visible, *self.parameters, self.pair.forward.var, *(c.var for c in self.pair.forward.carried)}
        inner = {v for s in walk_stmts((made,)) for v in bound(s)}
        for other in self.pair.forward.body:
            names: dict[ir.Var, ir.Expr] = {}
            if isinstance(other, ir.For) and _is_part(other, made, names) and seen.union(inner).issuperset(used_vars((made,))):
                results = {names[v]: v for v in defined(other)}
                carried = tuple(replace(c, result=results.get(c.result, c.result)) if c.result is not None else c for c in made.carried)
                self.loops[id(other)] = (made := replace(made, carried=carried),)
                self.values |= zip(defined(stmt), defined(made), strict=True)
                return True
            seen.update(defined(other))
        return False

    def _there(self, stmt: ir.Let | ir.Load, made: ir.Expr) -> ir.Var | None:
        """What the forward iteration has anyway."""
        for other in self.pair.forward.body:
            if isinstance(other, ir.Load) and isinstance(stmt, ir.Load) and other.buffer == stmt.buffer and other.index == made:
                return other.var
            if isinstance(other, ir.Let) and isinstance(stmt, ir.Let) and other.value == made:
                return other.var
        return None

    def _copied(self, stmt: ir.Let | ir.Load, made: ir.Expr) -> ir.Var:
        var = self.names.var(stmt.var.name, stmt.var.type)
        self.copies.append(ir.Let(var, made) if isinstance(stmt, ir.Let) else ir.Load(var, stmt.buffer, made, span=stmt.span))
        return var


def _is_part(stmt: ir.Stmt, other: ir.Stmt, names: dict[ir.Var, ir.Expr]) -> bool:
    """True if a statement computes nothing that the other one does not, by the names that are noted."""
    match stmt, other:
        case (ir.Let(value=a), ir.Let(value=z)) if substitute(a, names) == z:
            names[stmt.var] = other.var
        case (ir.Load(buffer=mine, index=a), ir.Load(buffer=theirs, index=z)) if mine == theirs and substitute(a, names) == z:
            names[stmt.var] = other.var
        case (ir.If(), ir.If()) if substitute(stmt.condition, names) == other.condition:
            if not (_is_within(stmt.then, other.then, names) and _is_within(stmt.otherwise, other.otherwise, names)):
                return False
            ends = {(m.then, m.otherwise): m.var for m in other.merges}
            merged = [ends.get((substitute(m.then, names), substitute(m.otherwise, names))) for m in stmt.merges]
            names |= {m.var: v for m, v in zip(stmt.merges, merged, strict=True) if v is not None}
            return None not in merged
        case (ir.For(), ir.For()):
            return _is_part_of_loop(stmt, other, names)
        case _:
            return False
    return True


def _is_part_of_loop(stmt: ir.For, other: ir.For, names: dict[ir.Var, ir.Expr]) -> bool:
    bounds = tuple(substitute(e, names) for e in (stmt.start, stmt.stop, stmt.step))
    begins = {(c.var.name, c.init): c for c in other.carried}
    carried = [begins.get((c.var.name, substitute(c.init, names))) for c in stmt.carried]
    if (*bounds, stmt.backward) != (other.start, other.stop, other.step, other.backward) or None in carried:
        return False
    pairs = [(c, o) for c, o in zip(stmt.carried, carried, strict=True) if o is not None]
    names |= {stmt.var: other.var, **{c.var: o.var for c, o in pairs}}
    if not _is_within(stmt.body, other.body, names) or any(substitute(c.next, names) != o.next for c, o in pairs):
        return False
    names |= {c.result: o.result for c, o in pairs if c.result is not None and o.result is not None}
    return True


def _is_within(block: ir.Block, other: ir.Block, names: dict[ir.Var, ir.Expr]) -> bool:
    """True if all of a block is part of the other one, in order."""
    rest = iter(other)
    return all(any(_is_part(stmt, each, names) for each in rest) for stmt in block)


# --- zeros -------------------------------------------------------------------------------------------------------------------------------


class _Null:
    """Follows zeros through a block: under what is known to be true or false, and variables that are known. Whether the block does
    nothing then."""

    def __init__(self, conditions: Mapping[ir.Expr, bool], values: Mapping[ir.Var, ir.Expr]) -> None:
        self.conditions, self.values = dict(conditions), dict(values)
        self.own: set[ir.Buffer] = set()

    def value(self, expr: ir.Expr) -> ir.Expr:
        """The expression with what follows from zeros."""
        return _with_known(substitute(expr, self.values), self.conditions)

    def run(self, block: ir.Block) -> bool:
        """Goes through a block, to its end; False if it may do something."""
        return all([self._stmt(stmt) for stmt in block])

    def _stmt(self, stmt: ir.Stmt) -> bool:
        match stmt:
            case ir.Let(var=var, value=value):
                known = self.value(value)
                if isinstance(known, ir.Constant | ir.Var):
                    self.values[var] = known
            case ir.Accumulate(value=value):
                return _is_zero(self.value(value))
            case ir.Alloc(buffer=buffer):
                self.own.add(buffer)
            case ir.Store(buffer=buffer) if buffer in self.own:
                pass
            case ir.If():
                return self._branch(stmt)
            case ir.For() | ir.While():
                return self._loop(stmt)
            case _ if isinstance(stmt, _EFFECTS):
                return False
        return True

    def _branch(self, stmt: ir.If) -> bool:
        condition = self.value(stmt.condition)
        sides = [(stmt.then, True), (stmt.otherwise, False)]
        taken = [side for side in sides if not isinstance(condition, ir.Constant) or bool(condition.value) is side[1]]
        nothing, ends = True, []
        for block, truth in taken:
            before = dict(self.conditions)
            self.conditions |= _assumed(condition, truth)
            nothing &= self.run(block)
            ends.append([self.value(m.then if truth else m.otherwise) for m in stmt.merges])
            self.conditions = before
        for k, merge in enumerate(stmt.merges):
            if all(end[k] == ends[0][k] for end in ends) and isinstance(ends[0][k], ir.Constant | ir.Var):
                self.values[merge.var] = ends[0][k]
        return nothing

    def _is_never(self, stmt: ir.For | ir.While) -> bool:
        """True if a loop does something in one iteration alone, which is known not to be there."""
        match stmt:
            case ir.For(var=var, body=(ir.If(condition=ir.Binary(op="==", left=left, right=right), otherwise=()),)) if var in (left, right):
                there = b.compare("!=", right if left == var else left, _before(stmt))
                return self.conditions.get(there) is False
        return False

    def _loop(self, stmt: ir.For | ir.While) -> bool:
        if self._is_never(stmt):
            self.values |= {c.result: self.value(c.init) for c in stmt.carried if c.result is not None}
            return True
        zeros = {c.var for c in stmt.carried if _is_zero(self.value(c.init))}
        while True:
            inner = _Null(self.conditions, {**self.values, **{v: b.zero(v.type) for v in zeros}})
            inner.own = set(self.own)
            block = (*stmt.header, *stmt.body) if isinstance(stmt, ir.While) else stmt.body
            nothing = inner.run(block)
            kept = {c.var for c in stmt.carried if c.var in zeros and _is_zero(inner.value(c.next))}
            if kept == zeros:
                break
            zeros = kept
        self.values |= {c.result: b.zero(c.var.type) for c in stmt.carried if c.var in zeros and c.result is not None}
        return nothing


def _assumed(condition: ir.Expr, truth: bool) -> dict[ir.Expr, bool]:
    """What is known if a condition is true, or false."""
    found = {condition: truth, b.negate(condition): not truth}
    match condition:
        case ir.Binary(op="&&", left=left, right=right) if truth:
            found |= _assumed(left, True) | _assumed(right, True)
        case ir.Binary(op="||", left=left, right=right) if not truth:
            found |= _assumed(left, False) | _assumed(right, False)
        case ir.Unary(op="!", operand=operand):
            found |= _assumed(operand, not truth)
    return {e: known for e, known in found.items() if not isinstance(e, ir.Constant)}


def _with_known(expr: ir.Expr, conditions: Mapping[ir.Expr, bool]) -> ir.Expr:
    """The expression with what is known put in, and products with zero as zero."""
    return map_expr(expr, lambda e: _folded(ir.Constant(conditions[e], BOOL) if e in conditions else e))


def _folded(expr: ir.Expr) -> ir.Expr:
    expr = _decided(expr)
    match expr:
        case ir.Unary(op="-", operand=a) | ir.Cast(operand=a) if expr.type.is_float and _is_zero(a):
            return b.zero(expr.type)
        case ir.Binary(op="*", left=left, right=right) if expr.type.is_float and (_is_zero(left) or _is_zero(right)):
            return b.zero(expr.type)
        case ir.Binary(op="/", left=left) if expr.type.is_float and _is_zero(left):
            return b.zero(expr.type)
        case ir.Binary(op="+" | "-", left=left, right=right) if expr.type.is_float and _is_zero(right):
            return left
        case ir.Binary(op="+", left=left, right=right) if expr.type.is_float and _is_zero(left):
            return right
        case ir.Call(function="gpuad_chain", arguments=(seed, _)) if _is_zero(seed):
            return b.zero(expr.type)
        case ir.Call(function="gpuad_used" | "gpuad_collected", arguments=(seed,)) if _is_zero(seed):
            return FALSE
    return expr


def _is_zero(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Constant) and expr.type.is_float and expr.value == 0


# --- statements --------------------------------------------------------------------------------------------------------------------------


def _with_known_conditions(block: ir.Block, conditions: Mapping[ir.Expr, bool]) -> ir.Block:
    """The block under what is known."""
    found: list[ir.Stmt] = []
    for stmt in block:
        stmt = map_stmt_exprs(map_blocks(stmt, lambda inner: _with_known_conditions(inner, conditions)), lambda e: _known(e, conditions))
        if isinstance(stmt, ir.If) and isinstance(stmt.condition, ir.Constant):
            truth = bool(stmt.condition.value)
            found += stmt.then if truth else stmt.otherwise
            found += (ir.Let(m.var, m.then if truth else m.otherwise) for m in stmt.merges)
        else:
            found.append(stmt)
    return tuple(found)


def _known(expr: ir.Expr, conditions: Mapping[ir.Expr, bool]) -> ir.Expr:
    return map_expr(expr, lambda e: _decided(ir.Constant(conditions[e], BOOL) if e in conditions else e))


def _decided(expr: ir.Expr) -> ir.Expr:
    """An expression with known choices made; products stay as they are."""
    match expr:
        case ir.Select(condition=c, then=then, otherwise=otherwise):
            return b.select(c, then, otherwise)
        case ir.Unary(op="!", operand=ir.Constant(value=v)):
            return ir.Constant(not v, BOOL)
        case ir.Binary(op="&&" | "||" as op, left=left, right=right):
            return logical(op, left, right)
    return expr


def _before(loop: ir.For) -> ir.Expr:
    """A number that the loop's variable never has: the one before its first, also where that wraps (a loop's last number plus the step
    does not, see `loops`)."""
    if isinstance(loop.start, ir.Constant) and isinstance(loop.step, ir.Constant):
        return integer(int(loop.start.value) - int(loop.step.value), loop.start.type)
    return ir.Binary("-", loop.start, loop.step, loop.start.type)


def _free(body: ir.Block) -> set[ir.Var]:
    """Variables that the body does not define."""
    inside = {v for s in walk_stmts(body) for v in bound(s)}
    used = set(used_vars(body))
    return used - inside
