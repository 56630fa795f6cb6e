"""The gate through which gpuad's own arrays of NumPy are made, so that a test can let one fail. CuPy's come from its allocator."""

from __future__ import annotations

from collections.abc import Callable

gates: list[Callable[[int], None]] = []


def asked(nbytes: int) -> None:
    """So many bytes are about to be allocated. MemoryError where a gate says so."""
    for gate in gates:
        gate(nbytes)


__all__ = ["asked", "gates"]
