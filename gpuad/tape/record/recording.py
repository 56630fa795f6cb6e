"""A recording: the ops so far, and the objects that know what they did to memory.

Every operation passes here before it runs: its arguments are judged by the memory behind them (`judge`), what it reaches is found
(`footprints`), and what it is about to overwrite is saved, as far as it is needed (`saver`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...errors import TapeError
from ...runtime.base import Memory
from ..budget.limits import Limits
from ..memory.lossy_arrays import Store
from ..memory.made_arrays import MadeArrays
from ..memory.versions import Allocation
from ..reverse.shadows import Shadows
from ..status import EMPTY as NO_RECORDING
from ..status import State
from .change_marks import ChangeMarks
from .footprints import Footprints
from .judge import Judge
from .operations import Operation
from .saver import Saver
from .trace import Trace


class Recording:
    """The ops recorded so far (`trace`). `within`: the limits on what it adds; `made`: arrays that operations made. `exact`: compare what
    is needed at every operation, `save_all`: save everything that is overwritten, `restore`: save the state before the recording too,
    `store`: memory of which versions are stored less exactly."""

    exact: bool
    save_all: bool
    restore: bool
    store: Store

    def __init__(self, within: Limits, made: MadeArrays, first: Callable[[], bool]) -> None:
        self.within, self.made, self.transient = within, made, within.transient
        self.footprints = Footprints(self.store, made.staging, cuts=not (self.save_all or within.is_limited))  # else launches run again
        self.judge = Judge(self, self.footprints, made)
        self.saver = Saver(self, self.footprints, within, made, save_all=self.save_all, restore=self.restore)
        self.marks = ChangeMarks(self.footprints, self.judge, self.exact, first)
        self.paired = 0  # pairs of arrays and shadows that the operations have shown
        self.forget()

    def forget(self) -> None:
        """Begins anew."""
        self.trace = Trace()
        self.state = NO_RECORDING
        self.footprints.forget()
        self.judge.forget()
        self.saver.forget()
        self.made.forget()
        self.within.forget()

    @property
    def operations(self) -> list[Operation]:
        """The operations that work on memory, in order."""
        return self.trace.operations

    @property
    def allocations(self) -> dict[int, Allocation]:
        """The memory that operations have met, by address."""
        return self.footprints.allocations

    @property
    def shadows(self) -> Shadows:
        """Which memory has which shadows."""
        return self.judge.shadows

    def allocation(self, memory: Memory) -> Allocation:
        """The allocation behind a pointer."""
        return self.footprints.allocation(memory)

    def _require(self, state: State) -> None:
        if self.state is not state:  # the states that are required have one object each
            needs = "" if self.state.advises else f"; this needs one that is {state}"
            raise TapeError(f"the tape is {self.state}{needs}")

    @property
    def scratch_bytes(self) -> int:
        """Bytes of all transient memory."""
        return self.transient.nbytes

    def room(self, shape: Sequence[int], dtype: Any) -> Any:
        """Memory of the tape for an operation's intermediates while it runs: an array, not cleared."""
        return self.transient.room(shape, dtype)
