"""Calls of operations in a program that is known, bound as a whole: what is expected of their arguments, and all that they do.

An operation is a function of gpuad's that looks at what its arguments are and never at what is in them. So a call of it with the arguments
of the last round, at the same place of the program, comes to the same steps. These are one list of actions here, which is done after one
look at the arguments; the function itself is not called. Where the look finds anything else, it is, and its steps are compared one by one.
Some look into arrays of their arguments, as at places (`by_content`): those are compared by their bytes, too.

In: a function, its arguments, and the tape that records. Out: its result. Assumed: what `trace_replay` assumes of a known program.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...arguments.annotations import Duplicated
from ...arguments.arrays import address, is_array
from ...runtime.actions import Action, copying, out_of_memory
from ...runtime.array_locks import derived
from ..memory.buffers import Outline, Part, loading, outline
from ..memory.temporaries import Made, Seen, Temporary
from ..record.call_keys import MadeKey, arrays_of, same, same_array
from ..record.operations import Renewed
from ..record.trace import Op
from ..status import RECORDING, interrupted_by
from .batching import batched, direct
from .trace_replay import Repeating

_MANY = 1 << 12  # views that are kept
_MOST_BYTES = 1 << 16  # of an array that is compared by its bytes
_TRIES = 3  # a call that is another one each time is not bound for ever


# How an argument is compared with the one that is expected:
_IS = 0  # the very object
_HANDLE = 1  # of an array that an operation made, or of the same view of it
_NUMBER = 2
_PAIR = 3  # the very pair, with its array laid out as it was
_ARRAY = 4  # the same memory, or what the same buffer stands for
_PARTS = 5  # of a list or tuple
_SAME = 6  # slices, NumPy's numbers, types
_WRITTEN = 8  # a number by how it is written, with the signs of its zeros
_CONTENT = 7  # an array, of which no step works on the memory, by its bytes

Expected: TypeAlias = "tuple[int, Any, Any]"
Result: TypeAlias = Callable[[Sequence[Any]], Any]


class BoundCall:
    """A call of a function at a place of the program. `expected`: of its arguments, those by `names` last; `actions`: of its ops, as they
    were when they had changed so often (`version`); `locks`: the arrays that are locked with them; `after`: the op that comes after it, of
    number `end`; `result`: what makes that which it gives, where that is no handle of an array `made`, or of what is `seen` of it."""

    __slots__ = ("actions", "after", "end", "expected", "locks", "made", "names", "result", "seen", "version")

    def __init__(
        self,
        names: tuple[str, ...],
        expected: Sequence[Expected],
        actions: tuple[Action, ...],
        locks: tuple[tuple[Any, bool], ...],
        end: int,
        after: Op,
        version: int,
        gives: Any,
        result: Result,
    ) -> None:
        self.names, self.expected, self.actions, self.locks = names, expected, actions, locks
        self.end, self.after, self.version, self.result = end, after, version, result
        self.made: Made | None = gives._made_by if type(gives) is Temporary else None
        self.seen: Seen | None = gives._seen if type(gives) is Temporary else None


class Unbound(Exception):
    """A call that is not bound: it is looked at step by step each time."""


class BoundCalls:
    """Those of a `tape`, by the number of the step at which each begins and the function."""

    def __init__(self, tape: Repeating) -> None:
        self._tape, self._cursor, self._guard, self._staging = tape, tape.cursor, tape.guard, tape.made.staging
        self.forget()

    def forget(self) -> None:
        """Another program is recorded."""
        self._calls: dict[tuple[int, Any], BoundCall | None] = {}
        self._tries: dict[tuple[int, Any], int] = {}
        self._views: dict[tuple[int, Hashable], tuple[Any, Any, Any]] = {}
        self._pairs: dict[int, Any] | None = None  # of the program, and views of them: objects that are kept as long as it is known

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any], by_content: bool = False) -> Any:
        """The function's result for the arguments; what it does is recorded, or done again. `by_content`: it looks into plain arrays."""
        cursor = self._cursor
        if cursor.expected is None:
            return function(*args, **keywords)
        begin = cursor.at
        bound = self._calls.get((begin, function))
        if bound is not None and bound.version == self._tape.trace.version and tuple(keywords) == bound.names:
            given = (*args, *keywords.values()) if keywords else args
            taken: list[tuple[Any, Any]] = []
            if len(given) == len(bound.expected):
                for x, (kind, a, b) in zip(given, bound.expected):  # noqa: B905  # of the same length; this is most of what a call takes
                    if kind == _HANDLE:
                        if (type(x) is not Temporary or x._seen is not a) and not _is_handle(x, b):
                            break
                    elif kind == _NUMBER:
                        if type(x) is not b or x != a or not (x or repr(x) == repr(a)):
                            break
                    elif x is not a if kind == _IS else not self._is_expected(x, kind, a, b, taken):
                        break
                else:
                    if self._tape.state is RECORDING and not self._guard.opened:
                        return self._again(bound, given, taken)
        program = cursor.program
        result = function(*args, **keywords)
        key = begin, function
        if cursor.expected is not None and cursor.program is program and cursor.at > begin and self._tries.get(key, 0) < _TRIES:
            self._tries[key] = self._tries.get(key, 0) + 1
            self._calls[key] = self._bound(args, keywords, begin, result, by_content)
        return result

    # --- a call that comes again ---------------------------------------------------------------------------------------------------------

    def _is_expected(self, x: Any, kind: int, a: Any, b: Any, taken: list[tuple[Any, Any]]) -> bool:
        if kind == _HANDLE:
            return _is_handle(x, b)
        if kind == _NUMBER:
            return type(x) is b and x == a and bool(x or repr(x) == repr(a))
        if kind == _PAIR:
            return x is a and _laid_out(x) == b
        if kind == _ARRAY:
            return x is a or self._is_array(x, a, b, taken)
        if kind == _PARTS:
            if type(x) is not b or len(x) != len(a):
                return False
            return all(self._is_expected(y, each[0], each[1], each[2], taken) for y, each in zip(x, a, strict=True))
        if kind == _CONTENT:
            return type(x) is np.ndarray and (x.shape, x.dtype) == b and x.tobytes() == a
        if kind == _WRITTEN:
            return type(x) is b and repr(x) == a
        return x is a or (kind == _SAME and type(x) is type(a) and same(a, x))

    def _is_array(self, x: Any, a: Any, like: Outline, taken: list[tuple[Any, Any]]) -> bool:
        """True if an array is what a step works on, or what the buffer stands for on which it does."""
        if type(x) is not np.ndarray:
            return False
        alike = type(a) is np.ndarray and x.shape == a.shape and x.strides == a.strides and x.dtype == a.dtype
        if not (alike and address(x) == address(a)) and not self._staging.takes_alone(x, a, like):  # another view of the same memory is it
            found = self._known(x, like)
            if found is not a and not same_array(a, found):
                return False
        taken.append((a, x))
        return True

    def _known(self, x: Any, like: Outline) -> Any:
        """An array as the tape knows it."""
        return self._staging.arguments((self._tape.made.inside(x),), (like,), None)[0]

    def _again(self, bound: BoundCall, given: tuple[Any, ...], taken: Sequence[tuple[Any, Any]]) -> Any:
        cursor = self._cursor
        for array, is_made in bound.locks:
            self._guard.locks.lock(array, is_made)
        for a, x in taken:
            self._guard.take_place(a, x)
        try:
            for action in bound.actions:
                if action():
                    raise out_of_memory(action)
        except BaseException as error:
            op = cursor.expected
            self._tape.state = interrupted_by(error, f"at operation {cursor.at} ({op.key.name if op is not None else ''})")
            raise
        cursor.at, cursor.expected = bound.end, bound.after
        return bound.result(given) if bound.made is None else Temporary(bound.made, bound.seen)

    # --- a call that was made step by step -----------------------------------------------------------------------------------------------

    def _bound(self, args: tuple[Any, ...], keywords: dict[str, Any], begin: int, result: Any, by_content: bool) -> BoundCall | None:
        """The result of a call, if it is known by its arguments."""
        ops, given = self._cursor.passed[begin:], (*args, *keywords.values())
        try:
            _check(ops, by_content)
            worked_on = [array for op in ops for x in op.key.args for array in arrays_of(x)]
            expected = tuple(self._expected(x, worked_on, by_content) for x in given)
            gives = _result(result, given, [op.key.made for op in ops if isinstance(op.key, MadeKey)])
            if not by_content:
                self._refuse_found(ops, given)
        except Unbound:
            return None
        locks = tuple(lock for op in ops for lock in op.locks)
        load = _restoring if by_content else loading  # what it made of arrays that it looked into is what it is now
        actions = tuple(map(direct, batched(action for op in ops for action in (*load(op.loads), *op.actions))))
        own, version, after = None if any(result is x for x in given) else result, self._tape.trace.version, self._cursor.expected
        assert after is not None
        return BoundCall(tuple(keywords), expected, actions, locks, self._cursor.at, after, version, own, gives)

    def _refuse_found(self, ops: Sequence[Op], given: Sequence[Any]) -> None:
        """Raises Unbound where an op works on a plain array that is neither the tape's nor the caller's: the function has made it, perhaps
        of what it has looked at."""
        came = [self._known(x, None) for x in _parts(given) if type(x) is np.ndarray]
        for x in _parts(x for op in ops for x in op.key.args):
            plain = is_array(x) and x.size and not self._tape.made.is_own(x)
            if type(x) is dict or (plain and not any(np.may_share_memory(x, a) for a in came)):
                raise Unbound

    def _expected(self, x: Any, worked_on: Sequence[Any], by_content: bool) -> Expected:
        """The expectation of an argument. Unbound for one that says less of a call than its content does."""
        kind = type(x)
        if kind is Temporary:
            if x._made_by is None or x.owner is not self._tape:
                raise Unbound
            return _HANDLE, x._seen, x.inner
        if kind in (int, float, bool, complex):
            return (_NUMBER if kind is not complex else _WRITTEN), x if kind is not complex else repr(x), kind
        if x is None or isinstance(x, type):
            return _IS, x, None
        if kind in (str, slice) or isinstance(x, np.dtype | np.generic):
            return _SAME, x, None
        if kind in (list, tuple):
            return _PARTS, tuple(self._expected(part, worked_on, by_content) for part in x), kind
        if kind is np.ndarray:
            known = self._known(x, None)
            found = next((a for a in worked_on if a is known or (type(a) is np.ndarray and same_array(a, known))), None)
            if by_content and not any(np.may_share_memory(a, known) for a in worked_on) and x.nbytes <= _MOST_BYTES:
                return _CONTENT, x.tobytes(), (x.shape, x.dtype)
            if found is not None and not by_content:
                return _ARRAY, found, outline(found)
        if isinstance(x, Duplicated) and id(x) in self._program_pairs:
            return _PAIR, x, _laid_out(x)
        raise Unbound

    # --- views ---------------------------------------------------------------------------------------------------------------------------

    @property
    def _program_pairs(self) -> dict[int, Any]:
        if self._pairs is None:
            ops = self._cursor.program.ops if self._cursor.program is not None else ()
            pairs = [x for op in ops for x in op.key.args if isinstance(x, Duplicated)]
            self._pairs = {id(x): x for pair in pairs for x in (pair, pair._of) if x is not None}
        return self._pairs

    def view_of(self, pair: Any, key: Hashable, make: Callable[[], Any]) -> Any:
        """The view of a pair that `make` makes, or that which it made before for what `key` says: of pairs that are kept anyway."""
        if self._cursor.expected is None:
            return make()
        primal = pair._primal
        laid_out = _laid_out(pair)
        known = self._views.get((id(pair), key))
        if known is not None and known[0] is pair and known[2] == laid_out:
            view = known[1]
            if isinstance(primal, np.ndarray) and not primal.flags.writeable and view._primal.flags.writeable:
                view._primal.flags.writeable = False  # as what is made of a locked array is
                derived(view._primal, primal)
            return view
        view = make()
        if id(pair) in self._program_pairs and len(self._views) < _MANY:
            self._views[id(pair), key] = pair, view, laid_out
            self._program_pairs[id(view)] = view
        return view


