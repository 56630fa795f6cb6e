"""Which shadows a reversal with seeds clears: all of each array of which the program writes any element, and nothing beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from launch_tools import running

import gpuad
from gpuad import BatchDuplicated, Duplicated
from gpuad.tape.facade import recording_of

HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
READ = f'extern "C" __global__ void r(const double* u, double* y, int n) {{ {HEAD} if (i < n) y[i] = 2 * u[i]; }}'
INSIDE = f'extern "C" __global__ void s(double* u, int n) {{ {HEAD} if (i > 0 && i < n - 1) u[i] = 2 * u[i]; }}'


@pytest.fixture(autouse=True, params=["reference", "host"])
def executor(request: Any) -> Iterator[None]:
    with running(request.param):
        yield


def written_beside(write: Any, args: Any, first: int, last: int) -> Any:
    """Which elements of a buffer of 32 a launch is taken to write, of which a view is passed. The shadow of what lies beside it, a pair of
    its own, accumulates; that of the view is cleared whole."""
    u, du, y = np.ones(32), np.full(32, 5.0), Duplicated(np.zeros(32))
    parts = [slice(0, first), slice(first, last), slice(last, 32)]
    pairs = [Duplicated(u[s], du[s]) for s in parts]
    tape = gpuad.Tape()
    with tape:
        for pair, s in zip(pairs, parts, strict=True):
            if pair.size:
                gpuad.kernel(READ, "r")(4, 8, (pair, y[s], pair.size))
        write(4, 8, (pairs[1], *args))
    tape.reverse({y: np.ones(32)})
    assert np.array_equal(du, np.where((np.arange(32) < first) | (np.arange(32) >= last), 7.0, 2.0))
    (use,) = recording_of(tape).operations[-1].effects.writes
    return np.flatnonzero(_flags(use.shown))


def _flags(region: Any) -> Any:
    found = np.zeros(32)
    for low, high in region.spans // 8:
        found[low:high] = 1
    return found


@pytest.mark.parametrize(
    "guard", ["if (i < n && c[i] > 0)", "if (i < n) if (c[i] > 0)", "if (!(i >= n || c[i] <= 0))", "if (i >= n || c[i] <= 0) return;"]
)
def test_what_a_guard_leaves_out(guard: str) -> None:
    """A guard that looks at memory needs a branch of its own for its right side; its left side bounds what is written all the same."""
    k = gpuad.kernel(f'extern "C" __global__ void g(double* u, const double* c, int n) {{ {HEAD} {guard} u[i] = u[i] * c[i]; }}', "g")
    assert np.array_equal(written_beside(k, (np.full(12, 3.0), 12), 8, 32), np.arange(8, 20))


@pytest.mark.parametrize("body", ["if (i < n) u[at[i]] = 3 * c[i];", "for (int k = i; k < n && at[k] >= 0; k += 7) u[k] = 3 * c[k];"])
def test_what_lies_beside_a_view_that_is_written_by_data(body: str) -> None:
    k = gpuad.kernel(f'extern "C" __global__ void s(double* u, const int* at, const double* c, int n) {{ {HEAD} {body} }}', "s")
    at = np.array([1, 3, 5, 7, 0, 2, 4, 6], np.int32)
    assert np.array_equal(written_beside(k, (at, np.ones(8), 8), 16, 24), np.arange(16, 24))


@pytest.mark.parametrize(
    "loop",
    [
        "for (int k = i; k < n; k += 32) u[k + 1]",
        "for (int k = n - 1 - i; k >= 0; k -= 32) u[k + 1]",
        "for (int k = i; k < n; k += 32) u[1 + k]",
    ],
)
def test_the_last_iterations_that_few_threads_make(loop: str) -> None:
    k = gpuad.kernel(f'extern "C" __global__ void g(double* u, const double* c, int n) {{ {HEAD} {loop} = 3 * c[k]; }}', "g")
    assert np.array_equal(written_beside(k, (np.ones(12), 12), 8, 32), np.arange(9, 21))


# --- by array, never by element (RULES 29) -----------------------------------------------------------------------------------------------


def rounds(program: Any, x: Any, dx: Any, seeded: Any, count: int = 3) -> list[list[float]]:
    """What the shadow holds after each of a few rounds of a program."""
    tape, found = gpuad.Tape(), []
    for _ in range(count):
        x[...] = 1
        with tape:
            program()
        tape.reverse({seeded: 1.0})
        found.append(dx.tolist())
    return found


def test_elements_that_are_never_written_start_fresh_too() -> None:
    """The initial state under a stencil with fixed edges: the edges do not grow from round to round."""
    x, dx = np.ones(5), np.full(5, 9.0)
    pair, k = Duplicated(x, dx), gpuad.kernel(INSIDE, "s")
    assert rounds(lambda: k(1, 8, (pair, 5)), x, dx, pair) == [[1, 2, 2, 2, 1]] * 3


@pytest.mark.parametrize("fresh", [False, True])
def test_an_array_of_which_a_view_is_written(fresh: bool) -> None:
    """The array is the one that was paired with a shadow, also where the program meets views of it only, and new ones each time."""
    x, dx, y = np.ones(5), np.full(5, 9.0), Duplicated(np.zeros(3))
    pair = Duplicated(x, dx)

    def program() -> None:
        views = Duplicated(x, dx) if fresh else pair
        views[1:2] *= 2.0
        y[...] = views[:3]

    assert rounds(program, x, dx, y) == [[1, 2, 1, 0, 0]] * 3


def test_pairs_of_views_are_arrays_of_their_own() -> None:
    x, dx, y = np.ones(4), np.zeros(4), Duplicated(np.zeros(2))
    left, right = Duplicated(x[:2], dx[:2]), Duplicated(x[2:], dx[2:])

    def program() -> None:
        right.__imul__(3.0)
        gpuad.ops.multiply(left, right, out=y)

    assert rounds(program, x, dx, y) == [[3, 3, 3, 3], [6, 6, 3, 3], [9, 9, 3, 3]]


def test_arrays_that_overlap_are_one() -> None:
    x, dx, y = np.ones(6), np.zeros(6), Duplicated(np.zeros(4))
    left, right = Duplicated(x[:4], dx[:4]), Duplicated(x[2:], dx[2:])

    def program() -> None:
        left[:1] *= 5.0
        gpuad.ops.copyto(y, left)
        gpuad.ops.add(y, right, out=y)

    assert rounds(program, x, dx, y) == [[5, 1, 2, 2, 1, 1]] * 3


def test_what_is_only_read_accumulates() -> None:
    x, dx, y = np.ones(4), np.zeros(4), Duplicated(np.zeros(2))
    pair = Duplicated(x, dx)
    assert rounds(lambda: gpuad.ops.copyto(y, pair[1:3]), x, dx, y) == [[0, k, k, 0] for k in (1, 2, 3)]


def test_a_seed_for_a_part_begins_its_array_anew() -> None:
    x, dx = np.ones(4), np.full(4, 9.0)
    pair, y, tape = Duplicated(x, dx), Duplicated(np.zeros(4)), gpuad.Tape()
    for _ in range(2):
        with tape:
            gpuad.ops.copyto(y, pair)
        tape.reverse({y: 2.0, pair[:1]: 1.0})
        assert dx.tolist() == [3, 2, 2, 2]


def test_all_shadows_of_a_batch() -> None:
    x, shadows = np.ones(5), (np.full(5, 9.0), np.full(5, 8.0))
    batch, k, tape = BatchDuplicated(x, shadows), gpuad.kernel(INSIDE, "s"), gpuad.Tape()
    for _ in range(2):
        with tape:
            k(1, 8, (batch[:], 5))
        tape.reverse({batch: (1.0, 3.0)})
        assert [s.tolist() for s in shadows] == [[1, 2, 2, 2, 1], [3, 6, 6, 6, 3]]


def test_integers_of_structs_are_no_shadow() -> None:
    """Of a struct's shadow the floats are cleared, of the whole array."""
    text = f"""struct P {{ float x; int k; }};
    extern "C" __global__ void s(P* p, int n) {{ {HEAD} if (i > 0 && i < n) p[i].x = 2 * p[i].x; }}"""
    kind = np.dtype([("x", np.float32), ("k", np.int32)])
    p, dp = np.ones(3, kind), np.full(3, 9, kind)
    pair, tape = Duplicated(p, dp), gpuad.Tape()
    y = Duplicated(np.zeros(3, np.float32))
    read = gpuad.kernel(
        f'struct P {{ float x; int k; }}; extern "C" __global__ void r(const P* p, float* y) {{ {HEAD} y[i] = p[i].x; }}', "r"
    )
    for _ in range(2):
        with tape:
            gpuad.kernel(text, "s")(1, 4, (pair, 3))
            read(1, 3, (pair, y))
        tape.reverse({y: 1.0})
        assert dp["x"].tolist() == [1, 2, 2] and dp["k"].tolist() == [9, 9, 9]


