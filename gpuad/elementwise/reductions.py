"""`ReductionKernel`, with CuPy's constructor and call.

In: parameter lists, the expressions that map, join and finish, and the identity, as for `cupy.ReductionKernel` (CuPy User Guide,
User-Defined Kernels); of a call, arrays and numbers, the axes, `out`. Out: the outputs, as pairs if an input carries a gradient inside of a
tape, and the launch of a generated kernel, in which a thread for each output element joins the elements that are reduced one after the
other, in C order.

Assumes that `reduce_expr` is associative, as CuPy does, which joins in another order. Raises CompileError and UnsupportedError at a place
in the user's texts, TypeError, ValueError and AxisError as CuPy does, LaunchError where an output shares memory with an array that is
indexed by element."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..api import CallKey, Family, Kernel, Past, Planned, on_stream, plain
from ..errors import ArgumentTypeError, ArgumentValueError, UnsupportedError
from ..frontend.elementwise import Operand, ReductionSpec, Texts, parse_parameters, reduction_source
from ..frontend.elementwise.text import Argument
from ..memo import Memo, specialized
from ..ops.elementwise import geometry
from ..ops.layout import Axes, axes, axes_of, hull_size
from ..ops.trace_cache import Complete
from ..public_calls import flag, optional, taking, text, texts
from .concrete import Arranged, Concrete
from .operands import Given, check_complete, decide, directions, dtype_for, given, outputs, own_arguments, returned
from .shapes import INT, broadcast_strides, check_disjoint, check_output, common_shape, pattern, raw_of, raw_values, standing

Axis = int | Sequence[int] | None


class ReductionKernel(Family):
    """A reduction over axes, in CUDA, that can be differentiated. The arguments are those of `cupy.ReductionKernel`.

    `in_params`, `out_params`, `preamble`, `options`, `name` and `reduce_dims`: as for `ElementwiseKernel`. `reduce_type`: the type of
    what is joined, that of the first output by default.
    `map_expr` is formed for each element of the inputs, `reduce_expr` joins two of them, `a` and `b`, and `post_map_expr` assigns the
    result `a` to the outputs. `identity`: where the reduction begins; None begins at 0, as in CuPy.
    """

    @taking(
        in_params=text, out_params=text, map_expr=text, reduce_expr=text, post_map_expr=text, name=text, reduce_type=optional(text),
        preamble=text, options=texts,
    )  # fmt: skip
    def __init__(
        self,
        in_params: str,
        out_params: str,
        map_expr: str,
        reduce_expr: str,
        post_map_expr: str,
        identity: Any,
        name: str = "reduce_kernel",
        reduce_type: str | None = None,
        reduce_dims: bool = True,
        preamble: str = "",
        options: Sequence[str] = (),
    ) -> None:
        if not name.isidentifier():
            raise ArgumentValueError(f"{name!r} is no name for a kernel")
        self.name, self.options, self.reduce_dims = name, tuple(options), reduce_dims
        self.identity = "" if identity is None else str(identity)
        self.texts = Texts.of(
            name, in_params=in_params, out_params=out_params, map_expr=map_expr, reduce_expr=reduce_expr,
            post_map_expr=post_map_expr, identity=self.identity, preamble=preamble,
        )  # fmt: skip
        self.in_params = parse_parameters(self.texts["in_params"], output=False)
        self.out_params = parse_parameters(self.texts["out_params"], output=True)
        if not self.out_params:
            raise UnsupportedError("a reduction needs an output", None)
        self.params = (*self.in_params, *self.out_params)
        first = self.out_params[0]
        self.reduce_type = reduce_type or first.letter or first.cuda_type(np.dtype(first.dtype))
        self._counted = "_J" in self.texts.names("map_expr")
        self.specializations: dict[Hashable, Any] = {}
        self._facts = Memo()
        self._again: Past = {}

    def __repr__(self) -> str:
        return f"<gpuad reduction kernel {self.name}>"

    @taking(keepdims=flag)
    def __call__(self, *args: Any, out: Any = None, axis: Axis = None, keepdims: bool = False, stream: Any = None) -> Any:
        """Reduces arrays (annotated or not) over `axis`, all axes by default; inside of a tape it is recorded.

        Outputs that are not passed are made and given back, as pairs where an input carries a gradient; `out` is where they go. `keepdims`:
        the axes stay, with length 1. `stream`: of CuPy. Raises TypeError and ValueError as CuPy does.
        """
        call = self._complete(args, out, axis, keepdims, stream)
        if call is not None and call.again():
            return returned(call.args[len(self.in_params) :], False, False)
        with on_stream(stream, args):
            results, plan = self._prepared(args, out, axis, keepdims, stream)
        if plan is not None and call is not None:
            call.launch(plan)
        elif plan is not None:
            plan.kernel.launch(plan)
        return results

    def words(
        self, what: str, *args: Any, out: Any = None, axis: Axis = None, keepdims: bool = False, stream: Any = None
    ) -> CallKey | None:  # fmt: skip
        """A call by its arguments and axes."""
        call = self._complete(args, out, axis, keepdims, stream)
        return call.words(what) if call is not None else None

    def _complete(self, args: Sequence[Any], out: Any, axis: Axis, keepdims: bool, stream: Any) -> Complete | None:
        if out is not None and (len(self.out_params) != 1 or len(args) != len(self.in_params)):
            return None
        given = args if out is None else (*args, out)
        whole = len(given) == len(self.params) and (axis is None or plain(axis)) and stream is None
        return Complete(self, self._again, (axis, bool(keepdims)), given) if whole else None

    def planned(self, *args: Any, out: Any = None, axis: Axis = None, keepdims: bool = False, stream: Any = None) -> Planned | None:
        """The kernel and the launch that a call means; all outputs are given."""
        check_complete(self.name, self.params, len(args) + (out is not None))
        with on_stream(stream, args):
            return self._prepared(args, out, axis, keepdims, stream)[1]

    def directions(self, given: Sequence[Any], chosen: Kernel) -> list[Any]:
        """Tangents of a call's arguments as those of the launch that it means."""
        return directions(given)

    def _prepared(self, args: Sequence[Any], out: Any, axis: Axis, keepdims: bool, stream: Any) -> tuple[Any, Planned | None]:
        if out is not None and (len(self.out_params) != 1 or len(args) != len(self.in_params)):
            raise ArgumentValueError(f"`{self.name}`: out= is for one output that is not among the arguments")
        args = (*args, out) if out is not None else args
        if len(args) not in (len(self.in_params), len(self.params)):
            counts = f"{len(self.in_params)} or, with outputs, {len(self.params)}"
            raise ArgumentTypeError(f"`{self.name}` takes {counts} arguments, got {len(args)}")
        arguments = [given(self.name, p, a) for p, a in zip(self.params, args, strict=False)]
        inputs = arguments[: len(self.in_params)]
        shape = common_shape(self.name, inputs, None)
        split = _Split.of(shape, axis)
        letters = decide(self.name, arguments)
        kept = split.kept(keepdims)
        if len(args) < len(self.params):
            new = outputs(self.name, self.out_params, inputs, kept, letters)
            arguments += [given(self.name, p, a) for p, a in zip(self.out_params, new, strict=True)]
        results = arguments[len(self.in_params) :]
        for g in results:
            check_output(self.name, g, kept)
        if not self.identity and 0 in shape and 0 not in kept:
            raise ArgumentValueError(f"`{self.name}`: no elements to reduce, and no identity to begin with")
        check_disjoint(self.name, arguments, same_is_apart=False)
        plan = self._launch(inputs, results, split, keepdims, letters, stream) if 0 not in kept else None
        return returned([g.value for g in results], False, False), plan

    def _launch(
        self, inputs: Sequence[Given], results: Sequence[Given], split: _Split, keepdims: bool, letters: dict[str, Any], stream: Any
    ) -> Planned:
        key = (split, keepdims, *(g.layout for g in (*inputs, *results)))
        arranged: Arranged = self._facts.get(key, lambda: self._arranged(inputs, results, split, keepdims, letters))
        return arranged.planned(own_arguments(self.name, (*inputs, *results), letters), stream)

    def _arranged(
        self, inputs: Sequence[Given], results: Sequence[Given], split: _Split, keepdims: bool, letters: dict[str, Any]
    ) -> Arranged:
        """The kernel and its numbers, for any arrays that are laid out like these."""
        following = [g for g in inputs if g.follows]
        strides = [broadcast_strides(g.array, split.shape) for g in following]
        outer = [[s[k] for k in split.out] for s in strides]
        shape = [split.shape[k] for k in split.out]
        written = [broadcast_strides(g.array, g.array.shape) for g in results]
        written = [tuple(s[k] for k in split.out) if keepdims else s for s in written]
        names = [g.parameter.name for g in (*results, *following)]
        layout = axes(shape, [standing(shape, s) for s in (*written, *outer)])
        inner = [[s[k] for k in split.reduced] for s in strides] + ([split.counting()] if self._counted else [])
        walk = Walk.over([split.shape[k] for k in split.reduced], inner)
        block, grid, loops = geometry(layout.lengths)
        spec = self._spec(inputs, results, letters, layout, walk, names, loops)
        concrete = self._built(spec)
        values = _values(layout, walk, names, len(results), self._counted)
        values |= {"_in_ind_size": math.prod(split.shape), "_out_ind_size": math.prod(shape)}
        for g in inputs:
            values |= raw_values(g)
        return concrete.arranged(grid, block, values)

    def _spec(
        self,
        inputs: Sequence[Given],
        results: Sequence[Given],
        letters: dict[str, Any],
        layout: Axes,
        walk: Walk,
        names: list[str],
        loops: int,
    ) -> ReductionSpec:
        outer = {name: pattern(steps) for name, steps in zip(names, layout.steps, strict=True)}
        inner = dict.fromkeys(names[: len(results)], "") | dict(zip(names[len(results) :], map(pattern, walk.steps), strict=False))
        counter = Operand("_J", "0" * len(layout.lengths) + pattern(walk.steps[-1])) if self._counted else None
        arguments = []
        for g in (*inputs, *results):
            name, dtype = g.parameter.name, dtype_for(self.name, g.parameter, letters).name
            operand = Operand(name, outer[name] + inner[name]) if name in outer else None
            arguments.append(Argument(g.parameter, dtype, operand, raw_of(g)))
        wide = max(hull_size(g.array) for g in (*inputs, *results) if g.array is not None and g.array.size) > INT
        return ReductionSpec(
            tuple(arguments), tuple(sorted((letter, d.name) for letter, d in letters.items())), counter, len(layout.lengths),
            len(walk.lengths), loops, "long long" if wide else "int", self.reduce_type,
        )  # fmt: skip

    @specialized
    def _built(self, spec: ReductionSpec) -> Concrete:
        file, numbers = reduction_source(self.texts, spec)
        follow = frozenset(a.parameter.name for a in spec.arguments if a.operand is not None)
        return Concrete(file, self.name, self.options, numbers, follow)


