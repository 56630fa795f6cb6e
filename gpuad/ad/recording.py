"""Recording: which forward values the reverse kernel loads again, recomputes, or pops from a stack.

In: a primal and its activity. Out: the augmented forward sweep and the reverse sweep, with every stack and saved copy that they need.

The decision is a fixpoint over the reverse pass and dead code elimination. The reverse is made under an assumption (no memory tracked,
nothing recorded); the loads that survive `eliminate_dead_code` are those to be recorded (TBR). A load that does not see the memory as it
was before the launch makes its memory tracked; one that cannot be repeated later is recorded on a stack; and around again, since recomputed
stores need more loads. The sets only grow, so this terminates. Memory of which every needed load is final, such as a state that a
recurrence leaves an element a step, is read as the launch leaves it: nothing of it is saved. So are results that are still in memory after
the launch (`x = exp(x)`), where that saves a copy of an input, what a loop carries, where it stores it (`left_values`), and numerators of
divisions in place, which follow from the quotients (`undone_values`).

Inactive state that a loop carries, such as that of a random number generator, is recomputed from the state at the start of the iteration,
or the results that active statements use of it are recorded (`frontiers`): one normal number in place of a generator of six integers. Both
are tried, and the one of fewer bytes is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

from ..analysis.activity import Activity
from ..analysis.decisions import deciding_depths
from ..analysis.index_polynomials import Polynomial
from ..analysis.to_be_recorded import Access, Iteration, ToBeRecorded, to_be_recorded
from ..analysis.trip_counts import constant_trips
from ..errors import UnsupportedError
from ..ir import nodes as ir
from ..ir.induction import closed_form, closed_forms
from ..ir.nodes import Block, Carried, For, If, Kernel, Let, Load, Stmt, Var, While, variables
from ..ir.rewrite import Names, blocks, defined, holds, used_vars, walk_stmts
from ..ir.verify import tried
from ..optimize.dead_code import eliminate_dead_code
from ..optimize.privatisation import share_tiles
from ..optimize.simplify import forward_arrays
from ..optimize.unique import make_unique
from .forward_sweep import COMMUTING, Owned, ScopeKey, Versions
from .iteration_checkpoints import Snapshots, checkpoint_iterations, snapshots
from .left_values import LeftValue, left_values
from .logs import Mark
from .reverse import Inputs, Shadows, reverse
from .undone_values import UndoneValue, undone_values


def frontiers(primal: Kernel, activity: Activity) -> Iterator[frozenset[int]]:
    """For each loop that lies in no other and carries inactive state: the ids of the statements of its body that compute from that state
    what active statements use."""
    for loop in _outermost(primal.body):
        state = {c.var for c in loop.carried if c.var not in activity.varied and closed_form(loop, c) is None}
        found = _frontier(loop.body, loop.carried, state, activity) if state else frozenset()
        if found:
            yield found


def _outermost(block: Block) -> Iterator[For | While]:
    for stmt in block:
        if isinstance(stmt, For | While):
            yield stmt
        elif isinstance(stmt, If):
            yield from _outermost((*stmt.then, *stmt.otherwise))


def _frontier(body: Block, carried: tuple[Carried, ...], state: set[Var], activity: Activity) -> frozenset[int]:
    made: dict[Var, int] = {}  # inactive values that depend on the state, and the statement of each
    wanted: set[Var] = set()
    for stmt in body:
        used = set(used_vars((stmt,))) & (state | made.keys())
        if used and _is_inactive(stmt, activity):
            made |= dict.fromkeys(defined(stmt), id(stmt))
        else:
            wanted |= used
    wanted |= {v for c in carried if c.var in activity.varied for v in variables(c.next)}
    return frozenset(made[v] for v in wanted if v in made)


def _is_inactive(stmt: Stmt, activity: Activity) -> bool:
    """True if a statement only computes, and nothing that the derivative follows."""
    inner = [stmt, *(s for block in blocks(stmt) for s in walk_stmts(block))]
    return all(isinstance(s, Let | Load | If | For | While) and not any(v in activity.varied for v in defined(s)) for s in inner)


Logs: TypeAlias = "Mapping[int, tuple[ir.Buffer, ir.Expr]]"

_A_FEW = 4


@dataclass(frozen=True)
class Recording:
    """The adjoint's body, pruned, and the memory it reads: `entry` copies of primal buffers (as parameters of the adjoint) and
    `live` primal buffers as they are after the launch. `stacks` go by the control statements of `primal`."""

    body: ir.Block
    primal: ir.Kernel
    entry: dict[ir.Buffer, ir.Buffer]
    live: frozenset[ir.Buffer]
    working: frozenset[ir.Buffer]
    stacks: dict[ScopeKey, Owned]
    premises: tuple[Polynomial, ...] = ()  # taken to be non-zero
    distances: bool = False  # distances are among them
    results: bool = False  # what loops carry is read from what the launch leaves

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "stacks": {(place, n): owned for place, n, owned in self._places()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        stmts = list(walk_stmts(state["primal"].body))
        stacks = {(id(stmts[place]), n): owned for (place, n), owned in state["stacks"].items()}
        self.__dict__.update(state, stacks=stacks)

    def _places(self) -> Iterator[tuple[int, int, Owned]]:
        """The stacks by the number of their control statement, which is another object elsewhere."""
        places = {id(s): k for k, s in enumerate(walk_stmts(self.primal.body))}
        return ((places[stmt], n, owned) for (stmt, n), owned in self.stacks.items())


def record(
    primal: ir.Kernel,
    activity: Activity,
    shadows: Shadows,
    logs: Logs,
    *,
    marks: Mapping[int, Mark] | None = None,
    analyse: bool = True,
    optimistic: bool = False,
    distances: bool = False,
    results: bool = True,
) -> Recording:
    """The smallest recording for the kernel. `analyse=False` (for tests) takes every written buffer as tracked and every load of one as
    fragile. `optimistic`, and `distances` where less is recorded for it: what a launch has to check (`to_be_recorded`). `results`: what
    loops carry may be read from what the launch leaves."""

    facts_of = partial(to_be_recorded, optimistic=optimistic)
    task = _Task(primal, activity, shadows, facts_of(primal), logs, marks or {}, analyse, results)
    best = _smallest(task, lambda kernel, asked: facts_of(kernel, asked=asked))
    further = facts_of(primal, distances=True) if distances and analyse else task.facts
    if (further.seen, further.later) != (task.facts.seen, task.facts.later):
        other = _smallest(replace(task, facts=further), lambda kernel, asked: facts_of(kernel, distances=True, asked=asked))
        if len(other.entry) < len(best.entry):
            return replace(other, distances=True)
    return best


Facts: TypeAlias = Callable[[ir.Kernel, frozenset[int]], ToBeRecorded]


def _smallest(task: _Task, facts_of: Facts) -> Recording:
    """The smallest recording under the facts of a task. `facts_of`: these of a kernel and of some of its accesses. How deep stacks get
    has to be known before the launch (a budget needs it), so what decides that is not read as the launch leaves it."""
    best = _smallest_of_all(task, facts_of)
    while holds(best.body, ir.Push) and (decisive := deciding_depths(best.body) & task.facts.written - task.not_final):
        task = replace(task, not_final=task.not_final | decisive)
        best = _smallest_of_all(task, facts_of)
    return best


def _with_left_values(task: _Task, facts_of: Facts) -> _Task | None:
    """The task with values that loops carry read as the launch leaves them; None where there are none."""
    found = left_values(task.primal, closed_forms(task.primal.body)) if task.results else {}
    left = {var: value for var, value in found.items() if value.store.buffer not in task.not_final}
    if not left:
        return None
    facts = facts_of(task.primal, frozenset(id(value.store) for value in left.values()))
    lost = {access for _, access in facts.overwriting}
    left = {var: value for var, value in left.items() if id(value.store) not in lost}
    return replace(task, facts=facts, left=left) if left else None


def _with_undone_values(task: _Task, facts_of: Facts) -> _Task | None:
    """The task with numerators of divisions in place made of what the launch leaves; None where there are none."""
    undone = {var: value for var, value in undone_values(task.primal).items() if value.store.buffer not in task.not_final}
    if not undone:
        return None
    asked = {id(stmt) for value in undone.values() for stmt in (value.access, value.store)}
    facts = facts_of(task.primal, frozenset(asked | {id(value.store) for value in task.left.values()}))
    lost = {access for _, access in facts.overwriting}
    kept = {
        var: value
        for var, value in undone.items()
        if id(value.store) not in lost and not any(a == id(value.access) and w != id(value.store) for w, a in facts.overwriting)
    }
    return replace(task, facts=facts, undone=kept) if kept else None


def _needs_less(recording: Recording, other: Recording) -> bool:
    """True if one recording needs nothing more than another, of what is saved before the launch or on stacks, and less of something."""
    first, second = (
        (_stacked(r), len(r.entry), len(r.working), sum(isinstance(s, Load) and s.buffer in r.entry.values() for s in walk_stmts(r.body)))
        for r in (recording, other)
    )
    return first != second and all(a <= b for a, b in zip(first, second, strict=True))


def _smallest_of_all(task: _Task, facts_of: Facts) -> Recording:
    """The smallest recording with stacks of whatever depth."""
    primal, activity, analyse = task.primal, task.activity, task.analyse
    best = task.fixpoint({})
    for reading_results in (_with_left_values, _with_undone_values) if analyse and (_stacked(best) or best.entry) else ():
        wider = reading_results(task, facts_of)
        if wider is not None and _needs_less(other := wider.fixpoint({}), best):
            task, best = wider, other
    for var, store in _exits(primal).items() if analyse else ():
        other = task.fixpoint({var: store})
        if len(other.entry) < len(best.entry):
            best = other
    kept: frozenset[int] = frozenset()
    for more in frontiers(primal, activity) if analyse else ():
        other = task.fixpoint({}, kept | more)
        if _stacked(other) < _stacked(best) and len(other.entry) <= len(best.entry):
            best, kept = other, kept | more
    whole = snapshots(primal) if analyse and _stacked(best) else None
    if whole is not None:
        facts = facts_of(whole.kernel, frozenset())
        other = replace(task, primal=whole.kernel, facts=facts, left={}, undone={}, shots=whole).fixpoint({}, kept)
        if _stacked(other) < _stacked(best) and len(other.entry) <= len(best.entry):
            best = other
    return replace(best, premises=task.facts.premises, results=bool(task.left) and best.primal is primal)


@dataclass(frozen=True)
class _Task:
    primal: ir.Kernel
    activity: Activity
    shadows: Shadows
    facts: ToBeRecorded
    logs: Logs
    marks: Mapping[int, Mark]
    analyse: bool
    results: bool = True
    shots: Snapshots | None = None
    not_final: frozenset[ir.Buffer] = frozenset()  # not to be read as the launch leaves it, whatever is there
    left: Mapping[Var, LeftValue] = field(default_factory=dict)
    undone: Mapping[Var, UndoneValue] = field(default_factory=dict)

    def fixpoint(self, exits: dict[ir.Var, ir.Store], kept: frozenset[int] = frozenset()) -> Recording:
        """The recording with results read back where `exits` says so, and the results of the statements `kept` recorded in any case."""
        if self.shots is not None:
            kept |= {id(load) for loads in self.shots.loads.values() for load in loads}
        needed: frozenset[int] = frozenset()
        again: frozenset[int] = frozenset()
        while True:
            final = self._final(needed)
            tracked, fragile, unread_stores, idle = self._consequences(needed, again, final)
            names = Names(self.primal)
            first = names.uid()
            saved = {b: names.buffer(f"{b.name}_saved", b.element) for b in self.primal.buffers if b in self.facts.written}
            working = frozenset(b for b in saved if b in tracked)
            marked = frozenset(key for key, mark in self.marks.items() if not mark.recorded)
            versions = Versions(
                saved, working, exits, dict(self.logs), marked, unread_stores, self.shots, idle, final, self.left, self.undone
            )
            inputs = Inputs(self.primal, self.activity, self.facts, self.shadows, versions, fragile | kept, self.marks)
            body, stacks = reverse(inputs, names)
            tried("reverse", replace(self.primal, body=body))
            body, origin, arrays = make_unique(body, names)
            body = eliminate_dead_code(body, private=saved.values())
            tried("dead_code", replace(self.primal, body=body))
            found, late = needed | self._needed(body, origin), again | self._again(body, origin)
            if (found, late) == (needed, again):
                if self.shots is not None:
                    body = eliminate_dead_code(forward_arrays(body), private=saved.values())
                if self.analyse:
                    if holds(body, ir.Push):
                        body = checkpoint_iterations(body, origin, saved.values(), first, names)
                    body = eliminate_dead_code(body, private=saved.values())
                    tried("iteration_checkpoints", replace(self.primal, body=body))
                return _summary(share_tiles(body, arrays) if holds(body, ir.Alloc) else body, self.primal, saved, working, stacks)
            needed, again = found, late

    def _needed(self, body: ir.Block, origin: dict[ir.Var, ir.Var]) -> frozenset[int]:
        made = {v for s in walk_stmts(body) for v in defined(s) if not (isinstance(s, Let) and origin.get(v, v) in self.undone)}
        present = {origin.get(v, v) for v in made}
        return frozenset(id(a.stmt) for a in self.facts.accesses if isinstance(a.stmt, ir.Load) and a.stmt.var in present)

    def _again(self, body: ir.Block, origin: dict[ir.Var, ir.Var]) -> frozenset[int]:
        """The loads of arrays of a scope that the reverse of a loop in that scope needs: the sweep of the scope is over by then."""
        heads = {_head(loop): loop for a in self.facts.accesses for loop in a.loops}
        inside = [(a, self._within(a)) for a in self.facts.accesses if isinstance(a.stmt, ir.Load)]
        loops = {
            a.stmt.var: (id(a.stmt), {id(s) for s in inner}) for a, inner in inside if isinstance(a.stmt, ir.Load) and inner is not None
        }
        found: set[int] = set()
        for stmt, path in _with_path(body):
            if isinstance(stmt, ir.Load) and origin.get(stmt.var, stmt.var) in loops:
                key, inner = loops[origin.get(stmt.var, stmt.var)]
                around = (s for s in path if isinstance(s, ir.For))
                primal = ((s, heads.get(origin.get(s.var, s.var))) for s in around)
                if any(id(p) in inner and not (isinstance(p, ir.For) and p.backward == s.backward) for s, p in primal):
                    found.add(key)
        return frozenset(found)

    def _final(self, needed: frozenset[int]) -> frozenset[ir.Buffer]:
        """Memory that the reverse reads as the launch leaves it: all that it needs of it is still there then."""
        if not self.analyse:
            return frozenset()
        left = {a.buffer for a in self.facts.accesses if id(a.stmt) in needed - self.facts.final}
        return frozenset(b for b in self.primal.buffers if b in self.facts.written - self.not_final and b not in left)

    def _consequences(
        self, needed: frozenset[int], again: frozenset[int], final: frozenset[ir.Buffer]
    ) -> tuple[frozenset[ir.Buffer], frozenset[int], frozenset[int], frozenset[int]]:
        """The memory whose stores are repeated, the loads that are recorded, and the stores that need not be repeated: by no scope, and by
        the reverse of an iteration that gets its arrays back."""
        loads = [a for a in self.facts.accesses if id(a.stmt) in needed and a.buffer in self.facts.written - final]
        tracked = frozenset(a.buffer for a in loads if id(a.stmt) not in self.facts.entry or not self.analyse)
        for access in loads:
            if access.buffer in tracked:
                self._refuse_shared(access)
        unread_stores = self._unread_stores(loads, tracked) if self.analyse else frozenset()
        lasting = {load for store, load in self.facts.later if store not in unread_stores}
        unstable = [a for a in loads if a.buffer in tracked and (id(a.stmt) in lasting or not self.analyse)]
        idle = self._idle(needed)
        fragile = {id(a.stmt) for a in unstable if not self._in_order(a, again, idle)}
        return tracked, frozenset(self._spread(fragile, loads, idle) | self._carried_marks()), unread_stores, idle

    def _idle(self, needed: frozenset[int]) -> frozenset[int]:
        """Stores to arrays that an iteration gets back of which no needed load of the same iteration sees anything."""
        found: set[int] = set()
        for array, home in self._restored:
            inside = [a for a in self.facts.accesses if a.buffer == array and _starts(a, home)]
            loads = [a for a in inside if id(a.stmt) in needed]
            writes = [a for a in inside if a.writes]
            seen = [w for w in writes if any(self._iteration.sees(w, a, home) for a in loads)]
            if not any(isinstance(w.stmt, ir.Accumulate) for w in seen):
                found |= {id(w.stmt) for w in writes if w not in seen}
        return frozenset(found)

    def _unread_stores(self, loads: list[Access], tracked: frozenset[ir.Buffer]) -> frozenset[int]:
        """Stores to the launch's memory of which no needed load sees anything; where memory is added to, each of its stores is seen."""
        seen = {store for store, load in self.facts.seen if any(id(a.stmt) == load for a in loads)}
        writes = [a for a in self.facts.accesses if a.writes and a.buffer in tracked and a.buffer.length is None]
        added = {a.buffer for a in writes if not isinstance(a.stmt, ir.Store)}
        return frozenset(id(a.stmt) for a in writes if a.buffer not in added and id(a.stmt) not in seen)

    def _carried_marks(self) -> set[int]:
        """Marks of operations on shared arrays within loops: the reverse of an iteration cannot find out again whose number was kept."""
        found: set[int] = set()
        homes = {
            s.buffer: tuple(p for p in path if isinstance(p, ir.For | ir.While))
            for s, path in _with_path(self.primal.body)
            if isinstance(s, ir.Alloc)
        }
        for access in self.facts.accesses:
            mark = self.marks.get(id(access.stmt))
            if mark is None or mark.recorded or access.loops == homes.get(access.buffer):
                continue
            if homes.get(access.buffer):
                raise UnsupportedError(
                    f"an atomic operation in a loop on the shared array '{access.buffer.name}', which carries a gradient and is filled "
                    "anew by each iteration of a loop around it, is not supported",
                    access.stmt.span,
                )
            found.add(id(mark.let))
        return found

    def _refuse_shared(self, access: Access) -> None:
        """Memory that other threads add to cannot be replayed by one thread."""
        updates = [a.stmt for a in self.facts.accesses if a.buffer == access.buffer and isinstance(a.stmt, ir.Accumulate | ir.Atomic)]
        for stmt in (s for s in updates if _atomic(s)):
            if access.buffer.length is None or not _repeatable(stmt):
                what = "to which threads add" if isinstance(stmt, ir.Accumulate) else "which threads change"
                raise UnsupportedError(
                    f"the gradient needs the value of '{access.buffer.name}' read here, {what} atomically in one launch", access.stmt.span
                )
            if any(id(s) not in self.marks and not _commute(s, stmt) for s in updates if _atomic(s)):
                why = "which hangs on the order in which threads change it atomically"
                raise UnsupportedError(f"the gradient needs the value of '{access.buffer.name}' read here, {why}", access.stmt.span)

    @cached_property
    def _iteration(self) -> Iteration:
        return Iteration(self.primal)

    @cached_property
    def _restored(self) -> tuple[tuple[ir.Buffer, tuple[ir.Stmt, ...]], ...]:
        """Arrays that the reverse of an iteration gets back as they were, with the loop and the control statements around it; the innermost
        loop of an array first."""
        if self.shots is None:
            return ()
        paths = [(stmt, (*path, stmt)) for stmt, path in _with_path(self.primal.body) if id(stmt) in self.shots.loads]
        return tuple((array, path) for stmt, path in reversed(paths) for array in sorted(self.shots.arrays(stmt), key=lambda a: a.uid))

    @cached_property
    def _homes(self) -> tuple[tuple[ir.Buffer, tuple[ir.Stmt, ...]], ...]:
        """Arrays that the reverse of a scope gets back or makes again, with the control statements around it; the innermost first."""
        return (*self._restored, *_inner_homes(self.primal.body).items())

    def _within(self, access: Access) -> tuple[ir.Stmt, ...] | None:
        """The control statements around an access that lie in the scope which has the array; None if there is no such scope."""
        path = tuple(s for s, _ in access.path)
        found = (home for array, home in self._homes if array == access.buffer and path[: len(home)] == home)
        home = next(found, None)
        return None if home is None else path[len(home) :]

    def _in_order(self, access: Access, again: frozenset[int], idle: frozenset[int]) -> bool:
        """True if the sweep of the scope that has the array repeats the load in order, and nothing else needs it, or can do so itself."""
        inner = self._within(access)
        if inner is None:
            return False
        for array, home in self._restored:
            if array == access.buffer and _starts(access, home):
                writes = [a for a in self.facts.accesses if a.writes and a.buffer == array and _starts(a, home) and id(a.stmt) not in idle]
                if not any(self._iteration.follows(w, access, home) for w in writes):
                    return True
                break
        return not inner or (id(access.stmt) not in again and all(isinstance(s, ir.For | ir.While) for s in inner))

    def _spread(self, fragile: set[int], loads: list[Access], idle: frozenset[int]) -> set[int]:
        """An array of an inner scope whose stores lie in a part that cannot be repeated has no state to read there: all its loads are
        recorded."""
        changed = True
        while changed:
            changed = False
            for buffer, home in self._homes:
                inside = {id(a.stmt) for a in loads if a.buffer == buffer and _starts(a, home)}
                skipped = idle if (buffer, home) in self._restored else frozenset[int]()
                if inside <= fragile or not self._lost(buffer, home, fragile, skipped):
                    continue
                fragile |= inside
                changed = True
        return fragile

    def _lost(self, buffer: ir.Buffer, home: tuple[ir.Stmt, ...], fragile: set[int], skipped: frozenset[int]) -> bool:
        for access in self.facts.accesses:
            if access.buffer != buffer or not access.writes or not _starts(access, home) or id(access.stmt) in skipped:
                continue
            for control, _ in access.path[len(home) :]:
                if any(id(s) in fragile for inner in blocks(control) for s in walk_stmts(inner)):
                    return True
        return False


