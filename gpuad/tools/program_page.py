"""`gpuad show --program script.py --html`: recorded programs beside the scripts of their reversals, as a page.

Each operation belongs to the steps of the script that run it, reverse it or undo it; what a step stores says for which adjoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..pages.side_by_side import Chunk, Line, Note, Page, Pane, rendered
from ..program.ir.program import Program
from ..program.ir.script import Adjoint, Clear, Extract, Fetch, Item, Run, Script, Slot, Store, Undo
from .program_listing import Listing


def page(name: str, listings: Sequence[tuple[str, Listing]]) -> str:
    """The page of all programs that were recorded. `name`: the script's."""
    left: list[Line] = []
    right: list[Line] = []
    for number, (title, listing) in enumerate(listings):
        left += [Line("", title), *_program(listing.program, number), Line("", "")]
        right += [Line("", title), *_script(listing, number), Line("", "")]
    summary = tuple(dict.fromkeys(listing.program.title for _, listing in listings))
    panes = Pane("program", name, (Chunk(tuple(left)),)), Pane("script", "what runs as it is recorded and reversed", (Chunk(tuple(right)),))
    return rendered(Page(f"Programs of {name}", summary, (), (), *panes))


def _program(program: Program, number: int) -> Iterator[Line]:
    title, *rest = (text for _, text in program.lines())
    yield Line("", title)
    for k, text in enumerate(rest[: len(program.buffers)]):
        key = _buffer(number, k)
        yield Line("", text.strip(), (key,), (), key)
    for k in range(len(program)):
        head, *remarks = program.op_lines(k)
        key = _operation(number, k)
        yield Line(str(k), head.strip().removeprefix(str(k)).strip(), (key,), (), key)
        yield from (Line("", remark[2:], (key,)) for remark in remarks)


def _script(listing: Listing, number: int) -> Iterator[Line]:
    script = listing.script
    if script is None:
        yield Line("", "decided when it is reversed")
        return
    items = (None, None, *script.forward, None, *script.reversal)
    readers = _readers(script)
    for k, (item, (_, text)) in enumerate(zip(items, script.lines(), strict=True)):
        yield Line(str(k) if item is not None else "", text.strip(), _keys(item, number), tuple(_notes(item, readers, number)))


def _keys(item: Item | None, number: int) -> tuple[str, ...]:
    """What an item belongs to: its operation, or the buffer that it copies."""
    if isinstance(item, Run | Extract | Adjoint | Undo | Clear):
        return (_operation(number, item.number),)
    return (_buffer(number, item.access.buffer),) if isinstance(item, Store | Fetch) else ()


def _readers(script: Script) -> dict[Slot, list[int]]:
    """The operations whose adjoints read each slot."""
    found: dict[Slot, list[int]] = {}
    for item in script.reversal:
        if isinstance(item, Adjoint):
            for slot in dict.fromkeys([*(r.slot for r in item.reads if r.slot is not None), *item.values]):
                found.setdefault(slot, []).append(item.number)
    return found


def _notes(item: Item | None, readers: dict[Slot, list[int]], number: int) -> Iterator[Note]:
    slots = (item.slot,) if isinstance(item, Store) else item.values if isinstance(item, Run | Extract) else ()
    if by := sorted({k for slot in slots for k in readers.get(slot, ())}):
        yield Note("saved", "for the adjoint of operation", tuple((_operation(number, k), str(k)) for k in by))


def _operation(program: int, number: int) -> str:
    return f"{program}-op{number}"


def _buffer(program: int, number: int) -> str:
    return f"{program}-buffer{number}"


__all__ = ["page"]
