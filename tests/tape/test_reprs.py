"""What shells and notebooks show of tapes, their accounts and profiles: a line, and a table or a page."""

from __future__ import annotations

import numpy as np
import pytest

import gpuad

SQUARE = 'extern "C" __global__ void square(double* x, int n) { int i = threadIdx.x; if (i < n) x[i] = x[i] * x[i]; }'


@pytest.fixture
def pair() -> gpuad.Duplicated:
    return gpuad.Duplicated(np.full(8, 0.5), np.zeros(8))


def recorded(pair: gpuad.Duplicated) -> gpuad.Tape:
    square, tape = gpuad.kernel(SQUARE, "square"), gpuad.Tape()
    with tape:
        square[1, 8](pair, 8)
        square[1, 8](pair, 8)
    return tape


def test_a_tape_says_what_it_holds(pair: gpuad.Duplicated) -> None:
    assert repr(gpuad.Tape()) == "<tape: 0 operations, empty>"
    assert gpuad.Tape()._repr_html_() == "<p>tape: 0 operations, empty</p>"
    tape = recorded(pair)
    assert repr(tape) == "<tape: 2 operations, recorded>"
    assert '<td style="text-align:left">pair</td><td style="text-align:right">64</td>' in tape._repr_html_()
    tape.reverse({pair: 1.0})
    assert repr(tape) == "<tape: 2 operations, reversed already; record the program again>"
    with tape:
        inside = repr(tape)
        gpuad.kernel(SQUARE, "square")[1, 8](pair, 8)
    assert inside.endswith("recording>")


def test_accounts_and_totals(pair: gpuad.Duplicated) -> None:
    tape = recorded(pair)
    account = tape.explain()
    assert repr(account) == f"<account of a {str(account).splitlines()[0]}; print it for its {len(account.rows)} rows>"
    assert account._repr_html_().count("<tr>") == 1 + len(account.rows)
    assert str(tape.stats).splitlines()[0].split() == ["saved", "128", "B"]
    assert "Stats(saved_bytes=128" in repr(tape.stats)
    assert '<td style="text-align:left">saved</td><td style="text-align:right">128</td>' in tape.stats._repr_html_()


def test_profiles(pair: gpuad.Duplicated) -> None:
    with gpuad.profile() as profile:
        going_on = repr(profile)
        recorded(pair).reverse({pair: 1.0})
    assert going_on == "<profile that is going on>"
    assert repr(profile).startswith("<profile of 1 recording: the tapes added ")
    assert profile._repr_html_().startswith("<iframe srcdoc=") and "<script" not in profile._repr_html_()
