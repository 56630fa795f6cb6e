"""Expressions in the descriptions of launches: arithmetic over sizes, and fields that fill arrays.

In: a number or a text of TOML. Out: an `Expression`, whose values are whole numbers, numbers or arrays of a shape. CaseError, at a place of
the file, for what is no such expression, or has no such value.

Expressions know numbers, sizes, `+ - * / // %`, parentheses, `min max sqrt exp log sin cos`, and for `init` the fields of `FIELDS`, which
have the array's shape. They are checked against a whitelist of syntax, never handed to Python's `eval`. Random fields depend on the seed
and on the argument's name alone: the same case has the same inputs on every machine, whatever else changes in the file.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ..errors import LocatedError
from ..source import Span

Sizes: TypeAlias = "Mapping[str, int]"
Shape: TypeAlias = "tuple[int, ...]"


class CaseError(LocatedError):
    """A header that cannot be read, or that does not fit its kernel."""


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": np.minimum,
    "max": np.maximum,
    **{name: getattr(np, name) for name in ("sqrt", "exp", "log", "sin", "cos")},
}


def _rows(rng: np.random.Generator, shape: Shape, total: int) -> Any:
    cuts = np.sort(rng.integers(0, total + 1, shape))
    cuts[:1], cuts[-1:] = 0, total
    return cuts


def _spread(rng: np.random.Generator, shape: Shape, low: float = 0.0, high: float = 1.0) -> Any:
    count = int(np.prod(shape))
    return rng.permutation(low + (high - low) * (np.arange(count) + 0.5) / max(count, 1)).reshape(shape)


def _index(_rng: np.random.Generator, shape: Shape, axis: int) -> Any:
    return np.arange(shape[axis]).reshape([-1 if k == axis else 1 for k in range(len(shape))])


FIELDS: dict[str, Callable[..., Any]] = {
    "normal": lambda rng, shape, mean=0.0, deviation=1.0: rng.normal(mean, deviation, shape),
    "uniform": lambda rng, shape, low=0.0, high=1.0: rng.uniform(low, high, shape),
    "positive": lambda rng, shape: rng.uniform(0.5, 1.5, shape),
    "integers": lambda rng, shape, low, high: rng.integers(low, high, shape),  # high is excluded
    "zeros": lambda _, shape: np.zeros(shape),
    "ones": lambda _, shape: np.ones(shape),
    "arange": lambda _, shape: np.arange(int(np.prod(shape))).reshape(shape),
    "index": _index,  # index(axis): the position along one axis
    "spread": _spread,  # evenly spaced values in random order: no two are close, for kernels that compare
    "rows": _rows,  # rows(total): CSR row pointers, from 0 to total
}


@dataclass(frozen=True)
class Expression:
    """An arithmetic expression of a header, checked when it is read."""

    text: str
    span: Span
    tree: ast.expr = field(compare=False, repr=False)

    def number(self, sizes: Sizes) -> int | float:
        """Its value over the sizes alone."""
        value = self._guarded(sizes, {})
        return value if isinstance(value, int | float) else value.item()

    def whole(self, sizes: Sizes) -> int:
        """Its value, which has to be a whole number that is not negative."""
        value = self.number(sizes)
        if value != int(value) or value < 0:
            raise CaseError(f"'{self.text}' is {value}, which is no count", self.span)
        return int(value)

    def array(self, sizes: Sizes, shape: Shape, rng: np.random.Generator) -> Any:
        """Its values as a field of this shape, float64 or integers."""
        fields = {name: lambda *args, make=make: make(rng, shape, *args) for name, make in FIELDS.items()}
        return np.broadcast_to(self._guarded(sizes, fields), shape)

    def _guarded(self, sizes: Sizes, fields: Mapping[str, Callable[..., Any]]) -> Any:
        try:
            return _evaluate(self.tree, sizes, {**_FUNCTIONS, **fields})
        except (ArithmeticError, KeyError, TypeError, ValueError, IndexError) as error:
            raise CaseError(f"'{self.text}' cannot be evaluated: {error}", self.span) from error


def _evaluate(node: ast.expr, sizes: Sizes, functions: Mapping[str, Callable[..., Any]]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return sizes[name] if name in sizes else functions[name]()
        case ast.UnaryOp(operand=operand):
            return -_evaluate(operand, sizes, functions)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_evaluate(left, sizes, functions), _evaluate(right, sizes, functions))
        case ast.Call(func=ast.Name(id=name), args=args):
            return functions[name](*(_evaluate(a, sizes, functions) for a in args))
    raise TypeError("not an expression of a header")  # unreachable: parse_expression has refused it


def _allowed(node: ast.AST, sizes: Mapping[str, Any]) -> bool:
    """True if one node of the syntax tree is on the whitelist."""
    match node:
        case ast.Constant(value=value):
            return type(value) in (int, float)
        case ast.Name(id=name):
            return name in sizes or name in FIELDS or name in _FUNCTIONS
        case ast.UnaryOp(op=op):
            return isinstance(op, ast.USub)
        case ast.BinOp(op=op):
            return type(op) in _OPERATORS
        case ast.Call(func=func, keywords=keywords):
            return isinstance(func, ast.Name) and (func.id in FIELDS or func.id in _FUNCTIONS) and not keywords
    return isinstance(node, ast.operator | ast.unaryop | ast.expr_context)


def parse_expression(value: Any, sizes: Mapping[str, Any], span: Span) -> Expression:
    """An expression from a TOML number or string."""
    if type(value) not in (int, float, str):
        raise CaseError(f"a number or an expression in quotes belongs here, not {value!r}", span)
    text = str(value)
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise CaseError(f"'{text}' is no expression", span) from error
    for node in ast.walk(tree):
        if not _allowed(node, sizes):
            what = f"the name '{node.id}'" if isinstance(node, ast.Name) else f"'{ast.unparse(node)}'"
            raise CaseError(f"'{text}': {what} is not known here; known are {', '.join([*sizes, *_FUNCTIONS, *FIELDS])}", span)
    return Expression(text, span, tree)
