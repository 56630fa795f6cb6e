"""The primal of the kernels that ship, on every executor, against NumPy models that are written another way (whole arrays, no threads)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import physics_models
import pytest
from launch_tools import CASES
from ml_dtypes import bfloat16

from gpuad.arguments import bind
from gpuad.frontend.cuda import parse
from gpuad.ir.nodes import Kernel
from gpuad.ir.verify import verify
from gpuad.lower.normalize import normalize
from gpuad.tools.cases import Case

Arrays = dict[str, Any]
MODELS: dict[str, Callable[..., Arrays]] = dict(physics_models.MODELS)


def model(name: str) -> Callable[[Callable[..., Arrays]], Callable[..., Arrays]]:
    """Registers the model of a case: arguments by name in, expected arrays by name out."""

    def register(function: Callable[..., Arrays]) -> Callable[..., Arrays]:
        MODELS[name] = function
        return function

    return register


def laplace(u: Any) -> Any:
    return u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]


@model("saxpy")
def _(a: Any, x: Any, y: Any, **_: Any) -> Arrays:
    return {"y": y + a * x}


@model("heat")
def _(u: Any, v: Any, alpha: Any, **_: Any) -> Arrays:
    v[1:-1, 1:-1] = u[1:-1, 1:-1] + alpha * laplace(u)
    return {"v": v}


@model("fisher_kpp")
def _(u: Any, v: Any, diffusion: Any, growth: Any, **_: Any) -> Arrays:
    v[1:-1, 1:-1] = (u + growth * u * (1 - u))[1:-1, 1:-1] + diffusion * laplace(u)
    return {"v": v}


@model("gray_scott")
def _(u: Any, v: Any, feed: Any, kill: Any, **_: Any) -> Arrays:
    du, dv = (laplace(np.pad(field, 1, mode="wrap")) for field in (u, v))
    return {"u_new": u + 0.16 * du - u * v**2 + feed * (1 - u), "v_new": v + 0.08 * dv + u * v**2 - (feed + kill) * v}


@model("wave")
def _(old: Any, now: Any, c2: Any, **_: Any) -> Arrays:
    old[1:-1, 1:-1] = (2 * now - old)[1:-1, 1:-1] + c2[1:-1, 1:-1] * laplace(now)
    return {"old": old}


@model("fdtd-update_h")
def _(hx: Any, hy: Any, ez: Any, courant: Any, **_: Any) -> Arrays:
    hx[:-1] -= courant * np.diff(ez, axis=0)
    hy[:, :-1] += courant * np.diff(ez, axis=1)
    return {"hx": hx, "hy": hy}


@model("fdtd-update_e")
def _(ez: Any, hx: Any, hy: Any, epsilon: Any, sigma: Any, courant: Any, **_: Any) -> Arrays:
    inner = (slice(1, None), slice(1, None))
    loss, scale = (0.5 * sigma / epsilon)[inner], (courant / epsilon)[inner]
    curl = np.diff(hy, axis=1)[1:] - np.diff(hx, axis=0)[:, 1:]
    ez[inner] = ((1 - loss) * ez[inner] + scale * curl) / (1 + loss)
    return {"ez": ez}


@model("lattice_boltzmann")
def _(f: Any, omega: Any, **_: Any) -> Arrays:
    e = np.array([(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)])
    w = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
    rho = f.sum(0)
    velocity = np.tensordot(e.T, f, 1) / rho
    eu = 3 * np.tensordot(e, velocity, 1)
    equilibrium = w[:, None, None] * rho * (1 + eu + eu**2 / 2 - 1.5 * (velocity**2).sum(0))
    after = f + omega * (equilibrium - f)
    return {"g": np.stack([np.roll(after[k], (e[k, 1], e[k, 0]), (0, 1)) for k in range(9)])}


@model("channel")
def _(f: Any, g: Any, solid: Any, omega: Any, push: Any, **_: Any) -> Arrays:
    e = np.array([(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)])
    w = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
    p = np.stack([np.roll(f[k], (e[k, 1], e[k, 0]), (0, 1)) for k in range(9)])
    rho = p.sum(0)
    u = 3 * np.tensordot(e.T, p, 1) / rho
    u[0] += push
    eu = np.tensordot(e, u, 1)
    after = p + omega * (w[:, None, None] * rho * (1 + eu + eu**2 / 2 - (u**2).sum(0) / 6) - p)
    return {"g": np.where(solid, g, after)}


@model("dense")
def _(x: Any, weights: Any, bias: Any, **_: Any) -> Arrays:
    total = bias + x.astype(np.float64) @ weights
    return {"y": total * np.vectorize(lambda d: 0.5 * math.erfc(-d / math.sqrt(2)))(total)}


@model("nbody-forces")
def _(position: Any, mass: Any, softening: Any, **_: Any) -> Arrays:
    away = position[None] - position[:, None]
    weight = mass / (np.sum(away**2, -1) + softening**2) ** 1.5
    return {"acceleration": np.einsum("ij,ijk->ik", weight, away)}


@model("nbody-move")
def _(position: Any, velocity: Any, acceleration: Any, dt: Any, **_: Any) -> Arrays:
    after = velocity + dt * acceleration
    return {"velocity": after, "position": position + dt * after}


@model("bodies-attract")
def _(body: Any, softening: Any, **_: Any) -> Arrays:
    away = body[None, :, :3] - body[:, None, :3]
    weight = body[:, 3] / (np.sum(away**2, -1) + softening**2) ** 1.5
    return {"acceleration": np.pad(np.einsum("ij,ijk->ik", weight, away), ((0, 0), (0, 1)))}


@model("bodies-drift")
def _(body: Any, velocity: Any, acceleration: Any, dt: Any, **_: Any) -> Arrays:
    moves = np.array([1, 1, 1, 0])
    after = velocity + dt * acceleration * moves
    return {"velocity": after, "body": body + dt * after * moves}


@model("camera-project")
def _(points: Any, camera: Any, light: Any, **_: Any) -> Arrays:
    turn = camera["turn"].astype(np.float64)
    x, y, z = turn / np.linalg.norm(turn)
    skew = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    rotation = np.eye(3) + np.sin(np.linalg.norm(turn)) * skew + (1 - np.cos(np.linalg.norm(turn))) * skew @ skew
    p = points @ rotation.T + camera["at"]
    film = p[:, :2] / p[:, 2:]
    r2 = np.sum(film**2, 1, keepdims=True)
    bent = (1 + camera["bend"][0] * r2 + camera["bend"][1] * r2**2) * film
    falls = camera["centre"] + camera["focal"] * bent * (1, -1 if camera["flipped"] else 1)
    brightness = 1 / (1 + np.sum((np.asarray(light) - p) ** 2, 1))
    made = np.zeros(len(p), [*((name, np.float64) for name in ("x", "y", "brightness")), ("seen", np.int32)])
    made["x"], made["y"], made["brightness"], made["seen"] = *falls.T, brightness, p[:, 2] > 0
    return {"pixels": made}


@model("beam-propagate")
def _(field: Any, next: Any, index: Any, dz: Any, kerr: Any, **_: Any) -> Arrays:
    u = field[1:-1, 1:-1]
    spread = field[1:-1, :-2] + field[1:-1, 2:] + field[:-2, 1:-1] + field[2:, 1:-1] - 4 * u
    next[1:-1, 1:-1] = (u + 0.5j * dz * spread) * np.exp(1j * dz * (index[1:-1, 1:-1] + kerr * np.abs(u) ** 2))
    return {"next": next}


@model("beam-lens")
def _(field: Any, focus: Any, radius: Any, **_: Any) -> Arrays:
    ny, nx = field.shape
    r2 = (np.arange(nx) - 0.5 * nx) ** 2 + (np.arange(ny)[:, None] - 0.5 * ny) ** 2
    return {"field": np.where(r2 > radius**2, 0, field * np.exp(-0.5j * r2 / focus))}


@model("plasma-push")
def _(particle: Any, electric: Any, magnetic: Any, dt: Any, cells: Any, **_: Any) -> Arrays:
    offset, cell = particle["offset"].astype(float), particle["cell"]
    kick = 0.5 * dt * ((1 - offset) * electric[cell] + offset * electric[cell + 1])
    angle = 2 * np.arctan(0.5 * dt * magnetic)
    x, y = particle["velocity"].astype(float).T
    x, y = np.cos(angle) * (x + kick) + np.sin(angle) * y + kick, np.cos(angle) * y - np.sin(angle) * (x + kick)
    moved = offset + dt * x
    particle["velocity"], particle["offset"] = np.stack([x, y], -1), moved - np.floor(moved)
    particle["cell"] = (cell + np.floor(moved).astype(int)) % cells
    return {"particle": particle}


@model("plasma-deposit")
def _(particle: Any, density: Any, **_: Any) -> Arrays:
    offset, weight = particle["offset"].astype(float), particle["weight"].astype(float)
    np.add.at(density, particle["cell"], (1 - offset) * weight)
    np.add.at(density, particle["cell"] + 1, offset * weight)
    return {"density": density}


@model("csr_half")
def _(row: Any, column: Any, value: Any, x: Any, bias: Any, **_: Any) -> Arrays:
    sums = np.array([value[a:b] @ x[column[a:b]] for a, b in pairwise(row)]) + bias.ravel()
    return {"y": np.maximum(sums, 0)}


@model("add_rms_norm")
def _(x: Any, residual: Any, weight: Any, **_: Any) -> Arrays:
    r = rounded(residual + x)
    return {"residual": r, "x": rounded(rounded(r / np.sqrt((r**2).mean((1, 2), keepdims=True) + 1e-5)) * weight)}


def rounded(values: Any) -> Any:
    """To the nearest bfloat16."""
    return values.astype(bfloat16).astype(float)


@model("csr_spmv")
def _(row: Any, column: Any, value: Any, x: Any, **_: Any) -> Arrays:
    return {"y": np.array([value[a:b] @ x[column[a:b]] for a, b in pairwise(row)])}


@model("tridiagonal")
def _(lower: Any, diagonal: Any, upper: Any, x: Any, **_: Any) -> Arrays:
    def solved(s: int) -> Any:
        matrix = np.diag(diagonal[:, s]) + np.diag(lower[1:, s], -1) + np.diag(upper[:-1, s], 1)
        return np.linalg.solve(matrix, x[:, s])

    return {"x": np.stack([solved(s) for s in range(x.shape[1])], axis=1)}


def price_of_call(spot: Any, strike: Any, years: Any, rate: Any, volatility: Any) -> Any:
    d1 = (np.log(spot / strike) + (rate + volatility**2 / 2) * years) / (volatility * np.sqrt(years))
    phi = np.vectorize(lambda d: 0.5 * math.erfc(-d / math.sqrt(2)))
    return spot * phi(d1) - strike * np.exp(-rate * years) * phi(d1 - volatility * np.sqrt(years))


@model("black_scholes")
def _(spot: Any, strike: Any, years: Any, rate: Any, volatility: Any, **_: Any) -> Arrays:
    call = price_of_call(spot, strike, years, rate, volatility)
    return {"call": call, "put": call - spot + strike * np.exp(-rate * years)}  # put-call parity


@model("black_scholes-black_scholes_erf")
def _(price: Any, strike: Any, years: Any, rate: Any, volatility: Any, **_: Any) -> Arrays:
    return {"price": price_of_call(price, strike, years, rate, volatility)}


@model("local_volatility")
def _(normals: Any, spot: Any, level: Any, skew: Any, rate: Any, dt: Any, **_: Any) -> Arrays:
    s, path = np.full(normals.shape[1], spot), []
    for normal in normals:
        volatility = level * (s / spot) ** -skew + 0.02 * np.sin(0.1 * s)
        s = s * (1 + rate * dt + volatility * np.sqrt(dt) * normal)
        path.append(s)
    gain = np.mean(path, axis=0) - spot
    return {"payoff": np.exp(-rate * dt * len(normals)) * (gain + np.hypot(gain, 5)) / 2}


@model("bilinear")
def _(image: Any, px: Any, py: Any, **_: Any) -> Arrays:
    height, width = image.shape
    x, y = np.arange(-3, width + 3), np.arange(-3, height + 3)
    padded = image[np.ix_(np.clip(y, 0, height - 1), np.clip(x, 0, width - 1))]
    tent_x, tent_y = (np.maximum(0, 1 - np.abs(p[:, None] - axis)) for p, axis in ((px, x), (py, y)))
    return {"sampled": np.einsum("py,yx,px->p", tent_y, padded, tent_x)}


@model("correlation")
def _(first: Any, second: Any, reach: Any, **_: Any) -> Arrays:
    channels, height, width = first.shape
    padded = np.pad(second, ((0, 0), (reach, reach), (reach, reach)))
    sides = [
        (first * padded[:, v : v + height, u : u + width]).sum(0) / channels for v in range(2 * reach + 1) for u in range(2 * reach + 1)
    ]
    return {"cost": np.stack(sides)}


@model("separable")
def _(padded: Any, vertical: Any, horizontal: Any, taps: Any, **_: Any) -> Arrays:
    windows = np.lib.stride_tricks.sliding_window_view(padded, (taps, taps), axis=(1, 2))
    return {"output": np.einsum("cyxvh,vyx,hyx->cyx", windows, vertical, horizontal)}


@model("involution")
def _(x: Any, weight: Any, share: Any, window: Any, **_: Any) -> Arrays:
    edge = window // 2
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (edge, edge), (edge, edge))), (window, window), axis=(1, 2))
    return {"y": np.einsum("cyxab,cabyx->cyx", windows, np.repeat(weight, share, axis=0))}


def neighbours(length: Any, window: Any) -> Any:
    """The places that each query looks at."""
    return np.clip(np.arange(length) - window // 2, 0, length - window)[:, None] + np.arange(window)


@model("neighbourhood-neighbourhood_scores")
def _(query: Any, key: Any, length: Any, window: Any, **_: Any) -> Arrays:
    return {"score": np.einsum("hid,hikd->hik", query, key[:, neighbours(length, window)])}


@model("neighbourhood-neighbourhood_values")
def _(weight: Any, value: Any, length: Any, window: Any, **_: Any) -> Arrays:
    return {"output": np.einsum("hik,hikd->hid", weight, value[:, neighbours(length, window)])}


@model("qrnn")
def _(forget: Any, candidate: Any, gate: Any, cell: Any, hidden: Any, **_: Any) -> Arrays:
    for t, f in enumerate(forget):
        cell[t + 1] = f * cell[t] + (1 - f) * candidate[t]
        hidden[t] = gate[t] * cell[t + 1]
    return {"cell": cell, "hidden": hidden}


@model("backprojection-back_projection")
def _(sinogram: Any, angle: Any, image: Any, n: Any, detectors: Any, **_: Any) -> Arrays:
    y, x = np.mgrid[0:n, 0:n] - 0.5 * (n - 1)
    for a, row in zip(angle, sinogram, strict=True):
        place = y * np.cos(a) - x * np.sin(a) + 0.5 * (detectors - 1)
        tent = np.maximum(0, 1 - np.abs(place[..., None] - np.arange(detectors)))
        image += tent @ row * ((place >= 0) & (place < detectors - 1))
    return {"image": image}


def spread(place: Any, side: Any, beta: Any) -> Any:
    """How much each sample has to do with each cell along an axis that wraps around."""
    distance = (place[:, None] - np.arange(side) + side / 2) % side - side / 2
    inside = np.maximum(1 - (distance / 2) ** 2, 0)
    return np.where(inside > 0, np.i0(beta * np.sqrt(inside)) / np.i0(beta), 0)


@model("gridding-grid_samples")
def _(place: Any, sample: Any, density: Any, side: Any, beta: Any, **_: Any) -> Arrays:
    across, along = spread(place[:, 1], side, beta), spread(place[:, 0], side, beta)
    return {"cells": np.einsum("s,sy,sx,sc->yxc", density, across, along, sample)}


@model("gridding-sample_grid")
def _(place: Any, cells: Any, side: Any, beta: Any, **_: Any) -> Arrays:
    return {"sample": np.einsum("sy,sx,yxc->sc", spread(place[:, 1], side, beta), spread(place[:, 0], side, beta), cells)}


@model("spiking")
def _(current: Any, membrane: Any, spike: Any, leak: Any, threshold: Any, slope: Any, **_: Any) -> Arrays:
    for t, into in enumerate(current):
        potential = leak * membrane[t] + into
        spike[t] = 1 / (1 + np.exp(slope * (threshold - potential)))
        membrane[t + 1] = potential - spike[t] * threshold
    return {"membrane": membrane, "spike": spike}


@model("sinkhorn")
def _(cost: Any, log_mass: Any, there: Any, here: Any, epsilon: Any, **_: Any) -> Arrays:
    total = np.exp((here[:, None] + there - cost) / epsilon).sum(1)
    return {"here": here + epsilon * (log_mass - np.log(total))}


@model("softsplat")
def _(image: Any, flow: Any, **_: Any) -> Arrays:
    _, height, width = image.shape
    y, x = np.mgrid[:height, :width]
    tent_x = np.maximum(0, 1 - np.abs((x + flow[0])[..., None] - np.arange(width)))
    tent_y = np.maximum(0, 1 - np.abs((y + flow[1])[..., None] - np.arange(height)))
    return {"splatted": np.einsum("cyx,yxv,yxu->cvu", image, tent_y, tent_x)}


@model("convolution-convolve_line")
def _(x: Any, weight: Any, taps: Any, **_: Any) -> Arrays:
    return {"y": np.convolve(np.pad(x, taps // 2), weight[::-1], mode="valid")}


@model("convolution-convolve_image")
def _(image: Any, weight: Any, **_: Any) -> Arrays:
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, 1), (3, 3))
    return {"filtered": np.einsum("yxij,ij->yx", windows, weight)}


@model("convolution-convolve_channels")
def _(x: Any, weight: Any, bias: Any, **_: Any) -> Arrays:
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    total = np.einsum("iyxab,oiab->oyx", windows, weight) + bias[:, None, None]
    return {"y": np.where(total > 0, total, 0.1 * total)}


@model("smoothing-smooth")
def _(noisy: Any, rate: Any, **_: Any) -> Arrays:
    ahead = np.diff(noisy, append=noisy[-1])
    behind = -np.diff(noisy, prepend=noisy[0])
    return {"smoothed": noisy + rate * (behind / (1 + behind**2) + ahead / (1 + ahead**2))}


@model("fir-fir_float_8")
def _(y: Any, x: Any, taps: Any, **_: Any) -> Arrays:
    return {"y": np.convolve(x, taps)[: len(x)]}


@model("fir-fir_double_3_Border_Wrap")
def _(y: Any, x: Any, taps: Any, **_: Any) -> Arrays:
    return {"y": sum(tap * np.roll(x, k) for k, tap in enumerate(taps))}


@model("activation")
def _(x: Any, kind: Any, slope: Any, **_: Any) -> Arrays:
    sigmoid = 1 / (1 + np.exp(-x))
    chosen = [x, np.maximum(x, 0), np.where(x < 0, slope * x, x), sigmoid, x * sigmoid, np.tanh(x), 0 * x]
    return {"x": np.choose(kind[:, None], chosen)}


def advected(limiter: Callable[[Any, Any], Any], u: Any, v: Any, wind: Any) -> Arrays:
    back, ahead = np.diff(u)[:-1], np.diff(u)[1:]
    correction = np.where(back * ahead > 0, limiter(back, ahead), 0) * (1 - wind[1:-1]) / 2
    v[2:-2] = u[2:-2] - np.diff(wind[1:-1] * (u[1:-1] + correction))[:-1]
    return {"v": v}


@model("advection-advect_float_Limiter_VanLeer")
def _(u: Any, v: Any, wind: Any, **_: Any) -> Arrays:
    return advected(lambda back, ahead: 2 / (1 / back + 1 / ahead), u, v, wind)


@model("advection-advect_double_Limiter_Superbee")
def _(u: Any, v: Any, wind: Any, **_: Any) -> Arrays:
    def superbee(back: Any, ahead: Any) -> Any:
        ratio = back / ahead
        return ahead * np.maximum.reduce([0 * ratio, np.minimum(2 * ratio, 1), np.minimum(ratio, 2)])

    return advected(superbee, u, v, wind)


@model("recurrence-iir")
def _(x: Any, a1: Any, a2: Any, b0: Any, n: Any, **_: Any) -> Arrays:
    matrix = np.eye(n) - a1 * np.eye(n, k=-1) - a2 * np.eye(n, k=-2)
    return {"x": np.linalg.solve(matrix, b0 * x.T).T}


@model("recurrence-cumulative_product")
def _(x: Any, **_: Any) -> Arrays:
    return {"x": np.cumprod(x, axis=1)}


@model("recurrence-logistic_map")
def _(x: Any, **_: Any) -> Arrays:
    for t in range(1, x.shape[1]):
        x[:, t] = 0.1 * x[:, t] + 2.88 * x[:, t - 1] * (1 - x[:, t - 1])
    return {"x": x}


@model("insertion_sort")
def _(x: Any, n: Any, **_: Any) -> Arrays:
    return {"x": np.sort(x, axis=1), "smallest": np.sort(x, axis=1)[:, : n // 2].sum(1)}


@model("insertion_sort-median")
def _(image: Any, **_: Any) -> Arrays:
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, 1, mode="edge"), (3, 3))
    return {"filtered": np.median(windows, axis=(2, 3))}


@model("histogram")
def _(bin: Any, weight: Any, counts: Any, **_: Any) -> Arrays:  # the parameter's own name
    return {"counts": np.bincount(bin, weight, counts.size)}


@model("histogram_cas")
def histogram_cas(bin: Any, weight: Any, counts: Any, n: int) -> Arrays:
    return {"counts": counts + np.bincount(bin, weight**2, len(counts))}


@model("scatter_max")
def _(feature: Any, cell: Any, weight: Any, pooled: Any, **_: Any) -> Arrays:
    out, inside = pooled.copy(), cell >= 0
    np.maximum.at(out, cell[inside], feature[inside] * weight)
    return {"pooled": out}


@model("scatter_max-bounds")
def _(x: Any, segment: Any, low: Any, high: Any, n: int) -> Arrays:
    low, high = low.copy(), high.copy()
    np.minimum.at(low, segment, x)
    np.maximum.at(high, segment, x)
    return {"low": low, "high": high}


@model("scatter_max-normalize_by_max")
def _(x: Any, y: Any, width: int) -> Arrays:
    return {"y": x / np.abs(x).max(axis=1, keepdims=True)}


@model("histogram-soft_histogram")
def _(value: Any, bins: Any, **_: Any) -> Arrays:
    return {"counts": np.maximum(0, 1 - np.abs(value[:, None] * (bins - 1) - np.arange(bins))).sum(0)}


@model("lennard_jones")
def _(x: Any, y: Any, z: Any, list: Any, sigma: Any, epsilon: Any, cutoff: Any, **_: Any) -> Arrays:
    def potential(r: Any) -> Any:
        return 4 * epsilon * ((sigma / r) ** 12 - (sigma / r) ** 6)

    def slope(r: Any) -> Any:
        return -24 * epsilon * (2 * (sigma / r) ** 12 - (sigma / r) ** 6) / r

    position = np.stack([x, y, z])
    away = position[:, list] - position[:, :, None]
    r = np.sqrt((away**2).sum(0))
    near = r <= cutoff
    shifted = potential(r) - potential(cutoff) - (r - cutoff) * slope(cutoff)
    pull = np.where(near, slope(r) - slope(cutoff), 0) / r
    return {"force": (pull * away).sum(2), "energy": np.where(near, shifted, 0).sum(1) / 2}


@model("softmax")
def _(x: Any, **_: Any) -> Arrays:
    return {"x": np.exp(x) / np.exp(x).sum(1, keepdims=True)}


@model("layer_norm")
def _(x: Any, scale: Any, shift: Any, **_: Any) -> Arrays:
    return {"x": (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * scale + shift}


@model("kepler-orbit")
def _(state: Any, mu: Any, dt: Any, steps: Any, **_: Any) -> Arrays:
    def slope(y: Any) -> Any:
        return np.concatenate([y[2:], -mu * y[:2] / np.hypot(y[0], y[1]) ** 3])

    for _ in range(steps):
        k1 = slope(state)
        k2 = slope(state + dt / 2 * k1)
        k3 = slope(state + dt / 2 * k2)
        state = state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + slope(state + dt * k3))
    return {"state": state}


@model("kepler-eccentric_anomaly")
def _(mean: Any, eccentricity: Any, **_: Any) -> Arrays:
    low, high = np.zeros_like(mean), np.full_like(mean, 4)
    for _ in range(60):
        middle = (low + high) / 2
        above = middle - eccentricity * np.sin(middle) > mean
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return {"anomaly": low}


@model("relu_bias")
def _(x: Any, bias: Any, **_: Any) -> Arrays:
    return {"x": np.maximum(x + bias, 0.01 * (x + bias))}


@model("relu_bias-gelu_bias")
def _(x: Any, bias: Any, **_: Any) -> Arrays:
    v = x + bias
    return {"x": v / (1 + np.exp(-2 * 0.7978845608 * (v + 0.044715 * v**3)))}


@model("gemm")
def _(a: Any, b: Any, c: Any, alpha: Any, beta: Any, **_: Any) -> Arrays:
    return {"c": alpha * a @ b + beta * c}


@model("adam")
def _(parameter: Any, gradient: Any, first: Any, second: Any, rate: Any, step: Any, **_: Any) -> Arrays:
    m, v = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
    move = rate * m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-3)
    return {"parameter": parameter - move, "first": m, "second": v}


@model("red_black")
def _(u: Any, f: Any, relaxation: Any, colour: Any, **_: Any) -> Arrays:
    y, x = np.mgrid[: u.shape[0], : u.shape[1]]
    here = ((x + y) % 2 == colour)[1:-1, 1:-1]
    u[1:-1, 1:-1] += here * relaxation * (laplace(u) - f[1:-1, 1:-1]) / 4
    return {"u": u}


@model("scatter_gather-lookup")
def _(x: Any, index: Any, **_: Any) -> Arrays:
    return {"y": x[index]}


@model("scatter_gather-messages")
def _(source: Any, target: Any, weight: Any, x: Any, y: Any, **_: Any) -> Arrays:
    np.add.at(y, target, np.tanh(weight * x[source]) - 0.1 * x[target])
    return {"y": y}


@model("horner")
def _(x: Any, coefficients: Any, **_: Any) -> Arrays:
    return {"x": np.polyval(coefficients, x)}


@model("masked_update")
def _(x: Any, a: Any, mask: Any, total: Any, **_: Any) -> Arrays:
    return {"x": np.choose(mask, [x, a * x, 0 * x]), "total": total + np.sin(x)}


@model("bilateral")
def _(image: Any, spatial: Any, tonal: Any, radius: Any, **_: Any) -> Arrays:
    y, x = (axis.ravel() for axis in np.mgrid[: image.shape[0], : image.shape[1]])
    pixel = image.ravel()
    away = np.stack([y[:, None] - y, x[:, None] - x])
    weight = np.exp(-(away**2).sum(0) / (2 * spatial**2) - (pixel[:, None] - pixel) ** 2 / (2 * tonal**2))
    weight *= np.abs(away).max(0) <= radius
    return {"filtered": (weight @ pixel / weight.sum(1)).reshape(image.shape)}


@model("projection")
def _(image: Any, angle: Any, detectors: Any, step: Any, **_: Any) -> Arrays:
    n = len(image)
    along, offset = np.arange(-0.75 * n, 0.75 * n, step), np.arange(detectors) - (detectors - 1) / 2
    cosine, sine = np.cos(angle)[:, None, None], np.sin(angle)[:, None, None]
    x = (n - 1) / 2 + along * cosine - offset[:, None] * sine
    y = (n - 1) / 2 + along * sine + offset[:, None] * cosine
    inside = (x >= 0) & (y >= 0) & (x < n - 1) & (y < n - 1)
    tent_x, tent_y = (np.maximum(0, 1 - np.abs(p[..., None] - np.arange(n))) for p in (x, y))
    return {"sinogram": step * np.where(inside, np.einsum("adtj,ji,adti->adt", tent_y, image, tent_x, optimize=True), 0).sum(2)}


@model("volume-render")
def _(density: Any, palette: Any, image: Any, colours: Any, width: Any, height: Any, tilt: Any, step: Any, **_: Any) -> Arrays:
    n = len(density)
    z = np.arange(0, n - 1, step)
    y, x = (np.arange(height)[:, None, None] + 0.5) * n / height, (np.arange(width)[None, :, None] + 0.5) * n / width + tilt * z
    tents = [np.maximum(0, 1 - np.abs(np.clip(p, 0, n - 1.001)[..., None] - np.arange(n))) for p in (z, y, x)]
    fog = np.einsum("sk,hosj,owsi,kji->hws", tents[0], tents[1], tents[2], density, optimize=True)
    place = np.minimum(fog, 0.999) * (colours - 1)
    light = np.stack([np.interp(place, np.arange(colours), palette[:, k]) for k in range(3)], -1)
    left = np.cumprod(np.exp(-fog * step), -1)  # what is clear behind each sample
    clear = np.concatenate([np.ones_like(left[..., :1]), left[..., :-1]], -1)
    marched = np.cumsum(left < 0.05, -1) - (left < 0.05) == 0  # up to the first sample behind which it is opaque
    seen = np.where(marched, clear - left, 0)
    opaque = seen.sum(-1, keepdims=True)
    return {"image": np.concatenate([np.einsum("hws,hwsc->hwc", seen, light), opaque], -1)}


@model("tiled_matmul")
def _(A: Any, B: Any, C: Any, **_: Any) -> Arrays:
    return {"C": C + A @ B}


@model("shared_stencil-diffuse")
def _(u: Any, v: Any, c: Any, **_: Any) -> Arrays:
    padded = np.pad(u, 2)
    left, right = (np.stack([padded[2 + s * k :][: len(u)] if s > 0 else padded[2 - k : 2 - k + len(u)] for k in (1, 2)]) for s in (-1, 1))
    return {"v": u + c * ((left + right - 2 * u) * u / np.array([[1], [2]])).sum(0)}


@model("block_scan-scan")
def _(x: Any, **_: Any) -> Arrays:
    return {"x": np.concatenate([np.cumprod(x[i : i + 32]) for i in range(0, len(x), 32)])}


@model("block_softmax")
@model("tile_softmax")
def _(x: Any, **_: Any) -> Arrays:
    weights = np.exp(x - x.max(1, keepdims=True))
    return {"x": weights / weights.sum(1, keepdims=True)}


@model("warp_sum-unit_rows")
def _(x: Any, **_: Any) -> Arrays:
    length = np.sqrt((x * x).sum(1))
    return {"x": x / length[:, None], "length": length}


def xorwow(state: Any) -> Any:
    """The next number of each state, as Marsaglia (2003) has it; the states go on."""
    t = state["a"] ^ state["a"] >> 2
    last = (state["e"] ^ state["e"] << 4) ^ (t ^ t << 1)
    for field, value in zip("abcde", [*(state[f].copy() for f in "bcde"), last], strict=True):
        state[field] = value
    state["weyl"] += np.uint32(362437)
    return state["e"] + state["weyl"]


def normals(x: Any, y: Any) -> tuple[Any, Any]:
    """Two normal numbers from two of 32 bits, by Box and Muller."""
    length = np.sqrt(-2 * np.log((x + 0.5) / 2**32))
    angle = 2 * np.pi * (y + 0.5) / 2**32
    return length * np.sin(angle), length * np.cos(angle)


@model("brownian-paths")
def _(price: Any, drift: Any, volatility: Any, dt: Any, states: Any, steps: Any, **_: Any) -> Arrays:
    states = states.copy()
    for _ in range(steps):
        kept, other = states["has_normal"] == 1, states.copy()
        first, second = normals(xorwow(other), xorwow(other))
        z = np.where(kept, states["normal"], first)
        other["normal"], other["has_normal"] = second, 1
        states = np.where(kept, states, other)
        states["has_normal"] = ~kept
        price = price * np.exp((drift - volatility**2 / 2) * dt + volatility * np.sqrt(dt) * z)
    return {"price": price, "states": states}


def philox(counter: Any, key: tuple[int, int]) -> Any:
    """Philox4x32-10 of Salmon et al. (2011): four numbers for each counter, an array (4, n)."""
    x = [np.asarray(c, np.uint64) for c in counter]
    for k in range(10):
        first, second = x[0] * 0xD2511F53, x[2] * 0xCD9E8D57
        keys = ((key[0] + k * 0x9E3779B9) & 0xFFFFFFFF, (key[1] + k * 0xBB67AE85) & 0xFFFFFFFF)
        x = [second >> 32 ^ x[1] ^ keys[0], second & 0xFFFFFFFF, first >> 32 ^ x[3] ^ keys[1], first & 0xFFFFFFFF]
    return np.stack(x)


@model("brownian-dropout")
def _(x: Any, keep: Any, seed: Any, **_: Any) -> Arrays:
    groups, zeros = np.arange((len(x) + 3) // 4), np.zeros((len(x) + 3) // 4)
    u = (philox((zeros, zeros, groups, zeros), (int(seed), 0)).T.ravel()[: len(x)] + 0.5) / 2**32
    return {"x": np.where(u <= keep, x / keep, 0)}


@cache
def lowered(name: str) -> Kernel:
    """The kernel of a case as core IR."""
    case = CASES[name]
    kernel = normalize(replace(parse(case.file).kernel(case.kernel), dynamic=case.geometry()[2]))
    verify(kernel)
    return kernel


def run(case: Case, executor: Any, kernel: Kernel) -> tuple[Arrays, Arrays]:
    """The arguments of a case, before and after the primal."""
    before, after = (case.arrays({d.name: d.type for d in parse(case.file).kernel(case.kernel).parameters}) for _ in range(2))
    grid, block, shared = case.geometry()
    bound = bind(case.kernel, parse(case.file).kernel(case.kernel).parameters, list(after.values()))
    executor.launch(kernel, grid, block, bound.primals(), shared_mem=shared)
    return before, after


def wide(value: Any) -> Any:
    """In the model's precision; vectors and structs by value as they are."""
    if isinstance(value, tuple):
        return value
    if value.dtype == bfloat16:
        return value.astype(np.float64)
    return value.astype({"f": np.float64, "c": np.complex128}[value.dtype.kind]) if value.dtype.kind in "fc" else value.copy()


def by_field(arrays: Arrays) -> Arrays:
    """The fields of arrays of structs as arrays of their own."""
    found: Arrays = {}
    for key, value in arrays.items():
        fields = getattr(getattr(value, "dtype", None), "names", None)
        found.update({f"{key}.{name}": value[name] for name in fields} if fields else {key: value})
    return found


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", CASES)
def test_primal_against_its_model(name: str, executor: Any) -> None:
    case = CASES[name]
    before, after = run(case, executor, lowered(name))
    expected = MODELS[name](**{key: wide(value) for key, value in before.items()})
    before, after, expected = by_field(before), by_field(after), by_field(expected)
    for key, value in expected.items():
        tolerance = 2.0**-8 if after[key].dtype == bfloat16 else 2e-5 if after[key].dtype in (np.float32, np.complex64) else 1e-11
        error = np.abs(wide(after[key]) - value).max() / max(np.abs(value).max(), 1e-30)
        assert error < tolerance, f"'{key}' is off by {error:.1e}"
    written = {key.partition(".")[0] for key in before if not np.array_equal(before[key], after[key])}
    stated = {key.partition(".")[0] for key in expected}
    assert stated <= written <= {*stated, "scratch"}
