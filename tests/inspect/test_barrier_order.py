"""Threads of a block that take turns in the elements of global memory, with barriers between; and what must not pass for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from launch_tools import running
from nightly import cases, share
from random_turns import RandomTurns

import gpuad
from gpuad import Duplicated, api, pipeline, testing
from gpuad.api import check_races, pattern_of
from gpuad.codegen.cuda import cuda_source
from gpuad.errors import LaunchError, ShadowError, UnsupportedError
from gpuad.ir.nodes import Buffer, For, Take
from gpuad.ir.rewrite import walk_stmts
from gpuad.ir.types import F64
from gpuad.pipeline import launch_checks as store_checks
from gpuad.pipeline.passes import reverse_of
from gpuad.pipeline.pattern import Pattern
from gpuad.runtime import nvrtc
from gpuad.runtime.block_serialisation import serialise_blocks
from gpuad.runtime.reference import RaceError, Reference

_BLOCK = """
    int t = threadIdx.y * blockDim.x + threadIdx.x, all = blockDim.x * blockDim.y, b = blockIdx.y * gridDim.x + blockIdx.x;
"""

_TEXTS = {
    "lu": f"""extern "C" __global__ void lu(double* a, int n) {{ {_BLOCK}
        double* m = a + b * n * n;
        for (int k = 0; k < n; k++) {{
            for (int i = k + 1 + t; i < n; i += all) m[i * n + k] /= m[k * n + k];
            __syncthreads();
            int r = n - k - 1;
            for (int e = t; e < r * r; e += all) {{
                int i = k + 1 + e / r, j = k + 1 + e % r;
                m[i * n + j] -= m[i * n + k] * m[k * n + j];
            }}
            __syncthreads();
        }}
    }}""",
    "cholesky": f"""extern "C" __global__ void cholesky(double* a, int n) {{ {_BLOCK}
        a += b * n * n;
        for (int k = 0; k < n; k++) {{
            if (t == k % all) a[k * n + k] = sqrt(a[k * n + k]);
            __syncthreads();
            for (int i = k + 1 + t; i < n; i += all) a[i * n + k] /= a[k * n + k];
            __syncthreads();
            for (int j = k + 1 + t; j < n; j += all)
                for (int i = j; i < n; i++) a[i * n + j] -= a[i * n + k] * a[j * n + k];
            __syncthreads();
        }}
    }}""",
    "fft": f"""extern "C" __global__ void fft(double* re, double* im, int n) {{ {_BLOCK}
        re += b * n; im += b * n;
        for (int half = n / 2; half > 0; half /= 2) {{
            for (int e = t; e < n / 2; e += all) {{
                int i = e / half * 2 * half + e % half, j = i + half;
                double c = cospi((double)(e % half) / half), s = -sinpi((double)(e % half) / half);
                double x = re[i] - re[j], y = im[i] - im[j];
                re[i] += re[j]; im[i] += im[j];
                re[j] = x * c - y * s; im[j] = x * s + y * c;
            }}
            __syncthreads();
        }}
    }}""",
    "bitonic": f"""extern "C" __global__ void bitonic(double* x, int n) {{ {_BLOCK}
        x += b * n;
        for (int k = 2; k <= n; k <<= 1)
            for (int j = k >> 1; j > 0; j >>= 1) {{
                for (int i = t; i < n; i += all) {{
                    int l = i ^ j;
                    if (l > i) {{
                        double p = x[i], q = x[l];
                        if ((i & k) == 0 ? p > q : p < q) {{ x[i] = q * 1.5; x[l] = p * 0.75; }}
                    }}
                }}
                __syncthreads();
            }}
    }}""",
    "odd_even": f"""extern "C" __global__ void odd_even(double* x, double* key, int n) {{ {_BLOCK}
        x += b * n; key += b * n;
        for (int step = 0; step < n; step++) {{
            for (int i = 2 * t + (step & 1); i + 1 < n; i += 2 * all)
                if (key[i] > key[i + 1]) {{
                    double p = key[i], q = x[i] * key[i + 1];
                    key[i] = key[i + 1]; key[i + 1] = p;
                    x[i] = x[i + 1] * x[i + 1]; x[i + 1] = q;
                }}
            __syncthreads();
        }}
    }}""",
    "hillis": f"""extern "C" __global__ void hillis(double* x, int n) {{ {_BLOCK}
        x += b * n;
        for (int d = 1; d < n; d *= 2) {{
            int i = (t + d) % n;
            double v = 0;
            if (t < n) v = i >= d ? x[i] * x[i - d] : x[i];
            __syncthreads();
            if (t < n) x[i] = v;
            __syncthreads();
        }}
    }}""",
    "blelloch": f"""extern "C" __global__ void blelloch(double* x, int n) {{ {_BLOCK}
        x += b * n;
        for (int d = 1; d < n; d *= 2) {{
            for (int e = t; e < n / (2 * d); e += all) x[(2 * e + 2) * d - 1] *= x[(2 * e + 1) * d - 1];
            __syncthreads();
        }}
        if (t == all - 1) x[n - 1] = 1.0;
        __syncthreads();
        for (int d = n / 2; d > 0; d /= 2) {{
            for (int e = t; e < n / (2 * d); e += all) {{
                double left = x[(2 * e + 1) * d - 1], down = x[(2 * e + 2) * d - 1];
                x[(2 * e + 1) * d - 1] = down; x[(2 * e + 2) * d - 1] = left * down;
            }}
            __syncthreads();
        }}
    }}""",
    "cyclic_reduction": f"""extern "C" __global__ void cyclic_reduction(double* lo, double* di, double* up, double* r, int n) {{ {_BLOCK}
        lo += b * n; di += b * n; up += b * n; r += b * n;
        int s = 1;
        for (; 2 * s <= n; s *= 2) {{
            for (int e = t; e < n / (2 * s); e += all) {{
                int i = (e + 1) * 2 * s - 1, l = i - s, u = i + s;
                double f = lo[i] / di[l], g = u < n ? up[i] / di[u] : 0.0;
                di[i] -= f * up[l] + (u < n ? g * lo[u] : 0.0);
                r[i] -= f * r[l] + (u < n ? g * r[u] : 0.0);
                lo[i] = -f * lo[l]; up[i] = u < n ? -g * up[u] : 0.0;
            }}
            __syncthreads();
        }}
        for (; s > 0; s /= 2) {{
            for (int e = t; (2 * e + 1) * s - 1 < n; e += all) {{
                int i = (2 * e + 1) * s - 1;
                double v = r[i];
                if (i >= s) v -= lo[i] * r[i - s];
                if (i + s < n) v -= up[i] * r[i + s];
                r[i] = v / di[i];
            }}
            __syncthreads();
        }}
    }}""",
    "jacobi": f"""extern "C" __global__ void jacobi(double* x, const double* f, int n, int sweeps) {{ {_BLOCK}
        x += b * n; f += b * n;
        if (t >= n) return;
        for (int k = 0; k < sweeps; k++) {{
            int i = (t + k) % n;
            double v = x[i];
            if (i > 0 && i < n - 1) v = sin(x[i - 1]) + x[i] * x[i + 1] + f[i];
            __syncthreads();
            x[i] = v;
            __syncthreads();
        }}
    }}""",
    "turned_round": f"""extern "C" __global__ void turned_round(double* x, double c, int n) {{ {_BLOCK}
        x += b * n;
        for (int i = t; i < n; i += all) x[i] = sin(x[i]) * c;
        __syncthreads();
        for (int i = t; i < n / 2; i += all) {{
            double p = x[i], q = x[n - 1 - i];
            x[i] = q * q; x[n - 1 - i] = p * q;
        }}
        __syncthreads();
        for (int i = t; i < n; i += all) x[n - 1 - i] *= c + i;
    }}""",
    "lifting": f"""extern "C" __global__ void lifting(double* x, int n) {{ {_BLOCK}
        x += b * n;
        for (int s = 1; s < n; s *= 2) {{
            for (int e = t; (2 * e + 1) * s < n; e += all) {{
                int i = (2 * e + 1) * s, r = i + s < n ? i + s : i - s;
                x[i] -= 0.5 * x[i - s] * x[r];
            }}
            __syncthreads();
            for (int e = t; 2 * e * s < n; e += all) {{
                int i = 2 * e * s;
                if (i + s < n) x[i] += 0.25 * x[i + s] * x[i + s];
            }}
            __syncthreads();
        }}
    }}""",
    "all_read_one": f"""extern "C" __global__ void all_read_one(double* x, double* y, int n) {{ {_BLOCK}
        x += b * n; y += b * n;
        for (int k = 0; k < n; k++) {{
            if (t == k % all) x[k] = exp(-x[k] * x[k]);
            __syncthreads();
            for (int i = t; i < n; i += all) {{ y[(i + k) % n] *= 1.0 + 0.1 * x[k]; }}
            __syncthreads();
            if (t == (k + 1) % all) x[(k + 1) % n] += x[k] * y[k];
            __syncthreads();
        }}
    }}""",
    "overwritten": f"""extern "C" __global__ void overwritten(double* x, double* y, const int* to, int n) {{ {_BLOCK}
        x += b * n; y += b * n;
        for (int i = t; i < n; i += all) x[to[i]] = y[i] * y[i];
        __syncthreads();
        for (int i = t; i < n; i += all) y[i] += x[i];
        __syncthreads();
        for (int i = t; i < n; i += all) if (i % 3 == 0) x[i] = 2.0;
        __syncthreads();
        for (int i = t; i < n; i += all) x[to[i]] = x[to[i]] * y[n - 1 - i];
    }}""",
}

Geometry = tuple[tuple[int, int], tuple[int, int]]
GEOMETRIES: tuple[Geometry, ...] = (((1, 1), (4, 1)), ((3, 1), (17, 1)), ((2, 2), (3, 2)))


def _spd(rng: np.random.Generator, blocks: int, n: int) -> Any:
    a = rng.normal(size=(blocks, n, n))
    return (a @ a.transpose(0, 2, 1) + n * np.eye(n)).ravel()


def _some(rng: np.random.Generator, *shape: int) -> Any:
    return rng.uniform(0.5, 1.5, size=shape).ravel()


_ARGUMENTS: dict[str, Callable[[np.random.Generator, int], Sequence[Any]]] = {
    "lu": lambda rng, blocks: (_spd(rng, blocks, 5), 5),
    "cholesky": lambda rng, blocks: (_spd(rng, blocks, 5), 5),
    "fft": lambda rng, blocks: (_some(rng, blocks, 8), _some(rng, blocks, 8), 8),
    "bitonic": lambda rng, blocks: (_some(rng, blocks, 8), 8),
    "odd_even": lambda rng, blocks: (_some(rng, blocks, 7), _some(rng, blocks, 7), 7),
    "hillis": lambda rng, blocks: (_some(rng, blocks, 4), 4),
    "blelloch": lambda rng, blocks: (_some(rng, blocks, 8), 8),
    "cyclic_reduction": lambda rng, blocks: (
        0.2 * _some(rng, blocks, 7), 2.0 + _some(rng, blocks, 7), 0.3 * _some(rng, blocks, 7), _some(rng, blocks, 7), 7,
    ),
    "jacobi": lambda rng, blocks: (0.3 * _some(rng, blocks, 4), _some(rng, blocks, 4), 4, 5),
    "turned_round": lambda rng, blocks: (_some(rng, blocks, 7), 0.8, 7),
    "lifting": lambda rng, blocks: (_some(rng, blocks, 9), 9),
    "all_read_one": lambda rng, blocks: (_some(rng, blocks, 5), _some(rng, blocks, 5), 5),
    "overwritten": lambda rng, blocks: (_some(rng, blocks, 6), _some(rng, blocks, 6), np.array([3, 5, 0, 2, 1, 4], np.int32), 6),
}  # fmt: skip


def kernel(name: str) -> Any:
    return gpuad.kernel(_TEXTS[name], name)


def arguments(name: str, grid: Sequence[int], seed: int = 1) -> list[Any]:
    return list(_ARGUMENTS[name](np.random.default_rng(seed), int(np.prod(grid))))


# --- gradients ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.one_of(6)
@pytest.mark.parametrize(("name", "geometry"), share([(name, g) for name in _TEXTS for g in GEOMETRIES], 2), ids=str)
def test_gradients(name: str, geometry: Geometry) -> None:
    """Against forward mode and differences; the reference executor finds races of the reverse pass, if there are any."""
    grid, block = geometry
    with running("reference"):
        testing.check_gradient(kernel(name), arguments(name, grid), grid=grid, block=block, tolerance=1e-11, directions=2)


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", _TEXTS)
def test_gradients_with_everything_recorded(name: str) -> None:
    with running("reference"), pipeline.everything_recorded_for_tests():
        testing.check_gradient(kernel(name), arguments(name, (2, 1)), grid=2, block=4, tolerance=1e-11, directions=1)


@pytest.mark.parametrize("seed", range(cases(1, 12)))
def test_random_kernels(seed: int) -> None:
    made, r = RandomTurns(seed), np.random.default_rng(seed)
    n, size = 2 * made.block - 3, 2 * made.block
    arrays = [r.uniform(0.1, 0.9, length) for length in (n, n, size, size)]
    with running("reference"):
        try:
            report = testing.check_gradient(gpuad.kernel(made.text, "k"), (*arrays, n, 2), grid=2, block=made.block, directions=1)
        except ShadowError as error:
            assert "no path from an active input" in str(error)
        else:
            assert not any("hvp refuses" in note for note in report.notes), report


def pairs(name: str, seed: int, grid: int) -> tuple[list[Any], list[Duplicated]]:
    """Arguments with random seeds, and those of them that are pairs."""
    rng = np.random.default_rng(seed)
    given = [_paired(a, rng) for a in arguments(name, (grid, 1), seed)]
    return given, [a for a in given if isinstance(a, Duplicated)]


def _paired(argument: Any, rng: np.random.Generator) -> Any:
    return Duplicated(argument, rng.normal(size=argument.size)) if getattr(argument, "dtype", None) == np.float64 else argument


def gradients(name: str, seed: int, *, grid: int = 2, block: int = 6) -> list[Any]:
    """What `autodiff` leaves in primals and shadows."""
    given, active = pairs(name, seed, grid)
    gpuad.autodiff(kernel(name), grid, block, given)
    return [x for pair in active for x in (pair.primal, pair.shadow)]


def close(found: Sequence[Any], right: Sequence[Any], tolerance: float = 1e-12) -> None:
    for a, b in zip(found, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1.0, np.abs(b).max()))


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", share(["lu", "fft", "bitonic", "hillis", "cyclic_reduction", "all_read_one", "overwritten"], 2))
def test_executors_agree(name: str) -> None:
    """The second time nothing is asked that the launch's numbers have told."""
    found = []
    for executor in ("host", "host", "reference"):
        with running(executor):
            found.append(gradients(name, 3))
    with running("reference"), pipeline.nothing_plain_for_tests():
        found.append(gradients(name, 3))
    for other in found[:-1]:
        close(other, found[-1])


