"""Launches that are asked which threads meet, where indices hang on numbers alone: against the indices themselves, and gradients against
atomic ones."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from gather_tools import atomics, reverse
from launch_tools import EXECUTORS, compiled, running

import gpuad
from gpuad import Duplicated, api, pipeline
from gpuad.api import pattern_of
from gpuad.codegen.cuda import cuda_source
from gpuad.ir.nodes import Accumulate, Buffer, Load, Store, Take
from gpuad.ir.rewrite import touches, walk_stmts
from gpuad.runtime import nvrtc

HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"
KERNELS = {
    "push": "v[(i + 1) % n] = 2.0 * u[i] * u[i];",
    "shuffled": "v[(i * m + 1) % n] = u[i] * u[i];",
    "exclusive or": "v[i ^ m] = u[i] * u[i];",
    "halves": "v[i] = u[i / 2] * u[i / 2];",
    "periodic sum": "v[i] = u[i] * u[(i + m) % n];",
    "two of a thread": "double t = u[i]; v[(2 * i + 1) % (2 * n)] = t * t; v[(2 * i + 2) % (2 * n)] = 3.0 * t;",
    "twice": "for (int k = 0; k < 2; ++k) v[(i + m) % n] = u[i] * (k + 1);",
    "guarded": "if ((i * m) % 3 != 1) v[(i + m) % n] = u[i] * u[i];",
    "by data": "v[order[i]] = u[i] * u[i];",
    "guarded by data": "if (order[i] > 2) v[(i + 1) % n] = u[i] * u[i];",
    "guarded by a value": "if (u[i] > 0.0) v[(i + 1) % n] = u[i] * u[i];",
    "guarded by a number": "if (a > 0.0) v[(i + 1) % n] = u[i] * u[i];",
}
TEXT = "".join(
    f'extern "C" __global__ void k{number}(const double* u, double* v, const int* order, double a, int n, int m) {{ {HEAD} {body} }}\n'
    for number, body in enumerate(KERNELS.values())
)
ASKED = {"push", "shuffled", "exclusive or", "two of a thread", "twice", "guarded", "halves", "periodic sum"}
MAYBE = {"guarded by data", "guarded by a value", "guarded by a number"}


def made(name: str) -> Any:
    return compiled(TEXT, f"k{list(KERNELS).index(name)}")


def arguments(n: int, m: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(n)
    u, v = (Duplicated(rng.standard_normal(2 * n + 70), rng.standard_normal(2 * n + 70)) for _ in range(2))
    return u, v, rng.permutation(n).astype(np.int32), 1.5, n, m


def asked(name: str, n: int, m: int, grid: int = 3, block: int = 8) -> dict[str, Any]:
    """What the launch says of each shadow."""
    kernel = made(name)
    call = kernel.bind((grid,), (block,), arguments(n, m), 0, None)
    with running("reference"):
        adjoint = kernel.reverse_for(pattern_of(kernel, call), call)
        return {b.name: pipeline.is_injective(adjoint, call, b) for b in adjoint.undecided}


@pytest.mark.parametrize("name", KERNELS)
def test_only_what_hangs_on_numbers_alone_is_asked(name: str) -> None:
    found = asked(name, 20, 3)["du" if name in ("halves", "periodic sum") else "dv"]
    assert (found is not None) == (name in (ASKED | MAYBE) - {"halves", "periodic sum"})
    assert found is None or (found.spans is None and not found.once) == (name in MAYBE)


UNSURE = {
    "an index that is chosen": ("int j = order[i] > 2 ? i : n - 1 - i; v[(j + 1) % n] = u[i];", False),
    "an index that a branch gives": ("int j = i; if (order[i] > 2) j = n - 1 - i; v[(j + 1) % n] = u[i];", False),
    "an array that a branch changes": ("int t[2] = {i, 3}; if (order[i] > 2) t[m % 2] = 5; v[(t[0] + 1) % n] = u[i];", False),
    "as often as data say": ("for (int k = 0; k < order[i] % 2; ++k) v[(i + k) % n] = u[i];", False),
    "until data say": ("int k = 0; while (order[i] > k) { v[(i + k) % n] = u[i]; k += 7; }", False),
    "left early": ("for (int k = 0; k < 3; ++k) { if (order[i] == k) break; v[(i + k * n) % (3 * n)] = u[i]; }", False),
    "each side another": ("if (order[i] > 2) v[(i + 1) % n] = u[i]; else v[n + (i + 2) % n] = 2.0 * u[i];", True),
    "each side, and they meet": ("if (order[i] > 2) v[(i + 1) % n] = u[i]; else v[(i + 2) % n] = 2.0 * u[i];", False),
    "returned before": ("if (order[i] > 2) return; v[(i + 1) % n] = u[i];", True),
    "a mask in a loop": ("for (int k = 0; k < 2; ++k) if (order[i] > k) v[(i + k * n + 1) % (2 * n)] = u[i];", True),
    "a table and a mask": (
        "const int e[2] = {1, 4}; for (int k = 0; k < 2; ++k) if (order[i] > k) v[k * n + (i + e[k]) % n] = u[i];",
        True,
    ),
}


@pytest.mark.parametrize("name", UNSURE)
def test_both_sides_count_of_what_data_decide(name: str) -> None:
    body, apart = UNSURE[name]
    text = f'extern "C" __global__ void k(const double* u, double* v, const int* order, double a, int n, int m) {{ {HEAD} {body} }}'
    args = arguments(20, 3)
    call = compiled(text, "k").bind((3,), (8,), args, 0, None)
    with running("reference"):
        adjoint = compiled(text, "k").reverse_for(pattern_of(compiled(text, "k"), call), call)
        (dv,) = (b for b in adjoint.undecided if b.name == "dv")
        assert (pipeline.is_injective(adjoint, call, dv) is not None) == apart


def test_the_elements_and_how_often_they_are_touched() -> None:
    assert np.array_equal(asked("push", 20, 3)["dv"].spans, [[0, 20]]) and asked("push", 20, 3)["dv"].once
    assert np.array_equal(asked("guarded", 6, 1)["dv"].spans, [[0, 2], [3, 5]])  # 1 and 4 send nothing
    assert np.array_equal(asked("exclusive or", 5, 8)["dv"].spans, [[8, 13]])
    assert not asked("twice", 20, 3)["dv"].once and asked("two of a thread", 5, 0, 1)["dv"].once
    assert asked("shuffled", 20, 4)["dv"] is None  # 4 divides 20: threads meet


@pytest.mark.parametrize("executor", EXECUTORS)
def test_asking_never_writes_outside(executor: str) -> None:
    """A launch that would reach beyond its array may be asked about, as `explain` does: the reference would refuse to write there."""
    kernel, rest = made("push"), arguments(20, 3)[2:]
    u, v = (Duplicated(np.ones(size), np.ones(size)) for size in (20, 12))
    call = kernel.bind((3,), (8,), (u, v[4:], *rest), 0, None)
    with running(executor):
        adjoint = kernel.reverse_for(pattern_of(kernel, call), call)
        (dv,) = (b for b in adjoint.undecided if b.name == "dv")
        counted = pipeline.is_injective(adjoint, call, dv)
    assert counted is not None and np.array_equal(counted.spans, [[0, 8]])


def test_an_offset_is_counted_from_the_pointer() -> None:
    kernel, (u, v, *rest) = made("push"), arguments(20, 3)
    call = kernel.bind((3,), (8,), (u, v[5:], *rest), 0, None)
    with running("reference"):
        adjoint = kernel.reverse_for(pattern_of(kernel, call), call)
        (dv,) = (b for b in adjoint.undecided if b.name == "dv")
        found = pipeline.is_injective(adjoint, call, dv)
    assert found is not None and np.array_equal(found.spans, [[0, 20]])


INDICES = (
    "(i * {a} + {b}) % n",
    "(i + {b}) % n",
    "i / {a} + {b}",
    "i ^ {b}",
    "(i * i + {b}) % n",
    "n - 1 - (i * {a}) % n",
    "(i << 1 | i >> 2) & 31",
)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_two_hundred_launches_say_what_their_indices_say(executor: str) -> None:
    """Against the indices of all threads, computed here."""
    random_ = random.Random(5)
    forms = [form.format(a=random_.randint(1, 6), b=random_.randint(0, 40)) for form in INDICES for _ in range(2)]
    text = "".join(
        f'extern "C" __global__ void f{k}(const double* u, double* v, int n) {{ {HEAD} v[{form}] = u[i] * u[i]; }}\n'
        for k, form in enumerate(forms)
    )
    seen = set()
    for (k, form), _ in itertools.product(enumerate(forms), range(200 // len(forms) + 1)):
        n, grid, block = random_.randint(1, 40), random_.randint(1, 4), random_.choice((1, 7, 16))
        kernel = compiled(text, f"f{k}")
        pairs = [Duplicated(np.ones(2000), np.ones(2000)) for _ in range(2)]
        call = kernel.bind((grid,), (block,), (*pairs, n), 0, None)
        with running(executor):
            adjoint = kernel.reverse_for(pattern_of(kernel, call), call)
            (dv,) = (b for b in adjoint.undecided if b.name == "dv")
            found = pipeline.is_injective(adjoint, call, dv)
        indices = [eval(form.replace("/", "//"), {"i": i, "n": n}) for i in range(min(n, grid * block))]
        assert (found is not None) == (len(set(indices)) == len(indices)), (form, n, grid, block)
        if found is not None:
            assert found.once and sorted(indices) == [e for low, high in found.spans for e in range(low, high)]
        seen.add(found is not None)
    assert seen == {True, False}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", sorted(ASKED | {"by data", "guarded by a value"}))
def test_gradients_are_those_of_atomic_ones(name: str, executor: str) -> None:
    def gradient(plain: bool, executor: str) -> list[Any]:
        args = arguments(21, 4)
        with running(executor, plain=plain):
            gpuad.autodiff(made(name), (4,), (8,), args)
        return [a.shadow for a in args[:2]]

    for found, wanted in zip(gradient(True, executor), gradient(False, "reference"), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_what_is_asked_is_taken_plainly() -> None:
    args = arguments(21, 4)
    with running("reference"):
        assert atomics(reverse(made("push"), (4,), (8,), args)) == 0
        assert atomics(reverse(made("shuffled"), (4,), (8,), args)) == 0
        assert atomics(reverse(made("by data"), (4,), (8,), args)) == 1
    with running("reference", plain=False):
        assert atomics(reverse(made("push"), (4,), (8,), args)) == 2


def test_a_program_with_other_numbers_at_each_launch_is_not_asked_for_ever() -> None:
    kernel = api.kernel(TEXT, "k0")  # not the one that other tests ask
    asked_for = []
    with running("reference"):
        for n in range(21, 45):
            call = kernel.bind((8,), (8,), arguments(n, 4), 0, None)
            adjoint = kernel.reverse_for(pattern_of(kernel, call), call)
            (dv,) = (b for b in adjoint.undecided if b.name == "dv")
            asked_for.append(pipeline.is_injective(adjoint, call, dv) is not None)
    assert asked_for[0] and not asked_for[-1]
    with running("reference"):
        call = kernel.bind((8,), (8,), arguments(21, 4), 0, None)
        assert pipeline.is_injective(adjoint, call, dv) is not None  # what is known stays known


# --- in programs -------------------------------------------------------------------------------------------------------------------------

PROGRAM = """
extern "C" __global__ void turn(const double* u, double* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[(i + 3) % n] = u[i] * u[i] + 0.5 * u[i];
}
extern "C" __global__ void turn_inner(const double* u, double* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n - 4) v[(i + 3) % (n - 4) + 2] = u[i] * u[i] + 0.5 * u[i];
}
extern "C" __global__ void sums(const double* u, double* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double s = 0.0;
    for (int k = 0; k < 3; ++k) s += u[k * n + i];
    for (int k = 0; k < 3; ++k) v[k * n + i] = u[k * n + i] * s;
}
extern "C" __global__ void wider(const double* u, double* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    v[i] = u[i] * u[n + i];
    v[n + i] = u[i] + u[i] * u[i];
    v[2 * n + i] = u[2 * n + i] * u[i];
}
extern "C" __global__ void mixed(const double* u, double* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int k = 0; k < 2; ++k) { v[k * n + i] = u[k * n + i] * u[(1 - k) * n + i]; v[2 * n + i] = 3.0; }
}
"""
N = 24


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", ["turn", "turn_inner", "sums", "wider", "mixed"])
def test_a_program_knows_what_is_zero(name: str, executor: str) -> None:
    """Ping-pong, with shadows that hold rubbish at first; twice, so that plans are used again. All shadows are as with atomic additions."""

    def run(plain: bool, executor: str) -> list[Any]:
        rng = np.random.default_rng(1)
        start, *fields = (Duplicated(rng.standard_normal(3 * N), np.full(3 * N, 7.0)) for _ in range(3))
        tape, before = gpuad.Tape(), [f.primal.copy() for f in fields]
        with running(executor, plain=plain):
            for _ in range(2):
                start.shadow.fill(0)
                for field, values in zip(fields, before, strict=True):
                    field.primal[...] = values
                with tape:
                    u, (v, other) = start, fields
                    for _ in range(4):
                        compiled(PROGRAM, name)[(4,), (8,)](u, v, N)
                        u, v = v, (other if u is start else u)
                tape.reverse({u: np.linspace(0.5, 1.5, 3 * N)})
        return [x.shadow for x in (start, *fields)]

    for found, wanted in zip(run(True, executor), run(False, "reference"), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def known(name: str) -> dict[str, list[type]]:
    """What the variant does to each shadow that assigns what it can and clears nothing that it has taken."""
    kernel = compiled(PROGRAM, name)
    u, v = (Duplicated(np.ones(3 * N), np.zeros(3 * N)) for _ in range(2))
    call = kernel.bind((4,), (8,), (u, v, N), 0, None)
    with running("reference"):
        from gpuad.tape.reverse.shadow_touches import touches_of
        from gpuad.tape.reverse.zero_regions import zeros_of

        adjoint = kernel.reverse_for(pattern_of(kernel, call), call)
        found = touches_of(adjoint, call)
        assigned = {t.buffer: zeros_of(t.region) for t in found if t.once == "added" and t.region is not None}
        left = frozenset(t.buffer for t in found if t.once == "taken")
        stages = pipeline.stages_on_zeros(adjoint, call, assigned, left, frozenset(), frozenset())
        assert stages is not None

    def done(buffer: Buffer) -> list[type]:
        return [type(s) for stage in stages for s in touches(stage.kernel.body, buffer)]

    assert not any(isinstance(s, Take) and s.buffer in left for stage in stages for s in walk_stmts(stage.kernel.body))
    return {t.buffer.name: done(t.buffer) for t in found}


def test_what_is_turned_round_is_neither_cleared_nor_added_to() -> None:
    assert known("turn") == {"du": [Store], "dv": [Load]}
    assert known("turn_inner") == {"du": [Store], "dv": [Load]}


def test_the_first_of_several_additions_assigns_where_it_comes_to_all() -> None:
    assert known("sums")["du"] == [Store, Accumulate]
    assert Store not in known("wider")["du"]  # the first comes to a third of what the others do
    assert Store not in known("mixed")["du"]  # the second of an iteration comes before the first of the next


@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("name", ["push", "guarded"])
def test_the_kernel_that_asks_compiles_for_a_gpu(name: str) -> None:
    kernel = made(name)
    call = kernel.bind((3,), (8,), arguments(20, 3), 0, None)
    adjoint = kernel.reverse_for(pattern_of(kernel, call), call)
    (dv,) = (b for b in adjoint.undecided if b.name == "dv")
    asking = adjoint.injectivity(dv)
    assert asking is not None and nvrtc.resources(nvrtc.compile_cuda(cuda_source([asking.kernel]), "sm_90"))
