"""The reaction of the FitzHugh-Nagumo model, elementwise and in place: two fields overwrite themselves."""

from gpuad import ElementwiseKernel

react = ElementwiseKernel(
    "T current, float64 dt, float64 a, float64 b, float64 rate",
    "T u, T v",
    """
    T before = u;
    u += dt * (before - before * before * before / 3 - v + current);
    v += dt * rate * (before + a - b * v);
    """,
    "react",
)


def example(rng):
    """A call, and its arguments: the current is broadcast over the rows."""
    u, v, current = rng.uniform(-1, 1, (5, 7)), rng.uniform(-1, 1, (5, 7)), rng.uniform(0, 0.5, 7)
    return react, [current, 0.1, 0.7, 0.8, 0.08, u, v]
