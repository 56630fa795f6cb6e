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

from .host import Entry, default_workers, own_entry

PIECE = 1 << 15  # bytes of a span that one worker, or one block of threads, goes through
Spans = NDArray[np.int64]  # (n, 2): the first byte of each, and the one after its last
_LEAST = 1 << 18  # bytes for which workers are started
_THREADS, _BLOCKS = 256, 2048

_TEXT = r"""
GPUAD_INLINE std::uint64_t gpuad_mixed(std::uint64_t a, std::uint64_t b)
{
    const unsigned __int128 product = (unsigned __int128)a * b;
    return (std::uint64_t)product ^ (std::uint64_t)(product >> 64);
}

GPUAD_INLINE std::uint64_t gpuad_block(const std::uint64_t* w, std::uint64_t place)
{
    const std::uint64_t p = 0xa0761d6478bd642full, q = 0xe7037ed1a0b428dbull, r = 0x8ebc6af09c88c6e3ull, s = 0x589965cc75374cc3ull;
    const std::uint64_t seed = gpuad_mixed(place ^ s, q);
    const std::uint64_t one = gpuad_mixed(w[0] ^ p, w[1] ^ seed) ^ gpuad_mixed(w[2] ^ q, w[3] ^ seed);
    const std::uint64_t other = gpuad_mixed(w[4] ^ r, w[5] ^ seed) ^ gpuad_mixed(w[6] ^ s, w[7] ^ seed);
    return gpuad_mixed(one ^ other ^ p, seed ^ r);
}

static std::uint64_t gpuad_digest_of(const char* memory, long long low, long long high)
{
    std::uint64_t sum = 0, w[8];
    for (; low + 64 <= high; low += 64) {
        std::memcpy(w, memory + low, 64);
        sum += gpuad_block(w, (std::uint64_t)low);
    }
    if (low < high) {
        std::memset(w, 0, 64);
        std::memcpy(w, memory + low, high - low);
        sum += gpuad_block(w, (std::uint64_t)low);
    }
    return sum;
}

}  // namespace

extern "C" GPUAD_EXPORT int gpuad_launch_digest(const long long* geometry, const unsigned long long* slots)
{
    using namespace gpuad_host;
    const long long count = geometry[0];
    const int workers = gpuad_workers(geometry[1], geometry[2] >= LEAST, count), parts = gpuad_parts(workers, count, count);
    const gpuad_large<std::uint64_t> sums(parts);
    const int status = gpuad_parallel(workers, parts, [&](int part) {
        const long long* spans = gpuad_slot<const long long*>(slots, 1);
        std::uint64_t sum = 0;
        for (long long k = gpuad_bound(count, part, parts), end = gpuad_bound(count, part + 1, parts); k < end; ++k)
            sum += gpuad_digest_of(gpuad_slot<const char*>(slots, 0), spans[2 * k], spans[2 * k + 1]);
        sums.data[part] = sum;
    });
    if (status) return status;
    std::uint64_t sum = 0;
    for (int k = 0; k < parts; ++k) sum += sums.data[k];
    *gpuad_slot<std::uint64_t*>(slots, 2) = sum;
    return 0;
}
"""

_DEVICE_TEXT = r"""
extern "C" __global__ void gpuad_digest_UNIT(const WORD* memory, const long long* spans, long long count, unsigned long long* sum)
{
    unsigned long long found = 0;
    for (long long k = blockIdx.x; k < count; k += gridDim.x)
        for (long long i = spans[2 * k] / UNIT + threadIdx.x; i < spans[2 * k + 1] / UNIT; i += blockDim.x) {
            unsigned long long x = (unsigned long long)memory[i] + 0x9e3779b97f4a7c15ull * (unsigned long long)(i + 1);
            x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
            x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
            found += x ^ (x >> 31);
        }
    atomicAdd(sum, found);
}
"""
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
    return own_entry(_TEXT.replace("LEAST", str(_LEAST)), "gpuad_launch_digest")


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
    text = _DEVICE_TEXT.replace("UNIT", str(unit)).replace("WORD", _WORDS[unit][0])
    return sys.modules["cupy"].RawKernel(text, f"gpuad_digest_{unit}", ("-std=c++17",))
