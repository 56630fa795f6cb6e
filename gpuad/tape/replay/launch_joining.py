"""The actions of a program that is known as a whole, with launches that follow each other as one where that is the same.

Copies and clearings between them come along where they can be written as launches (`modelled`), and what is cleared at the end of a reverse
is cleared as soon as nothing needs it any more. What is proved before two launches become one is in `fusion.chain`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ... import fusion, pipeline
from ...arguments.aliasing import hull
from ...arguments.arrays import address, is_array
from ...errors import LaunchError
from ...fusion import Link
from ...ir.nodes import Kernel
from ...runtime.actions import Action, Clearing, Copying
from ...runtime.array_types import NdArray
from ...runtime.base import Executor, Memory, Prepared, prepared
from .copies_as_launches import as_launch

Part = tuple[Action, str, str]  # an action, and the name and place of the operation that it belongs to

_NEAR = 8  # launches before or after a copy that may be its model


def joined(parts: Sequence[Part], executor: Executor) -> list[Part]:
    """The parts with fewer launches. `executor`: that of launches that were joined; it does not contract products and sums, so that what
    was stored on the way is what is used."""
    if not pipeline.chaining():
        return list(parts)
    parts = _cleared_early(parts)
    links = _links([action for action, _, _ in parts])
    on_cpu = executor.stream() is None
    made: dict[int, Kernel] = {}
    found: list[tuple[Link | None, Sequence[Part]]] = []
    for alike, group in groupby(zip(parts, links, strict=True), lambda pair: pair[1] is not None):
        run = list(group)
        found += _as_few(run, on_cpu, made) if alike else [(None, [part for part, _ in run])]
    executor.prepare(list(made.values()))
    return [part for link, together in found for part in (together if link is None else _as_one(link, together, executor))]


def _as_few(run: Sequence[tuple[Part, Link | None]], on_cpu: bool, made: dict[int, Kernel]) -> list[tuple[Link | None, Sequence[Part]]]:
    """The launches to be made, and the parts that each stands for: None where that is a part itself."""
    found: list[tuple[Link | None, Sequence[Part]]] = []
    at = 0
    for link, count in fusion.one_after_the_other([link for _, link in run if link is not None], on_cpu, made):
        found.append((link, [part for part, _ in run[at : at + count]]))
        at += count
    return found


def _as_one(link: Link, parts: Sequence[Part], executor: Executor) -> Sequence[Part]:
    """The one launch; the parts themselves where the device has too few registers for it."""
    try:
        return [_of_all(prepared(executor, link.kernel, *link.geometry, link.arguments), parts)]
    except LaunchError:
        return parts


def _of_all(action: Action, parts: Sequence[Part]) -> Part:
    """The action under the names of all of them."""
    names, places = [name for _, name, _ in parts], [where for _, _, where in parts]
    where = places[0] if places[0] == places[-1] else f"{places[0]} to {places[-1]}"
    return action, ", ".join(dict.fromkeys(names)), where


# --- launches, copies and clearings -------------------------------------------------------------------------------------------------------


def _links(actions: Sequence[Action]) -> list[Link | None]:
    """The actions as launches that may be joined; a copy or a clearing like one of the launches around it."""
    found = [fusion.link_of(action) for action in actions]
    launches = list(found)
    for at, action in enumerate(actions):
        if isinstance(action, Copying | Clearing):
            models = (as_launch(action, model) for model in _around(actions, launches, at))
            found[at] = next((model for model in models if model is not None), None)
    return found


def _around(actions: Sequence[Action], links: Sequence[Link | None], at: int) -> Iterator[Link]:
    """The launches that come next, then those that came last, with nothing but copies between."""
    for step in (1, -1):
        place, seen = at + step, 0
        while 0 <= place < len(actions) and seen < _NEAR:
            link = links[place]
            if link is not None:
                seen += 1
                yield link
            elif not isinstance(actions[place], Copying | Clearing):
                break
            place += step


# --- what is cleared at the end -----------------------------------------------------------------------------------------------------------


def _cleared_early(parts: Sequence[Part]) -> list[Part]:
    """The parts with what is cleared at the end right after the last action that touches it."""
    count = next((k for k, part in enumerate(reversed(parts)) if not isinstance(part[0], Clearing)), len(parts))
    rest, ends = list(parts[: len(parts) - count]), parts[len(parts) - count :]
    seen = _Touched([action for action, _, _ in rest])
    after: dict[int, list[Part]] = {}
    for part in ends:
        action = part[0]
        assert isinstance(action, Clearing)
        last = seen.last(action.target)
        model = fusion.link_of(rest[last][0]) if last >= 0 else None
        if model is None or as_launch(action, model) is None:  # it would stand between launches
            last = len(rest) - 1
        after.setdefault(last, []).append(part)
    return [*after.get(-1, ()), *(p for k, part in enumerate(rest) for p in (part, *after.get(k, ())))]


class _Touched:
    """Which action touches which memory last. Actions that are code of their own may touch any."""

    def __init__(self, actions: Sequence[Action]) -> None:
        self.any = -1
        self.spans: dict[tuple[int, int], int] = {}
        for at, action in enumerate(actions):
            if not isinstance(action, Prepared | Copying | Clearing):
                self.any = at
                continue
            for span in _spans(action):
                self.spans[span] = at

    def last(self, array: NdArray) -> int:
        """The number of the last action that touches the array, -1 if none does."""
        low, high = hull(array)
        return max([self.any, *(at for (begin, end), at in self.spans.items() if begin < high and low < end)])


def _spans(action: Prepared | Copying | Clearing) -> Iterator[tuple[int, int]]:
    """From where to where an action may touch memory."""
    if isinstance(action, Prepared):
        for argument in action.arguments:
            if isinstance(argument, Memory):
                begin = address(argument.root)
                yield begin, begin + int(argument.root.nbytes)
        return
    arrays = [action.target, *([action.source] if isinstance(action, Copying) else [])]
    yield from (hull(a) for a in arrays if is_array(a))
