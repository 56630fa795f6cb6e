"""Common subexpressions, loads, branches and loops of the several copies of a slice that a gather has, each evaluated once.

* `eliminate_common_subexpressions`: what was computed or read before is not computed or read again.
* `merge_control_flow`: adjacent branches with one condition are one branch (jump threading), loops over one range are one loop (loop
  fusion). In the gather of an all-pairs loop a thread goes through all others twice, for what it sends to itself and for what they send to
  it; in one loop the two share distances and what is made of them. Assumes statements that touch no memory but to read it.
* `accumulate_directly`: contributions are added to a sum where they are computed, without a loop's partial sum or several additions of a
  block. In which order they are added is not promised. Assumes sums that are only added to before they are put to use elsewhere.

All assume valid IR with unique definitions, and guarantee it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..analysis.index_polynomials import Polynomial, plus, scale, times
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.rewrite import (
    assigned_vars,
    defined,
    expressions,
    map_blocks,
    map_expr,
    map_exprs,
    map_stmt_exprs,
    rebuild,
    substitute,
    used_vars,
    walk_stmts,
    written_in,
)
from ..ir.types import BOOL, I32


def eliminate_common_subexpressions(body: ir.Block) -> ir.Block:
    """What was computed or read before, around, is not computed or read again; an index that lies next to another is written so."""
    return _Share(assigned_vars(body), written_in(body)).block(body, {}, {})


class _Share:
    """`known`: what has which value where one looks; `forms`: integers as polynomials. Variables that are put out are `renamed`."""

    def __init__(self, mutable: frozenset[ir.Var], written: frozenset[ir.Buffer]) -> None:
        self.mutable = mutable
        self.written = written
        self.renamed: dict[ir.Var, ir.Expr] = {}
        self.values: dict[ir.Var, ir.Expr] = {}

    def block(self, block: ir.Block, known: dict[Hashable, ir.Var], forms: dict[ir.Var, Polynomial]) -> ir.Block:
        known, forms = dict(known), dict(forms)
        out: list[ir.Stmt] = []
        for stmt in block:
            stmt = map_blocks(stmt, lambda inner: self.block(inner, known, forms))
            stmt = map_stmt_exprs(stmt, lambda e: _near(map_expr(substitute(e, self.renamed), folded), forms))
            if not self.is_known(stmt, known, forms):
                out.append(stmt)
        return tuple(out)

    def is_known(self, stmt: ir.Stmt, known: dict[Hashable, ir.Var], forms: dict[ir.Var, Polynomial]) -> bool:
        """True if a statement only says what is known, under another name; else it is known from now on."""
        match stmt:
            case ir.Load(var=var, buffer=buffer, index=index) if buffer not in self.written and not self.mutable & {
                var,
                *ir.variables(index),
            }:
                return self.names(var, (buffer, index), known)
            case ir.Let(var=var, value=value) if not self.mutable & {var, *ir.variables(value)}:
                if var.type.is_float:
                    self.values[var] = value
                    return not isinstance(value, ir.Var | ir.Constant) and self.names(var, self.key(value), known)
                if _is_short(value):
                    self.renamed[var] = value
                    return True
                form = _form(value, forms)
                if self.names(var, value, known):
                    return True
                if form is not None:
                    forms[var] = form
        return False

    def names(self, var: ir.Var, value: Hashable, known: dict[Hashable, ir.Var]) -> bool:
        other = known.setdefault(value, var)
        if other != var:
            self.renamed[var] = other
        return other != var

    def key(self, expr: ir.Expr) -> Hashable:
        """What is the same for expressions of one value. The square of a difference is that of the opposite difference."""
        match expr:
            case ir.Binary(op="*", left=ir.Var() as left, right=right) if left == right and _is_difference(self.values.get(left)):
                return "square", frozenset(self.key(e) for e in ir.children(self.values[left])), expr.type
        parts = tuple(self.key(e) for e in ir.children(expr))
        return (type(expr), getattr(expr, "op", ""), getattr(expr, "function", ""), expr.type, parts) if parts else expr


def _is_difference(expr: ir.Expr | None) -> bool:
    return isinstance(expr, ir.Binary) and expr.op == "-" and expr.type.is_float


def _is_short(expr: ir.Expr) -> bool:
    """True if an expression is a variable, or one with a constant or a parameter added."""
    match expr:
        case ir.Var() | ir.Constant():
            return True
        case ir.Binary(op="+" | "-", left=ir.Var(), right=ir.Var() | ir.Constant()):
            return expr.type.is_integer
    return False


def _form(expr: ir.Expr, forms: Mapping[ir.Var, Polynomial]) -> Polynomial | None:
    """The expression as a polynomial over variables, exact in wrapping 32-bit arithmetic; None if it is none."""
    match expr:
        case ir.Constant(value=v) if expr.type == I32:
            return {(): int(v)} if v else {}
        case ir.Var() if expr.type == I32:
            return forms.get(expr, {(expr,): 1})
        case ir.Binary(op="+" | "-" | "*", left=left, right=right) if expr.type == I32:
            x, y = _form(left, forms), _form(right, forms)
            if x is None or y is None or len(x) * len(y) > 16:
                return None
            return times(x, y) if expr.op == "*" else plus(x, scale(y, 1 if expr.op == "+" else -1))
    return None


def _near(expr: ir.Expr, forms: Mapping[ir.Var, Polynomial]) -> ir.Expr:
    """The expression as a known variable with something short added, if that is shorter."""
    if not isinstance(expr, ir.Binary) or expr.type != I32 or b.size(expr) <= 3:
        return rebuild(expr, lambda e: _near(e, forms))
    form = _form(expr, forms)
    for var, other in forms.items() if form is not None else ():
        if len(other) < 2:
            continue
        far = plus(form or {}, scale(other, -1))
        if len(far) <= 1 and all(abs(c) == 1 or not m for m, c in far.items()) and all(len(m) <= 1 for m in far):
            return _moved(var, far)
    return rebuild(expr, lambda e: _near(e, forms))


def _moved(var: ir.Var, far: Polynomial) -> ir.Expr:
    for monomial, coefficient in far.items():
        step: ir.Expr = monomial[0] if monomial else b.const(abs(coefficient), I32)
        return b.binary("+-"[coefficient < 0], var, step, I32)
    return var


def flattened(block: ir.Block) -> ir.Block:
    """The block in which a condition that stands alone inside another joins it."""
    out: list[ir.Stmt] = []
    for stmt in block:
        stmt = map_blocks(stmt, flattened)
        match stmt:
            case ir.If(then=(ir.If() as inner,), otherwise=(), merges=()) if not inner.otherwise and not inner.merges:
                out.append(replace(inner, condition=_conjunction(stmt.condition, inner.condition)))
            case _:
                out.append(stmt)
    return tuple(out)


def _conjunction(left: ir.Expr, right: ir.Expr) -> ir.Expr:
    """`left && right`, without parentheses."""
    if isinstance(right, ir.Binary) and right.op == "&&":
        return ir.Binary("&&", _conjunction(left, right.left), right.right, BOOL)
    return ir.Binary("&&", left, right, BOOL)


def folded(expr: ir.Expr) -> ir.Expr:
    """An operation on integers whose operands have changed."""
    if isinstance(expr, ir.Binary) and expr.type.is_integer:
        return b.binary(expr.op, expr.left, expr.right, expr.type)
    return expr


_READING = (ir.Let, ir.Load, ir.Assign, ir.If, ir.For)


def merge_control_flow(block: ir.Block) -> ir.Block:
    """The block with neighbouring questions that are the same asked once, and loops with the same bounds as one."""
    out: list[ir.Stmt] = []
    for stmt in block:
        last = out[-1] if out else None
        if _is_question(stmt) and last is not None and _is_question(last) and _same_question(last, stmt):
            assert isinstance(last, ir.If)
            assert isinstance(stmt, ir.If)
            out[-1] = replace(last, then=(*last.then, *stmt.then))
        else:
            out.append(stmt)
    return _loops(tuple(map_blocks(s, merge_control_flow) for s in out))


def _is_question(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.If) and not stmt.otherwise and not stmt.merges


def _same_question(first: ir.Stmt, second: ir.Stmt) -> bool:
    """True if the second question is the first again, and has the same answer."""
    assert isinstance(first, ir.If)
    assert isinstance(second, ir.If)
    return first.condition == second.condition and not assigned_vars(first.then) & set(ir.variables(first.condition))


def _loops(block: ir.Block) -> ir.Block:
    for at, stmt in enumerate(block):
        if not isinstance(stmt, ir.For):
            continue
        for later in range(at + 1, len(block)):
            joined = _joined(stmt, block[at + 1 : later], block[later])
            if joined is not None:
                return _loops((*block[:at], *joined, *block[later + 1 :]))
            if not isinstance(block[later], ir.Let | ir.Load | ir.Assign):
                break
    return block


def _joined(first: ir.For, between: Sequence[ir.Stmt], second: ir.Stmt) -> ir.Block | None:
    """The two loops as one, with what is between them before or after it; None if the order matters."""
    if not isinstance(second, ir.For) or _bounds(first) != _bounds(second) or second.carried or second.var.type != first.var.type:
        return None
    if not all(isinstance(s, _READING) for s in (*walk_stmts(first.body), *walk_stmts(second.body))):
        return None
    made = {*assigned_vars(first.body), *(v for s in walk_stmts((first,)) for v in defined(s))}
    before: list[ir.Stmt] = []
    after: list[ir.Stmt] = []
    for stmt in between:
        late = isinstance(stmt, ir.Assign) or any(v in made for e in expressions(stmt) for v in ir.variables(e))
        (after if late else before).append(stmt)
        made |= {*defined(stmt)} if late else set()
    made |= {s.var for s in after if isinstance(s, ir.Assign)}
    if needs(second.body, made) or needs((*first.body, *after), assigned_vars(second.body)):
        return None
    body = (*first.body, *map_exprs(second.body, lambda e: substitute(e, {second.var: first.var})))
    return (*before, replace(first, body=body), *after)


def _bounds(loop: ir.For) -> tuple[ir.Expr, ir.Expr, ir.Expr]:
    return loop.start, loop.stop, loop.step


def needs(block: ir.Block, made: Set[ir.Var]) -> bool:
    """True if the block uses any of the variables, other than by adding to them."""
    return any(v in made for s in walk_stmts(block) for e in _used(s) for v in ir.variables(e))


def _used(stmt: ir.Stmt) -> tuple[ir.Expr, ...]:
    match stmt:
        case ir.Assign(var=total, value=ir.Binary(op="+" | "-", left=left, right=added)) if left == total:
            return (added,)
    return expressions(stmt)


Terms: TypeAlias = "list[tuple[bool, ir.Expr]]"  # what is added up; False: its opposite


def terms(expr: ir.Expr, sign: bool = True) -> Terms:
    """What a sum is made of."""
    match expr:
        case ir.Binary(op="+" | "-" as op, left=left, right=right) if expr.type.is_float:
            return [*terms(left, sign), *terms(right, sign == (op == "+"))]
        case ir.Unary(op="-", operand=inner) if expr.type.is_float:
            return terms(inner, not sign)
    return [(sign, expr)]


def added(parts: Sequence[tuple[bool, ir.Expr]]) -> ir.Expr:
    """The sum of so many terms, at least one, which begins with one that needs no sign if there is one."""
    first = next((k for k, (sign, _) in enumerate(parts) if sign), None)
    if first is None:
        return b.neg(added([(True, e) for _, e in parts]))
    total = parts[first][1]
    for sign, term in (*parts[:first], *parts[first + 1 :]):
        total = ir.Binary("+" if sign else "-", total, term, total.type)
    return total


def addition(stmt: ir.Stmt, sums: Collection[ir.Var]) -> Terms | None:
    """What a statement adds to a sum; None if it does something else."""
    if not isinstance(stmt, ir.Assign) or stmt.var not in sums:
        return None
    whole = terms(stmt.value)
    rest = [t for t in whole if t != (True, stmt.var)]
    return rest if len(rest) == len(whole) - 1 and not any(v == stmt.var for _, e in rest for v in ir.variables(e)) else None


def adding(stmt: ir.Assign, parts: Terms) -> ir.Assign:
    """The statement as one that adds this to its sum."""
    op = "+" if any(sign for sign, _ in parts) else "-"
    total = added(parts if op == "+" else [(True, e) for _, e in parts])
    return replace(stmt, value=ir.Binary(op, stmt.var, total, total.type))


def accumulate_directly(body: ir.Block, sums: Collection[ir.Var]) -> ir.Block:
    """The body in which loops add to the sums themselves, and blocks once."""
    uses = Counter(used_vars(body))
    return _Direct(sums, uses).block(body)


@dataclass(frozen=True)
class _Direct:
    sums: Collection[ir.Var]
    uses: Counter[ir.Var]

    def block(self, block: ir.Block) -> ir.Block:
        out = list(block)
        for at, stmt in enumerate(block):
            if isinstance(stmt, ir.For):
                for carried in stmt.carried:
                    self.moved(out, at, carried)
        out = [map_blocks(s, self.block) for s in out if not (isinstance(s, ir.Assign) and s.value == s.var)]
        return self.at_once(out)

    def moved(self, out: list[ir.Stmt], at: int, carried: ir.Carried) -> None:
        """Lets the loop add to a sum what it carries for it, if that is all that becomes of it."""
        step = [t for t in terms(carried.next) if t != (True, carried.var)]
        if not b.is_const(carried.init, 0) or len(step) != len(terms(carried.next)) - 1 or not step:
            return
        if self.uses[carried.var] != 1 or self.uses[carried.result] != 1:
            return
        for later in range(at + 1, len(out)):
            stmt, parts = out[later], addition(out[later], self.sums)
            own = [sign for sign, e in parts or () if e == carried.result]
            if not own or not isinstance(stmt, ir.Assign) or parts is None or stmt.var.type != carried.var.type:
                continue
            loop = out[at]
            assert isinstance(loop, ir.For)
            if needs((loop, *out[at + 1 : later]), {stmt.var}):
                return
            rest = [t for t in parts if t[1] != carried.result]
            inner = adding(stmt, [(sign == own[0], e) for sign, e in step])
            kept = tuple(c for c in loop.carried if c != carried)
            out[at] = replace(loop, body=(*loop.body, inner), carried=kept)
            out[later] = adding(stmt, rest) if rest else replace(stmt, value=stmt.var)
            return

    def at_once(self, block: Sequence[ir.Stmt]) -> ir.Block:
        """The block with what it adds to a sum added by the last of its additions."""
        out: list[ir.Stmt | None] = []
        last: dict[ir.Var, int] = {}
        for stmt in block:
            parts = addition(stmt, self.sums)
            if not isinstance(stmt, ir.Let | ir.Load | ir.Assign) or self.stays(stmt, parts, [out[k] for k in last.values()]):
                last = {}
            elif isinstance(stmt, ir.Assign) and parts is not None:
                if stmt.var in last:
                    before = out[last[stmt.var]]
                    stmt = adding(stmt, [*((addition(before, self.sums) if before else None) or ()), *parts])
                    out[last[stmt.var]] = None
                last[stmt.var] = len(out)
            out.append(stmt)
        return tuple(s for s in out if s is not None)

    def stays(self, stmt: ir.Let | ir.Load | ir.Assign, parts: Terms | None, before: Sequence[ir.Stmt | None]) -> bool:
        """True if no addition may go past a statement: it uses a sum, or changes what is added."""
        used = {v for e in ([e for _, e in parts] if parts is not None else expressions(stmt)) for v in ir.variables(e)}
        if not used.isdisjoint(self.sums):
            return True
        return parts is None and any(stmt.var in ir.variables(e) for s in before if s is not None for e in expressions(s))
