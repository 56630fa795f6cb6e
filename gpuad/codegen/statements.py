"""Prints the body of a kernel: statements as C++ lines, among them memory accesses, atomics, barriers and shuffles. The printer walks the
folded kernel once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UnsupportedError
from ..ir import nodes as ir
from ..ir.functions import EXTREMA, ROUNDINGS
from ..ir.rewrite import touches
from ..ir.types import BF16, F16, F32, F64, HALVES, I32, I64, U32, Scalar, Space
from .control import Control
from .folded import Read, read, reads
from .scopes import Expressions, Scopes, signed
from .spelling import c_type, quoted


class Accesses(Scopes):
    """Prints accesses as CUDA."""

    def store(self, stmt: ir.Store) -> None:
        target = read(stmt.buffer, stmt.index)
        if stmt.buffer.element in HALVES:
            self.store_bits(target, stmt.value, stmt.note)
        else:
            self.line(self.update(self.expressions.text(target), target, stmt.value), stmt.note)

    def store_bits(self, target: Read, value: ir.Expr, note: str) -> None:
        place = self.expressions.element(target.buffer, target.index)
        self.line(f"{place} = {self.expressions.bits_of(value, target.buffer.element)};", note)

    def accumulate(self, stmt: ir.Accumulate) -> None:
        element = self.expressions.element(stmt.buffer, stmt.index)
        match stmt.how:
            case ir.How.PLAIN if stmt.buffer.element in HALVES:
                old = read(stmt.buffer, stmt.index)
                self.store_bits(old, ir.Binary("+", old, stmt.value, old.type), stmt.note)
            case ir.How.PLAIN:
                op, operand = signed("+", stmt.value)
                self.line(f"{element} {op}= {self.expressions.assigned(operand, stmt.buffer.element)};", stmt.note)
            case ir.How.REDUCED if stmt.buffer.element.is_float:
                self.line(self.block_sum(element, stmt), stmt.note)
            case ir.How.ATOMIC | ir.How.REDUCED:
                self.line(f"{self.atomic_name('add', stmt.buffer.element)}(&{element}, {self.expressions.text(stmt.value)});", stmt.note)
            case _:
                raise UnsupportedError("it is not decided how this accumulation reaches memory", stmt.span)

    def block_sum(self, element: str, stmt: ir.Accumulate) -> str:
        self.helpers.add("gpuad_block_sum")
        return f"gpuad_block_sum(&{element}, {self.expressions.text(stmt.value)});"

    def take(self, stmt: ir.Take) -> None:
        element = self.expressions.element(stmt.buffer, stmt.index)
        zero = self.expressions.text(ir.Constant(0, stmt.buffer.element))
        if stmt.how is ir.How.PLAIN:
            self.give(stmt.var, element, stmt.note)
            self.line(f"{element} = {zero};")
        elif stmt.how is ir.How.ATOMIC:
            self.give(stmt.var, f"{self.atomic_name('exch', stmt.buffer.element)}(&{element}, {zero})", stmt.note)
        else:
            raise UnsupportedError("it is not decided how this take reaches memory", stmt.span)

    def atomic(self, stmt: ir.Atomic) -> None:
        name = self.atomic_name(stmt.op, stmt.buffer.element, stmt)
        element = self.expressions.element(stmt.buffer, stmt.index)
        values = ", ".join(self.atomic_operands(stmt))
        call = f"{name}(&{element}{', ' if values else ''}{values})"
        if stmt.var is None:
            self.line(call + ";", stmt.note)
        else:
            self.give(stmt.var, call, stmt.note)

    def atomic_operands(self, stmt: ir.Atomic) -> list[str]:
        if stmt.op == "sub" and stmt.buffer.element not in (I32, U32):
            return [self.expressions.text(ir.Unary("-", stmt.operands[0], stmt.operands[0].type))]
        return [self.expressions.text(e) for e in stmt.operands]

    def atomic_name(self, op: str, t: Scalar, stmt: ir.Stmt | None = None) -> str:
        """CUDA's name of the operation, or that of a helper for the types that it lacks."""
        if op == "sub" and t not in (I32, U32):
            op = "add"
        name = _ATOMIC_HELPERS.get((op, t))
        if name is not None:
            self.helpers |= {name, ROUNDINGS.get(t, name)}
            return name
        if t in (F32, F64) and op in EXTREMA:
            self.helpers.add(f"gpuad_atomic_{op}")
            return f"gpuad_atomic_{op}"
        if t.is_float and op not in ("add", "exch", "cas"):
            raise UnsupportedError(f"CUDA has no atomic {op} for {t}", stmt.span if stmt else None)
        if op in ("inc", "dec") and t != U32:
            raise UnsupportedError(f"CUDA has no atomic {op} for {t}", stmt.span if stmt else None)
        return _ATOMIC_NAMES[op]

    def alloc(self, stmt: ir.Alloc) -> None:
        buffer = stmt.buffer
        kind = c_type(buffer.element)
        name = self.declare(buffer)
        if buffer.space is Space.SHARED:
            self.shared(stmt, kind, name)
        else:
            self.local(stmt, kind, name)

    def initialised(self, stmt: ir.Alloc, values: Sequence[ir.Expr]) -> bool:
        """Prints an array of the thread's own with what is stored to it at once; False if that cannot be written down: in braces C++ takes
        no number of a type that it would have to narrow, as a sum of two `short` is."""
        element = stmt.buffer.element
        if element in HALVES or not (element.is_float or all(isinstance(value, ir.Constant) for value in values)):
            return False
        own = [s for s in touches(self.kernel.body, stmt.buffer) if not isinstance(s, ir.Load)]
        const = "const " if len(own) == len(values) + 1 else ""
        texts = [self.expressions.text(value) for value in values]
        self.line(f"{const}{c_type(element)} {self.declare(stmt.buffer)}[{len(values)}] = {{{', '.join(texts)}}};", stmt.note)
        return True

    def local(self, stmt: ir.Alloc, kind: str, name: str) -> None:
        """An array of the thread's own."""
        self.line(f"{kind} {name}[{stmt.buffer.length}]{' = {}' if stmt.zero else ''};", stmt.note)

    def shared(self, stmt: ir.Alloc, kind: str, name: str) -> None:
        length = stmt.buffer.length
        if stmt.buffer in self.pieces:
            self.piece(stmt, kind, name)
        else:
            self.line(f"__shared__ {kind} {name}[{length}];" if length is not None else f"extern __shared__ {kind} {name}[];", stmt.note)
        if not stmt.zero:
            return
        first, step = "threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)", "blockDim.x * blockDim.y * blockDim.z"
        k = self.names.new("k")
        self.line(f"for (int {k} = {first}; {k} < {length}; {k} += {step}) {name}[{k}] = 0;")
        self.line("__syncthreads();")

    def piece(self, stmt: ir.Alloc, kind: str, name: str) -> None:
        """An array that is a piece of the dynamic one."""
        size = f"{kind}[{stmt.buffer.length}]"
        self.line(
            f"{kind}* {name} = ({kind}*)({self.dynamic} + {self.pieces[stmt.buffer]});", f"{size}; {stmt.note}" if stmt.note else size
        )

    def barrier(self, stmt: ir.Barrier) -> None:
        if stmt.scope == "block":
            self.line("__syncthreads();", stmt.note)
        else:
            self.line(f"__syncwarp({_mask(self.expressions, stmt.mask) if stmt.mask is not None else ''});", stmt.note)

    def tell(self, stmt: ir.Tell) -> None:
        if stmt.stops:
            self.stop(stmt)
            return
        values = [self.expressions.text(v) for v in stmt.values]
        self.line(f"{self.print_name}({', '.join([quoted(stmt.text), *values])});", stmt.note)

    def stop(self, stmt: ir.Tell) -> None:
        self.helpers.add("gpuad_stop")
        self.line(f"gpuad_stop({quoted(stmt.text)});", stmt.note)

    def shuffle(self, stmt: ir.Shuffle) -> None:
        if stmt.op == "ballot":
            self.give(stmt.var, f"__ballot_sync({_mask(self.expressions, stmt.mask)}, {self.expressions.text(stmt.value)})", stmt.note)
            return
        parts = [_mask(self.expressions, stmt.mask), self.expressions.text(stmt.value), self.expressions.text(stmt.lane)]
        if not (isinstance(stmt.width, ir.Constant) and stmt.width.value == 32):
            parts.append(self.expressions.text(stmt.width))
        self.give(stmt.var, f"__shfl_{stmt.op + '_' if stmt.op else ''}sync({', '.join(parts)})", stmt.note)


