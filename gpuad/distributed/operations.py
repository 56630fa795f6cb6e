"""Collectives and messages as operations of a tape: rules (`gpuad.rule`) whose functions and reverses meet other ranks.

Each takes at most three arrays: one that is read (`read`), one that is overwritten (`write`), one that is both (`both`: in place). `what`
is a `Call` as a tuple of numbers and words, so that a program that comes again is known by it. With z the memory of this rank, x = z[mine]
goes into the linear map A of `linear`, and what comes out of it is z[outs] = y; so its adjoint is dy = dz[outs], dz[outs] = 0,
dz[mine] += A^T dy. That is all that is said here about collectives; which map each is, `communicator` says.

An operation is never run by a rank alone: it is not `pure`, so within a budget what it has written is kept and not computed again, and its
reverse runs on every rank of the communicator, also where all that comes in is zero there (`joint`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from ..arguments.arrays import namespace
from ..ir.dtypes import shadow_dtype
from ..pipeline import in_fixed_point
from ..tape.record.rule_declaration import Effect
from ..tape.rules import Rule
from . import linear
from .buffers import Segments

communicators: list[Any] = []  # by their numbers: a recording knows them by these


@dataclass(frozen=True)
class Call:
    """A collective. `comm`: the communicator's number; `linear`: the map of the table; `op`: SUM, or MAX or MIN; `mine`, `outs`: where x
    and y are in the arrays (() for all of it); `gives`, `gets`: whether this rank has x, and y; `active`: whether gradients go through, on
    all ranks or on none; `said`: what all ranks have to agree on; `given`, `expected`: where ranks say different sizes, bytes to and from
    each, () elsewhere."""

    comm: int
    name: str
    linear: str
    op: str
    root: int
    counts: tuple[int, ...]
    takes: tuple[int, ...]
    dtype: str
    mine: Segments
    outs: Segments
    gives: bool
    gets: bool
    active: bool
    in_order: bool
    said: str
    given: tuple[int, ...]
    expected: tuple[int, ...]

    @property
    def plain(self) -> tuple[Any, ...]:
        """As a tuple."""
        return tuple(getattr(self, f.name) for f in fields(self))


@dataclass(frozen=True)
class Message:
    """A message to or from another rank, or both. `send_number`, `recv_number`: which of those to (from) that rank with that tag it is, in
    the recording; `slot`: the number of a request, -1 where it is waited for at once. A side that is not there has no rank."""

    comm: int
    name: str
    dest: int | None
    send_tag: int
    send_number: int
    source: int | None
    recv_tag: int
    recv_number: int
    dtype: str
    active: bool
    slot: int

    @property
    def plain(self) -> tuple[Any, ...]:
        """As a tuple."""
        return tuple(getattr(self, f.name) for f in fields(self))


class Joint(Rule):
    """A rule that meets other ranks."""

    joint = True

    def __init__(self, name: str, function: Callable[..., Any], effect: Effect, reverse: Callable[..., None]) -> None:
        super().__init__(function, effect, reverse)
        self.name = name

    @property
    def opaque(self) -> str:
        return "it communicates with other processes, which a graph on a device does not wait for"


# --- vectors and where they lie ----------------------------------------------------------------------------------------------------------


def packed(array: Any, segments: Segments) -> Any:
    """Elements of an array as a flat contiguous one, which may be the array itself."""
    flat = (array if array.flags.c_contiguous else namespace(array).ascontiguousarray(array)).reshape(-1)
    if not segments:
        return flat
    return namespace(array).concatenate([flat[a:z] for a, z in segments])


def unpack(y: Any, array: Any, segments: Segments) -> None:
    """Puts a flat array into these elements."""
    if not segments:
        array[...] = y.reshape(array.shape)
        return
    _each(y, array, segments, lambda part, values: part.__setitem__(..., values))


def add_to(array: Any, segments: Segments, x: Any) -> None:
    """Adds a flat array to these elements."""
    if not segments:
        array += x.reshape(array.shape)
        return
    _each(x, array, segments, lambda part, values: part.__iadd__(values))


def _each(values: Any, array: Any, segments: Segments, do: Callable[[Any, Any], Any]) -> None:
    flat, at = array.reshape(-1), 0
    for a, z in segments:
        do(flat[a:z], values[at : at + z - a])
        at += z - a
    if not array.flags.c_contiguous:
        array[...] = flat.reshape(array.shape)  # `flat` was a copy


def _new(library: Any, count: int, dtype: Any) -> Any:
    return library.empty(count, dtype)


def _room(room: Callable[..., Any], count: int, dtype: Any) -> Any:
    return room((count,), dtype)


def shape_of(call: Call, dtype: Any, new: Callable[[int, Any], Any]) -> linear.Shape:
    """The map's sizes."""
    return linear.Shape(call.root, call.counts, call.takes, np.dtype(dtype), call.in_order or in_fixed_point(), new)


