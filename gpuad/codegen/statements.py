"""Prints the body of a kernel: statements as C++ lines, structured control flow as a programmer writes it.

The printer walks the folded kernel once. Each class of coalesced Vars becomes one C variable, declared where the first of them gets a
value: before the `if` or the loop where control flow meets, else at its definition. Values that meet are assigned in parallel, in an order
(or through a temporary) that no assignment disturbs another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import UnsupportedError
from ..ir.atomics import EXTREMA
from ..ir.functions import ROUNDINGS
from ..ir.nodes import (
    Accumulate,
    Alloc,
    Assign,
    Atomic,
    Barrier,
    Binary,
    Block,
    Buffer,
    Carried,
    Constant,
    Expr,
    For,
    How,
    If,
    Kernel,
    Let,
    Load,
    Merge,
    Select,
    Shuffle,
    Stmt,
    Store,
    Take,
    Tell,
    Unary,
    Var,
    While,
    variables,
)
from ..ir.shared import pieces
from ..ir.types import BF16, F16, F32, F64, HALVES, I32, I64, U32, Scalar, Space
from .coalesce import coalesce
from .expressions import Expressions
from .fold import fold, negated
from .naming import Names
from .spelling import c_type, quoted
from .structure import Read, defined, merge_vars, read, statements
from .wrapping import wrap

INDENT = "    "
WIDTH = 110


@dataclass(frozen=True)
class Header:
    """The three parts of a `for`, and a declaration of the index at the top of the body if the header counts something else."""

    init: str
    condition: str
    advance: str
    index: str = ""

    def __str__(self) -> str:
        return f"for ({self.init}; {self.condition}; {self.advance})" if self.advance else f"for ({self.init}; {self.condition};)"


class Statements:
    """Prints one kernel's body as CUDA; `lines` is the text, `helpers` the functions that it needs."""

    expressions_class = Expressions
    print_name = "printf"

    def __init__(self, kernel: Kernel, reserved: Sequence[str] = ()) -> None:
        self.kernel = fold(kernel)
        self.classes = coalesce(self.kernel)
        self.mutable = self.mutable_roots(self.kernel.body)
        self.values = {s.var: s.value for s in statements(self.kernel.body) if isinstance(s, Let)}
        self.names = Names(reserved)
        self.visible: list[dict[Var | Buffer, str]] = [{}]
        self.holds: dict[Var | Buffer, Constant] = {}
        self.expressions = self.expressions_class(self)
        self.helpers = self.expressions.helpers
        self.lines: list[str] = []
        self.depth = 1
        self.pieces = pieces(self.kernel)
        self.dynamic = self.names.new("gpuad_shared") if self.pieces else ""

    # --- variables ---

    def root(self, thing: Var | Buffer) -> Var | Buffer:
        return self.classes.find(thing) if isinstance(thing, Var) else thing

    def known(self, thing: Var | Buffer) -> str | None:
        """The C name of the variable or array, if it has been declared in a scope still open."""
        root = self.root(thing)
        return next((scope[root] for scope in reversed(self.visible) if root in scope), None)

    def name_of(self, thing: Var | Buffer) -> str:
        name = self.known(thing)
        if name is None:
            raise AssertionError(f"{thing.name} (uid {thing.uid}) is used where it is not visible in kernel {self.kernel.name}")
        return name

    def declare(self, thing: Var | Buffer) -> str:
        name = self.names.new(thing.name)
        self.visible[-1][self.root(thing)] = name
        self.holds.pop(self.root(thing), None)
        return name

    def mutable_roots(self, block: Block) -> set[Var]:
        """The C variables that get a value more than where they are declared."""
        return {self.classes.find(v) for s in statements(block) for v in _joined(s) if len(self.classes.of(v)) > 1 or self.assigns(s)}

    def assigns(self, stmt: Stmt) -> bool:
        """Whether the statement gives a variable a value elsewhere than in its declaration."""
        return isinstance(stmt, Assign | For | While) or (isinstance(stmt, If) and not self.prints_as_select(stmt))

    def open(self) -> None:
        self.depth += 1
        self.visible.append({})
        self.names.open()

    def close(self) -> None:
        self.depth -= 1
        self.visible.pop()
        self.names.close()

    # --- lines ---

    def line(self, text: str, note: str = "") -> None:
        text = INDENT * self.depth + text
        if note and ("\n" in note or len(text) + len(note) > WIDTH or text.endswith("{")):
            self.comment(note)
            note = ""
        self.lines += wrap(f"{text}  // {note}" if note else text)

    def comment(self, note: str) -> None:
        self.lines += [f"{INDENT * self.depth}// {part}".rstrip() for part in note.splitlines()]

    def body(self) -> list[str]:
        """The lines of the kernel's body."""
        if self.dynamic:
            self.line(f"extern __shared__ __align__(16) unsigned char {self.dynamic}[];")
        self.block(self.kernel.body)
        return self.lines

    def block(self, block: Block) -> None:
        for stmt in block:
            self.statement(stmt)

    def nested(self, block: Block, ends: list[tuple[Var, Expr]]) -> list[str]:
        """The lines of an inner block that ends with these parallel assignments."""
        outer, self.lines = self.lines, []
        self.open()
        self.block(block)
        self.assign_all(ends)
        self.close()
        outer, self.lines = self.lines, outer
        return outer

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case Let(var=var, value=value) | Assign(var=var, value=value):
                self.define(var, value, stmt.note)
            case Load():
                self.define(stmt.var, read(stmt.buffer, stmt.index), stmt.note)
            case Store():
                self.store(stmt)
            case Accumulate():
                self.accumulate(stmt)
            case Take():
                self.take(stmt)
            case If():
                self.branch(stmt)
            case For():
                self.counted_loop(stmt)
            case While():
                self.while_loop(stmt)
            case _:
                self.rare(stmt)

    def rare(self, stmt: Stmt) -> None:
        match stmt:
            case Alloc():
                self.alloc(stmt)
            case Atomic():
                self.atomic(stmt)
            case Barrier():
                self.barrier(stmt)
            case Shuffle():
                self.shuffle(stmt)
            case Tell():
                self.tell(stmt)
            case _:
                raise UnsupportedError(f"a {type(stmt).__name__} has to be lowered before it is printed", stmt.span)

    # --- scalars ---

    def define(self, var: Var, value: Expr, note: str = "") -> None:
        """Declares the variable with the value, or assigns if it is there already."""
        if isinstance(value, Var) and self.root(value) == self.root(var) and self.known(var):
            return
        if not self.known(var):
            self.give(var, self.initial(var, value), note)
        elif value != self.holds.get(self.root(var)):
            self.line(self.update(self.name_of(var), var, value), note)
        self.hold(var, value)

    def hold(self, var: Var, value: Expr) -> None:
        """Notes that the variable has the value from here on: a constant is not assigned twice."""
        self.holds.pop(self.root(var), None)
        if isinstance(value, Constant) and value.type == var.type:
            self.holds[self.root(var)] = value

    def forget(self, stmt: Stmt) -> None:
        """The variables that the statement changes hold no known value."""
        for root in self.changed(stmt):
            self.holds.pop(root, None)

    def initial(self, var: Var, value: Expr) -> str:
        """The value as the variable's initialiser."""
        return self.expressions.assigned(value, var.type)

    def give(self, var: Var, text: str, note: str = "") -> None:
        """The variable declared with (or assigned) a text."""
        name = self.known(var)
        self.holds.pop(self.root(var), None)
        if name is not None:
            self.line(f"{name} = {text};", note)
            return
        const = "const " if var.type.is_float and self.root(var) not in self.mutable else ""
        self.line(f"{const}{self.type_name(var)} {self.declare(var)} = {text};", note)

    def type_name(self, var: Var) -> str:
        return c_type(var.type)

    def update(self, name: str, target: Var | Read, value: Expr) -> str:
        """`name` gets a value, by a compound assignment where the value continues the old one."""
        compound = self.compound(target, value)
        if compound is None:
            return f"{name} = {self.expressions.assigned(value, target.type)};"
        op, operand = compound
        if op in "+-" and target.type.is_integer and operand == Constant(1, target.type):
            return f"{op}{op}{name};"
        return f"{name} {op}= {self.expressions.text(operand)};"

    def compound(self, target: Var | Read, value: Expr) -> tuple[str, Expr] | None:
        if not isinstance(value, Binary) or value.type != target.type or not self.compounds(value):
            return None
        if self.same(value.left, target) and value.op in "+-*/&|^":
            return _signed(value.op, value.right)
        if self.same(value.right, target) and value.op in "+*&|^":
            return _signed(value.op, value.left)
        return None

    def compounds(self, value: Binary) -> bool:
        """Whether the operation has a compound form: not where it prints as a call."""
        return self.expressions.guarded(value) is None and value.left.type == value.right.type == value.type

    def same(self, expr: Expr, target: Var | Read) -> bool:
        if isinstance(expr, Var) and isinstance(target, Var):
            return self.root(expr) == self.root(target)
        return expr == target

    def assign_all(self, pairs: list[tuple[Var, Expr]]) -> None:
        """Assigns in parallel: every value is that of before the first assignment."""
        waiting = [(v, e) for v, e in pairs if not (isinstance(e, Var) and self.root(e) == self.root(v))]
        while waiting:
            k = next((k for k in range(len(waiting)) if not self.disturbs(waiting, k)), None)
            if k is None:
                waiting = [*waiting[1:], (waiting[0][0], self.saved(*waiting[0]))]
            else:
                self.define(*waiting.pop(k))

    def disturbs(self, waiting: list[tuple[Var, Expr]], k: int) -> bool:
        """Whether the k-th assignment would change what another one reads."""
        target = self.root(waiting[k][0])
        return any(self.root(v) == target for j, (_, e) in enumerate(waiting) if j != k for v in variables(e))

    def saved(self, var: Var, value: Expr) -> Var:
        """A temporary with the value that the variable will get."""
        temporary = Var(f"next_{var.name}", var.type, -(1 << 30) - len(self.lines))
        self.define(temporary, value)
        return temporary

    # --- memory ---

    def store(self, stmt: Store) -> None:
        target = read(stmt.buffer, stmt.index)
        if stmt.buffer.element in HALVES:
            self.store_bits(target, stmt.value, stmt.note)
        else:
            self.line(self.update(self.expressions.text(target), target, stmt.value), stmt.note)

    def store_bits(self, target: Read, value: Expr, note: str) -> None:
        place = self.expressions.element(target.buffer, target.index)
        self.line(f"{place} = {self.expressions.bits_of(value, target.buffer.element)};", note)

    def accumulate(self, stmt: Accumulate) -> None:
        element = self.expressions.element(stmt.buffer, stmt.index)
        match stmt.how:
            case How.PLAIN if stmt.buffer.element in HALVES:
                old = read(stmt.buffer, stmt.index)
                self.store_bits(old, Binary("+", old, stmt.value, old.type), stmt.note)
            case How.PLAIN:
                op, operand = _signed("+", stmt.value)
                self.line(f"{element} {op}= {self.expressions.assigned(operand, stmt.buffer.element)};", stmt.note)
            case How.REDUCED if stmt.buffer.element.is_float:
                self.line(self.block_sum(element, stmt), stmt.note)
            case How.ATOMIC | How.REDUCED:
                self.line(f"{self.atomic_name('add', stmt.buffer.element)}(&{element}, {self.expressions.text(stmt.value)});", stmt.note)
            case _:
                raise UnsupportedError("it is not decided how this accumulation reaches memory", stmt.span)

    def block_sum(self, element: str, stmt: Accumulate) -> str:
        self.helpers.add("gpuad_block_sum")
        return f"gpuad_block_sum(&{element}, {self.expressions.text(stmt.value)});"

    def take(self, stmt: Take) -> None:
        element = self.expressions.element(stmt.buffer, stmt.index)
        zero = self.expressions.text(Constant(0, stmt.buffer.element))
        if stmt.how is How.PLAIN:
            self.give(stmt.var, element, stmt.note)
            self.line(f"{element} = {zero};")
        elif stmt.how is How.ATOMIC:
            self.give(stmt.var, f"{self.atomic_name('exch', stmt.buffer.element)}(&{element}, {zero})", stmt.note)
        else:
            raise UnsupportedError("it is not decided how this take reaches memory", stmt.span)

    def atomic(self, stmt: Atomic) -> None:
        name = self.atomic_name(stmt.op, stmt.buffer.element, stmt)
        element = self.expressions.element(stmt.buffer, stmt.index)
        values = ", ".join(self.atomic_operands(stmt))
        call = f"{name}(&{element}{', ' if values else ''}{values})"
        if stmt.var is None:
            self.line(call + ";", stmt.note)
        else:
            self.give(stmt.var, call, stmt.note)

    def atomic_operands(self, stmt: Atomic) -> list[str]:
        if stmt.op == "sub" and stmt.buffer.element not in (I32, U32):
            return [self.expressions.text(Unary("-", stmt.operands[0], stmt.operands[0].type))]
        return [self.expressions.text(e) for e in stmt.operands]

    def atomic_name(self, op: str, t: Scalar, stmt: Stmt | None = None) -> str:
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

    def alloc(self, stmt: Alloc) -> None:
        buffer = stmt.buffer
        kind = c_type(buffer.element)
        name = self.declare(buffer)
        if buffer.space is Space.SHARED:
            self.shared(stmt, kind, name)
        else:
            self.line(f"{kind} {name}[{buffer.length}]{' = {}' if stmt.zero else ''};", stmt.note)

    def shared(self, stmt: Alloc, kind: str, name: str) -> None:
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

    def piece(self, stmt: Alloc, kind: str, name: str) -> None:
        """An array that is a piece of the dynamic one."""
        size = f"{kind}[{stmt.buffer.length}]"
        self.line(
            f"{kind}* {name} = ({kind}*)({self.dynamic} + {self.pieces[stmt.buffer]});", f"{size}; {stmt.note}" if stmt.note else size
        )

    def barrier(self, stmt: Barrier) -> None:
        if stmt.scope == "block":
            self.line("__syncthreads();", stmt.note)
        else:
            self.line(f"__syncwarp({_mask(self.expressions, stmt.mask) if stmt.mask is not None else ''});", stmt.note)

    def tell(self, stmt: Tell) -> None:
        if stmt.stops:
            self.stop(stmt)
            return
        values = [self.expressions.text(v) for v in stmt.values]
        self.line(f"{self.print_name}({', '.join([quoted(stmt.text), *values])});", stmt.note)

    def stop(self, stmt: Tell) -> None:
        self.helpers.add("gpuad_stop")
        self.line(f"gpuad_stop({quoted(stmt.text)});", stmt.note)

    def shuffle(self, stmt: Shuffle) -> None:
        if stmt.op == "ballot":
            self.give(stmt.var, f"__ballot_sync({_mask(self.expressions, stmt.mask)}, {self.expressions.text(stmt.value)})", stmt.note)
            return
        parts = [_mask(self.expressions, stmt.mask), self.expressions.text(stmt.value), self.expressions.text(stmt.lane)]
        if not (isinstance(stmt.width, Constant) and stmt.width.value == 32):
            parts.append(self.expressions.text(stmt.width))
        self.give(stmt.var, f"__shfl_{stmt.op + '_' if stmt.op else ''}sync({', '.join(parts)})", stmt.note)

    # --- control flow ---

    def branch(self, stmt: If) -> None:
        if self.prints_as_select(stmt):
            merge = stmt.merges[0]
            self.define(merge.var, Select(stmt.condition, merge.then, merge.otherwise), stmt.note)
            return
        done = self.declare_merges(stmt)
        before = dict(self.holds)
        then = self.nested(stmt.then, [(m.var, m.then) for m in stmt.merges])
        self.holds = before
        otherwise = self.nested(stmt.otherwise, [(m.var, m.otherwise) for m in stmt.merges if m.var not in done])
        self.forget(stmt)
        condition = stmt.condition
        if not then:
            then, otherwise, condition = otherwise, [], negated(condition)
        if then:
            self.two_sides(self.expressions.text(condition), then, otherwise, stmt)

    def prints_as_select(self, stmt: If) -> bool:
        if stmt.then or stmt.otherwise or len(stmt.merges) != 1:
            return False
        merge = stmt.merges[0]
        return not any(self.same(e, merge.var) for e in (merge.then, merge.otherwise))

    def declare_merges(self, stmt: If) -> set[Var]:
        """Declares what the sides assign; gives the Vars that already have the value of the else side."""
        done = set()
        for merge in stmt.merges:
            if self.known(merge.var) is not None:
                continue
            if self.may_start(merge, stmt):
                value = f" = {self.expressions.assigned(merge.otherwise, merge.var.type)}"
                done.add(merge.var)
            else:
                value = ""
            self.line(f"{self.type_name(merge.var)} {self.declare(merge.var)}{value};")
            if value:
                self.hold(merge.var, merge.otherwise)
        return done

    def may_start(self, merge: Merge, stmt: If) -> bool:
        """Whether the variable can be declared with the value of the else side. Not if a merge declared before it has changed that
        value."""
        return not stmt.otherwise and isinstance(merge.otherwise, Constant | Var)

    def two_sides(self, condition: str, then: list[str], otherwise: list[str], stmt: If) -> None:
        self.line(f"if ({condition}) {{", stmt.note)
        self.lines += then
        if self.is_chain(stmt, otherwise):
            self.line("} else " + otherwise[0].strip())
            self.lines += [line.removeprefix(INDENT) for line in otherwise[1:]]
            return
        if otherwise:
            self.line("} else {")
            self.lines += otherwise
        self.line("}")

    def is_chain(self, stmt: If, otherwise: list[str]) -> bool:
        """Whether the else side is one `if` and nothing else."""
        inner = INDENT * (self.depth + 1)
        if not otherwise or not otherwise[0].startswith(inner + "if ("):
            return False
        return [k for k, line in enumerate(otherwise) if line == inner + "}"] == [len(otherwise) - 1]

    def start_carried(self, carried: Sequence[Carried]) -> None:
        """Brings the carried variables to their first values: new ones first, since these disturb nothing."""
        fresh = [c for c in carried if self.known(c.var) is None]
        old = [(c.var, c.init) for c in carried if self.known(c.var) is not None]
        for c in fresh:
            self.define(c.var, c.init)
        self.assign_all(old)

    def counted_loop(self, stmt: For) -> None:
        bounds = self.bounds(stmt)
        self.start_carried(stmt.carried)
        self.count(stmt, bounds, lambda: self.nested(stmt.body, [(c.var, c.next) for c in stmt.carried]))

    def bounds(self, stmt: For) -> tuple[Expr, Expr, Expr]:
        """Start, stop and step as the header may have them."""
        stop = self.stable(stmt.stop, stmt, "end")
        step = self.stable(stmt.step, stmt, "step")
        return self.stable(stmt.start, stmt, "begin") if stmt.backward else stmt.start, stop, step

    def count(self, stmt: For, bounds: tuple[Expr, Expr, Expr], body: Callable[[], list[str]]) -> None:
        """The loop with the lines that `body` prints."""
        self.forget(stmt)
        self.open()
        self.depth -= 1
        header = self.backward(stmt, *bounds) if stmt.backward else self.forward(stmt, *bounds)
        lines = body()
        self.announce(stmt)
        self.line(f"{header} {{", stmt.note)
        if header.index:
            self.line(INDENT + header.index)
        self.lines += lines
        self.line("}")
        self.depth += 1
        self.close()
        self.forget(stmt)

    def announce(self, stmt: For) -> None:
        """What is said to the compiler of the loop that follows."""

    def stable(self, expr: Expr, stmt: For, role: str) -> Expr:
        """The bound itself if it is the same in every iteration, else a variable with its value before the loop."""
        changed = self.changed(stmt)
        if not any(self.root(v) in changed for v in variables(expr)):
            return expr
        bound = Var(f"{stmt.var.name}_{role}", expr.type, -(1 << 29) - len(self.lines))
        self.define(bound, expr)
        return bound

    def changed(self, stmt: Stmt) -> set[Var | Buffer]:
        """The C variables that the statement changes."""
        return {self.root(v) for s in statements((stmt,)) for v in _joined(s)}

    def forward(self, stmt: For, start: Expr, stop: Expr, step: Expr) -> Header:
        end = self.expressions.at(stop, COMPARED)
        begin = self.expressions.assigned(start, stmt.var.type)
        name = self.declare(stmt.var)
        constant = int(step.value) if isinstance(step, Constant) else None
        if constant is not None:
            return Header(
                f"{self.type_name(stmt.var)} {name} = {begin}", f"{name} {'<' if constant > 0 else '>'} {end}", _advance(name, constant)
            )
        by = self.expressions.assigned(step, stmt.var.type)
        return Header(f"{self.type_name(stmt.var)} {name} = {begin}", f"{name} < {end}", f"{name} += {by}")

    def backward(self, stmt: For, start: Expr, stop: Expr, step: Expr) -> Header:
        kind = self.type_name(stmt.var)
        constant = int(step.value) if isinstance(step, Constant) else None
        if constant not in (1, -1):
            return self.counted_down(stmt, start, stop, step)
        first = self.expressions.at(start, COMPARED)
        if constant == -1:
            last = self.expressions.text(_shifted(stop, 1))
            name = self.declare(stmt.var)
            return Header(f"{kind} {name} = {last}", f"{name} <= {first}", f"++{name}")
        if stmt.var.type.kind == "uint":
            last = self.expressions.text(stop)
            name = self.declare(stmt.var)
            return Header(f"{kind} {name} = {last}", f"{name}-- > {first}", "")
        last = self.expressions.text(_shifted(stop, -1))
        name = self.declare(stmt.var)
        return Header(f"{kind} {name} = {last}", f"{name} >= {first}", f"--{name}")

    def counted_down(self, stmt: For, start: Expr, stop: Expr, step: Expr) -> Header:
        """Any step: counts the iterations down and computes the index from the count."""
        self.helpers.add("gpuad_trips")
        text = self.expressions
        ends, size = (start, stop), step
        if isinstance(step, Constant) and step.value < 0:
            ends, size = (stop, start), Constant(-step.value, step.type)
        trips = f"gpuad_trips({text.text(ends[0])}, {text.text(ends[1])}, {text.text(size)})"
        first, by = text.at(start, _ADDED), text.at(step, _ADDED + 2)
        count = self.names.new(f"{stmt.var.name}_count")
        name = self.declare(stmt.var)
        index = f"const {self.type_name(stmt.var)} {name} = {first} + {count} * {by};"
        return Header(f"long long {count} = {trips} - 1", f"{count} >= 0", f"--{count}", index)

    def while_loop(self, stmt: While) -> None:
        self.start_carried(stmt.carried)
        self.forget(stmt)
        self.repeat(stmt)
        self.forget(stmt)

    def repeat(self, stmt: While) -> None:
        ends = [(c.var, c.next) for c in stmt.carried]
        if not stmt.header:
            condition = self.expressions.text(stmt.condition)
            body = self.nested(stmt.body, ends)
            self.line(f"while ({condition}) {{", stmt.note)
            self.lines += body
            self.line("}")
            return
        self.line("while (true) {", stmt.note)
        self.open()
        self.block(stmt.header)
        self.line(f"if ({self.expressions.text(negated(stmt.condition))}) break;")
        self.block(stmt.body)
        self.assign_all(ends)
        self.close()
        self.line("}")


