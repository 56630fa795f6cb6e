"""The form that returns as operators of `torch.library`: whole in a captured graph, with gradients, fakes and vmap.

An operator knows nothing of gradients when it runs, so which of them are wanted is one of its arguments, and what its launch writes down
for the reverse are further outputs. The reverse gets what it needs and no other input: of those it is told how they lay. Shapes and whole
numbers decide about a launch, so a captured graph is specialised to them."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import LaunchError
from ..interop import Signature, Split, split_launch
from ..ir.types import Scalar
from .arrays import empty_array, type_of
from .batches import one_by_one
from .launches import Bridge, Held, Made

_number = itertools.count()


class Operator:
    """The two operators of a function. `forward`, `reverse`: as `torch.library.opcheck` takes them; `arguments` gives those of a call."""

    def __init__(self, signature: Signature, bridge: Bridge, *, twice: bool) -> None:
        self.signature, self.bridge, self.twice = signature, bridge, twice
        self._splits: dict[str, Split] = {}
        self._made: dict[tuple[str, str], Made] = {}
        name = f"gpuad::{re.sub(r'[^0-9A-Za-z_]', '_', signature.name)}_{next(_number)}"
        parameters = ", ".join(f"{self._kind(k)} p{k}" for k in signature.passed)
        made = torch.library.custom_op
        self.forward = made(
            name, lambda wanted, *args: self.run(wanted, args), mutates_args=(), schema=f"(str wanted, {parameters}) -> Tensor[]"
        )
        self.reverse = made(
            f"{name}_reverse", self.pull, mutates_args=(), schema="(str call, Tensor[] seeds, Tensor[] kept, Tensor[] reals) -> Tensor[]"
        )
        self.forward.register_fake(self._fake)
        self.reverse.register_fake(self._fake_gradients)
        self.forward.register_autograd(self._backward, setup_context=self._setup)
        for operator in (self.forward, self.reverse):
            operator.register_vmap(one_by_one(operator))

    def _kind(self, k: int) -> str:
        type_ = self.signature.parameters[k].type
        if k in self.signature.pointers:
            return "Tensor?"
        if k in self.signature.reals:
            return "Tensor"
        return "float" if isinstance(type_, Scalar) and type_.is_float else "SymInt"

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """The outputs of a call."""
        return list(self.forward(*self.arguments(args))[: len(self.signature.outputs)])

    def arguments(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """What the operator takes for a call: which gradients are wanted, floats by value as tensors of shape ()."""
        signature = self.signature
        given = signature.whole(args)
        for k in signature.reals:
            given[k] = _tensor(given[k])
        on = torch.is_grad_enabled()
        able = (*signature.floats, *signature.reals)
        wanted = "".join(
            "1" if on and k in able and given[k] is not None and given[k].requires_grad else "0" for k in range(self.bridge.count)
        )
        return (wanted, *(given[k] for k in signature.passed))

    # --- what a launch is, from how its arguments lie -----------------------------------------------------------------------------------

    def _call(self, wanted: str, args: Sequence[Any]) -> str:
        """A call without its memory and its floats, as a text: all that decides about it."""
        signature = self.signature
        given = signature.whole(args)
        layouts = {
            k: (str(x.dtype).removeprefix("torch."), tuple(map(int, x.shape)), _dense(x.shape))
            for k in signature.pointers
            if (x := given[k]) is not None
        }
        numbers = {k: _plain(given[k]) for k in signature.words}
        return repr((wanted, layouts, numbers))

    def split(self, call: str) -> Split:
        """Both halves of a launch, for what lies between them."""
        if call not in self._splits:
            wanted, given = self._read(call, empty_array)
            signature, rules = self.signature, (self.signature.grid, self.signature.block, self.signature.shared_mem)
            for k in signature.fresh:
                shape = signature.shape_of(k, given)
                given[k] = empty_array(shape, _dense(shape), signature.dtype_of(k))
            grid, block, memory = (rule.of(given) for rule in rules)
            self._splits[call] = split_launch(signature.kernel, signature.active(wanted), grid, block, given, int(memory), signature.fresh)
        return self._splits[call]

    def _read(self, call: str, make: Callable[..., Any]) -> tuple[list[bool], list[Any]]:
        wanted, layouts, numbers = ast.literal_eval(call)
        given: list[Any] = [None] * self.bridge.count
        for k, (dtype, shape, strides) in layouts.items():
            given[k] = make(shape, strides, getattr(torch, dtype))
        for k, x in numbers.items():
            given[k] = x
        for k in self.signature.reals:
            given[k] = 1.0
        return [c == "1" for c in wanted], given

    # --- the operators ------------------------------------------------------------------------------------------------------------------

    def numbers(self, args: Sequence[Any]) -> list[Any]:
        """Arguments by position, plain numbers where they are passed by value. LaunchError for a tensor whose order in memory is not that
        of its indices: a captured graph does not keep that."""
        given = self.signature.whole(args)
        for k, x in enumerate(given):
            if isinstance(x, torch.Tensor):
                if k not in self.signature.pointers:
                    given[k] = x.item()
                elif not x.is_contiguous():
                    name = self.signature.word(k)
                    raise LaunchError(
                        f"`{self.signature.name}`: `{name}` is not contiguous, and its order in memory is not kept under torch.compile and "
                        "torch.func: pass x.contiguous(). Nothing was launched."
                    )
        return given

    def run(self, wanted: str, args: Sequence[Any]) -> list[Any]:
        """The outputs of a launch, and what it writes down."""
        given = self.numbers(args)
        current, held = self.bridge.launch(given, [c == "1" for c in wanted])
        split = held.made.split
        return [
            *(current[k] for k in self.signature.outputs),
            *(held.kept[len(split.reads) + len(split.before) :] if split is not None else ()),
        ]

    def _fake(self, wanted: str, *args: Any) -> list[Any]:
        signature = self.signature
        given = signature.whole(args)
        near = next(given[k] for k in signature.pointers if given[k] is not None)
        found = []
        for k in signature.outputs:
            if k in signature.fresh:
                found.append(near.new_empty(signature.shape_of(k, given), dtype=type_of(signature.dtype_of(k))))
            else:
                found.append(torch.empty_strided(given[k].shape, given[k].stride(), dtype=given[k].dtype, device=given[k].device))
        logs = self.split(self._call(wanted, args)).logs if "1" in wanted else ()
        return [*found, *(near.new_empty((size,), dtype=type_of(dtype)) for size, dtype in logs)]

    def _setup(self, ctx: Any, inputs: Any, output: Any) -> None:
        wanted, *args = inputs
        ctx.call = None
        if "1" not in wanted:
            return
        ctx.call, kept, reals = self.between(wanted, args, output)
        ctx.save_for_backward(*kept, *reals)
        own = output[: len(self.signature.outputs)]
        ctx.count, ctx.blank = len(kept), [(x.shape, x.dtype, x.device) for x in own]

    def between(self, wanted: str, args: Sequence[Any], output: Sequence[Any]) -> tuple[str, list[Any], list[Any]]:
        """What lies between a launch and its reverse: the call, the tensors that are kept, the floats by value."""
        signature = self.signature
        call, given = self._call(wanted, args), signature.whole(args)
        if "1" not in wanted:
            return call, [], []
        split = self.split(call)
        after = {**{k: given[k] for k in signature.pointers}, **dict(zip(signature.outputs, output, strict=False))}
        lost = [k for k in split.reads if k in signature.written and k not in signature.outputs]
        if lost:
            name = signature.word(lost[0])
            raise LaunchError(f"`{signature.name}`: its reverse reads `{name}`, which is no output; name it among the outputs")
        kept = [*(after[k] for k in split.reads), *(given[k] for k in split.before if k not in signature.fresh)]
        return call, [*kept, *output[len(signature.outputs) :]], [_tensor(given[k]) for k in signature.reals]

    def _backward(self, ctx: Any, seeds: Any) -> Any:
        passed = self.signature.passed
        if ctx.call is None:
            return (None, *(None for _ in passed))
        own = seeds[: len(self.signature.outputs)]
        full = [
            torch.zeros(shape, dtype=dtype, device=device) if s is None else s
            for s, (shape, dtype, device) in zip(own, ctx.blank, strict=True)
        ]
        saved = ctx.saved_tensors
        found = iter(self.reverse(ctx.call, full, list(saved[: ctx.count]), list(saved[ctx.count :])))
        wanted = ast.literal_eval(ctx.call)[0]
        return (None, *(next(found) if wanted[k] == "1" else None for k in passed))

    def pull(self, call: str, seeds: Sequence[Any], kept: Sequence[Any], reals: Sequence[Any]) -> list[Any]:
        signature, device = self.signature, seeds[0].device
        key = call, str(device)
        if key not in self._made:
            wanted, given = self._read(call, lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=device))
            self._made[key] = self.bridge.made(given, wanted)
        made = self._made[key]
        wanted, numbers = self._read(call, lambda *_: None)
        for k, x in zip(signature.reals, reals, strict=True):
            numbers[k] = x.item()
        split = made.split
        assert split is not None
        rest = iter(kept)
        held = (*(next(rest) for _ in split.reads), *(None if k in signature.fresh else next(rest) for k in split.before), *rest)
        quick = made.quick
        floats = numbers if quick is None else [pack(numbers[k]) for k, pack in quick.packers]
        found = self.bridge.reverse(Held(made, held, floats, quick is not None), seeds)
        layouts = ast.literal_eval(call)[1]
        types = {
            k: getattr(torch, layouts[k][0]) if k in layouts else reals[signature.reals.index(k)].dtype
            for k in range(len(wanted))
            if wanted[k]
        }
        return [found[k].to(types[k]) for k in signature.passed if wanted[k]]

    def _fake_gradients(self, call: str, seeds: Sequence[Any], kept: Sequence[Any], reals: Sequence[Any]) -> list[Any]:
        wanted, layouts, _ = ast.literal_eval(call)
        made = []
        for k in self.signature.passed:
            if wanted[k] == "1" and k in layouts:
                dtype, shape, strides = layouts[k]
                made.append(torch.empty_strided(shape, strides, dtype=getattr(torch, dtype), device=seeds[0].device))
            elif wanted[k] == "1":
                made.append(seeds[0].new_empty((), dtype=reals[self.signature.reals.index(k)].dtype))
        return made


def _tensor(x: Any) -> Any:
    """A float by value as a tensor of shape ()."""
    return x if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=torch.float64)


def _plain(x: Any) -> Any:
    """A number as Python's; a symbol is what it stands for now, and the graph is specialised to it."""
    return float(x) if isinstance(x, float | torch.SymFloat) else int(x)


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(int(n), 1)
    return tuple(reversed(strides))
