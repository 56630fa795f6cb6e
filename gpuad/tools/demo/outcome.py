"""What a demonstration found, whether that is what it promised, and a picture of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ...errors import GpuadError
from .descent import Map

Report: TypeAlias = "Callable[[int, float, float], None]"


@dataclass(frozen=True, eq=False)
class Bytes:
    """What a tape adds at each moment of a program and its reversal, `within` its `budget`, and `without` one; `most`: what it had."""

    within: Sequence[int]
    without: Sequence[int]
    budget: str
    most: int


@dataclass(frozen=True, eq=False)
class Outcome:
    """What an inversion found: the true map, the first and the last one, and the misfit after each iteration; `bytes` of its tape, if that
    is what the program shows."""

    truth: Map
    start: Map
    found: Map
    losses: tuple[float, ...] = field(repr=False)
    bytes: Bytes | None = field(default=None, repr=False)

    @property
    def loss(self) -> float:
        """Last loss over the first."""
        return self.losses[-1] / self.losses[0]

    @property
    def error(self) -> float:
        """Distance of the found map from the truth, over that of the start."""
        return distance(self.found, self.truth, self.start)

    @property
    def succeeded(self) -> bool:
        """True if the loss fell to a hundredth and the map's error to a half, as the demo promises."""
        return self.loss <= 0.01 and self.error <= 0.5


def distance(found: Map, truth: Map, start: Map) -> float:
    """How far a map is from the truth, in units of how far the start was."""
    return float(np.linalg.norm(found - truth) / np.linalg.norm(start - truth))


def follow(descent: Iterable[tuple[Map, float]], truth: Map, start: Map, iterations: int, stop: float, report: Report) -> Outcome:
    """Goes along a descent for at most so many iterations, or until the loss is `stop` times the first.

    `report` is called after each iteration with its number, and the loss and the map's error relative to the start.
    """
    losses: list[float] = []
    found = start
    for number, (found, loss) in enumerate(descent):
        losses.append(loss)
        report(number, loss / losses[0], distance(found, truth, start))
        if number == iterations or loss <= stop * losses[0]:
            break
    return Outcome(truth, start, found, tuple(losses))


def check_drawable(path: Path) -> None:
    """Raises GpuadError where `draw` could not write its picture: before half a minute of work, not after it. Needs matplotlib."""
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in kinds:
        raise GpuadError(
            f"{path}: error: no kind of picture is written to such a name; end it in .png, or one of {', '.join(sorted(kinds))}"
        )
    if not path.parent.is_dir():
        raise GpuadError(f"{path}: error: there is no folder {path.parent}")


def draw(outcome: Outcome, path: Path, quantity: str) -> None:
    """A picture with the true map, the first, the last, and the fall of the loss. `quantity` says what the maps show. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    count = 4 if outcome.bytes is None else 5
    figure, axes = pyplot.subplots(1, count, figsize=(3.75 * count, 3.6), layout="constrained")
    limits = {"vmin": float(outcome.truth.min()), "vmax": float(outcome.truth.max())}
    maps = {"truth": outcome.truth, "start": outcome.start, f"recovered (error {outcome.error:.0%})": outcome.found}
    for axis, (title, values) in zip(axes, maps.items(), strict=False):
        image = axis.imshow(values, cmap="RdBu_r", **limits)
        axis.set_title(title)
        axis.set_xticks([])
        axis.set_yticks([])
    figure.colorbar(image, ax=list(axes[:3]), label=quantity, shrink=0.8)
    axes[3].semilogy([loss / outcome.losses[0] for loss in outcome.losses], marker=".")
    axes[3].set_title("misfit / first misfit")
    axes[3].set_xlabel("iteration")
    if outcome.bytes is not None:
        _draw_bytes(axes[4], outcome.bytes)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw_bytes(axis: Any, taken: Bytes) -> None:
    """The program and its reversal, each as long as the other way takes it."""
    for curve, label in ((taken.without, "all is kept"), (taken.within, f"budget {taken.budget}")):
        axis.plot([k / len(curve) for k in range(len(curve))], [max(n, 1) / 1e6 for n in curve], label=label, linewidth=1.0)
    axis.set_yscale("log")
    axis.set_ylim(bottom=0.1)
    axis.set_title("MB that the tape adds")
    axis.set_xlabel("program and reversal")
    axis.legend(loc="lower center", fontsize=8)
