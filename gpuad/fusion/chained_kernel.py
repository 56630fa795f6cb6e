"""One kernel that does what several kernels do one after the other, thread by thread.

A value that one of them stores and a later one reads back at the same place stays in a register, and a store that a later one overwrites is
left out. Their guards become one. That no thread touches what another one writes in another of the kernels is for the caller to prove, and
so is that the same threads pass each guard, and that different buffers are different memory.

Assumes: valid IR with unique definitions in each body, no arrays of their own, no atomics. Guarantees: the same, and the same numbers: no
arithmetic is evaluated or reordered, and what memory would round is not kept in a register.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..ir import nodes as ir
from ..ir.rewrite import Names, assigned_vars, blocks, map_blocks, map_expr, map_stmt_exprs, substitute, substituted, walk_stmts
from ..ir.types import I64, value_type
from ..optimize.common_subexpressions import eliminate_common_subexpressions, folded
from ..optimize.dead_code import eliminate_dead_code
from ..optimize.unique import make_unique
from .forward_reverse_kernel import with_own_names

Place = tuple[ir.Buffer, ir.Expr]


@dataclass(frozen=True)
class Part:
    """One of the kernels' bodies: what stands for its parameters. A buffer begins `shift` elements into the one that stands for it, if that
    is not None."""

    body: ir.Block
    scalars: Mapping[ir.Var, ir.Expr]
    buffers: Mapping[ir.Buffer, tuple[ir.Buffer, ir.Expr | None]]


def chained(name: str, params: Sequence[ir.Var | ir.Buffer], parts: Sequence[Part], header: str) -> ir.Kernel | None:
    """The kernel that does them all; None if its guards do not become one."""
    names = Names(ir.Kernel("", tuple(params), ()))
    joined = _one_guard(make_unique(tuple(s for part in parts for s in _taken_over(part, names)), names)[0])
    if joined is None:
        return None
    body = eliminate_common_subexpressions(joined)
    body = _Forwarding(body, names).done()
    return ir.Kernel(
        name,
        tuple(params),
        eliminate_dead_code(eliminate_common_subexpressions(_without_dead_stores(body, {}, assigned_vars(body)))),
        header=header,
    )


# --- parameters ---------------------------------------------------------------------------------------------------------------------------


def _taken_over(part: Part, names: Names) -> ir.Block:
    """The body on the joint kernel's parameters, with definitions of its own."""
    return _moved(with_own_names(part.body, names, part.scalars), part.buffers)


def _moved(block: ir.Block, buffers: Mapping[ir.Buffer, tuple[ir.Buffer, ir.Expr | None]]) -> ir.Block:
    out = []
    for stmt in block:
        stmt = map_blocks(map_stmt_exprs(stmt, lambda e: map_expr(e, _usual)), lambda inner: _moved(inner, buffers))
        if isinstance(stmt, ir.Load | ir.Store | ir.Accumulate | ir.Take):
            buffer, shift = buffers[stmt.buffer]
            index = stmt.index if shift is None else ir.Binary("+", _wide(stmt.index), shift, I64)
            stmt = replace(stmt, buffer=buffer, index=index)
        out.append(stmt)
    return tuple(out)


def _usual(expr: ir.Expr) -> ir.Expr:
    """The index of a thread as most kernels write it, `blockIdx * blockDim + threadIdx`, and integers folded."""
    match expr:
        case ir.Binary(op="*", left=ir.LaunchIndex(name="blockDim") as extent, right=ir.LaunchIndex(name="blockIdx") as block):
            return ir.Binary("*", block, extent, expr.type)
        case ir.Binary(op="+", left=ir.LaunchIndex(name="threadIdx") as thread, right=ir.Binary(op="*", left=ir.LaunchIndex()) as first):
            return ir.Binary("+", first, thread, expr.type)
    return folded(expr)


def _wide(index: ir.Expr) -> ir.Expr:
    return index if index.type == I64 else ir.Cast(index, I64)


# --- guards -------------------------------------------------------------------------------------------------------------------------------


def is_sum(stmt: ir.Stmt) -> bool:
    """True if a statement adds a sum over the threads."""
    return isinstance(stmt, ir.Accumulate) and stmt.how is ir.How.REDUCED


