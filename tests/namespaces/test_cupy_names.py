"""`import gpuad.cupy as cp` on the stand-in for CuPy: its functions do not ask their arguments, so each is guarded; kernels are gpuad's
where a gradient is wanted, and CuPy's own where not."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tape_tools import nothing_is_analysed

import gpuad
from gpuad import Duplicated, GpuadError, Tape
from gpuad.ops.plain_results import bare

SCALE = 'extern "C" __global__ void scale(double* y, const double* x, int n) { int i = threadIdx.x; if (i < n) y[i] = 3.0 * x[i] * x[i]; }'
BROKEN = 'extern "C" __global__ void broken(double* y) { asm("nop;"); y[0] = 1.0; }'
PROGRAM = """
import cupy as cp
square = cp.RawKernel(SCALE, "scale")

def scaled(x):
    y = cp.zeros(x.shape)
    square((1,), (32,), (y, x, x.size))
    return y

def loss(x, weights):
    xp = cp.get_array_module(x)
    y = scaled(x)
    y[1:3] += x[:2]
    return cp.sum(xp.sin(y) * weights) + cp.diff(cp.ascontiguousarray(x[::-1]))[0]
"""


@pytest.fixture
def cp(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`gpuad.cupy` over the stand-in."""
    for name in [n for n in sys.modules if n.startswith("gpuad.cupy")]:
        monkeypatch.delitem(sys.modules, name)
    yield importlib.import_module("gpuad.cupy")
    for name in [n for n in sys.modules if n.startswith("gpuad.cupy")]:
        del sys.modules[name]
    vars(gpuad).pop("cupy", None)


def closed(x: Any, w: Any) -> Any:
    """The gradient of the program."""
    y = 3 * x * x
    y[1:3] += x[:2]
    g = np.cos(y) * w
    found = 6 * x * g
    found[:2] += g[1:3]
    found[-2] += 1
    found[-1] -= 1
    return found


def test_one_changed_line(cp: Any, cupy: Any) -> None:
    text = PROGRAM.replace("import cupy as cp", "import gpuad.cupy as cp")
    module: Any = types.ModuleType("program")
    vars(module)["SCALE"] = SCALE
    exec(text, vars(module))
    x, w = np.linspace(0.1, 0.9, 5), np.arange(5.0)
    plain = module.loss(cupy.asarray(x), cupy.asarray(w))
    assert type(plain) is cupy.ndarray
    tape = Tape()
    for _ in range(2):
        pair = Duplicated(cupy.asarray(x))
        with tape:
            value = module.loss(pair, cupy.asarray(w))
        assert float(value.primal) == pytest.approx(float(plain), rel=1e-13)
        tape.reverse({value: 1.0})
        np.testing.assert_allclose(pair.shadow.get(), closed(x, w))


def test_no_changed_line(cp: Any, cupy: Any) -> None:
    module: Any = types.ModuleType("program_of_a_user")
    module.__file__ = "program_of_a_user.py"
    vars(module)["SCALE"] = SCALE
    exec(PROGRAM, vars(module))
    x, w = np.linspace(0.1, 0.9, 5), np.arange(5.0)
    function = gpuad.value_and_grad(module.loss, 0)
    for _ in range(2):
        _, gradient = function(cupy.asarray(x), cupy.asarray(w))
        np.testing.assert_allclose(gradient.get(), closed(x, w))
    assert module.cp is cupy and type(module.square) is cupy.RawKernel


