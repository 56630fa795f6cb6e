"""PyTorch's tensors given to the core: on their memory, or refused where that is not all that they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; docs/how-to/torch.md has the command for these tests")

import gpuad  # noqa: E402

SQUARE = gpuad.kernel('extern "C" __global__ void k(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] = x[i] * x[i]; }', "k")


def on_a_tape(x: Any) -> None:
    with gpuad.Tape():
        SQUARE[1, 32](gpuad.Duplicated(x), 3)


WAYS: dict[str, Callable[[Any], None]] = {
    "launch": lambda x: SQUARE(1, 32, (x, 3)),
    "autodiff": lambda x: gpuad.autodiff(SQUARE, 1, 32, (gpuad.Duplicated(x, torch.ones(3)), 3)),
    "shadow": lambda x: gpuad.autodiff(SQUARE, 1, 32, (gpuad.Duplicated(torch.ones(3), x), 3)),
    "tape": on_a_tape,
}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_graph_would_not_see_is_refused(way: str) -> None:
    leaf = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for x in (leaf, leaf * 1, torch._neg_view(torch.ones(3)), torch.ones(3, dtype=torch.complex64).conj().imag):
        before = x.detach().clone()
        for _ in range(2):
            with pytest.raises(gpuad.GpuadError, match=r"x\.detach\(\)|resolve_neg"):
                WAYS[way](x)
        assert torch.equal(x.detach(), before)
    WAYS[way](leaf.detach())
    with torch.no_grad():
        WAYS[way](leaf)
