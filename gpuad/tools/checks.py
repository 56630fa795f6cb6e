"""The checks of one described launch, each by itself: what the pytest plugin makes items of.

Each takes an `Example` and `How` and returns the figures that it found, or raises `Failed` with a finding: file, line, the line with a
caret, the worst element, and what to do. `NotApplicable` says why there is nothing to check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from .. import api, pipeline, testing
from ..api import Kernel
from ..arguments.annotations import Active, Const, Duplicated
from ..arguments.arrays import namespace
from ..errors import CompileError, GpuadError, LaunchError, LocatedError, UnsupportedError
from ..ir.nodes import Accumulate, Atomic, Load, Store
from ..ir.rewrite import walk_stmts
from ..runtime import nvrtc
from ..runtime.reference.errors import BarrierError, BoundsError, RaceError
from ..source import Span, traced
from ..testing.memory import memory
from ..testing.reports import Report
from ..testing.second_check import SECOND
from ..testing.worst_element import worst_of_kernel, worst_of_rule
from .examples import Example, Launch
from .findings import Finding
from .settings import size_in_bytes

Figures: TypeAlias = "dict[str, int | float | str]"
_LEAK = 64 * 1024  # bytes that may be left: what is remembered of a launch


@dataclass(frozen=True)
class How:
    """How to check: seed and random directions, the architectures to compile for, the most memory (a size, or empty for no limit), and
    whether on the GPU."""

    seed: int = 0
    directions: int = 2
    architectures: tuple[str, ...] = ("sm_90",)
    memory: str = ""
    gpu: bool = False


class Failed(AssertionError):
    """A check that found something. `found_by` names the check whose subject it is, where another one met it."""

    def __init__(self, finding: Finding, found_by: str = "") -> None:
        super().__init__(finding, found_by)
        self.finding = finding
        self.found_by = found_by

    def __str__(self) -> str:
        return str(self.finding)


class NotApplicable(Exception):
    """There is nothing to check, and why."""


def run(check: str, example: Example, how: How) -> Figures:
    """Runs one check of CHECKS by its name."""
    with _explained(check, example, how.seed):
        launch = example.launch(how.seed)
        launch = on_gpu(launch) if how.gpu else launch
        if launch.is_rule and check not in ("gradient", "memory"):
            raise NotApplicable(f"`{launch.call.name}` is a rule, which is array code; ::gradient checks all of it")
        if check in _NATIVE and not launch.is_rule:
            _refuse_faulty(example, how)
        return _CHECKS[check](example, launch, how)


def died(check: str, example: Example, how: str) -> Finding:
    """The finding where the process of a check ended, `how` being the name of a signal or an exit status."""
    advice = (
        "The launch may write outside of its arrays. `GPUAD_CHECK=1` and `::bounds` look for that; if they find nothing, please report it."
    )
    return _finding(example, check, f"the process that ran this check died ({how})", None, advice)


@contextmanager
def _explained(check: str, example: Example, seed: int) -> Iterator[None]:
    """Errors as findings, with the place in the user's file where it is known."""
    try:
        yield
    except (Failed, NotApplicable):
        raise
    except GpuadError as error:
        finding = _of_error(check, example, error)
        raise Failed(finding, found_by=_finder(finding, example, seed)) from error


def _finder(finding: Finding, example: Example, seed: int) -> str:
    """The check that finds a race or an index out of bounds too, and has it as its subject."""
    fault = _fault(example, seed) if finding.rule in _INTERPRETED else None
    return finding.rule if fault is not None and _class_of(fault, "")[0] == finding.rule else ""


def _of_error(check: str, example: Example, error: GpuadError) -> Finding:
    message = error.message if isinstance(error, LocatedError) else str(error)
    span = error.span if isinstance(error, LocatedError) else _named_place(example, message)
    rule, advice = _class_of(error, check)
    return _finding(example, rule, message, span, advice)


def _class_of(error: GpuadError, check: str) -> tuple[str, str]:
    match error:
        case RaceError() | BarrierError():
            return "races", "Let one thread write the element, put a __syncthreads() between, or add with atomicAdd."
        case BoundsError():
            return "bounds", "Check the condition that guards the access, and the sizes that are passed."
        case UnsupportedError() | CompileError():
            return "unsupported", "Write it in another way (docs/language.md), or leave the argument without a gradient."
        case LaunchError() if "memory ends at" in str(error) or "memory begins at" in str(error):
            return "bounds", "Check the condition that guards the access, and the sizes that are passed."
    return ("description" if type(error).__name__ == "CaseError" else check), ""


def _named_place(example: Example, message: str) -> Span | None:
    """The first place in the example's file that a message names."""
    found = re.search(rf"{re.escape(example.file.name)}:(\d+):(\d+)", message)
    return Span(example.file, int(found[1]), int(found[2])) if found else None


