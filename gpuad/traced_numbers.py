"""Whole numbers that note what is done with them, so that what was found out for one value is known for all that are alike.

An analysis that is run with `Number`s in place of a launch's numbers leaves a `Trace`: the arithmetic that was done, each comparison that
was made with its outcome (a guard), and the result, in which Numbers stand. For other values the arithmetic is done again. Where every
guard holds, the analysis would have taken the same way, and its result is that of the trace with their values. What needs a value as such,
an index or a hash, pins it: the trace then holds for this value alone. An analysis that does anything else with a Number raises TypeError
or AttributeError, leaves no trace, and is run for each value by itself.

Functions of numbers that are `recorded`, and what is done with their results, are noted as a whole.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import update_wrapper
from typing import Any, ParamSpec, TypeVar

MOST = 8  # traces of one analysis; what takes other ways for ever is not traced any more
_LONG = 4000  # steps of a trace; a longer one is not faster than the analysis
_OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "|": operator.or_,
    "&": operator.and_,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
}
_RIGHT, _LEFT = {"+": 0, "-": 0, "*": 1, "//": 1}, {"+": 0, "*": 1}  # operands with which an operator gives the other one
_WITHOUT = ("gpuad.ir.", "gpuad.program.ir.region")  # modules of whose objects none has a traced value in it
_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)
_MISSED = object()


class Recorder:
    """Notes steps as lines of Python; `closed` when the analysis is done, from when on its Numbers are their values."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.known: dict[tuple[str, ...], Traced] = {}  # what was made, by how
        self.guards: set[tuple[str, ...]] = set()
        self.constants: dict[int, tuple[str, Any]] = {}  # by id
        self.parts: dict[int, str] = {}  # objects of the result, by id, of which each is made once
        self.count = 0
        self.closed = False

    def new(self, value: Any) -> Traced:
        """A stand-in for a value that is another one for other numbers."""
        self.count += 1
        if self.count + len(self.guards) > _LONG:
            raise TypeError("an analysis of so many steps is not traced")
        return (Number if type(value) is int else Traced)(self, f"t{self.count}", value)

    def name(self, x: Any) -> str:
        """An operand, in the text of the trace: one that is traced, a number, a tuple of such, or an object that is the same for all."""
        if isinstance(x, Traced):
            return x.name if x.recorder is self else self.name(x.value)
        if type(x) in (int, bool, str):
            return repr(x)
        if type(x) in (tuple, list):
            opened, closed = "()" if type(x) is tuple else "[]"
            return f"{opened}{''.join(f'{self.name(e)}, ' for e in x)}{closed}"
        return self.constants.setdefault(id(x), (f"c{len(self.constants)}", x))[0]

    def step(self, parts: tuple[str, ...], value: Callable[[], Any]) -> Any:
        """Notes how something is made, once."""
        if parts not in self.known:
            made = self.known[parts] = self.new(value())
            self.lines.append(f"{made.name} = {''.join(parts)}")
        return self.known[parts]

    def guard(self, parts: tuple[str, ...], outcome: bool) -> bool:
        """Notes how a comparison came out."""
        if parts not in self.guards:
            self.guards.add(parts)
            self.lines.append(f"if {'not ' if outcome else ''}({''.join(parts)}): return missed")
        return outcome

    def pin(self, x: Traced) -> Any:
        """The value, for which alone the trace then holds."""
        self.guard((x.name, "==", self.name(x.value)), True)
        return x.value