@pytest.mark.parametrize("form", ["x", "x, x", "[x, x]", "x, 0"])
def test_every_public_name_is_recorded_plain_or_refused(cp: Any, cupy: Any, form: str) -> None:
    for name in sorted(n for n in dir(cupy) if not n.startswith("_")):
        theirs, ours = getattr(cupy, name), getattr(cp, name)
        if isinstance(theirs, type) or not callable(theirs) or name in ("RawKernel", "RawModule", "fuse", "get_default_memory_pool"):
            continue
        x = Duplicated(cupy.asarray(np.linspace(0.1, 0.9, 9).reshape(3, 3)))
        given = {"x": (x,), "x, x": (x, x), "[x, x]": ([x, x],), "x, 0": (x, 0)}[form]
        try:
            theirs(*bare(given))
        except Exception:  # no call of that function
            continue
        try:
            with Tape():
                found = ours(*given)
        except GpuadError:
            continue
        parts = found if isinstance(found, tuple) else (found,)
        assert all(isinstance(part, cupy.ndarray | bool | int | np.ndarray | types.ModuleType | Duplicated) for part in parts), name


def test_what_there_is_not(cp: Any) -> None:
    with pytest.raises(GpuadError, match=r"near it are.*zeros"):
        _ = cp.zeross
    with Tape(), pytest.raises(GpuadError, match="of a pair is not recorded"):
        cp.asnumpy(Duplicated(cp.asarray(np.ones(3))))


