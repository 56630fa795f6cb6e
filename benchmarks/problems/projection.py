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

# Each ray is clipped to the image; the samples of a ray are computed several at a time. The adjoint sends to an image of each core's own.
CPP = """
    #define PARAMETERS const float* image, const float* angle, float* sinogram, float* dimage, const float* seed, long n, long angles
    static const float spacing = 0.5f;

    // A ray, and which of its samples can meet the image.
    struct Ray {
        float x, y, dx, dy;
        long first, last;
        Ray(float angle, long d, long n) {
            const float half = 0.5f * (n - 1), reach = 0.75f * n, offset = d - half;
            dx = std::cos(angle); dy = std::sin(angle);
            x = half - offset * dy; y = half + offset * dx;
            float from = -reach, to = reach;
            clip(x, dx, n, from, to);
            clip(y, dy, n, from, to);
            first = std::max(0L, (long)std::ceil((from + reach) / spacing) - 1);
            last = std::min((long)std::ceil(2 * reach / spacing), (long)((to + reach) / spacing) + 2);
            start = -reach;
        }
        float start;
        static void clip(float at, float d, long n, float& from, float& to) {
            if (std::fabs(d) < 1e-6f) { if (at < -1.0f || at > n) to = from; return; }
            const float a = -at / d, b = (n - 1 - at) / d;
            from = std::max(from, std::min(a, b));
            to = std::min(to, std::max(a, b));
        }
    };
    struct Sample { int corner; float fx, fy; bool inside; };
    static inline __attribute__((always_inline)) Sample sample(const Ray& ray, int k, int n) {
        const float travelled = ray.start + k * spacing, x = ray.x + travelled * ray.dx, y = ray.y + travelled * ray.dy;
        const int x0 = (int)x, y0 = (int)y;
        const bool inside = (x >= 0.0f) & (y >= 0.0f) & (x0 < n - 1) & (y0 < n - 1);
        return {inside ? y0 * n + x0 : 0, x - x0, y - y0, inside};
    }
    extern "C" void primal(PARAMETERS) {
        #pragma omp parallel for schedule(dynamic)
        for (long a = 0; a < angles; ++a)
            for (long d = 0; d < n; ++d) {
                const Ray ray(angle[a], d, n);
                float sum = 0.0f;
                #pragma omp simd reduction(+ : sum)
                for (int k = ray.first; k < ray.last; ++k) {
                    const Sample s = sample(ray, k, n);
                    const float* c = image + s.corner;
                    const float low = (1.0f - s.fx) * c[0] + s.fx * c[1], high = (1.0f - s.fx) * c[n] + s.fx * c[n + 1];
                    sum += s.inside ? (1.0f - s.fy) * low + s.fy * high : 0.0f;
                }
                sinogram[a * n + d] = sum * spacing;
            }
    }
    extern "C" void gradient(PARAMETERS) {
        primal(image, angle, sinogram, dimage, seed, n, angles);
        #pragma omp parallel
        {
            std::vector<float> mine(n * n);  // what this core's rays send; the strips of samples are computed at once, then sent one by one
            #pragma omp for schedule(dynamic)
            for (long a = 0; a < angles; ++a)
                for (long d = 0; d < n; ++d) {
                    const Ray ray(angle[a], d, n);
                    const float sent = seed[a * n + d] * spacing;
                    const int strip = 64;
                    int corner[strip];
                    float share[4][strip];
                    for (long begin = ray.first; begin < ray.last; begin += strip) {
                        const int count = std::min<long>(strip, ray.last - begin);
                        #pragma GCC ivdep
                        for (int i = 0; i < count; ++i) {
                            const Sample s = sample(ray, begin + i, n);
                            const float w = s.inside ? sent : 0.0f, low = w * (1.0f - s.fy), high = w * s.fy;
                            corner[i] = s.corner;
                            share[0][i] = low * (1.0f - s.fx);
                            share[1][i] = low * s.fx;
                            share[2][i] = high * (1.0f - s.fx);
                            share[3][i] = high * s.fx;
                        }
                        for (int i = 0; i < count; ++i) {
                            float* c = mine.data() + corner[i];
                            c[0] += share[0][i]; c[1] += share[1][i]; c[n] += share[2][i]; c[n + 1] += share[3][i];
                        }
                    }
                }
            #pragma omp critical
            for (long i = 0; i < n * n; ++i) dimage[i] += mine[i];
        }
    }
"""


class Projection(Problem):
    """Bound by arithmetic: 21 operations a sample, and 25 for the reverse, which scatters to four pixels.

    A sample on the very edge of the image counts in one float32 arithmetic and not in another, so the outermost two pixels are compared
    with a wider tolerance, and the others as everywhere.
    """

    name, title, active = "projection", "tomographic projection: each thread marches one ray", ("image",)
    sizes: ClassVar[tuple[Size, ...]] = ({"n": 64, "angles": 60}, {"n": 256, "angles": 60})
    large, quick = ({"n": 512, "angles": 360},), {"n": 16, "angles": 7}
    order, overwritten, cpp = ("image", "angle", "sinogram", "dimage", "seed"), (), CPP
    edge_tolerance: ClassVar[float] = 0.1

    def inputs(self, size: Size, rng: np.random.Generator) -> Arrays:
        n, angles = size["n"], size["angles"]
        angle = (0.137 + 3.14159 * np.arange(angles) / angles).astype(np.float32)
        return {"image": uniform(rng, (n, n)), "angle": angle, "seed": uniform(rng, (angles, n))}

    def by_hand(self, size: Size) -> Mapping[str, Any]:
        return {"sinogram": (size["angles"], size["n"])}

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
