"""`gpuad.torch.program`: a recorded program of in-place launches as one node of PyTorch's graph.

Inside, kernels overwrite arrays as ever and a tape saves what an adjoint needs; PyTorch sees a function of tensors. The tape works on
arrays of its own, into which the tensors are copied at the border and from which the outputs are copied back: so the program comes again
with the same arrays, is known, and nothing that the caller does to a tensor between forward and backward can spoil it. A tape that waits
for its reverse is in use, and a further call gets another."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch.autograd import forward_ad

from ..arguments.annotations import Duplicated
from ..errors import GpuadError, LaunchError, TapeError
from ..interop import Session
from .arrays import on_stream_of, refuse_own_meaning, shared


def program(
    fn: Callable[..., Any], *, constant: Collection[str] = (), budget: int | float | str | None = None, again: bool = False
) -> Program:
    """A function of pairs as a function of tensors.

        @gpuad.torch.program
        def simulate(u, v, k):                    # pairs, as `gpuad.Duplicated`
            for _ in range(100):
                step[grid, block](v, u, k, n)
                u, v = v, u
            return u

    `fn` gets a `Duplicated` for each tensor of floats (its `.primal` is an array of the program's own), an array for any other tensor, and
    everything else as it is; it launches kernels and uses `gpuad.ops`, and returns a pair or a tuple of pairs. `constant`: names of
    parameters that carry no gradient and that the program does not overwrite; they are passed as arrays. `budget`: as of `gpuad.Tape`.
    `again`: a graph may be walked more than once (`retain_graph`): the inputs are kept, and the program runs anew for each further walk.
    Gradients are those of the tensors that ask for them. Raises as a tape does; second derivatives are refused."""
    return Program(fn, constant, budget, again)


class Program:
    """A recorded program; made by `gpuad.torch.program`."""

    def __init__(self, fn: Callable[..., Any], constant: Collection[str], budget: int | float | str | None, again: bool) -> None:
        self.fn, self.budget, self.again = fn, budget, again
        self.names = list(inspect.signature(fn).parameters)
        unknown = set(constant) - set(self.names)
        if unknown:
            raise LaunchError(f"`{fn.__name__}` has no parameter `{min(unknown)}`; it has {', '.join(self.names)}")
        self.constant = frozenset(constant)
        self._free: dict[Any, list[_Session]] = {}
        self.__name__ = fn.__name__

    def __deepcopy__(self, memo: Any) -> Program:
        """Itself, as of a function of Python."""
        return self

    def __repr__(self) -> str:
        return f"<program {self.__name__} for PyTorch>"

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, *args: Any) -> Any:
        self._check_transforms(args)
        if not torch.is_grad_enabled() or not any(isinstance(x, torch.Tensor) and x.requires_grad for x in args):
            session = self.session(args)
            with session:
                return _alone(session.run(self.fn, args))
        return _Node.apply(self, *args)

    def _check_transforms(self, args: Sequence[Any]) -> None:
        """LaunchError under `torch.func` and forward mode, and for tensors that are more than their numbers: a program copies these at its
        border, no tangents, batches or masks."""
        for x in args:
            if isinstance(x, torch.Tensor):
                refuse_own_meaning(x)
                if x.layout is not torch.strided:
                    raise LaunchError(f"`{self.__name__}`: a tensor of layout {x.layout}; pass a dense one. Nothing was launched.")
        if torch._C._functorch.peek_interpreter_stack() is not None:
            what = "a program does not go through torch.func (grad, vmap, jvp)"
        elif forward_ad._current_level >= 0 and any(
            isinstance(x, torch.Tensor) and forward_ad.unpack_dual(x).tangent is not None for x in args
        ):
            what = "a program has no forward mode"
        else:
            return
        raise LaunchError(
            f"`{self.__name__}`: {what}, only through `backward` and `torch.autograd.grad`; call its kernels by gpuad.torch.function. "
            "Nothing was launched."
        )

    def session(self, args: Sequence[Any]) -> _Session:
        """A tape with arrays for such arguments that is not in use."""
        key = tuple((x.dtype, tuple(x.shape), str(x.device)) if isinstance(x, torch.Tensor) else None for x in args)
        waiting = self._free.setdefault(key, [])
        with suppress(IndexError):  # none, or another thread had it
            return waiting.pop()
        return _Session(self, args, waiting)


class _Session:
    """A tape, and the tensors on whose memory it works. As a context: free for another call afterwards."""

    def __init__(self, owner: Program, args: Sequence[Any], waiting: list[_Session]) -> None:
        self.waiting = waiting
        self.homes = [torch.empty(x.shape, dtype=x.dtype, device=x.device) if isinstance(x, torch.Tensor) else None for x in args]
        given: list[Any] = [None] * len(args)
        with on_stream_of(_tensors(args)):
            for j, home in enumerate(self.homes):
                if home is not None:
                    free = home.is_floating_point() or home.is_complex()
                    pair = free and owner.names[min(j, len(owner.names) - 1)] not in owner.constant
                    given[j] = Duplicated(shared(home)) if pair else shared(home)
        self.own = Session(given, owner.budget)

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    def free(self) -> None:
        """Another call may use it."""
        self.waiting.append(self)

    def run(self, fn: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, ...]:
        """Records the program on the content of the tensors; its outputs as tensors."""
        tensors = _tensors(args)
        for home, x in zip(self.homes, args, strict=True):
            if home is not None:
                home.copy_(x)
        with on_stream_of(tensors):
            return tuple(_copy(pair.primal, tensors[0]) for pair in self.own.record(fn, args))

    def reverse(self, seeds: Sequence[Any], near: Any) -> list[Any]:
        """Gradients of what was passed, by position; None for what has none."""
        with on_stream_of([near]):
            self.own.reverse([None if s is None else shared(s.resolve_conj().resolve_neg().contiguous()) for s in seeds])
            return [_copy(pair.shadow, near) if isinstance(pair, Duplicated) else None for pair in self.own.given]


def _tensors(args: Sequence[Any]) -> list[Any]:
    found = [x for x in args if isinstance(x, torch.Tensor)]
    if not found:
        raise LaunchError("a program takes at least one tensor")
    return found


def _copy(array: Any, near: Any) -> Any:
    """A tensor of its own with the content of an array, beside another tensor."""
    return torch.from_dlpack(array.copy()) if not hasattr(array, "ctypes") or array.dtype.kind in "fciub" else _halves(array, near)


def _halves(array: Any, near: Any) -> Any:
    made = torch.empty(array.shape, dtype=torch.bfloat16, device=near.device)
    shared(made)[...] = array
    return made


def _alone(found: tuple[Any, ...]) -> Any:
    return found[0] if len(found) == 1 else found


class _Lease:
    """A session that waits for its reverse. It is free when the reverse has run, or when it cannot be asked for any more."""

    def __init__(self, session: _Session) -> None:
        self.session = session
        self._free = weakref.finalize(self, session.free)
        self._free.atexit = False

    def end(self) -> None:
        """Frees it."""
        self._free()

    @property
    def ended(self) -> bool:
        """Whether it is free."""
        return not self._free.alive


def _is_batch(seed: Any) -> bool:
    """True if a seed is a batch of PyTorch's vmap, of the new one or of the older one."""
    own = torch._C._functorch
    return seed is not None and bool(own.is_functorch_wrapped_tensor(seed) or own.is_legacy_batchedtensor(seed))


def _again(ctx: Any) -> _Lease:
    """The program recorded anew, for a further walk of its graph."""
    if not ctx.own.again:
        raise TapeError(f"`{ctx.name}`: its tape is reversed already; make the program with again=True, or call it again")
    args = [x if x is not None else other for x, other in zip(ctx.saved_tensors, ctx.rest, strict=True)]
    lease = _Lease(ctx.own.session(args))
    lease.session.run(ctx.own.fn, args)
    return lease


class _Node(torch.autograd.Function):  # type: ignore[misc]
    """A program in PyTorch's graph."""

    @staticmethod
    def forward(ctx: Any, own: Program, *args: Any) -> Any:
        ctx.lease = lease = _Lease(own.session(args))
        try:
            found = lease.session.run(own.fn, args)
        except BaseException:
            lease.end()
            raise
        ctx.set_materialize_grads(False)
        if own.again:
            ctx.save_for_backward(*(x if isinstance(x, torch.Tensor) else None for x in args))
        ctx.own, ctx.rest = own, [None if isinstance(x, torch.Tensor) else x for x in args]
        ctx.name, ctx.types = own.__name__, [x.dtype if isinstance(x, torch.Tensor) else None for x in args]
        return _alone(found)

    @staticmethod
    def backward(ctx: Any, *seeds: Any) -> Any:
        if torch.is_grad_enabled():
            raise GpuadError(f"`{ctx.name}`: a program is differentiated once; second derivatives come in a later release")
        near = next((s for s in seeds if s is not None), None)
        if near is None:
            return (None, *(None for _ in ctx.types))
        if any(map(_is_batch, seeds)):
            raise GpuadError(
                f"`{ctx.name}`: a program is reversed for one seed at a time, not for a batch of them (vmap, is_grads_batched): call "
                "torch.autograd.grad once for each"
            )
        if ctx.lease.ended:
            ctx.lease = _again(ctx)
        try:
            found = ctx.lease.session.reverse(seeds, near)
        finally:
            ctx.lease.end()
        wanted = ctx.needs_input_grad[1:]
        return (None, *(g.to(t) if on and g is not None else None for g, t, on in zip(found, ctx.types, wanted, strict=True)))