def _one_guard(body: ir.Block) -> ir.Block | None:
    """The statements with what they guard behind one guard, sums last; None where more than one is left."""
    found = _Guards(assigned_vars(body))
    return found.done() if all(map(found.takes, body)) else None


class _Guards:
    """Puts the statements of several bodies before, into and after one guard."""

    def __init__(self, mutable: frozenset[ir.Var]) -> None:
        self.mutable = mutable
        self.values: dict[ir.Expr, ir.Var] = {}
        self.renamed: dict[ir.Var, ir.Expr] = {}
        self.before: list[ir.Stmt] = []
        self.guard: ir.If | ir.For | None = None
        self.after: list[ir.Stmt] = []
        self.late: set[ir.Var] = set()  # known only after the guard

    def done(self) -> ir.Block:
        return (*self.before, *([self.guard] if self.guard is not None else []), *self.after)

    def takes(self, old: ir.Stmt) -> bool:
        """True if the next statement has found its place."""
        stmt = substituted(old, self.renamed)
        if is_sum(stmt):
            self.after.append(stmt)
        elif isinstance(stmt, ir.If | ir.For):
            return self.guarded(stmt)
        elif isinstance(stmt, ir.Let):
            self.let(stmt)
        elif self.guard is not None:
            return False
        else:
            self.before.append(stmt)
        return True

    def guarded(self, stmt: ir.If | ir.For) -> bool:
        first = self.guard
        if isinstance(first, ir.If) and isinstance(stmt, ir.If) and not first.otherwise and not stmt.otherwise:
            stmt = replace(first, then=(*first.then, *stmt.then), merges=(*first.merges, *stmt.merges))
        elif isinstance(first, ir.For) and isinstance(stmt, ir.For) and first.var.type == stmt.var.type:
            same: dict[ir.Var, ir.Expr] = {stmt.var: first.var}
            stmt = replace(first, body=(*first.body, *(substituted(s, same) for s in stmt.body)))
        elif first is not None:
            return False
        self.guard = stmt
        if isinstance(stmt, ir.If):
            self.late.update(m.var for m in stmt.merges)
        return True

    def let(self, stmt: ir.Let) -> None:
        """What does not depend on the guarded statements is computed before them, and once."""
        used = {stmt.var, *ir.variables(stmt.value)}
        if not used.isdisjoint(self.late):
            self.late.add(stmt.var)
            self.after.append(stmt)
        elif not used.isdisjoint(self.mutable):
            self.before.append(stmt)
        elif stmt.value in self.values:
            self.renamed[stmt.var] = self.values[stmt.value]
        else:
            self.values[stmt.value] = stmt.var
            self.before.append(stmt)


# --- values that stay in registers --------------------------------------------------------------------------------------------------------