_ATOMIC_NAMES = {
    "add": "atomicAdd",
    "sub": "atomicSub",
    "min": "atomicMin",
    "max": "atomicMax",
    "exch": "atomicExch",
    "cas": "atomicCAS",
    "and": "atomicAnd",
    "or": "atomicOr",
    "xor": "atomicXor",
    "inc": "atomicInc",
    "dec": "atomicDec",
}
_ATOMIC_HELPERS = {
    ("add", F16): "gpuad_add_half",
    ("add", BF16): "gpuad_add_bfloat16",
    ("add", I64): "gpuad_add",
    ("exch", F64): "gpuad_exch",
    ("exch", I64): "gpuad_exch",
    ("cas", F32): "gpuad_cas",
    ("cas", F64): "gpuad_cas",
    ("cas", I64): "gpuad_cas",
}


def _mask(expressions: Expressions, mask: ir.Expr) -> str:
    return f"0x{int(mask.value) & 0xFFFFFFFF:x}u" if isinstance(mask, ir.Constant) else expressions.text(mask)


def filled(stmt: ir.Alloc, after: Sequence[ir.Stmt]) -> list[ir.Expr]:
    """What all elements of a thread's own array are given right after it was made, in order; empty if they are not."""
    length = stmt.buffer.length or 0
    stores = [s for s in after[:length] if isinstance(s, ir.Store) and s.buffer == stmt.buffer and not s.note]
    in_order = [s.index.value if isinstance(s.index, ir.Constant) else None for s in stores] == list(range(length))
    own = any(r.buffer == stmt.buffer for s in stores for r in reads(s.value))
    return [s.value for s in stores] if stmt.buffer.space is Space.LOCAL and in_order and not own else []


