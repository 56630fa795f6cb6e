"""Kernels that were written to break gpuad, grouped by the rule that they attack (`attacks.cu`).

Each gradient is compared with differences of the user's own text (`attack_oracle.py`), with the recording analysis on and off, and in
forward mode.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attack_cases import CASES, Case
from attack_oracle import Oracle, vectors

import gpuad
from gpuad import Active, Duplicated, launching
from gpuad.executors.host import Host
from gpuad.executors.reference import Reference

TOLERANCE = 2e-6


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("attacks")


def _marked(case: Case) -> Any:
    failing = [pytest.mark.xfail(strict=True, reason=case.fails)] if case.fails else []
    return pytest.param(case, id=f"{case.rule}-{case.name.replace(' ', '_')}", marks=failing)


RIGHT = [_marked(c) for c in CASES if not c.refused]
REFUSED = [_marked(c) for c in CASES if c.refused]


def _pairs(case: Case, roots: dict[str, Any], shadows: dict[str, Any]) -> dict[str, Any]:
    def pair(name: str) -> Any:
        root = roots[name]
        if name not in shadows:
            return root
        return Active(root, shadows[name]) if isinstance(root, float) else Duplicated(root, shadows[name])

    return {name: pair(name) for name in roots}


@contextlib.contextmanager
def _configured(way: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(launching.executor_for_tests(Host() if way == "host" else Reference()))
        if way == "recorded":
            stack.enter_context(launching.everything_recorded_for_tests())
        yield


def _reverse(case: Case, seeds: dict[str, Any], way: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """State and shadows after forward and reverse."""
    roots = case.state()
    shadows = {name: np.array(seeds[name]) for name in seeds}
    with _configured(way):
        gpuad.autodiff(case.kernel, *case.geometry, case.arguments(_pairs(case, roots, shadows)))
    return roots, shadows


def _check(case: Case, oracle: Oracle, way: str) -> None:
    seeds = vectors(case, 0, case.active)
    roots, shadows = _reverse(case, seeds, way)
    after = oracle.after({}, 0.0)
    for name, root in roots.items():
        np.testing.assert_allclose(root, after[name], rtol=1e-12, atol=1e-12, err_msg=f"{name} after the launch")
    memory = {n: w for n, w in seeds.items() if not isinstance(roots[n], float)}
    for number in (1, 2):
        move = vectors(case, number, case.active)
        held = sum(float(seeds[n] * move[n]) for n in seeds if n not in memory)  # an Active's shadow is added to
        want = oracle.derivative(move, memory) + held
        got = float(sum(np.sum(shadows[n] * move[n]) for n in seeds))
        assert abs(got - want) <= TOLERANCE * (1 + abs(want)), f"<dz, v> is {got}, differences say {want}"


@pytest.mark.parametrize("case", RIGHT)
def test_gradient_is_right(case: Case, folder: Path) -> None:
    for way in ("analysed", "recorded"):
        _check(case, Oracle(case, folder), way)


@pytest.mark.parametrize("case", [_marked(c) for c in CASES if "host" in c.flags])
def test_gradient_is_right_on_the_host(case: Case, folder: Path) -> None:
    _check(case, Oracle(case, folder), "host")


@pytest.mark.parametrize("case", [_marked(c) for c in CASES if not c.refused and "only_reverse" not in c.flags])
def test_tangent_is_right(case: Case, folder: Path) -> None:
    roots, tangents = case.state(), vectors(case, 1, case.active)
    seeds = {n: w for n, w in vectors(case, 0, case.active).items() if not isinstance(roots[n], float)}
    want = Oracle(case, folder).derivative(tangents, seeds)
    held = {n: np.array(t) for n, t in tangents.items()}
    with _configured("analysed"):
        gpuad.autodiff(case.kernel, *case.geometry, case.arguments(_pairs(case, roots, held)), mode=gpuad.Forward)
    got = float(sum(np.sum(w * held[n]) for n, w in seeds.items()))
    assert abs(got - want) <= TOLERANCE * (1 + abs(want))


@pytest.mark.parametrize("way", ["analysed", "host"])
@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: Case, way: str) -> None:
    assert case.refused is not None
    roots = case.state()
    before = case.state()
    shadows = {name: np.ones(np.shape(roots[name])) for name in case.active}
    with _configured(way), pytest.raises(case.refused, match=case.match):
        gpuad.autodiff(case.kernel, *case.geometry, case.arguments(_pairs(case, roots, shadows)))
    for name, root in roots.items():
        np.testing.assert_array_equal(root, before[name], err_msg="something was launched")