@dataclass(frozen=True)
class _Split:
    """The axes of the inputs' shape that stay, and those that are reduced."""

    shape: tuple[int, ...]
    out: tuple[int, ...]
    reduced: tuple[int, ...]

    @classmethod
    def of(cls, shape: tuple[int, ...], axis: Axis) -> _Split:
        """ValueError as NumPy raises it for an axis that there is not, or that is named twice."""
        reduced = tuple(sorted(axes_of("a reduction", axis, len(shape))))
        return cls(shape, tuple(k for k in range(len(shape)) if k not in reduced), reduced)

    def kept(self, keepdims: bool) -> tuple[int, ...]:
        """The shape of an output."""
        return tuple(1 if k in self.reduced else n for k, n in enumerate(self.shape) if keepdims or k not in self.reduced)

    def counting(self) -> list[int]:
        """Strides of the number of an element among those that are reduced, in C order."""
        lengths = [self.shape[k] for k in self.reduced]
        return [math.prod(lengths[k + 1 :]) for k in range(len(lengths))]


@dataclass(frozen=True)
class Walk:
    """The loops over what is reduced, the innermost first: lengths, and for each input steps and the offset of its first element."""

    lengths: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]

    @classmethod
    def over(cls, lengths: Sequence[int], strides: Sequence[Sequence[int]]) -> Walk:
        """As few loops as the strides allow, in C order."""
        found: list[int] = []
        columns: list[tuple[int, ...]] = []
        for k in reversed(range(len(lengths))):
            column = tuple(s[k] for s in strides)
            if lengths[k] == 1:
                continue
            if columns and all(s == p * found[-1] for s, p in zip(column, columns[-1], strict=True)):
                found[-1] *= lengths[k]
            else:
                found.append(lengths[k])
                columns.append(column)
        steps = tuple(tuple(c[i] for c in columns) for i in range(len(strides)))
        offsets = tuple(-sum(min(0, v * (n - 1)) for v, n in zip(s, lengths, strict=True)) if 0 not in lengths else 0 for s in strides)
        return cls(tuple(found), steps, offsets)


def _values(layout: Axes, walk: Walk, names: Sequence[str], outs: int, counted: bool) -> dict[str, int]:
    """Lengths, offsets and strides by name."""
    dims = len(layout.lengths)
    values = {f"_n{k}": n for k, n in enumerate(layout.lengths)} | {f"_m{k}": n for k, n in enumerate(walk.lengths)}
    for k, name in enumerate(names):
        inner = k - outs
        values[f"_o{name}"] = layout.offsets[k] + (walk.offsets[inner] if inner >= 0 else 0)
        steps = (*layout.steps[k], *(walk.steps[inner] if inner >= 0 else ()))
        values |= {f"_s{name}_{axis}": s for axis, s in enumerate(steps)}
    if counted:
        values["_o_J"] = 0
        values |= {f"_s_J_{dims + axis}": s for axis, s in enumerate(walk.steps[-1])}
    return values
