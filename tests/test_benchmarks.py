"""The benchmarks run: at tiny sizes, on the CPU, and the GPU's command with a stand-in for the device."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_cupy
import numpy as np
import pytest
from typer import Typer
from typer.testing import CliRunner

import gpuad
from benchmarks import __main__ as on_cpu
from benchmarks import allocations, cpu, device, gpu, host_speed, measure, peers, product, programs, records, sizes
from benchmarks.workload import workload
from gpuad import launching
from gpuad.cases import all_cases

EFFORT = measure.Effort(1, 2, 0.1)
TINY = sizes.Budget(bytes=1 << 16, flops=100_000, threads=1 << 10)
CASES = {case.id: case for case in all_cases()}


def invoke(command: Any, *words: str) -> Any:
    app = Typer()
    app.command()(command)
    return CliRunner().invoke(app, words)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in for CuPy, and workers that run in this process."""
    module = fake_cupy.module()
    monkeypatch.setitem(sys.modules, "cupy", module)
    launching._cuda.cache_clear()

    def worker(*words: str, **_: Any) -> cpu.Record:
        if words[0] == "about":
            return device.about(module, copied=1 << 16)
        return device.case_record(module, CASES[words[1]], TINY, EFFORT)

    monkeypatch.setattr(gpu, "worker", worker)
    monkeypatch.setattr(device, "EFFORT", EFFORT)
    with fake_cupy.waited():
        yield module
    launching._cuda.cache_clear()


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


@pytest.mark.parametrize("problem", programs.problems([8, 40], 4), ids=lambda p: f"{p.name}-{p.side}")
def test_programs_on_a_tape_are_right_and_allocate_nothing_later(problem: programs.Problem) -> None:
    runner = programs.OnTape(problem)
    for _ in range(2):
        programs.check(runner.gradient(), programs.by_hand(problem))
    about = runner.about()
    assert about["allocations"] == 0 and bool(about["saved_bytes"]) == problem.nonlinear
    before = runner.start.primal.copy()
    np.testing.assert_array_equal(runner.primal(), runner.last.primal)
    np.testing.assert_array_equal(runner.start.primal, before)


def test_a_gradient_by_hand_is_that_of_differences() -> None:
    problem, h = programs.Problem("fisher", True, 5, 3), 1e-6

    def loss(u: Any) -> float:
        for _ in range(problem.steps):
            lap = u[1:-1, :-2] + u[1:-1, 2:] + u[:-2, 1:-1] + u[2:, 1:-1] - 4 * u[1:-1, 1:-1]
            u = u.copy()
            u[1:-1, 1:-1] += programs.DIFFUSION * lap + problem.growth * u[1:-1, 1:-1] * (1 - u[1:-1, 1:-1])
        return float((u * u).sum())

    start, found = problem.start().astype(np.float64), programs.by_hand(problem)
    for place in np.ndindex(found.shape):
        up, down = start.copy(), start.copy()
        up[place] += h
        down[place] -= h
        assert found[place] == pytest.approx((loss(up) - loss(down)) / (2 * h), abs=1e-8)


def test_programs_are_measured_beside_whoever_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(programs.OnTape):
        def gradient(self) -> Any:
            return super().gradient() * np.float32(1.001)

    monkeypatch.setitem(peers.PEERS, "wrong", Wrong)
    found = programs.measured(EFFORT, [8], 2)
    assert set(found) == {"heat 8^2, 2 steps", "fisher 8^2, 2 steps"}
    for rows in found.values():
        assert rows["gpuad"]["ratio"] > 0 and rows["gpuad"]["allocations"] == 0
        assert rows["wrong"]["failed"].startswith("ValueError: the gradient is wrong")
        for name in ("torch", "jax"):
            there = importlib.util.find_spec(name) is not None
            assert ("ratio" in rows[name]) if there else (rows[name] == {"missing": f"{name} is not installed"})
    assert on_cpu.failed({"cases": {}, "programs": found}) == [f"{name}, wrong" for name in found]


# --- the commands --------------------------------------------------------------------------------------------------------------------


def test_command_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_speed, "measured", lambda **_: iter([("saxpy", 1.0, 1.25)]))
    monkeypatch.setattr(cpu, "overhead", lambda _: {"launch_us": 1.0})
    result = invoke(on_cpu.command, "--quick", "--only", "relu", "--machine", "test", "--date", "2000-01-01", "--results", str(tmp_path))
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "cpu-test-2000-01-01.json").read_text())
    assert set(record["cases"]) == {"relu_bias", "relu_bias-gelu_bias"}
    assert record["cases"]["relu_bias"]["saved_bytes"] > 0 and record["cases"]["relu_bias"]["reverse_ms"] > 0
    assert len(record["product"]) == 4 and len(record["saxpy"]) == 4 and record["by_hand"]["saxpy"]["share"] == 0.8
    assert "relu_bias" in result.output and "gpuad" in record["versions"]


