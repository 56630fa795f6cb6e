"""Merges adjacent branches with one condition (jump threading) and loops over one range (loop fusion).

In the gather of an all-pairs loop a thread goes through all others twice: for what it sends to itself, and for what they send to it. In one
loop the two share distances and what is made of them (`common_subexpressions`).

Assumes unique definitions, and statements that touch no memory but to read it; guarantees valid IR.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from ..ir.nodes import Assign, Binary, Block, Expr, For, If, Let, Load, Stmt, Var, variables
from ..ir.rewrite import assigned_vars, defined, expressions, map_blocks, map_exprs, substitute, walk_stmts

_READING = (Let, Load, Assign, If, For)


def merge_control_flow(block: Block) -> Block:
    """The block with neighbouring questions that are the same asked once, and loops with the same bounds as one."""
    out: list[Stmt] = []
    for stmt in block:
        last = out[-1] if out else None
        if _is_question(stmt) and last is not None and _is_question(last) and _same_question(last, stmt):
            assert isinstance(last, If)
            assert isinstance(stmt, If)
            out[-1] = replace(last, then=(*last.then, *stmt.then))
        else:
            out.append(stmt)
    return _loops(tuple(map_blocks(s, merge_control_flow) for s in out))


def _is_question(stmt: Stmt) -> bool:
    return isinstance(stmt, If) and not stmt.otherwise and not stmt.merges


def _same_question(first: Stmt, second: Stmt) -> bool:
    """Whether the second question is the first again, and has the same answer."""
    assert isinstance(first, If)
    assert isinstance(second, If)
    return first.condition == second.condition and not assigned_vars(first.then) & set(variables(first.condition))


def _loops(block: Block) -> Block:
    for at, stmt in enumerate(block):
        if not isinstance(stmt, For):
            continue
        for later in range(at + 1, len(block)):
            joined = _joined(stmt, block[at + 1 : later], block[later])
            if joined is not None:
                return _loops((*block[:at], *joined, *block[later + 1 :]))
            if not isinstance(block[later], Let | Load | Assign):
                break
    return block


def _joined(first: For, between: Sequence[Stmt], second: Stmt) -> Block | None:
    """The two loops as one, with what is between them before or after it; None if the order matters."""
    if not isinstance(second, For) or _bounds(first) != _bounds(second) or second.carried or second.var.type != first.var.type:
        return None
    if not all(isinstance(s, _READING) for s in (*walk_stmts(first.body), *walk_stmts(second.body))):
        return None
    made = {*assigned_vars(first.body), *(v for s in walk_stmts((first,)) for v in defined(s))}
    before: list[Stmt] = []
    after: list[Stmt] = []
    for stmt in between:
        late = isinstance(stmt, Assign) or any(v in made for e in expressions(stmt) for v in variables(e))
        (after if late else before).append(stmt)
        made |= {*defined(stmt)} if late else set()
    made |= {s.var for s in after if isinstance(s, Assign)}
    if needs(second.body, made) or needs((*first.body, *after), assigned_vars(second.body)):
        return None
    body = (*first.body, *map_exprs(second.body, lambda e: substitute(e, {second.var: first.var})))
    return (*before, replace(first, body=body), *after)


def _bounds(loop: For) -> tuple[Expr, Expr, Expr]:
    return loop.start, loop.stop, loop.step


def needs(block: Block, made: Set[Var]) -> bool:
    """Whether the block uses any of the variables, other than by adding to them."""
    return any(v in made for s in walk_stmts(block) for e in _used(s) for v in variables(e))


def _used(stmt: Stmt) -> tuple[Expr, ...]:
    match stmt:
        case Assign(var=total, value=Binary(op="+" | "-", left=left, right=added)) if left == total:
            return (added,)
    return expressions(stmt)
