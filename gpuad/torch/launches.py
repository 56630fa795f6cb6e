"""One kernel on tensors: the launch, its reverse, its tangents and second derivatives, whatever asks for them.

`Bridge` knows the kernel's signature and what has been found out about launches that are alike. A launch gives `Held`: the tensors that its
reverse needs, and no others. What a kernel overwrites is a clone in the functional form, and the original is what its reverse sees as the
state before; in the form in place the state before is copied, where an adjoint needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from .. import pipeline
from ..api import hvp, outside_of_tapes, push_forward
from ..errors import LaunchError
from ..interop import Direct, Signature, Split, direct, flat, packer, split_launch
from ..ir.types import Scalar
from .arrays import (
    copied,
    is_lazy,
    is_whole,
    lies_as,
    like,
    on_stream_of,
    placed,
    refuse_own_meaning,
    relaid,
    shared,
    type_of,
)
from .quick import Quick

_MANY = 256  # launches that are remembered


@dataclass(frozen=True, eq=False)
class Made:
    """What was found out about a launch, for those that are alike: its halves, and how its tensors lie (`strides` in elements)."""

    split: Split | None  # None where nothing has a gradient
    quick: Quick | None
    layouts: tuple[tuple[Any, Any, Any] | None, ...]  # of each parameter: shape, strides, type
    grid: Any
    block: Any
    shared_mem: int
    loose: bool

    @property
    def saved_bytes(self) -> int:
        """Bytes that gpuad itself writes down for the reverse."""
        return 0 if self.split is None else self.split.saved_bytes


class Held(NamedTuple):
    """What lies between a launch and its reverse. `kept`: tensors, those of `split.reads`, those of `split.before` (None: zeros), the
    logs."""

    made: Made
    kept: Sequence[Any]
    numbers: Sequence[Any]  # by position, None for arrays; where `packed`, floats by value alone, as compiled code takes them
    packed: bool = False


class Bridge:
    """A kernel for PyTorch. `returned`: positions of what a call gives back, and has seeds; `in_place`: what it overwrites is the
    caller's."""

    def __init__(self, signature: Signature, returned: Sequence[int], *, in_place: bool) -> None:
        self.signature, self.in_place, self.returned = signature, in_place, tuple(returned)
        own = signature.parameters
        self.count = len(own)
        self._made: dict[Hashable, Made] = {}
        self._packers: list[tuple[int, Callable[[float], int]]] = [
            (k, packer(t)) for k in signature.reals if isinstance(t := own[k].type, Scalar)
        ]
        self._keyed = tuple(k for k in range(self.count) if k not in signature.pointers and k not in signature.reals) + tuple(
            {k for rule in (signature.grid, signature.block, signature.shared_mem) for k in rule.names or () if k in signature.reals}
        )
        self._overwritten = tuple(k for k in sorted(signature.written) if k not in signature.fresh)
        self._given = tuple(k for k in signature.pointers if k not in signature.fresh)

    def made(self, given: Sequence[Any], wanted: Sequence[bool]) -> Made:
        """What is known of a launch, found out if it is new."""
        key = self._key(given, tuple(wanted))
        return self._made.get(key) or self._find(key, given, wanted)

    # --- a launch -----------------------------------------------------------------------------------------------------------------------

    def launch(self, given: Sequence[Any], wanted: Sequence[bool]) -> tuple[list[Any], Held]:
        """Runs the kernel on tensors and numbers, by position. `wanted`: for which of them a gradient will be asked. Gives the tensors as
        the kernel had them, and what the reverse needs."""
        signature = self.signature
        outside_of_tapes(signature.name, "a function of PyTorch")
        made = self.made(given, wanted)
        if self.in_place and len(self._given) > 1:
            self.check_disjoint(given)
        if made.loose:
            self._check_whole(given)
        if made.quick is not None:
            try:
                current, kept, floats = made.quick.forward(given)
            except (OverflowError, TypeError):
                pass  # binding says what is wrong with a number
            else:
                return current, Held(made, kept, floats, True)
        split, current, before = made.split, list(given), {}
        wanted_before = () if split is None else tuple(k for k in split.before if k not in signature.fresh)
        if self.in_place:
            before = {k: copied(given[k]) for k in wanted_before}
        else:
            before = {k: given[k] for k in wanted_before}
            for k in self._overwritten:
                current[k] = None if given[k] is None else copied(given[k])
        for k in signature.fresh:
            shape, _, dtype = made.layouts[k]  # type: ignore[misc]
            current[k] = torch.zeros(shape, dtype=dtype, device=self._device(given))
        logs = () if split is None else tuple(self._log(size, dtype, given) for size, dtype in split.logs)
        self._run(made, current, logs)
        if split is None:
            return current, Held(made, (), ())
        between = (*(current[k] for k in split.reads), *(before.get(k) for k in split.before), *logs)
        return current, Held(made, between, tuple(None if k in signature.pointers else x for k, x in enumerate(current)))

    def _run(self, made: Made, current: Sequence[Any], logs: Sequence[Any]) -> None:
        tensors = [current[k] for k in self.signature.pointers]
        with on_stream_of(tensors):
            arrays = self._arrays(current)
            if made.split is None:
                self.signature.kernel(made.grid, made.block, flat(self.signature.kernel, arrays), shared_mem=made.shared_mem)
            else:
                with self.signature.kernel.room():
                    made.split.forward(arrays, [shared(log) for log in logs])

    def _arrays(self, current: Sequence[Any]) -> list[Any]:
        """Arrays on the tensors' memory, those that lie on others as copies (what is overwritten is a clone, or was checked)."""
        return self.signature.separated([shared(x) if isinstance(x, torch.Tensor) else x for x in current])

    def _key(self, given: Sequence[Any], wanted: Sequence[bool]) -> Hashable:
        found: list[Any] = [wanted, pipeline.asked_here()]
        try:
            for k in self._given:
                x = given[k]
                if x is not None:
                    if type(x) is not torch.Tensor:
                        refuse_own_meaning(x)
                    if x.layout is not torch.strided or is_lazy(x):
                        shared(x)  # which refuses it
                    found += (k, x.dtype, x.shape, x.stride(), x.device)
        except AttributeError:
            name = self.signature.word(k)
            raise LaunchError(f"`{self.signature.name}`: `{name}` takes a tensor, got {type(x).__name__}. Nothing was launched.") from None
        for k in self._keyed:
            found += (type(given[k]), given[k])
        return tuple(found)

    def _device(self, given: Sequence[Any]) -> Any:
        return next((given[k].device for k in self._given if given[k] is not None), torch.device("cpu"))

    def _log(self, size: int, dtype: np.dtype[Any], given: Sequence[Any]) -> Any:
        return torch.zeros(size, dtype=type_of(dtype), device=self._device(given))

    # --- launches that are new ----------------------------------------------------------------------------------------------------------

    def _find(self, key: Hashable, given: Sequence[Any], wanted: Sequence[bool]) -> Made:
        """Finds out all about a launch; nothing is launched."""
        signature = self.signature
        for k in self._given:
            steps = [] if given[k] is None else [s for s, n in zip(given[k].stride(), given[k].shape, strict=True) if n > 1]
            if steps and min(steps) != 1:
                what = "a broadcast tensor (a stride of 0)" if 0 in steps else f"a strided tensor (strides {tuple(given[k].stride())})"
                raise LaunchError(
                    f"`{signature.name}`: `{signature.word(k)}` is {what}; a kernel ignores strides: pass x.contiguous(). "
                    "Nothing was launched."
                )
        tensors = list(given)
        for k in self._overwritten:  # of the layout that the launch will have
            if tensors[k] is not None:
                tensors[k] = torch.empty_strided(tensors[k].shape, tensors[k].stride(), dtype=tensors[k].dtype, device=tensors[k].device)
        for k in signature.fresh:
            tensors[k] = torch.zeros(signature.shape_of(k, given), dtype=type_of(signature.dtype_of(k)), device=self._device(given))
        self._check_devices(tensors)
        grid, block, memory = signature.grid.of(given), signature.block.of(given), int(signature.shared_mem.of(given))
        split = packed = None
        loose = False
        with on_stream_of([tensors[k] for k in signature.pointers]):
            arrays = self._arrays(tensors)
            chosen = signature.kernel.suited(arrays, memory)
            loose = bool(chosen.bind(grid, block, flat(chosen, arrays), memory, None).loose)
            if any(wanted):
                split = split_launch(signature.kernel, signature.active(wanted), grid, block, arrays, memory, signature.fresh)
                packed = direct(split, arrays, signature.reals)
        layouts = tuple(None if not isinstance(x, torch.Tensor) else (tuple(x.shape), tuple(x.stride()), x.dtype) for x in tensors)
        quick = None if split is None or packed is None else self._quick(split, packed, layouts, wanted, loose)
        made = Made(split, quick, layouts, grid, block, memory, loose)
        if len(self._made) >= _MANY:
            self._made.clear()
        self._made[key] = made
        return made

    def _quick(self, split: Split, packed: Direct, layouts: Sequence[Any], wanted: Sequence[bool], loose: bool) -> Quick:
        signature = self.signature
        cloned = [k for k in self._overwritten if layouts[k] is not None]
        gradients: list[tuple[int | None, Any]] = []
        for k in signature.passed:
            shadow = split.shadows[k]
            own = layouts[k][2] if layouts[k] is not None else None
            gradients.append(
                (None, None) if shadow is None or not wanted[k] else (k, None if own is None or type_of(shadow) is own else own)
            )
        return Quick(
            split,
            packed,
            layouts,
            signature.pointers,
            self._packers,
            list(signature.fresh),
            cloned,
            self.returned,
            self.in_place,
            gradients,
            loose,
        )

    def _check_devices(self, tensors: Sequence[Any]) -> None:
        devices = {str(x.device) for x in tensors if isinstance(x, torch.Tensor)}
        if len(devices) > 1:
            raise LaunchError(f"`{self.signature.name}`: tensors on {' and '.join(sorted(devices))}; a launch has all on one device")

    def _check_whole(self, tensors: Sequence[Any]) -> None:
        """Refuses parts of larger tensors: a kernel may reach outside of them, and a gradient has no place there."""
        for k in self._given:
            if tensors[k] is not None and not is_whole(tensors[k]):
                name = self.signature.word(k)
                raise LaunchError(
                    f"`{self.signature.name}`: `{name}` is part of a larger tensor, and the kernel may reach outside of it, for all that "
                    "is known of its indices: pass x.clone() if it stays inside. Nothing was launched."
                )

    def check_disjoint(self, tensors: Sequence[Any]) -> None:
        """LaunchError for tensors that lie on what is overwritten in place: their gradients would have to lie on each other as well."""
        places = {k: placed(tensors[k]) for k in self._given if tensors[k] is not None}
        for k in self._overwritten:
            for other, (low, high) in places.items():
                if other != k and k in places and places[k][0] < high and low < places[k][1]:
                    a, b = (self.signature.word(i) for i in (k, other))
                    raise LaunchError(
                        f"`{self.signature.name}` overwrites `{a}` in place, and `{b}` lies on the same memory: pass {b}.clone(), or use "
                        "overwrites='return'. Nothing was launched."
                    )

    # --- its derivatives ----------------------------------------------------------------------------------------------------------------

    def reverse(self, held: Held, seeds: Sequence[Any]) -> list[Any]:
        """Gradients of the state before the launch, by position, in the shadows' types; None for what has none. `seeds`: those of
        `returned`; None: zeros."""
        made, split = held.made, held.made.split
        assert split is not None
        if made.quick is not None and held.packed:
            return made.quick.reverse(held.kept, seeds, held.numbers)
        kept = held.kept
        first = next(x for x in (*seeds, *kept) if x is not None)
        begun = dict(zip(self.returned, seeds, strict=True))
        shadows = [None if d is None else self._shadow(made, k, type_of(d), begun.get(k), first) for k, d in enumerate(split.shadows)]
        reads = dict(zip(split.reads, (_as_laid(x, made.layouts[k]) for k, x in zip(split.reads, kept, strict=False)), strict=True))
        before = self._before(made, split, kept[len(split.reads) :], first)
        logs = kept[len(split.reads) + len(split.before) :]
        with on_stream_of([first]), self.signature.kernel.room():
            args = [shared(reads[k]) if k in reads else x for k, x in enumerate(held.numbers)]
            split.reverse(
                args,
                [None if s is None else shared(s) for s in shadows],
                {k: shared(x) for k, x in before.items()},
                [shared(x) for x in logs],
            )
        return shadows

    def _before(self, made: Made, split: Split, kept: Sequence[Any], near: Any) -> dict[int, Any]:
        """The states from before the launch; what the reverse overwrites is a copy, since a graph may be walked again."""
        found = {}
        for k, x in zip(split.before, kept, strict=False):
            shape, strides, dtype = made.layouts[k]  # type: ignore[misc]
            laid = like(near, shape, strides, dtype) if x is None else _as_laid(x, made.layouts[k])
            found[k] = copied(laid) if x is not None and k in split.working else laid
        return found

    @staticmethod
    def _shadow(made: Made, k: int, dtype: Any, seed: Any, near: Any) -> Any:
        layout = made.layouts[k]
        shape, strides = ((), ()) if layout is None else layout[:2]
        if seed is None:
            return like(near, shape, strides, dtype)
        if seed.dtype is dtype and seed.stride() == strides and not is_lazy(seed):
            return seed.clone() if seed.is_contiguous() else copied(seed)
        return torch.empty_strided(shape, strides, dtype=dtype, device=seed.device).copy_(seed)

    def tangents(self, given: Sequence[Any], dots: Mapping[int, Any]) -> list[Any]:
        """Tangents of what the kernel leaves, by position, in its types. `given`: tensors of the state before the launch, which stay;
        `dots`: their tangents."""
        signature, wanted = self.signature, [k in dots for k in range(self.count)]
        active = signature.active(wanted)
        made = self.made(given, (False,) * self.count)
        state, near = self._state(made, given), next(iter(dots.values()))
        pushed = [None if not on else self._shadow(made, k, self._tangent_type(made, k), dots.get(k), near) for k, on in enumerate(active)]
        with on_stream_of([near]):
            push_forward(signature.kernel, made.grid, made.block, signature.pairs(self._arrays(state), _shared(pushed)), made.shared_mem)
        return [d if d is None or layout is None else d.to(layout[2]) for d, layout in zip(pushed, made.layouts, strict=True)]

    def second(
        self,
        given: Sequence[Any],
        wanted: Sequence[bool],
        seeds: Mapping[int, Any],
        directions: Mapping[int, Any],
        turned: Mapping[int, Any] | None = None,
    ) -> tuple[list[Any], list[Any]]:
        """The derivative of the pullback g = J(x)^T v, by one forward pass over the reverse, by position. For tangents `directions` of the
        state before the launch and `turned` of the seeds (None: zeros) the tangents of g, and J times `directions`; so for cotangents
        `directions` of g the gradients of the state, the Hessian of <v, F> times `directions`, and those of the seeds."""
        signature = self.signature
        active = signature.active(wanted)
        made = self.made(given, (False,) * self.count)
        state, near = self._state(made, given), next(x for x in (*directions.values(), *seeds.values()) if x is not None)
        types = [self._tangent_type(made, k) if on else None for k, on in enumerate(active)]
        duals = [None if t is None else self._shadow(made, k, t, seeds.get(k), near) for k, t in enumerate(types)]
        dots = [None if t is None else self._shadow(made, k, t, directions.get(k), near) for k, t in enumerate(types)]
        grown = [None if t is None else self._shadow(made, k, t, (turned or {}).get(k), near) for k, t in enumerate(types)]
        with on_stream_of([near]):
            pairs = signature.pairs(self._arrays(state), _shared(duals))
            hvp(
                signature.kernel, made.grid, made.block, pairs, signature.directions(_shared(dots), _shared(grown)),
                shared_mem=made.shared_mem,
            )  # fmt: skip
        return grown, dots

    def _tangent_type(self, made: Made, k: int) -> Any:
        layout = made.layouts[k]
        if layout is None:
            return torch.float64
        return torch.float32 if layout[2] in (torch.float16, torch.bfloat16) else layout[2]

    def _state(self, made: Made, given: Sequence[Any]) -> list[Any]:
        """The state before the launch, in tensors of its own where the kernel overwrites."""
        found = list(given)
        for k in self._overwritten:
            found[k] = None if given[k] is None else copied(given[k])
        for k in self.signature.fresh:
            shape, _, dtype = made.layouts[k]  # type: ignore[misc]
            found[k] = torch.zeros(shape, dtype=dtype, device=self._device(given))
        return found


def _shared(tensors: Sequence[Any]) -> list[Any]:
    return [None if x is None else shared(x) for x in tensors]


def _as_laid(x: Any, layout: Any) -> Any:
    return x if lies_as(x, layout) else relaid(x, layout)
