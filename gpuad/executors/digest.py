"""A digest of blocks of a CPU's memory, by compiled code on all cores: of blocks that lie far apart, NumPy and zlib read each twice.

Each block of 64 bytes is mixed with its place, by products of 128 bits (Wang Yi, "wyhash"), and what comes out is added up, so that the
digest does not depend on who computes which part.
"""

from __future__ import annotations

import struct
from functools import cache

import numpy as np
from numpy.typing import NDArray

from .host import Entry, default_workers, own_entry

BLOCK = 64
_AHEAD = 24  # blocks that are on their way from memory
_LEAST = 1 << 12  # blocks for which workers are started

_TEXT = r"""
GPUAD_INLINE std::uint64_t gpuad_mixed(std::uint64_t a, std::uint64_t b)
{
    const unsigned __int128 product = (unsigned __int128)a * b;
    return (std::uint64_t)product ^ (std::uint64_t)(product >> 64);
}

static std::uint64_t gpuad_digest_of(const char* memory, const long long* places, long long first, long long last)
{
    const std::uint64_t p = 0xa0761d6478bd642full, q = 0xe7037ed1a0b428dbull, r = 0x8ebc6af09c88c6e3ull, s = 0x589965cc75374cc3ull;
    std::uint64_t sum = 0;
    for (long long k = first; k < last; ++k) {
        const long long next = k + AHEAD < last ? k + AHEAD : last - 1;
        __builtin_prefetch(memory + places[next] * 64);
        std::uint64_t w[8];
        std::memcpy(w, memory + places[k] * 64, 64);
        const std::uint64_t seed = gpuad_mixed((std::uint64_t)k ^ s, q);
        const std::uint64_t one = gpuad_mixed(w[0] ^ p, w[1] ^ seed) ^ gpuad_mixed(w[2] ^ q, w[3] ^ seed);
        const std::uint64_t other = gpuad_mixed(w[4] ^ r, w[5] ^ seed) ^ gpuad_mixed(w[6] ^ s, w[7] ^ seed);
        sum += gpuad_mixed(one ^ other ^ p, seed ^ r);
    }
    return sum;
}

}  // namespace

extern "C" GPUAD_EXPORT int gpuad_launch_digest(const long long* geometry, const unsigned long long* slots)
{
    using namespace gpuad_host;
    const long long count = geometry[0];
    const int workers = gpuad_workers(geometry[1], count >= LEAST, count), parts = gpuad_parts(workers, count, count);
    const gpuad_large<std::uint64_t> sums(parts);
    const int status = gpuad_parallel(workers, parts, [&](int part) {
        const long long first = gpuad_bound(count, part, parts), last = gpuad_bound(count, part + 1, parts);
        sums.data[part] = gpuad_digest_of(gpuad_slot<const char*>(slots, 0), gpuad_slot<const long long*>(slots, 1), first, last);
    });
    if (status) return status;
    std::uint64_t sum = 0;
    for (int k = 0; k < parts; ++k) sum += sums.data[k];
    *gpuad_slot<std::uint64_t*>(slots, 2) = sum;
    return 0;
}
"""


def digest(memory: NDArray[np.uint8], places: NDArray[np.int64]) -> int | None:
    """A number of 64 bits that differs, nearly always, if any of the blocks number `places` of flat memory does; None without a
    compiler."""
    entry = _entry()
    if entry is None:
        return None
    if len(places) == 0 or int(places.min()) < 0 or (int(places.max()) + 1) * BLOCK > memory.size:
        raise ValueError("a block lies outside of the memory")
    found = np.zeros(1, np.uint64)
    where = (array.__array_interface__["data"][0] for array in (memory, places, found))
    if entry(struct.pack("=2q", len(places), default_workers()), struct.pack("=3Q", *where)):
        raise MemoryError
    return int(found[0])


@cache
def _entry() -> Entry | None:
    text = _TEXT.replace("AHEAD", str(_AHEAD)).replace("LEAST", str(_LEAST))
    return own_entry(text, "gpuad_launch_digest")
