"""The state of a lowering: what each variable stands for at this point of the program, and the statements emitted so far.

Lowering is abstract execution. Branches are forks: each side runs on a copy of the environment and its own list of statements; where they
meet, variables that differ become Merges. Early exits (`return`, `break`, `continue`) are flags, cells of the environment like any other:
constant on most paths, so that the structure of the code tells what is dead, and merged to a bool where it does not.

What a variable of the surface tree stands for while it is lowered: a scalar expression, an array, a bound reference, or a pointer.

A pointer is a set of candidate targets, a tag that says which one it is (where there are several), and an offset in scalar elements. Where
control flow meets, values are split into slots (a scalar has one, a pointer up to two) which are merged like any variable: two pointers
join into one whose candidates are the union of theirs. So `p = c ? a : b` and pointers swapped in a loop need nothing but an int32 in the
core IR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..errors import UnsupportedError
from ..ir import folding, surface
from ..ir.aliases import Nulls, Origin
from ..ir.nodes import Binary, Buffer, Call, Constant, Expr, If, Let, Merge, Stmt, Var
from ..ir.records import group_names, numbers, parts, size_of
from ..ir.types import BOOL, I32, I64, Scalar, Space, Type, value_type
from ..source import Span

Env: TypeAlias = "dict[Cell, Value]"


@dataclass(frozen=True)
class LoopExits:
    """The flags that `break` and `continue` set."""

    broken: Cell
    skipped: Cell


@dataclass
class Frame:
    """One running function: its variables, its return flag and value, and the loops entered."""

    function: surface.Function
    returned: Cell
    result: Cell
    cells: dict[surface.Declaration, Cell] = field(default_factory=dict)
    origins: dict[surface.Declaration, Origin] = field(default_factory=dict)  # what pointers began as
    loops: list[LoopExits] = field(default_factory=list)

    @property
    def exits(self) -> tuple[Cell, ...]:
        return (self.returned, *dict.fromkeys(flag for loop in self.loops for flag in (loop.broken, loop.skipped)))


@dataclass
class Branch:
    """One side of a fork."""

    env: Env
    out: list[Stmt]


@dataclass
class Lowering:
    """`run` lowers surface statements and `call` a call in the current state; they are set from above to keep imports pointing down.
    `owners`: the variable of each local array. `groups`: for memory of structs of several types of numbers, by the buffer that stands for
    it, the buffer of each type. `parts`: the variables that a record variable consists of. `seen_as`: records that are memory
    of such numbers, since pointers of other types lead there; `taken_apart`: their variables. `given`: the kernel's records by value."""

    run: Callable[[Lowering, tuple[surface.Stmt, ...]], None]
    call: Callable[[Lowering, surface.HelperCall], Value]
    nulls: Nulls
    env: Env = field(default_factory=dict)
    out: list[Stmt] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    read_only: set[Buffer] = field(default_factory=set)
    owners: dict[Buffer, Cell] = field(default_factory=dict)
    shared: dict[surface.Declaration | None, Buffer] = field(default_factory=dict)
    barriers: bool = False  # whether the kernel has any
    in_step: bool = False  # whether the threads of a warp are in step within a statement, as `__syncwarp()` between statements supposes
    groups: dict[Buffer, dict[Scalar, Buffer]] = field(default_factory=dict)
    parts: dict[Cell, tuple[Cell, ...]] = field(default_factory=dict)
    seen_as: Mapping[surface.Declaration, Scalar] = field(default_factory=dict)
    taken_apart: dict[Cell, Scalar] = field(default_factory=dict)
    given: list[tuple[Cell, Value]] = field(default_factory=list)
    floats: dict[Var, Expr] = field(default_factory=dict)  # whose bits an integer variable holds
    next_uid: int = 0

    # --- names ---

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def scopes(self) -> Iterator[Frame]:
        """The frames whose variables are seen, the innermost first: a lambda's, and, since it may have been passed on, all around it; each
        declaration is of one function, and none is entered twice."""
        yield self.frame
        if self.frame.function.closure:
            yield from reversed(self.frames[:-1])

    def uid(self) -> int:
        self.next_uid += 1
        return self.next_uid

    def var(self, name: str, kind: Scalar) -> Var:
        return Var(name, kind, self.uid())

    def buffer(self, name: str, element: Scalar, space: Space, length: int | None) -> Buffer:
        return Buffer(name, element, space, length, self.uid())

    def cell(self, name: str, kind: Type) -> Cell:
        return Cell(name, kind, self.uid())

    def part(self, cell: Cell, number: int) -> Cell:
        """The variable for a part of a record variable."""
        if cell not in self.parts:
            self.parts[cell] = tuple(self.cell(f"{cell.name}_{part.name}", part.type) for part in parts(cell.type))
        return self.parts[cell][number]

    def flag(self, name: str) -> Cell:
        """A new cell that holds false."""
        cell = self.cell(name, BOOL)
        self.env[cell] = folding.FALSE
        return cell

    def declare(self, declaration: surface.Declaration) -> Cell:
        """The cell of a variable of the running function, the same one each time its declaration is reached."""
        cells = self.frame.cells
        if declaration not in cells:
            cells[declaration] = self.cell(declaration.name, declaration.type)
            if declaration in self.seen_as:
                self.taken_apart[cells[declaration]] = self.seen_as[declaration]
        return cells[declaration]

    def origin(self, pointer: surface.Expr) -> Origin | None:
        """What a pointer of the running function began as, if that is known."""
        return self.nulls.origin(pointer, lambda d: next((f.origins[d] for f in self.scopes() if d in f.origins), None))

    def began(self, declaration: surface.Declaration, origin: Origin | None) -> None:
        """Notes what a variable of the running function begins as."""
        if origin is not None:
            self.frame.origins[declaration] = origin

    def find(self, declaration: surface.Declaration, span: Span) -> Cell:
        """The cell of a variable that is used at `span`."""
        if declaration.space == "shared":
            return self.share(declaration)
        frames = self.frames[:1] if declaration.space == "module" else self.scopes()
        cell = next((frame.cells[declaration] for frame in frames if declaration in frame.cells), None)
        if cell is None or cell not in self.env:
            raise UnsupportedError(f"'{declaration.name}' is neither a parameter nor a local variable", span)
        return cell

    def share(self, declaration: surface.Declaration) -> Cell:
        """The cell of a variable in shared memory, which lives as long as the kernel, wherever it is declared."""
        cell = self.declare(declaration)
        if cell not in self.env:
            self.env[cell] = Reference(Address((self.shared_buffer(declaration),)))
        return cell

    def shared_buffer(self, declaration: surface.Declaration) -> Buffer:
        kinds, size = declaration.cut or numbers(declaration.type), size_of(declaration.type)
        if not kinds:
            raise UnsupportedError(f"shared memory of type {declaration.type} holds no numbers", declaration.span)
        key = declaration if size > 0 else None  # arrays without a length are all the same memory
        if key not in self.shared:
            size = size if size > 0 else max(self.frames[0].function.dynamic or 0, *(kind.size for kind in kinds))
            self.shared[key] = self.memory(declaration.name, kinds, Space.SHARED, size)
        if (used := tuple(b.element for b in self.grouped(self.shared[key]))) != kinds:
            what = f"'{declaration.name}' is dynamic shared memory, which is also used as {' and '.join(map(str, used))}"
            raise UnsupportedError(what, declaration.span)
        return self.shared[key]

    def memory(self, name: str, kinds: tuple[Scalar, ...], space: Space, size: int | None) -> Buffer:
        """The buffer that stands for memory of so many bytes, of numbers of some types. Where it is one of several, the others are known
        by it: a number has its place in each of them, and is in that of its type."""
        lengths = [None if size is None else size // kind.size for kind in kinds]
        found = [self.buffer(own, kind, space, n) for own, kind, n in zip(group_names(name, kinds), kinds, lengths, strict=True)]
        if len(found) > 1:
            self.groups[found[0]] = {buffer.element: buffer for buffer in found}
        return found[0]

    def grouped(self, buffer: Buffer) -> tuple[Buffer, ...]:
        """The buffers of the memory that a buffer stands for."""
        return tuple(self.groups.get(buffer, {buffer.element: buffer}).values())

    # --- statements ---

    def emit(self, stmt: Stmt) -> None:
        self.out.append(stmt)

    def let(self, name: str, value: Expr, span: Span | None) -> Expr:
        """A Var with the value, or the value itself if it is a Var or a constant."""
        return value if folding.is_trivial(value) else self.name(name, value, span)

    def name(self, name: str, value: Expr, span: Span | None) -> Var:
        var = self.var(name, value.type)
        self.emit(Let(var, value, span=span))
        bits = folding.same_bits(value)
        if isinstance(bits, Call) and bits.function == "bits" and bits.arguments[0].type.is_float:
            self.floats[var] = bits.arguments[0]
        return var

    def bits(self, value: Expr, kind: Scalar) -> Expr:
        """The bits of a value as a `kind` of its size; of a variable that holds the bits of such a number, that number."""
        known = self.floats.get(held) if isinstance(held := folding.same_bits(value), Var) else None
        return known if known is not None and known.type == kind else folding.bits(value, kind)

    def capture(self, action: Callable[[], None]) -> list[Stmt]:
        """The statements that an action emits; what it does to the environment stays."""
        outer, self.out = self.out, []
        try:
            action()
            return self.out
        finally:
            self.out = outer

    # --- branches ---

    def fork(self, action: Callable[[], None]) -> Branch:
        """Runs an action on a copy of the state and gives what it left."""
        return self.resume(Branch(dict(self.env), []), action)

    def resume(self, branch: Branch, action: Callable[[], None]) -> Branch:
        """Goes on at the end of a branch."""
        outer = self.env, self.out
        self.env, self.out = dict(branch.env), list(branch.out)
        try:
            action()
            return Branch(self.env, self.out)
        finally:
            self.env, self.out = outer

    def join(self, condition: Expr, then: Branch, otherwise: Branch, span: Span | None, *, leaving: bool = False) -> None:
        """Emits the If whose sides are the branches, and merges what they did to the variables that were alive before the fork. `leaving`:
        it parts the threads that have returned from the kernel from the others."""
        merges: list[Merge] = []
        pure = not then.out and not otherwise.out
        selects: list[tuple[Var, Expr]] = []
        for cell in self.env:

            def pick(suffix: str, a: Expr, b: Expr, name: str = cell.name) -> Expr:
                if pure and folding.is_trivial(value := folding.select(condition, a, b)):
                    return value
                var = self.var(name + suffix, a.type)
                if pure:
                    selects.append((var, folding.select(condition, a, b)))
                else:
                    merges.append(Merge(var, a, b))
                return var

            self.env[cell] = combine(then.env[cell], otherwise.env[cell], cell.type, pick)
        self.out.extend(Let(var, value, span=span) for var, value in selects)
        made = folding.make_if(condition, tuple(then.out), tuple(otherwise.out), tuple(merges), span)
        self.out.extend(replace(m, leaving=leaving) if isinstance(m, If) else m for m in made)

    # --- early exits ---

    def alive(self) -> Expr:
        """The condition under which control reaches this point."""
        condition: Expr = folding.TRUE
        for flag in self.frame.exits:
            value = self.env[flag]
            assert isinstance(value, Expr)
            condition = folding.logical("&&", condition, folding.negate(value))
        return condition

    def is_dead(self, branch: Branch | None = None) -> bool:
        """True if control never reaches the end of the branch (this point, without one)."""
        env = branch.env if branch else self.env
        return any(env[flag] == folding.TRUE for flag in self.frame.exits)

    def clear_exits(self) -> None:
        """Records that control is known to be here."""
        for flag in self.frame.exits:
            self.env[flag] = folding.FALSE

    def when_alive(self, action: Callable[[], None], span: Span | None) -> None:
        """Runs an action under the condition that control reaches this point."""
        alive = self.alive()
        if isinstance(alive, Constant):
            return action() if alive.value else None

        def guarded() -> None:
            self.clear_exits()
            action()

        return self.join(alive, self.fork(guarded), self.fork(lambda: None), span, leaving=self.barriers and self.leaves())

    def has_left(self, branch: Branch) -> bool:
        """True if at the end of the branch the thread has surely returned from the kernel."""
        return len(self.frames) == 1 and branch.env[self.frame.returned] == folding.TRUE

    def leaves(self) -> bool:
        """True if the threads that do not reach this point have returned from the kernel, rather than from a helper or an iteration."""
        flags = [flag for flag in self.frame.exits if flag is not self.frame.returned]
        return len(self.frames) == 1 and all(self.env[flag] == folding.FALSE for flag in flags)

    def forget(self, keep: Env) -> None:
        """Drops the cells that are not in `keep`: a scope ends."""
        self.env = {cell: value for cell, value in self.env.items() if cell in keep}


FIRST = Constant(0, I32)
ORIGIN = Constant(0, I64)


@dataclass(frozen=True)
class Cell:
    """A variable of the user's, or one of ours (flags, temporaries), as a key of the environment. `uid` tells instances apart."""

    name: str
    type: Type
    uid: int


Target: TypeAlias = "Buffer | Cell"


@dataclass(frozen=True)
class Address:
    """A pointer's value: `targets[tag]`, at `offset` units of its memory, as a rule numbers (None: 0). No targets: null. `tag` is int32; of
    any value if there is one target."""

    targets: tuple[Target, ...]
    tag: Expr = FIRST
    offset: Expr | None = None

    @property
    def index(self) -> Expr:
        """The offset as an expression."""
        return self.offset if self.offset is not None else Constant(0, I32)

    @property
    def wide(self) -> Expr:
        """The offset as an int64."""
        return folding.cast(self.index, I64)

    @property
    def is_local(self) -> bool:
        """True if a pointer can only point into arrays of the kernel, in which an int32 reaches every element."""
        return all(isinstance(t, Buffer) and t.space in (Space.LOCAL, Space.SHARED) for t in self.targets)


Place: TypeAlias = "Cell | Address"  # what an lvalue denotes


@dataclass(frozen=True)
class Reference:
    """What a variable of reference type, or an array's name, stands for."""

    place: Place


class Undefined:
    """The value of a variable that was declared without one."""


class Whole:
    """What a record's own variable holds: nothing, since its parts are variables (or arrays) of their own."""


@dataclass(frozen=True)
class Record:
    """The value of a record or of an array inside of one: those of its parts."""

    values: tuple[Value, ...]


@dataclass(frozen=True)
class Table:
    """The value of a pointer to pointers: where each of these points, and which of them it points to."""

    entries: tuple[Address, ...]
    offset: Expr = ORIGIN


UNDEFINED, WHOLE = Undefined(), Whole()
Value: TypeAlias = "Expr | Address | Reference | Undefined | Whole | Record | Table"


def advance(address: Address, steps: Expr, stride: int = 1) -> Address:
    """The address moved by `steps` times `stride` units of its memory. Sums and products are formed in int64, in thread-local arrays in
    int32; a truth value is 0 or 1."""
    steps = folding.cast(steps, I32) if steps.type == BOOL else steps
    if isinstance(steps, Constant) and steps.value == 0:
        return address
    kind = I32 if address.is_local and steps.type == address.index.type == I32 else I64
    if stride != 1:
        steps = folding.binary("*", folding.cast(steps, kind), folding.integer(stride, kind), kind)
    if address.offset is not None:
        steps = folding.binary("+", folding.cast(address.offset, kind), folding.cast(steps, kind), kind)
    return replace(address, offset=None if isinstance(steps, Constant) and steps.value == 0 else steps)


# --- joining -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """What is known of a value whatever path was taken: a scalar's type, or a pointer's possible targets and its offset if that is the same
    on all paths (`moving` otherwise)."""

    scalar: Scalar | None = None
    targets: tuple[Target, ...] = ()
    moving: bool = False
    offset: Expr | None = None
    table: tuple[Address, ...] = ()  # of a pointer to pointers, these

    @property
    def slots(self) -> tuple[tuple[str, Scalar], ...]:
        """Suffix and type of each scalar that a value of this shape consists of."""
        if self.scalar is not None:
            return (("", self.scalar),)
        if self.table:
            return (("_entry", I64),)
        tag = (("_tag", I32),) if len(self.targets) > 1 else ()
        return (*tag, *((("_offset", I64),) if self.moving else ()))


def shape(value: Value, kind: Type) -> Shape | None:
    """The shape of one value of a variable of type `kind`; None for what never changes (arrays, references)."""
    if isinstance(value, Table):
        return Shape(table=value.entries)
    if isinstance(value, Address):
        return Shape(targets=value.targets, offset=value.offset)
    if isinstance(value, Undefined):
        return Shape(scalar=value_type(kind) if isinstance(kind, Scalar) else None)
    return Shape(scalar=value.type) if isinstance(value, Expr) else None


def join(a: Shape, b: Shape) -> Shape:
    """The least shape that holds values of both."""
    if a.scalar is not None or a.table:
        return a
    if not a.targets or not b.targets:
        return a if a.targets else b
    targets = tuple(sorted({*a.targets, *b.targets}, key=lambda t: t.uid))
    moving = a.moving or b.moving or a.offset != b.offset
    return Shape(None, targets, moving, None if moving else a.offset)


def split(value: Value, into: Shape) -> tuple[Expr, ...]:
    """The slots of a value that fits the shape; zeros for an undefined one."""
    if isinstance(value, Table):
        return (value.offset,)
    if isinstance(value, Address) and value.targets:
        tag = (retag(value, into.targets),) if len(into.targets) > 1 else ()
        return (*tag, *((value.wide,) if into.moving else ()))
    return (value,) if isinstance(value, Expr) else tuple(folding.zero(kind) for _, kind in into.slots)


def retag(value: Address, targets: tuple[Target, ...]) -> Expr:
    """The tag of a pointer among more targets than its own."""
    if value.targets == targets:
        return value.tag
    numbers = [Constant(targets.index(t), I32) for t in value.targets]
    tag: Expr = numbers[-1]
    for k, number in list(enumerate(numbers[:-1]))[::-1]:
        tag = folding.select(Binary("==", value.tag, Constant(k, I32), BOOL), number, tag)
    return tag


def assemble(slots: tuple[Expr, ...], of: Shape) -> Value:
    """The inverse of `split`."""
    if of.scalar is not None:
        return slots[0]
    if of.table:
        return Table(of.table, slots[0])
    if not of.targets:
        return Address(())
    tag = slots[0] if len(of.targets) > 1 else Constant(0, I32)
    offset = slots[-1] if of.moving else of.offset
    return Address(of.targets, tag, None if isinstance(offset, Constant) and offset.value == 0 else offset)


def combine(a: Value, b: Value, kind: Type, pick: Callable[[str, Expr, Expr], Expr]) -> Value:
    """The value that is `a` on one path and `b` on the other; `pick(suffix, x, y)` merges two differing scalars."""
    if a == b:
        return a
    first, second = shape(a, kind), shape(b, kind)
    if first is None or second is None:
        return UNDEFINED  # an array or a reference of an inner scope, which ends here
    if first.table != second.table:
        return UNDEFINED  # one of two tables
    joined = join(first, second)
    pairs = zip(joined.slots, split(a, joined), split(b, joined), strict=True)
    return assemble(tuple(x if x == y else pick(suffix, x, y) for (suffix, _), x, y in pairs), joined)
