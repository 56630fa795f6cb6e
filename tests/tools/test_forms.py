"""What a gradient costs hangs on what a kernel computes: the wordings of `benchmarks/forms`, by counts, at small sizes."""

from __future__ import annotations

import numpy as np
import pytest
from launch_tools import running
from nightly import NIGHTLY, share

from benchmarks.forms.__main__ import measured
from benchmarks.forms.operations import OPERATIONS, arranged, atomic_statements, wordings
from benchmarks.measure import Effort
from gpuad.ir.nodes import Pop
from gpuad.ir.rewrite import walk_stmts

# wordings that add atomically where the adjoint by hand does not; what is mended is taken out
ATOMIC = {("window", "from_to"), ("rotary", "a_row_a_block"), ("rotary", "strided")}
# those that keep a stack: products that are left early, states, which the one by hand has in a local array, and what is kept in a loop
# over the grid
STACKS = {
    *(("transmittance", wording) for wording in wordings("transmittance")),
    *(("states", wording) for wording in wordings("states")),
    ("recurrence", "over_the_grid"),
    ("recurrence", "until_returned"),
}


def test_ten_operations_have_six_wordings_and_more() -> None:
    assert len(OPERATIONS) == 10 and all(len(wordings(operation)) >= 6 for operation in OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_all_wordings_have_the_atomics_of_the_one_by_hand(operation: str) -> None:
    for wording in share(wordings(operation), 3):
        made = arranged(operation, wording)
        found = atomic_statements([stage.kernel for stage in made.workload.stages])
        by_hand = atomic_statements([launch.kernel for launch in made.by_hand])
        assert (found > by_hand) == ((operation, wording) in ATOMIC), (operation, wording, found, by_hand)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_which_keep_a_stack(operation: str) -> None:
    for wording in share(wordings(operation), 3):
        body = arranged(operation, wording).workload.adjoint.unlaid
        assert any(isinstance(s, Pop) for s in walk_stmts(body)) == ((operation, wording) in STACKS), (operation, wording)


@pytest.mark.cpu
@pytest.mark.parametrize("operation", share(list(OPERATIONS), 5))
def test_the_gradients_are_those_by_hand(operation: str) -> None:
    with running("host"):
        for wording in wordings(operation)[: None if NIGHTLY else 1]:
            ours, theirs = arranged(operation, wording).gradients()["x"]
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


@pytest.mark.cpu
def test_a_row_of_the_table() -> None:
    with running("host"):
        row = measured("box", "by_if", Effort(1, 1, 1.0), full=False)
    assert row["gpuad_atomics"] == row["by_hand_atomics"] == 70 and row["gpuad_bytes"] == 0 and row["ratio"] > 0
