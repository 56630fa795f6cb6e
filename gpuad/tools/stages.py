"""The stages of a derivation, collected and compared as text (`ir.printer`): what `gpuad show` prints."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import GpuadError
from ..ir.nodes import Kernel
from ..ir.printer import to_text
from ..ir.verify import watched


def collected(derive: Callable[[], Any]) -> dict[str, Kernel]:
    """The kernel after each pass that `derive` runs, by the pass's name, in the order of the passes; of one that runs again, for another
    kernel of the launch or since it is tried once more, the last."""
    found: dict[str, Kernel] = {}

    def note(name: str, kernel: Kernel) -> None:
        found.pop(name, None)
        found[name] = kernel

    with watched(note):
        derive()
    return found


def text(found: Mapping[str, Kernel], stage: str, against: str | None = None) -> str:
    """The kernel after a pass, as text; with `against`, the difference to that pass's. Raises GpuadError for a pass that has not run."""
    after = _lines(found, stage)
    if against is None:
        return "\n".join(after)
    return "\n".join(difflib.unified_diff(_lines(found, against), after, against, stage, lineterm="", n=2))


def _lines(found: Mapping[str, Kernel], stage: str) -> list[str]:
    if stage not in found:
        raise GpuadError(f"--stage {stage}: error: there is no such pass here; there are {', '.join(found)}")
    return to_text(found[stage]).splitlines()