# --- programs ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", ["lu", "fft", "bitonic", "hillis", "jacobi", "overwritten"])
def test_on_a_tape(name: str) -> None:
    """Two launches, recorded twice, as the one after the other by hand."""
    k, (given, active) = kernel(name), pairs(name, 7, 2)
    seeds, start = [a.shadow.copy() for a in active], [a.primal.copy() for a in active]
    with running("reference"):
        states = [start]
        for _ in range(2):
            k(2, 4, [getattr(a, "primal", a) for a in given])
            states.append([a.primal.copy() for a in active])
        for before in (states[1], states[0]):
            for a, x in zip(active, before, strict=True):
                a.primal[...] = x
            gpuad.autodiff(k, 2, 4, given)
        right = [a.shadow.copy() for a in active]
        tape = gpuad.Tape()
        for _ in range(2):
            for a, x, seed in zip(active, start, seeds, strict=True):
                a.primal[...], a.shadow[...] = x, seed
            with tape:
                k[2, 4](*given)
                k[2, 4](*given)
            tape.reverse()
            close([a.shadow for a in active], right)
            close([a.primal for a in active], states[2])


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ["lu", "hillis", "all_read_one"])
def test_second_derivatives(name: str) -> None:
    """Against differences of gradients."""
    rng, step = np.random.default_rng(2), 1e-6
    k, (given, active) = kernel(name), pairs(name, 2, 2)
    directions = [rng.normal(size=a.primal.size) for a in active]
    start, seeds = [a.primal.copy() for a in active], [a.shadow.copy() for a in active]
    with running("reference"):
        ends = []
        for sign in (1, -1):
            for a, x, seed, d in zip(active, start, seeds, directions, strict=True):
                a.primal[...], a.shadow[...] = x + sign * step * d, seed
            gpuad.autodiff(k, 2, 4, given)
            ends.append([a.shadow.copy() for a in active])
        for a, x, seed in zip(active, start, seeds, strict=True):
            a.primal[...], a.shadow[...] = x, seed
        dots = [Duplicated(d.copy(), np.zeros(d.size)) for d in directions]
        rest = [None] * (len(given) - len(dots))
        gpuad.hvp(k, 2, 4, given, [*dots, *rest])
    close([d.shadow for d in dots], [(a - b) / (2 * step) for a, b in zip(*ends, strict=True)], 1e-7)


