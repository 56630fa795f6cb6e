"""Jobs of several ranks, each with many checks (the files `*_checks.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from nightly import NIGHTLY, cases
from ranks import job, needs_mpi, passes

pytestmark = needs_mpi
ON_FOUR = [
    "allreduce", "reduce", "bcast", "halos", "send_and_receive", "extrema_of_equals", "gather", "scatter", "reduce_scatter", "requests",
    "communicators",
]  # fmt: skip


def test_collectives_on_two_ranks() -> None:
    passes(2, "collective_checks.py")


def test_collectives_on_four_ranks() -> None:
    passes(4, "collective_checks.py", *([] if NIGHTLY else ON_FOUR))


@pytest.mark.parametrize("ranks", [2, 4])
def test_programs(ranks: int) -> None:
    passes(ranks, "program_checks.py")


def test_nccl_stand_in() -> None:
    passes(3, "nccl_checks.py")


@pytest.mark.gpu
def test_nccl() -> None:
    """The real one, on as many devices as there are, at most two."""
    cupy = pytest.importorskip("cupy")
    passes(min(2, cupy.cuda.runtime.getDeviceCount()), "nccl_on_gpu.py")


def test_gradients_that_others_got_wrong() -> None:
    passes(2, "trap_checks.py")


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_random_programs(ranks: int) -> None:
    """200 in the nightly set."""
    passes(ranks, "random_checks.py", "0", str(cases(3, 67)), limit=1500 if NIGHTLY else 90)


def test_the_demonstration(tmp_path: Path) -> None:
    """One iteration on two ranks; the map is not found yet, which the command says."""
    done = job(2, "-m", "gpuad", "demo", "--program", "wave", "--iterations", "1", "-o", str(tmp_path / "plate.png"))
    assert done.stdout.count("misfit") == 1, done.stdout + done.stderr
    assert (tmp_path / "plate.png").stat().st_size > 10_000
    refused = job(2, "-m", "gpuad", "demo", "--program", "gray-scott", "-o", str(tmp_path / "seeds.png"))
    assert refused.returncode == 1
    assert "runs in one process" in refused.stderr
