"""Rule 26: whatever runs in the place of the plain adjoint by the user's threads has a certificate, and nothing else makes one.

A new way to accumulate, or to launch, that is added without one fails here; a fault planted in a way that is there is refused.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certificate_tools import FAULTS, edited, places
from gather_tools import pairs
from launch_tools import CASES, arguments, compiled, running, shipped
from nightly import share

import gpuad
from gpuad import api, pipeline
from gpuad.accumulate.fixed_point import DIGIT_BITS, DIGITS, fixed_point
from gpuad.affine.accumulation_certificate import Premises, accumulated_otherwise
from gpuad.affine.certificate import Run, Zeros
from gpuad.affine.fixed_point_certificate import summed_otherwise
from gpuad.errors import GpuadError
from gpuad.ir.nodes import Accumulate, Alloc, Block, Buffer, How, Load, Store, Take
from gpuad.ir.rewrite import edit, walk_stmts
from gpuad.pipeline import certificates, schedule
from gpuad.pipeline.calls import Call
from gpuad.pipeline.certificates import run_of
from gpuad.pipeline.derived_kernels import Adjoint
from gpuad.pipeline.pattern import Variant
from gpuad.tape.reverse.shadow_touches import touches_of
from gpuad.tape.reverse.zero_regions import zeros_of

PACKAGE = Path(gpuad.__file__).parent
INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


def bound(kernel: Any, grid: Any, block: Any, args: Any, shared_mem: int = 0) -> tuple[Adjoint, Call]:
    call = kernel.bind(grid, block, tuple(args), shared_mem, None)
    return kernel.reverse_for(api.pattern_of(kernel, call), call), call


def of_case(name: str) -> tuple[Adjoint, Call]:
    return bound(shipped(name), *CASES[name].geometry()[:2], arguments(name), CASES[name].geometry()[2])


def needs_proof(adjoint: Adjoint, stages: tuple[pipeline.Stage, ...]) -> bool:
    """Whether a pass is anything else than one kernel by the user's threads in which every write to a shadow is atomic."""
    (first, *more) = stages
    local = {s.buffer for s in walk_stmts(first.kernel.body) if isinstance(s, Alloc)} - set(adjoint.undecided)
    shadows = {*adjoint.undecided, *certificates.shadows_of(adjoint)} - local
    writes = [s for s in walk_stmts(first.kernel.body) if getattr(s, "buffer", None) in shadows and not isinstance(s, Load | Alloc)]
    atomic = all(isinstance(s, Accumulate | Take) and s.how in (How.ATOMIC, How.REDUCED) for s in writes)
    return bool(more) or first.grid is not None or first.fixed is not None or bool(first.partials) or not atomic


def passes(adjoint: Adjoint, call: Call) -> Iterator[tuple[pipeline.Stage, ...]]:
    """All that may run: by itself, for second derivatives, on zeros, and with sums that are the same in each run."""
    yield pipeline.stages(adjoint, call)
    yield (pipeline.alone(adjoint, call),)
    found = touches_of(adjoint, call)
    assigned = {t.buffer: zeros_of(t.region) for t in found if t.once == "added" and t.region is not None}
    left = frozenset(t.buffer for t in found if t.once == "taken")
    for zero, dead in ((assigned, left), (assigned, frozenset()), ({}, left)):
        stages = pipeline.stages_on_zeros(adjoint, call, {b: z for b, z in zero.items() if z}, dead, frozenset(), frozenset())
        if stages is not None:
            yield stages
    with gpuad.deterministic(), contextlib.suppress(gpuad.UnsupportedError):
        yield pipeline.stages(adjoint, call)


@pytest.mark.one_of(12)
@pytest.mark.parametrize(
    ("name", "executor"), [*((name, "host") for name in CASES), *((name, "reference") for name in share(list(CASES), 12))]
)
def test_each_pass_that_is_not_the_plain_adjoint_has_a_certificate(name: str, executor: str) -> None:
    with running(executor):
        adjoint, call = of_case(name)
        for stages in passes(adjoint, call):
            for stage in stages if needs_proof(adjoint, stages) else ():
                assert stage.certificate is not None and all(any(k is c for c in stage.certificate.kernels) for k in stage.kernels)
            assert all(stage.may_run for stage in stages)


def test_one_module_makes_certificates() -> None:
    """And stages are made where they are certified, but for the text that holds for every launch."""
    made: dict[str, set[str]] = {"Certificate": set(), "Stage": set()}
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                if name in made:
                    made[name].add(file.relative_to(PACKAGE).as_posix())
    assert made == {"Certificate": {"pipeline/certificates.py"}, "Stage": {"pipeline/schedule.py", "api/adjoint_text.py"}}


