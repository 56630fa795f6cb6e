"""Calls of functions. Parameters and results lie in rows, one for each lane that calls; the function runs until all lanes have returned."""

from __future__ import annotations

import numpy as np

from .faults import Undefined, Unknown
from .lanes import Coded, Lanes, Step, handler
from .memory import Rows
from .parser import Operand, Symbol
from .types import uniform

_IGNORED = ("vprintf",)
_FAILING = ("__assertfail", "__assert_fail")


@handler("call")
def _call(coded: Coded) -> Step:
    coded.flag("uni")
    groups = [coded.parts(at) for at in range(len(coded.operands))]
    coded.done(1, 2, 3)
    at = next(n for n, operand in enumerate(coded.operands) if isinstance(operand, Symbol))
    results = groups[0] if at else ()
    params = groups[at + 1] if len(groups) > at + 1 else ()
    name = coded.operands[at].name  # type: ignore[union-attr]
    if name in _FAILING:
        return _fails(name)
    if name in _IGNORED:
        return _returns_zero(coded, results)
    loaded = coded.scope.loaded
    given = [_place(coded, p) for p in params]
    taken = [_place(coded, r) for r in results]

    def step(lanes: Lanes) -> None:
        from .machine import Activation

        code, caller = loaded.code(name), lanes.activation
        function = code.program.function
        rows = Rows(lanes.count, code.handed_size, "parameter")
        for place, param in zip(given, function.params, strict=True):
            _copied(caller.handed, lanes.index, place, rows, None, code.handed_places[param.name])
        Activation(code, caller.launch, lanes.pick(caller.ids), rows).run()
        for place, result in zip(taken, function.results, strict=True):
            at, size = code.handed_places[result.name]
            _copied(rows, None, at, caller.handed, lanes.index, (place, size))

    return step


def _place(coded: Coded, operand: Operand) -> int:
    if not isinstance(operand, Symbol):
        raise Unknown(coded.text)
    place: int = coded.scope.handed[operand.name]
    return place


def _copied(source: Rows, index: object, at: int, target: Rows, into: object, place: tuple[int, int]) -> None:
    begin, size = place
    for name in ("data", "written"):
        rows, others = (getattr(r, name).reshape(-1, r.pitch) for r in (source, target))
        some = rows[:, at : at + size] if index is None else rows[index, at : at + size]
        others[slice(None) if into is None else into, begin : begin + size] = some


def _fails(name: str) -> Step:
    def step(lanes: Lanes) -> None:
        raise Undefined(f"{name} is called")

    return step


def _returns_zero(coded: Coded, results: tuple[Operand, ...]) -> Step:
    places = [_place(coded, r) for r in results]

    def step(lanes: Lanes) -> None:
        own = np.arange(lanes.activation.count) if lanes.index is None else lanes.index
        for place in places:
            lanes.activation.handed.store(own, uniform(place, np.uint64), [uniform(0, np.uint32)], coded.text)

    return step
