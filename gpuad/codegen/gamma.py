"""The logarithmic derivative of the gamma function and its derivative, as C++ text that CUDA and the host share.

The argument is reflected to the positive side (DLMF 5.5.4) and moved up to 12 by the recurrence (5.5.2), where the asymptotic series
(5.11.2, and 5.15.8 for the second) has all digits of a double.
"""

from __future__ import annotations

_DIGAMMA = """
// psi(x), the derivative of lgamma: NaN at 0, -1, -2, ...
{prefix} double gpuad_digamma(double x)
{
    const double pi = 3.14159265358979323846;
    double sum = 0.0;
    if (x <= 0.0) {
        sum = -pi / tan(pi * (x - rint(x)));
        if (x == floor(x)) return sum - sum;
        x = 1.0 - x;
    }
    for (; x < 12.0; x += 1.0) sum -= 1.0 / x;
    const double s = 1.0 / (x * x);
    return sum + log(x) - 0.5 / x
        - s * (1.0 / 12 - s * (1.0 / 120 - s * (1.0 / 252 - s * (1.0 / 240 - s * (1.0 / 132 - s * (691.0 / 32760 - s / 12))))));
}
{prefix} float gpuad_digamma(float x) { return (float)gpuad_digamma((double)x); }
"""

_TRIGAMMA = """
// psi'(x), the second derivative of lgamma: infinite at 0, -1, -2, ...
{prefix} double gpuad_trigamma(double x)
{
    const double pi = 3.14159265358979323846;
    double sum = 0.0, sign = 1.0;
    if (x <= 0.0) {
        const double sine = sin(pi * (x - rint(x)));
        if (x == floor(x)) return 1.0 / (sine * sine * 0.0);
        sum = pi * pi / (sine * sine);
        sign = -1.0;
        x = 1.0 - x;
    }
    for (; x < 12.0; x += 1.0) sum += sign / (x * x);
    const double s = 1.0 / (x * x);
    return sum + sign / x * (1.0 + 0.5 / x
        + s * (1.0 / 6 - s * (1.0 / 30 - s * (1.0 / 42 - s * (1.0 / 30 - s * (5.0 / 66 - s * (691.0 / 2730 - s * 7.0 / 6)))))));
}
{prefix} float gpuad_trigamma(float x) { return (float)gpuad_trigamma((double)x); }
"""


def gamma_helpers(prefix: str) -> dict[str, str]:
    """The definitions by name; `prefix` is what stands before a function's type."""
    return {name: text.replace("{prefix}", prefix) for name, text in (("gpuad_digamma", _DIGAMMA), ("gpuad_trigamma", _TRIGAMMA))}
