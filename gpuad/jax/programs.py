"""`gpuad.jax.program`: a recorded program of in-place launches as one function of JAX, in three operations of its own.

    run        arrays -> outputs; where a derivative is wanted, on a tape, and a ticket for it
    tangent    tangents of the arrays -> those of the outputs, linear
    reverse    cotangents of the outputs -> those of the arrays, linear: its transpose

JAX's functions are pure: a pullback may be called several times, later, or not at all, and a run may be made once for two. So a tape is
nothing but what spares a second run. It waits under its ticket for one reverse; where it is gone, the program is recorded anew from its
arrays, which `reverse` is given as well."""

from __future__ import annotations

import inspect
import itertools
import threading
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad

from ..api import outside_of_tapes
from ..arguments.annotations import Duplicated
from ..arguments.arrays import address, namespace
from ..arguments.recorder import Recorder, current
from ..context_variables import scoped
from ..errors import LaunchError, UnsupportedError
from ..interop import Pushing, Running, Session, outputs_of
from ..ir.dtypes import is_real
from .callbacks import callback, conjugate, differentiated_once, is_zero, no_tangent, number, primitive, shape, transposable
from .launches import dtype_named

_TICKET = np.dtype(np.uint32)


@overload
def program(
    fn: Callable[..., Any], *, outputs: Any, constant: Collection[str] = ..., budget: int | float | str | None = ..., tapes: int = ...
) -> Program: ...


@overload
def program(
    fn: None = None, *, outputs: Any, constant: Collection[str] = ..., budget: int | float | str | None = ..., tapes: int = ...
) -> Callable[[Callable[..., Any]], Program]: ...


def program(
    fn: Callable[..., Any] | None = None, *, outputs: Any, constant: Collection[str] = (), budget: int | float | str | None = None,
    tapes: int = 16,
) -> Any:  # fmt: skip
    """A function of pairs as a function of JAX's arrays.

        @gpuad.jax.program(outputs="u")
        def simulate(u, v, k):                    # pairs, as `gpuad.Duplicated`
            for _ in range(100):
                step[grid, block](v, u, k, n)
                u, v = v, u
            return u

    `fn` gets a `Duplicated` for each array of floats, an array for any other, and everything else as it is (hashable: the function is
    compiled for it); it launches kernels and uses `gpuad.ops`, and returns a pair or a tuple of pairs. `outputs`: what comes
    back, one or a sequence: the name of a parameter that an output is like, in whose memory it is where that is donated
    (`donate_argnums`); or a `jax.ShapeDtypeStruct`; or a function of parameters by their names that gives one. `constant`: names of
    parameters that carry no gradient and that the program does not overwrite; they are passed as arrays. `budget`: as of `gpuad.Tape`.
    `tapes`: how many may wait for their reverse; of runs beyond that the program runs again.

    jit, grad, vmap (one run for each element), scan, checkpoint work; jvp where all that depends on the inputs are launches and elementwise
    operations. Second derivatives are refused (UnsupportedError). Raises LaunchError for what does not fit, while it is traced, and as a
    tape does, when it runs, inside of JAX's own error."""
    if fn is None:
        return lambda own: Program(own, outputs, constant, budget, tapes)
    return Program(fn, outputs, constant, budget, tapes)