COMPARED, _ADDED = 9, 10
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


def _joined(stmt: Stmt) -> set[Var]:
    """The Vars that the statement gives values to, also where control flow meets."""
    match stmt:
        case If(merges=merges):
            return merge_vars(merges)
        case For(carried=carried) | While(carried=carried):
            return {v for c in carried for v in (c.var, c.result)}
    return set(defined(stmt))


def _signed(op: str, operand: Expr) -> tuple[str, Expr]:
    """`+ -v` as `- v`, and the other way round: the same number."""
    if op not in "+-" or not operand.type.is_float:
        return op, operand
    flipped = "-" if op == "+" else "+"
    if isinstance(operand, Unary) and operand.op == "-":
        return flipped, operand.operand
    if isinstance(operand, Constant) and operand.value < 0:
        return flipped, Constant(-operand.value, operand.type)
    return op, operand


def _advance(name: str, step: int) -> str:
    if step in (1, -1):
        return f"++{name}" if step == 1 else f"--{name}"
    return f"{name} += {step}" if step > 0 else f"{name} -= {-step}"


def _shifted(bound: Expr, by: int) -> Expr:
    """`bound + by`, simplified."""
    if isinstance(bound, Constant):
        return Constant(int(bound.value) + by, bound.type)
    if isinstance(bound, Binary) and bound.op in "+-" and isinstance(bound.right, Constant):
        old = int(bound.right.value) if bound.op == "+" else -int(bound.right.value)
        bound, by = bound.left, old + by
    if by == 0:
        return bound
    return Binary("+" if by > 0 else "-", bound, Constant(abs(by), bound.type), bound.type)


def _mask(expressions: Expressions, mask: Expr) -> str:
    return f"0x{int(mask.value) & 0xFFFFFFFF:x}u" if isinstance(mask, Constant) else expressions.text(mask)
