"""The border of the public interface: a call that is none ends in an ArgumentError, which names the function and the argument.

`public` marks a function of the interface. Two errors become ArgumentErrors on their way through it: Python's own, where arguments are
missing, too many or unknown; and an ArgumentError of code below that knows the value and not whose argument it is (`.argument`): it is
called by the name of the parameter that it came as. Whatever else is raised goes through as it is.
"""

from __future__ import annotations

import inspect
import operator
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .errors import ArgumentError, ArgumentTypeError, ArgumentValueError

P = ParamSpec("P")
R = TypeVar("R")
_WITHIN = (tuple, list)


def public(function: Callable[P, R]) -> Callable[P, R]:
    """A function or method of the interface. Raises ArgumentTypeError for arguments that do not fit its parameters."""

    @wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*args, **keywords)
        except TypeError as error:
            if isinstance(error, ArgumentError):
                _name(error, function, args, keywords)
            elif not_bound(error):
                raise ArgumentTypeError(f"{_without_module(error)}. {how_called(function)}") from None
            raise
        except ArgumentError as error:
            _name(error, function, args, keywords)
            raise

    return call


def not_bound(error: TypeError) -> bool:
    """Whether the call in this frame has failed before its function began: its arguments do not fit the parameters."""
    traceback = error.__traceback__
    return traceback is not None and traceback.tb_next is None and "argument" in str(error)


def how_called(function: Callable[..., Any]) -> str:
    """How a function is called, for messages."""
    parameters = list(inspect.signature(function).parameters.values())
    shown = [str(p.replace(annotation=inspect.Parameter.empty)) for p in parameters if p.name != "self"]
    return f"It is called as {called(function)}({', '.join(shown)})."


def called(function: Callable[..., Any]) -> str:
    """The name by which a caller knows a function: of a class for what makes an object of it."""
    name = getattr(function, "__qualname__", type(function).__name__)
    return name.removesuffix(".__init__").removesuffix(".__call__")


def _without_module(error: TypeError) -> str:
    return str(error).replace(".__init__()", "()").replace(".__call__()", "()")


def _name(error: ArgumentError, function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    """Says whose argument the value of an error is, if it has not been said."""
    if error.argument is None:
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

_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 40


def show(x: Any) -> str:
    """A value in an error message, in a few words however large it is."""
    if isinstance(x, type):
        return f"the class {x.__name__}"
    if isinstance(x, np.generic):
        return f"numpy.{x.dtype}({x})"
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return f"an array of {x.dtype}, shape {tuple(x.shape)}"
    text = _BRIEF.repr(x)
    return "None" if x is None else f"{type(x).__name__} {text if len(text) <= 40 else text[:37] + '...'}"


def flag(name: str, value: Any) -> bool:
    """True or False; ArgumentTypeError for anything else, which Python would take as one of them."""
    if not isinstance(value, bool | np.bool_):
        raise ArgumentTypeError(f"`{name}` is True or False, not {show(value)}.")
    return bool(value)


def whole(name: str, value: Any, least: int = 0) -> int:
    """A whole number, at least `least`; ArgumentTypeError and ArgumentValueError for what is none."""
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise ArgumentTypeError(f"`{name}` is a whole number, not {show(value)}.")
    number = operator.index(value)
    if number < least:
        raise ArgumentValueError(f"`{name}` is {least} or more, not {number}.")
    return number


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


def of_these(name: str, value: Any, offered: Sequence[Any]) -> Any:
    """One of a few values; ArgumentValueError for any other."""
    if not any(value is o or (type(value) is type(o) and value == o) for o in offered):
        raise ArgumentValueError(f"`{name}` is one of {', '.join(map(repr, offered))}, not {show(value)}.")
    return value
