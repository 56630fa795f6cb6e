"""Copies and clearings as kernels: certified where a kernel does just what the copy does, and no planted fault is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import compiled

from gpuad.affine.certificate import Run
from gpuad.affine.copy_certificate import copies
from gpuad.affine.effects import Shape
from gpuad.fusion import Link
from gpuad.ir.nodes import Store
from gpuad.ir.rewrite import walk_stmts
from gpuad.runtime.actions import Clearing, Copying
from gpuad.runtime.base import Memory
from gpuad.tape.replay import copies_as_launches as derived

HEAD = 'extern "C" __global__ void k(const double* u, double* v, const int* m, int n, double seed)'
TID = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
LOOP = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)"
RIGHT = {
    "guarded": f"{TID} if (i < n) v[i] = u[i];",
    "backwards": f"{TID} if (i < n) v[n - 1 - i] = u[n - 1 - i];",
    "over the grid": f"{LOOP} v[i] = u[i];",
    "twice": "for (int i = 0; i < n; i++) v[i] = u[i];",
}
WRONG = {
    "one too few": f"{TID} if (i < n - 1) v[i] = u[i];",
    "one too many": f"{TID} if (i <= n) v[i] = u[i];",
    "every other": f"{TID} if (2 * i < n) v[2 * i] = u[2 * i];",
    "not the first": f"{TID} if (i > 0 && i < n) v[i] = u[i];",
    "beside": f"{TID} if (i < n) v[i] = u[i + 1];",
    "backwards": f"{TID} if (i < n) v[i] = u[n - 1 - i];",
    "more than a copy": f"{TID} if (i < n) v[i] = 2 * u[i];",
    "a number": f"{TID} if (i < n) v[i] = seed;",
    "of itself": f"{TID} if (i < n) v[i] = v[i];",
    "added": f"{TID} if (i < n) v[i] += u[i];",
    "atomically": f"{TID} if (i < n) atomicAdd(&v[i], u[i]);",
    "by data": f"{TID} if (i < n && m[i]) v[i] = u[i];",
    "where data say": f"{TID} if (i < n) v[m[i]] = u[m[i]];",
    "another beside it": f"{TID} if (i < n) v[i] = u[i]; if (i == 0) v[0] = u[1];",
    "too few threads": "int i = threadIdx.x; if (i < n) v[i] = u[i];",
    "wraps": f"{TID} if (i < n) v[(unsigned char)(i + 250)] = u[(unsigned char)(i + 250)];",
    "one thread": "if (threadIdx.x == 0 && blockIdx.x == 0) for (int i = 0; i < n; i += 2) v[i] = u[i];",
}
SETTING = {
    "0": (f"{TID} if (i < n) v[i] = 0;", True),
    "a number": (f"{TID} if (i < n) v[i] = seed;", True),
    "one for each": (f"{TID} if (i < n) v[i] = seed * i;", False),
    "one of another array": (f"{TID} if (i < n) v[i] = u[0];", False),
    "a part": (f"{TID} if (i < n / 2) v[i] = seed;", False),
}


def certified(body: str, first: int = 0, count: int = 10, *, setting: bool = False) -> bool:
    kernel = compiled(f"{HEAD} {{ {body} }}", "k").primal()
    u, v, *_ = kernel.buffers
    (n,) = (s for s in kernel.scalars if s.name == "n")
    return copies(Run(kernel.body, Shape((3, 1, 1), (4, 1, 1), {n: 10})), v, None if setting else u, first, count)


@pytest.mark.parametrize("name", RIGHT)
def test_what_copies_is_certified(name: str) -> None:
    assert certified(RIGHT[name])
    assert not any(certified(RIGHT[name], first, count) for first, count in ((1, 10), (0, 9), (0, 11), (-1, 11)))


@pytest.mark.parametrize("name", WRONG)
def test_planted_faults_are_not(name: str) -> None:
    assert not certified(WRONG[name])


@pytest.mark.parametrize("name", SETTING)
def test_setting_to_a_number(name: str) -> None:
    body, right = SETTING[name]
    assert certified(body, setting=True) == right
    assert not certified(RIGHT["guarded"], setting=True)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_copy_that_was_derived_wrongly_is_not_taken(wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of a launch with one element less, in the place of a copy or a clearing like it."""
    right, less = (compiled(f"{HEAD} {{ {TID} if (i < n{part}) v[i] = {2 + wrong} * u[i]; }}", "k").primal() for part in ("", " - 1"))
    u, v, saved = (np.arange(10.0) + k for k in range(3))
    model = Link(right, (3, 1, 1), (4, 1, 1), [Memory(u), Memory(v), Memory(np.zeros(1, np.int32)), 10, 0.0])
    if wrong:
        write = next(s for s in walk_stmts(less.body) if isinstance(s, Store))
        copying, setting = derived.copying_like, derived.setting_like
        monkeypatch.setattr(derived, "copying_like", lambda kernel, stmt, other, to: copying(less, write, other, to=to))
        monkeypatch.setattr(derived, "setting_like", lambda kernel, stmt, name: setting(less, write, name))
    actions: list[Any] = [Copying(saved, v), Copying(v, saved), Clearing(v), Copying(v, 3.0)]
    assert [derived.as_launch(action, model) is None for action in actions] == [wrong] * len(actions)
