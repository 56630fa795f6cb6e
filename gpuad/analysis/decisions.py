"""Discrete dependences: where what a kernel reads of a buffer decides an index, a condition, a trip count, a whole number.

A value that goes through smooth functions only may be a little off, and all that is made of it is a little off then. One that is compared,
rounded or turned into an index may not: a small error there is a large one elsewhere. Values are followed by data flow through variables,
memory and stacks of the kernel, whatever the order of statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..ir import nodes as ir
from ..ir.rewrite import blocks, expressions, walk_stmts
from .uniformity import steering

Place = ir.Var | ir.Buffer | ir.Stack

SMOOTH = frozenset({
    "sqrt", "rsqrt", "cbrt", "rcbrt", "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sinpi", "cospi", "erf", "erfc", "erfinv", "erfcinv", "erfcx", "normcdf",
    "normcdfinv", "j0", "j1", "cyl_bessel_i0", "cyl_bessel_i1", "pow", "hypot", "rhypot", "fma", "ldexp", "__expf", "__exp10f", "__logf",
    "__log2f", "__log10f", "__sinf", "__cosf", "__tanf", "__tanhf", "__powf", "__fdividef", "__frcp_rn", "__fsqrt_rn", "__frsqrt_rn",
    "__fadd_rn", "__fsub_rn", "__fmul_rn", "__fdiv_rn", "__fmaf_rn", "__dadd_rn", "__dsub_rn", "__dmul_rn", "__ddiv_rn", "__dsqrt_rn",
    "__drcp_rn", "__fma_rn", "gpuad_half", "gpuad_bfloat16",
})  # fmt: skip
_ARITHMETIC = frozenset("+-*/")


def decided_by(kernel: ir.Kernel, place: ir.Buffer | ir.Var, *, memory: bool = True) -> ir.Stmt | None:
    """The first statement in which a value of a variable, or one that was read of a buffer, or what is made of it, decides something; None
    if none does. `memory`: what is stored to a parameter's memory comes out again."""
    reached = reached_from(kernel, place, memory=memory)
    return next((stmt for stmt in walk_stmts(kernel.body) if any(_decides(e, reached) for e in _deciding(stmt))), None)


def deciding_depths(body: ir.Block) -> frozenset[ir.Buffer]:
    """The memory whose content decides how often something is pushed on a stack."""
    around = dict(_heads_around(body))
    wanted: set[Place] = {v for s in walk_stmts(body) if isinstance(s, ir.Push) for v in around[id(s)]}
    while True:
        found = set(wanted)
        for stmt in walk_stmts(body):
            flow = list(_flow(stmt))
            if any(target in wanted for target, _ in flow):
                found |= around[id(stmt)] | _head(stmt) | ({*ir.variables(stmt.index)} if isinstance(stmt, ir.Load) else set())
                found |= {place for target, sources in flow if target in wanted for place in _places(sources)}
        if found == wanted:
            return frozenset(p for p in wanted if isinstance(p, ir.Buffer))
        wanted = found


def _heads_around(block: ir.Block, outer: frozenset[Place] = frozenset()) -> Iterator[tuple[int, frozenset[Place]]]:
    """For each statement, by its id, what decides whether and how often it is come to."""
    for stmt in block:
        yield id(stmt), outer
        for inner in blocks(stmt):
            yield from _heads_around(inner, outer | _head(stmt))


def _head(stmt: ir.Stmt) -> frozenset[Place]:
    """What decides which blocks of a control statement are run, and how often."""
    return frozenset(_places(steering(stmt)))


def reached_from(kernel: ir.Kernel, place: Place, *, memory: bool = True) -> frozenset[Place]:
    """What values of a place flow to. `memory`: parameters' memory is among it, and what is read of it again."""
    edges: dict[Place, set[Place]] = {}
    for source, target in _flows(kernel.body):
        edges.setdefault(source, set()).add(target)
    seen: set[Place] = {place}
    waiting: list[Place] = [place]
    while waiting:
        new = {p for p in edges.get(waiting.pop(), set()) - seen if memory or not isinstance(p, ir.Buffer) or p.length is not None}
        seen |= new
        waiting += new
    return frozenset(seen)


