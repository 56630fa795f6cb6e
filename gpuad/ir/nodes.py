"""The core IR: structured control flow over single-assignment scalars and named buffers. Frozen nodes; a pass builds new ones.

Scalars are `Var`s, each defined once in its scope: by `Let`, `Load`, `Take`, `Atomic`, `Pop`, as a loop's index or counter, or where
control flow meets: the `Merge`s of an `If` and the `Carried` values of a loop. Only generated adjoints use mutable scalars: a `Let`
followed by `Assign`s to the same Var (adjoint accumulators). A scope is a block; a Var is visible in its block after its definition and
in nested blocks. Two sibling blocks may define the same Var (a reverse sweep repeats pieces of the primal).

Memory is a `Buffer`: a pointer parameter, or an array made by `Alloc`. An index counts elements from the buffer's pointer; for a
parameter it may be negative. Expressions are pure; whatever touches memory is a statement. Integers wrap (int32 too); integer division
and remainder by zero, shifts beyond the width and float-to-int conversions out of range have PTX's results.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from ..source import Span
from .types import U32, Scalar, Space

# --- expressions ---------------------------------------------------------------------------------------------------------------------


class Expr:
    """Base of pure expressions; each has a `type`."""

    type: Scalar


@dataclass(frozen=True)
class Constant(Expr):
    value: bool | int | float
    type: Scalar

    def __post_init__(self) -> None:
        cast = {"bool": bool, "int": int, "uint": int}.get(self.type.kind, float)
        object.__setattr__(self, "value", cast(self.value))

    def __eq__(self, other: object) -> bool:  # -0.0 is not 0.0, and NaN is itself
        return isinstance(other, Constant) and self.type == other.type and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash((repr(self.value), self.type))


@dataclass(frozen=True)
class Var(Expr):
    """A scalar variable. `name` is what the user called it (or a derived name); `uid` makes it unique in its kernel."""

    name: str
    type: Scalar
    uid: int

    def __hash__(self) -> int:  # passes look Vars up millions of times
        return hash(self.uid)


@dataclass(frozen=True)
class LaunchIndex(Expr):
    """`threadIdx.x` and kin, of type uint32."""

    name: str  # threadIdx, blockIdx, blockDim, gridDim
    axis: str  # x, y, z
    type: Scalar = U32


@dataclass(frozen=True)
class Unary(Expr):
    """`op`: '-', '~', '!'."""

    op: str
    operand: Expr
    type: Scalar


NEGATED = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}  # of each comparison the opposite one
MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}  # the one of the sides exchanged
COMPARISONS = frozenset(NEGATED)
ORDERINGS = COMPARISONS - {"==", "!="}


@dataclass(frozen=True)
class Binary(Expr):
    """`op`: + - * / % << >> & | ^, comparisons (type BOOL), and && || on bools (pure, so nothing is short-circuited)."""

    op: str
    left: Expr
    right: Expr
    type: Scalar


@dataclass(frozen=True)
class Cast(Expr):
    """C's conversion. To bool: `!= 0`. `implicit`: the user did not write it (of interest where an active value becomes an integer)."""

    operand: Expr
    type: Scalar
    implicit: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Select(Expr):
    """`condition ? then : otherwise`, both sides evaluated."""

    condition: Expr
    then: Expr
    otherwise: Expr

    @property
    def type(self) -> Scalar:  # type: ignore[override]
        return self.then.type


@dataclass(frozen=True)
class Call(Expr):
    """A function of `functions.FUNCTIONS` by name."""

    function: str
    arguments: tuple[Expr, ...]
    type: Scalar


# --- memory --------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Buffer:
    """Memory of one element type; what is read from and written to memory of halves and bfloat16 are float32 (`types.value_type`).

    `length` is the number of elements of a local or shared array, None for a pointer parameter. `const`: the
    kernel never writes it (printed as `const T*`)."""

    name: str
    element: Scalar
    space: Space = Space.GLOBAL
    length: int | None = None
    uid: int = 0

    def __hash__(self) -> int:
        return hash((self.uid, self.name))


# --- statements ----------------------------------------------------------------------------------------------------------------------


