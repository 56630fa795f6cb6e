"""The reference executor: interprets core IR with NumPy, needs no compiler, and finds data races and bad indices.

`frame` is the state of a running kernel, `expressions` and `statements` (with `accesses` for those that touch memory) turn IR into
closures over it, `semantics` and `functions` say what operators compute, `races` keeps reader and writer sets, `reference` makes a launch
of it all.
"""

from .errors import BarrierError, BoundsError, RaceError
from .reference import Reference

__all__ = ["BarrierError", "BoundsError", "RaceError", "Reference"]
