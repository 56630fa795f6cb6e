"""The form that returns under `torch.func`: grad, vjp, jvp, vmap and their compositions.

In: an operator and its arguments. Out: its outputs, with nodes of autograd.Function that have backward, jvp and vmap. Within a transform an
operation gets functorch's wrapper tensors, of which only shapes are known, so all that lies between a launch and its reverse goes through
PyTorch as tensors, and every number that may carry a gradient is assumed to carry one. vmap runs a launch once for each element of the
batch. Tensors are in the order of their indices: one that is not contiguous is refused, as its order in memory is not kept here. GpuadError
for third derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

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
        ctx.save_for_backward(*kept, *reals, *(tensors if operator.twice else ()))
        ctx.save_for_forward(*tensors)
        ctx.operator, ctx.wanted, ctx.call, ctx.count = operator, wanted, call, (len(kept), len(kept) + len(reals))
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
        shape = _Shape(
            ctx.operator, ctx.wanted, ctx.call, (len(own), *(len(own) + n for n in ctx.count)), tuple(ctx.args), tuple(ctx.tensors)
        )
        found = iter(_Reverse.apply(shape, *own, *ctx.saved_tensors))
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


class _Shape(NamedTuple):
    """A reverse without its tensors. `cuts`: of these the numbers of seeds, with what is kept, with the floats by value; what comes after
    are the arguments at `at`, beside `numbers`, where second derivatives may be asked for."""

    operator: Operator
    wanted: str
    call: str
    cuts: tuple[int, int, int]
    numbers: tuple[Any, ...]
    at: tuple[int, ...]

    def second(self, tensors: Sequence[Any], directions: Mapping[int, Any], turned: Mapping[int, Any]) -> tuple[list[Any], list[Any]]:
        """`Bridge.second` of it, for tangents by position."""
        args, signature = list(self.numbers), self.operator.signature
        for j, x in zip(self.at, tensors[self.cuts[2] :], strict=True):
            args[j] = x
        wanted = [c == "1" for c in self.wanted]
        seeds = dict(zip(signature.outputs, tensors, strict=False))
        return self.operator.bridge.second(self.operator.numbers(args), wanted, seeds, directions, turned)

    @property
    def positions(self) -> list[int]:
        """Of the arguments that are tensors."""
        return [self.operator.signature.passed[j] for j in self.at]

    @property
    def gradients(self) -> list[int]:
        """Of what a reverse gives."""
        return [k for k in self.operator.signature.passed if self.wanted[k] == "1"]


def _carrying(tensors: Mapping[int, Any], wanted: str) -> dict[int, Any]:
    return {k: x for k, x in tensors.items() if x is not None and wanted[k] == "1"}


class _Reverse(torch.autograd.Function):  # type: ignore[misc]
    """The reverse of a launch. What it has of the arguments decides about second derivatives: outputs, and what was written down, hang on
    these alone."""

    @staticmethod
    def forward(shape: _Shape, *tensors: Any) -> Any:
        first, second, third = shape.cuts
        return tuple(shape.operator.pull(shape.call, tensors[:first], tensors[first:second], tensors[second:third]))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.shape, *tensors = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *directions: Any) -> Any:
        shape: _Shape = ctx.shape
        _check_twice(shape.operator)
        if all(w is None for w in directions):
            return (None, *(None for _ in ctx.saved_tensors))
        found = iter(
            _Back.apply(shape, tuple(w is not None for w in directions), *(w for w in directions if w is not None), *ctx.saved_tensors)
        )
        of_seeds = [next(found) for _ in range(shape.cuts[0])]
        between = [None] * (shape.cuts[2] - shape.cuts[0])
        return (None, *of_seeds, *between, *(next(found) if shape.wanted[k] == "1" else None for k in shape.positions))

    @staticmethod
    def jvp(ctx: Any, _shape: Any, *dots: Any) -> Any:
        shape: _Shape = ctx.shape
        _check_twice(shape.operator)
        there = tuple(d is not None for d in dots)
        return _Turned.apply(shape, there, *(d for d in dots if d is not None), *ctx.saved_for_forward)

    vmap = staticmethod(lambda info, in_dims, *args: _each(_Reverse, info, in_dims, args))


def _check_twice(operator: Operator) -> None:
    if not operator.twice:
        raise GpuadError(
            f"`{operator.signature.name}`: a gradient is to be differentiated, for which the arguments have to be kept: make the function "
            "with twice=True"
        )


def _filled(there: Sequence[bool], tensors: Sequence[Any]) -> tuple[list[Any], Sequence[Any]]:
    """Tensors in their places, None elsewhere, and what comes after them."""
    rest = iter(tensors)
    return [next(rest) if on else None for on in there], list(rest)


class _Once(torch.autograd.Function):  # type: ignore[misc]
    """What is not differentiated again."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.name = inputs[0].operator.signature.name

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise GpuadError(f"`{ctx.name}`: third derivatives come in a later release")

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise GpuadError(f"`{ctx.name}`: third derivatives come in a later release")


class _Back(_Once):
    """For cotangents of what a reverse gives those of its seeds and of the arguments that are wanted."""

    @staticmethod
    def forward(shape: _Shape, there: Sequence[bool], *tensors: Any) -> Any:
        directions, own = _filled(there, tensors)
        states, pushed = shape.second(own, _carrying(dict(zip(shape.gradients, directions, strict=True)), shape.wanted), {})
        outputs = shape.operator.signature.outputs
        of_seeds = [torch.zeros_like(s) if pushed[k] is None else pushed[k].to(s.dtype) for k, s in zip(outputs, own, strict=False)]
        arguments = zip(shape.positions, own[shape.cuts[2] :], strict=True)
        return (*of_seeds, *(states[k].to(x.dtype) for k, x in arguments if shape.wanted[k] == "1"))

    vmap = staticmethod(lambda info, in_dims, *args: _each(_Back, info, in_dims, args))


class _Turned(_Once):
    """For tangents of seeds and arguments those of what a reverse gives."""

    @staticmethod
    def forward(shape: _Shape, there: Sequence[bool], *tensors: Any) -> Any:
        dots, own = _filled(there, tensors)
        directions = _carrying(dict(zip(shape.positions, dots[shape.cuts[2] :], strict=True)), shape.wanted)
        turned = {k: d for k, d in zip(shape.operator.signature.outputs, dots[: shape.cuts[0]], strict=True) if d is not None}
        found, _ = shape.second(own, directions, turned)
        types = dict(zip(shape.positions, (x.dtype for x in own[shape.cuts[2] :]), strict=True))
        return tuple(found[k].to(types[k]) for k in shape.gradients)

    vmap = staticmethod(lambda info, in_dims, *args: _each(_Turned, info, in_dims, args))


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
