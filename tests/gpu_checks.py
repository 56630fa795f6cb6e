"""What has to hold for CuPy arrays. Each check takes the module `cupy`: the real one in test_gpu.py, the stand-in in test_gpu_path.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jit_kernels
import numpy as np
import pytest
from launch_tools import CASES, compiled

import gpuad
from benchmarks.workload import Workload, workload
from gpuad import Active, BatchDuplicated, Duplicated, pipeline
from gpuad.errors import LaunchError, ShadowError, TapeError
from gpuad.ir.dtypes import is_bfloat16
from gpuad.ir.types import Pointer, Struct
from gpuad.tape.facade import recording_of
from gpuad.tools.cases import kernel_folder

GOLDEN = Path(__file__).parent / "golden"
RUN_AS_TEXT = ("saxpy", "heat", "gray_scott", "adam", "histogram", "gemm", "softsplat")
CUBE = """extern "C" __global__ void cube(float* x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * x[i] * x[i];
}
extern "C" __global__ void scale(double* y, const double* x, double a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * sin(x[i]);
}
extern "C" __global__ void settle(double* x, const int* steps, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int k = 0; k < steps[i]; ++k) x[i] = x[i] * x[i] - 0.5;
}
"""


# 32 KB, and as much again for the shadow (V16).
LARGE = """extern "C" __global__ void k(const double* x, double* y) {
    __shared__ double s[4096];
    __shared__ int last;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = threadIdx.x; j < 4096; j += blockDim.x) s[j] = x[i] * j;
    if (threadIdx.x == 3) last = 4095;
    __syncthreads();
    y[i] = s[threadIdx.x] * s[last - threadIdx.x] + s[5 * threadIdx.x];
}"""


def on_host(x: Any) -> Any:
    return x.get() if hasattr(x, "get") else np.asarray(x)


def results(work: Workload) -> dict[str, Any]:
    """All arrays and shadows of a workload, on the host."""
    named = zip((d.name for d in work.kernel.parameters), work.args, strict=True)
    both = {p + name: getattr(arg, key, None) for name, arg in named for p, key in (("", "primal"), ("d", "shadow"))}
    bare = {d.name: arg for d, arg in zip(work.kernel.parameters, work.args, strict=True) if not hasattr(arg, "primal")}
    return {name: on_host(x) for name, x in {**both, **bare}.items() if hasattr(x, "strides") and not isinstance(x, np.generic)}


def close(found: dict[str, Any], expected: dict[str, Any], tolerance: float, start: dict[str, Any] | None = None) -> None:
    """Within a tolerance relative to the norm, of what was there at the `start`, too, where that is given: results may be small differences
    of it."""
    begun = fields(start, expected) if start is not None else {}
    for name, value in fields(expected, expected).items():
        error, *sizes = (
            np.linalg.norm(np.asarray(x, wide(value)).ravel())
            for x in (fields(found, expected)[name].astype(wide(value)) - value, value, begun.get(name, 0.0))
        )
        assert error <= tolerance * max(*sizes, 1e-30), f"{name}: {error:.1e}"


def fields(arrays: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """Arrays with the fields of structs apart, which CuPy holds as bytes."""
    typed = {name: x.view(like[name].dtype) if like[name].dtype.names else x for name, x in arrays.items() if name in like}
    return {f"{n}.{f}" if f else n: x[f] if f else x for n, x in typed.items() for f in x.dtype.names or ("",)}


def wide(value: Any) -> Any:
    """The type in which results are compared."""
    return np.complex128 if value.dtype.kind == "c" else np.float64


def tolerance(work: Workload) -> float:
    """What a kernel's types allow: 1e-5 where it computes with float32, 1e-12 where it does not; a last digit of bfloat16, which a last
    digit of the float before it may turn."""
    dtypes = [x.dtype for x in work.args if hasattr(x, "dtype")]
    if any(is_bfloat16(dtype) for dtype in dtypes):
        return 2.0**-8
    return 1e-5 if any(dtype.names or dtype in (np.float16, np.float32, np.complex64) for dtype in dtypes) else 1e-12


# --- the cases -----------------------------------------------------------------------------------------------------------------------


def seeded(work: Workload, library: Any) -> Workload:
    """The workload with shadows of all sizes: seeds that are alike may cancel, as in a softmax, and rounding would be compared with
    rounding. Those of structs, whose arrays a library may not have, stay as they are."""
    rng = np.random.default_rng(1)
    structs = {d.name for d in work.kernel.parameters if isinstance(d.type, Pointer) and isinstance(d.type.element, Struct)}
    for d, arg in zip(work.kernel.parameters, work.args, strict=True):
        shadow = getattr(arg, "shadow", None)
        if shadow is not None and shadow.ndim and shadow.dtype.kind == "f" and d.name not in structs:
            shadow[...] = library.asarray(rng.uniform(0.5, 1.5, shadow.shape).astype(shadow.dtype))
    return work


def agrees(cupy: Any, name: str, mode: Any = gpuad.Reverse) -> None:
    """Primal and derivative of a case, against the host executor."""
    sides = []
    for library in (cupy, np):
        work = seeded(workload(CASES[name], library), library)
        grid, block, shared_mem = CASES[name].geometry()
        gpuad.autodiff(work.kernel, grid, block, work.args, mode=mode, shared_mem=shared_mem)
        sides.append(results(work))
    close(*sides, tolerance(work))


def split_agrees(cupy: Any, name: str) -> None:
    """The split pair, with the arguments overwritten between its halves."""
    sides = []
    for library in (cupy, np):
        work = seeded(workload(CASES[name], library), library)
        active = {n: type(a) for n, a in zip((d.name for d in work.kernel.parameters), work.args, strict=True) if n in CASES[name].active}
        augmented, reverse = gpuad.autodiff_thunk(work.kernel, **active)
        grid, block, shared_mem = CASES[name].geometry()
        saved = augmented(grid, block, work.args, shared_mem=shared_mem)
        for arg in work.args:
            if isinstance(arg, Duplicated):
                arg.primal.fill(0)
        reverse(grid, block, work.args, saved, shared_mem=shared_mem)
        sides.append({key: x for key, x in results(work).items() if key[1:] in CASES[name].active})
    close(*sides, tolerance(work))


def golden_runs(cupy: Any, name: str) -> None:
    """The text in tests/golden, handed to CuPy as any text, against what gpuad itself runs."""
    case = CASES[name]
    own, plain = workload(case, cupy), workload(case, cupy)
    for work in (own, plain):
        state = work.save()
        work.forward(state)
        if work is own:
            work.reverse(state)
    options = ("-std=c++17", "-fmad=false") if plain.adjoint.exact else ("-std=c++17",)
    module = cupy.RawModule(code=(GOLDEN / f"{name}.cu").read_text(encoding="utf-8"), options=options)
    for stage in plain.stages:
        args = tuple(map(as_cupy, pipeline.stage_arguments(stage, plain.call, state)))
        module.get_function(stage.kernel.name)(stage.grid or plain.call.grid, plain.call.block, args)
    close(results(plain), results(own), tolerance(own))


def as_cupy(argument: Any) -> Any:
    """An executor's argument as CuPy takes it."""
    return argument.root[argument.offset :] if hasattr(argument, "root") else argument


