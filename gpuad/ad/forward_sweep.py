"""The forward part of a reverse kernel: the pieces of the primal that are run again, and what they write down on the way.

A *scope* is a block that the reverse sweep enters as a whole: the kernel body, a loop's body, a side of an If. When the reverse sweep
enters a scope it repeats the scope's forward statements to have their values at hand. What cannot be repeated there is recorded: each
scope inside a loop (or inside an If that is not the last statement) has one stack, with a field for each value that its reverse will have
to pop: what the loop carries from iteration to iteration, loads of memory that is stored to later, and results of inner loops that
contain such loads. An entry is pushed at the end of the scope, by the sweep just before the scope's own reverse if everything in it can
be repeated, else by the one outermost sweep, in which all memory is in its original state. Which of these values are really needed is not
decided here: a field that is never popped is removed with everything that only served it (`eliminate_dead_code`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..analysis.to_be_recorded import ToBeRecorded
from ..ir import nodes as ir
from ..ir.functions import EXTREMA
from ..ir.induction import closed_form
from ..ir.rewrite import Names, blocks, defined, walk_stmts
from .iteration_checkpoints import Snapshots
from .left_values import LeftValue
from .undone_values import UndoneValue


@dataclass(frozen=True)
class Versions:
    """Which memory stands for a primal buffer during the forward sweep: `saved` copies of the state before the launch, of which `working`
    are written by the sweep (not by `unread_stores`); `exits`: variables whose value the memory still holds after the launch; `logs`:
    what the augmented primal has written down, by the id of the statement that gave it; `marked`: atomics that are done again with their
    results."""

    saved: dict[ir.Buffer, ir.Buffer] = field(default_factory=dict)
    working: frozenset[ir.Buffer] = frozenset()
    exits: dict[ir.Var, ir.Store] = field(default_factory=dict)
    logs: dict[int, tuple[ir.Buffer, ir.Expr]] = field(default_factory=dict)
    marked: frozenset[int] = frozenset()
    unread_stores: frozenset[int] = frozenset()  # ids of stores to working copies that no load needs
    shots: Snapshots | None = None
    idle: frozenset[int] = frozenset()  # ids of stores to arrays on record that the reverse of an iteration does not repeat
    final: frozenset[ir.Buffer] = frozenset()  # read as it is after the launch
    left: Mapping[ir.Var, LeftValue] = field(default_factory=dict)  # what loops carry, and the memory still holds after the launch
    undone: Mapping[ir.Var, UndoneValue] = field(default_factory=dict)  # numerators that follow from quotients in it

    def restored(self, loop: ir.Stmt) -> ir.Block:
        """What gives the reverse of an iteration its arrays as they were at the start of it."""
        return self.shots.restored(loop) if self.shots is not None else ()


ScopeKey: TypeAlias = "tuple[int, int]"  # id of the control statement that owns the scope, and which of its blocks


COMMUTING = frozenset({"add", "sub", "and", "or", "xor"}) | EXTREMA  # atomics whose order does not matter to what is left


@dataclass(frozen=True)
class Owned:
    """A scope's stack. `lasting`: filled by the outermost sweep and emptied bit by bit, so that it holds all entries at once; else an
    entry lives from one run of its loop to the reverse of that run."""

    stack: ir.Stack
    lasting: bool


class ForwardSweep:
    """Emits forward statements of one primal kernel and knows which scopes record what."""

    def __init__(self, facts: ToBeRecorded, versions: Versions, names: Names, fragile: frozenset[int]) -> None:
        """`fragile`: ids of the loads (and atomics) that cannot be repeated later and are needed."""
        self.facts = facts
        self.versions = versions
        self.names = names
        self.fragile = fragile
        self._stacks: dict[tuple[int, int], ir.Stack] = {}
        self._fresh: set[ir.Buffer] = set()  # arrays made in the sweep that is being emitted
        self._restored: frozenset[ir.Buffer] = frozenset()  # of these those that are as they were at the start of an iteration
        self._keep: list[ir.Stmt] = []  # keeps statements alive while their ids are keys
        self._undone_behind: dict[ir.Var, list[ir.Var]] = {}
        for var, undone in versions.undone.items():
            if undone.behind is not None:
                self._undone_behind.setdefault(undone.behind, []).append(var)

    # --- what is recorded --------------------------------------------------------------------------------------------------------

    def repeatable(self, stmt: ir.Stmt) -> bool:
        """True if a control statement can be run again during the reverse sweep."""
        return not any(id(s) in self.fragile for inner in blocks(stmt) for s in walk_stmts(inner))

    def recorded(self, owner: ir.Stmt, branch: int) -> tuple[ir.Var, ...]:
        """The values that the scope cannot get by repetition."""
        found: list[ir.Var] = []
        if isinstance(owner, ir.For | ir.While):
            found.extend(c.var for c in owner.carried if closed_form(owner, c) is None and c.var not in self.versions.left)
        for stmt in _scope(owner, branch):
            if id(stmt) in self.fragile or (isinstance(stmt, ir.If | ir.For | ir.While) and not self.repeatable(stmt)):
                found.extend(defined(stmt))
        return tuple(found)

    def stack(self, owner: ir.Stmt, branch: int) -> ir.Stack | None:
        """The scope's stack, or None if nothing is recorded for it."""
        key = (id(owner), branch)
        if key not in self._stacks:
            values = self.recorded(owner, branch)
            if not values:
                return None
            self._keep.append(owner)
            self._stacks[key] = ir.Stack("saved", tuple((v.name, v.type) for v in values), self.names.uid())
        return self._stacks[key]

    def stacks(self) -> dict[ScopeKey, Owned]:
        """All stacks requested so far."""
        owners = {id(stmt): stmt for stmt in self._keep}
        return {key: Owned(stack, not self.repeatable(owners[key[0]])) for key, stack in self._stacks.items()}

    def pops(self, owner: ir.Stmt, branch: int) -> ir.Block:
        """What gives the recorded values back at the start of the scope's reverse."""
        stack = self.stack(owner, branch)
        popped = (ir.Pop(stack, self.recorded(owner, branch), span=owner.span),) if stack else ()
        loops = owner.carried if isinstance(owner, ir.For | ir.While) else ()
        left = (s for c in loops if c.var in self.versions.left for s in self.versions.left[c.var].loaded(self.names))
        return (*popped, *_closed_forms(owner), *left)

    # --- emission ----------------------------------------------------------------------------------------------------------------

    def scope(
        self,
        block: ir.Block,
        fresh: set[ir.Buffer],
        *,
        top: bool,
        skip: frozenset[ir.Var] = frozenset(),
        restored: frozenset[ir.Buffer] = frozenset(),
    ) -> ir.Block:
        """The forward statements of a scope that is about to be reversed. `top`: in the outermost sweep, where all memory is as it was.
        `fresh` collects the arrays that this sweep makes: only they may be stored to if it is not the outermost."""
        self._fresh, self._restored = fresh, restored
        return self._block(block, top=top, immediate=True, skip=skip)

    def _block(self, block: ir.Block, *, top: bool, immediate: bool, skip: frozenset[ir.Var] = frozenset()) -> ir.Block:
        out: list[ir.Stmt] = []
        for stmt in block:
            if skip and any(v in skip for v in defined(stmt)):
                continue
            out.extend(self._stmt(stmt, top, immediate))
            for var in (v for d in defined(stmt) for v in self._undone_behind.get(d, ()) if not skip or v not in skip):
                out.extend(self._undone(var, top))
        return tuple(out)

    def _undone(self, var: ir.Var, top: bool) -> ir.Block:
        """A numerator, where it follows from a quotient in this sweep."""
        undone = self.versions.undone[var]
        return undone.computed(var, self.names) if undone.early or not top else ()

    def _stmt(self, stmt: ir.Stmt, top: bool, immediate: bool) -> ir.Block:
        match stmt:
            case ir.Let(var=var) | ir.Load(var=var) if var in self.versions.undone and (found := self._undone(var, top)):
                return found if self.versions.undone[var].behind is None else ()
            case ir.Let(var=var) if var in self.versions.exits:
                store = self.versions.exits[var]
                return (ir.Load(var, store.buffer, store.index, span=stmt.span, note="the result is still there"),)
            case ir.Let(var=var) if id(stmt) in self.versions.logs:
                return (self._recorded(stmt, var),)
            case ir.Let():
                return (stmt,)
            case ir.Load(buffer=buffer):
                return (stmt if buffer in self.versions.final else replace(stmt, buffer=self.versions.saved.get(buffer, buffer)),)
            case ir.Alloc(buffer=buffer):
                self._fresh.add(buffer)
                return (stmt,)
            case ir.Store() | ir.Accumulate():
                return self._write(stmt, top)
            case ir.Atomic():
                return self._atomic(stmt, top)
            case ir.If() | ir.For() | ir.While():
                return self._control(stmt, top, immediate)
            case ir.Barrier() | ir.Shuffle():
                return (stmt,)
        raise AssertionError(f"unexpected {type(stmt).__name__} in a primal")

    def _write(self, stmt: ir.Store | ir.Accumulate, top: bool) -> ir.Block:
        """Stores are repeated where they rebuild memory that is read: local arrays made in this sweep, working copies."""
        buffer = stmt.buffer
        if buffer.length is not None:
            idle = buffer in self._restored and id(stmt) in self.versions.idle
            return (stmt,) if top or (buffer in self._fresh and not idle) else ()
        if buffer not in self.versions.working or not top or id(stmt) in self.versions.unread_stores:
            return ()
        copy = self.versions.saved[buffer]
        return (replace(stmt, buffer=copy, how=ir.How.PLAIN),) if isinstance(stmt, ir.Accumulate) else (replace(stmt, buffer=copy),)

    def _atomic(self, stmt: ir.Atomic, top: bool) -> ir.Block:
        """What it gave is on record; what it did to an array of the kernel is done again, if any order of the threads does the same."""
        again = stmt.buffer.length is not None and (top or stmt.buffer in self._fresh) and stmt.op in COMMUTING
        kept = stmt if id(stmt) in self.versions.marked else replace(stmt, var=None)
        repeated = (kept,) if again else ()
        if stmt.var is None or id(stmt) not in self.versions.logs:
            return repeated
        return (*repeated, self._recorded(stmt, stmt.var))

    def _recorded(self, stmt: ir.Stmt, var: ir.Var) -> ir.Load:
        log, index = self.versions.logs[id(stmt)]
        return ir.Load(var, log, index, span=stmt.span, note="as recorded at the launch")

    def _control(self, stmt: ir.If | ir.For | ir.While, top: bool, immediate: bool) -> ir.Block:
        repeatable = self.repeatable(stmt)
        if not top and not repeatable:
            return ()  # its results were recorded by the outermost sweep
        record = immediate or not repeatable
        if isinstance(stmt, ir.If):
            sides = [
                self._block(side, top=top, immediate=False) + (self._push(stmt, i) if top and not repeatable else ())
                for i, side in enumerate((stmt.then, stmt.otherwise))
            ]
            return (replace(stmt, then=sides[0], otherwise=sides[1]),)
        if isinstance(stmt, ir.While):
            header = self._block(stmt.header, top=top, immediate=False)
            body = self._block(stmt.body, top=top, immediate=False)
            return (replace(stmt, header=header, body=body + (self._push(stmt, 0) if record else ())),)
        body = self._block(stmt.body, top=top, immediate=False)
        return (replace(stmt, body=body + (self._push(stmt, 0) if record else ())),)

    def _push(self, owner: ir.Stmt, branch: int) -> ir.Block:
        stack = self.stack(owner, branch)
        return (ir.Push(stack, self.recorded(owner, branch), span=owner.span),) if stack else ()


def _scope(owner: ir.Stmt, branch: int) -> ir.Block:
    match owner:
        case ir.While(header=header, body=body):
            return (*header, *body)
        case ir.For(body=body):
            return body
        case ir.If():
            return owner.then if branch == 0 else owner.otherwise
    raise AssertionError("not a scope")


def _closed_forms(owner: ir.Stmt) -> ir.Block:
    if not isinstance(owner, ir.For | ir.While):
        return ()
    forms = ((c.var, closed_form(owner, c)) for c in owner.carried)
    return tuple(ir.Let(var, form, span=owner.span) for var, form in forms if form is not None)
