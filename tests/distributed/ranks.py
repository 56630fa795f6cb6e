"""Checks that run on several ranks: started by pytest through mpiexec, one job for many checks.

`python ranks.py NAME[:CHECK,CHECK] ...` imports the modules NAME_checks and calls each of their CHECKS, or those that are named, on every
rank with a communicator of its own; what fails, on any rank, is printed by rank 0. A job starts Python once a rank, which takes longer than
most checks, so there is one for each number of ranks. `job` runs it under a time limit of its own and gives what it printed.
"""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nightly import NIGHTLY

import gpuad
from gpuad import Duplicated, Tape
from gpuad.runtime import host

HERE = Path(__file__).parent


def missing() -> str:
    """Why no ranks can be started; empty if they can."""
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed (pip install mpi4py mpich)"
    return "" if launcher() else "no mpiexec beside this Python (pip install mpich)"


def launcher() -> str | None:
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")


needs_mpi = pytest.mark.skipif(bool(missing()), reason=missing() or "never")


QUIET = {
    "GPUAD_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",  # MPICH: who waits sleeps, since there are more ranks than cores
}


class Job:
    """Python on some ranks, from now on. `limit`: seconds that it may take; `within`: a command that runs it."""

    def __init__(self, ranks: int, *arguments: str, limit: float = 90.0, within: Sequence[str] = ()) -> None:
        self.command = [str(launcher()), "-n", str(ranks), *within, sys.executable, *arguments]
        self.limit, self._locks, self._begin = limit, tempfile.TemporaryDirectory(), time.monotonic()
        paths = [str(HERE), str(HERE.parent), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
        given = {**QUIET, "PYTHONPATH": os.pathsep.join(filter(None, paths)), LOCKS: self._locks.name}
        self._process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **given}, start_new_session=True,
            cwd=HERE.parents[1],
        )  # fmt: skip

    def done(self) -> subprocess.CompletedProcess[str]:
        """What it printed, when it has ended. AssertionError if it takes longer than the limit."""
        with self._locks:
            try:
                out, err = self._process.communicate(timeout=max(0.1, self._begin + self.limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, 9)
                out, err = self._process.communicate()
                pytest.fail(f"{' '.join(self.command)} took longer than {self.limit} s\n{out}\n{err}")
        return subprocess.CompletedProcess(self.command, self._process.returncode, out, err)


def job(ranks: int, *arguments: str, limit: float = 90.0) -> subprocess.CompletedProcess[str]:
    """Runs Python on so many ranks."""
    return Job(ranks, *arguments, limit=limit).done()


def passes(ranks: int, *names: str, limit: float = 90.0) -> None:
    """Runs checks; all have to pass, and there has to be one for each name."""
    done = job(ranks, str(HERE / "ranks.py"), *names, limit=limit)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "checks passed" in done.stdout, done.stdout + done.stderr


# --- on the ranks ------------------------------------------------------------------------------------------------------------------------


LOCKS = "GPUAD_TEST_LOCKS"  # in the environment: a folder of the job
_compiled = host.compiled


def _compiled_once(source: str, *more: Any) -> Any:
    """Each text by one rank, while the others wait for it."""
    folder = os.environ.get(LOCKS) or tempfile.gettempdir()
    with open(Path(folder) / sha256(source.encode()).hexdigest(), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _compiled(source, *more)


def chosen(name: str) -> list[Callable[[Any], None]]:
    """The checks that `NAME[:CHECK,CHECK]` means."""
    module, _, wanted = name.partition(":")
    every = {check.__name__: check for check in importlib.import_module(f"{module}_checks").CHECKS}
    return [every[one] for one in wanted.split(",")] if wanted else list(every.values())


def quietly(world: Any, value: Any, limit: float = 600.0) -> list[Any]:
    """`world.allgather`, in which ranks that wait long leave the processor to the others."""
    request, end = world.Ibarrier(), time.monotonic() + limit
    while not request.Test() and time.monotonic() < end:
        time.sleep(1e-3)
    return list(world.allgather(value))


def on_one(comm: Any, compute: Callable[[], Any]) -> Any:
    """What rank 0 computes, on all ranks."""
    return quietly(comm.mpi, compute() if comm.rank == 0 else None)[0]


def main(checks: Iterable[Callable[[Any], None]], limit: float = 10.0) -> None:
    """Runs checks on all ranks, and ends with an error if one fails on any."""
    from mpi4py import MPI

    host.compiled = _compiled_once
    world, failed, count = MPI.COMM_WORLD, [], 0
    for check in checks:
        begin = time.perf_counter()
        said = ""
        try:
            check(gpuad.distributed.wrap(world, limit=limit))
        except (Exception, pytest.fail.Exception):
            said = traceback.format_exc()
        told = quietly(world, said)
        count += 1
        if not all(isinstance(text, str) for text in told):
            sys.exit("a check has left the ranks at different places")  # and MPI has matched what does not belong together
        if any(told):
            failed.append(check.__name__)
            if world.rank == 0:
                print(f"FAILED {check.__name__}", *[f"--- rank {r}\n{text}" for r, text in enumerate(told) if text], sep="\n", flush=True)
        elif world.rank == 0:
            print(f"ok {check.__name__} {time.perf_counter() - begin:.2f} s", flush=True)
    if world.rank == 0 and not failed:
        print(f"{count} checks passed", flush=True)
    sys.exit(1 if failed else 0)


def reals(array: Any) -> Any:
    """The real numbers of an array, flat, as a view where it is contiguous."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(f"f{flat.dtype.itemsize // 2}") if flat.dtype.kind == "c" else flat


def _set(array: Any, numbers: Any) -> None:
    kind = np.dtype(f"f{array.dtype.itemsize // 2}") if array.dtype.kind == "c" else array.dtype
    array[...] = np.asarray(numbers, kind).view(array.dtype).reshape(array.shape)


def jacobians(
    comm: Any, program: Callable[[Any, list[Any]], None], state: list[Any], h: float = 1.0, seeds: int | None = None
) -> tuple[Any, Any, Any]:
    """The Jacobian of the memory of all ranks after a program by that before, by differences of the program on plain arrays (one-sided, as
    what it does is linear in steps of `h`), over all ranks' inputs; and products of seeds with it, by that matrix and by reversals of the
    program's recording. `state`: this rank's arrays; `seeds`: how many, of random whole numbers, else one for each row."""
    sizes = [reals(a).size for a in state]
    counts = comm.mpi.allgather(sum(sizes))
    first, total = sum(counts[: comm.rank]), sum(counts)
    base = np.concatenate([reals(a).astype(np.float64) for a in state]) if state else np.zeros(0)

    def fill(arrays: list[Any], numbers: Any) -> None:
        at = 0
        for array, size in zip(arrays, sizes, strict=True):
            _set(array, numbers[at : at + size])
            at += size

    def after(k: int, step: float) -> Any:
        numbers = base.copy()
        if first <= k < first + counts[comm.rank]:
            numbers[k - first] += step
        arrays = [np.empty_like(a) for a in state]
        fill(arrays, numbers)
        program(comm, arrays)
        return np.concatenate([reals(a).astype(np.float64) for a in arrays])

    start = after(0, 0.0)
    columns = [(after(k, h) - start) / h for k in range(total)]
    by_differences = np.concatenate(comm.mpi.allgather(np.array(columns).T.reshape(counts[comm.rank], total)))
    pairs = [Duplicated(np.empty_like(a)) for a in state]
    given = np.eye(total) if seeds is None else np.random.default_rng(total).integers(-3, 4, (seeds, total))
    tape, rows = Tape(), []
    for seed in given:
        fill([p.primal for p in pairs], base)
        with tape:
            program(comm, pairs)
        fill([p.shadow for p in pairs], seed[first : first + counts[comm.rank]])
        tape.reverse()
        rows.append(np.concatenate([reals(p.shadow).astype(np.float64) for p in pairs]))
    mine = np.array(rows).reshape(len(given), counts[comm.rank])
    return by_differences, given @ by_differences, np.concatenate(comm.mpi.allgather(mine), axis=1)


def agree(
    comm: Any,
    program: Callable[[Any, list[Any]], None],
    state: list[Any],
    h: float = 1.0,
    tolerance: float = 1e-12,
    seeds: int | None = None,
) -> None:
    """Checks the reversals against the differences: on two ranks, and nightly, each row of the Jacobian, else some sums of all rows."""
    seeds = None if NIGHTLY else seeds or (None if comm.size == 2 else 4)
    jacobian, expected, found = jacobians(comm, program, state, h, seeds)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    assert np.abs(jacobian - np.eye(len(jacobian))).max() > 0.1 or comm.size == 1, "the program does nothing"


if __name__ == "__main__":
    from ranks import chosen, main  # the module that the checks import

    main([check for name in sys.argv[1:] for check in chosen(name)])
