"""The tables of the README and of pages of `docs` that compare gpuad with others, made from the newest records in
`benchmarks/results`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.physics.published import FIGURES
from benchmarks.searches import table

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
PUBLISHED = {"enzyme": "Enzyme", "tapenade": "Tapenade", "codipack": "CoDiPack", "jax": "JAX", "pytorch": "PyTorch"}
MATTERS = 10.0  # milliseconds
OTHERS = {"by hand": "C++ by hand", "jax": "JAX", "torch": "PyTorch", "warp": "Warp"}


def newest() -> list[Mapping[str, Any]]:
    """Of each kind of machine the newest full record of a CPU, the latest first."""
    latest: dict[str, Mapping[str, Any]] = {}
    for file in sorted(RESULTS.glob("cpu-*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        if not record["quick"] and "table" in record and record["date"] >= latest.get(record["machine"], record)["date"]:
            latest[record["machine"]] = record
    return sorted(latest.values(), key=lambda r: str(r["date"]), reverse=True)


def newest_file(kind: str) -> Path | None:
    """The newest record of a kind; None where there is none."""
    return max(sorted(RESULTS.glob(f"{kind}-*.json")), key=lambda file: str(_read(file)["date"]), default=None)


def newest_of(kind: str) -> dict[str, Any] | None:
    """The same, read."""
    file = newest_file(kind)
    return None if file is None else _read(file)


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def heading(record: Mapping[str, Any]) -> str:
    """Which machine, when, with what."""
    with_what = {"JAX": "jax", "PyTorch": "torch", "Warp": "warp-lang", "NumPy": "numpy"}
    versions = ", ".join(f"{name} {record['versions'][key]}" for name, key in with_what.items() if key in record["versions"])
    return f"{record['machine']}, {record['date']}, {versions}"


def short() -> str:
    """For the README: the gradient of each problem at its largest size, on the machine of the newest record."""
    record = newest()[0]
    lines = [f"| {heading(record)}: ms | gpuad | {' | '.join(OTHERS.values())} |", "|---|" + "---:|" * (1 + len(OTHERS))]
    for problem, sizes in record["table"].items():
        size, entry = list(sizes.items())[-1]
        lines.append(
            f"| {problem.replace('_', ' ')}, {size} | {' | '.join(_milliseconds(entry['rows'], who) for who in ('gpuad', *OTHERS))} |"
        )
    return "\n".join(lines) + "\n"


def whole() -> str:
    """For the page: all problems at all sizes, on each machine."""
    text = ""
    for record in newest():
        text += f"\n## {heading(record)}\n\n"
        text += "| problem | gradient, ms | overhead factor | " + " | ".join(f"{name}, times" for name in OTHERS.values())
        text += " | memory, MB: gpuad | " + " | ".join(OTHERS.values()) + " |\n|---|" + "---:|" * (3 + 2 * len(OTHERS)) + "\n"
        for problem, sizes in record["table"].items():
            for size, entry in sizes.items():
                text += f"| {problem.replace('_', ' ')}, {size} | {' | '.join(_row(entry['rows']))} |\n"
    return text


def adjoints() -> str:
    """gpuad's adjoints and those by hand, from the newest record of them."""
    record = newest_of("adjoints")
    if record is None:
        return ""
    lines = [
        f"{heading(record)}, {record['compiler']}:\n",
        "| operation | by hand, ms | gpuad, ms | times | atomics by hand | gpuad | bytes by hand | gpuad | difference |",
        "|---|" + "---:|" * 8,
    ]
    for name, row in record["rows"].items():
        sizes = ", ".join(f"{size} {n}" for size, n in row["sizes"].items())
        times = f"{row['by_hand_ms']:.2f} | {row['gpuad_ms']:.2f} | {row['ratio']:.2f}"
        counts = " | ".join(f"{row[f'{who}_{what}']:,}" for what in ("atomics", "bytes") for who in ("by_hand", "gpuad"))
        lines.append(f"| {name.replace('_', ' ')}, {sizes} | {times} | {counts} | {row['difference']:.0e} |")
    return "\n".join(lines) + "\n"


def forms() -> str:
    """What the gradient of an operation costs in each of its wordings, from the newest record."""
    record = newest_of("forms")
    if record is None:
        return ""
    best: dict[str, float] = {}
    for name, row in record["rows"].items():
        operation = name.split(": ")[0]
        best[operation] = min(best.get(operation, row["gpuad_ms"]), row["gpuad_ms"])
    lines = [
        f"{record['machine']}, of which others took a part (a load of {record['load']:.0f}), {record['date']}, {record['compiler']}:\n",
        "| operation: wording | by hand, ms | gpuad, ms | times | of the best wording | atomics by hand | gpuad |",
        "|---|" + "---:|" * 6,
    ]
    for name, row in record["rows"].items():
        times = f"{row['by_hand_ms']:.2f} | {row['gpuad_ms']:.2f} | {row['ratio']:.2f} | {row['gpuad_ms'] / best[name.split(': ')[0]]:.2f}"
        lines.append(f"| {name.replace('_', ' ')} | {times} | {row['by_hand_atomics']:,} | {row['gpuad_atomics']:,} |")
    return "\n".join(lines) + "\n"


