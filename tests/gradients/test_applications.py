"""What whole applications met: kernels and programs as people write them, cut down to what was wrong."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import numpy as np
import pytest
from nightly import NIGHTLY

from gpuad import CompileError, Duplicated, Kernel, kernel
from gpuad.runtime import compiler
from gpuad.runtime.compiler import Compiler
from gpuad.tape.export import standalone
from gpuad.testing import check_gradient

pytestmark = pytest.mark.optimised  # what C++ compilers made wrong is among them

SUM = "template <int M> __device__ double f(const double (&a)[M]) { double s = 0; for (int k = 0; k < M; ++k) s += a[k] * a[0]; return s; }"
CROSS = "template <int M> __device__ double f(const double (&a)[M][M]) { return a[0][M - 1] * a[M - 1][0]; }"
BOTH = "__device__ double f(const double (&a)[2], double (&b)[2]) { b[0] = 2.0 * a[1]; b[1] = a[0]; return a[0] * b[0]; }"
INSIDE = """struct Pair { double m[2]; __device__ double f() const { return g(m); }
    static __device__ double g(const double (&a)[2]) { return a[0] * a[1]; } };"""
CONST_ARRAYS = {
    "of one row": (SUM, "double b[3] = {x[i], x[i] * x[i], 2.0}; x[i] = f(b);"),
    "of rows": (CROSS, "double b[2][2] = {{x[i], x[i] * x[i]}, {3.0 * x[i], 1.0}}; x[i] = f(b);"),
    "a row": (SUM, "double b[3][2] = {{x[i], x[i] * x[i]}, {3.0 * x[i], 1.0}, {1.0, x[i]}}; x[i] = f(b[i % 3]) + f(b[1]);"),
    "what another one changes": (BOTH, "double b[2] = {x[i], x[i] * x[i]}; double r = f(b, b); x[i] = r * b[1];"),
    "a member": (INSIDE, "Pair b = {{x[i], x[i] * x[i]}}; x[i] = b.f() + Pair::g(b.m);"),
    "shared": (SUM, "__shared__ double s[4]; s[i] = x[i]; __syncthreads(); x[i] = f(s);"),
    "a variable": ("", "double b[2] = {x[i], x[i] * x[i]}; const double (&r)[2] = b; b[0] = 2.0 * b[0]; x[i] = r[0] * r[1];"),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", CONST_ARRAYS)
def test_references_to_arrays_that_are_const(name: str) -> None:
    """It is the array that the function gets, not a pointer to its first row."""
    before, body = CONST_ARRAYS[name]
    k = kernel(f'{before} extern "C" __global__ void k(double* x, int n) {{ int i = threadIdx.x; if (n != 4) return; {body} }}', "k")
    check_gradient(k, (np.linspace(0.5, 1.5, 4), 4), grid=(1,), block=(4,))


# --- tiles whose last one is filled in part ----------------------------------------------------------------------------------------------

FILL = "int j = b + threadIdx.x; if (j < n) tile[threadIdx.x] = x[j];"
FILLED = {
    "as far as it is": (FILL, "for (int k = 0; k < min(8, n - b); ++k)", True),
    "by a guard": ("if (b + threadIdx.x < n) tile[threadIdx.x] = x[b + threadIdx.x];", "for (int k = 0; k < 8 && b + k < n; ++k)", True),
    "further than it is": (FILL, "for (int k = 0; k < 8; ++k)", False),
    "one too many": (FILL, "for (int k = 0; k < min(8, n - b + 1); ++k)", False),
    "backwards": ("if (n - 1 - b >= threadIdx.x) tile[threadIdx.x] = x[b + threadIdx.x];", "for (int k = min(8, n - b); k-- > 0;)", True),
    "until data say": (FILL, "for (int k = 0; k < 8 && (x[k] > 9.0 || b + k < n); ++k)", False),
}


def pairs(fill: str, loop: str) -> Kernel:
    return kernel(
        f"""extern "C" __global__ void k(const double* x, double* y, int n) {{
            __shared__ double tile[8];
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            double p = x[min(i, n - 1)], a = 0.0;
            for (int b = 0; b < n; b += 8) {{
                {fill}
                __syncthreads();
                {loop} {{ double d = tile[k] - p; a += d / (1.0 + d * d); }}
                __syncthreads();
            }}
            if (i < n) y[i] = a;
        }}""",
        "k",
    )


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", FILLED)
@pytest.mark.parametrize("n", [8, 16, 21])
def test_last_tile(name: str, n: int) -> None:
    """What the last iteration reads is told from what it stores, not from what any iteration might."""
    fill, loop, _ = FILLED[name]
    check_gradient(pairs(fill, loop), (np.linspace(0.5, 1.5, n), np.zeros(n), n), grid=(-(-n // 8),), block=(8,))


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", FILLED)
def test_last_tile_is_filled_again(name: str) -> None:
    """Nothing is recorded of tiles that each iteration fills as far as it reads them: all pairs would be a lot."""
    fill, loop, filled = FILLED[name]
    k = pairs(fill, loop).adjoint(grid=(3,), block=(8,), args=(Duplicated(np.zeros(21)), Duplicated(np.zeros(21)), 21))
    assert ("stack" not in str(k.explain())) == filled


# --- a compiler that crashes -------------------------------------------------------------------------------------------------------------

QUEUE = r"""
#define R 2
extern "C" __global__ void sweep(const double* in, double* out, const double* c, int nx, int ny, int nz) {
    __shared__ double tile[4 + 2 * R][8 + 2 * R];
    int x = blockIdx.x * 8 + threadIdx.x + R, y = blockIdx.y * 4 + threadIdx.y + R, st = nx * ny;
    int tx = threadIdx.x + R, ty = threadIdx.y + R, row = min(y, ny - 1) * nx, at = row + min(x, nx - 1), o;
    double front[R], behind[R], now;
    for (int i = R - 2; i >= 0; i--) { behind[i] = in[at]; at += st; }
    now = in[at]; o = at; at += st;
    for (int i = 0; i < R; i++) { front[i] = in[at]; at += st; }
    for (int z = R; z < nz - R; z++) {
        for (int i = R - 1; i > 0; i--) behind[i] = behind[i - 1];
        behind[0] = now; now = front[0];
        for (int i = 0; i < R - 1; i++) front[i] = front[i + 1];
        front[R - 1] = in[at]; at += st; o += st;
        __syncthreads();
        int plane = z * st;
        if (threadIdx.y < R) {
            tile[threadIdx.y][tx] = in[plane + min(y - R, ny - 1) * nx + min(x, nx - 1)];
            tile[threadIdx.y + 4 + R][tx] = in[plane + min(y + 4, ny - 1) * nx + min(x, nx - 1)];
        }
        if (threadIdx.x < R) {
            tile[ty][threadIdx.x] = in[plane + row + min(x - R, nx - 1)];
            tile[ty][threadIdx.x + 8 + R] = in[plane + row + min(x + 8, nx - 1)];
        }
        tile[ty][tx] = now;
        __syncthreads();
        double v = c[0] * now;
        for (int i = 1; i <= R; i++)
            v += c[i] * (front[i - 1] + behind[i - 1] + tile[ty - i][tx] + tile[ty + i][tx] + tile[ty][tx - i] + tile[ty][tx + i]);
        if (x < nx - R && y < ny - R) out[o] = 2.0 * now - out[o] + 0.1 * v * (1.0 + 0.1 * now);
    }
}"""


def test_queue_of_registers() -> None:
    """A stencil that walks along z with its neighbours in registers: g++ 12 crashes where it vectorises what is made of it."""
    rng = np.random.default_rng(3)
    u, v, c = rng.normal(size=(7, 8, 13)), rng.normal(size=(7, 8, 13)), np.array([-7.5, 1.33, -0.083])
    check_gradient(kernel(QUEUE, "sweep"), (u, v, c, 13, 8, 7), grid=(2, 1), block=(8, 4), directions=1, second_check=bool(NIGHTLY))


FAKE = """#!/bin/sh
case "$*" in
    *-fno-tree-vectorize*) touch {made};;
    *) echo "{says}" >&2; exit 1;;
