"""The benchmarks run: at tiny sizes, on the CPU, and the GPU's command with a stand-in for the device."""

from __future__ import annotations

import contextlib
import io
import json
import mmap
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from launch_tools import CASES
from nightly import share
from typer import Typer
from typer.testing import CliRunner

import gpuad
from benchmarks import __main__ as on_cpu
from benchmarks import (
    allocations,
    cpu,
    crew,
    device,
    figures,
    gpu,
    gpu_steps,
    growth,
    host_speed,
    imports,
    measure,
    picture,
    product,
    records,
    resident,
    sizes,
    table,
    worker,
)  # fmt: skip
from benchmarks.problem import Floor, Missing, Problem, Rates, relative
from benchmarks.problems import PROBLEMS
from benchmarks.runners.by_hand import ByHand
from benchmarks.workload import touched_bytes, workload
from gpuad import api
from gpuad.runtime.base import Memory

EFFORT = measure.Effort(1, 2, 0.1)
TINY = sizes.Budget(bytes=1 << 16, flops=100_000, threads=1 << 10)


def invoke(command: Any, *words: str) -> Any:
    app = Typer()
    app.command()(command)
    return CliRunner().invoke(app, words)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, cupy: Any) -> Any:
    """The stand-in for CuPy, and workers that run in this process."""

    def in_process(*words: str, **_: Any) -> cpu.Record:
        return device.about(cupy, copied=1 << 16)

    class InProcess(gpu.Cases):
        def __call__(self, name: str, limit: int) -> cpu.Record:
            return device.case_record(cupy, CASES[name], TINY, EFFORT)

    monkeypatch.setattr(gpu, "worker", in_process)
    monkeypatch.setattr(gpu, "CASES", InProcess)
    monkeypatch.setattr(gpu, "HIRE", Local)
    monkeypatch.setattr(device, "copy_rate", lambda *_: 1e9)
    monkeypatch.setattr(device, "EFFORT", EFFORT)
    return cupy