class How(Enum):
    """How an accumulation or a take reaches memory. UNDECIDED until `accumulate.reduce` has run."""

    UNDECIDED = "undecided"
    PLAIN = "plain"  # read, add, write: no other thread touches the element in this launch
    ATOMIC = "atomic"  # device-scope atomicAdd / atomicExch
    REDUCED = "reduced"  # summed over the block first; every thread of the block executes the statement


@dataclass(frozen=True)
class Stmt:
    """Base of statements. `note` is printed as a comment: why something is saved or atomic."""

    span: Span | None = field(kw_only=True, default=None, compare=False)
    note: str = field(kw_only=True, default="", compare=False)


Block: TypeAlias = "tuple[Stmt, ...]"


@dataclass(frozen=True)
class Let(Stmt):
    var: Var
    value: Expr


@dataclass(frozen=True)
class Assign(Stmt):
    """Gives a new value to a Var introduced by a `Let` (adjoint accumulators and stack counters only)."""

    var: Var
    value: Expr


@dataclass(frozen=True)
class Alloc(Stmt):
    """Makes a local or shared array; `zero`: filled with zeros, else undefined."""

    buffer: Buffer
    zero: bool = False


@dataclass(frozen=True)
class Load(Stmt):
    var: Var
    buffer: Buffer
    index: Expr


@dataclass(frozen=True)
class Store(Stmt):
    buffer: Buffer
    index: Expr
    value: Expr


@dataclass(frozen=True)
class Accumulate(Stmt):
    """`buffer[index] += value`."""

    buffer: Buffer
    index: Expr
    value: Expr
    how: How = How.UNDECIDED


@dataclass(frozen=True)
class Take(Stmt):
    """`var = buffer[index]; buffer[index] = 0`."""

    var: Var
    buffer: Buffer
    index: Expr
    how: How = How.UNDECIDED


@dataclass(frozen=True)
class Atomic(Stmt):
    """A read-modify-write whose old content is used (`var`), or that is no addition. `op` as in `surface.AtomicCall`. An atomicAdd whose
    result is unused is an `Accumulate` with How.ATOMIC."""

    op: str
    var: Var | None
    buffer: Buffer
    index: Expr
    operands: tuple[Expr, ...]


@dataclass(frozen=True)
class Merge:
    """Where the two sides of an If meet: `var` is `then` if the first side ran, else `otherwise`. Both are expressions over Vars visible at
    the end of their side."""

    var: Var
    then: Expr
    otherwise: Expr


@dataclass(frozen=True)
class If(Stmt):
    """`leaving`: one side are the threads that have returned from the kernel (of interest until barriers are lifted out of it)."""

    condition: Expr
    then: Block
    otherwise: Block = ()
    merges: tuple[Merge, ...] = ()
    leaving: bool = field(kw_only=True, default=False, compare=False)


@dataclass(frozen=True)
class Carried:
    """A value that a loop carries: `var` is `init` at the start of the first iteration and the previous iteration's `next` (an expression
    over Vars visible at the end of the body) at the start of every other; after the loop `result` is the last `next`, or `init` if there
    was no iteration."""

    var: Var
    init: Expr
    next: Expr
    result: Var


@dataclass(frozen=True)
class For(Stmt):
    """`for var in range(start, stop, step)`: bounds are evaluated once. `step` is a non-zero constant, or an expression whose sign is not
    known: then the loop counts up, and runs only where `start < stop`. `backward`: the same values of `var` from the last to the first.
    `independent`: iterations may be run in any order, or at once. `var` is not visible after the loop."""

    var: Var
    start: Expr
    stop: Expr
    step: Expr
    body: Block
    carried: tuple[Carried, ...] = ()
    backward: bool = False
    independent: bool = field(kw_only=True, default=False, compare=False)


@dataclass(frozen=True)
class While(Stmt):
    """`while (true) { header; if (!condition) break; body }`. `header` holds only Lets and Loads. `counter` is the number of iterations
    completed so far (visible in header and body), `count`, visible after the loop, their final number; both are int32."""

    header: Block
    condition: Expr
    body: Block
    carried: tuple[Carried, ...] = ()
    counter: Var | None = None
    count: Var | None = None


