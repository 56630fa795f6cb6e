"""A device for CuPy on machines without a GPU: the real CuPy, whose runtime is the CPU.

`enable()` before the first `import cupy`. It needs Linux on x86-64, a C++ compiler and CuPy's ROCm wheel (`pip install cupy-rocm-7-0`),
which takes all of its runtime from outside. Kernels are compiled as C++; threads of a block that wait for one another run in turns.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
from pathlib import Path

from ..errors import LaunchError
from .blas_library import add_blas
from .compilation import INCLUDE, compiler_for, kernels_folder
from .compiled_in import replace_generators, replace_sorting
from .fft_library import add_fft
from .library_functions import Table
from .native_libraries import loaded, wanted, wheel
from .random_library import add_random
from .solver_library import add_solver

_tables: list[Table] = []  # one, for as long as the process lives: C++ has addresses of what it keeps


def enable(*, seed: int | None = None, noise: bool = True, fail_at: int = 0) -> None:
    """Makes the CPU the device of CuPy in this process. LaunchError if CuPy is imported already, is missing or is one for CUDA;
    CompileError without a C++ compiler.

    seed: None runs work when it is enqueued. A number runs it as late as a device may, and in a random order among all that streams,
        events and the legacy stream allow, blocks and warps too: a wait that was forgotten shows as a wrong result.
    noise: memory that is allocated holds NaNs and noise in place of zeros.
    fail_at: the allocation of device memory, counted from 1, that fails with "out of memory"; 0 for none.
    """
    if not _tables:
        _tables.append(_made())
    _tables[0].libraries.device.gpuad_device_options(int(seed is not None), seed or 0, int(noise), fail_at)


def _made() -> Table:
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise LaunchError("the device on the CPU needs Linux on x86-64, for which CuPy's ROCm wheel is made")
    if "cupy" in sys.modules:
        raise LaunchError("CuPy is imported already: enable the device on the CPU before the first `import cupy`")
    libraries = loaded(wanted(wheel()))
    compile_text = compiler_for(libraries.device)
    libraries.device.gpuad_device_compiler(compile_text)
    table = Table(libraries, kept=[compile_text])
    for add in (add_blas, add_fft, add_random, add_solver):
        add(table)
    _environment()
    atexit.register(table.close)
    cupy = importlib.import_module("cupy")
    replace_sorting(cupy, table)
    replace_generators(cupy)
    return table


def _environment() -> None:
    """CuPy asks `hipcc`, once, where headers are, and ROCM_HOME; reductions by CUB are kernels that are compiled into it for a GPU."""
    os.environ["GPUAD_PYTHON"] = sys.executable
    os.environ["ROCM_HOME"] = str(INCLUDE.parent)
    os.environ["PATH"] = os.pathsep.join((str(Path(__file__).parent / "native" / "bin"), os.environ.get("PATH", "")))
    os.environ["CUPY_ACCELERATORS"] = ""
    os.environ["CUPY_CACHE_DIR"] = str(kernels_folder())
