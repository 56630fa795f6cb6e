"""Kernels that can be taken back to the bit: which, that the inverse does it, and that a wrong one gets no certificate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, compiled

from gpuad.affine.effects import Shape
from gpuad.affine.inverse_certificate import takes_back
from gpuad.analysis.inverses import inverse
from gpuad.ir import nodes as ir
from gpuad.ir.rewrite import map_expr
from gpuad.ir.verify import verify
from gpuad.runtime.base import resolve

pytest.importorskip("islpy")
N = 21
HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
EXACT = {
    "negated": "double* x, int n|if (i < n) x[i] = -x[i];",
    "swapped": "double* x, double* y, int n|if (i >= n) return; double t = x[i]; x[i] = y[i]; y[i] = t;",
    "turned": "float* x, float* y, float* z, int n|if (i < n) { float a = x[i], b = y[i], c = z[i]; x[i] = b; y[i] = -c; z[i] = a; }",
    "flipped": "double* x, int n|if (i < n / 2) { double t = x[i]; x[i] = x[n - 1 - i]; x[n - 1 - i] = t; }",
    "halves": "float* x, int n|int h = n / 2; if (i < h) { float t = x[i]; x[i] = x[i + h]; x[i + h] = -t; }",
    "added": "int* x, int s, int n|if (i < n) x[i] += s + i;",
    "from": "unsigned* x, unsigned s, int n|if (i < n) x[i] = s - x[i];",
    "mixed": "unsigned* x, unsigned s, int n|if (i < n) x[i] = 7u - ((~x[i] ^ s) + i);",
    "long": "long long* x, int n|if (i < n) x[i] = -x[i] - 3;",
    "both": "double* x, double* y, int n|if (i < n) { x[i] = -x[i]; y[i] = -y[i]; }",
}
LOSING = {
    "scaled": "double* x, int n|if (i < n) x[i] = 2.0 * x[i];",
    "sum": "double* x, int n|if (i < n) x[i] = x[i] + 1.0;",
    "times": "int* x, int n|if (i < n) x[i] = x[i] * 3;",
    "set": "double* x, int n|if (i < n) x[i] = 1.0;",
    "copied": "double* x, double* y, int n|if (i < n) { double t = x[i]; x[i] = y[i]; y[i] = y[i]; }",
    "twice": "int* x, int n|if (i < n) x[i] = x[i] + x[i];",
    "asked": "double* x, int n|if (i < n) { double t = x[i]; if (t > 0) x[i] = -t; }",
    "sorted": "double* x, double* y, int n|if (i < n) { double a = x[i], b = y[i]; x[i] = fmin(a, b); y[i] = fmax(a, b); }",
    "moved": "double* x, int n|if (i < n - 1) x[i] = x[i + 1];",
    "indexed": "int* x, int* y, int n|if (i < n) { int t = y[i]; y[i] = x[t]; x[t] = t; }",
    "short": "short* x, int n|if (i < n) x[i] = x[i] + 1;",
    "atomic": "int* x, int n|if (i < n) atomicAdd(&x[i], 1);",
    "narrowed": "unsigned* x, int n|if (i < n) x[i] = (unsigned)(unsigned short)x[i];",
}
MEETING = {
    "flipped_twice": "double* x, int n|if (i < n) { double t = x[i]; x[i] = x[n - 1 - i]; x[n - 1 - i] = t; }",
    "middle": "double* x, int n|if (i <= n / 2) { double t = x[i]; x[i] = -x[n - 1 - i]; x[n - 1 - i] = t; }",
    "one": "int* x, int n|if (i < n) x[i / 2] += 1;",
}


def kernel_of(name: str) -> ir.Kernel:
    parameters, body = {**EXACT, **LOSING, **MEETING}[name].split("|")
    return compiled(f'extern "C" __global__ void k({parameters}) {{ {HEAD} {body} }}', "k").primal()


def shape_of(kernel: ir.Kernel, n: int = N) -> Shape:
    return Shape((3, 1, 1), (8, 1, 1), {v: n if v.name == "n" else 5 for v in kernel.scalars})


def arguments(kernel: ir.Kernel, arrays: list[Any]) -> list[Any]:
    found: list[Any] = []
    rest = iter(arrays)
    for p in kernel.params:
        number = np.dtype(str(p.type)).type(N if p.name == "n" else 5) if isinstance(p, ir.Var) else None
        found.append(resolve(next(rest)) if number is None else number)
    return found


@pytest.mark.parametrize("executor", sorted(EXECUTORS))
@pytest.mark.parametrize("name", sorted(EXACT))
def test_what_is_exact_is_taken_back_to_the_bit(name: str, executor: str) -> None:
    """On any bits that an array can hold: numbers without order, infinities, zeros with a sign."""
    kernel = kernel_of(name)
    undone = inverse(kernel)
    assert undone is not None
    verify(undone)
    assert takes_back(kernel, undone, shape_of(kernel))
    rng = np.random.default_rng(0)
    types = [np.dtype(str(b.element)) for b in kernel.buffers]
    arrays = [rng.integers(0, 256, (N + 3) * t.itemsize, np.uint8).view(t) for t in types]
    before = [a.tobytes() for a in arrays]
    for k in (kernel, undone):
        EXECUTORS[executor].launch(k, (3, 1, 1), (8, 1, 1), arguments(k, arrays))
        assert ([a.tobytes() for a in arrays] == before) is (k is undone)


@pytest.mark.parametrize("name", sorted(LOSING))
def test_what_may_lose_a_bit_has_no_inverse(name: str) -> None:
    assert inverse(kernel_of(name)) is None


@pytest.mark.parametrize("name", sorted(MEETING))
def test_where_threads_may_meet_there_is_no_certificate(name: str) -> None:
    kernel = kernel_of(name)
    undone = inverse(kernel)
    assert undone is None or not takes_back(kernel, undone, shape_of(kernel))


@pytest.mark.parametrize("name", sorted(EXACT))
def test_planted_faults_get_no_certificate(name: str) -> None:
    """The kernel itself where it is no involution; an inverse without a sign, with another number, with elements exchanged; nothing."""
    kernel = kernel_of(name)
    undone = inverse(kernel)
    assert undone is not None
    shape = shape_of(kernel)
    involution = name in ("negated", "swapped", "flipped", "from", "both")
    assert takes_back(kernel, replace(kernel, name="again"), shape) is involution
    assert not takes_back(kernel, replace(undone, body=()), shape)

    def without_sign(e: ir.Expr) -> ir.Expr:
        return e.operand if isinstance(e, ir.Unary) else e

    def otherwise(e: ir.Expr) -> ir.Expr:
        return replace(e, op="-" if e.op == "+" else "+") if isinstance(e, ir.Binary) and e.op in "+-" else e

    for change in (without_sign, otherwise):
        wrong = _with_values(undone.body, change)
        if wrong != undone.body:
            assert not takes_back(kernel, replace(undone, body=wrong), shape), change.__name__
    stores = _stores(undone.body)
    if len(stores) > 1:
        other = dict(zip(stores, [*stores[1:], stores[0]], strict=True))
        crossed = _map(undone.body, lambda s: replace(s, value=other[s].value) if s in other else s)
        assert not takes_back(kernel, replace(undone, body=crossed), shape)


def _map(block: ir.Block, change: Any) -> ir.Block:
    return tuple(
        replace(s, then=_map(s.then, change), otherwise=_map(s.otherwise, change)) if isinstance(s, ir.If) else change(s) for s in block
    )


def _with_values(block: ir.Block, change: Any) -> ir.Block:
    return _map(block, lambda s: replace(s, value=map_expr(s.value, change)) if isinstance(s, ir.Store) else s)


def _stores(block: ir.Block) -> list[ir.Store]:
    found: list[ir.Store] = []
    for s in block:
        found += _stores((*s.then, *s.otherwise)) if isinstance(s, ir.If) else [s] if isinstance(s, ir.Store) else []
    return found
