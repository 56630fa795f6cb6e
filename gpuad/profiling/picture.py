"""A profile as a picture: bytes over the program by kind, and over time as the process has them."""

from __future__ import annotations

import os

from ..errors import GpuadError
from ..tape.memory.memory_log import Kind
from .records import Measured

COLOURS = {Kind.primal: "#9aa5b1", Kind.shadow: "#c3b1e1", Kind.saved: "#e07a5f", Kind.checkpoint: "#3d85c6", Kind.scratch: "#81b29a"}


def draw(measured: Measured, path: str | os.PathLike[str]) -> None:
    """Draws it into a file. GpuadError without Matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise GpuadError("a picture takes Matplotlib: pip install 'gpuad[cli]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    programs = measured.programs[-4:]
    figure, grid = pyplot.subplots(len(programs) + 1, 1, figsize=(9, 2.6 * (len(programs) + 1)), squeeze=False)
    for (axes,), program in zip(grid, programs, strict=False):
        holding = program.holding
        curves = {kind: [n / 1e6 for n in holding.curve((kind,))] for kind in Kind}
        shown = [kind for kind in Kind if any(curves[kind])]
        axes.stackplot(
            range(len(holding.moments)), *(curves[k] for k in shown), labels=[str(k) for k in shown], colors=[COLOURS[k] for k in shown],
            step="post",
        )  # fmt: skip
        axes.axvline(holding.operations, color="black", linewidth=0.7, linestyle=":")
        axes.set(title=program.title, xlabel="operations of the program, then of its reversal", ylabel="MB", xlim=(0, len(holding.moments)))
        axes.legend(loc="upper left", fontsize=8)
    (axes,) = grid[-1]
    start = measured.seconds[0]
    axes.step([s - start for s, _ in measured.totals], [n / 1e6 for _, n in measured.totals], where="post", label="tapes")
    resident = [(r.seconds - start, r.rss / 1e6) for r in measured.readings if r.rss is not None]
    if resident:
        axes.plot([s for s, _ in resident], [n - resident[0][1] for _, n in resident], label="process, since the start", linewidth=0.8)
    axes.set(xlabel="seconds", ylabel="MB")
    axes.legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


__all__ = ["COLOURS", "draw"]
