"""A digest of spans of memory, by compiled code: on a CPU's cores, or on the GPU that has the memory.

Each block of up to 64 bytes is mixed with its place, by products of 128 bits (Wang Yi, "wyhash"; on a GPU each word of up to 8 bytes, by
the finaliser of Steele, Lea and Flood, "splitmix64"), and what comes out is added up, so that the digest does not depend on who computes
which part.
"""

from __future__ import annotations

import struct
import sys
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codegen.cpu.helpers import text
from .host import Entry, default_workers, own_entry

PIECE = 1 << 15  # bytes of a span that one worker, or one block of threads, goes through
Spans = NDArray[np.int64]  # (n, 2): the first byte of each, and the one after its last
_LEAST = 1 << 18  # bytes for which workers are started
_THREADS, _BLOCKS = 256, 2048

_WORDS = {8: ("unsigned long long", np.uint64), 4: ("unsigned int", np.uint32), 1: ("unsigned char", np.uint8)}


def digest(memory: NDArray[np.uint8], spans: Spans) -> int | None:
    """A number of 64 bits that differs, nearly always, if any byte of the spans of flat memory does; None without a compiler."""
    entry = _entry()
    if entry is None:
        return None
    if len(spans) == 0 or int(spans.min()) < 0 or int(spans.max()) > memory.size:
        raise ValueError("a span lies outside of the memory")
    found = np.zeros(1, np.uint64)
    where = (array.__array_interface__["data"][0] for array in (memory, spans, found))
    geometry = struct.pack("=3q", len(spans), default_workers(), int((spans[:, 1] - spans[:, 0]).sum()))
    if entry(geometry, struct.pack("=3Q", *where)):
        raise MemoryError
    return int(found[0])


@cache
def _entry() -> Entry | None:
    return own_entry(text("digest.hpp").replace("LEAST", str(_LEAST)), "gpuad_launch_digest")


def digest_on_device(memory: Any, spans: Spans) -> int:
    """The digest of spans of flat memory of CuPy, on the current stream, which is waited for."""
    library = sys.modules["cupy"]
    place, shift = _on_device(spans.tobytes(), int(library.cuda.Device().id)), int(memory.data.ptr)
    unit = next(unit for unit in _WORDS if not shift % unit and not (spans % unit).any())
    found = library.zeros(1, np.uint64)
    words = memory[: memory.size // unit * unit].view(_WORDS[unit][1])
    _kernel(unit)((min(len(spans), _BLOCKS),), (_THREADS,), (words, place, np.int64(len(spans)), found))
    return int(found.get()[0])


@lru_cache(64)
def _on_device(spans: bytes, device: int) -> Any:
    return sys.modules["cupy"].asarray(np.frombuffer(spans, np.int64))


@cache
def _kernel(unit: int) -> Any:
    source = text("digest.cu").replace("UNIT", str(unit)).replace("WORD", _WORDS[unit][0])
    return sys.modules["cupy"].RawKernel(source, f"gpuad_digest_{unit}", ("-std=c++17",))
