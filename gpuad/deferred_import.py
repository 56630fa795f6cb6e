"""Rooms that stand above those which need them at last: imported when they are, since they take half of the package's time to import.

`gpuad` registers them. They provide themselves when they are imported: pairs with operators (`operators.provide`), `gpuad.kernel` with
further kinds of kernels (`kernels.offer`).
"""

from __future__ import annotations

from importlib import import_module
from threading import RLock

_ONE_AT_A_TIME = RLock()
_waiting: list[str] = []


def register(*modules: str) -> None:
    """Modules to import before something is said not to be there."""
    _waiting.extend(modules)


def import_registered() -> None:
    """Imports them, once."""
    with _ONE_AT_A_TIME:
        while _waiting:
            import_module(_waiting[0])
            del _waiting[:1]
