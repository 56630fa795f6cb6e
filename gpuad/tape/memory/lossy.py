"""Memory of which a tape stores earlier versions less exactly, since the user says so by name (`Tape(store={U: "bfloat16"})`).

What an adjoint reads of an overwritten version is then a number rounded to fewer bits. Nothing else is: what is still in memory is read
there, checkpoints from which operations run again are exact, and so is what is put back at the end of a reversal. So no rounding is carried
on by the program, and the error of a stored number is that of one rounding, which is measured as it is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ...arguments.annotations import BatchDuplicated, Duplicated
from ...arguments.arrays import address, namespace, resolve
from ...errors import TapeError
from ...ir.dtypes import is_real
from ...program.ir.region import Region, of_array
from ...public_calls import mapping
from ...runtime.actions import Action, ByPython
from ...runtime.array_types import NdArray

_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_PORTION = 1 << 14  # elements that are converted at once, on a CPU in its cache
_ON_DEVICE = 1 << 18


def _to_bfloat16(values: Any) -> Any:
    """Floats to the nearest bfloat16, ties to even, as its bits; a NaN stays one."""
    single = values.astype(np.float32)
    bits = single.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return namespace(values).where(single != single, quiet, rounded).astype(np.uint16)


def _of_bfloat16(stored: Any) -> Any:
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)


@dataclass(frozen=True, slots=True)
class Format:
    """Numbers of a dtype, stored as those of a shorter one."""

    name: str
    wide: np.dtype[Any]

    @property
    def narrow(self) -> np.dtype[Any]:
        """The dtype of what is stored: for bfloat16, which NumPy does not have, that of its bits."""
        return np.dtype(np.uint16 if self.name == "bfloat16" else self.name)

    def rounded(self, values: Any) -> Any:
        """Numbers as they are stored."""
        return _to_bfloat16(values) if self.name == "bfloat16" else values.astype(self.narrow)

    def back(self, stored: Any) -> Any:
        """What they are read as."""
        return (_of_bfloat16(stored) if self.name == "bfloat16" else stored).astype(self.wide)


@dataclass(eq=False)
class Measured:
    """Of all that was stored of an array since the recording began: numbers, and on its device the largest error, absolute and relative to
    the number, and how many numbers did not fit."""

    pieces: int = 0
    numbers: int = 0
    largest: Any = None

    def forget(self) -> None:
        """Begins anew."""
        self.pieces = self.numbers = 0
        self.largest = None

    def note(self, values: Any, read: Any) -> None:
        """Numbers, and what they are read as."""
        xp = namespace(values)
        if self.largest is None:
            self.largest = xp.zeros(3)
        finite = xp.isfinite(values)
        off = xp.where(finite, xp.abs(read - values), 0.0)
        size = xp.where(finite & (values != 0), xp.abs(values), xp.inf)
        now = xp.stack([off.max(), (off / size).max(), (finite & ~xp.isfinite(read)).sum()])
        self.largest = xp.maximum(self.largest, now)


@dataclass(frozen=True, eq=False)
class Lossy:
    """An array whose earlier versions are stored less exactly. `where`: its allocation's address, `region`: its bytes in it."""

    pair: Any
    where: int
    region: Region
    format: Format
    measured: Measured = field(default_factory=Measured)

    def part(self, region: Region) -> Region:
        """What of a region is stored so: nothing where it has parts of numbers."""
        own = region & self.region
        return own if not (own.spans % self.format.wide.itemsize).any() else own - own

    def nbytes(self, region: Region) -> int:
        """Bytes that a region of it takes."""
        return region.nbytes // self.format.wide.itemsize * self.format.narrow.itemsize

    def saving(self, root: NdArray, region: Region, data: Any) -> Action:
        """What stores a region's numbers in `data`, and measures the error."""
        return ByPython(
            partial(self._save, root, region, data), "store", f"as {self.format.name}", "it measures the error of what it stores"
        )

    def placing(self, data: Any, region: Region, part: Region, target: NdArray, shift: int) -> Action:
        """What copies a part of a region's numbers to their places in `target`, whose first byte is byte `shift` of the allocation."""
        return ByPython(partial(self._place, data, region, part, target, shift), "store", f"as {self.format.name}", "")

    def _save(self, root: NdArray, region: Region, data: Any) -> None:
        stored = data.view(self.format.narrow)
        with np.errstate(all="ignore"):
            for low, high, at in self._portions(region, region):
                values = root[low:high].view(self.format.wide)
                first = at // self.format.wide.itemsize
                stored[first : first + values.size] = narrow = self.format.rounded(values)
                self.measured.note(values, self.format.back(narrow))
        self.measured.pieces += 1
        self.measured.numbers += stored.size

    def _place(self, data: Any, region: Region, part: Region, target: NdArray, shift: int) -> None:
        stored, size = data.view(self.format.narrow), self.format.wide.itemsize
        for low, high, at in self._portions(region, part):
            lead = at % size  # of a number that the part has only the end of
            values = self.format.back(stored[at // size : -(-(at + high - low) // size)]).view(np.uint8)
            target[low - shift : high - shift] = values[lead : lead + high - low]

    def _portions(self, region: Region, part: Region) -> Iterator[tuple[int, int, int]]:
        """The bytes of a part, from where to where, with the place of the first among those of the region."""
        length = self.format.wide.itemsize * (_PORTION if isinstance(self.pair.primal, np.ndarray) else _ON_DEVICE)
        begins = region.spans[:, 0]
        offsets = np.concatenate([[0], np.cumsum(region.spans[:, 1] - begins)])
        for begin, end in part.spans.tolist():
            i = int(np.searchsorted(begins, begin, side="right")) - 1
            for low in range(begin, end, length):
                yield low, min(low + length, end), int(offsets[i]) + low - int(begins[i])

    @property
    def unfit(self) -> int:
        """How many numbers were too large, and would be read as infinite."""
        return int(self.measured.largest[2]) if self.measured.largest is not None else 0

    def described(self, name: str) -> str:
        """What was stored, and the largest error, for people."""
        found = self.measured
        if found.largest is None:
            return f"store      nothing of `{name}` as {self.format.name}: no version of it was overwritten and needed"
        absolute, relative, _ = (float(x) for x in found.largest)
        wide, narrow = found.numbers * self.format.wide.itemsize, found.numbers * self.format.narrow.itemsize
        return (
            f"store      `{name}` as {self.format.name}: {narrow} B in place of {wide} B in {found.pieces} pieces; the largest error of a "
            f"stored number is {absolute:.3g}, and {relative:.3g} of the number"
        )


def lossy_of(store: Mapping[Any, str] | None) -> dict[int, tuple[Lossy, ...]]:
    """What `store` says, by the addresses of allocations. TapeError for what is no pair of arrays, for numbers that are no floats, and for
    formats that are not known or not shorter."""
    found: dict[int, tuple[Lossy, ...]] = {}
    for pair, name in mapping("store", {} if store is None else store).items():
        made = _checked(pair, name)
        others = found.get(made.where, ())
        if any(other.region & made.region for other in others):
            raise TapeError("store= names overlapping arrays; name the array that they are views of")
        found[made.where] = (*others, made)
    return found


def _checked(pair: Any, name: Any) -> Lossy:
    if not isinstance(pair, Duplicated | BatchDuplicated):
        raise TapeError(f"store= takes {{Duplicated: 'bfloat16', 'float16' or 'float32'}}, not a {type(pair).__name__} as a key")
    array = pair.primal
    if array.dtype.kind != "c" and not is_real(array.dtype):
        raise TapeError(f"store= takes arrays of floating-point or complex numbers; {array.dtype} is kept as it is, to the bit")
    wide = np.dtype(np.empty(0, array.dtype).real.dtype) if array.dtype.kind in "fc" else array.dtype
    if name not in _BYTES or _BYTES[name] >= wide.itemsize:
        shorter = ", ".join(repr(n) for n, size in _BYTES.items() if size < wide.itemsize) or "nothing: it is short already"
        raise TapeError(f"store= takes for numbers of {wide} {shorter}; not {name!r}")
    if not array.size:
        raise TapeError("store= names an array without elements")
    memory = resolve(array)
    region = of_array(array, memory.offset * int(array.dtype.itemsize))
    return Lossy(pair, address(memory.root), region, Format(name, wide))
