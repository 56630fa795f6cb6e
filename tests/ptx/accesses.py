"""Loads, stores and atomic operations, in every space.

`what` in messages is the instruction's text. Bounds, alignment and initialisation are checked by the memory; races in shared memory by the
launch's watch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .atomics import OPERATIONS, changed
from .faults import Unknown
from .lanes import Coded, Lanes, Step, handler
from .memory import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW
from .parser import Address, Symbol
from .types import dtype, unsigned

SPACES = ("global", "const", "shared", "local", "param")
_ORDERS = ("volatile", "relaxed", "acquire", "release", "acq_rel", "weak", "sc", "mmio")
_SCOPES = ("gpu", "cta", "sys", "cluster")
_CACHES = (
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "nc",
    "L1::evict_last",
    "L1::no_allocate",
    "L1::evict_first",
    "L2::128B",
    "L2::256B",
    "L2::64B",
)


def _prefix(coded: Coded) -> str:
    """The space of an access, behind whatever says how caches and other threads see it."""
    for known in (_ORDERS, _SCOPES, _CACHES, _CACHES):
        coded.flag(*known)
    space = coded.flag(*SPACES)
    if space == "shared" or space == "param":
        coded.flag("cta")
    return space or "generic"


# --- loads and stores ----------------------------------------------------------------------------------------------------------------


@handler("ld", "ldu")
def _load(coded: Coded) -> Step:
    space, vector, type_ = _prefix(coded), coded.flag("v2", "v4"), coded.type()
    coded.done(2)
    wanted, puts = dtype(type_), [coded.put(part) for part in coded.parts(0)]
    if len(puts) != int(vector[1:] or 1):
        raise Unknown(coded.text)
    addresses, load, what = _place(coded, space, 1), _LOADS[space], coded.text

    def step(lanes: Lanes) -> None:
        for put, value in zip(puts, load(lanes, addresses(lanes), wanted, len(puts), what), strict=True):
            put(lanes, value)

    return step


@handler("st")
def _store(coded: Coded) -> Step:
    space, vector, type_ = _prefix(coded), coded.flag("v2", "v4"), coded.type()
    coded.done(2)
    sources = [coded.fetch(part, dtype(type_)) for part in coded.parts(1)]
    if len(sources) != int(vector[1:] or 1):
        raise Unknown(coded.text)
    addresses, store, what = _place(coded, space, 0), _STORES[space], coded.text

    def step(lanes: Lanes) -> None:
        values, places = [source(lanes) for source in sources], addresses(lanes)
        if places.size < lanes.count and any(v.size > 1 for v in values):
            places = lanes.full(places)
        store(lanes, places, values, what)

    return step


def _is_strong(what: str) -> bool:
    """Whether an access is one that the memory model orders with atomic operations, with which it does not race."""
    return any(f".{order}" in what.partition(" ")[0] for order in _ORDERS if order != "weak")


def _place(coded: Coded, space: str, at: int) -> Callable[[Lanes], Any]:
    """The addresses of an access: of parameters their place among those of the kernel, or of calls (which lie behind a window)."""
    operand = coded.operands[at]
    if space == "param" and isinstance(operand, Address) and isinstance(operand.base, Symbol):
        constant = np.array([coded.scope.parameter(operand.base.name) + operand.offset], np.uint64)
        return lambda lanes: constant
    return coded.addresses(at)


def _load_global(lanes: Lanes, addresses: Any, wanted: Any, count: int, what: str) -> list[Any]:
    return lanes.activation.launch.load(addresses, wanted, count, what, lanes)


def _store_global(lanes: Lanes, addresses: Any, values: list[Any], what: str) -> None:
    lanes.activation.launch.store(addresses, values, what, lanes)


def _load_shared(lanes: Lanes, addresses: Any, wanted: Any, count: int, what: str) -> list[Any]:
    launch, size = lanes.activation.launch, wanted.itemsize * count
    found = launch.shared.load(lanes.rows, addresses, wanted, count, what)
    look = launch.watch.look if _is_strong(what) else launch.watch.read
    look(lanes.rows, lanes.threads, launch.shared.places(lanes.rows, addresses, size, size, what), size, what)
    return found


def _store_shared(lanes: Lanes, addresses: Any, values: list[Any], what: str) -> None:
    launch, rows = lanes.activation.launch, lanes.rows
    size = values[0].dtype.itemsize
    word = unsigned(size)
    places = launch.shared.places(rows, addresses, size * len(values), size * len(values), what)
    data = launch.shared.data.view(word)
    bits = [v.view(word) for v in values]

    def alike() -> Any:
        return np.logical_and.reduce([data[places // size + k] == b for k, b in enumerate(bits)])

    before = alike()
    launch.shared.store(rows, addresses, values, what)
    if _is_strong(what):
        launch.watch.atomic(rows, lanes.threads, places, size * len(values), what)
        return
    launch.watch.write(rows, lanes.threads, places, size * len(values), before, alike(), what)


def _load_local(lanes: Lanes, addresses: Any, wanted: Any, count: int, what: str) -> list[Any]:
    found: list[Any] = lanes.activation.launch.local.load(lanes.pick(lanes.activation.ids), addresses, wanted, count, what)
    return found


def _store_local(lanes: Lanes, addresses: Any, values: list[Any], what: str) -> None:
    lanes.activation.launch.local.store(lanes.pick(lanes.activation.ids), addresses, values, what)


def _parameters(lanes: Lanes, addresses: Any) -> tuple[Any, Any, Any]:
    """Which rows hold these parameters: the kernel's one row, or a row a lane for what is handed to functions and back."""
    if int(addresses[0]) < PARAM_WINDOW:
        return lanes.activation.launch.parameters, np.zeros(1, np.int64), addresses
    own = np.arange(lanes.activation.count) if lanes.index is None else lanes.index
    return lanes.activation.handed, own, addresses - np.uint64(PARAM_WINDOW)


