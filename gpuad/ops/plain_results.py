"""Functions of arrays whose results carry no gradient: whole numbers, truths, places and types, which are constant almost everywhere.

In: what the array library's function of that name takes, with pairs in the place of arrays. Out: what that function gives for the arrays
themselves, plain. Raises what NumPy raises, as an ArgumentError, and ArgumentTypeError for a pair as `out`, whose gradient would not be
taken."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arguments.annotations import Active, BatchDuplicated, Const, Duplicated
from ..arguments.arrays import is_array, namespace
from ..errors import ArgumentTypeError
from ..public_calls import named

PLAIN = (
    "all", "allclose", "any", "argmax", "argmin", "argpartition", "argsort", "argwhere", "array2string", "array_equal", "array_equiv",
    "array_repr", "array_str", "can_cast", "common_type", "count_nonzero", "diag_indices_from", "digitize", "einsum_path", "equal",
    "flatnonzero",
    "floor_divide", "greater", "greater_equal", "in1d", "isclose", "iscomplex", "iscomplexobj", "isfinite", "isin", "isinf", "isnan",
    "isneginf", "isposinf", "isreal", "isrealobj", "less", "less_equal", "lexsort", "linalg.matrix_rank", "logical_and", "logical_not",
    "logical_or", "logical_xor", "may_share_memory", "min_scalar_type", "nanargmax", "nanargmin", "ndim", "nonzero", "not_equal",
    "result_type", "searchsorted", "shape", "shares_memory", "signbit", "size", "tril_indices_from", "triu_indices_from", "unravel_index",
)  # fmt: skip


def bare(x: Any) -> Any:
    """An argument without what is said about gradients; of lists, tuples and dicts each part."""
    if isinstance(x, Duplicated | BatchDuplicated | Const):
        return x.primal
    if isinstance(x, Active):
        return x.value
    if type(x) in (list, tuple):
        return type(x)(map(bare, x))
    return {key: bare(part) for key, part in x.items()} if type(x) is dict else x


def library_behind(*given: Any) -> Any:
    """The array library of the first array among arguments, or among their parts; NumPy where there is none."""
    return _library(given) or np


def _library(x: Any) -> Any:
    if type(x) in (list, tuple):
        return next(filter(None, map(_library, x)), None)
    array = x.shadow if isinstance(x, Active) else bare(x) if isinstance(x, Duplicated | BatchDuplicated | Const) else x
    return namespace(array) if is_array(array) else None


def _plain(name: str) -> Callable[..., Any]:
    find = operator.attrgetter(name)

    def function(*args: Any, **keywords: Any) -> Any:
        if isinstance(keywords.get("out"), Duplicated | BatchDuplicated):
            raise ArgumentTypeError(f"{name}: the result has no gradient, and `out` is a pair; let it make an array, or pass out=x.primal")
        library = library_behind(args, list(keywords.values()))
        own = getattr(library, name, None) or find(np) if "." not in name else find(library)  # of CuPy's some are NumPy's own
        return own(*map(bare, args), **bare(keywords))

    return named(function, name.rpartition(".")[2], f"As the array library's `{name}` of the arrays: a plain result, without a gradient.")


TABLE = {name: _plain(name) for name in PLAIN}
