"""Whether a rule does what it is declared to do, as far as that can be seen without running it twice.

What a function may only read it gets as read-only views, of NumPy arrays; of arrays that cannot be locked (CuPy's) the bytes are compared,
before and after, where a call is recorded and not repeated, and where a reverse runs for the first time. That a reverse binds a shadow
anew, instead of adding to it, is seen in its text. `gpuad.testing.check_rule` runs a rule to find out the rest.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...arguments.arrays import is_array, on_its_memory
from ...errors import TapeError
from ...pipeline import fingerprint
from ...runtime.array_types import NdArray

Values = Mapping[str, Any]


def mapped(x: Any, name: str, take: Callable[[str, Any], Any]) -> Any:
    """`take(name, x)`; of a tuple, list or dict a new one of what that gives for its parts, under names such as `plan[0]`."""
    kind = type(x)
    if kind is dict:
        return {key: mapped(value, f"{name}[{key!r}]", take) for key, value in x.items()}
    if kind is list or (isinstance(x, tuple) and (kind is tuple or hasattr(x, "_make"))):
        parts = [mapped(value, f"{name}[{k}]", take) for k, value in enumerate(x)]
        return parts if kind is list else x._make(parts) if hasattr(x, "_make") else tuple(parts)
    return take(name, x)


def parameter_of(name: str) -> str:
    """The parameter that such a name is a part of."""
    return name.partition("[")[0]


def is_constant(x: Any) -> bool:
    """Whether it is an array of numbers."""
    x = on_its_memory(x)
    return is_array(x) and not x.dtype.hasobject


def read_only(x: Any) -> Any:
    """A view of a NumPy array that is read-only; anything else as it is."""
    if not isinstance(x, np.ndarray):
        return x
    view = x.view()
    view.flags.writeable = False
    return view


def run(function: Callable[..., Any], values: Values, what: str, allowed: str) -> Any:
    """Calls a function of a rule. TapeError where it writes to what it was given as read-only."""
    try:
        return function(**values)
    except ValueError as error:
        if "read-only" in str(error):
            raise TapeError(f"{what} writes to an array that it may only read ({error}); {allowed}") from error
        raise


def marks(values: Values, *, everything: bool = False) -> list[tuple[str, Any, int]]:
    """The arrays among some values, with fingerprints; those that can be locked only if `everything` is looked at."""
    return [(n, x, _mark(x)) for n, x in values.items() if is_constant(x) and (everything or not isinstance(x, np.ndarray))]


def compare(before: Sequence[tuple[str, Any, int]], what: str, allowed: str) -> None:
    """TapeError if an array has changed since."""
    for name, array, mark in before:
        if _mark(array) != mark:
            raise TapeError(f"{what} has changed `{name}`, which it may only read; {allowed}")


def _mark(array: NdArray) -> int:
    if isinstance(array, np.ndarray):
        return zlib.crc32(array.tobytes())
    return fingerprint((array if array.flags.c_contiguous else array.copy()).reshape(-1))


# --- what the text of a reverse shows ----------------------------------------------------------------------------------------------------


def lost_binding(function: Callable[..., Any], names: Sequence[str]) -> str | None:
    """A parameter to which a function binds a value that it never uses, as in `dx = dx + y`, where adding in place was meant; None if there
    is none, or the text is not at hand."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
    nested = [n for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.Lambda) and f is not tree.body[0] for n in ast.walk(f)]
    inside = {id(n) for n in nested}
    for name in names:
        uses = list(_uses(tree, name))
        for binding in _bindings(tree, name):
            around = [{id(n) for n in ast.walk(loop)} for loop in loops if binding in ast.walk(loop)]
            if not any(_end(binding) <= _begin(use) or id(use) in inside or any(id(use) in loop for loop in around) for use in uses):
                return name
    return None


def _bindings(tree: ast.AST, name: str) -> Iterator[ast.AST]:
    """Statements that bind a name anew."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for t in targets for n in ast.walk(t)):
            yield node


def _uses(tree: ast.AST, name: str) -> Iterator[ast.AST]:
    """Where the value of a name is used; that it is returned is no use."""
    returned = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Return)}
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            yield node
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and id(node) not in returned:
            yield node


def _begin(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: Any) -> tuple[int, int]:
    return node.end_lineno, node.end_col_offset
