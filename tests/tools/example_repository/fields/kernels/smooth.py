"""A field is smoothed in the frequency domain: array code, with a reverse of its own."""

import numpy as np

import gpuad


def smooth_reverse(filter, du, dv):
    du += np.fft.irfft(np.conj(filter) * np.fft.rfft(dv), len(du))


@gpuad.rule(reads=("u",), overwrites=("v",), reverse=smooth_reverse)
def smooth(u, v, filter):
    v[...] = np.fft.irfft(filter * np.fft.rfft(u), len(u))


def example(rng):
    """A field of 64 numbers, and a filter."""
    u = rng.normal(size=64)
    return smooth, [u, np.zeros(64), np.fft.rfft(np.exp(-np.arange(64.0)))]