def test_numbers_whose_shadows_lie_beside_an_array_accumulate() -> None:
    p, dp, y = np.ones(4), np.zeros(4), Duplicated(np.zeros(3))
    pair, tape = Duplicated(p, dp), gpuad.Tape()
    for k in (1, 2):
        with tape:
            pair[1:] *= 2.0
            gpuad.ops.multiply(pair[1:], gpuad.Active(4.0, dp[0, ...]), out=y)
        p[...] = 1
        with tape:
            pair[1:] *= 2.0
            gpuad.ops.multiply(pair[1:], gpuad.Active(4.0, dp[0, ...]), out=y)
        tape.reverse({y: 1.0})
        assert dp.tolist() == [6 * k, 8, 8, 8]
        p[...] = 1


def test_what_a_graph_and_a_stored_program_clear(tmp_path: Any) -> None:
    x, dx = np.ones(5), np.full(5, 9.0)
    pair, k, tape = Duplicated(x, dx), gpuad.kernel(INSIDE, "s"), gpuad.Tape()
    with tape:
        k(1, 8, (pair, 5))
    tape.save(tmp_path, {"x": pair})
    graph = tape.graph({pair: 1.0})
    for _ in range(2):
        graph.launch()
        assert dx.tolist() == [1, 2, 2, 2, 1]
    scope: dict[str, Any] = {"__name__": "stored", "__file__": str(tmp_path / "program.py")}
    exec(compile((tmp_path / "program.py").read_text(), str(tmp_path / "program.py"), "exec"), scope)
    shadow = np.full(5, 9.0)
    scope["clear"]({"x": x}, {"x": shadow})
    assert not shadow.any()


