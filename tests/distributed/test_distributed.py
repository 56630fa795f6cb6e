"""Jobs of several ranks, each with many checks (the files `*_checks.py`)."""

from __future__ import annotations

import pytest
from ranks import needs_mpi, passes

pytestmark = needs_mpi
ON_FOUR = [
    "allreduce", "reduce", "bcast", "halos", "send_and_receive", "extrema_of_equals", "allgather", "gather", "scatter", "reduce_scatter",
    "alltoall", "requests", "communicators", "in_order",
]  # fmt: skip


def test_collectives_on_two_ranks() -> None:
    passes(2, "collective_checks.py")


def test_collectives_on_four_ranks() -> None:
    passes(4, "collective_checks.py", *ON_FOUR)


@pytest.mark.parametrize("ranks", [2, 4])
def test_programs(ranks: int) -> None:
    passes(ranks, "program_checks.py")
