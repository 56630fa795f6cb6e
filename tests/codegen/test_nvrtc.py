"""The generated CUDA compiles for real architectures, without any include, and what it needs of a multiprocessor is read from the
result."""

from __future__ import annotations

import pytest
from ir_tools import buffer, call, const, index, kernel, op, var
from nightly import share
from random_kernels import RandomKernel

from gpuad.codegen import cuda_source
from gpuad.errors import CompileError
from gpuad.ir.functions import FUNCTIONS
from gpuad.ir.nodes import (
    Accumulate,
    Alloc,
    Atomic,
    Barrier,
    Buffer,
    Call,
    Cast,
    Constant,
    Expr,
    How,
    Kernel,
    Let,
    Load,
    Shuffle,
    Stmt,
    Store,
    Take,
)
from gpuad.ir.types import BOOL, F32, F64, I32, I64, U32, U64, Scalar, Space
from gpuad.runtime import nvrtc
from gpuad.runtime.nvrtc import Resources, compile_cuda, launchable, resources

ARCHITECTURES = ("sm_75", "sm_90", "sm_100")

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC: pip install nvidia-cuda-nvrtc")


def functions() -> Kernel:
    """Every function at every type it has."""
    out, x = buffer("out", F64), {t: var(f"x_{t}", t) for t in (F32, F64, I32, U32, I64, U64)}
    calls: list[Call] = []
    for name, f in FUNCTIONS.items():
        types: tuple[Scalar, ...] = (
            (I32, U32, I64, U64) if f.domain == "int" else (*((F32,) if f.single else ()), *((F64,) if f.double else ()))
        )
        for t in types:
            if name == "abs" and not t.is_signed:
                continue
            result = BOOL if f.domain == "predicate" else I32 if name in ("popc", "clz", "ffs") else t
            arguments: list[Expr] = [x[t]] * f.arity
            if f.whole is not None:
                arguments[f.whole] = x[I32]
            calls.append(Call(name, tuple(arguments), result))
    stores = [Store(out, const(k), Cast(c, F64)) for k, c in enumerate(calls)]
    return kernel("functions", (out, *x.values()), *stores)


def memory() -> Kernel:
    """Every way to reach memory, with the values that no literal has."""
    buffers = {t: buffer(f"b_{t}", t) for t in (F32, F64, I32, U32, I64, U64)}
    i = var("i", I32)
    stmts: list[Stmt] = [Let(i, index())]
    for t, b in buffers.items():
        value = Constant(3, t)
        taken, old = var("taken", t), var("old", t)
        stmts += [
            Accumulate(b, i, value, How.PLAIN),
            Accumulate(b, const(0), value, How.ATOMIC),
            Accumulate(b, const(1), value, How.REDUCED),
        ]
        stmts += [Take(taken, b, const(2), How.ATOMIC), Atomic("cas", old, b, const(3), (value, value)), Store(b, i, op("+", taken, old))]
        stmts += [Atomic(name, None, b, const(4), (value,)) for name in operations(t)]
    stmts += [Store(buffers[F32], const(5), Constant(v, F32)) for v in (float("inf"), float("-inf"), float("nan"))]
    stmts += [Store(buffers[F64], const(5), Constant(v, F64)) for v in (float("inf"), float("-inf"), float("nan"))]
    return kernel("memory", tuple(buffers.values()), *stmts)


def operations(t: Scalar) -> tuple[str, ...]:
    if t.is_float:
        return ("add", "sub", "exch")
    return ("add", "sub", "exch", "min", "max", "and", "or", "xor", *(("inc", "dec") if t == U32 else ()))


def cooperative() -> Kernel:
    """Shared memory, barriers, shuffles, a sum over the block."""
    x, s, i, t, far = buffer("x"), buffer("s"), var("i", I32), var("t"), var("far")
    tile, lane = Buffer("tile", F32, Space.SHARED, 256, 900), Constant(1, I32)
    everyone = Constant(0xFFFFFFFF, U32)
    return kernel(
        "cooperative", (x, s), Let(i, index()), Alloc(tile, zero=True), Load(t, x, i), Store(tile, op("&", i, const(255)), t), Barrier(),
        Shuffle(far, "down", everyone, t, lane, Constant(32, I32)), Barrier("warp", everyone),
        Accumulate(s, const(0), call("gpuad_chain", far, t), How.REDUCED),
    )  # fmt: skip


