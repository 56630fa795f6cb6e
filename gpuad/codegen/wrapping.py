"""Breaks long lines where a programmer would: before an operator or behind a comma that as few brackets as possible enclose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

LIMIT = 120
_INDENT = 4
_OPERATORS = {"?": 1, ":": 1, "||": 2, "&&": 3, "==": 4, "!=": 4, "<": 4, ">": 4, "<=": 4, ">=": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}


@dataclass(frozen=True)
class _Break:
    """A place where a line may end: just before the character `at`. `cost`: how many brackets are open, how strongly the operator binds."""

    at: int
    cost: tuple[int, int]


def wrap(line: str, limit: int = LIMIT) -> list[str]:
    """The line, if it is longer than `limit`, in pieces that are not, as far as there are places to break it."""
    if len(line) <= limit:
        return [line]
    indent = len(line) - len(line.lstrip())
    further = " " * (indent + (2 * _INDENT if line.endswith("{") else _INDENT))
    at = _best(line, indent, limit)
    return [line] if at is None else [line[:at].rstrip(), *wrap_rest(further, line[at:], limit)]


def wrap_rest(indent: str, text: str, limit: int) -> list[str]:
    """The pieces of what is left of a line, all with the same indentation."""
    line = indent + text.lstrip()
    at = _best(line, len(indent), limit) if len(line) > limit else None
    return [line] if at is None else [line[:at].rstrip(), *wrap_rest(indent, line[at:], limit)]


def _best(line: str, indent: int, limit: int) -> int | None:
    """The cheapest place behind the first third of the width, else the last one."""
    fitting = [b for b in _breaks(line) if indent < b.at <= limit]
    late = [b for b in fitting if b.at > indent + (limit - indent) // 3]
    if late:
        return min(late, key=lambda b: (b.cost, -b.at)).at
    return fitting[-1].at if fitting else None


def _breaks(line: str) -> Iterator[_Break]:
    depth = 0
    code = line.find("//")
    for at, sign in enumerate(line if code < 0 else line[:code]):
        depth += (sign in "([{") - (sign in ")]}")
        if sign != " " or not line[:at].strip():
            continue
        word = line[at + 1 :].split(" ", 1)[0]
        if line[at - 1] in ",;":
            yield _Break(at + 1, (depth, 0))
        elif word in _OPERATORS:
            yield _Break(at + 1, (depth, _OPERATORS[word]))
