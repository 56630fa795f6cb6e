"""Described launches as pytest's items: which there are, that pytest's own options work on them, and how failures read."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpuad.runtime import nvrtc

ROOT = Path(__file__).parents[2]
CHECKS = ("gradient", "forward", "races", "bounds", "determinism", "launch", "memory")
CASE = """/*gpuad
[[case]]
kernel = "NAME"
sizes = {n = 100}
grid = ["(n + 31) // 32"]
block = [32]
[case.arguments]
u = {shape = ["n"], init = "normal", active = true}
v = {shape = ["n"], init = "zeros", active = true}
n = {value = "n"}
*/
extern "C" __global__ void NAME(const float* u, float* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    BODY
}
"""


def case(body: str, name: str = "step") -> str:
    return CASE.replace("NAME", name).replace("BODY", body)


GOOD = case("if (i < n) v[i] = sinf(u[i]);")
RACE = case("if (i < n) v[i / 2] = u[i];")
OUTSIDE = case("if (i < n) v[i] = u[(i + 1) % 128];")
REFUSED = case("if (i < n) v[i] = u[i] + clock();")
RULE = '''
import gpuad

def back(x, dx, dy):
    dx += 3 * x * dy

@gpuad.rule(reads=("x",), overwrites=("y",), needs={"x": "before"}, reverse=back)
def square(x, y):
    y[...] = x * x

def example(rng):
    """The rule on random numbers."""
    return square, [rng.normal(size=100), rng.normal(size=100)]
'''


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project that asks for the plugin, with the checks that are quick."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GPUAD_REQUIRE_GPU"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    configured(pytester)
    (pytester.path / "kernels").mkdir()
    return pytester


def configured(
    project: pytest.Pytester, ini: str = "gpuad = true", table: str = 'kernels = ["kernels"]\nchecks = ["races", "bounds"]'
) -> None:
    text = f'[tool.pytest.ini_options]\naddopts = "-p gpuad.pytest_plugin -p no:cacheprovider"\n{ini}\n[tool.gpuad]\n{table}\n'
    project.path.joinpath("pyproject.toml").write_text(text)


def write(project: pytest.Pytester, name: str, text: str) -> None:
    (project.path / "kernels" / name).write_text(text)


def plant(project: pytest.Pytester, code: str) -> None:
    """A fault in gpuad, in each process that the project's run starts: one of them runs the checks."""
    folder = project.path / "planted"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])  # which the fixture `project` puts back


ALL = 'kernels = ["kernels"]\ndirections = 1'


def test_nothing_is_collected_unless_the_configuration_asks_for_it(project: pytest.Pytester) -> None:
    write(project, "step.cu", GOOD)
    configured(project, ini="")
    assert project.runpytest("kernels").ret == pytest.ExitCode.NO_TESTS_COLLECTED
    project.runpytest("kernels", "--gpuad").assert_outcomes(passed=2)


def test_a_clean_kernel_passes_every_check(project: pytest.Pytester) -> None:
    configured(project, table=ALL)
    write(project, "step.cu", GOOD)
    result = project.runpytest("-v", "--durations=3", "-vv")
    result.assert_outcomes(passed=len(CHECKS))
    result.stdout.fnmatch_lines([f"kernels/step.cu::step::{check} PASSED*" for check in CHECKS])
    result.stdout.fnmatch_lines(["gpuad: seed 0, sm_90, on cpu", "*s call * kernels/step.cu::step::*"])


def test_which_items_there_are(project: pytest.Pytester) -> None:
    write(project, "two.cu", GOOD)
    write(project, "rule.py", RULE + "\n\ndef example_twice():\n    return example(__import__('numpy').random.default_rng(1))\n")
    write(project, "helper.cuh", GOOD)
    write(project, "plain.cu", "__global__ void f() {}")
    write(project, "plain.py", "x = 1")
    (project.path / "elsewhere.cu").write_text(GOOD)
    (project.path / "elsewhere.py").write_text(RULE)
    result = project.runpytest("--collect-only", "-q", ".")
    names = [line for line in result.outlines if "::" in line]
    assert names == [
        f"kernels/{file}::{name}::{check}"
        for file, name in (("rule.py", "example"), ("rule.py", "example_twice"), ("two.cu", "step"))
        for check in ("races", "bounds")
    ]