@dataclass(frozen=True)
class Barrier(Stmt):
    """`scope` 'block' (__syncthreads) or 'warp' (__syncwarp, with a mask); while a kernel is lowered also 'step', which threads that are in
    step do not need, and 'grid' (grid.sync), where one launch ends and the next begins."""

    scope: str = "block"
    mask: Expr | None = None


@dataclass(frozen=True)
class Shuffle(Stmt):
    """`var = __shfl_<op>_sync(mask, value, lane, width)`; `op` is '', 'up', 'down' or 'xor'; or 'ballot': `var` has a bit for each lane of
    the mask in which `value` is not 0 (both uint32; lane and width mean nothing)."""

    var: Var
    op: str
    mask: Expr
    value: Expr
    lane: Expr
    width: Expr


@dataclass(frozen=True)
class Tell(Stmt):
    """`printf(text, values...)`; with `stops` what is said of an assertion that has failed, which ends the launch. Only kernels that are
    launched in the user's stead have it: derivatives are made of what `optimize.dead_code.without_output` leaves."""

    text: str
    values: tuple[Expr, ...] = ()
    stops: bool = False


@dataclass(frozen=True)
class Stack:
    """A last-in-first-out store that each thread has for itself; one entry holds a value for each field. `stack_layout` makes it arrays."""

    name: str
    fields: tuple[tuple[str, Scalar], ...]
    uid: int = 0


@dataclass(frozen=True)
class Push(Stmt):
    stack: Stack
    values: tuple[Expr, ...]


@dataclass(frozen=True)
class Pop(Stmt):
    stack: Stack
    vars: tuple[Var, ...]


@dataclass(frozen=True)
class Kernel:
    """A kernel: scalar (`Var`) and pointer (`Buffer`) parameters in the order of the call, and its body. `in_rows`: what an executor runs
    in its place that has memory of its own for stacks (`ad.stack_layout`); `rows` are the parameters of such a kernel for which it
    takes no argument: memory that is as long as what is stored to it. `unordered`: variables that are only added to, in which order is not
    promised. `made`: what executors have made of it, texts and other forms."""

    name: str
    params: tuple[Var | Buffer, ...]
    body: Block
    span: Span | None = field(default=None, compare=False)
    header: str = ""  # a comment before the kernel: its contract
    const: frozenset[Buffer] = frozenset()  # parameters declared `const` by the user
    in_rows: Kernel | None = field(default=None, compare=False, repr=False)
    rows: frozenset[Buffer] = field(default=frozenset(), compare=False)
    unordered: frozenset[Var] = field(default=frozenset(), compare=False, repr=False)
    made: dict[Hashable, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(p for p in self.params if isinstance(p, Buffer))

    @property
    def scalars(self) -> tuple[Var, ...]:
        return tuple(p for p in self.params if isinstance(p, Var))


# --- walking -------------------------------------------------------------------------------------------------------------------------

# By type and not by `match`: passes ask millions of times.
_CHILDREN: dict[type[Expr], Callable[[Any], tuple[Expr, ...]] | None] = {
    Unary: lambda e: (e.operand,),
    Cast: lambda e: (e.operand,),
    Binary: lambda e: (e.left, e.right),
    Select: lambda e: (e.condition, e.then, e.otherwise),
    Call: lambda e: e.arguments,
}


def _children_of(kind: type[Expr]) -> Callable[[Any], tuple[Expr, ...]] | None:
    """How the subexpressions of this kind are found; None: it has none. Printers have expressions of their own, which are these as well."""
    if kind not in _CHILDREN:
        _CHILDREN[kind] = next((_CHILDREN[base] for base in kind.__mro__ if base in _CHILDREN), None)
    return _CHILDREN[kind]


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions."""
    parts = _children_of(type(expr))
    return parts(expr) if parts else ()


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all its subexpressions, outermost first."""
    waiting = [expr]
    while waiting:
        found = waiting.pop()
        yield found
        if parts := _children_of(type(found)):
            waiting.extend(parts(found)[::-1])


def variables(expr: Expr) -> Iterator[Var]:
    """The Vars that occur in the expression, with repetitions, left to right."""
    if isinstance(expr, Var):  # most are asked of one
        return iter((expr,))
    return (e for e in walk(expr) if isinstance(e, Var))
