"""The commands: what they print, how they fail, with which exit status. `api` is replaced where the pipeline itself is not the subject."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from gpuad import testing
from gpuad.arguments.annotations import Active, Const, Duplicated
from gpuad.errors import UnsupportedError
from gpuad.ir.surface import Declaration
from gpuad.ir.types import F32, I32, Pointer
from gpuad.pipeline import passes
from gpuad.source import SourceFile, Span
from gpuad.tools import cli, doctor
from gpuad.tools.cases import kernel_folder
from gpuad.tools.demo import descent, gray_scott, long, wave
from gpuad.tools.demo.outcome import Outcome

CODE = """/*gpuad
title = "y += a * x"
[[case]]
kernel = "saxpy"
sizes = {n = 100}
grid = ["(n + 63) // 64"]
block = [64]
[case.arguments]
x = {shape = ["n"], init = "normal", active = true}
y = {shape = ["n"], init = "normal", active = true}
a = {value = 1.5, active = true}
n = {value = "n"}
*/
// no __global__ void here(
extern "C" __global__ void __launch_bounds__(64) saxpy(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "saxpy.cu"
    path.write_text(CODE)
    return path


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replaces the pipeline; holds what it was asked."""
    seen: dict[str, Any] = {}

    def kernel(path: Path, name: str, options: Sequence[str] = ()) -> Any:
        source = SourceFile(str(path), path.read_text())
        span = Span(source, 17, 5, 2)
        if "refuse" in seen:
            raise UnsupportedError("goto is not supported", span)
        types = {"x": Pointer(F32, True), "y": Pointer(F32), "a": F32, "n": I32}
        parameters = tuple(Declaration(span, name, type_, uid) for uid, (name, type_) in enumerate(types.items()))

        def adjoint(*annotations: Any, shared_mem: int) -> Any:
            seen["activity"] = {name: a for name, a in zip(types, annotations, strict=True) if a is not Const}
            seen["shared_mem"] = shared_mem
            return SimpleNamespace(source=f"// adjoint of {name}", explain=lambda: "saved nothing")

        return SimpleNamespace(name=name, parameters=parameters, adjoint=adjoint)

    monkeypatch.setattr(cli, "api", SimpleNamespace(kernel=kernel))
    return seen


def run(*words: object) -> Any:
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def test_grad_prints_the_adjoint(file: Path, seen: dict[str, Any]) -> None:
    result = run("grad", file)
    assert (result.exit_code, result.stdout) == (0, "// adjoint of saxpy\n")
    assert seen["activity"] == {"x": Duplicated, "y": Duplicated, "a": Active} and seen["shared_mem"] == 0


def test_grad_writes_a_file_and_takes_constants(file: Path, seen: dict[str, Any], tmp_path: Path) -> None:
    result = run("grad", file, "--kernel", "saxpy", "--const", "a", "--const", "x", "-o", tmp_path / "out.cu")
    assert result.exit_code == 0 and (tmp_path / "out.cu").read_text() == "// adjoint of saxpy\n"
    assert seen["activity"] == {"y": Duplicated}


@pytest.mark.parametrize("name", ["grid", "block", "args", "shared_mem", "self"])
def test_parameter_with_the_name_of_an_option(name: str, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(
        f'extern "C" __global__ void k(const float* x, float* {name}) {{ {name}[threadIdx.x] = 2 * x[threadIdx.x]; }}'
    )
    assert f"d{name}[threadIdx.x]" in run("grad", tmp_path / "k.cu").stdout


@pytest.mark.parametrize("command", ["grad", "explain"])
def test_macros(command: str, tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text('extern "C" __global__ void k(float* x) { for (int j = 0; j < N; ++j) x[j] = x[j] * FACTOR; }')
    assert run(command, file).exit_code == 1
    result = run(command, file, "-DN=3", "--define", "FACTOR=2.0f")
    assert result.exit_code == 0, result.output
    if command == "grad":
        assert "j = 2; j >= 0" in result.stdout or "j < 3" in result.stdout


def test_explain(file: Path, seen: dict[str, Any]) -> None:
    assert run("explain", file).stdout == "saved nothing\n"


HEAT = Path(__file__).parents[2] / "kernels" / "heat.cu"


def test_show_lists_the_passes_in_order() -> None:
    result = run("show", HEAT)
    assert result.exit_code == 0, result.output
    names = [line.split()[0] for line in result.stdout.splitlines()]
    wanted = [*(p.__name__ for p in (*passes.PRIMAL, *passes.CANONICAL, *passes.ADJOINT)), "stack_layout", "accumulate"]
    assert [n for n in names if n in wanted] == wanted and names[0] == "normalize"
    assert "gather" not in names and {"gather", "rest"} <= {line.split()[0] for line in run("show", HEAT, "--launched").stdout.splitlines()}


def test_show_a_stage_and_what_a_pass_has_changed() -> None:
    """Which pass introduced a statement: the accumulations are there from the reverse sweep on, and atomic when the last pass is done."""
    assert "du[" not in run("show", HEAT, "--stage", "named_operands").stdout
    assert "  du[i] += " in run("show", HEAT, "--stage", "reverse").stdout
    changed = run("show", HEAT, "--stage", "accumulate", "--against", "stack_layout").stdout
    assert any(line.startswith("+") and "du[" in line and "atomic" in line for line in changed.splitlines()), changed


def test_show_names_the_pass_that_wrote_a_line() -> None:
    shown = run("show", HEAT, "--stage", "accumulate", "--blame").stdout.splitlines()
    by = {line: name for name, _, line in (line.partition("  ") for line in shown)}
    names = {line.strip(): name.strip() for line, name in by.items()}
    (added,) = (line for line in names if line.startswith("du[i] += ") and "atomic" in line)
    assert names[added] == "accumulate" and names["float32 u.2 = load u[i]"] in ("normalize", "forwarded_stores")
    assert [line.partition("  ")[2].rstrip() for line in shown if line.endswith(added)]
    assert "there is no such pass" in run("show", HEAT, "--stage", "magic", "--blame").stderr


def test_show_refuses_what_is_no_pass(tmp_path: Path) -> None:
    result = run("show", HEAT, "--stage", "magic")
    assert result.exit_code == 1 and "there is no such pass here; there are normalize, " in result.stderr
    (tmp_path / "k.cu").write_text('extern "C" __global__ void k(float* x) { x[0] *= 2.0f; }')
    assert "no launch description" in run("show", tmp_path / "k.cu", "--launched").stderr


PROGRAM = """
import sys
import numpy as np
import gpuad
SOURCE = 'extern "C" __global__ void square(double* x, int n) { int i = threadIdx.x; if (i < n) x[i] = x[i] * x[i]; }'
square = gpuad.kernel(SOURCE, "square")
u = gpuad.Duplicated(np.full(8, 0.5), np.zeros(8))
tape = gpuad.Tape()
for _ in range(3):
    with tape:
        for _ in range(int(sys.argv[1])):
            square[1, 8](u, 8)
    tape.reverse({u: 1.0})
raise SystemExit(3)
"""


def test_show_a_recorded_program(tmp_path: Path) -> None:
    """The program and the script of its reversal, once, since all three rounds are equal; the exit status is the script's."""
    script = tmp_path / "twice.py"
    script.write_text(PROGRAM)
    result = run("show", "--program", script, "2")
    assert result.exit_code == 3, result.output
    assert result.stdout.splitlines()[1:] == [
        "tape 1, recording 1 of 3",
        "program: 2 operations on 1 buffer",
        "      buffer   u  64 B  shadow u.shadow",
        "   0  launch   square[1, 8](u, 8)  # twice.py:12",
        "       writes  u",
        "       needs   u as before",
        "   1  launch   square[1, 8](u, 8)  # twice.py:12",
        "       writes  u",
        "       needs   u as before",
        "script: 2 slots, 128 B; nothing runs again",
        "forward",
        "      store    u -> s0",
        "      run      0 square",
        "      store    u -> s1",
        "      run      1 square",
        "reverse",
        "      adjoint  1 square, reads u from s1",
        "      adjoint  0 square, reads u from s0",
    ]
    blamed = run("show", "--program", "--blame", script, "1").stdout.splitlines()
    assert any(line.split() == ["tape/record/saver.py:save_overwritten", "store", "u", "->", "s0"] for line in blamed)
    assert any(line.split() == ["twice.py:12", "run", "0", "square"] for line in blamed)


def test_show_a_kernel_beside_its_adjoint(file: Path, tmp_path: Path) -> None:
    """For the launch of the file's case, or for every launch where the file has none or constants are named."""
    page = tmp_path / "page.html"
    assert run("show", file, "--html", "-o", page).exit_code == 0
    assert "grid (2, 1, 1), block (64, 1, 1)" in page.read_text() and "reduced: da" in page.read_text()
    for words in (("--const", "a"), ()):
        if not words:
            file.write_text(CODE.partition("*/\n")[2])
        printed = run("show", file, "--html", *words)
        assert printed.exit_code == 0 and printed.stdout.startswith("<!doctype html>"), printed.output
        assert "for every launch" in printed.stdout
    for wrong in (("--output", page), ("--html", "--stage", "reverse"), ("--html", "--blame")):
        assert run("show", file, *wrong).exit_code == 2


def test_launched_finds_the_case_of_an_instance() -> None:
    """Its kernel has the name without brackets."""
    result = run("show", kernel_folder() / "fir.cu", "--kernel", "fir<float, 8>", "--launched")
    assert result.exit_code == 0, result.output


def test_show_a_recorded_program_as_a_page(tmp_path: Path) -> None:
    script, page = tmp_path / "twice.py", tmp_path / "page.html"
    script.write_text(PROGRAM)
    assert run("show", "--program", "--html", "-o", page, script, "2").exit_code == 3
    text = page.read_text()
    found = re.findall(
        r'<div class="l"( id="[^"]*")?(?: data-keys="([^"]*)" tabindex="-1")?><span class="n">[^<]*</span><code[^>]*>(.*?)</code>', text
    )
    lines = [(keys, html.unescape(re.sub("<[^>]*>", "", line))) for _, keys, line in found]
    assert ("0-op1", "launch   square[1, 8](u, 8)  # twice.py:12") in lines
    assert ("0-op1", "adjoint  1 square, reads u from s1") in lines and ("0-op1", "run      1 square") in lines
    assert ("0-buffer0", "store    u -> s0") in lines
    assert '<b>saved</b> for the adjoint of operation <a href="#line-0-op1">1</a>' in text and 'id="line-0-op1"' in text


def test_show_refuses_a_script_without_a_tape(tmp_path: Path) -> None:
    script = tmp_path / "none.py"
    script.write_text("print(1)")
    assert "no tape was recorded while the script ran" in run("show", "--program", script).stderr
    script.write_text("x = (")
    assert f"{script}:1: error: " in run("show", "--program", script).stderr
    assert "are for the script of --program" in run("show", HEAT, "3").output


@pytest.mark.parametrize("command", ["grad", "explain"])
def test_bytes_of_dynamic_shared_memory(command: str, file: Path, seen: dict[str, Any]) -> None:
    assert run(command, file, "--shared-mem", "256").exit_code == 0 and seen["shared_mem"] == 256


def test_errors_have_a_place_a_line_and_a_caret(file: Path, seen: dict[str, Any]) -> None:
    seen["refuse"] = True
    result = run("grad", file)
    assert result.exit_code == 1 and result.stdout == "" and "Traceback" not in result.output
    assert result.stderr == f"{file}:17:5: error: goto is not supported\n    if (i < n) y[i] += a * x[i];\n    ^~\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["grad", "none.cu"], "none.cu: error: No such file or directory"),
        (["grad", "FILE", "--const", "z"], "there is no parameter `z`; there are x, y, a, n"),
        (["check", "FILE", "--size", "n"], "write a name and a whole number"),
        (["check", "FILE", "--size", "m=3"], "no case has a size `m`"),
        (["check", "FILE", "--kernel", "other"], "no case for the kernel `other`"),
        (["grad", "PYTHON"], "has no `__global__` function; a kernel written in Python is made by the file that defines it"),
        (["demo", "-o", "plate.cu"], "plate.cu: error: no kind of picture is written to such a name; end it in .png"),
        (["demo", "-o", "nowhere/plate.png"], "there is no folder nowhere"),
    ],
)
def test_what_is_refused(words: list[str], message: str, file: Path, seen: dict[str, Any]) -> None:
    python = file.with_name("kernel.py")
    python.write_text("from gpuad import jit\n")
    result = run(*({"FILE": file, "PYTHON": python}.get(word, word) for word in words))
    assert result.exit_code == 1 and message in result.stderr and "Traceback" not in result.output


