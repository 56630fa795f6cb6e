"""A scattering network: wavelets of several scales as filters in the Fourier domain, moduli, a second layer, averages; a signal is sought
whose coefficients are given."""

import numpy as np


class Filters:
    """The filters, made once for a length of signals."""

    def __init__(self, n, scales, width=0.35):
        self.n, self.scales = n, scales
        omega = 2 * np.pi * np.fft.fftfreq(n)
        self.psi = np.empty((scales, n))
        for j in range(scales):
            centre = np.pi * 0.7 / 2**j
            bump = np.exp(-((omega - centre) ** 2) / (2 * (width * centre) ** 2))
            at_zero = np.exp(-(centre**2) / (2 * (width * centre) ** 2))
            self.psi[j] = bump - at_zero * np.exp(-(omega**2) / (2 * (width * centre) ** 2))
        self.phi = np.exp(-((omega * 2**scales) ** 2) / 2)


def subsample(spectrum, step):
    """Of every step-th sample, as the spectrum folded upon itself."""
    return spectrum.reshape(step, -1).mean(axis=0)


def average(filters, signal, step):
    smooth = np.fft.ifft(subsample(np.fft.fft(signal) * filters.phi, step))
    return smooth.real


def scatter(x, filters):
    step = 2 ** (filters.scales - 1)
    coefficients = [average(filters, x, step)]
    spectrum = np.fft.fft(x)
    for j in range(filters.scales):
        band = np.fft.ifft(spectrum * filters.psi[j])
        modulus = np.sqrt(np.abs(band) ** 2 + 1e-6)
        coefficients.append(average(filters, modulus, step))
        inner = np.fft.fft(modulus)
        for k in range(j + 1, filters.scales):
            second = np.abs(np.fft.ifft(inner * filters.psi[k]))
            coefficients.append(average(filters, second, step))
    return np.stack(coefficients)


def normalised(coefficients):
    out = np.empty_like(coefficients)
    out[0] = coefficients[0]
    size = np.maximum(coefficients[1:], 1e-8)
    out[1:] = np.log(size)
    return out


def loss(x, filters, wanted):
    found = normalised(scatter(x, filters))
    weights = np.where(np.arange(len(found)) == 0, 4.0, 1.0)
    return np.einsum("k,kt->", weights, (found - wanted) ** 2) / found.size


def arguments(rng):
    filters = Filters(32, 3)
    wanted = normalised(scatter(rng.normal(size=32), filters))
    return (rng.normal(size=32), filters, wanted), (0,)
