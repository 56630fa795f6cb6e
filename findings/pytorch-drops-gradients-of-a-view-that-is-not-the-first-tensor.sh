#!/usr/bin/env bash
# PyTorch drops a gradient where a custom Function overwrites a view that is not its first tensor argument.
#
# PyTorch 2.13.0. A `torch.autograd.Function` writes 2 * x into `out[1]`, a view of a plain tensor, and calls `mark_dirty` for it. If the view
# is the first tensor that `apply` gets, x.grad is right. If x is the first, x.grad is None: no error, no warning. The order of arguments of
# an operation decides whether its gradient arrives.
#
# Prints what it sees and fails if that is no longer so. Needs Python 3.11 or later and a network; no GPU.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat >"$folder/seen.py" <<'PYTHON'
import torch


class Doubled(torch.autograd.Function):
    """out = 2 * x, in place."""

    @staticmethod
    def forward(ctx, *tensors):
        ctx.first = tensors[0].requires_grad  # whether x comes first
        x, out = tensors if ctx.first else tensors[::-1]
        out.copy_(2 * x)
        ctx.mark_dirty(out)
        return out

    @staticmethod
    def backward(ctx, seed):
        gradients = 2 * seed, torch.zeros_like(seed)
        return gradients if ctx.first else gradients[::-1]


for first in ("out", "x"):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    out = torch.zeros(2, 2)
    Doubled.apply(*((out[1], x) if first == "out" else (x, out[1])))
    (3 * out[1]).sum().backward() if out.requires_grad else None
    print(first, "first:", out.tolist(), "x.grad:", None if x.grad is None else x.grad.tolist())
PYTHON
cat >"$folder/expected" <<'SEEN'
out first: [[0.0, 0.0], [2.0, 4.0]] x.grad: [6.0, 6.0]
x first: [[0.0, 0.0], [2.0, 4.0]] x.grad: None
SEEN
cd "$folder"
venv/bin/python seen.py 2>warnings | tee seen || { cat warnings >&2; exit 1; }
diff expected seen
