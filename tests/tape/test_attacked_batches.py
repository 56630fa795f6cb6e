"""Found by attacks on what is remembered, owed or done in batches."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Duplicated, LaunchError
from gpuad.arguments import annotations
from gpuad.runtime import actions as clear
from gpuad.runtime import digest
from gpuad.runtime.compiler import has_compiler


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
def test_own_texts_compile() -> None:
    """A text that the compiler rejected passed for a machine without a compiler, and NumPy did the work."""
    digest._entry.cache_clear()
    assert digest._entry() is not None
    assert clear.clear_together(np.ones(clear.LARGE))


_FIRST = """
import numpy as np
from gpuad.runtime.actions import clearing, perform
array = np.ones(1 << 20)
perform([clearing(array)])
assert not array.any()
import gpuad
square = gpuad.kernel('extern "C" __global__ void f(float* x) { x[threadIdx.x] *= 2.0f; }', "f")
x = np.ones(4, np.float32)
square(1, 4, (x,))
assert (x == 2).all()
"""


def test_what_is_compiled_first() -> None:
    """The library that is loaded first does the batches of all, whatever else it is there for."""
    subprocess.run([sys.executable, "-c", _FIRST], check=True)


_STORES = r"""
extern "C" __global__ void put(const float* v, const int* at, float* out, int n) {
    int i = threadIdx.x;
    if (i < n) atomicExch(&out[at[i]], v[i] * v[i]);
}
extern "C" __global__ void squared(const float* u, float* v, int n) {
    int i = threadIdx.x;
    if (i < n) v[i] = u[i] * u[i];
}"""


def test_a_graph_that_is_refused_owes_what_was_owed() -> None:
    """`dv` held what the launch before had left there, and nobody cleared it any more."""
    n = 8
    put, squared = gpuad.kernel(_STORES, "put"), gpuad.kernel(_STORES, "squared")
    u, v, w = Duplicated(np.linspace(1, 2, n, dtype=np.float32)), *(Duplicated(np.zeros(n, np.float32)) for _ in range(2))
    at = np.arange(n, dtype=np.int32)[::-1].copy()
    tape = gpuad.Tape()
    with tape:
        squared(1, n, (u, v, n))
        put(1, n, (v, at, w, n))
    graph = tape.graph({w: 1.0})
    graph.launch()
    assert v._own_shadow.any()
    at[1] = at[0]
    for _ in range(2):
        with pytest.raises(LaunchError, match="two threads write to one element"):
            graph.launch()
    assert not v.shadow.any() and not w.shadow.any()
    with pytest.raises(LaunchError, match="two threads write to one element"):
        graph.launch()
    assert not v.shadow.any()


def test_threads_that_come_to_a_pair_at_once_get_one_shadow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each made one, and what was added to all but one of them was lost."""
    made = annotations.zeros_like

    def slowly(array: Any) -> Any:
        zeros = made(array)
        time.sleep(0.1)
        return zeros

    monkeypatch.setattr(annotations, "zeros_like", slowly)
    squared, n = gpuad.kernel(_STORES, "squared"), 8
    pair, lock = Duplicated(np.ones(n + 1, np.float32)), threading.Lock()

    def run(part: Duplicated) -> None:
        out, tape = Duplicated(np.zeros(n, np.float32)), gpuad.Tape()
        with tape:
            squared(1, n, (part, out, n))
        with lock:
            tape.reverse({out: 1.0})

    threads = [threading.Thread(target=run, args=(part,)) for part in (pair[:n], pair[1:], pair[:n])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pair.shadow.tolist() == [4] + [6] * (n - 1) + [2]


def test_a_shallow_copy_has_the_same_shadow() -> None:
    """Made before the shadow was, it got one of its own, and that of the pair stayed zero."""
    squared, n = gpuad.kernel(_STORES, "squared"), 4
    pair, out, tape = Duplicated(np.ones(n, np.float32)), Duplicated(np.zeros(n, np.float32)), gpuad.Tape()
    same, view, other = copy.copy(pair), copy.copy(pair[1:]), copy.deepcopy(pair)
    with tape:
        squared(1, n, (same, out, n))
    tape.reverse({out: 1.0})
    assert pair.shadow is same.shadow and pair.shadow.tolist() == [2] * n
    assert view.shadow.tolist() == [2] * (n - 1) and not other.shadow.any()
