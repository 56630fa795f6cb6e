"""Two pointers of a shipped kernel into one array: the gradient is right, or the launch is refused; it is never silently wrong.

Each pair of pointers of one element type is made equal, and shifted by one element. What is right says the primal of the same launch, by
Taylor and dot product. A launch that is not legal (the reference executor finds a race in it, or an index out of bounds) has no gradient.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from launch_tools import CASES, running, shipped
from nightly import share

from gpuad import Active, Duplicated
from gpuad.api import autodiff, check_races
from gpuad.errors import GpuadError, LaunchError, ShadowError, UnsupportedError
from gpuad.ir.nodes import Accumulate, Atomic, Store
from gpuad.ir.rewrite import walk_stmts
from gpuad.ir.types import Pointer, Scalar
from gpuad.runtime.reference import RaceError
from gpuad.testing import check_gradient

REFUSALS = (ShadowError, UnsupportedError, RaceError, LaunchError)


def float_pointers(name: str) -> list[tuple[int, Scalar]]:
    """Positions and element types of the pointers to floats."""
    found = [(i, d.type.element) for i, d in enumerate(shipped(name).parameters) if isinstance(d.type, Pointer)]
    return [(i, t) for i, t in found if isinstance(t, Scalar) and t.is_float]


def pairs(name: str) -> list[tuple[int, int]]:
    """Of a kernel with many pointers every third pair; nightly all."""
    every = [(i, j) for (i, a), (j, b) in itertools.combinations(float_pointers(name), 2) if a == b]
    return every if len(every) <= 6 else share(every, 3)


def named(name: str, first: int, second: int) -> str:
    parameters = shipped(name).parameters
    return f"{name}-{parameters[first].name}-{parameters[second].name}"


ALIASES = [(name, *pair, shift) for name in share(list(CASES), 3) for pair in pairs(name) for shift in (0, 1)]
IDS = [f"{named(name, i, j)}-{('equal', 'shifted')[shift]}" for name, i, j, shift in ALIASES]


def contents(a: Any, b: Any) -> Any:
    """Values for an array that takes the place of both: of the one that is nowhere negative, since a kernel may take its root."""
    chosen, other = (b, a) if b.min() >= 0 and b.any() and a.min() < 0 else (a, b)
    return np.concatenate([chosen.ravel()] * (2 + other.size // chosen.size))


class Aliased:
    """A case's arguments with the second pointer `shift` elements behind the first, in one array that has room for both, and more."""

    def __init__(self, name: str, first: int, second: int, shift: int) -> None:
        case = CASES[name]
        self.name, self.first, self.second, self.shift = name, first, second, shift
        self.grid, self.block, self.shared_mem = case.geometry({})
        made = case.arrays({d.name: d.type for d in shipped(name).parameters}, 0)
        values = list(made.values())
        self.shapes = values[first].shape, values[second].shape
        self.sizes = values[first].size, values[second].size
        self.fill = contents(values[first], values[second])[: max(self.sizes[0], self.sizes[1] + shift) + 1]
        self.args = [case.annotated(argument, value) for argument, value in made.items()]
        self.room = Duplicated(self.fill.copy())
        self.put(self.room[: self.sizes[0]], self.room[shift : shift + self.sizes[1]])

    def put(self, first: Duplicated, second: Duplicated) -> None:
        self.args[self.first], self.args[self.second] = first.reshape(self.shapes[0]), second.reshape(self.shapes[1])

    def is_legal(self) -> bool:
        """Whether the primal runs without races and within its arrays."""
        copies = [a.primal if isinstance(a, Active) else getattr(a, "primal", a) for a in self.args]
        kept = [np.array(a) for a in copies]
        try:
            check_races(shipped(self.name), self.grid, self.block, tuple(copies), shared_mem=self.shared_mem)
        except GpuadError:
            return False
        finally:
            self.restore(copies, kept)
        return True

    @staticmethod
    def restore(arrays: list[Any], kept: list[Any]) -> None:
        for a, b in zip(arrays, kept, strict=True):
            if isinstance(a, np.ndarray):
                a[...] = b

    def only_read(self) -> bool:
        """Whether the kernel writes to neither of the two."""
        primal = shipped(self.name).primal()
        written = {s.buffer for s in walk_stmts(primal.body) if isinstance(s, Store | Accumulate | Atomic)}
        return primal.params[self.first] not in written and primal.params[self.second] not in written

    def gradient(self) -> dict[int, Any]:
        """The gradient by position, from random seeds, of the arguments as they are."""
        rng = np.random.default_rng(1)
        shadows = {i: a.shadow for i, a in enumerate(self.args) if isinstance(a, Duplicated | Active)}
        for i, shadow in shadows.items():
            shadow[...] = 0 if i in (self.first, self.second) else rng.normal(size=shadow.shape)
        kept = [np.array(getattr(a, "primal", a)) for a in self.args]
        autodiff(shipped(self.name), self.grid, self.block, tuple(self.args), shared_mem=self.shared_mem)
        self.restore([getattr(a, "primal", a) for a in self.args], kept)
        return shadows

    def check(self) -> None:
        """AssertionError where the gradient is wrong. Of two that are only read it is the sum of what two copies get."""
        if not self.only_read():
            check_gradient(
                shipped(self.name), self.args, grid=self.grid, block=self.block, shared_mem=self.shared_mem, directions=1, race_check=False
            )
            return
        found = {i: shadow.copy() for i, shadow in self.gradient().items()}
        whole = self.room.shadow.copy()
        end = self.shift + self.sizes[1]
        self.put(Duplicated(self.fill[: self.sizes[0]].copy()), Duplicated(self.fill[self.shift : end].copy()))
        wanted, total = self.gradient(), np.zeros_like(whole)
        total[: self.sizes[0]] += wanted[self.first].ravel()
        total[self.shift : end] += wanted[self.second].ravel()
        same(whole, total, max(greatest(wanted[i]) for i in (self.first, self.second)))
        for i in found.keys() - {self.first, self.second}:
            same(found[i], wanted[i])


