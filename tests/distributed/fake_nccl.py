"""A stand-in for CuPy's NCCL on processes of an MPI job without GPUs, with the "device memory" of `fake_cupy`.

It does at once what NCCL puts into a stream, and refuses what NCCL would hang at or get wrong: sends and receives that stand outside of a
group, groups that do not fit those of other ranks, counts, types or roots that differ, a stream other than the one that is current, memory
that is no device memory or too short.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fake_cupy
import numpy as np
from mpi4py import MPI

NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN = range(4)
NCCL_INT8, NCCL_UINT8, NCCL_INT32, NCCL_UINT32, NCCL_INT64, NCCL_UINT64, NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64 = range(9)
_DTYPES = {NCCL_UINT8: np.uint8, NCCL_INT32: np.int32, NCCL_INT64: np.int64, NCCL_FLOAT32: np.float32, NCCL_FLOAT64: np.float64}
_OPS = {NCCL_SUM: np.add, NCCL_MAX: np.maximum, NCCL_MIN: np.minimum}


class NcclError(RuntimeError):
    """As NCCL's."""


_depth = 0
_calls: list[tuple[NcclCommunicator, tuple[Any, ...], Callable[[Any], None]]] = []  # of the group that is open
groups: list[list[str]] = []  # that were closed: what each had


def groupStart() -> None:
    global _depth
    _depth += 1


def groupEnd() -> None:
    global _depth
    if _depth == 0:
        raise NcclError("a group ends that has not begun")
    _depth -= 1
    if _depth == 0 and _calls:
        calls = list(_calls)
        _calls.clear()
        groups.append([what[0] for _, what, _ in calls])
        calls[0][0]._run(calls)


class NcclCommunicator:
    """Ranks of one of MPI's communicators."""

    def __init__(self, comm: Any) -> None:
        self.comm, self.rank, self.size = comm.Dup(), comm.Get_rank(), comm.Get_size()

    def rank_id(self) -> int:
        return int(self.rank)

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:
        self._summed("allReduce", sendbuf, recvbuf, count, datatype, op, None, stream)

    def reduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int) -> None:
        self._summed("reduce", sendbuf, recvbuf, count, datatype, op, root, stream)

    def bcast(self, buff: int, count: int, datatype: int, root: int, stream: int) -> None:
        own = _memory(buff, count, datatype, stream)

        def do(parts: list[Any]) -> None:
            own[...] = parts[root]

        self._put(("bcast", count, datatype, root), own, do)

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        self._message("send", sendbuf, count, datatype, peer, stream)

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        self._message("recv", recvbuf, count, datatype, peer, stream)

    def _summed(self, name: str, a: int, b: int, count: int, datatype: int, op: int, root: int | None, stream: int) -> None:
        own = _memory(a, count, datatype, stream)
        into = _memory(b, count, datatype, stream) if root in (None, self.rank) else None

        def do(parts: list[Any]) -> None:
            if into is not None:
                total = parts[0].copy()
                for part in parts[1:]:
                    _OPS[op](total, part, out=total)
                into[...] = total

        self._put((name, count, datatype, op, root), own, do)

    def _put(self, what: tuple[Any, ...], own: Any, do: Callable[[list[Any]], None]) -> None:
        def run(others: Any) -> None:
            do(self.comm.allgather(own.copy()))

        self._call(what, run)

    def _message(self, name: str, pointer: int, count: int, datatype: int, peer: int, stream: int) -> None:
        if _depth == 0:
            raise NcclError(f"{name} outside of a group waits for the other side")
        memory = _memory(pointer, count, datatype, stream)
        self._call((name, count, datatype, peer), lambda arrived: memory.__setitem__(..., arrived) if name == "recv" else None, memory)

    def _call(self, what: tuple[Any, ...], run: Callable[[Any], None], memory: Any = None) -> None:
        run.memory = memory  # type: ignore[attr-defined]
        _calls.append((self, what, run))
        if _depth == 0:
            groupStart()
            groupEnd()

    def _run(self, calls: list[tuple[NcclCommunicator, tuple[Any, ...], Callable[[Any], None]]]) -> None:
        """Messages go to whom they are for, in order; collectives have to be the same everywhere."""
        together = [(what, run) for _, what, run in calls if what[0] not in ("send", "recv")]
        if together:
            if len({str([what for what, _ in every]) for every in self.comm.allgather([(what, 0) for what, _ in together])}) > 1:
                raise NcclError("the ranks' collectives differ")
            for _, run in together:
                run(None)
        apart = [(what, run) for _, what, run in calls if what[0] in ("send", "recv")]
        requests = [
            self.comm.isend((what[1], what[2], run.memory.copy()), what[3])
            for what, run in apart
            if what[0] == "send"  # type: ignore[attr-defined]
        ]
        for what, run in apart:
            if what[0] == "recv":
                count, datatype, values = self.comm.recv(source=what[3])
                if (count, datatype) != what[1:3]:
                    raise NcclError(f"{count} numbers are sent and {what[1]} received")
                run(values)
        MPI.Request.waitall(requests)


def _memory(pointer: int, count: int, datatype: int, stream: int) -> Any:
    """The host's view of device memory."""
    if stream != fake_cupy.Stream.current.ptr:
        raise NcclError("not the current stream")
    dtype = np.dtype(_DTYPES[datatype])
    block = fake_cupy.Block.at(pointer) if count else None
    if count and (block is None or pointer + count * dtype.itemsize > block.ptr + block.size):
        raise NcclError("not that much device memory there")
    fake_cupy.Stream.current.touch(pointer, pointer + count * dtype.itemsize)
    return np.ndarray(count, dtype, block.bytes if block is not None else bytearray(), pointer - block.ptr if block is not None else 0)
