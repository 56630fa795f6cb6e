"""How fast the derivatives are: `python -m benchmarks` on the CPU, `python -m benchmarks.gpu` on a GPU.

`problems/` says what is computed, `runners/` who computes it; `table.py` lets them take turns, each in a process (`worker.py`, `crew.py`),
`figures.py` judges. Every case of `kernels/` that has a [case.benchmark] table is measured besides, without being listed anywhere. Each
command prints tables and writes one JSON record into `benchmarks/results/`, which names what it was measured with and never where.
"""
