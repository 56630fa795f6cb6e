"""The functions of `scipy.special` and `cupyx.scipy.special` that are elementwise: each an expression in CUDA, which is differentiated as a
user's kernel is.

An expression has `{0}` and `{1}` for its operands, `{t}` for the type and `{f}` for the suffix of functions of single precision."""

from __future__ import annotations

# log of the normal distribution: far below 0 by the scaled complement, whose factor exp(-x^2 / 2) is not formed
_ROOT = "({t})0.7071067811865476"
_LOG_NDTR = f"{{0}} < -1 ? log{{f}}(erfcx{{f}}(-{{0}} * {_ROOT}) / 2) - {{0}} * {{0}} / 2 : log1p{{f}}(-erfc{{f}}({{0}} * {_ROOT}) / 2)"
_OTHERWISE = "{0} != {0} || {1} != {1} ? {0} + {1} : ({t})1 / 0"
_INSIDE = "{0} > 0 && {1} > 0 ? {0} * log{f}({0} / {1})"
_REL_ENTR = f"{_INSIDE} : {{0}} == 0 && {{1}} >= 0 ? ({{t}})0 : {_OTHERWISE}"
_KL_DIV = f"{_INSIDE} - {{0}} + {{1}} : {{0}} == 0 && {{1}} >= 0 ? {{1}} : {_OTHERWISE}"
_XLOGY = "{0} == 0 && (!({1} > 0) || isinf({1})) ? ({1} != {1} ? {1} : ({t})0) : {0} * log{f}({1})"
_XLOG1PY = _XLOGY.replace("> 0)", "> -1)").replace("log{f}", "log1p{f}")
_HUBER = "{0} < 0 ? ({t})1 / 0 : fabs{f}({1}) <= {0} ? {1} * {1} / 2 : {0} * (fabs{f}({1}) - {0} / 2)"
_PSEUDO_HUBER = "{0} < 0 ? ({t})1 / 0 : {0} == 0 ? ({t})0 : {0} * {0} * (sqrt{f}(({t})1 + ({1} / {0}) * ({1} / {0})) - 1)"

SPECIAL = (  # of scipy.special: name, expression, what it is
    ("erf", "erf{f}({0})", "The error function."),
    ("erfc", "erfc{f}({0})", "1 - erf(x), without cancellation."),
    ("erfcx", "erfcx{f}({0})", "exp(x^2) erfc(x)."),
    ("erfinv", "erfinv{f}({0})", "The inverse of erf."),
    ("erfcinv", "erfcinv{f}({0})", "The inverse of erfc."),
    ("gamma", "tgamma{f}({0})", "The gamma function of real numbers."),
    ("gammaln", "lgamma{f}({0})", "The logarithm of the absolute value of the gamma function."),
    ("expit", "({t})1 / (({t})1 + exp{f}(-{0}))", "The logistic function 1 / (1 + exp(-x))."),
    ("log_expit", "{0} < 0 ? {0} - log1p{f}(exp{f}({0})) : -log1p{f}(exp{f}(-{0}))", "The logarithm of expit(x)."),
    ("logit", "log{f}({0} / (({t})1 - {0}))", "The inverse of expit."),
    ("ndtr", "normcdf{f}({0})", "The distribution function of the normal distribution."),
    ("ndtri", "normcdfinv{f}({0})", "The inverse of ndtr."),
    ("log_ndtr", _LOG_NDTR, "The logarithm of ndtr(x), also far below 0."),
    ("j0", "j0{f}({0})", "The Bessel function of the first kind, of order 0."),
    ("j1", "j1{f}({0})", "The Bessel function of the first kind, of order 1."),
    ("y0", "y0{f}({0})", "The Bessel function of the second kind, of order 0."),
    ("y1", "y1{f}({0})", "The Bessel function of the second kind, of order 1."),
    ("i1", "cyl_bessel_i1{f}({0})", "The modified Bessel function of the first kind, of order 1."),
    ("exp10", "exp10{f}({0})", "10 ** x."),
    ("rsqrt", "rsqrt{f}({0})", "1 / sqrt(x), as CuPy has it."),
    ("entr", "{0} > 0 ? -{0} * log{f}({0}) : {0} == 0 ? ({t})0 : {0} < 0 ? -({t})1 / 0 : {0}", "-x log(x), 0 at 0."),
    ("xlogy", _XLOGY, "x log(y), 0 where x is 0."),
    ("xlog1py", _XLOG1PY, "x log(1 + y), 0 where x is 0."),
    ("rel_entr", _REL_ENTR, "x log(x / y), 0 where x is 0."),
    ("kl_div", _KL_DIV, "x log(x / y) - x + y."),
    ("huber", _HUBER, "Half the square of y up to |y| = x, linear beyond."),
    ("pseudo_huber", _PSEUDO_HUBER, "A smooth huber(x, y)."),
    ("betaln", "lgamma{f}({0}) + lgamma{f}({1}) - lgamma{f}({0} + {1})", "The logarithm of the beta function of positive numbers."),
)  # fmt: skip
