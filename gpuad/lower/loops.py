"""Lowers loops: what the body may change is found by lowering it until that set is stable, and becomes the loop's carried values.

A loop that counts (`for (int j = a; j < b; j += c)`, with bounds that nothing in the body may change, and no way out; or `while (j < b)`
with `j += c` at the end of its body) becomes a For.
Premises: j + c does not leave j's type, and `b + 1` (for `<=`) or `b - 1` (for `>=`) does not wrap; C's loop would not end otherwise, or
be undefined. A step that is not a literal is taken to be positive, as the comparison `<` says. Every other loop becomes a While: its
condition is evaluated in the header if that takes nothing but loads, else before the loop and again at the end of each iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from ..ir import folding, surface
from ..ir.nodes import MIRRORED, NEGATED, ORDERINGS, Buffer, Carried, Constant, Expr, For, Let, Load, Stmt, Var, While, variables
from ..ir.rewrite import expressions, written_in
from ..ir.types import BOOL, I32, Scalar
from ..source import Span
from .expressions import scalar
from .lowering import Branch, Cell, Env, LoopExits, Lowering, Reference, Shape, Value, assemble, join, shape, split
from .static_loops import static_loop


@dataclass(frozen=True)
class Loop:
    """A loop of the surface tree, whatever its spelling. `tested`: the condition is evaluated before the first iteration."""

    condition: surface.Expr | None
    body: surface.Stmt
    step: surface.Expr | None
    tested: bool
    span: Span
    exits: LoopExits


def lower_for(s: Lowering, stmt: surface.For) -> None:
    """Lowers a `for`, whose variables end with it."""
    before = dict(s.env)
    if stmt.init is not None:
        s.run(s, (stmt.init,))
    _lower(s, stmt.condition, stmt.body, stmt.step, True, stmt.span)
    s.forget(before)


def lower_while(s: Lowering, stmt: surface.While | surface.DoWhile) -> None:
    """Lowers a `while` or a `do ... while`."""
    _lower(s, stmt.condition, stmt.body, None, isinstance(stmt, surface.While), stmt.span)


def lower_breakable(s: Lowering, stmt: surface.Breakable) -> None:
    """Lowers what a `break` may leave once; a `continue` in it is that of the loop around it."""
    before = dict(s.env)
    skipped = s.frame.loops[-1].skipped if s.frame.loops else s.flag("skipped")
    s.frame.loops.append(LoopExits(s.flag("broken"), skipped))
    s.run(s, (stmt.body,))
    s.frame.loops.pop()
    s.forget(before)


def _lower(s: Lowering, condition: surface.Expr | None, body: surface.Stmt, step: surface.Expr | None, tested: bool, span: Span) -> None:
    before = dict(s.env)
    condition, body, after = _with_condition(condition, body) if tested else (condition, body, ())
    loop = Loop(condition, body, step, tested, span, LoopExits(s.flag("broken"), s.flag("skipped")))
    s.frame.loops.append(loop.exits)
    if not (tested and (_counted(s, _stepping(s, loop)) or _with_header(s, loop))):
        _with_flag(s, loop)
    s.frame.loops.pop()
    s.run(s, after)
    s.forget(before)


def _with_condition(
    condition: surface.Expr | None, body: surface.Stmt
) -> tuple[surface.Expr | None, surface.Stmt, tuple[surface.Stmt, ...]]:
    """A loop without end whose iterations begin with a way out, by `return` or `break`, as one with a condition; what comes after it."""
    endless = condition is None or (isinstance(known := surface.without_casts(condition), surface.Constant) and bool(known.value))
    match body:
        case surface.Block(body=(surface.If(condition=out, then=then, otherwise=None), *rest)) if endless:
            way = then.body[0] if isinstance(then, surface.Block) and len(then.body) == 1 else then
            if isinstance(way, surface.Break) or (isinstance(way, surface.Return) and not any(_breaks(stmt) for stmt in rest)):
                return _negated(out), replace(body, body=tuple(rest)), (way,) if isinstance(way, surface.Return) else ()
    return condition, body, ()


def _negated(e: surface.Expr) -> surface.Expr:
    """The opposite of a condition; of a comparison of integers, a comparison."""
    if isinstance(e, surface.Binary) and e.op in NEGATED and isinstance(e.left.type, Scalar) and e.left.type.is_integer:
        return replace(e, op=NEGATED[e.op])
    return surface.Unary(e.span, BOOL, "!", e)


# --- what a loop carries -------------------------------------------------------------------------------------------------------------


@dataclass
class Plan:
    """The variables that a loop is taken to change, with the Vars that stand for them in an iteration."""

    shapes: dict[Cell, Shape]
    start: Env
    vars: dict[Cell, tuple[Var, ...]] = field(default_factory=dict)

    def enter(self, s: Lowering) -> None:
        """Replaces the variables by what they are at the start of any iteration."""
        for cell, held in self.shapes.items():
            self.vars[cell] = tuple(s.var(cell.name + suffix, kind) for suffix, kind in held.slots)
            s.env[cell] = assemble(self.vars[cell], held)

    def grown(self, end: Env) -> dict[Cell, Shape]:
        """The shapes that also cover what an iteration, which ended in `end`, did."""
        shapes = dict(self.shapes)
        for cell, first in self.start.items():
            old, new = shape(first, cell.type), shape(end[cell], cell.type)
            if old is not None and new is not None and (cell in shapes or end[cell] != first):
                shapes[cell] = join(join(shapes.get(cell, old), old), new)
        return shapes

    def leave(self, s: Lowering, end: Env) -> tuple[Carried, ...]:
        """The carried values of the finished loop, whose results the variables become."""
        carried: list[Carried] = []
        for cell, held in self.shapes.items():
            results = tuple(s.var(v.name, v.type) for v in self.vars[cell])
            columns = zip(self.vars[cell], split(self.start[cell], held), split(end[cell], held), results, strict=True)
            carried.extend(Carried(var, init, following, result) for var, init, following, result in columns)
            s.env[cell] = assemble(results, held)
        return tuple(carried)

    @property
    def all_vars(self) -> set[Expr]:
        return {v for held in self.vars.values() for v in held}


def _iterate(s: Lowering, guess: Iterable[Cell], body: Callable[[], None]) -> tuple[Plan, Branch]:
    """Lowers one iteration until it changes nothing beyond what it was taken to change."""
    shapes = {cell: found for cell in guess if (found := shape(s.env[cell], cell.type)) is not None}
    while True:
        plan = Plan(shapes, dict(s.env))

        def iteration(plan: Plan = plan) -> None:
            plan.enter(s)
            body()

        branch = s.fork(iteration)
        shapes = plan.grown(branch.env)
        if shapes == plan.shapes:
            return plan, branch


def _assigned(s: Lowering, nodes: Iterable[object]) -> list[Cell]:
    """The variables that the nodes assign to by name: a first guess that spares iterations."""
    found: dict[Cell, None] = {}
    for node in nodes:
        for target in _targets(node):
            cell = s.frame.cells.get(target)
            if cell in s.env and not isinstance(s.env[cell], Reference):
                found[cell] = None
    return list(found)


def _targets(node: object) -> Iterable[surface.Declaration]:
    if isinstance(node, (surface.Function, surface.Declaration)):
        return
    if isinstance(node, (surface.Assign, surface.IncDec)) and isinstance(node.target, surface.Name):
        yield node.target.declaration
    if isinstance(node, tuple):
        for item in node:
            yield from _targets(item)
    elif isinstance(node, surface.Node):
        for name in node.__dataclass_fields__:
            yield from _targets(getattr(node, name))


# --- the body ------------------------------------------------------------------------------------------------------------------------


def _body(s: Lowering, loop: Loop, tail: tuple[surface.Stmt, ...]) -> None:
    """One iteration from after its test; `tail` is run if neither `break` nor `return` ended it."""
    s.clear_exits()
    if tail and not _has_continue(loop.body):
        s.run(s, (loop.body, *tail))  # as one list, so that the tail lands in the branch that goes on
    else:
        s.run(s, (loop.body,))
        s.env[loop.exits.skipped] = folding.FALSE
        s.run(s, tail)
    s.env[loop.exits.skipped] = folding.FALSE


def _has_continue(node: object) -> bool:
    """True if a `continue` of this very loop is inside."""
    match node:
        case surface.Continue():
            return True
        case surface.Block(body=body):
            return any(_has_continue(b) for b in body)
        case surface.If(then=then, otherwise=otherwise):
            return _has_continue(then) or _has_continue(otherwise)
        case surface.Breakable(body=body):
            return _has_continue(body)
    return False


def _tail(loop: Loop) -> tuple[surface.Stmt, ...]:
    return () if loop.step is None else (surface.Evaluate(loop.step.span, loop.step),)


# --- While ---------------------------------------------------------------------------------------------------------------------------


@dataclass
class _Iteration:
    """What one lowering of an iteration gave."""

    condition: Expr = folding.TRUE
    header: list[Stmt] = field(default_factory=list)
    body: list[Stmt] = field(default_factory=list)
    fits: bool = True


def _with_header(s: Lowering, loop: Loop) -> bool:
    """A While whose condition is evaluated at the start of each iteration; gives False if that is not possible."""
    it = _Iteration()

    def iteration() -> None:
        alive, before = s.alive(), dict(s.env)
        it.header = s.capture(lambda: _evaluate_condition(s, loop, it))
        it.fits = _only_loads(it.header) and _unchanged(before, s.env) and (not it.header or alive == folding.TRUE)
        if not it.fits:
            return
        it.condition = folding.logical("&&", alive, it.condition)
        it.body = s.capture(lambda: _body(s, loop, _tail(loop)))

    plan, branch = _iterate(s, _assigned(s, (loop.condition, loop.body, loop.step)), iteration)
    if it.fits:
        _emit_while(s, plan, branch, it, loop.span)
    return it.fits


def _evaluate_condition(s: Lowering, loop: Loop, it: _Iteration) -> None:
    it.condition = folding.TRUE if loop.condition is None else scalar(s, loop.condition)


def _with_flag(s: Lowering, loop: Loop) -> None:
    """A While over a bool: whether to go on, decided before the loop and at the end of each iteration."""
    go = s.cell("go", BOOL)
    s.env[go] = _decide(s, loop) if loop.tested else folding.TRUE
    it = _Iteration()

    def iteration() -> None:
        condition = s.env[go]
        assert isinstance(condition, Expr)
        it.condition = condition
        s.env[go] = folding.FALSE
        it.body = s.capture(lambda: _body_and_test(s, loop, go))

    plan, branch = _iterate(s, [go, *_assigned(s, (loop.condition, loop.body, loop.step))], iteration)
    _emit_while(s, plan, branch, it, loop.span)


def _body_and_test(s: Lowering, loop: Loop, go: Cell) -> None:
    _body(s, loop, _tail(loop))

    def test() -> None:
        s.env[go] = _decide(s, loop)

    s.when_alive(test, loop.span)


def _decide(s: Lowering, loop: Loop) -> Value:
    """Whether to go on, as a Var or a constant."""
    return folding.TRUE if loop.condition is None else s.let("go", scalar(s, loop.condition), loop.condition.span)


def _emit_while(s: Lowering, plan: Plan, branch: Branch, it: _Iteration, span: Span) -> None:
    counter, count = s.var("iteration", I32), s.var("iterations", I32)
    loop = While(tuple(it.header), it.condition, tuple(it.body), plan.leave(s, branch.env), counter, count, span=span)
    for stmt in static_loop(loop) or (loop,):
        s.emit(stmt)


def _unchanged(before: Env, after: Env) -> bool:
    return all(after.get(cell) == value for cell, value in before.items())


def _only_loads(stmts: list[Stmt]) -> bool:
    return all(isinstance(stmt, (Let, Load)) for stmt in stmts)


# --- For -----------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Counting:
    """`variable` runs while `variable op bound` (compared as `kind`), moved by `step` (None: 1) up or down."""

    variable: Cell
    op: str
    bound: surface.Expr
    kind: Scalar
    step: surface.Expr | None
    down: bool

    def direction_fits(self, step: Expr) -> bool:
        """True if the step moves towards the bound: a literal by its sign, anything else if it is added and compared with `<`."""
        if self.op in ("<", "<="):
            upwards = not self.down if not step.type.is_signed or not isinstance(step, Constant) else step.value > 0
            return upwards and not (isinstance(step, Constant) and not 0 < step.value < 1 << (step.type.bits - 1))
        return self.kind.is_signed and step.type.is_signed and isinstance(step, Constant) and step.value < 0


def _counted(s: Lowering, loop: Loop) -> bool:
    """A For, if the loop counts; gives False if it does not."""
    loop, others = _alone(s, loop)
    form = None if _leaves(loop.body) else _canonical(s, loop)
    start = s.env[form.variable] if form else None
    if form is None or not isinstance(start, Expr):
        return False
    number = s.var(form.variable.name, form.kind)
    own = s.var(form.variable.name, start.type) if form.kind != start.type else number
    plan, branch = _count(s, loop, others, form, number, own)
    bounds = _bounds(s, form, plan, branch, (number, own)) if _stays(s, form, plan) else None
    if bounds is None:
        return False
    stop, step = bounds(s)
    carried = _final(s, form, start, own, step) + plan.leave(s, branch.env)
    first = folding.cast(start, form.kind)
    s.env[form.variable] = carried[0].result
    s.emit(For(number, first, stop, folding.cast(step, form.kind), tuple(branch.out), carried, span=loop.span))
    return True


def _alone(s: Lowering, loop: Loop) -> tuple[Loop, tuple[surface.Stmt, ...]]:
    """A loop whose step moves several variables as one that moves its own alone, and what moves the others at the end of its body."""
    parts = tuple(_parts(loop.step)) if isinstance(loop.step, surface.Comma) else ()
    for step in parts:
        others = tuple(surface.Evaluate(e.span, e) for e in parts if e is not step)
        moved, names = _step_of(step), [n.declaration for n in surface.walk(others) if isinstance(n, surface.Name)]
        if moved is not None and moved[0].declaration not in names and _canonical(s, replace(loop, step=step)) is not None:
            return replace(loop, step=step), others
    return loop, ()


def _parts(e: surface.Expr) -> Iterator[surface.Expr]:
    """The expressions that are evaluated one after the other."""
    if isinstance(e, surface.Comma):
        yield from _parts(e.first)
        yield from _parts(e.second)
    else:
        yield e


def _count(s: Lowering, loop: Loop, others: tuple[surface.Stmt, ...], form: _Counting, number: Var, own: Var) -> tuple[Plan, Branch]:
    """Lowers the body, and `others` after it, with the loop's variable in place of the user's."""

    def iteration() -> None:
        if own is not number:
            s.emit(Let(own, folding.cast(number, own.type), span=loop.span))
        _body(s, loop, others)

    start = s.env[form.variable]
    s.env[form.variable] = own
    guess = [cell for cell in _assigned(s, (loop.body, *others)) if cell is not form.variable]
    found = _iterate(s, guess, iteration)
    s.env[form.variable] = start
    return found


def _stepping(s: Lowering, loop: Loop) -> Loop:
    """A `while` that ends with a step as the `for` that it is, if nothing skips the step, or is made for it in the body."""
    match loop:
        case Loop(step=None, body=surface.Block(body=(*before, surface.Evaluate(value=step))) as block):
            body = replace(block, body=tuple(before))
            used = [n.declaration for n in surface.walk(step) if isinstance(n, surface.Name)]
            if not _has_continue(body) and all(s.frame.cells.get(d) in s.env for d in used):
                return replace(loop, body=body, step=step)
    return loop


def _breaks(node: object) -> bool:
    """True if a `break` of this very loop is inside."""
    return _leaves(node, returns=False)


def _leaves(node: object, nested: bool = False, returns: bool = True) -> bool:
    """True if a `break` of this very loop, or a `return` if that counts, is inside."""
    match node:
        case surface.Return():
            return returns
        case surface.Break():
            return not nested
        case surface.Block(body=body):
            return any(_leaves(b, nested, returns) for b in body)
        case surface.If(then=then, otherwise=otherwise):
            return _leaves(then, nested, returns) or _leaves(otherwise, nested, returns)
        case surface.For(body=body) | surface.While(body=body) | surface.DoWhile(body=body) | surface.Breakable(body=body):
            return _leaves(body, True, returns)
    return False


def _stays(s: Lowering, form: _Counting, plan: Plan) -> bool:
    """True if the body neither moves the loop's variable nor leaves the loop."""
    return form.variable not in plan.shapes and not any(flag in plan.shapes for flag in s.frame.exits)


