"""The border of the public interface: a call that is none ends in an ArgumentError, which names the function and the argument.

`public` marks a function of the interface. Two errors become ArgumentErrors on their way through it: Python's own, where arguments are
missing, too many or unknown; and an ArgumentError of code below that knows the value and not whose argument it is (`.argument`): it is
called by the name of the parameter that it came as. Whatever else is raised goes through as it is.
"""

from __future__ import annotations

import inspect
import operator
import reprlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .errors import (
    ArgumentAxisError,
    ArgumentError,
    ArgumentIndexError,
    ArgumentTypeError,
    ArgumentValueError,
    GpuadError,
    LaunchError,
    UnsupportedError,
    near,
)

P = ParamSpec("P")
R = TypeVar("R")
_WITHIN = (tuple, list)


def public(function: Callable[P, R]) -> Callable[P, R]:
    """A function or method of the interface. Raises ArgumentTypeError for arguments that do not fit its parameters."""

    @wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*args, **keywords)
        except ArgumentError as error:
            _name(error, function, args, keywords)
            raise
        except TypeError as error:
            _refuse_unbound(error, function, args, keywords)
            raise

    return call


def named(function: Callable[P, R], name: str, text: str) -> Callable[P, R]:
    """A function that is made for several names, with one of them and its docstring."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


def public_operation(function: Callable[P, R]) -> Callable[P, R]:
    """As `public`, for a function that stands for one of NumPy's. Errors of NumPy's that its arguments lead to become ArgumentErrors, which
    show the arguments."""

    names = tuple(inspect.signature(function).parameters)
    checked = [(k, name, _BY_NAME[name]) for k, name in enumerate(names) if name in _BY_NAME]

    @wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            for k, name, check in checked:
                if k < len(args):
                    check(name, args[k])
                elif name in keywords:
                    check(name, keywords[name])
            return function(*args, **keywords)
        except (ArgumentError, UnsupportedError, LaunchError) as error:
            _name(error, function, args, keywords)
            if not any(f"`{name}`" in str(error) for name in names):
                error.args = (f"{error}{_given(function, args, keywords)}",)
            raise
        except (TypeError, ValueError, IndexError, OverflowError) as error:
            if isinstance(error, GpuadError):
                raise
            _refuse_unbound(error, function, args, keywords)
            kind = next((ours for theirs, ours in _OURS.items() if isinstance(error, theirs)), ArgumentValueError)
            raise kind(f"{called(function)}: {str(error)[:_LONGEST]}{_given(function, args, keywords)}") from error

    return call


def taking(**checks: Callable[[str, Any], Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A `public` function some of whose arguments are looked at first: by name, what raises an ArgumentError for those that it does not
    take."""

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters.values()
        names = tuple(p.name for p in parameters if p.kind is not p.VAR_POSITIONAL and p.kind is not p.KEYWORD_ONLY)

        @wraps(function)
        def call(*args: P.args, **keywords: P.kwargs) -> R:
            for name, value in (*zip(names, args, strict=False), *keywords.items()):
                if name in checks:
                    checks[name](name, value)
            return function(*args, **keywords)

        return public(call)

    return decorated


