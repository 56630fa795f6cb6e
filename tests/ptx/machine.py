"""Runs a function for a vector of lanes: the lowest block first, until all have left.

Lanes that are at one block go through it together. Those that wait for others (at a barrier for their block, at a warp operation for the
lanes that its mask names) stand aside until these have come; if nobody can go on, they never will: `Diverged`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .faults import Diverged, Endless, PtxError, Undefined, Unknown, Unwritten
from .lanes import Lanes
from .parser import Instruction, Negated, Register
from .program import Block
from .types import unsigned
from .warps import WARP

if TYPE_CHECKING:
    from .launch import Launch
    from .module import Code

PATIENCE = 1 << 14  # steps after which lanes that wait for what others do are made to let them pass
STEPS = 1 << 21


class Activation:
    """One call of a function, or the kernel itself, by lanes that were together when they came: `ids` are their numbers in the launch."""

    def __init__(self, code: Code, launch: Launch, ids: Any, handed: Any) -> None:
        self.code, self.launch, self.ids, self.handed = code, launch, ids, handed
        self.count = int(ids.size)
        self.blocks, self.threads = ids // launch.block_threads, ids % launch.block_threads
        self.warps = self.blocks * launch.block_warps + self.threads // WARP
        self.warp_count = launch.warp_count
        self.file: dict[str, Any] = {}
        self.owned: set[str] = set()
        self.defined: dict[str, Any] = {}
        self.watched = code.watched
        self.pending: dict[int, list[Any]] = {}
        self.waiting: dict[int, list[Any]] = {}
        self.specials: dict[str, Any] = {}
        self.alive = np.bincount(self.blocks, minlength=launch.block_count)
        self.arrived = np.zeros(launch.block_count, np.int64)
        self.alive_lanes = self._masks(slice(None))
        self.quiet = 0

    # --- registers

    def read(self, name: str, index: Any) -> Any:
        """A register's value for some lanes."""
        value = self.file[name] if name in self.file else self._unwritten(self.code.program.registers[name])
        if value.size == 1 and self.count > 1:
            return value
        if index is None:
            self.owned.discard(name)  # whoever reads may keep it
            return value
        return value[index]

    def _unwritten(self, size: int) -> Any:
        """What a register of so many bytes holds that nobody has written."""
        return np.full(max(size, 1), self.launch.poison or 0, np.uint8).view(unsigned(size) if size else np.bool_)

    def _check(self, name: str, index: Any) -> None:
        known = self.defined.get(name)
        if self.launch.poison is None and (known is None or not (known if index is None else known[index]).all()):
            raise Unwritten(f"register {name} of {self.code.program.function.name}")

    def write(self, name: str, index: Any, value: Any) -> None:
        if name in self.watched:
            known = self.defined.setdefault(name, np.zeros(self.count, np.bool_))
            known[... if index is None else index] = True
        if index is None:
            self.file[name] = value
            self.owned.discard(name)
            return
        if name not in self.owned:
            before = self.file.get(name)
            if before is None:
                before = self._unwritten(value.dtype.itemsize if value.dtype != np.bool_ else 0).view(value.dtype)
            self.file[name] = np.array(np.broadcast_to(before, self.count))
            self.owned.add(name)
        held = self.file[name]
        held[index] = value if value.dtype == held.dtype else value.view(held.dtype)

    def special(self, name: str) -> Any:
        if name not in self.specials:
            self.specials[name] = self.launch.special(name, self)
        return self.specials[name]

    # --- scheduling

    def run(self) -> None:
        """Until no lane is left."""
        self._go(0, None)
        steps = 0
        while self.pending or self.waiting:
            at, index = self._next()
            try:
                self._through(at, index)
            except PtxError:
                raise
            except (KeyError, IndexError, ValueError) as error:
                raise PtxError(f"{self.code.program.function.name}, {self._text(at)}: {error!r}") from error
            steps += 1
            self.quiet += 1
            if steps > STEPS:
                raise Endless(f"{self.code.program.function.name}: {steps} steps")

    def _text(self, at: int) -> str:
        block = self.code.program.blocks[at]
        return f"block {at} ({'; '.join(i.text for i in block.instructions[:40])})"

    def _go(self, at: int, index: Any) -> None:
        """Lanes that will run block `at` next."""
        self.pending.setdefault(at, []).append(index)

    def _next(self) -> tuple[int, Any]:
        """The block that runs next, and its lanes."""
        order = sorted(self.pending)
        if self.quiet > PATIENCE and self.quiet % 16 == 0 and len(order) > 1:
            order = order[self.quiet // 16 % len(order) :] + order  # whoever is waited for has its turn
        for at in order:
            index = self._merged(self.pending.pop(at))
            if self.code.meetings[at] != "mask":
                return at, index
            ready, others = self._met(at, index)
            if others is not None:
                self._go(at, others)
            if ready is not False:
                return at, ready
        raise Diverged(f"{self.code.program.function.name}: nobody comes to {self._where()}")

    def _where(self) -> str:
        stuck = [*self.waiting, *self.pending]
        return " or ".join(self.code.program.blocks[at].instructions[0].text for at in stuck)

    def _merged(self, parts: list[Any]) -> Any:
        if len(parts) == 1:
            return parts[0]
        together = np.sort(np.concatenate([np.arange(self.count) if p is None else p for p in parts]))
        return None if together.size == self.count else together

    def _masks(self, index: Any) -> Any:
        """By warp, the bits of these lanes."""
        weights = 2.0 ** (self.threads[index] % WARP)
        return np.bincount(self.warps[index], weights, self.warp_count).astype(np.uint64)

    def _met(self, at: int, index: Any) -> tuple[Any, Any]:
        """Of the lanes at a warp operation those whose mask is complete (False: none), and the others (None: none)."""
        lanes = self._lanes(index)
        mask = lanes.full(self.code.masks[at](lanes)).astype(np.uint64)
        own = lanes.pick(self.threads) % WARP
        if ((mask >> own.astype(np.uint64) & np.uint64(1)) == 0).any():
            raise Diverged(f"{self._text(at)}: a lane runs it that its mask does not name")
        warps = lanes.warps
        present = self._masks(slice(None) if index is None else index)
        missing = (mask & self.alive_lanes[warps] & ~present[warps]) != 0
        if not missing.any():
            return index, None
        everyone = np.arange(self.count) if index is None else index
        ready = everyone[~missing]
        return (ready if ready.size else False), everyone[missing]

    def _lanes(self, index: Any) -> Lanes:
        return Lanes(self, index, self.count if index is None else int(index.size))

    def _through(self, at: int, index: Any) -> None:
        """These lanes through one block."""
        block = self.code.program.blocks[at]
        if block.skips is not None:
            index = self._guarded(at, block.skips, index)
            if index is False:
                return
        if self.code.meetings[at] == "block":
            self._wait(at, index)
            return
        self._execute(at, index)

    def _guarded(self, at: int, guard: Register | Negated, index: Any) -> Any:
        """The lanes for which a block's only instruction is executed; the others go on."""
        name = (guard.register if isinstance(guard, Negated) else guard).name
        if name in self.code.program.blocks[at].undefined:
            self._check(name, index)
        holds = self._holds(self._lanes(index), guard)
        if holds is True:
            return index
        everyone = np.arange(self.count) if index is None else index
        if holds is False:
            self._go(at + 1, index)
            return False
        self._go(at + 1, everyone[~holds])
        return everyone[holds]

    def _holds(self, lanes: Lanes, guard: Register | Negated) -> Any:
        """Per lane, or True or False where all agree."""
        negated = isinstance(guard, Negated)
        value = lanes.read(guard.register.name if isinstance(guard, Negated) else guard.name)
        value = ~value if negated else value
        if value.size == 1 or value.all() or not value.any():
            return bool(value[0])
        return value

    def _execute(self, at: int, index: Any) -> None:
        block, lanes = self.code.program.blocks[at], self._lanes(index)
        self._watch(block, lanes)
        self.launch.count(self.code, at, lanes)
        for step in self.code.steps[at]:
            step(lanes)
        self._leave(at, block, lanes)

    def _watch(self, block: Block, lanes: Lanes) -> None:
        """Refuses what is read before it was written."""
        for name in block.undefined:
            self._check(name, lanes.index)

    def _leave(self, at: int, block: Block, lanes: Lanes) -> None:
        last = block.last
        holds: Any = True
        if last is not None and last.guard is not None:
            holds = self._holds(lanes, last.guard)
        chosen = self._choice(lanes, at) if last is not None and last.opcode == "brx" else None
        lanes.commit(block.live_out)
        if last is None:
            self._go(at + 1, lanes.index)
            return
        everyone = lanes.index
        if holds is not True and holds is not False:
            everyone = np.arange(self.count) if everyone is None else everyone
            self._go(at + 1, everyone[~holds])
            everyone = everyone[holds]
            chosen = chosen[holds] if chosen is not None else None
        elif holds is False:
            self._go(at + 1, everyone)
            return
        self._jump(last, block, everyone, chosen)

    def _choice(self, lanes: Lanes, at: int) -> Any:
        return lanes.full(self.code.choices[at](lanes))

    def _jump(self, last: Instruction, block: Block, index: Any, chosen: Any) -> None:
        match last.opcode:
            case "bra":
                self._go(block.targets[0], index)
            case "brx":
                everyone = np.arange(self.count) if index is None else index
                for number in np.unique(chosen):
                    self._go(block.targets[int(number)], everyone[chosen == number])
            case "trap":
                raise Undefined(f"{self.code.program.function.name}: trap")
            case _:
                if last.opcode == "exit" and not self.code.program.function.is_entry:
                    raise Unknown("exit in a function")
                self._exit(index)

    def _exit(self, index: Any) -> None:
        self.quiet = 0
        gone = self.blocks if index is None else self.blocks[index]
        self.alive -= np.bincount(gone, minlength=self.alive.size)
        self.alive_lanes = self.alive_lanes & ~self._masks(slice(None) if index is None else index)
        if self.waiting:
            self._release()

    # --- barriers

    def _wait(self, at: int, index: Any) -> None:
        """Lanes that have come to a barrier."""
        self.quiet = 0
        if not self.code.program.function.is_entry:
            raise Unknown("a barrier in a function")
        everyone = np.arange(self.count) if index is None else index
        self.waiting.setdefault(at, []).append(everyone)
        self.arrived += np.bincount(self.blocks[everyone], minlength=self.arrived.size)
        self._release()

    def _release(self) -> None:
        """Lets those blocks go on whose threads have all come, to one barrier."""
        complete = (self.arrived == self.alive) & (self.arrived > 0)
        if not complete.any():
            return
        met = np.zeros(complete.size, np.int64)
        for at, parts in list(self.waiting.items()):
            index = self._merged(parts)
            index = np.arange(self.count) if index is None else index
            leaving = complete[self.blocks[index]]
            if not leaving.any():
                continue
            gone = index[leaving]
            self.waiting[at] = [index[~leaving]]
            if leaving.all():
                del self.waiting[at]
            number = np.bincount(self.blocks[gone], minlength=met.size)
            if ((number > 0) & (number != self.arrived)).any():
                raise Diverged(f"{self.code.program.function.name}: the threads of a block wait at different barriers")
            met += number
            self._execute(at, None if gone.size == self.count else gone)
        self.arrived -= met
