"""The table of partial derivatives, one entry a function.

An entry takes the arguments and the result as expressions and gives one `Partial` per argument. `singular` partials may be infinite or
NaN where the function itself is finite (sqrt at 0): the chain rule then forms no term for a seed that is exactly 0. It forms none either
where the partial itself may have overflowed, as that of exp (`analysis.infinities`); tables of `ir.functions` say what happens at infinity.

Conventions where a function has a kink or a jump, each with a test:

| at | derivative |
|---|---|
| `fabs(0)` | 0 |
| `fmin(a, b)`, `fmax(a, b)` with a == b | all to the first argument; a NaN argument gets none |
| `pow(x, y)` for `y` at x == 0 | 0; no logarithm is formed for `x` |
| `pow(x, 0)` for `x` | 0 |
| `hypot(0, 0)`, `atan2(0, 0)` | 0 for both |
| `sqrt(0)` | infinite, but 0 if its seed is 0 |
| `exp`, `cosh`, `pow` and others of `OVERFLOWING` where they are infinite | infinite, but 0 if their seed is 0 |
| `log`, `sqrt` and others of `GROWING` where their argument has overflowed | infinite, but 0 if their seed is 0 |
| `fmod(x, y)`, `remainder(x, y)` | 1 for x, `-n` for y, of `x - n y` |
| floor, ceil, trunc, round, rint | 0 |
| rounding to half precision or to bfloat16 | 1 |
| `__saturatef` at 0 and 1 | 1 |
| `copysign(x, y)` | ±1 for x by the signs, 0 for y |
| `nextafter(x, y)` | 1 for x, 0 for y |
| a conversion to an integer | 0 |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..ir import folding as b
from ..ir.functions import GROWING, SATURATING, STEPS
from ..ir.nodes import Binary, Call, Constant, Expr, Var
from ..ir.types import BOOL, F64


@dataclass(frozen=True)
class Decay:
    """A partial as two factors: `first` is exactly 0 where an argument has overflowed, `second` about as large as one over the argument.
    The slope of an exponential in there is multiplied by the second first: the product of both leaves the range of the type long before
    that exponential does. `where`: a condition without which the function does not decay. None: it always does."""

    first: Expr
    second: Expr
    where: Expr | None = None


@dataclass(frozen=True)
class Partial:
    """d(result)/d(argument) as an expression; None where it is identically zero. `decay`: the same where arguments may overflow."""

    value: Expr | None
    singular: bool = False
    decay: Decay | None = None


_FAR, _LEVELS = 5, 18  # from where on a continued fraction of so many levels is exact to all digits of a double
_NEAR = 0.01  # exponents of less than that make a power of any number about one

Rule: TypeAlias = "Callable[..., tuple[Partial, ...]]"

RULES: dict[str, Rule] = {}
DECAYS: dict[str, Callable[..., tuple[Decay | None, ...]]] = {}


def partials(expr: Call, result: Expr) -> tuple[Partial, ...] | None:
    """The partials of a call, one an argument, with `result` standing for its value; None if the table has no entry."""
    if (rule := RULES.get(expr.function)) is None:
        return None
    found = rule(*expr.arguments, r=result)
    if (decays := DECAYS.get(expr.function)) is None:
        return found
    return tuple(replace(p, decay=d) for p, d in zip(found, decays(*expr.arguments, r=result), strict=True))


def as_quotient(call: Call) -> Binary | None:
    """The quotient that a function stands for, None if it is none."""
    if call.function in ("__frcp_rn", "__drcp_rn"):
        return Binary("/", _k(1, call), call.arguments[0], call.type)
    if call.function in ("__fdividef", "__fdiv_rn", "__ddiv_rn"):
        return Binary("/", call.arguments[0], call.arguments[1], call.type)
    return None


def grows(call: Call) -> bool:
    """True if a function tends to infinity at infinity while its slope tends to 0."""
    if call.function in ("pow", "__powf"):
        return isinstance(call.arguments[1], Constant) and 0 < call.arguments[1].value < 1
    return call.function in GROWING


def saturates(call: Call) -> bool:
    """True if a function may be finite at infinity."""
    if call.function in ("pow", "__powf") and isinstance(call.arguments[1], Constant):
        return bool(call.arguments[1].value < 0)
    return call.function in SATURATING


def beyond(partial: Expr, argument: Expr) -> Expr:
    """The slope of such a function where the argument may have overflowed. Of 0 nothing follows there: the value is infinite, and so is
    then the slope."""
    return b.select(Call("isinf", (argument,), BOOL), argument, partial)


def _rule(*names: str, singular: bool = False) -> Callable[[Callable[..., Expr | tuple[Expr | None, ...] | None]], None]:
    def register(function: Callable[..., Expr | tuple[Expr | None, ...] | None]) -> None:
        def rule(*args: Expr, r: Expr) -> tuple[Partial, ...]:
            values = function(*args, r)
            return tuple(Partial(v, singular) for v in (values if isinstance(values, tuple) else (values,)))

        for name in names:
            RULES[name] = rule

    return register


def _k(value: float, like: Expr) -> Expr:
    return b.const(value, like.type)


def _square(x: Expr) -> Expr:
    return b.mul(x, x)


def _sign(x: Expr) -> Expr:
    return b.select(b.compare(">", x, _k(0, x)), _k(1, x), b.select(b.compare("<", x, _k(0, x)), _k(-1, x), _k(0, x)))


def _gauss(x: Expr, scale: float, width: float) -> Expr:
    return b.mul(_k(scale, x), b.call("exp", b.mul(_k(width, x), _square(x))))


_rule("sqrt", "__fsqrt_rn", "__dsqrt_rn", singular=True)(lambda x, r: b.div(_k(0.5, x), r))
_rule("rsqrt", "__frsqrt_rn", singular=True)(lambda x, r: b.mul(_k(-0.5, x), b.mul(r, _square(r)) if isinstance(r, Var) else b.div(r, x)))
_rule("cbrt", singular=True)(lambda x, r: b.div(_k(1, x), b.mul(_k(3, x), _square(r))))
_rule("rcbrt", singular=True)(lambda x, r: b.div(r, b.mul(_k(-3, x), x)))
_rule("exp", "__expf")(lambda x, r: r)
_rule("exp2")(lambda x, r: b.mul(_k(math.log(2), x), r))
_rule("exp10", "__exp10f")(lambda x, r: b.mul(_k(math.log(10), x), r))
_rule("expm1")(lambda x, r: b.call("exp", x))  # of r + 1 nothing is left where x is far below 0
_rule("log", "__logf", singular=True)(lambda x, r: b.div(_k(1, x), x))
_rule("log2", "__log2f", singular=True)(lambda x, r: b.div(_k(1 / math.log(2), x), x))
_rule("log10", "__log10f", singular=True)(lambda x, r: b.div(_k(1 / math.log(10), x), x))
_rule("log1p", singular=True)(lambda x, r: b.div(_k(1, x), b.add(_k(1, x), x)))
_rule("sin")(lambda x, r: b.call("cos", x))
_rule("cos")(lambda x, r: b.neg(b.call("sin", x)))
_rule("__sinf")(lambda x, r: b.call("__cosf", x))
_rule("__cosf")(lambda x, r: b.neg(b.call("__sinf", x)))
_rule("tan", "__tanf")(lambda x, r: b.add(_k(1, x), _square(r)))
_rule("sinpi")(lambda x, r: b.mul(_k(math.pi, x), b.call("cospi", x)))
_rule("cospi")(lambda x, r: b.mul(_k(-math.pi, x), b.call("sinpi", x)))
_rule("asin", singular=True)(lambda x, r: b.call("rsqrt", _rest_of_square(x)))
_rule("acos", singular=True)(lambda x, r: b.neg(b.call("rsqrt", _rest_of_square(x))))
_rule("atan")(lambda x, r: b.div(_k(1, x), b.add(_k(1, x), _square(x))))
_rule("sinh")(lambda x, r: b.call("cosh", x))
_rule("cosh")(lambda x, r: b.call("sinh", x))
_rule("tanh", "__tanhf")(lambda x, r: _square(b.div(_k(1, x), b.call("cosh", x))))  # nothing is left of 1 - r * r where x is large
_rule("asinh")(lambda x, r: b.div(_k(1, x), b.call("hypot", x, _k(1, x))))  # the square of x may leave the range of its type
_rule("acosh", singular=True)(lambda x, r: b.mul(b.call("rsqrt", b.sub(x, _k(1, x))), b.call("rsqrt", b.add(x, _k(1, x)))))
_rule("atanh", singular=True)(lambda x, r: b.div(_k(1, x), _rest_of_square(x)))
_rule("erf")(lambda x, r: _gauss(x, 2 / math.sqrt(math.pi), -1))
_rule("erfc")(lambda x, r: _gauss(x, -2 / math.sqrt(math.pi), -1))
_rule("erfinv", singular=True)(lambda x, r: _gauss(r, math.sqrt(math.pi) / 2, 1))
_rule("erfcinv", singular=True)(lambda x, r: _gauss(r, -math.sqrt(math.pi) / 2, 1))
_rule("normcdf")(lambda x, r: _gauss(x, 1 / math.sqrt(2 * math.pi), -0.5))
_rule("normcdfinv", singular=True)(lambda x, r: _gauss(r, math.sqrt(2 * math.pi), 0.5))
_rule("j0")(lambda x, r: b.neg(b.call("j1", x)))
_rule("j1")(lambda x, r: _bessel_slope(x, b.sub(b.call("j0", x), b.div(r, x)), -1))
_rule("y0", singular=True)(lambda x, r: b.neg(b.call("y1", x)))
_rule("y1", singular=True)(lambda x, r: b.sub(b.call("y0", x), b.div(r, x)))
_rule("cyl_bessel_i0", singular=True)(lambda x, r: b.call("cyl_bessel_i1", x))
_rule("cyl_bessel_i1", singular=True)(lambda x, r: _bessel_slope(x, b.sub(b.call("cyl_bessel_i0", x), b.div(r, x)), 1))
_rule("jn")(lambda n, x, r: (None, _of_order("j", n, x)))
_rule("yn", singular=True)(lambda n, x, r: (None, _of_order("y", n, x)))
_rule("lgamma", singular=True)(lambda x, r: b.call("gpuad_digamma", x))
_rule("tgamma", singular=True)(lambda x, r: b.mul(r, b.call("gpuad_digamma", x)))
_rule("gpuad_digamma", singular=True)(lambda x, r: b.call("gpuad_trigamma", x))
_rule("fabs")(lambda x, r: _sign(x))
_rule(*STEPS)(lambda x, r: None)
_rule("gpuad_half", "gpuad_bfloat16")(lambda x, r: _k(1, x))
_rule("__saturatef")(lambda x, r: b.select(_within(x), _k(1, x), _k(0, x)))
_rule("__frcp_rn", "__drcp_rn", singular=True)(lambda x, r: b.neg(_square(r)))

_rule("fmod", "remainder")(lambda x, y, r: (_k(1, x), b.neg(_quotient(x, y, r))))
_rule("__fadd_rn", "__dadd_rn")(lambda x, y, r: (_k(1, x), _k(1, x)))
_rule("__fsub_rn", "__dsub_rn")(lambda x, y, r: (_k(1, x), _k(-1, x)))
_rule("__fmul_rn", "__dmul_rn")(lambda x, y, r: (y, x))
_rule("__fdividef", "__fdiv_rn", "__ddiv_rn", singular=True)(lambda x, y, r: (b.div(_k(1, x), y), b.neg(b.div(r, y))))
_rule("fma", "__fmaf_rn", "__fma_rn")(lambda x, y, z, r: (y, x, _k(1, x)))
_rule("nextafter")(lambda x, y, r: (_k(1, x), None))
_rule("ldexp")(lambda x, n, r: (Call("ldexp", (_k(1, x), n), x.type), None))
_rule("rhypot", singular=True)(lambda x, y, r: tuple(b.neg(b.mul(b.mul(b.mul(v, r), r), r)) for v in (x, y)))


def _rest_of_square(x: Expr) -> Expr:
    """`1 - x^2`, rounded once, whose own derivative is `-2 x`: that of `(1 - x) (1 + x)` is a difference of which little is left near 0."""
    return b.call("fma", b.neg(x), x, _k(1, x))


def _bessel_slope(x: Expr, far: Expr, sign: int) -> Expr:
    """The derivative of j1 (sign -1) or of the modified function (1), which is `far` away from 0. Near 0 that is a difference of which its
    own derivative loses all digits; there the power series (Abramowitz and Stegun, 9.1.10 and 9.6.10)."""
    quarter = b.mul(_k(0.25, x), _square(x))
    series = _k(0, x)
    for k in reversed(range(11 if x.type == F64 else 6)):
        coefficient = sign**k * (2 * k + 1) / (2 * math.factorial(k) * math.factorial(k + 1))
        series = b.add(_k(coefficient, x), b.mul(quarter, series))
    return b.select(b.compare("<", b.call("fabs", x), _k(1, x)), series, far)


def _quotient(x: Expr, y: Expr, r: Expr) -> Expr:
    """The whole number n of `r = x - n y`, which is that of the primal: `x / y` may be rounded to the next one. Exact up to 2^51 (2^22 in
    single precision), to the last digit beyond."""
    return b.call("rint", b.div(b.sub(x, r), y))


def _of_order(kind: str, n: Expr, x: Expr) -> Expr:
    """The derivative of jn or yn, half of the difference of the neighbours, which CUDA has for orders of 0 and more only."""
    below, above = (Call(f"{kind}n", (b.add(n, b.const(step, n.type)), x), x.type) for step in (-1, 1))
    return b.select(b.compare("==", n, b.const(0, n.type)), b.neg(b.call(f"{kind}1", x)), b.mul(_k(0.5, x), b.sub(below, above)))


def _within(x: Expr) -> Expr:
    inside = b.both(b.compare(">=", x, _k(0, x)), b.compare("<=", x, _k(1, x)))
    assert inside is not None
    return inside


def _first(op: str, x: Expr, y: Expr) -> tuple[Expr, Expr]:
    """Selectors of fmin and fmax: the first argument wins ties and wins against NaN."""
    unordered = b.compare("!=", y, y)
    wins = b.compare(op, x, y)
    return (
        b.select(wins, _k(1, x), b.select(unordered, _k(1, x), _k(0, x))),
        b.select(wins, _k(0, x), b.select(unordered, _k(0, x), _k(1, x))),
    )


_rule("fmin")(lambda x, y, r: _first("<=", x, y))
_rule("fmax")(lambda x, y, r: _first(">=", x, y))


@_rule("fdim")
def _fdim(x: Expr, y: Expr, r: Expr) -> tuple[Expr, Expr]:
    above = b.compare(">", x, y)
    return b.select(above, _k(1, x), _k(0, x)), b.select(above, _k(-1, x), _k(0, x))


@_rule("copysign")
def _copysign(x: Expr, y: Expr, r: Expr) -> tuple[Expr, None]:
    return b.select(b.compare("==", Call("signbit", (x,), BOOL), Call("signbit", (y,), BOOL)), _k(1, x), _k(-1, x)), None


@_rule("erfcx")
def _erfcx(x: Expr, r: Expr) -> Expr:
    """`2 x r - 2 / sqrt(pi)`, of which for large x nothing is left; there Laplace's continued fraction `r = 1 / (sqrt(pi) (x + rest))`
    (Abramowitz and Stegun, 7.1.14) gives the difference itself."""
    return b.select(b.compare(">", x, _k(_FAR, x)), b.mul(_k(-2, x), b.mul(r, _laplace_rest(x))), _erfcx_difference(x, r))


def _laplace_rest(x: Expr) -> Expr:
    rest = b.div(_k(_LEVELS / 2, x), x)
    for level in range(_LEVELS - 1, 0, -1):
        rest = b.div(_k(level / 2, x), b.add(x, rest))
    return rest


def _erfcx_difference(x: Expr, r: Expr) -> Expr:
    return b.sub(b.mul(_k(2, x), b.mul(x, r)), _k(2 / math.sqrt(math.pi), x))


@_rule("hypot")
def _hypot(x: Expr, y: Expr, r: Expr) -> tuple[Expr, Expr]:
    at_zero = b.compare("==", r, _k(0, x))
    return tuple(b.select(at_zero, _k(0, x), _share(v, other, r)) for v, other in ((x, y), (y, x)))  # type: ignore[return-value]


def _share(x: Expr, other: Expr, r: Expr) -> Expr:
    """`x / r`, whose derivative `(1 - (x / r)^2) / r` is lost where x is far longer than the other side; there `1 - (r - x) / r`."""
    size = b.call("fabs", x)
    rest = b.mul(b.div(other, r), b.div(other, b.add(r, size)))
    long = b.mul(_sign(x), b.sub(_k(1, x), rest))
    return b.select(b.compare(">", size, b.call("fabs", other)), long, b.div(x, r))


@_rule("atan2")
def _atan2(y: Expr, x: Expr, r: Expr) -> tuple[Expr, Expr]:
    norm = b.call("hypot", x, y)  # its square would leave the range of the type where the derivative does not
    at_zero = b.compare("==", norm, _k(0, x))
    return b.select(at_zero, _k(0, x), b.div(b.div(x, norm), norm)), b.select(at_zero, _k(0, x), b.neg(b.div(b.div(y, norm), norm)))


@_rule("pow", "__powf", singular=True)
def _pow(x: Expr, y: Expr, r: Expr) -> tuple[Expr, Expr]:
    return _slope_of_base(x, y), b.select(b.compare("==", x, _k(0, x)), _k(0, x), b.mul(r, b.call("log", x)))


def _slope_of_base(x: Expr, y: Expr) -> Expr:
    """`y x^(y - 1)`; for exponents near 0 `y / x` times the power, which is about one: the derivative of the other would overflow where
    that is multiplied by a small y. The latter is 0 at y == 0 and has its own derivative there, 1 / x for y."""
    slope = b.mul(y, b.call("pow", x, b.sub(y, _k(1, x))))
    if not _nonzero(y):
        slope = b.select(b.compare("==", y, _k(0, x)), _k(0, x), slope)
    if not isinstance(y, Constant):
        near = b.both(b.compare("<", b.call("fabs", y), _k(_NEAR, y)), b.compare(">", b.call("fabs", x), _k(0, x)))
        assert near is not None
        slope = b.select(near, b.mul(b.call("pow", x, y), b.div(y, x)), slope)
    return slope


def _nonzero(y: Expr) -> bool:
    return bool(getattr(y, "value", 0))


def _decays(*names: str) -> Callable[[Callable[..., tuple[Decay | None, ...]]], None]:
    def register(function: Callable[..., tuple[Decay | None, ...]]) -> None:
        for name in names:
            DECAYS[name] = function

    return register


_decays("rsqrt", "__frsqrt_rn")(lambda x, r: (Decay(b.mul(_k(-0.5, x), r), _square(r)),))
_decays("rcbrt")(lambda x, r: (Decay(b.mul(_k(-1 / 3, x), r), b.mul(r, _square(r))),))
_decays("rhypot")(lambda x, y, r: tuple(Decay(b.chain(r, b.neg(b.mul(v, r))), r) for v in (x, y)))


@_decays("atan")
def _atan_decays(x: Expr, r: Expr) -> tuple[Decay | None, ...]:
    root = b.div(_k(1, x), b.call("hypot", _k(1, x), x))
    return (Decay(root, root),)


@_decays("atan2")
def _atan2_decays(y: Expr, x: Expr, r: Expr) -> tuple[Decay | None, ...]:
    norm = b.call("hypot", x, y)
    over = b.select(b.compare("==", norm, _k(0, x)), _k(0, x), b.div(_k(1, x), norm))
    lost = b.compare("==", over, _k(0, x))
    return tuple(Decay(b.select(lost, _k(0, x), b.mul(v, over)), over) for v in (x, b.neg(y)))


@_decays("erfcx")
def _erfcx_decays(x: Expr, r: Expr) -> tuple[Decay | None, ...]:
    far = b.compare(">", x, _k(_FAR, x))
    second = b.select(far, b.mul(_k(-2, x), _laplace_rest(x)), _k(1, x))
    return (Decay(b.select(far, r, _erfcx_difference(x, r)), second, far),)


@_decays("pow", "__powf")
def _pow_decays(x: Expr, y: Expr, r: Expr) -> tuple[Decay | None, ...]:
    if isinstance(y, Constant) and y.value >= 0:
        return None, None
    far = b.both(b.compare(">", b.call("fabs", x), _k(1, x)), b.compare("<", y, _k(0, y)))
    assert far is not None
    near = b.mul(y, b.call("pow", x, b.sub(y, _k(1, x)))) if isinstance(y, Constant) else b.chain(b.call("pow", x, b.sub(y, _k(1, x))), y)
    base = Decay(b.select(far, r, near), b.select(far, b.div(y, x), _k(1, x)), far)
    at_zero, zero = b.compare("==", x, _k(0, x)), _k(0, x)
    return base, Decay(b.select(at_zero, zero, r), b.select(at_zero, zero, b.call("log", x)), far)
