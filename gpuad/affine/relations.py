"""Accesses as isl maps from the instance to the element.

Guards without a text (they hang on data) are left out of a domain, which makes it larger: a query whether something never
happens errs on the safe side; a proof of equality compares such guards as factors of values (`equivalence`).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
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
SUBTRACTING = 20_000  # operations for taking one set off another, which take isl up to a hundred times as long as others
STEPS = 4096  # of all that is asked about one launch: a question counts 2 to the power of its quotients, up to 10 of them
NOT_WITHIN = "not decided within"  # so begins what is said of a limit that was met
_DIVISION = re.compile(r"\bmod\b|\bfloor\b|%")
_local = threading.local()
T = TypeVar("T")
R = TypeVar("R", "Map", "Set", "Set | BasicSet")


class Undecided(Exception):
    """A question that cannot be asked of isl, since something has no text, or that isl does not decide."""

    @property
    def reason(self) -> str:
        """Why something is not proved, in words."""
        return f"not decided: {self}"


class LimitReached(Undecided):
    """A proof that would take more than it may, which the message says."""

    @property
    def reason(self) -> str:
        return f"{NOT_WITHIN} {self}"


class Allowance:
    """What is `left` of the steps that all questions about one launch may take."""

    def __init__(self) -> None:
        self.left = STEPS

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Within it, questions of this thread count."""
        before = getattr(_local, "allowance", None)
        _local.allowance = self
        try:
            yield
        finally:
            _local.allowance = before


def count(quotients: int) -> None:
    """Counts a question to isl about something with so many quotients. Raises LimitReached if none is left."""
    allowance: Allowance | None = getattr(_local, "allowance", None)
    if allowance is not None:
        allowance.left -= 1 << min(quotients, 10)
        if allowance.left < 0:
            raise LimitReached(f"{STEPS:,} steps for this launch")


@cache
def is_installed() -> bool:
    """True if isl is installed; it is loaded at the first query."""
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
        if "operations" in str(error) or "syntax error" in str(error):  # so isl says it where it ends while it reads
            raise LimitReached(f"{OPERATIONS:,} operations of isl") from error
        raise Undecided(str(error)) from error


def tractable(whole: R, most: int = QUOTIENTS) -> R:
    """A set or relation about which isl may be asked, which counts. Raises LimitReached for a part with more than `most` quotients: isl
    counts allocations as operations, and solves a problem with a dozen nested quotients with few of these, in a minute."""
    quotients = quotients_of(whole)
    if quotients > most:
        raise LimitReached(f"{most} quotients and remainders of one relation")
    count(quotients)
    return whole


def without(whole: Set, part: Set) -> Set:
    """A set without another one, with operations of its own. Raises LimitReached if they do not suffice."""
    import islpy

    count(quotients_of(whole) + quotients_of(part))
    context().reset_operations()
    context().set_max_operations(SUBTRACTING)
    try:
        return whole.subtract(part)
    except islpy.Error as error:
        raise LimitReached(f"{SUBTRACTING:,} operations of isl for the difference of two sets") from error
    finally:
        context().set_max_operations(OPERATIONS)
        context().reset_operations()


def quotients_of(whole: Map | Set | BasicSet) -> int:
    """How many quotients a part of a set or relation has, the one with the most."""
    import islpy

    parts = whole.get_basic_maps() if isinstance(whole, islpy.Map) else whole.get_basic_sets()
    return max((part.dim(islpy.dim_type.div) for part in parts), default=0)


def is_so(query: Callable[[], bool], *, undecided: bool) -> bool:
    """The result of a query, or `undecided`, the safe one, if isl does not decide it."""
    try:
        return decided(query)
    except Undecided:
        return undecided


def doubt(query: Callable[[], bool], otherwise: str) -> str | None:
    """None if something is so by isl; why it is not known to be, if that is not decided; else `otherwise`."""
    try:
        return None if decided(query) else otherwise
    except Undecided as undecided:
        return undecided.reason


def integer(value: Val) -> int:
    """An isl value, which is whole. It may come out as nothing where the operations do not suffice."""
    text = value.to_str()
    if text is None:
        raise LimitReached(f"{OPERATIONS:,} operations of isl")
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
        raise LimitReached(f"{DIVISIONS} quotients and remainders of one text")
    return f"exists ({', '.join(names)} : {formula})" if names else formula


def agreeing(one: Sequence[Dim], other: Sequence[Dim], names: Iterable[str]) -> Map:
    """Pairs of instances that have the same value in some dimensions."""
    import islpy

    left, right = [d.name for d in one], [f"{d.name}_" for d in other]
    terms = " and ".join(f"{n} = {n}_" for n in names) or "1 = 1"
    return islpy.Map.read_from_str(context(), f"{{ [{', '.join(left)}] -> [{', '.join(right)}] : {terms} }}")
