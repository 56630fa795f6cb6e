"""The ledger: what is said of a launch, the file, what counts as worse, and the words for it; exit status and what runners get."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpuad.errors import GpuadError
from gpuad.runtime import nvrtc
from gpuad.tools import cli
from gpuad.tools.examples import of_folders
from gpuad.tools.ledger import Change, Entry, Ledger, Needs, compare, read, take, written
from gpuad.tools.ledger.entries import Shadow
from gpuad.tools.ledger.saved import Kept

STEP = """/*gpuad
[[case]]
kernel = "step"
sizes = {n = 100}
grid = ["(n + 31) // 32"]
block = [32]
[case.arguments]
u = {shape = ["n"], init = "normal", active = true}
v = {shape = ["n"], init = "zeros", active = true}
idx = {shape = ["n"], init = "integers(0, n)"}
n = {value = "n"}
*/
extern "C" __global__ void step(const float* u, float* v, const int* idx, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) v[i] += BODY;
}
"""
STENCIL, SCATTERED = STEP.replace("BODY", "u[i - 1] + u[i + 1]"), STEP.replace("BODY", "u[i - 1] + u[idx[i]]")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one kernel, which is where commands run."""
    (tmp_path / "pyproject.toml").write_text('[tool.gpuad]\nkernels = ["kernels"]\n')
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "step.cu").write_text(STENCIL)
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def ledger(*options: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["ledger", *options])
    return result.exit_code, result.output


def kernel(project: Path, text: str) -> None:
    (project / "kernels" / "step.cu").write_text(text)


def taken(text: str, project: Path) -> Mapping[str, Entry]:
    kernel(project, text)
    return take(of_folders([project / "kernels"], project), []).entries


def test_a_clean_tree_passes(project: Path) -> None:
    assert ledger("--update")[0] == 0
    status, said = ledger("--check")
    assert status == 0 and "1 launches as the ledger says" in said


def test_a_gather_that_turned_atomic_is_told_as_a_reviewer_wants_it(project: Path) -> None:
    ledger("--update")
    kernel(project, SCATTERED)
    status, said = ledger("--check")
    assert status == 1
    assert "kernels/step.cu:14:48: error: `step`: du gather -> atomic: line 14 now reads u[idx[i]]" in said
    assert "                                               ^~~~~~~~~" in said
    assert "gpuad ledger --update" in said


def test_what_is_better_is_taken_with_a_hint(project: Path) -> None:
    kernel(project, SCATTERED)
    ledger("--update")
    kernel(project, STENCIL)
    status, said = ledger("--check")
    assert status == 0
    assert "kernels/step.cu: better: `step`: du atomic -> gather: line 14 now reads u[i + 1]" in said
    assert "`gpuad ledger --update` takes what is better" in said


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("u[i]; u2[i] = 0", "accepted -> refused: use of undeclared identifier 'u2'"),
        ("clock()", "accepted -> refused: "),
        ("u[i]; v[n] = 0", "accepted -> refused: this launch writes `v` from element 100 to 100, but its memory ends at 99"),
        ("v[i] * v[i]", "v is saved now, 3.12 B a thread as a copy: needed by `v[i]`, overwritten by `v[i] +=`"),
    ],
)
def test_what_became_worse(project: Path, body: str, message: str) -> None:
    ledger("--update")
    kernel(project, STEP.replace("BODY", body))
    status, said = ledger("--check")
    assert status == 1 and message in said
    assert "kernels/step.cu:14:" in said


def test_lines_that_move_and_comments_change_nothing(project: Path) -> None:
    assert ledger("--update")[0] == 0
    before = (project / "gpuad-ledger.toml").read_text()
    kernel(project, "// a new first line\n\n" + STENCIL.replace("    if", "    // says why\n    if"))
    assert ledger("--update")[0] == 0
    assert (project / "gpuad-ledger.toml").read_text() == before


def test_a_new_launch_has_to_be_written_in_and_a_lost_one_is_mentioned(project: Path) -> None:
    ledger("--update")
    (project / "kernels" / "other.cu").write_text(STENCIL.replace("step", "other"))
    status, said = ledger("--check")
    assert status == 1 and "kernels/other.cu:13:28: error: `other`: is not in the ledger yet" in said
    ledger("--update")
    (project / "kernels" / "other.cu").unlink()
    status, said = ledger("--check")
    assert status == 0 and "changed: `other`: is no longer there" in said