# --- kernels from CuPy ---------------------------------------------------------------------------------------------------------------


def _cubed(cupy: Any, k: Any) -> None:
    x = cupy.asarray(np.linspace(-2, 2, 100, dtype=np.float32))
    before, dx = x.get(), cupy.ones_like(x)
    gpuad.autodiff(k, (1,), (128,), (Duplicated(x, dx), 100))
    np.testing.assert_allclose(x.get(), before**3, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(dx.get(), 3 * before**2, rtol=1e-6, atol=1e-6)


def raw_kernel(cupy: Any) -> None:
    """A RawKernel, as a kernel and straight to `autodiff`."""
    raw = cupy.RawKernel(CUBE, "cube")
    _cubed(cupy, gpuad.kernel(raw))
    _cubed(cupy, raw)


def raw_module(cupy: Any) -> None:
    """A RawModule and a name, and a function that was taken from it."""
    module = cupy.RawModule(code=CUBE)
    _cubed(cupy, gpuad.kernel(module, "cube"))
    _cubed(cupy, gpuad.kernel(module.get_function("cube")))


def template_instance(cupy: Any) -> None:
    """An instance of a template: from a RawModule by its name expression, and as the function that was taken from it."""
    text = (
        CUBE.replace('extern "C"', "template <typename T, int N>")
        .replace("float* x", "T* x")
        .replace("x[i] * x[i] * x[i]", "x[i] * x[i] * x[i] * N / 2")
    )
    assert "T* x" in text
    module = cupy.RawModule(code=text, options=("-std=c++17",), name_expressions=["cube<float, 2>", "cube<double, 7>"])
    _cubed(cupy, gpuad.kernel(module, "cube<float, 2>"))
    _cubed(cupy, gpuad.kernel(module.get_function("cube<float, 2>")))
    plain = cupy.RawModule(code=CUBE.replace('extern "C"', ""), options=("-std=c++17",), name_expressions=["cube"])
    _cubed(cupy, gpuad.kernel(plain.get_function("cube")))
    x, y = (cupy.asarray(np.linspace(-2, 2, 100)) for _ in range(2))
    module.get_function("cube<double, 7>")((1,), (128,), (x, np.int32(100)))
    gpuad.kernel(module, "cube<double, 7>")((1,), (128,), (y, 100))
    np.testing.assert_array_equal(x.get(), y.get())


def own_kernel_runs(cupy: Any) -> None:
    """A user's kernel does the same whether CuPy or gpuad launches it, options and macros included."""
    text = CUBE.replace("x[i] * x[i] * x[i]", "POWER * x[i]")
    raw = cupy.RawKernel(text, "cube", ("-DPOWER=3",))
    x, y = (cupy.asarray(np.linspace(-2, 2, 100, dtype=np.float32)) for _ in range(2))
    raw((1,), (128,), (x, np.int32(100)))
    gpuad.kernel(raw)((1,), (128,), (y, 100))
    np.testing.assert_array_equal(x.get(), y.get())


# --- kernels without a geometry, and in Python ------------------------------------------------------------------------------------------


def elementwise(cupy: Any) -> None:
    """An operation over a broadcast and a strided array; in a tape its result is a pair on the device."""
    k = gpuad.ElementwiseKernel("T x, T y, float64 a", "T z", "z = a * x * x * y * (i + 1)", "weigh")
    x = Duplicated(cupy.asarray(np.linspace(1, 2, 24).reshape(4, 6)))
    y = Duplicated(cupy.asarray(np.linspace(2, 3, 4).reshape(4, 1)))
    tape = gpuad.Tape()
    with tape:
        z = k(x[:, ::2], y, 2.0)
    tape.reverse({z: 1.0})
    count, inner, outer = np.arange(1, 13).reshape(4, 3), x.primal.get()[:, ::2], y.primal.get()
    np.testing.assert_allclose(z.primal.get(), 2 * inner**2 * outer * count)
    np.testing.assert_allclose(x.shadow.get()[:, ::2], 4 * inner * outer * count)
    np.testing.assert_array_equal(x.shadow.get()[:, 1::2], np.zeros((4, 3)))
    np.testing.assert_allclose(y.shadow.get(), (2 * inner**2 * count).sum(1, keepdims=True))


def reduction(cupy: Any) -> None:
    """A sum over an axis, straight to `autodiff`."""
    k = gpuad.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "lengths")
    x, y = Duplicated(cupy.asarray(np.linspace(1, 2, 24).reshape(4, 6))), Duplicated(cupy.zeros(6), cupy.ones(6))
    gpuad.autodiff(k, x, y, axis=0)
    before = x.primal.get()
    np.testing.assert_allclose(y.primal.get(), np.sqrt((before**2).sum(0)))
    np.testing.assert_allclose(x.shadow.get(), before / np.sqrt((before**2).sum(0)))


