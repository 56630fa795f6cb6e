"""Textures: values, and gradients of the table and of the coordinates, against JAX's `map_coordinates` in double; against differences; what
is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Const, Duplicated, Texture, api
from gpuad.errors import LaunchError, UnsupportedError
from gpuad.testing import check_gradient

SHAPES = {1: (7,), 2: (5, 7), 3: (4, 5, 6)}
MODES = {"clamp": "nearest", "border": "constant", "wrap": "wrap", "mirror": "reflect"}  # as JAX calls them
N = 40
LINEAR = [(axes, mode, normalized) for axes in (1, 2) for mode in MODES for normalized in (False, True)[mode in ("wrap", "mirror") :]]
LINEAR += [(3, "border", False), (3, "mirror", True)]


def text(axes: int, channels: int = 1) -> str:
    names = "xyz"[:axes]
    given = "".join(f"const float* {c}, " for c in names)
    read = ", ".join(f"{c}[i]" for c in names)
    kind, sum_ = (
        ("float", "v")
        if channels == 1
        else (f"float{channels}", " + ".join(f"{k + 1}.0f * v.{c}" for k, c in enumerate("xyzw"[:channels])))
    )
    return f"""__device__ {kind} read(cudaTextureObject_t t, {given.replace("const float* ", "float ")}float scale) {{
      return tex{axes}D<{kind}>(t, {", ".join(names)});
    }}
    extern "C" __global__ void k(cudaTextureObject_t t, {given}float* out, int n) {{
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i >= n) return;
      {kind} v = read(t, {read}, 1.0f);
      out[i] += {sum_};
    }}"""


def points(axes: int, seed: int, normalized: bool) -> list[Any]:
    """Coordinates inside and outside, not near to where the interpolant has a kink."""
    rng = np.random.default_rng(seed)
    found = []
    for size in SHAPES[axes][::-1]:
        texels = rng.integers(-2 * size, 3 * size, N) + rng.uniform(0.1, 0.4, N) + 0.5 * rng.integers(0, 2, N)
        found.append((texels / size if normalized else texels).astype(np.float32))
    return found


def by_jax(table: Any, coordinates: list[Any], mode: str, normalized: bool, seeds: Any) -> tuple[Any, ...]:
    """Values, and the gradients of the table and the coordinates."""
    jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'gpuad[jax]'")
    from jax.scipy.ndimage import map_coordinates

    with jax.enable_x64(True):

        def value(table: Any, *xs: Any) -> Any:
            sizes = table.shape[::-1]
            places = [x * size if normalized else x for x, size in zip(xs, sizes, strict=True)]
            return map_coordinates(table, [p - 0.5 for p in places[::-1]], order=1, mode=MODES[mode])

        found, pull = jax.vjp(value, *(np.asarray(a, np.float64) for a in (table, *coordinates)))
        return tuple(np.asarray(a) for a in (found, *pull(np.asarray(seeds, np.float64))))


@pytest.mark.one_of(4)
@pytest.mark.parametrize(("axes", "mode", "normalized"), LINEAR)
def test_linear_filter(axes: int, mode: str, normalized: bool) -> None:
    rng = np.random.default_rng(axes)
    table, seeds = rng.uniform(0.5, 1.5, SHAPES[axes]).astype(np.float32), rng.normal(size=N).astype(np.float32)
    xs = points(axes, 7, normalized)
    expected = by_jax(table, xs, mode, normalized, seeds)
    out, dtable, dxs = np.zeros(N, np.float32), np.zeros_like(table), [np.zeros_like(x) for x in xs]
    texture = Texture(Duplicated(table, dtable), filter="linear", address=mode, normalized=normalized)
    gpuad.autodiff(gpuad.kernel(text(axes), "k"), 2, 20, (texture, *map(Duplicated, xs, dxs), Duplicated(out, seeds.copy()), N))
    for found, wanted in zip((out, dtable, *dxs), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("address", ["clamp", "border", ("wrap", "mirror"), ("mirror", "wrap")])
def test_point_filter(address: Any) -> None:
    """The texel in which a coordinate is; no gradient of the coordinate."""
    modes = (address,) * 2 if isinstance(address, str) else address
    table = np.random.default_rng(0).uniform(0.5, 1.5, SHAPES[2]).astype(np.float32)
    xs, seeds, dtable = points(2, 3, True), np.random.default_rng(4).normal(size=N).astype(np.float32), np.zeros(SHAPES[2])
    out, dout = np.zeros(N, np.float32), seeds.copy()
    found, dxs = np.zeros_like(table), [np.zeros_like(x) for x in xs]
    texture = Texture(Duplicated(table, found), address=address, normalized=True, border=2.5)
    gpuad.autodiff(gpuad.kernel(text(2), "k"), 2, 20, (texture, *map(Duplicated, xs, dxs), Duplicated(out, dout), N))
    expected = np.zeros(N)
    for k in range(N):
        places = []
        for x, size, mode in zip(xs, table.shape[::-1], modes, strict=True):
            i = int(np.floor(float(x[k]) * size))
            turned = i % (2 * size)
            places.append(
                {"clamp": min(max(i, 0), size - 1), "border": i, "wrap": i % size, "mirror": min(turned, 2 * size - 1 - turned)}[mode]
            )
        inside = all(0 <= p < size for p, size in zip(places, table.shape[::-1], strict=True))
        expected[k] = table[places[1], places[0]] if inside else 2.5
        if inside:
            dtable[places[1], places[0]] += seeds[k]
    np.testing.assert_array_equal(out, expected.astype(np.float32))
    np.testing.assert_allclose(found, dtable, rtol=1e-5, atol=1e-6)
    assert not any(dx.any() for dx in dxs)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("channels", [2, 4])
def test_channels(channels: int) -> None:
    """Each is a texture of its own."""
    rng = np.random.default_rng(channels)
    table, xs, seeds = rng.uniform(0.5, 1.5, (*SHAPES[2], channels)).astype(np.float32), points(2, 5, False), rng.normal(size=N)
    dtable, dxs, out = np.zeros_like(table), [np.zeros_like(x) for x in xs], np.zeros(N, np.float32)
    kernel = gpuad.kernel(text(2, channels), "k")
    texture = Texture(Duplicated(table, dtable), filter="linear", channels=channels)
    gpuad.autodiff(kernel, 2, 20, (texture, *map(Duplicated, xs, dxs), Duplicated(out, seeds.astype(np.float32)), N))
    parts = [by_jax(table[..., c], xs, "clamp", False, (c + 1) * seeds) for c in range(channels)]
    np.testing.assert_allclose(out, sum((c + 1) * p[0] for c, p in enumerate(parts)), rtol=1e-4)
    np.testing.assert_allclose(dtable, np.stack([p[1] for p in parts], axis=-1), rtol=1e-4, atol=2e-5)
    for k, dx in enumerate(dxs):
        np.testing.assert_allclose(dx, sum(p[2 + k] for p in parts), rtol=1e-4, atol=2e-5)


def test_fetches_and_tapes() -> None:
    """Texels by their number, 0 outside; two textures in one kernel, one of which an earlier launch writes; on a tape."""
    source = """extern "C" __global__ void k(cudaTextureObject_t a, cudaTextureObject_t b, float* x, int n) {
      int i = threadIdx.x;
      if (i < n) x[i] = tex1Dfetch<float>(a, 2 * i - 3) * tex1D<float>(b, x[i]) + x[i];
    }
    extern "C" __global__ void square(float* x) { x[threadIdx.x] *= x[threadIdx.x]; }"""
    kernel = gpuad.kernel(source, "k")
    rng = np.random.default_rng(1)
    a, b, x = (rng.uniform(0.5, 1.5, n).astype(np.float32) for n in (9, 6, 8))
    report = check_gradient(kernel, (Texture(a), Texture(b, filter="linear"), x, 8), grid=1, block=8, directions=1)
    assert report.passed
    pairs = [Duplicated(v.copy(), np.zeros_like(v)) for v in (a, b, x)]
    with gpuad.Tape() as tape:
        kernel.__call__(1, 8, (Texture(pairs[0]), Texture(pairs[1], filter="linear"), pairs[2], 8))
        gpuad.kernel(kernel, "square")[1, 6](pairs[1])
        kernel(1, 8, (Texture(pairs[0]), Texture(pairs[1], filter="linear"), pairs[2], 8))
    tape.reverse({pairs[2]: np.ones(8, np.float32)})

    def program(a: Any, b: Any, x: Any) -> Any:
        for table in (b, b * b):
            i = 2 * np.arange(8) - 3
            u = x - 0.5
            low = np.clip(np.floor(u).astype(int), 0, 5), np.clip(np.floor(u).astype(int) + 1, 0, 5)
            weight = u - np.floor(u)
            x = np.where((i >= 0) & (i < 9), a[np.clip(i, 0, 8)], 0) * ((1 - weight) * table[low[0]] + weight * table[low[1]]) + x
        return x

    given = [v.astype(np.float64) for v in (a, b, x)]
    np.testing.assert_allclose(pairs[2].primal, program(*given), rtol=1e-5)
    for k, pair in enumerate(pairs):
        direction = rng.normal(size=given[k].shape)
        ends = [program(*(v + s * 1e-6 * direction if j == k else v for j, v in enumerate(given))).sum() for s in (1, -1)]
        np.testing.assert_allclose((pair.shadow * direction).sum(), (ends[0] - ends[1]) / 2e-6, rtol=1e-4)


def test_split_pairs_and_second_derivatives() -> None:
    """Annotations by position; the gradient's derivative along a direction of table and coordinates, against differences of gradients."""
    rng = np.random.default_rng(8)
    kernel = gpuad.kernel(text(1).replace("out[i] += v", "out[i] += v * v"), "k")
    table, x = rng.uniform(0.5, 1.5, 6).astype(np.float32), (rng.integers(0, 6, N) + rng.uniform(0.6, 0.9, N)).astype(np.float32)
    dots = [rng.normal(size=v.shape).astype(np.float32) for v in (table, x)]

    def gradient(table: Any, x: Any) -> list[Any]:
        dtable, dx, out = np.zeros_like(table), np.zeros_like(x), np.zeros(N, np.float32)
        forward, reverse = gpuad.autodiff_thunk(kernel, Duplicated, Duplicated, Duplicated)
        saved = forward(2, 20, (Texture(table, filter="linear"), x, out, N))
        given = Texture(Duplicated(table, dtable), filter="linear"), Duplicated(x, dx), Duplicated(out, np.ones(N, np.float32)), N
        reverse(2, 20, given, saved)
        return [dtable, dx]

    dtable, dx, out = np.zeros_like(table), np.zeros_like(x), np.zeros(N, np.float32)
    turned = [np.zeros_like(table), np.zeros_like(x)]
    arguments = Texture(Duplicated(table, dtable), filter="linear"), Duplicated(x, dx), Duplicated(out, np.ones(N, np.float32)), N
    directions = *map(Duplicated, dots, turned), Duplicated(np.zeros(N, np.float32), np.zeros(N, np.float32)), None
    gpuad.hvp(kernel, 2, 20, arguments, directions)
    for own, other in zip((dtable, dx), gradient(table, x), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)
    step = np.float32(1 / 256)
    ends = [gradient(table + s * dots[0], x + s * dots[1]) for s in (step, -step)]
    for own, high, low in zip(turned, *ends, strict=True):
        np.testing.assert_allclose(own, (high - low) / (2 * step), rtol=2e-2, atol=2e-2)


