"""Adjoints of kernels with `grid.sync()` as text: launched in the order that the contract says, against `autodiff`; on the command line; as
described launches. And kernels whose parameters have the names of options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nightly import share
from test_grid_sync import BODIES, N, state, text
from typer.testing import CliRunner

import gpuad
from gpuad import Active, Const, Duplicated, api, pipeline
from gpuad.errors import LaunchError
from gpuad.lower.grid_variants import variants
from gpuad.runtime.reference import Reference
from gpuad.tools import cli
from gpuad.tools.checks import How, run
from gpuad.tools.examples import of_file
from gpuad.tools.ledger import check, take, written

NAMES = ["c", "a", "b", "n", "steps", "r"]


def launched(source: str, forward: list[str], arrays: dict[str, Any]) -> None:
    """Launches the kernels of a text, read as a user's, on a grid of 3 blocks: forward, and their adjoints from last to first, with copies
    of what there was after each launch."""
    kernels: dict[str, Any] = {}

    def copied() -> dict[str, Any]:
        return {k: v.copy() for k, v in arrays.items() if isinstance(v, np.ndarray) and not k.startswith("d")}

    def launch(name: str, memory: dict[str, Any]) -> None:
        kernel = kernels.setdefault(name, gpuad.kernel(source, name))
        for d in kernel.parameters:
            if d.name not in memory:  # what threads keep, and its shadow
                arrays[d.name] = memory[d.name] = np.zeros(N)
        kernel(3, 8, tuple(memory[d.name] for d in kernel.parameters))

    states = [copied()]
    for name in forward:
        launch(name, arrays)
        states.append(copied())
    for name, before, after in list(zip(forward, states, states[1:], strict=False))[::-1]:
        launch(f"{name}_reverse", {**arrays, **after, **{f"{k}_saved": v.copy() for k, v in before.items()}})


FORWARD = {
    "a number of a thread": ["k_part0", "k_part1"],
    "a carried value that is used before and after": ["k_part0", *["k_part1", "k_part2"] * 3, "k_part3"],
    "pointers that change places": ["k_part1_0_1", "k_part1_1_0", "k_part1_0_1", "k_part2_1"],
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", FORWARD)
def test_the_text_is_the_adjoint(name: str) -> None:
    kernel = gpuad.kernel(text(BODIES[name]), "k")
    made = kernel.adjoint(a=Duplicated, b=Duplicated, c=Duplicated, r=Active)
    assert set(FORWARD[name]) <= set(made.parts)
    order = re.findall(r"k_part\w+", made.source.splitlines()[1])
    assert list(dict.fromkeys(FORWARD[name])) == [n for n in dict.fromkeys(order) if n in FORWARD[name]]
    values, seeds = dict(zip(NAMES, state(), strict=True)), dict(zip("cab", np.random.default_rng(2).normal(size=(3, N)), strict=True))
    shadows, dr = {n: s.copy() for n, s in seeds.items()}, np.zeros(())
    pairs = [Duplicated(values[n].copy(), shadows[n]) for n in "cab"]
    gpuad.autodiff(kernel, 3, 8, (*pairs, values["n"], values["steps"], Active(values["r"], dr)))
    own = {n: v.copy() if n in "cab" else v for n, v in values.items()} | {f"d{n}": s.copy() for n, s in seeds.items()}
    own["dr"] = np.zeros(1)
    launched(made.source, FORWARD[name], own)
    for found, expected in [*((own[f"d{n}"], shadows[n]) for n in "cab"), (own["dr"][0], dr)]:
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    for n, pair in zip("cab", pairs, strict=True):
        np.testing.assert_array_equal(own[n], pair.primal)


def test_of_a_launch() -> None:
    """What holds for its numbers: an element that no other thread adds to; where data decide, that which holds for every call."""
    kernel = gpuad.kernel(text(BODIES["two sides"]), "k")
    made = kernel.adjoint(a=Duplicated, b=Duplicated, grid=3, block=8, args=state())
    hows = {(e.kernel, r.name): r.how for e in made.explain().parts for r in e.rows if r.topic == "shadow"}
    assert hows["k_part0", "da"] == hows["k_part1", "da"] == "plain" and "a = 0" not in made.source
    undecided = kernel.adjoint(a=Duplicated, b=Duplicated)
    assert {r.how for r in undecided.explain().rows if r.name == "da"} == {"atomic"}
    for name in ("until a sum is small", "data"):
        decided = gpuad.kernel(text(BODIES[name]), "k")
        with_call = decided.adjoint(a=Duplicated, b=Duplicated, grid=3, block=8, args=state())
        assert with_call.source == decided.adjoint(a=Duplicated, b=Duplicated).source


def test_what_is_kept_between_launches_is_said() -> None:
    kernel = gpuad.kernel(text("for (int s = 0; s < steps; s++) { a[i] = a[i] * a[i]; grid.sync(); a[i] += b[i]; grid.sync(); }"), "k")
    rows = {(e.kernel, r.name): (r.topic, r.how) for e in kernel.adjoint(a=Duplicated, b=Duplicated).explain().parts for r in e.rows}
    assert {part for (part, name), row in rows.items() if name == "a" and row == ("saved", "copy")} == {"k_part1"}
    assert rows["k_part2", "a"][0] == "not saved"
    kernel = gpuad.kernel(text("b[i] = a[i] * a[i]; grid.sync(); a[i] = b[n - 1 - i];"), "k")
    explained = str(kernel.adjoint(a=Duplicated, b=Duplicated).explain())
    assert "saved      a                    between  as k_part0 leaves it, overwritten by k_part1" in explained


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", share(list(BODIES), 3))
def test_the_variants_are_those_that_calls_come_to(name: str) -> None:
    kernel = api.kernel(text(BODIES[name]), "k")
    if "* weights" in kernel.source:
        kernel.get_global("weights")[:] = [1.5, 2, 0.5, 3]
    whole, found = kernel._parts(kernel.unsplit), set()
    known = set(variants(whole.plan))
    for grid, seed in ((3, 0), (1, 1)):
        args = state(seed)
        for plan in kernel.launches(grid, 8, args):
            part = plan.kernel.function.part
            found.add((part.number, part.fixed))
            plan.kernel(plan.grid, plan.block, plan.args)
    assert found <= known and {number for number, _ in known} <= set(range(len(whole.plan.parts)))


# --- on the command line, and in descriptions of launches ---------------------------------------------------------------------------------

CASE = """/*gpuad
[[case]]
kernel = "k"
sizes = {n = 24, steps = 3}
grid = [3]
block = [8]
[case.arguments]
c = {shape = ["n"], init = "uniform(0.5, 1.2)"}
a = {shape = ["n"], init = "uniform(0.5, 1.2)", active = true}
b = {shape = ["n"], init = "uniform(0.5, 1.2)", active = true}
n = {value = "n"}
steps = {value = "steps"}
r = {value = 0.7, active = true}
*/
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "k.cu"
    path.write_text(CASE + text(BODIES["pointers that change places"]))
    return path


