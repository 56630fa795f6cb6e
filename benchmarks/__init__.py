"""How fast the derivatives are: `python -m benchmarks` on the CPU, `python -m benchmarks.gpu` on a GPU.

Every case of `kernels/` that has a [case.benchmark] table is measured, without being listed anywhere. Each command prints a table and
writes one JSON record into `benchmarks/results/`, which names what it was measured with and never where.
"""
