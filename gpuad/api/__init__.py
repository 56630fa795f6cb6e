"""What users call: kernels, their derivatives, and the texts of both."""

from ..runtime.base import Memory
from .adjoint_text import AdjointText
from .argument_flattening import FlatArguments, on_stream
from .call_replay import CallKey, Past, call_key, plain, replay_call
from .derivatives import Forward, Mode, Reverse, array_module, autodiff, check_races, hvp, push_forward
from .dropped_gradients import check_flow, outside_of_tapes
from .expanded_kernels import ExpandedKernel
from .grid_kernels import GridKernel
from .kernels import BoundLaunch, Family, Kernel, Planned, TextKernel, pattern_of
from .launch_plan import once
from .making import from_file, kernel, offer
from .pairs import Saved, autodiff_thunk, check_flow_bare

__all__ = [
    "AdjointText", "BoundLaunch", "CallKey", "ExpandedKernel", "Family", "FlatArguments", "Forward", "GridKernel", "Kernel", "Memory",
    "Mode", "Past", "Planned", "Reverse", "Saved", "TextKernel", "array_module", "autodiff", "autodiff_thunk", "call_key", "check_flow",
    "check_flow_bare", "check_races", "from_file", "hvp", "kernel", "offer", "on_stream", "once", "outside_of_tapes", "pattern_of", "plain",
    "push_forward", "replay_call",
]  # fmt: skip