def command(*words: object) -> str:
    result = CliRunner().invoke(cli.app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_commands(file: Path) -> None:
    assert "// gpuad: adjoint of `k_part1_1_0`" in command("grad", file)
    assert "as k_part1_0_1 leaves it, overwritten by k_part1_1_0" in command("explain", file, "--const", "c")
    passes = command("show", file, "--launched")
    assert re.search(r"^normalize +\d+ statements$", passes, re.M) and re.search(r"^k_part2_1:accumulate +\d+ statements$", passes, re.M)
    assert len(re.findall(r"^\+  .*take d[ab]", command("show", file, "--stage", "reverse", "--against", "logs"), re.M)) >= 2
    assert "take da" in command("show", file, "--stage", "k_part1_1_0:reverse")
    assert "gradient of `k`: agrees" in command("check", file, "--directions", "1")


@pytest.mark.parametrize("what", ["gradient", "forward", "races", "bounds", "determinism", "memory"])
def test_described(what: str, file: Path) -> None:
    (example,) = of_file(file, file.parent)
    run(what, example, How(directions=1))


def test_ledger(file: Path, tmp_path: Path) -> None:
    ledger = take(of_file(file, tmp_path), ())
    (entry,) = ledger.entries.values()
    assert {"k_part1_0_1.da", "k_part2_1.db"} <= entry.shadows.keys() and "k_part1_1_0_reverse" in entry.kernels
    own = tmp_path / "ledger.toml"
    own.write_text(written(ledger))
    assert not check(own, of_file(file, tmp_path), ()).changes
    file.write_text(file.read_text().replace("u[i] *= c[i]", "u[i / 2] += c[i] * u[i]"))
    changes = [str(change) for change in check(own, of_file(file, tmp_path), ()).worse]
    assert changes


# --- names --------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["grid", "block", "args", "shared_mem", "self", "stream"])
def test_parameters_with_the_names_of_options(name: str) -> None:
    """By name where that is not ambiguous, else in a mapping beside the options; in split pairs as well."""
    body = f"const float* x, float* {name}, int n) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) {name}[i] = 2 * x[i];"
    kernel = gpuad.kernel(f'extern "C" __global__ void k({body} }}', "k")
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    for made in (kernel.adjoint(**{name: Duplicated}, x=Duplicated), kernel.adjoint({name: Duplicated, "x": Duplicated})):
        assert f"d{name}" in made.source and "dx" in made.source
    of_launch = kernel.adjoint({name: Duplicated}, x=Duplicated, grid=1, block=8, args=(x, y, np.int32(8)))
    assert "grid (1, 1, 1), block (8, 1, 1)" in of_launch.source and f"d{name}" in of_launch.source
    augmented, reverse = gpuad.autodiff_thunk(kernel, {name: Duplicated, "x": Duplicated})
    dx, dy = np.zeros(8, np.float32), np.ones(8, np.float32)
    reverse(1, 8, (Duplicated(x, dx), Duplicated(y, dy), np.int32(8)), augmented(1, 8, (x, y, np.int32(8))))
    np.testing.assert_array_equal(dx, 2)
    with pytest.raises(LaunchError, match="has no parameter `grit`"):
        kernel.adjoint({"grit": Const})


def test_lists_with_barriers_of_the_grid_have_a_text() -> None:
    code = """#include <cooperative_groups.h>
    extern "C" __global__ void blend(const float** rows, float* grid, int n) {
      auto all = cooperative_groups::this_grid(); int i = all.thread_rank();
      grid[i] *= rows[0][i]; all.sync(); float v = grid[n - 1 - i] * rows[1][i]; all.sync(); grid[i] = v; }"""
    kernel, arrays = gpuad.kernel(code, "blend"), [np.ones(8, np.float32) for _ in range(3)]
    args = (arrays[:2], arrays[2], np.int32(8))
    made = kernel.adjoint({"rows": Duplicated, "grid": Duplicated}, args=args, grid=1, block=8)
    assert made.parts == ("blend_part0", "blend_part1", "blend_part2") and "drows" in made.source
    with pipeline.executor_for_tests(Reference()):
        kernel[1, 8](*args)