def _final(s: Lowering, form: _Counting, start: Expr, own: Var, step: Expr) -> tuple[Carried, ...]:
    """The loop variable's value after the loop."""
    name, kind = form.variable.name, own.type
    return (Carried(s.var(name, kind), start, folding.binary("+", own, step, kind), s.var(name, kind)),)


def _bounds(
    s: Lowering, form: _Counting, plan: Plan, branch: Branch, own: tuple[Var, ...]
) -> Callable[[Lowering], tuple[Expr, Expr]] | None:
    """What evaluates stop and step before the loop, if that gives what C evaluates in each iteration."""

    def evaluate(s: Lowering) -> tuple[Expr, Expr]:
        kind = s.env[form.variable].type  # type: ignore[union-attr]
        step = folding.integer(1, kind) if form.step is None else folding.cast(scalar(s, form.step), kind)
        return _stop(form, scalar(s, form.bound)), folding.unary("-", step) if form.down else step

    found: list[tuple[Expr, Expr]] = []

    def probe() -> None:
        for cell, held in plan.shapes.items():
            s.env[cell] = assemble(plan.vars[cell], held)
        s.env[form.variable] = own[-1]
        before = dict(s.env)
        found.append(evaluate(s))
        if not _unchanged(before, s.env):
            found.clear()

    trial = s.fork(probe)
    fits = bool(found) and _invariant(found[0], trial.out, plan.all_vars | set(own), written_in(tuple(branch.out)))
    return evaluate if fits and form.direction_fits(found[0][1]) and not _wraps(form, found[0][0]) else None