# --- sizes, times, records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [c.id for c in cpu.chosen()])
def test_sizes_fit_the_budget_or_are_the_smallest(name: str) -> None:
    case = CASES[name]
    assert case.benchmark is not None
    found = sizes.fitting(case, TINY)
    least = case.resolve()
    assert all(least[n] <= size for n, size in found.items() if case.benchmark.sizes[n] >= least[n])
    assert sizes.argument_bytes(case, found) <= 1 << 16 or all(size // 2 < least[n] for n, size in found.items())
    assert sizes.fitting(case, sizes.WHOLE) == case.benchmark.sizes


def test_a_benchmark_has_a_case_each() -> None:
    assert len(cpu.chosen()) == len(CASES), "every case of kernels/ is a benchmark"


def test_the_lower_of_several_medians() -> None:
    samples = iter([9.0, 5.0, 1.0, 4.0, 2.0, 2.0, 7.0])
    assert measure.lower_medians(lambda: {"a": next(samples)}, measure.Effort(2, 3, 60)) == {"a": 2.0}


def test_a_record_has_no_places(tmp_path: Path) -> None:
    path = records.write(
        "cpu", "Some Machine (2)", "2000-01-01", {"a": records.failure(OSError("no /home/me/x.cpp in C:\\me\\y.cu"))}, tmp_path
    )
    assert path.name == "cpu-some-machine-2-2000-01-01.json"
    assert json.loads(path.read_text())["a"] == {"failed": "OSError: no x.cpp in y.cu"}


def test_restoring_puts_everything_back() -> None:
    work = workload(CASES["softmax"], np)
    before = [array.copy() for array, _ in work.kept]
    state = work.save()
    work.forward(state)
    work.reverse(state)
    assert not all(np.array_equal(a, b) for (a, _), b in zip(work.kept, before, strict=True))
    work.restore()
    assert all(np.array_equal(a, b) for (a, _), b in zip(work.kept, before, strict=True))


def test_shared_memory_of_a_workload_is_that_of_the_launch() -> None:
    """A kernel whose shared array is as long as the launch says is measured with that length."""
    own, user = (workload(CASES["block_scan-scan"], np) for _ in range(2))
    state = own.save()
    own.forward(state)
    own.reverse(state)
    grid, block, shared_mem = own.case.geometry()
    gpuad.autodiff(user.kernel, grid, block, user.args, shared_mem=shared_mem)
    for (a, _), (b, _) in zip(own.kept, user.kept, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_traffic_of_a_saxpy() -> None:
    work = workload(CASES["saxpy"], np, {"n": 1000})
    state = work.save()
    work.forward(state)
    work.reverse(state)
    assert work.traffic == 12 * 1000
    assert work.reverse_traffic(state) == 16 * 1000 + 16  # dy, x, dx twice; the factor's shadow twice
    assert work.saved_bytes(state) == 0 and work.atomic == []


def test_arrays_are_counted_at_the_allocator() -> None:
    with allocations.counted() as made:
        x = np.zeros(100)
        y = (x + 1).sum() + x.reshape(10, 10).T[3, 4]
        with allocations.counted() as inner:
            kept = x * 2
    assert made is inner and made.of_at_least(800) == 1 and kept.size and y == 100
    np.ones(100)
    assert made.of_at_least(800) == 1


@pytest.mark.parametrize("restore", [False, True])
@pytest.mark.parametrize("name", list(product.RECORDED))
def test_a_product_on_a_tape_allocates_nothing_later(name: str, restore: bool) -> None:
    assert product.allocations(name, restore, 0) >= 1 and product.allocations(name, restore, 2) == 0


def test_products_on_a_tape_are_right() -> None:
    for name, operation in product.PRIMALS.items():
        pairs, tape = product.operands(), gpuad.Tape(restore=True)
        a, b, c = (p.primal.copy() for p in pairs)
        product.run(name, tape, pairs)
        np.testing.assert_allclose(pairs[2].primal, c)  # restored
        seed = np.ones_like(c) * (1.0 if name == "matmul" else 2.0)
        np.testing.assert_allclose(pairs[0].shadow, seed @ b.T)
        np.testing.assert_allclose(pairs[1].shadow, a.T @ seed)
        np.testing.assert_allclose(pairs[2].shadow, 0.0 if name == "matmul" else 0.5)
        with gpuad.Tape():
            product.RECORDED[name](*pairs)
        operation(a, b, c)
        np.testing.assert_allclose(pairs[2].primal, c)


def test_the_product_is_measured() -> None:
    found = product.measured(EFFORT)
    assert set(found) == {"matmul", "matmul, restored", "gemm", "gemm, restored"}
    assert all(row["allocations"] == 0 and row["reverse_us"] > 0 for row in found.values())
    assert [row["saved_bytes"] for row in found.values()] == [0, 1024, 0, 1024]


# --- problems and who computes them --------------------------------------------------------------------------------------------------


SMALL: dict[str, Any] = {
    "saxpy": {"n": 37},
    "heat": {"side": 8, "steps": 3},
    "fisher_kpp": {"side": 7, "steps": 3},
    "lattice_boltzmann": {"side": 5, "steps": 2},
    "nbody": {"n": 6},
    "gemm": {"n": 5},
    "histogram": {"n": 40},
    "gather": {"rows": 5, "n": 9},
    "softmax": {"rows": 3},
    "projection": {"n": 9, "angles": 3},
}
EVERY = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)


def given(problem: Problem, size: Any) -> Any:
    return problem.inputs(size, np.random.default_rng(1))


@EVERY
def test_witnesses_are_the_gradients_of_the_primal(problem: Problem) -> None:
    """Against differences of the kernel itself: <J v, w> for random v."""
    size = SMALL[problem.name]
    inputs = given(problem, size)
    wanted, rng = problem.wanted(size, inputs), np.random.default_rng(2)
    h = 0.05 if problem.name in ("saxpy", "heat", "gemm", "histogram", "gather", "projection") else 0.01
    for name in problem.active:
        v = rng.uniform(-1, 1, inputs[name].shape)
        up, down = (output(problem, size, {**inputs, name: (inputs[name] + sign * h * v).astype(np.float32)}) for sign in (1, -1))
        found = float((inputs["seed"] * (up - down)).sum() / (2 * h))
        scale = float(np.abs(wanted[name] * v).sum())
        assert found == pytest.approx(float((wanted[name] * v).sum()), abs=1e-3 * scale), name


def output(problem: Problem, size: Any, inputs: Any) -> Any:
    runner: Any = problem.gpuad(size, inputs, np)
    runner.prepare()
    last = runner.primal()
    return (last if last is not None else runner.arrays[runner.output]).astype(np.float64)


@pytest.mark.one_of(4)
@EVERY
def test_gpuad_is_right_again_and_again_and_says_what_it_moves(problem: Problem) -> None:
    inputs = given(problem, problem.quick)
    runner, wanted = problem.gpuad(problem.quick, inputs, np), problem.wanted(problem.quick, inputs)
    for _ in range(2):
        runner.prepare()
        runner.gradient()
        assert problem.error(runner.found(), wanted) < problem.tolerance
    about, floor = runner.about(), problem.floor(problem.quick)
    assert about["moved_bytes"] >= floor.primal_bytes and about["held_bytes"] > 0
    assert not about["atomic"] or problem.name not in ("heat", "fisher_kpp", "saxpy")
    if "steps" in problem.quick:
        assert about["allocations"] == 0 and bool(about["saved_bytes"]) == (problem.name != "heat")


@pytest.mark.one_of(4)
@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p.cpp], ids=lambda p: p.name)
def test_what_is_written_by_hand_is_right_again_and_again(problem: Problem) -> None:
    inputs = given(problem, problem.quick)
    wanted = problem.wanted(problem.quick, inputs)
    runner = ByHand(problem, problem.quick, inputs, "cpu")
    for _ in range(2):
        runner.prepare()
        runner.gradient()
        assert problem.error(runner.found(), wanted) < problem.tolerance
    runner.prepare()
    runner.primal()


