"""Stored programs run without gpuad, to the same bits as the tape's own reverse."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nightly import NIGHTLY, share

import gpuad
from gpuad import Active, Duplicated
from gpuad.errors import TapeError

SOURCE = r"""
#define I int i = blockIdx.x * blockDim.x + threadIdx.x
#define K extern "C" __global__ void
K stencil(double* v, const double* u, int n) {
    I; if (i > 0 && i < n - 1) v[i] = 0.3 * u[i - 1] * u[i] + 0.2 * u[i] * u[i] - 0.1 * u[i + 1] * u[i];
}
K decay(double* x, int n) { I; if (i < n) x[i] = exp(-0.5 * x[i]); }
K sine(double* x, int n) { I; if (i < n) x[i] = sin(x[i]) + 0.5 * x[i]; }
K scaled(float* y, const float* x, float a, unsigned char shift, int n) { I; if (i < n) y[i] += a * x[i] * x[i] + (float)shift; }
K powers(double* x, int times, int n) { I; if (i < n) for (int j = 0; j < times; ++j) x[i] = 0.8 * x[i] * x[i] + 0.2; }
K iterate(double* x, const int* counts, int n) {
    I; if (i >= n) return;
    double s = x[i];
    for (int j = 0; j < counts[i]; ++j) s = sin(s) * s + 0.5;
    x[i] = s;
}
K plane(double* v, const double* u, int rows, int columns, int pitch) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows) return;
    int k = y * pitch + x;
    v[k] = 0.4 * u[k] * u[k] + 0.1 * (u[k - 1] + u[k + 1] - u[k - pitch] * u[k + pitch]);
}
K exchange(double* x, double* y, int n) { I; if (i < n) { double t = x[i]; x[i] = y[i] * y[i]; y[i] = t * t; } }
K scatter(double* y, const double* x, const int* index, int n) { I; if (i < n) atomicAdd(&y[index[i]], 0.1 * x[i] * x[i]); }
K count(double* y, const double* x, int* at, int n) { I; if (i < n) { int k = atomicAdd(at, 1); y[k] = x[i] * x[i]; } }
K greatest(double* y, const double* x, int n) {
    I; for (; i < n; i += gridDim.x * blockDim.x)
        for (int c = 0; c < 2; ++c) atomicMax((long long*)&y[(i + c) % 3], __double_as_longlong(x[i] * x[i] * (c + 1)));
}
K tile(double* x, int n) {
    __shared__ double s[32];
    I; s[threadIdx.x] = i < n ? x[i] * x[i] : 0.0;
    __syncthreads();
    if (i < n) x[i] = 0.5 * s[threadIdx.x] * s[(threadIdx.x + 1) % blockDim.x] + 0.3;
}
K dynamic(double* x, int n) {
    extern __shared__ double s[];
    I; s[threadIdx.x] = i < n ? sin(x[i]) : 0.0;
    for (int k = 0; k < 4; ++k) {
        int step = 1 << k;
        __syncthreads();
        double before = threadIdx.x >= step ? s[threadIdx.x - step] : 0.0;
        __syncthreads();
        s[threadIdx.x] += 0.1 * before;
    }
    if (i < n) x[i] = s[threadIdx.x] * x[i];
}
K warp(double* x, int n) {
    I; double v = i < n ? x[i] * x[i] : 0.0;
    for (int k = 0; k < 5; ++k) v += 0.1 * __shfl_xor_sync(0xffffffff, v, 1 << k);
    if (i < n) x[i] = 0.2 * v;
}
K tile_reverse_in_blocks_of_32_1_1(double* x, int n) { I; if (i < n) x[i] = 0.7 * x[i] * x[i]; }
"""
RUNNER = """
import sys
import numpy as np


class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("gpuad", "clang"):
            raise ImportError(name)


sys.meta_path.insert(0, Blocker())
sys.path.insert(0, sys.argv[1])
import program

