"""Accesses as isl maps from the instance to the element.

Guards without a text (they hang on data) are left out of a domain, which makes it larger: a query whether something never
happens errs on the safe side; a proof of equality compares such guards as factors of values (`equivalence`).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from ..errors import GpuadError
from .effects import Dim
from .values import Graph, Node

if TYPE_CHECKING:
    from islpy import BasicSet, Context, Map, Set, Val

_NAME = re.compile(r"\bs\d+\b")
OPERATIONS = 1_000_000  # isl's steps for one query, about a quarter of a second
DIVISIONS = 56  # quotients and remainders in one text: nested, each few take isl twice as long to read, and count as no operations
QUOTIENTS = 8  # of one part of a set or relation: beyond, a single step of isl's may take milliseconds, and its operations bound no time
_DIVISION = re.compile(r"\bmod\b|\bfloor\b|%")
_local = threading.local()
T = TypeVar("T")
R = TypeVar("R", "Map", "Set", "Set | BasicSet")


class Undecided(Exception):
    """isl did not decide a query within its operations, or something has no text."""


@cache
def is_installed() -> bool:
    """Whether isl is installed; it is loaded at the first query."""
    return find_spec("islpy") is not None


def context() -> Context:
    """This thread's isl context; isl is loaded when it is first needed."""
    if not hasattr(_local, "context"):
        try:
            import islpy
        except ImportError:
            raise GpuadError("certificates need islpy: pip install islpy") from None

        _local.context = islpy.Context()
        _local.context.set_max_operations(OPERATIONS)
    found: Context = _local.context
    return found


def decided(query: Callable[[], T]) -> T:
    """The result of a query to isl, whose operations are counted anew. Raises Undecided if they do not suffice."""
    context().reset_operations()
    import islpy

    try:
        return query()
    except (islpy.Error, OverflowError) as error:
        raise Undecided(str(error)) from error


def tractable(whole: R, most: int = QUOTIENTS) -> R:
    """A set or relation about which isl may be asked. Raises Undecided if one part of it has more than `most` quotients: isl counts
    allocations as operations, and solves a problem with a dozen nested quotients with few of these, in a minute."""
    import islpy

    found = whole.get_basic_maps() if isinstance(whole, islpy.Map) else whole.get_basic_sets()
    if any(part.dim(islpy.dim_type.div) > most for part in found):
        raise Undecided(f"more than {most} quotients and remainders in one relation")
    return whole


def is_so(query: Callable[[], bool], *, undecided: bool) -> bool:
    """The result of a query, or `undecided`, the safe one, if isl does not decide it."""
    try:
        return decided(query)
    except Undecided:
        return undecided


def integer(value: Val) -> int:
    """An isl value, which is whole. It may come out as nothing where the operations do not suffice."""
    text = value.to_str()
    if text is None:
        raise Undecided("a number after all operations")
    return int(text)


def relation(graph: Graph, dims: Sequence[Dim], guards: Iterable[Node], outputs: Sequence[str]) -> Map:
    """The map from instances to what the texts come to."""
    import islpy

    names = [f"o{k}" for k in range(len(outputs))]
    formula = _formula(graph, dims, guards, [f"{name} = {text}" for name, text in zip(names, outputs, strict=True)])
    return islpy.Map.read_from_str(context(), f"{{ [{_names(dims)}] -> [{', '.join(names)}] : {formula} }}")


def domain(graph: Graph, dims: Sequence[Dim], guards: Iterable[Node]) -> Set:
    """The instances."""
    import islpy

    return islpy.Set.read_from_str(context(), f"{{ [{_names(dims)}] : {_formula(graph, dims, guards, ())} }}")


def holding(graph: Graph, dims: Sequence[Dim], condition: Node) -> Set:
    """Where a condition holds, whether there is an instance or not."""
    import islpy

    return islpy.Set.read_from_str(context(), f"{{ [{_names(dims)}] : {_defined(graph, [str(condition.text)])} }}")


def _names(dims: Sequence[Dim]) -> str:
    return ", ".join(d.name for d in dims)


def _formula(graph: Graph, dims: Sequence[Dim], guards: Iterable[Node], more: Iterable[str]) -> str:
    """The guards that have a text, and the definitions of the names in them."""
    every = (*(g for d in dims for g in d.guards), *guards)
    return _defined(graph, [*dict.fromkeys(g.text for g in every if g.text is not None), *more])


def _defined(graph: Graph, terms: list[str]) -> str:
    """A conjunction, with the definitions of the names in it. Raises Undecided if isl would take minutes to read it."""
    names: dict[str, None] = {}
    waiting = list(terms)
    while waiting:
        for name in _NAME.findall(waiting.pop()):
            if name not in names:
                names[name] = None
                waiting.append(graph.named[name])
                terms = [*terms, graph.named[name]]
    formula = " and ".join(f"({t})" for t in terms) or "1 = 1"
    if sum(1 for _ in _DIVISION.finditer(formula)) > DIVISIONS:
        raise Undecided(f"more than {DIVISIONS} quotients and remainders")
    return f"exists ({', '.join(names)} : {formula})" if names else formula


def agreeing(one: Sequence[Dim], other: Sequence[Dim], names: Iterable[str]) -> Map:
    """Pairs of instances that have the same value in some dimensions."""
    import islpy

    left, right = [d.name for d in one], [f"{d.name}_" for d in other]
    terms = " and ".join(f"{n} = {n}_" for n in names) or "1 = 1"
    return islpy.Map.read_from_str(context(), f"{{ [{', '.join(left)}] -> [{', '.join(right)}] : {terms} }}")