@pytest.mark.parametrize("what", ["plain", "gathered", "on zeros", "in fixed point"])
def test_what_has_no_certificate_does_not_run(what: str) -> None:
    bodies = {"plain": "v[i] = u[i] * u[i];", "gathered": "v[i] = u[(i + 1) % n] * u[i];", "on zeros": "v[i] += u[i] * u[i];"}
    body = bodies.get(what, "v[i] = u[i / 2];")
    text = f'extern "C" __global__ void k(const double* u, double* v, int n) {{ {INDEX} if (i < n) {body} }}'
    u, v = pairs(1, 8, 8)
    with running("reference"), gpuad.deterministic(what == "in fixed point"):
        adjoint, call = bound(compiled(text, "k"), 2, 4, (u, v, 8))
        zero = {adjoint.undecided[0]: zeros_of(touches_of(adjoint, call)[0].region)} if what == "on zeros" else {}  # type: ignore[arg-type]
        stages = pipeline.stages_on_zeros(adjoint, call, zero, frozenset(), frozenset(), frozenset())
        assert stages is not None and needs_proof(adjoint, stages) and all(s.certificate is not None for s in stages)
        with pytest.raises(GpuadError, match="has no certificate; nothing was launched"):
            pipeline.run_stages(adjoint, [replace(s, certificate=None) for s in stages if not s.partials], call, pipeline.live(call))


def test_without_islpy_everything_is_atomic(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (certificates, schedule):
        monkeypatch.setattr(module, "is_installed", lambda: False)
    text = f'extern "C" __global__ void k(const double* u, double* v, int n) {{ {INDEX} if (i < n) v[i] = u[(i + 1) % n] + 3.0 * u[i]; }}'
    with running("reference"):
        u, v = pairs(1, 8, 8)
        right = u.shadow + np.roll(v.shadow, 1) + 3 * v.shadow
        adjoint, call = bound(compiled(text, "k"), 2, 4, (u, v, 8))
        stages = pipeline.stages(adjoint, call)
        assert not needs_proof(adjoint, stages)
        account = str(compiled(text, "k").adjoint(grid=2, block=4, args=(u, v, 8)).explain())
        assert "atomic   what is faster is not certified (there is no islpy: pip install islpy)" in account
        gpuad.autodiff(compiled(text, "k"), 2, 4, (u, v, 8))
    np.testing.assert_allclose(u.shadow, right)


# --- faults: how a kernel accumulates ----------------------------------------------------------------------------------------------------


def plainly(name: str) -> tuple[Block, Run, frozenset[Buffer]]:
    with running("host"):
        adjoint, call = of_case(name)
        plain = pipeline.plain_shadows(adjoint, call)
        chosen = Variant(plain)
        return adjoint.marked(chosen), run_of(adjoint, call, adjoint.variant(chosen).body), plain


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ["adam", "heat", "softmax", "tridiagonal", "block_softmax", "recurrence-iir"])
def test_faults_in_how_a_kernel_accumulates_are_refused(name: str) -> None:
    """Each kind of fault, at each place where there can be one."""
    reference, run, plain = plainly(name)
    assert plain and not accumulated_otherwise(reference, run, Premises(plain))
    planted = 0
    for kind, fault in FAULTS.items():
        for place in range(places(run.body, fault)):
            body = edited(run.body, fault, [place])
            planted += body != run.body
            assert body == run.body or accumulated_otherwise(reference, replace(run, body=body), Premises(plain)), f"{kind}, {place}"
    assert planted >= 20


def test_an_element_that_is_taken_is_cleared_or_written() -> None:
    reference, run, plain = plainly("adam")
    cleared = edit(run.body, lambda s: (Load(s.var, s.buffer, s.index),) if isinstance(s, Take) else None)
    unwritten = edit(run.body, lambda s: () if isinstance(s, Store) else None)
    for body in (cleared, unwritten):
        assert body == run.body or accumulated_otherwise(reference, replace(run, body=body), Premises(plain))
    met = Premises(frozenset())  # as if threads met in all of them
    assert accumulated_otherwise(reference, run, met)


# --- faults: stores to what holds 0 ------------------------------------------------------------------------------------------------------


