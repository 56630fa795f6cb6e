"""Longitudinal tracking of a bunch in a ring: kick and drift of macro-particles, a profile by linear weighting, its induced voltage."""

import numpy as np


class Ring:
    def __init__(self, slip, frequency, bins):
        self.slip, self.frequency, self.bins = slip, frequency, bins


def kick(ring, phase, energy, voltage):
    energy += voltage * np.sin(ring.frequency * phase)


def drift(ring, phase, energy):
    phase += ring.slip * energy


def profile(ring, phase, low=-2.0, high=2.0):
    place = (np.clip(phase, low, high) - low) / (high - low) * (ring.bins - 2)
    cell = place.astype(np.int64)
    weight = place - cell
    counts = np.bincount(cell, weights=1 - weight, minlength=ring.bins)
    counts += np.bincount(cell + 1, weights=weight, minlength=ring.bins)
    return counts / len(phase)


def induced(ring, counts, strength):
    kernel = np.exp(-np.arange(ring.bins) / 3.0) * strength
    return np.convolve(counts, kernel)[: ring.bins]


def track(phase, energy, voltage, strength, turns):
    ring = Ring(0.11, 1.7, 16)
    phase, energy = np.array(phase), np.array(energy)
    centres = np.linspace(-2, 2, ring.bins)
    for _ in range(turns):
        kick(ring, phase, energy, voltage)
        wake = induced(ring, profile(ring, phase), strength)
        energy -= np.interp(phase, centres, wake)
        drift(ring, phase, energy)
    return phase, energy


def loss(phase, energy, voltage, strength, turns):
    phase, energy = track(phase, energy, voltage, strength, turns)
    centre = np.average(phase, weights=np.exp(-np.abs(energy)))
    return np.var(phase) + np.sqrt(np.mean(energy**2)) + centre**2 + np.ptp(profile(Ring(0, 0, 16), phase))


def arguments(rng):
    return (rng.normal(0, 0.4, 15), rng.normal(0, 0.3, 15), 0.8, np.array([0.3]), 3), (0, 1, 3)
