"""Reversal: from seeds to a plan, all of it before the first action.

`seeds` says to which shadows seeds go (`in_place_seeds`: read where the caller has them), `reaching` whether anything that the program
began with reaches them. `reversing` keeps plans by their seeds; `reversal_plan` makes one. The state of every shadow's elements at the
operation that the plan has come back to is `shadow_state`: live, zero, shared with another shadow (`copy_on_write`) or owed to one that is
cleared later. `zero_regions` chooses an adjoint's kernels by it, with what they touch (`shadow_touches`) and the box of threads that has
nothing to do (`interior_box`). `shadows` is the table of which primal bytes have which shadow.
"""