@pytest.mark.parametrize("framework", ["jax", "torch", "warp"])
def test_everybody_who_is_there_is_right(framework: str) -> None:
    pytest.importorskip(framework)
    for problem in share(PROBLEMS, 6):
        member = Local(problem.name, framework, "cpu")
        inputs = given(problem, problem.quick)
        with crew.written(given=inputs, wanted=problem.wanted(problem.quick, inputs)) as folder:
            member.ask(do="build", folder=folder, size=dict(problem.quick))
            assert member.answer()["error"] < problem.tolerance


def test_an_error_is_relative_to_the_largest_and_knows_nonsense() -> None:
    one = np.array([1.0, -4.0])
    assert relative(one + np.array([0.0, 0.04]), one) == pytest.approx(0.01)
    assert relative(np.array([np.nan, 1.0]), one) == relative(np.ones(3), one) == float("inf")


def test_a_projection_is_strict_inside_and_lenient_on_the_edge() -> None:
    (problem,) = (p for p in PROBLEMS if p.name == "projection")
    wanted = {"image": np.ones((9, 9))}
    edge, inside = ({"image": np.ones((9, 9))} for _ in range(2))
    edge["image"][0, 3] += 0.05
    inside["image"][4, 4] += 0.05
    assert problem.error(edge, wanted) < problem.tolerance < problem.error(inside, wanted)


# --- the table -----------------------------------------------------------------------------------------------------------------------


class Local:
    """A worker in this process."""

    def __init__(self, problem: str, runner: str, place: str) -> None:
        self.worker = worker.Worker(problem, runner, place)
        self.answers: list[Any] = []

    def ask(self, **request: Any) -> None:
        self.answers.append(json.loads(json.dumps(self.worker.answer(request))))

    def answer(self) -> Any:
        return self.answers.pop(0)

    def close(self) -> None:
        pass


def problem_named(name: str) -> Problem:
    return next(p for p in PROBLEMS if p.name == name)


def test_a_row_for_everybody_measured_missing_or_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(ByHand):
        def found(self) -> Any:
            return {name: array * np.float32(1.001) for name, array in super().found().items()}

    monkeypatch.setitem(worker.RUNNERS, "by hand", Wrong)
    monkeypatch.setattr(table, "absent", lambda name: "torch is not installed" if name == "torch" else "")
    monkeypatch.setitem(worker.RUNNERS, "jax", lambda *_: (_ for _ in ()).throw(Missing("jax has no gpu")))
    monkeypatch.setattr(worker, "PACKAGES", {"warp": "no_such_package"})
    found = table.measured(problem_named("fisher_kpp"), [{"side": 10, "steps": 3}], "cpu", table.QUICK, Local)["side 10, steps 3"]
    rows = found["rows"]
    assert list(rows) == list(worker.RUNNERS)
    assert rows["by hand"]["failed"].startswith("ValueError: the gradient is wrong")
    assert rows["torch"] == {"missing": "torch is not installed"} and rows["jax"] == {"missing": "jax has no gpu"}
    assert rows["warp"]["missing"].startswith("no_such_package is not installed")
    ours = rows["gpuad"]
    assert ours["over_gpuad"] == 1.0 and ours["moved_over_floor"] > 0.5 and ours["error"] < 1e-4 and ours["memory_bytes"] >= 0
    assert found["verdicts"][0]["what"].startswith("reverse / primal") and found["copy_gb_s"] > 0
    names = [name for name, _ in on_cpu.failed({"table": {"fisher_kpp": {"side 10, steps 3": found}}})]
    assert names == ["table fisher_kpp, side 10, steps 3, by hand"]


def test_a_worker_is_a_process_that_answers_in_lines() -> None:
    inputs = given(problem_named("saxpy"), {"n": 50})
    with (
        crew.hired("saxpy", ["gpuad"], "cpu") as members,
        crew.written(given=inputs, wanted=problem_named("saxpy").wanted({"n": 50}, inputs)) as folder,
    ):
        for request in (
            {"do": "build", "folder": folder, "size": {"n": 50}}, {"do": "time", "piece": "gradient", "seconds": 0.0}, {"do": "say"},
            {"do": "nonsense"},
        ):  # fmt: skip
            members["gpuad"].ask(**request)
        built, timed, said, nonsense = (members["gpuad"].answer() for _ in range(4))
    assert built["pieces"] == ["primal", "gradient"] and timed["seconds"] > 0 and "failed" in nonsense
    assert said["error"] < 1e-4 and 1 << 20 < said["process_bytes"] < 1 << 33


