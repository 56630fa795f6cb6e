"""The programs of the paper on Enzyme and GPUs (Moses et al., SC '21), with kernels of our own: `python -m benchmarks.physics`.

`programs` says what is measured, `hydrodynamics` is the time loop after LULESH, `published` what others publish. What a gradient costs is
its time over the primal's, bytes that are kept for it, and atomic additions that it executes.
"""
