"""Wrong calls: each is refused with a message that says what is wrong, where, and what to do, and no array has been written then."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launch_tools import EXECUTORS, compiled

import gpuad
from gpuad import Active, BatchDuplicated, Const, Duplicated, pipeline
from gpuad.errors import CompileError, GpuadError, LaunchError, ShadowError, UnsupportedError
from gpuad.runtime.host import Host

CODE = """extern "C" __global__ void scale(float a, const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] * x[i];
}

extern "C" __global__ void through(const double* x, double* work, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        work[i] = x[i] * x[i];
        y[i] = 3.0 * work[i];
    }
}
"""
SQUARE = 'extern "C" __global__ void square(double* x)\n{\n    x[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x];\n}\n'
COUNT = 64
_I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


class Call:
    """The arguments of a right call of `scale`; a test spoils one of them."""

    def __init__(self) -> None:
        self.kernel = compiled(CODE, "scale")
        self.grid: Any = 1
        self.block: Any = COUNT
        self.x, self.y = np.linspace(1, 2, COUNT, dtype=np.float32), np.full(COUNT, 5, np.float32)
        self.dx, self.dy, self.da = np.full(COUNT, 7, np.float32), np.ones(COUNT, np.float32), np.zeros(())
        self.args: list[Any] = [Active(2.0, self.da), Duplicated(self.x, self.dx), Duplicated(self.y, self.dy), COUNT]

    def arrays(self) -> list[Any]:
        """Everything that a launch could write."""
        shadows = [getattr(a, "shadow", None) for a in self.args if not isinstance(a, BatchDuplicated)]
        primals = [getattr(a, "primal", a) for a in self.args]
        found = [self.x, self.y, self.dx, self.dy, self.da, *shadows, *primals]
        return [a for a in found if isinstance(a, np.ndarray)]

    def launch(self, executor: Any = EXECUTORS["reference"]) -> None:
        with pipeline.executor_for_tests(executor):
            gpuad.autodiff(self.kernel, self.grid, self.block, tuple(self.args))

    def refused(self, error: type[GpuadError], *words: str, executors: Sequence[Any] = tuple(EXECUTORS.values())) -> str:
        """Asserts that the call is refused on all executors, that the message has the words, and that no array has been written."""
        arrays = self.arrays()
        before = [a.copy() for a in arrays]
        for executor in executors:
            with pytest.raises(error) as caught:
                self.launch(executor)
            for a, b in zip(arrays, before, strict=True):
                np.testing.assert_array_equal(a, b)
        message = str(caught.value)
        for word in words:
            assert word in message, message
        return message


def test_the_call_is_right_as_it_stands() -> None:
    call = Call()
    call.launch()
    np.testing.assert_allclose(call.dx, 7 + 4 * call.x, rtol=1e-6)
    np.testing.assert_allclose(call.da, (call.x.astype(float) ** 2).sum(), rtol=1e-6)


# --- geometry ----------------------------------------------------------------------------------------------------------------------------


def test_block_beyond_the_limit() -> None:
    call = Call()
    call.grid, call.block = 1, 2048
    message = call.refused(LaunchError, "2048 threads", "limit is 1024", "Nothing was launched")
    assert "swapped" not in message


def test_grid_and_block_swapped() -> None:
    call = Call()
    call.grid, call.block = 256, 4096
    call.refused(LaunchError, "Are grid and block swapped?", "256", "Nothing was launched")


@pytest.mark.parametrize(
    ("grid", "block", "word"),
    [
        (2.5, 64, "-(-n // 256)"),
        (1, (8, 8, 8, 8), "one to three"),
        (1, (1, 1, 65), "along the axes"),
        (1, "64", "whole numbers"),
    ],
)
def test_geometry_that_is_none(grid: Any, block: Any, word: str) -> None:
    call = Call()
    call.grid, call.block = grid, block
    call.refused(LaunchError, word)


# --- arguments ---------------------------------------------------------------------------------------------------------------------------


def test_missing_argument() -> None:
    call = Call()
    call.args.pop()
    call.refused(LaunchError, "takes 4 arguments, got 3", "missing `int n`", "Nothing was launched")


def test_one_argument_too_many() -> None:
    call = Call()
    call.args.append(3)
    call.refused(LaunchError, "takes 4 arguments, got 5", "1 too many")


def test_float64_scalar_for_a_float_parameter() -> None:
    """CuPy would hand over eight bytes where the kernel reads four."""
    call = Call()
    call.args[0] = np.float64(2.0)
    call.refused(LaunchError, "parameter 1 `float a`", "numpy.float64(2.0)", "pass numpy.float32(2.0)", "Nothing was launched")


def test_number_that_a_float_cannot_hold() -> None:
    call = Call()
    call.args[0] = 1e300
    call.refused(LaunchError, "`float a`", "cannot hold")


def test_int_for_a_pointer() -> None:
    call = Call()
    call.args[1] = call.x.__array_interface__["data"][0]
    call.refused(LaunchError, "parameter 2 `const float* x`", "pass the array itself")


def test_number_for_a_pointer() -> None:
    call = Call()
    call.args[1] = 2.0
    call.refused(LaunchError, "parameter 2 `const float* x`", "pass an array")


def test_list_for_a_pointer() -> None:
    call = Call()
    call.args[1] = [1.0] * COUNT
    call.refused(LaunchError, "pass a NumPy or CuPy array")


def test_array_for_a_number() -> None:
    call = Call()
    call.args[3] = np.full(3, COUNT, np.int32)
    call.refused(LaunchError, "`int n`")


def test_fraction_for_an_int() -> None:
    call = Call()
    call.args[3] = COUNT / 3
    call.refused(LaunchError, "`int n`", "n // 2")


def test_array_of_the_wrong_type() -> None:
    call = Call()
    call.args[1] = Duplicated(call.x.astype(np.float64), np.zeros(COUNT))
    call.refused(LaunchError, "parameter 2 `const float* x`", "float64", "astype('float32')")


def test_class_in_the_place_of_an_annotation() -> None:
    call = Call()
    call.args[1] = Duplicated
    call.refused(LaunchError, "Duplicated(x, ...)")


def test_read_only_array() -> None:
    call = Call()
    call.y.flags.writeable = False
    call.refused(LaunchError, "parameter 3 `float* y`", "read-only", "pass a copy")


def test_read_only_input_is_fine() -> None:
    call = Call()
    call.x.flags.writeable = False
    call.launch()


def test_read_only_shadow() -> None:
    call = Call()
    call.dx.flags.writeable = False
    call.refused(ShadowError, "`const float* x`", "read-only array as shadow")


@pytest.mark.parametrize("view", [lambda a: a[::2], lambda a: a[::-1][:COUNT]])
def test_non_contiguous_array(view: Callable[[Any], Any]) -> None:
    call = Call()
    wide = np.linspace(1, 2, 2 * COUNT, dtype=np.float32)
    call.args[1] = Duplicated(view(wide), view(np.zeros(2 * COUNT, np.float32)))
    call.refused(LaunchError, "stride", "contiguous copy", "Nothing was launched")


def test_launch_without_derivative_checks_too() -> None:
    call = Call()
    with pytest.raises(LaunchError, match="contiguous copy"):
        call.kernel(1, COUNT, (2.0, np.zeros(2 * COUNT, np.float32)[::2], call.y, COUNT))
    assert (call.y == 5).all()


# --- shadows -----------------------------------------------------------------------------------------------------------------------------


def test_nothing_is_active() -> None:
    call = Call()
    call.args = [2.0, call.x, call.y, COUNT]
    call.refused(ShadowError, "no argument is active", "Duplicated(array, shadow)")


def test_no_path_from_an_active_input_to_an_active_output() -> None:
    call = Call()
    call.args[2] = Const(call.y)
    call.refused(ShadowError, "no path", "`y`", "the input or the output: Duplicated(array, shadow)", "Nothing was launched")


def test_only_the_output_is_active() -> None:
    call = Call()
    call.args[:2] = [2.0, call.x]
    call.refused(ShadowError, "no path", "Nothing was launched")


def test_bare_output_would_drop_the_gradient() -> None:
    call = Call()
    call.args[2] = call.y
    call.refused(
        ShadowError, "<source>:4:", "argument 3 `y`", "has no shadow", "pass Duplicated(y)", "Const(y)", "^", "Nothing was launched"
    )


def test_float32_shadow_for_float64() -> None:
    x, y, dx, dy = np.ones(COUNT), np.zeros(COUNT), np.zeros(COUNT, np.float32), np.ones(COUNT)
    call = Call()
    call.kernel, call.args = compiled(CODE, "through"), [Duplicated(x, dx), Duplicated(np.zeros(COUNT)), Duplicated(y, dy), COUNT]
    call.refused(ShadowError, "parameter 1 `const double* x`", "float32", "float64", "Nothing was launched")


def test_shadow_of_another_shape() -> None:
    call = Call()
    call.args[1] = Duplicated(call.x, np.zeros(COUNT - 1, np.float32))
    call.refused(ShadowError, "`const float* x`", "shape")


def test_shadow_of_a_scalar_with_too_many_elements() -> None:
    call = Call()
    call.args[0] = Active(2.0, np.zeros(3))
    call.refused(ShadowError, "`float a`", "shape () or (1,)")


def test_active_for_an_array() -> None:
    call = Call()
    with pytest.raises(ShadowError, match="an array takes Duplicated"):
        Active(call.x, call.dx)


def test_batches_of_different_width() -> None:
    call = Call()
    call.args[0] = 2.0
    call.args[1] = BatchDuplicated(call.x, (call.dx, call.dx.copy()))
    call.refused(ShadowError, "has 1 shadows", "`x` has 2")


@pytest.mark.parametrize("wrap", [Const, lambda a: a])
def test_workspace_through_which_data_flows(wrap: Callable[[Any], Any]) -> None:
    x, work, y, dx, dy = np.ones(COUNT), np.full(COUNT, 3.0), np.zeros(COUNT), np.zeros(COUNT), np.ones(COUNT)
    call = Call()
    call.kernel, call.args = compiled(CODE, "through"), [Duplicated(x, dx), wrap(work), Duplicated(y, dy), COUNT]
    call.refused(ShadowError, "<source>:11:", "`work`", "pass Duplicated(work)", "Nothing was launched")


def test_workspace_that_is_cut_on_purpose() -> None:
    x, work, y, dx, dy = np.ones(COUNT), np.full(COUNT, 3.0), np.zeros(COUNT), np.zeros(COUNT), np.ones(COUNT)
    args = (Duplicated(x, dx), gpuad.stop_gradient(work), Duplicated(y, dy), COUNT)
    with pytest.raises(ShadowError, match="no path"):  # all of the gradient went through it
        gpuad.autodiff(compiled(CODE, "through"), 1, COUNT, args)
    assert not dx.any()
    assert not y.any()


def test_seed_kept_of_an_array_that_is_read() -> None:
    x, dx = np.full(8, 3.0), np.ones(8)
    with pytest.raises(ShadowError, match="keep=True"):
        gpuad.autodiff(compiled(SQUARE, "square"), 1, 8, (Duplicated(x, dx, keep=True),))
    assert (x == 3).all()
    assert (dx == 1).all()


# --- sources -----------------------------------------------------------------------------------------------------------------------------


def test_unknown_kernel_name() -> None:
    with pytest.raises(CompileError) as caught:
        gpuad.kernel(CODE, "sale")
    assert "sale" in str(caught.value)
    assert "scale" in str(caught.value)
    assert "through" in str(caught.value)


def test_no_kernel_name() -> None:
    with pytest.raises(LaunchError, match="second argument"):
        gpuad.kernel(CODE)


def test_syntax_error_in_the_cuda_text() -> None:
    with pytest.raises(CompileError) as caught:
        gpuad.kernel(CODE.replace("a * x[i] * x[i];", "a * x[i] * x[i]"), "scale")
    error = caught.value
    assert "expected ';'" in str(error)
    assert (error.file, error.line) == ("<source>", 4)
    assert str(error).startswith("<source>:4:")
    assert "if (i < n) y[i] = a * x[i] * x[i]" in str(error)


def test_unknown_function_in_the_cuda_text() -> None:
    with pytest.raises(CompileError) as caught:
        gpuad.kernel(CODE.replace("a * x[i] * x[i];", "a * squared(x[i]);"), "scale")
    assert "squared" in str(caught.value)
    assert caught.value.line == 4
    assert (caught.value.column or 0) > CODE.splitlines()[3].index("a * x")


def test_construct_that_is_not_supported() -> None:
    code = CODE.replace("if (i < n) y[i] = a * x[i] * x[i];", 'asm("membar.gl;"); y[i] = x[i];')
    with pytest.raises((UnsupportedError, CompileError)) as caught:
        gpuad.autodiff(gpuad.kernel(code, "scale"), 1, 1, (2.0, Duplicated(np.ones(1, np.float32)), Duplicated(np.ones(1, np.float32)), 1))
    assert str(caught.value).startswith("<source>:4:5: error:")


def test_something_that_is_no_kernel() -> None:
    with pytest.raises(LaunchError, match="pass CUDA text and a name"):
        gpuad.kernel(3, "scale")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises((OSError, GpuadError), match=r"nothing\.cu"):
        gpuad.kernel(str(tmp_path / "nothing.cu"), "scale")


# --- the machine -------------------------------------------------------------------------------------------------------------------------


def unseen(tmp_path: Path) -> Call:
    """A call of a kernel that nobody has compiled, and an empty place to keep it."""
    call = Call()
    call.kernel = gpuad.kernel(CODE.replace("a * x[i] * x[i]", f"a * x[i] * x[i] + {hash(str(tmp_path)) % 2**31}"), "scale")
    return call


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    """Takes the machine's compiler away when it is called."""

    def away() -> None:
        empty = tmp_path / "no compiler here"
        empty.mkdir()
        monkeypatch.setenv("PATH", str(empty))
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)

    return away