def _stop(form: _Counting, bound: Expr) -> Expr:
    if form.op in ("<", ">"):
        return bound
    return folding.binary("+" if form.op == "<=" else "-", bound, folding.integer(1, form.kind), form.kind)


def _wraps(form: _Counting, stop: Expr) -> bool:
    """True if a constant stop is the far end of its type, to which `<=` or `>=` cannot lead."""
    if not isinstance(stop, Constant) or form.op in ("<", ">"):
        return False
    low = -(1 << (form.kind.bits - 1)) if form.kind.is_signed else 0
    high = low + (1 << form.kind.bits) - 1
    return stop.value == (low if form.op == "<=" else high)


def _invariant(values: tuple[Expr, ...], stmts: list[Stmt], moving: set[Expr], written: frozenset[Buffer]) -> bool:
    if not _only_loads(stmts) or any(isinstance(stmt, Load) and stmt.buffer in written for stmt in stmts):
        return False
    used = [v for e in (*values, *(e for stmt in stmts for e in expressions(stmt))) for v in variables(e)]
    return not any(v in moving for v in used)


# --- recognising -------------------------------------------------------------------------------------------------------------------


def _canonical(s: Lowering, loop: Loop) -> _Counting | None:
    """The loop as a counting one, by its form alone."""
    moved = _step_of(loop.step)
    if moved is None or not isinstance(loop.condition, surface.Binary):
        return None
    name, step, down = moved
    cell = s.frame.cells.get(name.declaration)
    if cell not in s.env or not isinstance(cell.type, Scalar) or not cell.type.is_integer:
        return None
    compared = _comparison(loop.condition, name.declaration)
    if compared is None or compared[2].bits < cell.type.bits:
        return None
    op, bound, kind = compared
    return _Counting(cell, op, bound, kind, step, down)


