"""compute-sanitizer: its text, from samples in its documented format; planted faults; findings at the user's lines. No tool is run here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuad.runtime.nvrtc import available, compile_cuda
from gpuad.tools import sanitizer
from gpuad.tools.checks import Failed
from gpuad.tools.examples import Example, of_file
from gpuad.tools.sanitized import PLANTED, planted_text
from gpuad.tools.sanitizer import Sanitizer, parsed

MEMCHECK = """========= COMPUTE-SANITIZER
some line of the program
========= Invalid __global__ write of size 4 bytes
=========     at step+0x1d0 in /work/kernels/step.cu:14
=========     by thread (31,0,0) in block (3,0,0)
=========     Address 0x7f1ab5e00200 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f1ab5e00000 of size 512 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernel [0x2f2ba0] in /usr/lib/libcuda.so.1:7
=========
========= Invalid __global__ read of size 4 bytes
=========     at step_reverse(float const *, float *, int)+0x90 in step.cu:13
=========     by thread (0,0,0) in block (0,0,0)
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to cudaDeviceSynchronize.
=========     Saved host backtrace up to driver entry point at error
=========
========= ERROR SUMMARY: 3 errors
"""
OLDER = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at 0x1d0 in /work/kernels/step.cu:14:step(float const *, float *, int)
=========     by thread (31,0,0) in block (3,0,0)
=========     Address 0x7f1ab5e00200 is out of bounds
=========
========= ERROR SUMMARY: 1 error
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at step(float const *, float *, int)+0x150 in step.cu:13
=========     and Read access at step(float const *, float *, int)+0x160 in step.cu:14 [16 hazards]
=========     and Read access at step(float const *, float *, int)+0x1a0 in step.cu:14 [24 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
INITCHECK = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at step(int *)+0x70 in /home/a b/kernels/step.cu:14
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========
========= ERROR SUMMARY: 1 error
"""
SYNCCHECK = """========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at step(int *)+0xb0 in step.cu:14
=========     by thread (0,0,0) in block (0,0,0)
=========
========= Barrier error detected. Divergent thread(s) in warp.
=========     at 0x2c8 in step(float *)
=========
========= ERROR SUMMARY: 2 errors
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
CLEAN_RACES = "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
CUT_SHORT = "========= COMPUTE-SANITIZER\n========= Error: No attachable process found. compute-sanitizer timed-out.\n"

STEP = """/*gpuad
[[case]]
kernel = "step"
grid = [1]
block = [32]
[case.arguments]
u = {shape = [32], init = "normal", active = true}
v = {shape = [32], init = "zeros", active = true}
n = {value = 32}
*/
extern "C" __global__ void step(const float* u, float* v, int n) {
    int i = threadIdx.x;
    if (i < n) {
        v[i] = u[i];
    }
}
"""


@pytest.mark.parametrize(
    ("text", "total", "found"),
    [
        (
            MEMCHECK,
            3,
            [
                ("Invalid __global__ write of size 4 bytes", (("/work/kernels/step.cu", 14),)),
                ("Invalid __global__ read of size 4 bytes", (("step.cu", 13),)),
                ('Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to'
                 " cudaDeviceSynchronize.", ()),
            ],
        ),
        (OLDER, 1, [("Invalid __global__ write of size 4 bytes", (("/work/kernels/step.cu", 14),))]),
        (RACECHECK, 1, [("Error: Race reported between", (("step.cu", 13), ("step.cu", 14), ("step.cu", 14)))]),
        (INITCHECK, 1, [("Uninitialized __global__ memory read of size 4 bytes", (("/home/a b/kernels/step.cu", 14),))]),
        (SYNCCHECK, 2, [
            ("Barrier error detected. Divergent thread(s) in block.", (("step.cu", 14),)),
            ("Barrier error detected. Divergent thread(s) in warp.", ()),
        ]),
        (CLEAN, 0, []),
        (CLEAN_RACES, 0, []),
        (CUT_SHORT, None, [("Error: No attachable process found. compute-sanitizer timed-out.", ())]),
        ("", None, []),
    ],
    ids=["memcheck", "older", "racecheck", "initcheck", "synccheck", "clean", "no races", "cut short", "nothing"],
)  # fmt: skip
def test_reports(text: str, total: int | None, found: list[tuple[str, tuple[tuple[str, int], ...]]]) -> None:
    report = parsed(text)
    assert report.total == total
    assert [(record.what, record.places) for record in report.records] == found


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Example:
    monkeypatch.setattr(sanitizer, "tool_path", lambda: "/opt/compute-sanitizer")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "step.cu").write_text(STEP)
    (found,) = of_file(tmp_path / "kernels" / "step.cu", tmp_path)
    return found


def saying(report: str, status: int, planted: str | None = None, seen: list[Sequence[str]] | None = None) -> sanitizer.Runner:
    """Stands in for the tool: it finds its planted fault, unless it says something else, and then reports this."""

    def run(command: Sequence[str], environment: dict[str, str]) -> tuple[int, str]:
        assert environment["GPUAD_LINEINFO"] == "1"
        if seen is not None:
            seen.append(command)
        tool = command[command.index("--tool") + 1]
        if "planted" in command:
            text = f"========= Invalid __global__ write\n=========     at planted_{tool}+0x10\n========= ERROR SUMMARY: 1 error\n"
            return 9, text if planted is None else planted
        return status, report

    return run


def test_a_finding_has_the_line_of_the_user(example: Example) -> None:
    seen: list[Sequence[str]] = []
    first, second, third = Sanitizer("memcheck", saying(MEMCHECK, 9, seen=seen)).check(example, seed=3)
    assert (first.file, first.line, first.column) == ("kernels/step.cu", 14, 9)
    assert first.excerpt == "        v[i] = u[i];\n        ^~~~~~~~~~~~"
    assert first.message == "memcheck: Invalid __global__ write of size 4 bytes"
    assert "by thread (31,0,0) in block (3,0,0)" in first.detail
    assert second.line == 13
    assert third.line == example.span.line
    planted, run = seen
    assert planted[:3] == ["/opt/compute-sanitizer", "--tool", "memcheck"] and list(planted[-2:]) == ["planted", "memcheck"]
    assert list(run[-4:]) == [str(example.path), "step", "3", str(example.path.parents[1])]


@pytest.mark.parametrize(
    ("tool", "report", "line"), [("racecheck", RACECHECK, 13), ("initcheck", INITCHECK, 14), ("synccheck", SYNCCHECK, 14)]
)
def test_findings_of_the_other_tools(example: Example, tool: str, report: str, line: int) -> None:
    found = Sanitizer(tool, saying(report, 9)).check(example, seed=0)
    assert found[0].line == line and found[0].rule == "sanitizer" and found[0].advice


def test_nothing_found(example: Example) -> None:
    assert Sanitizer("memcheck", saying(CLEAN, 0)).check(example, seed=0) == []


@pytest.mark.parametrize(
    ("planted", "report", "status", "message"),
    [
        (CLEAN, CLEAN, 0, "does not find the fault planted for it: its silence would mean nothing"),
        ("", CLEAN, 0, "does not find the fault planted for it"),
        (None, CUT_SHORT, 0, "ended with exit status 0"),
        (None, "", 0, "ended with exit status 0"),
        (None, CLEAN, 1, "ended with exit status 1"),
        (None, "========= ERROR SUMMARY: 4 errors\n", 9, "ended with exit status 9"),
        (None, "no end after 600 s", 124, "ended with exit status 124"),
    ],
)
def test_a_broken_tool_is_not_believed(example: Example, planted: str | None, report: str, status: int, message: str) -> None:
    with pytest.raises(Failed, match=message):
        Sanitizer("memcheck", saying(report, status, planted)).check(example, seed=0)


def test_a_missing_tool_is_an_error(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer, "tool_path", lambda: None)
    with pytest.raises(Failed, match="--sanitizer was asked for, but there is no compute-sanitizer"):
        Sanitizer("memcheck", saying(CLEAN, 0)).check(example, seed=0)


@pytest.mark.skipif(not available(), reason="no NVRTC")
@pytest.mark.parametrize("tool", PLANTED)
def test_planted_faults_are_cuda(tool: str) -> None:
    compile_cuda(planted_text(tool), "sm_90", ["-lineinfo"])
