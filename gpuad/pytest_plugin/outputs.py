"""What a run of pytest found, for the machine that runs it: SARIF, code quality, the page of a step. Annotations of GitHub are those of
`pytest-github-actions-annotate-failures`, which takes its places from the reports."""

from __future__ import annotations

import pytest

from ..errors import GpuadError
from ..tools import runner
from ..tools.findings import Finding
from .options import asked_for, configured_by, settings_of

_FIGURES = ("gpuad peak bytes", "gpuad deterministic reverse")
_HEADS = ("launch", "peak, bytes", "deterministic reverse")


class Outputs:
    """Gathers reports, of all workers, and writes at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.findings: list[Finding] = []
        self.has_run = False  # a described launch
        self.figures: dict[str, dict[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.has_run = self.has_run or getattr(report, "gpuad_launch", False)
        given = getattr(report, "gpuad_finding", None)
        if given is not None:
            self.findings.append(Finding(**given))
        for name, value in report.user_properties if report.when == "call" else ():
            if name in _FIGURES:
                self.figures.setdefault(report.nodeid.rpartition("::")[0], {})[name] = str(value)

    def pytest_sessionfinish(self) -> None:
        """Raises UsageError where a file cannot be written, and where no launch was looked at though the command line asks for it."""
        findings = sorted(self.findings, key=lambda f: (f.file, f.line, f.column, f.rule, f.subject))
        rows = [
            (name, own.get("gpuad peak bytes", ""), own.get("gpuad deterministic reverse", ""))
            for name, own in sorted(self.figures.items())
        ]
        page = runner.summary("gpuad", findings, table=rows, heads=_HEADS)
        sarif, quality = self.config.getoption("--gpuad-sarif"), self.config.getoption("--gpuad-code-quality")
        try:
            runner.write_all(findings, sarif_file=sarif, quality_file=quality, markdown=page)
        except (OSError, GpuadError) as error:
            raise pytest.UsageError(f"what gpuad found cannot be written: {error}") from None
        option = asked_for(self.config)
        if option and not self.has_run and not self.config.option.collectonly:
            kernels = ", ".join(map(str, settings_of(self.config).paths)) or "any .cu file"
            what = f"{option}: no described launch was run. {configured_by(self.config)}, and `kernels` of [tool.gpuad]: {kernels}"
            raise pytest.UsageError(what)