def _head(loop: ir.Stmt) -> ir.Var | None:
    """The variable that counts a loop's iterations."""
    return loop.var if isinstance(loop, ir.For) else loop.counter if isinstance(loop, ir.While) else None


def _starts(access: Access, home: tuple[ir.Stmt, ...]) -> bool:
    """True if the control statements around an access begin with these."""
    return len(access.path) >= len(home) and all(s is h for (s, _), h in zip(access.path, home, strict=False))


def _stacked(recording: Recording) -> int:
    """About how many bytes are pushed in an iteration of the outermost loops."""
    return sum(_often(path) * v.type.size for s, path in _with_path(recording.body) if isinstance(s, ir.Push) for v in s.values)


def _often(path: tuple[ir.Stmt, ...]) -> int:
    """How often a statement may run while the outermost of the loops around it makes an iteration; loops of unknown length make a few."""
    result = 1
    for loop in [s for s in path if isinstance(s, ir.For | ir.While)][1:]:
        trips = constant_trips(loop)
        result *= _A_FEW if trips is None else max(trips, 1)
    return result


def _atomic(stmt: ir.Accumulate | ir.Atomic) -> bool:
    return isinstance(stmt, ir.Atomic) or stmt.how is ir.How.ATOMIC


def _repeatable(stmt: ir.Accumulate | ir.Atomic) -> bool:
    """True if an atomic on an array of the kernel leaves the same when all threads do it again, in whatever order."""
    return isinstance(stmt, ir.Accumulate) or stmt.op in COMMUTING


