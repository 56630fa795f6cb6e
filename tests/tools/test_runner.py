"""What goes to the machine that runs the checks, against the facts of its formats (not their schemas' text): SARIF 2.1.0, GitLab's code
quality, GitHub's annotations and step summaries, JUnit's XML as pytest writes it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuad.tools.findings import RULES, Finding
from gpuad.tools.runner import annotation, code_quality, sarif, step_summary, summary, write_all

ROOT = Path(__file__).parents[2]
RACE = Finding("races", "data race on `v`[0] at a.cu:14:9", "kernels/a b,c.cu", 14, 9, subject="a", advice="Put a barrier\nbetween: 100 %.")
WORSE = Finding("ledger", "`step`: du gather -> atomic: line 14 now reads u[idx[i]]", "kernels/step.cu", 14, 42, "warning", "step")
NOTE = Finding("memory", "so | <much>", "k.cu", level="note")
ALL = [RACE, WORSE, NOTE]

# Facts of the schemas: for each object its required members, the types or values that members may have, and what they look like inside.
LEVELS = {"none", "note", "warning", "error"}
SARIF = {
    "": ({"version", "runs"}, {"version": {"2.1.0"}, "$schema": str, "runs": list}),
    "run": ({"tool"}, {"tool": dict, "results": list, "columnKind": {"utf16CodeUnits", "unicodeCodePoints"}}),
    "driver": ({"name"}, {"name": str, "version": str, "rules": list}),
    "rule": ({"id"}, {"id": str, "shortDescription": dict}),
    "result": (
        {"message"},
        {"ruleId": str, "ruleIndex": int, "level": LEVELS, "message": dict, "locations": list, "partialFingerprints": dict},
    ),
    "physicalLocation": (set(), {"artifactLocation": dict, "region": dict}),
    "artifactLocation": (set(), {"uri": str, "uriBaseId": str}),
    "region": (set(), {"startLine": int, "startColumn": int}),
}
SEVERITIES = {"info", "minor", "major", "critical", "blocker"}
CODE_QUALITY = {
    "entry": (
        {"description", "check_name", "fingerprint", "severity", "location"},
        {"description": str, "check_name": str, "fingerprint": str, "severity": SEVERITIES, "location": dict},
    ),
    "location": ({"path", "lines"}, {"path": str, "lines": dict}),
    "lines": ({"begin"}, {"begin": int}),
}


def fits(value: Any, facts: tuple[set[str], dict[str, Any]]) -> None:
    required, members = facts
    assert required <= value.keys() <= members.keys()
    for name, member in value.items():
        allowed = members[name]
        assert member in allowed if isinstance(allowed, set) else type(member) is allowed, (name, member)


def check_sarif(log: Any) -> list[Any]:
    """The results of a log that fits the facts."""
    fits(log, SARIF[""])
    (run,) = log["runs"]
    fits(run, SARIF["run"])
    driver = run["tool"]["driver"]
    fits(driver, SARIF["driver"])
    for rule in driver["rules"]:
        fits(rule, SARIF["rule"])
    assert len({rule["id"] for rule in driver["rules"]}) == len(driver["rules"])
    for result in run["results"]:
        fits(result, SARIF["result"])
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        place = result["locations"][0]["physicalLocation"]
        for name in ("physicalLocation", "artifactLocation", "region"):
            fits(place if name == "physicalLocation" else place[name], SARIF[name])
        assert place["region"]["startLine"] >= 1 and place["region"]["startColumn"] >= 1
        assert re.fullmatch(r"[^\s\\:]+", place["artifactLocation"]["uri"])  # a relative reference
    results: list[Any] = run["results"]
    return results


def check_code_quality(entries: Any) -> None:
    for entry in entries:
        fits(entry, CODE_QUALITY["entry"])
        fits(entry["location"], CODE_QUALITY["location"])
        fits(entry["location"]["lines"], CODE_QUALITY["lines"])
        assert not entry["location"]["path"].startswith(("/", "./")) and entry["location"]["lines"]["begin"] >= 1
    assert len({entry["fingerprint"] for entry in entries}) == len(entries)


def test_sarif() -> None:
    race, worse, note = check_sarif(json.loads(json.dumps(sarif(ALL))))
    assert race["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "kernels/a%20b%2Cc.cu"
    assert (race["level"], worse["level"], note["level"]) == ("error", "warning", "note")
    assert worse["ruleId"] == "gpuad/ledger"
    assert check_sarif(sarif([])) == []


def test_fingerprints_do_not_move_with_lines() -> None:
    moved = replace(WORSE, line=20, message=WORSE.message.replace("line 14", "line 20"))
    other = replace(WORSE, message=WORSE.message.replace("du", "dv"))
    one, two, three = (sarif([f])["runs"][0]["results"][0]["partialFingerprints"] for f in (WORSE, moved, other))
    assert one == two != three


def test_code_quality() -> None:
    entries = code_quality([*ALL, RACE])
    check_code_quality(entries)
    assert [entry["severity"] for entry in entries] == ["critical", "major", "info", "critical"]
    assert entries[1]["location"] == {"path": "kernels/step.cu", "lines": {"begin": 14}}


def test_the_facts_find_what_does_not_fit() -> None:
    for spoil in ({"version": "2.0"}, {"results": []}, {"runs": {}}):
        with pytest.raises(AssertionError):
            check_sarif({**sarif(ALL), **spoil})
    with pytest.raises(AssertionError):
        check_code_quality([{**code_quality(ALL)[0], "severity": "bad"}])


ANNOTATION = re.compile(r"::(error|warning|notice) file=([^,]+),line=(\d+),col=(\d+),title=([^:,]+)::([^\r\n]+)")


def test_annotations_are_one_line_each() -> None:
    found = [ANNOTATION.fullmatch(annotation(finding)) for finding in ALL]
    assert all(found)
    race = found[0]
    assert race is not None
    assert race[2] == "kernels/a b%2Cc.cu" and race[6].endswith("Put a barrier%0Abetween: 100 %25.")
    assert [m[1] for m in found if m] == ["error", "warning", "notice"]


def test_the_page_of_a_step() -> None:
    page = summary("gpuad", ALL, ["better: a | b"], [("heat", "1024", "yes")], ("launch", "peak", "deterministic"))
    lines = page.splitlines()
    assert lines[0] == "### gpuad" and "3 findings." in lines
    assert "| `k.cu:1` | so \\| &lt;much> |  |" in lines
    assert "- better: a \\| b" in lines and "| heat | 1024 | yes |" in lines
    tables = [line for line in lines if line.startswith("|")]
    assert {re.sub(r"\\\|", "", line).count("|") for line in tables} == {4}
    assert "Nothing found." in summary("gpuad", [])


def test_files_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    assert step_summary() == page
    write_all(ALL, sarif_file=str(tmp_path / "a" / "b.sarif"), quality_file=str(tmp_path / "q.json"), markdown="after\n")
    assert page.read_text() == "before\nafter\n"
    assert len(check_sarif(json.loads((tmp_path / "a" / "b.sarif").read_text()))) == 3
    check_code_quality(json.loads((tmp_path / "q.json").read_text()))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    assert step_summary() is None


def test_every_rule_says_what_it_looks_for() -> None:
    assert all(finding.rule in RULES for finding in ALL)
    assert all(text.endswith(".") for text in RULES.values())


# --- a run of pytest ---------------------------------------------------------------------------------------------------------------------

KERNEL = """/*gpuad
[[case]]
kernel = "step"
grid = [1]
block = [32]
[case.arguments]
u = {shape = [32], init = "normal", active = true}
v = {shape = [32], init = "zeros", active = true}
*/
extern "C" __global__ void step(const float* u, float* v) {
    v[threadIdx.x / 2] = u[threadIdx.x];
}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of pytest with workers on a project with a race, as on a runner of GitHub's."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "kernels").mkdir()
    (folder / "kernels" / "step.cu").write_text(KERNEL)
    (folder / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = "-p gpuad.pytest_plugin -n 2"\ngpuad = true\n'
        '[tool.gpuad]\nkernels = ["kernels"]\nchecks = ["races", "launch"]\n'
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(folder / "page.md")}
    environment["GITHUB_WORKSPACE"] = str(folder)
    options = ["--gpuad-sarif=a.sarif", "--gpuad-code-quality=q.json", "--junitxml=report.xml"]
    command = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return folder, done.stdout + done.stderr