def test_a_failing_case_is_recorded_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(case: Any, *_: Any) -> cpu.Record:
        if case.id == "heat":
            raise ValueError("too hot")
        return {"ratio": 1.0}

    monkeypatch.setattr(cpu, "measured", measured)
    found = cpu.cases([CASES["heat"], CASES["saxpy"]], TINY, EFFORT, lambda _: None)
    assert found == {"heat": {"failed": "ValueError: too hot"}, "saxpy": {"ratio": 1.0}}
    assert on_cpu.failed({"cases": found, "programs": {}}) == ["heat"]


def test_required_figures_are_judged() -> None:
    record = {
        "saxpy": {"a": {"ratio": 1.6, "required": 1.5}, "b": {"ratio": 1.4, "required": 1.5}},
        "product": {"d": {"allocations": 1}, "e": {"allocations": 0}},
        "programs": {"f": {"gpuad": {"allocations": 2}}, "g": {"gpuad": {"failed": "x"}}},
        "by_hand": {"c": {"share": 0.5, "wanted": 0.6}},
    }
    assert on_cpu.missed(record) == ["a", "d", "f", "c"]


def test_generated_code_against_loops_by_hand() -> None:
    name, hand, generated = next(iter(host_speed.measured(rounds=1, repeats=1)))
    assert name == "saxpy" and hand > 0 and generated > 0


@pytest.mark.parametrize(("required", "status"), [("0", 0), ("1", 1)])
def test_without_a_gpu_the_command_says_why(monkeypatch: pytest.MonkeyPatch, required: str, status: int) -> None:
    monkeypatch.setattr(device, "missing", lambda: "no driver")
    monkeypatch.setenv("GPUAD_REQUIRE_GPU", required)
    result = invoke(gpu.command)
    assert result.exit_code == status and "no GPU to measure: no driver" in result.output


def test_command_on_a_gpu(fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "tests", lambda: {"status": 1, "summary": "1 failed", "failures": ["FAILED a"]})
    monkeypatch.setattr(gpu, "find_tool", lambda _: None)
    result = invoke(gpu.command, "--only", "relu", "--machine", "fake", "--date", "2000-01-01", "--results", str(tmp_path))
    assert result.exit_code == 1, result.output  # a gpu test failed
    record = json.loads((tmp_path / "gpu-fake-2000-01-01.json").read_text())
    assert record["device"]["name"] == "a host" and record["device"]["cuda_runtime"] == "13.0" and record["device"]["copy_gb_s"] > 0
    row = record["cases"]["relu_bias"]
    assert set(row["kernels"]) == {"relu_bias", "relu_bias_reverse"} and row["kernels"]["relu_bias"]["registers"] == 32
    assert {"primal_share_of_copy", "reverse_share_of_copy", "pool_bytes", "ratio"} <= set(row)
    assert "skipped" in record["sanitizer"]


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
    assert device.sweep(fake) == {"saxpy": {"kernels": 2}, "relu_bias": {"kernels": 2}}


def test_a_worker_that_dies_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "run", lambda *_: gpu.Outcome(134, "illegal address"))
    assert gpu.worker("case", "saxpy", "0") == {"failed": "exit status 134: ...illegal address"}


def test_a_process_that_hangs_is_ended() -> None:
    assert gpu.run([sys.executable, "-c", "import time; time.sleep(60)"], 1) == gpu.Outcome(124, "no end after 1 s")


def test_the_sanitizer_is_judged_by_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    report = '========= COMPUTE-SANITIZER\n{"a": {"kernels": 2}, "b": {"failed": "x"}}\n========= ERROR SUMMARY: 1 error'
    monkeypatch.setattr(gpu, "find_tool", lambda name: name)
    monkeypatch.setattr(gpu, "run", lambda words, _: gpu.Outcome(9 if "memcheck" in words else 0, report))
    found = gpu.sanitized()
    assert not found["memcheck"]["clean"] and found["racecheck"]["clean"]
    assert found["memcheck"]["summary"].endswith("ERROR SUMMARY: 1 error") and found["memcheck"]["failed"] == {"b": "x"}