def _commute(a: ir.Accumulate | ir.Atomic, b: ir.Accumulate | ir.Atomic) -> bool:
    """True if two operations on an array leave the same in either order."""
    kinds = {"add" if isinstance(s, ir.Accumulate) or s.op == "sub" else s.op for s in (a, b)}
    return len(kinds) == 1 or (isinstance(a.index, ir.Constant) and isinstance(b.index, ir.Constant) and a.index != b.index)


def _with_path(block: ir.Block, path: tuple[ir.Stmt, ...] = ()) -> Iterator[tuple[ir.Stmt, tuple[ir.Stmt, ...]]]:
    for stmt in block:
        yield stmt, path
        for inner in blocks(stmt):
            yield from _with_path(inner, (*path, stmt))


def _inner_homes(block: ir.Block, path: tuple[ir.Stmt, ...] = (), *, lasting: bool = True) -> dict[ir.Buffer, tuple[ir.Stmt, ...]]:
    """Arrays that are made in a scope to which the reverse sweep comes back, with the control statements around them. `lasting`: the block
    is run forward and reversed in one go, so that its arrays are still there (see `_Reverse._fused`)."""
    found: dict[ir.Buffer, tuple[ir.Stmt, ...]] = {}
    for stmt in block:
        if isinstance(stmt, ir.Alloc) and not lasting:
            found[stmt.buffer] = path
        fused = lasting and isinstance(stmt, ir.If) and stmt is block[-1] and (not path or not stmt.merges)
        for inner in blocks(stmt):
            found.update(_inner_homes(inner, (*path, stmt), lasting=fused))
    return found


