"""Records as tables on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from . import figures, product
from .figures import Record


def wide_console() -> Console:
    """The terminal; where there is none, lines long enough for the tables."""
    console = Console()
    return console if console.is_terminal else Console(width=200)


# --- the table of problems and growth ------------------------------------------------------------------------------------------------


COLUMNS: dict[str, Callable[[Record], str]] = {
    "primal ms": lambda row: f"{row['primal_ms']:.3f}",
    "gradient ms": lambda row: f"{row['gradient_ms']:.3f}",
    "replay ms": lambda row: f"{row['replay_ms']:.3f}" if "replay_ms" in row else "",
    "by gpuad's": lambda row: _number(row, "over_gpuad"),
    "ratio": lambda row: f"{row['ratio']:.2f}",
    "by floor's": lambda row: f"{row['over_floor']:.2f}",
    "rate": lambda row: f"{row['primal_gb_s']:.1f} GB/s" if "primal_gb_s" in row else f"{row['primal_gflop_s']:.1f} GF/s",
    "of copy": lambda row: _number(row, "primal_of_copy"),
    "reverse": lambda row: _number(row, "reverse_of_copy"),
    "moved": lambda row: _number(row, "moved_over_floor"),
    "saved MB": lambda row: _mega(row, "saved_bytes"),
    "arena MB": lambda row: _mega(row, "arena_bytes"),
    "memory MB": lambda row: _mega(row, "device_bytes") or ("<" if "memory_is_a_bound" in row else "") + _mega(row, "memory_bytes"),
    "error": lambda row: f"{row['error']:.0e}",
    "atomic": lambda row: ", ".join(row.get("atomic", ())),
}


def show_table(record: Record, console: Console, judged: bool = True) -> None:
    """Problems by everybody, and, if they are to be judged, the verdicts on gpuad's rows."""
    for problem, sizes in record.items():
        if "failed" in sizes:
            console.print(f"failed: {problem}: {sizes['failed']}", style="red", markup=False)
            continue
        for size, entry in sizes.items():
            copied = f"; a copy {entry['copy_gb_s']} GB/s" if "copy_gb_s" in entry else ""
            copied += f", of as much as is saved {entry['far_copy_gb_s']} GB/s" if "far_copy_gb_s" in entry else ""
            console.print(compared(f"{problem}: {size} (floor's ratio {entry['floor']['ratio']:.2f}{copied})", entry["rows"]))
            _show_verdicts(entry["verdicts"] if judged else [], console)
            for who, row in entry["rows"].items():
                if "failed" in row:
                    console.print(f"  failed: {who}: {row['failed']}", style="red", markup=False)


def compared(title: str, rows: Mapping[str, Record]) -> Table:
    """One problem at one size. `ratio`: what the reverse takes beyond the primal, over it; `by floor's`: that over the floor's. `rate`: the
    floor's bytes or operations a second of the primal; `of copy`, `reverse`: those of primal and reverse over a copy's. `moved`: bytes over
    the floor's. `memory`: beyond what the process has at the smallest size; on a GPU what its allocator holds. `replay`: the gradient as a
    graph."""
    table = plain(title, "by", *COLUMNS)
    for who, row in rows.items():
        if figures.usable(row):
            table.add_row(who, *(cell(row) for cell in COLUMNS.values()))
        else:
            table.add_row(who, "wrong or failed" if "failed" in row else row["missing"])
    return table


def show_growth(record: Record, console: Console, judged: bool = True) -> None:
    """The sweeps and their slopes."""
    for name, sweep in record.items():
        if "failed" in sweep:
            console.print(f"failed: growth of {name}: {sweep['failed']}", style="red", markup=False)
            continue
        table = plain(f"growth of {name}", "size", "primal ms", "gradient ms", "kept MB", "held MB", "resident MB", "error")
        for point in sweep["points"]:
            size = ", ".join(f"{k} {v}" for k, v in point["size"].items())
            if "gradient_ms" not in point:
                table.add_row(size, "failed" if "failed" in point else point["missing"])
                continue
            cells = [f"{point['primal_ms']:.2f}", f"{point['gradient_ms']:.2f}"]
            table.add_row(size, *cells, *(_mega(point, f"{k}_bytes") for k in ("kept", "held", "resident")), f"{point['error']:.0e}")
        slopes = sweep["slopes"]
        keys = ("primal_ms", "gradient_ms", "kept_bytes", "held_bytes", "resident_bytes")
        table.add_row("slope", *(f"{slopes[key]:.3f}" if key in slopes else "" for key in keys), style="bold")
        console.print(table)
        _show_verdicts(sweep["verdicts"] if judged else [], console)


