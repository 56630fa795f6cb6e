"""`PYTHONPATH=. python tests/texts.py FOLDER`: all texts that gpuad generates of the shipped kernels, a file each, to compare checkouts.

Of each case: the primal, the kernels of its launch's reverse pass for either executor (`reference` has what a GPU would), the adjoint that
holds for every launch, forward mode, and the kernel that does forward and reverse at once; each as core IR, as CUDA and as C++ for the CPU.
`diff -r A B` says what a change did to them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from launch_tools import CASES, EXECUTORS, arguments, running, shipped

from gpuad import fusion, pipeline
from gpuad.api import pattern_of
from gpuad.codegen.cpu.source import host_source
from gpuad.codegen.cuda import cuda_source
from gpuad.ir.nodes import Kernel
from gpuad.ir.printer import to_text
from gpuad.runtime.host import Host


def kernels(name: str, executor: str) -> Iterator[tuple[str, Kernel]]:
    """The generated kernels of a case, as an executor has them, by what they are."""
    grid, block, shared_mem = CASES[name].geometry({})
    chosen = shipped(name).suited(None, shared_mem)
    call = chosen.bind(grid, block, arguments(name), shared_mem, None)
    pattern = pattern_of(chosen, call)
    primal = chosen.primal(call.aliases())
    adjoint = chosen.reverse_for(pattern, call)
    with running(executor):
        stages = pipeline.stages(adjoint, call)
        both = fusion.fusing(primal, adjoint, call, stages)
    for k, stage in enumerate(stages):
        for kernel in stage.kernels:
            yield f"{executor}-reverse-{k}", kernel
    if both is not None:
        yield f"{executor}-both", both.kernel
    yield "primal", primal
    yield "atomic", adjoint.kernel()
    yield "forward", chosen.tangent(pattern).kernel
    if adjoint.augmented is not None:
        yield "augmented", adjoint.augmented


def write(folder: Path, name: str) -> None:
    """All texts of a case."""
    host, block = Host(), CASES[name].geometry({})[1]
    found = {what: kernel for executor in EXECUTORS for what, kernel in kernels(name, executor)}
    for what, kernel in found.items():
        program, _ = host.fitting(kernel, block)
        for suffix, text in (("ir", to_text(kernel)), ("cu", cuda_source([kernel])), ("cpp", host_source([program.kernel]))):
            (folder / f"{name}-{what}.{suffix}").write_text(text + "\n", encoding="utf-8")


def main(given: list[str]) -> None:
    """Writes them to the folder that is given, or of the cases that are."""
    folder = Path(given[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name in given[1:] or CASES:
        write(folder, name)


if __name__ == "__main__":
    main(sys.argv[1:])
