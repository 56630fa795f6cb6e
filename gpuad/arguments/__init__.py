"""The arguments of a call, checked and bound to the parameters of its kernel before anything runs.

`conversions` looks at one argument, `aliasing` at how several lie in memory beside each other, `binding` makes a checked call of them.
"""

from .aliasing import Alias
from .binding import Bound, activities, bind, check_count, check_form, check_launch, geometry, split_options
from .conversions import BoundArgument
from .records import numbers_of

__all__ = [
    "Alias",
    "Bound",
    "BoundArgument",
    "activities",
    "bind",
    "check_count",
    "check_form",
    "check_launch",
    "geometry",
    "numbers_of",
    "split_options",
]
