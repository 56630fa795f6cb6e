"""A table in HTML, as notebooks show it for an object. All texts are escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], caption: str = "") -> str:
    """A table with a row of `heads`, and a cell for each text or number; numbers stand on the right."""
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    side = "right" if isinstance(value, int | float) else "left"
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return f'<td style="text-align:{side}">{escape(text)}</td>'


def paragraph(text: str) -> str:
    """A paragraph in HTML."""
    return f"<p>{escape(text)}</p>"


__all__ = ["paragraph", "table"]
