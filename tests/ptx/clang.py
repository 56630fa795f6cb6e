"""CUDA text to PTX with clang's NVPTX back end: a second front end, which shares NVIDIA's headers and libdevice with NVRTC, no more.

It needs a clang that has the target (Debian's `clang-19`; GPUAD_CLANG names another), and CUDA 12's headers with libdevice: a toolkit that
CUDA_HOME names, or the wheels nvidia-cuda-runtime-cu12, nvidia-cuda-nvcc-cu12, nvidia-cuda-cccl-cu12 and nvidia-curand-cu12.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ARCH = "sm_90"
_LIBDEVICE = Path("nvvm", "libdevice", "libdevice.10.bc")
_NEEDED = ("include/cuda_runtime.h", "include/crt/host_defines.h", "include/nv/target", "include/curand_mtgp32_kernel.h", str(_LIBDEVICE))
_WHEELS = ("cuda_runtime", "cuda_nvcc", "cuda_cccl", "curand")
_FLAGS = {"-fmad=false": "-ffp-contract=off", "-ftz=true": "-fgpu-flush-denormals-to-zero", "-ftz=false": ""}


class CompileError(Exception):
    """What clang says of a text that it refuses."""


@functools.cache
def missing() -> str | None:
    """Why there is no such front end here, or None."""
    if _clang() is None:
        return "there is no clang++ with the target nvptx64: apt-get install clang-19, or name one in GPUAD_CLANG"
    root = _toolkit()
    absent = [name for name in _NEEDED if not (root / name).exists()]
    wheels = " ".join(f"nvidia-{w.replace('_', '-')}-cu12" for w in _WHEELS)
    return f"CUDA's {absent[0]} is missing: pip install {wheels}, or name a toolkit in CUDA_HOME" if absent else None


@functools.cache
def _clang() -> str | None:
    names = filter(None, (os.environ.get("GPUAD_CLANG"), *(f"clang++-{n}" for n in range(22, 15, -1)), "clang++"))
    for path in filter(None, map(shutil.which, names)):
        targets = subprocess.run([path, "-print-targets"], capture_output=True, text=True, check=False).stdout
        if "nvptx64" in targets:
            return path
    return None


@functools.cache
def _toolkit() -> Path:
    """A folder as clang wants one: that of CUDA_HOME, or one that is put together of the wheels."""
    if named := os.environ.get("CUDA_HOME"):
        return Path(named)
    root = Path(tempfile.mkdtemp(prefix="gpuad-cuda-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    for folder in ("include", "nvvm", "bin"):
        (root / folder).mkdir()
    for wheel in _installed():
        for path in wheel.glob("include/*"):
            _linked(path, root / "include" / path.name)
        if (wheel / _LIBDEVICE).exists():
            (root / "nvvm" / "libdevice").symlink_to((wheel / _LIBDEVICE).parent)
    return root


def _installed() -> Iterator[Path]:
    for folder in sys.path:
        yield from (path for name in _WHEELS if (path := Path(folder, "nvidia", name)).is_dir())


def _linked(path: Path, target: Path) -> None:
    """A file or folder in its place; of a folder that several wheels have, what is in it."""
    if not path.is_dir():
        target.exists() or target.symlink_to(path)
        return
    target.mkdir(exist_ok=True)
    for inner in path.iterdir():
        _linked(inner, target / inner.name)


@functools.cache
def ptx(text: str, options: tuple[str, ...] = ()) -> tuple[str, dict[str, str]]:
    """The PTX of a text whose kernels are `extern "C"`, with NVRTC's options; no names."""
    clang = _clang()
    assert clang is not None
    contract = () if "-fmad=false" in options else ("-ffp-contract=fast",)
    flags = [_FLAGS.get(option, option) for option in options]
    own = (
        "-x",
        "cuda",
        "--cuda-device-only",
        "-S",
        "-O3",
        f"--cuda-gpu-arch={ARCH}",
        f"--cuda-path={_toolkit()}",
        "-Wno-unknown-cuda-version",
    )
    words = [clang, *own, *contract, *filter(None, flags), "-", "-o", "-"]
    ended = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise CompileError(ended.stderr)
    return ended.stdout, {}
