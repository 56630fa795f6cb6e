"""What PyTorch may hand over: views in place, lazy conjugates and negatives, beside PyTorch's gradients of plain code, or refused."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; docs/how-to/torch.md has the command for these tests")

from test_torch_function import body, function  # noqa: E402

import gpuad  # noqa: E402

CALLS = range(3)  # from the second on a launch is known


def numbers(n: int = 4) -> Any:
    return torch.arange(1.0, n + 1, dtype=torch.float64, requires_grad=True)


def test_a_view_in_place_that_is_not_the_first_argument() -> None:
    f = function(body("const double* x, double* y", "y[i] = x[i] * x[i];"), overwrites="inplace")
    for _ in CALLS:
        x, out = numbers(2), torch.zeros(2, 2, dtype=torch.float64)
        f(x, out[0], 2)
        f(2 * x, out[1], 2)
        out.sum().backward()
        assert torch.equal(x.grad, 10 * x.detach())


@pytest.mark.parametrize("part", [slice(0, 2), slice(2, 4)])
def test_an_array_of_integers_before_a_view_in_place(part: Any) -> None:
    f = function(body("const int* m, double* y", "y[i] = y[i] * m[i];"), overwrites="inplace")
    m = torch.tensor([4, 3], dtype=torch.int32)
    for _ in CALLS:
        own, theirs = numbers(), numbers()
        y, z = own * 1, theirs * 1
        f(m, y[part], 2)
        z[part] *= m
        (y * y).sum().backward()
        (z * z).sum().backward()
        assert torch.equal(own.grad, theirs.grad)


@pytest.mark.parametrize(("overwrites", "twice"), [("return", False), ("return", True), ("inplace", False)])
def test_lazy_seeds(overwrites: str, twice: bool) -> None:
    f = function(body("complex<double>* z", "z[i] = z[i] * z[i];"), overwrites=overwrites, twice=twice)
    w = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex128)
    for made in (lambda y: y.conj(), lambda y: y.conj().imag, lambda y: -y.conj(), lambda y: y.imag):
        for _ in CALLS:
            own, theirs = (torch.tensor([2 - 1j, 1 + 3j], dtype=torch.complex128, requires_grad=True) for _ in range(2))
            (made(f(own * 1, 2)) * w).sum().real.backward()
            (made(theirs * theirs) * w).sum().real.backward()
            assert torch.allclose(own.grad, theirs.grad)


@pytest.mark.parametrize("overwrites", ["return", "inplace"])
@pytest.mark.parametrize("made", [lambda z: z.conj(), lambda z: torch._neg_view(z)])
def test_lazy_inputs_are_refused_on_every_call(made: Any, overwrites: str) -> None:
    f = function(body("complex<double>* z", "z[i] = z[i] * z[i];"), overwrites=overwrites)
    for on in (True, False):
        for _ in CALLS:
            z = torch.tensor([2 - 1j, 1 + 3j], dtype=torch.complex128, requires_grad=on)
            f(z * 1, 2)
            lazy = made(z * 1)
            before = lazy.detach().clone()
            with pytest.raises(gpuad.LaunchError, match="resolve_conj"):
                f(lazy, 2)
            assert torch.equal(lazy, before)
            assert torch.allclose(f(made(z * 1).resolve_conj().resolve_neg(), 2), before * before)


def test_views_that_pytorch_forbids_are_refused_before_anything_is_written() -> None:
    f = function(body("double* x", "x[i] = x[i] * x[i];"), overwrites="inplace")
    y, x = numbers() * 1, numbers()
    before = y.detach().clone()
    with pytest.raises(gpuad.LaunchError, match="forbids to change in place"):
        f(y.split(2)[1], 2)
    with pytest.raises(RuntimeError, match="a view of a leaf"):
        f(x[:2], 2)
    assert torch.equal(y, before) and torch.equal(x, before)


def test_in_place_where_saved_tensors_may_change_is_refused() -> None:
    f = function(body("double* x", "x[i] = x[i] * x[i];"), overwrites="inplace")
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        y = numbers() * 1
        loss = (y * y).sum()
        with pytest.raises(gpuad.LaunchError, match="allow_mutation_on_saved_tensors"):
            f(y, 4)
        loss.backward()
