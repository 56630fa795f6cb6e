"""Options of a compilation that CuPy overrides."""

from __future__ import annotations

import warnings

import pytest

import gpuad

TEXT = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] *= 2.0f; }'


@pytest.mark.parametrize("option", ["--ftz=false", "-ftz=false", " --ftz=false "])
def test_an_option_without_effect_is_warned_of(option: str) -> None:
    with pytest.warns(UserWarning, match="has no effect: CuPy appends -ftz=true"):
        gpuad.kernel(TEXT, "k", options=("-std=c++17", option))


@pytest.mark.parametrize("options", [(), ("--ftz=true",), ("-DFTZ=false",)])
def test_other_options_are_not_warned_of(options: tuple[str, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gpuad.kernel(TEXT, "k", options=options)