def test_no_compiler(no_compiler: Callable[[], None], tmp_path: Path) -> None:
    call = unseen(tmp_path)
    no_compiler()
    call.refused(CompileError, "no C++ compiler", "install g++ or clang++", "ziglang", executors=[Host()])


def test_the_compiler_is_gone_before_the_reverse_was_compiled(no_compiler: Callable[[], None], tmp_path: Path) -> None:
    call, host = unseen(tmp_path), Host()
    with pipeline.executor_for_tests(host):
        call.kernel(1, COUNT, (2.0, call.x, call.y, COUNT))
    call.y.fill(5)
    no_compiler()
    call.refused(CompileError, "no C++ compiler", executors=[host])


def test_compiler_of_cxx_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "nothing++"))
    unseen(tmp_path).refused(CompileError, "CXX", "nothing++", "unset CXX", executors=[Host()])


def test_unwritable_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GPUAD_CACHE_DIR", str(tmp_path / "file" / "cache"))
    unseen(tmp_path).refused(CompileError, "cannot be kept in", "set GPUAD_CACHE_DIR to a folder that you can write", executors=[Host()])


def test_cache_that_others_can_write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("GPUAD_CACHE_DIR", str(folder))
    unseen(tmp_path).refused(CompileError, "can be written by other users", "chmod 700", executors=[Host()])