class Program:
    """A recorded program; made by `gpuad.jax.program`."""

    def __init__(
        self, fn: Callable[..., Any], outputs: Any, constant: Collection[str], budget: int | float | str | None, tapes: int
    ) -> None:
        self.fn, self.outputs, self.constant = fn, outputs, frozenset(constant)
        self.signature = inspect.signature(fn)
        self.names = list(self.signature.parameters)
        self.sessions = _Sessions(budget, tapes)
        several = [p.name for p in self.signature.parameters.values() if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if several:
            raise LaunchError(f"`{fn.__name__}` takes any number of arguments (`{several[0]}`); a program's parameters have names")
        for name in (*sorted(self.constant), *(x for x in self._specs if isinstance(x, str))):
            if name not in self.names:
                raise LaunchError(f"`{fn.__name__}` has no parameter `{name}`; it has {', '.join(self.names)}")
        self.__name__ = fn.__name__

    def __repr__(self) -> str:
        return f"<program {self.__name__} for JAX>"

    @property
    def _specs(self) -> tuple[Any, ...]:
        return tuple(self.outputs) if isinstance(self.outputs, tuple | list) else (self.outputs,)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        outside_of_tapes(self.__name__, "a program of JAX")
        bound = self.signature.bind(*args, **keywords)
        bound.apply_defaults()
        given = [jnp.asarray(x) if isinstance(x, jax.Array | np.ndarray) else x for x in bound.arguments.values()]
        operands = [x for x in given if isinstance(x, jax.Array)]
        if not operands:
            raise LaunchError(f"`{self.__name__}`: a program takes at least one array")
        found = _run.bind(*operands, launch=self._run(given))
        return found[0] if len(found) == 1 else tuple(found)

    def _run(self, given: Sequence[Any]) -> Run:
        """What a call is, without its content."""
        arrays = tuple((tuple(x.shape), str(x.dtype)) if isinstance(x, jax.Array) else None for x in given)
        others = tuple(None if isinstance(x, jax.Array) else _Other(x, type(x), repr(x)) for x in given)
        for name, x in zip(self.names, others, strict=True):
            try:
                hash(x)
            except TypeError:
                raise LaunchError(
                    f"`{self.__name__}`: `{name}` is neither an array nor hashable ({type(given[self.names.index(name)]).__name__}); pass "
                    "each array as a parameter of its own"
                ) from None
        like = {
            n: jax.ShapeDtypeStruct(x.shape, x.dtype) if isinstance(x, jax.Array) else x for n, x in zip(self.names, given, strict=True)
        }
        outputs = [self._output(spec, like) for spec in self._specs]
        return Run(self, arrays, others, tuple(x for x, _ in outputs), tuple(k for _, k in outputs))

    def _output(self, spec: Any, like: dict[str, Any]) -> tuple[tuple[tuple[int, ...], str], int | None]:
        """Shape and dtype of an output, and the parameter whose memory it may have."""
        place = None
        if callable(spec) and not hasattr(spec, "shape"):
            spec = spec(*(like[name] for name in inspect.signature(spec).parameters))
        if isinstance(spec, str):
            place, spec = self.names.index(spec), like[spec]
        if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
            raise LaunchError(
                f"`{self.__name__}`: an output is said by the name of an array, a jax.ShapeDtypeStruct, or a function that gives one; "
                f"got {spec!r}"
            )
        return (tuple(map(int, spec.shape)), str(jnp.dtype(spec.dtype))), place


@dataclass(frozen=True)
class _Other:
    """What is no array; `text` tells 0.0 from -0.0."""

    value: Any
    kind: type
    text: str


@dataclass(frozen=True)
class Run:
    """A call of a program without its content: equal for calls that are alike. `arrays`, `outputs`: shapes and dtypes; `others`: what is no
    array; `places`: in which parameter's memory an output may be; `recorded`: whether it is for a derivative; `dotted`: positions of the
    arrays with tangents, or gradients."""

    own: Program
    arrays: tuple[tuple[tuple[int, ...], str] | None, ...]
    others: tuple[_Other | None, ...]
    outputs: tuple[tuple[tuple[int, ...], str], ...]
    places: tuple[int | None, ...]
    recorded: bool = False
    dotted: tuple[int, ...] = ()

    @property
    def order(self) -> list[int]:
        """The parameters that are arrays."""
        return [k for k, x in enumerate(self.arrays) if x is not None]

    @property
    def values(self) -> list[Any]:
        """What is no array, by position."""
        return [None if x is None else x.value for x in self.others]

    def paired(self, k: int) -> bool:
        """True if a parameter is a pair."""
        x = self.arrays[k]
        return x is not None and self.own.names[k] not in self.own.constant and _carries(dtype_named(x[1]))

    @property
    def results(self) -> list[int]:
        """The outputs that have tangents."""
        return [j for j, (_, dtype) in enumerate(self.outputs) if _carries(dtype_named(dtype))]

    @property
    def aliases(self) -> dict[int, int]:
        """Parameters in whose memory an output is: each the first that names it."""
        found: dict[int, int] = {}
        for j, k in enumerate(self.places):
            if k is not None and self.paired(k):
                found.setdefault(k, j)
        return found

    def checked(self, pairs: Sequence[Duplicated]) -> list[Any]:
        """The arrays of outputs. LaunchError if they are not what was said of them."""
        name = self.own.__name__
        if len(pairs) != len(self.outputs):
            raise LaunchError(f"`{name}` returned {len(pairs)} pairs, its outputs= says {len(self.outputs)}")
        for j, (pair, (size, dtype)) in enumerate(zip(pairs, self.outputs, strict=True)):
            if pair.shape != size or pair.dtype != dtype_named(dtype):
                raise LaunchError(f"`{name}`: output {j} is of {pair.dtype} {pair.shape}, its outputs= says {dtype} {size}")
        return [pair.primal for pair in pairs]

    def started(self, given: Sequence[Any], out: Sequence[Any]) -> list[Any]:
        """What a program without a tape is given: pairs and arrays of its own, those of outputs where they are to be."""
        args, aliases = self.values, self.aliases
        for k, x in zip(self.order, given, strict=True):
            array = out[aliases[k]] if k in aliases else x if self.own.names[k] in self.own.constant else x.copy()
            args[k] = Duplicated(array) if self.paired(k) else array
        return args

    def under(self, recorder: Recorder, args: Sequence[Any]) -> tuple[Duplicated, ...]:
        """Runs the program without a tape."""
        with scoped(current, recorder):
            return outputs_of(self.own.fn, self.own.fn(*args))


def _carries(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "c" or is_real(dtype)


class _Sessions:
    """Tapes with their arrays: those that are free, by what they are for, and those that wait for a reverse, by their tickets."""

    def __init__(self, budget: int | float | str | None, most: int) -> None:
        self.budget, self.most = budget, most
        self._free: dict[Hashable, list[Session]] = {}
        self._waiting: dict[int, tuple[Hashable, Session]] = {}
        self._tickets = itertools.cycle(range(1, 1 << 32))
        self._lock = threading.Lock()

    def recorded(self, run: Run, given: Sequence[Any]) -> Session:
        """A session that has recorded the program on these arrays. One in which the program fails is used no more."""
        with self._lock:
            free = self._free.get(_kind(run, given), [])
            session = free.pop() if free else None
        if session is None:
            library, own = namespace(given[0]), list[Any]([None] * len(run.arrays))
            for k, x in zip(run.order, given, strict=True):
                own[k] = library.empty(x.shape, x.dtype)
                own[k] = Duplicated(own[k]) if run.paired(k) else own[k]
            session = Session(own, self.budget)
        for k, x in zip(run.order, given, strict=True):
            home = session.given[k]
            (home.primal if isinstance(home, Duplicated) else home)[...] = x
        session.record(run.own.fn, run.values)
        return session

    def keep(self, run: Run, given: Sequence[Any], session: Session) -> int:
        """A ticket for a session, that waits; the oldest of too many waits no longer."""
        with self._lock:
            ticket = next(self._tickets)
            self._waiting[ticket] = _kind(run, given), session
            while len(self._waiting) > self.most:
                self._release(*self._waiting.pop(next(iter(self._waiting))))
        return ticket

    def take(self, ticket: int) -> Session | None:
        """The session of a ticket, if it still waits."""
        with self._lock:
            return self._waiting.pop(ticket, (None, None))[1]

    def free(self, run: Run, given: Sequence[Any], session: Session) -> None:
        """Another run may use it."""
        with self._lock:
            self._release(_kind(run, given), session)

    def _release(self, kind: Hashable, session: Session) -> None:
        self._free.setdefault(kind, []).append(session)


def _kind(run: Run, given: Sequence[Any]) -> Hashable:
    """What the arrays of a session are for."""
    return run.arrays, namespace(given[0]).__name__, getattr(getattr(given[0], "device", None), "id", None)


def _deliver(found: Sequence[Any], out: Sequence[Any]) -> None:
    """Copies outputs to where they are to be; what lies where another is to be goes first into a copy."""
    here = [address(x) for x in out]
    kept = [x if address(x) == at else x.copy() if address(x) in here else x for x, at in zip(found, here, strict=True)]
    for x, target, at in zip(kept, out, here, strict=True):
        if address(x) != at:
            target[...] = x


# --- the operations ---------------------------------------------------------------------------------------------------------------------


def _run_results(*_: Any, launch: Run) -> list[Any]:
    return [*(shape(*x) for x in launch.outputs), *([shape((), _TICKET)] if launch.recorded else [])]


def _run_work(*operands: Any, launch: Run) -> list[Any]:
    def plain(out: list[Any], given: list[Any]) -> None:
        _deliver(launch.checked(launch.under(Running(), launch.started(given, out))), out)

    def taped(out: list[Any], given: list[Any]) -> None:
        sessions = launch.own.sessions
        session = sessions.recorded(launch, given)
        for target, x in zip(out, launch.checked(session.outputs), strict=False):
            target[...] = x
        out[-1].fill(sessions.keep(launch, given, session))

    aliases = {} if launch.recorded else {launch.order.index(k): j for k, j in launch.aliases.items()}
    return callback(taped if launch.recorded else plain, _run_results(launch=launch), operands, aliases)


def _run_jvp(primals: Sequence[Any], dots: Sequence[Any], *, launch: Run) -> Any:
    dotted = tuple(k for k, dot in zip(launch.order, dots, strict=True) if launch.paired(k) and not is_zero(dot))
    if not dotted or not launch.results:
        found = _run.bind(*primals, launch=launch)
        return found, list(map(no_tangent, found))
    own = replace(launch, recorded=True, dotted=dotted)
    found = _run.bind(*primals, launch=own)
    moved = [ad.instantiate_zeros(dot) for k, dot in zip(launch.order, dots, strict=True) if k in dotted]
    pushed = dict(zip(launch.results, _tangent.bind(*primals, found[-1], *moved, launch=own), strict=True))
    found = found if launch.recorded else found[:-1]
    return found, [pushed[j] if j in pushed else no_tangent(x) for j, x in enumerate(found)]


def _held(launch: Run) -> int:
    return len(launch.order) + 1


def _tangent_results(*_: Any, launch: Run) -> list[Any]:
    return [shape(*launch.outputs[j]) for j in launch.results]


def _tangent_work(*operands: Any, launch: Run) -> list[Any]:
    def work(out: list[Any], given: list[Any]) -> None:
        arrays, dots = given[: len(launch.order)], given[_held(launch) :]
        session = launch.own.sessions.take(number(given[len(arrays)]))
        if session is not None:
            launch.own.sessions.free(launch, arrays, session)
        args = replace(launch, places=()).started(arrays, ())
        for k, dot in zip(launch.dotted, dots, strict=True):
            args[k].shadow[...] = dot
        pairs = launch.under(Pushing(), args)
        launch.checked(pairs)
        for j, target in zip(launch.results, out, strict=True):
            target[...] = pairs[j].shadow

    return callback(work, _tangent_results(launch=launch), operands, {})


def _reverse_results(*operands: Any, launch: Run) -> list[Any]:
    return [shape(*x) for k in launch.dotted if (x := launch.arrays[k]) is not None]


def _reverse_work(*operands: Any, launch: Run) -> list[Any]:
    def work(out: list[Any], given: list[Any]) -> None:
        arrays, sessions = given[: len(launch.order)], launch.own.sessions
        session = sessions.take(number(given[len(arrays)])) or sessions.recorded(launch, arrays)
        seeds = dict(zip(launch.results, given[_held(launch) :], strict=True))
        session.reverse([seeds.get(j) for j in range(len(launch.outputs))])
        for k, target in zip(launch.dotted, out, strict=True):
            target[...] = session.given[k].shadow
        sessions.free(launch, arrays, session)

    held, seeds = operands[: _held(launch)], map(conjugate, operands[_held(launch) :])
    return [conjugate(x) for x in callback(work, _reverse_results(launch=launch), [*held, *seeds], {})]


_run = primitive("gpuad_program", _run_work, _run_results)
_tangent = primitive("gpuad_program_tangent", _tangent_work, _tangent_results)
_reverse = primitive("gpuad_program_reverse", _reverse_work, _reverse_results)
ad.primitive_jvps[_run] = _run_jvp
transposable(_tangent, _held, lambda seeds, held, launch: _reverse.bind(*held, *seeds, launch=launch))
transposable(_reverse, _held, lambda dots, held, launch: _tangent.bind(*held, *dots, launch=launch))
for _operation in (_tangent, _reverse):
    differentiated_once(
        _operation, _held,
        lambda run: UnsupportedError(f"`{run.own.__name__}`: a program is differentiated once; second derivatives come in a later release"),
    )  # fmt: skip
