"""A name that is nearly one that there is: the message asks for it. One that is like none gets no question."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import gpuad

TEXT = 'extern "C" __global__ void smooth(float* field, int n) { if (threadIdx.x < n) field[threadIdx.x] *= 2; }'
ASKED: dict[str, tuple[Callable[[], object], str]] = {
    "name": (lambda: gpuad.autodif, "autodiff"),  # type: ignore[attr-defined]
    "operation": (lambda: gpuad.ops.matmull, "matmul"),
    "kernel": (lambda: gpuad.kernel(TEXT, "smoth"), "smooth"),
    "parameter": (lambda: gpuad.kernel(TEXT, "smooth").adjoint(feild=gpuad.Duplicated), "field"),
    "keyword": (lambda: gpuad.Tape(budgt=3), "budget"),  # type: ignore[call-overload]
}


@pytest.mark.parametrize("what", ASKED)
def test_the_message_asks_for_the_name_that_is_near(what: str) -> None:
    call, near = ASKED[what]
    with pytest.raises((gpuad.GpuadError, AttributeError), match=rf"Did you mean .*`{near}`"):
        call()


def test_nothing_is_asked_where_nothing_is_near() -> None:
    with pytest.raises(gpuad.GpuadError) as caught:
        gpuad.kernel(TEXT, "quadrature")
    assert "Did you mean" not in str(caught.value)
    with pytest.raises(gpuad.GpuadError) as caught:
        gpuad.kernel(TEXT, "smooth")[1, 32](np.zeros(3, np.float32), 3, colour=3)
    assert "Did you mean" not in str(caught.value)