def test_a_worker_that_ends_or_hangs_is_a_failure() -> None:
    ended = crew.Process("no such problem", "gpuad", "cpu")
    ended.ask(do="say")
    assert "exit status 1" in ended.answer()["failed"] and "exit status 1" in ended.answer()["failed"]
    ended.close()
    hanging = crew.Process("saxpy", "gpuad", "cpu", patience=0.0)
    assert hanging.answer() == {"failed": "no answer in 0 s"}
    hanging.close()


def test_the_lowest_of_the_turns_counts() -> None:
    class Slow:
        def __init__(self) -> None:
            self.times = iter([3.0, 9.0, 2.0, 8.0, 4.0, 7.0])

        def ask(self, do: str, **_: Any) -> None:
            self.last = {"seconds": next(self.times)} if do == "time" else {}

        def answer(self) -> Any:
            return self.last

        def close(self) -> None:
            pass

    pace = table.Pace(3, 60.0, 0.0)
    times, copy, broken = table._turns(problem_named("saxpy"), {"n": 8}, {"jax": Slow()}, {"jax": ["primal", "gradient"]}, pace)
    assert times == {"jax": {"primal": 2.0, "gradient": 7.0}} and copy is None and not broken


# --- figures -------------------------------------------------------------------------------------------------------------------------


def ours(**more: Any) -> Any:
    return {"primal_ms": 10.0, "gradient_ms": 20.0, "over_floor": 1.0, "primal_of_copy": 0.9, "memory_bytes": 90, **more}


def judged(rows: Any, rates: Rates | None = None) -> list[str]:
    heat = problem_named("fisher_kpp")
    size = {"side": 100, "steps": 10}
    return [figures.sentence(v) for v in figures.judge(heat, size, heat.floor(size), rows, rates)]


def test_figures_of_times() -> None:
    floor = Floor(8_000_000, 12_000_000)
    found = figures.figures(floor, {"primal": 1e-3, "gradient": 4e-3}, Rates(1e10, 1e10))
    assert (found["ratio"], found["over_floor"], found["primal_gb_s"], found["primal_of_copy"]) == (3.0, 2.0, 8.0, 0.8)
    assert figures.moved({"moved_bytes": 30_000_000}, floor) == {"moved_over_floor": 1.5} and figures.moved({}, floor) == {}
    assert Floor(8, 12, 100, 300).ratio == 3.0


def test_the_floor_in_time_where_what_is_saved_is_far() -> None:
    """8 bytes of the primal at 4 a second are 2 s. Of 20 in all, 8 are at half of that rate: 12 / 4 + 8 / 2 = 7 s."""
    floor = Floor(8, 12, saved_bytes=4)
    assert floor.ratio == floor.ratio_at(Rates(4.0, 4.0)) == 1.5 and floor.ratio_at(Rates(4.0, 2.0)) == 2.5
    found = figures.figures(floor, {"primal": 1.0, "gradient": 4.0}, Rates(4.0, 2.0))
    assert (found["over_floor"], found["over_floor_at_rates"]) == (2.0, 1.2)
    assert "over_floor_at_rates" not in figures.figures(Floor(8, 12), {"primal": 1.0, "gradient": 4.0}, Rates(4.0, 2.0))


def test_verdicts_say_what_is_reached_and_why_not() -> None:
    others = {"by hand": ours(memory_bytes=100), "jax": ours(gradient_ms=25.0), "torch": {"missing": "x"}, "warp": {"failed": "y"}}
    good = judged({"gpuad": ours(), **others})
    assert good == [
        "reverse / primal over the floor's: 1.00, within 1.3", "gradient over that by hand: 1.00, within 1.5",
        "memory over that by hand: 0.90, within 1.0", "gradient over that of jax: 0.80, within 1.0",
    ]  # fmt: skip
    bad = judged({"gpuad": ours(gradient_ms=40.0, over_floor=3.0, atomic=["du"], moved_over_floor=2.0), **others})
    assert bad[0].startswith("reverse / primal over the floor's: 3.00, misses 1.3 (adds atomically to du")
    assert "moves 2.00 of the floor's bytes" in bad[1] and "the primal alone" not in bad[1]
    slow = judged({"gpuad": ours(primal_ms=30.0, gradient_ms=40.0), **others})[1]
    assert "misses 1.5 (the primal alone takes 3.00 of that by hand" in slow
    assert "jax: 1.60, misses 1.0" in bad[3]
    slow_and_far = {"gpuad": ours(over_floor=3.0, over_floor_at_rates=1.2), **others}
    alike, far = (judged(slow_and_far, Rates(50e9, rate)) for rate in (45e9, 25e9))
    assert alike[0].startswith("reverse / primal over the floor's: 3.00, misses 1.3") and len(far) == len(alike) + 1
    assert "3.00, above 1.3 (what is saved moves at 25 GB/s, what the primal reads and writes at 50" in far[0]
    assert far[1] == "reverse / primal over the floor's at these rates, 2.50: 1.20, within 1.3"
    assert "2.00, misses" in judged({"gpuad": ours(over_floor=3.0, over_floor_at_rates=2.0), **others}, Rates(50e9, 25e9))[1]
    by_hand = judged({"gpuad": ours(over_floor=3.0), "by hand": ours(over_floor=1.4)})[0]
    assert by_hand == "reverse / primal over the floor's: 3.00, misses 1.3 (by hand it is 1.40)"
    unbound = judged({"gpuad": ours(over_floor=3.0, primal_of_copy=0.2), **others})[0]
    assert "above 1.3 (the primal has 0.20 of a copy's bandwidth" in unbound
    assert judged({"gpuad": {"failed": "x"}, **others}) == []


