"""What follows from times and bytes: ratios to the floor, shares of a copy's bandwidth, and whether what is required is reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from .problem import Floor, Problem, Rates, Size

Record: TypeAlias = "dict[str, Any]"
Rows: TypeAlias = "dict[str, Record]"

REACHES = 0.7  # of a copy's bandwidth: a primal that has it is bound by bandwidth
FARTHER = 1.25  # times: what is saved goes through slower memory than the primal if copies' rates differ by more
MUCH = 1.15  # times the floor's bytes: a reason for being slow
COLD = 0.1  # of the reverse's bytes: a reason, if they are memory that it is the first to touch
SHORT = 1e-4  # seconds a launch: below it the cost of launching counts
PEERS = ("jax", "torch", "warp")


def figures(floor: Floor, times: Mapping[str, float], copy: Rates | None) -> Record:
    """Of one runner: milliseconds, reverse over primal, the same over the floor's, and over the floor's in time at the rates of copies; the
    floor's operations a second, or its bytes a second and these over a copy's. `times`: seconds. The reverse is what a gradient takes
    beyond the primal."""
    primal, gradient = times["primal"], times["gradient"]
    reverse = max(gradient - primal, 1e-9)
    ratio = (gradient - primal) / primal
    return {
        **{f"{piece}_ms": round(seconds * 1e3, 4) for piece, seconds in times.items()},
        "ratio": round(ratio, 3),
        "over_floor": round(ratio / floor.ratio, 3),
        **({"over_floor_at_rates": round(ratio / floor.ratio_at(copy), 3)} if copy and floor.saved_bytes else {}),
        **(_arithmetic(floor, primal, reverse) if floor.by_arithmetic else _bandwidth(floor, primal, reverse, copy.near if copy else None)),
    }


def _arithmetic(floor: Floor, primal: float, reverse: float) -> Record:
    return {
        "primal_gflop_s": round(floor.primal_flops / primal / 1e9, 3),
        "reverse_gflop_s": round(floor.reverse_flops / reverse / 1e9, 3),
    }


def _bandwidth(floor: Floor, primal: float, reverse: float, copy: float | None) -> Record:
    rates = {"primal": floor.primal_bytes / primal, "reverse": floor.reverse_bytes / reverse}
    shares = {f"{name}_of_copy": round(rate / copy, 3) for name, rate in rates.items()} if copy else {}
    return {**{f"{name}_gb_s": round(rate / 1e9, 3) for name, rate in rates.items()}, **shares}


def moved(row: Record, floor: Floor) -> Record:
    """Bytes moved over the floor's, where they were counted."""
    if "moved_bytes" not in row:
        return {}
    return {"moved_over_floor": round(row["moved_bytes"] / (floor.primal_bytes + floor.reverse_bytes), 3)}


def usable(row: Record) -> bool:
    """Whether there is something to compare."""
    return "gradient_ms" in row


def judge(problem: Problem, size: Size, floor: Floor, rows: Rows, copy: Rates | None = None) -> list[Record]:
    """What is required of gpuad at this size, and whether it is reached: what, the figure, the most that it may be, and why not. `copy`: at
    what rates. The floor counts all bytes alike; where the primal works in a cache and what is saved does not fit, its time is judged."""
    ours = rows["gpuad"]
    if not usable(ours):
        return []
    found, hand = [], rows.get("by hand", {})
    if problem.required is not None:
        why, bound = _why(problem, size, floor, ours), floor.by_arithmetic or ours.get("primal_of_copy", 1.0) >= REACHES
        why += [f"by hand it is {hand['over_floor']:.2f}"] if hand.get("over_floor", 0.0) > problem.required else []
        what = "reverse / primal over the floor's"
        if copy and floor.saved_bytes and copy.near > FARTHER * copy.far:
            slower = f"what is saved moves at {copy.far / 1e9:.0f} GB/s, what the primal reads and writes at {copy.near / 1e9:.0f}"
            found.append({**verdict(what, ours["over_floor"], problem.required, [slower, *why]), "bound": False})
            at_rates = f"{what} at these rates, {floor.ratio_at(copy):.2f}"
            found.append({**verdict(at_rates, ours["over_floor_at_rates"], problem.required, why), "bound": bound})
        else:
            found.append({**verdict(what, ours["over_floor"], problem.required, why), "bound": bound})
    if problem.of_hand is not None and usable(hand):
        share, primal = ours["gradient_ms"] / hand["gradient_ms"], ours["primal_ms"] / hand["primal_ms"]
        slower = [f"the primal alone takes {primal:.2f} of that by hand"] if primal > MUCH else []
        found.append(verdict("gradient over that by hand", share, problem.of_hand, [*slower, *_why(problem, size, floor, ours)]))
        if problem.keeps and ours["memory_bytes"] and hand["memory_bytes"]:
            found.append(verdict("memory over that by hand", ours["memory_bytes"] / hand["memory_bytes"], 1.0, []))
    if problem.of_hand is not None:
        ahead = {name: ours["gradient_ms"] / rows[name]["gradient_ms"] for name in PEERS if usable(rows.get(name, {}))}
        found += [verdict(f"gradient over that of {name}", share, 1.0, []) for name, share in ahead.items()]
    return found


def verdict(what: str, value: float, most: float, why: list[str]) -> Record:
    """A figure against the most that it may be; `why` counts where it is above."""
    reached = value <= most
    return {"what": what, "value": round(value, 3), "most": most, "reached": reached, "why": [] if reached else why}


def _why(problem: Problem, size: Size, floor: Floor, row: Record) -> list[str]:
    """Facts that explain a slow reverse."""
    reasons = []
    if not floor.by_arithmetic and row.get("primal_of_copy", 1.0) < REACHES:
        reasons.append(f"the primal has {row['primal_of_copy']:.2f} of a copy's bandwidth: it is not bound by it")
    if row.get("atomic"):
        reasons.append(f"adds atomically to {', '.join(row['atomic'])}: on one core")
    if row.get("moved_over_floor", 1.0) > MUCH and not floor.by_arithmetic:
        reasons.append(f"moves {row['moved_over_floor']:.2f} of the floor's bytes")
    if any(name.endswith("_claims") for name in row.get("kernels", ())):
        reasons.append("at each launch it is checked that no two threads store to one place")
    if row.get("assembled_bytes"):
        reasons.append(f"copies {row['assembled_bytes'] / 1e6:.0f} MB together from what was saved and what is still there")
    fresh = row.get("shadow_bytes", 0)
    if not floor.by_arithmetic and fresh > COLD * floor.reverse_bytes:
        share = fresh / floor.reverse_bytes
        reasons.append(f"its shadows, {fresh / 1e6:.0f} MB that the primal has not touched, are {share:.2f} of what the reverse moves")
    each = row["primal_ms"] / 1e3 / problem.launches(size)
    if each < SHORT:
        reasons.append(f"a launch takes {each * 1e6:.0f} us")
    return reasons


def sentence(judged: Record) -> str:
    """A verdict in words: `within`, where it is; else by how much not, and why."""
    if judged["reached"]:
        return f"{judged['what']}: {judged['value']:.2f}, within {judged['most']}"
    word = "misses" if judged.get("bound", True) else "above"
    why = f" ({'; '.join(judged['why'])})" if judged["why"] else ""
    return f"{judged['what']}: {judged['value']:.2f}, {word} {judged['most']}{why}"


def missed(verdicts: list[Record]) -> list[str]:
    """What is required and not reached; a ratio is required only where the primal is bound by what the floor counts."""
    return [sentence(v) for v in verdicts if not v["reached"] and v.get("bound", True)]
