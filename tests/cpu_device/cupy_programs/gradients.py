"""gpuad on arrays of CuPy: launches within a budget, checkpoints in pinned memory, on a stream of its own, for several rounds."""

import cupy as cp
import numpy as np

import gpuad
from gpuad import Active, Duplicated

N, STEPS, ROUNDS = 600, 90, 4

wave = gpuad.kernel(
    r"""
extern "C" __global__ void wave(double* now, const double* before, const double* speed, double dt, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 1 || i >= n - 1) return;
    double c = dt * speed[i];
    now[i] = 2 * before[i] - now[i] + c * c * (before[i - 1] - 2 * before[i] + before[i + 1]) - 0.01 * before[i] * before[i] * before[i];
}""",
    "wave",
)


def recorded(xp, tape, seed):
    x = np.linspace(0, 1, N)
    fields = [Duplicated(xp.asarray(np.exp(-200 * (x - 0.4) ** 2)), xp.zeros(N)) for _ in range(2)]
    speed = Duplicated(xp.asarray(1 + 0.3 * np.sin(7 * x + seed)), xp.zeros(N))
    dt = Active(0.4, xp.zeros(1))
    with tape:
        for step in range(STEPS):
            wave(((N + 63) // 64,), (64,), (fields[step % 2], fields[1 - step % 2], speed, dt, N))
    tape.reverse({fields[0]: xp.asarray(np.cos(9 * x))})
    return [speed.shadow, fields[0].shadow, fields[1].shadow], float(dt.shadow[0])


def gradients(xp, tape):
    found = []
    for k in range(ROUNDS):
        shadows, slope = recorded(xp, tape, 0.1 * k)
        found.append((*(shadow if xp is np else cp.asnumpy(shadow) for shadow in shadows), slope))
    return found


if __name__ == "__main__":
    right = gradients(np, gpuad.Tape())
    ways = {"alone": {}, "within a budget": {"budget": 12 * 8 * N}, "in pinned memory": {"budget": 9 * 8 * N, "offload": "host"}}
    for name, options in ways.items():
        stream = cp.cuda.Stream(non_blocking=True)
        cp.cuda.get_current_stream().synchronize()
        with stream:
            for mine, theirs in zip(gradients(cp, gpuad.Tape(**options)), right, strict=True):
                for a, b in zip(mine, theirs, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=name)
    print("they agree")
