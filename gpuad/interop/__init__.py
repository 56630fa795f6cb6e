"""What the bridges to other frameworks share: a launch split into its forward and its reverse half, with all that lies between as arrays.

A framework keeps what lies between a forward and a backward pass itself, as tensors or residuals, and wants to know beforehand what that
is. `signature` reads which parameters a call passes, which it makes and what comes back; `split` has the two halves; `direct` makes them
as calls of compiled code. `sessions` has recorded programs: on a tape that is known when they come again, and without one.
"""

from .direct import Direct, direct, packer
from .sessions import Pushing, Running, Session, outputs_of
from .signature import Signature, read_signature
from .split import Layout, Split, flat, split_launch

__all__ = [
    "Direct", "Layout", "Pushing", "Running", "Session", "Signature", "Split", "direct", "flat", "outputs_of", "packer", "read_signature",
    "split_launch",
]  # fmt: skip