def test_two_launches_of_one_kernel_and_templates_have_names_of_their_own(project: pytest.Pytester) -> None:
    head, _, kernel = GOOD.partition("*/\n")
    again = head[head.index("[[case]]") :]
    named = again.replace('kernel = "step"', 'kernel = "scale<Kind::twice>"')
    template = "enum class Kind { once, twice };\ntemplate <Kind K> __global__ void scale(const float* u, float* v, int n)"
    body = " { int i = threadIdx.x; if (i < n) v[i] = u[i]; }\n"
    write(project, "step.cu", head + again + named + "*/\n" + kernel + template + body)
    result = project.runpytest("-k", "races", "-v")
    result.stdout.fnmatch_lines([f"*::{name}::races PASSED*" for name in ("step", "step#2", "scale<Kind.twice>")])
    project.runpytest("kernels/step.cu::scale<Kind.twice>::bounds").assert_outcomes(passed=1)


def test_a_description_that_cannot_be_read_is_an_error_at_its_place(project: pytest.Pytester) -> None:
    write(project, "step.cu", GOOD.replace("block = [32]\n", ""))
    result = project.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["kernels/step.cu:2:1: error: 'block' is missing"])


@pytest.mark.parametrize(
    ("text", "check", "line"),
    [
        (RACE, "races", "E   data race on `v`[[]0[]]: thread (1, 0, 0) *"),
        (OUTSIDE, "bounds", "E   * outside `u` *"),
        (REFUSED, "bounds", "E   *clock*"),
    ],
)
def test_what_is_found_in_a_kernel(project: pytest.Pytester, text: str, check: str, line: str) -> None:
    write(project, "step.cu", text)
    result = project.runpytest("-k", check)
    result.assert_outcomes(failed=1)
    excerpt = [">       if (i < n) v[[]i*", "         *^~*"]
    result.stdout.fnmatch_lines([*excerpt, line, "E   seed 0; this test alone:", "kernels/step.cu:14: *"])


def command_of(text: str) -> list[str]:
    (line,) = set(re.findall(r"E     (pytest .*--gpuad-seed=.*)", text))  # in CI the summary has it again
    return shlex.split(line)


def test_the_printed_command_repeats_the_failure(project: pytest.Pytester) -> None:
    configured(project, table='kernels = ["kernels"]\nchecks = ["gradient", "races"]\nseed = 7', ini="")
    write(project, "my rule.py", RULE)
    folder = project.path / "below"
    folder.mkdir()
    arguments = [sys.executable, "-m", "pytest", "--gpuad", "../kernels", "--gpuad-seed=11"]
    first = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)
    assert "1 failed, 1 skipped" in first.stdout
    words = command_of(first.stdout)
    assert words == ["pytest", "../kernels/my rule.py::example::gradient", "--gpuad-seed=11", "--gpuad"]
    again = subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert "1 failed in" in again.stdout
    told = [re.findall(r"gradient of `x.*", text) for text in (first.stdout, again.stdout)]
    assert told[0] == told[1] != []


def test_a_wrong_rule_is_told_with_its_worst_element(project: pytest.Pytester) -> None:
    configured(project, table=ALL)
    write(project, "rule.py", RULE)
    result = project.runpytest("-rsf")
    result.assert_outcomes(failed=1, skipped=6)
    result.stdout.fnmatch_lines(
        [
            "the reverse `back` of the rule `square` is wrong",
            ">   def back(x, dx, dy):",
            "    ^~~~~~~~",
            "E   gradient of `x?*?`: got *, expected * (by differences)",
            "kernels/rule.py:4: gradient",
            "SKIPPED*`square` is a rule*",
            "FAILED kernels/rule.py::example::gradient - the reverse `back` of the rule*",
        ]
    )
    found = re.search(r"`x\[(\d+)\]`: got (\S+), expected (\S+) ", result.stdout.str())
    assert found is not None
    k, rng = int(found[1]), np.random.default_rng(0)
    wx, wy = rng.standard_normal(100)[k], rng.standard_normal(100)[k]  # of what is there after the call, x among it
    x = np.random.default_rng(0).normal(size=100)[k]
    assert [float(found[2]), float(found[3])] == pytest.approx([wx + 3 * x * wy, wx + 2 * x * wy], rel=1e-6)


