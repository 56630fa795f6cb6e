"""Functions of `scipy.special` and `cupyx.scipy.special` that are computed by the library's own code, as rules with their derivatives.

In: numbers and arrays, annotated or not, that broadcast. Out: what the library gives for them, a pair if an operand carries a gradient.
Raises ShadowError for a gradient by an argument that has no derivative here, UnsupportedError without SciPy, TapeError for a pair outside
of a tape."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arguments.annotations import Active, Duplicated
from ..errors import ShadowError, UnsupportedError
from ..public_calls import named
from ..tape.rules import rule
from .adjoints import add_to, library_of, scipy_of
from .elementwise import apply, as_pair, check_recorded
from .layout import primal_of
from .plain_results import bare, library_behind
from .reductions import result_for

Derivative = Callable[..., Any]  # of SciPy's module, NumPy's or CuPy's, and the arguments
_DEGREE = math.pi / 180


def _rgamma(s: Any, xp: Any, x: Any) -> Any:
    pole = (x <= 0) & (x == xp.floor(x))
    n = xp.where(pole, -x, 0.0)
    return xp.where(pole, xp.where(n % 2 == 0, 1.0, -1.0) * s.gamma(n + 1), -s.psi(xp.where(pole, 1.0, x)) * s.rgamma(x))


def _exprel(s: Any, xp: Any, x: Any) -> Any:
    small = abs(x) < 1e-2  # where the difference would cancel
    series = 0.5 + x * (1 / 3 + x * (1 / 8 + x * (1 / 30 + x / 144)))
    return xp.where(small, series, (xp.exp(x) - s.exprel(x)) / xp.where(small, 1.0, x))


def _gamma_density(s: Any, xp: Any, a: Any, x: Any) -> Any:
    return xp.exp(s.xlogy(a - 1, x) - x - s.gammaln(a))


def _beta_density(s: Any, xp: Any, a: Any, b: Any, x: Any) -> Any:
    return xp.exp(s.xlogy(a - 1, x) + s.xlog1py(b - 1, -x) - s.betaln(a, b))


def _chi_density(s: Any, xp: Any, v: Any, x: Any) -> Any:
    return _gamma_density(s, xp, v / 2, x / 2) / 2


def _boxcox(s: Any, xp: Any, x: Any, p: Any) -> Any:
    """The derivative by the exponent, of log(x) = `x`."""
    near = abs(p * x) < 1e-3
    safe = xp.where(near, 1.0, p)
    return xp.where(near, x * x * (0.5 + p * x * (1 / 3 + p * x / 8)), (xp.exp(safe * x) * (safe * x - 1) + 1) / safe**2)


def _unboxed(s: Any, xp: Any, y: Any, p: Any) -> Any:
    """The derivative by the exponent."""
    near = abs(p * y) < 1e-3
    safe = xp.where(near, 1.0, p)
    power = xp.where(near, -y * y * (0.5 - p * y * (2 / 3 - 0.75 * p * y)), y / (safe * (1 + safe * y)) - xp.log1p(safe * y) / safe**2)
    return s.inv_boxcox(y, p) * power


_RULES: dict[str, tuple[Derivative | None, ...]] = {
    "digamma": (lambda s, xp, x: s.polygamma(1, x),),
    "psi": (lambda s, xp, x: s.polygamma(1, x),),
    "rgamma": (_rgamma,),
    "exprel": (_exprel,),
    "exp1": (lambda s, xp, x: -xp.exp(-x) / x,),
    "expi": (lambda s, xp, x: xp.exp(x) / x,),
    "i0e": (lambda s, xp, x: s.i1e(x) - xp.sign(x) * s.i0e(x),),
    "i1e": (lambda s, xp, x: s.i0e(x) - xp.sign(x) * s.i1e(x) - xp.where(x == 0, 0.5, s.i1e(x) / xp.where(x == 0, 1.0, x)),),
    "k0": (lambda s, xp, x: -s.k1(x),),
    "k1": (lambda s, xp, x: -s.k0(x) - s.k1(x) / x,),
    "k0e": (lambda s, xp, x: s.k0e(x) - s.k1e(x),),
    "k1e": (lambda s, xp, x: s.k1e(x) - s.k0e(x) - s.k1e(x) / x,),
    "cosm1": (lambda s, xp, x: -xp.sin(x),),
    "sindg": (lambda s, xp, x: s.cosdg(x) * _DEGREE,),
    "cosdg": (lambda s, xp, x: -s.sindg(x) * _DEGREE,),
    "tandg": (lambda s, xp, x: (1 + s.tandg(x) ** 2) * _DEGREE,),
    "cotdg": (lambda s, xp, x: -(1 + s.cotdg(x) ** 2) * _DEGREE,),
    "ndtri_exp": (lambda s, xp, y: xp.exp(y + s.ndtri_exp(y) ** 2 / 2) * math.sqrt(2 * math.pi),),
    "polygamma": (None, lambda s, xp, n, x: s.polygamma(n + 1, x)),
    "zeta": (None, lambda s, xp, x, q: -x * s.zeta(x + 1, q)),
    "yn": (None, lambda s, xp, n, x: (s.yn(n - 1, x) - s.yn(n + 1, x)) / 2),
    "expn": (None, lambda s, xp, n, x: xp.where(n < 1, -xp.exp(-x) * (1 / x + 1 / x**2), -s.expn(xp.maximum(n, 1) - 1, x))),
    "beta": (
        lambda s, xp, a, b: s.beta(a, b) * (s.psi(a) - s.psi(a + b)),
        lambda s, xp, a, b: s.beta(a, b) * (s.psi(b) - s.psi(a + b)),
    ),
    "poch": (
        lambda s, xp, x, m: s.poch(x, m) * (s.psi(x + m) - s.psi(x)),
        lambda s, xp, x, m: s.poch(x, m) * s.psi(x + m),
    ),
    "gammainc": (None, _gamma_density),
    "gammaincc": (None, lambda s, xp, a, x: -_gamma_density(s, xp, a, x)),
    "gammaincinv": (None, lambda s, xp, a, y: 1 / _gamma_density(s, xp, a, s.gammaincinv(a, y))),
    "gammainccinv": (None, lambda s, xp, a, y: -1 / _gamma_density(s, xp, a, s.gammainccinv(a, y))),
    "chdtr": (None, _chi_density),
    "chdtrc": (None, lambda s, xp, v, x: -_chi_density(s, xp, v, x)),
    "chdtri": (None, lambda s, xp, v, y: -1 / _chi_density(s, xp, v, s.chdtri(v, y))),
    "pdtr": (None, lambda s, xp, k, m: -_gamma_density(s, xp, xp.floor(k) + 1, m)),
    "pdtrc": (None, lambda s, xp, k, m: _gamma_density(s, xp, xp.floor(k) + 1, m)),
    "betainc": (None, None, _beta_density),
    "betaincinv": (None, None, lambda s, xp, a, b, y: 1 / _beta_density(s, xp, a, b, s.betaincinv(a, b, y))),
    "boxcox": (lambda s, xp, x, p: x ** (p - 1), lambda s, xp, x, p: _boxcox(s, xp, xp.log(x), p)),
    "boxcox1p": (lambda s, xp, x, p: (1 + x) ** (p - 1), lambda s, xp, x, p: _boxcox(s, xp, xp.log1p(x), p)),
    "inv_boxcox": (lambda s, xp, y, p: s.inv_boxcox(y, p) ** (1 - p), _unboxed),
    "inv_boxcox1p": (lambda s, xp, y, p: (1 + s.inv_boxcox1p(y, p)) ** (1 - p), _unboxed),
}  # fmt: skip


def _slopes(out: Any, name: str, x: Any, y: Any, z: Any) -> list[Any]:
    """The derivatives by the arguments, or what makes them."""
    given = [v for v in (x, y, z) if v is not None]
    module, library = scipy_of(out, "special"), library_of(out)
    return [None if f is None else lambda f=f: f(module, library, *given) for f in _RULES[name]]


def _special_reverse(dx: Any, dy: Any, dz: Any, dout: Any, x: Any, y: Any, z: Any, name: str) -> None:
    for target, slope in zip((dx, dy, dz), _slopes(dout, name, x, y, z), strict=False):
        if target is not None:
            add_to(target, dout * slope())


def _special_tangent(dx: Any, dy: Any, dz: Any, out: Any, dout: Any, x: Any, y: Any, z: Any, name: str) -> None:
    total = 0.0
    for direction, slope in zip((dx, dy, dz), _slopes(out, name, x, y, z), strict=False):
        if direction is not None and slope is not None:
            total = total + direction * slope()
    dout[...] = total


@rule(
    reads=("x", "y", "z"), overwrites=("out",), needs={"x": "before", "y": "before", "z": "before"}, reverse=_special_reverse,
    tangent=_special_tangent,
)  # fmt: skip
def _special(x: Any, y: Any, z: Any, out: Any, name: str) -> None:
    out[...] = getattr(scipy_of(out, "special"), name)(*(v for v in (x, y, z) if v is not None))


def _function(name: str) -> Callable[..., Any]:
    slopes = _RULES[name]

    def function(*args: Any, out: Any = None) -> Any:
        library = library_behind(args)
        if importlib.util.find_spec("scipy" if library is np else "cupyx") is None:
            raise UnsupportedError(f"{name} is SciPy's, which is not installed")
        if len(args) != len(slopes):
            raise TypeError(f"{name}() takes {len(slopes)} arguments ({len(args)} given)")
        for k, (x, slope) in enumerate(zip(args, slopes, strict=True)):
            if slope is None and isinstance(x, Duplicated | Active):
                raise ShadowError(f"{name}: there is no derivative by argument {k} here; pass its `.primal`")
        check_recorded(name, (*args, out))
        if not any(isinstance(x, Duplicated | Active) for x in args):
            return getattr(scipy_of(library.empty(0), "special"), name)(*map(bare, args), **({} if out is None else {"out": out}))
        given = [as_pair(x) if isinstance(x, Active) else library.asarray(x) if not isinstance(x, Duplicated) else x for x in args]
        shapes = [primal_of(x).shape for x in given]
        empty = [library.ones((1,), primal_of(x).dtype) for x in given]
        dtype = getattr(scipy_of(empty[0], "special"), name)(*empty).dtype
        result = result_for(tuple(given), np.broadcast_shapes(*shapes), dtype)
        if primal_of(result).size:
            _special(*given, *[None] * (3 - len(given)), result, name)
        return result if out is None else apply("copyto", result, out=out)

    return named(function, name, f"As `scipy.special.{name}`.")


TABLE: dict[str, Callable[..., Any]] = {name: _function(name) for name in _RULES}
