"""Checkpointing under a byte budget: schedules that say what is stored and what is computed again, and where their memory lies.

`amounts` reads what a user writes for a budget. `binomial` has Griewank and Walther's closed forms. `schedule` makes the moves of a
reversal for a chain of units, of which some are kept and the others computed again from checkpoints; `weighted`
has the optimum where units cost differently. `online` thins checkpoints while
it is not known how long the chain gets. `layout` gives buffers with known
lifetimes their places in one allocation. Nothing here knows what a unit is: `tape.script` says what the moves mean for a recording.
"""

from .amounts import bytes_of, shown
from .binomial import extra_steps
from .layout import Buffer, Layout, rounded
from .online import expendable, stride
from .schedule import Chain, Drop, Keep, Load, Move, Reverse, Run, Save, moves_from, moves_of, moves_on_two_levels, reruns
from .weighted import Weighted

__all__ = [
    "Buffer", "Chain", "Drop", "Keep", "Layout", "Load", "Move", "Reverse", "Run", "Save", "Weighted", "bytes_of", "expendable",
    "extra_steps", "moves_from", "moves_of", "moves_on_two_levels", "reruns", "rounded", "shown", "stride",
]  # fmt: skip
