"""What a reverse pass can read again, and what it has to write down: the to-be-recorded analysis for memory.

The reverse kernel repeats pieces of the primal to get values back. A load of memory that the kernel never writes can be repeated at any
time. A load of memory that it does write is an *entry* load if no store of the same thread can reach its address before it: a copy of the
memory as it was before the launch then serves. Otherwise the memory is *tracked*: the reverse kernel's forward sweep repeats the stores
on a working copy. A tracked load (and any load of a local array) is *stable* if no store can reach its address afterwards, while its
memory lives: it may be repeated during the reverse sweep. An unstable load is recorded while the forward sweep passes it. A stable load of
a parameter is *final* if no atomics change that memory: the memory as the launch leaves it still holds what was loaded.

Where no barrier lies between, only the order within one thread matters: by the premise (rule 11 of the contract) no other thread writes
what this one reads. Across a barrier any thread's store may reach any address of memory that threads share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..ir import nodes as ir
from ..ir.induction import closed_forms
from ..ir.rewrite import blocks, bound_in
from ..ir.types import I32, Space
from .index_polynomials import Polynomial, atoms, constant, definitions, nonzero, plus, polynomial, ratio, scale, split, strides

_NOWHERE = ir.Buffer("", I32)


@dataclass(frozen=True, eq=False)
class Access:
    """One place where memory is read or written: `path` are the (control statement, branch) pairs around it, outermost first."""

    stmt: ir.Stmt
    buffer: ir.Buffer
    index: ir.Expr
    writes: bool
    position: int
    path: tuple[tuple[ir.Stmt, int], ...]

    @property
    def loops(self) -> tuple[ir.Stmt, ...]:
        return tuple(s for s, _ in self.path if isinstance(s, ir.For | ir.While))


@dataclass(frozen=True, eq=False)
class ToBeRecorded:
    """Facts of one kernel object; statements are identified by `id`."""

    kernel: ir.Kernel
    accesses: tuple[Access, ...]
    written: frozenset[ir.Buffer]
    entry: frozenset[int]  # ids of loads of written parameters that see what was there before the launch
    unstable: frozenset[int]  # ids of loads of written memory whose address may be stored to later
    premises: tuple[Polynomial, ...] = ()  # over scalar parameters and launch extents, taken to be non-zero
    parted: frozenset[tuple[int, int]] = frozenset()  # ids of stores and loads of one memory between which a barrier may lie
    seen: frozenset[tuple[int, int]] = frozenset()  # ids of stores and loads of which the load may see what the store left
    later: frozenset[tuple[int, int]] = frozenset()  # ids of stores and loads of which the store may come to the load's address afterwards
    final: frozenset[int] = frozenset()  # ids of loads of written parameters that see what is there after the launch
    overwriting: frozenset[tuple[int, int]] = frozenset()  # ids of stores and accesses asked for: the store may come to its element later


def to_be_recorded(
    kernel: ir.Kernel, *, optimistic: bool = False, distances: bool = False, asked: frozenset[int] = frozenset()
) -> ToBeRecorded:
    """Tests every load of the kernel, and the accesses with the ids `asked`. `optimistic`: a stride that is a parameter is taken to be
    non-zero; `distances`: and so is a distance between two accesses. Both are listed in `premises`; each launch has to check that."""
    accesses = tuple(_accesses(kernel.body))
    written = frozenset(a.buffer for a in accesses if a.writes)
    homes = _homes(kernel.body)
    test = _Test(
        {**definitions(kernel.body), **closed_forms(kernel.body)},
        frozenset(kernel.scalars) if optimistic else frozenset(),
        _barriers(kernel.body),
        distances,
    )
    loads = [a for a in accesses if isinstance(a.stmt, ir.Load) and a.buffer in written]
    seen: set[tuple[int, int]] = set()
    later: set[tuple[int, int]] = set()
    for load in loads:
        home = homes.get(load.buffer, ())
        for store in (a for a in accesses if a.writes and a.buffer == load.buffer):
            if test.may_hit(store, load, home):
                seen.add((id(store.stmt), id(load.stmt)))
            if test.may_hit(store, load, home, later=True):
                later.add((id(store.stmt), id(load.stmt)))
    entry = frozenset(id(a.stmt) for a in loads) - {load for _, load in seen}
    unstable = frozenset(load for _, load in later)
    final = frozenset(id(a.stmt) for a in loads if a.buffer.length is None) - unstable
    final -= {id(a.stmt) for a in loads if a.buffer in _changed_by_many(accesses)}
    overwriting = frozenset(
        (id(w.stmt), id(a.stmt))
        for a in accesses
        for w in accesses
        if id(a.stmt) in asked and w.writes and w.buffer == a.buffer
        if w.buffer in _changed_by_many(accesses) or test.may_hit(w, a, homes.get(a.buffer, ()), later=True)
    )
    parted = test.parted_pairs(accesses) if test.barriers else frozenset()
    premises = tuple(test.premises)
    return ToBeRecorded(kernel, accesses, written, entry, unstable, premises, parted, frozenset(seen), frozenset(later), final, overwriting)


def _changed_by_many(accesses: tuple[Access, ...]) -> frozenset[ir.Buffer]:
    """Memory of which any thread may change any element, in whatever order."""
    return frozenset(a.buffer for a in accesses if isinstance(a.stmt, ir.Atomic) or getattr(a.stmt, "how", None) is ir.How.ATOMIC)


class Iteration:
    """Which accesses to an array meet while the statements `home` around them are at one iteration."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self._judge = _Test({**definitions(kernel.body), **closed_forms(kernel.body)}, frozenset(), _barriers(kernel.body))

    def sees(self, store: Access, load: Access, home: tuple[ir.Stmt, ...]) -> bool:
        """True if the load may see what the store has left."""
        return self._judge.may_hit(store, load, home)

    def follows(self, store: Access, load: Access, home: tuple[ir.Stmt, ...]) -> bool:
        """True if the store may come to the load's element after it."""
        return self._judge.may_hit(store, load, home, later=True)


