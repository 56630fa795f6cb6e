"""Modes: what holds for launches within a `with` block, and what environment variables set.

`deterministic` is for users, the other blocks are for tests: they switch off an analysis or an optimisation, so that its results can be
compared with those without it. They are context variables, so a mode holds in one context. GPUAD_DETERMINISTIC and GPUAD_CHECK are read at
each call; a block of `deterministic` has precedence over the first. Modes on which generated kernels depend are part of their keys
(`schedule.switches`)."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from contextvars import ContextVar

from ..context_variables import scoped
from ..public_calls import flag, public

DETERMINISTIC = "GPUAD_DETERMINISTIC"
_analysing: ContextVar[bool] = ContextVar("analysing", default=True)
_plain_allowed: ContextVar[bool] = ContextVar("plain_allowed", default=True)
_chaining: ContextVar[bool] = ContextVar("chaining", default=True)
_deterministic: ContextVar[bool | None] = ContextVar("deterministic", default=None)


@public
def deterministic(wanted: bool = True) -> AbstractContextManager[None]:
    """Within it a reverse pass gives the same bits in every run, on every number of threads. Where that is not possible, the launch is
    refused with UnsupportedError before anything is written. Shadows that threads add to together cost 32 bytes an element and a copy
    while the kernel runs, and the kernel runs twice; others cost nothing. GPUAD_DETERMINISTIC=1 in the environment wants it everywhere,
    `wanted=False` not within this block. LaunchError, with the shadows as they were, where a contribution is not finite."""
    return scoped(_deterministic, flag("wanted", wanted))


def asked_here() -> bool | None:
    """What a block of `deterministic` says, without a look at the environment; None outside of one."""
    return _deterministic.get()


def in_fixed_point() -> bool:
    """True if sums have to be made independent of the order of the threads."""
    wanted = _deterministic.get()
    return os.environ.get(DETERMINISTIC, "0") not in ("", "0") if wanted is None else wanted


def analysing() -> bool:
    """True if recording is analysed; tests switch it off."""
    return _analysing.get()


def plain_allowed() -> bool:
    """True if accumulations may be other than atomic; tests switch it off."""
    return _plain_allowed.get()


def chaining() -> bool:
    """True if launches that follow each other may become one; tests switch it off."""
    return _chaining.get()


def nothing_chained_for_tests() -> AbstractContextManager[None]:
    """Within it each launch of a program is one."""
    return scoped(_chaining, False)


def everything_recorded_for_tests() -> AbstractContextManager[None]:
    """Within it every value of overwritten memory is recorded, needed or not."""
    return scoped(_analysing, False)


def nothing_plain_for_tests() -> AbstractContextManager[None]:
    """Within it every accumulation is atomic."""
    return scoped(_plain_allowed, False)


def checks_proofs() -> bool:
    """True if proofs are checked at run time: GPUAD_CHECK=1 (`proof_checks`)."""
    return os.environ.get("GPUAD_CHECK") == "1"