class Statements(Accesses, Control):
    """Prints one kernel's body as CUDA; `lines` is the text, `helpers` the functions that it needs."""

    def block(self, block: ir.Block) -> None:
        k = 0
        while k < len(block):
            stmt = block[k]
            values = filled(stmt, block[k + 1 :]) if isinstance(stmt, ir.Alloc) else []
            if isinstance(stmt, ir.Alloc) and values and self.initialised(stmt, values):
                k += len(values)
            else:
                self.statement(stmt)
            k += 1

    def statement(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Let(var=var, value=value) | ir.Assign(var=var, value=value):
                self.define(var, value, stmt.note)
            case ir.Load():
                self.define(stmt.var, read(stmt.buffer, stmt.index), stmt.note)
            case ir.Store():
                self.store(stmt)
            case ir.Accumulate():
                self.accumulate(stmt)
            case ir.Take():
                self.take(stmt)
            case ir.If():
                self.branch(stmt)
            case ir.For():
                self.counted_loop(stmt)
            case ir.While():
                self.while_loop(stmt)
            case _:
                self.rare(stmt)

    def rare(self, stmt: ir.Stmt) -> None:
        match stmt:
            case ir.Alloc():
                self.alloc(stmt)
            case ir.Atomic():
                self.atomic(stmt)
            case ir.Barrier():
                self.barrier(stmt)
            case ir.Shuffle():
                self.shuffle(stmt)
            case ir.Tell():
                self.tell(stmt)
            case _:
                raise UnsupportedError(f"a {type(stmt).__name__} has to be lowered before it is printed", stmt.span)