def test_what_a_run_writes(run: tuple[Path, str]) -> None:
    (result,) = check_sarif(json.loads((run[0] / "a.sarif").read_text()))
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "kernels/step.cu" and place["region"]["startLine"] == 11
    check_code_quality(json.loads((run[0] / "q.json").read_text()))
    assert "| `kernels/step.cu:11` | data race on `v`[0]" in (run[0] / "page.md").read_text()


def test_junit(run: tuple[Path, str]) -> None:
    cases = {case.get("name"): case for case in ET.parse(run[0] / "report.xml").getroot().iter("testcase")}
    assert set(cases) == {"races", "launch"}
    for case in cases.values():
        assert {"classname", "name", "time"} <= set(case.attrib)
        assert all({"name", "value"} == set(p.attrib) for p in case.iter("property"))
    assert {"gpuad seed": "0"}.items() <= {p.get("name"): p.get("value") for p in cases["races"].iter("property")}.items()
    assert [child.tag for child in cases["races"] if child.tag != "properties"] == ["failure"]


def test_annotations_of_a_run(run: tuple[Path, str]) -> None:
    pytest.importorskip("pytest_github_actions_annotate_failures", reason="pip install 'gpuad[ci]'")
    assert re.search(r"::error file=kernels/step\.cu,line=11::step races.*data race on `v`", run[1])
