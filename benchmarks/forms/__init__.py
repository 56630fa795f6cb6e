"""The same operations in several wordings, what the gradient of each costs, and an adjoint by hand: `python -m benchmarks.forms`.

Each `.cu` file here is one operation: `by_hand` (and `by_hand_2`, where an adjoint takes two launches) adds to `dx` what an adjoint adds,
and sets the seeds of what was overwritten to 0, as gpuad's does; all other kernels are wordings of the primal. The line before each says
how it is launched. All are compiled by gpuad's CPU back end and run on the same arrays.
"""