class Traced:
    """A value that depends on the numbers."""

    __slots__ = ("name", "recorder", "value")

    def __init__(self, recorder: Recorder, name: str, value: Any) -> None:
        self.recorder, self.name, self.value = recorder, name, value

    def _made(self, op: str, other: Any, reverse: bool = False) -> Any:
        """The result of an operator."""
        a, b = (other, self) if reverse else (self, other)
        if isinstance(a, Traced) and isinstance(b, Traced) and a.recorder is not b.recorder:
            a, b = (a, b.value) if b.recorder.closed else (a.value, b)
        recorder = a.recorder if isinstance(a, Traced) else b.recorder
        if type(other) is int and other == (_RIGHT if not reverse else _LEFT).get(op):
            return self
        left, right = plain(a), plain(b)
        if recorder.closed:
            return _OPERATORS[op](left, right)
        return recorder.step((recorder.name(a), f" {op} ", recorder.name(b)), lambda: _OPERATORS[op](left, right))

    def _compared(self, op: str, other: Any, reverse: bool = False) -> bool:
        """The outcome of a comparison."""
        left, right = (plain(other), self.value) if reverse else (self.value, plain(other))
        outcome = bool(_OPERATORS[op](left, right))
        if self.recorder.closed or (isinstance(other, Traced) and other.name == self.name and other.recorder is self.recorder):
            return outcome
        own, its = self.name, self.recorder.name(other)
        return self.recorder.guard((its, f" {op} ", own) if reverse else (own, f" {op} ", its), outcome)

    def __getattr__(self, name: str) -> Any:
        if name not in ("nbytes", "low", "high"):
            raise AttributeError(name)
        found = getattr(self.value, name)
        return found if self.recorder.closed else self.recorder.step((self.name, f".{name}"), lambda: found)

    def moved(self, by: Any) -> Any:
        """As `Region.moved`."""
        found = self.value.moved(plain(by))
        return found if self.recorder.closed else self.recorder.step((self.name, ".moved(", self.recorder.name(by), ")"), lambda: found)

    def __bool__(self) -> bool:
        return bool(self.value) if self.recorder.closed else self.recorder.guard((self.name,), bool(self.value))

    def __or__(self, other: Any) -> Any:
        return self._made("|", other)

    def __ror__(self, other: Any) -> Any:
        return self._made("|", other, True)

    def __and__(self, other: Any) -> Any:
        return self._made("&", other)

    def __rand__(self, other: Any) -> Any:
        return self._made("&", other, True)

    def __sub__(self, other: Any) -> Any:
        return self._made("-", other)

    def __rsub__(self, other: Any) -> Any:
        return self._made("-", other, True)

    def __le__(self, other: Any) -> bool:
        return self._compared("<=", other)

    def __ge__(self, other: Any) -> bool:
        return self._compared("<=", other, True)


class Number(Traced):
    """A whole number."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return self._made("+", other)

    def __radd__(self, other: Any) -> Any:
        return self._made("+", other, True)

    def __mul__(self, other: Any) -> Any:
        return self._made("*", other)

    def __rmul__(self, other: Any) -> Any:
        return self._made("*", other, True)

    def __floordiv__(self, other: Any) -> Any:
        return self._made("//", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._made("//", other, True)

    def __mod__(self, other: Any) -> Any:
        return self._made("%", other)

    def __rmod__(self, other: Any) -> Any:
        return self._made("%", other, True)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __neg__(self) -> Any:
        return self._made("-", 0, True)

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __lt__(self, other: Any) -> bool:
        return self._compared("<", other)

    def __gt__(self, other: Any) -> bool:
        return self._compared("<", other, True)

    def __eq__(self, other: object) -> Any:
        return self._compared("==", other) if isinstance(other, int | Number) else NotImplemented

    def __index__(self) -> int:
        return int(self.value if self.recorder.closed else self.recorder.pin(self))

    __int__ = __index__

    def __hash__(self) -> int:
        return hash(self.__index__())


def plain(x: Any) -> Any:
    """The value of what may be traced, or a tuple or list with such in it."""
    if isinstance(x, Traced):
        return x.value
    return type(x)(map(plain, x)) if type(x) in (tuple, list) else x


def recorded(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A function of numbers, and of tuples and lists of them, without side effects; called with Numbers it is noted as one step."""

    def called(*args: _P.args, **keywords: _P.kwargs) -> _R:
        recorder = next((t.recorder for t in _traced(args) if not t.recorder.closed), None)
        if recorder is None:
            return function(*args, **keywords)
        parts = recorder.name(function), *map(recorder.name, args)
        made: _R = recorder.step((f"{parts[0]}({', '.join(parts[1:])})",), lambda: function(*plain(args), **keywords))
        return made

    update_wrapper(called, function)
    return called


