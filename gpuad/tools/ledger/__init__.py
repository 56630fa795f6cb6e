"""The ledger: what reviewers should know of each launch's adjoint, in a file of the repository, and what changed since.

`entries` derives the facts of a launch, `saved` its bytes, `text` is the file, `compare` says what became worse or better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...runtime import nvrtc
from ...source import Span
from ..examples import Example
from ..findings import Finding
from .compare import Change, compare
from .entries import Entry, Needs, entry_of
from .text import Ledger, read, written

__all__ = ["Change", "Entry", "Ledger", "Needs", "Outcome", "check", "compare", "entry_of", "read", "take", "written"]

UPDATE = "`gpuad ledger --update` writes it in, for review"


@dataclass(frozen=True)
class Outcome:
    """What a check found: all changes, the ledger as it would be, and what could not be compared."""

    changes: Sequence[Change]
    ledger: Ledger
    notes: Sequence[str] = ()

    @property
    def worse(self) -> list[Change]:
        """What fails the check."""
        return [c for c in self.changes if c.direction == "worse"]

    def findings(self, spans: Mapping[str, Span]) -> list[Finding]:
        """What became worse, with places; `spans`: where each example is described."""
        return [finding_of(change, spans.get(change.name)) for change in self.worse]


def take(examples: Sequence[Example], architectures: Sequence[str], known: Ledger | None = None) -> Ledger:
    """The ledger of the examples as they are. `known`: another one, whose figures for the same texts from the same compiler are taken.
    Raises GpuadError where a description cannot be read or does not fit."""
    release = nvrtc.version() or ""
    compiled = known.compiled(release) if known is not None else {}
    entries = {example.id: entry_of(example, architectures, compiled) for example in examples}
    return Ledger({name: entry for name, entry in entries.items() if entry is not None}, release)


def check(path: Path, examples: Sequence[Example], architectures: Sequence[str]) -> Outcome:
    """Compares the examples with the ledger of a file. Raises GpuadError if that cannot be read, or a description."""
    old = read(path)
    new = take(examples, architectures, old)
    notes = []
    if old.nvrtc != new.nvrtc:
        here = f"NVRTC {new.nvrtc}" if new.nvrtc else "no NVRTC"
        notes.append(f"the ledger was written with NVRTC {old.nvrtc or '(none)'}, here is {here}: what kernels need is not compared")
    return Outcome(compare(old.entries, new.entries, old.nvrtc == new.nvrtc), new, notes)


def finding_of(change: Change, described: Span | None = None) -> Finding:
    """A change as what goes to readers and runners; `described`: a place for changes that have none in the file."""
    file = change.name.rpartition("::")[0]
    found = change.place.span if change.place is not None else None
    span = found if found is not None and found.file.name == file else described
    return Finding(
        "unsupported" if "-> refused" in change.what else "ledger",
        str(change),
        file,
        span.line if span is not None else 1,
        span.column if span is not None else 1,
        level="error" if change.direction == "worse" else "note",
        subject=change.name,
        advice=f"Mend the kernel, or, if this is meant: {UPDATE}.",
        excerpt=span.caret() if span is not None else "",
    )


def memory_table(entries: Mapping[str, Entry]) -> list[tuple[str, str, str, str]]:
    """For each launch what it saves a thread, its deepest stack, and registers on each architecture."""
    rows = []
    for name, entry in sorted(entries.items()):
        if entry.refused:
            continue
        most = {a: max((n.registers for n in kernels.values()), default=0) for a, kernels in entry.needs.items()}
        registers = ", ".join(f"{a}: {n}" for a, n in sorted(most.items()))
        rows.append((name, f"{entry.saved:g}", "?" if entry.depth is None else str(entry.depth), registers))
    return rows
