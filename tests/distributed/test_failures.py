"""A rank that fails, is killed or is stuck: an error on the others within the limit, and the job ends. Each has a time limit of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from nightly import NIGHTLY
from ranks import HERE, Job, needs_mpi

pytestmark = needs_mpi
LIMIT = 2.0  # as in alone.py
UNSEEN = ("sh", "-c", '"$@"; sleep 20', "sh")  # what runs the program stays when that has ended


class Alone:
    """A job in which one rank goes its own way."""

    def __init__(self, folder: Path, ranks: int, what: str, within: Sequence[str] = ()) -> None:
        self.folder = folder / f"{what} {len(within)}"
        self.folder.mkdir()
        self._job = Job(ranks, str(HERE / "alone.py"), what, str(self.folder), limit=60, within=within)

    def told(self) -> dict[int, tuple[float, str]]:
        """When it has ended, with an error: what each rank was told, and after how many seconds."""
        done = self._job.done()
        assert done.returncode != 0, done.stdout + done.stderr
        files = {int(file.name): file.read_text().partition(" ") for file in self.folder.iterdir()}
        return {rank: (float(seconds), text) for rank, (seconds, _, text) in files.items()}


def test_a_killed_rank(tmp_path: Path) -> None:
    """MPICH's launcher ends the job at once if it sees that a process was killed; if it does not, the others are told soon."""
    begin, jobs = time.monotonic(), [*([Alone(tmp_path, 3, "killed")] if NIGHTLY else []), Alone(tmp_path, 3, "killed", UNSEEN)]
    for said in [job.told() for job in jobs]:
        assert all("rank 2 is gone: its process" in text and seconds < LIMIT for seconds, text in said.values()), said
    assert set(said) == {0, 1}
    assert time.monotonic() - begin < LIMIT + 15


def test_a_rank_that_does_not_answer(tmp_path: Path) -> None:
    """It sleeps, or does nothing at all."""
    for said in [job.told() for job in [Alone(tmp_path, 3, what) for what in (("stuck", "stopped") if NIGHTLY else ("stopped",))]]:
        assert set(said) == {0, 1}
        assert all(seconds < LIMIT + 8 for seconds, _ in said.values()), said  # of which 8 for a machine with much else to do
        assert any("nothing came from the other ranks for 2 s" in text for _, text in said.values())


@pytest.mark.nightly
def test_a_rank_that_goes_its_own_way(tmp_path: Path) -> None:
    """It raises where no tape records, or makes another call."""
    raises, other = Alone(tmp_path, 3, "raises outside"), Alone(tmp_path, 2, "other length")
    said = raises.told()
    assert set(said) == {0, 1}
    assert all("rank 2 stopped: RuntimeError: no such file" in text and seconds < LIMIT for seconds, text in said.values())
    assert set(other.told()) == {0, 1}
