"""`gpuad selftest`: kernels compiled, run and differentiated on the device or CPU at hand, and compared with closed forms in NumPy.

Nothing is taken from the cache on disk, so that the compiler is tried as well. Out: a `Result` for each check, and a text to paste into an
issue. A check that raises is a result, too. A check does not begin once `LIMIT` seconds have passed; then it is said to be not run.
"""

from __future__ import annotations

import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from .. import api
from ..arguments.annotations import Duplicated
from ..runtime.disk_cache import VARIABLE
from ..tape.facade import Tape
from ..testing import check_gradient
from . import doctor

LIMIT = 20.0  # seconds, after which no other check begins; the longest one takes less than ten
TOLERANCE = 1e-12  # relative to the largest number; all is in double precision
_PACKAGE = Path(__file__).parents[1]

_SOURCE = """
extern "C" __global__ void damp(double* x, const double* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = sin(x[i]) * a[i] + 0.5 * x[i] * x[i];
}
extern "C" __global__ void scatter(const double* x, const int* to, double* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&y[to[i]], x[i] * x[i]);
}
extern "C" __global__ void norm(double* x) {
    __shared__ double part[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    part[t] = x[i] * x[i];
    __syncthreads();
    for (int half = 32; half > 0; half /= 2) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    x[i] = x[i] / part[0];
}
"""


@dataclass(frozen=True)
class Result:
    """Of one check: `status` 'ok', 'wrong' or 'not run'; the `detail`: the largest relative error, or what went wrong; `seconds`."""

    name: str
    status: str
    detail: str
    seconds: float = 0.0


def run() -> list[Result]:
    """Runs all checks: with NumPy on the CPU, and with CuPy where there is a device."""
    results: list[Result] = []
    began = time.monotonic()
    with _no_cache():
        for library in dict.fromkeys([np, api.array_module()]):
            where = "CPU" if library is np else "GPU"
            for name, check in CHECKS.items():
                title = f"{name} ({where})"
                late = time.monotonic() - began > LIMIT
                results.append(Result(title, "not run", f"{LIMIT:g} s have passed") if late else _tried(title, check, library))
    return results


def text(results: Sequence[Result]) -> str:
    """What to paste into an issue."""
    try:
        version = metadata.version("gpuad")
    except metadata.PackageNotFoundError:
        version = "not installed"
    lines = [f"gpuad {version}"]
    lines += [f"{f.what}: {f.detail if f.found else 'none'}" for f in doctor.examine() if f.what != "cache folder"]
    lines += [f"{r.status:<8}{r.name:<44}{r.seconds:>5.1f} s  {r.detail}" for r in results]
    counts = {status: sum(r.status == status for r in results) for status in ("ok", "wrong", "not run")}
    lines.append(", ".join(f"{number} {status}" for status, number in counts.items()))
    return "\n".join(lines)


@contextmanager
def _no_cache() -> Iterator[None]:
    """An empty cache folder, for the time being."""
    before = os.environ.get(VARIABLE)
    with tempfile.TemporaryDirectory(prefix="gpuad-selftest-", ignore_cleanup_errors=True) as folder:
        os.environ[VARIABLE] = folder
        try:
            yield
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before


def _tried(name: str, check: Callable[[Any], float], library: Any) -> Result:
    began = time.monotonic()
    try:
        error = check(library)
    except Exception as failure:
        return Result(name, "wrong", _said(failure), time.monotonic() - began)
    status = "ok" if error <= TOLERANCE else "wrong"  # NaN is wrong
    return Result(name, status, f"error {error:.1e}", time.monotonic() - began)


def _said(failure: BaseException) -> str:
    """The error with the place in the package that raised it."""
    frames = [f for f in traceback.extract_tb(failure.__traceback__) if Path(f.filename).is_relative_to(_PACKAGE)]
    place = f" [{Path(frames[-1].filename).relative_to(_PACKAGE)}:{frames[-1].lineno}]" if frames else ""
    first = str(failure).strip().partition("\n")[0]
    return f"{type(failure).__name__}: {first}{place}"


