"""A network of neurons that leak, integrate and fire with a probability that rises with the voltage: weights are sought that give wanted
rates. Delays by a ring of buffers, refractory times by a mask."""

import numpy as np


class Neurons:
    def __init__(self, n, delay, dt=1.0):
        self.n, self.delay = n, delay
        self.leak = np.exp(-dt / 12.0)
        self.decay = np.exp(-dt / 5.0)
        self.reset()

    def reset(self):
        self.voltage = np.zeros(self.n)
        self.current = np.zeros(self.n)
        self.trace = np.zeros(self.n)
        self.waiting = np.zeros(self.n, dtype=int)
        self.ring = np.zeros((self.delay, self.n))
        self.step = 0

    def advance(self, weights, drive, threshold):
        arriving = self.ring[self.step % self.delay]
        self.current *= self.decay
        self.current += weights @ arriving + drive
        free = self.waiting == 0
        self.voltage = np.where(free, self.leak * self.voltage + 0.4 * self.current, 0.5 * self.voltage)
        spike = 1 / (1 + np.exp(-6 * (self.voltage - threshold)))
        self.voltage -= spike * threshold
        self.waiting[~free] -= 1
        self.waiting[free & (spike > 0.6)] = 2
        self.ring[self.step % self.delay] = spike
        self.trace += 0.1 * (spike - self.trace)
        self.step += 1
        return spike


def simulate(network, weights, drives, threshold):
    network.reset()
    weights = weights - np.diag(np.diag(weights))
    raster = np.zeros((len(drives), network.n))
    for t, drive in enumerate(drives):
        raster[t] = network.advance(weights, drive, threshold)
    return raster


def loss(weights, threshold, network, drives, rates):
    raster = simulate(network, weights, drives, threshold)
    rate = raster[len(raster) // 3 :].mean(axis=0)
    centred = raster - raster.mean(axis=0)
    together = centred.T @ centred
    synchrony = np.triu(together, 1).sum() / network.n**2
    return np.sum((rate - rates) ** 2) + 0.01 * synchrony + 1e-3 * np.linalg.norm(weights) + 0.1 * np.inner(network.trace, rates)


def problem(n, steps, seed=0):
    rng = np.random.default_rng(seed)
    network, drives = Neurons(n, 3), rng.uniform(0, 0.8, (steps, n))
    return rng.normal(0.1, 0.4, (n, n)), np.full(n, 0.9), network, drives, np.linspace(0.05, 0.6, n)


if __name__ == "__main__":
    print("loss", loss(*problem(10, 20)))