def _load_param(lanes: Lanes, addresses: Any, wanted: Any, count: int, what: str) -> list[Any]:
    memory, rows, offsets = _parameters(lanes, addresses)
    found: list[Any] = memory.load(rows, offsets, wanted, count, what)
    return found


def _store_param(lanes: Lanes, addresses: Any, values: list[Any], what: str) -> None:
    memory, rows, offsets = _parameters(lanes, addresses)
    memory.store(rows, offsets, values, what)


# --- generic addresses ---------------------------------------------------------------------------------------------------------------


def _by_window(lanes: Lanes, addresses: Any) -> Iterator[tuple[str, Lanes, Any, Any]]:
    """The lanes by the space to which their generic addresses point: the space, those lanes, which of these they are, their addresses
    there."""
    numbers = addresses // np.uint64(WINDOW)
    for number in np.unique(numbers):
        space = {0: "global", 1: "shared", 2: "local", 3: "param"}.get(int(number))
        if space is None:
            raise Unknown(f"a generic address {int(addresses[0]):#x}")
        begin = np.uint64({"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}.get(space, 0))
        if numbers.size == 1 or (numbers == number).all():
            yield space, lanes, None, addresses - begin
            return
        which = np.flatnonzero(numbers == number)
        index = which if lanes.index is None else lanes.index[which]
        yield space, Lanes(lanes.activation, index, index.size), which, addresses[which] - begin


def _load_generic(lanes: Lanes, addresses: Any, wanted: Any, count: int, what: str) -> list[Any]:
    results = [np.empty(lanes.count, wanted) for _ in range(count)]
    for space, some, which, places in _by_window(lanes, addresses):
        values = _LOADS[space](some, places, wanted, count, what)
        if which is None:
            return values
        for result, value in zip(results, values, strict=True):
            result[which] = value
    return results


def _store_generic(lanes: Lanes, addresses: Any, values: list[Any], what: str) -> None:
    for space, some, which, places in _by_window(lanes, addresses):
        _STORES[space](some, places, values if which is None else [lanes.full(v)[which] for v in values], what)


_LOADS: dict[str, Callable[..., list[Any]]] = {
    "global": _load_global,
    "const": _load_global,
    "shared": _load_shared,
    "local": _load_local,
    "param": _load_param,
    "generic": _load_generic,
}
_STORES: dict[str, Callable[..., None]] = {
    "global": _store_global,
    "shared": _store_shared,
    "local": _store_local,
    "param": _store_param,
    "generic": _store_generic,
}


# --- atomics -------------------------------------------------------------------------------------------------------------------------


@handler("atom", "red")
def _atomic(coded: Coded) -> Step:
    keeps = coded.instruction.opcode == "atom"
    space = _prefix(coded)
    coded.flag("noftz")
    operation, type_ = coded.need(*OPERATIONS), coded.type()
    count = 2 if operation == "cas" else 1
    coded.done(1 + keeps + count)
    sources = [coded.source(at + 1 + keeps, type_) for at in range(count)]
    addresses = coded.addresses(int(keeps))
    put = coded.target() if keeps else None
    wants = keeps and coded.scope.is_read(coded.operands[0])
    what = coded.text
    if space not in ("global", "shared", "generic"):
        raise Unknown(coded.text)

    def step(lanes: Lanes) -> None:
        values = [lanes.full(source(lanes)) for source in sources]
        old = _changed(space, lanes, lanes.full(addresses(lanes)), values, (operation, type_, wants), what)
        if put is not None:
            put(lanes, old)

    return step


def _changed(space: str, lanes: Lanes, addresses: Any, values: list[Any], how: tuple[str, str, bool], what: str) -> Any:
    launch, size = lanes.activation.launch, values[0].dtype.itemsize
    result = np.zeros(addresses.size, values[0].dtype)
    if space == "generic":
        for found, some, which, places in _by_window(lanes, addresses):
            part = _changed(found, some, places, values if which is None else [v[which] for v in values], how, what)
            result[... if which is None else which] = part
    elif space == "shared":
        places = launch.shared.places(lanes.rows, addresses, size, size, what)
        launch.shared.load(lanes.rows, addresses, values[0].dtype, 1, what)
        launch.watch.atomic(lanes.rows, lanes.threads, places, size, what)
        result = changed(launch.shared.data.view(values[0].dtype), places // size, values, *how)
    elif space == "global":
        launch.atomic(addresses, size, lanes)
        for allocation, which, offsets in launch.memory.pieces(addresses, size, size, what):
            allocation.loaded = allocation.stored = True
            chosen = values if which is None else [v[which] for v in values]
            old = changed(allocation.typed(values[0].dtype), offsets // size, chosen, *how)
            result[... if which is None else which] = old
    else:
        raise Unknown(what)
    return result
