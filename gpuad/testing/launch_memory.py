"""A launch with all memory that it may touch, as a map from one state of that memory to another: what a check varies, and looks at.

In: a kernel, its geometry and its arguments as `check_gradient` takes them. Out: `LaunchMemory`, whose active part is a vector (`Vector`),
with the launch alone, its tangent and its adjoint as functions of vectors. Guaranteed: memory is put back (`kept`). Allocations are counted
once, whatever views of them are passed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .. import api
from ..analysis.activity import activity
from ..analysis.flows import differentiable
from ..api import ExpandedKernel, Family, GridKernel, Kernel
from ..api.kernels import inside, refuse_call
from ..arguments import check_form, check_launch, layouts
from ..arguments.annotations import Active, BatchDuplicated, Const, Duplicated
from ..arguments.arrays import address, leaf_memory, namespace, resolve
from ..arguments.layouts import dtype_leaves
from ..errors import ArgumentTypeError, LaunchError
from ..ir import nodes
from ..ir.dtypes import is_bfloat16, is_real, shadow_dtype
from ..ir.nodes import Accumulate, Binary, Call, Cast, How, walk
from ..ir.records import is_record
from ..ir.rewrite import expressions_in, walk_stmts
from ..ir.types import Type
from ..runtime.array_locks import writeable
from ..runtime.array_types import Extents, NdArray
from .allocations import failing_allocations as failing_allocations
from .budgets import assert_memory as assert_memory
from .reports import BFLOAT16, PRECISIONS, Precision
from .rule_check import check_rule as check_rule


@dataclass(frozen=True)
class Launch:
    kernel: Any
    grid: Any
    block: Any
    shared_mem: int = 0

    @property
    def name(self) -> str:
        return str(getattr(self.kernel, "name", self.kernel))

    @property
    def call(self) -> dict[str, Any]:
        return {"shared_mem": self.shared_mem} if self.shared_mem else {}


def launched(
    f: Any, args: Sequence[Any], grid: Extents | None, block: Extents | None, shared_mem: int, call: Mapping[str, Any]
) -> tuple[Launch, tuple[Any, ...]]:
    """The launch and its arguments; kernels that are made for the types of a call become one here."""
    f = inside(f)
    if grid is not None or not isinstance(f, Family):
        check_form("check_gradient", args)
    check_launch("check_gradient", shared_mem, None)
    if isinstance(f, ExpandedKernel) and grid is not None:
        f, args = f.meant(args)
    if not isinstance(f, Family) or isinstance(f, Kernel | GridKernel):
        if call:
            raise ArgumentTypeError(f"check_gradient: unexpected {', '.join(f'`{name}`' for name in call)}: a launch has no such argument")
        return _launch(f, grid, block, shared_mem), tuple(args)
    if grid is not None:
        args, call = (grid, block, args), {"shared_mem": shared_mem, **call}
    try:
        plan = f.planned(*args, **call)
    except TypeError as error:
        refuse_call(f, error, args, call)
        raise
    if plan is None:
        raise ArgumentTypeError("check_gradient: the call has nothing to do")
    return Launch(plan.kernel, plan.grid, plan.block, plan.shared_mem), tuple(plan.args)


def _launch(f: Any, grid: Extents | None, block: Extents | None, shared_mem: int) -> Launch:
    if isinstance(f, tuple) and len(f) == 3:
        return Launch(inside(f[0]), *f[1:], shared_mem)
    if all(hasattr(f, name) for name in ("kernel", "grid", "block")):
        return Launch(inside(f.kernel), f.grid, f.block, shared_mem or getattr(f, "shared_mem", 0))
    if grid is None or block is None:
        raise ArgumentTypeError("check_gradient: `f` is kernel[grid, block], (kernel, grid, block), or a kernel with grid= and block=")
    try:
        return Launch(api.kernel(f), grid, block, shared_mem)
    except LaunchError as error:
        raise LaunchError(f"check_gradient: `f`: {error}") from None


def module_arrays(kernel: Any) -> dict[str, Any]:
    """The variables of the module that a kernel reaches, which come after the arguments: a run may change them."""
    variables = getattr(getattr(kernel, "function", None), "globals", ())
    return {variable.pointer.name: kernel.get_global(variable.name) for variable in variables}


@dataclass(frozen=True, eq=False)
class _Room:
    """One allocation, what was in it, and shadow memory of the same size."""

    root: Any
    before: Any
    shadow: Any

    def view(self, array: NdArray, offset: int) -> Any:
        """The part of the shadow memory that lies as `array` does in its allocation."""
        dtype = shadow_dtype(array.dtype)
        strides = tuple(s // array.dtype.itemsize * dtype.itemsize for s in array.strides)
        return placed(self.shadow, offset, array.shape, dtype, strides)


def placed(root: Any, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...]) -> Any:
    """A view of flat memory from one of its elements on."""
    if namespace(root).__name__ == "numpy":
        return np.ndarray(shape, dtype, root, offset * root.dtype.itemsize, strides)
    return namespace(root).lib.stride_tricks.as_strided(root[offset:].view(dtype), shape, strides)


Vector = dict[int, Any]  # a float64 array on the host for each allocation (by address) or scalar (by -1 - position)


@dataclass(eq=False)
class LaunchMemory:
    """All memory that a launch may touch, and its active part as a vector."""

    launch: Launch
    args: tuple[Any, ...]
    rooms: dict[int, _Room] = field(default_factory=dict)
    pairs: dict[int, Any] = field(default_factory=dict)  # annotated arguments, by position
    views: dict[tuple[int, int], tuple[int, Any, Any]] = field(default_factory=dict)  # room, primal, shadow; by position and field
    structs: dict[int, Any] = field(default_factory=dict)  # shadow memory of allocations of structs
    scalars: dict[int, Any] = field(default_factory=dict)  # by value: numbers, vectors, structs
    fixed: list[int] = field(default_factory=list)  # structs with halves, which have no shadows

    def __post_init__(self) -> None:
        annotated = any(isinstance(a, Duplicated | Active | Const | BatchDuplicated) for a in self.args)
        for position, arg in enumerate(self.args):
            if isinstance(arg, BatchDuplicated):
                raise ArgumentTypeError("check_gradient takes Duplicated arguments, not BatchDuplicated")
            value = getattr(arg, "primal", arg)
            if self._is_by_value(position, value):
                self._add_number(position, value, isinstance(arg, Active), not annotated)
            else:
                self._add_array(position, arg, value, isinstance(arg, Duplicated | Active) or (not annotated and has_floats(value)))
        for position, (name, array) in enumerate(module_arrays(self.launch.kernel).items(), len(self.args)):
            self._add_array(position, array, array, name in self.launch.kernel.shadows)
        if not self.views:
            raise ArgumentTypeError("check_gradient: no argument is an array of floats")

    def _declared(self, position: int) -> Type | None:
        declared = getattr(self.launch.kernel, "declared", ())
        return declared[position].type if position < len(declared) else None

    def _is_by_value(self, position: int, value: Any) -> bool:
        type_ = self._declared(position)
        return not is_array(value) if type_ is None or not is_record(type_) else True

    def _add_number(self, position: int, value: Any, given: bool, wanted: bool) -> None:
        """A number, vector or struct by value: `given` with a shadow, or `wanted` to vary if it can."""
        type_ = self._declared(position)
        there = layouts.float_types(type_) if type_ is not None else isinstance(value, float | complex | np.inexact)
        if given or (wanted and there and (type_ is None or layouts.can_be_active(type_))):
            self.scalars[position] = value
        elif wanted and there:
            self.fixed.append(position)

    def _add_struct(self, position: int, arg: Any, array: NdArray, active: bool) -> None:
        """An array of structs: each field of the allocation is memory of its own."""
        memory = resolve(array)
        whole: Any = memory.root
        shadow = self.structs.setdefault(address(memory.root), np.zeros_like(memory.root))
        for number, (offset, dtype) in enumerate(dtype_leaves(array.dtype)):
            root, dual = (np.ndarray(x.shape, dtype, x, offset, x.strides) for x in (whole, shadow))
            self.rooms.setdefault(address(root), _Room(root, root.copy(), dual))
            if active and is_real(dtype):
                places = (array.shape, dtype), (memory.offset * array.dtype.itemsize + offset, array.strides)
                own, its = (np.ndarray(*places[0], x, *places[1]) for x in (whole, shadow))
                self.views[position, number] = address(root), own, its
        if active:
            whole = np.ndarray(array.shape, array.dtype, shadow, memory.offset * array.dtype.itemsize, array.strides)
            self.pairs[position] = (type(arg) if isinstance(arg, Duplicated) else Duplicated)(array, whole)

    def _add_array(self, position: int, arg: Any, array: NdArray, active: bool) -> None:
        if array.dtype.names:
            self._add_struct(position, arg, array, active)
            return
        memory = leaf_memory(array)
        key = address(memory.root)
        if key not in self.rooms:
            self.rooms[key] = _Room(
                memory.root, memory.root.copy(), namespace(array).zeros(memory.root.size, shadow_dtype(memory.root.dtype))
            )
        room = self.rooms[key]
        if active and not writeable(room.root):
            raise ArgumentTypeError(f"check_gradient varies argument {position + 1}, whose memory is read-only: pass a copy")
        if active:
            shadow = room.view(array, memory.offset)
            self.views[position, 0] = key, array, shadow
            make = type(arg) if isinstance(arg, Duplicated) else Duplicated
            self.pairs[position] = make(array, shadow)

    def precision(self) -> Precision:
        """What the coarsest active type allows."""
        dtypes = [array.dtype for _, array, _ in self.views.values()]
        if any(is_bfloat16(dtype) for dtype in dtypes):
            return BFLOAT16
        return PRECISIONS[min(*self._sizes(), self.computing())]

    def _sizes(self) -> list[int]:
        dtypes = [array.dtype for _, array, _ in self.views.values()]
        return [dtype.itemsize // (2 if dtype.kind == "c" else 1) for dtype in dtypes]

    def remarks(self) -> Iterator[str]:
        """What a reader should know of the tolerances, and of what was not varied."""
        for position in self.fixed:
            yield f"argument {position + 1} is a struct with halves by value, which has no shadow: it was held fixed"
        if self.computing() < min(self._sizes()):
            yield f"the kernel computes in float{8 * self.computing()} what its arrays hold in more digits; compared as such"

    @cached_property
    def primal(self) -> nodes.Kernel | None:
        """What the launch runs, of a kernel from CUDA text."""
        kernel = self.launch.kernel
        kernel = kernel.unsplit if isinstance(kernel, GridKernel) else kernel
        return kernel.suited(self.args, self.launch.shared_mem).primal() if isinstance(kernel, Kernel) else None

    def computing(self) -> int:
        """The size of the narrowest numbers that the kernel computes from what is active: `fabsf(x)` of a double has no more digits than a
        float, nor has a float that a sum of doubles goes to, and a parameter may be narrower than all arrays."""
        kernel = self.primal
        if kernel is None:
            return max(self._sizes())
        given = {position for position, _ in self.views} | set(self.scalars)
        aligned = len(kernel.params) == len(self.args)  # but for structs, which are several parameters each
        facts = activity(kernel, [p for k, p in enumerate(kernel.params) if k in given or not aligned])
        made = (e for top in expressions_in(kernel.body) for e in walk(top) if isinstance(e, Binary | Call | Cast))
        types = [e.type for e in made if any(v in facts.varied for v in differentiable(e))]
        types += [t for p in self.scalars for t in layouts.float_types(self.launch.kernel.declared[p].type)]
        return min((t.bits // 8 for t in types), default=8)

    def rounding(self, precision: Precision) -> float:
        """How far two runs of the launch may be apart, relative to the size of what they leave: atomic additions have no order."""
        body = self.primal.body if self.primal is not None else ()
        adds = (s for s in walk_stmts(body) if isinstance(s, Accumulate) and s.how is How.ATOMIC)
        return max(100 * precision.unit, precision.dot if any(s.buffer.element.is_float for s in adds) else 0.0)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Puts all memory back at the end, whatever happens."""
        try:
            yield
        finally:
            self.restore()

    def restore(self) -> None:
        for room in self.rooms.values():
            if room.root.flags.writeable if isinstance(room.root, np.ndarray) else True:
                room.root[...] = room.before

    # vectors

    def random(self, rng: np.random.Generator, scaled: bool) -> Vector:
        """A random direction over the active views (and scalars); `scaled` to the size of what is there."""
        for room in self.rooms.values():
            room.shadow.fill(0)
        for _, array, shadow in self.views.values():
            size = scale_of(on_host(array)) if scaled else 1.0
            shadow[...] = namespace(array).asarray(size * _normal(rng, array), shadow.dtype)
        made = self.shadows()
        for position, value in self.scalars.items():
            sizes = layouts.scales(value)
            made[-1 - position] = rng.standard_normal(sizes.shape) * (sizes if scaled else 1.0)
        return made

    def shadows(self) -> Vector:
        return {key: on_host(room.shadow) for key, room in self.rooms.items() if self._is_active(key)}

    def primals(self) -> Vector:
        return {key: on_host(room.root) for key, room in self.rooms.items() if self._is_active(key)}

    def _is_active(self, key: int) -> bool:
        return any(key == k for k, _, _ in self.views.values())

    def fill(self, shadows: Vector) -> None:
        """Puts a vector into the shadows."""
        for key, room in self.rooms.items():
            if key in shadows:
                room.shadow[...] = namespace(room.root).asarray(shadows[key], room.shadow.dtype)

    # runs

    def forward(self, direction: Vector) -> Vector:
        """`J v`, by forward mode."""
        self.restore()
        self.fill(direction)
        self._autodiff(direction, api.Forward, self.scalars)
        return self.shadows()

    def reverse(self, seeds: Vector, direction: Vector | None = None, step: float = 0.0) -> Vector:
        """`J^T w`, by reverse mode, `step` along a direction of the state; the part of a scalar is added to what `seeds` has for it."""
        values = self.move(direction, step)
        self.fill(seeds)
        shadows = self._autodiff(seeds, api.Reverse, values)
        return {**self.shadows(), **{-1 - p: layouts.gradient(self.scalars[p], plain(s)) for p, s in shadows.items()}}

    def _autodiff(self, given: Vector, mode: Any, values: dict[int, Any]) -> dict[int, Any]:
        actives = self.actives(values, given)
        args = tuple({**self.pairs, **actives}.get(p, a) for p, a in enumerate(self.args))
        api.autodiff(self.with_shadows(), self.launch.grid, self.launch.block, args, mode=mode, **self.launch.call)
        return {p: active.shadow for p, active in actives.items()}

    def actives(self, values: dict[int, Any], given: Vector) -> dict[int, Active]:
        """Numbers by value, by position, with new shadows that hold what a vector has for them."""
        library = namespace(next(iter(self.views.values()))[1])
        return {p: Active(value, layouts.shadow(value, library, given.get(-1 - p))) for p, value in values.items()}

    def with_shadows(self) -> Any:
        """The kernel with our shadows for those variables of its module that have one."""
        kernel = self.launch.kernel
        for position, name in enumerate(module_arrays(kernel), len(self.args)):
            if position in self.pairs:
                kernel = kernel.with_shadow(name, self.pairs[position].shadow)
        return kernel

    def after(self, direction: Vector | None = None, step: float = 0.0) -> Vector:
        """The state after the launch alone, started `step` along a direction; no part of gpuad's differentiation takes part."""
        values = self.move(direction, step)
        args = [values.get(p, getattr(a, "primal", a)) for p, a in enumerate(self.args)]
        self.launch.kernel(self.launch.grid, self.launch.block, tuple(args), **self.launch.call)
        return self.primals()

    def move(self, direction: Vector | None, step: float) -> dict[int, Any]:
        """Puts the state where it was, or `step` along a direction from there; gives the numbers by value there, by position."""
        self.restore()
        if direction is None:
            return self.scalars
        for key, room in self.rooms.items():
            if key in direction:
                moved = on_host(room.before) + step * direction[key]
                room.root[...] = namespace(room.root).asarray(moved, room.root.dtype)
        return {p: layouts.with_floats(v, layouts.floats(v) + step * direction[-1 - p]) for p, v in self.scalars.items()}

    def memory(self) -> dict[int, Any]:
        """Everything in all allocations, as it is now."""
        return {key: on_host(room.root) for key, room in self.rooms.items()}

    def check_races(self) -> None:
        """Runs the primal on the reference executor, on copies on the host. GpuadError where it finds a race or an index out of bounds."""
        rooms = {key: plain(room.before) for key, room in self.rooms.items()}
        args = []
        for arg in self.args:
            value = getattr(arg, "primal", arg)
            args.append(_copied(value, rooms) if is_array(value) else value)
        api.check_races(self.launch.kernel, self.launch.grid, self.launch.block, tuple(args), **self.launch.call)