def test_a_kernel_that_gpuad_cannot_read_runs_where_no_gradient_is_wanted(cp: Any, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[Any] = []
    monkeypatch.setattr(cupy.RawKernel, "__call__", lambda self, grid, block, args: launched.append(args))
    kernel = cp.RawKernel(BROKEN, "broken")
    assert isinstance(kernel.code, str) and not isinstance(kernel, cupy.RawKernel)
    y = cupy.zeros(1)
    kernel((1,), (1,), (y,))
    assert launched == [(y,)]
    with Tape(), pytest.raises(GpuadError, match="asm"):
        kernel((1,), (1,), (Duplicated(y),))


def test_modules_and_arrays(cp: Any, cupy: Any) -> None:
    module = cp.RawModule(code=SCALE)
    x, tape = Duplicated(cupy.asarray(np.arange(4.0))), Tape()
    with tape:
        y = cp.empty_like(x)
        module.get_function("scale")((1,), (32,), (y, x, 4))
        assert cp.get_array_module(x) is cp and isinstance(y, cp.ndarray) and cp.get_array_module(np.ones(2)) is gpuad.numpy
        z = cp.fuse(lambda a, b: a * b + a)(x, y)
    tape.reverse({z: 1.0})
    np.testing.assert_allclose(x.shadow.get(), 9 * np.arange(4.0) ** 2 + 1)
    assert cp.float64 == np.float64 and cp.cuda is cupy.cuda and type(cp.zeros(3)) is cupy.ndarray


def test_kernels_that_were_made_before_are_the_same_in_each_round(cp: Any, cupy: Any) -> None:
    """By `trace`: raw, elementwise, reducing and fused ones; CuPy's own calls get no pairs."""
    module: Any = types.ModuleType("program_with_kernels")
    module.__file__ = "program_with_kernels.py"
    vars(module).update(
        raw=cupy.RawKernel(SCALE, "scale"), cupy=cupy, single=cupy.RawModule(code=SCALE),
        mapped=cupy.ElementwiseKernel("T x, T a", "T y", "y = a * x * x", "mapped"),
        total=cupy.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total"), fused=cupy.fuse(lambda a, b: a * b + a),
    )  # fmt: skip
    exec(
        "def loss(x):\n    y = cupy.zeros(4)\n    raw((1,), (32,), (y, x, 4))\n    z = cupy.zeros(4)\n"
        "    single.get_function('scale')((1,), (32,), (z, x, 4))\n    return total(fused(mapped(x, 2.0), y)) + total(z, axis=0)",
        vars(module),
    )
    x, made = np.arange(1.0, 5.0), []
    function = gpuad.value_and_grad(module.loss)
    for number in range(4):
        with nothing_is_analysed() if number > 1 else contextlib.nullcontext():
            value, gradient = function(cupy.asarray(x))
        made.append(value)
        np.testing.assert_allclose(gradient.get(), 24 * x**3 + 4 * x + 6 * x)
    assert set(made) == {float((6 * x**4 + 2 * x**2 + 3 * x**2).sum())} == {float(module.loss(cupy.asarray(x)))}


def test_an_error_of_what_makes_a_kernel_is_its_own(cp: Any, cupy: Any) -> None:
    kernel = cp.ElementwiseKernel("T x", "T y", "y = x", "k")
    kernel._theirs.in_params = None
    with Tape(), pytest.raises(TypeError, match="NoneType"):
        kernel(Duplicated(cupy.zeros(2)))


class Ufunc:
    """A ufunc as CuPy has it: an object with methods, which knows no pairs."""

    nin, nout, name = 2, 1, "cupy_add"

    def __init__(self, library: Any, ufunc: Any) -> None:
        self.library, self.ufunc, self.__name__ = library, ufunc, ufunc.__name__

    def __call__(self, x: Any, y: Any) -> Any:
        return self.library.asarray(self.ufunc(x.get(), y.get()))

    def at(self, x: Any, places: Any, values: Any) -> None:
        whole = x.get()
        self.ufunc.at(whole, places.get() if hasattr(places, "get") else places, values.get())
        x.set(whole)

    def reduce(self, x: Any, axis: int = 0) -> Any:
        return self.library.asarray(self.ufunc.reduce(x.get(), axis=axis))


def test_methods_of_ufuncs(cp: Any, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of tapes they are CuPy's; of pairs they are recorded, or refused in words."""
    for name in ("add", "maximum"):
        monkeypatch.setattr(cupy, name, Ufunc(cupy, getattr(np, name)))
    plain, values = cupy.asarray(np.zeros(3)), np.array([1.0, 2.0, 3.0])
    cp.add.at(plain, [0, 2, 0], cupy.asarray(values))
    np.testing.assert_array_equal(plain.get(), [4, 0, 2])
    assert float(cp.maximum.reduce(plain)) == 4 and cp.add.nin == 2 and cp.add.name == "cupy_add"
    x, tape = Duplicated(cupy.asarray(values)), Tape()
    with tape:
        y = cp.zeros(3)
        cp.add.at(y, [0, 2, 0], x)
        z = y * y
        top = cp.maximum.reduce(z)
        with pytest.raises(GpuadError, match="at of a Duplicated is not recorded"):
            cp.maximum.at(y, [0], x[:1])
    assert float(top.primal) == 16
    tape.reverse({top: 1.0})
    np.testing.assert_array_equal(x.shadow.get(), [8, 0, 8])


def test_cupyx(cp: Any, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its functions go by the names of NumPy's rooms, whatever options of CuPy's they have."""
    cupyx: Any = types.ModuleType("cupyx")
    cupyx.scipy, cupyx.jit = types.ModuleType("cupyx.scipy"), types.ModuleType("cupyx.jit")
    cupyx.scipy.linalg = types.ModuleType("cupyx.scipy.linalg")
    cupyx.scipy.linalg.det = lambda a, overwrite_a=False, check_finite=True: cupy.asarray(np.linalg.det(a.get()))
    cupyx.scipy.linalg.companion = lambda c: c
    cupyx.scipy.special = types.ModuleType("cupyx.scipy.special")
    cupyx.scipy.special.sinc = lambda x, out=None: x
    monkeypatch.setitem(sys.modules, "cupyx", cupyx)
    mine = importlib.import_module("gpuad.cupyx")
    assert mine.jit is gpuad.jit and mine.scipy.__name__ == "gpuad.cupyx.scipy"
    assert float(mine.scipy.linalg.det(cupy.asarray(np.eye(2) * 2))) == 4.0
    x, tape = Duplicated(cupy.asarray(np.arange(4.0))), Tape()
    with tape:
        y = mine.scipy.special.sinc(x)
        with pytest.raises(GpuadError, match=r"scipy\.linalg\.companion of a pair is not recorded"):
            mine.scipy.linalg.companion(x)
    tape.reverse({y: 1.0})
    np.testing.assert_allclose(x.shadow.get()[1:], [-1, 1 / 2, -1 / 3], rtol=1e-12)


JIT = """
import cupy as cp
from cupyx import jit

def square(x):
    return x * x

def wave(y, x, n):
    i = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
    if i < n:
        y[i] = cp.sin(x[i]) * square(x[i]) + cp.float64(2) * x[i] + cp.cos(0.0) - 1.0

square, wave = jit.rawkernel(device=True)(square), jit.rawkernel()(wave)

def loss(x):
    y = cp.zeros(x.shape)
    wave[1, 32](y, x, x.size)
    z = cp.empty_like(y)
    wave((1,), (32,), (z, y, y.size))
    return cp.sum(z * y)
"""


class _JitRawKernel:
    """As what CuPy's decorator makes; it takes no pairs."""

    __module__ = "cupyx.jit._interface"

    def __init__(self, function: Any, device: bool) -> None:
        self._func, self._mode, self._device = function, "cuda", device

    def __call__(self, grid: Any, block: Any, args: Any, shared_mem: int = 0, stream: Any = None) -> None:
        assert not any(isinstance(x, Duplicated) for x in args)
        gpuad.kernel(self)(grid, block, args)

    def __getitem__(self, geometry: Any) -> Any:
        return lambda *args: self(*geometry, args)


class _Function:
    """A ufunc of CuPy's, an object whose class alone says where it is from."""

    def __init__(self, name: str) -> None:
        self.name = self.__name__ = f"cupy_{name}"

    def __call__(self, x: Any) -> Any:
        raise AssertionError("constants of kernels are the kernel's")


_Function.__module__ = "cupy._core._kernel"


@pytest.mark.parametrize("changed", [False, True])
def test_kernels_of_jit(cp: Any, cupy: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, changed: bool) -> None:
    """Made before the call by CuPy's decorator, or by gpuad's under the name of CuPy's; functions of CuPy are those of the kernel."""
    cupyx: Any = types.ModuleType("cupyx")
    cupyx.jit = types.ModuleType("cupyx.jit")
    cupyx.jit.rawkernel = lambda mode="cuda", device=False: lambda function: _JitRawKernel(function, device)
    for name in ("threadIdx", "blockIdx", "blockDim"):
        setattr(cupyx.jit, name, type(name, (), {"__module__": "cupyx.jit._builtin_funcs"})())
    for name, module in (("cupyx", cupyx), ("cupyx.jit", cupyx.jit)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "gpuad.cupyx", raising=False)
    monkeypatch.setattr(cupy, "sin", _Function("sin"))
    monkeypatch.setattr(cupy, "cos", _Function("cos"))
    text = JIT.replace("import cupy as", "import gpuad.cupy as").replace("from cupyx", "from gpuad.cupyx") if changed else JIT
    file, module = tmp_path / "program_of_jit.py", types.ModuleType("program_of_jit")
    file.write_text(text)
    module.__file__ = str(file)
    exec(compile(text, str(file), "exec"), vars(module))
    x = np.linspace(0.1, 0.9, 5)
    inner = np.sin(x) * x**2 + 2 * x
    outer, slope = np.sin(inner) * inner**2 + 2 * inner, np.cos(inner) * inner**2 + 2 * np.sin(inner) * inner + 2
    gradient = (slope * inner + outer) * (np.cos(x) * x**2 + 2 * np.sin(x) * x + 2)
    assert float(module.loss(cupy.asarray(x))) == pytest.approx(float(np.sum(inner * outer)))
    function = gpuad.value_and_grad(module.loss)
    for number in range(4):
        with nothing_is_analysed() if number > 1 else contextlib.nullcontext():
            _, found = function(cupy.asarray(x))
        np.testing.assert_allclose(found.get(), gradient)
    monkeypatch.delitem(sys.modules, "gpuad.cupyx", raising=False)
    vars(gpuad).pop("cupyx", None)
