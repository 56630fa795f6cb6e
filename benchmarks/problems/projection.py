"""Tomographic projection: rays through an image, with bilinear samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..problem import Arrays, Floor, Problem, Runner, Size, blocks, relative, uniform
from ..runners.with_gpuad import Launch

STEP = 0.5
Field = NDArray[Any]


class Projection(Problem):
    """Bound by arithmetic: 21 operations a sample, and 25 for the reverse, which scatters to four pixels.

    A sample on the very edge of the image counts in one float32 arithmetic and not in another, so the outermost two pixels are compared
    with a wider tolerance, and the others as everywhere.
    """

    name, title, active = "projection", "tomographic projection: each thread marches one ray", ("image",)
    sizes: ClassVar[tuple[Size, ...]] = ({"n": 64, "angles": 60}, {"n": 256, "angles": 60})
    large, quick = ({"n": 512, "angles": 360},), {"n": 16, "angles": 7}
    edge_tolerance: ClassVar[float] = 0.1

    def inputs(self, size: Size, rng: np.random.Generator) -> Arrays:
        n, angles = size["n"], size["angles"]
        angle = (0.137 + 3.14159 * np.arange(angles) / angles).astype(np.float32)
        return {"image": uniform(rng, (n, n)), "angle": angle, "seed": uniform(rng, (angles, n))}

    def floor(self, size: Size) -> Floor:
        n, rays = size["n"], size["n"] * size["angles"]
        inside = int(0.8 * n / STEP) * rays  # samples a ray, on average, that meet the image
        return Floor(4 * n * n + 4 * rays, 8 * n * n + 8 * rays, 21 * inside, 25 * inside)

    def wanted(self, size: Size, given: Arrays) -> Arrays:
        n, image = size["n"], np.zeros(size["n"] ** 2)
        for x, y in _positions(given["angle"], n):
            x0, y0 = x.astype(np.int32), y.astype(np.int32)
            ok = (x >= 0) & (y >= 0) & (x0 < n - 1) & (y0 < n - 1)
            at = (y0 * n + x0)[ok]
            fx, fy, w = (x - x0)[ok].astype(np.float64), (y - y0)[ok].astype(np.float64), STEP * given["seed"][ok]
            for place, share in ((at, (1 - fy) * (1 - fx)), (at + 1, (1 - fy) * fx), (at + n, fy * (1 - fx)), (at + n + 1, fy * fx)):
                image += np.bincount(place, w * share, n * n)
        return {"image": image.reshape(n, n)}

    def error(self, found: Arrays, wanted: Arrays) -> float:
        inner, outer = (slice(2, -2), slice(2, -2)), relative(found["image"], wanted["image"])
        return max(relative(found["image"][inner], wanted["image"][inner]), self.tolerance * outer / self.edge_tolerance)

    def gpuad(self, size: Size, given: Arrays, library: Any) -> Runner:
        n, angles = size["n"], size["angles"]
        args = ("image", "angle", "sinogram", n, n, STEP)
        grid, shape = (blocks(n, 64), angles), (angles, n)
        return Launch(library, "projection.cu", "projection", grid, (64, 1), args, given, self.active, "sinogram", shape)

    def jax(self, jax: Any, size: Size, x: Mapping[str, Any]) -> Any:
        np_, n, image = jax.numpy, size["n"], x["image"]

        def sample(total: Any, k: Any) -> Any:
            px, py = _position(np_, x["angle"], n, k)
            x0, y0 = px.astype("int32"), py.astype("int32")
            ok = (px >= 0) & (py >= 0) & (x0 < n - 1) & (y0 < n - 1)
            x0, y0 = np_.clip(x0, 0, n - 2), np_.clip(y0, 0, n - 2)
            fx, fy = px - x0, py - y0
            low = (1 - fx) * image[y0, x0] + fx * image[y0, x0 + 1]
            high = (1 - fx) * image[y0 + 1, x0] + fx * image[y0 + 1, x0 + 1]
            return total + np_.where(ok, (1 - fy) * low + fy * high, 0.0), None

        start = np_.zeros((size["angles"], n), "float32")
        return STEP * jax.lax.scan(jax.checkpoint(sample), start, np_.arange(_samples(n)))[0]

    def torch(self, torch: Any, size: Size, x: Mapping[str, Any]) -> Any:
        """`grid_sample` of all samples at once; where it pads with zeros the kernel leaves out, so the edge is masked."""
        n, k = size["n"], torch.arange(_samples(size["n"]), device=x["image"].device)
        px, py = _position(torch, x["angle"][:, None], n, k, torch.arange(n, device=k.device)[None, :, None])
        ok = (px >= 0) & (py >= 0) & (px < n - 1) & (py < n - 1)
        grid = torch.stack((px, py), -1).reshape(1, -1, len(k), 2) * (2.0 / (n - 1)) - 1.0
        sampled = torch.nn.functional.grid_sample(x["image"][None, None], grid, align_corners=True)
        return STEP * (sampled.reshape(ok.shape) * ok).sum(-1)

    def warp(self, wp: Any, size: Size, x: Mapping[str, Any], new: Callable[..., Any]) -> Callable[[], Any]:
        @wp.kernel
        def projection(
            image: wp.array2d(dtype=float), angle: wp.array(dtype=float), out: wp.array2d(dtype=float), n: int, count: int, step: float
        ):
            a, d = wp.tid()
            cx = wp.cos(angle[a])
            cy = wp.sin(angle[a])
            offset = float(d) - 0.5 * float(n - 1)
            half = 0.5 * float(n - 1)
            total = wp.float32(0.0)
            for k in range(count):
                travelled = step * float(k) - 0.75 * float(n)
                px = half + travelled * cx - offset * cy
                py = half + travelled * cy + offset * cx
                if px >= 0.0 and py >= 0.0:
                    x0 = int(px)
                    y0 = int(py)
                    if x0 < n - 1 and y0 < n - 1:
                        fx = px - float(x0)
                        fy = py - float(y0)
                        low = (1.0 - fx) * image[y0, x0] + fx * image[y0, x0 + 1]
                        high = (1.0 - fx) * image[y0 + 1, x0] + fx * image[y0 + 1, x0 + 1]
                        total += (1.0 - fy) * low + fy * high
            out[a, d] = total * step

        n, angles, out = size["n"], size["angles"], new(size["angles"], size["n"])

        def run() -> Any:
            wp.launch(projection, dim=(angles, n), inputs=[x["image"], x["angle"], out, n, _samples(n), STEP])
            return out

        return run


def _samples(n: int) -> int:
    """Steps along a ray from -0.75 n to 0.75 n."""
    return int(np.ceil(1.5 * n / STEP))


def _position(library: Any, angle: Any, n: int, k: Any, detector: Any = None) -> tuple[Any, Any]:
    """Where the samples k of all rays lie, in float32 as the kernel computes it."""
    angle = angle[:, None]
    offset = (library.arange(n)[None] if detector is None else detector) - 0.5 * (n - 1)
    travelled, half = k * STEP - 0.75 * n, 0.5 * (n - 1)
    x, y = library.cos(angle), library.sin(angle)
    return half + travelled * x - offset * y, half + travelled * y + offset * x


def _positions(angle: Field, n: int) -> Iterator[tuple[Field, Field]]:
    for k in range(_samples(n)):
        x, y = _position(np, angle, n, k)
        yield x.astype(np.float32), y.astype(np.float32)
