"""The public names of what users hold: those that the API pages list, and no others."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Active, BatchDuplicated, Const, Duplicated
from gpuad.runtime.reference import BoundsError

PAGE = Path(__file__).parents[2] / "docs" / "api" / "gpuad.md"
OFFERED = re.compile(r"^::: gpuad\.([\w.]*\b[A-Z]\w*)\n    options:\n(?:      (?!members).*\n)?      members: \[([^\]]*)\]", re.M)
LISTED = {name.rpartition(".")[2]: set(members.split(", ")) for name, members in OFFERED.findall(PAGE.read_text(encoding="utf-8"))}
FAMILIES = {"ElementwiseKernel", "ReductionKernel"}  # which the package calls by more names, as kernels of CuPy's have more
SQUARE = """extern "C" __global__ void square(double* u, double* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = u[i] * u[i];
}"""
IN_PARTS = """#include <cooperative_groups.h>
extern "C" __global__ void parts(double* u, double* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = u[i];
    cooperative_groups::this_grid().sync();
    if (i < n) v[i] *= u[i];
}"""
LISTED_ARRAYS = """extern "C" __global__ void listed(double** u, double* v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = u[0][i] * u[1][i];
}"""


@pytest.fixture(scope="module")
def handed_out() -> dict[str, Any]:
    """An object of each kind, by the name that the page has for it."""
    u, v = (Duplicated(np.ones(4), np.ones(4)) for _ in range(2))
    square, graphed = gpuad.kernel(SQUARE, "square"), gpuad.Tape()
    with gpuad.profile() as profiling:
        with gpuad.Tape() as tape:
            square(1, 4, (u, v, 4))
        made = {"Stats": tape.stats, "Account": tape.explain(), "Holding": tape.held(), "Outlook": tape.plan(), "Tradeoff": tape.tradeoff()}
        tape.reverse()
    with graphed:
        square(1, 4, (u, v, 4))
    adjoint = square.adjoint(u=Duplicated, v=Duplicated)
    saved = gpuad.autodiff_thunk(square, u=Duplicated, v=Duplicated)[0](1, 4, (u.primal, v.primal, 4))
    return {
        **made, "Held": made["Holding"].held[0], "Graph": graphed.graph(), "Profile": profiling._profile, "Tape": tape, "Kernel": square,
        "AdjointText": adjoint, "Explanation": adjoint.explain(), "Saved": saved, "Duplicated": u, "Active": Active(1.0, np.zeros(())),
        "Const": Const(u), "BatchDuplicated": BatchDuplicated(u.primal, (v.primal,)), "Texture": gpuad.Texture(np.ones(4, np.float32)),
    }  # fmt: skip


def names(held: Any) -> set[str]:
    return {member for member in dir(held) if not member.startswith("_")}


@pytest.mark.parametrize("name", sorted(LISTED.keys() - FAMILIES - {"CompileError", "UnsupportedError"}))
def test_what_the_page_lists_is_what_dir_shows(name: str, handed_out: dict[str, Any]) -> None:
    held = handed_out[name]
    assert type(held).__name__ == name
    special = {member for member in LISTED[name] if member.startswith("__")}
    assert names(held) == LISTED[name] - special
    assert all(hasattr(held, member) for member in special)


@pytest.mark.parametrize(
    ("text", "name", "bounds"), [(IN_PARTS, "parts", False), (LISTED_ARRAYS, "listed", False), (SQUARE, "square", True)]
)
def test_kernels_of_each_kind_are_one_to_their_users(text: str, name: str, bounds: bool) -> None:
    kernel = gpuad.kernel(text, name, bounds=bounds)
    assert type(kernel) is gpuad.Kernel and names(kernel) == names(gpuad.kernel(SQUARE, "square"))
    assert gpuad.kernel(kernel) is kernel and kernel.name == name and len(kernel.parameters) == 3 and kernel.source == text
    x, y = np.arange(4.0), np.zeros(4)
    launches = [*kernel.launches(1, 4, ([x, x] if name == "listed" else x, y, 4))]
    assert len(launches) == (2 if name == "parts" else 1) and not y.any()
    for own, grid, block, args, *_ in launches:
        assert type(own) is gpuad.Kernel
        own(grid, block, args)
    assert np.array_equal(y, np.arange(4.0) ** 2)


def test_a_kernel_that_is_looked_at_stays_so() -> None:
    """With a shadow for a variable of its module, and for another kernel of it."""
    text = '__constant__ double c[1];\nextern "C" __global__ void k(double* x) { x[(int)x[0]] *= c[0]; }\n'
    text += 'extern "C" __global__ void other(double* x) { x[(int)x[0]] = 1.0; }\n'
    kernel = gpuad.kernel(text, "k", bounds=True)
    kernel.get_global("c")[:] = 1
    for made in (kernel.with_shadow("c", np.zeros(1)), gpuad.kernel(kernel, "other")):
        with pytest.raises(BoundsError, match=made.name):
            made(1, 1, (np.full(4, 4.0),))


def test_a_tape_is_one_to_the_names_of_the_interface() -> None:
    class Named(gpuad.Tape):
        """A tape with a name."""

        def __init__(self, name: str) -> None:
            super().__init__(restore=True)
            self.name = name

    tape = Named("mine")
    with tape as entered:
        assert entered is tape and isinstance(entered, gpuad.Tape)
    assert tape.name == "mine" and repr(tape) == "<tape: 0 operations, recorded>"
    with pytest.raises(AttributeError):
        gpuad.Tape().budegt = 3  # type: ignore[attr-defined]
    with pytest.raises(gpuad.ArgumentError, match=r"Tape.*unexpected keyword argument 'budegt'"):
        gpuad.Tape(budegt=3)  # type: ignore[call-arg]
