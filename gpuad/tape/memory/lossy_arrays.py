"""The arrays of which a tape stores earlier versions less exactly, as its user says (`Tape(store={U: "bfloat16"})`), and what is refused
of them: where a value that is a little off could change much."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Any

from ...analysis.decisions import decided_by
from ...errors import TapeError
from ...ir.nodes import Buffer
from ...pipeline.derived_kernels import Adjoint
from ..record.operations import Use
from ..record.recorded_launch import Launched
from ..record.recorded_rule import Ruled
from .lossy import Lossy, lossy_of
from .versions import Allocation


class Store:
    """What `store=` says: {Duplicated: name of a format}. TapeError as of `lossy_of`."""

    def __init__(self, wanted: Mapping[Any, str] | None) -> None:
        self._by_address = lossy_of(wanted)
        self.arrays = tuple(chain.from_iterable(self._by_address.values()))

    def __bool__(self) -> bool:
        return bool(self.arrays)

    def of(self, where: int) -> tuple[Lossy, ...]:
        """What of an allocation is stored less exactly, by its address."""
        return self._by_address.get(where, ())

    def forget(self) -> None:
        """A recording begins: errors are measured from here on."""
        for lossy in self.arrays:
            lossy.measured.forget()

    def described(self, called: Callable[[int], str]) -> tuple[str, ...]:
        """What was stored and the largest errors, a line for each array, for people. `called`: the name of what lies at an address."""
        return tuple(lossy.described(called(lossy.where)) for lossy in self.arrays)

    def refuse_deciding(self, operation: Launched, adjoint: Adjoint) -> None:
        """TapeError for a launch whose adjoint may take another way where a value that it reads is a little off."""
        for (_, position), use in operation.uses.items():
            if not _is_lossy(use):
                continue
            buffer = adjoint.primal.params[position]
            assert isinstance(buffer, Buffer)
            stmt = operation.kernel.facts.get(("decided", adjoint, position), partial(decided_by, adjoint.primal, buffer))
            if stmt is not None:
                raise TapeError(
                    f"`{buffer.name}` of `{operation.name}` is stored less exactly (store=), but its values decide an index, a condition "
                    f"or a whole number ({stmt.span}), which may come out otherwise then: store it as it is. Nothing was launched."
                )

    def refuse_needed(self, operation: Ruled) -> None:
        """TapeError for a rule whose reverse reads what is stored less exactly: what it does with that is not known."""
        for name, use in operation.needs.items():
            if _is_lossy(use):
                raise TapeError(
                    f"`{name}` of {operation.name} ({operation.where}) is stored less exactly (store=), but the reverse of a rule reads "
                    "it, which may compare it: store it as it is, or write the operation as a kernel. Nothing was launched."
                )

    def refuse_unmet(self, allocations: Mapping[int, Allocation]) -> None:
        """TapeError where an array is named that no operation of the program writes, or needs in its adjoint."""
        for lossy in self.arrays:
            a = allocations.get(lossy.where)
            if a is None or not (a.written | a.needed | a.read_bare) & lossy.region:
                raise TapeError(
                    f"store= names an array of shape {tuple(lossy.pair.primal.shape)} that no recorded operation writes, or needs in its "
                    "adjoint: take it out, or name the Duplicated that is passed"
                )

    def refuse_unfit(self, allocations: Mapping[int, Allocation], then: str) -> None:
        """TapeError where numbers were too large for their format. `then`: what that means for shadows."""
        for lossy in self.arrays:
            if lossy.unfit:
                raise TapeError(
                    f"{lossy.unfit} numbers of `{allocations[lossy.where].name}` are too large for {lossy.format.name}, in which store= "
                    f"has them stored, and would be read as infinite: store it in a longer format, or as it is. {then}"
                )


def _is_lossy(use: Use) -> bool:
    return any(lossy.region & use.region for lossy in use.allocation.lossy)
