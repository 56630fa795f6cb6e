"""What ranks tell each other so that an error comes before a hang.

Before each call of the forward all ranks of a collective compare what they are about to do, and a message is preceded by a few bytes that
say what it is. Before a reversal they compare what they have recorded: the collectives of each communicator in their order, and for each
pair of ranks the messages between them. What differs is an error on every rank that could tell, with what each of them said.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from ..errors import DistributedError
from .watch import Watch

_WORDS = 160  # bytes that a rank says where they differ
_HEADER = struct.Struct("<q16s?7x")
HEADER = _HEADER.size
_LARGE = 1 << 62


class Agreement:
    """A communicator of MPI's on which ranks only compare what they are about to do, and have done."""

    def __init__(self, comm: Any, watch: Watch) -> None:
        self.watch = watch
        self.rank, self.size = int(comm.Get_rank()), int(comm.Get_size())
        self.renew(comm)

    def renew(self, comm: Any) -> None:
        """Goes on with another communicator, on which there were no messages yet."""
        self.comm, self._sent, self._asked = comm, [0] * self.size, [0] * self.size

    def sends(self, rank: int, tag: int) -> None:
        """Notes that a message was sent."""
        self._noted(self._sent, rank, tag)

    def asks(self, rank: int, tag: int) -> None:
        """Notes that a message was asked for."""
        self._noted(self._asked, rank, tag)

    def _noted(self, side: list[int], rank: int, tag: int) -> None:
        self.watch.messaged.add(self)
        side[rank] = (side[rank] + _number(str(tag))) % _LARGE  # in any order

    def same(self, said: str, *more: str, otherwise: str) -> None:
        """Raises DistributedError on all ranks unless all say the same; `otherwise`: what that means; `more`: to be compared, but not to be
        read."""
        if self.size == 1:
            return
        own = _number("\n".join((said, *more)))
        if self.all_same(own):
            return
        rows = self._spoken(said)
        if len({r for r in rows}) == 1:
            rows = self._spoken(more[0][: _WORDS - 1] if more else said)
        groups: dict[str, list[int]] = {}
        for rank, row in enumerate(rows):
            groups.setdefault(row, []).append(rank)
        told = "; ".join(f"{_ranks(ranks)}: {words}" for words, ranks in groups.items())
        raise self.refused(f"{otherwise}. {told}. Nothing was communicated.")

    def refused(self, text: str) -> DistributedError:
        """The error for what all ranks have seen at once, after which they are at one place. Where messages may be on their way, which
        would be taken for later ones, the others are told that it does not go on from here."""
        open_ends = self.numbers_of_others(self._sent) != self._asked or bool(self.watch.messaged - {self})
        error = DistributedError(text, shared=not self.any(open_ends))
        self.watch.tell(error)
        return error

    def all_same(self, number: int) -> bool:
        """True if all ranks have one number."""
        found = self._least(np.array([number, -number], np.int64))
        return bool(found[0] == -found[1])

    def any(self, flag: bool) -> bool:
        """True if it is so on any rank."""
        return bool(self._least(np.array([-int(flag)], np.int64))[0])

    def counts_fit(self, gives: tuple[int, ...], expects: tuple[int, ...]) -> list[str]:
        """What does not fit of what others are about to give this rank: nothing, or a message for each."""
        own, theirs = np.array(gives, np.int64), np.empty(self.size, np.int64)
        self.watch.wait(self.comm.Ialltoall(own, theirs), "comparing counts", (own, theirs))
        pairs = enumerate(zip(theirs.tolist(), expects, strict=True))
        return [f"rank {s} gives {a} bytes and rank {self.rank} takes {b}" for s, (a, b) in pairs if a != b]

    def numbers_of_others(self, own: Iterable[int]) -> list[int]:
        """The number that each rank has for this one."""
        given, theirs = np.array(list(own), np.int64), np.empty(self.size, np.int64)
        self.watch.wait(self.comm.Ialltoall(given, theirs), "comparing messages", (given, theirs))
        return [int(n) for n in theirs]

    def exchanged(self, own: Mapping[int, tuple[int, ...]], tag: int) -> dict[int, tuple[int, ...]]:
        """What other ranks have for this one, which has something for each of them."""
        found = {rank: np.empty(len(numbers), np.int64) for rank, numbers in own.items()}
        given = {rank: np.array(numbers, np.int64) for rank, numbers in own.items()}
        requests = [(rank, self.watch.hold(self.comm.Irecv(room, rank, tag), room)) for rank, room in found.items()]
        requests += [(rank, self.watch.hold(self.comm.Isend(room, rank, tag), room)) for rank, room in given.items()]
        for rank, request in requests:
            self.watch.wait(request, f"comparing messages with rank {rank}")
        return {rank: tuple(room.tolist()) for rank, room in found.items()}

    def _least(self, own: Any) -> Any:
        found = np.empty_like(own)
        from mpi4py import MPI

        self.watch.wait(self.comm.Iallreduce(own, found, MPI.MIN), "comparing calls", (own, found))
        return found

    def _spoken(self, said: str) -> list[str]:
        own = np.zeros(_WORDS, np.uint8)
        words = np.frombuffer(said.encode()[: _WORDS - 1], np.uint8)
        own[: len(words)] = words
        rows = np.empty((self.size, _WORDS), np.uint8)
        self.watch.wait(self.comm.Iallgather(own, rows), "comparing calls", (own, rows))
        return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in rows]


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:8]))
    return f"ranks {shown}{', ...' if len(ranks) > 8 else ''}"


def _number(said: str) -> int:
    return int.from_bytes(blake2b(said.encode(), digest_size=7).digest(), "little")


number_of = _number


def header(nbytes: int, dtype: str, active: bool) -> bytes:
    """What precedes a message."""
    return _HEADER.pack(nbytes, dtype.encode(), active)


def compare_header(came: bytes, own: bytes, what: str) -> None:
    """Raises DistributedError if a message is not what is expected."""
    if bytes(came) == own:
        return
    (n, dtype, active), (m, wanted, needed) = _HEADER.unpack(came), _HEADER.unpack(own)
    sent, expected = dtype.rstrip(b"\0").decode(), wanted.rstrip(b"\0").decode()
    if (n, sent) != (m, expected):
        raise DistributedError(
            f"{what} has {n} bytes of {sent}, and is received into {m} bytes of {expected}: both sides say the same count and dtype. The "
            "array was not written."
        )
    one, other = ("with", "without") if active else ("without", "with")
    assert active != needed
    raise DistributedError(
        f"{what} comes from an array {one} a shadow and goes into one {other}: its gradient would be dropped. Pass Duplicated on both "
        "sides, or on neither. The array was not written."
    )
