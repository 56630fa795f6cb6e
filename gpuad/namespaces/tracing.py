"""Functions that know nothing of gpuad, as they are: `trace` puts the differentiable names of NumPy and CuPy in the place of their own for
the time of a call, `value_and_grad` records them on a tape that it keeps, and gives their value and gradients.

The names are those of the modules in which a function and what it calls are written: `np`, `cp`, `cupyx`, their modules, functions of them
that were imported by name, and kernels of CuPy's that the modules have made. Installed packages are left as they are."""

from __future__ import annotations

import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import update_wrapper, wraps
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from ..arguments.annotations import Duplicated
from ..arguments.arrays import as_array, is_array, namespace
from ..arguments.recorder import current
from ..context_variables import scoped
from ..errors import ArgumentTypeError, ArgumentValueError, TapeError
from ..interop import Pushing
from ..public_calls import called, index, public, show
from ..tape.facade import Tape
from .making import carries
from .names import Namespace, replacement

_PACKAGES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OWN = __package__.partition(".")[0]


@public
def trace(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is called with gpuad's names in the place of NumPy's and CuPy's, wherever its own modules say them.

    For programs whose imports cannot be changed; where they can, `import gpuad.numpy as np` does the same. The names are put back when the
    call ends, also by an exception. Raises ArgumentTypeError for what is no Python function."""
    if not callable(function):
        raise ArgumentTypeError(f"trace takes a function, not {show(function)}.")

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        with _replaced(function):
            return function(*args, **keywords)

    return call


_lock = threading.RLock()
_inside: dict[int, tuple[int, dict[str, Any], dict[str, Any]]] = {}  # by the module's names: how many calls, the names, what they were


@contextmanager
def _replaced(function: Any) -> Iterator[None]:
    entered: list[int] = []
    try:
        with _lock:
            entered.extend(_enter(names) for names in _modules(function))
        yield
    finally:
        with _lock:
            for key in entered:
                _leave(key)


def _enter(names: dict[str, Any]) -> int:
    count, _, before = _inside.get(id(names), (0, names, {}))
    if not count:
        for name, value in list(names.items()):
            other = replacement(value)
            if other is not value:
                before[name] = value
                names[name] = other
    _inside[id(names)] = (count + 1, names, before)
    return id(names)


def _leave(key: int) -> None:
    count, names, before = _inside[key]
    if count > 1:
        _inside[key] = (count - 1, names, before)
        return
    names.update(before)
    del _inside[key]


def _modules(function: Any) -> list[dict[str, Any]]:
    """The names of the modules that a function, and what these modules have, are written in."""
    found: dict[int, dict[str, Any]] = {}
    waiting = [_names_of(function)]
    while waiting:
        names = waiting.pop()
        if names is None or id(names) in found or not _is_users(names):
            continue
        found[id(names)] = names
        waiting += [_names_of(value) for value in list(names.values())]
    return list(found.values())


def _names_of(x: Any) -> dict[str, Any] | None:
    """The names that code of an object sees."""
    if isinstance(x, Namespace):
        return None
    if isinstance(x, ModuleType):
        return vars(x)
    inner = getattr(x, "__func__", getattr(x, "__wrapped__", x)) if not isinstance(x, FunctionType | type) else x
    if isinstance(inner, FunctionType):
        return inner.__globals__
    module = sys.modules.get(getattr(inner, "__module__", None) or "") if isinstance(x, type) or callable(x) else None
    return vars(module) if module is not None and not isinstance(module, Namespace) else None


def _is_users(names: dict[str, Any]) -> bool:
    """True if a module is neither installed nor Python's."""
    file, name = names.get("__file__"), str(names.get("__name__", ""))
    if name.partition(".")[0] in (_OWN, "numpy", "cupy", "cupyx", "builtins", "sys"):
        return False
    if file is None:  # built in, or typed in
        return name == "__main__" or names.get("__spec__") is None
    return not str(file).startswith(_PACKAGES)


# --- gradients ---------------------------------------------------------------------------------------------------------------------------


class ValueAndGrad:
    """What `value_and_grad` makes: called with the function's arguments, it gives the value and the gradients. `tape`: the tape that it
    keeps."""

    def __init__(self, function: Callable[..., Any], argnums: tuple[int, ...] | None, one: bool, keywords: dict[str, Any]) -> None:
        self.function, self.argnums, self.tape = trace(function), argnums, Tape(**keywords)
        self._pairs: dict[int, Duplicated] = {}
        self._one = one
        update_wrapper(self, function)

    def __call__(self, *args: Any, **keywords: Any) -> tuple[Any, Any]:
        if current.get() is not None:
            raise TapeError("value_and_grad inside of a tape: call the function itself, which that tape records")
        chosen = self._chosen(args)
        given = [self._given(k, x) if k in chosen else x for k, x in enumerate(args)]
        with self.tape:
            found = self.function(*given, **keywords)
        value = self._value(found)
        handed = {k: given[k] for k in chosen}
        for k, pair in handed.items():
            if pair is not args[k]:
                pair.shadow[...] = 0
        self.tape.reverse({found: 1.0}, allow_unused=True)
        gradients = tuple(pair.shadow if pair is args[k] else _like(pair.shadow.copy(), args[k]) for k, pair in handed.items())
        return value, gradients[0] if self._one or (self.argnums is None and len(gradients) == 1) else gradients

    def flat(self, *args: Any, **keywords: Any) -> Flat:
        """The same as a function of one vector, as optimisers take it: `minimize(f, f.start, jac=True)`. `args`: where it begins, and what
        has no gradient."""
        return Flat(self, args, keywords)

    def _chosen(self, args: Sequence[Any]) -> tuple[int, ...]:
        """The places of the arguments that gradients are wanted of."""
        if self.argnums is None:
            chosen = tuple(k for k, x in enumerate(args) if isinstance(x, Duplicated) or _is_numbers(x))
        else:
            chosen = tuple(k for k in self.argnums)
            if any(not 0 <= k < len(args) for k in chosen):
                raise ArgumentValueError(f"value_and_grad: argnums {self.argnums} of a call with {len(args)} arguments")
        if not chosen:
            raise ArgumentTypeError(f"{called(self.function)}: no argument is an array of floats, so there is no gradient; say argnums")
        return chosen

    def _given(self, k: int, x: Any) -> Duplicated:
        """The argument as a pair: the caller's own, or one whose memory is the same in each call, so that the tape knows the program."""
        if isinstance(x, Duplicated):
            return x
        if not _is_numbers(x) and not isinstance(x, float | complex):
            raise ArgumentTypeError(f"{called(self.function)}: argument {k} is {show(x)}, no array of floats, and has no gradient")
        array = as_array(x) if is_array(as_array(x)) else np.asarray(x)
        known = self._pairs.get(k)
        if known is None or known.shape != array.shape or known.dtype != array.dtype or type(known.primal) is not type(array):
            known = self._pairs[k] = Duplicated(array.copy())
        else:
            known.primal[...] = array
        return known

    def _value(self, found: Any) -> Any:
        """The number that the function returned."""
        if not isinstance(found, Duplicated) or found.size != 1 or found.dtype.kind != "f":
            shown = repr(found) if isinstance(found, Duplicated) else show(found)
            raise ArgumentTypeError(
                f"{called(self.function)} returned {shown}: value_and_grad takes functions whose result is one real number that depends on "
                "the arguments"
            )
        return float(found.primal.reshape(()))


def _is_numbers(x: Any) -> bool:
    array: Any = as_array(x)
    return is_array(array) and carries(array.dtype)


def _like(gradient: Any, x: Any) -> Any:
    """The gradient of a Python number as a number."""
    return gradient.item() if isinstance(x, float | complex) else gradient


class Flat:
    """A function's value and gradient as those of one vector of float64, for optimisers that take one: of NumPy, on the host. `start`: the
    vector of the arguments that it was made with; complex numbers are two of its numbers."""

    def __init__(self, whole: ValueAndGrad, args: Sequence[Any], keywords: dict[str, Any]) -> None:
        self.whole, self._keywords = whole, keywords
        self._places = whole._chosen(args)
        self._args = [x.primal if k in self._places and isinstance(x, Duplicated) else x for k, x in enumerate(args)]
        given = {k: self._args[k] for k in self._places}
        self._like = {k: as_array(x) if _is_numbers(x) else np.asarray(x) for k, x in given.items()}
        self.start = self._vector(given.values())

    def __call__(self, x: Any, *args: Any) -> tuple[float, Any]:
        """Gives the value and the gradient at a vector. `args`: in the place of the arguments that have no gradient, if there are any."""
        given = self._given(x)
        if args:
            rest = [k for k in range(len(given)) if k not in self._places]
            if len(args) != len(rest):
                raise ArgumentTypeError(f"{called(self.whole.function)}: {len(rest)} arguments have no gradient, {len(args)} are given")
            for k, value in zip(rest, args, strict=True):
                given[k] = value
        value, gradients = self.whole(*given, **self._keywords)
        return value, self._vector(gradients if isinstance(gradients, tuple) else (gradients,))

    def arrays(self, x: Any) -> Any:
        """The arguments that a vector stands for: a tuple, or one alone."""
        given = self._given(x)
        found = tuple(given[k] for k in self._places)
        return found[0] if len(found) == 1 else found

    def _given(self, x: Any) -> list[Any]:
        x = np.asarray(x)
        if x.shape != self.start.shape:
            raise ArgumentValueError(
                f"{called(self.whole.function)}: a vector of {self.start.size} numbers, not an array of shape {x.shape}"
            )
        given, at = list(self._args), 0
        for k, like in self._like.items():
            count = int(like.size) * (2 if like.dtype.kind == "c" else 1)
            part = np.array(x[at : at + count], np.float64)
            part = (part.view(np.complex128) if like.dtype.kind == "c" else part).reshape(like.shape).astype(like.dtype)
            given[k] = part.item() if isinstance(self._args[k], float | complex) else namespace(like).asarray(part)
            at += count
        return given

    def _vector(self, arrays: Iterable[Any]) -> Any:
        flat = [np.asarray(a.get() if hasattr(a, "get") else a) for a in arrays]
        wide = [a.astype(np.complex128 if a.dtype.kind == "c" else np.float64).ravel().view(np.float64) for a in flat]
        return np.concatenate(wide)


@public
def value_and_grad(function: Callable[..., Any], argnums: int | Sequence[int] | None = None, **keywords: Any) -> ValueAndGrad:
    """A function that gives the value of `function`, a float, and its gradients.

        loss = gpuad.value_and_grad(misfit)
        value, (dk, dv) = loss(k, v, steps)

    `function`: of arrays and whatever else, written with NumPy's or CuPy's names (`trace`), that returns one real number. `argnums`: the
    places of the arguments that gradients are wanted of: one (the result is one gradient), or several (a tuple); by default all that are
    arrays of real or complex numbers. Where one is a `Duplicated`, its gradient is added to its shadow. The tape is kept: a call with
    arrays of the same shapes is known to it. `keywords` go to the Tape (`budget=`). Raises ArgumentTypeError where the result is not one
    number that depends on an argument, TapeError inside of a tape."""
    if not callable(function):
        raise ArgumentTypeError(f"value_and_grad takes a function, not {show(function)}.")
    one = index(argnums) if argnums is not None else None
    places: tuple[int, ...] | None
    if argnums is None or one is not None:
        places = None if one is None else (one,)
    elif isinstance(argnums, tuple | list) and all(index(k) is not None for k in argnums):
        places = tuple(int(k) for k in argnums)
    else:
        raise ArgumentTypeError(f"value_and_grad: `argnums` is a whole number, or a tuple of them, not {show(argnums)}.")
    return ValueAndGrad(function, places, one is not None, keywords)


@public
def jvp(function: Callable[..., Any], args: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """Gives the value of a function and its derivative along a direction: forward mode, at about twice the cost of the function.

    `function`: of arrays and whatever else, written with NumPy's or CuPy's names (`trace`). `args`: a tuple of its arguments. `tangents`:
    as many directions, of the arguments' shapes and types, None for what has none. Several results are tuples, in both parts; of a result
    that is no array of floats the derivative is None. Raises UnsupportedError for operations that have no forward mode (determinants,
    Cholesky, eigenvalues, singular values, QR, cumulative and other products, sorting), ArgumentTypeError and ArgumentValueError for
    directions that do not fit."""
    if not callable(function):
        raise ArgumentTypeError(f"jvp takes a function, not {show(function)}.")
    if not isinstance(args, tuple | list) or not isinstance(tangents, tuple | list) or len(args) != len(tangents):
        raise ArgumentTypeError("jvp: `args` and `tangents` are tuples of the same length")
    given = [x if t is None else _with_direction(k, x, t) for k, (x, t) in enumerate(zip(args, tangents, strict=True))]
    with scoped(current, Pushing()):
        found = trace(function)(*given)
    parts = [_parted(x) for x in (found if isinstance(found, tuple) else (found,))]
    return (tuple(p[0] for p in parts), tuple(p[1] for p in parts)) if isinstance(found, tuple) else parts[0]


def _with_direction(k: int, x: Any, direction: Any) -> Duplicated:
    if not _is_numbers(x) and not isinstance(x, float | complex):
        raise ArgumentTypeError(f"jvp: argument {k} is {show(x)}, no array of floats, and has no direction")
    array = as_array(x) if is_array(as_array(x)) else np.asarray(x)
    given = namespace(array).asarray(direction)
    if given.shape != array.shape or (given.dtype.kind == "c" and array.dtype.kind != "c"):
        raise ArgumentValueError(f"jvp: argument {k} is {show(array)}, its direction {show(given)}")
    return Duplicated(array.copy(), given.astype(array.dtype))


def _parted(x: Any) -> tuple[Any, Any]:
    """A result and its derivative."""
    if isinstance(x, Duplicated):
        return x.primal, x.shadow
    plain = _is_numbers(x)
    return x, namespace(as_array(x)).zeros(as_array(x).shape, as_array(x).dtype) if plain else None
