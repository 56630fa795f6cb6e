"""What runs under compute-sanitizer: `python -m gpuad.tools.sanitized planted TOOL`, `... run FILE NAME SEED ROOT`.

`planted` launches a kernel with the fault that a tool has to find; `run` a described launch, forward and reverse, twice, since the second
comes without the inspectors of the first.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from .. import api
from ..runtime.cuda import launch_text, synchronize
from .checks import on_gpu
from .examples import of_file

# For each tool a kernel with its fault, and the threads of its one block. `data` has 32 floats, in an allocation of its own that was not
# written to.
PLANTED = {
    "memcheck": ("data[4096 + threadIdx.x] = 1.0f;", 32),
    "racecheck": ("__shared__ volatile float s[64]; s[threadIdx.x] = 1.0f; data[threadIdx.x % 32] = s[63 - threadIdx.x];", 64),
    "initcheck": ("if (data[threadIdx.x] > 2.0f) data[threadIdx.x] = 1.0f;", 32),
    "synccheck": ("if (threadIdx.x < 33) __syncthreads(); data[0] = 1.0f;", 64),
}


def planted_text(tool: str) -> str:
    """The CUDA text of a planted fault; its kernel is `planted_TOOL`."""
    return f'extern "C" __global__ void planted_{tool}(float* data) {{\n    {PLANTED[tool][0]}\n}}\n'


def main(words: Sequence[str]) -> None:
    """Does what the command line says."""
    if words[0] == "planted":
        launch_text(planted_text(words[1]), f"planted_{words[1]}", PLANTED[words[1]][1], elements=32)
        return
    path, name, seed, root = words[1:5]
    example = next(e for e in of_file(Path(path), Path(root)) if e.name == name)
    plan = on_gpu(example.launch(int(seed))).planned()
    for _ in range(2):
        api.autodiff(plan.kernel, plan.grid, plan.block, plan.args, shared_mem=plan.shared_mem, allow_unused=True)
    synchronize()


if __name__ == "__main__":
    main(sys.argv[1:])
