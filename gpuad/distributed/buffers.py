"""What a caller passes as a buffer, in mpi4py's words, as an array of ours and the elements of it that are meant.

`x`, `[x, count]`, `[x, counts, displacements]`, `[x, (counts, displacements)]`, each with a datatype of MPI behind. A datatype that is
derived (a column of a matrix) is read as what it is: a view of the array, and a view of its shadow.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np

from ..arguments.annotations import BatchDuplicated, Const, Duplicated
from ..arguments.arrays import as_array
from ..arguments.layouts import repeats
from ..errors import GpuadError, LaunchError

Segments = tuple[tuple[int, int], ...]  # of an array's elements in C order: from, to


@dataclass(frozen=True, eq=False)
class Buffer:
    """An array, perhaps with a shadow, and blocks of it: `counts` elements from `places` on; None where it is one block."""

    x: Any
    counts: tuple[int, ...] | None = None
    places: tuple[int, ...] | None = None

    @property
    def array(self) -> Any:
        """The array itself."""
        return self.x.primal if isinstance(self.x, Duplicated | Const) else self.x

    @property
    def size(self) -> int:
        """Number of its elements."""
        return int(self.array.size)

    def blocks(self, ranks: int, own: int | None = None) -> tuple[tuple[int, ...], Segments]:
        """For each rank the number of elements, and where they are; () if they are all of the array, in order. Without counts each rank has
        as many, or `own`."""
        counts = self.counts
        if counts is None:
            each = self.size // ranks if own is None else own
            counts = (each,) * ranks
            if each * ranks != self.size:
                raise LaunchError(
                    f"a buffer of {self.size} elements does not have {each} for each of {ranks} ranks: pass [x, counts]. Nothing was sent."
                )
        if len(counts) != ranks:
            raise LaunchError(f"{len(counts)} counts for {ranks} ranks. Nothing was sent.")
        places = self.places if self.places is not None else (0, *accumulate(counts[:-1]))
        segments = tuple((int(p), int(p + n)) for p, n in zip(places, counts, strict=True))
        if any(n < 0 for n in counts) or any(a < 0 or z > self.size for a, z in segments):
            raise LaunchError(f"counts {counts} at {places} leave a buffer of {self.size} elements. Nothing was sent.")
        return counts, () if is_whole(segments, self.size) else segments


def is_whole(segments: Segments, size: int) -> bool:
    """True if segments are all elements in order."""
    ends = [0, *(z for _, z in segments)]
    return all(a == end for (a, _), end in zip(segments, ends[:-1], strict=True)) and ends[-1] == size


def refuse_overlap(segments: Segments) -> None:
    """LaunchError where something would be received twice."""
    spans = sorted(s for s in segments if s[0] < s[1])
    if any(a[1] > b[0] for a, b in pairwise(spans)):
        raise LaunchError("blocks that are received overlap: what stays is undefined. Nothing was sent.")


def buffer(given: Any) -> Buffer:
    """A buffer in mpi4py's words. GpuadError for what it cannot be."""
    if isinstance(given, Buffer):
        return given
    if not isinstance(given, list | tuple):
        return Buffer(_checked(given))
    x, *rest = given
    x = _checked(x)
    counts: Any = None
    places: Any = None
    derived = False
    for part in rest:
        if isinstance(part, int | np.integer):
            counts = int(part)
        elif hasattr(part, "Get_envelope") or isinstance(part, str):
            derived = not isinstance(part, str) and not part.is_predefined
            x = _typed(x, part)
        elif isinstance(part, tuple | list) and len(part) == 2 and isinstance(part[0], Sequence | np.ndarray):
            counts, places = _numbers(part[0]), _numbers(part[1])
        elif counts is None:
            counts = _numbers(part)
        else:
            places = _numbers(part)
    if derived and counts not in (None, 1):
        raise LaunchError("of a derived datatype one is sent or received at a time. Nothing was sent.")
    if isinstance(counts, int):
        return Buffer(x if derived or counts == x.size else x.reshape(-1)[:counts])
    return Buffer(x, counts, places)


def _numbers(given: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in given)


def _checked(x: Any) -> Any:
    if isinstance(x, BatchDuplicated):
        raise GpuadError("collectives take one shadow an array; BatchDuplicated is for kernels and elementwise operations")
    array = x.primal if isinstance(x, Duplicated | Const) else as_array(x)
    if not hasattr(array, "strides") or isinstance(array, np.generic):
        raise LaunchError(f"a buffer is an array or a Duplicated, not a {type(x).__name__}. Nothing was sent.")
    if array.dtype.hasobject or array.dtype.names or not array.dtype.isnative:
        raise LaunchError(f"a buffer holds numbers in the machine's order of bytes, not {array.dtype}. Nothing was sent.")
    if repeats(array):
        raise LaunchError("some elements of a buffer are the same memory (a broadcast array?); pass a copy. Nothing was sent.")
    if array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous:  # elements move in the order of memory
        return x.T if isinstance(x, Duplicated) else Const(array.T) if isinstance(x, Const) else array.T
    return x if isinstance(x, Duplicated | Const) else array


# --- datatypes ---------------------------------------------------------------------------------------------------------------------------


def _typed(x: Any, datatype: Any) -> Any:
    """The part of an array that a datatype of MPI means."""
    mpi = sys.modules["mpi4py.MPI"]
    if isinstance(datatype, str):
        datatype = mpi.Datatype.fromcode(datatype)
    dtype = x.dtype
    if datatype.is_predefined:
        if datatype.Get_size() != dtype.itemsize:
            raise LaunchError(f"a datatype of {datatype.Get_size()} bytes for an array of {dtype}. Nothing was sent.")
        return x
    base, combiner, params = datatype.decode()
    if combiner == "DUP":
        return _typed(x, base)
    if not base.is_predefined or base.Get_size() != dtype.itemsize:
        raise LaunchError(f"a derived datatype is one of elements like the array's ({dtype}); else pass a view. Nothing was sent.")
    flat = x.reshape(-1)
    if combiner == "CONTIGUOUS":
        return flat[: params["count"]]
    if combiner in ("VECTOR", "HVECTOR"):
        step = params["stride"] if combiner == "VECTOR" else params["stride"] // dtype.itemsize
        return _vector(flat, params["count"], params["blocklength"], step)
    if combiner == "SUBARRAY":
        sizes, inner, starts = (tuple(params[k]) for k in ("sizes", "subsizes", "starts"))
        if params["order"] != mpi.ORDER_C:
            raise LaunchError("a subarray in Fortran's order: pass a view of the array instead. Nothing was sent.")
        return flat[: prod(sizes)].reshape(*sizes)[tuple(slice(a, a + n) for a, n in zip(starts, inner, strict=True))]
    raise LaunchError(f"a datatype made by {combiner} is not read: pass a view of the array instead. Nothing was sent.")


def _vector(flat: Any, count: int, length: int, step: int) -> Any:
    if length == 1:
        return flat[: (count - 1) * step + 1 : step]
    if count * step > flat.size:
        raise LaunchError("the last row of a vector datatype leaves the array: pass a view of it instead. Nothing was sent.")
    return flat[: count * step].reshape(count, step)[:, :length]
