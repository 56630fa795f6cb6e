"""Parallel-beam tomography: line integrals by linear interpolation along rotated rays, total variation, padding around the image."""

import numpy as np
from numpy import zeros, zeros_like


def rotate(image, angle):
    n = image.shape[0]
    middle = (n - 1) / 2
    y, x = np.meshgrid(np.arange(n) - middle, np.arange(n) - middle, indexing="ij")
    u = np.cos(angle) * x - np.sin(angle) * y + middle
    v = np.sin(angle) * x + np.cos(angle) * y + middle
    i, j = np.floor(v).astype(int), np.floor(u).astype(int)
    inside = np.logical_and.reduce([i >= 0, i < n - 1, j >= 0, j < n - 1])
    i, j = np.clip(i, 0, n - 2), np.clip(j, 0, n - 2)
    a, b = v - i, u - j
    value = image[i, j] * (1 - a) * (1 - b) + image[i + 1, j] * a * (1 - b) + image[i, j + 1] * (1 - a) * b + image[i + 1, j + 1] * a * b
    out = zeros_like(image)
    out[inside] = value[inside]
    return out


def project(image, angles):
    padded = np.pad(image, 2)
    sinogram = zeros((len(angles), padded.shape[1]))
    for k, angle in enumerate(angles):
        sinogram[k] = rotate(padded, angle).sum(axis=0)
    return sinogram


def total_variation(image, eps=1e-3):
    dy = np.diff(image, axis=0, append=image[-1:])
    dx = np.diff(image, axis=1, append=image[:, -1:])
    return np.sqrt(dx * dx + dy * dy + eps).mean()


def loss(image, angles, measured):
    residual = project(image, angles) - measured
    return 0.5 * (residual * residual).sum() + 0.1 * total_variation(image)


def arguments(rng):
    angles = [0.1, 0.8, 1.7, 2.6]
    return (rng.uniform(0, 1, (7, 7)), angles, rng.uniform(0, 3, (4, 11))), (0,)