@pytest.mark.nightly
def test_the_file_is_the_same_whatever_the_order_of_hashes(project: Path) -> None:
    texts = set()
    for seed in ("1", "2"):
        command = [sys.executable, "-m", "gpuad", "ledger", "--update"]
        root = str(Path(__file__).parents[2])
        subprocess.run(command, check=True, cwd=project, env={"PYTHONPATH": root, "PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"})
        texts.add((project / "gpuad-ledger.toml").read_bytes())
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: None, "there is no ledger yet"),
        (lambda p: (p / "gpuad-ledger.toml").write_text("<<<<<<< ours\n"), "Resolve a merge with `gpuad ledger --update`"),
        (lambda p: (p / "gpuad-ledger.toml").write_text("format = 7\n"), "of another format"),
        (lambda p: (p / "gpuad-ledger.toml").write_text('format = 1\n["a::b"]\nx = 1\n'), "is damaged ('accepted')"),
        (lambda p: (p / "pyproject.toml").write_text("[tool.gpuad]\nkernel = []\n"), "has no `kernel`; it has kernels, "),
        (lambda p: (p / "pyproject.toml").write_text("[tool.gpuad]\n"), 'write `kernels = ["..."]` under [tool.gpuad]'),
        (lambda p: (p / "pyproject.toml").write_text('[tool.gpuad]\nkernels = ["no"]\n'), "no: error: there is no such file"),
        (lambda p: (p / "kernels" / "step.cu").write_text("__global__ void f() {}"), "no `.cu` file with a `[[case]]` comment"),
        (lambda p: (p / "kernels" / "step.cu").write_text(STENCIL.replace("block = [32]", "")), "step.cu:2:1: error: 'block' is missing"),
    ],
    ids=range(9),
)
def test_nothing_to_compare_is_an_error_of_its_own(project: Path, change: object, message: str) -> None:
    change(project)  # type: ignore[operator]
    status, said = ledger("--check")
    assert status == 2 and message in said


def test_an_update_writes_over_a_merge_conflict(project: Path) -> None:
    (project / "gpuad-ledger.toml").write_text("<<<<<<< ours\n")
    assert ledger("--update")[0] == 0 and ledger("--check")[0] == 0


@pytest.mark.parametrize("options", [(), ("--update", "--check")])
def test_one_of_the_two(project: Path, options: tuple[str, ...]) -> None:
    assert ledger(*options)[0] == 2


def test_runners_get_theirs(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger("--update")
    kernel(project, SCATTERED)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project / "page.md"))
    status, said = ledger("--check", "--sarif", "out/a.sarif", "--code-quality", "out/q.json")
    assert status == 1
    assert "::error file=kernels/step.cu,line=14,col=48,title=gpuad ledger::`step`: du gather -> atomic: line 14 now reads" in said
    assert "| `kernels/step.cu:14` | `step`: du gather -&gt;" not in (project / "page.md").read_text()
    assert "| `kernels/step.cu:14` | `step`: du gather -> atomic" in (project / "page.md").read_text()
    assert "| launch | saved, B a thread | deepest stack | registers |" in (project / "page.md").read_text()
    (result,) = json.loads((project / "out" / "a.sarif").read_text())["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 14
    (entry,) = json.loads((project / "out" / "q.json").read_text())
    assert entry["location"] == {"path": "kernels/step.cu", "lines": {"begin": 14}}


# --- the file --------------------------------------------------------------------------------------------------------------------------

ODD = Entry(
    kernels=("f_gather", "f_reverse"),
    shadows={"dx": Shadow("plain", 'why "so"\\', ("x[i]", "x[i] =")), "däta #1": Shadow("atomic", "", ())},
    kept={"x": Kept("copy", 3.12, "`x[\t0]`")},
    depth=3,
    needs={"sm_90": {"f_reverse": Needs(32, 4, 256)}, "sm_100a": {}},
    text="00ff",
)


def test_a_ledger_is_read_as_it_was_written(tmp_path: Path) -> None:
    whole = Ledger({"a b.cu::f<float, 3>": ODD, "c.cu::g": Entry(refused="no\nsuch thing"), "d": replace(ODD, depth=None)}, "13.0")
    file = tmp_path / "ledger.toml"
    file.write_text(written(whole))
    again = read(file)
    assert written(again) == written(whole)
    assert again.nvrtc == "13.0" and again.entries["c.cu::g"].refused == "no\nsuch thing"
    assert again.entries["a b.cu::f<float, 3>"] == replace(ODD, needs={"sm_90": ODD.needs["sm_90"]})
    assert again.entries["d"].depth is None


def test_lines_are_sorted() -> None:
    lines = written(Ledger({"b": ODD, "a": ODD}, "13.0")).splitlines()
    heads = [line for line in lines if line.startswith("[")]
    assert heads == ['["a"]', '["b"]']
    facts = lines[lines.index('["a"]') + 1 : lines.index('["b"]') - 1]
    assert facts == sorted(facts) and all(" = " in fact for fact in facts)


# --- what is worse ---------------------------------------------------------------------------------------------------------------------


def changes(old: Entry, new: Entry, same_compiler: bool = True) -> list[tuple[str, str]]:
    return [(c.direction, c.what) for c in compare({"a::f": old}, {"a::f": new}, same_compiler)]


def needing(**numbers: int) -> Entry:
    return replace(ODD, needs={"sm_90": {"f_reverse": Needs(**{"registers": 32, "spilled": 4, "shared": 256, **numbers})}})


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"registers": 33}, ("worse", "f_reverse on sm_90: registers 32 -> 33")),
        ({"registers": 31}, ("same", "f_reverse on sm_90: registers 32 -> 31")),  # of the same eight
        ({"registers": 24}, ("better", "f_reverse on sm_90: registers 32 -> 24")),
        ({"spilled": 8}, ("worse", "f_reverse on sm_90: spilled bytes 4 -> 8")),
        ({"shared": 128}, ("better", "f_reverse on sm_90: bytes of shared memory 256 -> 128")),
    ],
)
def test_what_kernels_need(numbers: dict[str, int], expected: tuple[str, str]) -> None:
    assert changes(needing(), needing(**numbers)) == [expected]
    assert changes(needing(), needing(**numbers), same_compiler=False) == []