def test_one_kernel_for_each_way_to_read() -> None:
    kernel = gpuad.kernel(text(1), "k")
    args = [np.ones(4, np.float32), np.zeros(4, np.float32), 4]
    table = np.ones(6, np.float32)
    ways = [Texture(table), Texture(np.ones(9, np.float32)), Texture(table, filter="linear"), Texture(Const(table), address="border")]
    kernels = [api.kernel(kernel).planned(1, 4, (way, *args)).kernel for way in ways]
    assert [kernels.index(k) for k in kernels] == [0, 0, 2, 3]
    assert "tex" not in kernel.adjoint(args=(ways[2], *args), t=Duplicated).source.replace("__tex", "").split("void")[0]


# --- refused ----------------------------------------------------------------------------------------------------------------------------

TABLE = np.ones((4, 4), np.float32)
NO_TEXTURES: dict[str, tuple[Any, str]] = {
    "a filter": (lambda: Texture(TABLE, filter="cubic"), 'a texture\'s filter is "point" or "linear"'),
    "channels": (lambda: Texture(TABLE, channels=3), "a texel has 1, 2 or 4 channels"),
    "the channels' axis": (lambda: Texture(np.ones((4, 3), np.float32), channels=2), "has them along its last axis"),
    "axes": (lambda: Texture(np.ones((1, 1, 1, 1), np.float32)), "has one to three axes"),
    "no elements": (lambda: Texture(np.ones((0, 4), np.float32)), "has one to three axes"),
    "a mode": (lambda: Texture(TABLE, address="repeat"), "a texture's address mode is one of wrap, clamp, mirror, border"),
    "wrapped texels": (lambda: Texture(TABLE, address=("clamp", "wrap")), 'the address modes "wrap" and "mirror" need normalized'),
    "an object of CuPy": (
        lambda: object(),
        "takes a gpuad.Texture, got a object: the memory of a texture object cannot be read but by hardware",
    ),
    "doubles": (lambda: Texture(TABLE.astype(np.float64)), "of a C-contiguous array of float32, got float64"),
    "columns": (lambda: Texture(np.asfortranarray(np.arange(16, dtype=np.float32).reshape(4, 4))), "of a C-contiguous array"),
    "another number of axes": (lambda: Texture(TABLE[0]), "assertion"),
    "other channels": (lambda: Texture(np.ones((4, 4, 2), np.float32), channels=2), "assertion"),
}


@pytest.mark.parametrize(("made", "message"), NO_TEXTURES.values(), ids=NO_TEXTURES)
def test_what_is_no_texture(made: Any, message: str) -> None:
    arrays = [np.zeros(4, np.float32) for _ in range(3)]
    with pytest.raises(LaunchError, match=message):
        gpuad.kernel(text(2), "k")(1, 4, (made(), *arrays, 4))


@pytest.mark.parametrize("call", ["tex2D<int>(t, 1, 2)", "tex2DLod<float>(t, 1, 2, 0)", "tex1DLayered<float>(t, 1, 2)"])
def test_other_reads(call: str) -> None:
    source = f'extern "C" __global__ void k(cudaTextureObject_t t, float* x) {{ x[0] = {call}; }}'
    with pytest.raises(UnsupportedError, match="tex1Dfetch, tex1D, tex2D and tex3D are supported for float, float2 and float4") as error:
        gpuad.kernel(source, "k")
    assert error.value.span is not None
    assert error.value.span.column == source.index(call) + 1
