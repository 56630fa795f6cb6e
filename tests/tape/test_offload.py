"""Checkpoints on a second level: a file, and pinned memory over a copy stream of its own (on the stand-in for CuPy, which sees any use of
memory on two streams without a wait between)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_cupy
import numpy as np
import pytest
from launch_tools import running
from test_budget import BYTES, STEP, Loop, N

import gpuad
from gpuad import Duplicated, TapeError
from gpuad.budget import Chain, Load, Save, extra_steps, moves_on_two_levels, reruns
from gpuad.budget.schedule import segment
from gpuad.tape.budget import offload
from gpuad.tape.facade import recording_of
from gpuad.tape.reverse import reversal_plan


@pytest.fixture(autouse=True)
def nothing_is_joined(launches_are_joined_at_once: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(reversal_plan, "PATIENCE", float("inf"))
    with running("host"):
        yield


# --- schedules -------------------------------------------------------------------------------------------------------------------------


def test_within_a_segment_nothing_runs_more_than_twice() -> None:
    for slots in range(5):
        for units in (1, 2, 7, 40, 100):
            moves = moves_on_two_levels(Chain(units, lambda _: 1, False), slots)
            length = segment(Chain(units, lambda _: 1, False), slots)
            assert reruns(moves) <= 3 * units  # with the program itself
            far = [m.at for m in moves if isinstance(m, Save) and m.far]
            assert set(far) <= set(range(length, units, length)), "those that are never loaded are not stored"
            assert {m.at for m in moves if isinstance(m, Load)} >= set(far)
    assert length == 6  # four checkpoints, one unit more that is kept, and the state at its beginning


# --- a file ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.one_of(4)
@pytest.mark.parametrize("steps", [2, 5, 12, 40])
@pytest.mark.parametrize("checkpoints", [2, 3, 5])
def test_a_file_takes_checkpoints(steps: int, checkpoints: int, tmp_path: Path) -> None:
    budget = BYTES * (2 + checkpoints)
    loop, free, near = Loop(steps, budget, offload=tmp_path), Loop(steps), Loop(steps, budget)
    for turn in range(3):
        assert loop.run() == free.run(), turn
        assert max(recording_of(loop.tape).most, recording_of(loop.tape).memory.most) <= budget
        assert not list(tmp_path.iterdir()), "the file has no name"
    near.run()
    plan = loop.tape.plan()
    assert plan.reruns <= near.tape.plan().reruns
    if steps == 40 and checkpoints < 5:
        assert plan.offloaded >= BYTES and plan.reruns < 2 * steps < extra_steps(steps, checkpoints)
        assert "offloaded" in str(loop.tape.explain())


def test_what_changed_between_recordings_is_what_comes_back(tmp_path: Path) -> None:
    loop, free = Loop(30, BYTES * 4, offload=tmp_path), Loop(30)
    for turn in range(4):
        loop.start = free.start = np.random.default_rng(turn).uniform(0, 1, N)
        assert loop.run() == free.run()


def test_what_cannot_be_meant_is_refused_first(tmp_path: Path) -> None:
    for wrong in (tmp_path / "none", 3, "hosts"):
        with pytest.raises(TapeError, match="offload is 'host'"):
            gpuad.Tape(budget="1 MB", offload=wrong)  # type: ignore[arg-type]
    with pytest.raises(TapeError, match="offload goes with a budget"):
        gpuad.Tape(offload=tmp_path)


def test_the_host_is_no_second_level_for_its_own_arrays() -> None:
    loop = Loop(4, "1 MB", offload="host")
    with pytest.raises(TapeError, match="in the host's memory already"):
        loop.record()
    assert (loop.u.primal == loop.start).all()


@pytest.mark.parametrize("broken", ["_written", "_read"])
def test_a_file_that_fails_leaves_arrays_as_the_program_did(broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, free = Loop(30, BYTES * 4, offload=tmp_path), Loop(30)
    loop.run(), free.run()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(offload, broken, full)
    if broken == "_written":
        with pytest.raises(OSError, match="No space"):
            loop.record()
        with pytest.raises(TapeError):
            loop.tape.reverse({loop.u: loop.seed})
    else:
        u, v = loop.record()
        before = u.primal.tobytes(), v.primal.tobytes()
        with pytest.raises(OSError, match="No space"):
            loop.tape.reverse({u: loop.seed})
        assert (u.primal.tobytes(), v.primal.tobytes()) == before
    monkeypatch.undo()
    monkeypatch.setattr(reversal_plan, "PATIENCE", float("inf"))
    assert loop.run() == free.run()
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_nothing_stays_behind_when_the_process_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, signal\nfrom pathlib import Path\nimport numpy as np\nfrom gpuad.tape.budget.offload import InFile\n"
        f"level = InFile(Path({str(tmp_path)!r}))\nlevel.write(0, np.ones(1 << 20, np.uint8))\nlevel.join()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, check=False)
    assert done.returncode == -9
    assert not list(tmp_path.iterdir())


# --- pinned memory ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = fake_cupy.module()
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def on_a_gpu(cupy: Any, steps: int, runs: int, **options: Any) -> tuple[list[Any], gpuad.Tape]:
    """A loop on a stream of its own."""
    rng = np.random.default_rng(0)
    start, kernel, tape, found = rng.uniform(0.1, 0.9, 32), gpuad.kernel(STEP, "step"), gpuad.Tape(**options), []
    with cupy.cuda.Stream(non_blocking=True):
        u, v, table = (Duplicated(cupy.asarray(x), cupy.zeros(len(x))) for x in (start, np.zeros(32), rng.uniform(0.1, 0.4, steps)))
        for _ in range(runs):
            u.primal[...], v.primal[...] = cupy.asarray(start), 0.25
            table.shadow[...] = 0
            now, new = u, v
            with tape:
                for t in range(steps):
                    kernel[1, 32](new, now, table, 0, 0.01 * (t + 1), 32)
                    now, new = new, now
            tape.reverse({now: 1.0})
            found.append([a.get().tobytes() for p in (u, v, table) for a in (p.primal, p.shadow)])
    return found, tape


def test_pinned_memory_over_a_stream_of_its_own(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    free, _ = on_a_gpu(cupy, 12, 3)
    transfers: list[tuple[str, int]] = []
    for name in ("write", "read"):
        real = getattr(offload.Pinned, name)
        monkeypatch.setattr(offload.Pinned, name, lambda self, at, data, n=name, f=real: (transfers.append((n, at)), f(self, at, data))[1])
    found, tape = on_a_gpu(cupy, 12, 3, budget=512 * 4, offload="host")
    assert found == free
    assert tape.plan().offloaded > 0 and recording_of(tape).most <= 512 * 4
    written = [at for kind, at in transfers if kind == "write"]
    read = [at for kind, at in transfers if kind == "read"]
    assert len(written) >= 2 * len(set(written)) > 0 and set(read) <= set(written) and len(read) <= len(written)


def test_a_copy_that_nobody_waits_for_is_seen(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The witness above would notice."""
    monkeypatch.setattr(offload.Pinned, "join", lambda _: None)
    with pytest.raises(fake_cupy.StreamError):
        on_a_gpu(cupy, 12, 3, budget=512 * 4, offload="host")


def test_a_file_for_a_gpu(cupy: Any, tmp_path: Path) -> None:
    free, _ = on_a_gpu(cupy, 12, 3)
    found, tape = on_a_gpu(cupy, 12, 3, budget=512 * 4, offload=tmp_path)
    assert found == free and tape.plan().offloaded > 0
