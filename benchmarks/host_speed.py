"""How fast the CPU executor is: generated kernels on one core against loops written by hand in C++, compiled with the same optimisation.

Run `python benchmarks/host_speed.py`. Primal and reverse kernels of saxpy, a heat stencil and Gray-Scott, the reverses in the gather form
that a programmer would write. The two sides alternate; each number is the lower of several medians. The last column is the share of the
hand-written loop's speed that the generated code reaches; the aim is 0.6.
"""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpuad.frontend.cuda import parse
from gpuad.pipeline.passes import primal_of
from gpuad.runtime.base import Memory
from gpuad.runtime.compiler import find_compiler
from gpuad.runtime.host import Host
from gpuad.source import SourceFile

N = 1024
WANTED = 0.6  # share of the hand-written loop's speed
INDEX = "int x = blockIdx.x * blockDim.x + threadIdx.x; int y = blockIdx.y * blockDim.y + threadIdx.y; int i = y * n + x;"
GUARD = "if (x > 0 && x < n - 1 && y > 0 && y < n - 1)"
BODIES = {
    "saxpy": ("float* y, const float* x, float a, int n", "y[i] += a * x[i];"),
    "saxpy reverse": ("const float* dy, float* dx, float a, int n", "dx[i] += a * dy[i];"),
    "heat": ("const float* u, float* v, float c, int n", "v[i] = u[i] + c * (u[i - 1] + u[i + 1] + u[i - n] + u[i + n] - 4.0f * u[i]);"),
    "heat reverse": (
        "const float* dv, float* du, float c, int n",
        "du[i] += dv[i] + c * (dv[i - 1] + dv[i + 1] + dv[i - n] + dv[i + n] - 4.0f * dv[i]);",
    ),
    "gray-scott": (
        "const float* u, const float* v, float* p, float* q, float f, float k, int n",
        """float uu = u[i], vv = v[i], r = uu * vv * vv;
        p[i] = uu + 0.16f * (u[i - 1] + u[i + 1] + u[i - n] + u[i + n] - 4.0f * uu) - r + f * (1.0f - uu);
        q[i] = vv + 0.08f * (v[i - 1] + v[i + 1] + v[i - n] + v[i + n] - 4.0f * vv) + r - (f + k) * vv;""",
    ),
    "gray-scott reverse": (
        "const float* u, const float* v, const float* dp, const float* dq, float* du, float* dv, float f, float k, int n",
        """float uu = u[i], vv = v[i], a = dp[i], b = dq[i], dr = b - a;
        du[i] += a + 0.16f * (dp[i - 1] + dp[i + 1] + dp[i - n] + dp[i + n] - 4.0f * a) - f * a + dr * vv * vv;
        dv[i] += b + 0.08f * (dq[i - 1] + dq[i + 1] + dq[i - n] + dq[i + n] - 4.0f * b) - (f + k) * b + 2.0f * dr * uu * vv;""",
    ),
}


def symbol(name: str) -> str:
    return name.replace(" ", "_").replace("-", "_")


def cuda(name: str) -> str:
    """The kernel as a CuPy user writes it."""
    params, body = BODIES[name]
    if name.startswith("saxpy"):
        index, guard = "int i = blockIdx.x * blockDim.x + threadIdx.x;", "if (i < n)"
    else:
        index, guard = INDEX, GUARD
    return f'extern "C" __global__ void {symbol(name)}({params})\n{{ {index}\n{guard} {{ {body} }} }}\n'


def by_hand(name: str) -> str:
    """The loop as a C++ programmer writes it."""
    params, body = BODIES[name]
    if name.startswith("saxpy"):
        loop = f"for (long i = 0; i < n; ++i) {{ {body} }}"
    else:
        loop = f"for (long y = 1; y < n - 1; ++y)\n#pragma GCC ivdep\nfor (long x = 1; x < n - 1; ++x) {{ long i = y * n + x; {body} }}"
    return f'extern "C" void {symbol(name)}({params.replace("* ", "* __restrict__ ")})\n{{ {loop} }}\n'


def compiled() -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp())
    (folder / "hand.cpp").write_text("\n".join(by_hand(name) for name in BODIES))
    command = [*find_compiler().command, "-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC", str(folder / "hand.cpp")]
    subprocess.run([*command, "-o", str(folder / "hand.so")], check=True)
    return ctypes.CDLL(str(folder / "hand.so"))


def arguments(name: str) -> list[Any]:
    """Arrays of float32, N x N, and scalars, in the order of the parameters."""
    random = np.random.default_rng(0)
    size = N * N
    values: list[Any] = []
    for param in BODIES[name][0].split(","):
        if "*" in param:
            values.append(random.random(size, np.float32))
        else:
            values.append(np.float32(0.04) if "float" in param else np.int32(size if name.startswith("saxpy") else N))
    return values


def foreign(value: Any) -> Any:
    """The argument as ctypes passes it."""
    if value.shape:
        return value.ctypes.data_as(ctypes.c_void_p)
    return ctypes.c_float(value) if value.dtype == np.float32 else ctypes.c_int(value)


def runners(name: str, host: Host, library: ctypes.CDLL) -> tuple[Callable[[], None], Callable[[], None]]:
    kernel = primal_of(parse(SourceFile("benchmark.cu", cuda(name))).kernel(symbol(name)))
    values = arguments(name)
    grid, block = ((N * N // 256, 1, 1), (256, 1, 1)) if name.startswith("saxpy") else ((N // 32, N // 8, 1), (32, 8, 1))
    ours = [Memory(v) if v.shape else v for v in values]
    copies = [v.copy() for v in values]
    theirs = [foreign(c) for c in copies]
    function = library[symbol(name)]
    host.launch(kernel, grid, block, ours)
    function(*theirs)
    for a, b in zip(values, copies, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return lambda: host.launch(kernel, grid, block, ours), lambda: function(*theirs)


def timed(run: Callable[[], None], repeats: int = 10) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats * 1e3


def measured(rounds: int = 5, repeats: int = 7) -> Iterator[tuple[str, float, float]]:
    """For each loop its name and the milliseconds by hand and generated: the lower of `rounds` medians of `repeats` pairs."""
    host, library = Host(workers=1), compiled()
    for name in BODIES:
        ours, theirs = runners(name, host, library)
        medians: list[tuple[float, float]] = []
        for _ in range(rounds):
            pairs = [(timed(theirs), timed(ours)) for _ in range(repeats)]
            medians.append((statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs)))
        yield name, min(m[0] for m in medians), min(m[1] for m in medians)


def main() -> None:
    print(f"{'kernel':<20}{'by hand ms':>12}{'generated ms':>14}{'share':>8}")
    for name, hand, generated in measured():
        print(f"{name:<20}{hand:>12.3f}{generated:>14.3f}{hand / generated:>8.2f}")


if __name__ == "__main__":
    main()