def _comparison(e: surface.Binary, variable: surface.Declaration) -> tuple[str, surface.Expr, Scalar] | None:
    """`variable op bound`, whichever side it is on, and the type in which they are compared."""
    if e.op not in ORDERINGS or not isinstance(e.left.type, Scalar) or not e.left.type.is_integer:
        return None
    if _is_name(e.left, variable):
        return e.op, e.right, e.left.type
    return (MIRRORED[e.op], e.left, e.left.type) if _is_name(e.right, variable) else None


def _is_name(e: surface.Expr, variable: surface.Declaration, casts: int = 1) -> bool:
    """True if the expression is the variable, converted to an integer type at most once."""
    if isinstance(e, surface.Cast) and casts and isinstance(e.type, Scalar) and e.type.is_integer:
        return _is_name(e.operand, variable, casts - 1)
    return isinstance(e, surface.Name) and e.declaration == variable


def _step_of(e: surface.Expr | None) -> tuple[surface.Name, surface.Expr | None, bool] | None:
    """Variable, amount (None: 1) and whether it is subtracted, of `++j`, `j += c`, `j = j + c` and their kin."""
    match e:
        case surface.IncDec(target=surface.Name() as name, op=op):
            return name, None, op == "-"
        case surface.Assign(target=surface.Name() as name, op="+" | "-" as op, value=value):
            kind = e.computation or name.type
            return (name, value, op == "-") if _holds(kind, name.type) else None
        case surface.Assign(target=surface.Name() as name, op=None, value=value):
            return _sum_of(name, value)
    return None


def _sum_of(name: surface.Name, e: surface.Expr) -> tuple[surface.Name, surface.Expr, bool] | None:
    while isinstance(e, surface.Cast) and _holds(e.operand.type, name.type):
        e = e.operand
    if not isinstance(e, surface.Binary) or e.op not in ("+", "-") or not _holds(e.type, name.type):
        return None
    if _is_name(e.left, name.declaration):
        return name, e.right, e.op == "-"
    return (name, e.left, False) if e.op == "+" and _is_name(e.right, name.declaration) else None


def _holds(kind: object, of: object) -> bool:
    """True if arithmetic in integer type `kind` equals that in `of` when converted back."""
    both = isinstance(kind, Scalar) and isinstance(of, Scalar) and kind.is_integer and of.is_integer
    return both and kind.bits >= of.bits  # type: ignore[attr-defined]