def test_without_a_compiler_numpy_arrays_run_on_the_reference_executor(tmp_path: Path) -> None:
    program = f"""
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "ziglang" else find(name, package)
import numpy as np, gpuad
x, dx = np.full(8, 3.0), np.ones(8)
k = gpuad.kernel({SQUARE!r}, "square")
gpuad.autodiff(k, 1, 8, (gpuad.Duplicated(x, dx),))
assert (x == 9).all() and (dx == 6).all()
"""
    environment = {k: v for k, v in os.environ.items() if k != "CXX"} | {"PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_launch_that_surely_writes_outside_is_refused() -> None:
    guard = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n)"
    k = compiled(f'extern "C" __global__ void k(const float* x, float* y, int n) {{ {guard} y[i] = x[i]; }}', "k")
    x, y = np.ones(10, np.float32), np.zeros(10, np.float32)
    with pytest.raises(gpuad.LaunchError, match=r"writes `y` from element 0 to 11 \(.*\), but its memory ends at 9: check the sizes"):
        k(1, 32, (x, y, 12))
    assert not y.any()
    k(1, 32, (x, y, 10))
    assert y.all()


_CAS = """
__device__ void add(double* address, double value) {
    unsigned long long* bits = (unsigned long long*)address;
    unsigned long long old = *bits, assumed;
    do {
        assumed = old;
        old = atomicCAS(bits, assumed, __double_as_longlong(value + __longlong_as_double(assumed)));
    } while (assumed != old);
}
"""
ADDED = [
    "x[i] += 0.5;",
    "x[i] -= a * i;",
    "atomicAdd(x + i / 2, 1.0);",
    "x[i] += w[i];",
    "x[i] -= w[i] * w[i];",
    "x[i] = w[i] + x[i];",
    "for (int k = 0; k < 3; ++k) x[i] += w[k] * k;",
    "atomicAdd(&x[0], w[i]);",
    "double old = atomicAdd(&x[i], w[i]);",
    "add(&x[i], w[i]);",
]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("text", ADDED)
@pytest.mark.parametrize("way", ["reverse", "forward", "thunk", "hvp", "tape"])
def test_what_adds_something_inactive_passes_the_gradient_on(executor: str, text: str, way: str) -> None:
    """What is in the array depends on what was there before."""
    source = f'{_CAS} extern "C" __global__ void shift(double* x, double a, const double* w, int n) {{ {_I} if (i < n) {{ {text} }} }}'
    X, w = Duplicated(np.zeros(4), np.arange(4.0)), np.arange(1.0, 5)
    args, k = (X, 2.0, w, 4), compiled(source, "shift")
    with pipeline.executor_for_tests(EXECUTORS[executor]):
        if way in ("reverse", "forward"):
            gpuad.autodiff(k, 1, 8, args, mode=gpuad.Reverse if way == "reverse" else gpuad.Forward)
        elif way == "thunk":
            augmented, reverse = gpuad.autodiff_thunk(k, x=Duplicated)
            saved = augmented(1, 8, (X.primal, 2.0, w, 4))
            reverse(1, 8, args, saved)
        elif way == "hvp":
            dots = Duplicated(np.ones(4), np.ones(4))
            gpuad.hvp(k, 1, 8, args, (dots, None, None, None))
            assert (dots.primal == 1).all() and (dots.shadow == 1).all()
        else:
            tape = gpuad.Tape()
            with tape:
                k[1, 8](*args)
            X.shadow[...] = np.arange(4.0)
            tape.reverse()
    np.testing.assert_array_equal(X.shadow, np.arange(4.0))
    assert X.primal.any()


