"""Tensors on a GPU: what is launched goes into PyTorch's current stream, on the tensors' own memory.

Without a GPU tensors on the host stand for those on a device, and a stand-in for CuPy keeps what comes on which stream; it raises where
memory is used on two streams without an event between. Tests marked `gpu` do the same on one."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; docs/how-to/torch.md has the command for these tests")

import fake_cupy  # noqa: E402

import gpuad  # noqa: E402
import gpuad.torch  # noqa: E402
from gpuad.torch import arrays  # noqa: E402

N = 300
TEXT = r"""
extern "C" __global__ void k(float* x, const float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = a[i] * x[i] * x[i];
}"""


@pytest.fixture
def streams(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Streams of the stand-in; the first is PyTorch's current one."""
    made = [fake_cupy.Stream(non_blocking=True), fake_cupy.Stream(non_blocking=True)]
    monkeypatch.setattr(arrays, "on_device", lambda tensor: True)
    monkeypatch.setattr(arrays, "stream_of", lambda tensor: made[0].ptr)
    fake_cupy.NULL.launches.clear()
    return made


def _gradient(f: Any) -> tuple[Any, Any, Any]:
    x, a = torch.arange(1.0, N + 1, requires_grad=True), torch.full((N,), 0.5, requires_grad=True)
    y = f(x * 1 if f.in_place else x, a, N)
    y.backward(torch.ones(N))
    return y, x, a


@pytest.mark.parametrize("overwrites", ["return", "inplace"])
def test_everything_is_put_into_the_current_stream(streams: list[Any], overwrites: str) -> None:
    f = gpuad.torch.function(gpuad.kernel(TEXT, "k"), grid=3, block=128, overwrites=overwrites)
    y, x, a = _gradient(f)
    assert torch.equal(y, 0.5 * x**2) and torch.equal(x.grad, x.detach()) and torch.equal(a.grad, x.detach() ** 2)
    assert streams[0].launches == ["k", "k_reverse"] and not streams[1].launches
    assert not fake_cupy.NULL.launches, "nothing on the default stream"
    assert fake_cupy.Stream.current is fake_cupy.NULL, "CuPy's own current stream is as it was"


def test_another_stream_of_the_backward_pass_is_seen(streams: list[Any]) -> None:
    """PyTorch runs a backward pass on the stream of its forward; whoever changes streams orders them, else the stand-in raises."""
    text = 'extern "C" __global__ void e(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = expf(x[i]); }'
    f = gpuad.torch.function(gpuad.kernel(text, "e"), grid=3, block=128)
    x = torch.linspace(0.0, 1.0, N, requires_grad=True)
    y = f(x, N)
    streams.reverse()
    with pytest.raises(fake_cupy.StreamError):
        y.backward(torch.ones(N))
    x.grad = None
    y = f(x, N)  # on what is the first stream now
    event = streams[0].record()
    streams.reverse()
    streams[0].wait_event(event)
    y.backward(torch.ones(N))
    assert torch.equal(x.grad, y.detach())


def test_no_tensor_is_copied(streams: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    own = fake_cupy._argument

    def argument(parameter: Any, x: Any, *rest: Any) -> Any:
        if hasattr(parameter, "element"):
            seen.append(x.data.ptr if isinstance(x, fake_cupy.ndarray) else int(x))
        return own(parameter, x, *rest)

    monkeypatch.setattr(fake_cupy, "_argument", argument)
    f = gpuad.torch.function(gpuad.kernel(TEXT, "k"), grid=3, block=128, overwrites="inplace")
    x, a = torch.ones(N), torch.ones(N)
    f(x, a, N)
    assert seen == [x.data_ptr(), a.data_ptr()]


def test_tensors_of_two_devices_are_refused() -> None:
    with pytest.raises(gpuad.LaunchError, match="all on one device"):
        gpuad.torch.function(gpuad.kernel(TEXT, "k"), grid=3, block=128)(torch.ones(N), torch.ones(N, device="meta"), N)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")
@pytest.mark.parametrize("overwrites", ["return", "inplace"])
def test_on_a_device(overwrites: str) -> None:
    f = gpuad.torch.function(gpuad.kernel(TEXT, "k"), grid=3, block=128, overwrites=overwrites)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.arange(1.0, N + 1, device="cuda", requires_grad=True)
        a = torch.full((N,), 0.5, device="cuda", requires_grad=True)
        torch.cuda._sleep(10_000_000)  # what comes on another stream comes too early
        z = x * 1
        y = f(z if f.in_place else x, a, N)
        assert y.data_ptr() == z.data_ptr() or not f.in_place
        y.backward(torch.ones(N, device="cuda"))
    stream.synchronize()
    assert torch.equal(y, 0.5 * x**2) and torch.equal(x.grad, x.detach()) and torch.equal(a.grad, x.detach() ** 2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")
def test_gradcheck_on_a_device() -> None:
    f = gpuad.torch.function(gpuad.kernel(TEXT, "k", options=("-Dfloat=double",)), grid=3, block=128, twice=True)
    x = torch.randn(N, device="cuda", dtype=torch.float64, requires_grad=True)
    a = torch.randn(N, device="cuda", dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, a: f(x, a, N), (x, a), fast_mode=True, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda x, a: f(x, a, N), (x, a), fast_mode=True)
