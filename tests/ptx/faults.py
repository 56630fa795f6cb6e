"""What the interpreter finds: each is an exception of its own, so that a test can say which it expects."""

from __future__ import annotations


class PtxError(Exception):
    """A text that cannot be executed, or an execution that went wrong."""


class Unknown(PtxError):
    """An instruction, a modifier or a directive that the interpreter does not know."""


class OutOfBounds(PtxError):
    """An access outside of every allocation, or outside of the variables of a space."""


class Misaligned(PtxError):
    """An access at an address that is no multiple of its size."""


class Uninitialised(PtxError):
    """A read of shared or local memory, or of a register, that nothing has written before."""


class Unwritten(Uninitialised):
    """A thread reads what it has not written, of its registers or local memory: compilers do so where the value does not matter."""


class Race(PtxError):
    """Two threads use one byte of shared memory, one of them writes, and no barrier lies between."""


class Diverged(PtxError):
    """A barrier or a warp operation that not all of its threads reach."""


class Endless(PtxError):
    """More steps than any kernel of the tests takes."""


class Undefined(PtxError):
    """An operation whose result PTX leaves open, as a division by zero."""