def test_what_adds_something_inactive_in_other_kernels() -> None:
    w, seed = np.arange(1.0, 5), np.arange(4.0)
    for k, y in (
        (gpuad.ElementwiseKernel("float64 w", "float64 y", "y += w", "added"), np.zeros(4)),
        (gpuad.ReductionKernel("float64 w", "float64 y", "w", "a + b", "y -= a", "0", "summed"), np.zeros(())),
    ):
        dy = np.asarray(seed[: y.size].reshape(y.shape) + 1)
        gpuad.autodiff(k, w, Duplicated(y, dy))
        np.testing.assert_array_equal(dy, seed[: y.size].reshape(y.shape) + 1)


def test_a_text_through_which_nothing_passes_says_so() -> None:
    call = Call()
    text = call.kernel.adjoint(x=Duplicated).source
    assert "// What is active reaches nothing that is: no gradient passes, and `autodiff` refuses it." in text
    assert "reaches nothing" not in call.kernel.adjoint(x=Duplicated, y=Duplicated).source


# --- arguments that lie (RULES 8, 18, 27) ------------------------------------------------------------------------------------------------


def copying(body: str) -> Any:
    return compiled(f'extern "C" __global__ void k(const double* w, double* y, int n) {{ {_I} {body} }}', "k")


def ways(kernel: Any, *args: Any, block: int = 8) -> dict[str, Callable[[], Any]]:
    """What can be done with a launch of one block, by name."""
    bare = [getattr(a, "primal", a) for a in args]
    kinds = {d.name: Duplicated for d, a in zip(kernel.parameters, args, strict=True) if isinstance(a, Duplicated)}

    def taped() -> None:
        with gpuad.Tape():
            kernel[1, block](*args)

    return {
        "reverse": lambda: gpuad.autodiff(kernel, 1, block, args),
        "thunk": lambda: gpuad.autodiff_thunk(kernel, **kinds)[0](1, block, bare),
        "tape": taped,
        "hvp": lambda: gpuad.hvp(
            kernel, 1, block, args, tuple(Duplicated(a.primal.copy(), a.shadow.copy()) if isinstance(a, Duplicated) else None for a in args)
        ),
        "launch": lambda: kernel(1, block, bare),
        "forward": lambda: gpuad.autodiff(kernel, 1, block, args, mode=gpuad.Forward),
    }


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("way", ["reverse", "thunk", "tape", "hvp"])
@pytest.mark.parametrize(
    ("body", "size", "words"),
    [
        ("if (i < n) y[i] = w[i];", 2, "reads `w` from element 0 to 3"),
        ("if (i < n) y[i] = w[i] * w[i];", 2, "reads `w` from element 0 to 3"),
        ("if (i < n) y[i] = w[i - 1];", 4, "reads `w` from element -1 to 2"),
        ("if (i >= n) return; y[i] = w[n - i];", 4, "reads `w` from element 1 to 4"),
        ("if (i < n) y[i] = sin(w[7]);", 4, "reads `w` from element 7 to 7"),
        ("if (i < n) { double s = 0; for (int k = 0; k < 3; k++) s += w[i + k]; y[i] = s; }", 5, "reads `w` from element 0 to 5"),
        ("for (int j = i; j < n; j += blockDim.x * gridDim.x) y[j] = w[j];", 2, "reads `w` from element 0 to 3"),
        ("if (i < n) y[i] = i + 1 < n ? w[i] + w[i + 2] : w[i];", 4, "reads `w` from element 2 to 4"),
    ],
)
def test_a_read_whose_adjoint_surely_adds_outside_is_refused(executor: str, way: str, body: str, size: int, words: str) -> None:
    """RULES 18: reads become writes. That one destroyed the heap."""
    w, y = Duplicated(np.arange(1.0, size + 1), np.zeros(size)), Duplicated(np.zeros(4), np.ones(4))
    with pipeline.executor_for_tests(EXECUTORS[executor]), pytest.raises(LaunchError) as caught:
        ways(copying(body), w, y, 4)[way]()
    assert words in str(caught.value)
    assert "its memory ends at" in str(caught.value) or "its memory begins at 0" in str(caught.value)
    assert not y.primal.any() and not w.shadow.any() and (y.shadow == 1).all()


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    ("body", "size", "slope"),
    [
        ("if (i < n) { double r = w[i + 1]; y[i] = i + 1 < n ? w[i] + r : w[i]; }", 4, [1, 2, 2, 2]),
        ("if (i < n) { double r = w[i + 1]; if (i + 1 < n) y[i] = w[i] + r; else y[i] = w[i]; }", 4, [1, 2, 2, 2]),
        ("if (i < n) { double r = w[i + 1]; y[i] = w[i]; }", 4, [1, 1, 1, 1]),
        ("if (i < n - 4) y[i] = w[i + 100];", 4, [0, 0, 0, 0]),
        ("if (i < n && y[i] > 0) y[i] = w[i];", 2, [0, 0]),
    ],
)
def test_what_is_read_outside_and_not_used_does_no_harm(executor: str, body: str, size: int, slope: list[float]) -> None:
    w, y = Duplicated(np.arange(1.0, size + 1), np.zeros(size)), Duplicated(np.zeros(4), np.ones(4))
    with pipeline.executor_for_tests(EXECUTORS[executor]):
        gpuad.autodiff(copying(body), 1, 8, (w, y, 4))
    np.testing.assert_array_equal(w.shadow, slope)


