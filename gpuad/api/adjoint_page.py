"""A kernel and its adjoint as a page, side by side.

In: the kernel, the lines of the generated text with the places that they come from, the account, and the facts of the launch. Out: HTML
(`pages.side_by_side`), with what is saved at the lines that need it and that overwrite it, and the reason at each atomic addition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ..codegen.cuda import Line
from ..ir.nodes import Accumulate, How, Take
from ..ir.surface import Function
from ..pages import side_by_side
from ..pages.side_by_side import Chunk, Note, Page, Pane, Table, chunks, rendered
from ..source import SourceFile, Span, traced
from .explain import Explanation, Row


@dataclass(frozen=True)
class Facts:
    """Of one launch and its reverse: kernel, grid, block, threads and bytes of dynamic shared memory of each of the `launches`; name, type,
    annotation and value of each of the `arguments`. Empty where the text is for every launch."""

    launches: tuple[tuple[str, str, str, int, int], ...] = ()
    arguments: tuple[tuple[str, str, str, str], ...] = ()


def page(function: Function, lines: Sequence[Line], account: Explanation, facts: Facts) -> str:
    """The page."""
    own = traced(function.span)
    files = [*dict.fromkeys([own.file, *(span.file for line in lines for span in line.spans)])]
    places = _Places(files)
    linked = {places.key(span) for line in lines for span in line.spans}
    left = [chunk for file in files for chunk in _primal(file, places, linked, account, own)]
    rows = tuple((row.topic, row.name, row.how, row.why) for row in account.rows)
    tables = (
        Table("The launch", ("kernel", "grid", "block", "threads", "shared memory, bytes"), facts.launches),
        Table("Its arguments", ("name", "type", "annotation", "value"), facts.arguments),
        Table("What is saved, and how shadows add up", ("", "array", "how", "why"), rows),
    )
    title = f"Adjoint of {function.name}"
    where = "for one launch" if facts.launches else "for every launch"
    panes = Pane("kernel", ", ".join(f.where for f in files), tuple(left)), Pane("adjoint", where, tuple(_adjoint(lines, account, places)))
    return rendered(Page(title, tuple(_summary(account, facts)), tables, (("Assumed", account.assumptions),), *panes))


def _summary(account: Explanation, facts: Facts) -> Iterator[str]:
    if facts.launches:
        _, grid, block, *_ = facts.launches[0]
        yield f"grid {grid}, block {block}"
    else:
        yield "for every launch"
    saved = [*dict.fromkeys(f"{row.name} ({row.how})" for row in account.rows if row.topic in ("saved", "stack"))]
    yield f"saved: {', '.join(saved) or 'nothing'}"
    for how in ("atomic", "reduced", "gather", "plain"):
        if names := [*dict.fromkeys(row.name for row in account.rows if row.topic == "shadow" and row.how == how)]:
            yield f"{how}: {', '.join(names)}"


@dataclass(frozen=True)
class _Places:
    """The lines of the user's files, by keys and as readers know them."""

    files: Sequence[SourceFile]

    def key(self, span: Span) -> str:
        return f"{self.files.index(span.file)}-{span.line}"

    def name(self, span: Span) -> str:
        return f"line {span.place[1]}"

    def links(self, spans: Sequence[Span]) -> tuple[tuple[str, str], ...]:
        return tuple(dict.fromkeys((self.key(span), self.name(span)) for span in spans if span.file in self.files))


# --- the kernel ------------------------------------------------------------------------------------------------------------------------


def _primal(file: SourceFile, places: _Places, linked: set[str], account: Explanation, own: Span) -> tuple[Chunk, ...]:
    number = places.files.index(file)
    notes: dict[str, list[Note]] = {}
    for row in account.rows:
        for key, note in _primal_notes(row, places):
            if note not in notes.setdefault(key, []):
                notes[key].append(note)
    found = []
    comments, depths = _scanned(file.text)
    texts = file.text.rstrip("\n").split("\n")
    for n, text in enumerate(texts, 1):
        key = f"{number}-{n}"
        keys = (key,) if key in linked or key in notes else ()
        found.append(side_by_side.Line(str(file.place(n, 1)[1]), text, keys, tuple(notes.get(key, ())), key, comments[n - 1]))
    wanted = {n for n, line in enumerate(found, 1) if line.keys} | ({own.line} if own.file == file else set())
    header = _DESCRIPTION.search(file.text)
    hidden = range(file.text.count("\n", 0, header.start()), file.text.count("\n", 0, header.end()) + 1) if header else range(0)
    return chunks(found, [shown and n not in hidden for n, shown in enumerate(_shown(texts, depths, wanted))])