# --- other ways to a gradient ------------------------------------------------------------------------------------------------------------


def test_one_array_as_two_arguments() -> None:
    """Threads take turns by way of two parameters, which begin at one place or not."""
    text = """extern "C" __global__ void k(double* x, double* y, int n) {
        int t = threadIdx.x;
        double v = sin(x[t]) * y[t];
        __syncthreads();
        x[t] = v;
        __syncthreads();
        v = x[t] * y[(t + 2) % n];
        __syncthreads();
        y[(t + 1) % n] *= v;
        __syncthreads();
        v = y[t] - x[t];
        __syncthreads();
        x[n - 1 - t] *= v;
    }"""
    rng = np.random.default_rng(4)
    for shift in (0, 2):
        z = rng.uniform(0.5, 1.5, 7)
        with running("reference"):
            testing.check_gradient(gpuad.kernel(text, "k"), (z[: 7 - shift], z[shift:], 5), grid=1, block=5)


def test_several_shadows_and_split_pairs() -> None:
    k, (given, active) = kernel("lu"), pairs("lu", 6, 2)
    start, seed = active[0].primal.copy(), active[0].shadow.copy()
    with running("reference"):
        gpuad.autodiff(k, 2, 4, given)
        a, shadows = start.copy(), (seed.copy(), 2 * seed)
        gpuad.autodiff(k, 2, 4, (gpuad.BatchDuplicated(a, shadows), 5))
        close(shadows, (active[0].shadow, 2 * active[0].shadow))
        a, da = start.copy(), seed.copy()
        augmented, reverse = gpuad.autodiff_thunk(k, a=Duplicated)
        saved = augmented(2, 4, (Duplicated(a, da), 5))
        a[...] = np.nan
        reverse(2, 4, (Duplicated(a, da), 5), saved)
        close([da], [active[0].shadow])