PRINTED = [(build, arch) for build in (functions, memory, cooperative) for arch in ARCHITECTURES]


@pytest.mark.parametrize(("build", "arch"), share(PRINTED, 8), ids=lambda x: getattr(x, "__name__", x))
def test_everything_that_can_be_printed_compiles(build: object, arch: str) -> None:
    k = build()  # type: ignore[operator]
    cubin = compile_cuda(cuda_source([k]), arch)
    assert set(resources(cubin)) == {k.name}
    assert "error" not in cubin.log


@pytest.mark.one_of(2)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_random_kernels_compile(arch: str) -> None:
    kernels = [RandomKernel(seed).kernel for seed in range(12)]
    cubin = compile_cuda(cuda_source(kernels), arch)
    found = resources(cubin)
    assert set(found) == {k.name for k in kernels}
    assert all(0 < r.registers <= 255 for r in found.values())


def test_a_double_suffers_no_float_arithmetic() -> None:
    """A literal or function without its suffix would compute in the other precision."""
    x, t = buffer("x"), var("t")
    k = kernel("single", (x,), Load(t, x, const(0)), Store(x, const(0), op("*", Constant(0.1, F32), call("sin", t))))
    assert "double" not in cuda_source([k]) and "0.1f * sinf(x[0])" in cuda_source([k])


CODE = """
extern "C" __global__ void __launch_bounds__(128) g(float* x)
{
    __shared__ float s[5000];
    float a[100];
    for (int i = 0; i < 100; ++i) a[i] = x[i * 7];
    s[threadIdx.x] = a[(int)x[3]];
    __syncthreads();
    x[threadIdx.x] = s[127 - threadIdx.x];
}
extern "C" __global__ void h(float* x) { x[threadIdx.x] = 1.0f; }
"""


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_resources(arch: str) -> None:
    found = resources(compile_cuda(CODE, arch))
    assert found["g"].shared_bytes == 20000
    assert found["g"].max_threads == 128
    assert found["g"].local_bytes in (0, 400)
    assert 0 < found["h"].registers < 32
    assert (found["h"].shared_bytes, found["h"].local_bytes, found["h"].max_threads) == (0, 0, 1024)


@pytest.mark.parametrize(
    ("registers", "shared", "most", "threads", "fits"),
    [
        (64, 0, 1024, 1024, True), (65, 0, 1024, 1024, False), (65, 0, 1024, 896, True), (255, 0, 1024, 256, True),
        (255, 0, 1024, 288, False), (32, 48 * 1024, 1024, 32, True), (32, 48 * 1024 + 1, 1024, 32, False), (32, 0, 128, 129, False),
        (32, 0, 1024, 0, False), (32, 0, 1024, 1025, False),
    ],
)  # fmt: skip
def test_launchable(registers: int, shared: int, most: int, threads: int, fits: bool) -> None:
    assert launchable(Resources(registers, shared, 0, most), threads) is fits


def test_limits_of_architectures() -> None:
    needs = Resources(40, 0, 0, 1024)
    assert launchable(needs, 1024, "sm_90") and launchable(needs, 1024, "sm_100a")
    assert not launchable(needs, 1024, "sm_62") and launchable(needs, 512, "sm_62")
    assert launchable(Resources(168, 0, 0, 1024), 32 * 10, "sm_60") and not launchable(Resources(168, 0, 0, 1024), 32 * 13, "sm_60")
    assert not launchable(Resources(256, 0, 0, 1024), 32)


def test_errors_carry_the_compilers_message() -> None:
    with pytest.raises(CompileError, match=r"NVRTC rejects generated code for sm_90[\s\S]*undefined"):
        compile_cuda('extern "C" __global__ void k() { undefined(); }')
    with pytest.raises(CompileError, match="gpu-architecture"):
        compile_cuda("", "sm_20")
    with pytest.raises(CompileError, match="is no cubin"):
        resources(b"nothing of the kind, but long enough for a header of an ELF file, that is 64 bytes")


def test_without_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_library", lambda: None)
    assert not nvrtc.available()
    with pytest.raises(CompileError, match="pip install nvidia-cuda-nvrtc"):
        compile_cuda("")