def _normal(rng: np.random.Generator, array: NdArray) -> Any:
    """Random numbers in the shape of an array, complex ones for a complex array."""
    real = rng.standard_normal(array.shape)
    return real + 1j * rng.standard_normal(array.shape) if array.dtype.kind == "c" else real


def is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "strides") and not isinstance(value, np.generic)


def _copied(array: NdArray, rooms: dict[int, Any]) -> Any:
    """The view that lies in the copy of its allocation as `array` does in the allocation."""
    if not array.size:  # memory of no size has no place of its own
        return np.empty(array.shape, array.dtype)
    memory = resolve(array) if array.dtype.names else leaf_memory(array)
    where = address(memory.root)
    root = rooms.setdefault(-1 - where, plain(memory.root)) if array.dtype.names else rooms[where]  # fields are rooms of their own
    return np.ndarray(array.shape, array.dtype, root, memory.offset * memory.root.dtype.itemsize, array.strides)


def plain(array: NdArray) -> Any:
    """A copy on the host."""
    return np.array(array.get() if hasattr(array, "get") else array)


def has_floats(array: NdArray) -> bool:
    return any(is_real(leaf) for _, leaf in dtype_leaves(array.dtype))


def on_host(array: NdArray) -> Any:
    """A copy on the host, floats as float64."""
    values = plain(array)
    return values.astype(np.float64) if is_real(values.dtype) else values


def scale_of(values: Any) -> float:
    """Root mean square of the finite values, 1 if that is 0."""
    finite = np.abs(values[np.isfinite(values)])
    return float(np.sqrt(np.mean(finite**2))) or 1.0 if finite.size else 1.0


class PlannedCall(NamedTuple):
    """A call in full: of one kernel, or of one with `grid.sync()`, which is several launches."""

    kernel: Kernel | GridKernel
    grid: Any
    block: Any
    args: Sequence[Any]
    shared_mem: int = 0


def planned(f: Any, args: Sequence[Any], grid: Extents, block: Extents, shared_mem: int, call: Mapping[str, Any]) -> PlannedCall:
    """The call that `check_gradient` would check: a kernel, its geometry and its arguments. Raises as that does."""
    launch, own = launched(f, args, grid, block, shared_mem, call)
    if isinstance(launch.kernel, Kernel | GridKernel):
        return PlannedCall(launch.kernel, launch.grid, launch.block, own, launch.shared_mem)
    made = launch.kernel.planned(launch.grid, launch.block, own, shared_mem=launch.shared_mem)
    assert isinstance(made, api.Planned)  # who has a grid has something to do
    return PlannedCall(*made[:5])
