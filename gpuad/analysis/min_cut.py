"""The cheapest set of nodes that separates a source from a sink: a minimum vertex cut, by augmenting paths (Ford and Fulkerson 1956, with
the shortest path first as Edmonds and Karp 1972 have it). Weights are a few bytes each, so few paths are needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

SOURCE, SINK = "source", "sink"
STEPS = 1 << 23  # edges that are looked at; beyond them there is no cut
_ENDLESS = 1 << 60
Node = Hashable
Half = tuple[Node, bool]  # a node's entrance (False) or exit (True)


def minimum_cut(edges: Iterable[tuple[Node, Node]], weights: Mapping[Any, int]) -> frozenset[Node] | None:
    """The nodes of least total weight through which every path from SOURCE to SINK goes; of several such sets the one nearest to SINK.
    Nodes without a weight are not to be cut; None if they alone make up a path, and where the search takes too long."""
    rest = _network(edges, weights)
    edge_count, steps = sum(map(len, rest.values())), 0
    while path := _path(rest):
        amount = min(rest[a][b] for a, b in path)
        steps += edge_count
        if amount >= _ENDLESS // 2 or steps > STEPS:
            return None
        for a, b in path:
            rest[a][b] -= amount
            rest[b][a] += amount
    behind = _reaching(rest, (SINK, False))
    return frozenset(n for n in weights if (n, True) in behind and (n, False) not in behind and (n, True) in rest)


def _network(edges: Iterable[tuple[Node, Node]], weights: Mapping[Any, int]) -> dict[Half, dict[Half, int]]:
    """What may still flow; each node is an edge from its entrance to its exit."""
    rest: dict[Half, dict[Half, int]] = {(SOURCE, True): {}, (SINK, False): {}}

    def connect(a: Half, b: Half, most: int) -> None:
        rest.setdefault(a, {})[b] = most
        rest.setdefault(b, {}).setdefault(a, 0)

    for a, b in edges:
        for node in (a, b):
            if node not in (SOURCE, SINK) and (node, True) not in rest:
                connect((node, False), (node, True), weights.get(node, _ENDLESS))
        connect((a, True), (b, False), _ENDLESS)
    return rest


def _path(rest: Mapping[Half, Mapping[Half, int]]) -> list[tuple[Half, Half]]:
    """The shortest path along which more may flow, as edges; empty if there is none."""
    start: Half = (SOURCE, True)
    end: Half = (SINK, False)
    came: dict[Half, Half] = {start: start}
    waiting = deque([start])
    while waiting and end not in came:
        at = waiting.popleft()
        for other, most in rest[at].items():
            if most > 0 and other not in came:
                came[other] = at
                waiting.append(other)
    path: list[tuple[Half, Half]] = []
    while end in came and end != start:
        path.append((came[end], end))
        end = came[end]
    return path


def _reaching(rest: Mapping[Half, Mapping[Half, int]], end: Half) -> set[Half]:
    """From where the end can still be reached."""
    found = {end}
    waiting = [end]
    while waiting:
        at = waiting.pop()
        for other in rest[at]:  # every edge has its reverse beside it
            if other not in found and rest[other].get(at, 0) > 0:
                found.add(other)
                waiting.append(other)
    return found
