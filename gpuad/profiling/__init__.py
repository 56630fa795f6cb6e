"""Where a program's bytes go: a profile of its tapes, with the reason of each byte, beside what the device and the process say.

`recorder` listens to the tapes' log and makes a `Profile`; `device` and `sampler` look at the neighbourhood. `bands` sums what is held by
array and reason; `advice` says what would help. A profile goes out as a table (`table`), a page (`page`), a picture (`picture`), a trace
(`trace`) and a snapshot for PyTorch's viewer (`snapshot`); `report` has them all.
"""

from .recorder import profile
from .report import Profile

__all__ = ["Profile", "profile"]
