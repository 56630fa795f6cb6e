"""`gpuad.torch.function`: a kernel as a function on tensors, in the form that returns and in the form in place.

PyTorch draws a line between the two: an operator with a registered gradient may not mutate, and `mark_dirty` is known to eager mode alone.
So the form that returns clones what the kernel overwrites, and is an operator of its own wherever a graph is captured (`operators`); the
form in place is an `autograd.Function` that marks what it has changed, and is refused elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature
from operator import attrgetter
from typing import Any

import torch
from torch.autograd import forward_ad

from .. import pipeline
from ..arguments.recorder import current as _recorder
from ..errors import GpuadError, LaunchError
from ..interop import Signature, read_signature
from . import written
from .arrays import is_lazy
from .launches import Bridge, Held
from .operators import Operator
from .quick import Quick
from .transforms import pulled, transformed

_MANY = 256  # launches that are remembered
_transformed = torch._C._functorch.peek_interpreter_stack  # None outside of torch.func's transforms and of vmap
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_said = attrgetter("requires_grad", "dtype", "shape", "device")
_REASON = {"reason": "a kernel in place is for eager mode alone: use overwrites='return' in a captured graph"}
_WHY = _REASON if "reason" in signature(torch.compiler.disable).parameters else {}  # which PyTorch 2.6 does not take
_LEAF = "a leaf Variable that requires grad is being used in an in-place operation."


def function(
    kernel: Any, *, grid: Any, block: Any, outputs: Sequence[str] | Mapping[str, Any] | None = None, overwrites: str = "return",
    shared_mem: Any = 0, twice: bool = False,
) -> Function:  # fmt: skip
    """A kernel as a function on tensors: it takes the kernel's arguments in order and returns its outputs, one tensor or a tuple.

        square = gpuad.torch.function(kernel, outputs=["x"], grid=lambda n: (n + 255) // 256, block=256)
        y = square(x, n)                      # x stays; y.backward(...) as ever

    `kernel`: what `gpuad.kernel` makes or takes, of one CUDA text. `grid`, `block`, `shared_mem`: numbers, or functions of the kernel's
    parameters by their names, which get the shape of a tensor and the value of a number. `outputs`: names of parameters that the kernel
    overwrites, each passed by the caller; or a mapping of names to None (passed), or to what is made for the call, of zeros: the name of
    a parameter that it is like, a shape, or a function. None: all that the kernel writes, passed. A float by value may be a tensor of
    shape () with a gradient.

    `overwrites`: "return", where what the kernel overwrites is cloned and returned; or "inplace", where the caller's tensors are changed as
    by `x.mul_()`, for eager mode. `twice`: the backward pass can be differentiated, under `torch.func` too; its inputs are kept for
    that. Raises LaunchError for what cannot be launched, and as `gpuad.autodiff` does; nothing has been written then.
    """
    signature = read_signature(kernel, grid, block, shared_mem, outputs, "gpuad.torch")
    if overwrites not in ("return", "inplace"):
        raise LaunchError(f"`{signature.name}`: overwrites is 'return' or 'inplace', not {overwrites!r}")
    if twice and overwrites == "inplace":
        raise LaunchError(
            f"`{signature.name}`: second derivatives depend on the state before the launch, which a change in place takes out of PyTorch's "
            "graph: twice=True goes with overwrites='return'"
        )
    return Function(signature, in_place=overwrites == "inplace", twice=twice)


class Function:
    """A kernel as a function on tensors; made by `gpuad.torch.function`. `operator`: the form for `torch.library`."""

    def __init__(self, signature: Signature, *, in_place: bool, twice: bool) -> None:
        self.signature, self.in_place, self.twice = signature, in_place, twice
        self.returned = tuple(sorted(signature.written)) if in_place else signature.outputs
        self.bridge = Bridge(signature, self.returned, in_place=in_place)
        self._picked = None if self.returned == signature.outputs else tuple(map(self.returned.index, signature.outputs))
        self._active = tuple(j for j, k in enumerate(signature.passed) if k in signature.floats)
        self._reals = tuple(j for j, k in enumerate(signature.passed) if k in signature.reals)
        self._changed = tuple(k for k in self.returned if k not in signature.fresh)
        self._by_value = (*signature.reals, *signature.words)
        self._mixed = len(signature.floats) < len(signature.pointers)
        self._short = not (twice or self._mixed)
        self._arity = len(signature.passed)
        self._tensors = tuple(j for j, k in enumerate(signature.passed) if k in signature.pointers)
        self._placed = tuple(j for j, k in enumerate(signature.passed) if in_place and k in self._changed)
        self._others = tuple(j for j, k in enumerate(signature.passed) if k not in signature.pointers)
        self._composed = bool(signature.given)
        self._known: dict[Any, Callable[..., Any]] = {}
        self._operator = (
            None if in_place else Operator(signature, self.bridge, twice=twice)
        )  # now: nothing can be registered while a graph is captured
        self.__name__ = signature.name

    def __deepcopy__(self, memo: Any) -> Function:
        """Itself, as of a function of Python: modules that have it as an attribute are copied so."""
        return self

    def __repr__(self) -> str:
        return f"<{self.signature.name} for PyTorch, {'in place' if self.in_place else 'returning'}>"

    @property
    def operator(self) -> Operator:
        """The operators of `torch.library`. LaunchError for the form in place."""
        if self._operator is None:
            raise LaunchError(
                f"`{self.signature.name}` in place is for eager mode alone: under torch.compile, torch.func or vmap marks of what was "
                "changed would be dropped. Use overwrites='return'."
            )
        return self._operator

    def __call__(self, *args: Any, **variables: Any) -> Any:
        if self.in_place and torch.compiler.is_compiling():
            return _beside_the_graph(self, args, variables)
        if self._composed or variables:
            args = tuple(self.signature.flattened(args, variables))
        if self.in_place and torch.autograd.graph._allow_mutation_on_saved_tensors_enabled:
            raise LaunchError(
                f"`{self.signature.name}` overwrites in place, which torch.autograd.graph.allow_mutation_on_saved_tensors does not see: "
                "use overwrites='return' there. Nothing was launched."
            )
        if torch.compiler.is_compiling():
            found = self.operator(args)
            return found[0] if len(found) == 1 else tuple(found)
        if _transformed() is not None:
            made = transformed(self.operator, args)
            return made[0] if len(made) == 1 else made
        if forward_ad._current_level >= 0 and (dots := _tangents(args)):
            found = self._dual(args, dots)
        elif not torch.is_grad_enabled():
            found = self._plain(args)
        else:
            key = self._words(args)
            node = None if key is None else self._known.get(key)
            found = node(*args) if node is not None and not _recorder.get() else self._by_graph(args, key)
        if self._picked is None:
            return found if type(found) is not tuple or len(found) > 1 else found[0]
        whole = found if type(found) is tuple else (found,)
        return whole[self._picked[0]] if len(self._picked) == 1 else tuple(whole[j] for j in self._picked)

    def _words(self, args: Sequence[Any]) -> Any:
        """What a call is known by that is made in as few steps as there are; None where it takes more."""
        if not self._short or len(args) != self._arity:
            return None
        found: list[Any] = [pipeline.asked_here()]
        for j in self._tensors:
            x = args[j]
            if type(x) not in _PLAIN or is_lazy(x):
                return None
            found += (_said(x), x.stride())
        for j in self._placed:
            x = args[j]
            if (x.requires_grad and x.grad_fn is None) or x._is_view():
                return None  # which is refused, the one of a leaf and often the one of a view
        if self._placed and any(args[j].is_inference() for j in self._tensors):
            return None  # the same
        if self._placed and len(self._tensors) > 1:
            self.bridge.check_disjoint(self.signature.whole(args))
        for j in self._others:
            x = args[j]
            found.append(float if type(x) is float and j in self._reals else (type(x), x))
        return tuple(found)

    def _by_graph(self, args: Sequence[Any], key: Any) -> Any:
        wanted = self._wanted(args)
        if wanted is None:
            return self._plain(args)
        if self.in_place and any(isinstance(x, torch.Tensor) and x.is_inference() for x in args):
            raise LaunchError(
                f"`{self.signature.name}`: a tensor that was made in torch.inference_mode cannot be kept for a backward pass: pass "
                "x.clone(). Nothing was launched."
            )
        found = _Node.apply(self, wanted, self._first_view(args), *args)
        if key is not None and all(type(args[j]) is float for j in self._reals):
            quick = self.bridge.made(self.numbers(args), wanted).quick
            if quick is not None and not quick.loose:
                if len(self._known) >= _MANY:
                    self._known.clear()
                node = written.node(quick, _transformed, pulled, _not_twice) or (None if self.in_place else partial(_Quick.apply, quick))
                if node is not None:
                    self._known[key] = node
        return found

    def _first_view(self, args: Sequence[Any]) -> Any:
        """The view that is overwritten in place, if one is: PyTorch takes the gradient of a node's first tensor for that of the view
        (CopySlices), so it is passed before all arguments."""
        return next((args[j] for j in self._placed if args[j] is not None and args[j]._is_view()), None)

    def _wanted(self, args: Sequence[Any]) -> tuple[bool, ...] | None:
        """Of which arguments, by the parameters' positions, a gradient will be asked; None: of none."""
        found = [False] * self.bridge.count
        some = False
        passed = self.signature.passed
        if len(args) != len(passed):
            self.signature.whole(args)
        for j in self._active:
            x = args[j]
            if x is not None and getattr(x, "requires_grad", False):
                found[passed[j]] = some = True
        for j in self._reals:
            if isinstance(args[j], torch.Tensor) and args[j].requires_grad:
                found[passed[j]] = some = True
        return tuple(found) if some else None

    def numbers(self, args: Sequence[Any]) -> list[Any]:
        """Arguments by position, with plain numbers where tensors of shape () are passed by value."""
        found = self.signature.whole(args)
        for k in self._by_value:
            if isinstance(found[k], torch.Tensor):
                found[k] = found[k].item()
        return found

    def _plain(self, args: Sequence[Any]) -> Any:
        if self.in_place:
            self._check_leaves(args)
        current, _ = self.bridge.launch(self.numbers(args), (False,) * self.bridge.count)
        if self.in_place:
            changed = [current[k] for k in self._changed if current[k] is not None and not current[k].is_inference()]
            torch.autograd.graph.increment_version(changed)
        return tuple(current[k] for k in self.returned)

    def _dual(self, args: Sequence[Any], dots: Mapping[int, Any]) -> Any:
        return _Dual.apply(self, tuple(dots), *args)

    def _check_leaves(self, args: Sequence[Any]) -> None:
        """What PyTorch refuses of operations in place it refuses before anything is written, not after."""
        if not torch.is_grad_enabled():
            return
        given = self.signature.whole(args)
        for k in self._changed:
            x = given[k]
            if x is None:
                continue
            if x.is_leaf and x.requires_grad:
                raise RuntimeError(_LEAF)
            if x._is_view() and x.requires_grad:
                self._check_view(k, x)
            if x._is_view() and len(self.returned) > 1:
                raise LaunchError(
                    f"`{self.signature.name}` overwrites `{self.signature.word(k)}`, a view, in place and has other outputs as well, which "
                    "PyTorch's autograd does not take: pass x.clone(), or use overwrites='return'. Nothing was launched."
                )

    def _check_view(self, k: int, x: Any) -> None:
        """Views that PyTorch forbids to change: of a leaf, one of several that an operation returned, one that was made without a graph."""
        if x._base.is_leaf and x._base.requires_grad:
            raise RuntimeError("a view of " + _LEAF)
        if torch._C._autograd._get_creation_meta(x) != torch._C._autograd.CreationMeta.DEFAULT:
            raise LaunchError(
                f"`{self.signature.name}` overwrites `{self.signature.word(k)}`, a view that PyTorch forbids to change in place (one of "
                "several that an operation returned, or made without a graph): pass x.clone(). Nothing was launched."
            )

    def gradients(self, wanted: Sequence[bool], types: Sequence[Any], found: Sequence[Any]) -> list[Any]:
        """Shadows, by position, as gradients of the arguments: in their types."""
        return [
            None if found[k] is None or not wanted[k] else found[k].to(x) for k, x in zip(self.signature.passed, types, strict=True)
        ]  # fmt: skip


@torch.compiler.disable(**_WHY)  # type: ignore[untyped-decorator]
def _beside_the_graph(own: Function, args: Sequence[Any], variables: Mapping[str, Any]) -> Any:
    """A call in place from compiled code, which ends one graph before it and begins another one after it: what a launch takes is not to be
    traced."""
    return own(*args, **variables)


def _tangents(args: Sequence[Any]) -> dict[int, Any]:
    """The tangents of dual tensors among the arguments."""
    found = {}
    for j, x in enumerate(args):
        if isinstance(x, torch.Tensor):
            tangent = forward_ad.unpack_dual(x).tangent
            if tangent is not None:
                found[j] = tangent
    return found


def _types(args: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(x.dtype if isinstance(x, torch.Tensor) else None for x in args)


class _Quick(torch.autograd.Function):  # type: ignore[misc]
    """A launch of the form that returns, of which all is known."""

    @staticmethod
    def forward(ctx: Any, quick: Quick, *args: Any) -> Any:
        current, kept, ctx.floats = quick.forward(quick.placed(args))
        ctx.quick = quick
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*kept)
        found = quick.returned
        return current[found[0]] if len(found) == 1 else tuple([current[k] for k in found])

    @staticmethod
    def backward(ctx: Any, *seeds: Any) -> Any:
        quick: Quick = ctx.quick
        if torch.is_grad_enabled():
            raise _not_twice(quick.split.kernel.name)
        if seeds[0] is None and all(s is None for s in seeds):
            return (None, *(None for _ in quick.wanted))
        if _transformed() is not None:
            kept, floats = ctx.saved_tensors, ctx.floats
            return (None, *pulled(lambda *own: quick.gradients(quick.reverse(kept, own, floats)), seeds))
        try:
            return (None, *quick.gradients(quick.reverse(ctx.saved_tensors, seeds, ctx.floats)))
        except RuntimeError as error:
            raise _hinted(error, quick.split.kernel.name, seeds) from None


class _Node(torch.autograd.Function):  # type: ignore[misc]
    """A launch in PyTorch's graph."""

    @staticmethod
    def forward(ctx: Any, own: Function, wanted: tuple[bool, ...], view: Any, *args: Any) -> Any:
        ctx.at = None if view is None else next(j for j in own._placed if args[j] is view)
        if own.in_place:
            with torch.enable_grad():
                own._check_leaves(args)
        current, held = own.bridge.launch(own.numbers(args), wanted)
        if own.in_place:
            ctx.mark_dirty(*(current[k] for k in own._changed if current[k] is not None))
        if own._mixed:
            ctx.mark_non_differentiable(*(current[k] for k in own.returned if k not in own.signature.floats))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*held.kept, *(_originals(own, args) if own.twice else ()))
        ctx.own, ctx.wanted, ctx.held = own, wanted, Held(held.made, (), held.numbers, held.packed)
        ctx.types = _types(args) if own._reals or not held.packed else None
        return current[own.returned[0]] if len(own.returned) == 1 else tuple(current[k] for k in own.returned)

    @staticmethod
    def backward(ctx: Any, *seeds: Any) -> Any:
        found = list(_Node.pulled(ctx, seeds))
        view = None
        if ctx.at is not None:
            view, found[ctx.at] = found[ctx.at], None
        return (None, None, view, *found)

    @staticmethod
    def pulled(ctx: Any, seeds: Any) -> Any:
        """The gradients of the arguments."""
        own: Function = ctx.own
        if torch.is_grad_enabled():
            return _twice(ctx, seeds)
        if seeds[0] is None and all(s is None for s in seeds):
            return [None for _ in own.signature.passed]
        made, _, numbers, packed = ctx.held
        kept = ctx.saved_tensors
        if _transformed() is not None:
            held = Held(made, kept[: len(kept) - own.bridge.count] if own.twice else kept, numbers, packed)
            wanted, types = ctx.wanted, ctx.types
            if types is None:
                return pulled(lambda *own: made.quick.gradients(made.quick.reverse(kept, own, numbers)), seeds)
            return pulled(lambda *each: own.gradients(wanted, types, own.bridge.reverse(held, each)), seeds)
        try:
            if ctx.types is None:
                return made.quick.gradients(made.quick.reverse(kept, seeds, numbers))
            found = own.bridge.reverse(Held(made, kept[: len(kept) - own.bridge.count] if own.twice else kept, numbers, packed), seeds)
        except RuntimeError as error:
            raise _hinted(error, own.signature.name, seeds) from None
        return own.gradients(ctx.wanted, ctx.types, found)


