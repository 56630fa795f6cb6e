"""The surface tree, the abstract syntax tree that frontends make: C semantics with types, mutable variables, pointers and early exits.

Frontends make every conversion explicit (`Cast`), resolve overloads to the names of `functions.FUNCTIONS`, expand macros and templates,
and refuse what they cannot represent. `lower.normalize` lowers this tree to the core IR of `nodes.py`. Expressions here may have side
effects (`Assign`, `IncDec`, `AtomicCall`, calls of helpers) and are evaluated in C's order.

Lvalues are `Name`, `Index`, `Deref`, a `Member` of an lvalue, `Bits` of one, an assignment, and a call of a function that returns a
reference. A variable of reference type is a `Name` whose declaration has `reference=True`: it is bound by its initialiser (or argument) and
denotes that lvalue ever after. An array name used as a value is wrapped in `Decay`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from ..source import Span
from .types import Array, Pointer, Scalar, Type


@dataclass(frozen=True)
class Node:
    span: Span


DYNAMIC = -1  # the length of a shared array that a launch decides


# --- expressions ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expr(Node):
    type: Type


@dataclass(frozen=True)
class Constant(Expr):
    """A literal or a folded constant; `value` is a Python bool, int or float. A null pointer is an int 0 of Pointer type."""

    value: bool | int | float


@dataclass(frozen=True)
class Declaration(Node):
    """A variable, parameter or array. `uid` tells shadowed names apart. `reference`: a C++ reference. `space`: 'local'; 'shared' (such an
    array may have the length DYNAMIC); 'module' for the pointer to a variable of the module, which is a parameter of the kernel and
    visible in its helpers. `cut`: of dynamic shared memory that is cut into arrays of several types of numbers, these."""

    name: str
    type: Type
    uid: int
    reference: bool = False
    space: str = "local"
    const: bool = False
    cut: tuple[Scalar, ...] = ()


@dataclass(frozen=True)
class Name(Expr):
    declaration: Declaration


@dataclass(frozen=True)
class LaunchIndex(Expr):
    """`threadIdx.x` and its kin: `name` is one of threadIdx, blockIdx, blockDim, gridDim, `axis` x, y or z. Type uint32."""

    name: str
    axis: str


@dataclass(frozen=True)
class Unary(Expr):
    """`op` is '-', '~' or '!' (the operand of '!' is a bool)."""

    op: str
    operand: Expr


@dataclass(frozen=True)
class Binary(Expr):
    """`op` is + - * / % << >> & | ^ < > <= >= == !=. Both operands have one scalar type (a shift's may differ); comparisons give BOOL.
    Pointers too may be compared (== != < > <= >=) or subtracted (giving int64)."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class PointerAdd(Expr):
    """`pointer + offset` in elements; a subtraction comes as a negated offset."""

    pointer: Expr
    offset: Expr


@dataclass(frozen=True)
class Logical(Expr):
    """Short-circuit `op` '&&' or '||' on bools."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Table(Expr):
    """A pointer to the first of several pointers, which nothing changes: `float* rows[] = {x, y};`, or a parameter `float** rows` where a
    call has given the arrays (`lists.with_lists`)."""

    values: tuple[Expr, ...]


@dataclass(frozen=True)
class Conditional(Expr):
    """`condition ? then : otherwise`; only the chosen side is evaluated."""

    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True)
class Cast(Expr):
    """Conversion between scalars (to bool: `!= 0`), or of pointers: between const and non-const, and between elements of one size, of which
    the bits are then read and written. `rounds`: False for a half that stays the float as which it is computed with, as in CuPy's jit
    functions, where only memory has halves. `cuts`: it makes an array of a type of its own of a piece of shared memory."""

    operand: Expr
    implicit: bool
    rounds: bool = True
    cuts: bool = False


@dataclass(frozen=True)
class Decay(Expr):
    """An array lvalue as a pointer to its first element."""

    array: Expr


@dataclass(frozen=True)
class AddressOf(Expr):
    lvalue: Expr


@dataclass(frozen=True)
class Deref(Expr):
    """`*pointer`, an lvalue."""

    pointer: Expr


@dataclass(frozen=True)
class Index(Expr):
    """`pointer[index]`, an lvalue. The base is always a pointer (an array is decayed first; a[i][j] is Index(Decay(Index(...)))."""

    pointer: Expr
    index: Expr


@dataclass(frozen=True)
class Member(Expr):
    """`record.name`: an lvalue if the record is one. `pointer->name` is the member of a `Deref`."""

    record: Expr
    name: str


@dataclass(frozen=True)
class Bits(Expr):
    """An lvalue of which the content are bits of another one: a number of its size, or, of an integer, the `width` bits from `shift` on."""

    lvalue: Expr
    shift: int = 0
    width: int = 0


@dataclass(frozen=True)
class Record(Expr):
    """The value of a vector, complex number or struct, made of the values of its fields in order; of an array, of its elements."""

    values: tuple[Expr, ...]


@dataclass(frozen=True)
class Assign(Expr):
    """`target = value` (`op` None), or `target op= value`. For a compound assignment `computation` is the type in which the operation
    is done: target is converted to it, `value` already has it (a shift's right side excepted), and the result is converted back."""

    target: Expr
    value: Expr
    op: str | None = None
    computation: Scalar | None = None


@dataclass(frozen=True)
class IncDec(Expr):
    """`++x` (op '+', prefix), `x--` (op '-', not prefix); pointers too."""

    target: Expr
    op: str
    prefix: bool


@dataclass(frozen=True)
class Comma(Expr):
    first: Expr
    second: Expr


@dataclass(frozen=True)
class MathCall(Expr):
    """A function of `functions.FUNCTIONS` by its name there; arguments already have the right type."""

    function: str
    arguments: tuple[Expr, ...]


@dataclass(frozen=True)
class HelperCall(Expr):
    """A call of a user's __device__ function; arguments of reference parameters are lvalues."""

    function: Function
    arguments: tuple[Expr, ...]


@dataclass(frozen=True)
class AtomicCall(Expr):
    """`atomicAdd(pointer, value)` and kin; `op` is 'add', 'sub', 'min', 'max', 'exch', 'cas', 'and', 'or', 'xor', 'inc', 'dec', or one of
    `ir.functions.EXTREMA` on floats. The value is the old content; unless it is `valued`, it may not be used."""

    op: str
    pointer: Expr
    operands: tuple[Expr, ...]
    valued: bool = True


@dataclass(frozen=True)
class ShuffleCall(Expr):
    """`__shfl_<op>_sync(mask, value, lane, width)`: `op` is '', 'up', 'down' or 'xor'; or 'ballot', of which the value is a condition, and
    lane and width mean nothing."""

    op: str
    mask: Expr
    value: Expr
    lane: Expr
    width: Expr


# --- statements ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stmt(Node):
    pass


@dataclass(frozen=True)
class Declare(Stmt):
    """A declaration with an optional initialiser. An array's initialiser is a tuple of expressions, filled with zeros by the frontend: one
    a number, or one a record. None leaves it undefined."""

    declaration: Declaration
    init: Expr | tuple[Expr, ...] | None


@dataclass(frozen=True)
class Evaluate(Stmt):
    """An expression for its side effects."""

    value: Expr


@dataclass(frozen=True)
class Block(Stmt):
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class If(Stmt):
    condition: Expr
    then: Stmt
    otherwise: Stmt | None


@dataclass(frozen=True)
class For(Stmt):
    """C's for. `init` may be a Declare, an Evaluate, a Block of Declares, or None; `condition` None means true."""

    init: Stmt | None
    condition: Expr | None
    step: Expr | None
    body: Stmt


@dataclass(frozen=True)
class While(Stmt):
    condition: Expr
    body: Stmt


@dataclass(frozen=True)
class DoWhile(Stmt):
    body: Stmt
    condition: Expr


@dataclass(frozen=True)
class Breakable(Stmt):
    """A statement whose end a `Break` inside it jumps to, as of a switch. A `Continue` inside it belongs to the loop around it."""

    body: Stmt


@dataclass(frozen=True)
class Break(Stmt):
    pass


@dataclass(frozen=True)
class Continue(Stmt):
    pass


@dataclass(frozen=True)
class Return(Stmt):
    value: Expr | None


@dataclass(frozen=True)
class Barrier(Stmt):
    """`__syncthreads()`; with `scope` 'warp' `__syncwarp(mask)`, where no mask means the whole warp; with 'grid' `grid.sync()`."""

    scope: str = "block"
    mask: Expr | None = None


@dataclass(frozen=True)
class Tell(Stmt):
    """`printf(text, values...)` of numbers: each conversion in `text` has a value of its type, 64-bit integers are `ll`. With `stops` what
    is said of an assertion that has failed, which ends the launch."""

    text: str
    values: tuple[Expr, ...] = ()
    stops: bool = False


@dataclass(frozen=True)
class Global(Node):
    """A `__constant__` or `__device__` variable that a kernel reaches: `pointer` is the parameter through which it gets there. `initial`
    are the values of all elements in memory order as the source gives them, None where it gives none."""

    name: str
    pointer: Declaration
    shape: tuple[int, ...]
    initial: tuple[bool | int | float, ...] | None


@dataclass(frozen=True)
class GridPart:
    """What lies between two barriers of the whole grid, by its `number` (`lower.grid_parts`); None for the kernel as it stands, which is
    never launched. `extra`: the names of parameters before those for `globals` that it takes beside the kernel's; `fixed`: what numbers
    are that are known before the launch, in order."""

    number: int | None = None
    extra: tuple[str, ...] = ()
    fixed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Function(Node):
    """A kernel or a __device__ helper. A kernel's parameters are the user's, followed by a pointer for each of the `globals`. `dynamic`:
    bytes of dynamic shared memory of a launch, None where it is not known; `absent`: parameters for which it has no array. A member
    function has the object that it is called on as first parameter, by reference. `reference`: it returns a reference. `library`: it is
    none of the user's: what it does is said to happen where it is called. `closure`: it is a lambda, which sees the variables of the
    function that calls it. `part`: of a kernel with barriers of the whole grid, what of it is meant."""

    name: str
    parameters: tuple[Declaration, ...]
    result: Type
    body: Block
    is_kernel: bool = False
    reference: bool = False
    library: bool = False
    globals: tuple[Global, ...] = ()
    closure: bool = False
    dynamic: int | None = None
    absent: frozenset[str] = frozenset()
    part: GridPart | None = None


# --- looking into a tree -------------------------------------------------------------------------------------------------------------


def walk(node: object) -> Iterator[Node]:
    """All nodes of a piece of the tree, declarations and the bodies of helpers that it calls included, each function once."""
    seen: set[int] = set()
    waiting = [node]
    while waiting:
        found = waiting.pop()
        if isinstance(found, tuple):
            waiting.extend(reversed(found))
        elif isinstance(found, Node) and not (isinstance(found, Function) and id(found) in seen):
            if isinstance(found, Function):
                seen.add(id(found))
            yield found
            waiting.extend(getattr(found, name) for name in reversed(found.__dataclass_fields__))


def has_barrier(node: object) -> bool:
    """True if a piece of the tree waits for other threads."""
    return any(isinstance(n, Barrier) or is_step(n) for n in walk(node))


def has_grid_barrier(function: Function) -> bool:
    """True if a kernel waits for all blocks of the grid."""
    return any(isinstance(n, Barrier) and n.scope in ("grid", "fence") for n in walk(function))


def syncs_warps(node: object) -> bool:
    """True if threads of a warp wait for one another in a piece of the tree."""
    return any(isinstance(n, Barrier) and n.scope == "warp" for n in walk(node))


def works_together(node: object) -> bool:
    """True if threads wait for one another or exchange values in a piece of the tree."""
    return any(isinstance(n, Barrier | ShuffleCall) or is_step(n) for n in walk(node))


def is_step(node: object) -> bool:
    """True if a node assigns to volatile memory, which a warp's threads do in lockstep."""
    return isinstance(node, Assign | IncDec) and is_volatile(node.target)


def is_volatile(value: Expr) -> bool:
    """True if an expression stands for an element of volatile memory."""
    return isinstance(value, Index | Deref) and isinstance(value.pointer.type, Pointer) and value.pointer.type.volatile


def uses_dynamic(node: object) -> bool:
    """True if a piece of the tree uses a shared array whose length a launch decides."""
    return any(isinstance(n, Declaration) and isinstance(n.type, Array) and n.type.length == DYNAMIC for n in walk(node))


def subexpressions(value: Expr) -> Iterator[Expr]:
    """The expression and all within it; bodies of helpers are not entered."""
    yield value
    for child in children(value):
        yield from subexpressions(child)


def children(value: Expr) -> Iterator[Expr]:
    """The operands of an expression."""
    for field in fields(value):
        content = getattr(value, field.name)
        if isinstance(content, Expr):
            yield content
        elif isinstance(content, tuple):
            yield from (item for item in content if isinstance(item, Expr))


def has_effects(value: Expr) -> bool:
    """True if evaluating it may change anything; a call of a helper may."""
    return any(isinstance(node, Assign | IncDec | AtomicCall | HelperCall | ShuffleCall) for node in subexpressions(value))


def is_lvalue(value: Expr) -> bool:
    """True if it stands for a place in memory or a variable."""
    if isinstance(value, Member):
        return is_lvalue(value.record)
    if isinstance(value, HelperCall | IncDec):
        return value.function.reference if isinstance(value, HelperCall) else value.prefix
    return isinstance(value, Name | Index | Deref | Assign | Bits)


def without_casts(value: Expr) -> Expr:
    """The expression that is cast, if any."""
    while isinstance(value, Cast):
        value = value.operand
    return value


def chosen_place(value: Expr) -> Expr:
    """`c ? a[i] : b[j]` where it stands for one of two places: `*(c ? &a[i] : &b[j])`. Anything else as it is."""
    if not isinstance(value, Conditional) or isinstance(value.type, Pointer | Array):
        return value
    places = [chosen_place(side) for side in (value.then, value.otherwise)]
    if not all(map(is_lvalue, places)):
        return value
    pointer = Pointer(value.type, volatile=any(map(is_volatile, places)))
    then, otherwise = (AddressOf(place.span, pointer, place) for place in places)
    return Deref(value.span, value.type, Conditional(value.span, pointer, value.condition, then, otherwise))


def reads_float(value: Expr) -> bool:
    """True if a floating-point variable or element occurs in it."""
    places = (node for node in subexpressions(value) if isinstance(node, Name | Index | Deref | Member))
    return any(isinstance(node.type, Scalar) and node.type.is_float for node in places)
