"""The examples at the size at which the tests run them: what their problem is made with, and how many rounds of an optimiser."""

from __future__ import annotations

from typing import Any

import numpy as np

SIZES: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {  # by name: sizes, the places of what is sought, rounds
    "plasma": ((24, 8, 3), (0,), 4),
    "ptychography": ((9, 5, 2), (0, 1), 5),
    "renderer": ((7,), (0, 1, 2), 3),
    "shallow_water": ((16, 2, 3), (0, 1), 4),
    "spiking": ((6, 9), (0, 1), 3),
    "tomography": ((7, 4), (0,), 4),
    "topology": ((3, 5), (0,), 5),
    "waveform": ((12, 12, 1), (0,), 3),
}


def small(module: Any, name: str, rng: Any) -> tuple[list[Any], tuple[int, ...]]:
    """What an example's loss is called with, a little away from where it begins, and the places of what is sought."""
    sizes, active, _ = SIZES[name]
    given = list(module.problem(*sizes))
    for k in active:
        noise = rng.normal(0, 0.05, given[k].shape)
        given[k] = given[k] * np.exp(1j * noise) if given[k].dtype.kind == "c" else given[k] + noise
    return given, active
