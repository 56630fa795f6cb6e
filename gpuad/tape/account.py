"""What a recording took in bytes, and why each was saved.

In: the operations of a recording, its allocations with the pieces saved of them, and names by address. Out: an `Account`, printable, with a
row for each memory, the operation whose adjoint needs it (the last before the overwriting one that reads the piece) and the operation that
overwrites it; bytes and number of pieces are summed. `Stats` has the totals of a tape. Reads records only: no array is touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from ..pages.table import paragraph, table
from .memory.versions import Allocation, Piece
from .record.operations import Operation
from .record.recorded_launch import Launched

FASTER = "none; read in place of more memory"  # of a row's values


@dataclass(frozen=True)
class Stats:
    """Bytes: `saved` copies of overwritten regions; `needed` by adjoints where they still are; `assembled` copied in the reverse to put
    versions together; `retained` allocations kept alive; the `arena`'s size; `scratch` of the reverse kernels; `shadow` arrays.
    `allocations`: new chunks since the last recording began."""

    saved_bytes: int
    needed_bytes: int
    assembled_bytes: int
    retained_bytes: int
    arena_bytes: int
    scratch_bytes: int
    shadow_bytes: int
    allocations: int

    def __str__(self) -> str:
        return "\n".join(f"{name:<12} {number:>16,}{unit}" for name, number, unit in self._rows())

    def _repr_html_(self) -> str:
        return table(("", "", ""), tuple(self._rows()), "what the tape took")

    def _rows(self) -> Iterator[tuple[str, int, str]]:
        for name, number in asdict(self).items():
            yield name.removesuffix("_bytes"), number, " B" if name.endswith("_bytes") else ""


@dataclass(frozen=True)
class Row:
    """`bytes` of the memory last called `name`, or of values of those names, were saved for `needed_by`, because `overwritten_by` wrote
    there next, or, if it is FASTER, because a known program reads fewer bytes so."""

    name: str
    bytes: int
    pieces: int
    needed_by: str
    overwritten_by: str


@dataclass(frozen=True, repr=False)
class Account:
    """Printable; one row for each (memory, needer, overwriter). `budget`: what keeping within one comes to, if there is one; `lossy`:
    what is stored less exactly, with the error, a line for each array; `anew`: why the round was recorded anew, nothing where it was known
    from the one before, or is the first."""

    operations: int
    rows: tuple[Row, ...]
    budget: str = ""
    lossy: tuple[str, ...] = ()
    anew: str = ""

    @property
    def saved_bytes(self) -> int:
        """Bytes of all rows."""
        return sum(r.bytes for r in self.rows)

    def __repr__(self) -> str:
        return f"<account of a {self._head}; print it for its {len(self.rows)} rows>"

    @property
    def _head(self) -> str:
        return f"tape: {self.operations} operations; saved {self.saved_bytes} B in {sum(r.pieces for r in self.rows)} pieces"

    def _repr_html_(self) -> str:
        remarks = [f"recorded anew: {self.anew}"] if self.anew else []
        rows = [(r.name, r.bytes, r.pieces, r.needed_by, r.overwritten_by) for r in self.rows]
        texts = [self._head, *remarks, *([self.budget] if self.budget else []), *self.lossy]
        return "".join(map(paragraph, texts)) + table(("array", "bytes", "pieces", "needed by", "overwritten by"), rows)

    def __str__(self) -> str:
        lines = [f"  {r.name:<12} {r.bytes:>12} B  needed by {r.needed_by}, overwritten by {r.overwritten_by}" for r in self.rows]
        anew = [f"  recorded anew: {self.anew}"] if self.anew else []
        return "\n".join([self._head, *anew, *([f"  {self.budget}"] if self.budget else []), *(f"  {line}" for line in self.lossy), *lines])


def account(
    operations: Sequence[Operation], allocations: Sequence[Allocation], made: Mapping[int, str], names: Mapping[int, str]
) -> Account:
    """Sums the pieces of a recording by the operations that need and that overwrite them. `made`: where arrays were made, `names`: the
    user's, both by address."""
    sums: dict[tuple[str, str, str], list[int]] = {}
    for a in allocations:
        for piece in a.pieces:
            by = operations[piece.time] if piece.time < len(operations) else None
            name = f"(temporary of {made[a.address]})" if a.address in made else names.get(a.address, a.name)
            key = (name, _needer(operations, a, piece), f"{by.name} ({by.where})" if by else "?")
            entry = sums.setdefault(key, [0, 0])
            entry[0] += piece.nbytes
            entry[1] += 1
    for needer in operations:
        if isinstance(needer, Launched) and needer.kept is not None:
            by = operations[needer.kept.overwriter] if needer.kept.overwriter is not None else None
            why = f"{by.name} ({by.where})" if by is not None else FASTER
            entry = sums.setdefault((needer.kept.names, f"{needer.name} ({needer.where})", why), [0, 0])
            entry[0] += needer.kept.nbytes
            entry[1] += 1
    return Account(len(operations), tuple(Row(name, n, k, need, by) for (name, need, by), (n, k) in sums.items()))


def _needer(operations: Sequence[Operation], allocation: Allocation, piece: Piece) -> str:
    """The last operation before the overwriting one whose adjoint reads the piece."""
    for time in range(min(piece.time, len(operations) - 1), -1, -1):
        operation = operations[time]
        uses = (*operation.effects.before, *(operation.effects.after if time < piece.time else ()))
        if any(u.allocation is allocation and u.region & piece.region for u in uses):
            return f"{operation.name} ({operation.where})"
    return "no adjoint (kept to restore, or on request)"
