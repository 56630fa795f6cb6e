"""The form that returns under `torch.func`: grad, vjp, jvp, vmap and what is made of them.

Such a transform shows an operation tensors that stand for others, of which only their shapes are known, so all that lies between a launch
and its reverse goes through PyTorch as tensors, and every number that may carry a gradient is taken to carry one. vmap runs a launch once
for each element of the batch. Tensors are in the order of their indices: one that is not contiguous is refused, as its order in memory is
not kept here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import GpuadError
from .batches import chosen
from .operators import Operator


def transformed(operator: Operator, args: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of a call under a transform."""
    signature = operator.signature
    able = (*signature.floats, *signature.reals)
    given = signature.whole(args)
    wanted = "".join("1" if k in able and isinstance(given[k], torch.Tensor) else "0" for k in range(operator.bridge.count))
    return tuple(_Launch.apply(operator, wanted, *args)[: len(signature.outputs)])


class _Launch(torch.autograd.Function):  # type: ignore[misc]
    """A launch: its outputs, and what it writes down."""

    @staticmethod
    def forward(operator: Operator, wanted: str, *args: Any) -> Any:
        return tuple(operator.run(wanted, args))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        operator, wanted, *args = inputs
        signature = operator.signature
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        call, kept, reals = operator.between(wanted, args, output)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(
            *(x for k, x in zip(signature.outputs, output, strict=False) if k not in signature.floats), *output[len(signature.outputs) :]
        )
        ctx.save_for_backward(*kept, *reals)
        ctx.save_for_forward(*tensors)
        ctx.operator, ctx.wanted, ctx.call, ctx.count = operator, wanted, call, len(kept)
        ctx.args = [None if isinstance(x, torch.Tensor) else x for x in args]
        ctx.tensors = [j for j, x in enumerate(args) if isinstance(x, torch.Tensor)]
        ctx.blank = [(x.shape, x.dtype, x.device) for x in output[: len(signature.outputs)]]

    @staticmethod
    def backward(ctx: Any, *seeds: Any) -> Any:
        passed = ctx.operator.signature.passed
        own = [
            torch.zeros(shape, dtype=dtype, device=device) if s is None else s
            for s, (shape, dtype, device) in zip(seeds, ctx.blank, strict=False)
        ]
        found = iter(_Reverse.apply(ctx.operator, ctx.call, len(own), ctx.count, *own, *ctx.saved_tensors))
        return (None, None, *(next(found) if ctx.wanted[k] == "1" else None for k in passed))

    @staticmethod
    def jvp(ctx: Any, _operator: Any, _wanted: Any, *dots: Any) -> Any:
        passed = ctx.operator.signature.passed
        own = [(k, d) for k, d in zip(passed, dots, strict=True) if d is not None]
        numbers = tuple(ctx.args)
        pushed = _Tangent.apply(
            ctx.operator, numbers, tuple(ctx.tensors), tuple(k for k, _ in own), *ctx.saved_for_forward, *(d for _, d in own)
        )
        return (*pushed, *(None for _ in range(_logs(ctx))))

    vmap = staticmethod(lambda info, in_dims, *args: _each(_Launch, info, in_dims, args))


def _logs(ctx: Any) -> int:
    return len(ctx.operator.split(ctx.call).logs) if "1" in ctx.wanted else 0


class _Reverse(torch.autograd.Function):  # type: ignore[misc]
    """The reverse of a launch."""

    @staticmethod
    def forward(operator: Operator, call: str, seeds: int, kept: int, *tensors: Any) -> Any:
        return tuple(operator.pull(call, tensors[:seeds], tensors[seeds : seeds + kept], tensors[seeds + kept :]))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.operator = inputs[0]

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise GpuadError(
            f"`{ctx.operator.signature.name}`: second derivatives under torch.func come in a later release; use twice=True outside of it"
        )

    vmap = staticmethod(lambda info, in_dims, *args: _each(_Reverse, info, in_dims, args))


class _Tangent(torch.autograd.Function):  # type: ignore[misc]
    """Tangents of the outputs."""

    @staticmethod
    def forward(operator: Operator, numbers: Any, at: Any, dotted: Any, *tensors: Any) -> Any:
        args = list(numbers)
        for j, x in zip(at, tensors, strict=False):
            args[j] = x
        pushed = operator.bridge.tangents(operator.numbers(args), dict(zip(dotted, tensors[len(at) :], strict=True)))
        return tuple(pushed[k] for k in operator.signature.outputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.operator = inputs[0]

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise GpuadError(f"`{ctx.operator.signature.name}`: reverse over forward mode is not taken under torch.func")

    vmap = staticmethod(lambda info, in_dims, *args: _each(_Tangent, info, in_dims, args))


def pulled(reverse: Callable[..., Sequence[Any]], seeds: Sequence[Any]) -> Sequence[Any]:
    """A backward pass under vmap, as for a batch of seeds (`is_grads_batched`): once for each seed. `reverse`: of one."""
    return tuple(_Pulled.apply(reverse, *seeds))


class _Pulled(torch.autograd.Function):  # type: ignore[misc]
    """A backward pass as a function of its seeds."""

    @staticmethod
    def forward(reverse: Callable[..., Sequence[Any]], *seeds: Any) -> Any:
        return tuple(reverse(*seeds))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise GpuadError("second derivatives under torch.func come in a later release")

    vmap = staticmethod(lambda info, in_dims, *args: _each(_Pulled, info, in_dims, args))


def _each(function: Any, info: Any, in_dims: Any, args: Any) -> Any:
    """A function once for each element of a batch."""
    made = [function.apply(*(chosen(x, d, i) for x, d in zip(args, in_dims, strict=True))) for i in range(info.batch_size)]
    found = tuple(None if each[0] is None else torch.stack(each) for each in zip(*made, strict=True))
    return found, tuple(None if x is None else 0 for x in found)
