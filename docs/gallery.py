"""The pictures of the gallery: `python docs/gallery.py`, minutes; with names of kernels only theirs.

Each picture has what a kernel makes (the primal) and the gradient of a number that is formed from it, side by side. A scene is a function
that sets up the arrays, runs the kernel of `kernels/` as it stands there, and gives the panels. What has nothing to be seen, sums and
products of matrices mostly, is listed in `WITHOUT` with the reason. Pictures go to `docs/pictures/`, the page to `docs/gallery.md`.
Needs matplotlib, and a C++ compiler to be quick.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot
from PIL import Image as Pillow

import gpuad
from gpuad import Active, Duplicated
from gpuad.tools.demo import gray_scott as gray_scott_demo
from gpuad.tools.demo import long as long_demo
from gpuad.tools.demo import wave as wave_demo
from gpuad.tools.demo.outcome import draw

matplotlib.use("Agg")
HERE = Path(__file__).parent
KERNELS = HERE.parent / "kernels"
PICTURES = HERE / "pictures"
WITHOUT = {
    "adam": "parameters and moments of an optimiser, without a place",
    "add_rms_norm": "rows of numbers, scaled",
    "block_scan": "running products of unordered numbers",
    "block_softmax": "as softmax, a row a block",
    "bodies": "as nbody, with vectors",
    "cross_section": "sums of tabulated numbers",
    "csr_half": "a sparse matrix times a vector",
    "csr_spmv": "a sparse matrix times a vector",
    "dense": "a product of matrices",
    "gemm": "a product of matrices",
    "histogram_cas": "as histogram, by atomicCAS",
    "involution": "windows for each pixel that a network makes",
    "layer_norm": "rows of numbers, scaled and shifted",
    "log_likelihood": "a number for each row",
    "lattice_boltzmann_3d": "as lattice_boltzmann, in three dimensions",
    "masked_update": "unordered numbers under a mask",
    "multipole": "as cross_section, from poles",
    "neighbourhood": "products of rows with their neighbours",
    "qrnn": "numbers through gates, without a place",
    "saxpy": "y += a x",
    "scatter_gather": "rows looked up, messages of a random graph",
    "separable": "filters for each pixel that a network makes",
    "shock_hydrodynamics": "the parts of a time step",
    "sinkhorn": "two lists of potentials",
    "tile_softmax": "as softmax, a row a tile",
    "tiled_matmul": "a product of matrices",
    "warp_sum": "rows of numbers, scaled",
}


# --- panels --------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Image:
    """A field. `signed`: colours around 0, with the same limit on both sides; `mark`: a place, by row and column;
    `share`: how many of a hundred values the colours reach."""

    title: str
    values: Any
    signed: bool = False
    colours: str = "viridis"
    mark: tuple[int, int] | None = None
    share: float = 100

    def draw(self, axis: Any) -> None:
        """Fills the axis."""
        values = np.asarray(self.values, float)
        limit = float(np.nanpercentile(np.abs(values), self.share)) or 1.0
        limits = {"vmin": -limit, "vmax": limit, "cmap": "RdBu_r"} if self.signed else {"cmap": self.colours}
        shown = axis.imshow(values, interpolation="nearest", aspect="auto" if values.shape[0] * 2 < values.shape[1] else "equal", **limits)
        axis.set(xticks=[], yticks=[])
        if self.mark:
            axis.plot(*self.mark[::-1], "+", color="lime", markersize=9, markeredgewidth=1.5)
        bar = axis.figure.colorbar(shown, ax=axis, shrink=0.85, pad=0.02)
        bar.ax.tick_params(labelsize=7)
        bar.formatter.set_powerlimits((-2, 3))


@dataclass(frozen=True)
class Lines:
    """Curves over one axis. `curves`: by label, None for no legend; `dots`: without lines between."""

    title: str
    x: Any
    curves: dict[str, Any]
    along: str = ""
    dots: bool = False

    def draw(self, axis: Any) -> None:
        """Fills the axis."""
        for label, values in self.curves.items():
            axis.plot(self.x, values, "." if self.dots else "-", markersize=2.5, linewidth=1.3, label=label)
        if len(self.curves) > 1:
            axis.legend(fontsize=7, frameon=False)
        axis.set_xlabel(self.along, fontsize=8)
        axis.tick_params(labelsize=7)
        axis.ticklabel_format(axis="y", scilimits=(-2, 3))
        axis.axhline(0, color="0.8", linewidth=0.8, zorder=0)


@dataclass(frozen=True)
class Points:
    """Points in the plane, with a colour or an arrow each."""

    title: str
    at: Any
    colour: Any = None
    arrows: Any = None
    size: float = 8

    def draw(self, axis: Any) -> None:
        """Fills the axis."""
        x, y = np.asarray(self.at).T
        if self.colour is None:
            axis.scatter(x, y, c="0.25", s=self.size)
        else:
            limit = float(np.abs(self.colour).max()) or 1.0
            shown = axis.scatter(x, y, c=self.colour, s=self.size, cmap="RdBu_r", edgecolors="0.6", linewidths=0.4, vmin=-limit, vmax=limit)
            axis.figure.colorbar(shown, ax=axis, shrink=0.85, pad=0.02).ax.tick_params(labelsize=7)
        if self.arrows is not None:
            axis.quiver(x, y, *np.asarray(self.arrows).T, color="tab:red", width=0.006)
        axis.set_aspect("equal", adjustable="datalim")
        axis.tick_params(labelsize=7)


@dataclass(frozen=True)
class Scene:
    """A picture: of which file, what it shows, and how its panels are made."""

    name: str
    file: str
    caption: str
    panels: Callable[[], Sequence[Any]]


SCENES: list[Scene] = []


def scene(file: str, caption: str) -> Callable[[Callable[[], Sequence[Any]]], Callable[[], Sequence[Any]]]:
    """Registers a scene under the name of its function."""

    def register(panels: Callable[[], Sequence[Any]]) -> Callable[[], Sequence[Any]]:
        SCENES.append(Scene(panels.__name__, file, caption, panels))
        return panels

    return register


# --- what scenes share ---------------------------------------------------------------------------------------------------------------


def kernel(file: str, name: str) -> Any:
    """A kernel as it ships."""
    return gpuad.kernel(KERNELS / f"{file}.cu", name)


def pair(values: Any, dtype: Any = np.float32) -> Duplicated:
    """An array with a shadow of zeros."""
    return Duplicated(np.array(values, dtype, order="C"))


def seeded(values: Any, seed: Any) -> Duplicated:
    """An array with a given shadow."""
    values = np.array(values, order="C")
    shadow = np.zeros_like(values)
    shadow[...] = seed
    return Duplicated(values, shadow)


def plane(n: int, block: tuple[int, int] = (16, 8), m: int | None = None) -> tuple[Any, Any]:
    """Grid and block for `n` columns and `m` rows."""
    return (-(-n // block[0]), -(-(m or n) // block[1])), block


def blob(n: int, x: float, y: float, width: float) -> Any:
    """A Gaussian bump; places and width in units of the side."""
    rows, columns = np.mgrid[0:n, 0:n] / (n - 1)
    return np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * width**2))


def photograph(n: int) -> Any:
    """Something to filter: a disc, a bar and a slope, in [0, 1]."""
    rows, columns = np.mgrid[0:n, 0:n] / (n - 1)
    picture = 0.2 + 0.3 * columns
    picture = np.where((columns - 0.35) ** 2 + (rows - 0.4) ** 2 < 0.05, 0.9, picture)
    picture = np.where((abs(rows - 0.78) < 0.06) & (columns > 0.2) & (columns < 0.85), 0.05, picture)
    return np.where((columns > 0.66) & (columns < 0.9) & (rows < 0.5) & ((columns * 30).astype(int) % 2 == 0), 0.75, picture)


def at(shape: tuple[int, ...], *place: int) -> Any:
    """The seed of the value at one place."""
    seed = np.zeros(shape, np.float32)
    seed[place] = 1
    return seed


# --- fields ---------------------------------------------------------------------------------------------------------------------------


@scene("heat.cu", "150 steps of the heat equation; how the temperature at the cross depends on where it was warm before")
def heat() -> Sequence[Any]:
    n, k = 96, kernel("heat", "heat")
    start = blob(n, 0.3, 0.35, 0.06) + blob(n, 0.6, 0.65, 0.04)
    u, v = pair(start), pair(start)
    with gpuad.Tape() as tape:
        for source, target in [(u, v), (v, u)] * 75:
            k[plane(n)](source, target, np.float32(0.2), n, n)
    tape.reverse({u: at((n, n), 48, 48)})
    return Image("u after 150 steps", u.primal, colours="inferno", mark=(48, 48)), Image("d u[48, 48] / d u(0)", u.shadow, colours="magma")


@scene("fisher_kpp.cu", "a population that spreads and grows; how the sum of it at the end depends on the start: most where it is thin")
def fisher_kpp() -> Sequence[Any]:
    n, k = 96, kernel("fisher_kpp", "fisher_kpp")
    start = 0.6 * blob(n, 0.35, 0.4, 0.05) + 0.2 * blob(n, 0.7, 0.7, 0.03)
    u, v = pair(start), pair(start)
    with gpuad.Tape() as tape:
        for source, target in [(u, v), (v, u)] * 30:
            k[plane(n)](target, source, np.float32(0.2), np.float32(0.1), n)
    tape.reverse({u: 1.0})
    return Image("u after 60 steps", u.primal), Image("d sum(u) / d u(0)", u.shadow, colours="magma")


@scene("gray_scott.cu", "reaction and diffusion; how the chemical at the middle depends on its first field")
def gray_scott() -> Sequence[Any]:
    n, k = 96, kernel("gray_scott", "gray_scott")
    spots = sum(blob(n, x, y, 0.06) for x, y in ((0.5, 0.42), (0.25, 0.5), (0.75, 0.6), (0.45, 0.75)))
    u, v, u2, v2 = (pair(a, np.float64) for a in (1 - 0.5 * spots, 0.25 * spots, np.ones((n, n)), np.zeros((n, n))))
    with gpuad.Tape() as tape:
        for (a, b), (c, d) in [((u, v), (u2, v2)), ((u2, v2), (u, v))] * 600:
            k[plane(n)](a, b, c, d, 0.035, 0.06, n)
    tape.reverse({v: at((n, n), 48, 48)})
    return Image("v after 1200 steps", v.primal, mark=(48, 48)), Image("d v[48, 48] / d v(0)", v.shadow, signed=True)


def _wave_map(n: int) -> Any:
    return 0.2 * (1 - 0.5 * blob(n, 0.6, 0.55, 0.09))


@scene("wave.cu", "a wave passes a slow spot; how the misfit at a line of microphones depends on the speed in every cell")
def wave() -> Sequence[Any]:
    n, k = 128, kernel("wave", "wave")
    start = blob(n, 0.25, 0.5, 0.025)

    def run(speed: Any) -> tuple[Any, Any, Any]:
        old, now, c2 = pair(start), pair(start), pair(speed)
        tape = gpuad.Tape()
        with tape:
            for _ in range(150):
                k[plane(n)](old, now, c2, n, n)
                old, now = now, old
        return tape, now, c2

    _, seen, _ = run(_wave_map(n))
    tape, now, c2 = run(np.full((n, n), 0.2))
    seed = np.zeros((n, n), np.float32)
    seed[:, 100] = (now.primal - seen.primal)[:, 100]
    tape.reverse({now: seed})
    return Image("pressure after 150 steps", seen.primal, signed=True), Image("d misfit / d speed^2", c2.shadow, signed=True)


@scene("wave_jit.py", "the same equation as a Python function of cupyx.jit; how the pressure at the cross depends on the pressure before")
def wave_jit() -> Sequence[Any]:
    sys.path.insert(0, str(KERNELS))
    from wave_jit import wave_step

    n = 96
    start, speed = blob(n, 0.3, 0.6, 0.03), np.full((n, n), 0.25)
    speed[: n // 3] = 0.08
    old, now = pair(start, np.float64), pair(start, np.float64)
    with gpuad.Tape() as tape:
        for _ in range(80):
            wave_step[(-(-n // 16), -(-n // 8)), (16, 8)](old, now, speed)
            old, now = now, old
    tape.reverse({now: blob(n, 60 / 95, 40 / 95, 0.03)})
    return Image("pressure after 80 steps", now.primal, signed=True, mark=(40, 60)), Image(
        "d (u around the cross) / d u(0)", now.shadow + old.shadow, signed=True, share=99
    )


@scene("fdtd.cu", "light meets glass; how the energy behind the glass depends on its permittivity, cell by cell")
def fdtd() -> Sequence[Any]:
    n = 128
    update_h, update_e = (kernel("fdtd", name) for name in ("update_h", "update_e"))
    rows, columns = np.mgrid[0:n, 0:n] / (n - 1)
    glass = 1 + 2.0 * ((columns - 0.55) ** 2 + (rows - 0.5) ** 2 < 0.03)
    wave = np.exp(-(((columns - 0.2) / 0.04) ** 2)) * np.cos(2 * np.pi * (columns - 0.2) / 0.08)
    e, hx, hy, epsilon, sigma = (pair(a) for a in (wave, 0 * wave, -wave, glass, 0 * glass))
    launch = plane(n, (16, 16))
    with gpuad.Tape() as tape:
        for _ in range(150):
            update_h[launch](hx, hy, e, np.float32(0.5), n, n)
            update_e[launch](e, hx, hy, epsilon, sigma, np.float32(0.5), n, n)
    behind = e.primal * ((columns > 0.72) & (abs(rows - 0.5) < 0.12))
    tape.reverse({e: behind.astype(np.float32)})
    return Image("electric field", e.primal, signed=True), Image("d energy / d epsilon", epsilon.shadow, signed=True)


@scene("beam.cu", "a beam goes through a lens and air; how the light in the middle of the focus depends on the index of the air")
def beam() -> Sequence[Any]:
    n = 80
    propagate, lens = kernel("beam", "propagate"), kernel("beam", "lens")
    field = (blob(n, 0.5, 0.5, 0.17) + 0.0j).astype(np.complex64)
    a, b, index = Duplicated(field), Duplicated(field.copy()), pair(np.ones((n, n)))
    dz, kerr = np.float32(0.02), np.float32(0.05)
    with gpuad.Tape() as tape:
        lens[plane(n)](a, np.float32(16), np.float32(28), n, n)
        for source, target in [(a, b), (b, a)] * 240:
            propagate[plane(n)](source, target, index, dz, kerr, n, n)
    rows, columns = np.mgrid[0:n, 0:n]
    middle = (rows - n / 2) ** 2 + (columns - n / 2) ** 2 < 9
    tape.reverse({a: (2 * a.primal * middle).astype(np.complex64)})
    return Image("intensity", abs(a.primal) ** 2, colours="inferno"), Image("d light in the focus / d index", index.shadow, signed=True)


def _populations(ux: Any, uy: Any) -> Any:
    e = np.array([(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)])
    w = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
    eu = 3 * (e[:, 0, None, None] * ux + e[:, 1, None, None] * uy)
    return w[:, None, None] * (1 + eu + eu**2 / 2 - 1.5 * (ux**2 + uy**2))


def _flow(f: Any) -> tuple[Any, Any]:
    rho = f.sum(0)
    return (f[1] - f[3] + f[5] - f[6] - f[7] + f[8]) / rho, (f[2] - f[4] + f[5] + f[6] - f[7] - f[8]) / rho


def _curl(f: Any) -> Any:
    ux, uy = _flow(f)
    return np.gradient(uy, axis=1) - np.gradient(ux, axis=0)


@scene("lattice_boltzmann.cu", "a shear layer rolls up; how the flow through one spot depends on the momentum at the start")
def lattice_boltzmann() -> Sequence[Any]:
    n, k = 96, kernel("lattice_boltzmann", "lattice_boltzmann")
    rows, columns = np.mgrid[0:n, 0:n] / n
    ux = 0.08 * np.where(rows < 0.5, np.tanh(40 * (rows - 0.25)), np.tanh(40 * (0.75 - rows)))
    uy = 0.01 * np.sin(2 * np.pi * (columns + 0.25))
    f, g = (pair(_populations(ux, uy)) for _ in range(2))
    with gpuad.Tape() as tape:
        for source, target in [(f, g), (g, f)] * 350:
            k[((-(-n // 32), n), (32,))](source, target, np.float32(1.9), n, n)
    seed = np.zeros((9, n, n), np.float32)
    for way, sign in ((2, 1), (5, 1), (6, 1), (4, -1), (7, -1), (8, -1)):
        seed[way, 44:52, 44:52] = sign
    tape.reverse({f: seed})
    d = f.shadow
    return Image("vorticity after 700 steps", _curl(f.primal), signed=True), Image("d flow up / d f1(0) - f3(0)", d[1] - d[3], signed=True)


@scene("channel.cu", "a flow past three posts; how the momentum in the box depends on the populations at the start")
def channel() -> Sequence[Any]:
    n, m, k = 140, 72, kernel("channel", "channel")
    rows, columns = np.mgrid[0:m, 0:n]
    solid = np.zeros((m, n), np.int32)
    for x, y in ((40, 36), (75, 20), (75, 52)):
        solid |= (columns - x) ** 2 + (rows - y) ** 2 < 36
    speed = np.where(solid, 0, 0.08) * np.ones((m, n))
    f, g = (pair(_populations(speed, 0 * speed)) for _ in range(2))
    with gpuad.Tape() as tape:
        for source, target in [(f, g), (g, f)] * 150:
            k[plane(n, (32, 4), m)](source, target, solid, np.float32(1.6), np.float32(0.0005), m, n)
    seed = np.zeros((9, m, n), np.float32)
    for way, sign in ((1, 1), (5, 1), (8, 1), (3, -1), (6, -1), (7, -1)):
        seed[way, 30:42, 110:122] = sign
    tape.reverse({f: seed})
    ux, uy = _flow(f.primal)
    return (
        Image("speed", np.where(solid, np.nan, np.hypot(ux, uy))),
        Image("d momentum / d f1(0)", f.shadow[1], signed=True, share=99.5),
    )


@scene("red_black.cu", "relaxation of Poisson's equation, one colour after the other; how the middle depends on the sources")
def red_black() -> Sequence[Any]:
    n, k = 65, kernel("red_black", "red_black")
    u, f = pair(np.zeros((n, n)), np.float64), pair(blob(n, 0.3, 0.3, 0.04) - blob(n, 0.7, 0.6, 0.06), np.float64)
    with gpuad.Tape() as tape:
        for _ in range(200):
            for colour in (0, 1):
                k[plane(n)](u, f, 1.9, colour, n)
    tape.reverse({u: at((n, n), 32, 32)})
    return Image("u", u.primal, signed=True), Image("-d u[32, 32] / d f: Green's function", -f.shadow, colours="magma")


# --- images ---------------------------------------------------------------------------------------------------------------------------


@scene("bilateral.cu", "noise goes, edges stay; how one filtered pixel depends on the picture: on its own side of the edge only")
def bilateral() -> Sequence[Any]:
    n, k = 64, kernel("bilateral", "bilateral")
    noisy = photograph(n) + np.random.default_rng(0).normal(0, 0.06, (n, n))
    image, filtered = pair(noisy), seeded(np.zeros((n, n), np.float32), at((n, n), 25, 35))
    gpuad.autodiff(k, *plane(n, (8, 8)), (image, filtered, np.float32(3), np.float32(0.2), 6, n, n))
    there = np.s_[14:36, 24:46]
    return (
        Image("before", image.primal, colours="gray"),
        Image("filtered", filtered.primal, colours="gray"),
        Image("d filtered[25, 35] / d image (cut out)", image.shadow[there], signed=True, share=99.5),
    )


@scene("bilinear.cu", "a picture is sampled along a turned grid; how the sum of the samples depends on the picture")
def bilinear() -> Sequence[Any]:
    n, k = 64, kernel("bilinear", "bilinear")
    rows, columns = np.mgrid[0:n, 0:n]
    c, s, half = 0.62, 0.45, n / 2
    x, y = half + c * (columns - half) - s * (rows - half), half + s * (columns - half) + c * (rows - half)
    image, sampled = pair(photograph(n)), seeded(np.zeros(n * n, np.float32), 1)
    gpuad.autodiff(k, -(-n * n // 64), 64, (image, pair(x.ravel() + 0.01), pair(y.ravel() + 0.01), sampled, n, n, n * n))
    return (
        Image("sampled", sampled.primal.reshape(n, n), colours="gray"),
        Image("d sum / d image: how often a pixel is used", image.shadow, colours="magma"),
    )


@scene("convolution.cu", "edges of a picture; how their energy depends on every pixel")
def convolution() -> Sequence[Any]:
    n, k = 64, kernel("convolution", "convolve_image")
    weight = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float32) / 4
    image, filtered = pair(photograph(n)), pair(np.zeros((n, n)))
    k(*plane(n, (8, 8)), (image, weight, filtered, n, n))
    edges = filtered.primal.copy()
    filtered.shadow[...] = edges
    gpuad.autodiff(k, *plane(n, (8, 8)), (image, weight, filtered, n, n))
    return (
        Image("filtered", edges, signed=True),
        Image("d energy / d image", image.shadow[2:-2, 2:-2], signed=True),
    )


@scene("insertion_sort.cu", "a 3 x 3 median filter; each result depends on one pixel of nine: how often a pixel was the median")
def insertion_sort() -> Sequence[Any]:
    n, k = 64, kernel("insertion_sort", "median")
    rng = np.random.default_rng(0)
    speckled = np.where(rng.random((n, n)) < 0.08, rng.random((n, n)), photograph(n) + rng.normal(0, 1e-3, (n, n)))
    image, filtered = pair(speckled), seeded(np.zeros((n, n), np.float32), 1)
    gpuad.autodiff(k, *plane(n, (8, 8)), (image, filtered, n, n))
    return (
        Image("before", image.primal, colours="gray"),
        Image("median", filtered.primal, colours="gray"),
        Image("d sum / d image", image.shadow, colours="magma"),
    )


@scene("softsplat.cu", "pixels are splatted to where the flow points; how the misfit to a target depends on the flow")
def softsplat() -> Sequence[Any]:
    n, k = 64, kernel("softsplat", "softsplat")
    rows, columns = np.mgrid[0:n, 0:n]
    flow = 5 * np.stack([-(rows - n / 2), columns - n / 2]) / n + 0.01
    image, out = pair(photograph(n)[None]), pair(np.zeros((1, n, n)))
    field = pair(flow)
    k(-(-n * n // 128), 128, (n * n, image, field, out, n, n))
    splatted = out.primal.copy()
    out.shadow[...] = splatted - photograph(n)[None]
    out.primal.fill(0)
    gpuad.autodiff(k, -(-n * n // 128), 128, (n * n, image, field, out, n, n))
    return (
        Image("splatted", splatted[0], colours="gray"),
        Image("d misfit / d flow, along x", field.shadow[0], signed=True),
        Image("along y", field.shadow[1], signed=True),
    )


@scene("projection.cu", "a phantom and its sinogram; the gradient of the misfit is the back projection of the residual")
def projection() -> Sequence[Any]:
    n, angles, k = 64, 90, kernel("projection", "projection")
    detectors = 92
    phantom = blob(n, 0.4, 0.45, 0.1) + (blob(n, 0.65, 0.6, 0.04) > 0.4)
    angle = (np.pi * np.arange(angles) / angles + 0.01).astype(np.float32)
    launch = (-(-detectors // 32), angles), (32, 1)
    sinogram = pair(np.zeros((angles, detectors)))
    k(*launch, (pair(phantom), angle, sinogram, n, detectors, np.float32(0.5)))
    measured = sinogram.primal.copy()
    image = pair(np.zeros((n, n)))
    sinogram.shadow[...] = 0 - measured
    gpuad.autodiff(k, *launch, (image, angle, sinogram, n, detectors, np.float32(0.5)))
    return (
        Image("phantom", phantom, colours="gray"),
        Image("sinogram", measured, colours="inferno"),
        Image("-d misfit / d image, from 0", -image.shadow, colours="gray"),
    )


@scene("correlation.cu", "how alike a picture and the same one moved are; how the match at the true displacement depends on the first")
def correlation() -> Sequence[Any]:
    n, reach, k = 64, 3, kernel("correlation", "correlation")
    side = 2 * reach + 1
    first, second = pair(photograph(n)[None]), pair(np.roll(photograph(n), (2, -1), (0, 1))[None])
    cost = pair(np.zeros((side * side, n, n)))
    cost.shadow[(2 + reach) * side + reach - 1] = 1
    gpuad.autodiff(k, (8, 8, side * side), (8, 8), (first, second, cost, 1, n, n, reach))
    return (
        Image(
            "mean of the match, by displacement", cost.primal.mean((1, 2)).reshape(side, side), colours="magma", mark=(2 + reach, reach - 1)
        ),
        Image("d match / d first", first.shadow[0], colours="gray"),
        Image("d match / d second", second.shadow[0], colours="gray"),
    )


@scene("backprojection.cu", "a sinogram thrown back without a filter; where one pixel has its light from")
def back_projection() -> Sequence[Any]:
    n, angles, detectors, k = 64, 90, 92, kernel("backprojection", "back_projection")
    angle = (np.pi * np.arange(angles) / angles + 0.01).astype(np.float32)
    rows, columns = np.mgrid[0:angles, 0:detectors]
    sinogram = pair(np.exp(-(((columns - 46 - 15 * np.sin(angle[rows])) / 3) ** 2)))
    image = pair(np.zeros((n, n)))
    image.shadow[20, 40] = 1
    gpuad.autodiff(k, *plane(n, (8, 8)), (sinogram, angle, image, n, angles, detectors))
    return (
        Image("sinogram", sinogram.primal, colours="inferno"),
        Image("thrown back", image.primal, colours="gray", mark=(20, 40)),
        Image("d pixel / d sinogram", sinogram.shadow, colours="inferno"),
    )


@scene("gridding.cu", "samples along a spiral, spread over a grid; how the energy on the grid depends on each sample")
def gridding() -> Sequence[Any]:
    side, samples, k = 64, 1500, kernel("gridding", "grid_samples")
    turn = np.linspace(0, 1, samples)
    place = (32 + 28 * turn[:, None] * np.stack([np.cos(60 * turn), np.sin(60 * turn)], 1)).astype(np.float32)
    sample, density = pair(np.stack([np.cos(9 * turn), np.sin(9 * turn)], 1)), pair(turn + 0.05)
    grid = pair(np.zeros((side, side, 2)))
    args = place, sample, density, grid, samples, side, np.float32(8.5)
    k(-(-samples // 32), 32, args)
    grid.shadow[...] = grid.primal
    grid.primal.fill(0)
    gpuad.autodiff(k, -(-samples // 32), 32, args)
    share = np.full((side, side), np.nan)
    share[place[:, 1].astype(int), place[:, 0].astype(int)] = density.shadow
    return Image("real part", grid.primal[..., 0], signed=True), Image("d energy / d density, at the samples", share)


@scene("spiking.cu", "neurons with growing input, through time; how the number of spikes depends on the current at each moment")
def spiking() -> Sequence[Any]:
    n, steps, k = 64, 96, kernel("spiking", "spiking")
    current, membrane = pair(np.tile(np.linspace(0.05, 0.5, n), (steps, 1))), pair(np.zeros((steps + 1, n)))
    spike = seeded(np.zeros((steps, n), np.float32), 1)
    leak, threshold = pair(np.full(n, 0.9)), pair(np.ones(n))
    gpuad.autodiff(k, 4, 16, (current, membrane, spike, leak, threshold, np.float32(12), steps, n))
    return (
        Image("membrane", membrane.primal, colours="inferno"),
        Image("spikes", spike.primal, colours="gray"),
        Image("d spikes / d current", current.shadow, signed=True, share=99),
    )


@scene("volume.cu", "glowing fog, rendered; how the red light depends on the density, summed along the rays: fog hides what is behind")
def volume() -> Sequence[Any]:
    n, size, colours, k = 32, 64, 4, kernel("volume", "render")
    z, y, x = np.mgrid[0:n, 0:n, 0:n] / (n - 1)
    density = 0.7 * np.exp(-(((x - 0.45) ** 2 + (y - 0.5) ** 2 + (z - 0.3) ** 2) / 0.02))
    density += 0.5 * np.exp(-(((x - 0.7) ** 2 + (y - 0.35) ** 2 + (z - 0.7) ** 2) / 0.01))
    palette = np.array([[0, 0, 0.1, 0], [0.1, 0.2, 0.9, 0], [0.9, 0.3, 0.2, 0], [1, 0.9, 0.5, 0]], np.float32)
    fog, image = pair(density), seeded(np.zeros((size, size, 4), np.float32), [1, 0, 0, 0])
    gpuad.autodiff(k, *plane(size, (16, 4)), (fog, palette, image, n, colours, size, size, np.float32(0.1), np.float32(0.4)))
    return (
        Image("red light", image.primal[..., 0], colours="inferno"),
        Image("d red / d density, front half", fog.shadow[: n // 2].sum(0), signed=True),
        Image("back half", fog.shadow[n // 2 :].sum(0), signed=True),
    )


# --- particles and points -------------------------------------------------------------------------------------------------------------


@scene("camera.cu", "points of a cube on the film; how the spread of the picture depends on where they stand")
def camera() -> Sequence[Any]:
    k = kernel("camera", "project")
    side = np.linspace(-0.6, 0.6, 6)
    points = np.stack(np.meshgrid(side, side, [-0.5, 0.5]), -1).reshape(-1, 3)
    n = len(points)
    layout = [("focal", "f4", 2), ("centre", "f4", 2), ("bend", "f4", 2), ("turn", "f4", 3), ("at", "f4", 3), ("flipped", "i4")]
    given = np.array(([1.2, 1.2], [0, 0], [-0.15, 0.02], [0.2, 0.5, 0.1], [0, 0, 2.5], 0), np.dtype(layout))
    pixel = np.dtype([("x", "f4"), ("y", "f4"), ("brightness", "f4"), ("seen", "i4")])
    where, pixels = pair(points), Duplicated(np.zeros(n, pixel), np.zeros(n, pixel))
    k(1, 128, (where, given[()], (1.0, 1.0, 1.0), pixels, n))
    film = np.stack([pixels.primal["x"], pixels.primal["y"]], -1)
    pixels.shadow["x"], pixels.shadow["y"] = film.T
    gpuad.autodiff(k, 1, 128, (where, given[()], (1.0, 1.0, 1.0), pixels, n))
    return Points("on the film", film), Points(
        "-d spread / d point, seen along z", points[:, :2] + 0.01 * points[:, 2:], None, -where.shadow[:, :2]
    )


@scene("nbody.cu", "two clusters fall towards each other; how the distance of their centres depends on each body's first place")
def nbody() -> Sequence[Any]:
    rng, n = np.random.default_rng(1), 120
    forces, move = kernel("nbody", "forces"), kernel("nbody", "move")
    start = rng.normal(0, 0.25, (n, 3)) + np.where(np.arange(n)[:, None] < n // 2, [-0.8, 0, 0], [0.8, 0.2, 0])
    x, v, a = pair(start), pair(np.zeros((n, 3))), pair(np.zeros((n, 3)))
    mass = np.full(n, 1 / n, np.float32)
    with gpuad.Tape() as tape:
        for _ in range(60):
            forces[1, 128](x, mass, a, np.float32(0.1), n)
            move[3, 128](x, v, a, np.float32(0.02), 3 * n)
    seed = np.zeros((n, 3), np.float32)
    seed[: n // 2, 0], seed[n // 2 :, 0] = -2 / n, 2 / n
    tape.reverse({x: seed})
    return Points("places after 60 steps", x.primal[:, :2]), Points("d distance / d x(0), at x(0)", start[:, :2], n * x.shadow[:, 0])


@scene("lennard_jones.cu", "atoms near a lattice; the gradient of their energy, beside the forces that the kernel computes itself")
def lennard_jones() -> Sequence[Any]:
    rng, side = np.random.default_rng(2), 7
    k, n = kernel("lennard_jones", "lennard_jones"), side * side
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2) * 1.12
    places = grid + rng.normal(0, 0.06, grid.shape)
    x, y, z = (pair(a, np.float64) for a in (*places.T, np.zeros(n)))
    others = np.array([[j for j in range(n) if j != i] for i in range(n)], np.int32)
    force, energy = np.zeros((3, n)), seeded(np.zeros(n), 1)
    gpuad.autodiff(k, 2, 32, (x, y, z, others, n - 1, 1.0, 0.7, 3.1, gpuad.Const(force), energy, n))
    gradient = np.stack([x.shadow, y.shadow], -1)
    return Points("force", places, None, force[:2].T), Points("-d energy / d place", places, None, -gradient)


@scene("kepler.cu", "orbits by Runge-Kutta; how the last distance from the sun depends on the first velocity")
def kepler() -> Sequence[Any]:
    k, n = kernel("kepler", "orbit"), 40
    speeds = np.linspace(0.75, 1.3, n)
    state = np.stack([np.ones(n), np.zeros(n), np.zeros(n), speeds])
    trail, places = state.copy(), []
    for _ in range(120):
        k(2, 32, (trail, 1.0, 0.05, 1, n))
        places.append(trail[:2].copy())
    s = pair(state, np.float64)
    with gpuad.Tape() as tape:
        k[2, 32](s, 1.0, 0.05, 120, n)
    distance = np.hypot(*s.primal[:2])
    tape.reverse({s: np.concatenate([s.primal[:2] / distance, np.zeros((2, n))])})
    shown = np.stack(places)[:, :, ::13]
    return (
        Points("orbits", shown.transpose(0, 2, 1).reshape(-1, 2), size=2),
        Lines("distance at the end", speeds, {"distance": distance}, "first speed"),
        Lines("d distance / d first speed", speeds, {"": s.shadow[3]}, "first speed"),
    )


@scene("plasma.cu", "particles of a plasma, as structs; how their energy after a push depends on the field they move in")
def plasma() -> Sequence[Any]:
    rng, n, cells = np.random.default_rng(3), 2000, 48
    k = kernel("plasma", "push")
    names, offsets = ["offset", "velocity_x", "velocity_y", "weight", "cell"], [0, 8, 12, 16, 20]
    dtype = np.dtype({"names": names, "formats": ["f4"] * 4 + ["i4"], "offsets": offsets, "itemsize": 24})
    particle = np.zeros(n, dtype)
    place = rng.random(n) * cells
    particle["cell"], particle["offset"], particle["weight"] = place.astype(int), place % 1, 1
    particle["velocity_x"] = np.where(rng.random(n) < 0.5, 1.2, -1.2) + rng.normal(0, 0.2, n)
    p = Duplicated(particle, np.zeros(n, dtype))
    field = pair(np.sin(2 * np.pi * np.arange(cells + 1) / cells))
    with gpuad.Tape() as tape:
        for _ in range(40):
            k[-(-n // 32), 32](p, field, np.float32(0.0), np.float32(0.1), n, cells)
    p.shadow["velocity_x"] = p.primal["velocity_x"]
    tape.reverse()
    now = np.stack([p.primal["cell"] + p.primal["offset"], 6 * p.primal["velocity_x"]], -1)
    return (
        Points("place, and 6 speed", now, size=1),
        Lines("field and d energy / d field", np.arange(cells), {"20 E": 20 * field.primal[:-1], "gradient": field.shadow[:-1]}, "cell"),
    )


@scene("scatter_max.cu", "the greatest feature in each cell; which point it came from gets the gradient, the others none")
def scatter_max() -> Sequence[Any]:
    rng, n, side = np.random.default_rng(4), 600, 12
    k = kernel("scatter_max", "scatter_max")
    places = rng.random((n, 2)) * side
    feature = (np.sin(places[:, 0] / 2) * np.cos(places[:, 1] / 3) + rng.normal(0, 0.3, n))[:, None]
    cell = (places[:, 1].astype(int) * side + places[:, 0].astype(int)).astype(np.int32)
    x, pooled = pair(feature), seeded(np.full((side * side, 1), -9, np.float32), 1)
    gpuad.autodiff(k, -(-n // 64), 64, (x, cell, np.ones(1, np.float32), pooled, n, 1))
    greatest = np.where(pooled.primal > -9, pooled.primal, np.nan).reshape(side, side)
    return Image("greatest in each cell", greatest), Points("d sum / d feature", places, x.shadow[:, 0], size=9)


# --- lines ----------------------------------------------------------------------------------------------------------------------------


@scene("advection.cu", "a block and a bump in a wind; how the value at x = 160 depends on the start, and on the wind")
def advection() -> Sequence[Any]:
    n, k = 256, gpuad.kernel(KERNELS / "advection.cu", "advect<double, Limiter::Superbee>")
    x = np.arange(n)
    start = np.where((x > 30) & (x < 60), 1.0, 0.0) + np.exp(-(((x - 100) / 10.0) ** 2))
    u, v, wind = pair(start, np.float64), pair(start, np.float64), pair(0.4 + 0.2 * np.sin(x / 25), np.float64)
    with gpuad.Tape() as tape:
        for source, target in [(u, v), (v, u)] * 100:
            k[4, 64](source, target, wind, n)
    tape.reverse({u: at((n,), 160)})
    return (
        Lines("u", x, {"before": start, "after 200 steps": u.primal}, "x"),
        Lines("d u[160]", x, {"/ d u(0)": u.shadow, "/ d wind / 10": wind.shadow / 10}, "x"),
    )


@scene("smoothing.cu", "smoothing that keeps edges; how two values beside an edge depend on the noisy line")
def smoothing() -> Sequence[Any]:
    n, k = 160, kernel("smoothing", "smooth")
    x = np.arange(n)
    noisy = 4.0 * ((x > 50) & (x < 110)) + np.random.default_rng(5).normal(0, 0.2, n)
    u, v = pair(noisy), pair(noisy)
    with gpuad.Tape() as tape:
        for source, target in [(u, v), (v, u)] * 20:
            k[1, 64](source, target, np.float32(0.3), n)
    seed = at((n,), 80) + at((n,), 48)
    tape.reverse({u: seed})
    return Lines("u", x, {"noisy": noisy, "smoothed": u.primal}, "x"), Lines("d u[48] + u[80] / d noisy", x, {"": u.shadow}, "x")


@scene("shared_stencil.cu", "nonlinear diffusion with a halo in shared memory; how the middle depends on the start")
def shared_stencil() -> Sequence[Any]:
    n, k = 160, kernel("shared_stencil", "diffuse")
    x = np.arange(n)
    start = 0.2 + np.exp(-(((x - 60) / 8.0) ** 2)) + 0.6 * (abs(x - 105) < 10)
    u, v = pair(start), pair(start)
    with gpuad.Tape() as tape:
        for source, target in [(u, v), (v, u)] * 100:
            k[n // 32, 32](source, target, np.float32(0.15), n)
    tape.reverse({u: at((n,), 80)})
    return Lines("u", x, {"before": start, "after 200 steps": u.primal}, "x"), Lines("d u[80] / d u(0)", x, {"": u.shadow}, "x")


@scene("recurrence.cu", "a recursive filter rings after a click; its gradient rings backwards in time")
def recurrence() -> Sequence[Any]:
    n, k = 160, kernel("recurrence", "iir")
    line = np.zeros((1, n))
    line[0, 30], line[0, 90:] = 1, 0.2
    x = seeded(line.copy(), at((1, n), 0, 120))
    gpuad.autodiff(k, 1, 32, (x, 1.8, -0.9, 0.1, 1, n))
    t = np.arange(n)
    return Lines("line", t, {"before": line[0], "filtered": x.primal[0]}, "t"), Lines("d filtered[120] / d line", t, {"": x.shadow[0]}, "t")


@scene("fir.cu", "a filter with 8 taps, fixed at compile time; the gradient is the filter, turned around")
def fir() -> Sequence[Any]:
    n, k = 120, kernel("fir", "fir<float, 8>")
    t = np.arange(n)
    x, taps = pair(np.sin(t / 6) + np.random.default_rng(6).normal(0, 0.3, n)), pair(np.hanning(10)[1:-1] / 4.5)
    y = seeded(np.zeros(n, np.float32), at((n,), 40) - at((n,), 80))
    gpuad.autodiff(k, -(-n // 64), 64, (y, x, taps, n))
    return Lines("line", t, {"before": x.primal, "filtered": y.primal}, "t"), Lines("d y[40] - y[80] / d x", t, {"": x.shadow}, "t")


@scene("tridiagonal.cu", "a tridiagonal system solved in place; how one unknown depends on the right-hand side")
def tridiagonal() -> Sequence[Any]:
    n, k = 100, kernel("tridiagonal", "tridiagonal")
    t = np.arange(n)
    side = np.where((t > 20) & (t < 30), 1.0, 0.0) - 0.5 * (abs(t - 70) < 3)
    lower, diagonal, upper = (np.full((n, 1), value) for value in (-1.0, 2.02, -1.0))
    x = seeded(side[:, None].copy(), at((n, 1), 40, 0))
    gpuad.autodiff(k, 1, 16, (lower, diagonal, upper, x, pair(np.zeros((n, 1)), np.float64), n, 1))
    return Lines("right-hand side and solution", t, {"b": side, "x": x.primal[:, 0]}), Lines("d x[40] / d b", t, {"": x.shadow[:, 0]})


@scene("softmax.cu", "softmax of a row; how its greatest entry depends on all")
def softmax() -> Sequence[Any]:
    n, k = 40, kernel("softmax", "softmax")
    row = np.sin(np.arange(n) / 3) * 2
    x = seeded(row[None].astype(np.float32), at((1, n), 0, int(np.argmax(row))))
    gpuad.autodiff(k, 1, 32, (x, 1, n))
    t = np.arange(n)
    return Lines("row", t, {"x / 10": row / 10, "softmax": x.primal[0]}), Lines("d softmax[5] / d x", t, {"": x.shadow[0]})


# --- functions ------------------------------------------------------------------------------------------------------------------------


@scene("activation.cu", "activation functions and their slopes, each chosen by a switch in the kernel")
def activation() -> Sequence[Any]:
    names = ("identity", "relu", "leaky relu", "sigmoid", "swish", "tanh")
    x, n = np.linspace(-4, 4, 201), 201
    rows = seeded(np.tile(x, (6, 1)).astype(np.float32), 1)
    gpuad.autodiff(kernel("activation", "activation"), (-(-n // 64), 6), 64, (rows, np.arange(6, dtype=np.int32), np.float32(0.1), n))
    values, slopes = (dict(list(zip(names, a, strict=True))[2:]) for a in (rows.primal, rows.shadow))
    return Lines("value", x, values, "x"), Lines("slope", x, slopes, "x")


@scene("relu_bias.cu", "GELU with a bias, in place, and its slope")
def relu_bias() -> Sequence[Any]:
    x, n = np.linspace(-4, 4, 201), 201
    row = seeded(x.astype(np.float32), 1)
    gpuad.autodiff(kernel("relu_bias", "gelu_bias"), -(-n // 64), 64, (row, np.zeros(n, np.float32), n, n))
    return Lines("value", x, {"": row.primal}, "x"), Lines("slope", x, {"": row.shadow}, "x")


@scene("horner.cu", "a polynomial by Horner's rule, its coefficients walked by a pointer, and its slope")
def horner() -> Sequence[Any]:
    x = np.linspace(-1, 1, 201)
    values = seeded(x.copy(), 1)
    gpuad.autodiff(kernel("horner", "horner"), 4, 64, (values, np.array([16.0, 0, -20, 0, 5, 0]), 5, 201))
    return Lines("Chebyshev's T5", x, {"": values.primal}, "x"), Lines("slope", x, {"": values.shadow}, "x")


@scene("black_scholes.cu", "prices of options over the spot, and their deltas")
def black_scholes() -> Sequence[Any]:
    n, k = 200, kernel("black_scholes", "black_scholes")
    spots, curves = np.linspace(50, 150, n), {}
    for name in ("call", "put"):
        spot, out = pair(spots), {"call": pair(np.zeros(n)), "put": pair(np.zeros(n))}
        out[name].shadow.fill(1)
        strike, years = np.full(n, 100, np.float32), np.ones(n, np.float32)
        gpuad.autodiff(k, -(-n // 64), 64, (spot, strike, years, np.float32(0.03), np.float32(0.2), out["call"], out["put"], n))
        curves[name] = out[name].primal, spot.shadow
    return (
        Lines("price", spots, {name: price for name, (price, _) in curves.items()}, "spot"),
        Lines("delta", spots, {name: delta for name, (_, delta) in curves.items()}, "spot"),
    )


@scene("brownian.cu", "prices with curand's numbers; in forward mode, how the end of each path moves with the volatility")
def brownian() -> Sequence[Any]:
    n, steps, k = 600, 50, kernel("brownian", "paths")
    layout = {name: (form, offset) for name, form, offset in (("d", "u4", 0), ("v", ("u4", 5), 4), ("flag", "i4", 24), ("flag2", "i4", 28))}
    state = np.dtype(
        {"names": list(layout), "formats": [f for f, _ in layout.values()], "offsets": [o for _, o in layout.values()], "itemsize": 48}
    )
    states = np.zeros(n, state)
    states["d"], states["v"] = np.arange(n), np.random.default_rng(1).integers(1, 2**31, (n, 5))
    first, price, trail = states.copy(), np.ones(n, np.float32), [np.ones(n)]
    drift, volatility, dt = np.float32(0.05), np.float32(0.3), np.float32(1 / steps)
    for _ in range(steps):
        k(-(-n // 32), 32, (price, drift, volatility, dt, states.view(np.uint8), 1, n))
        trail.append(price.copy())
    end = seeded(np.ones(n, np.float32), 0)
    gpuad.autodiff(
        k, -(-n // 32), 32, (end, drift, Active(volatility, np.ones(())), dt, first.view(np.uint8), steps, n), mode=gpuad.Forward
    )
    return (
        Lines("twenty paths", np.arange(steps + 1) / steps, {"": np.stack(trail)[:, :20]}, "time"),
        Lines("d price / d volatility", end.primal, {"": end.shadow}, "price at the end", dots=True),
    )


@scene("local_volatility.cu", "Asian options under a local volatility; the price and its gradient over the level of the volatility")
def local_volatility() -> Sequence[Any]:
    paths, steps, k = 4096, 50, kernel("local_volatility", "local_volatility")
    normals = np.random.default_rng(8).normal(size=(steps, paths))
    levels, prices, slopes = np.linspace(0.05, 0.5, 24), [], []
    for level in levels:
        vega, payoff = np.zeros(()), seeded(np.zeros(paths), 1 / paths)
        gpuad.autodiff(k, paths // 32, 32, (normals, 100.0, Active(level, vega), 0.4, 0.03, 0.02, payoff, steps, paths))
        prices.append(payoff.primal.mean())
        slopes.append(float(vega))
    return (
        Lines("price", levels, {"": prices}, "level of volatility"),
        Lines("vega", levels, {"by the adjoint": slopes, "by differences": np.gradient(prices, levels)}, "level of volatility"),
    )


@scene("histogram.cu", "values shared out between two bins; how the misfit to a flat histogram depends on each value")
def histogram() -> Sequence[Any]:
    n, bins, k = 1500, 24, kernel("histogram", "soft_histogram")
    x = np.sort(np.clip(np.random.default_rng(9).normal(0.5, 0.15, n), 0.001, 0.999))
    value, counts = pair(x), pair(np.zeros(bins))
    k(-(-n // 128), 128, (value, counts, n, bins))
    seen = counts.primal.copy()
    counts.shadow[...] = seen - n / bins
    gpuad.autodiff(k, -(-n // 128), 128, (value, counts, n, bins))
    return (
        Lines("counts", np.linspace(0, 1, bins), {"": seen}, "value"),
        Lines("d misfit / d value", x, {"": value.shadow}, "value", dots=True),
    )


@scene("fitzhugh_nagumo.py", "an excitable cell, elementwise; the first spike, and how the last potential depends on the current before")
def fitzhugh_nagumo() -> Sequence[Any]:
    sys.path.insert(0, str(KERNELS))
    from fitzhugh_nagumo import react

    steps = 400
    currents = [pair(np.array([0.5 if 60 < t < 120 else 0.0]), np.float64) for t in range(steps)]
    u, v, trace = pair([-1.2], np.float64), pair([-0.62], np.float64), []
    tape = gpuad.Tape()
    with tape:
        for current in currents:
            react(current, 0.1, 0.7, 0.8, 0.08, u, v)
            trace.append(float(u.primal[0]))
    tape.reverse({u: 1.0})
    t = 0.1 * np.arange(steps)
    return (
        Lines("potential", t, {"u": trace, "current": [c.primal[0] for c in currents]}, "time"),
        Lines("d u(end) / d current", t, {"": [c.shadow[0] for c in currents]}, "time"),
    )


# --- files ----------------------------------------------------------------------------------------------------------------------------


def picture(panels: Sequence[Any]) -> bytes:
    """The panels side by side as PNG."""
    figure, axes = pyplot.subplots(1, len(panels), figsize=(3.1 * len(panels), 2.6), layout="constrained")
    for axis, panel in zip(axes, panels, strict=True):
        panel.draw(axis)
        axis.set_title(panel.title, fontsize=9)
    file = io.BytesIO()
    figure.savefig(file, dpi=96)
    pyplot.close(figure)
    if any(isinstance(panel, Image) for panel in panels):
        return file.getvalue()
    small = io.BytesIO()  # curves need few colours
    Pillow.open(file).convert("RGB").quantize(64, dither=Pillow.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()


def demos() -> None:
    """The pictures that `gpuad demo` draws."""
    for name, module in (("demo-wave", wave_demo), ("demo-gray-scott", gray_scott_demo), ("demo-long", long_demo)):
        file = PICTURES / f"{name}.png"
        draw(module.invert(module.Setting(), np), file, module.QUANTITY)
        image = Pillow.open(file)
        image.convert("RGB").resize((image.width * 3 // 5, image.height * 3 // 5), Pillow.Resampling.LANCZOS).save(file, optimize=True)


PAGE = """# Gallery

