"""`ElementwiseKernel`, with CuPy's constructor and call.

In: parameter lists and texts of CUDA, as for `cupy.ElementwiseKernel` (CuPy User Guide, User-Defined Kernels); of a call, arrays and
numbers, annotated or not. Out: the outputs, as pairs if an input carries a gradient inside of a tape, and the launch of a generated kernel.
Shapes are broadcast, types decided and axes merged as CuPy does. A kernel is generated for each combination of dtypes, axes and patterns of
strides; lengths, offsets and strides are its arguments.

Raises LaunchError where an output that is indexed by element shares memory with another such array without being the same elements. Raises
CompileError and UnsupportedError at a place in the user's texts, TypeError and ValueError as CuPy does."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from ..api import CallKey, Family, Kernel, Past, Planned, on_stream
from ..errors import ArgumentTypeError, ArgumentValueError, CompileError, UnsupportedError
from ..frontend.elementwise import ElementwiseSpec, Texts, elementwise_source, fence, parse_parameters
from ..frontend.elementwise.text import Argument
from ..memo import Memo, specialized
from ..ops.elementwise import geometry
from ..ops.layout import axes
from ..ops.trace_cache import Complete
from ..public_calls import optional, taking, text, texts, whole
from ..source import SourceFile, Span
from .concrete import Arranged, Concrete
from .operands import Given, check_complete, decide, directions, dtype_for, given, outputs, own_arguments, returned
from .shapes import (
    axis_values,
    check_disjoint,
    check_output,
    common_shape,
    coordinates,
    counter,
    grouped,
    index_type,
    operand,
    raw_of,
    raw_values,
)


class ElementwiseKernel(Family):
    """An operation on each element, in CUDA, that can be differentiated. The arguments are those of `cupy.ElementwiseKernel`.

    `in_params`, `out_params`: lists of types and names; a single letter as type stands for the dtype of what is passed, `raw` passes an
    array whole. `operation`: the body. In it `i` is the index of the element, `n` and `_ind.size()` their number, `_ind.get()` the
    coordinates; a raw `x` has `x[...]`, `x.size()`, `x.shape()`, `x.strides()`, `x.ndim`.
    `preamble`: text before the kernel; `loop_prep`, `after_loop`: statements before and after each thread's loop; `options` of the
    compilation (-D, -I, -std); `no_return`: nothing is given back; `return_tuple`: a tuple of one, too; `name`: of the kernel, in errors;
    `reduce_dims`: axes that lie one after the other may be taken as one, which `_ind` shows.
    Raises CompileError and UnsupportedError at a place in these texts, the operation's own when it is first called.
    """

    @taking(in_params=text, out_params=text, operation=text, name=text, preamble=text, loop_prep=text, after_loop=text, options=texts)
    def __init__(
        self,
        in_params: str,
        out_params: str,
        operation: str,
        name: str = "kernel",
        reduce_dims: bool = True,
        preamble: str = "",
        no_return: bool = False,
        return_tuple: bool = False,
        *,
        loop_prep: str = "",
        after_loop: str = "",
        options: Sequence[str] = (),
    ) -> None:
        if not name.isidentifier():
            raise ArgumentValueError(f"{name!r} is no name for a kernel")
        self.name, self.options = name, tuple(options)
        self.texts = Texts.of(name, in_params=in_params, out_params=out_params, operation=operation, preamble=preamble, loop_prep=loop_prep)
        if after_loop.strip():
            raise UnsupportedError(fence.AFTER, Span(SourceFile(f"<after_loop of {name}>", after_loop), 1, 1))
        self.in_params = parse_parameters(self.texts["in_params"], output=False)
        self.out_params = parse_parameters(self.texts["out_params"], output=True)
        self.params = (*self.in_params, *self.out_params)
        self.reduce_dims, self.no_return, self.return_tuple = reduce_dims, no_return, return_tuple
        self._names = self.texts.names("operation", "loop_prep")
        self.specializations: dict[Hashable, Any] = {}
        self._facts = Memo()
        self._again: Past = {}

    def __repr__(self) -> str:
        return f"<gpuad elementwise kernel {self.name}>"

    @taking(size=optional(whole))
    def __call__(self, *args: Any, size: int | None = None, stream: Any = None, block_size: int = 128) -> Any:
        """Runs the operation on arrays (annotated or not) and numbers, broadcast as CuPy does it; inside of a tape it is recorded.

        Outputs that are not passed are made and given back, as pairs where an input carries a gradient. `size`: how many elements, where
        all arrays are raw. `stream`: of CuPy. `block_size` is CuPy's and of no effect. Raises TypeError and ValueError as CuPy does.
        """
        call = self._complete(args, size, stream)
        if call is not None and call.again():
            return returned(args[len(self.in_params) :], self.no_return, self.return_tuple)
        with on_stream(stream, args):
            results, plan = self._prepared(args, size, stream)
        if plan is not None and call is not None:
            call.launch(plan)
        elif plan is not None:
            plan.kernel.launch(plan)
        return results

    def words(self, what: str, *args: Any, size: int | None = None, stream: Any = None, block_size: int = 128) -> CallKey | None:
        """A call by its arguments and size."""
        call = self._complete(args, size, stream)
        return call.words(what) if call is not None else None

    def _complete(self, args: Sequence[Any], size: Any, stream: Any) -> Complete | None:
        whole = len(args) == len(self.params) and (size is None or type(size) is int) and stream is None
        return Complete(self, self._again, size, args) if whole else None

    def planned(self, *args: Any, size: int | None = None, stream: Any = None, block_size: int = 128) -> Planned | None:
        """The kernel and the launch that a call means; all outputs are given."""
        check_complete(self.name, self.params, len(args))
        with on_stream(stream, args):
            return self._prepared(args, size, stream)[1]

    def directions(self, given: Sequence[Any], chosen: Kernel) -> list[Any]:
        """Tangents of a call's arguments as those of the launch that it means."""
        return directions(given)

    def _prepared(self, args: Sequence[Any], size: int | None, stream: Any) -> tuple[Any, Planned | None]:
        if len(args) not in (len(self.in_params), len(self.params)):
            counts = f"{len(self.in_params)} or, with outputs, {len(self.params)}"
            raise ArgumentTypeError(f"`{self.name}` takes {counts} arguments, got {len(args)}")
        arguments = [given(self.name, p, a) for p, a in zip(self.params, args, strict=False)]
        shape = common_shape(self.name, arguments, size)
        letters = decide(self.name, arguments)
        if len(args) < len(self.params):
            if size is None and any(p.raw for p in self.out_params):
                raise ArgumentValueError(f"`{self.name}`: nothing says how large the raw output is; pass it, or size=")
            new = outputs(self.name, self.out_params, arguments, shape, letters)
            arguments += [given(self.name, p, a) for p, a in zip(self.out_params, new, strict=True)]
        results = [g.value for g in arguments[len(self.in_params) :]]
        for g in arguments:
            if g.parameter.output and g.follows:
                check_output(self.name, g, shape)
        check_disjoint(self.name, arguments, same_is_apart=True)
        plan = self._launch(arguments, shape, letters, stream) if 0 not in shape else None
        return returned(results, self.no_return, self.return_tuple), plan

    def _launch(self, arguments: Sequence[Given], shape: tuple[int, ...], letters: dict[str, Any], stream: Any) -> Planned:
        key = (shape, *(g.layout for g in arguments))
        arranged: Arranged = self._facts.get(key, lambda: self._arranged(arguments, shape, letters))
        return arranged.planned(own_arguments(self.name, arguments, letters), stream)

    def _arranged(self, arguments: Sequence[Given], shape: tuple[int, ...], letters: dict[str, Any]) -> Arranged:
        """The kernel and its numbers, for any arrays that are laid out like these."""
        follow = sorted((g for g in arguments if g.follows), key=lambda g: not g.parameter.output)
        groups = grouped(shape, arguments, self.reduce_dims) if "_ind" in self._names else []
        counted = "i" in self._names or not follow
        standing = [*([counter(shape)] if counted else []), *coordinates(shape, groups)]
        keys = [*(g.parameter.name for g in follow), *(["i"] if counted else []), *(f"ind{d}" for d in range(len(groups)))]
        arrays = [*(g.array for g in follow), *standing]
        layout = axes(shape, arrays)
        operands = {key: operand(key, k, layout) for k, key in enumerate(keys)}
        block, grid, loops = geometry(layout.lengths)
        typed = [(g, dtype_for(self.name, g.parameter, letters)) for g in arguments]
        spec = ElementwiseSpec(
            tuple(Argument(g.parameter, d.name, operands.get(g.parameter.name), raw_of(g)) for g, d in typed),
            tuple(sorted((letter, d.name) for letter, d in letters.items())),
            operands.get("i"),
            tuple(operands[f"ind{d}"] for d in range(len(groups))),
            len(layout.lengths),
            loops,
            index_type(layout, arrays),
        )
        concrete = self._built(spec)
        values = axis_values(layout, list(operands.values())) | {"_ind_size": math.prod(shape)}
        for g in arguments:
            values |= raw_values(g)
        return concrete.arranged(grid, block, values)

    @specialized
    def _built(self, spec: ElementwiseSpec) -> Concrete:
        leaves = {"continue", "break"} & self._names
        if spec.loops and "break" in leaves:
            return self._concrete(replace(spec, looped=True))
        try:
            return self._concrete(spec)
        except CompileError as error:
            if not leaves or "not in loop" not in error.message:
                raise
        return self._concrete(replace(spec, looped=True))

    def _concrete(self, spec: ElementwiseSpec) -> Concrete:
        file, numbers = elementwise_source(self.texts, spec)
        follow = frozenset(a.parameter.name for a in spec.arguments if a.operand is not None)
        return Concrete(file, self.name, self.options, numbers, follow)
