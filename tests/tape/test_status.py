"""The state of a tape: a status, and a reason that decides nothing, whatever its words are."""

from __future__ import annotations

import numpy as np
import pytest
from tape_tools import launch, pair

import gpuad
from gpuad import TapeError
from gpuad.tape.facade import recording_of
from gpuad.tape.status import EMPTY, RECORDED, RECORDING, REVERSED, USED_UP, State, Status, interrupted, interrupted_by


def test_states_in_words() -> None:
    assert str(REVERSED) == "reversed already; record the program again"
    assert str(interrupted("a, b")) == "interrupted: a, b"
    assert str(interrupted(when="at the end of the recording")) == "interrupted at the end of the recording"
    assert str(interrupted_by(KeyError("x"), "at operation 3 (k)")) == "interrupted at operation 3 (k) by KeyError: 'x'"
    assert str(interrupted_by(ValueError("x"))) == "interrupted by ValueError: x"


def test_what_can_be_asked_of_each_status() -> None:
    complete = {Status.RECORDED, Status.REVERSED, Status.USED_UP, Status.REFUSED, Status.UNDEFINED}
    for status in Status:
        assert State(status).is_complete is (status in complete)
        assert State(status).is_described is (status in (Status.RECORDED, Status.REVERSED))


def test_a_program_goes_through_its_states() -> None:
    x, tape = pair(np.ones(8)), gpuad.Tape()
    assert recording_of(tape).state == EMPTY
    with tape:
        assert recording_of(tape).state == RECORDING
        launch("square", x)
    assert recording_of(tape).state == RECORDED
    tape.reverse({x: 1.0})
    assert recording_of(tape).state == REVERSED
    tape.graph({x: 1.0}).launch()
    assert recording_of(tape).state == USED_UP


@pytest.mark.parametrize("words", ["try again, later", "interrupted: no", "recorded"])
def test_the_words_of_an_error_decide_nothing(words: str) -> None:
    """Each message says what is needed, also where the error's own words have 'again' in them."""
    x, tape = pair(np.ones(8)), gpuad.Tape()
    with pytest.raises(ValueError, match=words), tape:
        launch("square", x)
        raise ValueError(words)
    with pytest.raises(TapeError, match=f"the tape is interrupted by ValueError: {words}; this needs one that is recorded"):
        tape.reverse({x: 1.0})
    with pytest.raises(TapeError, match=f"the tape is interrupted by ValueError: {words}"):
        tape.plan()


def test_a_recording_that_others_have_changed_is_not_complete() -> None:
    """The text of that error does not begin with the word 'interrupted'."""
    x = pair(np.ones(8))
    behind = x.primal[:]
    behind.flags.writeable = True
    tape = gpuad.Tape(check="exact")
    with pytest.raises(TapeError, match="was changed between"), tape:
        launch("square", x)
        behind[0] = 3.0
    with pytest.raises(TapeError, match="recorded to its end; the tape is interrupted: `x` was changed"):
        tape.plan()
