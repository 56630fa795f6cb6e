"""Programs as a CuPy user writes them, on NumPy arrays: one gradient, a wave inversion, a pair for another autograd, a template with
constant memory, a stencil in Python, array code around a kernel, learned scalars, host copies between launches, a gradient check with a
limit on memory, and the adjoint as a file and in a C++ program. The pipeline over several streams is in gpu_checks.py."""

from __future__ import annotations

import subprocess
from typing import Any

import numpy as np
import pytest
from launch_tools import CASES, EXECUTORS, compiled, running, shipped
from launch_tools import arguments as case_arguments
from tape_tools import jacobian_transposed, pair

import gpuad
from gpuad import Active, Const, Duplicated, ShadowError, TapeError
from gpuad.runtime.compiler import find_compiler

BOTH = pytest.mark.parametrize("executor", list(EXECUTORS))

SQUARE = r"""
extern "C" __global__ void square(float* x, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) x[i] = x[i] * x[i];
}"""

WAVE = r"""
extern "C" __global__ void step(double* old, const double* now, const double* k, int ny, int nx) {  // old becomes new
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= nx - 1 || y >= ny - 1) return;
    int i = y * nx + x;
    double lap = now[i - 1] + now[i + 1] + now[i - nx] + now[i + nx] - 4.0 * now[i];
    old[i] = 2.0 * now[i] - old[i] + k[i] * lap;
}
extern "C" __global__ void inject(double* u, double amplitude, int at) { if (threadIdx.x == 0) u[at] += amplitude; }
extern "C" __global__ void damp(double* u, const double* sponge, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) u[i] *= sponge[i];
}
extern "C" __global__ void sample(double* trace, const double* u, const int* at, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) trace[i] = u[at[i]];
}
extern "C" __global__ void fill(double* u, double value, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) u[i] = value;
}"""

GRAY_SCOTT = r"""
extern "C" __global__ void react(double* u, double* v, double f, double kill, double dt, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i >= n) return;
    double a = u[i], b = v[i], r = a * b * b;
    u[i] = a + dt * (f * (1.0 - a) - r);
    v[i] = b + dt * (r - (f + kill) * b);
}"""

PROJECT = r"""
extern "C" __global__ void project(const double* volume, double* sino, const double* weights, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) sino[i] = weights[i] * volume[i] * volume[i];
}"""


