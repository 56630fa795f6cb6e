"""Einstein sums, as rules of two operands each; more are contracted in turn, from left to right.

In: subscripts as `numpy.einsum` takes them (letters, `...`, `->`), and arrays, annotated or not. Out: an array or pair of the operands'
common dtype. A letter twice in one operand is a diagonal, taken as a view. An intermediate keeps the letters that the result or a later
operand has; the order is not optimised. The reverse is an Einstein sum of the result's gradient with the other operand's conjugate,
constant over letters that only its own operand has.

Axes of one letter have one length: there is no broadcasting. Raises ValueError for subscripts or shapes that do not fit, TypeError if the
subscripts are no text or for an output of the wrong dtype, TapeError for a pair outside of a tape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments.annotations import Const, Duplicated
from ..errors import ArgumentTypeError, ArgumentValueError
from ..runtime.array_types import NdArray
from ..tape.rules import rule
from .adjoints import add_to, library_of
from .elementwise import apply, are_disjoint, check_out, check_recorded
from .layout import array_of, primal_of
from .reductions import result_for
from .temporaries import carried, new_array

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _einsum_reverse(a: Any, b: Any, da: Any, db: Any, dc: Any, first: str, second: str, result: str) -> None:
    if da is not None:
        _add_term(da, first, dc, result, b, second)
    if db is not None:
        _add_term(db, second, dc, result, a, first)


def _add_term(target: NdArray, letters: str, dc: Any, result: str, other: Any, others: str) -> None:
    """The gradient of one operand: over letters that neither the result nor the other operand has, it is constant."""
    kept = "".join(letter for letter in letters if letter in result + others)
    value = library_of(dc).einsum(f"{result},{others}->{kept}", dc, other.conj())
    shape = tuple(n if letter in kept else 1 for letter, n in zip(letters, target.shape, strict=True))
    add_to(target, library_of(dc).broadcast_to(value.reshape(shape), target.shape))


@rule(
    reads=("a", "b"),
    overwrites=("c",),
    needs={"a": ("before", "b"), "b": ("before", "a")},
    reverse=_einsum_reverse,
    linear=(("a",), ("b",)),
)
def _einsum(a: Any, b: Any, c: Any, first: str, second: str, result: str) -> None:
    c[...] = library_of(a).einsum(f"{first},{second}->{result}", a, b)


def einsum(subscripts: str, *operands: Any, out: Any = None, optimize: Any = False) -> Any:
    """`numpy.einsum` of any number of operands, contracted from left to right whatever `optimize` says; with `...`, and with a letter
    twice in one operand for its diagonal. ValueError for subscripts that do not fit. Where `out` overlaps an operand, that one is copied
    first."""
    check_recorded("einsum", (*operands, out))
    if not isinstance(subscripts, str):
        raise ArgumentTypeError(f"einsum: the subscripts come first, as text like 'ij,jk->ik', not {type(subscripts).__name__}")
    inputs, result = _parsed(subscripts, [array_of("einsum", x).ndim for x in operands])
    pairs = [_diagonal(x, letters) for x, letters in zip(operands, inputs, strict=True)]
    operands, inputs = tuple(x for x, _ in pairs), [letters for _, letters in pairs]
    sizes = _sizes(operands, inputs)
    dtype = np.result_type(*(primal_of(x).dtype for x in operands))
    shape = tuple(sizes[k] for k in result)
    if out is None:
        out = result_for(operands, shape, dtype)
    check_out("einsum", out, shape, dtype)
    operands = tuple(_converted(are_disjoint(x, primal_of(out)), np.result_type(dtype, primal_of(out).dtype)) for x in operands)
    left, letters = operands[0], inputs[0]
    for k in range(1, len(operands) - 1):
        kept = "".join(dict.fromkeys(c for c in letters + inputs[k] if c in result + "".join(inputs[k + 1 :])))
        between = result_for((left, operands[k]), tuple(sizes[c] for c in kept), np.result_type(*map(_dtype, (left, operands[k]))))
        _einsum(left, operands[k], between, letters, inputs[k], kept)
        left, letters = between, kept
    last = operands[-1] if len(operands) > 1 else library_of(primal_of(left)).ones((), _dtype(left))
    _einsum(left, last, out, letters, inputs[-1] if len(operands) > 1 else "", result)
    return out


def _converted(x: Any, dtype: np.dtype[Any]) -> Any:
    """Integers as numbers of the result: a product of two of them alone would wrap, and be a bit for two of bool."""
    if dtype.kind not in "fc" or _dtype(x).kind not in "biu":
        return x
    copy = apply("copyto", x, out=new_array(primal_of(x), primal_of(x).shape, dtype, active=carried((x,))))
    return type(x)(copy) if isinstance(x, Const) else copy


def _dtype(x: Any) -> Any:
    return primal_of(x).dtype


def _parsed(subscripts: str, dims: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, with letters in place of `...`."""
    left, arrow, result = subscripts.replace(" ", "").partition("->")
    inputs = left.split(",")
    if len(inputs) != len(dims):
        raise ArgumentValueError(f"einsum {subscripts!r}: {len(inputs)} terms for {len(dims)} operands")
    free = [c for c in _LETTERS if c not in subscripts]
    extra = [n - len(s.replace("...", "")) for s, n in zip(inputs, dims, strict=True)]
    if any(s.count("...") > 1 or not s.replace("...", "").isalpha() for s in (*inputs, result) if s and s != "..."):
        raise ArgumentValueError(f"einsum {subscripts!r}: each term is letters, with one `...` at most")
    if any(e < 0 or (e > 0 and "..." not in s) for s, e in zip(inputs, extra, strict=True)):
        raise ArgumentValueError(f"einsum {subscripts!r}: operands of {list(dims)} axes do not fit")
    most = free[: max((e for s, e in zip(inputs, extra, strict=True) if "..." in s), default=0)]
    spelled = [s.replace("...", "".join(most[len(most) - e :])) for s, e in zip(inputs, extra, strict=True)]
    counts = Counter("".join(s.replace("...", "") for s in inputs))
    implicit = ("..." if "..." in left else "") + "".join(sorted(k for k, n in counts.items() if n == 1))
    found = (result if arrow else implicit).replace("...", "".join(most))
    if len(set(found)) < len(found) or not set(found) <= set("".join(spelled)):
        raise ArgumentValueError(f"einsum {subscripts!r}: the result has a letter twice, or one that no operand has")
    return spelled, found


