"""The list of searches with their limits (`benchmarks.searches`): what it names is there, its limits are those of the code, and the
generator of launches gives the same ones in every run."""

from __future__ import annotations

import pytest
from compared import newest_of

from benchmarks import made_up
from benchmarks.searches import KINDS, SEARCHES, WHOLE, Search, largest, limit, measured, owner, table
from gpuad.affine import relations


@pytest.mark.parametrize("search", SEARCHES, ids=lambda s: s.question)
def test_a_search_is_where_the_list_says(search: Search) -> None:
    assert limit(search)
    where, name = owner(search.place)
    assert callable(getattr(where, name))


def test_the_record_has_times_of_all_searches() -> None:
    record = newest_of("searches")
    assert record is not None
    timed = {row["question"]: row for row in record["rows"]}
    assert {s.question for s in SEARCHES} <= set(timed)
    most = {kind: max(timed[name][kind][0] for name in WHOLE) for kind in KINDS}
    assert all(0 <= timed[s.question][kind][0] <= most[kind] for s in SEARCHES for kind in KINDS)
    assert f"{relations.STEPS:,} steps" in table(record["rows"])


def test_launches_are_the_same_in_every_run() -> None:
    launches = made_up.launches(200)
    assert len(launches) == len({m.name for m in launches}) == 200
    assert [m.text for m in launches[3:40]] == [m.text for m in made_up.launches(40)[3:]]
    assert {made_up.made_up(seed).name.split()[0] for seed in range(7)} == {"gather", "stencil", "scatter", "pairs", "terms", "in_place"}


def test_what_a_launch_spends_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    small = made_up.MadeUp("a stencil", made_up._kernel("int q = threadIdx.x; if (q > 0) out[q] = a[q - 1] * a[q];"), 1, 32, 32)
    monkeypatch.setattr(made_up, "launches", lambda count: [small])
    before = {s.question: dict(s.spent) for s in SEARCHES}
    whole = measured(["no case has this in its name"], 1)
    assert list(whole) == ["made up: a stencil", "made up: program 0"]
    spent = {s.place: s.spent["made up: a stencil"] - before[s.question].get("made up: a stencil", 0.0) for s in SEARCHES if s.place
             and "made up: a stencil" in s.spent}  # fmt: skip
    assert {"affine.certificate.refused", "affine.certificate.meeting", "accumulate.gather.gather", "codegen.folded.fold"} <= set(spent)
    assert all(0 <= seconds <= whole["made up: a stencil"] for seconds in spent.values())
    assert largest({"made up: x": 0.5, "made up: y": 0.25, "kernels: z": 1.0}, "made up") == (500.0, "x")
