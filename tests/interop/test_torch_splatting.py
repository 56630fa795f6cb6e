"""A layer of softmax splatting, trained from its forward kernel alone, beside one with a backward kernel by hand."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; docs/how-to/torch.md has the command for these tests")

from benchmarks.splatting import by_gpuad, by_hand, gradients, held, train  # noqa: E402


def test_the_gradient_is_that_of_the_kernel_by_hand() -> None:
    for ours, theirs in zip(gradients(by_gpuad, 14, 17), gradients(by_hand, 14, 17), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_it_is_trained() -> None:
    losses, flow, _ = train(by_gpuad, 24, 32, 40)
    assert losses[-1] < 0.5 * losses[0]
    assert torch.allclose(flow, train(by_hand, 24, 32, 40)[1], atol=2e-2)


def test_nothing_is_kept_but_inputs() -> None:
    assert held(by_gpuad, 14, 17) == held(by_hand, 14, 17) == 0
