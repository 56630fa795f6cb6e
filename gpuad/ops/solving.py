"""Linear systems A x = b, where A is what a function does to x, by the implicit function theorem.

In: a function that is linear in its first argument, written with array operations; the arrays that it depends on, annotated or not; the
right-hand side. Out: x, a pair if one of them is. With A^H g = dx: db = g, and the other arrays get what the function's own gradient is at
x with the seed -g. So a solve keeps x and the arrays, no iteration. The products with A^H are the function's gradient with respect to its
first argument.

Assumed: the function reads and changes nothing else that matters, and is linear. Raises ConvergenceError where a solver does not reach the
tolerance, forwards or backwards, before a shadow is changed; TapeError for a pair that the function has from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..arguments.annotations import Active, Const, Duplicated
from ..arguments.recorder import unrecorded
from ..errors import ArgumentTypeError, ArgumentValueError, ConvergenceError, UnsupportedError
from ..public_calls import brief, named, show
from ..tape.facade import Tape
from ..tape.rules import rule
from .adjoints import add_to, library_of
from .elementwise import check_recorded
from .krylov import Solution, cg, gmres
from .layout import primal_of
from .linear import matmul
from .parts import as_operand
from .plain_results import bare
from .reductions import result_for
from .sparse_matrices import Matrix, is_sparse

Operator = Callable[..., Any]
SOLVERS: dict[str, Callable[..., Solution]] = {"cg": cg, "gmres": gmres}
_MOST = 6  # arrays that a function depends on


@dataclass(frozen=True)
class System:
    """A system and how it is solved. Two are equal if they are the same: a program that comes again is known by that."""

    operator: Operator
    solver: str | Callable[..., Any]
    hermitian: bool
    tolerance: float
    iterations: int | None

    def solved(self, product: Callable[[Any], Any], b: Any, what: str) -> Any:
        """The solution for a right-hand side. ConvergenceError if it is not reached."""
        if not isinstance(self.solver, str):
            return self.solver(product, b)
        most = self.iterations or 10 * max(int(b.size), 10)
        found = SOLVERS[self.solver](product, b, library_of(b).zeros_like(b), self.tolerance, most)
        if not found.residual <= 10 * self.tolerance:
            hint = "; conjugate gradients are for Hermitian positive definite matrices: try solver='gmres'" if self.solver == "cg" else ""
            raise ConvergenceError(
                f"solve_with: {self.solver} has reached a residual of {found.residual:.1e} of the {what}, not {self.tolerance:.1e}, in "
                f"{most} iterations{hint}; or give tol= and maxiter="
            )
        return found.x

    def applied(self, x: Any, parameters: tuple[Any, ...]) -> Any:
        """The product, plain."""
        with unrecorded():
            found = bare(self.operator(x, *parameters))
        if getattr(found, "shape", None) != x.shape:
            raise ArgumentValueError(f"solve_with: the operator gives {show(found)} for an array of shape {tuple(x.shape)}")
        return found


@lru_cache(maxsize=256)
def _system(*given: Any) -> System:
    """The same object for the same system, by which a tape knows it."""
    return System(*given)


def _pull(tape: Tape, system: System, x: Any, parameters: tuple[Any, ...], seed: Any) -> None:
    """Pulls a seed of the product back into the shadows of pairs, by a tape that knows the product from the last time."""
    with unrecorded(), tape:
        found = system.operator(x, *parameters)
    if not isinstance(found, Duplicated):
        raise ArgumentTypeError(f"solve_with: the operator gives {show(found)} for a pair: its result depends on its first argument")
    tape.reverse({found: seed}, allow_unused=True)


def _solve_reverse(x: Any, system: System, db: Any, dx: Any, p0: Any, p1: Any, p2: Any, p3: Any, p4: Any, p5: Any, dp0: Any, dp1: Any,
                   dp2: Any, dp3: Any, dp4: Any, dp5: Any, count: int) -> None:  # fmt: skip
    parameters = (p0, p1, p2, p3, p4, p5)[:count]
    shadows = (dp0, dp1, dp2, dp3, dp4, dp5)[:count]
    if system.hermitian:
        grown = system.solved(lambda v: system.applied(v, parameters), dx, "gradient")
    else:
        at, tape = Duplicated(library_of(dx).zeros_like(dx)), Tape()

        def transposed(v: Any) -> Any:
            at.shadow[...] = 0
            _pull(tape, system, at, parameters, v)
            return at.shadow.copy()

        grown = system.solved(transposed, dx, "gradient")
    if any(d is not None for d in shadows):
        pairs = [_own_pair(p) if d is not None else p for p, d in zip(parameters, shadows, strict=True)]
        _pull(Tape(), system, Duplicated(x.copy()), tuple(pairs), -grown)
        for pair, d in zip(pairs, shadows, strict=True):
            if d is not None:
                add_to(d, pair.shadow)
    if db is not None:
        add_to(db, grown)


def _own_pair(p: Any) -> Any:
    """A parameter with a shadow of zeros: a number in an array of shape ()."""
    return Duplicated(p.copy() if hasattr(p, "copy") else np.array(p))


_PARAMETERS = tuple(f"p{k}" for k in range(_MOST))


@rule(
    reads=("b", *_PARAMETERS), overwrites=("x",), reverse=_solve_reverse, pure=True,
    needs={"x": ("after", *_PARAMETERS)} | dict.fromkeys(_PARAMETERS, "before"),
)  # fmt: skip
def _solve(b: Any, x: Any, system: System, count: int, p0: Any = None, p1: Any = None, p2: Any = None, p3: Any = None, p4: Any = None,
           p5: Any = None) -> None:  # fmt: skip
    parameters = (p0, p1, p2, p3, p4, p5)[:count]
    x[...] = system.solved(lambda v: system.applied(v, parameters), b.astype(x.dtype, copy=False), "right-hand side")


_solve.function.host_decides = True  # type: ignore[attr-defined]


def solve_with(
    operator: Operator,
    b: Any,
    *parameters: Any,
    solver: str | Callable[..., Any] = "gmres",
    hermitian: bool = False,
    tol: float = 1e-12,
    maxiter: int | None = None,
) -> Any:
    """Solves A x = b, where `operator(x, *parameters)` is the product A x, with the gradients of the implicit function theorem.

    `operator`: a function defined once (a program that makes it anew in each round is recorded anew), linear in x, of x's shape, written
    with recorded operations. `parameters`: up to six arrays or numbers that A depends on; pairs among them get gradients. `solver`:
    'gmres', 'cg' (Hermitian positive definite), or a function of (product, b) that gives x, used for A^H too. `hermitian`: A^H is A; so it
    is with 'cg'. `tol`: |A x - b| / |b| to be reached, at least 4 times the type's rounding. `maxiter`: 10 times the number of elements by
    default. Raises ConvergenceError where it is not reached."""
    check_recorded("solve_with", (b, *parameters))
    if not callable(operator):
        raise ArgumentTypeError(f"solve_with: `operator` is a function of x and the parameters, not {show(operator)}")
    if len(parameters) > _MOST:
        raise ArgumentValueError(f"solve_with takes up to {_MOST} parameters, not {len(parameters)}: put some into one array")
    if isinstance(solver, str) and solver not in SOLVERS:
        raise ArgumentValueError(f"solve_with: `solver` is 'cg', 'gmres' or a function, not {brief(solver)}")
    b = as_operand("solve_with", b)
    kind = np.result_type(*(_kind(x) for x in (b, *parameters)), np.float32)
    system = _system(operator, solver, hermitian or solver == "cg", max(float(tol), 4 * float(np.finfo(kind).eps)), maxiter)
    out = result_for((b, *(p for p in parameters if isinstance(p, Duplicated))), primal_of(b).shape, kind)
    if isinstance(out, Duplicated) or not any(isinstance(p, Active) for p in parameters):
        _solve(b, out, system, len(parameters), *parameters)
        return out
    raise ArgumentTypeError("solve_with: a number with a gradient needs a pair beside it: pass it as Duplicated(np.array(value))")


def _kind(x: Any) -> Any:
    plain = x.value if isinstance(x, Active) else bare(x) if not isinstance(x, Const) else x.primal
    kind = np.asarray(plain).dtype if not hasattr(plain, "dtype") else plain.dtype
    return kind if kind.kind in "fc" and np.ndim(plain) else np.float32 if kind.kind != "c" else np.complex64


# --- under SciPy's names ---------------------------------------------------------------------------------------------------------------


def _dense(x: Any, a: Any) -> Any:
    return matmul(a, x)


def sparse_solver(name: str) -> Callable[..., Any]:
    """`cg` and `gmres` of `scipy.sparse.linalg`; and `spsolve`, by GMRES."""

    def function(A: Any, b: Any, x0: Any = None, *, rtol: float = 1e-5, tol: float | None = None, atol: float = 0.0,
                 maxiter: int | None = None, restart: int | None = None, M: Any = None, callback: Any = None) -> Any:  # fmt: skip
        if callback is not None:
            raise UnsupportedError(f"{name}: `callback` is not called, since a program that comes again may solve without the caller")
        exact = 1e-12 if name == "spsolve" else tol or rtol
        solver = "cg" if name == "cg" else "gmres"
        if is_sparse(A):
            found = solve_with(Matrix(A), b, solver=solver, tol=exact, maxiter=maxiter)
        else:
            found = solve_with(_dense, b, as_operand(name, A), solver=solver, tol=exact, maxiter=maxiter)
        return found if name == "spsolve" else (found, 0)

    text = (
        f"As `scipy.sparse.linalg.{name}`, by `solve_with`: gradients by the adjoint system to the same tolerance. Preconditioners and "
        "first guesses change no solution, and are not used; ConvergenceError in the place of an `info` that is not 0."
    )
    return named(function, name, text)


TABLE: dict[str, Callable[..., Any]] = {"solve_with": solve_with} | {
    f"sparse.linalg.{name}": sparse_solver(name) for name in ("cg", "gmres", "spsolve")
}
