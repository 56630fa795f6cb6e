"""Ptychography: a probe is moved over an object, and far-field intensities are measured; the object and the probe are both sought."""

from matplotlib import pyplot
from scipy.optimize import minimize

import gpuad
import gpuad.numpy as np


def exit_waves(obj, probe, positions):
    waves = []
    n = probe.shape[0]
    for row, column in positions:
        waves.append(obj[row : row + n, column : column + n] * probe)
    return np.stack(waves)


def propagate(waves):
    return np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(waves, axes=(-2, -1)), norm="ortho"), axes=(-2, -1))


def loss(obj, probe, positions, amplitudes):
    assert len(positions) == len(amplitudes) and np.iscomplexobj(obj)
    far = propagate(exit_waves(obj, probe, positions))
    modulus = np.sqrt(far.real**2 + far.imag**2 + 1e-9)
    phase = np.angle(obj)
    smooth = np.roll(phase, 1, axis=0) - phase
    return np.sum((modulus - amplitudes) ** 2) / amplitudes.size + 1e-6 * np.vdot(smooth, smooth)


def specimen(n):
    y, x = np.mgrid[0:n, 0:n] / n
    return (1 - 0.3 * (np.hypot(x - 0.4, y - 0.5) < 0.2)) * np.exp(0.8j * np.sin(7 * x) * np.cos(5 * y))


def beam(n):
    grid = np.hypot(*np.meshgrid(np.arange(n) - n // 2, np.arange(n) - n // 2))
    return np.exp(-((grid / n * 2.5) ** 2)).astype(complex)


def problem(n, width, step):
    probe = beam(width)
    positions = [(row, column) for row in range(0, n - width + 1, step) for column in range(0, n - width + 1, step)]
    amplitudes = np.abs(propagate(exit_waves(specimen(n), probe, positions)))
    return np.ones((n, n), dtype=complex), 0.9 * probe, positions, amplitudes


def fit(start, rounds):
    objective = gpuad.value_and_grad(loss, (0, 1)).flat(*start)
    found = minimize(objective, objective.start, jac=True, method="L-BFGS-B", options={"maxiter": rounds})
    return objective.arrays(found.x), found.fun


def picture(path, start, obj, probe):
    panels = {"phase of the specimen": np.angle(specimen(len(obj))), "found": np.angle(obj), "probe": np.abs(probe)}
    figure, axes = pyplot.subplots(1, 3, figsize=(9, 3))
    for axis, (title, image) in zip(axes, panels.items(), strict=True):
        axis.imshow(image)
        axis.set_title(title)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def main(path="ptychography.png", rounds=60, n=20, width=10, step=3):
    start = problem(n, width, step)
    found, value = fit(start, rounds)
    print("loss", loss(*start), "->", value)
    picture(path, start, *found)
    return loss(*start), value


if __name__ == "__main__":
    main()
