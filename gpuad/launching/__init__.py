"""Makes launches: finds the executor, judges what depends on a launch's numbers, and gives each generated kernel its arguments.

`calls` has the bound call with its geometry, `checks` and `stores` what is refused before anything is written, `states` the memory with
which an adjoint runs, `staging` the kernels of a reverse pass for one set of numbers, `second` what forward over reverse needs besides.
"""

from .asking import Counted, apart
from .calls import (
    Call,
    _cuda,
    analysing,
    chaining,
    everything_recorded_for_tests,
    executor_for_tests,
    executor_of,
    nothing_chained_for_tests,
    nothing_plain_for_tests,
    plain_allowed,
)
from .chain import one_after_the_other
from .checks import (
    absent,
    check_adjoint_bounds,
    check_bounds,
    check_device,
    check_same,
    check_stopped,
    dense_extent,
    loads,
    premises_hold,
    stays_inside,
)
from .joint import Fused, fusing, keeping
from .link import Link, link_of
from .ordered import add_in_fixed_point, deterministic, in_fixed_point
from .second import before_second, check_directions, paired, tangent_arguments
from .staging import (
    Stage,
    counting,
    gathering,
    own_arguments,
    plain_shadows,
    run_primal,
    run_reverse,
    run_stages,
    stage_arguments,
    stages,
    switches,
)
from .states import (
    State,
    active_positions,
    arguments,
    batch_states,
    before,
    copied,
    fingerprint,
    keep_live,
    live,
    new_logs,
    shadow_of,
    shadow_type,
)
from .stores import check_races, check_stores, in_turns, stores_in_doubt

__all__ = [
    "Call", "Counted", "Fused", "Link", "Stage", "State", "_cuda", "absent", "active_positions", "add_in_fixed_point", "analysing",
    "apart", "arguments", "batch_states", "before", "before_second", "chaining", "check_adjoint_bounds", "check_bounds",
    "check_device", "check_directions", "check_races", "check_same", "check_stopped", "check_stores", "copied", "counting",
    "dense_extent", "deterministic", "everything_recorded_for_tests", "executor_for_tests", "executor_of", "fingerprint", "fusing",
    "gathering", "in_fixed_point", "in_turns", "keep_live", "keeping", "link_of", "live", "loads", "new_logs",
    "nothing_chained_for_tests", "nothing_plain_for_tests", "one_after_the_other", "own_arguments", "paired", "plain_allowed",
    "plain_shadows", "premises_hold", "run_primal", "run_reverse", "run_stages", "shadow_of", "shadow_type", "stage_arguments",
    "stages", "stays_inside", "stores_in_doubt", "switches", "tangent_arguments",
]  # fmt: skip
