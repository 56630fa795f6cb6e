"""What is checked of a random kernel, and how a failing one is cut down.

All memory of a launch is one state; its active part is a vector. Forward mode gives `J v`, reverse mode `J^T w`, in every configuration
that must not matter: executor, recording analysed or not, plain accumulation allowed or not. A `Failure` says which check failed, so that
cutting down does not wander from one fault to another.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from random_cuda import ROW, WIDTH, Kernel, Node

import gpuad
from gpuad import api, pipeline
from gpuad.errors import CompileError, GpuadError, UnsupportedError
from gpuad.runtime.base import Executor
from gpuad.runtime.host import Host
from gpuad.runtime.reference import Reference

REALS = (*"abxyzs", "pv", "zc", "part", "mx", "coef")  # the last five only in kernels of `random_language`
SCALARS = "cd"
LARGE = 1e6
Vector = dict[str, Any]


class Failure(AssertionError):
    """A check that failed: `kind` in one word or two, `detail` with the numbers."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class Discarded(Exception):
    """The kernel says nothing: its values are not finite, or large."""


@dataclass
class Tally:
    """Counts over many kernels. `elements` compared with differences, of which `edges` lay at a knife edge; `seconds` of the kernels had
    their second derivatives compared, which hvp has `refused` for others, with so many `second_elements`, of which `second_edges` lay at a
    kink of the gradient."""

    kernels: int = 0
    discarded: int = 0
    elements: int = 0
    edges: int = 0
    seconds: int = 0
    refused: int = 0
    second_elements: int = 0
    second_edges: int = 0


@dataclass
class Case:
    """A kernel with its arguments, ready to be run in any configuration."""

    kernel: Kernel
    compiled: api.Kernel
    start: Vector
    fixed: dict[str, Any]
    rng: np.random.Generator
    order: tuple[str, ...] = field(default=())
    left: Vector = field(default_factory=dict)  # all memory after the last derivative

    @classmethod
    def of(cls, kernel: Kernel) -> Case:
        compiled = api.kernel(kernel.text, kernel.name)
        rng = np.random.default_rng(sum(kernel.name.encode()))
        dtype = np.float64 if kernel.real == "double" else np.float32
        n = kernel.n
        sizes = {"a": n + (kernel.shift or 0), "b": n, "x": n, "y": n * ROW, "z": n * ROW, "s": n}
        start: Vector = {name: rng.uniform(-1.5, 1.5, size).astype(dtype) for name, size in sizes.items()}
        if kernel.shift is not None:
            del start["b"]
        start.update({name: dtype(rng.uniform(-1.2, 1.2)) for name in SCALARS})
        fixed = {
            "q": rng.integers(0, 5, n).astype(np.int32),
            "idx": rng.integers(0, n, n).astype(np.int32),
            "cnt": rng.integers(0, 4, n).astype(np.int32),
            "n": n, "m": ROW, "w": WIDTH,
        }  # fmt: skip
        return cls(kernel, compiled, start, fixed, rng, tuple(d.name for d in compiled.parameters))

    @property
    def active(self) -> list[str]:
        return sorted(k for k in self.kernel.active if k in self.start)

    @property
    def tolerance(self) -> float:
        return 1e-12 if self.kernel.real == "double" else 1e-5

    def direction(self) -> Vector:
        """A random vector over the active state."""
        return {k: np.asarray(self.rng.standard_normal(np.shape(self.start[k])), np.asarray(self.start[k]).dtype) for k in self.active}

    def seed(self) -> Vector:
        """A random vector over the active memory: numbers are no part of the state after a launch."""
        return {k: v if k not in SCALARS else np.zeros_like(v) for k, v in self.direction().items()}

    def in_hvp(self, vector: Vector) -> Vector:
        """What of a vector there are second derivatives along."""
        return dict(vector)

    def launch(self, run: Callable[[tuple[Any, ...]], None], shadows: Vector | None, moved: Vector | None = None) -> Vector:
        """Runs with fresh copies of the state and returns all memory after it."""
        state = {k: np.array(v) for k, v in (moved or self.start).items()}
        memory = {**state, **{k: np.array(v) for k, v in self.fixed.items()}}
        run(self.arguments(memory, shadows))
        return memory

    def arguments(self, memory: Vector, shadows: Vector | None) -> tuple[Any, ...]:
        """What a call takes of memory and shadows; None for what is in neither."""
        args: list[Any] = []
        for name in self.order:
            value, shadow = self.view(name, memory), None if shadows is None else self.view(name, shadows)
            number = value is not None and value.ndim == 0
            if shadow is None:
                args.append(value[()] if number else value)
            elif number:
                args.append(gpuad.Active(value[()], shadow))
            else:
                args.append(gpuad.Duplicated(value, shadow))
        return tuple(args)

    def view(self, name: str, memory: Vector) -> Any:
        """The argument: a and b may be views of one array."""
        shift, n = self.kernel.shift, self.kernel.n
        if shift is None or name not in "ab":
            return memory.get(name)
        whole = memory.get("a")
        return None if whole is None else whole[:n] if name == "a" else whole[shift : shift + n]

    def primal(self, moved: Vector | None = None) -> Vector:
        k = self.kernel
        return self.launch(lambda args: self.compiled(k.grid, k.threads, args), None, moved)

    def derivative(self, given: Vector, mode: Any, moved: Vector | None = None) -> Vector:
        """`J v` or `J^T w`."""
        k = self.kernel
        shadows = {name: np.array(v) for name, v in given.items()}
        self.left = self.launch(lambda args: gpuad.autodiff(self.compiled, k.grid, k.threads, args, mode=mode), shadows, moved)
        return shadows

    def second(self, v: Vector, w: Vector, u: Vector, moved: Vector | None = None) -> tuple[Vector, Vector, Vector]:
        """`J v`, `J^T w`, and the derivative of that along `v`, with the seeds changing along `u`."""
        k, (dots, shadows, shadow_dots) = self.kernel, ({name: np.array(x) for name, x in one.items()} for one in (v, w, u))
        along = self.arguments(dots, shadow_dots)
        self.left = self.launch(lambda args: gpuad.hvp(self.compiled, k.grid, k.threads, args, along), shadows, moved)
        return dots, shadows, shadow_dots


