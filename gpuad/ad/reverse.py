"""The reverse pass: from a primal kernel to its adjoint, `dz <- J^T dz` over all memory that the kernel touches.

The body is treated as one scope: its forward statements, then its statements from last to first. A store takes its shadow (reads it and
sets it to 0), an addition to memory reads the shadow, a load adds to the shadow what its value has collected, and expressions send seeds
down by the table of partials. Control flow mirrors itself: an If reverses the side that ran, a loop runs backward. Scopes that lie inside
return what they have collected for variables of the scopes around them as merged or carried values, so the adjoint is single-assignment
like the primal. An If that is the last statement of its scope keeps its forward and reverse parts together, so that a kernel under a
bounds guard needs no second guard.

Assumes: a normalised kernel with named results (`name_results`). Guarantees: valid IR with undecided accumulations and stacks not laid out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ..analysis.activity import Activity
from ..analysis.to_be_recorded import ToBeRecorded
from ..errors import UnsupportedError
from ..ir import folding as b
from ..ir import nodes as ir
from ..ir.functions import EXTREMA, bits
from ..ir.induction import closed_form
from ..ir.rewrite import Names, edit, walk_stmts
from ..ir.shared import is_shared
from ..ir.types import I32, Space, value_type
from ..source import Span
from .adjoint import Ledger, Propagation, Term, adjoint_of, common_predicate, is_linear, only_conditional, total
from .forward_sweep import ForwardSweep, Owned, ScopeKey, Versions
from .logs import Mark

Shadows = Mapping["ir.Var | ir.Buffer", ir.Buffer]


@dataclass(frozen=True)
class Inputs:
    """What the reverse pass is told: the primal, its facts, the shadow of each active parameter, and where forward values come from."""

    primal: ir.Kernel
    activity: Activity
    replay: ToBeRecorded
    shadows: Shadows
    versions: Versions
    fragile: frozenset[int]
    marks: Mapping[int, Mark] = field(default_factory=dict)


def reverse(inputs: Inputs, names: Names) -> tuple[ir.Block, dict[ScopeKey, Owned]]:
    """The adjoint's body, and the stacks that it uses by the scope (in the primal) that fills them."""
    task = _Reverse(inputs, names)
    return task.kernel(), task.sweep.stacks()