def _traced(args: Any) -> Iterator[Traced]:
    for x in args:
        if isinstance(x, Traced):
            yield x
        elif type(x) in (tuple, list):
            yield from _traced(x)


# --- what an analysis leaves ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trace:
    """`again`: the result for other numbers, in the order of the analysis; `_MISSED` where a guard fails."""

    again: Callable[..., Any]


@dataclass
class Traces:
    """What was noted of one analysis; `tried`: how often, up to MOST."""

    found: list[Trace] = field(default_factory=list)
    tried: int = 0

    def of(self, numbers: Mapping[_K, int], find: Callable[[Mapping[_K, int]], _T], for_one: Callable[[], _T]) -> _T:
        """The result of `find` for numbers. `for_one`: the same for them alone, asked where that takes a way that is not traced."""
        values = tuple(numbers.values())
        for trace in self.found:
            result: Any = trace.again(*values)
            if result is not _MISSED:
                return result  # type: ignore[no-any-return]
        if self.tried >= MOST:
            return for_one()
        self.tried += 1
        made = traced(numbers, find)
        if made is None:
            return for_one()
        self.found.append(made)
        return made.again(*values)  # type: ignore[no-any-return]


def traced(numbers: Mapping[_K, int], find: Callable[[Mapping[_K, int]], Any]) -> Trace | None:
    """Runs an analysis, of these numbers, and gives what it leaves; None where it is one that cannot be traced."""
    recorder = Recorder()
    given: dict[_K, Any] = {k: recorder.new(n) for k, n in numbers.items()}
    names = ", ".join(n.name for n in given.values())
    try:
        result = _text(find(given), recorder)
    except Exception:  # among others what the analysis raises for these numbers: `for_one` does so too
        return None
    finally:
        recorder.closed = True
    lines = "".join(f"    {line}\n" for line in (*recorder.lines, f"return {result}"))
    space = {"missed": _MISSED, **dict(recorder.constants.values())}
    exec(f"def again({names}):\n{lines}", space)
    return Trace(space["again"])


def _text(x: Any, recorder: Recorder) -> str:
    """An expression for a result."""
    if not _depends(x):
        return recorder.name(x)
    if isinstance(x, Traced):
        return recorder.name(x)
    if isinstance(x, dict):
        return f"{{{', '.join(f'{_text(k, recorder)}: {_text(v, recorder)}' for k, v in x.items())}}}"
    if isinstance(x, tuple | list):
        opened, closed = "()" if isinstance(x, tuple) else "[]"
        return f"{opened}{''.join(f'{_text(e, recorder)}, ' for e in x)}{closed}"
    if id(x) not in recorder.parts:
        made = f"{recorder.name(type(x))}({', '.join(_text(getattr(x, f.name), recorder) for f in fields(x))})"
        name = recorder.parts[id(x)] = f"r{len(recorder.parts)}"
        recorder.lines.append(f"{name} = {made}")
    return recorder.parts[id(x)]


def _depends(x: Any) -> bool:
    """True if a result has a traced value in it. Nodes of kernels have none: they were there before."""
    if isinstance(x, Traced):
        return True
    if type(x) is dict:
        return any(_depends(k) or _depends(v) for k, v in x.items())
    if type(x) in (tuple, list):
        return any(map(_depends, x))
    if type(x) in (set, frozenset):
        return _refused(any(map(_depends, x)))
    if x is None or isinstance(x, str | int | float) or type(x).__module__.startswith(_WITHOUT):
        return False
    if not is_dataclass(x) or isinstance(x, type):
        raise TypeError("such a result is not traced")
    known = fields(x)
    return any(_depends(getattr(x, f.name)) for f in known) and not _refused(not all(f.init for f in known))


def _refused(holds: bool) -> bool:
    if holds:
        raise TypeError("such a result is not traced")
    return False


__all__ = ["Traces", "recorded", "traced"]
