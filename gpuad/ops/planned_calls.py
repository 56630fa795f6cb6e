"""Calls of kernels that are planned by their arguments (elementwise, reductions, jit functions), in the words of an earlier one.

Such a call is complete if its outputs are among its arguments: what it comes to depends on these and on what it says besides, and not on
what is in the arrays. Outside of tapes a complete call that is known is made at once; within one it is the launch that it was.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from ..api import CallKey, Family, Past, Planned, call_key, replay_call
from ..arguments.recorder import current
from .trace_cache import Launch, known, remember


@dataclass(frozen=True, eq=False)
class Complete:
    """A call of `family` with all outputs. `key`: what it says besides its arguments, and beside the geometry."""

    family: Family
    past: Past
    key: Hashable
    args: Sequence[Any]
    grid: Any = 0
    block: Any = 0
    shared_mem: int = 0

    def words(self, what: str) -> CallKey | None:
        """By what an earlier call is looked up outside of tapes."""
        return call_key(self.past, (what, self.key), self.args, self.grid, self.block, self.shared_mem)

    def again(self) -> bool:
        """Makes or records the launch if it is known; False, and nothing is done, if it is not."""
        if current.get() is None:
            said = self.words("launch")
            return said is not None and replay_call(said)
        launch = known((self.family, self.key), self._operands)
        if launch is not None:
            launch()
        return launch is not None

    def launch(self, plan: Planned) -> None:
        """Makes or records the launch that the call was found to be."""
        recorded = current.get() is not None
        if recorded:
            remember((self.family, self.key), self._operands, Launch(plan.kernel, plan.grid, plan.block, tuple(plan.args), plan.shared_mem))
        plan.kernel.launch(plan, None if recorded else self.words("launch"))

    @property
    def _operands(self) -> tuple[Any, ...]:
        return (*self.args, self.grid, self.block, self.shared_mem)