# --- checks: each gives its largest relative error ---------------------------------------------------------------------------------------


def _random(library: Any, *shape: int) -> Any:
    return library.asarray(np.random.default_rng(0).uniform(0.5, 1.5, shape))


def _host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else array


def _error(*pairs: tuple[Any, Any]) -> float:
    found = [np.abs(_host(got) - wanted).max() / np.abs(wanted).max() for got, wanted in pairs]
    return float(np.max(found))


def _overwritten(library: Any) -> float:
    """An argument that is overwritten in place."""
    n = 1000
    x, a, dx = _random(library, n), _random(library, n) + 1, _random(library, n)
    x0, a0, g, da = _host(x).copy(), _host(a).copy(), _host(dx).copy(), library.zeros(n)
    api.autodiff(api.kernel(_SOURCE, "damp"), 8, 128, (Duplicated(x, dx), Duplicated(a, da), n))
    return _error((x, np.sin(x0) * a0 + 0.5 * x0 * x0), (dx, g * (np.cos(x0) * a0 + x0)), (da, g * np.sin(x0)))


def _atomics(library: Any) -> float:
    """Atomic additions to elements that data choose."""
    n, m = 1000, 37
    to = np.random.default_rng(1).integers(0, m, n).astype(np.int32)
    x, dx, y, dy = _random(library, n), library.zeros(n), library.zeros(m), _random(library, m)
    x0, g, total = _host(x).copy(), _host(dy).copy(), np.zeros(m)
    np.add.at(total, to, x0 * x0)
    api.autodiff(api.kernel(_SOURCE, "scatter"), 8, 128, (Duplicated(x, dx), library.asarray(to), Duplicated(y, dy), n))
    return _error((y, total), (dx, 2 * x0 * g[to]))


def _shared_memory(library: Any) -> float:
    """Shared memory and barriers."""
    x, dx = _random(library, 3 * 64), _random(library, 3 * 64)[::-1].copy()
    x0, g = _host(x).copy().reshape(3, 64), _host(dx).copy().reshape(3, 64)
    total = (x0 * x0).sum(axis=1, keepdims=True)
    api.autodiff(api.kernel(_SOURCE, "norm"), 3, 64, (Duplicated(x, dx),))
    wanted = g / total - 2 * x0 * (g * x0).sum(axis=1, keepdims=True) / total**2
    return _error((x, (x0 / total).ravel()), (dx, wanted.ravel()))


def _program(library: Any) -> float:
    """A program of launches, recorded and reversed twice; the second time from what is known of it."""
    n, steps, k = 500, 6, api.kernel(_SOURCE, "damp")
    pair, a = Duplicated(_random(library, n), library.zeros(n)), _random(library, n)
    start, a0, tape = _random(np, n), _host(a), Tape()
    for _ in range(2):
        pair.primal[...] = library.asarray(start)
        pair.shadow[...] = 0
        with tape:
            for _ in range(steps):
                k(4, 128, (pair, a, n))
        tape.reverse({pair: 1.0})
    values = [start]
    for _ in range(steps):
        values.append(np.sin(values[-1]) * a0 + 0.5 * values[-1] ** 2)
    wanted = np.ones(n)
    for x in values[-2::-1]:
        wanted *= np.cos(x) * a0 + x
    return _error((pair.primal, values[-1]), (pair.shadow, wanted))


def _differences(library: Any) -> float:
    """Differences, races and bounds, by `gpuad.testing.check_gradient` and its reference executor. Raises AssertionError where it fails."""
    n = 100
    args = (Duplicated(_random(library, n)), Duplicated(_random(library, n)), n)
    check_gradient(api.kernel(_SOURCE, "damp"), args, grid=1, block=128, directions=1)
    return 0.0


CHECKS: dict[str, Callable[[Any], float]] = {
    "argument overwritten in place": _overwritten,
    "atomic additions": _atomics,
    "shared memory and barriers": _shared_memory,
    "program recorded and reversed": _program,
    "differences, races, bounds": _differences,
}

__all__ = ["CHECKS", "Result", "run", "text"]
