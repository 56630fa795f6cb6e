"""The record as a picture: gradients beside each other, reverse over primal beside the floor's, growth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .figures import Record, usable

COLOURS = {"gpuad": "#1b6ca8", "by hand": "#444444", "jax": "#d1792b", "torch": "#b8433b", "warp": "#5b9a4f"}


def draw(record: Record, path: Path) -> str | None:
    """Writes the picture; why there is none, or None."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "no picture: matplotlib is not installed (`pip install gpuad[cli]`)"
    rows = _largest(record.get("table", {}))
    growth = {name: sweep for name, sweep in record.get("growth", {}).items() if any("gradient_ms" in p for p in sweep.get("points", ()))}
    if not rows and not growth:
        return "no picture: there is nothing to show"
    height = max(4.0, 0.62 * len(rows) + 1.5)
    figure: Any = Figure(figsize=(16, height + (4.2 if growth else 0)), layout="constrained")
    parts = figure.subfigures(2 if rows and growth else 1, 1, height_ratios=[height, 4.2] if rows and growth else None, squeeze=False)[:, 0]
    if rows:
        left, right = parts[0].subplots(1, 2, sharey=True)
        _times(left, rows)
        _ratios(right, rows)
    if growth:
        _growth(parts[-1].subplots(1, 2), growth)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return None


def _largest(table: Record) -> dict[str, Record]:
    """Of each problem the last size that gpuad was measured at."""
    found = {}
    for name, sizes in table.items():
        for size, entry in sizes.items() if "failed" not in sizes else ():
            if usable(entry["rows"]["gpuad"]):
                found[f"{name}\n{size}"] = entry
    last = {name.partition("\n")[0]: name for name in found}
    return {name: found[name] for name in last.values()}


def _bars(axes: Any, rows: dict[str, Record], value: Any) -> None:
    width = 0.8 / len(COLOURS)
    for k, (who, colour) in enumerate(COLOURS.items()):
        there = [(i, value(e["rows"][who])) for i, e in enumerate(rows.values()) if usable(e["rows"].get(who, {}))]
        places = [i + (k - (len(COLOURS) - 1) / 2) * width for i, _ in there]
        axes.barh(places, [v for _, v in there], width * 0.92, color=colour, label=who if there else None)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _times(axes: Any, rows: dict[str, Record]) -> None:
    _bars(axes, rows, lambda row: row["gradient_ms"])
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds")
    axes.set_title("gradient, with its primal (less is better)", loc="left")
    axes.legend(frameon=False, fontsize=9, ncols=len(COLOURS), loc="lower right", bbox_to_anchor=(1.0, 1.04))


def _ratios(axes: Any, rows: dict[str, Record]) -> None:
    _bars(axes, rows, lambda row: max(row["ratio"], 0.0))
    for i, entry in enumerate(rows.values()):
        axes.plot([entry["floor"]["ratio"]] * 2, [i - 0.45, i + 0.45], color="black", linewidth=1.5, label="floor" if i == 0 else None)
    most = max(e["rows"]["gpuad"]["ratio"] for e in rows.values())
    axes.set_xlim(0, max(6.0, 1.1 * most))
    axes.set_xlabel("reverse / primal; the line is the floor; bars may be cut off")
    axes.set_title("what a reverse takes beyond its primal", loc="left")


def _growth(both: Any, growth: dict[str, Record]) -> None:
    for axes, axis in zip(both, ("elements", "steps"), strict=True):
        memory = axes.twinx()
        for name, sweep in growth.items():
            if not name.endswith(axis):
                continue
            points = [p for p in sweep["points"] if "gradient_ms" in p]
            problem, amounts = name.partition(" ")[0], [p["amount"] for p in points]
            slopes = sweep["slopes"]
            (line,) = axes.loglog(
                amounts, [p["gradient_ms"] for p in points], "o-", label=f"{problem}: time, slope {slopes.get('gradient_ms', 0):.2f}"
            )
            held = [p["held_bytes"] / 2**20 for p in points]
            memory.loglog(amounts, held, "s:", color=line.get_color(), markerfacecolor="none")
            axes.plot(
                [],
                [],
                "s:",
                color=line.get_color(),
                markerfacecolor="none",
                label=f"{problem}: memory, slope {slopes.get('held_bytes', 0):.2f}",
            )
        axes.set_xlabel(axis)
        axes.set_ylabel("gradient, milliseconds")
        memory.set_ylabel("held, MiB")
        axes.set_title(f"growth in {axis}", loc="left")
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(frameon=False, fontsize=9)
