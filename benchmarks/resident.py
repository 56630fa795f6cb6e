"""How much memory this process has: resident now, and at most since the peak was last forgotten.

Linux says both and can forget; elsewhere the peak is that of the process's whole life, and what is said of it so is an upper bound.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

_STATUS, _FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def settle() -> None:
    """Gives back what was freed: objects in cycles, and, where the C library can, memory that it keeps for the next request."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def now() -> int:
    """Resident bytes; the peak where the system does not tell."""
    return _field("VmRSS") or _life()


def peak() -> int:
    """The most that was resident, in bytes."""
    return _field("VmHWM") or _life()


def forget() -> bool:
    """Begins a new peak; False if this system cannot."""
    try:
        _FORGET.write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _field(name: str) -> int:
    try:
        lines = _STATUS.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":")), 0)


def _life() -> int:
    try:
        import resource
    except ImportError:
        return 0
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)
