"""Moves between registers, comparisons, selections, and addresses of spaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .faults import Unknown
from .floats import flushed, from_bfloat
from .lanes import Coded, Lanes, Step, applied, handler
from .memory import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW
from .parser import Group, Number, Register
from .types import DTYPES, FLOATS, dtype, unsigned, viewed


@handler("mov")
def _mov(coded: Coded) -> Step:
    type_ = coded.need(*DTYPES)
    coded.done(2)
    target, source = coded.operands
    if isinstance(target, Group):
        return _unpack(coded, type_)
    if isinstance(source, Group):
        return _pack(coded, type_)
    fetch = coded.source(1, _register_type(coded, type_))
    put = coded.target()
    return lambda lanes: put(lanes, fetch(lanes))


def _register_type(coded: Coded, type_: str) -> str:
    """`mov.b32 %r, 0f3F800000` moves bits, whatever the type says."""
    source = coded.operands[1]
    if isinstance(source, Number) and source.size and type_ not in FLOATS:
        return f"f{8 * source.size}"
    return type_


def _unpack(coded: Coded, type_: str) -> Step:
    parts = coded.parts(0)
    size = dtype(type_).itemsize // len(parts)
    fetch, puts = coded.source(1, type_), [coded.put(part) for part in parts]
    wide, narrow = unsigned(size * len(parts)), unsigned(size)

    def step(lanes: Lanes) -> None:
        value = fetch(lanes).view(wide)
        for k, put in enumerate(puts):
            put(lanes, (value >> wide.type(8 * size * k)).astype(narrow))

    return step


def _pack(coded: Coded, type_: str) -> Step:
    parts = coded.parts(1)
    size = dtype(type_).itemsize // len(parts)
    fetches = [coded.fetch(part, unsigned(size)) for part in parts]
    wide, put = unsigned(size * len(parts)), coded.target()

    def step(lanes: Lanes) -> None:
        value = np.zeros(1, wide)
        for k, fetch in enumerate(fetches):
            value = value | fetch(lanes).astype(wide) << wide.type(8 * size * k)
        put(lanes, value)

    return step


# --- comparisons ---------------------------------------------------------------------------------------------------------------------

_ORDERED: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": lambda a, b: (a < b) | (a > b),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
COMBINED: dict[str, Callable[[Any, Any], Any]] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def comparison(name: str) -> Callable[[Any, Any], Any]:
    """A comparison; with a `u` behind it, true for NaN as well."""
    if name in _ORDERED:
        return _ORDERED[name]
    ordered = _ORDERED[name.removesuffix("u")]
    return lambda a, b: ordered(a, b) | np.isnan(a) | np.isnan(b)


@handler("setp", "set")
def _compare(coded: Coded) -> Step:
    name = coded.need(*_ORDERED, *_UNSIGNED, *(f"{n}u" for n in ("eq", "ne", "lt", "le", "gt", "ge")))
    combine, ftz = coded.flag(*COMBINED), coded.flag("ftz")
    type_ = coded.type()
    made = coded.type() if coded.instruction.opcode == "set" else "pred"
    compare = np.not_equal if name == "ne" and dtype(type_).kind not in "f" and type_ != "bf16" else comparison(_UNSIGNED.get(name, name))
    coded.done(4 if combine else 3)
    left, right = coded.source(1, type_), coded.source(2, type_)
    extra = coded.source(3, "pred") if combine else None
    put, other = coded.pair(0)
    change = from_bfloat if type_ == "bf16" else flushed if ftz else lambda x: x

    def step(lanes: Lanes) -> None:
        result = compare(change(left(lanes)), change(right(lanes)))
        opposite = ~result
        if extra is not None:
            given = extra(lanes)
            result, opposite = COMBINED[combine](result, given), COMBINED[combine](opposite, given)
        put(lanes, result if made == "pred" else _as_number(result, made))
        if other is not None:
            other(lanes, opposite)

    return step


def _as_number(truth: Any, made: str) -> Any:
    word = dtype(made)
    return truth.astype(word) if word.kind == "f" else np.where(truth, ~unsigned(word.itemsize).type(0), unsigned(word.itemsize).type(0))


@handler("selp")
def _select(coded: Coded) -> Step:
    type_ = coded.type()
    return applied(coded, lambda a, b, p: np.where(p, a, b), (type_, type_, "pred"))


@handler("slct")
def _select_by_sign(coded: Coded) -> Step:
    ftz = coded.flag("ftz")
    sign, type_ = coded.need("s32", "f32"), coded.type()
    return applied(coded, lambda a, b, c: np.where((flushed(c) if ftz else c) >= 0, a, b), (type_, type_, sign))


# --- addresses -----------------------------------------------------------------------------------------------------------------------

_BEGIN = {"global": 0, "const": 0, "shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}


@handler("cvta")
def _convert_address(coded: Coded) -> Step:
    back = coded.flag("to")
    begin = np.uint64(_BEGIN[coded.need(*_BEGIN)])
    coded.need("u64")
    return applied(coded, (lambda a: a - begin) if back else (lambda a: a + begin), ("u64",))


@handler("isspacep")
def _is_space(coded: Coded) -> Step:
    begin = _BEGIN[coded.need("global", "shared", "local", "const", "param")]
    coded.done(2)
    if not isinstance(coded.operands[1], Register):
        raise Unknown(coded.text)
    put, source = coded.target(), coded.source(1, "u64")

    def step(lanes: Lanes) -> None:
        address = viewed(source(lanes), np.dtype("u8"))
        put(lanes, (address >= np.uint64(begin)) & (address < np.uint64(begin + WINDOW)))

    return step


@handler("membar", "fence", "nanosleep", "prefetch", "prefetchu", "discard", "applypriority")
def _nothing(coded: Coded) -> Step:
    """Lanes see each other's stores at once, and nothing is asynchronous."""
    known = (
        "gl",
        "cta",
        "sys",
        "gpu",
        "cluster",
        "acq_rel",
        "sc",
        "acquire",
        "release",
        "proxy",
        "alias",
        "u32",
        "global",
        "L1",
        "L2",
        "local",
    )
    while coded.flag(*known):
        pass
    coded.done()
    return lambda lanes: None
