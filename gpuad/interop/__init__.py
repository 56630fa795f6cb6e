"""What the bridges to other frameworks share: a launch split into its forward and its reverse half, with all that lies between as arrays.

A framework keeps what lies between a forward and a backward pass itself, as tensors or residuals, and wants to know beforehand what that
is. `signature` reads which parameters a call passes, which it makes and what comes back; `split` has the two halves; `direct` makes them
as calls of compiled code.
"""

from .direct import Direct, direct, packer
from .signature import Signature, read_signature
from .split import Layout, Split, separated, split_launch

__all__ = ["Direct", "Layout", "Signature", "Split", "direct", "packer", "read_signature", "separated", "split_launch"]
