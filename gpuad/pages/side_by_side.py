"""Two texts side by side, as a page of HTML that stands alone: `side_by_side.html` with the lines in it.

In: panes of lines. A line has keys; lines of the two panes that share a key belong together, and the page shows the one when the mouse is
on the other, or the keyboard's focus. Notes stand below their line. Out: the page; all texts in it are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from .table import paragraph, table

_LONG = 2000  # lines, beyond which a browser lays out only those in sight, and takes the others to be as high as one row
_TEMPLATE = Path(__file__).with_name("side_by_side.html")
_WORDS = (
    "alignas auto bool break case char class const constexpr continue default do double else enum extern float for half if inline int long "
    "namespace return short signed sizeof static struct switch template typename unsigned using void volatile while def in import "
    "from None __global__ __device__ __shared__ __restrict__ __constant__ __host__ __launch_bounds__ __syncthreads __syncwarp"
)
_TOKEN = re.compile(
    r"(?P<c>//.*|/\*.*?(?:\*/|$))|(?P<s>\"(?:\\.|[^\"\\])*\")|(?P<k>\b(?:" + "|".join(_WORDS.split()) + r")\b)"
    r"|(?P<a>\b(?:atomic\w+|gpuad_block_sum|gpuad_atomic\w+)\b)|(?P<d>(?<![\w.])\d[\w.]*(?:(?<=[eE])[-+]\d+\w*)?)"
)


@dataclass(frozen=True)
class Note:
    """A remark below a line: `kind` is 'saved', 'kept' (in place, not saved) or 'atomic', which decides its colour. `lines`: keys of lines
    that it speaks of, with what they are called."""

    kind: str
    text: str
    lines: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Line:
    """A line of a pane. `number`: what stands before it; `keys`: by which it belongs to lines of the other pane; `anchor`: the key by which
    notes lead to it."""

    number: str
    text: str
    keys: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    anchor: str = ""
    in_comment: bool = False  # it begins inside of a comment


@dataclass(frozen=True)
class Chunk:
    """Lines that stand together; with a `title` they are folded away under it."""

    lines: tuple[Line, ...]
    title: str = ""


@dataclass(frozen=True)
class Pane:
    """One of the two texts. `name`: what a reader calls it, such as 'kernel'."""

    name: str
    title: str
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True)
class Table:
    """A table above the panes."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


@dataclass(frozen=True)
class Page:
    """A page: its `title`, a `summary` of short texts, tables, remarks under a title, and the panes."""

    title: str
    summary: tuple[str, ...]
    tables: tuple[Table, ...]
    remarks: tuple[tuple[str, tuple[str, ...]], ...]
    left: Pane
    right: Pane


def rendered(page: Page) -> str:
    """The page as a text."""
    count = sum(len(chunk.lines) for pane in (page.left, page.right) for chunk in pane.chunks)
    parts = {
        "LENGTH": "long" if count > _LONG else "short",
        "TITLE": escape(page.title),
        "SUMMARY": "".join(f"<li>{escape(text)}</li>" for text in page.summary),
        "TABLES": "".join(_tables(page)),
        "LEFT": _pane(page.left, "left"),
        "RIGHT": _pane(page.right, "right"),
    }
    return re.sub(r"<!--([A-Z]+)-->", lambda m: parts[m[1]], _TEMPLATE.read_text(encoding="utf-8"))


def framed(page: str, height: int = 560) -> str:
    """A page as an element that notebooks show, `height` pixels high."""
    return f'<iframe srcdoc="{escape(page)}" style="width:100%;height:{height}px;border:0" title="gpuad"></iframe>'


def _tables(page: Page) -> Iterator[str]:
    for one in page.tables:
        if one.rows:
            yield f"<details><summary>{escape(one.title)}</summary>{table(one.heads, one.rows)}</details>"
    for title, texts in page.remarks:
        if texts:
            yield f"<details><summary>{escape(title)}</summary>{''.join(map(paragraph, texts))}</details>"


def _pane(pane: Pane, side: str) -> str:
    lines = "".join(map(_chunk, pane.chunks))
    head = f"<h2>{escape(pane.name)} <span>{escape(pane.title)}</span></h2>"
    name = escape(pane.name)
    return f'<section id="{side}" aria-label="{name}" data-name="{name}">{head}<div class="text">{lines}</div></section>'


def _chunk(chunk: Chunk) -> str:
    lines = "".join(map(_line, chunk.lines))
    return f"<details><summary>{escape(chunk.title)}</summary>{lines}</details>" if chunk.title else lines


def _line(line: Line) -> str:
    anchor = f' id="line-{escape(line.anchor)}"' if line.anchor else ""
    keys = f'{anchor} data-keys="{escape(" ".join(line.keys))}" tabindex="-1"' if line.keys else anchor
    indent = len(line.text) - len(line.text.lstrip())
    code = f'<span class="c">{escape(line.text)}</span>' if line.in_comment else coloured(line.text)
    notes = "".join(map(_note, line.notes))
    number = f'<span class="n">{escape(line.number)}</span>'
    return f'<div class="l"{keys}>{number}<code style="--i:{min(indent, 40)}">{code}</code></div>{notes}'


def _note(note: Note) -> str:
    links = ", ".join(f'<a href="#line-{escape(key)}">{escape(name)}</a>' for key, name in note.lines)
    return f'<div class="note {note.kind}"><b>{note.kind}</b> {escape(note.text)}{f" {links}" if links else ""}</div>'


def coloured(text: str) -> str:
    """A line of CUDA or Python in HTML, with classes for keywords, comments, texts, atomics and numbers."""
    parts, end = [], 0
    for match in _TOKEN.finditer(text):
        parts += [escape(text[end : match.start()]), f'<span class="{match.lastgroup}">{escape(match[0])}</span>']
        end = match.end()
    return "".join([*parts, escape(text[end:])])


def chunks(lines: Sequence[Line], shown: Sequence[bool]) -> tuple[Chunk, ...]:
    """The lines in chunks, those that are not `shown` folded away; fewer than three of them are shown."""
    found: list[tuple[bool, list[Line]]] = []
    for line, visible in zip(lines, shown, strict=True):
        if not found or found[-1][0] != visible:
            found.append((visible, []))
        found[-1][1].append(line)
    return tuple(Chunk(tuple(part), "" if visible or len(part) < 3 else _title(part)) for visible, part in found)


def _title(part: Sequence[Line]) -> str:
    return f"lines {part[0].number} to {part[-1].number}"


__all__ = ["Chunk", "Line", "Note", "Page", "Pane", "Table", "chunks", "coloured", "framed", "rendered"]
