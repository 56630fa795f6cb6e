"""Scalar replacement of local arrays (SROA) with full unrolling of the loops of constant length over them.

`const int ex[9] = {0, 1, ...}` and a loop over its nine elements is how a lattice's directions are written; weights of a stencil, a few
sums at once, the entries of a small matrix, and small stacks of an adjoint are arrays as well. With an array of its own, no thread can
share a vector with another: a compiler does not take such an array apart when it looks at the loop over threads. Here every access to such
an array is at an index that is known once the loops are written out, so that each element is a variable, or the constant that it is. An
array that is accessed anywhere else stays, and its loops with it. So does one that is stored to where that is not certain to be done, in a
loop of any length or in a branch, as the state is that an integrator steps; unless its elements may be variables that are assigned to.

Scalar replacement of aggregates (SROA) on primals: local arrays with constant indices only (`R[0]`, `camera.at[2]`) become variables.

So they are values like any other: nothing of them has to be kept for the reverse pass that could be named, and its text has no array.

Assumes: a lowered kernel. Guarantees: the same values; an element that is read before it was written, which C++ leaves open, is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..analysis.trip_counts import constant_range
from ..ir import nodes as ir
from ..ir.folding import evaluated, whole
from ..ir.rewrite import Names, assigned_vars, bound, defined, map_stmt_exprs, walk_stmts
from ..ir.types import HALVES, Space, value_type
from .privatisation import privatise_scalars

LENGTH = 64  # of an array, and of a loop
STATEMENTS = 800  # that are written out in all


def unroll_local_arrays(kernel: ir.Kernel, assigned: bool = False) -> ir.Kernel:
    """The kernel without the local arrays that can be variables; itself if there is none. `assigned`: also those that are stored to in
    loops and branches, whose elements become variables that are assigned to."""
    made = _without_arrays(kernel, assigned)
    return (_without_arrays(kernel, False) if made is None and assigned else made) or kernel


def _without_arrays(kernel: ir.Kernel, assigned: bool) -> ir.Kernel | None:
    """None if that is too long."""
    found = {s.buffer for s in walk_stmts(kernel.body) if isinstance(s, ir.Alloc) and _is_small(s.buffer)}
    changing: set[ir.Buffer] = set()
    while found:
        task = _Unroll(kernel, frozenset(found), frozenset(changing))
        body = task.block(kernel.body, _Scope())
        if task.written > STATEMENTS:
            return None
        if assigned:
            changing |= task.uncertain
        else:
            task.kept |= task.uncertain
        if not task.kept and not task.uncertain:
            return replace(kernel, body=privatise_scalars(body, task.elements))
        found -= task.kept
    return kernel


def _is_small(buffer: ir.Buffer) -> bool:
    return buffer.space is Space.LOCAL and buffer.length is not None and buffer.length <= LENGTH and buffer.element not in HALVES


@dataclass
class _Scope:
    """What stands for the variables, what the arrays hold, and which arrays may be stored to: those that were made here."""

    values: dict[ir.Var, ir.Expr] = field(default_factory=dict)
    elements: dict[tuple[ir.Buffer, int], ir.Expr] = field(default_factory=dict)
    open: set[ir.Buffer] = field(default_factory=set)
    renames: bool = False

    def inner(self) -> _Scope:
        """A scope that may not be reached."""
        return _Scope(dict(self.values), dict(self.elements), set(), self.renames)


class _Unroll:
    """`changing`: the arrays whose elements are assigned to. `kept`: those that turned out to have to stay, `uncertain` those that have to
    if they are not changing."""

    def __init__(self, kernel: ir.Kernel, arrays: frozenset[ir.Buffer], changing: frozenset[ir.Buffer]) -> None:
        self.arrays = arrays
        self.changing = changing
        self.kept: set[ir.Buffer] = set()
        self.uncertain: set[ir.Buffer] = set()
        self.elements: set[ir.Var] = set()  # of the arrays that are changing
        self.mutable = set(assigned_vars(kernel.body))
        own = (v for s in walk_stmts(kernel.body) for v in bound(s))
        self.uid = 1 + max((v.uid for v in (*kernel.scalars, *own)), default=0)
        self.written = 0

    def block(self, block: ir.Block, scope: _Scope) -> ir.Block:
        out: list[ir.Stmt] = []
        for stmt in block:
            if self.written > STATEMENTS:
                break
            self.written += scope.renames
            self.statement(stmt, scope, out)
        return tuple(out)

    def statement(self, stmt: ir.Stmt, scope: _Scope, out: list[ir.Stmt]) -> None:
        match stmt:
            case ir.If():
                self.branch(stmt, scope, out)
            case ir.For():
                self.loop(stmt, scope, out)
            case ir.While():
                self.wait(stmt, scope, out)
            case _ if getattr(stmt, "buffer", None) in self.arrays:
                self.access(stmt, scope, out)
            case _:
                self.simple(stmt, scope, out)

    def simple(self, stmt: ir.Stmt, scope: _Scope, out: list[ir.Stmt]) -> None:
        stmt = map_stmt_exprs(stmt, lambda e: evaluated(e, scope.values))
        if isinstance(stmt, ir.Let) and stmt.var not in self.mutable and whole(stmt.value) is not None and stmt.var.type == stmt.value.type:
            scope.values[stmt.var] = stmt.value
            return
        if isinstance(stmt, ir.Assign):
            target = scope.values.get(stmt.var, stmt.var)
            assert isinstance(target, ir.Var)
            out.append(replace(stmt, var=target))
            return
        names = {v: self.named(v, scope) for v in defined(stmt)}
        out.append(_defining(stmt, names) if any(v is not w for v, w in names.items()) else stmt)

    def named(self, var: ir.Var, scope: _Scope) -> ir.Var:
        """The variable to be defined: a fresh one where a loop is written out."""
        scope.values.pop(var, None)
        if not scope.renames:
            return var
        fresh = self.fresh(var)
        scope.values[var] = fresh
        return fresh

    def fresh(self, var: ir.Var) -> ir.Var:
        self.uid += 1
        made = replace(var, uid=self.uid)
        if var in self.mutable:
            self.mutable.add(made)
        return made

    # --- arrays ---

    def access(self, stmt: ir.Stmt, scope: _Scope, out: list[ir.Stmt]) -> None:
        if isinstance(stmt, ir.Alloc) and stmt.buffer in self.changing:
            self.variables(stmt.buffer, scope, out)
            return
        if isinstance(stmt, ir.Alloc):
            scope.open.add(stmt.buffer)
            zero = ir.Constant(0, stmt.buffer.element)
            for k in range(stmt.buffer.length or 0):
                scope.elements.pop((stmt.buffer, k), None)
                if stmt.zero:
                    scope.elements[stmt.buffer, k] = zero
            return
        assert isinstance(stmt, ir.Load | ir.Store | ir.Accumulate | ir.Take | ir.Atomic)
        index = whole(evaluated(stmt.index, scope.values))
        if index is None or isinstance(stmt, ir.Atomic) or not 0 <= index < (stmt.buffer.length or 0):
            self.kept.add(stmt.buffer)
        elif stmt.buffer in self.changing:
            self.variable(stmt, scope.elements[stmt.buffer, index], scope, out)
        elif isinstance(stmt, ir.Load) or stmt.buffer in scope.open:
            self.element(stmt, (stmt.buffer, index), scope, out)
        else:
            self.uncertain.add(stmt.buffer)

    def variables(self, array: ir.Buffer, scope: _Scope, out: list[ir.Stmt]) -> None:
        """A variable for each element."""
        for k in range(array.length or 0):
            var = self.fresh(ir.Var(array.name, array.element, 0))
            self.mutable.add(var)
            self.elements.add(var)
            scope.elements[array, k] = var
            out.append(ir.Let(var, ir.Constant(0, array.element)))

    def variable(self, stmt: ir.Load | ir.Store | ir.Accumulate | ir.Take, var: ir.Expr, scope: _Scope, out: list[ir.Stmt]) -> None:
        """An access to an element that is a variable."""
        assert isinstance(var, ir.Var)
        if isinstance(stmt, ir.Load | ir.Take):
            out.append(ir.Let(self.named(stmt.var, scope), var, span=stmt.span, note=stmt.note))
        if isinstance(stmt, ir.Load):
            return
        value = ir.Constant(0, var.type) if isinstance(stmt, ir.Take) else evaluated(stmt.value, scope.values)
        if value.type != var.type:
            self.kept.add(stmt.buffer)
        value = ir.Binary("+", var, value, var.type) if isinstance(stmt, ir.Accumulate) else value
        out.append(ir.Assign(var, value, span=stmt.span, note=stmt.note))

    def element(
        self, stmt: ir.Load | ir.Store | ir.Accumulate | ir.Take, at: tuple[ir.Buffer, int], scope: _Scope, out: list[ir.Stmt]
    ) -> None:
        old = scope.elements.get(at)
        if not isinstance(stmt, ir.Store) and old is None:
            self.uncertain.add(stmt.buffer)  # no store there is certain
            return
        if isinstance(stmt, ir.Load | ir.Take):
            assert old is not None
            self.give(stmt.var, old, scope, out)
        if isinstance(stmt, ir.Take):
            scope.elements[at] = ir.Constant(0, stmt.buffer.element)
        if not isinstance(stmt, ir.Store | ir.Accumulate):
            return
        value = evaluated(stmt.value, scope.values)
        if isinstance(stmt, ir.Accumulate):
            assert old is not None
            value = ir.Binary("+", old, value, value.type)
        if value.type != stmt.buffer.element:
            self.kept.add(stmt.buffer)
            return
        scope.elements[at] = self.held(value, stmt, out)

    def give(self, var: ir.Var, value: ir.Expr, scope: _Scope, out: list[ir.Stmt]) -> None:
        """The variable has the value of an element."""
        if var in self.mutable:
            out.append(ir.Let(self.named(var, scope), value))
        else:
            scope.values[var] = value

    def held(self, value: ir.Expr, stmt: ir.Store | ir.Accumulate, out: list[ir.Stmt]) -> ir.Expr:
        """What stands for a value from here on."""
        used = set(ir.variables(value))
        if not used or (isinstance(value, ir.Var) and value not in self.mutable):
            return value
        var = self.fresh(ir.Var(stmt.buffer.name, value.type, 0))
        out.append(ir.Let(var, value, span=stmt.span))
        return var

    # --- control flow ---

    def branch(self, stmt: ir.If, scope: _Scope, out: list[ir.Stmt]) -> None:
        condition = evaluated(stmt.condition, scope.values)
        known = whole(condition)
        if known is not None:
            renamed, scope.renames = scope.renames, True
            out += self.block(stmt.then if known else stmt.otherwise, scope)
            for m in stmt.merges:
                self.simple(ir.Let(m.var, m.then if known else m.otherwise, span=stmt.span), scope, out)
            scope.renames = renamed
            return
        sides = [scope.inner(), scope.inner()]
        then, otherwise = (self.block(b, s) for b, s in zip((stmt.then, stmt.otherwise), sides, strict=True))
        ends = [(evaluated(m.then, sides[0].values), evaluated(m.otherwise, sides[1].values)) for m in stmt.merges]
        merges = tuple(ir.Merge(self.named(m.var, scope), *end) for m, end in zip(stmt.merges, ends, strict=True))
        out.append(replace(stmt, condition=condition, then=then, otherwise=otherwise, merges=merges))

    def loop(self, stmt: ir.For, scope: _Scope, out: list[ir.Stmt]) -> None:
        start, stop, step = (evaluated(e, scope.values) for e in (stmt.start, stmt.stop, stmt.step))
        trips = constant_range(start, stop, step)
        if trips is not None and len(trips) <= LENGTH and any(getattr(s, "buffer", None) in self.arrays for s in walk_stmts(stmt.body)):
            self.write_out(stmt, trips, scope, out)
            return
        inner = scope.inner()
        inits = [evaluated(c.init, scope.values) for c in stmt.carried]
        var, heads = self.named(stmt.var, inner), [self.named(c.var, inner) for c in stmt.carried]
        body = self.block(stmt.body, inner)
        carried = self.carried(stmt.carried, heads, inits, scope, inner)
        out.append(replace(stmt, var=var, start=start, stop=stop, step=step, body=body, carried=carried))

    def carried(
        self, carried: tuple[ir.Carried, ...], heads: list[ir.Var], inits: list[ir.Expr], scope: _Scope, inner: _Scope
    ) -> tuple[ir.Carried, ...]:
        nexts = [evaluated(c.next, inner.values) for c in carried]
        return tuple(
            ir.Carried(head, init, after, self.named(c.result, scope))
            for c, head, init, after in zip(carried, heads, inits, nexts, strict=True)
        )

    def wait(self, stmt: ir.While, scope: _Scope, out: list[ir.Stmt]) -> None:
        inner = scope.inner()
        inits = [evaluated(c.init, scope.values) for c in stmt.carried]
        counter, heads = stmt.counter and self.named(stmt.counter, inner), [self.named(c.var, inner) for c in stmt.carried]
        header = self.block(stmt.header, inner)
        condition = evaluated(stmt.condition, inner.values)
        body = self.block(stmt.body, inner)
        carried = self.carried(stmt.carried, heads, inits, scope, inner)
        count = stmt.count and self.named(stmt.count, scope)
        out.append(replace(stmt, header=header, condition=condition, body=body, carried=carried, counter=counter, count=count))

    def write_out(self, stmt: ir.For, trips: range, scope: _Scope, out: list[ir.Stmt]) -> None:
        """The loop, iteration after iteration. An iteration's variables have names of their own."""
        renamed, scope.renames = scope.renames, True
        current = [self.bound(c.var, evaluated(c.init, scope.values), out) for c in stmt.carried]
        for number in reversed(trips) if stmt.backward else trips:
            scope.values[stmt.var] = ir.Constant(number, stmt.var.type)
            scope.values.update((c.var, value) for c, value in zip(stmt.carried, current, strict=True))
            out += self.block(stmt.body, scope)
            ends = [evaluated(c.next, scope.values) for c in stmt.carried]
            current = [self.bound(c.var, end, out) for c, end in zip(stmt.carried, ends, strict=True)]
        scope.renames = renamed
        scope.values.update((c.result, value) for c, value in zip(stmt.carried, current, strict=True))

    def bound(self, var: ir.Var, value: ir.Expr, out: list[ir.Stmt]) -> ir.Expr:
        """What stands for a value that a loop carries."""
        if isinstance(value, ir.Constant) or (isinstance(value, ir.Var) and value not in self.mutable):
            return value
        made = self.fresh(var)
        out.append(ir.Let(made, value))
        return made


