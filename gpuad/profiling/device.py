"""What the neighbourhood says of memory: the process (RSS), CuPy's pool, and the device (NVML). A figure that is not told is None.

The pool is the truth for what a program takes; NVML counts contexts, other libraries and other processes as well. It tells no bytes by
process under Windows' display driver model and in WSL, does not know a container's process by the id that it has in there, and counts for
a card that is split into instances (MIG) as a whole.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..runtime import cuda

_THROTTLING = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}  # NVML's nvmlClocksEventReason...; idle, chosen clocks and boost groups are no throttling


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What NVML tells, in bytes; None: not told, and `why`. `throttling`: what holds clocks down."""

    used: int | None = None
    free: int | None = None
    this_process: int | None = None
    others: int | None = None
    throttling: tuple[str, ...] | None = None
    why: str = ""


class Nvml:
    """NVML for one device, by its PCI address. `nvml`: the module pynvml."""

    def __init__(self, nvml: Any, pci: str, pid: int | None = None) -> None:
        self.nvml, self.pid = nvml, os.getpid() if pid is None else pid
        nvml.nvmlInit()
        self.handle = nvml.nvmlDeviceGetHandleByPciBusId(pci.encode())
        mode = self._asked(lambda: nvml.nvmlDeviceGetMigMode(self.handle))
        self.is_split = mode is not None and mode[0] == 1

    def close(self) -> None:
        """It is not asked any more."""
        self._asked(self.nvml.nvmlShutdown)

    def read(self) -> DeviceMemory:
        """The figures now."""
        if self.is_split:
            return DeviceMemory(why="the card is split into instances (MIG), and counted as a whole")
        memory = self._asked(lambda: self.nvml.nvmlDeviceGetMemoryInfo(self.handle))
        used, free = (None, None) if memory is None else (int(memory.used), int(memory.free))
        mine, why = self._own()
        others = None if used is None or mine is None else max(used - mine, 0)
        return DeviceMemory(used, free, mine, others, self._throttling(), why)

    def _own(self) -> tuple[int | None, str]:
        processes = self._asked(lambda: self.nvml.nvmlDeviceGetComputeRunningProcesses(self.handle))
        if processes is None:
            return None, "the driver tells no processes"
        own = next((p for p in processes if p.pid == self.pid), None)
        if own is None:
            return None, "this process is not among those that the driver knows, as in a container, or does not use the device yet"
        if own.usedGpuMemory is None or own.usedGpuMemory == 2**64 - 1:
            return None, "the driver tells no bytes by process, as under WDDM and WSL"
        return int(own.usedGpuMemory), ""

    def _throttling(self) -> tuple[str, ...] | None:
        ask = getattr(self.nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or self.nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        mask = self._asked(lambda: ask(self.handle))
        return None if mask is None else tuple(name for bit, name in _THROTTLING.items() if mask & bit)

    def _asked(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except self.nvml.NVMLError:
            return None


def resident_bytes() -> int | None:
    """Resident memory of this process; None where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


@dataclass(frozen=True, slots=True)
class Reading:
    """What was seen at `seconds` (of `time.perf_counter`). `rss`: resident bytes; `pool`: bytes that CuPy's allocator has handed out."""

    seconds: float
    rss: int | None
    pool: int | None = None
    device: DeviceMemory | None = None


class Neighbourhood:
    """All that can be read on this machine. `allocator`: CuPy's: 'pool', 'async', 'rmm', 'other', or '' without CuPy."""

    def __init__(self) -> None:
        self.allocator = cuda.allocator_kind() if "cupy" in sys.modules else ""
        self.nvml = self._nvml() if self.allocator else None
        self.pool = cuda.PoolWatch() if self.allocator == "pool" else None

    def _nvml(self) -> Nvml | None:
        try:
            import pynvml
        except ImportError:
            return None
        try:
            return Nvml(pynvml, cuda.pci_addresses()[cuda.current_device()])
        except Exception:  # no driver, a card that hides: its columns are empty
            return None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Around what is profiled."""
        try:
            if self.pool is None:
                yield
            else:
                with self.pool.hooked():
                    yield
        finally:
            if self.nvml is not None:
                self.nvml.close()

    def read(self, seconds: float) -> Reading:
        """All of it now."""
        return Reading(seconds, resident_bytes(), self._pool(), self.nvml.read() if self.nvml is not None else None)

    def _pool(self) -> int | None:
        return self.pool.held if self.pool is not None else cuda.allocator_bytes(self.allocator) if self.allocator else None


__all__ = ["DeviceMemory", "Neighbourhood", "Nvml", "Reading", "resident_bytes"]