def _primal_notes(row: Row, places: _Places) -> Iterator[tuple[str, Note]]:
    """Notes at the lines that need what a row speaks of, and at those that overwrite it."""
    name = row.name
    match row.topic:
        case "saved":
            needed, overwritten = (
                "needs {0} as it was; a {1} is saved, since it is overwritten by",
                "overwrites {0}; a {1} is saved, needed by",
            )
            kind = "saved"
        case "not saved":
            needed, overwritten, kind = "needs {0}, read as the launch leaves it", "", "kept"
        case _:
            needed, overwritten, kind = f"needs {{0}}: {row.why.partition(', needed by')[0]}", "", "saved"
    for text, at, others in ((needed, row.needed, row.overwritten), (overwritten, row.overwritten, row.needed)):
        for span in at if text and (row.topic != "saved" or others) else ():
            if span.file in places.files:
                links = places.links(others) if row.topic == "saved" else ()
                how = "copy between launches" if row.how == "between" else row.how
                yield places.key(span), Note(kind, text.format(name, how), links)


_DESCRIPTION = re.compile(r"/\*gpuad[ \t]*\n.*?\*/", re.DOTALL)  # of launches, as `tools.cases` reads it
_HIDDEN = re.compile(r"""/\*.*?(?:\*/|\Z)|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)


def _scanned(text: str) -> tuple[list[bool], list[int]]:
    """Of each line whether it begins inside of a comment, and how many braces are open after it."""
    inside = {text.count("\n", 0, m.start()) + k + 1 for m in _HIDDEN.finditer(text) for k in range(m[0].count("\n"))}
    bare = _HIDDEN.sub(lambda m: "\n" * m[0].count("\n"), text)
    depths = list(accumulate(line.count("{") - line.count("}") for line in bare.split("\n")))
    return [k in inside for k in range(len(depths))], depths


def _shown(texts: Sequence[str], depths: Sequence[int], wanted: set[int]) -> list[bool]:
    """The lines of functions with a wanted line in them, and what stands above without an empty line between; all where there are none."""
    shown = [False] * len(texts)
    begin = 0
    for k, text in enumerate(texts):
        if depths[k] == 0 and (not text.strip() or (k and depths[k - 1])):  # ends what began before
            if any(n - 1 in range(begin, k + 1) for n in wanted):
                shown[begin : k + 1] = [True] * (k + 1 - begin)
            begin = k + 1
    if any(n > begin for n in wanted):
        shown[begin:] = [True] * (len(texts) - begin)
    return shown if any(shown) else [True] * len(texts)


# --- the adjoint -----------------------------------------------------------------------------------------------------------------------


def _adjoint(lines: Sequence[Line], account: Explanation, places: _Places) -> Iterator[Chunk]:
    """The contract and the helpers folded away, then the kernels."""
    first = next((k for k, line in enumerate(lines) if not line.text.startswith("//")), 0)
    start = next((k for k, line in enumerate(lines) if line.kernel), len(lines))
    reasons = _reasons(account)
    found = [
        side_by_side.Line(str(n), line.text, tuple(dict.fromkeys(map(places.key, line.spans))), tuple(_adjoint_notes(line, reasons)))
        for n, line in enumerate(lines, 1)
    ]
    yield Chunk(tuple(found[:first]), "the contract: what a caller does, in order")
    helpers = found[first + 1 : start]
    if any(line.text for line in helpers):
        yield Chunk(tuple(helpers), "helpers")
    yield Chunk(tuple(found[start:]))


def _reasons(account: Explanation) -> Mapping[tuple[str, str], Row]:
    """The rows of shadows, by primal kernel and name."""
    return {(own.kernel, row.name): row for own in (account.parts or (account,)) for row in own.rows if row.topic == "shadow"}


def _adjoint_notes(line: Line, reasons: Mapping[tuple[str, str], Row]) -> Iterator[Note]:
    stmt = line.stmt
    if not isinstance(stmt, Accumulate | Take) or stmt.how not in (How.ATOMIC, How.REDUCED):
        return
    if stmt.how is How.REDUCED:
        yield Note("atomic", "summed over each block, then one atomic addition a block")
    for (kernel, name), row in reasons.items():
        if stmt.how is How.ATOMIC and row.how == "atomic" and name == stmt.buffer.name and line.kernel.startswith(f"{kernel}_"):
            yield Note("atomic", row.reason)


__all__ = ["Facts", "page"]
