"""Ptychography: a probe is moved over an object, and far-field intensities are measured; the object and the probe are both sought."""

import numpy as np


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


if __name__ == "__main__":
    print("loss", loss(*problem(20, 10, 3)))
