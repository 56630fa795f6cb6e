"""`gpuad.torch.program`: a recorded program as one node, beside the same program in PyTorch's own operations."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; docs/how-to/torch.md has the command for these tests")

import gpuad  # noqa: E402
import gpuad.torch  # noqa: E402

N, STEPS = 64, 20
STEP = gpuad.kernel(
    r"""
extern "C" __global__ void step(double* older, const double* now, const double* k, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) older[i] = 2.0 * now[i] - older[i] + k[i] * (now[i - 1] - 2.0 * now[i] + now[i + 1]) - 0.01 * now[i] * now[i];
}""",
    "step",
)


@gpuad.torch.program
def wave(u: Any, v: Any, k: Any) -> Any:
    """Leapfrog in place."""
    for _ in range(STEPS):
        STEP[1, 64](v, u, k, N)
        u, v = v, u
    return u, v


def by_torch(u: Any, v: Any, k: Any) -> Any:
    """The same, each state a tensor of its own."""
    for _ in range(STEPS):
        inner = 2 * u[1:-1] - v[1:-1] + k[1:-1] * (u[:-2] - 2 * u[1:-1] + u[2:]) - 0.01 * u[1:-1] ** 2
        u, v = torch.cat([v[:1], inner, v[-1:]]), u
    return u, v


def inputs() -> list[Any]:
    torch.manual_seed(0)
    return [torch.randn(N, dtype=torch.float64, requires_grad=True), torch.randn(N, dtype=torch.float64, requires_grad=True),
            torch.full((N,), 0.2, dtype=torch.float64, requires_grad=True)]  # fmt: skip


def loss(found: Any) -> Any:
    return (found[0] ** 2).sum() + (found[1] * torch.arange(N)).sum()


def test_gradients_are_those_of_pytorch() -> None:
    for _ in range(3):  # the third time the program is known
        ours, theirs = inputs(), inputs()
        a, b = wave(*ours), by_torch(*theirs)
        assert torch.allclose(a[0], b[0]) and torch.allclose(a[1], b[1])
        for x, y in zip(torch.autograd.grad(loss(a), ours), torch.autograd.grad(loss(b), theirs), strict=True):
            assert torch.allclose(x, y)


def test_gradcheck() -> None:
    assert torch.autograd.gradcheck(gpuad.torch.program(wave.fn, again=True), inputs(), fast_mode=True)


def test_inputs_stay_and_may_be_changed_before_the_backward_pass() -> None:
    ours, theirs = inputs(), inputs()
    a = wave(*ours)
    assert torch.equal(ours[0], theirs[0])
    with torch.no_grad():
        for x in ours:
            x.fill_(7.0)
    for x, y in zip(torch.autograd.grad(loss(a), ours), torch.autograd.grad(loss(by_torch(*theirs)), theirs), strict=True):
        assert torch.allclose(x, y)


def test_tapes_are_used_again_and_several_at_once() -> None:
    fresh = gpuad.torch.program(wave.fn)
    one, two = inputs(), [x.detach().clone().requires_grad_() for x in inputs()]
    a, b = fresh(*one), fresh(*two)
    gb = torch.autograd.grad(loss(b), two)
    ga = torch.autograd.grad(loss(a), one)
    for x, y in zip(ga, gb, strict=True):
        assert torch.equal(x, y)
    (waiting,) = fresh._free.values()
    assert len(waiting) == 2
    c = fresh(*one)
    assert len(waiting) == 1
    del c
    gc.collect()
    assert len(waiting) == 2, "a graph that nobody walks gives its tape back"
    with torch.no_grad():
        fresh(*one)
    assert len(waiting) == 2


def test_memory_between_is_what_the_tape_says() -> None:
    fresh = gpuad.torch.program(wave.fn)
    out = fresh(*inputs())
    session = out[0].grad_fn.lease.session
    assert session.own.tape.stats.saved_bytes == (STEPS - 1) * (N - 2) * 8, "each state but the last is overwritten and was read"
    assert out[0].grad_fn.saved_tensors == ()


def test_a_second_walk_is_refused() -> None:
    ours = inputs()
    a = loss(wave(*ours))
    torch.autograd.grad(a, ours, retain_graph=True)
    with pytest.raises(gpuad.TapeError, match="reversed already"):
        torch.autograd.grad(a, ours)
    with pytest.raises(gpuad.GpuadError, match="differentiated once"):
        torch.autograd.grad(loss(wave(*ours)), ours, create_graph=True)


def test_some_inputs_only_and_constants() -> None:
    u, v, k = inputs()
    constant = gpuad.torch.program(wave.fn, constant=["k"])
    (du,) = torch.autograd.grad(loss(constant(u, v.detach(), k.detach())), u)
    (expected,) = torch.autograd.grad(loss(by_torch(u, v, k)), u)
    assert torch.allclose(du, expected)
    with pytest.raises(gpuad.LaunchError, match="has no parameter `q`"):
        gpuad.torch.program(wave.fn, constant=["q"])


def test_operations_and_numbers_in_a_program() -> None:
    @gpuad.torch.program
    def energy(u: Any, times: int, index: Any) -> Any:
        for _ in range(times):
            u = u * u
        return gpuad.ops.sum(u[index])

    u, index = torch.linspace(0.5, 1.0, 8, dtype=torch.float64, requires_grad=True), torch.tensor([1, 3, 3])
    energy(u, 2, index).backward()
    expected = torch.zeros(8, dtype=torch.float64).index_add(0, index, 4 * u.detach()[index] ** 3)
    assert torch.allclose(u.grad, expected)
    with pytest.raises(gpuad.LaunchError, match="returned ndarray"):
        gpuad.torch.program(lambda u: u.primal)(u)


def test_what_a_program_does_not_touch_is_given_on() -> None:
    @gpuad.torch.program
    def ours(u: Any, v: Any) -> Any:
        u *= u
        return u, v, v[2:4], v

    u, v, _ = inputs()
    for _ in range(2):
        found = [sum(((j + 1.0) * x**2).sum() for j, x in enumerate(xs)) for xs in (ours(u, v), (u * u, v, v[2:4], v))]
        for a, b in zip(*(torch.autograd.grad(x, (u, v)) for x in found), strict=True):
            assert torch.allclose(a, b)


def test_lazy_conjugates() -> None:
    @gpuad.torch.program
    def square(z: Any) -> Any:
        return z * z

    z, seed = torch.randn(2, 8, dtype=torch.complex128)
    z.requires_grad_()
    for given, own in ((square(z), z * z), (square(z.conj()), z.conj() * z.conj())):
        assert torch.allclose(*(torch.autograd.grad(y, z, seed.conj())[0] for y in (given, own)))


def test_a_budget() -> None:
    ours, theirs = inputs(), inputs()
    small = gpuad.torch.program(wave.fn, budget="8 kB")
    for x, y in zip(torch.autograd.grad(loss(small(*ours)), ours), torch.autograd.grad(loss(wave(*theirs)), theirs), strict=True):
        assert torch.equal(x, y)


def test_checkpointing_and_halves() -> None:
    ours, theirs = inputs(), inputs()
    loss(torch.utils.checkpoint.checkpoint(wave, *ours, use_reentrant=False)).backward()
    loss(wave(*theirs)).backward()
    for x, y in zip(ours, theirs, strict=True):
        assert torch.equal(x.grad, y.grad)
    half = gpuad.kernel(
        '#include <cuda_fp16.h>\nextern "C" __global__ void k(__half* x, int n) { int i = threadIdx.x; if (i < n) x[i] = x[i] * x[i]; }',
        "k",
    )

    @gpuad.torch.program
    def square(x: Any) -> Any:
        half[1, 32](x, 8)
        return x

    x = torch.arange(8.0).half().requires_grad_()
    square(x).sum().backward()
    assert x.grad.dtype == torch.float16 and np.array_equal(x.grad.numpy(), 2 * np.arange(8))