# --- collectives -------------------------------------------------------------------------------------------------------------------------


def _collective(read: Any, write: Any, both: Any, what: Any) -> None:
    call = Call(*what)
    comm = communicators[call.comm]
    source = both if read is None else read
    library = comm.library(read, write, both)
    comm.agree(call)
    x = packed(source, call.mine) if call.gives and source is not None else _nothing(call, library) if call.gives else None
    shape = shape_of(call, np.dtype(call.dtype) if source is None else source.dtype, partial(_new, library))
    y = linear.apply(comm.forward, call.linear, x, shape)
    target = both if write is None else write
    if call.gets and y is not None and target is not None:
        unpack(y, target, call.outs)


def _nothing(call: Call, library: Any) -> Any:
    return library.empty(0, _dtype(call.dtype))


def _dtype(name: str) -> Any:
    if name == "bfloat16":
        from ml_dtypes import bfloat16

        return np.dtype(bfloat16)
    return np.dtype(name)


def _collective_reverse(dread: Any, dwrite: Any, dboth: Any, dboth_before: Any, what: Any) -> None:
    call = Call(*what)
    dx = _adjoint(call, dread, dwrite, dboth, dboth_before)
    target = dboth_before if dread is None else dread
    if dx is not None and target is not None:
        add_to(target, call.mine, dx)


def _adjoint(call: Call, dread: Any, dwrite: Any, dboth: Any, dboth_before: Any) -> Any:
    """A^T dy, after all that is not part of y has gone through as it is."""
    if dboth is not None and dboth_before is not None:
        _pass_by(call, dboth, dboth_before)
    if not call.active:
        return None
    comm = communicators[call.comm]
    library = comm.library(dread, dwrite, dboth)
    source = dboth if dwrite is None else dwrite
    dtype = shadow_dtype(_dtype(call.dtype))
    dy = packed(source, call.outs) if call.gets and source is not None else library.empty(0, dtype) if call.gets else None
    shape = shape_of(call, dtype, partial(_new, library))
    return linear.apply_adjoint(comm.back, call.linear, dy, shape)


def _pass_by(call: Call, dboth: Any, dboth_before: Any) -> None:
    """What of an array in place is not overwritten; each rank that has one gets something."""
    if call.outs:
        rest = dboth.copy()
        zeros = namespace(rest).zeros(sum(z - a for a, z in call.outs), rest.dtype)
        unpack(zeros, rest, call.outs)
        dboth_before += rest


# --- extrema -----------------------------------------------------------------------------------------------------------------------------


def _extremum(read: Any, write: Any, both: Any, winner: Any, what: Any) -> None:
    call = Call(*what)
    comm = communicators[call.comm]
    source = both if read is None else read
    library = comm.library(read, write, both)
    comm.agree(call)
    x = packed(source, ()) if source is not None else _nothing(call, library)
    shape = shape_of(call, x.dtype, partial(_new, library))
    best, first = comm.forward.extreme(x, call.op, shape)
    target = both if write is None else write
    if call.gets and target is not None:
        unpack(best, target, ())
    if winner is not None:
        winner[...] = first


def _extremum_reverse(winner: Any, dread: Any, dwrite: Any, dboth: Any, dboth_before: Any, what: Any) -> None:
    call = Call(*what)
    dx = _adjoint(call, dread, dwrite, dboth, dboth_before)
    target = dboth_before if dread is None else dread
    if dx is not None and target is not None:
        dx[winner != communicators[call.comm].rank] = 0
        add_to(target, (), dx)


