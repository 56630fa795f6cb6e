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

from ..ir.nodes import (
    Accumulate,
    Binary,
    Block,
    Buffer,
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
    Stmt,
    Store,
    Take,
    Var,
    variables,
)
from ..ir.rewrite import Names, assigned_vars, blocks, map_blocks, map_expr, map_stmt_exprs, substitute, substituted, walk_stmts
from ..ir.types import I64, value_type
from ..optimize.common_subexpressions import eliminate_common_subexpressions, folded
from ..optimize.dead_code import eliminate_dead_code
from ..optimize.unique import make_unique
from .forward_reverse_kernel import with_own_names

Place = tuple[Buffer, Expr]


@dataclass(frozen=True)
class Part:
    """One of the kernels' bodies: what stands for its parameters. A buffer begins `shift` elements into the one that stands for it, if that
    is not None."""

    body: Block
    scalars: Mapping[Var, Expr]
    buffers: Mapping[Buffer, tuple[Buffer, Expr | None]]


def chained(name: str, params: Sequence[Var | Buffer], parts: Sequence[Part], header: str) -> Kernel | None:
    """The kernel that does them all; None if its guards do not become one."""
    names = Names(Kernel("", tuple(params), ()))
    joined = _one_guard(make_unique(tuple(s for part in parts for s in _taken_over(part, names)), names)[0])
    if joined is None:
        return None
    body = eliminate_common_subexpressions(joined)
    body = _Forwarding(body, names).done()
    return Kernel(
        name,
        tuple(params),
        eliminate_dead_code(eliminate_common_subexpressions(_without_dead_stores(body, {}, assigned_vars(body)))),
        header=header,
    )


# --- parameters ---------------------------------------------------------------------------------------------------------------------------


def _taken_over(part: Part, names: Names) -> Block:
    """The body on the joint kernel's parameters, with definitions of its own."""
    return _moved(with_own_names(part.body, names, part.scalars), part.buffers)


def _moved(block: Block, buffers: Mapping[Buffer, tuple[Buffer, Expr | None]]) -> Block:
    out = []
    for stmt in block:
        stmt = map_blocks(map_stmt_exprs(stmt, lambda e: map_expr(e, _usual)), lambda inner: _moved(inner, buffers))
        if isinstance(stmt, Load | Store | Accumulate | Take):
            buffer, shift = buffers[stmt.buffer]
            index = stmt.index if shift is None else Binary("+", _wide(stmt.index), shift, I64)
            stmt = replace(stmt, buffer=buffer, index=index)
        out.append(stmt)
    return tuple(out)


def _usual(expr: Expr) -> Expr:
    """The index of a thread as most kernels write it, `blockIdx * blockDim + threadIdx`, and integers folded."""
    match expr:
        case Binary(op="*", left=LaunchIndex(name="blockDim") as extent, right=LaunchIndex(name="blockIdx") as block):
            return Binary("*", block, extent, expr.type)
        case Binary(op="+", left=LaunchIndex(name="threadIdx") as thread, right=Binary(op="*", left=LaunchIndex()) as first):
            return Binary("+", first, thread, expr.type)
    return folded(expr)


def _wide(index: Expr) -> Expr:
    return index if index.type == I64 else Cast(index, I64)


# --- guards -------------------------------------------------------------------------------------------------------------------------------


def is_sum(stmt: Stmt) -> bool:
    """Whether a statement adds a sum over the threads."""
    return isinstance(stmt, Accumulate) and stmt.how is How.REDUCED


def _one_guard(body: Block) -> Block | None:
    """The statements with what they guard behind one guard, sums last; None where more than one is left."""
    found = _Guards(assigned_vars(body))
    return found.done() if all(map(found.takes, body)) else None


