"""Amounts of memory as users write them."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..errors import TapeError
from ..public_calls import show

_UNITS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_DECIMAL = {"kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4}
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%|[kmgt]?i?b?)\s*", re.IGNORECASE)
_SAYS = (
    "a `budget` is a number of bytes (an int), a text such as '2 GiB', '500 MB' or '25%', or a fraction of what is free, above 0, at most 1"
)


def bytes_of(budget: object, free: Callable[[], int]) -> int:
    """The bytes that a budget means: of an int itself, of a text with a unit ('64 MiB', '2 GB', '10%'), or of a float the fraction of what
    `free` says is free. TapeError for anything else."""
    if isinstance(budget, bool) or not isinstance(budget, int | float | str):
        raise TapeError(f"{_SAYS}; not {show(budget)}")
    if isinstance(budget, str):
        return _of_text(budget, free)
    if isinstance(budget, int):
        if budget < 0:
            raise TapeError(f"{_SAYS}; not {show(budget)}")
        return budget
    if not 0 < budget <= 1:
        raise TapeError(f"{_SAYS}; not {show(budget)}")
    return int(budget * free())


def _of_text(text: str, free: Callable[[], int]) -> int:
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise TapeError(f"{_SAYS}; not {show(text)}")
    number, unit = float(found[1]), found[2].lower()
    if unit == "%":
        return bytes_of(number / 100, free)
    if unit in _DECIMAL:
        return int(number * _DECIMAL[unit])
    return int(number * _UNITS[unit.rstrip("b").rstrip("i")])


def shown(nbytes: int) -> str:
    """Bytes for people: exact below 10 KiB, else with three digits and the exact number."""
    if nbytes < 10 * 1024:
        return f"{nbytes} B"
    for unit, size in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit} ({nbytes} B)"
    raise AssertionError("covered by the first line")
