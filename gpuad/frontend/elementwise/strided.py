"""How generated kernels index strided arrays: coordinates `i0, i1, ...` (the innermost first) against lengths, offsets and strides.

Every index is affine in the coordinates, with the strides as numbers of the launch; so regions are exact and accumulation is proved plain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Operand:
    """Something indexed by coordinates: `key` names its offset and strides; `pattern` has for each axis '0' (broadcast), '1' (side by
    side) or 's' (a stride by number)."""

    key: str
    pattern: str

    def numbers(self, prefix: str = "") -> list[str]:
        """The strides that are numbers of the launch, by name."""
        return [f"{prefix}s{self.key}_{k}" for k, kind in enumerate(self.pattern) if kind == "s"]

    def index(self, prefix: str = "", coordinates: Sequence[str] = ()) -> str:
        """The element at the coordinates."""
        terms = [f"{prefix}o{self.key}"]
        for k, kind in enumerate(self.pattern):
            at = coordinates[k] if coordinates else f"{prefix}i{k}"
            terms += {"0": [], "1": [at], "s": [f"{at} * {prefix}s{self.key}_{k}"]}[kind]
        return " + ".join(terms)


def thread_lines(threads: int, dims: int, index: str, prefix: str = "") -> list[str]:
    """The coordinates: of the first `threads` axes from the thread, of the others by loops around the statement that follows."""
    wide = "" if index == "int" else f"({index})"
    lines = [
        f"{index} {prefix}i{k} = {wide}blockIdx.{c} * blockDim.{c} + threadIdx.{c};" for k, c in zip(range(threads), "xyz", strict=False)
    ]
    lines.append(f"if ({' || '.join(f'{prefix}i{k} >= {prefix}n{k}' for k in range(threads))}) return;")
    return lines + [loop_line(f"{prefix}i{k}", f"{prefix}n{k}", index) for k in range(threads, dims)]


def loop_line(counter: str, bound: str, index: str) -> str:
    """The head of a loop over one axis."""
    return f"for ({index} {counter} = 0; {counter} < {bound}; ++{counter})"
