"""Options by Monte Carlo and by the closed form of Black and Scholes: paths and payoffs by elementwise kernels, averages by a reduction,
calibrated to prices of a market; a barrier knocks options out."""

import cupy as cp

advance = cp.ElementwiseKernel(
    "T s, T drift, T volatility, T dt, T z",
    "T next",
    "next = s * exp((drift - 0.5 * volatility * volatility) * dt + volatility * sqrt(dt) * z);",
    "advance",
)
payoff = cp.ElementwiseKernel(
    "T s, T strike, T lowest, T barrier",
    "T value",
    "T call = max(s - strike, T(0)); value = lowest > barrier ? call : T(0);",
    "payoff",
)
average = cp.ReductionKernel("T x", "T y", "x", "a + b", "y = a / _in_ind.size()", "0", "average")
second_moment = cp.ReductionKernel("T x, T mean", "T y", "(x - mean) * (x - mean)", "a + b", "y = a", "0", "second_moment")


@cp.fuse()
def normal_cdf(x):
    return 0.5 * (1 + cp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def closed_form(spot, strike, rate, volatility, years):
    root = volatility * cp.sqrt(years)
    d1 = (cp.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / root
    return spot * normal_cdf(d1) - strike * cp.exp(-rate * years) * normal_cdf(d1 - root)


def paths(spot, rate, volatility, years, normal):
    steps, count = normal.shape
    dt = years / steps
    s = cp.empty((steps + 1, count))
    s[0] = spot
    for step in range(steps):
        s[step + 1] = advance(s[step], rate, volatility, dt, normal[step])
    return s


def prices(spot, strikes, barrier, rate, volatility, years, normal):
    s = paths(spot, rate, volatility, years, normal)
    lowest = s.min(axis=0)
    out = cp.zeros(len(strikes))
    error = cp.zeros(len(strikes))
    for k in range(len(strikes)):
        values = payoff(s[-1], strikes[k], lowest, barrier)
        out[k] = average(values)
        error[k] = second_moment(values, out[k])
    discount = cp.exp(-rate * years)
    return out * discount, error / normal.shape[1]


def loss(spot, volatility, rate, strikes, barrier, years, normal, market):
    found, variance = prices(spot, strikes, barrier, rate, volatility, years, normal)
    exact = closed_form(spot, strikes, rate, volatility, years)
    weights = 1 / (1 + variance)
    return cp.sum(weights * cp.square(found - market)) + 0.1 * cp.sum(cp.square(exact - market))


def arguments(rng):
    device = cp.asarray
    strikes, market = device([0.9, 1.0, 1.1]), device([0.16, 0.1, 0.06])
    parameters = device(1.02), device(0.25), device(0.03)
    return (*parameters, strikes, device(0.8), device(1.0), device(rng.normal(size=(4, 16))), market), (0, 1, 2)
