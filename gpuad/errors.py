"""The errors that gpuad raises: each says what is wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from .source import Span


class GpuadError(Exception):
    """Base of all errors that gpuad raises on purpose. Where CuPy, NumPy or Python raise an error of their own, it is that as well: what
    catches TypeError, ValueError, IndexError, AttributeError or FileNotFoundError goes on doing so."""


class ArgumentError(GpuadError):
    """A call of a public function with an argument that it does not take: the message names the function and the argument. Raised before
    anything is launched or written."""

    argument: tuple[Any] | None = None  # the value, until it is known whose argument it is (`public_calls`)

    @classmethod
    def of(cls, value: Any, message: str) -> Self:
        """An error whose message goes on after the name of the argument that a value came as."""
        error = cls(message)
        error.argument = (value,)
        return error


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of another type, one that is missing, or one too many."""


class ArgumentValueError(ArgumentError, ValueError):
    """An argument of the right type with a value that means nothing: shapes that do not fit, a word that is none of those offered."""


class ArgumentIndexError(ArgumentError, IndexError):
    """An index that is no whole number, or outside of its array."""


class ArgumentAxisError(ArgumentError, np.exceptions.AxisError):
    """An axis that an array has not: NumPy's AxisError."""


def alike(name: str, known: Iterable[str]) -> list[str]:
    """The known names that are like an unknown one, at most three."""
    import difflib

    return difflib.get_close_matches(name, list(known), 3, 0.7)


def near(name: str, known: Iterable[str]) -> str:
    """A question for the end of a message: the known names that are like an unknown one; nothing where none is."""
    close = alike(name, (n for n in known if not n.startswith("_")))
    return f". Did you mean {' or '.join(f'`{n}`' for n in close)}?" if close else ""


class UnknownNameError(ArgumentError, AttributeError):
    """An attribute that an object, or a module of gpuad, has not."""


class OutsideKernelError(GpuadError, RuntimeError):
    """A name of `gpuad.jit` that only kernels can use, used outside of one."""


class MissingFileError(ArgumentError, FileNotFoundError):
    """A file that is not there."""


class LocatedError(GpuadError):
    """An error at a place in the user's source: `.file`, `.line`, `.column` (None where there is no place)."""

    def __init__(self, message: str, span: Span | None = None) -> None:
        self.message = message
        self.span = span
        super().__init__(f"{span}: error: {message}\n{span.caret()}" if span else message)

    @property
    def file(self) -> str | None:
        """Name of the user's file, or None."""
        return self.span.place[0] if self.span else None

    @property
    def line(self) -> int | None:
        """Line in that file, from 1, or None."""
        return self.span.place[1] if self.span else None

    @property
    def column(self) -> int | None:
        """Column in that line, from 1, in characters, or None."""
        return self.span.place[2] if self.span else None


class UnsupportedError(LocatedError):
    """A construct, or a launch of it, that gpuad cannot differentiate soundly, refused before anything is written. Raised when a kernel is
    made, when its adjoint is, or when it is launched with numbers for which a race is proved."""


class CompileError(LocatedError):
    """Text that a compiler rejects, a name that is not in it, or a machine without a compiler; carries the compiler's own message. Raised
    when a kernel is made, of a template or jit function when it is first called."""


class ShadowError(GpuadError):
    """Shadows that do not fit their primals, or a gradient that would be dropped; raised before anything is written."""


class LaunchError(GpuadError):
    """A launch that cannot be made: wrong arguments, types, geometry or device limits; one that leaves its arrays or whose threads store
    different values to one element. Raised before anything is launched, but for what only a run can tell (a failed assertion, a stack that
    is full, a contribution that is not finite in deterministic mode): then no shadow was written."""


class ConvergenceError(GpuadError):
    """A solver that did not reach its tolerance, of a system or of its adjoint (`gpuad.ops.solve_with`)."""


class TapeError(GpuadError):
    """A recording that cannot be made, reversed, stored or made a graph of; the message says which operation, and what is undefined now."""


class BudgetError(TapeError):
    """A program that cannot be reversed within the budget of its tape. `.smallest`: the bytes that would do, None where that is not
    known."""

    def __init__(self, message: str, smallest: int | None = None) -> None:
        self.smallest = smallest
        super().__init__(message)


class DistributedError(TapeError):
    """A call on a communicator that not all of its ranks make, or not alike, or in which one of them is missing or has stopped: the message
    says which rank and why. `shared`: all ranks raise it at once, and the communicator may be used again."""

    def __init__(self, message: str, *, shared: bool = False) -> None:
        self.shared = shared
        super().__init__(message)
