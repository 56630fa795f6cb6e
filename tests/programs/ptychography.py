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
    return np.sum((modulus - amplitudes) ** 2) / amplitudes.size + 1e-2 * np.vdot(smooth, smooth)


def arguments(rng):
    obj = np.exp(1j * rng.uniform(-0.5, 0.5, (9, 9)))
    grid = np.hypot(*np.meshgrid(np.arange(5) - 2.0, np.arange(5) - 2.0))
    probe = np.exp(-(grid**2) / 4).astype(complex)
    positions = [(0, 0), (0, 4), (3, 2), (4, 4)]
    return (obj, probe, positions, rng.uniform(0, 1, (4, 5, 5))), (0, 1)
