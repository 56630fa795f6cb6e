"""Propagation-based phase contrast: a single-material filter in the Fourier domain gives thickness from one hologram; its strength, the
distance and the background are calibrated on a region that is known."""

import numpy as np
from numpy.fft import fft2, fftshift, ifft2, ifftshift


def frequencies(shape, pixel):
    rows = np.fft.fftfreq(shape[0], pixel)
    columns = np.fft.fftfreq(shape[1], pixel)
    fy, fx = np.meshgrid(rows, columns, indexing="ij")
    return fx * fx + fy * fy


def padded(image, margin):
    """Mirrored at the edges, and tapered towards the mean."""
    wide = np.pad(image, margin, mode="reflect")
    window = np.hanning(2 * margin + 2)[1 : margin + 1]
    edge = np.ones(wide.shape)
    edge[:margin] *= window[:, None]
    edge[-margin:] *= window[::-1, None]
    return edge * wide + (1 - edge) * image.mean()


def filtered(image, pixel, distance, ratio, wavelength=0.5):
    square = frequencies(image.shape, pixel)
    response = 1.0 / (1.0 + distance * wavelength * ratio * np.pi * square)
    return np.real(ifft2(fft2(image) * response))


def sharpened(image, amount):
    spectrum = fftshift(fft2(image))
    middle = spectrum.shape[0] // 2
    low = np.zeros_like(spectrum)
    low[middle - 2 : middle + 3, middle - 2 : middle + 3] = spectrum[middle - 2 : middle + 3, middle - 2 : middle + 3]
    return image + amount * (image - ifft2(ifftshift(low)).real)


def thickness(hologram, flat, dark, distance, ratio, margin=3):
    clean = np.clip((hologram - dark) / (flat - dark), 1e-3, None)
    wide = filtered(padded(clean, margin), 1.0, distance, ratio)
    inner = wide[margin:-margin, margin:-margin]
    mu = np.array([0.8])
    return -np.log(np.maximum(inner, 1e-6)) / mu


def loss(hologram, flat, distance, ratio, amount, known, mask):
    dark = np.full(hologram.shape, 0.02)
    found = sharpened(thickness(hologram, flat, dark, distance, ratio), amount)
    difference = found[mask] - known[mask]
    return (difference**2).mean() + 0.1 * np.median(np.abs(found[~mask])) + 1e-2 * np.std(found, axis=0).sum()


def arguments(rng):
    y, x = np.mgrid[0:9, 0:9] - 4.0
    known = np.exp(-(x * x + y * y) / 8)
    hologram = np.exp(-0.8 * known) + rng.normal(0, 0.02, (9, 9))
    return (hologram, rng.uniform(0.95, 1.05, (9, 9)), 1.3, np.array(0.8), 0.4, known, x * x + y * y < 9), (0, 1, 2, 3, 4)
