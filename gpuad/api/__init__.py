"""What users call: kernels, their derivatives, and the texts of both."""

from ..runtime.base import Memory
from .argument_flattening import Whole
from .call_replay import Past, Words, made_again, plain, words
from .derivatives import Forward, Mode, Reverse, array_module, autodiff, check_races, hvp
from .dropped_gradients import check_flow
from .explain import AdjointText
from .kernels import BoundLaunch, Family, Kernel, Planned, kernel, offer, pattern_of
from .pairs import Saved, autodiff_thunk
from .streams import on_stream

__all__ = [
    "AdjointText", "BoundLaunch", "Family", "Forward", "Kernel", "Memory", "Mode", "Past", "Planned", "Reverse", "Saved", "Whole",
    "Words", "array_module", "autodiff", "autodiff_thunk", "check_flow", "check_races", "hvp", "kernel", "made_again", "offer",
    "on_stream", "pattern_of", "plain", "words",
]  # fmt: skip
