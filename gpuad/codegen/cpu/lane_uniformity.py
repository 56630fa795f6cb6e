"""Uniformity over lanes: which variables are the same in all threads of a strip, and which loops these threads therefore run in step.

A value is the same if it is made of scalar parameters, of launch indices along other axes, of loads through such values from memory that
the kernel does not write, and of variables that are the same. A loop is run in step if its bounds are the same in all threads: then it can
stand outside of the loop over the threads of the strip, which the compiler vectorises. C variables are judged, not Vars: all of the Vars
that share one have to be the same, and to get their values under the same conditions.

A comparison of the global x index with a number of the launch, as in the guard `i < n`, is the same in all threads of a strip too if strips
end where it changes: that is done for those that a loop stands behind.

The largest such set is found by assuming all, and taking back what turns out to differ until nothing more does.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir import nodes as ir
from ...ir.rewrite import assigned_vars, expressions_in, holds, is_short, rebuild, substitute, used_vars, walk_stmts
from ...ir.types import F32
from ..coalesce import Classes
from ..folded import Read, operands, scopes, single_values, targets, written
from .iteration_domain import Bound, bound_of
from .lane_conflicts import conflicts, only_added

# What compilers have vector instructions for, or which is made of such. Of other functions each thread's call costs more than all else.
_VECTORISED = {
    "sqrt", "rsqrt", "fabs", "fmin", "fmax", "floor", "ceil", "trunc", "rint", "nearbyint", "fma", "copysign", "min", "max", "abs",
    "gpuad_chain", "gpuad_collected", "gpuad_used", "isnan", "isinf", "isfinite", "bits", "__fdividef", "__frcp_rn", "__fsqrt_rn",
    "__frsqrt_rn", "__fadd_rn", "__fsub_rn", "__fmul_rn", "__fdiv_rn", "__fmaf_rn", "__saturatef", "__dadd_rn", "__dsub_rn",
    "__dmul_rn", "__ddiv_rn", "__dsqrt_rn", "__drcp_rn", "__fma_rn", "[]",
}  # fmt: skip
_ALONE = (ir.Atomic, ir.Tell, ir.Barrier, ir.Shuffle)
_Region = tuple[int, ...]  # the branches, not taken by all threads of a strip, that a statement is in


class Uniform:
    """The C variables of a folded kernel that are the same in all threads of a strip, and the statements that these run in step.

    With `threads`, a loop whose iterations are threads: the same of its body and its iterations."""

    def __init__(self, kernel: ir.Kernel, classes: Classes, threads: ir.For | None = None) -> None:
        self.kernel = kernel
        self.classes = classes
        self.lane = threads.var if threads else None
        self.work = threads.body if threads else kernel.body
        self.changed = {written(s) for s in walk_stmts(self.work)}
        self.written = {written(s) for s in walk_stmts(kernel.body)}
        self.only_added = only_added(self.work)
        self.assigned = assigned_vars(kernel.body)
        self.joined = {v for s in walk_stmts(kernel.body) for v in _joined(s)}
        self.loops: set[ir.Var] = set()
        self.values = single_values(kernel)
        self.steady = self.steady_values()
        self.cuts = () if threads else tuple(dict.fromkeys(self.guarding(kernel)))
        self.varying: set[ir.Var] = {classes.find(threads.var)} if threads else set()
        while True:
            before = len(self.varying)
            self.regions: dict[ir.Var, _Region] = {}
            self.known: dict[int, bool] = {}
            self.block(self.work, ())
            if len(self.varying) == before:
                break

    def steady_values(self) -> dict[ir.Var, ir.Expr]:
        """What variables are in terms of others whose C variables are never given another value: they may be used later too."""
        counters = {s.var for s in walk_stmts(self.kernel.body) if isinstance(s, ir.For)}
        table: dict[ir.Var, ir.Expr] = {}
        for stmt in walk_stmts(self.kernel.body):
            if isinstance(stmt, ir.Let) and stmt.var not in self.assigned:
                value = substitute(stmt.value, table)
                if is_short(value) and all(v in counters or self.is_single(v) for v in ir.variables(value)):
                    table[stmt.var] = value
        return table

    def guarding(self, kernel: ir.Kernel) -> Iterator[Bound]:
        """Where comparisons with the global x index change that a loop stands behind."""
        for stmt in walk_stmts(kernel.body):
            if isinstance(stmt, ir.If) and holds((stmt,), ir.For, ir.While):
                bounds = (self.bound(e) for e in ir.walk(substitute(stmt.condition, self.values)))
                yield from (b for b in bounds if b is not None)

    def bound(self, expr: ir.Expr) -> Bound | None:
        return bound_of(substitute(expr, self.values), self.kernel) if isinstance(expr, ir.Binary) else None

    def is_uniform(self, expr: ir.Expr) -> bool:
        """True if the expression has the same value in all threads of a strip that compute it."""
        if self.is_cut(expr):
            return True
        return self.is_same(expr) and all(self.is_uniform(e) for e in ir.children(expr))

    def is_cut(self, expr: ir.Expr) -> bool:
        """True if strips end where the expression, a comparison with the global x index, changes."""
        if not isinstance(expr, ir.Binary) or not self.cuts or self.bound(expr) not in self.cuts:
            return False
        return any(self.is_index(a) and self.is_uniform(b) for a, b in ((expr.left, expr.right), (expr.right, expr.left)))

    def is_index(self, expr: ir.Expr) -> bool:
        """True if the expression is made of the global x index and constants."""
        full = substitute(expr, self.values)
        return any(isinstance(e, ir.LaunchIndex) for e in ir.walk(full)) and not any(isinstance(e, ir.Var | ir.Call) for e in ir.walk(full))

    def of_first(self, expr: ir.Expr) -> ir.Expr:
        """The expression with the comparisons where strips end in terms of the first lane's index."""
        if isinstance(expr, ir.Binary) and self.is_cut(expr):
            return rebuild(expr, lambda e: substitute(e, self.values) if self.is_index(e) else e)
        return rebuild(expr, self.of_first) if self.cuts else expr

    def is_same(self, expr: ir.Expr) -> bool:
        match expr:
            case ir.Var():
                return self.classes.find(expr) not in self.varying
            case ir.LaunchIndex(name=name, axis=axis):
                return self.lane is not None or axis != "x" or name not in ("threadIdx", "globalIdx")
            case Read(buffer=buffer):
                return buffer not in self.changed and buffer not in self.kernel.rows
        return True

    def is_once(self, stmt: ir.Stmt) -> bool:
        """True if the statement is computed once for a strip."""
        return isinstance(stmt, ir.Let | ir.Load | ir.Assign) and self.is_same(stmt.var)

    def is_single(self, var: ir.Var) -> bool:
        """True if the C variable gets a value in one place only."""
        return len(self.classes.of(var)) == 1 and var not in self.assigned and var not in self.joined

    def begins_outside(self, root: ir.Var) -> bool:
        """True if a variable that may differ from lane to lane has its first value from before their work: it is a scalar parameter which
        the kernel overwrites. Each lane begins with that, not with what another has left."""
        own = {*bound_in(self.work), self.lane}
        return root in self.varying and any(v not in own for v in self.classes.of(root))

    def lifts(self, stmt: ir.Stmt) -> bool:
        """True if the statement is a loop that the threads of a strip run in step, or a branch that has one in it."""
        if id(stmt) not in self.known:
            self.known[id(stmt)] = self.runs_in_step(stmt)
        return self.known[id(stmt)]

    def runs_in_step(self, stmt: ir.Stmt) -> bool:
        match stmt:
            case ir.If():
                return any(self.lifts(s) or conflicts(s) for s in (*stmt.then, *stmt.otherwise))
            case ir.For():
                return all(self.is_uniform(e) for e in (stmt.start, stmt.stop, stmt.step)) and self.pays(stmt)
            case ir.While():
                return self.is_uniform(stmt.condition) and self.pays(stmt)
        return False

    def pays(self, loop: ir.For | ir.While) -> bool:
        """True if compilers can vectorise what the loop does."""
        inside = [s for block, _ in scopes(loop) for s in walk_stmts(block)]
        if any(isinstance(s, _ALONE) for s in inside):
            return False
        computed = [e for top in expressions_in((loop,)) for e in ir.walk(top)]
        if any(isinstance(e, ir.Call) and not is_vectorised(e) for e in computed):
            return False
        if not is_long(loop) and not any(map(_touches_memory, inside)) and not any(isinstance(e, Read) for e in computed):
            return False
        return all(self.lifts(s) for s in inside if isinstance(s, ir.For | ir.While))

    # --- one round ---

    def block(self, block: ir.Block, region: _Region) -> None:
        for stmt in block:
            if self.lifts(stmt):
                self.in_step(stmt, region)
            elif isinstance(stmt, ir.Let | ir.Load | ir.Assign):
                value = isinstance(stmt, ir.Load) and stmt.buffer in self.changed
                self.give(stmt.var, not value and all(self.is_uniform(e) for e in operands(stmt)), region)
            else:
                self.varying |= {self.classes.find(v) for v in bound_in((stmt,))}

    def in_step(self, stmt: ir.Stmt, region: _Region) -> None:
        match stmt:
            case ir.If():
                self.varying |= {self.classes.find(m.var) for m in stmt.merges}
                same = self.is_uniform(stmt.condition)
                self.block(stmt.then, region if same else (*region, id(stmt)))
                self.block(stmt.otherwise, region if same else (*region, -id(stmt)))
            case ir.For() | ir.While():
                for c in stmt.carried:
                    for var, value in ((c.var, c.init), (c.var, c.next), (c.result, c.var)):
                        self.give(var, self.is_uniform(value), region)
                if isinstance(stmt, ir.For):
                    self.give(stmt.var, True, region)
                    self.loops.add(stmt.var)
                else:
                    self.block(stmt.header, region)
                self.block(stmt.body, region)

    def give(self, var: ir.Var, same: bool, region: _Region) -> None:
        root = self.classes.find(var)
        if not same or self.regions.setdefault(root, region) != region:
            self.varying.add(root)


