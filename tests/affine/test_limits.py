"""What is not decided in a bounded number of steps is left undecided; nothing is asked of isl whose time its operations do not bound."""

from __future__ import annotations

import numpy as np
import pytest
from launch_tools import EXECUTORS, running

import gpuad
from gpuad import Duplicated
from gpuad.affine.classes import _is_one_to_one
from gpuad.affine.points import scattered
from gpuad.affine.relations import QUOTIENTS, Undecided, context, tractable

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
        with pytest.raises(Undecided, match=f"more than {QUOTIENTS} quotients"):
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