# --- vectors -------------------------------------------------------------------------------------------------------------------------


def dot(a: Vector, b: Vector) -> float:
    return math.fsum(float(np.vdot(np.asarray(a[k], np.float64), np.asarray(b[k], np.float64))) for k in a.keys() & b.keys())


def norm(a: Vector) -> float:
    return math.sqrt(dot(a, a))


def distance(a: Vector, b: Vector) -> float:
    return norm({k: np.asarray(a[k], np.float64) - np.asarray(b[k], np.float64) for k in a.keys() & b.keys()})


def same(kind: str, a: Vector, b: Vector, tolerance: float) -> None:
    """The vectors agree relative to their norm."""
    error, scale = distance(a, b), max(norm(a), norm(b))
    if not error <= tolerance * scale:
        worst = max(
            (k for k in a.keys() & b.keys()),
            key=lambda k: float(np.nan_to_num(np.max(np.abs(np.asarray(a[k]) - np.asarray(b[k])), initial=0.0), nan=np.inf)),
        )
        raise Failure(kind, f"{error:.2e} of {scale:.2e}, most in '{worst}':\n{a[worst]}\n{b[worst]}")


# --- configurations ------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def configuration(executor: Executor, analyse: bool = True, plain: bool = True) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(pipeline.executor_for_tests(executor))
        if not analyse:
            stack.enter_context(pipeline.everything_recorded_for_tests())
        if not plain:
            stack.enter_context(pipeline.nothing_plain_for_tests())
        yield


CONFIGURATIONS = [(True, True), (True, False), (False, True), (False, False)]


