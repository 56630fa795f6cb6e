"""Functions of `scipy.special` as rules: values are SciPy's, gradients those of central differences, forward mode agrees with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_ops_numpy import check

import gpuad
from gpuad import Duplicated, ShadowError, Tape, ops
from gpuad.ops.special_rules import _RULES

special = pytest.importorskip("scipy.special")
PLACES = np.array([0.13, 0.4, 0.77])
FIRST: dict[str, Any] = {
    "polygamma": np.array([0, 1, 2]), "yn": np.array([0, 1, 3]), "expn": np.array([0, 1, 4]), "pdtr": np.array([0.0, 1.0, 3.0]),
    "pdtrc": np.array([0.0, 1.0, 3.0]), "zeta": np.array([1.5, 2.0, 4.0]),
}  # fmt: skip


def arguments(name: str) -> tuple[list[Any], list[int]]:
    """Arguments, and the places of those that have a derivative."""
    given = [PLACES + 0.2 * k for k in range(len(_RULES[name]))]
    given[0] = FIRST.get(name, given[0] + (1.0 if len(given) > 1 else 0.0))
    if name in ("gammaincinv", "gammainccinv", "chdtri", "betainc", "betaincinv"):
        given[-1] = PLACES
    return given if name != "ndtri_exp" else [-given[0]], [k for k, f in enumerate(_RULES[name]) if f is not None]


@pytest.mark.parametrize("name", _RULES)
def test_values_gradients_and_tangents(name: str) -> None:
    given, active = arguments(name)

    def program(library: Any) -> Any:
        return lambda *x: getattr(library, name)(*[x[active.index(k)] if k in active else given[k] for k in range(len(given))])

    check(program(ops), program(special), *(given[k] for k in active), tolerance=2e-6)
    directions = tuple(np.cos(np.arange(3.0) + k) for k in active)
    values = tuple(given[k] for k in active)
    value, slope = gpuad.jvp(program(ops), values, directions)
    up, down = (program(special)(*(v + s * 1e-6 * d for v, d in zip(values, directions, strict=True))) for s in (1, -1))
    np.testing.assert_allclose(slope, (up - down) / 2e-6, rtol=2e-6, atol=1e-8)
    np.testing.assert_array_equal(value, program(special)(*values))


@pytest.mark.parametrize("name", ["digamma", "rgamma", "exprel", "i1e", "boxcox", "inv_boxcox", "cosm1"])
def test_at_places_of_their_own(name: str) -> None:
    """Poles, zeros, and where a formula would cancel: by differences of a step that fits."""
    x = {"digamma": [-1.4, -0.3, 9.0], "rgamma": [-3.0, 0.0, -1.0], "boxcox": [1.0001, 2.0, 0.3]}.get(name, [0.0, 1e-4, -0.02])
    p = (np.array([0.0, 1e-5, -0.4]),) if "box" in name else ()
    check(
        lambda *v: getattr(ops, name)(*v),
        lambda *v: getattr(special, name)(*v),
        np.array(x),
        *p,
        h=1e-7 if name == "i1e" else 1e-5,
        tolerance=1e-6,
    )


def test_broadcast_single_precision_and_out() -> None:
    check(lambda x: ops.gammaincc(np.array([[1.0], [2.5]]), x), lambda x: special.gammaincc(np.array([[1.0], [2.5]]), x), PLACES)
    pair = Duplicated(PLACES.astype(np.float32))
    with Tape() as tape:
        found = ops.k1e(pair, out=Duplicated(np.zeros(3, np.float32)))
    tape.reverse({found: np.ones(3)})
    assert found.dtype == np.float32 and pair.shadow.dtype == np.float32
    np.testing.assert_array_equal(found.primal, special.k1e(PLACES.astype(np.float32)))
    check(lambda x: special.betainc(2.0, 3.0, x), lambda x: special.betainc(2.0, 3.0, x), PLACES)


def test_an_argument_without_a_derivative_is_refused() -> None:
    with Tape(), pytest.raises(ShadowError, match="argument 0"):
        ops.gammainc(Duplicated(PLACES), 1.0)
    with Tape(), pytest.raises(gpuad.GpuadError, match="takes 2 arguments"):
        ops.gammainc(Duplicated(PLACES))