def _summary(
    body: ir.Block, primal: ir.Kernel, saved: dict[ir.Buffer, ir.Buffer], working: frozenset[ir.Buffer], stacks: dict[ScopeKey, Owned]
) -> Recording:
    read = {s.buffer for s in walk_stmts(body) if isinstance(s, ir.Load)}
    entry = {b: copy for b, copy in saved.items() if copy in read}
    live = frozenset(b for b in primal.buffers if b in read)
    return Recording(body, primal, entry, live, frozenset(b for b in working if b in entry), stacks)


def _exits(primal: ir.Kernel) -> dict[ir.Var, ir.Store]:
    """Variables whose value is in memory after the launch: stored once, by the only write to that memory, outside loops."""
    counts: dict[ir.Buffer, int] = {}
    for stmt in walk_stmts(primal.body):
        if isinstance(stmt, ir.Store | ir.Accumulate | ir.Atomic):
            counts[stmt.buffer] = counts.get(stmt.buffer, 0) + 1
    found: dict[ir.Var, ir.Store] = {}
    _collect_exits(primal.body, counts, found)
    return found


def _collect_exits(block: ir.Block, counts: dict[ir.Buffer, int], found: dict[ir.Var, ir.Store]) -> None:
    lets: dict[ir.Var, int] = {}
    later: dict[ir.Var, int] = {}
    for position, stmt in enumerate(block):
        for v in defined(stmt):
            later[v] = position
        match stmt:
            case ir.Let(var=var):
                lets[var] = position
            case ir.Store(buffer=b, value=ir.Var() as var, index=index) if var in lets and counts[b] == 1 and b.length is None:
                if all(later.get(v, -1) < lets[var] for v in ir.variables(index)):
                    found[var] = stmt
            case ir.If(then=a, otherwise=o):
                _collect_exits(a, counts, found)
                _collect_exits(o, counts, found)