def is_vectorised(call: ir.Call) -> bool:
    """True if compilers have vector instructions for a call, or it is made of such."""
    return call.function in _VECTORISED or (call.function == "exp" and call.type == F32)


def is_long(stmt: ir.Stmt) -> bool:
    """True if the statement is a loop that compilers do not unroll, and then vectorise around."""
    return isinstance(stmt, ir.For | ir.While) and not (
        isinstance(stmt, ir.For) and isinstance(stmt.start, ir.Constant) and isinstance(stmt.stop, ir.Constant)
    )


def _touches_memory(stmt: ir.Stmt) -> bool:
    return written(stmt) is not None or isinstance(stmt, ir.Load)


def _joined(stmt: ir.Stmt) -> Iterator[ir.Var]:
    match stmt:
        case ir.If(merges=merges):
            yield from (m.var for m in merges)
        case ir.For(carried=carried) | ir.While(carried=carried):
            yield from (v for c in carried for v in (c.var, c.result))


def bound_in(block: ir.Block) -> Iterator[ir.Var]:
    """All Vars that the statements give values to."""
    for stmt in walk_stmts(block):
        yield from targets(stmt)
        yield from _joined(stmt)
        if isinstance(stmt, ir.For):
            yield stmt.var


def used(stmt: ir.Stmt) -> Iterator[ir.Var]:
    """All Vars that the statement gives values to or uses, with all that is nested in it."""
    yield from bound_in((stmt,))
    yield from used_vars((stmt,))
