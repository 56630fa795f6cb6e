"""What goes to the machine that runs the checks: annotations and step summaries of GitHub, SARIF for code scanning, GitLab's code quality.

All are texts made from findings and tables; nothing here reaches a network. `write_all` writes what was asked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..findings import Finding
from .code_quality import code_quality
from .github import annotation, summary
from .sarif import sarif

__all__ = ["annotation", "code_quality", "on_github", "sarif", "step_summary", "summary", "write_all"]


def on_github(environment: Mapping[str, str] | None = None) -> bool:
    """True if a runner of GitHub's reads the standard output."""
    return (os.environ if environment is None else environment).get("GITHUB_ACTIONS") == "true"


def step_summary(environment: Mapping[str, str] | None = None) -> Path | None:
    """The file to which Markdown for the step's page is appended, if there is one."""
    named = (os.environ if environment is None else environment).get("GITHUB_STEP_SUMMARY")
    return Path(named) if named else None


def write_all(findings: Sequence[Finding], *, sarif_file: str | None, quality_file: str | None, markdown: str = "") -> None:
    """Writes the files that are asked for, their folders if need be, and appends `markdown` to the step's summary. OSError as it comes."""
    for name, document in ((sarif_file, sarif), (quality_file, code_quality)):
        if name:
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(document(findings), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    page = step_summary()
    if page is not None and markdown:
        with page.open("a", encoding="utf-8") as out:
            out.write(markdown)
