"""vmap: an operation once for each element of a batch.

In: an operator of `torch.library` that returns a list of tensors. Out of `one_by_one`: the function that `register_vmap` takes, of info,
in_dims and the arguments; it selects each element's tensors as contiguous copies, calls the operator, and stacks the results along axis 0
(PyTorch documentation, `torch.library.register_vmap`). A loop: as many launches as the batch has elements, and the results are those of
separate calls. Assumes a batch of at least one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def chosen(x: Any, dim: Any, i: int) -> Any:
    """One element's own of an argument that may be batched, or be a list of such."""
    if isinstance(x, list):
        return [chosen(y, d, i) for y, d in zip(x, dim, strict=True)] if isinstance(dim, list | tuple) else x
    return x.select(dim, i).clone(memory_format=torch.contiguous_format) if isinstance(dim, int) and isinstance(x, torch.Tensor) else x


def one_by_one(operator: Any) -> Callable[..., Any]:
    """How vmap runs an operator of `torch.library`."""

    def batched(info: Any, in_dims: Any, *args: Any) -> Any:
        made = [operator(*(chosen(x, d, i) for x, d in zip(args, in_dims, strict=True))) for i in range(info.batch_size)]
        outputs = [torch.stack(each) for each in zip(*made, strict=True)]
        return outputs, [0] * len(outputs)

    return batched
