"""The inside of a gather whose neighbours lie around periodic edges: the CPU's loop over a row has none of the edges in its middle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gather_tools import agree, is_gathered, pairs, reverse
from launch_tools import compiled, running
from nightly import share

from gpuad import Duplicated
from gpuad.codegen.cpu.source import host_source

KERNEL = """extern "C" __global__ void k(const double* u, double* v, const double* c, int nx, int ny) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= nx || y >= ny) return;
    int o = y * nx + x;
    BODY
}"""
BODIES = {
    "chosen": "int l = x > 0 ? x - 1 : nx - 1, d = y > 0 ? y - 1 : ny - 1; v[o] += (u[o] - u[y * nx + l]) * c[o] + u[o] - u[d * nx + x];",
    "remainders": "v[o] += (u[o] - u[y * nx + (x - 1 + nx) % nx] + u[(y - 1 + ny) % ny * nx + x]) / c[o];",
    "both sides": "v[o] += c[o] * (u[y * nx + (x + 1) % nx] + u[y * nx + (x + nx - 1) % nx] + u[(y + 1) % ny * nx + x] - u[o]);",
    "one axis": "v[o] = u[y * nx + (x + 1) % nx] * c[o] + u[o] + u[y * nx + (x + nx - 1) % nx];",
    "two away": "v[o] = u[y * nx + (x + 2) % nx] * c[o] + u[o] + u[(y + ny - 2) % ny * nx + x];",
    "edges of their own": "if (x == 0) v[o] = u[o] * c[o]; else if (y == ny - 1) v[o] = u[o] + u[o - 1]; "
    "else v[o] = c[o] * (u[o - 1] + u[o] + u[o + nx]);",
}
SIZES = [(1, 1), (2, 1), (1, 5), (3, 2), (40, 9), (41, 1), (8, 8)]


def arguments(nx: int, ny: int) -> tuple[Any, ...]:
    u, v, c = pairs(nx + ny, (ny, nx), (ny, nx), (ny, nx))
    return u, v, Duplicated(np.abs(c.primal) + 0.5, c.shadow), nx, ny


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", share(list(BODIES), 2))
def test_gradients_around_edges(name: str) -> None:
    text = KERNEL.replace("BODY", BODIES[name])
    for nx, ny in SIZES:
        agree(text, (-(-nx // 8), -(-ny // 4)), (8, 4), lambda nx=nx, ny=ny: arguments(nx, ny))  # type: ignore[misc]


@pytest.mark.parametrize("name", ["chosen", "remainders", "both sides"])
def test_no_edge_is_in_the_middle(name: str) -> None:
    with running("host"):
        gathered, *_ = kernels = reverse(compiled(KERNEL.replace("BODY", BODIES[name]), "k"), (5, 3), (8, 4), arguments(40, 9))
    assert is_gathered(kernels)
    text = host_source([gathered])
    middle = text[text.index("gpuad_inner_k_gather(") :]
    middle = middle[: middle.index("\n}")]
    assert "if (" not in middle and "?" not in middle and "- nx)" not in middle and "- ny)" not in middle
