"""What is not decided in a bounded number of steps is left undecided, and said to be; nothing is asked of isl whose time its operations do
not bound."""

from __future__ import annotations

import numpy as np
import pytest
from launch_tools import EXECUTORS, running

import gpuad
from gpuad import Duplicated, api
from gpuad.accumulate.access_inversion import MOST_SLICES
from gpuad.affine import relations
from gpuad.affine.classes import _is_one_to_one
from gpuad.affine.points import scattered
from gpuad.affine.relations import QUOTIENTS, LimitReached, context, tractable
from gpuad.analysis import conflicts, min_cut
from gpuad.codegen import coalesce
from gpuad.codegen.cuda import cuda_source

SIZES = "#define W 5\n#define N 2\n#define K 3\n#define C 3\n"
KERNEL = """
extern "C" __global__ void k(double* out, const double* a, const double* b) {
  for (int q = blockIdx.x * blockDim.x + threadIdx.x; q < W*W*N*K*K*C; q += blockDim.x * gridDim.x) {
    int x = q % W, y = (q / W) % W, n = (q / (W*W)) % N, v = (q / (W*W*N)) % K, u = (q / (W*W*N*K)) % K, c = q / (W*W*N*K*K);
    int yy = y + u - 1, xx = x + v - 1;
    if (yy >= 0 && yy < W && xx >= 0 && xx < W) out[q] = a[((n*C + c)*W + y)*W + x] * b[((n*C + c)*W + yy)*W + xx];
    else out[q] = 0;
  }
}
"""


def nested(number: int) -> str:
    """The relation of a number to remainders of its quotients."""
    terms = [f"o{k} = (floor(i / {3**k})) mod 3" for k in range(number)]
    return f"{{ [i] -> [{', '.join(f'o{k}' for k in range(number))}] : 0 <= i < {3**number} and {' and '.join(terms)} }}"


def test_a_relation_of_many_quotients_is_not_asked_about() -> None:
    import islpy

    few, many = (islpy.Map.read_from_str(context(), nested(number)) for number in (2, QUOTIENTS + 4))
    assert _is_one_to_one(few)
    assert tractable(few) is few
    for ask in (_is_one_to_one, tractable):
        with pytest.raises(LimitReached, match=f"^{QUOTIENTS} quotients"):
            ask(many)


def test_points_of_a_thin_set_are_found_without_isl() -> None:
    import islpy

    found, complete = scattered(islpy.Set.read_from_str(context(), "{ [i, j] : 0 <= i < 600 and 0 <= j < 600 and 7i + j = 599 }"), 16)
    assert not complete or len(found) > 16
    assert ((7 * found[:, 0] + found[:, 1]) == 599).all()
    assert len(found) >= 16
    assert {(0, 599), (85, 4)} <= set(map(tuple, found.tolist()))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_gradient_of_a_gather_with_many_quotients(executor: str) -> None:
    """Its certificate took two minutes; so it counts only if it is decided by what is cheap."""
    rng = np.random.default_rng(0)
    a, b = (Duplicated(rng.random((2, 3, 5, 5))) for _ in range(2))
    seed = rng.random(1350)
    with running(executor):
        gpuad.autodiff(gpuad.kernel(SIZES + KERNEL, "k"), 2, 1024, (Duplicated(np.zeros(1350), seed.copy()), a, b))
    expected = np.zeros_like(a.primal), np.zeros_like(b.primal)
    for (c, u, v, n, y, x), weight in np.ndenumerate(seed.reshape(3, 3, 3, 2, 5, 5)):
        yy, xx = y + u - 1, x + v - 1
        if 0 <= yy < 5 and 0 <= xx < 5:
            expected[0][n, c, y, x] += weight * b.primal[n, c, yy, xx]
            expected[1][n, c, yy, xx] += weight * a.primal[n, c, y, x]
    np.testing.assert_allclose(a.shadow, expected[0], rtol=1e-12)
    np.testing.assert_allclose(b.shadow, expected[1], rtol=1e-12)


DIGITS = """
extern "C" __global__ void k(double* out, const double* a, const double* b) {
  for (int q = blockIdx.x * blockDim.x + threadIdx.x; q < 560; q += blockDim.x * gridDim.x) {
    int i = q % 7, j = q / 7 % 2, k = q / 14 % 5, l = q / 70;
    out[q] = a[l*8 + j*2 + k*8 + i*2 + 1] * b[i*3 + k*8 + 2];
  }
}
"""


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_gradient_of_a_gather_by_four_digits(executor: str) -> None:
    rng, q = np.random.default_rng(0), np.arange(560)
    a, b = (Duplicated(rng.random(n)) for n in (120, 60))
    seed = rng.random(560)
    with running(executor):
        gpuad.autodiff(gpuad.kernel(DIGITS, "k"), 2, 128, (Duplicated(np.zeros(560), seed.copy()), a, b))
    i, j, k, m = q % 7, q // 7 % 2, q // 14 % 5, q // 70
    at, bt = m * 8 + j * 2 + k * 8 + i * 2 + 1, i * 3 + k * 8 + 2
    np.testing.assert_allclose(a.shadow, np.bincount(at, seed * b.primal[bt], 120), rtol=1e-12)
    np.testing.assert_allclose(b.shadow, np.bincount(bt, seed * a.primal[at], 60), rtol=1e-12)


# --- what is said of a limit ------------------------------------------------------------------------------------------------------------

STENCIL = """extern "C" __global__ void k(const double* u, double* v, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i > 0 && i < n - 1) v[i] = u[i - 1] * u[i + 1]; }"""
MEETING = """extern "C" __global__ void k(const double* u, double* v, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) v[i] = u[i / 2] * u[i / 2]; }"""


