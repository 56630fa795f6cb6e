"""A rank that fails, is killed or is stuck: an error on the others within the limit, and the job ends. Each has a time limit of its own."""

from __future__ import annotations

import re
import time

from ranks import HERE, Job, needs_mpi

pytestmark = needs_mpi
LIMIT = 2.0  # as in alone.py


def alone(ranks: int, what: str, *launch: str) -> Job:
    """A job in which one rank goes its own way."""
    return Job(ranks, str(HERE / "alone.py"), what, limit=25, launch=launch)


def told(out: str) -> dict[int, tuple[float, str]]:
    """What each rank said, and after how many seconds."""
    # the launcher may put what two ranks print at once on one line
    found = re.findall(r"rank (\d+) after ([\d.]+) s: (.*?)(?=rank \d+ after|$)", out, re.MULTILINE)
    return {int(rank): (float(seconds), text) for rank, seconds, text in found}


def test_a_killed_rank() -> None:
    """The launcher ends the job at once if it is let; if not, it ends when the others have waited for the limit, if only since MPICH's own
    processes do not get over the loss."""
    begin = time.monotonic()
    for job in [alone(3, "killed"), alone(3, "killed", "-disable-auto-cleanup")]:
        done = job.done()
        assert done.returncode != 0
        assert time.monotonic() - begin < LIMIT + 15
        assert all(seconds < LIMIT + 3 for seconds, _ in told(done.stdout).values())


def test_a_rank_that_does_not_answer() -> None:
    """It sleeps, or does nothing at all."""
    for job in [alone(3, "stuck"), alone(3, "stopped")]:
        done = job.done()
        said = told(done.stdout)
        assert done.returncode != 0
        assert set(said) == {0, 1}, done.stdout + done.stderr
        assert all(seconds < LIMIT + 3 for seconds, _ in said.values())
        assert any("nothing came from the other ranks for 2 s" in text for _, text in said.values())


def test_a_rank_that_goes_its_own_way() -> None:
    """It raises where no tape records, or makes another call."""
    raises, other = alone(3, "raises outside"), alone(2, "other length")
    done = raises.done()
    said = told(done.stdout)
    assert done.returncode != 0
    assert set(said) == {0, 1}, done.stdout + done.stderr
    assert all("rank 2 stopped: RuntimeError: no such file" in text and seconds < LIMIT for seconds, text in said.values())
    done = other.done()
    assert done.returncode != 0
    assert set(told(done.stdout)) == {0, 1}, done.stdout + done.stderr
