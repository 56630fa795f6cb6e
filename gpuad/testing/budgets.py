"""What a tape may take, as a test says it."""

from __future__ import annotations

import re

from ..budget import bytes_of, shown
from ..errors import ArgumentTypeError, ArgumentValueError, TapeError
from ..public_calls import public, show
from ..tape.array_names import array_names
from ..tape.facade import Tape, recording_of
from ..tape.program_recording import ProgramRecording
from ..tape.record.known_calls import user_frame

_PER = re.compile(r"\s*(?P<amount>.*?)\s+per\s+(?:cell|element)\s+of\s+(?P<name>\S+?)(?P<each>\s+(?:and|per)\s+operation)?\s*")


@public
def assert_memory(tape: Tape, *, peak: int | str | None = None, saved: int | str | None = None) -> None:
    """Asserts that a tape's last recording, and its reversal, took no more than so many bytes.

        gpuad.testing.assert_memory(tape, peak="80 MiB", saved="12 B per cell of u per operation")

    `peak`: the most that the tape added to what the caller has since that recording began, as a pool rounds it, with what it had before;
    a tape without a budget takes chunks of at least 1 MiB. `saved`: what was copied of overwritten memory, or written down in its place
    (`tape.stats.saved_bytes`). Each is bytes (an int), a text ('80 MiB'), or a text with 'per cell of u': as many for each element of the
    array that the caller's variable `u` holds, or that kernels call so; with 'per operation' behind it, for each operation of the program,
    too. Raises AssertionError, which says what takes the bytes; ValueError for an array that the tape does not know, TapeError for what is
    no amount.
    """
    if not isinstance(tape, Tape):
        raise ArgumentTypeError(f"`tape` is a gpuad.Tape, not {show(tape)}.")
    found = []
    for what, limit, taken in (("peak", peak, tape.peak_bytes), ("saved", saved, tape.stats.saved_bytes)):
        if limit is not None and taken > (most := _most(recording_of(tape), what, limit)):
            found.append(f"{what}: {shown(taken)}, of {shown(most)} allowed ({limit})")
    if found:
        raise AssertionError("\n".join([*found, "", str(tape.explain()), "", *_holders(tape)]))


def _most(tape: ProgramRecording, what: str, limit: int | str) -> int:
    per = _PER.fullmatch(limit) if isinstance(limit, str) else None
    if per is None:
        try:
            return bytes_of(limit, _nothing_free)
        except TapeError as error:
            raise TapeError(f"`{what}`: {error}") from None
    names = array_names(user_frame())
    known = {names.get(where, a.name): where for where, a in tape.allocations.items()}
    if per["name"] not in known:
        raise ArgumentValueError(f"the tape knows no array `{per['name']}`; it knows {', '.join(sorted(known)) or 'none'}")
    times = len(tape.operations) if per["each"] else 1
    return bytes_of(per["amount"], _nothing_free) * _elements(tape, known[per["name"]]) * times


def _elements(tape: ProgramRecording, where: int) -> int:
    """Elements of an allocation, of the type under which it is used."""
    sizes = [p.size for p in tape.shadows.by_primal.get(where, ())]
    root = tape.allocations[where].root
    return int(root.nbytes) // (sizes[0] if sizes else _itemsize(tape, where))


def _itemsize(tape: ProgramRecording, where: int) -> int:
    for operation in tape.operations:
        arguments = getattr(getattr(operation, "call", None), "bound", None)
        for use in operation.effects.writes:
            if use.allocation.address == where and arguments is not None:
                return int(arguments.arguments[use.position].memory.itemsize)
    return 1


def _nothing_free() -> int:
    raise ArgumentValueError("a share of what is free is no limit for a test: write bytes")


def _holders(tape: Tape) -> list[str]:
    holding = tape.held()
    curve = holding.curve(added=True)
    if not curve:
        return []
    moment = max(range(len(curve)), key=curve.__getitem__)
    most = [h for h in holding.at(moment) if h.added][:8]
    return [f"at the peak ({holding.moments[moment]}):", *(f"  {h.name} ({h.kind}) {shown(h.nbytes)}: {h.reason}" for h in most)]


__all__ = ["assert_memory"]
