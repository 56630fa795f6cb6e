"""Inactive state in a loop: what is recorded is the state, or what the derivative uses of it, whichever takes fewer bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from launch_tools import compiled, running

from gpuad import Duplicated
from gpuad.ir.nodes import Push
from gpuad.ir.rewrite import walk_stmts
from gpuad.ir.types import F64
from gpuad.pipeline.pattern import Pattern
from gpuad.testing import check_gradient

NEXT = "r = r * 1664525u + 1013904223u; q ^= r >> 3; p += q * 7u;"
DRAW = "double z = ((r ^ q) + p) * 2.3283064365386963e-10;"


@dataclass(frozen=True)
class Loop:
    """A loop over `t` with the state (r, q, p) of 12 bytes, v = x[i] and y[i] = v in the end; the bytes that an iteration records."""

    body: str
    recorded: int
    head: str = "for (int t = 0; t < 5; ++t)"


LOOPS = {
    "a number": Loop(f"{NEXT} {DRAW} v = sin(v * z) + v;", 8 + 4),
    "a number in a branch": Loop(f"double z = 0.25; if (r & 1u) {{ {NEXT} z = p * 1e-9; }} else r += 3u; v = sin(v * z) + v;", 8 + 8),
    "more numbers than state": Loop(
        f"{NEXT} {DRAW} double w = cos(z + r), u = exp(z * q * 1e-9); v = sin(v * z + w) * u + v * w * u;", 8 + 12
    ),
    "an index": Loop(f"{NEXT} int k = (int)(p >> 16) & 7; v = sin(v * x[k]) + v;", 8 + 4),
    "a decision": Loop(f"{NEXT} bool up = (p >> 7 & 1u) != 0u; v = up ? sin(v) : v * v * 0.25;", 8 + 1),
    "the state itself": Loop(f"{NEXT} v = sin(v * (r * 1e-9)) + v;", 8 + 4),
    "a loop that draws": Loop(f"double z = 0; for (int j = 0; j < 3; ++j) {{ {NEXT} z += p * 1e-10; }} v = sin(v * z) + v;", 8 + 8),
    "until it is drawn": Loop(
        f"double z; do {{ {NEXT} z = p * 2.3283064365386963e-10; }} while (z > 0.7); v = sin(v * z) + v * 0.5;", 8 + 8
    ),
    "a loop that data ends": Loop(f"{NEXT} {DRAW} v = sin(v * z) + v * 0.5;", 8 + 4, "int t = 0; while (v > 0.3 && t++ < 9)"),
    "left early": Loop(f"{NEXT} {DRAW} if (z > 0.9) break; v = sin(v * z) + v;", 8 + 4, "for (int t = 0; t < 9; ++t)"),
    "linear in v": Loop(f"{NEXT} {DRAW} v = v * z + z;", 4),
}


def text(loop: Loop) -> str:
    return f"""extern "C" __global__ void k(const double* x, double* y, const unsigned int* seed) {{
    int i = threadIdx.x;
    unsigned int r = seed[i], q = 17u * r, p = r ^ 99u;
    double v = x[i];
    {loop.head} {{ {loop.body} }}
    y[i] = v;
}}"""


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("way", ["usual", "everything recorded"])
def test_gradient(name: str, way: str) -> None:
    r = np.random.default_rng(0)
    with running("reference", way == "usual"):
        args = (Duplicated(r.uniform(0.5, 1.5, 16)), Duplicated(np.zeros(16)), r.integers(1, 2**32, 16, np.uint32))
        check_gradient(compiled(text(LOOPS[name]), "k"), args, grid=1, block=16, directions=1)


@pytest.mark.parametrize("name", LOOPS)
def test_what_an_iteration_records(name: str) -> None:
    made = compiled(text(LOOPS[name]), "k").reverse(Pattern((F64, F64, None)))
    found = sum(v.type.size for s in walk_stmts(made.unlaid) if isinstance(s, Push) for v in s.values)
    assert found == LOOPS[name].recorded


LOOP = f"for (int t = 0; t < 4; ++t) {{ {NEXT} {DRAW} v = sin(v * z) + v; }}"
DATA = f"for (int t = 0; t < (int)(r % 3u) + 2; ++t) {{ {NEXT} {DRAW} v = sin(v * z) + v; }}"
AROUND = {
    "in a branch": f"if (seed[i] % 3u) {{ {LOOP} }} v = v * v * 0.5 + (p & 7u);",
    "in both branches": f"if (v > 1.0) {{ {LOOP} }} else {{ {DATA} v *= 0.5; }} v = cos(v) + v;",
    "one after the other": f"{LOOP} v = v * v * 0.3; {DATA}",
    "in a loop": f"for (int s = 0; s < 3; ++s) {{ {DATA} if (v > 2) v = 2.5 - v * 0.1; }}",
    "in a branch in a loop": f"for (int s = 0; s < 3; ++s) {{ if (p & 1u) {{ {LOOP} }} v = sin(v) + 0.3 * v; p = p * 3u + r; }}",
    "beside stores": f"for (int t = 0; t < 4; ++t) {{ {NEXT} {DRAW} v = sin(v * z) + v; y[i] = v * z; x[i] = x[i] * z + v; }}",
    "state in an array": f"""unsigned int a[2] = {{r, q}};
        for (int t = 0; t < 6; ++t) {{ {NEXT} a[t & 1] ^= p; v = sin(v * a[(t + 1) & 1] * 1e-10) + v; }}""",
    "around barriers": f"""__shared__ double s[16]; for (int t = 0; t < 3; ++t) {{
        {NEXT} {DRAW} s[i] = v * z; __syncthreads(); v = sin(s[15 - i] * z) + v; __syncthreads(); }}""",
}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", AROUND)
def test_loops_among_other_things(name: str) -> None:
    r = np.random.default_rng(0)
    kernel = compiled(
        text(Loop("break;", 0)).replace("const double* x", "double* x").replace("y[i] = v;", f"{AROUND[name]} y[i] = v;"), "k"
    )
    with running("reference"):
        args = (Duplicated(r.uniform(0.5, 1.5, 16)), Duplicated(np.zeros(16)), r.integers(1, 2**32, 16, np.uint32))
        check_gradient(kernel, args, grid=1, block=16, directions=1, race_check=True)