PARTICLES = 'struct P { float x; int k; double w; }; extern "C" __global__ void '


def test_the_floats_of_a_struct_array_of_which_a_view_is_written() -> None:
    """Those outside of the view too, floats and doubles, and not the integers between."""
    kind = np.dtype([("x", np.float32), ("k", np.int32), ("w", np.float64)])
    k = gpuad.kernel(f"{PARTICLES} s(P* p, double* y, int n) {{ {HEAD} if (i < n) {{ p[i].w = p[i].w * p[i].x; y[i] = p[i].w; }} }}", "s")
    p, dp, y = np.ones(4, kind), np.full(4, 9, kind), Duplicated(np.zeros(2))
    pair, tape = Duplicated(p, dp), gpuad.Tape()
    for _ in range(2):
        with tape:
            k(1, 4, (pair[1:3], y, 2))
        tape.reverse({y: 1.0})
        assert dp["x"].tolist() == dp["w"].tolist() == [0, 1, 1, 0] and dp["k"].tolist() == [9] * 4


def test_an_array_that_is_met_as_structs_too() -> None:
    """A view of the same memory as structs changes nothing for the array of floats."""
    k = gpuad.kernel(
        f'struct Q {{ double a, b; }}; extern "C" __global__ void q(const Q* p, double* y) {{ {HEAD} y[i] = p[i].a * p[i].b; }}', "q"
    )
    x, dx, y = np.ones(8), np.full(8, 9.0), Duplicated(np.zeros(1))
    pair, tape = Duplicated(x, dx), gpuad.Tape()
    structs = (a[2:4].view([("a", "f8"), ("b", "f8")]) for a in (x, dx))
    part = Duplicated(*structs)
    for _ in range(2):
        x[...] = 1
        with tape:
            pair[1:4] *= 2.0
            k(1, 1, (part, y))
        tape.reverse({y: 1.0})
        assert dx.tolist() == [0, 0, 4, 4, 0, 0, 0, 0]


def test_primal_and_shadow_in_one_allocation() -> None:
    """The shadow is cleared whole, the primal beside it stays."""
    both, y = np.full(10, 9.0), Duplicated(np.zeros(2))
    pair, tape = Duplicated(both[:5], both[5:]), gpuad.Tape()
    for _ in range(2):
        both[:5] = 1
        with tape:
            pair[1:3] *= 2.0
            y[...] = pair[1:3]
        tape.reverse({y: 1.0})
        assert both.tolist() == [1, 2, 2, 1, 1, 0, 2, 2, 0, 0]


@pytest.mark.parametrize("seeded", [False, True])
def test_what_is_left_of_an_array_behind_its_last_struct(seeded: bool) -> None:
    """Five numbers are two structs of two and one more, which belongs to the array under whatever name it is met first, or last."""
    kind = [("a", "f8"), ("b", "f8")]
    k = gpuad.kernel(f'struct Q {{ double a, b; }}; extern "C" __global__ void q(Q* p) {{ {HEAD} p[i].a = p[i].a * p[i].b; }}', "q")
    x, dx, other = np.ones(5), np.full(5, 9.0), Duplicated(np.ones(1))
    pair, structs, tape = Duplicated(x, dx), Duplicated(x[:4].view(kind), dx[:4].view(kind)), gpuad.Tape()
    with tape:
        k(1, 2, (structs,))
        y = gpuad.ops.square(pair)
        k(1, 2, (structs,))
        other *= 2.0
    tape.reverse({y[4:]: 1.0} if seeded else {other: 1.0})
    assert dx.tolist() == [0, 0, 0, 0, 2 if seeded else 0]
