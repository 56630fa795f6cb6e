"""What the package takes of arrays and launches from outside: protocols, since NumPy's and CuPy's arrays share no class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

Extents: TypeAlias = "int | Sequence[int]"  # of a grid or a block, up to three, as users write them


class NdArray(Protocol):
    """An array of NumPy or CuPy: memory with a shape, strides (in bytes) and a dtype. What an expression makes of it is not said here."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""

    @property
    def ndim(self) -> int:
        """How many axes there are."""

    @property
    def size(self) -> int:
        """How many elements there are."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""

    @property
    def data(self) -> Any:
        """Its memory, as the library has it."""

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""

    @property
    def flags(self) -> Any:
        """Whether it is contiguous, and may be written."""

    @property
    def base(self) -> Any:
        """What it is a view of; None if it has its memory itself."""

    @property
    def T(self) -> Any:
        """With its axes reversed."""

    def __getitem__(self, key: Any, /) -> Any:
        """A view, or an element."""

    def __setitem__(self, key: Any, value: Any, /) -> None:
        """Writes elements."""

    @property
    def reshape(self) -> Callable[..., Any]:
        """With other axes."""

    def view(self, dtype: Any, /) -> Any:
        """Its bytes, read as elements of another type."""

    def max(self) -> Any:
        """The greatest element."""

    def __add__(self, other: Any, /) -> Any:
        """Element by element, as all operators."""

    def __sub__(self, other: Any, /) -> Any: ...

    def __rsub__(self, other: Any, /) -> Any: ...

    def __lt__(self, other: Any, /) -> Any: ...

    def __le__(self, other: Any, /) -> Any: ...

    def __gt__(self, other: Any, /) -> Any: ...

    def fill(self, value: Any, /) -> None:
        """Sets all elements."""

    def copy(self) -> Any:
        """An array of its own."""

    def astype(self, dtype: Any, /) -> Any:
        """Converted."""