def _finding(example: Example, rule: str, message: str, span: Span | None, advice: str, detail: str = "") -> Finding:
    """At a place in the example's file, or else where it is described."""
    span = traced(span) if span is not None else None
    span = span if span is not None and span.file.name == example.file.name else example.span
    where = example.file.name, span.line, span.column
    return Finding(rule, message, *where, subject=example.id, advice=advice, excerpt=span.caret(), detail=detail)


# --- the gradient ---------------------------------------------------------------------------------------------------------------------


def _gradient(example: Example, launch: Launch, how: How) -> Figures:
    """Against differences of the launch itself, and second derivatives against differences of the gradient."""
    if launch.is_rule:
        return _rule(example, launch, how)
    try:
        report = _compared(launch, how, forward_check=False)
    except AssertionError as error:
        raise Failed(_wrong(example, launch, str(error), how)) from None
    return {"taylor error": max(c.error for c in report.checks if c.name.startswith("Taylor")), **_second_figures(report)}


def _second_figures(report: Report) -> Figures:
    errors = [c.error for c in report.checks if c.name in SECOND]
    if errors:
        return {"second derivative error": max(errors)}
    return {"second derivatives": f"no: {'; '.join(n for n in report.notes if 'second derivatives' in n)}"}


def _compared(launch: Launch, how: How, **what: bool) -> Report:
    geometry = {"grid": launch.grid, "block": launch.block, "shared_mem": launch.shared_mem}
    return testing.check_gradient(
        launch.call, launch.args, **geometry, directions=how.directions, seed=how.seed, race_check=False, **what, **launch.keywords
    )


def _wrong(example: Example, launch: Launch, report: str, how: How) -> Finding:
    advice = "The kernel may have a kink or be chaotic at these inputs: try others. Else this is a bug of gpuad's: please report it."
    name = str(getattr(getattr(launch.call, "kernel", launch.call), "name", example.name))
    if any(check in _failed_lines(report) for check in SECOND):
        return _finding(example, "gradient", f"the second derivatives of `{name}` are wrong, its gradient is right", None, advice, report)
    worst = worst_of_kernel(launch.call, launch.args, launch.grid, launch.block, launch.shared_mem, launch.keywords, how.seed)
    span = _access(launch, worst.argument) if worst is not None else None
    detail = f"{worst}\n{report}" if worst is not None else report
    return _finding(example, "gradient", f"the gradient of `{name}` is wrong", span, advice, detail)


def _access(launch: Launch, argument: str) -> Span | None:
    """Where a kernel first touches an argument."""
    planned = launch.planned().kernel
    kernel = planned if isinstance(planned, Kernel) else planned.unsplit
    touches = (s for s in walk_stmts(kernel.primal().body) if isinstance(s, Load | Store | Accumulate | Atomic))
    return next((s.span for s in touches if s.buffer.name == argument and s.span), None)


def _rule(example: Example, launch: Launch, how: How) -> Figures:
    rule = launch.call
    try:
        report = testing.check_rule(rule, launch.args, directions=how.directions, seed=how.seed)
    except AssertionError as error:
        worst = worst_of_rule(rule, launch.args, how.seed) if "Taylor" in _failed_lines(str(error)) else None
        detail = f"{worst}\n{error}" if worst is not None else str(error)
        reverse = rule.reverse if worst is not None or "the reverse of" in str(error) else None
        wrong = reverse or rule.function
        message = f"the {f'reverse `{wrong.__name__}` of the ' if reverse else ''}rule `{rule.name}` is wrong"
        advice = "Mend the reverse: it adds to the shadow of each input the derivative of what the rule computes."
        raise Failed(_finding(example, "gradient", message, _defined(example, wrong), advice, detail)) from None
    return {"rule error": max((c.error for c in report.checks), default=0.0)}


def _failed_lines(report: str) -> str:
    return "\n".join(line for line in report.splitlines() if "FAILED" in line)


def _defined(example: Example, function: Callable[..., Any]) -> Span | None:
    """Where a function is defined, if in the example's file."""
    code = getattr(function, "__code__", None)
    if code is None or not str(code.co_filename).endswith(example.path.name):
        return None
    lines = range(code.co_firstlineno, code.co_firstlineno + 20)  # from its decorators on
    number = next((n for n in lines if example.file.line(n).lstrip().startswith("def ")), code.co_firstlineno)
    return Span(example.file, number, 1 + len(example.file.line(number)) - len(example.file.line(number).lstrip()), 4 + len(code.co_name))


