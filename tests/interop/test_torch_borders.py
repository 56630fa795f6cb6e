"""What PyTorch may hand over: views in place, lazy conjugates and negatives, beside PyTorch's gradients of plain code, or refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; docs/how-to/torch.md has the command for these tests")

from test_torch_function import body, function  # noqa: E402

import gpuad  # noqa: E402
import gpuad.torch  # noqa: E402

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


PRODUCT = body("const double* a, const double* b, double* y", "y[i] = a[i] * b[i];")
SQUARED = body("double* x, const double* w", "x[i] = w[i] * x[i] * x[i];")


@gpuad.torch.program
def squared(x: Any, w: Any) -> Any:
    SQUARED[1, 128](x, w, x.size)
    return x


@pytest.mark.parametrize("other", [torch.zeros(2), torch.zeros(4, 1, dtype=torch.float64), torch.zeros(4, dtype=torch.float32)])
@pytest.mark.parametrize(("kernel", "outputs", "inplace"), [(PRODUCT, {"y": "a"}, False), (SQUARED, ["x"], False), (SQUARED, ["x"], True)])
def test_data_of_another_layout_is_refused_in_the_backward_pass(kernel: Any, outputs: Any, inplace: bool, other: Any) -> None:
    """`x.data = ...` is a change that PyTorch does not count: it may leave less memory than the launch had."""
    f = function(kernel, outputs=outputs, overwrites="inplace" if inplace else "return")
    for _ in CALLS:
        x, w = numbers(), torch.ones(4, dtype=torch.float64)
        y = f(x * 1, w, 4)
        w.data = other.to(w.dtype) if other.shape == (2,) else other
        with pytest.raises(gpuad.LaunchError, match="was set to something else"):
            y.sum().backward()


def test_tensors_that_say_themselves_what_they_are_are_refused() -> None:
    from torch._subclasses import FakeTensorMode

    f = function(PRODUCT, outputs={"y": "a"})
    with FakeTensorMode():
        fake = torch.ones(4, dtype=torch.float64)
    masked = torch.masked.masked_tensor(torch.ones(4, dtype=torch.float64), torch.tensor([True, False, True, True]))
    for _ in CALLS:
        f(numbers(), numbers(), 4).sum().backward()
        for x in (fake, masked, torch.ones(4, dtype=torch.float64).to_sparse()):
            for on in (True, False):
                with torch.set_grad_enabled(on), pytest.raises(gpuad.LaunchError, match="has no plain memory"):
                    f(numbers(), x, 4)
                with torch.set_grad_enabled(on), pytest.raises(gpuad.LaunchError, match=r"has no plain memory|of layout"):
                    squared(numbers(), x)
            with pytest.raises(gpuad.GpuadError, match=r"means more than is in its memory|without memory"):
                gpuad.Duplicated(x)

    class Named(torch.Tensor):
        """Of the same meaning, with a name."""

    assert torch.equal(f(torch.ones(4, dtype=torch.float64).as_subclass(Named), numbers(), 4), numbers())


def test_what_was_made_in_inference_mode_is_refused_before_it_is_written() -> None:
    f = function(SQUARED, overwrites="inplace")
    with torch.inference_mode():
        w = torch.ones(4, dtype=torch.float64)
    for _ in CALLS:
        f(numbers() * 1, w.clone(), 4)
        y = numbers() * 1
        before = y.detach().clone()
        with pytest.raises(gpuad.LaunchError, match="inference_mode"):
            f(y, w, 4)
        assert torch.equal(y, before)


def test_modules_that_are_copied() -> None:
    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f, self.program = function(PRODUCT, outputs={"y": "a"}), squared
            self.weight = torch.nn.Parameter(torch.full((4,), 3.0, dtype=torch.float64))

        def forward(self, x: Any) -> Any:
            return self.program(self.f(x, self.weight, 4), self.weight)

    module = Module()
    copied = copy.deepcopy(module)
    assert copied.f is module.f
    assert copied.weight is not module.weight
    x = numbers()
    copied(x).sum().backward()
    assert module.weight.grad is None
    assert torch.allclose(copied.weight.grad, 3 * 9 * x.detach() ** 2)  # w (w x)^2


def test_a_program_copies_no_tangents_and_no_batches() -> None:
    w = torch.ones(4, dtype=torch.float64)
    seeds = torch.eye(4, dtype=torch.float64)
    x = numbers().detach()
    for _ in CALLS:
        with torch.autograd.forward_ad.dual_level(), pytest.raises(gpuad.LaunchError, match="no forward mode"):
            squared(torch.autograd.forward_ad.make_dual(x, w), w)
        for transformed in (
            lambda: torch.func.jvp(lambda x: squared(x, w), (x,), (w,)),
            lambda: torch.func.vmap(squared)(torch.stack([x, x]), torch.stack([w, w])),
            lambda: torch.func.grad(lambda x: squared(x, w).sum())(x),
        ):
            with pytest.raises(gpuad.LaunchError, match=r"does not go through torch\.func"):
                transformed()
        leaf = numbers()
        y = squared(leaf, w)
        with pytest.raises(gpuad.GpuadError, match="one seed at a time"):
            torch.autograd.grad(y, leaf, seeds, is_grads_batched=True, retain_graph=True)
        with pytest.raises(gpuad.GpuadError, match="one seed at a time"):
            torch.func.vmap(lambda seed, y=y, leaf=leaf: torch.autograd.grad(y, leaf, seed, retain_graph=True))(seeds)
        y.sum().backward()
        assert torch.allclose(leaf.grad, 2 * leaf.detach())


def test_a_tangent_is_not_dropped_by_the_core() -> None:
    square = gpuad.kernel('extern "C" __global__ void k(double* x) { x[threadIdx.x] *= 2; }', "k")
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64))
        with pytest.raises(gpuad.GpuadError, match="has a tangent"):
            square(1, 4, (dual,))
        square(1, 4, (dual.detach(),))


@pytest.mark.parametrize(("dtype", "type_"), [(torch.float16, "__half"), (torch.bfloat16, "__nv_bfloat16")])
def test_tangents_of_halves_are_halves(dtype: Any, type_: str) -> None:
    f = function(body(f"const {type_}* x, float* z, {type_}* y", "y[i] = x[i] * x[i]; z[i] = x[i];"), outputs={"z": "x", "y": "x"})
    x = torch.tensor([1.0, 2.0], dtype=dtype)
    found = torch.func.jvp(lambda x: f(x, 2), (x,), (x,))[1]
    assert [d.dtype for d in found] == [torch.float32, dtype]