@BOTH
def test_1_one_gradient(executor: str) -> None:
    n = 1000
    x = np.random.default_rng(0).random(n, dtype=np.float32)
    old, dx = x.copy(), np.ones_like(x)  # the seed, because x is also the output
    with running(executor):
        gpuad.autodiff(compiled(SQUARE, "square"), ((n + 255) // 256,), (256,), (Duplicated(x, dx), n))
    np.testing.assert_allclose(x, old**2)
    np.testing.assert_allclose(dx, 2 * old)


# --- 2: an inversion -------------------------------------------------------------------------------------------------------------------

NY, NX, STEPS = 9, 11, 25
RECEIVERS = np.array([2 * NX + 3, 4 * NX + 7, 6 * NX + 2], np.int32)
SOURCE = 4 * NX + 5


class Inversion:
    """Program 2 with kernels for everything that touches a field."""

    def __init__(self) -> None:
        self.u, self.v = pair(np.zeros((NY, NX))), pair(np.zeros((NY, NX)))
        self.k, self.traces = pair(np.zeros((NY, NX))), pair(np.zeros((STEPS, len(RECEIVERS))))
        self.sponge = np.random.default_rng(1).uniform(0.9, 1.0, (NY, NX))
        self.wavelet = np.sin(np.arange(STEPS))
        self.tape = gpuad.Tape()

    def objective(self, k: Any, observed: Any, bare: bool) -> tuple[float, Any]:
        self.k.primal[...] = k  # outside of the tape: a raw write, harmless
        self.k.shadow.fill(0)
        kernels = {name: compiled(WAVE, name) for name in ("step", "inject", "damp", "sample", "fill")}
        line = (-(-NY * NX // 32)), 32
        with self.tape:
            now, old = self.u, self.v
            for field in (now, old):
                kernels["fill"][line](field.primal if bare else field, 0.0, NY * NX)
            for t in range(STEPS):
                kernels["step"][(2, 3), (8, 4)](old, now, self.k, NY, NX)
                kernels["inject"][1, 32](old, float(self.wavelet[t]), SOURCE)
                kernels["damp"][line](old, self.sponge, NY * NX)
                kernels["sample"][1, 32](self.traces[t], old, RECEIVERS, len(RECEIVERS))
                now, old = old, now
        residual = self.traces.primal - observed
        self.tape.reverse({self.traces: residual})
        return 0.5 * float((residual**2).sum()), self.k.shadow.copy()

    def model(self, s: Any) -> None:
        now, old = (np.zeros_like(s["k"]) for _ in range(2))
        for t in range(STEPS):
            lap = now[:, 1:-1, :-2] + now[:, 1:-1, 2:] + now[:, :-2, 1:-1] + now[:, 2:, 1:-1] - 4 * now[:, 1:-1, 1:-1]
            old[:, 1:-1, 1:-1] = 2 * now[:, 1:-1, 1:-1] - old[:, 1:-1, 1:-1] + s["k"][:, 1:-1, 1:-1] * lap
            old.reshape(len(old), -1)[:, SOURCE] += self.wavelet[t]
            old *= self.sponge
            s["traces"][:, t] = old.reshape(len(old), -1)[:, RECEIVERS]
            now, old = old, now


@BOTH
@pytest.mark.parametrize("bare", [False, True])
def test_2_a_wave_inversion(executor: str, bare: bool) -> None:
    """The second and the third gradient are as good as the first; only `now` is saved."""
    program = Inversion()
    observed = np.random.default_rng(2).normal(size=(STEPS, len(RECEIVERS)))
    rng = np.random.default_rng(3)
    for iteration in range(3):
        k = rng.uniform(0.1, 0.3, (NY, NX))
        with running(executor):
            loss, gradient = program.objective(k, observed, bare)
        residual = program.traces.primal - observed
        _, wanted = jacobian_transposed(program.model, {"k": k, "traces": np.zeros_like(observed)}, {"traces": residual})
        np.testing.assert_allclose(gradient, wanted["k"], atol=1e-10 * np.abs(wanted["k"]).max())
        assert loss == pytest.approx(0.5 * (residual**2).sum())
        if iteration:
            assert program.tape.stats.allocations == 0
    # Each field is read with its neighbours and damped before the next step overwrites its interior: at most a field a step
    assert program.tape.stats.saved_bytes <= (STEPS + 2) * NY * NX * 8
    text = str(program.tape.explain())
    assert "step" in text and "test_programs.py" in text


@BOTH
def test_2_a_line_search_that_wants_the_loss_only(executor: str) -> None:
    """A recording that is not reversed is dropped by the next."""
    program = Inversion()
    observed = np.zeros((STEPS, len(RECEIVERS)))
    k = np.full((NY, NX), 0.2)
    with running(executor):
        _, first = program.objective(k, observed, False)
        with program.tape:
            compiled(WAVE, "fill")[4, 32](program.u, 7.0, NY * NX)
        _, second = program.objective(k, observed, False)
    np.testing.assert_array_equal(first, second)


@BOTH
def test_2_a_residual_computed_in_place(executor: str) -> None:
    """It changes memory behind the tape: harmless where no adjoint reads it, TapeError where one does."""
    for needed in (False, True):
        x, traces, loss = pair([1.0, 2.0]), pair([0.0, 0.0]), pair([0.0, 0.0])
        tape = gpuad.Tape()
        with running(executor), tape:
            compiled(PROJECT, "project")[1, 32](x, traces, np.ones(2), 2)
            if needed:
                compiled(PROJECT, "project")[1, 32](traces, loss, np.ones(2), 2)
        traces.primal[...] -= 5
        with running(executor):
            if needed:
                with pytest.raises(TapeError, match="copy it before"):
                    tape.reverse({loss: 1.0})
            else:
                tape.reverse({traces: 1.0})
                np.testing.assert_allclose(x.shadow, [2.0, 4.0])


@BOTH
def test_2_a_bare_trace_is_refused(executor: str) -> None:
    u, trace = pair(np.zeros((NY, NX))), np.zeros(len(RECEIVERS))
    with running(executor), gpuad.Tape(), pytest.raises(ShadowError, match="trace"):
        compiled(WAVE, "sample")[1, 32](trace, u, RECEIVERS, len(RECEIVERS))


# --- the others ------------------------------------------------------------------------------------------------------------------------


@BOTH
def test_3_a_pair_for_another_autograd(executor: str) -> None:
    """Forward with bare arrays, backward with shadows that did not exist then, and a seed that belongs to somebody else: it is kept."""
    kernel = shipped("softsplat")
    made = dict(zip((d.name for d in kernel.parameters), case_arguments("softsplat"), strict=True))
    grid, block, _ = CASES["softsplat"].geometry()
    names = [n for n, a in made.items() if isinstance(a, Duplicated)]
    seed = np.random.default_rng(0).standard_normal(made["splatted"].primal.shape)
    made["splatted"].shadow[...] = seed
    augmented, reverse = gpuad.autodiff_thunk(kernel, **{n: Duplicated for n in names})
    with running(executor):
        saved = augmented(grid, block, [getattr(a, "primal", a) for a in made.values()])
        reverse(grid, block, list(made.values()), saved)
        again = dict(zip(made, case_arguments("softsplat"), strict=True))
        again["splatted"].shadow[...] = seed
        gpuad.autodiff(kernel, grid, block, list(again.values()))
    for name in names:
        np.testing.assert_allclose(made[name].shadow, again[name].shadow, atol=1e-6)


@BOTH
def test_3_softsplat_for_torch(executor: str) -> None:
    """As a torch.autograd.Function: tensors and their gradients are the arrays and shadows, torch's seed is only read."""
    torch = pytest.importorskip("torch", reason="this part needs torch")
    kernel, (grid, block, _) = shipped("softsplat"), CASES["softsplat"].geometry()
    made = dict(zip((d.name for d in kernel.parameters), case_arguments("softsplat"), strict=True))
    sizes = {name: int(made[name]) for name in ("n", "height", "width")}
    augmented, reverse = gpuad.autodiff_thunk(kernel, image=Duplicated, flow=Duplicated, splatted=Duplicated)

    def arguments(image: Any, flow: Any, splatted: Any) -> list[Any]:
        return [sizes["n"], image, flow, splatted, sizes["height"], sizes["width"]]

    class SoftSplat(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, image: Any, flow: Any) -> Any:
            out = torch.zeros_like(image)
            ctx.saved = augmented(grid, block, arguments(image, flow, out))
            ctx.save_for_backward(image, flow, out)
            return out

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            image, flow, out = ctx.saved_tensors
            d_image, d_flow = torch.zeros_like(image), torch.zeros_like(flow)
            pairs = (Duplicated(image, d_image), Duplicated(flow, d_flow), Duplicated(out, gradient.contiguous(), keep=True))
            reverse(grid, block, arguments(*pairs), ctx.saved)
            return d_image, d_flow

    image, flow = (torch.from_numpy(made[name].primal.copy()).requires_grad_(True) for name in ("image", "flow"))
    weights = torch.from_numpy(np.random.default_rng(0).normal(size=image.shape).astype(np.float32))
    with running(executor):
        (SoftSplat.apply(image, flow) * weights).sum().backward()
        kept = weights.clone()
        made["splatted"].shadow[...] = weights.numpy()
        gpuad.autodiff(kernel, grid, block, list(made.values()))
    for tensor, name in ((image, "image"), (flow, "flow")):
        np.testing.assert_allclose(tensor.grad.numpy(), made[name].shadow, atol=1e-6)
    assert torch.equal(weights, kept)
    assert float(image.grad.abs().max()) > 0
    with running(executor):
        SoftSplat.apply(image.detach(), flow).sum().backward()  # hands over a gradient whose strides are 0


FIR = r"""
__constant__ double taps[16];
template <typename T, int N> __global__ void fir(const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n - N) return;
    T s = 0;
    #pragma unroll
    for (int j = 0; j < N; ++j) s += taps[j] * x[i + j];
    y[i] = s;
}"""


@BOTH
def test_4_a_template_with_constant_memory(executor: str) -> None:
    """The taps change between two launches of one recording; then they are learned."""
    n, width, rng = 40, 16, np.random.default_rng(4)
    k = gpuad.kernel(FIR, "fir<double, 16>")
    taps, first, second = k.get_global("taps"), rng.normal(size=width), rng.normal(size=width)
    x, y, z, tape = pair(rng.normal(size=n)), pair(np.zeros(n)), pair(np.zeros(n)), gpuad.Tape()
    line = (-(-n // 32),), (32,)

    def filtered(h: Any, v: Any) -> Any:
        return np.concatenate([np.array([h @ v[i : i + width] for i in range(n - width)]), np.zeros(width)])

    with running(executor):
        with tape:
            for values, source, target in ((first, x, y), (second, y, z)):
                tape.overwrites(taps)
                taps[...] = values
                k[line](source, target, n)
        weights = rng.normal(size=n)
        tape.reverse({z: weights})
        np.testing.assert_allclose(z.primal, filtered(second, filtered(first, x.primal)), atol=1e-12)
        d = rng.normal(size=n)
        np.testing.assert_allclose(x.shadow @ d, weights @ filtered(second, filtered(first, d)), rtol=1e-11)
        learned = np.zeros(width)
        x.shadow.fill(0)
        y.shadow[...] = weights
        gpuad.autodiff(k.with_shadow("taps", learned), *line, (x, y, n))
    for j in range(width):
        np.testing.assert_allclose(learned[j], weights[: n - width] @ x.primal[j : j + n - width], rtol=1e-11, atol=1e-12)


@gpuad.jit
def diffuse(u: Any, v: Any, a: Any) -> None:
    j, i = gpuad.jit.grid(2)
    if i > 0 and i < u.shape[0] - 1 and j > 0 and j < u.shape[1] - 1:
        v[i, j] = u[i, j] + a * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - 4.0 * u[i, j])


@BOTH
@pytest.mark.parametrize("steps", [4, 5])
def test_5_a_python_stencil(executor: str, steps: int) -> None:
    """The factor's shadow is wider than the factor, the halo of the output is an input, `U` after the loop is what was written last."""
    ny, nx = 7, 9
    u, v = pair(np.random.default_rng(5).normal(size=(ny, nx))), pair(np.random.default_rng(6).normal(size=(ny, nx)))
    start = {"u": u.primal.copy(), "v": v.primal.copy(), "a": float(np.float32(0.1))}
    da, tape = np.zeros((), np.float64), gpuad.Tape()
    a = Active(0.1, da)
    now, new = u, v
    with running(executor):
        with tape:
            for _ in range(steps):
                diffuse[(2, 2), (8, 4)](now, new, a)
                now, new = new, now
        seed = now.primal.copy()
        tape.reverse({now: seed})

    def model(s: Any) -> None:
        u, v = s["u"], s["v"]
        for _ in range(steps):
            lap = u[:, :-2, 1:-1] + u[:, 2:, 1:-1] + u[:, 1:-1, :-2] + u[:, 1:-1, 2:] - 4 * u[:, 1:-1, 1:-1]
            v[:, 1:-1, 1:-1] = u[:, 1:-1, 1:-1] + s["a"][:, None, None] * lap
            u, v = v, u

    finals, wanted = jacobian_transposed(model, start, {"u" if now is u else "v": seed})
    np.testing.assert_allclose(now.primal, finals["u" if now is u else "v"], rtol=1e-12)
    for found, name in ((u.shadow, "u"), (v.shadow, "v"), (da, "a")):
        np.testing.assert_allclose(found, wanted[name], rtol=1e-6 if name == "a" else 1e-11, atol=1e-11)


SOFT = r"""
extern "C" __global__ void soft(const double* x, const double* w, double* y, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) y[i] = w[i] * log1p(exp(-fabs(x[i]))) + fmax(x[i], 0.0);
}"""


@BOTH
@pytest.mark.parametrize("spelling", ["numpy", "ops"])
def test_6_a_kernel_in_the_middle_of_array_code(executor: str, spelling: str) -> None:
    """Temporaries, in-place operators, rebinding of a name, a mask; in NumPy's words, which ask the pair, and in those of gpuad.ops."""
    n, rng = 7, np.random.default_rng(6)
    x, w, out = pair(rng.normal(size=n)), pair(rng.normal(size=n)), pair(np.zeros(n))
    words: Any = np if spelling == "numpy" else gpuad.ops
    tape = gpuad.Tape()
    with running(executor):
        with tape:
            y = words.exp(-x) * w
            gpuad.ops.copyto(out, y)
            compiled(SOFT, "soft")[1, 32](out, w, out, n)  # in place
            out *= 0.5
            rebound = out + y
            z = words.where(rebound.primal > 0, rebound, 0)
        tape.reverse({z: 1.0})

    def model(s: Any) -> None:
        y = np.exp(-s["x"]) * s["w"]
        positive = y.real > 0
        softly = s["w"] * np.log1p(np.exp(np.where(positive, -y, y))) + np.where(positive, y, 0)
        s["z"] = 0.5 * softly + y
        s["z"] = np.where(s["z"].real > 0, s["z"], 0)

    finals, wanted = jacobian_transposed(model, {"x": x.primal, "w": w.primal, "z": np.zeros(n)}, {"z": np.ones(n)})
    np.testing.assert_allclose(z.primal, finals["z"], atol=1e-13)
    for found, name in ((x, "x"), (w, "w")):
        np.testing.assert_allclose(found.shadow, wanted[name], atol=1e-12)
    assert "exp" in tape.source and "test_programs.py" in tape.source


@BOTH
def test_6_an_elementwise_kernel_in_the_middle(executor: str) -> None:
    soft = gpuad.ElementwiseKernel("T x, T w", "T y", "y = w * log1p(exp(-fabs(x))) + max(x, (T)0)", "soft")
    n, rng = 7, np.random.default_rng(6)
    x, w, out = pair(rng.normal(size=n)), pair(rng.normal(size=n)), pair(np.zeros(n))
    tape = gpuad.Tape()
    with running(executor):
        with tape:
            gpuad.ops.copyto(out, np.exp(-x) * w)
            soft(out, w, out)  # in place
            out *= 0.5
            made = soft(x, w)  # a temporary
            z = out + made * out
        tape.reverse({z: 1.0})

    def model(s: Any) -> None:
        def softly(v: Any) -> Any:
            positive = v.real > 0
            return s["w"] * np.log1p(np.exp(np.where(positive, -v, v))) + np.where(positive, v, 0)

        out = 0.5 * softly(np.exp(-s["x"]) * s["w"])
        s["z"] = out + softly(s["x"]) * out

    finals, wanted = jacobian_transposed(model, {"x": x.primal, "w": w.primal, "z": np.zeros(n)}, {"z": np.ones(n)})
    np.testing.assert_allclose(z.primal, finals["z"], atol=1e-13)
    for found, name in ((x, "x"), (w, "w")):
        np.testing.assert_allclose(found.shadow, wanted[name], atol=1e-12)


def test_6_what_array_code_may_not_do() -> None:
    x, w, bare = pair([1.0, -2.0]), pair([0.5, 0.5]), np.zeros(2)
    with gpuad.Tape():
        with pytest.raises(ShadowError, match="gets values that depend on"):
            compiled(SOFT, "soft")[1, 32](x, w, bare, 2)
        with pytest.raises(ShadowError, match="has no shadow"):
            gpuad.ops.exp(x, out=bare)
        assert isinstance(x > 0, np.ndarray), "a comparison is a plain array"
        with pytest.raises(ValueError, match="ambiguous"):
            bool(x)
    with pytest.raises(TapeError, match="outside of a tape"):
        x * w


@BOTH
def test_7_scalars_to_be_learned(executor: str) -> None:
    n, steps = 6, 8
    theta, dtheta = np.array([0.04, 0.06]), np.zeros(2)
    u, v, target = pair(np.zeros(n)), pair(np.zeros(n)), np.linspace(0.2, 0.6, n)
    react, tape, losses = compiled(GRAY_SCOTT, "react"), gpuad.Tape(), []

    def model(s: Any) -> None:
        s["u"], s["v"] = s["u"] * 0 + 0.5, s["v"] * 0 + 0.25
        for _ in range(steps):
            a, b = s["u"], s["v"]
            r = a * b * b
            s["u"] = a + 1.5 * (s["f"][:, None] * (1 - a) - r)
            s["v"] = b + 1.5 * (r - (s["f"] + s["kill"])[:, None] * b)

    for _ in range(4):
        dtheta.fill(0)
        f, kill = Active.many(theta, dtheta)
        with running(executor):
            with tape:
                compiled(WAVE, "fill")[1, 32](u, 0.5, n)
                compiled(WAVE, "fill")[1, 32](v, 0.25, n)
                for _step in range(steps):
                    react[1, 32](u, v, f, kill, 1.5, n)
            seed = u.primal - target
            tape.reverse({u: seed})
        inputs = {"u": np.zeros(n), "v": np.zeros(n), "f": float(theta[0]), "kill": float(theta[1])}
        _, wanted = jacobian_transposed(model, inputs, {"u": seed})
        np.testing.assert_allclose(dtheta, [wanted["f"], wanted["kill"]], rtol=1e-11)
        losses.append(float((seed**2).sum()))
        theta = theta - 0.002 * dtheta
    assert losses == sorted(losses, reverse=True), "it learns"


@BOTH
@pytest.mark.parametrize("announced", [True, False])
def test_8_host_copies_between_launches(executor: str, announced: bool) -> None:
    """One buffer for the weights of all chunks, filled by the host before each launch."""
    n, chunks = 8, 3
    weights = np.random.default_rng(0).normal(size=(chunks, n))
    volume, sino, buffer = pair(np.linspace(1, 2, n)), pair(np.zeros((chunks, n))), np.zeros(n)
    project, tape = compiled(PROJECT, "project"), gpuad.Tape(check="exact")

    def record() -> None:
        with tape:
            for c in range(chunks):
                if announced:
                    tape.overwrites(buffer)
                buffer[...] = weights[c]
                project((1,), (32,), (volume, sino[c], Const(buffer), n), stream=None)

    with running(executor):
        if not announced:
            with pytest.raises(ValueError, match="read-only"):  # where the write stands: the tape has locked what it depends on
                record()
            return
        record()
        tape.reverse({sino: sino.primal})
    np.testing.assert_allclose(volume.shadow, 2 * volume.primal * (weights * sino.primal).sum(axis=0))
    assert tape.stats.saved_bytes == (chunks - 1) * 8 * n


@BOTH
def test_9_a_gradient_check_with_a_limit_on_memory(executor: str) -> None:
    rng = np.random.default_rng(0)
    args = tuple(rng.standard_normal((16, 16)) for _ in range(3))
    kernel = compiled(WAVE, "step")
    with running(executor):
        gpuad.testing.check_gradient(kernel[(1, 2), (16, 8)], (*args, 16, 16))
        tape = gpuad.Tape()
        old, now, k = (pair(a) for a in args)
        for _ in range(2):
            with tape:
                for _step in range(5):
                    kernel[(1, 2), (16, 8)](old, now, k, 16, 16)
                    old, now = now, old
            tape.reverse({now: 1.0})
    assert tape.stats.saved_bytes == 4 * 14 * 14 * 8
    assert tape.stats.allocations == 0
    assert tape.stats.scratch_bytes <= 1 << 20


IN_CPP = r"""
// A C++ program that knows the adjoint's text only. Here threads run one after another, so that no GPU is needed.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>
#define __global__
#define __device__
struct Index { int x, y, z; };
static Index blockIdx, threadIdx, blockDim, gridDim;
static long long __double_as_longlong(double v) { long long b; std::memcpy(&b, &v, 8); return b; }
static double __longlong_as_double(long long b) { double v; std::memcpy(&v, &b, 8); return v; }
template <typename T> static T atomicAdd(T* p, T v) { T old = *p; *p += v; return old; }
static unsigned long long atomicExch(unsigned long long* p, unsigned long long v) { unsigned long long old = *p; *p = v; return old; }
#include "wave_adjoint.cu"
int main() {
    const int ny = 6, nx = 9, n = ny * nx;
    std::vector<double> old(n), now(n), k(n), d_old(n, 1.0), d_now(n), d_k(n);
    for (int i = 0; i < n; ++i) { old[i] = 0.1 * i; now[i] = std::sin(i); k[i] = std::cos(i); }
    gridDim = {2, 2, 1}; blockDim = {8, 4, 1};
    for (blockIdx.y = 0; blockIdx.y < 2; ++blockIdx.y) for (blockIdx.x = 0; blockIdx.x < 2; ++blockIdx.x)
        for (threadIdx.y = 0; threadIdx.y < 4; ++threadIdx.y) for (threadIdx.x = 0; threadIdx.x < 8; ++threadIdx.x)
            step_reverse(old.data(), d_old.data(), now.data(), d_now.data(), k.data(), d_k.data(), ny, nx);
    for (auto* a : {&d_old, &d_now, &d_k}) for (double v : *a) std::printf("%.17g\n", v);
}
"""


def test_10_the_adjoint_in_a_cpp_program(tmp_path: Any) -> None:
    adjoint = compiled(WAVE, "step").adjoint(Duplicated, Duplicated, Duplicated, Const, Const)
    (tmp_path / "wave_adjoint.cu").write_text(adjoint.source)
    (tmp_path / "main.cpp").write_text(IN_CPP)
    program = tmp_path / "main"
    subprocess.run([*find_compiler().command, "-std=c++17", str(tmp_path / "main.cpp"), "-o", str(program)], check=True)
    found = np.array(subprocess.run([program], check=True, capture_output=True, text=True).stdout.split(), float).reshape(3, 6, 9)
    i = np.arange(54.0).reshape(6, 9)
    old, now, k = Duplicated(0.1 * i, np.ones_like(i)), pair(np.sin(i)), pair(np.cos(i))
    gpuad.autodiff(compiled(WAVE, "step"), (2, 2), (8, 4), (old, now, k, 6, 9))
    np.testing.assert_allclose(found, [old.shadow, now.shadow, k.shadow], rtol=1e-13, atol=1e-13)


def test_10_the_adjoint_as_a_file(tmp_path: Any) -> None:
    path = tmp_path / "wave.cu"
    path.write_text(WAVE)
    adjoint = gpuad.kernel(path, "step").adjoint(Duplicated, Duplicated, Duplicated, Const, Const)
    assert 'extern "C"' in adjoint.source and "step_reverse" in adjoint.source
    assert "#include" not in adjoint.source, "self-contained"
    assert "now" in str(adjoint.explain())
    (tmp_path / "wave_adjoint.cu").write_text(adjoint.source)