def greatest(a: Any) -> float:
    """The greatest number of an array."""
    return float(np.abs(a).max(initial=0.0))


def same(a: Any, b: Any, scale: float | None = None) -> None:
    """Whether two arrays are the same but for rounding of what is as large as `scale`, or as the second of them."""
    if a.dtype.names:
        for name in a.dtype.names:
            same(a[name], b[name], scale)
        return
    scale = scale or greatest(b) or 1.0
    tolerance = 1e-5 if a.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=tolerance)


def outcome(launch: Aliased, executor: str, plain: bool = True) -> str:
    """'right', 'refused' or 'illegal'; AssertionError where the gradient is wrong."""
    if not launch.is_legal():
        return "illegal"
    arrays = [np.asarray(getattr(a, "primal", a)) for a in launch.args]
    kept = [a.copy() for a in arrays]
    try:
        with running(executor, plain=plain):
            launch.check()
    except REFUSALS as error:
        assert "overlap" in str(error) or "<" in str(error) or ".cu:" in str(error), error
        for a, b in zip(arrays, kept, strict=True):
            np.testing.assert_array_equal(a, b)
        return "refused"
    return "right"


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("name", "first", "second", "shift"), share(ALIASES, 5), ids=share(IDS, 5))
def test_two_pointers_into_one_array(name: str, first: int, second: int, shift: int) -> None:
    outcome(Aliased(name, first, second, shift), "reference")


# Every third kernel once on the host too, whose compiler is told when arguments do not overlap.
ON_HOST = {alias[0]: alias for alias in reversed(ALIASES) if alias[3] == 0}


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", ON_HOST)
def test_two_pointers_into_one_array_on_the_host(name: str) -> None:
    outcome(Aliased(*ON_HOST[name]), "host")


@pytest.mark.one_of(3)
@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("executor", ["reference", "host"])
@pytest.mark.parametrize(
    ("name", "first", "second", "shift", "expected"),
    [
        ("saxpy", "x", "y", 0, "right"),  # y += a y
        ("saxpy", "x", "y", 1, "illegal"),  # a thread reads what its neighbour writes
        ("wave", "now", "c2", 1, "right"),
        ("gemm", "a", "b", 0, "right"),
        ("gemm", "a", "b", 1, "right"),
        ("kepler-eccentric_anomaly", "mean", "anomaly", 0, "right"),
        ("heat", "u", "v", 0, "illegal"),
    ],
)
def test_known_outcomes(name: str, first: str, second: str, shift: int, expected: str, executor: str, plain: bool) -> None:
    names = [d.name for d in shipped(name).parameters]
    assert outcome(Aliased(name, names.index(first), names.index(second), shift), executor, plain) == expected
