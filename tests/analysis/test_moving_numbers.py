"""Which whole numbers only move arrays, by the texts of kernels."""

from __future__ import annotations

import pytest

from gpuad import api
from gpuad.analysis.moving_numbers import moving_numbers, numbers_as_values

HEAD = 'extern "C" __global__ void k(double* y, const double* x, int it, int jt, int n, unsigned u, size_t z) { int i = threadIdx.x; '
NAMES = ("y", "x", "it", "jt", "n", "u", "z")


def moved(body: str) -> dict[str, str]:
    """For each array that is moved its terms, and under "" the numbers."""
    moves = moving_numbers(api.kernel(HEAD + body + " }", "k").primal())

    def shown(terms: object) -> str:
        return " + ".join(sorted("*".join(sorted([*(NAMES[f] for f in t.factors), str(t.coefficient)])) for t in terms))  # type: ignore[attr-defined]

    used = moves.factors & moves.numbers
    return {**{NAMES[k]: shown(terms) for k, terms in moves.arrays}, "": " ".join(NAMES[k] for k in sorted(used))}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y[i] = x[it];", {"x": "1*it", "": "it"}),
        ("y[it + i] = x[i];", {"y": "1*it", "": "it"}),
        ("if (i < n) y[it * n + i] = x[i];", {"y": "1*it*n", "": "it"}),
        ("if (i < n) y[(it + 1) * n + i] = 2 * y[it * n + i];", {"y": "1*it*n", "": "it"}),
        ("int at = 3 * it; y[i] = x[at + i] + x[at - i];", {"x": "3*it", "": "it"}),
        ("y[jt * n + i] = x[it * jt + i]; if (n > i) y[i + jt * n] = 0;", {"y": "1*jt*n", "x": "1*it*jt", "": "it jt"}),
        ("const double* p = x + it; y[i] = *p; p += 2; y[i] += p[i];", {"x": "1*it", "": "it"}),
        ("for (int j = 0; j < n; ++j) y[i] += x[it * n + j];", {"x": "1*it*n", "": "it"}),
        ("if (i > 3) { atomicAdd(&y[it], x[i]); }", {"y": "1*it", "": "it"}),
        ("y[i] = x[(size_t)it * n + i]; if (i < n) y[i] += 1;", {"x": "1*it*n", "": "it"}),
        ("y[i] = x[z + i];", {"x": "1*z", "": "z"}),
    ],
)
def test_numbers_that_only_move_arrays(body: str, expected: dict[str, str]) -> None:
    assert moved(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        "y[i] = x[it] + x[i];",  # one access moves, the other does not
        "y[i] = x[it + i] + x[2 * it + i];",
        "y[i] = x[it] * it;",  # a value
        "if (it > 3) y[i] = x[it];",
        "y[i] = it < n ? x[it] : 0.0;",
        "for (int j = 0; j < it; ++j) y[i] += x[it + j];",
        "y[i] = x[it % 3];",
        "y[i] = x[it / 2 + i];",
        "y[i] = x[it * i];",  # a stride
        "y[i] = x[it * it + i] + x[it];",
        "y[i] = x[u + i];",  # wraps below 0
        "y[i] = x[(unsigned)it - 1u + i];",
        "y[i] = x[(short)it];",
        "y[i] = x[min(it, 5)];",
        "__shared__ double s[64]; s[it + i] = x[i]; __syncthreads(); y[i] = s[it + i];",
        "int j = it; while (j < i) ++j; y[i] = x[j];",
        "int j = 0; for (int m = 0; m < 3; ++m) { int s = j + it; j = s; } y[i] = x[j];",
        "int j = i; if (x[i] > 0) { int s = j + it; j = s; } y[i] = x[j];",
    ],
)
def test_numbers_that_do_something_else(body: str) -> None:
    assert moved(body)[""] == ""


def test_what_moves_beside_what_does_not() -> None:
    assert moved("if (jt > 2) y[i] = x[it + jt + i]; else y[i] = x[it + jt];") == {"x": "1*it", "": "it"}


@pytest.mark.parametrize(
    ("body", "values"),
    [
        ("y[i] = x[i] * it;", "it"),
        ("y[i] = x[i] * (1.0 - pow(0.9, (double)(it + 1)));", "it"),
        ("int j = it + jt; y[i] = x[i] * j + u;", "it jt u"),
        ("if (x[i] > (double)it) y[i] = 1.0 / (float)z;", "it z"),
        ("y[i] = x[i] * it; if (it > 2) y[i] = 0;", ""),
        ("y[i] = x[i] * it + x[it];", ""),
        ("for (int j = 0; j < it; ++j) y[i] += it;", ""),
        ("y[i] = x[i] * (double)(it % 3 == 0);", "it"),
        ("y[i] = it > 3 ? x[i] : 0.0;", ""),
        ("int j = i; if (x[i] > 0) { int s = j + it; j = s; } y[i] = j;", ""),
        ("int s = 0; for (int j = 0; j < 3; ++j) s += it; y[i] = x[i] * s;", ""),
        ("__shared__ int s[64]; s[i] = it; __syncthreads(); y[i] = x[i] * s[63 - i];", ""),
    ],
)
def test_numbers_that_only_become_floating_point_values(body: str, values: str) -> None:
    found = numbers_as_values(api.kernel(HEAD + body + " if (i < n) y[i] += x[0]; }", "k").primal())
    used = [k for k in found if NAMES[k] in body.replace("(", " ").replace(")", " ").replace(";", " ").replace("+", " ").split()]
    assert " ".join(NAMES[k] for k in sorted(used)) == values
