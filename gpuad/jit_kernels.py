"""Kernels written as Python functions, in the language of `cupyx.jit`.

`jit` is the decorator and, where CuPy is not installed, the namespace of what only kernels can use: `from gpuad import jit` stands in
for `from cupyx import jit`. `gpuad.kernel` takes what CuPy's own `jit.rawkernel` makes. Like CuPy, a function becomes a kernel at its
first call with arguments of new types.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from .api import BoundLaunch, CallKey, Family, Kernel, Past, Planned, offer, on_stream
from .api.adjoint_text import AdjointText
from .api.kept_kernels import Kept, of_function
from .api.kernels import bound_launch
from .arguments import split_options
from .arguments.annotations import Active, Duplicated
from .arguments.arrays import as_array, is_array
from .errors import ArgumentTypeError, LaunchError, UnknownNameError, UnsupportedError
from .frontend.python_jit import ArrayType, Builtin, Lowered, NumberType, Signature, lower
from .frontend.python_jit.fence import HALF_ARGUMENT, NUMPY_MODE
from .frontend.python_jit.names import BUILTINS
from .frontend.python_jit.signature import scalar_of_number
from .ir.types import F16, F32, F64, Complex
from .memo import specialized
from .ops.layout import element_strides, hull_size, origin, primal_of, reached
from .ops.trace_cache import Complete
from .public_calls import flag, optional, public, show, taking
from .runtime.array_types import Extents, NdArray

_WIDE = 2**31 - 1


class Concrete(Kernel):
    """A Python function as a kernel for the types of its arguments. `numbers`: the layout of arrays, which it takes after them."""

    _strided = True

    def __init__(self, lowered: Lowered) -> None:
        self._lowered = lowered
        super().__init__(lowered.file, lowered.function.name)

    def _recalled(self, name: str) -> Kept:
        return of_function(self._kind, self._lowered.function)

    @property
    def numbers(self) -> tuple[str, ...]:
        """By key: `x_n0` a length, `x_s0` a stride in elements, `x_o` the offset of the first element, `x_size`."""
        return self._lowered.numbers


class JitKernel(Family):
    """A Python function as a kernel, to be launched and differentiated like one from CUDA text."""

    def __init__(self, function: Callable[..., Any], device: bool = False) -> None:
        self._func, self._device, self._mode = function, device, "cuda"
        self.name = getattr(function, "__name__", "kernel")
        self.specializations: dict[Hashable, Any] = {}
        self._again: Past = {}

    def __repr__(self) -> str:
        return f"<gpuad jit kernel {self.name}>"

    @public
    def __call__(self, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int = 0, stream: Any = None) -> None:
        """Launches the kernel; inside of a tape it is recorded. Raises as a `Kernel` does, and CompileError and UnsupportedError at a line
        of the function."""
        call = self._complete(grid, block, args, shared_mem, stream)
        if call is not None and call.again():
            return
        plan = self.planned(grid, block, args, shared_mem=shared_mem, stream=stream)
        if call is not None:
            call.launch(plan)
        else:
            plan.kernel.launch(plan)

    def words(
        self, what: str, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int = 0, stream: Any = None
    ) -> CallKey | None:
        """A call by its arguments and geometry."""
        call = self._complete(grid, block, args, shared_mem, stream)
        return call.words(what) if call is not None else None

    def _complete(self, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int, stream: Any) -> Complete | None:
        whole = isinstance(args, tuple | list) and stream is None
        return Complete(self, self._again, "", args, grid, block, shared_mem) if whole else None

    def __getitem__(self, geometry: Any) -> BoundLaunch:
        """`kernel[grid, block](*args)`."""
        return bound_launch(self, geometry)

    def planned(self, grid: Extents, block: Extents, args: Sequence[Any], shared_mem: int = 0, stream: Any = None) -> Planned:
        """The kernel and the launch that a call means."""
        concrete = self.concrete(args)
        names = [d.name for d in concrete.parameters[: len(args)]]
        values: dict[str, int] = {}
        for name, arg in zip(names, args, strict=True):
            values |= _layout(name, _opened(arg))
        with on_stream(stream, args):
            own = [reached(arg) if _is_array(_opened(arg)) and _opened(arg).size else arg for arg in args]
        return Planned(concrete, grid, block, [*own, *(values[n] for n in concrete.numbers)], shared_mem, stream)

    def directions(self, given: Sequence[Any], chosen: Kernel) -> list[Any]:
        """Tangents of a call's arguments as those of the launch that it means."""
        return [reached(d) if isinstance(d, Duplicated) else d for d in given]

    def concrete(self, args: Sequence[Any]) -> Concrete:
        """The kernel for arguments of these types."""
        if self._device:
            raise LaunchError(f"`{self.name}` is a device function: it is called by kernels")
        if not isinstance(args, tuple | list):
            raise LaunchError(f"`{self.name}`: the arguments come as a tuple or list; write (x,) for one argument")
        signature = tuple(_type(self.name, number, arg) for number, arg in enumerate(args))
        return self._lowered(signature)

    @specialized
    def _lowered(self, signature: Signature) -> Concrete:
        return Concrete(lower(self._func, signature))

    @public
    def adjoint(
        self, /, *annotations: Any, args: Any = None, grid: Any = None, block: Any = None, shared_mem: int = 0, **by_name: Any
    ) -> AdjointText:
        """The reverse kernel for the types of `args`, as `Kernel.adjoint` gives it; with `grid` and `block` the text of this launch."""
        options = {"grid": grid, "block": block, "args": args, "shared_mem": shared_mem}
        positional, named, launch = split_options(annotations, by_name, options)
        plan = self.planned(launch["grid"], launch["block"], launch["args"])
        launch["args"] = None if launch["grid"] is None else plan.args
        named |= {d.name: a for d, a in zip(plan.kernel.parameters, positional, strict=False)}
        return plan.kernel.adjoint(named, **launch)