def test_a_read_outside_of_a_view_but_not_of_its_memory_is_right() -> None:
    W, y = Duplicated(np.arange(6.0), np.zeros(6)), Duplicated(np.zeros(4), np.ones(4))
    gpuad.autodiff(copying("if (i < n) y[i] = w[i - 1] * w[i + 1];"), 1, 8, (W[1:3], y, 4))
    np.testing.assert_array_equal(W.shadow, [2, 3, 4 + 0, 5 + 1, 2, 3])


def test_bounds_are_looked_at_where_arguments_overlap() -> None:
    k = compiled(f'extern "C" __global__ void k(const double* w, double* y, int n) {{ {_I} if (i < n) y[i] = 2 * w[i]; }}', "k")
    x = np.ones(6)
    with pytest.raises(LaunchError, match=r"writes `y` from element 0 to 7 .*, but its memory ends at 3"):
        k(1, 8, (x, x[2:], 8))


NULLABLE = 'extern "C" __global__ void k(const double* p, double* y, const double* m, int n, int flag) {{ {} if (i < n) {{ {} }} }}'


def nullable(body: str) -> Any:
    return compiled(NULLABLE.format(_I, body), "k")


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("way", ["launch", "reverse", "forward", "thunk", "tape", "hvp"])
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("y[i] *= p[i];", "`p` is None, but this launch reads it (<source>:1:"),
        ("y[i] *= p[(int)m[i]];", "`p` is None, but this launch reads it (<source>:1:"),
        ("if (flag) y[i] *= p[0];", "pass an array, or ask in the kernel whether there is one, `if (p)`. Nothing was launched."),
    ],
)
def test_none_for_a_pointer_that_is_surely_read_is_refused(executor: str, way: str, body: str, words: str) -> None:
    """It ended the process."""
    y = Duplicated(np.ones(4), np.ones(4))
    with pipeline.executor_for_tests(EXECUTORS[executor]), pytest.raises(LaunchError) as caught:
        ways(nullable(body), None, y, np.ones(4), 4, 1)[way]()
    assert words in str(caught.value)
    assert (y.primal == 1).all() and (y.shadow == 1).all()