# --- messages ----------------------------------------------------------------------------------------------------------------------------


def _message(read: Any, write: Any, both: Any, what: Any) -> None:
    """Sends, or receives, or both at once, and waits."""
    call = Message(*what)
    comm = communicators[call.comm]
    coming = leaving = None
    source, target = both if read is None else read, both if write is None else write
    if call.source is not None:
        coming = comm.post_receive(call, target)
    if call.dest is not None:
        leaving = comm.post_send(call, source)
    if coming is not None:
        _put(comm.received(coming), target)
    if leaving is not None:
        comm.sent(leaving)


def _message_reverse(dread: Any, dwrite: Any, dboth: Any, dboth_before: Any, what: Any) -> None:
    """What was received is sent, and what was sent is received and added."""
    call = Message(*what)
    if not call.active:
        return
    comm = communicators[call.comm]
    coming = None
    target, source = dboth_before if dread is None else dread, dboth if dwrite is None else dwrite
    if call.dest is not None:
        coming = comm.back_receive(call, target)
    if call.source is not None:
        comm.back_send(call, source)
    if coming is not None:
        _add(comm.back.finish(coming), target)


def _put(values: Any, array: Any) -> None:
    if array is not None:  # of size 0 else
        unpack(values, array, ())


def _add(values: Any, array: Any) -> None:
    if array is not None:
        add_to(array, (), values)


def _start(read: Any, what: Any) -> None:
    """Isend: what is sent is copied, and may be written from here on."""
    call = Message(*what)
    comm = communicators[call.comm]
    comm.requests[call.slot] = comm.post_send(call, None if read is None else read.copy())


def _start_reverse(dread: Any, what: Any) -> None:
    call = Message(*what)
    if call.active:
        comm = communicators[call.comm]
        coming = comm.back_requests.pop(call.slot, None) or comm.back_receive(call, dread)
        _add(comm.back.finish(coming), dread)


def _sent(read: Any, what: Any) -> None:
    """Wait for an Isend."""
    call = Message(*what)
    comm = communicators[call.comm]
    comm.sent(comm.requests.pop(call.slot))


def _sent_reverse(dread: Any, what: Any) -> None:
    """Begins to receive: the adjoint of Wait is the Irecv."""
    call = Message(*what)
    if call.active:
        comm = communicators[call.comm]
        comm.back_requests[call.slot] = comm.back_receive(call, dread)


def _arrived(write: Any, what: Any) -> None:
    """Wait for an Irecv. In a graph, which does not call Irecv, it is posted here."""
    call = Message(*what)
    comm = communicators[call.comm]
    coming = comm.requests.pop(call.slot, None) or comm.post_receive(call, write)
    _put(comm.received(coming), write)


def _arrived_reverse(dwrite: Any, what: Any) -> None:
    """Begins to send: the adjoint of Wait is the Isend."""
    call = Message(*what)
    if call.active:
        communicators[call.comm].back_send(call, dwrite)


_BOTH = Effect(("read", "both"), ("write", "both"), (), (), {})
_READ = Effect(("read",), (), (), (), {})
_WRITE = Effect((), ("write",), (), (), {})


def _rules(function: Callable[..., Any], effect: Effect, reverse: Callable[..., None], names: Sequence[str]) -> dict[str, Joint]:
    return {name: Joint(name, function, effect, reverse) for name in names}


COLLECTIVES = _rules(
    _collective, _BOTH, _collective_reverse,
    ("Allreduce", "Reduce", "Bcast", "Allgather", "Gather", "Scatter", "Reduce_scatter", "Alltoall"),
)  # fmt: skip
EXTREMA = _rules(
    _extremum,
    Effect(("read", "both"), ("write", "both", "winner"), (), (), {"winner": ("after",)}),
    _extremum_reverse,
    ("Allreduce", "Reduce"),
)
MESSAGES = _rules(_message, _BOTH, _message_reverse, ("Send", "Recv", "Sendrecv"))
ISEND = Joint("Isend", _start, _READ, _start_reverse)
SENT = Joint("Wait", _sent, _READ, _sent_reverse)
ARRIVED = Joint("Wait", _arrived, _WRITE, _arrived_reverse)
