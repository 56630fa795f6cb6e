"""Shallow water in a channel with a bottom: waves run and are damped. Their heights were measured at a few places and times, and the state
at the beginning is sought that explains them (four-dimensional variational assimilation)."""

import numpy as np


class Channel:
    def __init__(self, n, length=10.0, gravity=1.0, drag=0.05):
        self.n, self.dx, self.gravity, self.drag = n, length / n, gravity, drag
        self.dt = 0.3 * self.dx
        x = np.arange(n) * self.dx
        self.bottom = 0.3 * np.exp(-((x - 0.6 * length) ** 2))


def step(channel, height, speed):
    """One step of Lax and Friedrichs with periodic ends, in conservative form."""
    water = height - channel.bottom
    flow = water * speed
    left, right = lambda a: np.roll(a, 1), lambda a: np.roll(a, -1)
    ratio = channel.dt / (2 * channel.dx)
    momentum = 0.5 * speed**2 + channel.gravity * height
    new_height = 0.25 * (left(height) + 2 * height + right(height)) - ratio * (right(flow) - left(flow))
    new_speed = 0.25 * (left(speed) + 2 * speed + right(speed)) - ratio * (right(momentum) - left(momentum))
    new_speed *= 1 - channel.drag * channel.dt
    return new_height, new_speed


def forecast(channel, height, speed, steps, every, stations):
    readings = np.empty((steps // every, len(stations)))
    for k in range(steps):
        height, speed = step(channel, height, speed)
        if (k + 1) % every == 0:
            readings[k // every] = height[stations]
    return readings, height


def loss(height, speed, channel, background, measured, every, stations):
    readings, _ = forecast(channel, height, speed, len(measured) * every, every, stations)
    away = height - background
    smooth = np.gradient(away, channel.dx)
    return np.sum((readings - measured) ** 2) / 0.01**2 + np.sum(away**2) / 0.3**2 + np.sum(smooth**2) + np.sum(speed**2) / 0.3**2


def truth(channel):
    x = np.arange(channel.n) * channel.dx
    return 1.0 + 0.25 * np.exp(-((x - 2.5) ** 2) / 0.5), 0.1 * np.sin(2 * np.pi * x / 10)


def problem(n, readings, every, seed=0):
    channel, rng = Channel(n), np.random.default_rng(seed)
    stations = np.arange(n // 8, n, n // 4)
    measured, _ = forecast(channel, *truth(channel), readings * every, every, stations)
    measured += rng.normal(0, 0.003, measured.shape)
    background = np.full(n, 1.0)
    return background.copy(), np.zeros(n), channel, background, measured, every, stations


if __name__ == "__main__":
    print("cost", loss(*problem(64, 10, 6)))
