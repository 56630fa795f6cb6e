"""The physics programs of `benchmarks/physics`: what the time loop conserves, its gradient against differences, rows of the table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from launch_tools import running
from nightly import NIGHTLY, share

from benchmarks.measure import Effort
from benchmarks.physics.hydrodynamics import Body, Setting, beginning, recorded, total_energy
from benchmarks.physics.programs import LIKE, QUICK, loop, programs

BLAST = Setting(side=4, steps=10, dt=4e-3, blast=10.0, elsewhere=1.0, strength=0.0)


def after(setting: Setting) -> dict[str, Any]:
    body = Body(setting, beginning(setting))
    body.run()
    return body.arrays


@pytest.mark.nightly
@pytest.mark.cpu
def test_energy_is_conserved_the_better_the_smaller_the_step() -> None:
    """To first order in the step, without the damping of hourglass modes."""
    start = total_energy(beginning(BLAST))
    coarse, fine = (abs(total_energy(after(replace(BLAST, steps=10 * n, dt=4e-3 / n))) - start) for n in (1, 4))
    assert fine < 0.4 * coarse < 1e-3 * start


@pytest.mark.cpu
def test_a_blast_is_the_same_along_all_axes() -> None:
    arrays, n = after(BLAST), BLAST.side
    energy = arrays["energy"].reshape(n, n, n)
    assert np.ptp(energy) > 1
    np.testing.assert_allclose(energy, energy.transpose(1, 2, 0), rtol=1e-10)
    mirrored = arrays["position"].reshape(3, n + 1, n + 1, n + 1)
    assert not mirrored[0, :, :, 0].any() and not mirrored[1, :, 0].any() and not mirrored[2, 0].any()


@pytest.mark.parametrize("executor", share(["host", "reference"], 2))
def test_the_gradient_of_the_time_loop_is_that_of_differences(executor: str) -> None:
    """For the mesh, its motion and its matter at the start; no element is at rest, where cut-offs would be kinks."""
    setting, rng = Setting(side=2, steps=3, elsewhere=1.0, blast=5.0), np.random.default_rng(3)
    start = beginning(setting)
    start["position"] += rng.uniform(-0.05, 0.05, start["position"].shape)
    start["velocity"] += 0.3 * rng.standard_normal(start["velocity"].shape)
    seeds = {name: rng.standard_normal(start[name].shape) for name in ("energy", "position", "velocity", "sound")}
    directions = {name: rng.standard_normal(start[name].shape) * 0.1 for name in ("energy", "position", "velocity", "pressure", "volume")}

    def value(step: float) -> float:
        arrays = {name: a + step * directions[name] if name in directions else a.copy() for name, a in start.items()}
        Body(setting, arrays).run()
        return sum(float(np.vdot(seed, arrays[name])) for name, seed in seeds.items())

    with running(executor):
        tape, body = recorded(setting, start)
        tape.reverse({body.arrays[name]: seed for name, seed in seeds.items()})
        slope = sum(float(np.vdot(body.arrays[name].shadow, direction)) for name, direction in directions.items())
        assert abs((value(1e-5) - value(-1e-5)) / 2e-5 - slope) < 1e-7 * abs(slope)


@pytest.mark.cpu
def test_rows_of_the_table() -> None:
    found = {p.name: p for p in programs(full=False)}
    assert {p.like for p in found.values()} == set(LIKE.values()) and len(found) == 10
    with running("host"):
        stress = found["stress_forces"].measured(Effort(1, 1, 0.0))
        moved = found["move"].measured(Effort(1, 1, 0.0))
        whole = loop(QUICK, Effort(1, 1, 0.0)) if NIGHTLY else None
    assert stress["atomics"] == 24 * stress["sizes"]["elements"] and stress["bytes"] == 0 < stress["overhead"]
    assert moved["atomics"] == 2 and moved["bytes"] > 0  # a sum for each of two blocks
    assert whole is None or (whole["atomics"] == QUICK.steps * QUICK.side**3 * (24 + 48 + 48) and whole["bytes"] > 0)
