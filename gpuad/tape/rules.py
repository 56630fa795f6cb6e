"""Rules: array code that gpuad does not differentiate itself, stated by what it does to memory and by a reverse of its own.

    def scale_reverse(x, da, dx, dy):
        dx += ...

    @gpuad.rule(reads=("x",), overwrites=("y",), needs={"x": "before"}, reverse=scale_reverse)
    def scale(x, y): ...

A rule never copies or keeps anything: it says which arrays its reverse reads, and in which version; the tape, which sees the whole program,
hands them over. Arguments reach both functions as plain arrays and numbers. The reverse is a module-level function; what it is called with
goes by the names of its parameters, for an array or Active number `x` of the rule:

* `x`: the version of the array that `needs` names (None where only gradients that were not asked for need it), or the value of an argument
  that is no array;
* `dx`: where `x` is read, its shadow, to be added to; where it is added to, its shadow, to be read only; where some elements are set, its
  shadow, of which the reverse has to read these elements and then clear them; where it is overwritten, what the shadow held, moved to
  memory of the reverse's own: the shadow itself is cleared by then;
* `dx_before`: where `x` is both read and overwritten, the cleared shadow, to be added to;
* `room`: `room(shape, dtype)` gives an array, not cleared, in memory of the tape, that may be used until the function returns. The rule's
  own function may have it as a last parameter too, `room=None`. A rule that takes its intermediates from there allocates nothing when a
  program runs again.

What has no shadow comes as None. An array that is in none of the lists is a constant: it is read, carries no gradient, and the reverse gets
it as it was at the call. So are arrays in tuples, lists and dicts that are passed. What is in other objects may not be changed later. What
the function does, be it launches of gpuad's kernels on the plain arrays, is the rule's own affair and is not recorded.

What is declared is checked (`declared`): arrays that a function may only read it gets as read-only views, of NumPy arrays; CuPy's are
compared, before and after, where a call is recorded and not repeated, and where a reverse runs for the first time. With `check="exact"` all
are compared, at each call. A reverse returns nothing, and binds no shadow anew. `gpuad.testing.check_rule` checks the rest by running it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ..arguments.annotations import Active, Duplicated
from ..arguments.arrays import namespace
from ..arguments.recorder import current
from ..errors import TapeError
from ..program.ir.region import Region
from ..public_calls import flag, mapping, public, texts
from ..runtime.tensor_versions import count_writes
from .record.rule_calls import is_array, plain
from .record.rule_declaration import ROOM, Declared, Effect


@public
def rule(
    *,
    reads: Sequence[str] = (),
    overwrites: Sequence[str] = (),
    adds: Sequence[str] = (),
    sets: Sequence[str] = (),
    needs: Mapping[str, str | tuple[str, ...]] | None = None,
    reverse: Callable[..., None] | None = None,
    pure: bool = False,
    linear: Sequence[Sequence[str]] = (),
    tangent: Callable[..., None] | None = None,
) -> Callable[[Callable[..., Any]], Rule]:
    """Makes a recorded operation of a Python function on arrays.

    `reads`, `overwrites`, `adds`, `sets`: names of parameters that are arrays (a number that may be Active is read). Every element of an
    overwritten one gets a new value, in one that is added to any element may grow, of one in `sets` some elements get new values. An array
    may be read and overwritten; it has one of the other three at most.
    `needs`: {parameter: 'before' or 'after'} for the arrays that the reverse reads; ('before', 'b', 'c') if only for the gradient of b
    or c.
    `reverse`: a module-level function, whose parameters the text of gpuad/tape/rules.py explains. It may also be set later:
    `f.reverse = function`.
    `pure`: whether what the function writes hangs on its arguments and what its arrays hold, and on nothing else, and it does nothing but
    write it: a tape with a budget may call it again then (where it is not, what it wrote is kept).
    `linear`: groups of the parameters that are read, in each of which the function is linear: (("a",), ("b",)) of a product, (("a", "b"),)
    of a sum. Forward mode goes through such a rule. `tangent`: a function that does it for another one; with `x`, the value (of what is
    overwritten the new one), and `dx`, the tangent, as parameters; it assigns the tangents of what is overwritten.
    Raises TypeError for names that do not fit.
    """
    named = {"reads": reads, "overwrites": overwrites, "adds": adds, "sets": sets}
    for what, names in named.items():
        texts(what, names)
    flag("pure", pure)
    mapping("needs", {} if needs is None else needs)
    for parameter, need in ({} if needs is None else needs).items():
        if not isinstance(need, str):
            texts(f"needs[{parameter!r}]", need)
    stated = {k: (v,) if isinstance(v, str) else tuple(v) for k, v in ({} if needs is None else needs).items()}
    effect = Effect(tuple(reads), tuple(overwrites), tuple(adds), tuple(sets), stated)

    def made(function: Callable[..., Any]) -> Rule:
        found = Rule(function, effect, reverse, pure)
        found.linear, found.tangent = tuple(map(tuple, linear)), tangent
        return found

    return made


class Rule(Declared):
    """A function with its effects and its reverse. Called outside of a tape on plain arrays it is the function."""

    @public
    def __call__(self, *args: Any, **keywords: Any) -> None:
        given = self.bound(*args, **keywords)
        given.apply_defaults()
        tape = current.get()
        if tape is not None:
            tape.rule(self, given.arguments, {})
            return
        if any(isinstance(x, Duplicated | Active) for x in given.arguments.values()):
            raise TapeError(f"{self.name} on a Duplicated outside of a tape is not recorded: enter one (`with tape:`), or pass `.primal`")
        values = {k: plain(x) for k, x in given.arguments.items()}
        if ROOM in values:
            values[ROOM] = partial(_new_room, next(x for x in values.values() if is_array(x)))
        try:
            self.function(**values)
        finally:
            count_writes(values.get(name) for name in self.effect.writes)

    def within(self, regions: Mapping[str, Region], *args: Any) -> None:
        """As a call, where it is known that less of some arrays is touched: bytes of their allocations."""
        tape = current.get()
        if tape is None:
            self(*args)
        else:
            tape.rule(self, self.bound(*args).arguments, regions)


def _new_room(like: Any, shape: Any, dtype: Any) -> Any:
    return namespace(like).empty(shape, dtype)