def test_saved_bytes_are_judged_by_their_sum() -> None:
    one, two = Kept("copy", 4, "why"), Kept("scratch", 8, "an entry an iteration")
    assert changes(replace(ODD, kept={"x": one}), replace(ODD, kept={"x": two})) == [
        ("worse", "x saves 4 -> 8 B a thread, for an entry an iteration")
    ]
    assert changes(replace(ODD, kept={"x": one}), replace(ODD, kept={})) == [("better", "x is no longer saved (4 B a thread)")]
    swapped = changes(replace(ODD, kept={"x": two}), replace(ODD, kept={"y": one}))
    assert swapped == [
        ("better", "x is no longer saved (8 B a thread)"),
        ("same", "y is saved now, 4 B a thread as a copy: why"),
    ]


@pytest.mark.parametrize(
    ("was", "now", "direction"), [("plain", "gather", "same"), ("gather", "reduced", "worse"), ("atomic", "reduced", "better")]
)
def test_ways(was: str, now: str, direction: str) -> None:
    old, new = (replace(ODD, shadows={"dx": Shadow(way, "because", ())}) for way in (was, now))
    assert changes(old, new) == [(direction, f"dx {was} -> {now}: because")]


def test_other_facts() -> None:
    assert changes(ODD, replace(ODD, depth=5)) == [("worse", "stack depth 3 -> 5")]
    assert changes(ODD, replace(ODD, depth=None)) == []
    more = ("worse", "kernels of the reverse pass f_gather, f_reverse -> a, b, c")
    assert changes(ODD, replace(ODD, kernels=("a", "b", "c"))) == [more]
    assert changes(ODD, replace(ODD, text="11")) == [("same", "the generated text is another one")]
    assert changes(Entry(refused="x"), ODD) == [("better", "refused -> accepted (it was: x)")]
    assert changes(Entry(refused="x"), Entry(refused="y")) == [("same", "refused for another reason: y")]
    assert str(Change("a.cu::f", "worse", "so")) == "`f`: so"


# --- what is said of a launch ----------------------------------------------------------------------------------------------------------


def test_what_a_launch_saves(project: Path) -> None:
    loop = STEP.replace("BODY", "0.0f; if (i < n) { float s = u[i]; for (int k = 0; k < idx[i] % 7; k++) s = s * s; v[i] = s; }")
    (entry,) = taken(loop, project).values()
    assert entry.kernels == ("step_count", "step_reverse")
    assert entry.depth == 6  # the greatest remainder
    (kept,) = entry.kept.values()
    assert kept.how == "scratch" and kept.bytes > 4
    (short,) = taken(STEP.replace("BODY", "0; { float s = u[i]; for (int k = 0; k < 3; k++) s = s * s; v[i] = s; }"), project).values()
    assert [(k.how, k.bytes) for k in short.kept.values()] in ([], [("local", 12.0)])


def test_python_files_have_entries_and_rules_have_none(project: Path) -> None:
    (project / "kernels" / "more.py").write_text(
        "import gpuad\nfrom gpuad import jit\n\n"
        "@jit.rawkernel()\ndef twice(x, y):\n    i = jit.grid(1)\n    if i < x.shape[0]:\n        y[i] = 2 * x[i]\n\n"
        "def example(rng):\n    return twice[(1,), (8,)], [rng.normal(size=8), rng.normal(size=8)]\n\n"
        "def back(dx, dy):\n    dx += dy\n\n"
        "@gpuad.rule(reads=('x',), overwrites=('y',), reverse=back)\ndef copy(x, y):\n    y[...] = x\n\n"
        "def example_rule(rng):\n    return copy, [rng.normal(size=8), rng.normal(size=8)]\n"
    )
    entries = taken(STENCIL, project)
    assert list(entries) == ["kernels/more.py::example", "kernels/step.cu::step"]
    assert {n: s.way for n, s in entries["kernels/more.py::example"].shadows.items()} == {"dx": "plain", "dy": "plain"}


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC")
def test_spilling_is_read_off_the_log() -> None:
    text = 'extern "C" __global__ void f(float* x) { x[0] = 1; }\nextern "C" __global__ void g(float* x) { x[1] = 1; }'
    log = nvrtc.compile_cuda(text, "sm_90", ["--ptxas-options=-v"]).log
    assert nvrtc.spilled(log) == {"f": 0, "g": 0}
    assert nvrtc.spilled(log.replace("0 bytes spill stores", "24 bytes spill stores", 1)) in ({"f": 24, "g": 0}, {"f": 0, "g": 24})
    assert nvrtc.version()


def test_a_damaged_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(GpuadError, match="there is no ledger yet: write it with `gpuad ledger --update`"):
        read(tmp_path / "none.toml")
