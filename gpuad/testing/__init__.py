"""Checks a gradient against the primal launch itself, with nothing to trust but arithmetic.

A launch maps the state of all memory before it to the state after it, `F`. Five facts are checked, each from the outside:

* dot product: `<J v, w> = <v, J^T w>`, forward mode against reverse mode, for random `v` and `w` over all memory, inputs and outputs alike.
* Taylor: central differences of the primal along `v`, extrapolated, against `<J^T w, v>`. Forward and reverse share their table of
  derivatives, so a wrong entry passes the dot product and fails here. Where differences at h and h/2 disagree the primal has a kink between
  (a knife edge): such elements get weight 0, and the report says how many they were.
* twice: a second reverse without clearing starts from the shadows that the first one left, and adds to them.
* primal: after a reverse pass the arrays hold what the launch alone leaves in them.
* second derivatives: what `gpuad.hvp` gives along `v`, against central differences of the gradient, once that has passed; and the tangent
  and the gradient that it gives beside them. Elements at a kink of the gradient get weight 0. Where hvp refuses a launch, a note says so.

Products are formed over allocations, each counted once, so overlapping arguments and views are checked like any other.
"""

from __future__ import annotations

from typing import Any

from .. import api
from .allocations import failing_allocations as failing_allocations
from .budgets import assert_memory as assert_memory
from .gradient_check import check_gradient as check_gradient
from .launch_memory import PlannedCall as PlannedCall
from .launch_memory import planned as planned
from .reports import Check as Check
from .reports import Report as Report
from .rule_check import check_rule as check_rule


def array_module() -> Any:
    """The array library for this machine: `cupy` if it is installed and finds a device, else `numpy`."""
    return api.array_module()