def _sizes(operands: Sequence[Any], inputs: Sequence[str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for x, letters in zip(operands, inputs, strict=True):
        for letter, n in zip(letters, primal_of(x).shape, strict=True):
            if sizes.setdefault(letter, int(n)) != n:
                raise ArgumentValueError(
                    f"einsum: axis {letter!r} has {sizes[letter]} and {n} elements; broadcasting is not differentiated"
                )
    return sizes


def _diagonal(x: Any, letters: str) -> tuple[Any, str]:
    """A view in which every letter occurs once."""
    if len(set(letters)) == len(letters):
        return x, letters
    unique = "".join(dict.fromkeys(letters))
    array = primal_of(x)
    shape = [{int(n) for c, n in zip(letters, array.shape, strict=True) if c == letter} for letter in unique]
    if any(len(lengths) > 1 for lengths in shape):
        raise ArgumentValueError(f"einsum: a diagonal of axes of different lengths, {tuple(array.shape)}")

    def view(array: NdArray) -> Any:
        if isinstance(array, np.ndarray):
            return np.einsum(f"{letters}->{unique}", array)  # a view with its base, by which its memory is found
        strides = [sum(s for c, s in zip(letters, array.strides, strict=True) if c == letter) for letter in unique]
        lengths = [n for (n,) in shape]
        return library_of(array).lib.stride_tricks.as_strided(array, lengths, strides)

    return (x._view(view) if isinstance(x, Duplicated) else type(x)(view(array)) if x is not array else view(array)), unique
