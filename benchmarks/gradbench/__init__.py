"""gpuad as a tool of GradBench (github.com/gradbench/gradbench), and a command that runs its evals.

`tool.py` answers GradBench's messages, one line of JSON each; `evals/` has the answers, a file an eval; `exchange.py` passes an eval's
messages to gpuad and to other tools in turn; `published.py` reads the times that GradBench publishes. `python -m benchmarks.gradbench
--checkout FOLDER` runs the evals of a checkout, with their own validation, and writes a record. Nothing of GradBench is in this repository.
"""
