"""Checks that a kernel is valid core IR: what every pass may take for granted and has to leave behind.

Scopes are blocks: a Var is visible after its definition in its block and in blocks nested there; no Var is defined again where it is
visible, while siblings may repeat one another's. Operand types agree exactly (conversions are explicit), conditions are bools, and memory
is reached through parameters or arrays that are in scope. A breach is a bug of gpuad, not of its user, hence an AssertionError.

What the pipeline has made so far, for whoever wants to see it.

Every pass gives what it has made to `made`, by the pass's name: it is checked (`ir.verify`), and shown to whoever has asked with `watched`.
A pass that is tried several times, as the reverse sweep is, is shown each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field

from ..context_variables import scoped
from . import nodes as ir
from .functions import EXTREMA, FUNCTIONS
from .nodes import Kernel
from .types import BOOL, F32, F64, HALVES, I32, I64, U32, Scalar, Space, value_type

ATOMICS = frozenset({"add", "sub", "exch", "cas", "and", "or", "xor", "inc", "dec"}) | EXTREMA


class InvalidIR(AssertionError):
    """A kernel that breaks a rule of the core IR; the message names the rule, the node and its place."""


def verify(kernel: ir.Kernel) -> None:
    """Raises InvalidIR if `kernel` is not valid core IR; gives nothing otherwise."""
    scope = _Scope()
    for param in kernel.params:
        _parameter(param, scope)
    for buffer in kernel.const:
        _require(buffer in kernel.params, f"const buffer {buffer.name} is no parameter")
    scope.const |= kernel.const
    _block(kernel.body, scope)


@dataclass
class _Scope:
    """What is visible at a point: Vars, those of them that may be assigned to, and buffers."""

    vars: set[ir.Var] = field(default_factory=set)
    mutable: set[ir.Var] = field(default_factory=set)
    buffers: set[ir.Buffer] = field(default_factory=set)
    const: set[ir.Buffer] = field(default_factory=set)

    def nested(self) -> _Scope:
        return _Scope(set(self.vars), set(self.mutable), set(self.buffers), self.const)

    def define(self, var: ir.Var, mutable: bool = False) -> None:
        _require(isinstance(var.type, Scalar) and var.type not in HALVES, lambda: f"Var {var.name}#{var.uid} has type {var.type}")
        _require(var not in self.vars, lambda: f"Var {var.name}#{var.uid} is defined twice")
        self.vars.add(var)
        if mutable:
            self.mutable.add(var)


def _require(holds: bool, message: str | Callable[[], str]) -> None:
    """A message that shows an expression is a function: forming it for every node of a large kernel would cost more than the checks."""
    if not holds:
        raise InvalidIR(message if isinstance(message, str) else message())


def _parameter(param: ir.Var | ir.Buffer, scope: _Scope) -> None:
    if isinstance(param, ir.Var):
        return scope.define(param)
    _require(param.length is None and param.space in (Space.GLOBAL, Space.CONSTANT), f"parameter {param.name} is no pointer")
    _require(param not in scope.buffers, f"buffer {param.name}#{param.uid} is a parameter twice")
    scope.buffers.add(param)
    return None


# --- statements ----------------------------------------------------------------------------------------------------------------------


def _block(block: ir.Block, scope: _Scope) -> None:
    _require(isinstance(block, tuple), f"a block is a {type(block).__name__}, not a tuple")
    for stmt in block:
        _located(stmt, scope)


def _located(stmt: ir.Stmt, scope: _Scope) -> None:
    try:
        _stmt(stmt, scope)
    except InvalidIR as error:
        if getattr(error, "located", False):
            raise
        located = InvalidIR(f"{error} [in {type(stmt).__name__} at {stmt.span}]")
        located.located = True  # type: ignore[attr-defined]
        raise located from None


def _stmt(stmt: ir.Stmt, scope: _Scope) -> None:
    match stmt:
        case ir.Let() | ir.Assign():
            _scalar_stmt(stmt, scope)
        case ir.Alloc(buffer=buffer):
            _alloc(buffer, scope)
        case ir.Load() | ir.Store() | ir.Accumulate() | ir.Take() | ir.Atomic():
            _memory_stmt(stmt, scope)
        case ir.If():
            _if(stmt, scope)
        case ir.For():
            _for(stmt, scope)
        case ir.While():
            _while(stmt, scope)
        case ir.Barrier() | ir.Shuffle():
            _warp_stmt(stmt, scope)
        case ir.Push() | ir.Pop():
            _stack_stmt(stmt, scope)
        case ir.Tell(values=values):
            for value in values:
                _typed(value, value.type, scope)
        case _:
            raise InvalidIR(f"unknown statement {type(stmt).__name__}")


def _scalar_stmt(stmt: ir.Let | ir.Assign, scope: _Scope) -> None:
    _typed(stmt.value, stmt.var.type, scope)
    if isinstance(stmt, ir.Let):
        return scope.define(stmt.var, mutable=True)
    return _require(stmt.var in scope.mutable, f"Assign to {stmt.var.name}#{stmt.var.uid}, which no visible Let introduced")


def _alloc(buffer: ir.Buffer, scope: _Scope) -> None:
    _require(buffer.space in (Space.LOCAL, Space.SHARED), f"array {buffer.name} lies in {buffer.space.value} memory")
    _require(buffer.length is not None and buffer.length > 0, f"array {buffer.name} has length {buffer.length}")
    _require(buffer not in scope.buffers, f"array {buffer.name}#{buffer.uid} is made twice")
    scope.buffers.add(buffer)


def _memory_stmt(stmt: ir.Load | ir.Store | ir.Accumulate | ir.Take | ir.Atomic, scope: _Scope) -> None:
    buffer = stmt.buffer
    _require(buffer in scope.buffers, f"buffer {buffer.name}#{buffer.uid} is not in scope")
    _require(isinstance(stmt, ir.Load) or buffer not in scope.const, f"const buffer {buffer.name} is written")
    _require(_expr(stmt.index, scope).is_integer, f"index into {buffer.name} has type {stmt.index.type}")
    for value in _operands(stmt):
        _typed(value, value_type(buffer.element), scope)
    if isinstance(stmt, (ir.Load, ir.Take, ir.Atomic)) and stmt.var is not None:
        _require(
            stmt.var.type == value_type(buffer.element), f"{stmt.var.name} of type {stmt.var.type} from {buffer.name} of {buffer.element}"
        )
        scope.define(stmt.var)


def _operands(stmt: ir.Load | ir.Store | ir.Accumulate | ir.Take | ir.Atomic) -> tuple[ir.Expr, ...]:
    if isinstance(stmt, ir.Atomic):
        _require(stmt.op in ATOMICS, f"unknown atomic {stmt.op!r}")
        _require(len(stmt.operands) == (2 if stmt.op == "cas" else 1), f"atomic {stmt.op} with {len(stmt.operands)} operands")
        return stmt.operands
    return (stmt.value,) if isinstance(stmt, (ir.Store, ir.Accumulate)) else ()


def _if(stmt: ir.If, scope: _Scope) -> None:
    _typed(stmt.condition, BOOL, scope)
    then, otherwise = scope.nested(), scope.nested()
    _block(stmt.then, then)
    _block(stmt.otherwise, otherwise)
    for merge in stmt.merges:
        _typed(merge.then, merge.var.type, then)
        _typed(merge.otherwise, merge.var.type, otherwise)
    for merge in stmt.merges:
        scope.define(merge.var)


def _for(stmt: ir.For, scope: _Scope) -> None:
    _require(stmt.var.type.is_integer, f"loop variable {stmt.var.name} has type {stmt.var.type}")
    for bound in (stmt.start, stmt.stop, stmt.step):
        _typed(bound, stmt.var.type, scope)
    _require(not (isinstance(stmt.step, ir.Constant) and stmt.step.value == 0), "loop with step 0")
    inside = _enter(stmt.carried, scope)
    inside.define(stmt.var)
    _block(stmt.body, inside)
    _leave(stmt.carried, inside, scope)


def _while(stmt: ir.While, scope: _Scope) -> None:
    inside = _enter(stmt.carried, scope)
    for var in (stmt.counter, stmt.count):
        _require(var is None or var.type == I32, "counter and count of a While are int32")
    if stmt.counter:
        inside.define(stmt.counter)
    _require(all(isinstance(s, (ir.Let, ir.Load)) for s in stmt.header), "a While's header holds something else than Lets and Loads")
    _block(stmt.header, inside)
    _typed(stmt.condition, BOOL, inside)
    _block(stmt.body, inside)
    _leave(stmt.carried, inside, scope)
    if stmt.count:
        scope.define(stmt.count)


def _enter(carried: tuple[ir.Carried, ...], scope: _Scope) -> _Scope:
    inside = scope.nested()
    for c in carried:
        _typed(c.init, c.var.type, scope)
    for c in carried:
        inside.define(c.var)
    return inside


def _leave(carried: tuple[ir.Carried, ...], inside: _Scope, scope: _Scope) -> None:
    for c in carried:
        _typed(c.next, c.var.type, inside)
        _require(c.result.type == c.var.type, f"carried {c.var.name} of type {c.var.type} ends as {c.result.type}")
    for c in carried:
        scope.define(c.result)


def _warp_stmt(stmt: ir.Barrier | ir.Shuffle, scope: _Scope) -> None:
    if isinstance(stmt, ir.Barrier):
        _require(stmt.scope in ("block", "warp", "grid"), f"barrier of scope {stmt.scope!r}")
        if stmt.mask is not None:
            _require(stmt.scope == "warp", f"a {stmt.scope} barrier has no mask")
            _typed(stmt.mask, U32, scope)
        return
    _require(stmt.op in ("", "up", "down", "xor", "ballot"), f"unknown shuffle {stmt.op!r}")
    _require(stmt.op != "ballot" or stmt.var.type == U32, "a ballot gives a uint32")
    _typed(stmt.mask, U32, scope)
    _typed(stmt.value, stmt.var.type, scope)
    for operand in (stmt.lane, stmt.width):
        _require(_expr(operand, scope).is_integer, f"shuffle operand of type {operand.type}")
    scope.define(stmt.var)


def _stack_stmt(stmt: ir.Push | ir.Pop, scope: _Scope) -> None:
    things: tuple[ir.Expr, ...] = stmt.values if isinstance(stmt, ir.Push) else stmt.vars
    name, fields = stmt.stack.name, stmt.stack.fields
    _require(len(things) == len(fields), f"stack {name} has {len(fields)} fields, not {len(things)}")
    for thing, (label, kind) in zip(things, fields, strict=True):
        _require(thing.type == kind, f"field {label} of stack {name} is {kind}, not {thing.type}")
    for value in stmt.values if isinstance(stmt, ir.Push) else ():
        _expr(value, scope)
    for var in stmt.vars if isinstance(stmt, ir.Pop) else ():
        scope.define(var)


# --- expressions ---------------------------------------------------------------------------------------------------------------------


def _typed(expr: ir.Expr, expected: Scalar, scope: _Scope) -> None:
    found = _expr(expr, scope)
    _require(found == expected, lambda: f"{type(expr).__name__} of type {found} where {expected} belongs: {expr}")


def _expr(expr: ir.Expr, scope: _Scope) -> Scalar:
    """Checks the expression and gives its type."""
    if isinstance(expr, ir.Var):  # whose type was looked at where it is defined
        _require(expr in scope.vars, lambda: f"Var {expr.name}#{expr.uid} is used where it is not defined")
        return expr.type
    types = [_expr(child, scope) for child in ir.children(expr)]
    _require(isinstance(expr.type, Scalar) and expr.type not in HALVES, lambda: f"expression of type {expr.type}: {expr}")
    match expr:
        case ir.Constant(value=value, type=kind):
            _require(_fits(value, kind), lambda: f"constant {value!r} does not fit {kind}")
        case ir.Unary(op=op):
            _require(_unary_ok(op, types[0], expr.type), lambda: f"{op} of {types[0]} as {expr.type}")
        case ir.Binary():
            _require(_binary_ok(expr, *types), lambda: f"{types[0]} {expr.op} {types[1]} as {expr.type}: {expr}")
        case ir.Select():
            _require(types[0] == BOOL and types[1] == types[2], lambda: f"Select of {', '.join(map(str, types))}: {expr}")
        case ir.Call():
            _call(expr, types)
        case ir.Cast() | ir.LaunchIndex():
            pass
        case _:
            raise InvalidIR(f"unknown expression {type(expr).__name__}")
    return expr.type


def _fits(value: bool | int | float, kind: Scalar) -> bool:
    if not kind.is_integer:
        return True
    low, high = (-(1 << (kind.bits - 1)), 1 << (kind.bits - 1)) if kind.is_signed else (0, 1 << kind.bits)
    return low <= value < high


def _unary_ok(op: str, operand: Scalar, result: Scalar) -> bool:
    fits = {"-": operand != BOOL, "~": operand.is_integer, "!": operand == BOOL}.get(op, False)
    return fits and operand == result


def _binary_ok(expr: ir.Binary, left: Scalar, right: Scalar) -> bool:
    op = expr.op
    if op in ir.COMPARISONS:
        return left == right and expr.type == BOOL
    if op in ("&&", "||"):
        return left == right == expr.type == BOOL
    if op in ("<<", ">>"):
        return left.is_integer and right.is_integer and expr.type == left
    if op in ("%", "&", "|", "^"):
        return left.is_integer and left == right == expr.type
    return op in ("+", "-", "*", "/") and left != BOOL and left == right == expr.type


def _call(expr: ir.Call, types: list[Scalar]) -> None:
    function = FUNCTIONS.get(expr.function)
    _require(function is not None, lambda: f"unknown function {expr.function}")
    assert function is not None

    def shown() -> str:
        return f"{expr.function}({', '.join(map(str, types))}) as {expr.type}"

    _require(len(types) == function.arity, lambda: f"{shown()} takes {function.arity} arguments")
    alike = function.of_one_type(types)
    _require(_alike(alike), lambda: f"{shown()}: arguments differ in type")
    _require(function.whole is None or types[function.whole] == I32, lambda: f"{shown()}: a whole argument is an int32")
    if function.domain == "int":
        wanted = I32 if expr.function in ("popc", "clz", "ffs") else types[0]
        _require(types[0].is_integer and expr.type == wanted, shown)
        return
    if function.domain == "bits":
        _require(BITS.get(types[0]) is not None and expr.type in BITS[types[0]], shown)
        return
    _require(alike[0].is_float and expr.type == (BOOL if function.domain == "predicate" else alike[0]), shown)


BITS = {F32: (I32, U32), F64: (I64,), I32: (F32,), U32: (F32,), I64: (F64,)}


def _alike(types: Iterable[Scalar]) -> bool:
    return len(set(types)) <= 1


Watcher = Callable[[str, Kernel], None]

_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


def watched(watcher: Watcher) -> AbstractContextManager[None]:
    """Within it each stage is shown to `watcher(name, kernel)`."""
    return scoped(_watcher, watcher)


def made(name: str, kernel: Kernel) -> Kernel:
    """The kernel, valid, and shown. Raises InvalidIR if the pass has broken a rule of the core IR."""
    verify(kernel)
    tried(name, kernel)
    return kernel


def tried(name: str, kernel: Kernel) -> None:
    """Shows what is made on trial, unchecked: it is checked when the trial is taken."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher(name, kernel)
