"""Described launches as items: `kernels/heat.cu::heat::races`. What is checked is in `gpuad.tools.checks`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..errors import GpuadError
from ..tools.findings import Finding
from ..tools.settings import Settings
from .options import requires_gpu

if TYPE_CHECKING:
    from ..tools.check_process import CheckProcess
    from ..tools.checks import Failed
    from ..tools.examples import Example

_MARKS = {".cu": "[[case]]", ".py": "def example"}


class Collection:
    """The hooks that make items and their reports."""

    def __init__(self, config: pytest.Config, settings: Settings, tools: Sequence[str]) -> None:
        self.config, self.settings, self.tools = config, settings, tools
        self.inside = tuple(path.resolve() for path in settings.paths)
        given = config.getoption("--gpuad-seed")
        self._process: CheckProcess | None = None
        self.checks_of: dict[pytest.Collector | None, set[str]] = {}
        self.seed: int = settings.seed if given is None else given

    def pytest_report_header(self) -> str:
        return f"gpuad: seed {self.seed}, {', '.join(self.settings.architectures)}, on {', '.join(self.settings.devices)}"

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        mark = _MARKS.get(file_path.suffix)
        if mark is None or not self._is_inside(file_path) or mark not in file_path.read_text(encoding="utf-8", errors="replace"):
            return None
        made: ExampleFile = ExampleFile.from_parent(parent, path=file_path)
        made.plugin = self
        return made

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Notes which checks of a launch run, since one fault is reported once."""
        for item in session.items:
            if isinstance(item, ExampleItem):
                self.checks_of.setdefault(item.parent, set()).add(item.name)

    @property
    def process(self) -> CheckProcess:
        """The process that checks run in, imported when there is a check."""
        from ..tools.check_process import CheckProcess

        self._process = self._process or CheckProcess()
        return self._process

    def pytest_sessionfinish(self) -> None:
        if self._process is not None:
            self._process.close()

    def _is_inside(self, path: Path) -> bool:
        """A file of the folders that the settings name; where they name none, any `.cu` file."""
        if not self.inside:
            return path.suffix == ".cu"
        return any(path.resolve() == folder or folder in path.resolve().parents for folder in self.inside)

    @property
    def checks(self) -> Iterator[tuple[str, bool]]:
        """The checks of a launch, and whether each runs on a GPU."""
        for device in self.settings.devices:
            on_gpu = device == "gpu"
            for check in self.settings.checks:
                if not on_gpu or check in ("gradient", "forward", "determinism", "memory") or self.settings.devices == ("gpu",):
                    yield check, on_gpu and check not in ("races", "bounds", "launch")
        if self.config.getoption("--sanitizer"):
            yield from ((f"sanitizer-{tool}", True) for tool in self.tools)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report = yield
        if isinstance(item, ExampleItem):
            report.gpuad_launch = True
            if report.when == "call":
                item.described(report)
        return report


class ExampleFile(pytest.File):
    """A file with described launches."""

    plugin: Collection

    def collect(self) -> Iterable[pytest.Collector]:
        from ..tools.examples import of_file

        for example in of_file(self.path, self.plugin.settings.root):
            made: Launches = Launches.from_parent(self, name=example.name.replace("::", "."))
            made.example, made.plugin = example, self.plugin
            yield made

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, GpuadError) else super().repr_failure(excinfo)


class Launches(pytest.Collector):
    """One described launch: an item for each check."""

    example: Example
    plugin: Collection

    def collect(self) -> Iterable[pytest.Item]:
        for check, on_gpu in self.plugin.checks:
            plain = not on_gpu or check.startswith("sanitizer")
            made: ExampleItem = ExampleItem.from_parent(self, name=check if plain else f"{check}[gpu]")
            made.example, made.plugin, made.check, made.on_gpu = self.example, self.plugin, check, on_gpu
            yield made


class ExampleItem(pytest.Item):
    """One check of one launch."""

    example: Example
    plugin: Collection
    check: str
    on_gpu: bool
    finding: Finding | None = None

    def runtest(self) -> None:
        from ..tools.checks import Failed, How, NotApplicable

        settings = self.plugin.settings
        how = How(self.plugin.seed, settings.directions, settings.architectures, settings.memory, self.on_gpu)
        self.user_properties.append(("gpuad seed", how.seed))
        try:
            figures = self._on_gpu(how) if self.on_gpu else self.plugin.process.run(self.check, self.example, how)
        except NotApplicable as why:
            pytest.skip(str(why))
        except Failed as failed:
            if reporter := self._reported_elsewhere(failed):
                pytest.skip(f"refused, which ::{reporter} reports: {failed.finding.place}: {failed.finding.message}")
            self.finding = failed.finding
            raise
        self.user_properties += [(f"gpuad {name}", value) for name, value in figures.items()]

    def _reported_elsewhere(self, failed: Failed) -> str:
        """The name of the other check of this launch, in this run, that reports this: for a race or an index out of bounds the one that
        looks for it, for a kernel that is refused the gradient's, since each check derives the same launch. Empty if there is none."""
        rule, others = failed.finding.rule, self.plugin.checks_of.get(self.parent, set()) - {self.name}
        if failed.found_by and failed.found_by != self.check:
            return failed.found_by if failed.found_by in others else ""
        return "gradient" if rule == "unsupported" and "gradient" in others else ""

    def _on_gpu(self, how: Any) -> dict[str, int | float | str]:
        from ..tools.on_gpu import run_on_gpu
        from .fixtures import device

        found = device("gpu", self.plugin.settings, requires_gpu(self.config))
        return run_on_gpu(self.check, self.example, how, found.index or 0)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.example.span.line - 1, f"{self.example.name} {self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from ..tools.check_process import ExampleError
        from ..tools.checks import Failed

        match excinfo.value:
            case Failed():
                return self._report(excinfo.value.finding)
            case ExampleError():
                return str(excinfo.value)
        return super().repr_failure(excinfo)

    def _report(self, finding: Finding) -> str:
        """A failure as pytest shows its own: the line, what is wrong, where."""
        said = "\n".join(part for part in (finding.message, finding.detail, finding.advice) if part)  # the first line is for summaries
        lines = [f"{'>' if k == 0 else ' '}   {line}" for k, line in enumerate(finding.excerpt.splitlines())]
        lines += [f"E   {line}".rstrip() for line in said.splitlines()]
        lines += [f"E   seed {self.plugin.seed}; this test alone:", f"E     {self.command}"]
        return "\n".join([finding.message.partition("\n")[0], "", *lines, "", f"{finding.file}:{finding.line}: {finding.rule}"])

    @property
    def command(self) -> str:
        """What repeats this item alone, from the folder in which pytest was started."""
        file, colons, rest = self.nodeid.partition("::")
        where = os.path.relpath(self.config.rootpath / file, self.config.invocation_params.dir).replace(os.sep, "/") + colons + rest
        switch = "" if self.config.getini("gpuad") else " --gpuad"
        sanitizer = f" --sanitizer --sanitizer-tools={self.check.partition('-')[2]}" if self.check.startswith("sanitizer") else ""
        return f"pytest {shlex.quote(where)} --gpuad-seed={self.plugin.seed}{switch}{sanitizer}"

    def described(self, report: pytest.TestReport) -> None:
        """Puts the finding and its place into a report, for whoever annotates it."""
        if self.finding is not None:
            report.location = (report.location[0], self.finding.line - 1, report.location[2])
            report.gpuad_finding = asdict(self.finding)  # type: ignore[attr-defined]
