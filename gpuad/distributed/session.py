"""A recording in which several processes take part, and its reversal.

Ranks begin a reversal together. Each compares with the others, on every communicator that its recording used, in the order in which these
were made: the collectives, as a hash of all that was recorded of them in order; for each pair of ranks the messages between them, as both
sides have numbered them; the budgets, the rank that gives the seeds, and whether sums are in order. An error on one rank, in the recording
or in the reversal, is told to all.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from ..arguments.aliasing import hull
from ..arguments.annotations import Duplicated
from ..arguments.arrays import as_array, leaf_memory, namespace
from ..errors import DistributedError, TapeError
from ..pipeline import in_fixed_point
from ..program.ir.region import of_array
from ..runtime.tensor_versions import count_writes
from ..tape.program_recording import ProgramRecording
from ..tape.record.recorded_rule import Ruled
from . import operations
from .agreement import Agreement, number_of
from .linear import Shape
from .mpi import MpiTransport, wait_for_stream
from .nccl import NcclTransport
from .operations import Call, Joint, Message
from .watch import Watch

EVERY = "every"  # a seed_rank: seeds on all ranks count
_ALIKE = ("sum_all", "root_to_all", "gather_all")  # what leaves the same on all ranks


class Ranks(Protocol):
    """A communicator, as far as a reversal needs it: its number, its ranks, where they compare, wait, and send in the reverse; `tags`: the
    first tag that no message has."""

    number: int
    rank: int
    size: int
    check: bool
    tags: int
    watch: Watch
    back: MpiTransport | NcclTransport

    @property
    def calls(self) -> Agreement:
        """Where ranks compare."""


class Session:
    """What the ranks' communicators know of a recording of a tape, from its first call on one of them."""

    def __init__(self) -> None:
        self.used: dict[int, Ranks] = {}
        self._numbers: Counter[tuple[int, str, int, int]] = Counter()
        self._replicated: list[tuple[Ranks, Duplicated]] = []

    @classmethod
    def of(cls, tape: ProgramRecording, comm: Ranks) -> Session:
        """The session of the recording that goes on, in which a communicator is used."""
        session = tape.joint
        if not isinstance(session, Session):
            session = tape.joint = cls()
        session.used[comm.number] = comm
        return session

    def next_number(self, comm: int, side: str, rank: int, tag: int) -> int:
        """Which message to, or from, a rank with a tag it is: both sides count."""
        key = comm, side, rank, tag
        self._numbers[key] += 1
        return self._numbers[key] - 1

    def replicate(self, comm: Ranks, pairs: Sequence[Duplicated]) -> None:
        """Notes arrays that all ranks have."""
        for pair in pairs:
            if not isinstance(pair, Duplicated):
                raise TapeError("replicated() takes Duplicated: their shadows are summed over the ranks")
            said = f"{pair.dtype} {pair.shape}"
            low, high = hull(pair.primal)
            known = [hull(other.primal) for _, other in self._replicated]
            if (low, high) in known:
                continue
            if any(low < end and begin < high for begin, end in known):
                raise TapeError("a replicated array overlaps another: its gradient would be summed twice. Name each once, whole.")
            if comm.check:
                comm.calls.same(said, str(_mark(pair.primal)), otherwise="a replicated array is not the same on all ranks")
            self._replicated.append((comm, pair))

    def failed(self, error: BaseException) -> None:
        """Tells all ranks of all communicators of the recording that this one goes no further."""
        for comm in self.used.values():
            comm.watch.tell(error)

    @contextmanager
    def reversing(
        self, tape: ProgramRecording, seeds: Mapping[Any, Any] | None, seed_rank: int | str | None
    ) -> Iterator[Mapping[Any, Any] | None]:
        """Around a reversal; gives the seeds of this rank."""
        comms = [self.used[k] for k in sorted(self.used)]
        try:
            for comm in comms:
                comm.watch.require()
            given = self._agreed(tape, comms, seeds, seed_rank)
            with self._summed(tape):
                yield given
                for comm in comms:
                    comm.back.all_left()
        except BaseException as error:
            self.failed(error)
            raise

    def captured(self, tape: ProgramRecording, seeds: Mapping[Any, Any] | None, seed_rank: int | str | None) -> Mapping[Any, Any] | None:
        """The seeds of this rank for a graph."""
        if self._replicated:
            raise TapeError("a graph does not sum the shadows of replicated arrays: Bcast them in the program, or reverse the tape itself")
        for comm in (comms := [self.used[k] for k in sorted(self.used)]):
            comm.watch.require()
        given: Mapping[Any, Any] | None = self._agreed(tape, comms, seeds, seed_rank)
        return given

    # --- agreeing ------------------------------------------------------------------------------------------------------------------------

    def _agreed(self, tape: ProgramRecording, comms: Sequence[Ranks], seeds: Any, seed_rank: int | str | None) -> Any:
        recorded = [(op.rule, op.values["what"]) for op in tape.operations if isinstance(op, Ruled) and isinstance(op.rule, Joint)]
        calls = [_call(rule, what) for rule, what in recorded if rule is not operations.SENT]  # which Isend has told already
        budget = tape.within.given
        met: list[Ranks] = []
        for comm in comms:
            own = [c for c in calls if isinstance(c, Call) and c.comm == comm.number]
            messages = [c for c in calls if isinstance(c, Message) and c.comm == comm.number]
            said = f"a {tape.state} program of {len(own)} collectives, budget {budget!r}, seed_rank {seed_rank!r}"
            if in_fixed_point():
                said += ", deterministic"
            if own:
                met.append(comm)
                digest = f"collectives that hash to {number_of(chr(10).join(c.said for c in own)):014x}"
                comm.calls.same(said, digest, otherwise="the ranks do not reverse the same program")
                self._compare_messages(comm, messages)
            else:
                self._compare_with_partners(comm, messages, said)
        outer = max(met or comms, key=lambda comm: (comm.size, -comm.number))
        if seed_rank is not None and seed_rank != EVERY:
            return self._seeds_of(outer, seeds, seed_rank)
        if seed_rank is None and met:
            replicating = any(isinstance(c, Call) and c.linear in _ALIKE for c in calls)
            self._refuse_repeated(outer, seeds, replicating)
        return seeds

    @staticmethod
    def _by_rank(messages: Sequence[Message]) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
        """What was sent to each rank, and received from each."""
        sent: dict[int, list[str]] = defaultdict(list)
        came: dict[int, list[str]] = defaultdict(list)
        for m in messages:
            if m.dest is not None:
                sent[m.dest].append(f"{m.send_tag} {m.send_number} {m.active}")
            if m.source is not None:
                came[m.source].append(f"{m.recv_tag} {m.recv_number} {m.active}")
        return sent, came

    def _compare_messages(self, comm: Ranks, messages: Sequence[Message]) -> None:
        """Whether each rank has sent what the others have received, and the other way round."""
        sent, came = self._by_rank(messages)
        own, theirs = ([_hash(side[r]) for r in range(comm.size)] for side in (sent, came))
        others = comm.calls.numbers_of_others(own)
        wrong = [r for r, (a, b) in enumerate(zip(others, theirs, strict=True)) if a != b]
        said = _unlike(wrong[0], comm.rank) if wrong else "all fits"
        if comm.calls.any(bool(wrong)):
            comm.calls.same(said, otherwise=_UNLIKE)
            raise comm.calls.refused(f"{_UNLIKE}: {said}")

    def _compare_with_partners(self, comm: Ranks, messages: Sequence[Message], said: str) -> None:
        """As `_agree` where there are messages only: ranks that have sent or received none need not come."""
        sent, came = self._by_rank(messages)
        partners = sorted({*sent, *came})
        own = {r: (number_of(said), _hash(sent[r]), _hash(came[r])) for r in partners}
        for r, (what, theirs, ours) in comm.calls.exchanged(own, comm.tags).items():
            if (theirs, ours) != (own[r][2], own[r][1]):
                raise DistributedError(f"{_UNLIKE}: {_unlike(r, comm.rank)}")
            if what != own[r][0]:
                raise DistributedError(f"ranks {comm.rank} and {r} do not reverse the same program; rank {comm.rank}: {said}")

    @staticmethod
    def _seeds_of(comm: Ranks, seeds: Any, seed_rank: int | str) -> Any:
        if not isinstance(seed_rank, int) or not 0 <= seed_rank < comm.size:
            raise TapeError(f"seed_rank is a rank from 0 to {comm.size - 1}, or '{EVERY}'. No shadow was touched.")
        if seeds is None:
            raise TapeError("seed_rank says whose seeds count: reverse({loss: 1.0}, seed_rank=0). No shadow was touched.")
        return seeds if comm.rank == seed_rank else {key: 0 for key in seeds}

    @staticmethod
    def _refuse_repeated(comm: Ranks, seeds: Any, replicating: bool) -> None:
        """Seeds for one number that all ranks hold would count once for each of them."""
        marks = 0
        if replicating and seeds:
            for key, seed in seeds.items():
                seed = as_array(getattr(seed, "primal", seed))
                marks = zlib.crc32(f"{_mark(key.primal)} {_mark(seed)}".encode(), marks)
        same = comm.calls.all_same(marks)
        if marks and same and comm.size > 1:
            raise comm.calls.refused(
                f"all {comm.size} ranks seed arrays that hold the same on each, so the gradient would be {comm.size} times that of one: a "
                "loss that all ranks hold is seeded once, reverse({loss: 1.0}, seed_rank=0); if these are losses of their own that happen "
                f"to be equal, say seed_rank='{EVERY}'. No shadow was touched."
            )

    # --- replicated arrays ---------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _summed(self, tape: ProgramRecording) -> Iterator[None]:
        """Around a reversal: what it adds to the shadows of replicated arrays is summed over the ranks at its end."""
        pairs = [(comm, pair) for comm, pair in self._replicated]
        for _, pair in pairs:
            array = tape.as_known(pair).primal
            memory = leaf_memory(array)
            if tape.allocation(memory).written & of_array(array, memory.offset * int(memory.root.dtype.itemsize)):
                raise TapeError(
                    "a replicated array is written by the program: it is one that is only read. Use Bcast or Allreduce where it is made. "
                    "No shadow was touched."
                )
        before = [pair.shadow.copy() for _, pair in pairs]
        for _, pair in pairs:
            pair.shadow.fill(0)
        try:
            yield
            for comm, dtype in dict.fromkeys((comm, pair.shadow.dtype) for comm, pair in pairs):
                _sum_together(comm, [pair.shadow for c, pair in pairs if c is comm and pair.shadow.dtype == dtype])
        finally:
            for (_, pair), old in zip(pairs, before, strict=True):
                pair.shadow[...] += old
            count_writes(pair.shadow for _, pair in pairs)


