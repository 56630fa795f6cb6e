"""gpuad's answers to the evals of GradBench, a module each.

A module has `FUNCTIONS`: by the name of a function of the eval, what takes the input of an `evaluate` message, puts it on the device, and
returns what computes the output from it, again at each call: arrays, numbers, dictionaries of them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

NAMES = ("lse", "llsq", "ode", "det", "kmeans", "gmm", "ba", "lstm", "ht")
Functions: TypeAlias = "dict[str, Callable[[dict[str, Any]], Callable[[], Any]]]"


def functions_of(module: str) -> Functions:
    """The functions of an eval; ValueError if there is no answer to it."""
    if module not in NAMES:
        raise ValueError(f"gpuad has no answer to the eval {module!r}: it answers {', '.join(NAMES)}")
    found: Functions = import_module(f"{__name__}.{module}").FUNCTIONS
    return found
