"""A wave moves by one step in place, as a function in the language of cupyx.jit (with CuPy: `from cupyx import jit`)."""

from gpuad import jit


@jit.rawkernel()
def wave_step(old, now, speed2):
    """old <- 2 now - old + speed2 * laplace(now) in the interior; afterwards `old` is the newer of the two."""
    i, j = jit.grid(2)
    if i > 0 and j > 0 and i < now.shape[0] - 1 and j < now.shape[1] - 1:
        laplace = now[i - 1, j] + now[i + 1, j] + now[i, j - 1] + now[i, j + 1] - 4 * now[i, j]
        old[i, j] = 2 * now[i, j] - old[i, j] + speed2[i, j] * laplace


def example(rng):
    """A launch, and its arguments."""
    rows, columns = 9, 12
    arguments = [rng.uniform(0.1, 0.5, (rows, columns)) for _ in range(3)]
    return wave_step[(2, 3), (8, 4)], arguments