def optional(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """None, or what a check takes."""
    return lambda name, value: None if value is None else check(name, value)


_OURS: dict[type[Exception], type[ArgumentError]] = {
    np.exceptions.AxisError: ArgumentAxisError, TypeError: ArgumentTypeError, IndexError: ArgumentIndexError,
}  # fmt: skip


def _refuse_unbound(error: Exception, function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    """Raises ArgumentTypeError if the call itself has failed: its arguments do not fit the function's parameters."""
    if isinstance(error, TypeError) and not fits(function, args, keywords):
        known = inspect.signature(function).parameters
        close = "".join(near(name, known) for name in keywords if name not in known)
        raise ArgumentTypeError(f"{_without_module(error)}. {how_called(function)}{close.removeprefix('.')}") from None


def fits(function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
    """True if arguments fit the parameters of a function."""
    try:
        inspect.signature(function).bind(*args, **keywords)
    except TypeError:
        return False
    return True


def _given(function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> str:
    """The arguments of a call, for the end of a message."""
    bound = inspect.signature(function).bind_partial(*args, **keywords).arguments
    return f" (given {', '.join(f'`{name}`: {show(value)}' for name, value in bound.items())})"


def how_called(function: Callable[..., Any]) -> str:
    """How a function is called, for messages."""
    parameters = inspect.signature(function).parameters.values()
    shown = inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in parameters if p.name != "self"])
    return f"It is called as {called(function)}{shown}."


def called(function: Callable[..., Any]) -> str:
    """The name by which a caller knows a function: of a class for what makes an object of it."""
    name = getattr(function, "__qualname__", type(function).__name__)
    return name.removesuffix(".__init__").removesuffix(".__call__")


def _without_module(error: TypeError) -> str:
    return str(error).replace(".__init__()", "()").replace(".__call__()", "()")


def _name(error: GpuadError, function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    """Says whose argument the value of an error is, if it has not been said."""
    if not isinstance(error, ArgumentError) or error.argument is None:
        return
    value, error.argument = error.argument[0], None
    bound = inspect.signature(function).bind_partial(*args, **keywords).arguments
    places = (place for name, given in bound.items() if name != "self" for place, x in _parts(name, given) if x is value)
    error.args = (f"{called(function)}: {'`' + place + '`' if (place := next(places, None)) else 'an argument'} {error.args[0]}",)


def _parts(name: str, given: Any) -> Iterator[tuple[str, Any]]:
    """An argument, and what is in it, under names such as `args[0]`."""
    yield name, given
    if isinstance(given, _WITHIN):
        for k, part in enumerate(given):
            yield from _parts(f"{name}[{k}]", part)
    elif isinstance(given, dict):
        yield from ((f"{name}[...]", part) for part in given.values())


# --- what arguments are taken ----------------------------------------------------------------------------------------------------------

_MOST = 1e15  # of seconds, of times: beyond it a number is a mistake
_LONGEST = 300  # letters of a message of NumPy's
_SHORT = 40  # letters of a value in a message
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = _SHORT


def show(x: Any) -> str:
    """A value in an error message, in a few words however large it is."""
    if isinstance(x, type):
        return f"the class {x.__name__}"
    if isinstance(x, np.generic):
        return f"numpy.{x.dtype}({x})"
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return f"an array of {x.dtype}, shape {tuple(x.shape)}"
    return "None" if x is None else f"{type(x).__name__} {brief(x)}"


def brief(x: Any) -> str:
    """A value as Python writes it, cut short."""
    shown = _BRIEF.repr(x)
    return shown if len(shown) <= _SHORT else shown[: _SHORT - 3] + "..."


def flag(name: str, value: Any) -> bool:
    """True or False; ArgumentTypeError for anything else, which Python would take as one of them."""
    if not isinstance(value, bool | np.bool_):
        raise ArgumentTypeError(f"`{name}` is True or False, not {show(value)}.")
    return bool(value)


def index(value: Any) -> int | None:
    """A whole number as Python's; None for what is none, True and False among it."""
    try:
        return None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        return None


def whole(name: str, value: Any, least: int = 0) -> int:
    """A whole number, at least `least`; ArgumentTypeError and ArgumentValueError for what is none."""
    number = index(value)
    if number is None:
        raise ArgumentTypeError(f"`{name}` is a whole number, not {show(value)}.")
    if not least <= number < _MOST:
        raise ArgumentValueError(f"`{name}` is a whole number, {least} or more, not {show(number)}.")
    return number


def positive(name: str, value: Any) -> float:
    """A finite number above 0; ArgumentTypeError and ArgumentValueError for what is none."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise ArgumentTypeError(f"`{name}` is a number, not {show(value)}.")
    if not 0 < value < _MOST:
        raise ArgumentValueError(f"`{name}` is a number above 0, not {show(value)}.")
    return float(value)


def text(name: str, value: Any) -> str:
    """A text; ArgumentTypeError for anything else."""
    if not isinstance(value, str):
        raise ArgumentTypeError(f"`{name}` is a text, not {show(value)}.")
    return value


def texts(name: str, value: Any) -> tuple[str, ...]:
    """A tuple or list of texts; ArgumentTypeError for anything else, a text by itself among it, which Python would take apart."""
    if not isinstance(value, tuple | list) or not all(isinstance(part, str) for part in value):
        raise ArgumentTypeError(f"`{name}` is a tuple or list of texts, such as ('...',), not {show(value)}.")
    return tuple(value)


def mapping(name: str, value: Any) -> Mapping[Any, Any]:
    """A mapping; ArgumentTypeError for anything else."""
    if not isinstance(value, Mapping):
        raise ArgumentTypeError(f"`{name}` is a dict, not {show(value)}.")
    return value


def dtype(name: str, value: Any) -> np.dtype[Any] | None:
    """A type of numbers, or None; ArgumentTypeError for anything else."""
    if value is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of texts that were names of types once
            found: np.dtype[Any] = np.dtype(value if isinstance(value, np.dtype | str | type) else object)
    except TypeError:
        found = np.dtype(object)
    if found.kind not in "biufc" and (found.kind != "V" or not found.itemsize or found.names is not None):
        raise ArgumentTypeError(f"`{name}` is a type of numbers, such as numpy.float64, not {show(value)}.")
    return found


def of_these(name: str, value: Any, offered: Sequence[Any]) -> Any:
    """One of a few values; ArgumentValueError for any other."""
    if not any(value is o or (type(value) is type(o) and value == o) for o in offered):
        raise ArgumentValueError(f"`{name}` is one of {', '.join(map(repr, offered))}, not {show(value)}.")
    return value


_BY_NAME: dict[str, Callable[[str, Any], Any]] = {"keepdims": flag, "lower": flag, "unit_diagonal": flag, "dtype": dtype}  # of operations
