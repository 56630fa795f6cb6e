"""The list of the longest test files, from a record as pytest writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import longest

REPORT = """<testsuites><testsuite>
<testcase classname="tests.ad.test_a" name="x" time="1.5"/>
<testcase classname="tests.ad.test_a.TestB" name="y" time="2.0"/>
<testcase classname="tests.ops.test_c" name="z[1]" time="9.0"/>
<testcase classname="kernels.heat.cu.heat" name="races" time="0.25"/>
</testsuite></testsuites>"""


def test_files_by_their_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert longest.longest(report) == [("tests/ops/test_c.py", 9.0, 1), ("tests/ad/test_a.py", 3.5, 2), ("kernels", 0.25, 1)]
    assert len(longest.longest(report, 1)) == 1
    longest.main([str(report)])
    assert capsys.readouterr().out.splitlines()[0] == "     9.0 s      1 tests  tests/ops/test_c.py"


def test_without_a_record_it_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"there is no such record: write one with `pytest --junitxml"):
        longest.main([str(tmp_path / "no.xml")])