def _defining(stmt: ir.Stmt, names: Mapping[ir.Var, ir.Var]) -> ir.Stmt:
    """The statement with another variable defined."""
    assert isinstance(stmt, ir.Let | ir.Load | ir.Take | ir.Shuffle | ir.Atomic), stmt
    return replace(stmt, var=names[stmt.var]) if stmt.var is not None else stmt


Element: TypeAlias = "tuple[ir.Buffer, int]"
Values: TypeAlias = "dict[Element, ir.Expr]"


def replace_aggregates(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel without the arrays that can be variables."""
    arrays = _plain_arrays(kernel.body)
    if not arrays:
        return kernel
    return replace(kernel, body=_Replacement(frozenset(arrays), Names(kernel)).block(kernel.body, {}))


def _plain_arrays(body: ir.Block) -> set[ir.Buffer]:
    """The arrays of a thread that are only reached by numbers within their length."""
    stmts = list(walk_stmts(body))
    arrays = {s.buffer for s in stmts if isinstance(s, ir.Alloc) and s.buffer.space is Space.LOCAL}
    return arrays - {s.buffer for s in stmts if hasattr(s, "buffer") and not isinstance(s, ir.Alloc) and not _is_plain(s)}


def _is_plain(stmt: ir.Stmt) -> bool:
    if not isinstance(stmt, ir.Load | ir.Store | ir.Accumulate) or not isinstance(stmt.index, ir.Constant):
        return False
    return 0 <= int(stmt.index.value) < (stmt.buffer.length or 0)


@dataclass(frozen=True)
class _Replacement:
    arrays: frozenset[ir.Buffer]
    names: Names

    def block(self, block: ir.Block, now: Values) -> ir.Block:
        """The block, after which `now` says what each element is."""
        return tuple(made for stmt in block for made in self._stmt(stmt, now))

    def _stmt(self, stmt: ir.Stmt, now: Values) -> Iterable[ir.Stmt]:
        match stmt:
            case ir.If():
                yield self._if(stmt, now)
            case ir.For() | ir.While():
                yield self._loop(stmt, now)
            case ir.Alloc(buffer=b) if b in self.arrays:
                for key in [key for key in now if key[0] == b]:
                    del now[key]
            case ir.Load(var=var, buffer=b) if b in self.arrays:
                yield ir.Let(var, _value(now, self._element(stmt)), span=stmt.span, note=stmt.note)
            case ir.Store(buffer=b, value=value) if b in self.arrays:
                yield from self._written(stmt, value, now)
            case ir.Accumulate(buffer=b, value=value) if b in self.arrays:
                old = _value(now, self._element(stmt))
                yield from self._written(stmt, ir.Binary("+", old, value, value_type(b.element)), now)
            case _:
                yield stmt

    def _element(self, stmt: ir.Load | ir.Store | ir.Accumulate) -> Element:
        assert isinstance(stmt.index, ir.Constant)
        return stmt.buffer, int(stmt.index.value)

    def _written(self, stmt: ir.Store | ir.Accumulate, value: ir.Expr, now: Values) -> Iterable[ir.Stmt]:
        element = self._element(stmt)
        var = now[element] = self._variable(element)
        yield ir.Let(var, value, span=stmt.span, note=stmt.note)

    def _variable(self, element: Element) -> ir.Var:
        array, number = element
        return self.names.var(f"{array.name}_{number}", value_type(array.element))

    def _if(self, stmt: ir.If, now: Values) -> ir.If:
        sides = dict(now), dict(now)
        blocks = [self.block(block, side) for block, side in zip((stmt.then, stmt.otherwise), sides, strict=True)]
        merges = list(stmt.merges)
        for element in self._changed((stmt.then, stmt.otherwise)):
            then, otherwise = (_value(side, element) for side in sides)
            if then != otherwise:
                var = self._variable(element)
                merges.append(ir.Merge(var, then, otherwise))
                then = var
            now[element] = then
        return replace(stmt, then=blocks[0], otherwise=blocks[1], merges=tuple(merges))

    def _loop(self, stmt: ir.For | ir.While, now: Values) -> ir.For | ir.While:
        inner = [stmt.body] if isinstance(stmt, ir.For) else [stmt.header, stmt.body]
        begun = {element: self._variable(element) for element in self._changed(inner)}
        after: Values = {**now, **begun}
        made = [self.block(block, after) for block in inner]
        carried = list(stmt.carried)
        for element, var in begun.items():
            result = self._variable(element)
            carried.append(ir.Carried(var, _value(now, element), _value(after, element), result))
            now[element] = result
        if isinstance(stmt, ir.For):
            return replace(stmt, body=made[0], carried=tuple(carried))
        return replace(stmt, header=made[0], body=made[1], carried=tuple(carried))

    def _changed(self, blocks: Iterable[ir.Block]) -> list[Element]:
        """The elements that are written in the blocks, of arrays that were there before."""
        stmts = [s for block in blocks for s in walk_stmts(block)]
        own = {s.buffer for s in stmts if isinstance(s, ir.Alloc)}
        written = (self._element(s) for s in stmts if isinstance(s, ir.Store | ir.Accumulate) and s.buffer in self.arrays)
        return [element for element in dict.fromkeys(written) if element[0] not in own]


def _value(now: Values, element: Element) -> ir.Expr:
    return now.get(element, ir.Constant(0, value_type(element[0].element)))