def test_none_for_a_pointer_that_is_surely_written_is_refused() -> None:
    k = compiled(f'extern "C" __global__ void k(double* p, double* y, int n) {{ {_I} if (i < n) {{ p[i] = y[i]; y[i] = 2; }} }}', "k")
    y = np.ones(4)
    with pytest.raises(LaunchError, match="`p` is None, but this launch writes it"):
        k(1, 8, (None, y, 4))
    assert (y == 1).all()


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("way", ["launch", "reverse", "forward", "thunk", "tape", "hvp"])
@pytest.mark.parametrize("body", ["y[i] *= p ? p[i] : 2.0;", "if (flag) y[i] *= p[i]; else y[i] *= 2;", "y[i] *= m[i] > 5 ? p[i] : 2.0;"])
def test_none_for_a_pointer_that_is_not_read(executor: str, way: str, body: str) -> None:
    y = Duplicated(np.ones(4), np.ones(4))
    with pipeline.executor_for_tests(EXECUTORS[executor]):
        for _ in range(2):
            ways(nullable(body), None, y, np.ones(4), 4, 0)[way]()
    assert (y.primal == 4).all()
    if way == "reverse":
        assert (y.shadow == 4).all()


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("way", ["launch", "reverse", "forward", "thunk", "tape", "hvp"])
def test_none_for_a_pointer_to_which_data_lead(executor: str, way: str) -> None:
    y = Duplicated(np.ones(4), np.ones(4))
    k, m = nullable("if (m[i] > 5) y[i] *= p[i];"), np.ones(4)
    with pipeline.executor_for_tests(EXECUTORS[executor]):
        ways(k, None, y, m, 4, 0)["launch"]()
        m[2] = 6
        with pytest.raises(LaunchError, match=r"an assertion .*<source>:1:.*: `p` is None, but is read here"):
            ways(k, None, y, m, 4, 0)[way]()
        ways(k, np.full(4, 3.0), y, m, 4, 0)["launch"]()
    assert (y.primal == [1, 1, 3, 1]).all()


def test_none_for_a_pointer_to_which_data_may_lead_while_a_launch_writes_something_down() -> None:
    body = "int j = atomicAdd(c, 1); if (m[i] > 5) y[j] *= p[j]; else y[j] *= y[j];"
    k = compiled(
        f'extern "C" __global__ void k(const double* p, double* y, const double* m, int* c, int n) {{ {_I} if (i < n) {{ {body} }} }}', "k"
    )
    y = Duplicated(np.ones(4), np.ones(4))
    with pytest.raises(UnsupportedError, match="`p` is None, and data may lead to it; pass an array"):
        gpuad.autodiff(k, 1, 8, (None, y, np.ones(4), np.zeros(1, np.int32), 4))
    k(1, 8, (None, y, np.ones(4), np.zeros(1, np.int32), 4))