What the kernels that ship make, and a gradient of it: how one number that is formed from the result, written above the right panel, depends
on what went in. `python docs/gallery.py` draws every picture with the kernels as they stand in `kernels/`.

## The demonstrations

`gpuad demo` finds the speed of sound inside a plate from what microphones at its rim heard; every iteration reverses 300 in-place steps of
eight shots.

![The true map, the start, the map that was found, and the misfit](pictures/demo-wave.png)

`gpuad demo --program gray-scott` finds the seeds from the pattern that has grown out of them.

![The true seeds, the start, the seeds that were found, and the misfit](pictures/demo-gray-scott.png)

`gpuad demo --program long` finds how fast a population grows where. Its 10,000 steps would hold 2.6 GB; the tape keeps within 64 MB.

![The true growth, the start, what was found, the misfit, and the bytes over the program](pictures/demo-long.png)

## The kernels

Each file of `kernels/` says in a comment how it is launched, and is a test and a benchmark by being there: `gpuad check kernels/heat.cu`.
The Python files beside them are a jit function, an elementwise and a reduction kernel, each with an `example` of arguments.
"""


def page() -> str:
    """The gallery as Markdown."""
    text = PAGE
    for s in SCENES:
        text += f"\n### {s.file}\n\n{s.caption[0].upper()}{s.caption[1:]}.\n\n![{s.file}](pictures/{s.name}.png)\n"
    rows = "".join(f"| `{name}` | {why} |\n" for name, why in WITHOUT.items())
    return f"{text}\n## Without a picture\n\n| kernel | |\n|---|---|\n{rows}"


def main(names: Sequence[str]) -> None:
    """Draws the pictures of the names given, or all, and writes the page."""
    PICTURES.mkdir(exist_ok=True)
    for shown in SCENES:
        if not names or shown.name in names:
            (PICTURES / f"{shown.name}.png").write_bytes(picture(shown.panels()))
            print(shown.name, (PICTURES / f"{shown.name}.png").stat().st_size, flush=True)
    if not names or "demos" in names:
        demos()
    (HERE / "gallery.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
