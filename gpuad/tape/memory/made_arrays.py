"""The arrays that the operations of a recording made, and where the shadows of its temporaries live.

In: arrays as operations make them, and handles (`temporaries`) as the caller passes them. Out: what the tape knows them as, and memory for
their shadows, the same again for the same program. Assumed: a shadow that the tape made is met only through the array it was made for, in
one recording; what comes with it later is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...arguments.annotations import Duplicated
from ...arguments.arrays import address, leaf_memory, resolve
from ...budget import rounded
from ...errors import ShadowError
from ...ir.dtypes import shadow_dtype
from ...runtime.array_types import NdArray
from ...runtime.base import Executor, Memory, owner_of
from ..reverse.copy_on_write import Homes, New
from ..reverse.shadows import Shadows
from .array_guard import Guard
from .staging import Staging
from .streams import Streams
from .temporaries import Made


class MadeArrays:
    """`arrays`: what operations made, by address; `shadows`: those of temporaries, flat, by address, which live in `homes`; `guard`: what
    locks the arrays of the recording. `new`: makes memory for a shadow; `staging`: buffers in place of arrays that are others in each
    round."""

    def __init__(self, new: New, staging: Staging) -> None:
        self.homes, self.staging = Homes(new), staging
        self.guard = Guard(lambda array: bool(self.arrays) and address(array) in self.arrays, staging.outside)
        self._arrived: Any = None  # a mark behind the last copies that handles were given
        self.arrays: dict[int, Made] = {}
        self.forget()

    def forget(self) -> None:
        """A recording begins anew."""
        self.homes.reset()
        for where, made in self.arrays.items():
            if made.apart:
                self.staging.buffers.pop(where, None)
        self.staging.written = {}
        self.arrays = {}
        self.shared: dict[int, Made] = {}  # those that others may have, by address
        self.looked: set[Made] = set()  # those to whose shadows others have come
        self.shadows: dict[int, Any] = {}
        self.zeroed: frozenset[int] = frozenset()  # the addresses of those that the last reversal has left all zeros
        self._owners: dict[int, int] = {}  # whose shadow lives there in this recording: addresses

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays and of all homes of shadows, with copies of shadows, as a pool rounds them."""
        kept = (*(made.array for made in self.arrays.values()), *self.homes.arrays)
        staged = (buffer.root for where, buffer in self.staging.buffers.items() if where not in self.arrays)
        return sum(rounded(int(array.nbytes)) for array in (*kept, *staged))

    def note(self, made: Made) -> None:
        """An operation has made an array; or made it again, with the shadow that it had then."""
        if made.pair.has_shadow:
            self._note_shadow(leaf_memory(made.pair._own_shadow).root, made.array)
        self.arrays[address(made.array)] = made
        if made.apart:
            self.staging.buffers[address(made.array)] = made.memory
            self.shared[address(made.array)] = made

    def shadow(self, array: NdArray) -> Any:
        """A shadow of zeros for a temporary, laid out like it (C-contiguous)."""
        dtype = np.dtype(shadow_dtype(array.dtype))
        halves = dtype if dtype.kind != "c" else np.dtype(f"f{dtype.itemsize // 2}")
        root = self.homes.take(int(array.size) * (dtype.itemsize // halves.itemsize), halves)
        root.fill(0)
        self._note_shadow(root, array)
        return root[: array.size * (dtype.itemsize // halves.itemsize)].view(dtype).reshape(array.shape)

    def _note_shadow(self, root: NdArray, array: NdArray) -> None:
        self.homes.keep(root)
        self.shadows[address(root)] = root
        self._owners[address(root)] = address(array)

    def refuse_reused(self, primal: Memory, shadow: Memory, name: str) -> None:
        """ShadowError for a temporary of an earlier recording: the memory of its shadow is used again."""
        if self.homes.has(shadow.root) and self._owners.get(shadow.address) != primal.address:
            raise ShadowError(
                f"`{name}` is a temporary of an earlier recording, whose shadow was the tape's; go on with Duplicated({name}.primal), "
                "which begins anew. Nothing was launched."
            )

    def refuse_earlier(self, names: Iterable[str], args: Sequence[Any]) -> None:
        """ShadowError if an argument of a refused call is a temporary of an earlier recording: the memory of its shadow may be that of
        another's by now, which is what was seen."""
        for name, x in zip(names, args, strict=False):
            if isinstance(x, Duplicated) and x.primal.size:
                self.refuse_reused(resolve(x.primal), resolve(x._own_shadow), name)

    def maker(self, array: NdArray) -> Made | None:
        """What is known of an array that an operation has made; None where it has no elements."""
        return self.arrays.get(self.staging.place_of(address(array))) if array.size else None

    def is_own(self, array: Any) -> bool:
        """True if it is a view of an array that an operation made: what others have of that are views of their own (`handed_out`)."""
        return type(array) is np.ndarray and bool(array.size) and address(owner_of(array)) in self.arrays

    def owner_of_shadow(self, array: Any) -> Made | None:
        """The array of an operation of whose shadow it is a view; None where there is none."""
        if type(array) is not np.ndarray or not array.size:
            return None
        where = self._owners.get(address(owner_of(array)))
        return None if where is None else self.arrays.get(where)

    def handed_out(self, x: Any) -> Any:
        """What a caller's code may keep: of an array that an operation made, or a view of it, one that keeps its memory from being used
        again."""
        made = self.arrays.get(address(owner_of(x))) if self.arrays and type(x) is np.ndarray and x.size else None
        if made is None:
            return x
        room = owner_of(made.handed_out()).reshape(-1).view(np.uint8)  # which is not locked, whatever is made of it
        return np.ndarray(x.shape, x.dtype, room, address(x) - address(made.array), x.strides)

    def inside(self, x: Any) -> Any:
        """An argument; of an array that was handed out the one that the tape has, since to have the other is to hold it."""
        if type(x) is not np.ndarray or x.base is None or not x.size:
            return x
        made = self.arrays.get(address(owner_of(x)))
        return x if made is None else made.memory.inside(x, address(x) - address(made.array))

    # --- memory that is used again -----------------------------------------------------------------------------------------------------

    def is_free(self, made: Made) -> bool:
        """True if there is no view of the array, so that its memory can be used again."""
        if made.is_handed_out:
            self.guard.let_go(made.array)
        return not made.is_handed_out

    def part(self, made: Made, executor: Executor) -> None:
        """The memory is about to be used again: who still has a handle gets a copy."""
        self._arrived = made.take_back(executor, self._arrived)

    def taken_back(self, executor: Executor, streams: Streams) -> str:
        """Makes all arrays ready to be made again, by the same program; else why they are not. Their shadows begin with zeros, as ever."""
        held = next((made for made in self.still_shared().values() if not made.apart), None)
        if held is not None:
            return f"an array that was made at {held.where} is still held: from the next round on its holder gets a copy"
        if self.arrays:
            streams.take_back(executor)
            for made in self.arrays.values():
                if made.apart or made.has_handles:
                    self.part(made, executor)
        written = self.shadows.keys() - self.zeroed
        written |= {address(resolve(made.pair._own_shadow).root) for made in self.looked if made.pair.has_shadow}
        self.zeroed = frozenset()
        for where in written & self.shadows.keys():
            self.shadows[where].fill(0)
        return ""

    def still_shared(self) -> dict[int, Made]:
        """The arrays that others have, or have memory of their own for."""
        self.shared = {where: made for where, made in self.shared.items() if self._is_shared(where, made)}
        return self.shared

    def _is_shared(self, where: int, made: Made) -> bool:
        return self.arrays.get(where) is made and (made.apart or made.is_handed_out)

    def spare(self, shape: tuple[int, ...], dtype: Any, active: bool, stream: Any, pairings: Shadows) -> Made | None:
        """An array that is not held any more, whose memory can be that of a new one on this stream. It has the shadow that the new one is
        to have, if that is `active`, or as little one."""
        for where, made in self.arrays.items():
            if made.array.shape != shape or made.array.dtype != dtype or made.has_handles or made.stream != stream:
                continue
            pairs = [p for layer in pairings.layers for p in layer.get(where, ())]
            own = address(resolve(made.pair._own_shadow).root) if made.pair.has_shadow else None
            if bool(pairs) is active and all(address(p.root) == own for p in pairs) and self.is_free(made):
                return made
        return None