def distributed() -> str:
    """What the model of a program on several ranks says, beside what was measured, from the newest record."""
    record = newest_of("distributed")
    if record is None:
        return ""
    columns = ["measured", "model", "launches", "cells", "checkpoints", "halos", "all-reduce"]
    lines = [
        f"{record['machine']}, {record['date']}, MPICH {record['versions']['mpich']}, milliseconds:\n",
        f"| ranks | {' | '.join(columns)} |",
        "|---:|" + "---:|" * len(columns),
    ]
    for ranks, row in record["rows"].items():
        lines.append(f"| {int(ranks):,} | " + " | ".join("" if row[f"{c}_ms"] is None else f"{row[f'{c}_ms']:.2f}" for c in columns) + " |")
    return "\n".join(lines) + "\n"


def physics() -> str:
    """Gradients of physics programs, from the newest record of them; nothing where there is none."""
    record = newest_of("physics")
    if record is None:
        return ""
    lines = [
        f"{heading(record)}, {record['compiler']}:\n",
        "| program | after | primal, ms | gradient, ms | overhead | bytes | atomics |",
        "|---|---|" + "---:|" * 5,
    ]
    for name, row in record["rows"].items():
        sizes = ", ".join(f"{size} {n}" for size, n in row["sizes"].items())
        times = f"{row['primal_ms']:.2f} | {row['gradient_ms']:.2f} | {row['overhead']:.2f}"
        lines.append(f"| {name.replace('_', ' ')}, {sizes} | {row['like']} | {times} | {row['bytes']:,} | {row['atomics']:,} |")
    return "\n".join(lines) + "\n"


def published() -> str:
    """What others publish of physics programs."""
    rows = "".join(f"| {f.tool} | {f.programs} | {f.says} | {f.where} |\n" for f in FIGURES)
    return f"| | programs | what is said | where |\n|---|---|---|---|\n{rows}"


def budgets() -> tuple[str, Path | None]:
    """Time loops within byte budgets, from the newest record of them, and its picture; nothing where there is none."""
    file = newest_file("budgets")
    if file is None:
        return "", None
    record = _read(file)
    text = f"\n{heading(record)}; {record['n']} x {record['n']} cells, {record['steps']:,} steps.\n"
    text += "\n![time over bytes](pictures/budgets.png)\n"
    text += "\n| problem | how | MB | CPU seconds | run again | time at equal bytes | bytes at equal time |\n"
    text += "|---|---|---:|---:|---:|---:|---:|\n"
    for problem, found in record["problems"].items():
        for who in ("gpuad", "jax", "torch"):
            for row in (r for r in found.get(who, ()) if "bytes" in r):
                how = row.get("way") or ("a budget" if row["budget"] else "all stored")
                ratios = (row.get(f"{what} ratio at equal {other}", "") for what, other in (("time", "bytes"), ("bytes", "time")))
                cells = problem, f"{who}: {how}", f"{row['bytes'] / 1e6:.0f}", _three(row["cpu"]), row.get("reruns", ""), *ratios
                text += f"| {' | '.join(map(str, cells))} |\n"
    return text, file.with_suffix(".png")


def searches() -> str:
    """What launches spend in searches and proofs, from the newest record."""
    record = newest_of("searches")
    if record is None:
        return ""
    where = f"{record['machine']}, of which others took a part (a load of {record['load']:.0f})"
    return f"{where}, {record['date']}, islpy {record['versions']['islpy']}:\n\n{table(record['rows'])}"


def gradbench() -> str:
    """GradBench's evals from the newest record: each at the sizes at which its `manual` C++ takes long enough to be a bar for the gradient,
    and at the last one; nothing where there is no record."""
    record = newest_of("gradbench")
    if record is None:
        return ""
    evaluations = [row for rows in record["evals"].values() for row in rows]
    valid = sum(row["valid"] for row in evaluations)
    text = f"\n{heading(record)}; {record['threads']} thread each; {valid} of {len(evaluations)} outputs valid.\n"
    text += "\n| eval | size | gradient, ms | overhead factor | `manual`, ms | gpuad by `manual` | published: "
    text += " | ".join(PUBLISHED.values()) + " |\n|---|---|" + "---:|" * (4 + len(PUBLISHED)) + "\n"
    for name, rows in record["evals"].items():
        primals, gradients = rows[::2], rows[1::2]
        for primal, gradient in zip(primals, gradients, strict=True):
            own, bar = gradient["tools"]["gpuad"]["ms"], gradient["tools"]["manual"]["ms"]
            last = gradient is gradients[-1]
            if bar < MATTERS and not last:
                continue
            others = [record["published"][name].get(tool, "") if last else "" for tool in PUBLISHED]
            ratios = f"{own / primal['tools']['gpuad']['ms']:.2f}", _three(bar), f"{own / bar:.2f}"
            text += f"| {' | '.join(map(str, (name, gradient['size'].replace('_', ' '), _three(own), *ratios, *others)))} |\n"
    return text


def _milliseconds(rows: Mapping[str, Any], who: str) -> str:
    return _three(rows[who]["gradient_ms"]) if "gradient_ms" in rows.get(who, {}) else ""


def _row(rows: Mapping[str, Any]) -> list[str]:
    own = rows["gpuad"]
    times = [f"{rows[who]['gradient_ms'] / own['gradient_ms']:.2f}" if "gradient_ms" in rows.get(who, {}) else "" for who in OTHERS]
    memory = [f"{rows[who]['memory_bytes'] / 2**20:.0f}" if "memory_bytes" in rows.get(who, {}) else "" for who in ("gpuad", *OTHERS)]
    return [_three(own["gradient_ms"]), f"{own['gradient_ms'] / own['primal_ms']:.2f}", *times, *memory]


def _three(value: float) -> str:
    """Three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
