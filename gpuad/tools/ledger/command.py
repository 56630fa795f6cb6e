"""`gpuad ledger`: writes the ledger of a repository, or compares the kernels with it, for people and for runners.

Exit status: 0 if nothing became worse (or all was written), 1 if something did or a launch is not in the ledger, 2 if there was nothing
to compare: no ledger, a damaged one, no launches, settings or a description that cannot be read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import GpuadError
from ...runtime import nvrtc
from .. import runner
from ..examples import Example, of_folders
from ..settings import Settings, settings
from . import Change, Ledger, Outcome, check, memory_table, read, take, written

HEADS = ("launch", "saved, B a thread", "deepest stack", "registers")


@dataclass(frozen=True)
class Wanted:
    """What was asked for: files for runners, and other paths and another ledger than the settings have."""

    paths: Sequence[Path] = ()
    ledger: Path | None = None
    sarif: str | None = None
    code_quality: str | None = None


def update(wanted: Wanted) -> int:
    """Writes the ledger."""
    return _guarded(wanted, _update)


def compare_with(wanted: Wanted) -> int:
    """Compares with the ledger."""
    return _guarded(wanted, _check)


def _guarded(wanted: Wanted, run: Callable[[Settings, Wanted, Sequence[Example]], int]) -> int:
    try:
        own = settings(Path.cwd())
        if wanted.paths:
            own = replace(own, kernels=tuple(str(path.resolve()) for path in wanted.paths))
        if not own.kernels:
            raise GpuadError('error: no kernels: name files or folders, or write `kernels = ["..."]` under [tool.gpuad] in pyproject.toml')
        if missing := [path for path in own.paths if not path.exists()]:
            raise GpuadError(f"{missing[0]}: error: there is no such file or folder")
        examples = of_folders(own.paths, own.root)
        if not examples:
            where = ", ".join(map(str, own.paths))
            raise GpuadError(f"{where}: error: no `.cu` file with a `[[case]]` comment and no Python file with `example()` is there")
        return run(own, wanted, examples)
    except (GpuadError, OSError) as error:
        print(error if isinstance(error, GpuadError) else f"{error.filename}: error: {error.strerror}", file=sys.stderr)
        return 2


def _path(own: Settings, wanted: Wanted) -> Path:
    return wanted.ledger or own.root / own.ledger


def _update(own: Settings, wanted: Wanted, examples: Sequence[Example]) -> int:
    path = _path(own, wanted)
    old = read(path) if path.is_file() and _readable(path) else Ledger()
    ledger = take(examples, own.architectures, old)
    path.write_text(written(ledger), encoding="utf-8", newline="\n")
    print(f"{path}: {len(ledger.entries)} launches")
    if not ledger.nvrtc:
        print("without NVRTC: registers, spills and shared memory are left out (pip install nvidia-cuda-nvrtc)")
    return 0


def _readable(path: Path) -> bool:
    try:
        read(path)
    except GpuadError:  # as after a merge with conflicts
        return False
    return True


def _check(own: Settings, wanted: Wanted, examples: Sequence[Example]) -> int:
    outcome = check(_path(own, wanted), examples, own.architectures)
    findings = outcome.findings({example.id: example.span for example in examples})
    for finding in findings:
        print(finding)
        if runner.on_github():
            print(runner.annotation(finding))
    better = [change for change in outcome.changes if change.direction == "better"]
    others = [change for change in outcome.changes if change.direction == "same"]
    for word, changes in (("better", better), ("changed", others)):
        for change in changes:
            print(f"{_where(change)}: {word}: {change}")
    for note in outcome.notes:
        print(f"note: {note}")
    print(_verdict(outcome, better, others))
    mentioned = [f"{word}: {change}" for word, group in (("better", better), ("changed", others)) for change in group]
    page = runner.summary("gpuad ledger", findings, [*mentioned, *outcome.notes], memory_table(outcome.ledger.entries), HEADS)
    runner.write_all(findings, sarif_file=wanted.sarif, quality_file=wanted.code_quality, markdown=page)
    return 1 if findings else 0


def _where(change: Change) -> str:
    return change.name.rpartition("::")[0]


def _verdict(outcome: Outcome, better: Sequence[Change], others: Sequence[Change]) -> str:
    count = len(outcome.ledger.entries)
    if outcome.worse:
        return f"{len(outcome.worse)} worse of {count} launches. If this is meant: `gpuad ledger --update`, and say why in the change."
    if better or others:
        return f"{count} launches, none worse. The ledger is behind: `gpuad ledger --update` takes what is better."
    compiler = f", compiled by NVRTC {nvrtc.version()}" if nvrtc.available() else ""
    return f"{count} launches as the ledger says{compiler}."
