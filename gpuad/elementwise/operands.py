"""The arguments of an elementwise call: what each is, and the types that the letters of the parameters stand for, decided as CuPy does.

In: parsed parameters and the values of a call. Out: a `Given` for each, the dtype of each letter (arrays decide, those of outputs first;
numbers decide nothing), and new arrays for outputs that are missing: temporaries with a shadow, if an input carries a gradient.

Raises TypeError for a value that is neither array nor number, for an array of another dtype than its parameter has, and for a letter that
no array decides; LaunchError for a missing output outside of a tape where an input carries a gradient, or where no argument is an array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arguments.annotations import Active, BatchDuplicated, Const, Duplicated
from ..arguments.arrays import as_array, is_array
from ..arguments.recorder import current
from ..errors import ArgumentTypeError, LaunchError
from ..frontend.elementwise import Parameter
from ..ir.dtypes import is_real
from ..ops.layout import primal_of, reached
from ..ops.temporaries import new_array, temporary

Types = Mapping[str, "np.dtype[Any]"]


@dataclass(frozen=True, eq=False)
class Given:
    """A parameter and what was passed for it: `array` where that is one."""

    parameter: Parameter
    value: Any
    array: Any

    @property
    def follows(self) -> bool:
        """True if it is an array that follows the elements."""
        return self.array is not None and not self.parameter.raw

    @property
    def layout(self) -> tuple[Any, ...] | None:
        """Shape, strides and type of an array."""
        return None if self.array is None else (tuple(self.array.shape), tuple(self.array.strides), self.array.dtype)


def given(name: str, parameter: Parameter, value: Any) -> Given:
    """One argument with its parameter. TypeError for what is neither array nor number."""
    opened = primal_of(value, f"`{name}`: `{parameter.name}`") if not isinstance(value, Active) else value.value
    if isinstance(opened, bool | int | float | complex | np.generic):
        if parameter.output:
            raise ArgumentTypeError(f"`{name}`: the output `{parameter.name}` takes an array, not {value!r}")
        return Given(parameter, value, None)
    array = as_array(opened)
    if isinstance(value, Active) or not is_array(array):
        raise ArgumentTypeError(f"`{name}`: `{parameter.name}` takes an array or a number, not {type(value).__name__}")
    return Given(parameter, value if array is opened else array, array)


def decide(name: str, arguments: Sequence[Given]) -> dict[str, np.dtype[Any]]:
    """The dtypes that letters stand for; outputs decide before inputs. TypeError for arrays of other types."""
    letters: dict[str, np.dtype[Any]] = {}
    for g in sorted(arguments, key=lambda g: not g.parameter.output):
        if g.array is None:
            continue
        p, dtype = g.parameter, np.dtype(g.array.dtype)
        wanted = p.dtype if p.dtype is not None else letters.setdefault(p.letter, dtype)
        if wanted != dtype:
            why = f"`{p.letter}` is {wanted} already" if p.letter else f"it is declared {wanted}"
            raise ArgumentTypeError(f"`{name}`: `{p.name}` got an array of {dtype}, but {why}; pass x.astype({str(wanted)!r})")
    return letters


def dtype_for(name: str, parameter: Parameter, letters: Types) -> np.dtype[Any]:
    """The dtype of a parameter. TypeError where no array says what its letter is."""
    dtype = parameter.dtype if parameter.dtype is not None else letters.get(parameter.letter)
    if dtype is None:
        raise ArgumentTypeError(
            f"`{name}`: no array says which type `{parameter.letter}` of `{parameter.name}` is; pass one, or name the type"
        )
    return dtype


def number(value: Any, dtype: np.dtype[Any]) -> Any:
    """A number for a parameter of a dtype: NumPy's floats are converted, as CuPy does; the rest adapts when it is bound."""
    if isinstance(value, Active):
        return Active(number(value.value, dtype), value.shadow)
    if isinstance(value, Const):
        return number(value.primal, dtype)
    real = isinstance(value, np.generic) and is_real(value.dtype) and is_real(dtype)
    return dtype.type(value) if real or (isinstance(value, np.complexfloating) and dtype.kind == "c") else value


def own_arguments(name: str, arguments: Sequence[Given], letters: Types) -> list[Any]:
    """The user's arguments as the launch takes them: views from the lowest element on, and numbers of the parameter's type."""
    return [reached(g.value) if g.array is not None else number(g.value, dtype_for(name, g.parameter, letters)) for g in arguments]


def is_active(value: Any) -> bool:
    """True if a value carries a gradient."""
    return isinstance(value, Duplicated | BatchDuplicated | Active)


def outputs(name: str, parameters: Sequence[Parameter], inputs: Sequence[Given], shape: Sequence[int], letters: Types) -> list[Any]:
    """New arrays for outputs that were not passed; pairs inside of a tape if an input carries a gradient. LaunchError outside of one."""
    active = any(is_active(g.value) for g in inputs)
    names = ", ".join(f"`{p.name}`" for p in parameters)
    if active and current.get() is None:
        raise LaunchError(
            f"`{name}`: the output {names} is missing, and its gradient would have nowhere to come from; pass it as Duplicated(array, "
            "seed), or call inside of a tape"
        )
    like = next((g.array for g in inputs if g.array is not None), None)
    if like is None:
        raise LaunchError(f"`{name}`: no array among the arguments; pass the output {names}")
    made = [new_array(like, shape, dtype_for(name, p, letters), active=active) for p in parameters]
    return [temporary(a) if active and (a.dtype.kind == "c" or is_real(a.dtype)) else a for a in made]


def check_complete(name: str, parameters: Sequence[Parameter], count: int) -> None:
    """A derivative needs the outputs. LaunchError where they are missing."""
    outs = [p.name for p in parameters if p.output]
    if count == len(parameters) - len(outs):
        names = ", ".join(f"`{n}`" for n in outs)
        raise LaunchError(
            f"`{name}`: the output {names} is missing, and its gradient would have nowhere to come from; pass it as Duplicated(array, seed)"
        )


def directions(given: Sequence[Any]) -> list[Any]:
    """Tangents of arrays, viewed as the launch views the arrays."""
    return [reached(d) if isinstance(d, Duplicated) else d for d in given]


def returned(arrays: Sequence[Any], no_return: bool, return_tuple: bool) -> Any:
    """What the call gives back."""
    if no_return:
        return None
    return arrays[0] if len(arrays) == 1 and not return_tuple else tuple(arrays)
