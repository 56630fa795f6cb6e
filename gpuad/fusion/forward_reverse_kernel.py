"""One kernel that does what a kernel and its reverse do, thread by thread, where a launch shows that this is the same.

The reverse comes first where it reads what was there before the launch: then no copy of that has to be made. It comes last where it reads
what the launch has left. Which of the two it is, and that no thread touches what another one writes, is for the caller to prove.

Assumes: valid IR, the same parameters in both; guarantees: valid IR with unique definitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from ..ir import nodes as ir
from ..ir.rewrite import Names, assigned_vars, bound, defined, map_blocks, map_stmt_exprs, substitute, substituted, walk_stmts
from ..optimize.common_subexpressions import eliminate_common_subexpressions


def fused(
    primal: ir.Kernel,
    reverse: ir.Kernel,
    entry: Mapping[ir.Buffer, ir.Buffer],
    params: Sequence[ir.Var | ir.Buffer],
    *,
    reverse_first: bool,
) -> ir.Kernel:
    """The kernel that does both. `entry`: buffers that stand for memory as it was before the launch, and that memory; `params`: those
    of the result."""
    back = _on_memory(reverse.body, entry)
    forth = with_own_names(primal.body, Names(reverse), {})
    if reverse_first:  # sums over threads stay at the end
        count = next((k for k, s in enumerate(reversed(back)) if not _is_sum(s)), len(back))
        back, sums = back[: len(back) - count], back[len(back) - count :]
        joined, renamed = _joined((*back, *forth))
        body = (*joined, *(substituted(s, renamed) for s in sums))
    else:
        body, _ = _joined((*forth, *back))
    body = eliminate_common_subexpressions(body)
    return ir.Kernel(f"{primal.name}_autodiff", tuple(params), body, primal.span, const=primal.const)


def preceded(kernel: ir.Kernel, first: ir.Kernel, further: Sequence[ir.Var | ir.Buffer]) -> ir.Kernel:
    """The kernel in which each thread does the work of `first` before its own; `further`: the parameters that only `first` has. That no
    thread writes what the `first` of another one reads is for the caller to prove."""
    params = (*kernel.params, *further)
    names = Names(replace(kernel, params=params))
    body, _ = _joined((*with_own_names(with_own_arrays(first.body, names), names, {}), *kernel.body))
    return ir.Kernel(f"{kernel.name}_keep", params, body, kernel.span, const=kernel.const)


def _on_memory(block: ir.Block, entry: Mapping[ir.Buffer, ir.Buffer]) -> ir.Block:
    """The block with buffers replaced."""
    return tuple(_at(map_blocks(stmt, lambda inner: _on_memory(inner, entry)), entry) for stmt in block)


def _at(stmt: ir.Stmt, entry: Mapping[ir.Buffer, ir.Buffer]) -> ir.Stmt:
    return replace(stmt, buffer=entry[stmt.buffer]) if isinstance(stmt, ir.Load) and stmt.buffer in entry else stmt


# --- names -------------------------------------------------------------------------------------------------------------------------------


def with_own_names(block: ir.Block, names: Names, given: Mapping[ir.Var, ir.Expr]) -> ir.Block:
    """The block with definitions of its own; `given`: what stands for variables that it does not define."""
    own: dict[ir.Var, ir.Var] = {}
    for stmt in walk_stmts(block):
        for var in bound(stmt):
            if var not in own:
                own[var] = names.var(var.name, var.type)
    return _renamed(block, own, {**given, **own})


def with_own_arrays(block: ir.Block, names: Names) -> ir.Block:
    """The block with local arrays of its own."""
    made = [s.buffer for s in walk_stmts(block) if isinstance(s, ir.Alloc)]
    return _elsewhere(block, {a: names.buffer(a.name, a.element, a.space, a.length) for a in made})


def _elsewhere(block: ir.Block, arrays: Mapping[ir.Buffer, ir.Buffer]) -> ir.Block:
    inner = (map_blocks(stmt, lambda b: _elsewhere(b, arrays)) for stmt in block)
    return tuple(replace(s, buffer=arrays[s.buffer]) if getattr(s, "buffer", None) in arrays else s for s in inner)  # type: ignore[call-arg, attr-defined]


def _renamed(block: ir.Block, own: Mapping[ir.Var, ir.Var], used: Mapping[ir.Var, ir.Expr]) -> ir.Block:
    return tuple(
        _defining(map_blocks(map_stmt_exprs(s, lambda e: substitute(e, used)), lambda b: _renamed(b, own, used)), own) for s in block
    )


def _defining(stmt: ir.Stmt, own: Mapping[ir.Var, ir.Var]) -> ir.Stmt:
    """The statement with new names for what it defines or assigns."""
    match stmt:
        case ir.If(merges=merges):
            return replace(stmt, merges=tuple(ir.Merge(own[m.var], m.then, m.otherwise) for m in merges))
        case ir.For(var=var, carried=carried):
            return replace(stmt, var=own[var], carried=_carried(carried, own))
        case ir.While(carried=carried, counter=counter, count=count):
            counted, final = own[counter] if counter else None, own[count] if count else None
            return replace(stmt, carried=_carried(carried, own), counter=counted, count=final)
        case ir.Let() | ir.Load() | ir.Take() | ir.Assign() | ir.Atomic():
            return replace(stmt, var=own[stmt.var]) if stmt.var is not None else stmt
    return stmt


def _carried(carried: tuple[ir.Carried, ...], own: Mapping[ir.Var, ir.Var]) -> tuple[ir.Carried, ...]:
    return tuple(ir.Carried(own[c.var], c.init, c.next, own[c.result]) for c in carried)


# --- what both compute -----------------------------------------------------------------------------------------------------------------


def _is_sum(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.Accumulate) and stmt.how is ir.How.REDUCED


def _joined(block: ir.Block) -> tuple[ir.Block, Mapping[ir.Var, ir.Var]]:
    """What the second part loads and computes again is taken from the first; guards that follow each other become one. Gives the names of
    what was taken, too."""
    loads: dict[tuple[ir.Buffer, ir.Expr], ir.Var] = {}
    values: dict[ir.Expr, ir.Var] = {}
    renamed: dict[ir.Var, ir.Var] = {}
    assigned = assigned_vars(block)
    out: list[ir.Stmt] = []
    for old in block:
        stmt = substituted(old, renamed)
        for written in {s.buffer for s in walk_stmts((stmt,)) if hasattr(s, "buffer") and not isinstance(s, ir.Load)}:
            loads = {k: v for k, v in loads.items() if k[0] != written}
        last = out[-1] if out else None
        if isinstance(stmt, ir.If) and isinstance(last, ir.If) and _one_guard(last, stmt, assigned):
            merged = {m.var: m.then for m in last.merges}  # not yet to be seen where the second part comes to lie
            then, inner = _joined((*last.then, *(substituted(s, merged) for s in stmt.then)))
            merges = tuple(ir.Merge(m.var, substitute(m.then, inner), m.otherwise) for m in last.merges)
            out[-1] = replace(last, then=then, merges=merges)
            continue
        known = _known(stmt, loads, values) if not assigned & set(defined(stmt)) else None
        if known is not None:
            renamed[defined(stmt)[0]] = known
            continue
        out.append(stmt)
        if isinstance(stmt, ir.Load):
            loads[stmt.buffer, stmt.index] = stmt.var
        elif isinstance(stmt, ir.Let) and not assigned & {stmt.var, *ir.variables(stmt.value)}:
            values[stmt.value] = stmt.var
    return tuple(out), renamed


def _known(stmt: ir.Stmt, loads: Mapping[tuple[ir.Buffer, ir.Expr], ir.Var], values: Mapping[ir.Expr, ir.Var]) -> ir.Var | None:
    """The variable that has the value already."""
    if isinstance(stmt, ir.Load):
        return loads.get((stmt.buffer, stmt.index))
    return values.get(stmt.value) if isinstance(stmt, ir.Let) else None


def _one_guard(a: ir.If, b: ir.If, assigned: Set[ir.Var]) -> bool:
    """True if both do something where one condition holds, and what it hangs on, or the first leaves, does not change between."""
    kept = {*ir.variables(b.condition), *(v for m in a.merges for v in (m.var, *ir.variables(m.then)))}
    return a.condition == b.condition and not (a.otherwise or b.otherwise or b.merges or assigned & kept)


__all__ = ["fused", "preceded"]
