"""Inspectors: kernels that find out by doing it what no proof tells about a launch, before anything is written.

`store_conflicts`: whether two threads store different values to one element; `barrier_order`: whether those that come to one element take
turns between barriers; `injectivity`: which threads touch which elements of a shadow; `barrier_phase`: the same of shared memory, between
one barrier and the next. `pipeline.inspectors` runs them.
"""