def _opened(arg: Any, name: str = "") -> Any:
    """The array or number behind an argument."""
    return arg.value if isinstance(arg, Active) else as_array(primal_of(arg, name))


def _is_array(value: Any) -> bool:
    return is_array(value)


def _type(name: str, number: int, arg: Any) -> ArrayType | NumberType:
    value = _opened(arg, f"`{name}`: argument {number + 1}")
    if _is_array(value):
        strides = element_strides(value)
        moved = bool(value.size) and any(s < 0 and n > 1 for s, n in zip(strides, value.shape, strict=True))
        wide = bool(value.size) and hull_size(value) > _WIDE
        return ArrayType(np.dtype(value.dtype), int(value.ndim), bool(value.flags.c_contiguous), moved, wide)
    if isinstance(value, complex | np.complexfloating):
        return NumberType(Complex(F64 if isinstance(value, np.complex128) else F32))
    scalar = scalar_of_number(value)
    if scalar is None:
        raise LaunchError(f"`{name}`: argument {number + 1} is {show(value)}; a jit function takes arrays and numbers")
    if scalar == F16:
        raise LaunchError(f"`{name}`: argument {number + 1} is {HALF_ARGUMENT}")
    return NumberType(scalar)


def _layout(name: str, array: NdArray) -> dict[str, int]:
    if not _is_array(array):
        return {}
    lengths = {f"{name}_n{k}": int(n) for k, n in enumerate(array.shape)}
    strides = {f"{name}_s{k}": s for k, s in enumerate(element_strides(array))}
    return lengths | strides | {f"{name}_o": origin(array) if array.size else 0, f"{name}_size": int(array.size)}


def function_of_python(name: str, value: Any) -> None:
    """ArgumentTypeError for what is no Python function."""
    if not callable(value) or isinstance(value, type):
        raise ArgumentTypeError(f"jit: `{name}` is a Python function, not {show(value)}.")


class _Jit:
    """The decorator `@gpuad.jit`, and the names of `cupyx.jit`: `jit.rawkernel`, `jit.grid`, `jit.threadIdx`, `jit.atomic_add`, ...

    `function`: a Python function in that language, which stands in a file. `device`: whether it is called by kernels, and never launched.
    What it makes is launched and differentiated like a `Kernel`: `k[grid, block](*args)`, `gpuad.autodiff(k, grid, block, args)`."""

    @taking(function=optional(function_of_python), device=flag)
    def __call__(self, function: Callable[..., Any] | None = None, *, device: bool = False) -> Any:
        """`@jit` or `@jit(device=True)`: a Python function as a kernel, or as a function that kernels call. It becomes one at its first
        call with arguments of new types, and raises CompileError and UnsupportedError at its lines then."""
        if function is None:
            return lambda inner: self(inner, device=device)
        return functools.update_wrapper(JitKernel(function, device), function)

    @public
    def rawkernel(self, *, mode: str = "cuda", device: bool = False) -> Any:
        """CuPy's spelling of the decorator."""
        _check_mode(mode)
        return self(device=device)

    def __getattr__(self, name: str) -> Any:
        if name in BUILTINS:
            return Builtin(name)
        raise UnknownNameError(f"jit has no attribute {name!r}")


def _check_mode(mode: str) -> None:
    if mode != "cuda":
        raise UnsupportedError(NUMPY_MODE)


jit = _Jit()
_known: dict[int, tuple[Any, JitKernel]] = {}


def recognised(source: Any) -> Family | None:
    """What CuPy's `jit.rawkernel` makes, as ours; None for anything else."""
    if type(source).__name__ != "_JitRawKernel" or not callable(getattr(source, "_func", None)):
        return None
    _check_mode(getattr(source, "_mode", "cuda"))
    if id(source) not in _known:
        _known[id(source)] = (source, JitKernel(source._func, bool(getattr(source, "_device", False))))
    return _known[id(source)][1]


offer(recognised)