def test_the_only_kernel_is_found_and_several_are_listed(file: Path) -> None:
    assert cli._only_kernel(file) == "saxpy"
    file.write_text(
        'template <typename T>\n__global__ void a(T* x) {}\nextern "C" __global__ __launch_bounds__(32, 2)\nvoid b(float* x) {}'
    )
    with pytest.raises(cli.GpuadError, match="has the kernels a, b; choose one with --kernel"):
        cli._only_kernel(file)
    file.write_text("int x;")
    with pytest.raises(cli.GpuadError, match="no `__global__` function"):
        cli._only_kernel(file)


@pytest.mark.parametrize("right", [True, False])
def test_check_runs_the_cases(file: Path, seen: dict[str, Any], right: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def checked(kernel: Any, args: Any, **options: Any) -> Any:
        calls.append((kernel.name, args, options))
        if not right:
            raise AssertionError("gradient of `saxpy`: WRONG")
        return testing.Report("saxpy", (testing.Check("Taylor 1", 0.0, 1e-7),))

    monkeypatch.setattr(testing, "check_gradient", checked)
    result = run("check", file, "--size", "n=1000", "--seed", 3)
    (name, (x, y, a, n), options), *_ = calls
    assert (name, x.shape, n, options["grid"], options["seed"]) == ("saxpy", (1000,), 1000, (16, 1, 1), 3)
    assert isinstance(x, Duplicated) and isinstance(y, Duplicated) and isinstance(a, Active)
    assert result.exit_code == (0 if right else 1)
    assert f"{file}:4:" in result.output and ("agrees" if right else "error: gradient of `saxpy`: WRONG") in result.output


def test_doctor_lists_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    findings = (*doctor.examine(), doctor.Finding("something", False, "", "pip install 'gpuad[cuda13]'"))
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    result = run("doctor")
    assert "pip install 'gpuad[cuda13]'" in result.stdout  # brackets are no markup
    for word in ("Python", "NumPy", "libclang", "C++ compiler", "CuPy", "GPU", "NVRTC", "cache folder"):
        assert word in result.stdout
    assert result.exit_code == 0 and "Kernels run on" in result.stdout


def test_the_verdict() -> None:
    def having(*names: str) -> tuple[bool, str]:
        return doctor.verdict([doctor.Finding(w, w in names, "") for w in ("libclang", "CuPy", "GPU", "C++ compiler")])

    assert having("CuPy")[0] is False
    assert "GPU (CuPy arrays)" in having("libclang", "CuPy", "GPU")[1]
    assert having("libclang", "C++ compiler")[1] == "Kernels run on the CPU (NumPy arrays)."
    assert "slow" in having("libclang", "CuPy")[1]


@pytest.mark.parametrize(("losses", "status"), [((1.0, 0.005), 0), ((1.0, 0.5), 1)])
def test_demo_draws_and_judges(losses: tuple[float, ...], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truth, start = np.eye(4), np.zeros((4, 4))
    monkeypatch.setattr(wave, "invert", lambda *_: Outcome(truth, start, 0.9 * truth, losses))
    monkeypatch.setattr(testing, "array_module", lambda: np)
    result = run("demo", "-o", tmp_path / "plate.png")
    assert result.exit_code == status and (tmp_path / "plate.png").read_bytes().startswith(b"\x89PNG")


def test_lbfgs_finds_the_minimum_of_a_bounded_quadratic() -> None:
    scales, target = np.linspace(1, 30, 20), np.linspace(-1, 1, 20)
    path = descent.lbfgs(lambda x: (float(scales @ (x - target) ** 2), 2 * scales * (x - target)), np.zeros(20), -2, 2, first=0.1)
    points = list(zip(range(60), path, strict=False))
    assert points[-1][1][1] < 1e-9 * points[0][1][1]


# --- the pipeline itself -------------------------------------------------------------------------------------------------------------


def test_commands_on_a_real_file(file: Path, tmp_path: Path) -> None:
    result = run("grad", file)
    assert result.exit_code == 0 and "__global__ void saxpy_reverse(" in result.stdout
    assert run("grad", file, "--const", "a", "-o", tmp_path / "out.cu").exit_code == 0
    assert "da" not in (tmp_path / "out.cu").read_text().split("saxpy_reverse(")[1].split(")")[0]
    assert run("explain", file).exit_code == 0
    checked = run("check", file, "--size", "n=70")
    assert checked.exit_code == 0 and "agrees" in checked.stdout


def test_errors_in_a_real_file(file: Path) -> None:
    file.write_text(CODE.replace("y[i] += a * x[i];", "y[i] += a * z[i];"))
    result = run("grad", file)
    assert result.exit_code == 1 and f"{file}:17:" in result.stderr and "error: " in result.stderr
    assert "^" in result.stderr and "Traceback" not in result.output


def test_a_real_out_of_bounds_access_fails_the_check(file: Path) -> None:
    file.write_text(CODE.replace("a * x[i];", "a * x[i + 1];"))
    result = run("check", file)
    assert result.exit_code == 1 and result.stderr.startswith(f"{file}:17:") and f"in the case at {file}:4:1" in result.stderr


def test_a_case_of_no_kernel_is_named(file: Path) -> None:
    file.write_text(CODE.replace('kernel = "saxpy"', 'kernel = "sapxy"'))
    result = run("check", file)
    expected = f"{file}:4:1: error: no kernel 'sapxy' in {file}; its kernels are: saxpy. Did you mean `saxpy`?\n"
    assert (result.exit_code, result.stderr) == (1, expected)


@pytest.mark.parametrize("installed", [True, False])
def test_the_version(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if not installed:
            raise metadata.PackageNotFoundError(name)
        return "0.1.0"

    monkeypatch.setattr(metadata, "version", version)
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, "gpuad 0.1.0\n" if installed else "gpuad, run from its folder: it is not installed\n")


@pytest.mark.nightly
def test_a_small_inversion_lowers_the_misfit() -> None:
    setting = wave.Setting(n=44, steps=80, shots=2, receivers=12, period=16.0, sponge=6, iterations=3)
    seen: list[float] = []
    outcome = wave.invert(setting, np, lambda _number, loss, _error: seen.append(loss))
    assert seen == sorted(seen, reverse=True) and outcome.loss < 0.5 and outcome.error < 1


def test_a_small_pattern_gives_its_seeds_back() -> None:
    outcome = gray_scott.invert(gray_scott.Setting(n=24, seeds=3, steps=20), np)
    assert outcome.succeeded


def test_demo_runs_the_program_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "array_module", lambda: np)
    result = run("demo", "--program", "gray-scott", "--iterations", "1", "-o", tmp_path / "seeds.png")
    assert result.exit_code == 1 and "not recovered" in result.stderr and (tmp_path / "seeds.png").exists()


@pytest.mark.nightly
def test_a_long_program_keeps_within_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demonstration in small: 800 steps, which would take 1.6 MB, within 250 kB."""
    small = long.Setting(n=24, steps=800, pause=20, every=4, growth=5e-3, budget="250 kB", iterations=6)
    outcome = long.invert(small, np)
    assert outcome.loss < 0.02 and outcome.error < 0.7 and outcome.bytes is not None
    assert outcome.bytes.most <= 250_000 and max(outcome.bytes.within) <= outcome.bytes.most
    assert max(outcome.bytes.without) > 1_600_000 and len(outcome.bytes.without) == 2 * 840
    monkeypatch.setattr(long, "invert", lambda *_: outcome)
    monkeypatch.setattr(testing, "array_module", lambda: np)
    result = run("demo", "--program", "long", "-o", tmp_path / "long.png")
    assert "MB, of a budget of 250 kB; to keep all takes 2 MB" in result.stdout and (tmp_path / "long.png").stat().st_size > 20_000


def test_lbfgs_stops_at_the_bounds() -> None:
    target = np.linspace(-1, 1, 20)
    path = descent.lbfgs(lambda x: (float(np.sum((x - target) ** 4)), 4 * (x - target) ** 3), np.full(20, 0.4), 0, 0.5, first=0.1)
    points = list(zip(range(60), path, strict=False))
    assert np.allclose(points[-1][1][0], np.clip(target, 0, 0.5), atol=0.02)


def test_a_reader_who_has_had_enough() -> None:
    script = "import sys; sys.stdout.reconfigure(line_buffering=True); from gpuad.tools.cli import app; app(sys.argv[1:])"
    command = [sys.executable, "-c", script, "check", str(kernel_folder() / "saxpy.cu"), "--directions", "9"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
