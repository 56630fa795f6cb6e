"""A compact text form of the core IR for people: debugging, test failures, `explain`. It is no CUDA; that is codegen's business.

Deterministic: Vars and buffers that share a name are told apart as `x`, `x.2`, `x.3` in the order in which they first occur.

    kernel axpy(float32* y, const float32* x, float32 a, int32 n)
      int32 i = int32(blockIdx.x * blockDim.x + threadIdx.x)
      if i < n:
        float32 x.2 = load x[i]
        y[i] += a * x.2  (plain)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from . import nodes as ir
from .types import BOOL, F64, I32

_LEVELS = ("||", "&&", "|", "^", "&", "== !=", "< > <= >=", "<< >>", "+ -", "* / %")
_PRECEDENCE = {op: level for level, ops in enumerate(_LEVELS, start=2) for op in ops.split()}
_UNARY, _ATOM = 20, 30
_SUFFIX = {BOOL: "", I32: "", F64: ""}


def to_text(kernel: ir.Kernel) -> str:
    """The kernel as text, one statement a line, blocks indented by two spaces, ending in a newline."""
    printer = _Printer()
    params = ", ".join(printer.parameter(p, p in kernel.const) for p in kernel.params)
    lines = [f"kernel {kernel.name}({params})", *("  " + line for line in printer.block(kernel.body))]
    return "\n".join(lines) + "\n"


def expr_text(expr: ir.Expr) -> str:
    """An expression as text, for messages; Vars by their bare names."""
    return _Printer().expr(expr)


@dataclass
class _Printer:
    names: dict[object, str] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)

    def name(self, thing: ir.Var | ir.Buffer | ir.Stack) -> str:
        if thing not in self.names:
            count = self.used[thing.name] = self.used.get(thing.name, 0) + 1
            self.names[thing] = thing.name if count == 1 else f"{thing.name}.{count}"
        return self.names[thing]

    def parameter(self, param: ir.Var | ir.Buffer, const: bool) -> str:
        if isinstance(param, ir.Var):
            return self.define(param)
        return f"{'const ' if const else ''}{param.element}* {self.name(param)}"

    def define(self, var: ir.Var) -> str:
        return f"{var.type} {self.name(var)}"

    def place(self, buffer: ir.Buffer, index: ir.Expr) -> str:
        return f"{self.name(buffer)}[{self.expr(index)}]"

    def listed(self, exprs: tuple[ir.Expr, ...]) -> str:
        return ", ".join(self.expr(e) for e in exprs)

    # --- expressions ---

    def expr(self, expr: ir.Expr, outer: int = 0) -> str:
        text, level = self._expr(expr)
        return f"({text})" if level < outer else text

    def _expr(self, expr: ir.Expr) -> tuple[str, int]:
        match expr:
            case ir.Constant():
                return _constant(expr), _ATOM if expr.type == BOOL or expr.value >= 0 else _UNARY
            case ir.Var():
                return self.name(expr), _ATOM
            case ir.LaunchIndex(name=name, axis=axis):
                return f"{name}.{axis}", _ATOM
            case ir.Unary(op=op, operand=a):
                return f"{op}{self.expr(a, _UNARY + 1)}", _UNARY
            case ir.Binary(op=op, left=a, right=b):
                level = _PRECEDENCE.get(op, 0)
                return f"{self.expr(a, level)} {op} {self.expr(b, level + 1)}", level
            case ir.Cast(operand=a, type=kind):
                return f"{kind}({self.expr(a)})", _ATOM
            case ir.Select(condition=c, then=a, otherwise=b):
                return f"{self.expr(c, 2)} ? {self.expr(a, 2)} : {self.expr(b, 1)}", 1
            case ir.Call(function=f, arguments=args):
                return f"{f}({self.listed(args)})", _ATOM
        return repr(expr), _ATOM

    # --- statements ---

    def block(self, block: ir.Block) -> list[str]:
        return [line for stmt in block for line in self.stmt(stmt)]

    def stmt(self, stmt: ir.Stmt) -> Iterator[str]:
        if stmt.note:
            yield f"# {stmt.note}"
        match stmt:
            case ir.If():
                yield from self._if(stmt)
            case ir.For() | ir.While():
                yield from self._loop(stmt)
            case ir.Load() | ir.Store() | ir.Accumulate() | ir.Take() | ir.Atomic() | ir.Alloc():
                yield self._memory(stmt)
            case _:
                yield self._simple(stmt)

    def _simple(self, stmt: ir.Stmt) -> str:
        match stmt:
            case ir.Let(var=v, value=e):
                value = self.expr(e)
                return f"{self.define(v)} = {value}"
            case ir.Assign(var=v, value=e):
                return f"{self.name(v)} := {self.expr(e)}"
            case ir.Barrier(scope=scope, mask=mask):
                return f"barrier {scope}" + (f" mask {self.expr(mask)}" if mask is not None else "")
            case ir.Shuffle(var=v, op=op):
                operands = self.listed((stmt.mask, stmt.value, stmt.lane, stmt.width))
                return f"{self.define(v)} = shuffle{'_' + op if op else ''}({operands})"
            case ir.Push(stack=stack, values=values):
                return f"push {self.name(stack)} ({self.listed(values)})"
            case ir.Tell(text=text, values=values, stops=stops):
                return f"{'stop' if stops else 'print'} {text!r} ({self.listed(values)})"
            case ir.Pop(stack=stack, vars=vs):
                return f"pop {self.name(stack)} ({', '.join(self.define(v) for v in vs)})"
        return repr(stmt)

    def _memory(self, stmt: ir.Load | ir.Store | ir.Accumulate | ir.Take | ir.Atomic | ir.Alloc) -> str:
        if isinstance(stmt, ir.Alloc):
            b = stmt.buffer
            return f"{b.space.value} {b.element} {self.name(b)}[{b.length}]{' = zeros' if stmt.zero else ''}"
        place = self.place(stmt.buffer, stmt.index)
        match stmt:
            case ir.Load(var=v):
                return f"{self.define(v)} = load {place}"
            case ir.Store(value=e):
                return f"{place} = {self.expr(e)}"
            case ir.Accumulate(value=e, how=how):
                return f"{place} += {self.expr(e)}  ({how.value})"
            case ir.Take(var=v, how=how):
                return f"{self.define(v)} = take {place}  ({how.value})"
            case ir.Atomic(op=op, var=old, operands=operands):
                text = f"atomic_{op} {place} ({self.listed(operands)})"
                return text if old is None else f"{self.define(old)} = {text}"

    def _if(self, stmt: ir.If) -> Iterator[str]:
        yield f"if {self.expr(stmt.condition)}:"
        yield from _indent(self.block(stmt.then) or ["pass"])
        if stmt.otherwise:
            yield "else:"
            yield from _indent(self.block(stmt.otherwise))
        for merge in stmt.merges:
            then, otherwise = self.expr(merge.then), self.expr(merge.otherwise)
            yield f"merge {self.define(merge.var)} = {then} | {otherwise}"

    def _loop(self, stmt: ir.For | ir.While) -> Iterator[str]:
        bounds = self.listed((stmt.start, stmt.stop, stmt.step)) if isinstance(stmt, ir.For) else ""
        starts = [self.expr(c.init) for c in stmt.carried]
        carried = [f"carry {self.define(c.var)} = {init}" for c, init in zip(stmt.carried, starts, strict=True)]
        if isinstance(stmt, ir.For):
            yield f"for {self.define(stmt.var)} in range({bounds}){' backward' if stmt.backward else ''}:"
            yield from _indent([*carried, *self.block(stmt.body)])
        else:
            yield "while:" + (f"  (counter {self.define(stmt.counter)})" if stmt.counter else "")
            yield from _indent([*carried, *self.block(stmt.header), f"break unless {self.expr(stmt.condition)}", *self.block(stmt.body)])
        yield from _indent([f"next {self.name(c.var)} = {self.expr(c.next)}" for c in stmt.carried])
        yield from self._results(stmt.carried)
        if isinstance(stmt, ir.While) and stmt.count:
            yield f"count {self.define(stmt.count)}"

    def _results(self, carried: tuple[ir.Carried, ...]) -> Iterator[str]:
        for c in carried:
            yield f"result {self.define(c.result)} = {self.name(c.var)}"


def _indent(lines: list[str]) -> Iterator[str]:
    return ("  " + line for line in lines)


def _constant(constant: ir.Constant) -> str:
    if constant.type == BOOL:
        return "true" if constant.value else "false"
    return f"{constant.value!r}{_SUFFIX.get(constant.type, ':' + str(constant.type))}"