class Noting(Reference):
    """The reference executor, which also keeps every kernel that it runs, so that the host can compile them all in one go."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: dict[str, Any] = {}

    def launch(self, kernel: Any, *args: Any, **keywords: Any) -> None:
        super().launch(kernel, *args, **keywords)
        self.kernels.setdefault(kernel.name, kernel)


# --- the checks ----------------------------------------------------------------------------------------------------------------------


@dataclass
class Found:
    """What the reference executor finds for one kernel: directions `v` and `w`, the state after, the tangent `J v`, the gradient
    `J^T w`; the kernels that it ran, by name."""

    v: Vector
    w: Vector
    after: Vector
    tangent: Vector
    gradient: Vector
    kernels: dict[str, Any]


def check(case: Case, tally: Tally, configurations: Sequence[tuple[bool, bool]] = CONFIGURATIONS) -> Found:
    """All checks of one kernel on the reference executor. Raises Failure; Discarded if the kernel says nothing."""
    reference = Noting()
    with np.errstate(all="ignore"):
        with configuration(reference):
            found = derivatives(case, reference)
            differences(case, found.v, found.tangent, found.after, tally)
        transposed(case, found.tangent, found.gradient, found.v, found.w)
        for analyse, plain in configurations:
            if not (analyse and plain):
                with configuration(Reference(), analyse, plain):
                    other = named(f"reverse analyse={analyse} plain={plain}", lambda: case.derivative(found.w, gpuad.Reverse))
                same(f"analyse={analyse} plain={plain}", found.gradient, other, case.tolerance)
    with np.errstate(all="ignore"), configuration(reference):
        second_differences(case, found, tally)
    tally.kernels += 1
    return found


def derivatives(case: Case, executor: Noting) -> Found:
    """Primal, forward and reverse."""
    after = finite(case)
    v, w = case.direction(), case.seed()
    tangent = without_scalars(named("forward", lambda: case.derivative(v, gpuad.Forward)))
    gradient = named("reverse", lambda: case.derivative(w, gpuad.Reverse))
    small_or_discarded(tangent, gradient)
    return Found(v, w, after, tangent, gradient, executor.kernels)


def finite(case: Case) -> Vector:
    """The memory of reals after the launch. Discarded where that is not finite, or large."""
    after = floats(named("primal", case.primal))
    if not all(np.isfinite(a).all() and np.max(np.abs(a)) < LARGE for a in after.values()):
        raise Discarded
    return after


def small_or_discarded(tangent: Vector, gradient: Vector) -> None:
    """Failure where one of them is not finite, Discarded where it is large."""
    if not all(math.isfinite(norm(x)) for x in (tangent, gradient)):
        raise Failure("not finite", f"tangent {norm(tangent)}, gradient {norm(gradient)}")
    if max(norm(tangent), norm(gradient)) > LARGE:
        raise Discarded


def transposed(case: Case, tangent: Vector, gradient: Vector, v: Vector, w: Vector) -> None:
    """`<J v, w>` is `<v, J^T w>`."""
    left, right = dot(tangent, w), dot(v, gradient)
    scale = max(norm(tangent) * norm(w), norm(v) * norm(gradient))
    if not abs(left - right) <= case.tolerance * scale:
        raise Failure("dot product", f"<Jv, w> = {left!r}, <v, J^T w> = {right!r}, scale {scale:.3e}")


def check_on(host: Host, case: Case, found: Found, *, tangent: bool = True) -> None:
    """The host computes what the reference computed."""
    with configuration(host):
        same("host primal", found.after, floats(named("host", case.primal)), case.tolerance)
        same("host gradient", found.gradient, named("host", lambda: case.derivative(found.w, gpuad.Reverse)), case.tolerance)
        if tangent:
            same(
                "host tangent",
                found.tangent,
                without_scalars(named("host", lambda: case.derivative(found.v, gpuad.Forward))),
                case.tolerance,
            )


def named(kind: str, run: Callable[[], Vector]) -> Vector:
    """An exception becomes a Failure with the exception's type and message."""
    try:
        return run()
    except Failure:
        raise
    except Exception as error:
        text = error.message if isinstance(error, GpuadError) and hasattr(error, "message") else str(error)
        raise Failure(f"{kind}: {type(error).__name__}", str(text).split("\n")[0]) from error


def floats(memory: Vector) -> Vector:
    return {k: memory[k] for k in REALS if k in memory}


def without_scalars(vector: Vector) -> Vector:
    return {k: v for k, v in vector.items() if k not in SCALARS}


def differences(case: Case, v: Vector, tangent: Vector, centre: Vector, tally: Tally) -> None:
    """Central differences of the primal along `v`, element by element, against the tangent. An element is left out where differences of
    steps h and h/2 disagree (a jump), where the slopes to both sides do by an amount that does not shrink with h (a kink), and where it is
    too steep for h."""
    double = case.kernel.real == "double"
    h, loose, steep = (1e-6, 1e-5, 1e3) if double else (4e-3, 2e-2, 20.0)
    runs = [tuple(floats(case.primal(moved(case, v, s))) for s in (step, -step)) for step in (h, h / 2)]
    for k, expected in tangent.items():
        (wide, wide_bend), (narrow, bend) = (slopes(p[k], centre[k], m[k], s) for (p, m), s in zip(runs, (h, h / 2), strict=True))
        size = np.maximum(np.abs(narrow), np.abs(expected)) + 1 + np.abs(centre[k])
        allowed = loose * size
        smooth = (np.abs(wide - narrow) <= 0.1 * allowed) & ((bend <= allowed) | (bend <= 0.75 * wide_bend)) & (np.abs(expected) < steep)
        tally.elements += smooth.size
        tally.edges += int((~smooth).sum())
        wrong = smooth & ~(np.abs(narrow - expected) <= allowed)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise Failure("differences", f"'{k}'[{at}]: differences {narrow[at]!r}, tangent {np.asarray(expected)[at]!r}")


