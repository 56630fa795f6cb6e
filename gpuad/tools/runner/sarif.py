"""SARIF 2.1.0 (OASIS), as code scanning takes it: one run, the rules that were broken, one result a finding with a place in the repository.

A result's fingerprint leaves line numbers out, so that a finding that only moved is known again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from ..findings import RULES, Finding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def fingerprint(finding: Finding) -> str:
    """What stays the same of a finding while its file is edited elsewhere."""
    message = re.sub(r"\bline \d+|:\d+:\d+", "", finding.message)
    return hashlib.sha256("\0".join((finding.rule, finding.file, finding.subject, message)).encode()).hexdigest()[:32]


def sarif(findings: Sequence[Finding]) -> dict[str, Any]:
    """The log of one run, as JSON's values."""
    broken = sorted({f.rule for f in findings})
    driver = {
        "name": "gpuad",
        "version": _version(),
        "rules": [{"id": f"gpuad/{rule}", "shortDescription": {"text": RULES.get(rule, rule)}} for rule in broken],
    }
    results = [_result(finding, broken.index(finding.rule)) for finding in findings]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }


def _result(finding: Finding, rule: int) -> dict[str, Any]:
    text = "\n".join(part for part in (finding.message, finding.advice) if part)
    place = {
        "artifactLocation": {"uri": _uri(finding.file), "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": max(finding.line, 1), "startColumn": max(finding.column, 1)},
    }
    return {
        "ruleId": f"gpuad/{finding.rule}",
        "ruleIndex": rule,
        "level": finding.level,
        "message": {"text": text},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"gpuad/v1": fingerprint(finding)},
    }


def _uri(path: str) -> str:
    """A relative path as a URI reference."""
    from urllib.parse import quote

    return quote(path, safe="/")


def _version() -> str:
    try:
        return metadata.version("gpuad")
    except metadata.PackageNotFoundError:
        return "0"