class Order:
    """Which of two accesses of a kernel to one memory may come first. By the premise that there is no race, only barriers order the
    accesses of different threads."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.accesses = tuple(_accesses(kernel.body))
        self._uniform = frozenset(kernel.scalars)
        self._homes = _homes(kernel.body)
        self._judge = _Test({**definitions(kernel.body), **closed_forms(kernel.body)}, frozenset(), _barriers(kernel.body))

    def before(self, first: Access, then: Access) -> bool:
        """True if `first` may reach the address of `then` before it."""
        return self._judge.may_hit(first, then, self._homes.get(then.buffer, ()))

    def after(self, last: Access, first: Access) -> bool:
        """True if `last` may reach the address of `first` after it."""
        return self._judge.may_hit(last, first, self._homes.get(first.buffer, ()), later=True)

    def are_distinct(self, a: Access, b: Access) -> bool:
        """True if the accesses, by whatever threads, reach two different elements."""
        first, second = self._judge.poly(a), self._judge.poly(b)
        difference = constant(plus(first, scale(second, -1)))
        return difference is not None and nonzero(difference) and atoms(first) <= self._uniform


def _accesses(
    block: ir.Block, path: tuple[tuple[ir.Stmt, int], ...] = (), counter: list[int] | None = None, *, barriers: bool = False
) -> Iterator[Access]:
    counter = counter if counter is not None else [0]
    for stmt in block:
        counter[0] += 1
        match stmt:
            case ir.Load(buffer=b, index=i):
                yield Access(stmt, b, i, False, counter[0], path)
            case ir.Store(buffer=b, index=i) | ir.Accumulate(buffer=b, index=i) | ir.Take(buffer=b, index=i) | ir.Atomic(buffer=b, index=i):
                yield Access(stmt, b, i, True, counter[0], path)
            case ir.Barrier() if barriers:
                yield Access(stmt, _NOWHERE, ir.Constant(0, I32), False, counter[0], path)
        for branch, inner in enumerate(blocks(stmt)):
            yield from _accesses(inner, (*path, (stmt, branch)), counter, barriers=barriers)


def _barriers(block: ir.Block) -> tuple[Access, ...]:
    """The barriers, of blocks and of warps, as accesses to no memory."""
    return tuple(a for a in _accesses(block, barriers=True) if isinstance(a.stmt, ir.Barrier))


def _inside(access: Access, loop: ir.Stmt) -> bool:
    return any(loop is s for s, _ in access.path)


def _homes(block: ir.Block, path: tuple[ir.Stmt, ...] = ()) -> dict[ir.Buffer, tuple[ir.Stmt, ...]]:
    """For each array, the control statements around its declaration."""
    found: dict[ir.Buffer, tuple[ir.Stmt, ...]] = {}
    for stmt in block:
        if isinstance(stmt, ir.Alloc):
            found[stmt.buffer] = path
        for inner in blocks(stmt):
            found.update(_homes(inner, (*path, stmt)))
    return found


class _Test:
    """Whether a store and a load of one thread can meet, in program order."""

    def __init__(
        self, lets: Mapping[ir.Var, ir.Expr], numbers: frozenset[ir.Var], barriers: tuple[Access, ...], distances: bool = False
    ) -> None:
        """`numbers`: variables that are known at the launch and of which strides, and with `distances` distances, may be taken to be
        non-zero."""
        self.lets = lets
        self.distances = distances
        self.barriers = barriers
        self.numbers = numbers
        self.premises: list[Polynomial] = []
        self.cache: dict[int, Polynomial] = {}

    def poly(self, access: Access) -> Polynomial:
        if id(access) not in self.cache:
            self.cache[id(access)] = polynomial(access.index, self.lets)
        return self.cache[id(access)]

    def may_hit(self, store: Access, load: Access, home: tuple[ir.Stmt, ...], *, later: bool = False) -> bool:
        """True if the store may reach the load's address before it (or, with `later`, after it) while the memory lives."""
        shared = [s for s in load.loops if any(s is t for t in store.loops) and not any(s is h for h in home)]
        ordered = store.position > load.position if later else store.position < load.position
        if ordered and not _exclusive(store, load) and not self._distinct(store, load):
            return True
        if load.buffer.space is not Space.LOCAL and self._parted(store, load, home, ordered):
            return True
        return any(not self._moves(store, load, shared, loop, later) for loop in shared)

    def parted_pairs(self, accesses: tuple[Access, ...]) -> frozenset[tuple[int, int]]:
        """The ids of stores and loads of one memory between which a barrier may lie."""
        loads = [a for a in accesses if isinstance(a.stmt, ir.Load)]
        pairs = ((s, a) for s in accesses if s.writes for a in loads if a.buffer == s.buffer)
        return frozenset((id(s.stmt), id(a.stmt)) for s, a in pairs if self._parted(s, a, (), True))

    def _parted(self, store: Access, load: Access, home: tuple[ir.Stmt, ...], ordered: bool) -> bool:
        """True if a barrier may lie between the store of some thread and the load of another, in the wanted order."""
        first, last = sorted((store.position, load.position))
        for barrier in self.barriers:
            around = [loop for loop in barrier.loops if not any(loop is h for h in home)]
            shared = [loop for loop in around if _inside(store, loop) and _inside(load, loop)]
            near = any(_inside(store, loop) or _inside(load, loop) for loop in around)
            if shared or (ordered and (near or first < barrier.position < last)):
                return True
        return False

    def _distinct(self, store: Access, load: Access) -> bool:
        """True if the addresses differ by a non-zero number within one iteration of all common loops."""
        if self._unshared(store, load):
            return False
        difference = plus(self.poly(store), scale(self.poly(load), -1))
        number = constant(difference)
        return self.distances and self._suppose(difference) if number is None else nonzero(number)

    def _unshared(self, store: Access, load: Access) -> bool:
        """True if an index varies with a loop that the other access is not in: its atoms then mean several values."""
        return any(
            self._varies(access, loop)
            for access, other in ((store, load), (load, store))
            for loop in access.loops
            if not any(loop is o for o in other.loops)
        )

    def _varies(self, access: Access, loop: ir.Stmt) -> bool:
        assert isinstance(loop, ir.For | ir.While)
        return not bound_in(loop).isdisjoint(v for a in atoms(self.poly(access)) for v in ir.variables(a))

    def _moves(self, store: Access, load: Access, shared: list[ir.Stmt], loop: ir.Stmt, later: bool) -> bool:
        """Whether, with the outer common loops at one iteration, stores of earlier (later) iterations of `loop` miss the load's address."""
        if not isinstance(loop, ir.For) or loop is not shared[-1] or len(shared) > 1 or self._unshared(store, load):
            return False
        s, t = split(self.poly(store), loop.var), split(self.poly(load), loop.var)
        if s is None or t is None or s[0] != t[0] or not s[0] or self._other_variation(store, loop) or self._other_variation(load, loop):
            return False
        shift = ratio(plus(s[1], scale(t[1], -1)), s[0])
        step = constant(polynomial(loop.step, self.lets))
        slope = constant(s[0])
        if not (self._suppose(s[0]) if slope is None else strides(slope)):
            return False
        if shift == 0:
            return True
        if shift is None or step is None:
            return False
        # the store's iteration is `load's + delta`; they meet where delta == -shift
        ahead = step > 0 if later else step < 0
        return (shift > 0) if ahead else (shift < 0)

    def _suppose(self, slope: Polynomial) -> bool:
        """Takes a stride or a distance that a launch knows to be non-zero, as a premise."""
        if not atoms(slope) <= self.numbers:
            return False
        if slope not in self.premises:
            self.premises.append(slope)
        return True

    def _other_variation(self, access: Access, loop: ir.For) -> bool:
        return not bound_in(loop).isdisjoint(v for a in atoms(self.poly(access)) if a != loop.var for v in ir.variables(a))


def _exclusive(a: Access, b: Access) -> bool:
    """True if the accesses lie on different sides of one If that no common loop repeats."""
    for (s, i), (t, j) in zip(a.path, b.path, strict=False):
        if s is not t:
            return False
        if isinstance(s, ir.For | ir.While):
            continue
        if isinstance(s, ir.If) and i != j:
            return True
    return False