def test_required_figures_are_judged() -> None:
    missing = {"what": "a", "value": 2.0, "most": 1.0, "reached": False, "why": []}
    entry = {"rows": {"gpuad": {"allocations": 3}}, "verdicts": [missing, {**missing, "bound": False}]}
    record = {
        "saxpy": {"a": {"ratio": 1.6, "required": 1.5}, "b": {"ratio": 1.4, "required": 1.5}},
        "product": {"d": {"allocations": 1}, "e": {"allocations": 0}},
        "table": {"f": {"steps 2": entry}},
        "growth": {"g": {"verdicts": [missing]}},
        "by hand": {"c": {"share": 0.5, "wanted": 0.6}},
    }
    assert [what.partition(":")[0] for what in on_cpu.missed(record)] == [
        "table f, steps 2", "table f, steps 2", "growth g", "saxpy", "product", "by hand",
    ]  # fmt: skip
    assert on_cpu.missed({**record, "quick": True}) == []


# --- growth, memory, picture ---------------------------------------------------------------------------------------------------------


def test_growth_is_the_slope_of_logarithms() -> None:
    assert growth.slope([1, 10, 100], [5, 50, 500]) == pytest.approx(1.0)
    assert growth.slope([1, 10, 100], [2, 200, 20_000]) == pytest.approx(2.0)


@pytest.mark.nightly
def test_growth_of_a_program() -> None:
    sweep = growth.Sweep("fisher_kpp", "steps", ({"side": 20, "steps": 10}, {"side": 20, "steps": 100}))
    found = growth.measured(sweep, Local)
    assert [p["amount"] for p in found["points"]] == [10, 100] and all(p["error"] < 1e-4 for p in found["points"])
    assert [p["kept_bytes"] for p in found["points"]] == [4 * 18 * 18 * 10, 4 * 18 * 18 * 100]
    assert found["slopes"]["kept_bytes"] == pytest.approx(1.0, abs=1e-3)
    assert not growth.judge(sweep, {"kept_bytes": 1.03})[0]["reached"] and growth.judge(sweep, {"kept_bytes": 0.99})[0]["reached"]


def test_the_peak_of_memory_is_that_since_it_was_forgotten() -> None:
    if not resident.forget():
        pytest.skip("this system cannot forget a peak")
    before = resident.peak()
    with mmap.mmap(-1, 1 << 25) as block:  # the system's own pages: what an allocator returns, and when, is its affair
        for page in range(0, 1 << 25, mmap.PAGESIZE):
            block[page] = 1
    assert resident.peak() >= before + (1 << 25) - (1 << 20)
    resident.forget()
    assert resident.peak() < before + (1 << 24)


def test_a_picture_or_why_there_is_none(tmp_path: Path) -> None:
    row = {"gradient_ms": 2.0, "primal_ms": 1.0, "ratio": 1.0}
    entry = {"rows": {"gpuad": row, "jax": {"missing": "x"}, "torch": {**row, "gradient_ms": 9.0}}, "floor": {"ratio": 1.0}}
    points = [{"amount": 10**k, "gradient_ms": 2.0 * 10**k, "held_bytes": 10**k} for k in (1, 2)]
    sweep = {"points": points, "slopes": {"gradient_ms": 1.0, "held_bytes": 1.0}, "verdicts": []}
    assert picture.draw({}, tmp_path / "none.png") == "no picture: there is nothing to show"
    record = {"table": {"heat": {"n 1": entry, "n 2": entry}, "gone": {"failed": "x"}}, "growth": {"heat in steps": sweep}}
    assert picture.draw(record, tmp_path / "a.png") is None
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


