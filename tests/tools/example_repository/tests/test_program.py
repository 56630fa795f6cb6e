"""A program of the package's kernels, tested with the plugin's fixtures and markers."""

import pytest
from fields import KERNELS

import gpuad
from gpuad import Duplicated


@pytest.mark.gpuad_memory(peak="2 MiB")
@pytest.mark.gpuad_deterministic
def test_a_field_that_saturates_twice(gpuad_tape, gpuad_device):
    saturate = gpuad.kernel(KERNELS / "saturate.cu", "saturate")
    xp, n = gpuad_device.xp, 1000
    U = Duplicated(xp.full(n, -1.0, dtype=xp.float32))
    with gpuad_tape:
        for _ in range(2):
            saturate[((n + 31) // 32,), (32,)](U, n)
    gpuad_tape.reverse({U: xp.ones(n, dtype=xp.float32)})
    inner = xp.exp(xp.float32(-1.0))
    assert xp.allclose(U.shadow, inner * xp.exp(inner), rtol=1e-5)
