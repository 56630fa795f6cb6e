"""What a program saves is the fewest bytes that its adjoints can do with, however its kernels are worded; and the gradient is that with all
saved that is overwritten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, pipeline

THREADS = 20  # with a guard, in blocks of 8
GUARD = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"


@dataclass(frozen=True)
class Program:
    """A launch of a kernel with this body, in whose words `real` is the type of arrays of so many elements a thread, then those of its
    `lost` arrays that other launches overwrite. `values`: bytes a thread that are saved, for doubles and for floats."""

    body: str
    arrays: Mapping[str, int]
    lost: tuple[str, ...]
    values: tuple[float, float]
    before: str = ""
    index: str = GUARD
    parameters: str = ""
    threads: int = THREADS
    more: Mapping[str, Any] = field(default_factory=dict)


DIFFERENCE = "real div = a[i] - b[i] + c[i] - d[i] + e[i] - f[i]; p[i] -= (real)0.1 * rho[i] * v[i] * v[i] * div;"
SIX = dict.fromkeys(("p", "rho", "v", *"abcdef"), 1)
MAXIMUM = "for (int k = 0; k < 5; k++) if (x[k * n + i] > y[i]) y[i] = x[k * n + i];"
RECURRENCE = "real s = 0; for (int t = 0; t < 5; t++) { s = sin(s) + x[i * 5 + t]; x[i * 5 + t] = s; } out[i] += s;"
PRODUCT = "real s = 1; for (int t = 0; t < 5; t++) { s *= x[i * 5 + t]; x[i * 5 + t] = s; } out[i] += s;"
PROGRAMS = {
    "a sine of a sum": Program("y[i] = sin(x[i] + x[n + i] + x[2 * n + i]);", {"y": 1, "x": 3}, ("x",), (8, 4)),
    "a sine of a sum with a name": Program("real s = x[i] + x[n + i] + x[2 * n + i]; y[i] = sin(s);", {"y": 1, "x": 3}, ("x",), (8, 4)),
    "index by division": Program(
        "y[i] = sin(x[(i / 4) * 12 + i % 4] + x[(i / 4) * 12 + 4 + i % 4] + x[(i / 4) * 12 + 8 + i % 4]);", {"y": 1, "x": 3}, ("x",), (8, 4)
    ),
    "sums of three arrays": Program("real s = a[i] + b[i] + d[i]; y[i] = exp(s);", dict.fromkeys("yabd", 1), ("a", "b", "d"), (8, 4)),
    "sums of three arrays, the last first": Program("y[i] += exp(a[i] + b[i] + d[i]);", dict.fromkeys("yabd", 1), ("d", "b", "a"), (8, 4)),
    "a difference of six arrays": Program(DIFFERENCE, SIX, tuple("abcdef"), (8, 4)),
    "a difference without a name": Program(
        "p[i] -= (real)0.1 * rho[i] * v[i] * v[i] * (a[i] - b[i] + c[i] - d[i] + e[i] - f[i]);", SIX, tuple("fedcba"), (8, 4)
    ),
    "a choice": Program("if (x[i] > y[i]) y[i] = x[i];", {"y": 1, "x": 1}, (), (1, 1)),
    "a rectifier": Program("x[i] = x[i] > 0 ? x[i] : (real)0.1 * x[i];", {"x": 1}, (), (1, 1)),
    "a running maximum in memory": Program(MAXIMUM, {"y": 1, "x": 5}, (), (4, 4)),
    "a running maximum of a branch": Program(
        "for (int k = 0; k < 5; k++) { real v = x[k * n + i]; if (v > y[i]) { y[i] = v; } }", {"y": 1, "x": 5}, ("x",), (4, 4)
    ),
    "a running maximum by a function": Program(
        "for (int k = 0; k < m; k++) y[i] = fmax(y[i], x[k * n + i]);", {"y": 1, "x": 5}, ("x",), (4, 4),
        parameters=", int m", more={"m": 5},
    ),
    "a softmax that divides in place": Program(
        "real m = x[i * 5], s = 0; for (int k = 1; k < 5; k++) m = fmax(m, x[i * 5 + k]);"
        "for (int k = 0; k < 5; k++) { x[i * 5 + k] = exp(x[i * 5 + k] - m); s += x[i * 5 + k]; }"
        "for (int k = 0; k < 5; k++) x[i * 5 + k] /= s;", {"x": 5}, (), (12, 8),
    ),
    "rows of length one": Program(
        "real s = 0; for (int k = 0; k < 5; k++) s += x[i * 5 + k] * x[i * 5 + k]; s = sqrt(s);"
        "for (int k = 0; k < 5; k++) x[i * 5 + k] = x[i * 5 + k] / s;", {"x": 5}, (), (8, 4),
    ),
    "a recurrence that leaves its states": Program(RECURRENCE, {"x": 5, "out": 1}, (), (0, 0)),
    "a recurrence whose states are overwritten": Program(RECURRENCE, {"x": 5, "out": 1}, ("x",), (32, 16)),
    "a running product": Program(PRODUCT, {"x": 5, "out": 1}, (), (40, 20)),
    "a running product that is overwritten": Program(PRODUCT, {"x": 5, "out": 1}, ("x",), (40, 20)),
    "members of structs": Program(
        "y[i] = sin(p[i].a + p[i].b * p[i].c);", {"y": 1, "p": 3}, ("p",), (24, 12), before="struct P { real a, b, c; };"
    ),
    "a sum over members": Program(
        "y[i] = sin(p[i].a + p[i].b + p[i].c);", {"y": 1, "p": 3}, ("p",), (8, 4), before="struct P { real a, b, c; };"
    ),
    "a smaller value within a loop": Program(
        "real m = x[i]; int c = 0; for (int k = 0; k < 3; k++) c += (short)(m * 20 * w[k * n + i]); y[i] += c * z[i];",
        {"y": 1, "w": 3, "x": 1, "z": 1}, ("x",), (4, 4),
    ),
    "a branch": Program("if (i % 2) y[i] = exp(x[i] + x[n + i]); else y[i] = x[i];", {"y": 1, "x": 2}, ("x",), (8, 4)),
    "whole numbers are not divided where they are not": Program(
        "int k = (int)(x[n + i] * 3); if (k != 0) y[i] = x[i] * (short)(6 / k);", {"y": 1, "x": 2}, ("x",), (4, 4)
    ),
}  # fmt: skip


def compiled(program: Program, real: str) -> Any:
    kinds = {name: "P" if "struct P" in program.before and name == "p" else real for name in program.arrays}
    parameters = ", ".join(f"{kind}* {name}" for name, kind in kinds.items())
    text = f"""typedef {real} real; {program.before}
    extern "C" __global__ void k({parameters}, int n{program.parameters}) {{ {program.index} {program.body} }}
    extern "C" __global__ void lose({real}* x, int n) {{ {GUARD} x[i] = (real)0.5; }}"""
    return gpuad.kernel(text, "k"), gpuad.kernel(text, "lose")


def fields(program: Program, real: str) -> dict[str, Any]:
    dtype = np.dtype(np.float64 if real == "double" else np.float32)
    rng, n = np.random.default_rng(4), program.threads
    return {
        name: Duplicated(a, np.zeros_like(a))
        for name, size in program.arrays.items()
        for a in [rng.uniform(-0.9, 0.9, size * n).astype(dtype)]
    }


def reversed_once(tape: gpuad.Tape, program: Program, real: str, times: int = 1) -> list[Any]:
    """The shadows of all arrays at the beginning, from seeds in all that is left at the end."""
    kernel, lose = compiled(program, real)
    pairs, start = fields(program, real), fields(program, real)
    for _ in range(times):
        for name, pair in pairs.items():
            pair.primal[...] = start[name].primal
        with tape:
            kernel[-(-program.threads // 8), 8](
                *(_passed(program, name, p) for name, p in pairs.items()), program.threads, *program.more.values()
            )
            for name in program.lost:
                lose[-(-pairs[name].primal.size // 8), 8](pairs[name], pairs[name].primal.size)
        for name, pair in pairs.items():
            pair.shadow[...] = np.random.default_rng(len(name)).standard_normal(pair.shadow.size)
        tape.reverse()
    return [p.shadow.copy() for p in pairs.values()]


def _passed(program: Program, name: str, pair: Any) -> Any:
    if "struct P" not in program.before or name != "p":
        return pair
    kind = np.dtype([(member, pair.primal.dtype) for member in "abc"])
    return Duplicated(pair.primal.view(kind), pair.shadow.view(kind))


@pytest.mark.one_of(4)
@pytest.mark.parametrize("real", ["double", "float"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_saved_bytes_and_gradient(name: str, real: str, executor: Any) -> None:
    program = PROGRAMS[name]
    with pipeline.executor_for_tests(executor):
        tape = gpuad.Tape()
        found = reversed_once(tape, program, real, 3)
        wanted = reversed_once(gpuad.Tape(save="all"), program, real)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13 if real == "double" else 2e-6, atol=1e-14)
    assert any(np.abs(a).max() > 0 for a in found)
    assert tape.stats.saved_bytes == program.values[real == "float"] * program.threads