# --- the commands --------------------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_command_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_cpu, "QUICK", replace(on_cpu.QUICK, hire=Local))
    words = [part for name in ("cases relu", "table saxpy", "product", "growth") for part in ("--only", name)]
    result = invoke(on_cpu.command, "--quick", *words, "--machine", "test", "--date", "2000-01-01", "--results", str(tmp_path))
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "cpu-test-2000-01-01.json").read_text())
    assert {"relu_bias", "relu_bias-gelu_bias"} < set(record["cases"]) and "saxpy" not in record
    assert record["cases"]["relu_bias"]["saved_bytes"] > 0 and record["cases"]["relu_bias"]["reverse_ms"] > 0
    assert len(record["product"]) == 4 and set(record["table"]) == {"saxpy"} and len(record["growth"]) == 1
    assert "relu_bias" in result.output and "by hand" in result.output and "gpuad" in record["versions"]
    assert (tmp_path / "cpu-test-2000-01-01.png").is_file()
    assert invoke(on_cpu.command, "--only", "no such thing").exit_code == 2


def test_everything_has_a_name() -> None:
    titles = [task.title for task in on_cpu.tasks(on_cpu.FULL)]
    assert len(set(titles)) == len(titles) and {"table heat", "growth heat in steps", "by hand", "cases saxpy"} <= set(titles)


def test_a_failing_task_is_recorded_and_the_run_goes_on() -> None:
    def broken() -> Any:
        raise ValueError("too hot")

    tasks = [on_cpu.Task("cases", "heat", broken), on_cpu.Task("saxpy", "", broken), on_cpu.Task("cases", "saxpy", lambda: {"ratio": 1.0})]
    record = on_cpu.measured(tasks)
    assert record["cases"] == {"heat": {"failed": "ValueError: too hot"}, "saxpy": {"ratio": 1.0}}
    assert [name for name, _ in on_cpu.failed(record)] == ["saxpy", "cases heat"]


def test_generated_code_against_loops_by_hand() -> None:
    name, hand, generated = next(iter(host_speed.measured(rounds=1, repeats=1)))
    assert name == "saxpy" and hand > 0 and generated > 0


@pytest.mark.parametrize(("required", "status"), [("0", 0), ("1", 1)])
def test_without_a_gpu_the_command_says_why(monkeypatch: pytest.MonkeyPatch, required: str, status: int) -> None:
    monkeypatch.setattr(device, "missing", lambda: "no driver")
    monkeypatch.setenv("GPUAD_REQUIRE_GPU", required)
    result = invoke(gpu.command)
    assert result.exit_code == status and "no GPU to measure: no driver" in result.output


ONE = ("--machine", "fake", "--date", "2000-01-01", "--results")


def recorded(folder: Path) -> cpu.Record:
    found: cpu.Record = json.loads((folder / "gpu-fake-2000-01-01.json").read_text())
    return found


