"""Kernels of `kernels/` as functions of PyTorch, before its own checkers: gradcheck in both modes, opcheck, gradgradcheck."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; docs/how-to/torch.md has the command for these tests")

from framework_cases import TWENTY, Described, described  # noqa: E402

import gpuad.torch  # noqa: E402


def _function(d: Described, **more: Any) -> Any:
    return gpuad.torch.function(d.kernel, grid=d.grid, block=d.block, shared_mem=d.shared_mem, **more)


def _tensors(d: Described) -> dict[str, Any]:
    made = {n: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for n, x in d.arguments.items()}
    return {n: torch.as_tensor(x, dtype=torch.float64).requires_grad_() if n in d.active else x for n, x in made.items()}


@pytest.mark.parametrize("name", TWENTY)
def test_gradcheck_and_opcheck(name: str) -> None:
    d = described(name)
    f, tensors = _function(d), _tensors(d)
    free = [tensors[n] for n in d.active]

    def call(*values: Any) -> Any:
        return f(*{**tensors, **dict(zip(d.active, values, strict=True))}.values())

    torch.manual_seed(0)
    assert torch.autograd.gradcheck(call, free, fast_mode=True, check_forward_ad=True, atol=1e-5)
    found = torch.library.opcheck(f.operator.forward, f.operator.arguments(tuple(tensors.values())))
    assert set(found.values()) == {"SUCCESS"}, found


@pytest.mark.parametrize("name", ["heat", "wave", "recurrence-logistic_map", "nbody-move", "kepler-eccentric_anomaly"])
def test_second_derivatives(name: str) -> None:
    d = described(name)
    f, tensors = _function(d, twice=True), _tensors(d)
    free = [tensors[n] for n in d.active]

    def call(*values: Any) -> Any:
        return f(*{**tensors, **dict(zip(d.active, values, strict=True))}.values())

    torch.manual_seed(0)
    assert torch.autograd.gradgradcheck(call, free, fast_mode=True, atol=1e-5)


@pytest.mark.parametrize("name", ["heat", "adam", "fdtd-update_e", "red_black"])
def test_in_place_is_the_same(name: str) -> None:
    d = described(name)
    changing, returning = _function(d, overwrites="inplace"), _function(d)
    found = []
    for f in (changing, returning):
        tensors = _tensors(d)
        free = [tensors[n] for n in d.active]
        given = {n: x.clone() if isinstance(x, torch.Tensor) and x.ndim else x for n, x in tensors.items()}
        out = f(*given.values())
        outs = out if isinstance(out, tuple) else (out,)
        torch.manual_seed(0)
        grads = torch.autograd.grad(sum((o * torch.randn_like(o)).sum() for o in outs), free)
        found.append((*outs, *grads))
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)