def test_a_deterministic_pass_is_refused() -> None:
    """What threads add to a shadow in one interval is read in another."""
    with running("reference"), gpuad.deterministic(), pytest.raises(UnsupportedError, match=r"<source>:\d+:\d+: .*deterministic"):
        gradients("lu", 1)


def test_what_is_said_of_turns() -> None:
    turned = kernel("lu").adjoint(a=Duplicated).explain()
    (line,) = [text for text in turned.assumptions if "__syncthreads() between" in text]
    assert line.startswith("<source>:") and "`a`" in line
    text = """extern "C" __global__ void k(double* x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        double v = x[n - 1 - i]; __syncthreads(); x[i] = v * v;
    }"""
    x = Duplicated(np.ones(4), np.ones(4))
    alone = gpuad.kernel(text, "k").adjoint(x=Duplicated, grid=1, block=4, args=(x, 4)).explain()
    assert not any("__syncthreads() between" in text for text in alone.assumptions)


def test_once_where_numbers_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes to which element of a matrix that is factored hangs on its extents alone."""
    launched: list[str] = []
    launch = Reference.launch
    monkeypatch.setattr(Reference, "launch", lambda self, k, *a, **b: (launched.append(k.name), launch(self, k, *a, **b))[1])
    k, (given, _) = kernel("lu"), pairs("lu", 1, 2)
    with pipeline.executor_for_tests(Reference()):
        for _ in range(3):
            gpuad.autodiff(k, 2, 4, given)
    inspected = [name.removeprefix("lu_") for name in launched if name.endswith(("_store_conflicts", "_barrier_order"))]
    assert inspected == ["store_conflicts", "store_conflicts", "barrier_order"]


@pytest.mark.skipif(not nvrtc.available(), reason="there is no NVRTC: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("name", ["lu", "bitonic"])
def test_compilers_take_the_text(name: str) -> None:
    adjoint = _adjoint(kernel(name))
    watch = adjoint.barrier_order(frozenset(b for b in adjoint.primal.buffers)).kernel
    kernels = [watch, adjoint.kernel()]
    assert set(nvrtc.resources(nvrtc.compile_cuda(cuda_source(kernels)))) == {k.name for k in kernels}


def _adjoint(k: Any) -> Any:
    own = api.kernel(k)
    return reverse_of(own.function, Pattern(tuple(F64 if isinstance(p, Buffer) else None for p in own.primal().params)))


def test_takes_of_one_element_come_one_after_the_other() -> None:
    """All threads store the same to `m`, so each of them takes: no loop over threads in which they do may be announced as independent."""
    text = """extern "C" __global__ void k(double* x, double* y, double* m, double c, int n) {
        __shared__ double s[64];
        int t = threadIdx.x;
        double v = x[0] * x[0];
        s[t] = y[t] * v;
        __syncthreads();
        double w = s[n - 1 - t];
        __syncthreads();
        m[0] = v;
        s[t] += y[t] * c;
        __syncthreads();
        y[t] = s[(t + 1) % n] * w;
    }"""
    k = gpuad.kernel(text, "k")
    made = serialise_blocks(_adjoint(k).kernel(), (64, 1, 1))
    taking = [s for s in made.body if isinstance(s, For) and any(isinstance(t, Take) and t.buffer.name == "dm" for t in walk_stmts(s.body))]
    assert len(taking) == 1 and not taking[0].independent
    x, y, m = Duplicated(np.array([1.5])), Duplicated(np.linspace(1, 2, 64)), Duplicated(np.zeros(1), np.ones(1))
    with running("host"):
        gpuad.autodiff(k, 1, 64, (x, y, m, 0.3, 64))
    assert x.shadow[0] == 3.0


# --- what is refused ---------------------------------------------------------------------------------------------------------------------

_UNSOUND = {
    "no barrier": ("x[t] *= x[t];\n x[(t + 1) % n] *= 2.0;\n __syncthreads();", r"writes an element to which another one comes.*:[23]:\d+"),
    "a barrier of warps": ("x[t] *= x[t];\n __syncwarp();\n x[(t + 1) % n] *= 2.0; __syncthreads();", r"with no __syncthreads\(\)"),
    "a read too early": ("x[t] *= y[t]; __syncthreads();\n x[(t + 1) % n] *= x[(t + 2) % n];", r"(reads|writes) an element.*:2:\d+"),
    "a read too late": ("double v = x[t]; __syncthreads(); x[(t + 1) % n] = v;\n y[t] = x[t]; __syncthreads(); x[t] = v;", r"no __sync"),
    "neighbouring blocks": ("x += n * b; x[t] *= x[t]; __syncthreads();\n x[t + 1] *= 2.0;", r"a data race"),
    "neighbouring blocks, further": (
        "x += n * b;\n x[t] *= x[t]; __syncthreads();\n x[(t + b) % n + 1] *= 2.0;", r"a block (reads|writes).*:[23]:\d+.*orders the blocks"
    ),
    "a neighbour's halo": (
        "int e = n * b + t; x[e] *= y[e]; __syncthreads();\n double v = e ? x[e - 1] : 1.0; __syncthreads(); x[n * b + (t + 1) % n] = v;",
        r"a data race: in this launch a thread reads an element of `x`",
    ),
    "all blocks the same": ("x[t] *= x[t]; __syncthreads(); x[(t + 1) % n] *= 2.0;", r"orders the blocks"),
    "another array": (
        "x[t] *= y[t]; __syncthreads(); x[(t + 1) % n] *= 2.0; y[t + b * n] = x[t];\n if (t) y[t] += y[t + b * n - 1];",
        "no __sync|orders the blocks|a data race",
    ),
    "atomics": ("x[t] *= y[t]; __syncthreads(); x[(t + 1) % n] *= 2.0;\n atomicAdd(&x[0], y[t]);", r"by atomic.*:2:\d+"),
    "a condition": (
        "x[t] *= y[t]; __syncthreads(); x[(t + 1) % n] *= 2.0; __syncthreads();\n"
        " while (x[0] > 1.0) { __syncthreads(); if (!t) x[0] *= 0.5; __syncthreads(); }",
        r"in the condition of a loop.*:2:\d+",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _UNSOUND)
def test_no_turns(name: str) -> None:
    """None of these is let pass, on an executor that does not look at races itself; and nothing is written."""
    body, message = _UNSOUND[name]
    blocks = 1 if name in ("no barrier", "a barrier of warps", "a read too early", "a read too late", "atomics", "a condition") else 2
    text = f'extern "C" __global__ void k(double* x, double* y, int n) {{ int t = threadIdx.x, b = blockIdx.x; {body} }}'
    x, y = (Duplicated(np.arange(2.0, 14), np.ones(12)) for _ in range(2))
    with pipeline.executor_for_tests(Reference(check=False)), pytest.raises((LaunchError, UnsupportedError), match=f"(?s){message}"):
        gpuad.autodiff(gpuad.kernel(text, "k"), blocks, 4, (x, y, 4))
    assert (x.primal == np.arange(2.0, 14)).all() and (x.shadow == 1).all() and (y.shadow == 1).all()


_LAUNCHED = "int t = threadIdx.x, b = blockIdx.x, i = b * blockDim.x + t;"
_HALO = "if (i > 0 && i < n - 1) v = x[i - 1] * x[i + 1];\n __syncthreads();"


@pytest.mark.parametrize("body", [f"{_HALO} if (i < n) x[i] = v;", f"for (int k = 0; k < 3; k++) {{ {_HALO} x[i] = v; __syncthreads(); }}"])
def test_neighbours_of_other_blocks(body: str) -> None:
    """Each element has one writer: a barrier orders it and those who read it where they are of one block."""
    text = f'extern "C" __global__ void k(double* x, int n) {{ {_LAUNCHED} double v = 0.5; {body} }}'
    x = Duplicated(np.linspace(1, 2, 12), np.ones(12))
    with pipeline.executor_for_tests(Reference(check=False)):
        gpuad.autodiff(gpuad.kernel(text, "k"), 1, 12, (x, 12))
        before = x.primal.copy()
        with pytest.raises(UnsupportedError, match=r"<source>:1:\d+: error: a data race: .*`x`.*writes at <source>:2"):
            gpuad.autodiff(gpuad.kernel(text, "k"), 3, 4, (x, 12))
    assert (x.primal == before).all()


@pytest.mark.one_of(3)
@pytest.mark.parametrize("seed", range(cases(10, 60)))
def test_only_races_are_proved(seed: int) -> None:
    """Accesses on both sides of a barrier, whose indices are affine: what is refused has a race that the reference executor finds."""
    r = np.random.default_rng(seed)
    pick = lambda *choices: str(r.choice(choices))  # noqa: E731
    own = [pick("i", "i", "t", "b", "2 * i", "t + 3 * b", "j * 6 + i", "k + t") + pick("", " + 1", " + 4") for _ in range(2)]
    guards = [pick("true", "true", "i < 5", "i > 2 && i < 7", "b == 1", "j < 1", "t < 2") for _ in range(2)]
    lines = f"""double v = 0.5;
        for (int k = 0; k < {pick("1", "2", "n - 8")}; k++) {{
            if ({guards[0]}) v = x[{own[0]}];
            __syncthreads();
            if ({guards[1]}) x[{own[1]}] = 0.1 * v + i + 100 * j;
            {pick("", "__syncthreads();")}
        }}"""
    text = f'extern "C" __global__ void k(double* x, int n) {{ int j = blockIdx.y * blockDim.y + threadIdx.y; {_LAUNCHED} {lines} }}'
    grid, block = (int(r.integers(1, 4)), int(r.integers(1, 3))), (int(r.integers(1, 5)), int(r.integers(1, 3)))
    k, x = gpuad.kernel(text, "k"), np.linspace(1, 2, 40)
    race = None
    try:
        check_races(k, grid, block, (x.copy(), 10))
    except RaceError as error:
        race = error
    with pipeline.executor_for_tests(Reference(check=False)):
        try:
            gpuad.autodiff(k, grid, block, (Duplicated(x, np.ones(40)), 10))
        except (UnsupportedError, LaunchError):
            assert race is not None
        else:
            assert race is None or str(race).count("writes it") < 2


@pytest.mark.parametrize("seed", range(100, 100 + cases(2, 20)))
def test_every_race_is_met(seed: int) -> None:
    """Random kernels without one of their barriers, or with blocks that share elements: what is told of `s` and `q`, in whatever order the
    threads come, is what the reference executor finds."""
    made, r = RandomTurns(seed), np.random.default_rng(seed)
    at = r.choice([k for k in range(len(made.text)) if made.text.startswith("__syncthreads();", k)])
    text = made.text[:at] + made.text[at + len("__syncthreads();") :] if seed % 3 else made.text
    text = text.replace(f"s += blockIdx.x * {made.block}", "s += blockIdx.x * 3") if seed % 4 == 0 else text
    n, size = 2 * made.block - 3, 2 * made.block
    arrays = [r.uniform(0.1, 0.9, length) for length in (n, n, size, size)]
    k, race = api.kernel(text, "k"), None
    try:
        check_races(k, 2, made.block, (*(a.copy() for a in arrays), n, 2))
    except RaceError as error:
        race = error
    chosen = k.planned(2, made.block, (*(Duplicated(a, np.ones(a.size)) for a in arrays), n, 2)).kernel
    call = chosen.bind(2, made.block, (*(Duplicated(a, np.ones(a.size)) for a in arrays), n, 2), 0, None)
    adjoint = chosen.reverse_for(pattern_of(chosen, call), call)
    watched = [b for b in adjoint.primal.buffers if b.name in "sq"]
    for order in ("forward", "reversed", "random"):
        with pipeline.executor_for_tests(Reference(check=False, order=order, seed=seed)):
            met = store_checks._first_conflict(adjoint, call, watched)
        assert met is not None if race is not None else met is None or "= 0.5;" in text


def test_barriers_that_not_all_threads_reach() -> None:
    text = """extern "C" __global__ void k(double* x, int n) {
        int t = threadIdx.x;
        x[t] *= x[t];
        if (t < 3) __syncthreads();
        x[(t + 1) % n] *= 2.0;
    }"""
    with pytest.raises(UnsupportedError, match=r":4:20: error: __syncthreads\(\) inside a condition"):
        gpuad.autodiff(gpuad.kernel(text, "k"), 1, 4, (Duplicated(np.ones(4), np.ones(4)), 4))


def test_turns_that_depend_on_data_are_looked_at_each_time() -> None:
    """An index array decides who writes where, and changes between calls with the same arrays."""
    text = """extern "C" __global__ void k(double* x, const int* to, int n) {
        int t = threadIdx.x;
        x[t] *= x[t];
        __syncthreads();
        x[to[t]] *= 3.0;
    }"""
    k, x, dx, to = gpuad.kernel(text, "k"), np.arange(1.0, 5.0), np.ones(4), np.array([1, 2, 3, 0], np.int32)
    with running("host"):
        for _ in range(3):
            x[...], dx[...] = np.arange(1.0, 5.0), 1.0
            gpuad.autodiff(k, 1, 4, (Duplicated(x, dx), to, 4))
            np.testing.assert_allclose(dx, 6 * np.arange(1.0, 5.0))
        to[...] = [1, 1, 3, 0]
        with pytest.raises(LaunchError, match=r"with no __syncthreads\(\) between"):
            gpuad.autodiff(k, 1, 4, (Duplicated(x, dx), to, 4))
        to[...] = [3, 2, 1, 0]
        x[...], dx[...] = np.arange(1.0, 5.0), 1.0
        gpuad.autodiff(k, 1, 4, (Duplicated(x, dx), to, 4))
        np.testing.assert_allclose(dx, 6 * np.arange(1.0, 5.0))