def _is_handle(x: Any, pair: Any) -> bool:
    """True if it is a handle of what a tape knows as this pair."""
    return type(x) is Temporary and x.inner is pair


def _parts(given: Iterable[Any]) -> Iterator[Any]:
    """Arguments, and what is in lists and tuples of them."""
    for x in given:
        if type(x) in (list, tuple):
            yield from _parts(x)
        else:
            yield x


def _check(ops: Sequence[Op], by_content: bool) -> None:
    """Raises Unbound for ops that take more than their actions, and for those that touch what arrays say."""
    for op in ops:
        if op.check is not None or op.stream is not None or op.stores or op.key.what is Renewed:
            raise Unbound
        if not by_content and getattr(op.key, "regions", None):
            raise Unbound
        if isinstance(op.key, MadeKey) and op.key.made.stream is not None:
            raise Unbound


def _restoring(parts: Sequence[Part]) -> tuple[Action, ...]:
    """The actions that put back into parts of buffers what they hold now."""
    return tuple(copying(part.elements, part.elements.copy()) for part in parts)


def _laid_out(pair: Any) -> tuple[Any, ...]:
    """The layout of a pair's arrays in their memory, which their owner may change in place."""
    primal, shadow = pair._primal, pair._shadow
    return primal.shape, primal.strides, primal.dtype, None if shadow is None else (shadow.shape, shadow.strides)


def _result(x: Any, given: Sequence[Any], made: Sequence[Made]) -> Result:
    """The function that gives the like of a result."""
    if x is None:
        return lambda given: None
    place = next((k for k, y in enumerate(given) if y is x), None)
    if place is not None:
        return lambda given, place=place: given[place]  # type: ignore[misc]
    if type(x) is Temporary and x._made_by is not None:
        maker, seen = x._made_by, x._seen
        return lambda given: Temporary(maker, seen)
    if type(x) is tuple and x:
        parts = [_result(part, given, made) for part in x]
        return lambda given: tuple(part(given) for part in parts)
    found = next((m for m in made if m._view() is x), None)
    if found is None:
        raise Unbound
    return lambda given: found.handed_out()


__all__ = ["BoundCalls"]
