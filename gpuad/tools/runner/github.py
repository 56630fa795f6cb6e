"""GitHub's workflow commands (an annotation at a line of a pull request) and Markdown for the page of a step.

Source: "Workflow commands for GitHub Actions" of GitHub's documentation: data escape %, carriage return and line feed; properties also
colons and commas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..findings import Finding

_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}
_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def annotation(finding: Finding) -> str:
    """One line for the standard output, which the runner takes for an annotation."""
    given = {"file": finding.file, "line": finding.line, "col": finding.column, "title": f"gpuad {finding.rule}"}
    properties = ",".join(f"{key}={str(value).translate(_PROPERTY)}" for key, value in given.items())
    text = "\n".join(part for part in (finding.message, finding.advice) if part)
    return f"::{_LEVELS[finding.level]} {properties}::{text.translate(_DATA)}"


def summary(
    title: str, findings: Sequence[Finding], mentioned: Iterable[str] = (), table: Sequence[Sequence[str]] = (), heads: Sequence[str] = ()
) -> str:
    """A section of Markdown: the findings, what else is to be mentioned, and a table with these heads, folded."""
    return "\n".join([*_section(title, findings, mentioned, table, heads), ""])


def _section(
    title: str, findings: Sequence[Finding], mentioned: Iterable[str], table: Sequence[Sequence[str]], heads: Sequence[str]
) -> Iterator[str]:
    yield f"### {title}\n"
    yield f"{len(findings)} finding{'s' if len(findings) != 1 else ''}." if findings else "Nothing found."
    yield ""
    if findings:
        yield from _rows(("where", "what", "what to do"), ((f"`{f.file}:{f.line}`", f.message, f.advice) for f in findings))
    for text in mentioned:
        yield f"- {_inline(text)}"
    if table:
        yield "\n<details><summary>memory and registers</summary>\n"
        yield from _rows(heads, table)
        yield "</details>"


def _rows(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(_inline(cell) for cell in row)} |"
    yield ""


def _inline(text: str) -> str:
    """A text for one cell or line of Markdown, in which it stays as it is."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
