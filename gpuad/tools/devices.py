"""Which GPU is free, as NVIDIA's management library (NVML) tells, and what state it is in while something is timed.

Devices are those that CUDA shows, in its order; NVML knows them by their PCI address. A device is free if it has the memory, is not busier
than allowed, has no other processes on it (unless they are allowed), and its compute mode lets one more process in. Of an instance of a
split device (MIG) NVML says nothing of its own: it is judged by its free memory alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..runtime.cuda import free_memory, pci_addresses
from .settings import Settings, size_in_bytes

_PROHIBITED, _EXCLUSIVE = 2, 3  # NVML's compute modes
_PAUSE = 2.0  # seconds between two looks


class DeviceError(Exception):
    """No device is free; says of each why."""


@dataclass(frozen=True)
class Found:
    """A device: its number among those that CUDA shows, and its name."""

    index: int
    name: str


Nvml: TypeAlias = Any  # the module pynvml


def free_device(settings: Settings, sleep: Callable[[float], None] = time.sleep) -> Found:
    """The first device that is free, waiting for one as long as the settings say. Raises DeviceError."""
    nvml = _nvml()
    try:
        waited = 0.0
        while True:
            found, why = _look(nvml, settings)
            if found is not None:
                return found
            if waited >= settings.gpu_wait:
                after = f" after {settings.gpu_wait} s" if settings.gpu_wait else ""
                raise DeviceError(f"no device is free{after}: {'; '.join(why)}")
            sleep(_PAUSE)
            waited += _PAUSE
    finally:
        nvml.nvmlShutdown()


def _nvml() -> Nvml:
    try:
        import pynvml
    except ImportError:
        raise DeviceError("NVML's package is not installed: pip install nvidia-ml-py") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise DeviceError(f"there is no NVIDIA driver ({error})") from None
    return pynvml


def _look(nvml: Nvml, settings: Settings) -> tuple[Found | None, Sequence[str]]:
    """A device that is free, or why each is not."""
    try:
        addresses = pci_addresses()
    except Exception as error:  # a missing package, a driver that is too old: each says so itself
        raise DeviceError(f"CuPy shows no device ({type(error).__name__}: {error})") from None
    if not addresses:
        raise DeviceError("CUDA shows no device (CUDA_VISIBLE_DEVICES may hide it)")
    why = []
    for index, address in enumerate(addresses):
        name, reason = _examined(nvml, settings, index, address)
        if not reason:
            return Found(index, name), ()
        why.append(f"{index} ({name}) {reason}")
    return None, why


def _examined(nvml: Nvml, settings: Settings, index: int, address: str) -> tuple[str, str]:
    """A device's name, and why it is not free."""
    try:
        handle = nvml.nvmlDeviceGetHandleByPciBusId(address.encode())
        name = _text(nvml.nvmlDeviceGetName(handle))
        split = _asked(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)[0] == 1) or False
        free = free_memory(index) if split else nvml.nvmlDeviceGetMemoryInfo(handle).free
        reasons = [] if split else [*_mode(nvml, handle), *_load(nvml, settings, handle)]
    except nvml.NVMLError as error:
        return "?", f"cannot be asked ({error})"
    least = size_in_bytes(settings.gpu_free_memory)
    if free < least:
        reasons.append(f"has {free / 2**30:.1f} GiB free, of {least / 2**30:.1f} wanted")
    return name + (" (MIG)" if split else ""), ", ".join(reasons)


def _mode(nvml: Nvml, handle: Any) -> list[str]:
    mode = _asked(nvml, lambda: nvml.nvmlDeviceGetComputeMode(handle))
    if mode == _PROHIBITED:
        return ["is closed to computing (compute mode PROHIBITED)"]
    if mode == _EXCLUSIVE and _others(nvml, handle):
        return ["belongs to another process (compute mode EXCLUSIVE_PROCESS)"]
    return []


def _load(nvml: Nvml, settings: Settings, handle: Any) -> list[str]:
    others = _others(nvml, handle)
    busy = _asked(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    reasons = [f"has {others} other process{'es' if others > 1 else ''}"] if others and not settings.gpu_shared else []
    return reasons + ([f"is {busy} % busy"] if busy is not None and busy > settings.gpu_utilisation else [])


def _others(nvml: Nvml, handle: Any) -> int:
    """Processes that compute there, but this one and those that run tests beside it."""
    processes = _asked(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or ()
    own = {os.getpid(), os.getppid()}
    return sum(p.pid not in own and _parent(p.pid) != os.getppid() for p in processes)


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _asked(nvml: Nvml, ask: Callable[[], Any]) -> Any:
    """An answer, or None where a device has none: not every one is measured, and a container may not be told."""
    try:
        return ask()
    except nvml.NVMLError:
        return None


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def state(index: int) -> dict[str, int | float | str]:
    """Clock and temperature of a device, to be recorded with a time; without what it does not tell."""
    try:
        nvml = _nvml()
    except DeviceError:
        return {}
    try:
        handle = nvml.nvmlDeviceGetHandleByPciBusId(pci_addresses()[index].encode())
        questions: dict[str, Callable[[], Any]] = {
            "SM clock MHz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory clock MHz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "temperature C": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        }
        answers = {name: _asked(nvml, ask) for name, ask in questions.items()}
        return {name: answer for name, answer in answers.items() if answer is not None}
    except nvml.NVMLError:
        return {}
    finally:
        nvml.nvmlShutdown()
