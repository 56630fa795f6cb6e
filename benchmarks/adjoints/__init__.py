"""Adjoints as people write them by hand, beside those that gpuad makes of the forward kernel: `python -m benchmarks.adjoints`.

Each `.cu` file here is the hand-written adjoint of the kernels in the file of that name in `kernels/`: one or more CUDA kernels, described
as those are, whose `title` names the kernel that they reverse. An argument that is called as one of the primal's is that array; `dx` is the
shadow of its `x`; all others are theirs alone. They add to the gradients, as gpuad's do. Both are compiled by gpuad's CPU back end.
"""