def test_faults_in_where_a_shadow_is_zero_are_refused() -> None:
    text = f'extern "C" __global__ void k(const double* u, double* v, int n) {{ {INDEX} if (i < n) v[2 * i + 1] = u[2 * i] * u[2 * i]; }}'
    with running("reference"):
        adjoint, call = bound(compiled(text, "k"), 3, 4, (*pairs(1, 24, 24), 10))
        (du,) = (b for b in adjoint.undecided if b.name == "du")

        def stages(*zero: Zeros) -> Any:
            return pipeline.stages_on_zeros(adjoint, call, {du: zero}, frozenset(), frozenset(), frozenset())

        assert stages(Zeros(0, ((2, 0, 9),))) is not None
        assert stages(Zeros(0, ((2, 0, 4),)), Zeros(10, ((2, 0, 4),))) is not None
        wrong = [Zeros(0, ((2, 0, 8),)), Zeros(0, ((2, 0, 10),)), Zeros(1, ((2, 0, 9),)), Zeros(0, ((1, 0, 18),)), Zeros(2, ((2, 0, 9),))]
        assert all(stages(zero) is None for zero in wrong)


@pytest.mark.parametrize(
    "body",
    [
        "if (i < n) { if (w[i] > 0) v[i] = u[i] * u[i]; }",  # data decide who stores
        "if (i < n) { v[i] = u[i] * u[i]; w[i] = 2 * u[i / 2]; }",  # another addition may come before
        "if (i < n) v[i] = u[i % 5] * u[i % 5];",  # two threads store
        "if (i < n) for (int j = 0; j < 2; j++) v[i] += u[i] * u[i];",  # each iteration stores
    ],
)
def test_stores_that_are_not_the_first_or_not_everywhere_are_refused(body: str) -> None:
    text = f'extern "C" __global__ void k(const double* u, double* v, double* w, int n) {{ {INDEX} {body} }}'
    with running("reference"):
        adjoint, call = bound(compiled(text, "k"), 3, 4, (*pairs(1, 10, 10, 10), 10))
        (du,) = (p.item for p in adjoint.parameters if p.role == "shadow" and p.item.name == "du")
        assert isinstance(du, Buffer)
        chosen = Variant(frozenset({du}), frozenset({du}))
        stage = pipeline.Stage(adjoint.variant(chosen), adjoint.parameters)
        assert any(isinstance(s, Store) and s.buffer == du for s in walk_stmts(stage.kernel.body))
        assert isinstance(certificates.certified(adjoint, call, chosen, [stage], zero={du: (Zeros(0, ((1, 0, 9),)),)}), dict)


# --- faults: sums in fixed point ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["histogram", "scatter_gather-lookup"])
def test_faults_in_fixed_point_are_refused(name: str) -> None:
    with running("host"):
        adjoint, call = of_case(name)
        kernel = adjoint.variant(Variant())
        fixed = fixed_point(kernel, orders_blocks=True)
        assert fixed is not None
        run, count = run_of(adjoint, call, kernel.body), len(kernel.params)
    peaks, sums = (list(k.params[count:]) for k in (fixed.measure, fixed.collect))
    of_peaks: Any = {t: (p,) for t, p in zip(fixed.targets, peaks, strict=True)}
    of_sums: Any = {t: sums[2 * k : 2 * k + 2] for k, t in enumerate(fixed.targets)}

    def refused(measure: Block, collect: Block) -> str | None:
        return summed_otherwise(run, measure, collect, of_peaks, of_sums, DIGITS, DIGIT_BITS)

    one, two = fixed.measure.body, fixed.collect.body
    assert refused(one, two) is None
    assert refused(two, one) and refused(one, one) and refused(two, two)
    planted = 0
    for kind, fault in FAULTS.items():
        for number, body in enumerate((one, two)):
            for place in range(places(body, fault)):
                other = edited(body, fault, [place])
                planted += other != body
                assert other == body or refused(*((other, two) if number == 0 else (one, other))), f"{kind}, {place}"
    for number, body in enumerate((one, two)):  # one statement less, at each place
        for place in range(places(body, lambda s: ())):
            less = edited(body, lambda s: (), [place])
            planted += 1
            assert refused(*((less, two) if number == 0 else (one, less))), f"without {place}"
    assert planted >= 20


def test_coefficients_beyond_64_bits_are_not_decided() -> None:
    """Multiples of 2^32 that isl multiplied ended in an error of NumPy's."""
    body = "for (unsigned i = t; i < (unsigned)n; i += gridDim.x * blockDim.x) v[i] = u[(i + n - 1) % n] + 2.0 * u[(i + 1) % n];"
    text = f'extern "C" __global__ void k(const double* u, double* v, int n) {{ int t = blockIdx.x * blockDim.x + threadIdx.x; {body} }}'
    u, v = pairs(1, 70, 70)
    right = u.shadow + np.roll(v.shadow, -1) + 2 * np.roll(v.shadow, 1)
    with running("reference"):
        gpuad.autodiff(compiled(text, "k"), 2, 32, (u, v, 70))
    np.testing.assert_allclose(u.shadow, right)
