"""The report of code quality that GitLab shows in merge requests: a list of findings with description, name of the check, fingerprint,
severity and place (GitLab's documentation, "Code Quality report format")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..findings import Finding
from .sarif import fingerprint

_SEVERITY = {"error": "critical", "warning": "major", "note": "info"}


def code_quality(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """One entry a finding; equal fingerprints would be shown as one, so those of repeated findings are numbered."""
    seen: dict[str, int] = {}
    entries = []
    for finding in findings:
        mark = fingerprint(finding)
        seen[mark] = seen.get(mark, 0) + 1
        entries.append(
            {
                "description": " ".join(part for part in (finding.message, finding.advice) if part),
                "check_name": f"gpuad/{finding.rule}",
                "fingerprint": mark if seen[mark] == 1 else f"{mark}-{seen[mark]}",
                "severity": _SEVERITY[finding.level],
                "location": {"path": finding.file.removeprefix("./"), "lines": {"begin": max(finding.line, 1)}},
            }
        )
    return entries
