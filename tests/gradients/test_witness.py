"""Rule 26: launches that gpuad makes in the place of the user's deliver what the plain adjoint does, for every small launch.

A part of the shapes' launches runs always. With GPUAD_NIGHTLY=K all of them do, and K random shapes from the seed GPUAD_SEED on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from nightly import share
from witness_checks import Difference, Oracle, Tally, Ways, by_default, in_all_ways, in_few_ways, witness
from witness_random import cut_down, random_shape
from witness_shapes import Shape, own_words, shapes

from gpuad.runtime.compiler import has_compiler

NIGHTLY, FIRST = (int(os.environ.get(name, "0")) for name in ("GPUAD_NIGHTLY", "GPUAD_SEED"))
LAUNCHES: int | None
WAYS: Ways
LAUNCHES, WAYS = (None, in_all_ways) if NIGHTLY else (3, in_few_ways)
OWN = len(list(own_words()))
CHOSEN = list(shapes().values()) if NIGHTLY else [*share(list(shapes().values())[:OWN], 3), *list(shapes().values())[OWN::15]]
RANDOM = NIGHTLY or 5
BATCH = 10

pytestmark = pytest.mark.skipif(not has_compiler(), reason="the oracle needs a C++ compiler")


def run(chosen: Sequence[Shape], folder: Path, launches: int | None, record: Callable[[str, object], None]) -> list[Difference]:
    """What differs; launches are counted in the report, and only a deterministic pass may be refused."""
    tally = witness(chosen, folder, launches, WAYS)
    record("launches", tally.compared.total())
    record("replaced", tally.replaced)
    print(tally)
    assert not [message for message in tally.refused if ", deterministic on " not in message]
    return tally.differences


@pytest.mark.one_of(2)
@pytest.mark.parametrize("first", range(0, len(CHOSEN), BATCH), ids=lambda k: f"from_{CHOSEN[k].name}")
def test_shapes(first: int, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    found = run(CHOSEN[first : first + BATCH], tmp_path, LAUNCHES, record_property)
    assert not found, "\n".join(map(str, found[:20]))


@pytest.mark.parametrize("first", range(0, RANDOM, BATCH))
def test_random_shapes(first: int, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    chosen = [random_shape(FIRST + k) for k in range(first, min(first + BATCH, RANDOM))]
    found = run(chosen, tmp_path, 12 if NIGHTLY else 4, record_property)
    assert not found, f"{small(found[0], tmp_path)}\n{found[0]}\n{found[0].case.shape.text}"


def small(found: Difference, folder: Path) -> str:
    """What is left of a shape that fails by default."""
    size = found.case.launch

    def fails(shape: Shape) -> bool:
        try:
            return any(
                d.what[:6] == found.what[:6] for d in witness([shape], folder, 12, lambda _: [(found.way, found.executor)]).differences
            )
        except Exception:  # it is no kernel any more
            return False

    return f"cut down from {found.case.shape.name}, {size}:\n{cut_down(found.case.shape, fails).text}"


# --- the witness itself ------------------------------------------------------------------------------------------------------------------


def test_shapes_are_many_and_small() -> None:
    assert len(shapes()) >= 400
    assert sum(len(shape.launches) for shape in shapes().values()) > 50_000
    assert all(launch.threads <= 192 for shape in shapes().values() for launch in shape.launches)


def test_the_oracle_tells_a_planted_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle is given a text that adds twice."""
    shape = Shape("planted", "int t = blockIdx.x * blockDim.x + threadIdx.x; if (t < n) { v[t] = u[t]; }", "line")
    assert not witness([shape], tmp_path, 8, by_default).differences
    entry = Oracle.entry
    monkeypatch.setattr(Oracle, "entry", lambda self, text: entry(self, text).replace("v[t] = u[t]", "v[t] = 2 * u[t]"))
    tally: Tally = witness([shape], tmp_path, 8, by_default)
    assert {d.what for d in tally.differences} == {"state v", "shadow u"}
