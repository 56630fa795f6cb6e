"""The stages of a derivation, collected and compared as text (`ir.printer`): what `gpuad show` prints.

In: a function that derives an adjoint, run under the observer of passes (`ir.verify.watched`). Out of `collected`: the kernel after each
pass, by the pass's name, in order; of `text`: one of them, or a unified diff of two with two lines of context; of `blamed`: one of them
with the pass that wrote each line. Raises GpuadError, with the names that there are, for a pass that has not run."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from ..api import AdjointText
from ..errors import GpuadError
from ..ir.nodes import Kernel
from ..ir.printer import to_text
from ..ir.verify import watched


def collected(derive: Callable[[], AdjointText]) -> dict[str, Kernel]:
    """The kernel after each pass that `derive` runs, by the pass's name, in the order of the passes; of one that runs again, for another
    kernel of the launch or since it is tried once more, the last. Of a kernel with `grid.sync()` the names of its parts come before those
    of the passes over them: `step_part0:reverse`."""
    seen: list[tuple[str, Kernel]] = []
    with watched(lambda name, kernel: seen.append((name, kernel))):
        made = derive()
    found: dict[str, Kernel] = {}
    for name, kernel in seen:
        part = max((p for p in made.parts if f"{kernel.name}_".startswith(f"{p}_")), key=len, default="")
        key = f"{part}:{name}" if part else name
        found.pop(key, None)
        found[key] = kernel
    return found


def text(found: Mapping[str, Kernel], stage: str, against: str | None = None) -> str:
    """The kernel after a pass, as text; with `against`, the difference to that pass's. Of a kernel in parts the name of a pass alone means
    it for each of them. Raises GpuadError for a pass that has not run."""
    return "\n".join(_text(found, own, other) for own, other in _named(found, stage, against))


def blamed(found: Mapping[str, Kernel], stage: str) -> str:
    """The kernel after a pass, as text, with the pass beside each line after which it stands there for the first time as it is."""
    return "\n".join(line for own, _ in _named(found, stage, None) for line in _blamed(found, own))


def _blamed(found: Mapping[str, Kernel], stage: str) -> list[str]:
    part, names = stage.rpartition(":")[0], list(found)
    lines: list[str] = []
    by: list[str] = []
    for name in names[: names.index(stage) + 1]:
        if name.rpartition(":")[0] in ("", part):
            after = _lines(found, name)
            matches = difflib.SequenceMatcher(None, lines, after, autojunk=False).get_matching_blocks()
            kept = {match.b + k: by[match.a + k] for match in matches for k in range(match.size)}
            lines, by = after, [kept.get(k, name) for k in range(len(after))]
    width = max(map(len, by), default=0)
    return [f"{name:<{width}}  {line}" for name, line in zip(by, lines, strict=True)]


def _named(found: Mapping[str, Kernel], stage: str, against: str | None) -> list[tuple[str, str | None]]:
    """The passes that are meant, with those that they are compared with."""
    if stage in found:
        return [(stage, against)]
    parts = [name.removesuffix(f":{stage}") for name in found if name.endswith(f":{stage}")]
    if not parts:
        raise GpuadError(f"--stage {stage}: error: there is no such pass here; there are {', '.join(found)}")
    return [(f"{p}:{stage}", against if against is None or against in found else f"{p}:{against}") for p in parts]


def _text(found: Mapping[str, Kernel], stage: str, against: str | None) -> str:
    after = _lines(found, stage)
    if against is None:
        return "\n".join(after)
    return "\n".join(difflib.unified_diff(_lines(found, against), after, against, stage, lineterm="", n=2))


def _lines(found: Mapping[str, Kernel], stage: str) -> list[str]:
    if stage not in found:
        raise GpuadError(f"--stage {stage}: error: there is no such pass here; there are {', '.join(found)}")
    return to_text(found[stage]).splitlines()