esac
"""


def fake(folder: Path, says: str) -> Path:
    """A compiler that cannot vectorise."""
    script = folder / "c++"
    script.write_text(FAKE.format(made=folder / "made", says=says))
    script.chmod(0o755)
    return script


def test_compiler_that_crashes_is_asked_for_less(tmp_path: Path) -> None:
    script, text, target = (
        fake(tmp_path, "during GIMPLE pass: vect: internal compiler error: in vect_get"),
        tmp_path / "a.cpp",
        tmp_path / "a.so",
    )
    target.touch()  # what the script does not write
    Compiler((str(script),), "g++").build(text, target, ())
    assert (tmp_path / "made").exists()
    (tmp_path / "made").unlink()
    assert standalone.compiled([str(script)], [str(text)]).returncode == 0
    assert (tmp_path / "made").exists()


def test_compiler_that_refuses_is_believed(tmp_path: Path) -> None:
    script = fake(tmp_path, "error: expected ;")
    with pytest.raises(CompileError, match="expected ;"):
        Compiler((str(script),), "g++").build(tmp_path / "a.cpp", tmp_path / "a.so", ())
    assert standalone.compiled([str(script)], [str(tmp_path / "a.cpp")]).returncode == 1
    assert not (tmp_path / "made").exists()


def test_stored_programs_are_compiled_alike() -> None:
    assert (standalone.FLAGS, standalone.NO_GATHERS) == (compiler.FLAGS, compiler.NO_GATHERS)
    assert (standalone.CAREFUL, standalone.CRASHED) == (compiler.CAREFUL, compiler.CRASHED)


MEDIAN = """
#define LESS(a, b) if (a > b) { const float t = a; a = b; b = t; }
void median(const float* __restrict__ u, float* __restrict__ v, int n, int h, long long y)
{
#pragma GCC ivdep
    for (long long x = 0; x < n; ++x)
        if (y < h) {
            float a = u[x > 1 ? x - 1 : 0], b = u[x], c = u[x < n - 1 ? x + 1 : n - 1], d = u[n - 1 - x], e = u[x < n - 2 ? x + 2 : n - 1];
            LESS(d, e) LESS(c, d) LESS(b, c) LESS(a, b) LESS(d, e) LESS(c, d) LESS(b, c) LESS(d, e) LESS(c, d)
            v[x] = c;
        }
}
"""


@pytest.mark.one_of(2)
@pytest.mark.parametrize("processor", ["haswell", "skylake", "znver3", "skylake-avx512"])
def test_no_gather_instructions(tmp_path: Path, processor: str) -> None:
    """g++ 12 makes masks of them that are all 0 where a condition is the same for a whole loop: a median came out as 0."""
    found = compiler.find_compiler()
    if "Free Software Foundation" not in found.version or platform.machine() != "x86_64":
        pytest.skip("g++ for x86 alone")
    (tmp_path / "a.cpp").write_text(MEDIAN)

    def assembly(*flags: str) -> str:
        options = ("-march=" + processor, "-S", "-o", "-", str(tmp_path / "a.cpp"))
        return subprocess.run([*found.command, *flags, *options], capture_output=True, text=True, check=True).stdout

    assert "vgather" in assembly(*compiler.FLAGS) or processor == "znver3"
    assert "vgather" not in assembly(*found.flags)
    assert "vgather" not in assembly(*standalone.options(list(found.command)))
