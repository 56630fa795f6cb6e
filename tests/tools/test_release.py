"""What a release needs: one version in all places, its day in the changelog, and a script that refuses another tag."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpuad

ROOT = Path(__file__).parents[2]
HEADINGS = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("file", ["mkdocs.yml", ".github/CITATION.cff"])
def test_the_version_is_the_same_everywhere(file: str) -> None:
    assert re.search(
        rf"(?:gpuad |version: ){re.escape(gpuad.__version__)}(?:\.? |$)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE
    )


def test_the_changelog_has_versions_with_their_days() -> None:
    assert HEADINGS[0] == ("Unreleased", "")
    numbers = [tuple(map(int, version.split("."))) for version, _ in HEADINGS[1:]]
    days = [day for _, day in HEADINGS[1:]]
    assert numbers == sorted(set(numbers), reverse=True) and days == sorted(set(days), reverse=True)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", day) for day in days)
    assert tuple(map(int, gpuad.__version__.split(".dev")[0].split("."))) >= numbers[0]


@pytest.mark.skipif(sys.platform == "win32", reason="a script for bash")
@pytest.mark.parametrize(("tag", "why"), [("v99.0.0", "is not v"), (f"v{gpuad.__version__}", "has no line")])
def test_a_tag_that_is_not_the_version_is_refused(tag: str, why: str) -> None:
    if why == "has no line" and ".dev" not in gpuad.__version__:
        pytest.skip("the version is one of the changelog's: this commit is a release")
    done = subprocess.run([str(ROOT / ".ci" / "release"), tag], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and why in done.stderr


def test_issue_forms_ask_for_what_is_needed() -> None:
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert len(forms) == 3
    for form in forms:
        text = form.read_text(encoding="utf-8")
        assert re.match(r"name: .+\ndescription: .+\n", text) and "validations: {required: true}" in text
        assert form.name == "question-or-wish.yml" or "gpuad selftest" in text