# What hvp refuses by name: whatever else it refuses is a failure.
REFUSED = ("through an atomic", "of the float that an atomic gives")


def second_differences(case: Case, found: Found, tally: Tally) -> None:
    """`hvp` against what forward and reverse mode have found, and against differences of the gradient."""
    v, w = (case.in_hvp(x) for x in (found.v, found.w))
    u = turned(w)
    second = seconds(case, v, w, u)
    if second is None:
        return
    tangent, gradient, change = second
    if v.keys() == found.v.keys():
        same("tangent beside hvp", without_scalars(tangent), found.tangent, case.tolerance)
    same("gradient beside hvp", gradient, {k: found.gradient[k] for k in gradient}, case.tolerance)

    def at(step: float) -> Vector:
        return case.derivative(seeds_at(w, u, step), gpuad.Reverse, moved(case, v, step))

    changes(case, gradient, change, at, tally)


def second_alone(case: Case, tally: Tally) -> None:
    """`hvp` against differences of the primal and of the gradient that it gives itself, and `<J v, w>` against `<v, J^T w>`, so that no
    other kernel has to be derived. Raises Failure; Discarded if the kernel says nothing."""
    with np.errstate(all="ignore"):
        after = finite(case)
        v, w = (case.in_hvp(x) for x in (case.direction(), case.seed()))
        u = turned(w)
        second = seconds(case, v, w, u)
        if second is None:
            tally.refused += 1
            return
        tangent, gradient, change = second
        small_or_discarded(tangent, gradient)
        differences(case, v, without_scalars(tangent), after, tally)
        transposed(case, without_scalars(tangent), gradient, v, w)
        changes(case, gradient, change, lambda step: case.second(v, seeds_at(w, u, step), u, moved(case, v, step))[1], tally, both=False)
    tally.kernels += 1


def turned(w: Vector) -> Vector:
    """Directions of seeds: the same numbers elsewhere."""
    return {k: x[::-1].copy() if x.ndim else x for k, x in w.items()}


def seeds_at(w: Vector, u: Vector, step: float) -> Vector:
    """Seeds `step` along a direction."""
    return {k: (x + step * u[k]).astype(x.dtype) for k, x in w.items()}


def seconds(case: Case, v: Vector, w: Vector, u: Vector) -> tuple[Vector, Vector, Vector] | None:
    """What `Case.second` gives; None where hvp refuses a kernel by name."""
    try:
        return case.second(v, w, u)
    except UnsupportedError as error:
        if any(text in error.message for text in REFUSED):
            return None
        raise Failure("hvp: UnsupportedError", error.message) from error
    except Exception as error:
        raise Failure(f"hvp: {type(error).__name__}", str(error).split("\n")[0]) from error


def changes(case: Case, gradient: Vector, change: Vector, at: Callable[[float], Vector], tally: Tally, *, both: bool = True) -> None:
    """The derivative of a gradient against central differences of it, element by element: an element is left out as in `differences`, for
    kinks of the gradient. `at`: the gradient, a step along the direction; `both`: with steps h and h/2 in any case, else with h only where
    those of h/2 disagree."""
    h, loose, steep = (1e-5, 1e-5, 1e3) if case.kernel.real == "double" else (4e-3, 3e-2, 20.0)
    near = at(h / 2), at(-h / 2)
    tally.seconds += 1
    if not both and all(_agree(near, gradient, k, expected, h / 2, loose) for k, expected in change.items()):
        tally.second_elements += sum(np.size(x) for x in change.values())
        return
    runs = [(at(h), at(-h)), near]
    for k, expected in change.items():
        centre = np.asarray(gradient[k], np.float64)
        (wide, wide_bend), (narrow, bend) = (slopes(p[k], centre, m[k], s) for (p, m), s in zip(runs, (h, h / 2), strict=True))
        size = np.maximum(np.abs(narrow), np.abs(expected)) + 1 + np.abs(centre)
        allowed = loose * size
        smooth = (np.abs(wide - narrow) <= 0.1 * allowed) & ((bend <= allowed) | (bend <= 0.75 * wide_bend)) & (np.abs(narrow) < steep)
        tally.second_elements += smooth.size
        tally.second_edges += int((~smooth).sum())
        wrong = np.atleast_1d(smooth & ~(np.abs(narrow - expected) <= allowed))
        if wrong.any():
            place = int(np.argmax(wrong))
            one, other = (np.atleast_1d(x)[place] for x in (narrow, expected))
            raise Failure("second derivatives", f"'{k}'[{place}]: differences of the gradient {one!r}, hvp {other!r}")