def _forward(example: Example, launch: Launch, how: How) -> Figures:
    """Forward mode against reverse mode, and what both leave in the arrays."""
    try:
        report = _compared(launch, how, differences=False, second_check=False)
    except AssertionError as error:
        name = str(getattr(getattr(launch.call, "kernel", launch.call), "name", example.name))
        advice = "One of the two is a bug of gpuad's: please report it, with the kernel."
        raise Failed(_finding(example, "forward", f"forward and reverse mode of `{name}` disagree", None, advice, str(error))) from None
    if not any(c.name.startswith("dot product") for c in report.checks):
        raise NotApplicable("; ".join(report.notes))
    return {"dot product error": max(c.error for c in report.checks)}


# --- the launch -----------------------------------------------------------------------------------------------------------------------


def _interpreted(example: Example, launch: Launch, how: How) -> Figures:
    """Data races and divergent barriers, indices out of bounds and memory that nothing was written to, found by the reference executor."""
    _refuse_faulty(example, how)
    return {}


def _refuse_faulty(example: Example, how: How) -> None:
    """Keeps a launch with a race or an index out of bounds from running natively, where it could end the process."""
    fault = _fault(example, how.seed)
    if fault is not None:
        raise fault


_faults: dict[tuple[Path, str, int], GpuadError | None] = {}


def _fault(example: Example, seed: int) -> GpuadError | None:
    """The error of a launch on the reference executor, if there is one: run once for all checks that follow each other."""
    key = (example.path, example.name, seed)
    if key not in _faults:
        _faults.clear()
        try:
            _on_reference(example.launch(seed))
        except GpuadError as error:
            _faults[key] = error
        else:
            _faults[key] = None
    return _faults[key]


def _on_reference(launch: Launch) -> None:
    plan = launch.planned()
    args = tuple(_host(getattr(a, "primal", a)) for a in plan.args)
    api.check_races(plan.kernel, plan.grid, plan.block, args, shared_mem=plan.shared_mem)


def _host(value: Any) -> Any:
    return value.get() if hasattr(value, "get") and not isinstance(value, np.generic) else value


def _determinism(example: Example, launch: Launch, how: How) -> Figures:
    """Two runs from the same state: the launch alone has to leave the same, but for the order of atomic sums; its reverse the same bits,
    under `gpuad.deterministic()`, where gpuad promises that."""
    first, second = (_after_primal(example, how) for _ in range(2))
    for name, one in first.items():
        other, size = second[name], float(np.max(np.abs(one[np.isfinite(one)]), initial=0.0)) if one.dtype.kind in "fc" else 0.0
        same = (one == other) | ((one != one) & (other != other))
        near = np.abs(one - other) <= 1e-5 * size if one.dtype.kind in "fc" else same
        if not np.all(same | near):
            index = tuple(int(k) for k in np.argwhere(~(same | near))[0])
            what = f"two runs of the launch differ: `{name}{list(index) if index else ''}` is {one[index]!r}, then {other[index]!r}"
            advice = "A race, or memory that nothing has written: see ::races and ::bounds. Gradients need a launch that repeats."
            raise Failed(_finding(example, "determinism", what, _access(launch, name), advice))
    try:
        with pipeline.deterministic():
            one, other = (_after_reverse(example, how) for _ in range(2))
    except UnsupportedError as refused:
        return {"deterministic reverse": f"no: {refused.message}"}
    for name, left in one.items():
        if not np.array_equal(left, other[name], equal_nan=left.dtype.kind in "fc"):
            advice = "This is a bug of gpuad's: please report it, with the kernel."
            raise Failed(_finding(example, "determinism", f"two deterministic reverses differ in the gradient of `{name}`", None, advice))
    return {"deterministic reverse": "yes"}


def _fresh(example: Example, how: How) -> testing.PlannedCall:
    launch = example.launch(how.seed)
    return (on_gpu(launch) if how.gpu else launch).planned()


def _named(plan: testing.PlannedCall) -> dict[str, Any]:
    names = [d.name for d in plan.kernel.parameters]
    return {names[k] if k < len(names) else f"argument {k + 1}": a for k, a in enumerate(plan.args)}


def _after_primal(example: Example, how: How) -> dict[str, Any]:
    """All arrays after a launch."""
    plan = _fresh(example, how)
    given = {name: getattr(a, "primal", a) for name, a in _named(plan).items()}
    plan.kernel(plan.grid, plan.block, tuple(given.values()), shared_mem=plan.shared_mem)
    arrays = {name: np.array(_host(a)) for name, a in given.items() if hasattr(a, "strides") and not isinstance(a, np.generic)}
    return {name: a for name, a in arrays.items() if a.dtype.kind in "fciub"}


