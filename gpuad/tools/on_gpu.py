"""Checks of described launches on a GPU: those of the CPU with arrays on the device, the time it took, and compute-sanitizer's."""

from __future__ import annotations

from .. import api
from ..runtime.cuda import elapsed_ms
from .checks import Failed, Figures, How, on_gpu, run
from .devices import state
from .examples import Example
from .sanitizer import PREFIX, Sanitizer


def run_on_gpu(check: str, example: Example, how: How, index: int) -> Figures:
    """Runs a check on the current device, whose number is `index`. With the gradient goes the time of a forward and reverse pass that is
    not the first, with clocks and temperature: recorded, never judged."""
    if check.startswith(PREFIX):
        findings = Sanitizer(check.removeprefix(PREFIX)).check(example, how.seed)
        if findings:
            raise Failed(findings[0])
        return {}
    figures = run(check, example, how)
    return figures | _timed(example, how, index) if check == "gradient" else figures


def _timed(example: Example, how: How, index: int) -> Figures:
    launch = example.launch(how.seed)
    if launch.is_rule:
        return {}
    plan = on_gpu(launch).planned()

    def once() -> None:
        api.autodiff(plan.kernel, plan.grid, plan.block, plan.args, shared_mem=plan.shared_mem, allow_unused=True)

    once()
    return {"GPU ms": round(min(elapsed_ms(once) for _ in range(3)), 6), **state(index)}
