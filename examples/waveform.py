"""Full-waveform inversion: shots of waves travel through a plane of unknown wave speed, and receivers at the surface record them. The speed
is sought whose records are those that were measured."""

from matplotlib import pyplot
from scipy.optimize import minimize

import gpuad
import gpuad.numpy as np


class Survey:
    """Where the shots and the receivers are, the wavelet, and a sponge that takes up what leaves the plane."""

    def __init__(self, n, steps, shots, dt=0.35):
        self.n, self.steps, self.dt = n, steps, dt
        self.shots = np.linspace(2, n - 3, shots).astype(int)
        self.receivers = np.arange(1, n - 1, 2)
        t = dt * np.arange(steps) - 4.0
        self.wavelet = (1 - 2 * (0.5 * t) ** 2) * np.exp(-((0.5 * t) ** 2))
        depth = np.minimum(np.arange(n), np.arange(n)[::-1])
        edge = np.where(depth < 4, 0.92 + 0.02 * depth, 1.0)
        self.sponge = np.minimum(edge[:, None], edge[None, :])
        self.sponge[:4] = edge[None, :]  # the surface reflects


def laplacian(u):
    out = np.zeros_like(u)
    out[1:-1, 1:-1] = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
    return out


def record(speed, survey, shot):
    factor = (survey.dt * speed) ** 2
    before, now = np.zeros((survey.n, survey.n)), np.zeros((survey.n, survey.n))
    traces = np.empty((survey.steps, len(survey.receivers)))
    for step in range(survey.steps):
        after = (2 * now - before + factor * laplacian(now)) * survey.sponge
        after[2, shot] += survey.dt**2 * survey.wavelet[step]
        before, now = now * survey.sponge, after
        traces[step] = now[1, survey.receivers]
    return traces


def loss(speed, survey, measured, weight):
    total = 0.0
    for shot, traces in zip(survey.shots, measured, strict=True):
        residual = record(speed, survey, shot) - traces
        total = total + 0.5 * np.sum(residual**2)
    rough = np.diff(speed, axis=0)[:, :-1] ** 2 + np.diff(speed, axis=1)[:-1] ** 2
    return total + weight * np.sum(np.sqrt(rough + 1e-4))


def truth(n):
    y, x = np.mgrid[0:n, 0:n] / n
    return 1.0 + 0.3 * (y > 0.55 + 0.1 * np.sin(6 * x)) - 0.25 * np.exp(-((x - 0.5) ** 2 + (y - 0.4) ** 2) / 0.01)


def problem(n, steps, shots):
    survey = Survey(n, steps, shots)
    measured = [record(truth(n), survey, shot) for shot in survey.shots]
    start = 1.0 + 0.3 * np.repeat(np.linspace(0, 1, n)[:, None], n, axis=1) ** 2
    return start, survey, measured, 1e-6


def fit(start, rounds):
    objective = gpuad.value_and_grad(loss, 0).flat(*start)
    found = minimize(objective, objective.start, jac=True, method="L-BFGS-B", options={"maxiter": rounds})
    return objective.arrays(found.x), found.fun


def picture(path, start, speed):
    panels = {"true speed": truth(len(speed)), "start": start[0], "found": speed}
    figure, axes = pyplot.subplots(1, 3, figsize=(9, 3))
    for axis, (title, image) in zip(axes, panels.items(), strict=True):
        axis.imshow(image, vmin=0.75, vmax=1.35)
        axis.set_title(title)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def main(path="waveform.png", rounds=25, n=32, steps=60, shots=2):
    start = problem(n, steps, shots)
    found, value = fit(start, rounds)
    print("loss", loss(*start), "->", value)
    picture(path, start, found)
    return loss(*start), value


if __name__ == "__main__":
    main()
