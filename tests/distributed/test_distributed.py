"""Checks on several ranks (the files `*_checks.py`), a job for each number of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from nightly import NIGHTLY
from ranks import HERE, job, needs_mpi, passes
from snippets import ROOT, blocks

pytestmark = needs_mpi
ON_THREE = (
    "collective:cores,allreduce,reduce,bcast,halos,send_and_receive,extrema_of_equals,gather,scatter,reduce_scatter,requests,communicators,"
    "in_order"
)
ON_TWO = (
    "collective:sendrecv,several,extrema,allgather,alltoall,large_messages,datatypes,views,blocks_of_views,complex_numbers,halves,"
    "order_of_memory",
    "program:heat_on_strips,saved_and_sent,wave_in_double,overlap,memory_of_messages",
)  # waves on strips are tried on three
LIMIT = 1500.0 if NIGHTLY else 240.0  # they take a tenth of it where nothing else runs


def test_two_ranks() -> None:
    chosen = ("collective", "program") if NIGHTLY else ON_TWO
    passes(2, *chosen, "every:on_views,of_complex_numbers,of_halves", "unusual", "failure", "trap", "random", limit=LIMIT)


def test_three_ranks() -> None:
    """`nccl` last: it has a stand-in for CuPy in this process. On a push what depends on the number of ranks is tried on three;
    nightly all on four, too."""
    chosen = ["unusual", "every"] if NIGHTLY else ["every:on_some_ranks", ON_THREE, "program:heat_on_strips,wave_on_strips"]
    passes(3, *chosen, "random", "nccl", limit=LIMIT)


if NIGHTLY:

    def test_four_ranks() -> None:
        passes(4, "collective", "program", "failure", "random", limit=LIMIT)


def test_dask(tmp_path: Path) -> None:
    """The page's program with a scheduler and two workers. Dask's 15 packages are not among what the tests install for this one."""
    # not only `distributed`, which is the name of this folder, too
    pytest.importorskip("distributed.client", reason="dask.distributed is not installed (pip install distributed)")
    (block,) = [b for b in blocks(ROOT / "docs" / "how-to" / "distributed.md") if b.title == "cluster.py"]
    program = tmp_path / "cluster.py"
    program.write_text(block.text)
    done = job(3, str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "loss 225, gradient [ 0.  3. 12. 27. 48. 75.]" in done.stdout, done.stdout + done.stderr


@pytest.mark.gpu
def test_nccl() -> None:
    """The real one, on as many devices as there are, at most two."""
    cupy = pytest.importorskip("cupy")
    passes(min(2, cupy.cuda.runtime.getDeviceCount()), "nccl_on_gpu")


@pytest.mark.nightly
def test_the_demonstration(tmp_path: Path) -> None:
    """One iteration on two ranks; the map is not found yet, which the command says."""
    done = job(2, str(HERE / "demo_in_small.py"), str(tmp_path / "plate.png"))
    assert "runs in one process" in done.stderr, done.stdout + done.stderr
    assert done.stdout.count("misfit") == 1, done.stdout + done.stderr
    assert (tmp_path / "plate.png").stat().st_size > 10_000