def test_a_wrong_derivative_of_a_kernel_is_told_with_its_worst_element(project: pytest.Pytester) -> None:
    """The fault is planted into what the element is compared with, the launch: after the third it computes twice as much."""
    configured(project, table='kernels = ["kernels"]\nchecks = ["gradient"]\ndirections = 1')
    write(project, "step.cu", GOOD)
    plant(
        project,
        "from gpuad.testing import launch_memory\n"
        "plain = launch_memory.LaunchMemory.after\n"
        "def after(self, direction=None, step=0.0):\n"
        "    left = plain(self, direction, step)\n"
        "    for values in left.values():\n"
        "        if values.size == 100: values[33] *= 2\n"
        "    return left\n"
        "launch_memory.LaunchMemory.after = after\n",
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    found = re.search(r"E   gradient of `u\[33\]`: got (\S+), expected (\S+) \(by differences\)", result.stdout.str())
    assert found and float(found[2]) / float(found[1]) == pytest.approx(2, rel=2e-2)
    result.stdout.fnmatch_lines(
        [
            ">       if (i < n) v[[]i[]] = sinf(u[[]i[]]);",
            "                               ^~~~",
            "*FAILED Taylor 1*",
            "kernels/step.cu:14: gradient",
        ]
    )


def test_wrong_second_derivatives_are_told(project: pytest.Pytester) -> None:
    """The fault is planted into the rule for takes: they leave the tangents of the shadows that they clear."""
    configured(project, table='kernels = ["kernels"]\nchecks = ["gradient"]\ndirections = 1')
    write(project, "step.cu", GOOD)
    plant(
        project,
        "from gpuad.ad import forward\n"
        "from gpuad.ir.nodes import Load, Take\n"
        "plain = forward._Forward.read\n"
        "def read(self, stmt, var, buffer):\n"
        "    first, *rest = plain(self, stmt, var, buffer)\n"
        "    left = [Load(s.var, s.buffer, s.index) if isinstance(s, Take) else s for s in rest]\n"
        "    return (first, *left)\n"
        "forward._Forward.read = read\n",
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["the second derivatives of `step` are wrong, its gradient is right", "*FAILED second derivatives*"])


def test_a_kernel_that_is_refused_is_told_once(project: pytest.Pytester) -> None:
    configured(project, table=ALL)
    write(project, "step.cu", REFUSED)
    result = project.runpytest("-rs")
    result.assert_outcomes(failed=1, skipped=len(CHECKS) - 1)
    result.stdout.fnmatch_lines(["SKIPPED*refused, which ::gradient reports: kernels/step.cu:14:*"])
    project.runpytest("-k", "memory").assert_outcomes(failed=1)  # where nobody else would say so


# Bodies that end the process which runs them natively, or spoil its heap, each with an index out of bounds.
DESTRUCTIVE = {
    "far": "v[i * 100000000] = u[0];",
    "before": "if (i < n) v[i - 5000000] = u[i];",
    "data": "if (i < n) v[(int)(u[i] * 1e9f)] = 1.0f;",
    "read": "if (i < n) v[i] = u[i * 200000000];",
    "atomic": "atomicAdd(&v[i * 50000000 + 7], u[0]);",
    "pointer": "float* p = v + 70000000; if (i < n) p[i] = u[i];",
    "loop": "if (i < n) for (int j = 0; j < 100000; ++j) v[i + 1000 * j] = u[i];",
    "local": "float s[4] = {0}; s[100000 * i + 3] = u[0]; if (i < n) v[i] = s[i % 4];",
    "shared": "__shared__ float s[32]; s[1000000 * threadIdx.x + 5] = u[0]; __syncthreads(); if (i < n) v[i] = s[0];",
    "chosen": "int j = u[i] > 0.0f ? -90000000 : 90000000; if (i < n) v[i + j] = u[i];",
}


def test_kernels_that_would_end_the_process_are_reported(project: pytest.Pytester) -> None:
    """Each once, by the check that looks for it, before any native launch."""
    configured(project, table=ALL)
    for name, body in DESTRUCTIVE.items():
        write(project, f"{name}.cu", case(body, name))
    result = project.runpytest_subprocess("--junitxml=junit.xml", "--gpuad-sarif=found.sarif", "-p", "no:xdist")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    found = json.loads((project.path / "found.sarif").read_text())["runs"][0]["results"]
    places = {each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]: each["ruleId"] for each in found}
    assert len(found) == len(DESTRUCTIVE)
    assert places == {f"kernels/{name}.cu": "gpuad/bounds" for name in DESTRUCTIVE}
    assert (project.path / "junit.xml").read_text().count("<failure") == len(DESTRUCTIVE)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("checks", ["gradient", "determinism", "memory"])