def _agree(ends: tuple[Vector, Vector], gradient: Vector, k: str, expected: Any, step: float, loose: float) -> bool:
    """Whether all elements are as differences say, kinks or not."""
    centre = np.asarray(gradient[k], np.float64)
    slope, _ = slopes(ends[0][k], centre, ends[1][k], step)
    return bool(np.all(np.abs(slope - expected) <= loose * (np.maximum(np.abs(slope), np.abs(expected)) + 1 + np.abs(centre))))


def slopes(plus: Any, centre: Any, minus: Any, step: float) -> tuple[Any, Any]:
    """The central difference, and by how much the two one-sided ones differ."""
    plus, centre, minus = (np.asarray(x, np.float64) for x in (plus, centre, minus))
    return (plus - minus) / (2 * step), np.abs(plus - 2 * centre + minus) / step


def moved(case: Case, v: Vector, step: float) -> Vector:
    """The state `step` along `v`."""
    dtype = np.asarray(case.start["x"]).dtype.type
    state = {k: (np.asarray(x, np.float64) + (step * np.asarray(v[k], np.float64) if k in v else 0.0)) for k, x in case.start.items()}
    return {k: x.astype(dtype) for k, x in state.items()}


# --- cutting down --------------------------------------------------------------------------------------------------------------------


def fault(kernel: Kernel, host: Host | None = None, case_of: Callable[[Any], Case] = Case.of) -> str | None:
    """The kind of failure of a kernel, or None if it passes, says nothing or is no CUDA."""
    try:
        case = case_of(kernel)
        found = check(case, Tally())
        if host is not None:
            host.prepare(found.kernels.values())
            check_on(host, case, found)
    except Failure as failure:
        return failure.kind + (failure.detail if "Error" in failure.kind else "")
    except (Discarded, CompileError):
        return None
    except GpuadError as error:
        return f"refused: {getattr(error, 'message', error)}"
    return None


def shrink(kernel: Kernel, fails: Callable[[Kernel], bool], rounds: int = 2000) -> Kernel:
    """The smallest kernel that still fails, found by dropping statements, unwrapping control flow, and putting parts of expressions in
    their place. `rounds`: how many kernels are tried."""
    best, tried = kernel, 0
    progress = True
    while progress:
        progress = False
        for candidate in smaller(best.program):
            if tried >= rounds:
                return best
            tried += 1
            other = replace(best, program=candidate)
            if fails(other):
                best, progress = other, True
                break
    return best


def smaller(node: Node) -> Iterator[Node]:
    """Trees with one piece simplified, large cuts first."""
    found = sorted(_paths(node), key=lambda item: -len(str(item[1])))
    for path, part in found:
        for simpler in _simpler(part):
            yield _replaced(node, path, simpler)


def _paths(node: Node, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Node]]:
    yield path, node
    for k, child in enumerate(node.children):
        yield from _paths(child, (*path, k))


def _replaced(node: Node, path: tuple[int, ...], part: Node) -> Node:
    if not path:
        return part
    children = list(node.children)
    children[path[0]] = _replaced(children[path[0]], path[1:], part)
    return replace(node, children=tuple(children))


_ATOMS = {"real": ("0.5", "c"), "int": ("1", "0"), "bool": ("true", "false")}


def _simpler(node: Node) -> Iterator[Node]:
    if node.type == "block":
        count = len(node.children)
        size = count
        while size:
            for at in range(0, count, size):
                yield _block((*node.children[:at], *node.children[at + size :]))
            size //= 2
        for at, child in enumerate(node.children):
            for inner in child.children:
                if inner.type == "block":
                    yield _block((*node.children[:at], *inner.children, *node.children[at + 1 :]))
    elif node.type in _ATOMS:
        if node.text not in _ATOMS[node.type]:
            yield from (Node(node.type, text) for text in _ATOMS[node.type])
        yield from (child for child in _inside(node) if child.type == node.type and child is not node)


def _inside(node: Node) -> Iterator[Node]:
    for child in node.children:
        yield child
        yield from _inside(child)


def _block(stmts: Sequence[Node]) -> Node:
    return Node("block", "\n".join(["{}"] * len(stmts)), tuple(stmts))
