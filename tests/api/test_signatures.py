"""What an editor shows of the calls that take a kernel's launch: its parameters by name and type."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_overloads, get_type_hints

import pytest

import gpuad
from gpuad.api import derivatives
from gpuad.arguments.annotations import Duplicated
from gpuad.runtime.array_types import NdArray

LAUNCH = {
    "k": "Any",
    "grid": "Extents",
    "block": "Extents",
    "args": "Sequence[object]",
    "allow_unused": "bool",
    "shared_mem": "int",
    "stream": "Any",
}


@pytest.mark.parametrize(
    ("function", "more"), [(gpuad.autodiff, {"mode": "Mode"}), (gpuad.hvp, {"directions": "Sequence[object]"})], ids=["autodiff", "hvp"]
)
def test_overloads_of_a_launch(function: Callable[..., Any], more: dict[str, str]) -> None:
    launch, any_call = get_overloads(function)
    assert {name: p.annotation for name, p in inspect.signature(launch).parameters.items()} == {**LAUNCH, **more}
    assert [p.kind for p in inspect.signature(any_call).parameters.values()][1] is inspect.Parameter.VAR_POSITIONAL


def test_check_gradient_names_its_launch() -> None:
    parameters = inspect.signature(gpuad.testing.check_gradient).parameters
    assert parameters["grid"].annotation == parameters["block"].annotation == "Extents | None"


def test_a_shadow_is_an_array() -> None:
    assert get_type_hints(Duplicated.shadow.fget)["return"] is NdArray  # type: ignore[attr-defined]
    assert derivatives.Reverse is gpuad.Reverse
