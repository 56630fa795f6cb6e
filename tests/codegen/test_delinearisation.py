"""Division on the CPU: for every pair of integers what PTX says, and threads that divide their index run row by row."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from gpuad.codegen import host_source
from gpuad.frontend.cuda import parse
from gpuad.ir.nodes import Kernel
from gpuad.pipeline.passes import primal_of
from gpuad.runtime.base import Memory
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference
from gpuad.source import SourceFile

THREAD = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
BY_ROWS = {
    "a row and a column": f"{THREAD} if (i < n) y[i] = x[i / w] + 100.0f * (i % w);",
    "neighbours in a row": f"{THREAD} int c = i % w; if (i < n && c > 0 && c < w - 1) y[i] = x[i - 1] + x[i + 1] - x[i / w];",
    "neighbours, several guards": f"""{THREAD} int c = i % w; float s = x[i];
        if (c > 0) s += x[i - 1]; if (c + 1 < w) s += 2 * x[i + 1]; y[i] = s;""",
    "planes": f"{THREAD} int z = i / (w * 3), r = i % (w * 3), b = r / w, a = i % w; y[i] = x[z] + 10 * b + 1000 * a + r;",
    "only a row": f"{THREAD} y[i] = x[i / w];",
    "unsigned": "unsigned i = blockIdx.x * blockDim.x + threadIdx.x, v = w; y[i] = x[i % v % 99u] + (i / v) % 99u;",
    "64 bits": "long long i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = x[i / w % 99] + i % w % 99;",
    "a number": f"{THREAD} y[i] = x[i / 48] + i % 48;",
    "an addition to a place of the row": f"{THREAD} if (i < n) atomicAdd(&y[(i / w) & 7], x[i % w & 63]);",
    "a loop in a row": f"{THREAD} float s = 0; for (int k = 0; k < 5; ++k) s += x[i / w + k] * x[i % w & 63]; y[i] = s;",
    "a grid-stride loop": f"for ({THREAD} i < n; i += gridDim.x * blockDim.x) y[i] = x[i / w] + i % w;",
}
AS_BEFORE = {
    "a short row": f"{THREAD} y[i] = x[i / 3] + i % 3;",
    "a width of the thread's own": f"{THREAD} y[i] = i / (int)x[i];",
    "another number": f"{THREAD} y[i] = x[(i + 1) / w & 63];",
    "a sum over threads": f"{THREAD} y[i] = x[threadIdx.x / w & 63];",
}
N = 300
WIDTHS = (1, 2, 7, 64, 100, 299, 4000, 0, -1, -7, 2147483647)
HOST = Host(workers=2)


def made(body: str, name: str = "k", params: str = "const float* x, float* y, int n, int w") -> Kernel:
    return primal_of(parse(SourceFile("rows.cu", f'extern "C" __global__ void {name}({params}) {{\n{body}\n}}')).kernel(name))


@pytest.fixture(scope="module")
def kernels() -> dict[str, Kernel]:
    found = {name: made(body, f"k{k}") for k, (name, body) in enumerate((BY_ROWS | AS_BEFORE).items())}
    HOST.prepare(found.values())
    return found


def result(executor: Any, kernel: Kernel, width: int) -> Any:
    x, y = np.random.default_rng(1).integers(1, 9, 8 * N).astype(np.float32), np.zeros(N + 20, np.float32)
    executor.launch(kernel, (5, 1, 1), (64, 1, 1), [Memory(x, 4 * N), Memory(y), np.int32(N), np.int32(width)])
    return y


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", BY_ROWS | AS_BEFORE)
def test_rows_agree_with_the_reference(name: str, kernels: dict[str, Kernel]) -> None:
    assert ("gpuad_row_of<" in host_source([kernels[name]])) == (name in BY_ROWS)
    for width in WIDTHS:
        if width > 0 or name not in ("a row and a column", "neighbours in a row"):
            np.testing.assert_array_equal(
                result(HOST, kernels[name], width), result(Reference(check=False), kernels[name], width), err_msg=f"{width}"
            )


@pytest.mark.parametrize("kind", ["int32", "uint32", "int64", "uint64"])
def test_quotients_of_all_edges(kind: str) -> None:
    """x / 0 has all bits set, x % 0 is x, the least integer by -1 is itself."""
    info, random = np.iinfo(kind), np.random.default_rng(2)
    edges = {
        0,
        1,
        2,
        3,
        5,
        7,
        10,
        64,
        1000,
        46340,
        46341,
        65535,
        65536,
        info.max,
        info.max - 1,
        info.max // 2,
        info.max // 2 + 1,
        info.max // 3,
    }
    edges |= {int(e) for e in random.integers(info.min, info.max, 12, dtype=kind, endpoint=True)}
    edges |= {-e for e in edges if -e >= info.min} | {info.min}
    a, b = (np.array(side, kind) for side in zip(*itertools.product(sorted(edges), repeat=2), strict=True))
    c = {"int32": "int", "uint32": "unsigned", "int64": "long long", "uint64": "unsigned long long"}[kind]
    text = f"{THREAD} if (i >= n) return; q[i] = a[i] / b[i]; r[i] = a[i] % b[i];"
    kernel = made(text, "divide", f"const {c}* a, const {c}* b, {c}* q, {c}* r, int n")
    q, r = np.zeros_like(a), np.zeros_like(a)
    HOST.launch(kernel, (-(-a.size // 128), 1, 1), (128, 1, 1), [*map(Memory, (a, b, q, r)), np.int32(a.size)])
    for x, y, quotient, remainder in zip(a.tolist(), b.tolist(), q.tolist(), r.tolist(), strict=True):
        wanted = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else info.max if info.min == 0 else -1
        assert quotient == (info.min if wanted == -info.min and info.min else wanted), (x, y)
        assert remainder == (x - wanted * y), (x, y)
