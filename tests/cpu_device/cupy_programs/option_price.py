"""An option's price by Monte Carlo: normal numbers through CuPy, a fused function, a reduction; held against Black and Scholes."""

import math

import cupy as cp
import numpy as np

SPOT, STRIKE, RATE, VOLATILITY, YEARS, PATHS = 100.0, 105.0, 0.03, 0.25, 1.5, 400_000

discounted = cp.ReductionKernel("T x, T strike, T factor", "T y", "max(x - strike, (T)0)", "a + b", "y = factor * a", "0", "discounted")


@cp.fuse()
def terminal(normal, spot, drift, width):
    return spot * cp.exp(drift + width * normal)


def on_device():
    cp.random.seed(11)
    normal = cp.random.standard_normal(PATHS // 2)
    normal = cp.concatenate((normal, -normal))
    drift, width = (RATE - VOLATILITY**2 / 2) * YEARS, VOLATILITY * math.sqrt(YEARS)
    last = terminal(normal, SPOT, drift, width)
    price = discounted(last, STRIKE, math.exp(-RATE * YEARS) / PATHS)
    quantiles = cp.percentile(last, cp.array([5.0, 50.0, 95.0]))
    return float(price), cp.asnumpy(quantiles), float(cp.mean(last > STRIKE))


def closed_form():
    normal = lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2)))  # noqa: E731
    width = VOLATILITY * math.sqrt(YEARS)
    above = (math.log(SPOT / STRIKE) + (RATE + VOLATILITY**2 / 2) * YEARS) / width
    price = SPOT * normal(above) - STRIKE * math.exp(-RATE * YEARS) * normal(above - width)
    drift = (RATE - VOLATILITY**2 / 2) * YEARS
    quantiles = [SPOT * math.exp(drift + width * z) for z in (-1.6448536, 0.0, 1.6448536)]
    return price, np.array(quantiles), normal(above - width)


if __name__ == "__main__":
    for mine, theirs in zip(on_device(), closed_form(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0.01)
    print("they agree")
