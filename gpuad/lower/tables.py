"""Tables of pointers, `rows[k]`: which array an entry is, where a number says it only when the kernel runs.

A pointer may have several targets, and a tag tells which; an entry is such a pointer, whose tag its number decides.
"""

from __future__ import annotations

from functools import reduce

from ..errors import UnsupportedError
from ..ir import folding, surface
from ..ir.nodes import Binary, Constant, Expr, If, Tell
from ..ir.types import BOOL, I32, I64, Pointer, Scalar
from ..source import Span
from .lowering import ORIGIN, Address, Lowering, Table, assemble, join, shape, split

NO_PLACE = "an entry of a table of pointers cannot be changed or referred to; give the pointer a variable of its own"
UNKNOWN = "it is not known at compile time what this pointer to pointers points to"


def moved(table: Table, steps: Expr) -> Table:
    """The table from another entry on."""
    return Table(table.entries, folding.binary("+", table.offset, folding.cast(steps, I64), I64))


def entry(s: Lowering, table: Table, index: Expr, kind: Pointer, span: Span) -> Address:
    """The pointer that an entry is. Raises UnsupportedError for one that is surely not there; a launch that comes to one that is not there
    ends as by an assertion."""
    exact = folding.binary("+", table.offset, folding.cast(index, I64), I64)
    if isinstance(exact, Constant):
        if not 0 <= int(exact.value) < len(table.entries):
            raise UnsupportedError(f"entry {int(exact.value)} of {len(table.entries)} pointers", span)
        return table.entries[int(exact.value)]
    number = s.let("entry", index if index.type == I32 and table.offset == ORIGIN else exact, span)
    _stop_outside(s, number, len(table.entries), span)
    number = folding.cast(number, I32)
    joined = reduce(join, (own for a in table.entries if (own := shape(a, kind)) is not None))
    slots = [split(a, joined) for a in table.entries]
    chosen = tuple(_chosen(number, [own[k] for own in slots]) for k in range(len(slots[0])))
    value = assemble(chosen, joined)
    assert isinstance(value, Address)
    return value


def compared(one: Table, other: Table, e: surface.Binary) -> Expr:
    """What a comparison of two pointers into one table says, or how far they are apart."""
    if one.entries != other.entries:
        raise UnsupportedError(f"'{e.op}' of pointers that are not known to point into one array", e.span)
    if e.op == "-":
        return folding.binary("-", one.offset, other.offset, I64)
    return folding.binary(e.op, one.offset, other.offset, BOOL)


def _stop_outside(s: Lowering, number: Expr, count: int, span: Span) -> None:
    """Ends the launch where a number is not that of an entry. It names the place, as no array is there that could be read past its end."""
    assert isinstance(number.type, Scalar)
    low = folding.binary("<", number, Constant(0, number.type), BOOL)
    high = folding.binary(">=", number, Constant(count, number.type), BOOL)
    said = Tell(f"{span.in_text}: the number of an entry is outside of the {count} pointers that there are", (), True, span=span)
    s.emit(If(folding.binary("||", low, high, BOOL), (said,), span=span))


def _chosen(number: Expr, values: list[Expr]) -> Expr:
    """That of the values which a number names: the number itself where they count."""
    if all(isinstance(v, Constant) and v.type == I32 and v.value == k for k, v in enumerate(values)):
        return number
    found = values[-1]
    for k, value in list(enumerate(values[:-1]))[::-1]:
        if value != found:
            found = folding.select(Binary("==", number, Constant(k, I32), BOOL), value, found)
    return found