class _Reverse:
    def __init__(self, inputs: Inputs, names: Names) -> None:
        self.facts = inputs.activity
        self.inputs = inputs
        self.names = names
        self.shadows: dict[ir.Var | ir.Buffer, ir.Buffer] = dict(inputs.shadows)
        self.sweep = ForwardSweep(inputs.replay, inputs.versions, names, inputs.fragile)
        self.propagation = Propagation(inputs.activity, names)
        self.shared_done = False
        self.entered: list[int] = []  # the Ifs whose scopes are being reversed apart from their forward parts

    # --- scopes ------------------------------------------------------------------------------------------------------------------

    def kernel(self) -> ir.Block:
        ledger = self.scope(self.inputs.primal.body, set(), top=True)
        for scalar in self.inputs.primal.scalars:
            terms = ledger.take(scalar)
            if terms and scalar in self.shadows:
                shadow = self.shadows[scalar]
                value = b.cast(total(terms, scalar.type), shadow.element)
                ledger.out.append(ir.Accumulate(shadow, b.const(0, I32), value, ir.How.REDUCED, span=self.inputs.primal.span))
        return tuple(ledger.out)

    def scope(
        self,
        block: ir.Block,
        fresh: set[ir.Buffer],
        *,
        top: bool,
        seeds: Callable[[Ledger], None] | None = None,
        skip: frozenset[ir.Var] = frozenset(),
        restored: frozenset[ir.Buffer] = frozenset(),
    ) -> Ledger:
        """Forward and reverse of a block; the ledger's remaining terms are for variables of the scopes around it."""
        ledger = Ledger()
        last = block[-1] if block else None
        fused = last if isinstance(last, ir.If) and (seeds is None or not last.merges) else None  # seeds may need merged values beforehand
        plain = block[:-1] if fused is not None else block
        ledger.out.extend(self.sweep.scope(plain, fresh, top=top, skip=skip, restored=restored))
        self._shadow_arrays(ledger, block)
        if seeds is not None:
            seeds(ledger)
        if isinstance(fused, ir.If):
            self._fused(ledger, fused, fresh, top, restored)
        for stmt in reversed(plain):
            self._stmt(ledger, stmt)
        return ledger

    def _shadow_arrays(self, ledger: Ledger, block: ir.Block) -> None:
        """Arrays of a thread get a shadow each time they are made. A shared array has one for the whole kernel: a tile that is filled anew
        has taken it back to 0 by then."""
        shared = [] if self.shared_done else [s for s in walk_stmts(self.inputs.primal.body) if is_shared(s)]
        self.shared_done = True
        for stmt in (*shared, *(s for s in block if not is_shared(s))):
            if isinstance(stmt, ir.Alloc) and stmt.buffer in self.facts:
                buffer = stmt.buffer
                shadow = self.names.buffer(f"d{buffer.name}", value_type(buffer.element), buffer.space, buffer.length)
                self.shadows[buffer] = shadow
                ledger.out.append(ir.Alloc(shadow, zero=True, span=stmt.span))

    def _fused(self, ledger: Ledger, stmt: ir.If, fresh: set[ir.Buffer], top: bool, restored: frozenset[ir.Buffer]) -> None:
        """An If at the end of its scope: forward and reverse of the side that runs, in one go."""

        def side(block: ir.Block, branch: int, seeds: Callable[[Ledger], None]) -> Ledger:
            pops = () if top else self.sweep.pops(stmt, branch)
            inner = self.scope(block, set(fresh), top=top, seeds=seeds, skip=_popped(pops), restored=restored)
            inner.out[:0] = pops
            return inner

        self._if(ledger, stmt, side)

    def _inner(self, owner: ir.Stmt, block: ir.Block, branch: int, seeds: Callable[[Ledger], None] | None) -> Ledger:
        """A scope that the reverse sweep comes back to."""
        pops = self.sweep.pops(owner, branch)
        restored = self.inputs.versions.restored(owner)
        self.entered.append(id(owner))
        arrays = frozenset(s.buffer for s in restored if isinstance(s, ir.Alloc))
        ledger = self.scope(block, set(arrays), top=False, seeds=seeds, skip=_popped(pops), restored=arrays)
        self.entered.pop()
        refilled = any(is_shared(s) for s in block)  # while other threads may still read what is in the tile
        ledger.out[:0] = (*([ir.Barrier(span=owner.span)] if refilled else []), *pops, *restored)
        return ledger

    # --- statements --------------------------------------------------------------------------------------------------------------

    def _stmt(self, ledger: Ledger, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let(var=var, value=value):
                self._let(ledger, var, value, stmt.span)
            case ir.Load():
                self._load(ledger, stmt)
            case ir.Store():
                self._store(ledger, stmt)
            case ir.Accumulate():
                self._accumulate(ledger, stmt)
            case ir.Atomic():
                self._atomic(ledger, stmt)
            case ir.If():
                self._if(ledger, stmt, lambda block, branch, seeds: self._inner(stmt, block, branch, seeds))
            case ir.For():
                self._for(ledger, stmt)
            case ir.While():
                self._while(ledger, stmt)
            case _:
                self._wait(ledger, stmt)

    def _wait(self, ledger: Ledger, stmt: ir.Stmt) -> None:
        """What threads do together: a barrier mirrors itself."""
        match stmt:
            case ir.Alloc():
                pass
            case ir.Barrier():
                ledger.out.append(stmt)
            case ir.Shuffle():
                self._shuffle(ledger, stmt)
            case _:
                raise AssertionError(f"unexpected {type(stmt).__name__} in a primal")

    def _let(self, ledger: Ledger, var: ir.Var, value: ir.Expr, span: Span | None) -> None:
        terms = ledger.take(var)
        if not terms or var not in self.facts:
            return
        predicate = common_predicate(terms)
        if predicate is not None:
            terms = [Term(t.value) for t in terms]
        seed, used = self._used(ledger, terms, value, var, span)
        conditional = used is None and only_conditional(terms)
        self.propagation.send(ledger, value, seed, var.name, span, b.both(predicate, used), result=var, conditional=conditional)

    def _used(self, ledger: Ledger, terms: list[Term], value: ir.Expr, var: ir.Var, span: Span | None) -> tuple[ir.Expr, ir.Expr | None]:
        """The sum of the terms, and the predicate that the value was used at all: it may have been computed without being used, with
        infinite partials (rule 18 of the contract)."""
        seed = total(terms, var.type)
        if not only_conditional(terms) or is_linear(value):
            return seed, None
        seed = self._name(ledger, f"d{var.name}", seed, span)
        return seed, b.used(seed)

    def _load(self, ledger: Ledger, stmt: ir.Load) -> None:
        terms = ledger.take(stmt.var)
        if not terms or not self.facts.has_shadow(stmt.buffer):
            return
        shadow = self.shadows[stmt.buffer]
        groups: dict[ir.Expr | None, list[Term]] = {}
        for term in terms:
            groups.setdefault(term.predicate, []).append(Term(term.value, conditional=term.conditional))
        for predicate, group in groups.items():
            value = b.cast(total(group, stmt.var.type), shadow.element)
            if predicate is None and all(t.conditional for t in group):  # used, if at all, inside a loop or an If
                value = self._name(ledger, f"d{stmt.var.name}", value, stmt.span)
                predicate = b.used(value)
            add = ir.Accumulate(shadow, stmt.index, value, self._how(shadow), span=stmt.span)
            ledger.out.append(add if predicate is None else ir.If(predicate, (add,), span=stmt.span))

    def _how(self, shadow: ir.Buffer) -> ir.How:
        return ir.How.PLAIN if shadow.space is Space.LOCAL else ir.How.UNDECIDED

    def _name(self, ledger: Ledger, name: str, value: ir.Expr, span: Span | None) -> ir.Expr:
        if isinstance(value, ir.Var):
            return value
        var = self.names.var(name, value.type)
        ledger.out.append(ir.Let(var, value, span=span))
        return var

    def _store(self, ledger: Ledger, stmt: ir.Store) -> None:
        if not self.facts.has_shadow(stmt.buffer):
            return
        shadow = self.shadows[stmt.buffer]
        if not self.facts.expression(stmt.value):
            ledger.out.append(
                ir.Store(shadow, stmt.index, b.zero(shadow.element), span=stmt.span, note="overwritten with something inactive")
            )
            return
        seed = self.names.var(f"d{stmt.buffer.name}", shadow.element)
        ledger.out.append(ir.Take(seed, shadow, stmt.index, self._how(shadow), span=stmt.span))
        self.propagation.send(ledger, stmt.value, b.cast(seed, stmt.value.type), stmt.buffer.name, stmt.span)

    def _accumulate(self, ledger: Ledger, stmt: ir.Accumulate) -> None:
        if not self.facts.has_shadow(stmt.buffer) or not self.facts.expression(stmt.value):
            return
        shadow = self.shadows[stmt.buffer]
        seed = self.names.var(f"d{stmt.buffer.name}", shadow.element)
        ledger.out.append(ir.Load(seed, shadow, stmt.index, span=stmt.span))
        self.propagation.send(ledger, stmt.value, b.cast(seed, stmt.value.type), stmt.buffer.name, stmt.span)

    def _atomic(self, ledger: Ledger, stmt: ir.Atomic) -> None:
        """What another thread has left there is not known: a result with a gradient is refused, but for an exchange, which threads do not
        make in one element (`analysis.atomic_extrema`)."""
        if stmt.buffer not in self.facts and stmt.buffer not in self.facts.shadowed:
            return
        match stmt:
            case ir.Atomic(op="add" | "sub", operands=(value,)) if stmt.var is None or stmt.var not in self.facts:
                added = value if stmt.op == "add" else b.neg(value)
                self._accumulate(ledger, ir.Accumulate(stmt.buffer, stmt.index, added, span=stmt.span))
            case ir.Atomic(op="exch", operands=(value,)):
                self._store(ledger, ir.Store(stmt.buffer, stmt.index, value, span=stmt.span))
                if stmt.var is not None:
                    self._load(ledger, ir.Load(stmt.var, stmt.buffer, stmt.index, span=stmt.span))
            case ir.Atomic(op=op) if op in EXTREMA:
                self._extremum(ledger, stmt)
            case ir.Atomic(op=op):
                what = "whose result carries one" if op in ("add", "sub") else "is not supported"
                name = f"atomic{op.upper() if op == 'cas' else op.capitalize()}"
                raise UnsupportedError(f"{name} on '{stmt.buffer.name}', which carries a gradient, {what}", stmt.span)

    def _extremum(self, ledger: Ledger, stmt: ir.Atomic) -> None:
        """The adjoint of what is there in the end belongs to the execution that put it there, and goes no further back."""
        shadow, (value,) = self.shadows[stmt.buffer], stmt.operands
        last = self.names.var(stmt.buffer.name, stmt.var.type if stmt.var is not None else value.type)
        ledger.out.append(ir.Load(last, stmt.buffer, stmt.index, span=stmt.span))
        won = b.compare("==", self._mark(stmt), bits(last))
        if not self.facts.expression(value):
            note = "the greatest is something inactive" if stmt.op.endswith("max") else "the least is something inactive"
            ledger.out.append(
                ir.If(won, (ir.Store(shadow, stmt.index, b.zero(shadow.element), note=note, span=stmt.span),), span=stmt.span)
            )
            return
        taken, seed = (self.names.var(f"d{stmt.buffer.name}", shadow.element) for _ in range(2))
        take = ir.Take(taken, shadow, stmt.index, self._how(shadow), span=stmt.span)
        ledger.out.append(ir.If(won, (take,), (), (ir.Merge(seed, taken, b.zero(shadow.element)),), span=stmt.span))
        assert isinstance(value, ir.Var), "the number has a name, for its mark"
        ledger.add(value, Term(b.cast(seed, value.type), conditional=True))

    def _mark(self, stmt: ir.Atomic) -> ir.Var:
        """The mark where it can be seen: behind the outermost of the Ifs around the operation that are reversed on their own."""
        mark = self.inputs.marks[id(stmt)]
        outside = [var for owner, var in mark.outside if owner in self.entered]
        return outside[-1] if outside else mark.var

    def _shuffle(self, ledger: Ledger, stmt: ir.Shuffle) -> None:
        terms = ledger.take(stmt.var)
        if not terms or stmt.var not in self.facts or not self.facts.expression(stmt.value):
            return
        seed = self.names.var(f"d{stmt.var.name}", stmt.var.type)
        ledger.out.append(ir.Let(seed, total(terms, stmt.var.type), span=stmt.span))
        stmts, value = adjoint_of(stmt, seed, self.names)
        ledger.out.extend(stmts)
        self.propagation.send(ledger, stmt.value, self._name(ledger, f"d{stmt.var.name}", value, stmt.span), stmt.var.name, stmt.span)

    # --- control -----------------------------------------------------------------------------------------------------------------

    def _if(self, ledger: Ledger, stmt: ir.If, side: Callable[[ir.Block, int, Callable[[Ledger], None]], Ledger]) -> None:
        seeds: list[tuple[ir.Merge, ir.Expr, bool]] = []
        for m in stmt.merges:
            terms = ledger.take(m.var)
            if terms and m.var in self.facts:
                seeds.append((m, self._name(ledger, f"d{m.var.name}", total(terms, m.var.type), stmt.span), only_conditional(terms)))

        def send(pick: Callable[[ir.Merge], ir.Expr]) -> Callable[[Ledger], None]:
            def run(inner: Ledger) -> None:
                for m, seed, conditional in seeds:
                    used = b.used(seed) if conditional and not is_linear(pick(m)) else None
                    own = conditional and used is None
                    self.propagation.send(inner, pick(m), seed, m.var.name, stmt.span, used, conditional=own)

            return run

        then = side(stmt.then, 0, send(lambda m: m.then))
        otherwise = side(stmt.otherwise, 1, send(lambda m: m.otherwise))
        self._join(ledger, stmt, then, otherwise)

    def _join(self, ledger: Ledger, stmt: ir.If, then: Ledger, otherwise: Ledger) -> None:
        merges: list[ir.Merge] = []
        results: list[tuple[ir.Var, ir.Var]] = []
        for var in dict.fromkeys((*then.terms, *otherwise.terms)):
            merged = self.names.var(f"d{var.name}", var.type)
            merges.append(ir.Merge(merged, total(then.take(var), var.type), total(otherwise.take(var), var.type)))
            results.append((var, merged))
        if not then.out and not otherwise.out and not merges:
            return
        condition, first, second = stmt.condition, tuple(then.out), tuple(otherwise.out)
        if not first and second:
            condition, first, second = b.negate(condition), second, first
            merges = [ir.Merge(m.var, m.otherwise, m.then) for m in merges]
        ledger.out.append(ir.If(condition, first, second, tuple(merges), span=stmt.span))
        for var, merged in results:
            ledger.add(var, Term(merged, conditional=True))

    def _for(self, ledger: Ledger, loop: ir.For) -> None:
        build = self._loop(ledger, loop, loop.body)
        ledger.out.append(
            ir.For(loop.var, loop.start, loop.stop, loop.step, build.body, build.carried, backward=not loop.backward, span=loop.span)
        )
        build.report(ledger)

    def _while(self, ledger: Ledger, loop: ir.While) -> None:
        assert loop.counter is not None and loop.count is not None
        build = self._loop(ledger, loop, (*loop.header, *loop.body))
        zero, one = b.const(0, I32), b.const(1, I32)
        ledger.out.append(ir.For(loop.counter, zero, loop.count, one, build.body, build.carried, backward=True, span=loop.span))
        build.report(ledger)

    def _loop(self, ledger: Ledger, loop: ir.For | ir.While, block: ir.Block) -> _LoopAdjoint:
        active = [c for c in loop.carried if c.var in self.facts or c.result in self.facts]
        inner_adjoint = {c.var: self.names.var(f"d{c.var.name}", c.var.type) for c in active}

        def seeds(inner: Ledger) -> None:
            for c in active:
                adjoint = inner_adjoint[c.var]
                used = None if is_linear(c.next) else b.used(adjoint)
                self.propagation.send(inner, c.next, adjoint, c.var.name, loop.span, used)

        inits = {c.var: total(ledger.take(c.result), c.var.type) for c in active}
        body = self._inner(loop, block, 0, seeds)
        for c in loop.carried:  # a closed form is a Let at the top of the reversed body
            if closed_form(loop, c) is not None and c not in active:
                body.take(c.var)
        carried = [
            ir.Carried(
                inner_adjoint[c.var], inits[c.var], total(body.take(c.var), c.var.type), self.names.var(f"d{c.var.name}", c.var.type)
            )
            for c in active
        ]
        outer: list[tuple[ir.Var, ir.Var]] = []
        for var in list(body.terms):
            inner, result = self.names.var(f"d{var.name}", var.type), self.names.var(f"d{var.name}", var.type)
            carried.append(ir.Carried(inner, b.zero(var.type), b.add(inner, total(body.take(var), var.type)), result))
            outer.append((var, result))
        return _LoopAdjoint(self, loop, tuple(body.out), tuple(carried), active, outer)

    def send_init(self, ledger: Ledger, carried: ir.Carried, adjoint: ir.Var, span: Span | None) -> None:
        """What the loop-carried value was before the first iteration gets the adjoint that is left after the last reversed one."""
        used = None if is_linear(carried.init) else b.used(adjoint)
        self.propagation.send(ledger, carried.init, adjoint, carried.var.name, span, used)


@dataclass(frozen=True)
class _LoopAdjoint:
    """A reversed loop's body and what flows out of it."""

    owner: _Reverse
    loop: ir.For | ir.While
    body: ir.Block
    carried: tuple[ir.Carried, ...]
    active: list[ir.Carried]
    outer: list[tuple[ir.Var, ir.Var]]

    def report(self, ledger: Ledger) -> None:
        if not self.body and not self.carried:
            ledger.out.pop()
            return
        for primal, adjoint in zip(self.active, self.carried, strict=False):
            self.owner.send_init(ledger, primal, adjoint.result, self.loop.span)
        for var, result in self.outer:
            ledger.add(var, Term(result, conditional=True))


def _popped(pops: ir.Block) -> frozenset[ir.Var]:
    found: set[ir.Var] = set()
    for stmt in pops:
        if isinstance(stmt, ir.Pop):
            found.update(stmt.vars)
    return frozenset(found)


def name_results(kernel: ir.Kernel, names: Names) -> ir.Kernel:
    """Gives a variable to every stored value that is a call or a reciprocal, so that its derivative can refer to the result (exp, sqrt,
    tanh, ...)."""

    def change(stmt: ir.Stmt) -> ir.Block | None:
        if not isinstance(stmt, ir.Store) or not (_has_call(stmt.value) or b.is_reciprocal(stmt.value)):
            return None
        var = names.var(stmt.buffer.name, stmt.value.type)
        return ir.Let(var, stmt.value, span=stmt.span), replace(stmt, value=var)

    return replace(kernel, body=edit(kernel.body, change))


def _has_call(expr: ir.Expr) -> bool:
    return expr.type.is_float and (isinstance(expr, ir.Call) or (isinstance(expr, ir.Unary) and _has_call(expr.operand)))


def statements(block: ir.Block) -> int:
    """Number of statements, for tests of readability."""
    return sum(1 for _ in walk_stmts(block))
