"""A rank that fails, is killed or is stuck: an error on the others within the limit, and the job ends. Each has a time limit of its own."""

from __future__ import annotations

import re
import time

import pytest
from ranks import HERE, job, needs_mpi, passes

pytestmark = needs_mpi
LIMIT = 3.0  # as in alone.py


@pytest.mark.parametrize("ranks", [2, 4])
def test_what_goes_wrong_on_one_rank(ranks: int) -> None:
    passes(ranks, "failure_checks.py")


def told(out: str) -> dict[int, tuple[float, str]]:
    """What each rank said, and after how many seconds."""
    # the launcher may put what two ranks print at once on one line
    found = re.findall(r"rank (\d+) after ([\d.]+) s: (.*?)(?=rank \d+ after|$)", out, re.MULTILINE)
    return {int(rank): (float(seconds), text) for rank, seconds, text in found}


def test_a_killed_rank() -> None:
    """The launcher ends the job at once if it is let; if not, it ends when the others have waited for the limit, if only since MPICH's own
    processes do not get over the loss."""
    for launch in ((), ("-disable-auto-cleanup",)):
        begin = time.monotonic()
        done = job(3, str(HERE / "alone.py"), "killed", limit=25, launch=launch)
        assert done.returncode != 0
        assert time.monotonic() - begin < LIMIT + 15
        assert all(seconds < LIMIT + 3 for seconds, _ in told(done.stdout).values())


@pytest.mark.parametrize("what", ["stuck", "stopped"])
def test_a_rank_that_does_not_answer(what: str) -> None:
    done = job(3, str(HERE / "alone.py"), what, limit=25)
    said = told(done.stdout)
    assert done.returncode != 0
    assert set(said) == {0, 1}, done.stdout + done.stderr
    assert all(seconds < LIMIT + 3 for seconds, _ in said.values())
    assert any("nothing came from the other ranks for 3 s" in text for _, text in said.values())


def test_a_rank_that_raises_outside_of_a_tape() -> None:
    done = job(3, str(HERE / "alone.py"), "raises outside", limit=25)
    said = told(done.stdout)
    assert done.returncode != 0
    assert set(said) == {0, 1}, done.stdout + done.stderr
    assert all("rank 2 stopped: RuntimeError: no such file" in text and seconds < LIMIT for seconds, text in said.values())


def test_ranks_that_do_other_things() -> None:
    done = job(2, str(HERE / "alone.py"), "other length", limit=25)
    assert done.returncode != 0
    assert set(told(done.stdout)) == {0, 1}, done.stdout + done.stderr
