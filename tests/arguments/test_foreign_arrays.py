"""Arrays of other libraries are taken where one of NumPy or CuPy is, on their own memory."""

from __future__ import annotations

from typing import Any

import fake_cupy
import numpy as np
import pytest

import gpuad
from gpuad import Duplicated

SQUARE = gpuad.kernel('extern "C" __global__ void k(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] = x[i] * x[i]; }', "k")
N = 8


class OnHost:
    """An array of a library that lends its memory by DLPack."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.content.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Numba:
    """As a device array of Numba: it says where it lies, and has no DLPack."""

    def __init__(self, content: Any) -> None:
        self.held = content
        self.__cuda_array_interface__ = {**content.__cuda_array_interface__, "version": 3}


class Warp(Numba):
    """As an array of Warp on a GPU: both."""

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("the stand-in for CuPy does not come here")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def test_memory_of_another_library_on_the_host() -> None:
    x, dx = OnHost(np.arange(N, dtype=np.float32)), OnHost(np.ones(N, np.float32))
    gpuad.autodiff(SQUARE, 1, 32, (Duplicated(x, dx), N))
    assert np.array_equal(x.content, np.arange(N) ** 2) and np.array_equal(dx.content, 2 * np.arange(N))
    SQUARE(1, 32, (x, N))
    assert np.array_equal(x.content, np.arange(N) ** 4)


def test_on_a_tape() -> None:
    x = OnHost(np.arange(N, dtype=np.float32))
    X = Duplicated(x)
    with gpuad.Tape() as tape:
        SQUARE[1, 32](X, N)
        SQUARE[1, 32](X, N)
    tape.reverse({X: OnHost(np.ones(N, np.float32))})
    assert np.array_equal(X.shadow, 4 * np.arange(N) ** 3)


@pytest.mark.parametrize("kind", [Numba, Warp])
def test_memory_of_another_library_on_a_device(cupy: Any, monkeypatch: pytest.MonkeyPatch, kind: type[Numba]) -> None:
    monkeypatch.setattr(cupy, "from_dlpack", lambda lent: lent.held)
    own, shadow = cupy.array(np.arange(N), np.float32), cupy.ones(N, np.float32)
    gpuad.autodiff(SQUARE, 1, 32, (Duplicated(kind(own), kind(shadow)), N))
    assert np.array_equal(own.get(), np.arange(N) ** 2) and np.array_equal(shadow.get(), 2 * np.arange(N))
    SQUARE(1, 32, (kind(own), N))
    assert np.array_equal(own.get(), np.arange(N) ** 4)
    assert isinstance(Duplicated(kind(own)).primal, fake_cupy.ndarray)


def test_without_cupy_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Device:
        shape, dtype = (N,), np.dtype(np.float32)
        __cuda_array_interface__: dict[str, Any] = {"data": (64, False), "shape": (N,), "strides": None, "typestr": "<f4", "version": 3}  # noqa: RUF012

    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    with pytest.raises(gpuad.LaunchError, match="CuPy, which is not installed"):
        SQUARE(1, 32, (Device(), N))


def test_arrays_that_do_not_change_are_read_only() -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'gpuad[jax]'")
    with pytest.raises(gpuad.LaunchError, match="read-only"):
        SQUARE(1, 32, (jax.numpy.arange(N, dtype="float32"), N))


def test_tensors() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; docs/how-to/torch.md has the command for these tests")
    x, dx = torch.arange(8.0, requires_grad=True).detach(), torch.ones(N)
    gpuad.autodiff(SQUARE, 1, 32, (Duplicated(x, dx), N))
    assert torch.equal(x, torch.arange(8.0) ** 2) and torch.equal(dx, 2 * torch.arange(8.0))


def test_arrays_of_warp() -> None:
    warp = pytest.importorskip("warp", reason="Warp is not installed: pip install warp-lang")
    x = warp.array(np.arange(N, dtype=np.float32), device="cpu")
    dx = warp.array(np.ones(N, np.float32), device="cpu")
    gpuad.autodiff(SQUARE, 1, 32, (Duplicated(x, dx), N))
    assert np.array_equal(x.numpy(), np.arange(N) ** 2) and np.array_equal(dx.numpy(), 2 * np.arange(N))
