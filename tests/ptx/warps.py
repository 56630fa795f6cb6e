"""What lanes do together: shuffles, votes, matches, reductions of warps, and barriers.

Such an instruction begins a block of its own. `MEETINGS` says for whom its lanes wait; the machine runs it when they have come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .faults import Unknown
from .lanes import Coded, Lanes, Step, handler
from .parser import Instruction, Number
from .types import dtype

WARP = 32
POISON = np.uint32(0x7FC5A5A5)  # what a lane gets from one that does not take part: anything, here a NaN, of which two make a NaN of double
_REDUCE: dict[str, Any] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def meeting(instruction: Instruction) -> str:
    """Who has to come: the 'block', the lanes of a 'mask', or nobody ('')."""
    if instruction.opcode in ("bar", "barrier"):
        return "mask" if instruction.modifiers[0] == "warp" else "block"
    return "" if instruction.opcode == "activemask" else "mask"


def mask_of(instruction: Instruction, coded: Coded) -> Callable[[Lanes], Any]:
    """The lanes that take part, of an instruction that names them."""
    return coded.source(0 if instruction.opcode in ("bar", "barrier") else -1 % len(coded.operands), "b32")


def lane_numbers(lanes: Lanes) -> Any:
    return lanes.threads % WARP


def _table(lanes: Lanes, value: Any) -> tuple[Any, Any]:
    """Values by warp and lane, and who has one."""
    number = lanes.activation.warp_count * WARP
    at = lanes.warps * WARP + lane_numbers(lanes)
    values, present = np.zeros(number, value.dtype), np.zeros(number, np.bool_)
    values[at], present[at] = value, True
    return values, present


# --- shuffles ------------------------------------------------------------------------------------------------------------------------


@handler("shfl")
def _shuffle(coded: Coded) -> Step:
    coded.need("sync")
    mode = coded.need("up", "down", "bfly", "idx")
    coded.need("b32")
    coded.done(5)
    put, into = coded.pair(0)
    value, offset, clamp, mask = (coded.source(at, "u32") for at in (1, 2, 3, 4))

    def step(lanes: Lanes) -> None:
        number = lane_numbers(lanes).astype(np.int64)
        from_, inside = shuffled(mode, number, offset(lanes).astype(np.int64) & 31, clamp(lanes).astype(np.int64))
        values, present = _table(lanes, lanes.full(value(lanes)))
        base = lanes.warps * WARP
        named = present[base + from_] & (mask(lanes) >> from_.astype(np.uint32) & 1).astype(np.bool_)
        put(lanes, np.where(named, values[base + from_], POISON))
        if into is not None:
            into(lanes, inside)

    return step


def shuffled(mode: str, lane: Any, offset: Any, clamp: Any) -> tuple[Any, Any]:
    """The lane that each lane reads (itself, where it would be outside of its segment), and whether it is inside."""
    segment, bound = clamp >> 8 & 31, clamp & 31
    most, least = lane & segment | bound & ~segment, lane & segment
    match mode:
        case "up":
            wanted = lane - offset
            inside = wanted >= most
        case "down":
            wanted = lane + offset
            inside = wanted <= most
        case "bfly":
            wanted = lane ^ offset
            inside = wanted <= most
        case _:
            wanted = least | offset & ~segment
            inside = wanted <= most
    return np.where(inside, wanted, lane), np.broadcast_to(inside, lane.shape)


# --- votes ---------------------------------------------------------------------------------------------------------------------------


def _ballot(lanes: Lanes, truth: Any) -> Any:
    """The bits of each lane's warp."""
    weights = np.where(truth, 2.0 ** lane_numbers(lanes), 0.0)
    return np.bincount(lanes.warps, weights, lanes.activation.warp_count).astype(np.uint64).astype(np.uint32)[lanes.warps]


