"""The drawing of the architecture, made from the imports; `pytest --update-golden tests/tools/test_docs.py` writes `docs/architecture.svg`.

A room of more than one module is a box, above those that it imports. A line goes from a room to each that it imports, except where a path
through others leads there anyway: what is drawn is the transitive reduction.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from test_architecture import FLOORS, inside, modules, room

# What a reader should see first: the rooms of the one line that a kernel goes down.
LINE = ("frontend", "lower", "ad", "optimize", "accumulate", "codegen", "runtime")
BOX, HEIGHT, STEP, GAP, MARGIN = 148, 26, 52, 40, 24
INK, LIGHT, ACCENT = "#24292f", "#8c959f", "#0969da"


@cache
def below() -> Mapping[str, frozenset[str]]:
    """For each room those that its modules import."""
    found: dict[str, set[str]] = {name: set() for floor in FLOORS for name in sorted(floor)}
    for module in modules():
        if module != "gpuad":
            found[room(module)] |= {room(other) for other in inside(module) - {"gpuad"}} - {room(module)}
    return {name: frozenset(others) for name, others in found.items()}


def folders() -> frozenset[str]:
    """The rooms that are more than one module."""
    return frozenset(name for name in below() if modules()[f"gpuad.{name}"].name == "__init__.py")


def reduced(edges: Mapping[str, frozenset[str]]) -> list[tuple[str, str]]:
    """The edges of an acyclic graph that no longer path stands for."""

    @cache
    def reached(name: str) -> frozenset[str]:
        return edges[name].union(*(reached(other) for other in edges[name]))

    return [(a, b) for a in edges for b in sorted(edges[a]) if not any(b in reached(c) for c in edges[a] - {b})]


def layers(edges: Sequence[tuple[str, str]], names: Iterable[str]) -> list[list[str]]:
    """The rooms from the top down, each as low as what it imports allows; on one line, by where what imports them stands."""

    @cache
    def height(name: str) -> int:
        return max((height(b) + 1 for a, b in edges if a == name), default=0)

    tops = max(map(height, names))
    rows = [sorted(name for name in names if height(name) == tops - row) for row in range(tops + 1)]
    for upper, row in itertools.pairwise(rows):
        row.sort(key=lambda name: [upper.index(a) for a, b in edges if b == name and a in upper] or [len(upper)])
    return rows


def placed(rows: Sequence[Sequence[str]]) -> dict[str, tuple[float, float]]:
    """The left upper corner of each room's box."""
    width = max(map(len, rows)) * (BOX + GAP) - GAP
    places = {}
    for number, row in enumerate(rows):
        left = MARGIN + (width - len(row) * (BOX + GAP) + GAP) / 2
        places |= {name: (left + position * (BOX + GAP), MARGIN + number * STEP) for position, name in enumerate(row)}
    return places


def drawn() -> str:
    """The drawing as SVG."""
    rooms = {name: others & folders() for name, others in below().items() if name in folders()}
    edges = reduced(rooms)
    places = placed(layers(edges, rooms))
    width = max(x for x, _ in places.values()) + BOX + 2 * MARGIN
    height = max(y for _, y in places.values()) + HEIGHT + MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>',
    ]
    lines += [_edge(places[a], places[b]) for a, b in edges]
    lines += [_box(name, place) for name, place in places.items()]
    return "\n".join([*lines, "</svg>", ""])


def _edge(upper: tuple[float, float], lower: tuple[float, float]) -> str:
    x, y = upper[0] + BOX / 2, upper[1] + HEIGHT
    u, v = lower[0] + BOX / 2, lower[1]
    if v - y <= STEP:
        return f'<path d="M{x:g} {y:g} L{u:g} {v:g}" fill="none" stroke="{LIGHT}"/>'
    x, y, u, v = x + BOX / 2, y - HEIGHT / 2, u + BOX / 2, v + HEIGHT / 2
    side = max(x, u) + min(12 + (v - y) / 6, 2 * MARGIN)  # past the boxes between
    return f'<path d="M{x:g} {y:g} C{side:g} {y:g} {side:g} {v:g} {u:g} {v:g}" fill="none" stroke="{LIGHT}"/>'


def _box(name: str, place: tuple[float, float]) -> str:
    x, y = place
    colour = ACCENT if name in LINE else INK
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{BOX}" height="{HEIGHT}" rx="4" fill="#ffffff" stroke="{colour}" stroke-width="1.5"/>'
        f'<text x="{x + BOX / 2:g}" y="{y + HEIGHT - 8:g}" text-anchor="middle" fill="{colour}">{name}</text>'
    )