class _Forwarding:
    """Hands what is stored or loaded on to what reads it. `known`: what memory holds at a place, as a variable or a constant."""

    def __init__(self, body: ir.Block, names: Names) -> None:
        self.body = body
        self.names = names
        self.mutable = assigned_vars(body)
        self.uses = Counter(_place(s) for s in walk_stmts(body) if isinstance(s, ir.Load | ir.Store | ir.Accumulate | ir.Take))

    def done(self) -> ir.Block:
        return self.block(self.body, {}, {})[0]

    def block(self, block: ir.Block, known: dict[Place, ir.Expr], renamed: dict[ir.Var, ir.Expr]) -> tuple[ir.Block, dict[ir.Var, ir.Expr]]:
        """The block, and what stands for variables that are gone."""
        known, renamed = dict(known), dict(renamed)
        out: list[ir.Stmt] = []
        for old in block:
            stmt = map_stmt_exprs(old, lambda e: substitute(e, renamed)) if renamed else old
            match stmt:
                case ir.Load():
                    self.load(stmt, known, renamed, out)
                case ir.Store():
                    self.store(stmt, stmt.value, known, out)
                case ir.Take(how=ir.How.PLAIN) if self.again(stmt):
                    self.load(ir.Load(stmt.var, stmt.buffer, stmt.index, span=stmt.span), known, renamed, out)
                    self.store(stmt, ir.Constant(0, stmt.buffer.element), known, out)
                case ir.Accumulate(how=ir.How.PLAIN, value=value) if self.again(stmt):
                    before = self.names.var(stmt.buffer.name, value.type)
                    self.load(ir.Load(before, stmt.buffer, stmt.index, span=stmt.span), known, renamed, out)
                    self.store(stmt, ir.Binary("+", renamed.get(before, before), value, value.type), known, out)
                case ir.If():
                    out.append(self.sides(stmt, known, renamed))
                case ir.For(body=body):
                    out.append(replace(stmt, body=self.block(body, {}, renamed)[0]))
                    self.forget(stmt, known)
                case _:
                    out.append(stmt)
                    self.forget(stmt, known)
        return tuple(out), renamed

    def sides(self, stmt: ir.If, known: dict[Place, ir.Expr], renamed: dict[ir.Var, ir.Expr]) -> ir.If:
        then, first = self.block(stmt.then, known, renamed)
        otherwise, second = self.block(stmt.otherwise, known, renamed)
        merges = tuple(ir.Merge(m.var, substitute(m.then, first), substitute(m.otherwise, second)) for m in stmt.merges)
        self.forget(stmt, known)
        return replace(stmt, then=then, otherwise=otherwise, merges=merges)

    def again(self, stmt: ir.Load | ir.Store | ir.Accumulate | ir.Take) -> bool:
        """True if another statement touches the same place, and what is written there is what is read."""
        return self.uses[_place(stmt)] > 1 and _exact(stmt.buffer) and self.mutable.isdisjoint(ir.variables(stmt.index))

    def load(self, stmt: ir.Load, known: dict[Place, ir.Expr], renamed: dict[ir.Var, ir.Expr], out: list[ir.Stmt]) -> None:
        value = known.get(_place(stmt))
        if value is not None and value.type == stmt.var.type and stmt.var not in self.mutable:
            renamed[stmt.var] = value
            return
        renamed.pop(stmt.var, None)
        out.append(stmt)
        if self.again(stmt) and stmt.var not in self.mutable:
            known[_place(stmt)] = stmt.var

    def store(self, stmt: ir.Store | ir.Take | ir.Accumulate, value: ir.Expr, known: dict[Place, ir.Expr], out: list[ir.Stmt]) -> None:
        place, again = _place(stmt), self.again(stmt)
        if again and not isinstance(value, ir.Var | ir.Constant):
            name = self.names.var(stmt.buffer.name, value.type)
            out.append(ir.Let(name, value, span=stmt.span, note=stmt.note))
            value = name
        out.append(ir.Store(*place, value, span=stmt.span, note="" if again else stmt.note))
        self.forget(out[-1], known)
        if again and isinstance(value, ir.Var | ir.Constant) and value not in self.mutable:
            known[place] = value

    def forget(self, stmt: ir.Stmt, known: dict[Place, ir.Expr]) -> None:
        """What a statement, or one inside it, may write is not known any more."""
        written = {s.buffer for s in walk_stmts((stmt,)) if isinstance(s, ir.Store | ir.Accumulate | ir.Take)}
        for place in [p for p in known if p[0] in written]:
            del known[place]


def _place(stmt: ir.Load | ir.Store | ir.Accumulate | ir.Take) -> Place:
    return stmt.buffer, stmt.index


def _exact(buffer: ir.Buffer) -> bool:
    """True if memory holds what is written to it: halves are rounded."""
    return value_type(buffer.element) == buffer.element


def _without_dead_stores(block: ir.Block, later: Mapping[Place, ir.Stmt], mutable: frozenset[ir.Var]) -> ir.Block:
    """The block without stores to places that are stored to again before anything reads them; `later`: the places that are stored to after
    the block, before they are read."""
    overwritten = dict(later)
    out: list[ir.Stmt] = []
    for stmt in reversed(block):
        if isinstance(stmt, ir.Store) and mutable.isdisjoint(ir.variables(stmt.index)):
            if _place(stmt) in overwritten:
                continue
            overwritten[_place(stmt)] = stmt
        elif blocks(stmt):
            after = {} if isinstance(stmt, ir.For) else overwritten  # another iteration comes after a loop's body
            stmt = map_blocks(stmt, partial(_without_dead_stores, later=after, mutable=mutable))
        read = {s.buffer for s in walk_stmts((stmt,)) if isinstance(s, ir.Load | ir.Accumulate | ir.Take)}
        overwritten = {place: s for place, s in overwritten.items() if place[0] not in read}
        out.append(stmt)
    return tuple(reversed(out))


__all__ = ["Part", "chained", "is_sum"]