def _originals(own: Function, args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments of a launch by position, as tensors, of which a second derivative is taken."""
    whole = own.signature.whole(args)
    return tuple(x if x is None or isinstance(x, torch.Tensor) else torch.tensor(x, dtype=_exact(x)) for x in whole)


def _exact(x: Any) -> Any:
    return torch.float64 if isinstance(x, float) else torch.int64


def _hinted(error: RuntimeError, name: str, seeds: Sequence[Any]) -> Exception:
    """What went wrong in a backward pass, or what to do where its seeds are a batch of PyTorch's older vmap, which shows no memory."""
    if not any(s is not None and torch._C._functorch.is_legacy_batchedtensor(s) for s in seeds):
        return error
    return LaunchError(f"`{name}`: is_grads_batched is not taken; use torch.func.vmap(lambda seed: torch.autograd.grad(y, x, seed))(seeds)")


def _not_twice(name: str) -> GpuadError:
    return GpuadError(
        f"`{name}`: the backward pass is to be differentiated (create_graph=True), for which its inputs have to be kept: make the "
        "function with twice=True"
    )


def _twice(ctx: Any, seeds: Sequence[Any]) -> Any:
    own: Function = ctx.own
    if not own.twice:
        raise _not_twice(own.signature.name)
    if all(s is None for s in seeds):
        return [None for _ in own.signature.passed]
    count = len(ctx.saved_tensors) - own.bridge.count
    held, originals = ctx.held._replace(kept=ctx.saved_tensors[:count]), ctx.saved_tensors[count:]
    types = _types([originals[k] for k in own.signature.passed])
    return _Reverse.apply(own, ctx.wanted, types, held, len(seeds), *seeds, *originals)


class _Reverse(torch.autograd.Function):  # type: ignore[misc]
    """The backward pass of a launch as a function of the seeds and of the state before the launch."""

    @staticmethod
    def forward(ctx: Any, own: Function, wanted: Any, types: Any, held: Held, count: int, *tensors: Any) -> Any:
        seeds = tensors[:count]
        found = own.bridge.reverse(held, seeds)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.own, ctx.wanted, ctx.count = own, wanted, count
        return tuple(own.gradients(wanted, types, found))

    @staticmethod
    def backward(ctx: Any, *directions: Any) -> Any:
        own: Function = ctx.own
        if torch.is_grad_enabled():
            raise GpuadError(f"`{own.signature.name}`: third derivatives come in a later release")
        seeds, originals = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        nothing = (None,) * 5
        if all(w is None for w in directions):
            return (*nothing, *(None for _ in (*seeds, *originals)))
        given = [x if x is None or k in own.signature.pointers else x.item() for k, x in enumerate(originals)]
        states, pushed = own.bridge.second(
            given, ctx.wanted, dict(zip(own.returned, seeds, strict=True)), dict(zip(own.signature.passed, directions, strict=True))
        )
        of_seeds = [None if s is None or pushed[k] is None else pushed[k].to(s.dtype) for k, s in zip(own.returned, seeds, strict=True)]
        of_states = [None if g is None or x is None else g.to(x.dtype) for x, g in zip(originals, states, strict=True)]
        return (*nothing, *of_seeds, *of_states)


class _Dual(torch.autograd.Function):  # type: ignore[misc]
    """A launch on dual tensors: its tangents are pushed through gpuad's forward mode."""

    @staticmethod
    def forward(ctx: Any, own: Function, dotted: tuple[int, ...], *args: Any) -> Any:
        given = own.numbers(args)
        if own.in_place:
            with torch.enable_grad():
                own._check_leaves(args)
        ctx.own, ctx.dotted = own, dotted
        ctx.given = [copied_state(x) if own.in_place and k in own._changed else x for k, x in enumerate(given)]
        current, _ = own.bridge.launch(given, (False,) * own.bridge.count)
        if own.in_place:
            ctx.mark_dirty(*(current[k] for k in own._changed if current[k] is not None))
        ctx.set_materialize_grads(False)
        outputs = tuple(current[k] for k in own.returned)
        return outputs if len(outputs) > 1 else outputs[0]

    @staticmethod
    def jvp(ctx: Any, _own: Any, _dotted: Any, *dots: Any) -> Any:
        own: Function = ctx.own
        given = dict(zip(own.signature.passed, dots, strict=True))
        pushed = own.bridge.tangents(ctx.given, {k: d for k, d in given.items() if d is not None})
        found = tuple(_same(own, given.get(k), pushed[k]) for k in own.returned)
        return found if len(found) > 1 else found[0]

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise GpuadError(
            f"`{ctx.own.signature.name}`: reverse over forward mode is not taken; use hvp by twice=True, which is forward over reverse"
        )


def copied_state(x: Any) -> Any:
    """A copy of a tensor, or a number as it is."""
    return x.clone() if isinstance(x, torch.Tensor) else x


def _same(own: Function, given: Any, pushed: Any) -> Any:
    """A tangent of an output; of one in place PyTorch wants the tangent that it was given, changed."""
    if not own.in_place or given is None or pushed is None:
        return pushed
    return given.copy_(pushed)
