"""From a kernel to the launches of its derivative: the passes, what depends on a launch's numbers, and each generated kernel's arguments.

`passes` is the way of a kernel, from the surface tree to its primal, adjoint and tangent kernels; `schedule` the kernels of a reverse pass
for one launch's numbers; `calls` the bound call with its geometry and executor; `modes` what holds within a `with` block; `launch_checks`
what is refused before anything is written; `inspectors` runs what only a launch can tell; `certificates` proves that a schedule does what
the plain adjoint does; `adjoint_memory` the memory with which an adjoint runs; `deterministic` runs sums in fixed point; `proof_checks`
runs proofs against atomics; `forward_over_reverse` what second derivatives need besides.
"""

from .adjoint_memory import (
    State,
    active_positions,
    arguments,
    batch_states,
    before,
    copied,
    fingerprint,
    keep_live,
    live,
    log_sizes,
    new_logs,
    shadow_of,
    shadow_type,
)
from .calls import Call, _cuda, executor_for_tests, executor_of
from .forward_over_reverse import before_second, check_directions, paired, tangent_arguments
from .inspectors import Counted, is_injective
from .launch_checks import (
    absent,
    check_adjoint_bounds,
    check_bounds,
    check_device,
    check_races,
    check_reads,
    check_same,
    check_stopped,
    check_stores,
    dense_extent,
    loads,
    ordered_by_barriers,
    premises_hold,
    stays_inside,
    stores_in_doubt,
)
from .modes import (
    analysing,
    asked_here,
    chaining,
    deterministic,
    everything_recorded_for_tests,
    in_fixed_point,
    nothing_chained_for_tests,
    nothing_plain_for_tests,
    plain_allowed,
)
from .reproducible_sums import add_in_fixed_point, fixed_sizes
from .schedule import (
    alone,
    at_large,
    counting,
    gathering,
    own_arguments,
    plain_shadows,
    run_primal,
    run_stages,
    stack_bases,
    stage_arguments,
    stages,
    stages_on_zeros,
    switches,
    take_scratch,
    uncertified,
)
from .stage import Certificate, Stage

__all__ = [
    "Call", "Certificate", "Counted", "Stage", "State", "_cuda", "absent", "active_positions", "add_in_fixed_point", "alone",
    "analysing", "arguments", "asked_here", "at_large", "batch_states", "before", "before_second",
    "chaining", "check_adjoint_bounds", "check_bounds",
    "check_device", "check_directions", "check_races", "check_reads", "check_same", "check_stopped", "check_stores", "copied", "counting",
    "dense_extent", "deterministic", "everything_recorded_for_tests", "executor_for_tests", "executor_of", "fingerprint", "fixed_sizes",
    "gathering", "in_fixed_point", "is_injective", "keep_live", "live", "loads", "log_sizes", "new_logs", "nothing_chained_for_tests",
    "nothing_plain_for_tests", "ordered_by_barriers", "own_arguments", "paired", "plain_allowed", "plain_shadows", "premises_hold",
    "run_primal", "run_stages", "shadow_of", "shadow_type", "stack_bases", "stage_arguments", "stages", "stages_on_zeros",
    "stays_inside", "stores_in_doubt", "switches", "take_scratch", "tangent_arguments", "uncertified",
]  # fmt: skip