class _Guards:
    """Puts the statements of several bodies before, into and after one guard."""

    def __init__(self, mutable: frozenset[Var]) -> None:
        self.mutable = mutable
        self.values: dict[Expr, Var] = {}
        self.renamed: dict[Var, Expr] = {}
        self.before: list[Stmt] = []
        self.guard: If | For | None = None
        self.after: list[Stmt] = []
        self.late: set[Var] = set()  # known only after the guard

    def done(self) -> Block:
        return (*self.before, *([self.guard] if self.guard is not None else []), *self.after)

    def takes(self, old: Stmt) -> bool:
        """Whether the next statement has found its place."""
        stmt = substituted(old, self.renamed)
        if is_sum(stmt):
            self.after.append(stmt)
        elif isinstance(stmt, If | For):
            return self.guarded(stmt)
        elif isinstance(stmt, Let):
            self.let(stmt)
        elif self.guard is not None:
            return False
        else:
            self.before.append(stmt)
        return True

    def guarded(self, stmt: If | For) -> bool:
        first = self.guard
        if isinstance(first, If) and isinstance(stmt, If) and not first.otherwise and not stmt.otherwise:
            stmt = replace(first, then=(*first.then, *stmt.then), merges=(*first.merges, *stmt.merges))
        elif isinstance(first, For) and isinstance(stmt, For) and first.var.type == stmt.var.type:
            same: dict[Var, Expr] = {stmt.var: first.var}
            stmt = replace(first, body=(*first.body, *(substituted(s, same) for s in stmt.body)))
        elif first is not None:
            return False
        self.guard = stmt
        if isinstance(stmt, If):
            self.late.update(m.var for m in stmt.merges)
        return True

    def let(self, stmt: Let) -> None:
        """What does not depend on the guarded statements is computed before them, and once."""
        used = {stmt.var, *variables(stmt.value)}
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

    def __init__(self, body: Block, names: Names) -> None:
        self.body = body
        self.names = names
        self.mutable = assigned_vars(body)
        self.uses = Counter(_place(s) for s in walk_stmts(body) if isinstance(s, Load | Store | Accumulate | Take))

    def done(self) -> Block:
        return self.block(self.body, {}, {})[0]

    def block(self, block: Block, known: dict[Place, Expr], renamed: dict[Var, Expr]) -> tuple[Block, dict[Var, Expr]]:
        """The block, and what stands for variables that are gone."""
        known, renamed = dict(known), dict(renamed)
        out: list[Stmt] = []
        for old in block:
            stmt = map_stmt_exprs(old, lambda e: substitute(e, renamed)) if renamed else old
            match stmt:
                case Load():
                    self.load(stmt, known, renamed, out)
                case Store():
                    self.store(stmt, stmt.value, known, out)
                case Take(how=How.PLAIN) if self.again(stmt):
                    self.load(Load(stmt.var, stmt.buffer, stmt.index, span=stmt.span), known, renamed, out)
                    self.store(stmt, Constant(0, stmt.buffer.element), known, out)
                case Accumulate(how=How.PLAIN, value=value) if self.again(stmt):
                    before = self.names.var(stmt.buffer.name, value.type)
                    self.load(Load(before, stmt.buffer, stmt.index, span=stmt.span), known, renamed, out)
                    self.store(stmt, Binary("+", renamed.get(before, before), value, value.type), known, out)
                case If():
                    out.append(self.sides(stmt, known, renamed))
                case For(body=body):
                    out.append(replace(stmt, body=self.block(body, {}, renamed)[0]))
                    self.forget(stmt, known)
                case _:
                    out.append(stmt)
                    self.forget(stmt, known)
        return tuple(out), renamed

    def sides(self, stmt: If, known: dict[Place, Expr], renamed: dict[Var, Expr]) -> If:
        then, first = self.block(stmt.then, known, renamed)
        otherwise, second = self.block(stmt.otherwise, known, renamed)
        merges = tuple(Merge(m.var, substitute(m.then, first), substitute(m.otherwise, second)) for m in stmt.merges)
        self.forget(stmt, known)
        return replace(stmt, then=then, otherwise=otherwise, merges=merges)

    def again(self, stmt: Load | Store | Accumulate | Take) -> bool:
        """Whether another statement touches the same place, and what is written there is what is read."""
        return self.uses[_place(stmt)] > 1 and _exact(stmt.buffer) and self.mutable.isdisjoint(variables(stmt.index))

    def load(self, stmt: Load, known: dict[Place, Expr], renamed: dict[Var, Expr], out: list[Stmt]) -> None:
        value = known.get(_place(stmt))
        if value is not None and value.type == stmt.var.type and stmt.var not in self.mutable:
            renamed[stmt.var] = value
            return
        renamed.pop(stmt.var, None)
        out.append(stmt)
        if self.again(stmt) and stmt.var not in self.mutable:
            known[_place(stmt)] = stmt.var

    def store(self, stmt: Store | Take | Accumulate, value: Expr, known: dict[Place, Expr], out: list[Stmt]) -> None:
        place, again = _place(stmt), self.again(stmt)
        if again and not isinstance(value, Var | Constant):
            name = self.names.var(stmt.buffer.name, value.type)
            out.append(Let(name, value, span=stmt.span, note=stmt.note))
            value = name
        out.append(Store(*place, value, span=stmt.span, note="" if again else stmt.note))
        self.forget(out[-1], known)
        if again and isinstance(value, Var | Constant) and value not in self.mutable:
            known[place] = value

    def forget(self, stmt: Stmt, known: dict[Place, Expr]) -> None:
        """What a statement, or one inside it, may write is not known any more."""
        written = {s.buffer for s in walk_stmts((stmt,)) if isinstance(s, Store | Accumulate | Take)}
        for place in [p for p in known if p[0] in written]:
            del known[place]


def _place(stmt: Load | Store | Accumulate | Take) -> Place:
    return stmt.buffer, stmt.index


def _exact(buffer: Buffer) -> bool:
    """Whether memory holds what is written to it: halves are rounded."""
    return value_type(buffer.element) == buffer.element


def _without_dead_stores(block: Block, later: Mapping[Place, Stmt], mutable: frozenset[Var]) -> Block:
    """The block without stores to places that are stored to again before anything reads them; `later`: the places that are stored to after
    the block, before they are read."""
    overwritten = dict(later)
    out: list[Stmt] = []
    for stmt in reversed(block):
        if isinstance(stmt, Store) and mutable.isdisjoint(variables(stmt.index)):
            if _place(stmt) in overwritten:
                continue
            overwritten[_place(stmt)] = stmt
        elif blocks(stmt):
            after = {} if isinstance(stmt, For) else overwritten  # another iteration comes after a loop's body
            stmt = map_blocks(stmt, partial(_without_dead_stores, later=after, mutable=mutable))
        read = {s.buffer for s in walk_stmts((stmt,)) if isinstance(s, Load | Accumulate | Take)}
        overwritten = {place: s for place, s in overwritten.items() if place[0] not in read}
        out.append(stmt)
    return tuple(reversed(out))


__all__ = ["Part", "chained", "is_sum"]
