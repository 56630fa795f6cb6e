"""NVRTC takes every generated adjoint of the kernels that ship, for old and new GPUs, and what it makes can be launched.

As large as the case's block, with the registers and the shared memory that the compiled code says it needs.
"""

from __future__ import annotations

from typing import Any

import pytest
from launch_tools import CASES, arguments, shipped
from nightly import NIGHTLY, share

from gpuad import fusion, pipeline
from gpuad.api import pattern_of
from gpuad.codegen.cuda import cuda_source
from gpuad.runtime import nvrtc

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")


def text(name: str, variant: str) -> Any:
    """The generated CUDA of a case: as its launch would have it, or as it holds for every launch."""
    args = arguments(name)
    grid, block, shared_mem = CASES[name].geometry({})
    active = {d.name: type(a) for d, a in zip(shipped(name).parameters, args, strict=True) if d.name in CASES[name].active}
    numbers = {"grid": grid, "block": block, "args": args} if variant == "plain" else {}
    return shipped(name).adjoint(**active, **numbers, shared_mem=shared_mem)


ARCHITECTURES = ("sm_75", "sm_90", "sm_100")
TEXTS = [(name, variant) for name in CASES for variant in ("plain", "atomic")]
# nightly each for all; what a case's launch would have is an item of the plugin on each push: `pytest kernels`
IN_TURNS = [(name, "atomic", ARCHITECTURES[k % 3]) for k, name in enumerate(CASES)]


@pytest.mark.one_of(8)
@pytest.mark.parametrize(("name", "variant", "arch"), [(*t, a) for t in TEXTS for a in ARCHITECTURES] if NIGHTLY else IN_TURNS)
def test_generated_adjoint_compiles_and_launches(name: str, variant: str, arch: str) -> None:
    made = text(name, variant)
    _, (x, y, z), shared_mem = CASES[name].geometry({})
    needs = nvrtc.resources(nvrtc.compile_cuda(made.source, arch))
    assert set(made.kernels) == set(needs)
    for kernel_name in made.kernels:
        assert nvrtc.launchable(needs[kernel_name], x * y * z, arch, shared_mem), (kernel_name, needs[kernel_name])


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", share(list(CASES), 2))
def test_printed_primal_compiles(name: str) -> None:
    """The primal as gpuad prints it is what the GPU executor launches."""
    _, _, shared_mem = CASES[name].geometry({})
    primal = shipped(name).suited(None, shared_mem).primal()
    needs = nvrtc.resources(nvrtc.compile_cuda(cuda_source([primal])))
    assert set(needs) == {primal.name}
    assert needs[primal.name].registers > 0


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", share(list(CASES), 2))
def test_forward_and_reverse_in_one_kernel_compile(name: str) -> None:
    """Where `autodiff` runs both in one launch, the text of it."""
    grid, block, shared_mem = CASES[name].geometry({})
    chosen = shipped(name).suited(None, shared_mem)
    call = chosen.bind(grid, block, arguments(name), shared_mem, None)
    adjoint = chosen.reverse_for(pattern_of(chosen, call), call)
    both = fusion.fusing(chosen.primal(call.aliases()), adjoint, call, pipeline.stages(adjoint, call))
    if both is not None:
        assert nvrtc.resources(nvrtc.compile_cuda(cuda_source([both.kernel])))[both.kernel.name].registers > 0