@handler("vote")
def _vote(coded: Coded) -> Step:
    coded.need("sync")
    mode = coded.need("all", "any", "uni", "ballot")
    coded.need("b32" if mode == "ballot" else "pred")
    coded.done(3)
    put, truth, mask = coded.target(), coded.source(1, "pred"), coded.source(2, "b32")

    def step(lanes: Lanes) -> None:
        yes = lanes.full(truth(lanes))
        given, all_of_them = _ballot(lanes, yes) & mask(lanes), _ballot(lanes, np.ones(lanes.count, np.bool_)) & mask(lanes)
        results = {"ballot": given, "any": given != 0, "all": given == all_of_them, "uni": (given == all_of_them) | (given == 0)}
        put(lanes, results[mode])

    return step


@handler("activemask")
def _active(coded: Coded) -> Step:
    coded.need("b32")
    coded.done(1)
    put = coded.target()
    return lambda lanes: put(lanes, _ballot(lanes, np.ones(lanes.count, np.bool_)))


@handler("match")
def _match(coded: Coded) -> Step:
    mode = coded.need("any", "all")
    coded.need("sync")
    type_ = coded.need("b32", "b64")
    coded.done(3)
    put, into = coded.pair(0)
    value, mask = coded.source(1, type_), coded.source(2, "b32")

    def step(lanes: Lanes) -> None:
        values = lanes.full(value(lanes))
        _, number = np.unique(values, return_inverse=True)
        both = lanes.warps.astype(np.int64) * (int(number.max()) + 1) + number
        _, group = np.unique(both, return_inverse=True)
        same = np.bincount(group, 2.0 ** lane_numbers(lanes)).astype(np.uint64).astype(np.uint32)[group] & mask(lanes)
        if mode == "any":
            put(lanes, same)
            return
        agree = same == _ballot(lanes, np.ones(lanes.count, np.bool_)) & mask(lanes)
        put(lanes, np.where(agree, same, np.uint32(0)))
        if into is not None:
            into(lanes, agree)

    return step


@handler("redux")
def _reduce(coded: Coded) -> Step:
    coded.need("sync")
    operation = coded.need(*_REDUCE)
    type_ = coded.need("u32", "s32", "b32")
    coded.done(3)
    put, value, mask = coded.target(), coded.source(1, type_), coded.source(2, "b32")

    def step(lanes: Lanes) -> None:
        values, groups = lanes.full(value(lanes)), lanes.warps.astype(np.uint64) << np.uint64(32) | mask(lanes)
        order = np.argsort(groups, kind="stable")
        _, begin, group = np.unique(groups[order], return_index=True, return_inverse=True)
        results = np.empty(lanes.count, dtype(type_))
        results[order] = _REDUCE[operation].reduceat(values[order], begin)[group]
        put(lanes, results)

    return step


# --- barriers ------------------------------------------------------------------------------------------------------------------------


@handler("bar", "barrier")
def _barrier(coded: Coded) -> Step:
    coded.flag("cta")
    if coded.flag("warp"):
        coded.need("sync")
        coded.done(1)
        return lambda lanes: lanes.activation.launch.watch.warp_barrier(lanes.rows, lanes.threads)
    if coded.flag("red"):
        return _block_reduction(coded)
    coded.need("sync")
    coded.flag("aligned")
    coded.done(1)
    if not isinstance(coded.operands[0], Number):
        raise Unknown(coded.text)
    return lambda lanes: lanes.activation.launch.watch.barrier(np.unique(lanes.rows))


def _block_reduction(coded: Coded) -> Step:
    """__syncthreads_count, _and, _or."""
    mode = coded.need("popc", "and", "or")
    coded.flag("aligned")
    coded.need("u32" if mode == "popc" else "pred")
    coded.done(3)
    put, truth = coded.target(), coded.source(2, "pred")

    def step(lanes: Lanes) -> None:
        lanes.activation.launch.watch.barrier(np.unique(lanes.rows))
        yes = np.bincount(lanes.rows, lanes.full(truth(lanes)))[lanes.rows].astype(np.uint32)
        of = np.bincount(lanes.rows)[lanes.rows]
        put(lanes, {"popc": yes, "and": yes == of, "or": yes > 0}[mode])

    return step