def test_command_on_a_gpu(fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All three parts, rehearsed."""
    monkeypatch.setattr(gpu_steps, "tests", lambda *_: {"status": 1, "summary": "1 failed", "passed": ["b"], "failures": ["FAILED a"]})
    monkeypatch.setattr(gpu_steps, "find_tool", lambda _: None)
    monkeypatch.setattr(table, "absent", lambda name: "" if name in ("gpuad", "by hand") else f"{name} is not installed")
    words = [part for name in ("relu", "table heat", "table softmax") for part in ("--only", name)]
    result = invoke(gpu.command, "--quick", *words, *ONE, str(tmp_path))
    assert result.exit_code == 1, result.output  # a gpu test failed
    record = recorded(tmp_path)
    assert record["device"]["name"] == "a host" and record["device"]["cuda_runtime"] == "13.0" and record["device"]["copy_gb_s"] > 0
    heat, softmax = (next(iter(record["table"][name].values()))["rows"] for name in ("heat", "softmax"))
    assert heat["gpuad"]["error"] < 1e-4 > softmax["gpuad"]["error"] and heat["gpuad"]["device_bytes"] > 0
    assert heat["by hand"] == {"missing": "it is for the CPU"} and heat["jax"] == {"missing": "jax is not installed"}
    assert heat["gpuad"]["primal_of_copy"] > 0 and (tmp_path / "gpu-fake-2000-01-01.png").is_file()
    row = record["cases"]["relu_bias"]
    assert set(row["kernels"]) == {"relu_bias", "relu_bias_reverse"} and row["kernels"]["relu_bias"]["registers"] == 32
    assert {"primal_share_of_copy", "reverse_share_of_copy", "pool_bytes", "ratio"} <= set(row)
    assert "skipped" in record["sanitizer"] and '"passed": 1' in result.output


def test_a_part_by_itself_ends_in_time_and_the_next_run_goes_on(fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits, known = [], []

    def tests(seconds: float, before: cpu.Record | None) -> cpu.Record:
        limits.append(seconds)
        known.append(before)
        return (
            {"status": 124, "left": True, "summary": "", "passed": ["a"], "failures": []}
            if not before
            else {"status": 0, "passed": ["a", "b"]}
        )

    monkeypatch.setattr(gpu_steps, "tests", tests)
    for _ in range(3):
        result = invoke(gpu.command, "--part", "tests", *ONE, str(tmp_path))
        assert result.exit_code == 0, result.output
    assert all(400 < s <= 460 for s in limits) and known == [
        None,
        {"status": 124, "left": True, "summary": "", "passed": ["a"], "failures": []},
    ]
    assert recorded(tmp_path)["tests"] == {"status": 0, "passed": ["a", "b"]} and "cases" not in recorded(tmp_path)
    invoke(gpu.command, "--part", "tests", "--anew", *ONE, str(tmp_path))
    assert len(limits) == 3 and known[-1] is None


def test_the_sanitizer_takes_a_few_cases_at_once_and_goes_on(fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def sanitized(path: str, tool: str, names: Sequence[str], seconds: float) -> cpu.Record:
        seen.append((tool, names))
        if len(seen) == 2:
            raise OSError("the device is lost")
        return {"clean": True, "left": len(seen) == 3}

    monkeypatch.setattr(gpu_steps, "find_tool", lambda name: name)
    monkeypatch.setattr(gpu_steps, "sanitized", sanitized)
    words = ("--part", "sanitizer", "--only", "heat", "--only", "s", *ONE, str(tmp_path))
    assert invoke(gpu.command, *words).exit_code == 0
    first, chunks = list(seen), list(gpu_steps.swept(["heat", "s"]))
    assert first == [(tool, names) for tool in gpu_steps.TOOLS for names in chunks] and len(chunks) > 3
    assert all(len(names) <= 6 for names in chunks)
    record = recorded(tmp_path)["sanitizer"]
    assert len(record) == len(first) and sum("failed" in row for row in record.values()) == 1  # one that fails ends nothing
    assert invoke(gpu.command, *words).exit_code == 0
    assert seen[len(first) :] == [first[2]]  # what was left is done, and nothing again


def test_no_step_is_begun_after_the_time(fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_steps, "tests", lambda *_: pytest.fail("there is no time"))
    monkeypatch.setattr(gpu_steps, "find_tool", lambda name: name)
    result = invoke(gpu.command, "--seconds", "1e-9", "--only", "relu", "--only", "table saxpy", *ONE, str(tmp_path))
    assert result.exit_code == 0, result.output
    record = recorded(tmp_path)
    assert record["device"]["copy_gb_s"] > 0
    for step in (record["tests"], record["table"]["saxpy"], record["cases"]["relu_bias"], *record["sanitizer"].values()):
        assert step["failed"].startswith("not begun")


def test_the_tests_on_a_gpu_say_which_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    said = """
[gw0] [ 10%] PASSED tests/runtime/test_gpu.py::test_case[heat-Reverse]
[gw1] [ 20%] FAILED tests/runtime/test_gpu.py::test_case[wave a b-Forward]
ERROR tests/runtime/test_gpu.py::test_other - cupy.CUDARuntimeError
no end after 5 s"""
    asked: list[Any] = []
    monkeypatch.setattr(gpu_steps, "run", lambda words, seconds: asked.append((words, seconds)) or gpu_steps.Outcome(124, said))
    found = gpu_steps.tests(5.0, {"passed": ["tests/runtime/test_gpu.py::test_split_pair"]})
    assert "--deselect=tests/runtime/test_gpu.py::test_split_pair" in asked[0][0] and asked[0][1] == 5.0
    assert found["left"] and found["passed"] == [
        "tests/runtime/test_gpu.py::test_case[heat-Reverse]",
        "tests/runtime/test_gpu.py::test_split_pair",
    ]
    assert [line.split(" ")[0] for line in found["failures"]] == ["ERROR", "FAILED"]


def test_the_tests_on_a_gpu_are_those_that_are_marked() -> None:
    """On a machine without one they are skipped, not passed."""
    found = gpu_steps.run([sys.executable, "-m", "pytest", "-v", "-n", "0", "-m", "gpu", "tests/runtime/test_gpu.py", "-k", "saxpy"], 120.0)
    assert found.status == 0 and "skipped" in found.text.splitlines()[-1]


def test_less_is_tried_where_memory_does_not_suffice(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(_: Any, work: Any, __: Any) -> cpu.Record:
        if work.sizes["n"] > 4096:
            raise fake.cuda.memory.OutOfMemoryError("full")
        return {"n": work.sizes["n"]}

    monkeypatch.setattr(device, "_measured", measured)
    case = CASES["saxpy"]
    assert device.case_record(fake, case, sizes.Budget(bytes=1 << 19)) == {"n": 2048, "part": 16}
    assert device.case_record(fake, case, sizes.Budget(bytes=1 << 27))["failed"].startswith("OutOfMemoryError")


def test_the_sweep_runs_every_kernel(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "all_cases", lambda: [CASES["saxpy"], CASES["relu_bias"]])
    assert device.sweep(fake, ["saxpy"]) == {"saxpy": {"kernels": 2}}
    assert device.sweep(fake) == {"saxpy": {"kernels": 2}, "relu_bias": {"kernels": 2}}


def test_a_worker_that_dies_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_steps, "run", lambda *_: gpu_steps.Outcome(134, "illegal address"))
    assert gpu_steps.worker("case", "saxpy", "0") == {"failed": "exit status 134: ...illegal address"}


def test_a_process_measures_cases_until_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Process:
        made: ClassVar[list[Any]] = []

        def __init__(self, *words: str, patience: float) -> None:
            assert words == ("benchmarks.device", "cases") and patience > 0
            self.asked: list[str] = []
            self.closed = False
            self.made.append(self)

        def ask(self, name: str, limit: int) -> None:
            self.asked.append(name)

        def answer(self) -> cpu.Record:
            return {"failed": "exit status 134"} if self.asked[-1] == "b" else {"name": self.asked[-1]}

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(crew, "Answering", Process)
    with contextlib.closing(gpu_steps.Cases()) as ask:
        assert [ask(name, 0) for name in "abc"] == [{"name": "a"}, {"failed": "exit status 134"}, {"name": "c"}]
    assert [(p.asked, p.closed) for p in Process.made] == [(["a", "b"], True), (["c"], True)]


def test_cases_are_asked_for_in_lines(fake: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    requests = [{"name": "saxpy", "limit": 4096}, {"name": "no such case", "limit": 0}, {"name": "saxpy", "limit": 4096}]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(r) + "\n" for r in requests)))
    out = os.dup(1)
    try:
        device.answer(fake)
    finally:
        os.dup2(out, 1)
        os.close(out)
    first, unknown, again = map(json.loads, capfd.readouterr().out.splitlines())
    assert set(first["kernels"]) == set(again["kernels"]) == {"saxpy", "saxpy_reverse"} and "failed" in unknown


def test_a_process_that_hangs_is_ended() -> None:
    hangs = "import time; print('so far', flush=True); time.sleep(60)"
    assert gpu_steps.run([sys.executable, "-c", hangs], 1) == gpu_steps.Outcome(124, "so far\n\nno end after 1 s")


def test_the_sanitizer_is_judged_by_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    report = '========= COMPUTE-SANITIZER\n{"a": {"kernels": 2}, "b": {"failed": "x"}}\n========= ERROR SUMMARY: 1 error'
    monkeypatch.setattr(gpu_steps, "run", lambda words, _: gpu_steps.Outcome(9 if "memcheck" in words else 0, report))
    bad, good = (gpu_steps.sanitized("tool", tool, ("a", "b"), 9.0) for tool in gpu_steps.TOOLS)
    assert not bad["clean"] and good["clean"] and bad["cases"] == 2
    assert bad["summary"].endswith("ERROR SUMMARY: 1 error") and bad["failed"] == {"b": "x"}


TOUCHES = r"""
extern "C" __global__ void stored_first(double* y, const double* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int k = 0; k < 3; ++k) y[k * n + i] = 2.0 * x[k * n + i];
    for (int k = 0; k < 3; ++k) y[k * n + i] += x[i];
}
extern "C" __global__ void read_first(double* y, const double* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] += x[i];
    y[i] = 2.0 * y[i];
}
extern "C" __global__ void stored_in_part(double* y, const double* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (i > 3) y[i] = x[i];
    y[i] += x[i];
}
"""


@pytest.mark.parametrize("name, arrays_of_y", [("stored_first", 1), ("read_first", 2), ("stored_in_part", 2)])
def test_what_was_stored_before_it_is_read_is_not_fetched(name: str, arrays_of_y: int) -> None:
    n, kernel = 64, api.kernel(TOUCHES, name).primal()
    y, x = (Memory(np.zeros(3 * n)) for _ in range(2))
    bytes_of_one = 8 * 3 * n
    moved = touched_bytes(kernel, [y, x, np.int32(n)], ((2, 1, 1), (32, 1, 1)))
    assert moved == bytes_of_one * (arrays_of_y + 1)
    assert touched_bytes(kernel, [y, x, np.int32(n)]) == 3 * bytes_of_one  # the geometry is not known


def test_how_long_imports_take() -> None:
    """`import gpuad` itself imports no room; a script with one kernel needs neither tapes nor array operations."""
    found = imports.measured(rounds=1)
    assert list(found) == list(imports.WHAT) and found["import gpuad"] < found["all public names"]
    program = f"import sys; {imports.WHAT['names of one kernel']}; print(*[m for m in sys.modules if m.startswith('gpuad.')])"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "gpuad.api.kernels" in loaded
    assert not {m.split(".")[1] for m in loaded} & {"tape", "ops", "elementwise", "jit_kernels", "testing", "tools"}