def test_a_fault_is_reported_where_only_a_native_check_runs(project: pytest.Pytester, checks: str) -> None:
    configured(project, table=f'kernels = ["kernels"]\nchecks = ["{checks}"]')
    write(project, "far.cu", case(DESTRUCTIVE["far"], "far"))
    result = project.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   *outside its allocation*", "kernels/far.cu:14: bounds"])


def test_a_process_that_dies_is_reported_and_another_goes_on(project: pytest.Pytester) -> None:
    configured(project, table='kernels = ["kernels"]\nchecks = ["races", "bounds"]')
    write(project, "deadly.py", "import os, signal\n\ndef example():\n    os.kill(os.getpid(), signal.SIGTERM)\n")
    write(project, "step.cu", GOOD)
    result = project.runpytest()
    result.assert_outcomes(failed=2, passed=2)
    result.stdout.fnmatch_lines(["E   the process that ran this check died (SIGTERM)", "kernels/deadly.py:3: races"])


def test_what_an_example_raises_is_shown_with_its_line(project: pytest.Pytester) -> None:
    write(project, "bad.py", "def example():\n    return {}['missing']\n")
    result = project.runpytest("-k", "races")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*bad.py*, line 2, in example", "KeyError: 'missing'"])


@pytest.mark.nightly
def test_workers_find_the_same(project: pytest.Pytester) -> None:
    write(project, "step.cu", GOOD)
    write(project, "race.cu", RACE)
    result = project.runpytest_subprocess("-n", "2", "-v")
    result.assert_outcomes(failed=1, passed=2, skipped=1)
    result.stdout.fnmatch_lines(["kernels/race.cu:14: races"])


def test_the_last_failures_run_again(project: pytest.Pytester) -> None:
    configured(project)
    text = (project.path / "pyproject.toml").read_text().replace(" -p no:cacheprovider", "")
    (project.path / "pyproject.toml").write_text(text)
    write(project, "race.cu", RACE)
    project.runpytest().assert_outcomes(failed=1, skipped=1)
    project.runpytest("--lf").assert_outcomes(failed=1)
    write(project, "race.cu", GOOD)
    project.runpytest("--lf").assert_outcomes(passed=1)


def test_an_example_that_returns_something_else_is_an_error_at_its_line(project: pytest.Pytester) -> None:
    write(project, "bad.py", "def example():\n    return 3\n")
    result = project.runpytest("-k", "bounds")
    result.stdout.fnmatch_lines(["*`example` has to return (call, arguments) or (call, arguments, keywords)*"])


def test_memory_beyond_what_is_allowed(project: pytest.Pytester) -> None:
    configured(project, table='kernels = ["kernels"]\nchecks = ["memory"]\nmemory = "100 B"')
    write(
        project,
        "step.cu",
        case("if (i < n) { float s = v[i]; for (int j = 0; j < 9.0f * fabsf(u[i]); ++j) s = sinf(s) * s; v[i] = s; }").replace(
            "n = 100", "n = 4000"
        ),
    )
    result = project.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   forward and reverse take * bytes beside their arguments; `memory` in ?tool.gpuad? allows 100 B"])