def _after_reverse(example: Example, how: How) -> dict[str, Any]:
    """All shadows after a reverse pass with seeds that are the same each time."""
    plan, rng = _fresh(example, how), np.random.default_rng(how.seed)
    pairs = {name: a for name, a in _named(plan).items() if isinstance(a, Duplicated | Active)}
    for pair in pairs.values():
        if isinstance(pair, Duplicated) and pair.shadow.dtype.kind in "fc":
            seeds = rng.standard_normal(pair.shadow.shape).astype(pair.shadow.dtype)
            pair.shadow[...] = namespace(pair.shadow).asarray(seeds)
    api.autodiff(plan.kernel, plan.grid, plan.block, plan.args, shared_mem=plan.shared_mem)
    return {name: np.array(_host(pair.shadow)) for name, pair in pairs.items()}


def _launchable(example: Example, launch: Launch, how: How) -> Figures:
    """The generated kernels compile for each architecture, and a block fits its multiprocessors."""
    if not nvrtc.available():
        raise NotApplicable("there is no NVRTC: pip install nvidia-cuda-nvrtc")
    plan = launch.planned()
    kinds = [type(a) if isinstance(a, Duplicated | Active) else Const for a in plan.args]
    text = plan.kernel.adjoint(*kinds, grid=plan.grid, block=plan.block, args=plan.args, shared_mem=plan.shared_mem)
    block = plan.block if isinstance(plan.block, tuple) else (plan.block,)
    threads = int(np.prod(block))
    figures: Figures = {}
    for architecture in how.architectures:
        cubin = nvrtc.compile_cuda(text.source, architecture, ["--ptxas-options=-v"])
        spilled = nvrtc.spilled(cubin.log)
        for name, needs in nvrtc.resources(cubin).items():
            figures |= {f"{architecture} {name} registers": needs.registers, f"{architecture} {name} spilled": spilled.get(name, 0)}
            if not nvrtc.launchable(needs, threads, architecture):
                what = f"a block of {threads} threads of {name} does not fit on {architecture}: {needs.registers} registers a thread"
                what += f", {needs.shared_bytes} bytes of shared memory"
                raise Failed(_finding(example, "launch", what, None, "Launch smaller blocks, or declare __launch_bounds__ in the kernel."))
    return figures


def _memory(example: Example, launch: Launch, how: How) -> Figures:
    """What forward and reverse take beside their arguments, in a launch that is not the first, and what they leave behind."""
    if launch.is_rule:
        raise NotApplicable("a rule runs on a tape, whose memory is the tape's: see tape.stats")
    plan = launch.planned()
    library = _library(plan)

    def once() -> None:
        api.autodiff(plan.kernel, plan.grid, plan.block, plan.args, shared_mem=plan.shared_mem, allow_unused=True)

    once()
    with memory(library) as used:
        once()
    figures: Figures = {"peak bytes": used.peak, "left bytes": used.left}
    if used.left > _LEAK:
        where = ", ".join(place for place, _ in used.kept[:3])
        raise Failed(_finding(example, "memory", f"a launch leaves {used.left} bytes behind ({where})", None, "This is a bug of gpuad's."))
    if how.memory and used.peak > size_in_bytes(how.memory):
        what = f"forward and reverse take {used.peak} bytes beside their arguments; `memory` in [tool.gpuad] allows {how.memory}"
        raise Failed(_finding(example, "memory", what, None, "`gpuad explain` says what is saved, and for whom."))
    return figures


# --- on a GPU -------------------------------------------------------------------------------------------------------------------------


def _library(plan: testing.PlannedCall) -> Any:
    arrays = (getattr(a, "primal", a) for a in plan.args)
    return next((namespace(a) for a in arrays if hasattr(a, "strides") and not isinstance(a, np.generic)), np)


def on_gpu(launch: Launch) -> Launch:
    """The launch with its arrays on the current device. NotApplicable if there is none."""
    library = api.array_module()
    if library is np:
        raise NotApplicable("no GPU: CuPy is not installed, or finds no device")

    def moved(value: Any) -> Any:
        if isinstance(value, Duplicated):
            return Duplicated(library.asarray(value.primal), library.asarray(value.shadow))
        if isinstance(value, Active):
            return Active(value.value, library.asarray(value.shadow))
        return library.asarray(value) if isinstance(value, np.ndarray) else value

    return replace(launch, args=tuple(moved(a) for a in launch.args))


_CHECKS: Mapping[str, Callable[[Example, Launch, How], Figures]] = {
    "gradient": _gradient,
    "forward": _forward,
    "races": _interpreted,
    "bounds": _interpreted,
    "determinism": _determinism,
    "launch": _launchable,
    "memory": _memory,
}
_INTERPRETED = ("races", "bounds")
_NATIVE = ("gradient", "forward", "determinism", "memory")  # which run the launch as it would run for its user