def explained(text: str, n: int) -> tuple[dict[str, tuple[str, str]], np.ndarray]:
    """How each shadow of a launch is accumulated, and why; and the gradient."""
    u, v = Duplicated(np.arange(1.0, n + 1)), Duplicated(np.zeros(n), np.ones(n))
    kernel = gpuad.kernel(text, "k")
    with running("reference"):
        found = kernel.adjoint(grid=2, block=32, args=(u, v, n)).explain()
        gpuad.autodiff(kernel, 2, 32, (u, v, n))
    return {row.name: (row.how, row.why) for row in found.rows if row.topic == "shadow"}, u.shadow


def test_a_launch_whose_steps_are_used_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, expected = explained(STENCIL, 60)
    assert rows["du"][0] == "gather"
    monkeypatch.setattr(relations, "STEPS", 1)
    rows, found = explained(STENCIL, 60)
    assert rows["du"][0] == "atomic"
    assert "not decided within 1 steps for this launch" in rows["du"][1]
    np.testing.assert_array_equal(found, expected)


def test_isl_without_operations_is_said_to_be() -> None:
    rows, expected = explained(MEETING, 56)
    assert "not decided" not in rows["du"][1]
    context().set_max_operations(5)
    try:
        rows, found = explained(MEETING, 56)
    finally:
        context().set_max_operations(relations.OPERATIONS)
    assert rows["du"][0] == "atomic"
    assert f"not decided within {relations.OPERATIONS:,} operations of isl" in rows["du"][1]
    np.testing.assert_array_equal(found, expected)


def test_steps_are_counted_by_quotients() -> None:
    import islpy

    allowance = relations.Allowance()
    for number in (2, 5):
        asked = islpy.Map.read_from_str(context(), nested(number))
        before = allowance.left
        with allowance.spent():
            tractable(asked)
        assert before - allowance.left == 1 << relations.quotients_of(asked)
        tractable(asked)  # nothing counts outside
    assert 2 < relations.STEPS - allowance.left < 2**6


def test_a_difference_of_sets_has_operations_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import islpy

    one, other = (islpy.Set.read_from_str(context(), f"{{ [i] : 0 <= i < 90 and i mod {n} <= 1 }}") for n in (5, 7))
    assert relations.without(one, other).is_equal(one.subtract(other))
    monkeypatch.setattr(relations, "SUBTRACTING", 3)
    with pytest.raises(LimitReached, match="3 operations of isl"):
        relations.without(one, other)
    assert one.subtract(other).is_subset(one)


# --- other searches ---------------------------------------------------------------------------------------------------------------------


def sum_of(terms: int) -> str:
    added = " + ".join(f"a[i + {k}] * b[i + {k % 3}]" for k in range(terms))
    return f'extern "C" __global__ void k(double* out, const double* a, const double* b) {{ int i = threadIdx.x; out[i] = {added}; }}'


def test_what_has_too_many_slices_leaves_others_to_be_gathered() -> None:
    terms = MOST_SLICES + 6
    a, b, out = Duplicated(np.ones(terms + 32)), Duplicated(np.ones(35)), Duplicated(np.zeros(32), np.ones(32))
    kernel = gpuad.kernel(sum_of(terms), "k")
    with running("reference"):
        found = kernel.adjoint(grid=1, block=32, args=(out, a, b)).explain()
        gpuad.autodiff(kernel, 1, 32, (out, a, b))
    assert {row.name: row.how for row in found.rows if row.topic == "shadow" and row.name != "dout"} == {"da": "atomic", "db": "gather"}
    np.testing.assert_array_equal(a.shadow[:-1], np.convolve(np.ones(terms), np.ones(32)))
    counts = [len(range(k, terms, 3)) for k in range(3)]
    np.testing.assert_array_equal(b.shadow[:34], np.convolve(counts, np.ones(32)))


def test_a_search_for_conflicts_ends() -> None:
    terms = [conflicts.Term(1, -5, 5, thread=True), conflicts.Term(3, -5, 5)]
    assert conflicts.can_cancel(terms, 0, False, conflicts.Nodes())
    spent = conflicts.Nodes()
    spent.left = 0
    assert not conflicts.can_cancel(terms, 0, False, spent)
    nodes = conflicts.Nodes()
    conflicts.can_cancel(terms, 1000, False, nodes)
    assert nodes.left < conflicts.ALL_NODES


def test_a_minimum_cut_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = [(min_cut.SOURCE, k) for k in range(9)] + [(k, min_cut.SINK) for k in range(9)]
    assert min_cut.minimum_cut(edges, dict.fromkeys(range(9), 4)) == frozenset(range(9))
    monkeypatch.setattr(min_cut, "STEPS", 50)
    assert min_cut.minimum_cut(edges, dict.fromkeys(range(9), 4)) is None


def test_nested_loops_are_walked_a_few_times_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level was gone through twice for each time that the one around it was."""
    depth, calls, before = 9, [0], coalesce._Liveness.loop

    def counted(self: coalesce._Liveness, *given: object) -> object:
        calls[0] += 1
        return before(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(coalesce._Liveness, "loop", counted)
    loops = " ".join(f"for (int j{k} = 0; j{k} < n; ++j{k}) {{ s = s * 0.5 + a[j{k}];" for k in range(depth))
    text = f'extern "C" __global__ void k(double* out, const double* a, int n) {{ double s = 1; {loops} {"}" * depth} out[0] = s; }}'
    kernel = gpuad.kernel(text, "k")
    cuda_source([api.kernel(kernel).primal()])
    assert depth <= calls[0] <= depth * (depth + 3)