def _flows(body: ir.Block) -> Iterator[tuple[Place, Place]]:
    for stmt in walk_stmts(body):
        for target, sources in _flow(stmt):
            yield from ((place, target) for place in _places(sources))


def _places(sources: Iterable[ir.Expr | Place]) -> Iterator[Place]:
    """What is there among sources: of an expression its variables."""
    for source in sources:
        if isinstance(source, ir.Expr):
            yield from ir.variables(source)
        else:
            yield source


def _flow(stmt: ir.Stmt) -> Iterator[tuple[Place, tuple[ir.Expr | Place, ...]]]:
    """What a statement gives values to, and of what."""
    match stmt:
        case ir.Let(var=var, value=value) | ir.Assign(var=var, value=value) | ir.Shuffle(var=var, value=value):
            yield var, (value,)
        case ir.Load(var=var, buffer=buffer) | ir.Take(var=var, buffer=buffer):
            yield var, (buffer,)
        case ir.Store(buffer=buffer, value=value) | ir.Accumulate(buffer=buffer, value=value):
            yield buffer, (value,)
        case ir.Atomic(var=var, buffer=buffer, operands=operands):
            yield buffer, operands
            if var is not None:
                yield var, (buffer,)
        case ir.Push(stack=stack, values=values):
            yield stack, values
        case ir.Pop(stack=stack, vars=popped):
            yield from ((v, (stack,)) for v in popped)
        case ir.If(merges=merges):
            yield from ((m.var, (m.then, m.otherwise)) for m in merges)
        case ir.For(carried=carried) | ir.While(carried=carried):
            for c in carried:
                yield c.var, (c.init, c.next)
                yield c.result, (c.init, c.next)


def _deciding(stmt: ir.Stmt) -> Iterator[tuple[ir.Expr, bool]]:
    """A statement's expressions, each with whether its value decides something whatever it is."""
    smooth: Iterable[ir.Expr] = ()
    match stmt:
        case ir.Tell():
            return
        case ir.Shuffle(op="ballot"):
            pass
        case ir.Let(value=value) | ir.Assign(value=value) | ir.Store(value=value) | ir.Accumulate(value=value) | ir.Shuffle(value=value):
            smooth = (value,)
        case ir.Push(values=smooth) | ir.Atomic(op="add" | "exch", operands=smooth):
            pass
        case ir.If(merges=merges):
            smooth = [side for m in merges for side in (m.then, m.otherwise)]
        case ir.For(carried=carried) | ir.While(carried=carried):
            smooth = [side for c in carried for side in (c.init, c.next)]
    known = {id(e) for e in smooth}
    for expr in expressions(stmt):
        yield expr, id(expr) not in known


def _decides(given: tuple[ir.Expr, bool], reached: frozenset[Place]) -> bool:
    """True if a value that has been reached decides something in an expression."""
    expr, whole = given
    if not any(v in reached for v in ir.variables(expr)):
        return False
    return whole or any(_jumps(part, reached) for part in ir.walk(expr))


def _jumps(expr: ir.Expr, reached: frozenset[Place]) -> bool:
    """True if an operation may jump where its operands, one of which has been reached, move a little."""
    operands: tuple[ir.Expr, ...] = (expr.condition,) if isinstance(expr, ir.Select) else ir.children(expr)
    if not any(v in reached for operand in operands for v in ir.variables(operand)):
        return False
    match expr:
        case ir.Select():
            return True
        case ir.Call(function=function):
            return function not in SMOOTH
        case ir.Binary(op=op, type=type_):
            return op not in _ARITHMETIC or not type_.is_float
        case ir.Unary(op=op, type=type_):
            return op != "-" or not type_.is_float
    return not expr.type.is_float