def test_a_block_that_does_not_fit(project: pytest.Pytester) -> None:
    configured(project, table='kernels = ["kernels"]\nchecks = ["launch"]\narchitectures = ["sm_75", "sm_90"]')
    write(project, "step.cu", GOOD)
    plant(
        project,
        "from dataclasses import replace\nfrom gpuad.runtime import nvrtc\nplain = nvrtc.resources\n"
        "nvrtc.resources = lambda cubin: {name: replace(r, registers=300) for name, r in plain(cubin).items()}\n",
    )
    result = project.runpytest_subprocess()
    if not nvrtc.available():
        result.assert_outcomes(skipped=1)
        return
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   a block of 32 threads of step_reverse does not fit on sm_75: 300 registers a thread, *"])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('kernels = "kernels"', "kernels has to be a list of strings"),
        ('checks = ["speed"]', "checks knows no `speed`; it knows gradient, forward"),
        ('memory = "many"', "memory: 'many' is no size"),
        ("directions = 0", "directions is 0, which is too small"),
        ('device = ["gpu"]', "has no `device`; it has kernels"),
    ],
)
def test_settings_that_are_refused(project: pytest.Pytester, table: str, message: str) -> None:
    configured(project, table=table)
    result = project.runpytest()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str()


def test_tools_that_the_sanitizer_does_not_have(project: pytest.Pytester) -> None:
    result = project.runpytest("--sanitizer-tools=memcheck,lint")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "has no tool 'lint'; it has memcheck" in result.stderr.str()


def test_a_suite_without_kernels_waits_for_nothing() -> None:
    """What every run of pytest imports of gpuad: neither NumPy nor libclang, nor the package's own rooms but this."""
    code = (
        "import sys, pytest; before = set(sys.modules); import gpuad.pytest_plugin\n"
        "print(*sorted(name for name in set(sys.modules) - before if not name.startswith('_')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)})
    assert set(done.stdout.split()) <= {"gpuad", "gpuad.deferred_import", "gpuad.pytest_plugin", "gpuad.pytest_plugin.options"}


def test_its_entry_point_is_the_module() -> None:
    import tomllib

    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert points == {"gpuad.pytest_plugin": "gpuad.pytest_plugin"}


REPORTS = ["--gpuad", "--gpuad-sarif=a.sarif", "--gpuad-code-quality=q.json"]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("option", REPORTS)
def test_a_run_that_is_asked_for_launches_and_has_none_fails(project: pytest.Pytester, option: str) -> None:
    """A test of the project's own passes, and hides that nothing was looked at."""
    project.makepyfile(test_own="def test_own(): pass")
    configured(project, table='kernels = ["elsewhere"]')
    write(project, "step.cu", GOOD)
    result = project.runpytest_subprocess("test_own.py", "kernels", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{option.partition('=')[0]}: no described launch was run. pytest's rootdir is *elsewhere*"])


def test_a_rootdir_that_an_existing_report_moves_is_told(project: pytest.Pytester) -> None:
    """pytest takes the file for an argument, the folder above for its rootdir, and reads no configuration."""
    inner = project.mkdir("inner")
    (project.path / "q.json").write_text("[]")
    (inner / "test_own.py").write_text("def test_own(): pass")
    (inner / "pyproject.toml").write_text("[tool.pytest.ini_options]\ngpuad = true\n[tool.gpuad]\n")
    result = project.runpytest_subprocess("--rootdir", str(project.path), "inner", "--gpuad-code-quality", "q.json", "-c", "/dev/null")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--gpuad-code-quality: gpuad is off: no `gpuad = true` is read. pytest's rootdir is *"])


def test_a_report_of_launches_that_pass(project: pytest.Pytester) -> None:
    configured(project, table='kernels = ["kernels"]\nchecks = ["gradient"]\ndirections = 1')
    write(project, "step.cu", GOOD)
    assert project.runpytest_subprocess("kernels", REPORTS[2]).ret == pytest.ExitCode.OK
    assert (project.path / "q.json").read_text().strip() == "[]"
    assert project.runpytest_subprocess("kernels", "--collect-only", REPORTS[2]).ret == pytest.ExitCode.OK
