"""GPUAD_CHECK=1: what was proved of a launch is run by the reference executor, whatever executor the launch is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gather_tools import pairs
from launch_tools import CASES, arguments, running, shipped

import gpuad
from gpuad import Duplicated
from gpuad.accumulate import gather_launch
from gpuad.errors import LaunchError
from gpuad.pipeline import certificates, schedule

TEXT = 'extern "C" __global__ void k(const double* u, double* v, int n) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; {} }}'
SUM = TEXT.format("if (i < n) v[i] = u[i / 2] * u[i % 3];")
RING = TEXT.format("if (i < n) v[i] = u[(i + 1) % n] * u[i];")


def certify_all(monkeypatch: pytest.MonkeyPatch, *, meet: bool = False) -> None:
    """Whatever is asked for has a certificate; `meet`: but for what no two threads meet in."""
    monkeypatch.setattr(certificates, "_reasons", lambda *args: {})
    if not meet:
        monkeypatch.setattr(schedule, "conflicting", lambda *args: {})


def run(text: str) -> list[Any]:
    args = (*pairs(1, 64, 64), 40)
    gpuad.autodiff(gpuad.kernel(text, "k"), 5, 8, args)
    return [a.shadow for a in args if isinstance(a, Duplicated)]


@pytest.mark.parametrize("name", ["heat", "gemm", "convolution-convolve_line", "horner", "recurrence-iir", "histogram"])
def test_what_is_proved_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grid, block, shared_mem = CASES[name].geometry({})
    found = []
    for check in ("", "1"):
        monkeypatch.setenv("GPUAD_CHECK", check)
        args, rng = arguments(name), np.random.default_rng(1)
        for a in args:
            if hasattr(a, "shadow"):
                a.shadow[...] = rng.standard_normal(a.shadow.shape)
        gpuad.autodiff(shipped(name), grid, block, args, shared_mem=shared_mem)
        found.append([np.array(a.shadow) for a in args if hasattr(a, "shadow")])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("on_tape", [False, True])
def test_a_wrong_proof_is_found(on_tape: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is written."""
    certify_all(monkeypatch)
    run(SUM)  # on the host nobody notices
    monkeypatch.setenv("GPUAD_CHECK", "1")
    with pytest.raises(LaunchError, match=r"GPUAD_CHECK: `k`: two threads meet .*Nothing was launched"):
        if on_tape:
            tape, (u, v) = gpuad.Tape(), pairs(1, 64, 64)
            with tape:
                gpuad.kernel(SUM, "k")[5, 8](u, v, 40)
            tape.reverse()
        else:
            run(SUM)


@pytest.mark.parametrize("wrong", [False, True])
def test_boxes_in_which_a_shadow_is_zero(wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that adds where it should assign, or a box that is not the one that is known to be zero."""
    from test_interior_box import stepped

    monkeypatch.setenv("GPUAD_CHECK", "1")
    if not wrong:
        plain = stepped("heat", False, "reference")[1]
        for got, right in zip(stepped("heat", True, "reference")[1], plain, strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)
        return
    certify_all(monkeypatch, meet=True)
    collecting = schedule._collecting

    def narrower(adjoint: Any, found: Any, assigned: Any, boxes: Any) -> Any:
        return collecting(adjoint, found, assigned, frozenset((b, ((x[0] + 1, x[1]), *rest)) for b, (x, *rest) in boxes))

    monkeypatch.setattr(schedule, "_collecting", narrower)
    with pytest.raises(LaunchError, match=r"GPUAD_CHECK: `heat`: gradients of `[uv]` differ"):
        stepped("heat", True, "reference")


def test_a_contribution_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gather with too few threads."""
    certify_all(monkeypatch, meet=True)
    image = gather_launch._Launching.image
    with running("reference", plain=False):
        right = run(RING)
    monkeypatch.setattr(gather_launch._Launching, "image", lambda self: (image(self)[0], [max(n - 8, 0) for n in image(self)[1]]))
    assert not np.allclose(run(RING)[0], right[0])
    monkeypatch.setenv("GPUAD_CHECK", "1")
    with pytest.raises(LaunchError, match=r"gradients of `u` differ from those by atomic additions"):
        run(RING)


def test_a_wrong_proof_has_no_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs is the text that needs no proof, and the account says so."""
    with running("reference", plain=False):
        right = run(RING)
    image = gather_launch._Launching.image
    monkeypatch.setattr(gather_launch._Launching, "image", lambda self: (image(self)[0], [max(n - 8, 0) for n in image(self)[1]]))
    for got, expected in zip(run(RING), right, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    account = str(gpuad.kernel(RING, "k").adjoint(grid=5, block=8, args=(*pairs(1, 64, 64), 40)).explain())
    assert "du                   atomic   what is faster is not certified (another sum for what the plain adjoint adds at" in account


def test_a_store_to_what_is_zero_without_a_certificate_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel that stores to boxes of zeros is wrong, they are cleared and added to."""
    from test_interior_box import stepped

    right = stepped("heat", False, "reference")[1]
    collecting = schedule._collecting

    def narrower(adjoint: Any, found: Any, assigned: Any, boxes: Any) -> Any:
        return collecting(adjoint, found, assigned, frozenset((b, ((x[0] + 1, x[1]), *rest)) for b, (x, *rest) in boxes))

    monkeypatch.setattr(schedule, "_collecting", narrower)
    for got, expected in zip(stepped("heat", True, "reference")[1], right, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        "__shared__ double s[8]; int t = threadIdx.x; s[t] = u[i % n]; if (i < n) v[i] = s[7 - t] * u[i];",
        "__shared__ double s[8]; int t = threadIdx.x, a = u[63] > 9.0 ? 2 : 1; s[t] = t; if (i < n) v[i] = s[(t + a) % 8] * u[i];",
    ],
)
def test_a_race_of_the_launch_itself_is_told_as_one(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a proof is not what has failed: at the user's line, without a word of a fault of gpuad's."""
    monkeypatch.setenv("GPUAD_CHECK", "1")
    with pytest.raises(gpuad.GpuadError, match="data race") as found:
        run(TEXT.format(body))
    assert "report" not in str(found.value)
