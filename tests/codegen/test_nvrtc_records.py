"""The text generated for vectors, structs and halves compiles under NVRTC, adjoint and primal."""

from __future__ import annotations

from types import ModuleType

import pytest
import test_half
import test_structs
import test_vectors
from nightly import share

from gpuad import Active, Duplicated, api
from gpuad.codegen.cuda import cuda_source
from gpuad.ir.types import Pointer
from gpuad.runtime import nvrtc

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")

BODIES = [(module, name) for module in (test_vectors, test_structs, test_half) for name in module.BODIES]


TRIED = share(BODIES, 2)


@pytest.mark.one_of(6)
@pytest.mark.parametrize(("module", "name"), TRIED, ids=[f"{m.__name__.removeprefix('test_')}-{n}" for m, n in TRIED])
def test_compiles(module: ModuleType, name: str) -> None:
    kernel = module.kernel_of(module.BODIES[name])
    active = {d.name: Duplicated if isinstance(d.type, Pointer) else Active for d in kernel.parameters if d.name != "n"}
    adjoint = kernel.adjoint(**active)
    assert nvrtc.resources(nvrtc.compile_cuda(adjoint.source))
    assert nvrtc.resources(nvrtc.compile_cuda(cuda_source([api.kernel(kernel).primal()]), "sm_75"))