def python_function(cupy: Any) -> None:
    """A function in the language of cupyx.jit, on views."""
    whole = Duplicated(cupy.asarray(np.linspace(1, 2, 35).reshape(7, 5)))
    x, y = whole[1:6, ::2].T, Duplicated(cupy.zeros((3, 5)), cupy.ones((3, 5)))
    gpuad.autodiff(jit_kernels.image, 1, (8, 8), (x, y))
    before = whole.primal.get()[1:6, ::2]
    np.testing.assert_allclose(y.primal.get(), (before**2 + np.sin(before)).T)
    np.testing.assert_allclose(whole.shadow.get()[1:6, ::2], 2 * before + np.cos(before))


# --- memory --------------------------------------------------------------------------------------------------------------------------


def view(cupy: Any) -> None:
    """A view that begins inside its allocation, its shadow likewise; what lies around both stays."""
    x = cupy.asarray(np.linspace(-2, 2, 100, dtype=np.float32))
    before, pair = x.get(), Duplicated(x, cupy.ones_like(x))
    gpuad.autodiff(compiled(CUBE, "cube"), 1, 128, (pair[10:60], 50))
    inside = slice(10, 60)
    np.testing.assert_allclose(x.get()[inside], before[inside] ** 3, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(pair.shadow.get()[inside], 3 * before[inside] ** 2, rtol=1e-6, atol=1e-6)
    outside = np.r_[0:10, 60:100]
    np.testing.assert_array_equal(x.get()[outside], before[outside])
    np.testing.assert_array_equal(pair.shadow.get()[outside], np.ones(50))


def halves_of_one_array(cupy: Any) -> None:
    """Input and output are two halves of one array, and their shadows of another."""
    z = cupy.asarray(np.linspace(0, 1, 128))
    both = Duplicated(z, cupy.ones_like(z))
    x = z.get()[:64]
    da = cupy.zeros(())
    gpuad.autodiff(compiled(CUBE, "scale"), 1, 64, (both[64:], both[:64], Active(2.0, da), 64))
    np.testing.assert_allclose(z.get()[64:], 2 * np.sin(x), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(both.shadow.get(), np.r_[1 + 2 * np.cos(x), np.zeros(64)], rtol=1e-12)
    np.testing.assert_allclose(float(da), np.sin(x).sum(), rtol=1e-12)


def made_shadow(cupy: Any) -> None:
    """A shadow that gpuad makes lives on the device."""
    pair = Duplicated(cupy.ones(10, dtype=np.float32))
    assert type(pair.shadow) is type(pair.primal)
    np.testing.assert_array_equal(pair.shadow.get(), np.zeros(10))


def batch(cupy: Any) -> None:
    """Two seeds at once."""
    x = cupy.asarray(np.linspace(-2, 2, 100, dtype=np.float32))
    before, first, second = x.get(), cupy.ones_like(x), cupy.zeros_like(x)
    second.fill(3)
    gpuad.autodiff(compiled(CUBE, "cube"), 1, 128, (BatchDuplicated(x, (first, second)), 100))
    np.testing.assert_allclose(first.get(), 3 * before**2, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(second.get(), 9 * before**2, rtol=1e-6, atol=1e-6)


def refused(cupy: Any) -> None:
    """What would read another memory than its user thinks is refused, and nothing is launched."""
    x, k = cupy.ones(10, dtype=np.float32), compiled(CUBE, "cube")
    with pytest.raises(LaunchError, match="one device"):
        gpuad.autodiff(k, 1, 32, (Duplicated(x, np.ones(10, np.float32)), 10))
    with pytest.raises(LaunchError, match="float"):
        k(1, 32, (cupy.ones(10, dtype=np.float64), 10))
    with pytest.raises(LaunchError, match="strides"):
        k(1, 32, (cupy.ones(20, dtype=np.float32)[::2], 10))
    with pytest.raises(ShadowError, match="shadow"):
        gpuad.autodiff(k, 1, 32, (Duplicated(x, x), 10))
    with pytest.raises(LaunchError, match="1024"):
        k(1, 2048, (x, 10))
    np.testing.assert_array_equal(x.get(), np.ones(10))


# --- streams -------------------------------------------------------------------------------------------------------------------------


def settled(before: Any, steps: Any) -> tuple[Any, Any]:
    """What `settle` makes of an array, and the derivative."""
    x, slope = before.copy(), np.ones_like(before)
    for k in range(int(steps.max())):
        going = k < steps
        slope = np.where(going, 2 * x * slope, slope)
        x = np.where(going, x * x - 0.5, x)
    return x, slope


def on_stream(cupy: Any, way: str) -> None:
    """A derivative that copies, records on stacks and reads a flag back, on a stream that is not the default one: as the current stream
    (`with`) or by keyword."""
    count = 50_000
    before, steps = np.linspace(0.1, 0.9, count), np.arange(count, dtype=np.int32) % 7
    stream = cupy.cuda.Stream(non_blocking=True)
    x, dx, amounts = cupy.asarray(before), cupy.ones(count), cupy.asarray(steps)
    cupy.cuda.Device().synchronize()
    call = (compiled(CUBE, "settle"), -(-count // 128), 128, (Duplicated(x, dx), amounts, count))
    if way == "current":
        with stream:
            gpuad.autodiff(*call)
    else:
        gpuad.autodiff(*call, stream=stream)
    stream.synchronize()
    value, slope = settled(before, steps)
    np.testing.assert_allclose(x.get(), value, rtol=1e-12)
    np.testing.assert_allclose(dx.get(), slope, rtol=1e-11, atol=1e-300)


def split_on_stream(cupy: Any) -> None:
    """The same for the split pair."""
    count = 50_000
    before, steps = np.linspace(0.1, 0.9, count), np.arange(count, dtype=np.int32) % 7
    stream = cupy.cuda.Stream(non_blocking=True)
    x, dx, amounts = cupy.asarray(before), cupy.ones(count), cupy.asarray(steps)
    cupy.cuda.Device().synchronize()
    augmented, reverse = gpuad.autodiff_thunk(compiled(CUBE, "settle"), x=Duplicated)
    launch: tuple[Any, ...] = (-(-count // 128), 128, (Duplicated(x, dx), amounts, count))
    saved = augmented(*launch, stream=stream)
    reverse(*launch, saved, stream=stream)
    stream.synchronize()
    np.testing.assert_allclose(dx.get(), settled(before, steps)[1], rtol=1e-11, atol=1e-300)


PIPELINE = """extern "C" __global__ void project(const double* volume, double* sino, const double* weights, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sino[i] = sino[i] * sino[i] + weights[i] * volume[i] * volume[i];
}
"""


def tape_on_streams(cupy: Any) -> None:
    """A pipeline over three streams, with buffers that are filled between the launches; the reverse on the stream that is current then."""
    n, chunks = 700, 7
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    main = cupy.cuda.get_current_stream()
    v = np.linspace(0.1, 1, n)
    volume, project, tape = Duplicated(cupy.asarray(v)), compiled(PIPELINE, "project"), gpuad.Tape()
    sinos, weights = [Duplicated(cupy.zeros(n)) for _ in streams], [cupy.zeros(n) for _ in streams]
    shadows = [volume.shadow, *(s.shadow for s in sinos)]
    for way in ("current", "keyword"):
        for array in (*shadows, *(s.primal for s in sinos)):
            array.fill(0)
        for stream in streams:
            stream.wait_event(main.record())  # the user's arrays are the user's to order
        with tape:
            for c in range(chunks):
                k = c % 3
                with streams[k]:
                    tape.overwrites(weights[k])
                    weights[k].fill(0.1 * (c + 1))
                if way == "keyword":
                    project(-(-n // 128), 128, (volume, sinos[k], weights[k], n), stream=streams[k])
                else:
                    with streams[k]:
                        project(-(-n // 128), 128, (volume, sinos[k], weights[k], n))
        tape.reverse(dict.fromkeys(sinos, 1.0))
        values, slopes = [np.zeros(n) for _ in streams], [np.zeros(n) for _ in streams]
        for c in range(chunks):
            w, k = 0.1 * (c + 1), c % 3
            slopes[k] = 2 * values[k] * slopes[k] + 2 * w * v
            values[k] = values[k] ** 2 + w * v**2
        np.testing.assert_allclose(volume.shadow.get(), sum(slopes), rtol=1e-12)
        assert way == "current" or tape.stats.allocations == 0


RELAX = """extern "C" __global__ void relax(const double* f, double* g, double rate, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double m = 0;
    for (int k = 0; k < 5; ++k) m += 0.2 * f[k * n + i];
    for (int k = 0; k < 5; ++k) g[k * n + i] = f[k * n + i] + rate * (m * m * m - f[k * n + i]);
}
"""


def values_kept_on_streams(cupy: Any) -> None:
    """A ping-pong whose launches write the values that are kept, from the second recording on, on two streams that take turns; a seed that
    is read where it is; and the same as a graph."""
    n, steps, tape, relax = 300, 4, gpuad.Tape(), compiled(RELAX, "relax")
    u, v, seed = Duplicated(cupy.zeros((5, n)), cupy.zeros((5, n))), Duplicated(cupy.zeros((5, n)), cupy.zeros((5, n))), cupy.zeros((5, n))
    streams, main = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)], cupy.cuda.get_current_stream()
    rng = np.random.default_rng(0)

    def start() -> tuple[Any, Any]:
        begin, end = rng.uniform(0.1, 0.9, (5, n)), rng.standard_normal((5, n))
        for array, values in ((u.primal, begin), (v.primal, 0 * begin), (seed, end), (u.shadow, 7 + 0 * begin), (v.shadow, 7 + 0 * begin)):
            array[...] = cupy.asarray(values)
        return begin, end

    def check(f: Any, d: Any) -> None:
        means, rates = [], [0.1 * (k + 1) for k in range(steps)]
        for rate in rates:
            means.append(f.mean(0))
            f = f + rate * (means[-1] ** 3 - f)
        for rate, m in zip(reversed(rates), reversed(means), strict=True):
            d = (1 - rate) * d + rate * 3 * m**2 * d.sum(0) / 5
        np.testing.assert_allclose(u.primal.get(), f, rtol=1e-12)
        np.testing.assert_allclose(u.shadow.get(), d, rtol=1e-11, atol=1e-13)
        assert not v.shadow.get().any()

    for _ in range(4):
        given = start()
        with tape:
            a, b, before = u, v, main
            for k in range(steps):
                streams[k % 2].wait_event(before.record())  # the user's arrays are the user's to order
                before = streams[k % 2]
                relax(-(-n // 128), 128, (a, b, 0.1 * (k + 1), n), stream=before)
                a, b = b, a
        tape.reverse({u: seed})
        check(*given)
    assert any(p.placed for p in recording_of(tape).reversals.plans.values())
    assert [step.actions[-1].kernel.name for step in recording_of(tape).trace.ops] == ["relax_keep"] * 3 + ["relax"]
    run = tape.graph({u: seed})
    for _ in range(2):
        given = start()
        run.launch()
        check(*given)


def _doubled_reverse(dx: Any, dx_before: Any) -> None:
    dx_before[...] = dx_before + dx + dx


@gpuad.rule(reads=("x",), overwrites=("x",), reverse=_doubled_reverse)
def doubled(x: Any, room: Any = None) -> None:
    """x = 2 x, by way of memory of the tape."""
    copy = room(x.shape, x.dtype)
    copy[...] = x
    x[...] = copy + copy


def tape_memory_on_streams(cupy: Any) -> None:
    """The tape's own memory passes from stream to stream: what one recording saved is not overwritten by the next before it was read."""
    tape, n = gpuad.Tape(), 1000
    for begin in (0.5, 0.6):
        streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
        pairs = []
        for stream in streams:
            with stream:
                pairs.append(Duplicated(cupy.asarray(np.full(n, begin)), cupy.zeros(n)))
        with tape:
            for _ in range(3):
                for stream, x in zip(streams, pairs, strict=True):
                    compiled(CUBE, "settle")(-(-n // 128), 128, (x, stepped(cupy, stream, n), n), stream=stream)
                    with stream:
                        doubled(x)
                        x[::2] += x[1::2]
        tape.reverse(dict.fromkeys(pairs, 1.0))
        one, dense = begin, np.eye(2)
        value = np.full(2, one)
        for _ in range(3):
            for _ in range(2):
                dense, value = 2 * value[:, None] * dense, value * value - 0.5
            mix = 2 * np.array([[1.0, 1.0], [0.0, 1.0]])
            dense, value = mix @ dense, mix @ value
        for x in pairs:
            np.testing.assert_allclose(x.shadow.get().reshape(-1, 2), np.broadcast_to(dense.sum(axis=0), (n // 2, 2)), rtol=1e-11)


def temporaries(cupy: Any) -> None:
    """Shadows of temporaries that a rule meets while they are shared: all of what CuPy allocates, which is more than was asked for."""
    n, tape = 100, gpuad.Tape()
    given = np.linspace(1, 2, n)
    x, y = (Duplicated(cupy.asarray(given), cupy.zeros(n)) for _ in range(2))
    with tape:
        a, b = x * x, y * 3.0
        doubled(a)
        c = a + b
        d = c * c
    tape.reverse({d: 1.0})
    total = 2 * given**2 + 3 * given
    np.testing.assert_allclose(x.shadow.get(), 2 * total * 4 * given, rtol=1e-12)
    np.testing.assert_allclose(y.shadow.get(), 2 * total * 3, rtol=1e-12)


def stepped(cupy: Any, stream: Any, n: int) -> Any:
    """An array of twos, made on a stream."""
    with stream:
        return cupy.asarray(np.full(n, 2, np.int32))


def graph(cupy: Any) -> None:
    """A program with saved states, array operations and a seed that changes, as a CUDA graph, launched on several streams."""
    n, tape = 300, gpuad.Tape()
    project, scale = compiled(PIPELINE, "project"), compiled(CUBE, "scale")
    x, y = (Duplicated(cupy.zeros(n), cupy.zeros(n)) for _ in range(2))
    weights, seed = cupy.asarray(np.linspace(0.5, 1, n)), cupy.zeros(n)
    main, side = cupy.cuda.get_current_stream(), cupy.cuda.Stream(non_blocking=True)

    def start(run: int) -> None:
        x.primal[...], y.primal[...], x.shadow[...] = 0.1 * (run + 1), 0.2 * run, 0
        seed[...] = 1.0 + run

    def record() -> None:
        with tape:
            for _ in range(3):
                project(-(-n // 128), 128, (x, y, weights, n))
                scale(-(-n // 128), 128, (x, y, 0.5, n))
                y[::2] += x[1::2]

    expected = []
    for run in range(3):
        start(run)
        side.wait_event(main.record())
        with side:
            record()
            tape.reverse({y: seed, x: 1.0})
        main.wait_event(side.record())
        expected.append([a.get() for a in (x.primal, y.primal, x.shadow, y.shadow)])
    made = tape.graph({y: seed, x: 1.0})
    for run, stream in ((1, main), (0, side), (2, main)):
        start(run)
        stream.wait_event(main.record()) if stream is not main else None
        with stream:
            made.launch()
        main.wait_event(stream.record()) if stream is not main else None
        for a, b in zip(expected[run], (x.primal, y.primal, x.shadow, y.shadow), strict=True):
            np.testing.assert_allclose(b.get(), a, rtol=1e-12)
    start(2)
    made.forward()
    np.testing.assert_allclose(y.primal.get(), expected[2][1], rtol=1e-12)
    made.reverse()
    np.testing.assert_allclose(x.shadow.get(), expected[2][2], rtol=1e-12)
    start(1)
    record()
    tape.reverse({y: seed, x: 1.0})
    np.testing.assert_allclose(x.shadow.get(), expected[1][2], rtol=1e-12)


def graph_of_states(cupy: Any) -> None:
    """Fisher-KPP from field to field: the reverse assigns in a box of threads, and the graph writes states to where they are kept."""
    side, steps = 96, 6
    step = gpuad.kernel(kernel_folder() / "fisher_kpp.cu", "fisher_kpp")
    zeros = lambda: cupy.zeros((side, side), np.float32)  # noqa: E731
    u, v, start = (Duplicated(zeros(), zeros()) for _ in range(3))
    tape = gpuad.Tape()

    def record() -> Any:
        a, b = u, v
        with tape:
            gpuad.ops.copyto(a, start)
            gpuad.ops.copyto(b, start)
            for _ in range(steps):
                step[(3, 12), (32, 8)](b, a, 0.2, 0.1, side)
                a, b = b, a
        return a

    expected = []
    for run in range(2):
        start.primal[...], start.shadow[...] = cupy.asarray(np.random.default_rng(run).uniform(size=(side, side)).astype(np.float32)), 0
        last = record()
        u.shadow[...] = v.shadow[...] = np.nan  # of which nothing counts
        tape.reverse({last: 1.0})
        expected.append([a.get() for a in (u.primal, v.primal, u.shadow, v.shadow, start.shadow)])
    made = tape.graph({last: 1.0})
    for run in (0, 1):
        start.primal[...], start.shadow[...] = cupy.asarray(np.random.default_rng(run).uniform(size=(side, side)).astype(np.float32)), 0
        made.launch()
        for a, b in zip(expected[run], (u.primal, v.primal, u.shadow, v.shadow, start.shadow), strict=True):
            np.testing.assert_allclose(b.get(), a, rtol=1e-5, atol=1e-6)


def graph_of_wrapped_stores(cupy: Any) -> None:
    """Lattice Boltzmann: that no two threads store to one element is asked of the launch once, for its numbers, and not by the graph."""
    side, steps = 16, 3
    step = gpuad.kernel(kernel_folder() / "lattice_boltzmann.cu", "lattice_boltzmann")
    f, g = (Duplicated(cupy.zeros((9, side, side), np.float32), cupy.zeros((9, side, side), np.float32)) for _ in range(2))
    given = np.random.default_rng(0).uniform(0.9, 1.1, (9, side, side)).astype(np.float32)
    tape, expected, made = gpuad.Tape(), [], None
    for run in range(2):
        f.primal[...], f.shadow[...] = cupy.asarray(given), 0
        if made is not None:
            made.launch()
        else:
            a, b = f, g
            with tape:
                for _ in range(steps):
                    step[(1, side), (32,)](a, b, 1.2, side, side)
                    a, b = b, a
            tape.reverse({a: 1.0})
            made = tape.graph({a: 1.0})
        expected.append([x.get() for x in (f.primal, g.primal, f.shadow, g.shadow)])
        assert run or np.abs(expected[0][2]).max() > 0
    for a, b in zip(*expected, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


def _waiting_reverse(dx: Any, dx_before: Any) -> None:
    dx_before[...] = dx_before + dx


def graph_refusals(cupy: Any) -> None:
    """What cannot be captured is refused with the operation's name and place, and the tape and the device go on."""
    n = 300
    x, y = (Duplicated(cupy.asarray(np.full(n, 0.5)), cupy.zeros(n)) for _ in range(2))
    steps, index, tape = cupy.asarray(np.full(n, 2, np.int32)), cupy.arange(n, dtype=np.int32), gpuad.Tape()
    put = compiled(PUT, "put")
    programs = (
        (lambda: doubled(x), r"operation doubled \(gpu_checks.py:\d+\).*it is a rule"),
        (lambda: compiled(CUBE, "settle")(3, 128, (x, steps, n)), r"operation settle \(gpu_checks.py:\d+\).*stacks whose depth is counted"),
        (lambda: put(3, 128, (y, x, index, n)), r"operation put \(gpu_checks.py:\d+\).*two threads write to one element"),
    )
    for program, message in programs:
        with tape:
            program()
        with pytest.raises(TapeError, match=message):
            tape.graph({x: 1.0})
        tape.reverse({x: 1.0})
    scale = compiled(CUBE, "scale")
    with tape:
        scale(3, 128, (y, x, 0.5, n))
    with pytest.raises(TapeError, match="CuPy array or a number"):
        tape.graph({y: np.ones(n)})
    x.shadow.fill(0)
    made = tape.graph({y: 1.0})
    made.launch()
    np.testing.assert_allclose(x.shadow.get(), 0.5 * np.cos(x.primal.get()), rtol=1e-12)


def graph_of_what_allocates(cupy: Any) -> None:
    """An operation that makes an array, or waits, while it is captured."""
    n, tape = 300, gpuad.Tape()
    x = Duplicated(cupy.asarray(np.full(n, 0.5)), cupy.zeros(n))
    for rule, message in ((copies, "makes an array"), (waits, "")):
        rule.function.__module__ = "gpuad.ops.made_for_this_test"  # an operation of the package is tried
        with tape:
            rule(x)
        with pytest.raises(TapeError, match=rf"operation {rule.name} \(gpu_checks.py:\d+\) cannot be captured in a graph.*{message}"):
            tape.graph({x: 1.0})
        tape.reverse({x: 1.0})
        np.testing.assert_allclose(x.shadow.get(), 1.0)


@gpuad.rule(reads=("x",), overwrites=("x",), reverse=_waiting_reverse)
def copies(x: Any) -> None:
    """x = x, by way of a new array."""
    x[...] = x.copy()


@gpuad.rule(reads=("x",), overwrites=("x",), reverse=_waiting_reverse)
def waits(x: Any) -> None:
    """x = x, after a look at it."""
    x[...] = float(x[:1].get()[0])


PUT = """extern "C" __global__ void put(double* y, const double* x, const int* index, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[index[i]] = x[i] * x[i];
}
"""


def large_shared(cupy: Any) -> None:
    """A kernel whose reverse needs more shared memory than may be declared."""
    r = np.random.default_rng(0)
    x, dy = r.uniform(0.5, 1, 64), r.normal(size=64)
    dx, t = np.zeros(64), np.arange(32)
    for block in (slice(0, 32), slice(32, 64)):  # s[j] = j x[j % 32], of which three elements go into each y
        a, b, c = t, 4095 - t, 5 * t
        for one, other in ((a, b), (b, a)):
            np.add.at(dx[block], one % 32, dy[block] * one * other * x[block][other % 32])
        np.add.at(dx[block], c % 32, dy[block] * c)
    given, shadow = cupy.asarray(x), cupy.asarray(np.zeros(64))
    gpuad.autodiff(compiled(LARGE, "k"), 2, 32, (Duplicated(given, shadow), Duplicated(cupy.zeros(64), cupy.asarray(dy))))
    np.testing.assert_allclose(shadow.get(), dx, rtol=1e-11, atol=1e-11 * np.abs(dx).max())


_FACTORED = """extern "C" __global__ void factored(double* a, int n) {
    a += blockIdx.x * n * n;
    for (int k = 0; k < n; k++) {
        for (int i = k + 1 + threadIdx.x; i < n; i += blockDim.x) a[i * n + k] /= a[k * n + k];
        __syncthreads();
        int r = n - k - 1;
        for (int e = threadIdx.x; e < r * r; e += blockDim.x)
            a[(k + 1 + e / r) * n + k + 1 + e % r] -= a[(k + 1 + e / r) * n + k] * a[k * n + k + 1 + e % r];
        __syncthreads();
    }
}"""


def turns(cupy: Any) -> None:
    """Threads that write elements in turns, against the host executor; and those that do so without a barrier, or in two blocks."""
    rng = np.random.default_rng(3)
    n, blocks = 6, 3
    start = (rng.normal(size=(blocks, n, n)) + 4 * np.eye(n)).ravel()
    seed = rng.normal(size=start.size)
    sides = []
    for library in (cupy, np):
        a, da = library.asarray(start.copy()), library.asarray(seed.copy())
        for _ in range(2):
            a[...], da[...] = library.asarray(start), library.asarray(seed)
            gpuad.autodiff(gpuad.kernel(_FACTORED, "factored"), blocks, 8, (Duplicated(a, da), n))
        sides.append({"a": on_host(a), "da": on_host(da)})
    close(*sides, 1e-12)
    a = cupy.asarray(start)
    together, everywhere = _FACTORED.replace("__syncthreads();", "", 1), _FACTORED.replace("a +=", "int b =")
    for text, words in ((together, r"with no __syncthreads\(\)"), (everywhere, "orders the blocks")):
        with pytest.raises(LaunchError, match=words):
            gpuad.autodiff(gpuad.kernel(text, "factored"), blocks, 8, (Duplicated(a, cupy.ones(start.size)), n))
    np.testing.assert_array_equal(on_host(a), start)


CHECKS: tuple[Callable[[Any], None], ...] = (
    raw_kernel, raw_module, template_instance, own_kernel_runs, view, halves_of_one_array, made_shadow, batch, refused, split_on_stream,
    tape_on_streams, tape_memory_on_streams, values_kept_on_streams, graph, graph_of_states, graph_refusals, graph_of_what_allocates,
    elementwise, reduction, python_function, large_shared, temporaries, graph_of_wrapped_stores, turns,
)  # fmt: skip
SPLIT = ("softmax", "adam", "horner", "relu_bias", "kepler-orbit", "insertion_sort", "masked_update", "gray_scott")