def _sum_together(comm: Ranks, shadows: Sequence[Any]) -> None:
    """Sums arrays over the ranks in one all-reduce."""
    library = namespace(shadows[0])
    parts = [operations.packed(s, ()) for s in shadows]
    flat = parts[0] if len(parts) == 1 else library.concatenate(parts)
    shape = Shape(0, (int(flat.size),), (), flat.dtype, in_fixed_point(), library.empty)
    total, at = comm.back.sum_all(flat, shape), 0
    for shadow in shadows:
        shadow[...] = total[at : at + shadow.size].reshape(shadow.shape)
        at += shadow.size


_UNLIKE = "the messages that were recorded do not fit (an Irecv without a Wait?)"


def _unlike(source: int, rank: int) -> str:
    return f"what rank {source} sent is not what rank {rank} received"


def _hash(said: Sequence[str]) -> int:
    return number_of("\n".join(sorted(said)))


def _call(rule: Joint, what: tuple[Any, ...]) -> Call | Message:
    if "winner" in rule.signature.parameters or rule in operations.COLLECTIVES.values():
        return Call(*what)
    return Message(*what)


def _mark(array: Any) -> int:
    """A fingerprint of what an array holds."""
    if hasattr(array, "get") and not isinstance(array, np.ndarray | np.generic):
        wait_for_stream(array)
        array = array.get()
    return zlib.crc32(np.ascontiguousarray(array).tobytes())