def _show_verdicts(verdicts: list[Record], console: Console) -> None:
    for verdict in verdicts:
        style = "green" if verdict["reached"] else "red" if verdict.get("bound", True) else "yellow"
        console.print(f"  {figures.sentence(verdict)}", style=style, markup=False)


def _number(row: Record, key: str) -> str:
    return f"{row[key]:.2f}" if key in row else ""


def _mega(row: Record, key: str) -> str:
    return f"{row[key] / 1e6:.1f}" if key in row else ""


# --- cases ---------------------------------------------------------------------------------------------------------------------------


def cases_table(title: str, rows: dict[str, Record], more: Mapping[str, Callable[[Record], str]] | None = None) -> Table:
    """Cases as a table: times, bandwidths, memory. `traffic`: bytes that the reverse kernel moves over the primal's. `more`:
    columns beyond these, by their headings."""
    headings = (
        "kernel",
        "primal ms",
        "forward ms",
        "reverse ms",
        "ratio",
        "traffic",
        "GB/s",
        "reverse GB/s",
        "saved MB",
        "scratch MB",
        "atomic",
    )
    table = plain(title, *headings, *(more or ()))
    for name, row in rows.items():
        table.add_row(name, *(["failed"] if "failed" in row else [*_cells(row), *(cell(row) for cell in (more or {}).values())]))
    return table


def by_hand_table(rows: Mapping[str, Record]) -> Table:
    """Generated code against loops by hand, on one core."""
    table = plain("generated code on one core against loops by hand", "kernel", "by hand ms", "generated ms", "share", "wanted")
    for name, row in rows.items():
        share = judged(row["share"], row["share"] >= row["wanted"])
        table.add_row(name, f"{row['by_hand_ms']:.3f}", f"{row['generated_ms']:.3f}", share, f"{row['wanted']}")
    return table


def product_table(rows: dict[str, Record]) -> Table:
    """Microseconds beyond the primal of an in-place product on a tape."""
    title = f"{product.M} x {product.K} by {product.K} x {product.N} in place, on a tape: microseconds beyond the primal"
    parts = ("first_record", "first_reverse", "record", "reverse", "loop_record", "loop_reverse")
    table = plain(title, "operation", "primal", *(p.replace("_", " ") for p in parts), "saved B", "allocations, first and later")
    for name, row in rows.items():
        counts = f"{row['first_allocations']}, {row['allocations']}"
        table.add_row(name, *(f"{row[f'{p}_us']:.1f}" for p in ("primal", *parts)), str(row["saved_bytes"]), counts)
    return table


def _cells(row: Record) -> list[str]:
    ratio = judged(row["ratio"], row["ratio"] <= row.get("required", float("inf")))
    times = [f"{row[name]:.3f}" for name in ("primal_ms", "forward_ms", "reverse_ms")]
    rates = [f"{row['traffic_ratio']:.2f}", f"{row['primal_gb_s']:.1f}", f"{row['reverse_gb_s']:.1f}"]
    return [*times, ratio, *rates, *(f"{row[name] / 1e6:.1f}" for name in ("saved_bytes", "scratch_bytes")), ", ".join(row["atomic"])]


def judged(value: float, good: bool) -> str:
    """The figure, red where it is not good."""
    return f"{value:.2f}" if good else f"[red]{value:.2f}[/]"


def plain(title: str, *headings: str) -> Table:
    """A table without lines, its first column to the left."""
    table = Table(title=title, box=None, header_style="dim", title_justify="left", title_style="bold")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number == 0 else "right", no_wrap=True)
    return table


def print_rows(title: str, first: str, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Rows of a record as they are, each under its name."""
    table = plain(title, first, *next(iter(rows.values())))
    for name, row in rows.items():
        table.add_row(name, *(", ".join(f"{k} {v}" for k, v in x.items()) if isinstance(x, dict) else str(x) for x in row.values()))
    wide_console().print(table)
