"""The logarithm of Gaussian likelihoods, reduced over the last axis."""

from gpuad import ReductionKernel

log_likelihood = ReductionKernel(
    "T x, T mean, T deviation",
    "T y",
    "-0.5 * ((x - mean) / deviation) * ((x - mean) / deviation) - log(deviation)",
    "a + b",
    "y = a - 0.9189385332046727 * _in_ind.size() / _out_ind.size()",
    "0",
    "log_likelihood",
)


def example(rng):
    """A call, its arguments, and its keywords."""
    return log_likelihood, [rng.normal(size=(4, 9)), rng.normal(size=9), rng.uniform(0.5, 1.5, (4, 1)), rng.normal(size=4)], {"axis": 1}