program.FLAGS = (*program.FLAGS, *sys.argv[3:])
arrays, shadows = (dict(np.load(f"{sys.argv[1]}/{name}.npz")) for name in ("arrays", "shadows"))
if sys.argv[2] == "clear":
    kept = {name: s.copy() for name, s in shadows.items()}
    program.clear(arrays, shadows)
    for name in np.load(f"{sys.argv[1]}/seeds.npz"):
        shadows[name][...] = np.load(f"{sys.argv[1]}/seeds.npz")[name]
program.reverse(arrays, shadows)
assert not any(name.split(".")[0] == "gpuad" for name in sys.modules)
np.savez(f"{sys.argv[1]}/result.npz", **{f"array {n}": a for n, a in arrays.items()}, **{f"shadow {n}": s for n, s in shadows.items()})
"""


@cache
def kernel(name: str) -> Any:
    return gpuad.kernel(SOURCE, name)


def launched(folder: Path, how: str = "raw") -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, "-I", "-c", RUNNER, str(folder), how, *([] if NIGHTLY else ["-O0"])]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=clean, cwd=folder)


def same_bits(folder: Path, tape: gpuad.Tape, pairs: dict[str, Duplicated], others: dict[str, Any], cotangents: dict[str, Any]) -> None:
    """Stores, runs elsewhere, reverses here, compares every bit; the seeds are put in after clearing, as `reverse(seeds)` does."""
    tape.save(folder, {**pairs, **others})
    np.savez(folder / "arrays.npz", **{n: p.primal for n, p in pairs.items()}, **others)
    np.savez(folder / "shadows.npz", **{n: p.shadow for n, p in pairs.items()})
    np.savez(folder / "seeds.npz", **cotangents)
    run = launched(folder, "clear")
    assert run.returncode == 0, run.stderr
    tape.reverse({pairs[n]: w for n, w in cotangents.items()})
    found = np.load(folder / "result.npz")
    assert any(pair.shadow.any() for pair in pairs.values())
    for name, pair in pairs.items():
        assert found[f"shadow {name}"].tobytes() == pair.shadow.tobytes(), name
        assert found[f"array {name}"].tobytes() == pair.primal.tobytes(), name


def pair(n: Any, seed: int, dtype: Any = np.float64) -> Duplicated:
    rng = np.random.default_rng(seed)
    return Duplicated(rng.uniform(0.5, 1.5, n).astype(dtype), rng.uniform(0.5, 1.5, n).astype(dtype))


def weights(n: Any, seed: int = 9) -> Any:
    return np.random.default_rng(seed).uniform(0.5, 1.5, n)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("restore", [False, True])
@pytest.mark.parametrize("save", ["needed", "all"])
def test_ping_pong(tmp_path: Path, restore: bool, save: str) -> None:
    n, u, v = 100, pair(100, 1), pair(100, 2)
    tape = gpuad.Tape(restore=restore, save=save)
    now, old = u, v
    with tape:
        for _ in range(5):
            kernel("stencil")[4, 32](old, now, n)
            now, old = old, now
    assert tape.stats.saved_bytes > 0
    same_bits(tmp_path, tape, {"u": u, "v": v}, {}, {"u": weights(n), "v": weights(n, 8)})


@pytest.mark.cpu
@pytest.mark.parametrize("name", ["decay", "sine"])
def test_in_place(tmp_path: Path, name: str) -> None:
    n, x = 77, pair(77, 3)
    tape = gpuad.Tape()
    with tape:
        for _ in range(3):
            kernel(name)[3, 32](x, n)
    same_bits(tmp_path, tape, {"x": x}, {}, {"x": weights(n)})


@pytest.mark.cpu
@pytest.mark.parametrize("restore", [False, True])
def test_threads_that_wait_for_one_another(tmp_path: Path, restore: bool) -> None:
    """On a CPU the text is that for blocks of these extents; here two kinds of them, and a kernel that has the name of such a text."""
    n, x = 90, pair(90, 3)
    tape = gpuad.Tape(restore=restore)
    with tape:
        for block in (32, 16, 32):
            kernel("tile")[6, block](x, n)
            kernel("dynamic")((6,), (block,), (x, n), shared_mem=8 * block)
            kernel("warp")[3, 32](x, n)
        kernel("tile_reverse_in_blocks_of_32_1_1")[3, 32](x, n)
    same_bits(tmp_path, tape, {"x": x}, {}, {"x": weights(n)})


def test_scalars(tmp_path: Path) -> None:
    n, x, y = 50, pair(50, 4, np.float32), pair(50, 5, np.float32)
    tape = gpuad.Tape()
    with tape:
        kernel("scaled")[2, 32](y, x, np.float32(0.1), np.uint8(200), n)
        kernel("scaled")[2, 32](x, y, np.float32(-0.7), np.uint8(3), n)
    same_bits(tmp_path, tape, {"x": x, "y": y}, {}, {"x": weights(n).astype(np.float32), "y": weights(n).astype(np.float32)})


@pytest.mark.cpu
def test_active_scalar(tmp_path: Path) -> None:
    n, x, y, shadow = 50, pair(50, 4, np.float32), pair(50, 5, np.float32), np.zeros((), np.float32)
    tape = gpuad.Tape()
    with tape:
        kernel("scaled")[2, 32](y, x, Active(np.float32(0.1), shadow), np.uint8(1), n)
    tape.save(tmp_path)
    np.savez(tmp_path / "arrays.npz", x=x.primal, y=y.primal)
    np.savez(tmp_path / "shadows.npz", x=x.shadow, y=y.shadow, a=shadow)
    run = launched(tmp_path)
    assert run.returncode == 0, run.stderr
    tape.reverse()
    found = np.load(tmp_path / "result.npz")
    assert shadow != 0
    for name, expected in (("x", x.shadow), ("y", y.shadow), ("a", shadow)):
        assert found[f"shadow {name}"].tobytes() == expected.tobytes()


def test_stacks_of_known_depth(tmp_path: Path) -> None:
    n, x = 70, pair(70, 6)
    tape = gpuad.Tape()
    with tape:
        kernel("powers")[3, 32](x, 40, n)
        kernel("powers")[3, 32](x, 3, n)
    same_bits(tmp_path, tape, {"x": x}, {}, {"x": weights(n)})
    program = json.loads((tmp_path / "program.json").read_text())
    assert any(operation["scratch"] for operation in program["operations"])


def test_inner_plane_and_views(tmp_path: Path) -> None:
    shape = (12, 20)
    u, v = pair(shape, 1), pair(shape, 2)
    tape = gpuad.Tape()
    now, old = u, v
    with tape:
        for _ in range(4):
            kernel("plane")[(2, 1), (16, 16)](old[1:-1, 1:-1], now[1:-1, 1:-1], 10, 18, 20)
            now, old = old, now
    same_bits(tmp_path, tape, {"u": u, "v": v}, {}, {"u": weights(shape), "v": weights(shape, 3)})


def test_exchange_and_overwrites(tmp_path: Path) -> None:
    n, x, y = 40, pair(40, 1), pair(40, 2)
    tape = gpuad.Tape()
    with tape:
        kernel("exchange")[2, 32](x, y, n)
        tape.overwrites(x[5:20])
        x.primal[5:20] = 2.0
        kernel("exchange")[2, 32](x, y, n)
    same_bits(tmp_path, tape, {"x": x, "y": y}, {}, {"x": weights(n), "y": weights(n, 3)})


def test_atomics(tmp_path: Path) -> None:
    n, x, y, index = 300, pair(300, 1), pair(7, 2), np.random.default_rng(0).integers(0, 7, 300).astype(np.int32)
    tape = gpuad.Tape()
    with tape:
        kernel("scatter")[10, 32](y, x, index, n)
        kernel("decay")[10, 32](x, n)
    same_bits(tmp_path, tape, {"x": x, "y": y}, {"index": index}, {"x": weights(n), "y": weights(7)})


def test_results_of_atomics(tmp_path: Path) -> None:
    n, x, y, at = 60, pair(60, 1), pair(60, 2), np.zeros(1, np.int32)
    tape = gpuad.Tape()
    with tape:
        kernel("count")[2, 32](y, x, at, n)
        kernel("decay")[2, 32](x, n)
    same_bits(tmp_path, tape, {"x": x, "y": y}, {"at": at}, {"x": weights(n), "y": weights(n)})
    assert "saved" in (tmp_path / "program.py").read_text().splitlines()[-1]


def test_atomic_maxima_in_loops(tmp_path: Path) -> None:
    """What is written down has an element for each thread and iteration; the last content of one launch is overwritten by the next."""
    n, x, y = 60, pair(60, 1), pair(3, 2)
    tape = gpuad.Tape()
    with tape:
        for _ in range(2):
            kernel("greatest")[2, 8](y, x, n)
            kernel("decay")[1, 3](y, 3)
        kernel("decay")[2, 32](x, n)
    same_bits(tmp_path, tape, {"x": x, "y": y}, {}, {"x": weights(n), "y": weights(3)})
    assert np.count_nonzero(x.shadow) > 0


def loaded(folder: Path) -> Any:
    """The stored program as a module of this process."""
    spec = importlib.util.spec_from_file_location("stored_program", folder / "program.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_on_arrays_of_cupy(cupy: Any, tmp_path: Path) -> None:
    n = 100
    u, v, x = (Duplicated(cupy.asarray(weights(n, k)), cupy.zeros(n)) for k in (1, 2, 3))
    tape = gpuad.Tape()
    now, old = u, v
    with tape:
        for _ in range(4):
            kernel("stencil")[4, 32](old, now, n)
            now, old = old, now
        kernel("powers")[4, 32](x, 9, n)
        kernel("sine")[4, 32](x, n)
    pairs = {"u": u, "v": v, "x": x}
    tape.save(tmp_path, pairs)
    program, shadows = loaded(tmp_path), {name: cupy.ones(n) for name in pairs}
    arrays = {name: p.primal for name, p in pairs.items()}
    program.clear(arrays, shadows)
    for name in pairs:
        shadows[name].fill(0.5)
    program.reverse(arrays, shadows)
    tape.reverse(dict.fromkeys(pairs.values(), 0.5))
    for name, p in pairs.items():
        assert shadows[name].get().tobytes() == p.shadow.get().tobytes()
        assert p.shadow.get().any()


def recorded_decay() -> tuple[gpuad.Tape, Duplicated]:
    x = pair(30, 3)
    tape = gpuad.Tape()
    with tape:
        kernel("sine")[1, 32](x, 30)
        kernel("sine")[1, 32](x, 30)
    return tape, x


def stored(folder: Path, change: Callable[[Any], None] = lambda x: None) -> str:
    """The last line of what a run of a stored program says, after a change of its array."""
    tape, x = recorded_decay()
    tape.save(folder)
    change(x)
    np.savez(folder / "arrays.npz", x=x.primal)
    np.savez(folder / "shadows.npz", x=x.shadow)
    return launched(folder).stderr


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    assert stored(tmp_path) == ""
    for name in ("kernels.cpp", "saved.bin", "program.json"):
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        assert f"StoredError: {name} has been changed" in launched(tmp_path).stderr
        (tmp_path / name).write_bytes(data)


def test_changed_live_memory_is_refused(tmp_path: Path) -> None:
    x = pair(30, 3)
    tape = gpuad.Tape()
    with tape:
        kernel("decay")[1, 32](x, 30)  # its adjoint reads the result
    tape.save(tmp_path)
    x.primal[4] += 1e-9
    np.savez(tmp_path / "arrays.npz", x=x.primal)
    np.savez(tmp_path / "shadows.npz", x=x.shadow)
    assert "`x` does not hold what it held" in launched(tmp_path).stderr


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "there is no array `x`"),
        ({"x": np.zeros(29)}, "has 232 bytes, not 240"),
        ({"x": np.zeros(60, np.float32)}, "is of float32, not float64"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    stored(tmp_path)
    np.savez(tmp_path / "arrays.npz", **arrays)
    assert message in launched(tmp_path).stderr


def test_depth_that_depends_on_data_is_refused(tmp_path: Path) -> None:
    x, counts = pair(40, 1), np.arange(40, dtype=np.int32)
    tape = gpuad.Tape()
    with tape:
        kernel("iterate")[2, 32](x, counts, 40)
    with pytest.raises(TapeError, match=r"operation iterate \(test_save.py:\d+\) cannot be stored"):
        tape.save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def _doubled_reverse(dx: Any, dy: Any) -> None:
    dx += 2.0 * dy


@gpuad.rule(reads=("x",), overwrites=("y",), reverse=_doubled_reverse)
def doubled(x: Any, y: Any) -> None:
    np.multiply(x, 2.0, out=y)


def products(x: Any, w: Any, v: Any) -> None:
    gpuad.ops.matmul(x, w, out=x)
    gpuad.ops.gemm(0.5, x, w.T, 2.0, w)
    v[...] = x[0] @ w
    x *= 0.1
    gpuad.ops.solve_triangular(w, x[:, :2], lower=True, out=x[:, 1:3])
    x -= gpuad.ops.einsum("ij,jk,k->ik", x, w, v) * 0.1


def temporaries(x: Any, w: Any, v: Any) -> None:
    y = np.exp(-x) * w + v
    z = y * y + x
    y -= z[::-1]
    x[...] = np.where(y.primal > 0, y * z, z.astype(np.float32))
    w += (x - x.mean(axis=0)) / (x.std(axis=0) + 1.0)


def indices(x: Any, w: Any, v: Any) -> None:
    order = np.array([3, 0, 2, 1])
    x[order] = w[order[::-1]]
    gpuad.ops.scatter_add(w, np.array([0, 0, 2]), x[1:])
    v += x[np.array([1, 1, 2, 3]), order] * w[:, 2]
    x[w.primal > 1.0] = 0.5
    gpuad.ops.sort(x, axis=0, out=x)
    w[...] = gpuad.ops.cumsum(gpuad.ops.take(x, [0, 0, 3, 1], axis=1), axis=0)
    v *= gpuad.ops.max(w, axis=1) * x.prod(axis=0)


def spectra(x: Any, w: Any, v: Any) -> None:
    for _ in range(2):
        spectrum = gpuad.ops.rfft(x)
        spectrum *= np.arange(3.0)
        spectrum[1] += 1j * gpuad.ops.rfft(v)
        x[...] = gpuad.ops.irfft(spectrum) + w
        z = gpuad.ops.fft2(x) / 4.0
        w += gpuad.ops.absolute(z) * z.real
        v -= gpuad.ops.conj(z * z)[0].imag


def own_rules(x: Any, w: Any, v: Any) -> None:
    doubled(x, w)
    scaled_by(w, 0.25, (1, "half"), x)
    doubled(w[1:3], x[:2])
    kernel("sine")[1, 32](v, 4)


PROGRAMS = [products, temporaries, indices, spectra, own_rules]


def _scaled_reverse(dx: Any, dy: Any, factor: float, way: Any, room: Any) -> None:
    between = room(dy.shape, dy.dtype)
    np.multiply(dy, factor * HALVES[way[1]] * way[0], out=between)
    dx += between


HALVES = {"half": 0.5}


@gpuad.rule(reads=("x",), overwrites=("y",), reverse=_scaled_reverse)
def scaled_by(x: Any, factor: float, way: Any, y: Any) -> None:
    np.multiply(x, factor * 0.5, out=y)


RULED = share([(p, restore) for p in PROGRAMS for restore in (False, True)], 3)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("program", "restore"), RULED, ids=[f"{p.__name__}-{restore}" for p, restore in RULED])
def test_programs_with_rules(tmp_path: Path, program: Any, restore: bool) -> None:
    x, w, v = pair((4, 4), 1), pair((4, 4), 2), pair(4, 3)
    tape = gpuad.Tape(restore=restore)
    with tape:
        program(x, w, v)
    same_bits(tmp_path, tape, {"x": x, "w": w, "v": v}, {}, {"x": weights((4, 4)), "v": weights(4)})
    listed = json.loads((tmp_path / "program.json").read_text())
    brought = {kind: {e["name"] for e in listed[kind] if not e["own"]} for kind in ("arrays", "shadows")}
    assert brought == {"arrays": {"x", "w", "v"}, "shadows": {"x", "w", "v"}}, "temporaries are the program's own"


def test_a_temporary_may_be_named(tmp_path: Path) -> None:
    x, tape = pair(10, 1), gpuad.Tape()
    with tape:
        y = x * x
        y *= np.exp(x)
    same_bits(tmp_path, tape, {"x": x, "y": y}, {}, {"y": weights(10)})


def test_the_reverses_of_rules_are_text(tmp_path: Path) -> None:
    a, b, tape = pair((3, 3), 1), pair((3, 3), 2), gpuad.Tape()
    with tape:
        c = a @ b
    tape.save(tmp_path, {"a": a, "b": b, "c": c})
    text = (tmp_path / "program.py").read_text()
    assert "def _matmul_reverse(a: Any" in text and "def add_to(" in text and "gpuad." not in text.partition("# --- the program")[2]
    assert text.splitlines()[-1].startswith("    machine.run(0, _matmul_reverse)  # _matmul_reverse(a, b, da, db, dc, room) # test_save.py")


SECRET = object()


def _uses_an_object(dx: Any, dy: Any) -> None:
    dx += dy if SECRET else 0


def _uses_gpuad(dx: Any, dy: Any) -> None:
    dx += gpuad.ops.exp(dy)


def value(dy: Any) -> Any:
    return dy


def _uses_a_taken_name(dx: Any, dy: Any) -> None:
    dx += value(dy)


def _uses_an_unknown_name(dx: Any, dy: Any) -> None:
    dx += nowhere(dy)  # type: ignore[name-defined]  # noqa: F821


def _takes_an_object(dx: Any, dy: Any, what: Any) -> None:
    dx += dy


@pytest.mark.parametrize(
    ("reverse", "what", "message"),
    [
        (_uses_an_object, 0, "`SECRET`, a object that cannot be written down"),
        (_uses_gpuad, 0, "the module gpuad"),
        (_uses_a_taken_name, 0, "`value`.* is a name of the stored program"),
        (_uses_an_unknown_name, 0, "`nowhere`, which has no meaning"),
        (_takes_an_object, SECRET, "is given `what`, a object"),
    ],
)
def test_rules_that_cannot_be_written_down_are_refused(tmp_path: Path, reverse: Any, what: Any, message: str) -> None:
    def function(x: Any, y: Any, what: Any) -> None:
        y[...] = x

    rule = gpuad.rule(reads=("x",), overwrites=("y",), reverse=reverse)(function)
    x, y, tape = pair(10, 1), pair(10, 2), gpuad.Tape()
    with tape:
        rule(x, y, what)
    with pytest.raises(TapeError, match=message):
        tape.save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_two_functions_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text("def _doubled_reverse(dx, dy):\n    dx += 3 * dy\n")
    spec = importlib.util.spec_from_file_location("elsewhere", tmp_path / "elsewhere.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    other = gpuad.rule(reads=("x",), overwrites=("y",), reverse=module._doubled_reverse)(lambda x, y: None)
    x, y, tape = pair(10, 1), pair(10, 2), gpuad.Tape()
    with tape:
        doubled(x, y)
        other(y, x)
    with pytest.raises(TapeError, match="are called '_doubled_reverse'"):
        tape.save(tmp_path / "new")


def test_only_a_recorded_tape_is_stored(tmp_path: Path) -> None:
    tape, x = recorded_decay()
    tape.save(tmp_path)
    tape.reverse({x: 1.0})
    with pytest.raises(TapeError, match="reversed already"):
        tape.save(tmp_path)
    with pytest.raises(TapeError, match="empty"):
        gpuad.Tape().save(tmp_path)


def test_the_program_is_flat(tmp_path: Path) -> None:
    tape, x = recorded_decay()
    tape.save(tmp_path, {"state": x})
    lines = (tmp_path / "program.py").read_text().splitlines()
    assert [line.split("#")[0].strip() for line in lines[-2:]] == ["machine.run(0)", "machine.run(1)"]
    assert "state" in lines[-1] and "test_save.py" in lines[-1]
    assert "gpuad." not in "".join(line for line in lines if line.startswith(("import", "from")))


def test_names_of_foreign_arrays_are_refused(tmp_path: Path) -> None:
    tape, _ = recorded_decay()
    with pytest.raises(TapeError, match="`z` is not memory of this recording"):
        tape.save(tmp_path, {"z": np.zeros(3)})
