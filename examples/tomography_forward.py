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


def phantom(n):
    y, x = np.mgrid[-1 : 1 : 1j * n, -1 : 1 : 1j * n]
    return 1.0 * (x * x + y * y < 0.7) - 0.6 * ((x - 0.2) ** 2 + (y + 0.2) ** 2 < 0.1) + 0.5 * ((x + 0.4) ** 2 + y * y < 0.04)


def problem(n, count):
    angles = np.linspace(0, np.pi, count, endpoint=False)
    return np.zeros((n, n)), angles, project(phantom(n), angles)


if __name__ == "__main__":
    print("loss", loss(*problem(24, 16)))
