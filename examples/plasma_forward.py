"""A plasma as particles in cells: charge is weighted to a grid, the field comes from its spectrum, and particles are pushed by it. The
velocities at the beginning are sought that bring the charge to a wanted profile at the end."""

import numpy as np


class Box:
    def __init__(self, length, cells):
        self.length, self.cells, self.h = length, cells, length / cells
        k = 2 * np.pi * np.fft.rfftfreq(cells, self.h)
        self.inverse = np.zeros(len(k), dtype=complex)
        self.inverse[1:] = -1j / k[1:]


def weights(box, x):
    place = np.mod(x, box.length) / box.h
    left = np.floor(place).astype(int) % box.cells
    return left, (left + 1) % box.cells, place - np.floor(place)


def density(box, x):
    left, right, share = weights(box, x)
    rho = np.bincount(left, weights=1 - share, minlength=box.cells)
    rho += np.bincount(right, weights=share, minlength=box.cells)
    return rho * box.cells / len(x)


def field(box, rho):
    """Of the charge beside a uniform background."""
    return -np.fft.irfft(np.fft.rfft(rho - rho.mean()) * box.inverse, n=box.cells)


def push(box, x, v, dt):
    e = field(box, density(box, x))
    left, right, share = weights(box, x)
    v -= dt * ((1 - share) * e[left] + share * e[right])
    x += dt * v


def simulate(box, x, v, dt, steps):
    x, v = np.array(x), np.array(v)
    history = np.zeros((steps, box.cells))
    for step in range(steps):
        push(box, x, v, dt)
        history[step] = density(box, x)
    return x, v, history


def loss(v, x, box, wanted, dt, steps):
    _, speed, history = simulate(box, x, v, dt, steps)
    return np.mean((history[-1] - wanted) ** 2) + 1e-3 * np.mean(np.square(speed))


def problem(particles, cells, steps):
    box = Box(2 * np.pi, cells)
    x = np.linspace(0, box.length, particles, endpoint=False) + 0.01
    wanted = 1 + 0.4 * np.cos(np.arange(cells) * box.h)
    return np.zeros(particles), x, box, wanted, 0.1, steps


if __name__ == "__main__":
    print("distance from the wanted profile", loss(*problem(200, 16, 12)))
