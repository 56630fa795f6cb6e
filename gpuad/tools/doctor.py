"""What this machine has of the things that gpuad can use, found without using them: no CUDA context is made and no kernel is compiled.

In: nothing; it reads package metadata, the compiler's version, NVML or `nvidia-smi`, and the cache folder. Out of `examine`: a `Finding`
for each, with its version, or with what to install; of `verdict`: whether kernels can be differentiated here, and on which executor they
run. `nvidia-smi` is given 10 seconds. What is missing or fails becomes a finding; nothing is raised for it."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata

from ..errors import CompileError
from ..runtime.compiler import find_compiler
from ..runtime.disk_cache import cache_folder

_CUPY = ("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x")
_NVRTC = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12")


@dataclass(frozen=True)
class Finding:
    """One thing looked for: whether and in which version it is there, and what to do if it is not."""

    what: str
    found: bool
    detail: str
    advice: str = ""


def examine() -> tuple[Finding, ...]:
    """Examines everything, in the order in which it is shown."""
    return tuple(_findings())


def verdict(findings: Sequence[Finding]) -> tuple[bool, str]:
    """Whether kernels can be differentiated and run here, in a sentence."""
    has = {finding.what: finding.found for finding in findings}
    if not has["libclang"]:
        return False, "CUDA source cannot be read: install libclang."
    if has["CuPy"] and has["GPU"]:
        return True, "Kernels run on the GPU (CuPy arrays) and on the CPU (NumPy arrays)."
    if has["C++ compiler"]:
        return True, "Kernels run on the CPU (NumPy arrays)."
    return True, "Kernels run on the CPU through the reference executor, which is slow: install a C++ compiler."


def _findings() -> Iterator[Finding]:
    yield Finding("Python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield _package("NumPy", ("numpy",), "pip install numpy")
    yield _package("ml_dtypes", ("ml_dtypes",), "only for arrays of bfloat16: pip install 'gpuad[bfloat16]'")
    yield _package("libclang", ("libclang",), "pip install libclang")
    yield _package("islpy", ("islpy",), "certifies what runs in place of a launch; without it all additions are atomic: pip install islpy")
    yield _compiler()
    yield _package("CuPy", _CUPY, "only for GPUs: pip install 'gpuad[cuda13]' or 'gpuad[cuda12]'")
    yield _gpu()
    yield _package("NVRTC", _NVRTC, "only for GPUs, and to compile generated CUDA without one: pip install nvidia-cuda-nvrtc")
    yield _cache()


def _package(what: str, names: Sequence[str], advice: str) -> Finding:
    for name in names:
        try:
            return Finding(what, True, f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return Finding(what, False, "", advice)


def _compiler() -> Finding:
    try:
        compiler = find_compiler()
    except CompileError as error:
        return Finding("C++ compiler", False, "", error.message)
    return Finding("C++ compiler", True, f"{' '.join(compiler.command)}: {compiler.version.splitlines()[0]}")


def _first_line(command: list[str]) -> str:
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run: {error}"
    return shown.splitlines()[0] if shown else "says nothing about its version"


def _gpu() -> Finding:
    try:
        import pynvml
    except ImportError:
        return _gpu_by_command()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Finding("GPU", False, "", f"no NVIDIA driver: {error}")
    try:
        names = [pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount())]
        driver = f"driver {_text(pynvml.nvmlSystemGetDriverVersion())}"
        return (
            Finding("GPU", True, f"{', '.join(map(_text, names))}; {driver}")
            if names
            else Finding("GPU", False, "", f"{driver}, no device")
        )
    except pynvml.NVMLError as error:  # a container may not be told
        return _gpu_by_command() if shutil.which("nvidia-smi") else Finding("GPU", False, "", f"the driver says nothing: {error}")
    finally:
        pynvml.nvmlShutdown()


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _gpu_by_command() -> Finding:
    path = shutil.which("nvidia-smi")
    if path is None:
        return Finding("GPU", False, "", "no NVIDIA driver found")
    shown = _first_line([path, "--query-gpu=name,driver_version", "--format=csv,noheader"])
    name, comma, driver = shown.rpartition(", ")
    return Finding("GPU", True, f"{name}; driver {driver}") if comma else Finding("GPU", False, "", shown)


def _cache() -> Finding:
    try:
        return Finding("cache folder", True, str(cache_folder()))
    except CompileError as error:
        return Finding("cache folder", False, "", error.message)
