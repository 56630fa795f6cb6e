"""jit functions of complex numbers: values against NumPy, gradients against differences of the primal alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import running

from gpuad import Active, CompileError, Duplicated, UnsupportedError, autodiff, jit
from gpuad.testing import check_gradient


@jit(device=True)
def twisted(a, b):
    return a * b + a.real


@jit
def arithmetic(z, w, x, n):
    """Operators and compound assignments, real with complex, parts, constants, a device function."""
    i = jit.grid(1)
    if i < n:
        t = z[i] * w[i] + 2
        t += x[i] * (z[i] * 0 + 1j)
        w[i] = twisted(t, z[n - 1 - i]) / (z[i] + 3)
        x[i] += t.real * t.imag - abs(z[i])
        w[i] *= 0.5 - 1j
        w[i] -= np.conj(z[i])


def of_arithmetic(z: Any, w: Any, x: Any) -> tuple[Any, ...]:
    t = z * w + 2 + x * 1j
    return (t * z[::-1] + t.real) / (z + 3) * (0.5 - 1j) - z.conj(), x + t.real * t.imag - abs(z)


@jit
def functions(z, w, x, n):
    """A recurrence, conditions, functions, conversions to and from real numbers."""
    i = jit.grid(1)
    s = z[i] * 0
    for k in range(n):
        s = s * z[i] * 0.1 + x[k]
    u = z[i] if z[i].real > 1 else -w[i]
    if z[i] == w[i]:
        u = 1
    u = u if n > 3 else 1j
    w[i] = np.exp(s * 0.1) + u + np.sqrt(z[i]) ** 2 + np.square(z[i]) * np.reciprocal(z[i])
    w[i] += np.angle(z[i]) * np.imag(z[i]) + float(z[i]) + np.sin(z[i]) / np.cosh(z[i])


def of_functions(z: Any, w: Any, x: Any) -> tuple[Any, ...]:
    s = 0j * z
    for k in range(len(x)):
        s = s * z * 0.1 + x[k]
    u = np.where(z.real > 1, z, -w)
    return np.exp(s * 0.1) + u + 2 * z + np.angle(z) * z.imag + z.real + np.sin(z) / np.cosh(z), x


@jit
def shared(z, w, x, n):
    """Shared memory and tuples."""
    i = jit.grid(1)
    s = jit.shared_memory(np.complex128, 8)
    s[i] = z[i] * x[i]
    jit.syncthreads()
    a, b = s[7 - i], 1j
    w[i] = s[7 - i] * a * b


def of_shared(z: Any, w: Any, x: Any) -> tuple[Any, ...]:
    return 1j * (z * x)[::-1] ** 2, x


KERNELS = {"arithmetic": (arithmetic, of_arithmetic), "functions": (functions, of_functions), "shared": (shared, of_shared)}


def numbers(kind: str, real: str) -> list[Any]:
    rng = np.random.default_rng(0)
    z, w = ((rng.uniform(0.6, 1.4, 8) + 1j * rng.uniform(0.6, 1.4, 8)).astype(kind) for _ in range(2))
    return [z, w, rng.uniform(0.6, 1.4, 8).astype(real)]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("executor", ["reference", "host"])
@pytest.mark.parametrize("name", KERNELS)
def test_values(name: str, executor: str) -> None:
    kernel, model = KERNELS[name]
    z, w, x = numbers("D", "d")
    expected = model(*(a.copy() for a in (z, w, x)))
    with running(executor):
        kernel(1, 8, (z, w, x, 8))
    assert np.allclose(w, expected[0], rtol=1e-12)
    assert np.allclose(x, expected[1], rtol=1e-12)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("kind", "real", "executor"), [("D", "d", "reference"), ("F", "f", "reference")])
@pytest.mark.parametrize("name", KERNELS)
def test_gradient(name: str, kind: str, real: str, executor: str) -> None:
    with running(executor):
        check_gradient(KERNELS[name][0], [*map(Duplicated, numbers(kind, real)), 8], grid=1, block=8)


@jit
def scaled(z, a):
    i = jit.grid(1)
    z[i] = z[i] * a


def test_a_complex_number_by_value() -> None:
    """d(z a)/da, conjugated: the shadow is dL/dRe + i dL/dIm."""
    z, dz, da = np.array([1 + 2j, 3 - 1j]), np.array([1 + 0j, 2j]), np.zeros((), np.complex128)
    with running("reference"):
        autodiff(scaled, 1, 2, (Duplicated(z.copy(), dz), Active(np.complex128(0.5 + 1j), da)))
    assert np.allclose(da, (np.array([1, 2j]) * z.conj()).sum())


@jit
def mixed(x, z, w):
    w[0] = x[0] * z[0]


def test_types_are_cupy_s() -> None:
    """A float64 with a complex64 is a complex64; Python's complex numbers are complex64."""
    z, w = np.array([1 / 3 + 0j], np.complex64), np.zeros(1, np.complex128)

    with running("reference"):
        mixed(1, 1, (np.array([1 / 3]), z, w))
        assert w[0] == complex(np.complex64(np.float32(1 / 3)) * z[0])
        scaled(1, 1, (w, 0.1 + 0j))
    assert w[0].real == (np.float32(1 / 3) * np.float32(1 / 3)) * np.float64(np.float32(0.1))


REFUSED = {
    "w[0] = np.log2(z[0])": (UnsupportedError, "the function log2 of complex numbers is not supported in a kernel"),
    "x[0] = z[0]": (CompileError, "the element is float64 and cannot take a complex128; write z.real"),
    "if z[0]:\n        x[0] = 1": (CompileError, "a real number is needed here, not a complex128"),
    "w[0] = z[0] // 2": (CompileError, "this operator is not for complex numbers"),
    "w[0] = z[0] if n > 1 else np.complex64(z[1])": (CompileError, "the sides of this are complex128 and complex64; convert one"),
    "w[jit.atomic_add(at, 0, 1)] += z[0]": (
        UnsupportedError, "a target whose index is a call or an atomic operation: assign the index to a variable first",
    ),
    "jit.atomic_add(w, 0, z[0])": (CompileError, "jit.atomic_add is not for complex numbers; add to the parts as arrays of floats"),
    "w[0] = max(z[0], z[1])": (CompileError, "a real number is needed here, not a complex128"),
}  # fmt: skip


@pytest.mark.parametrize("body", REFUSED)
def test_refused(body: str, tmp_path: Any) -> None:
    error, message = REFUSED[body]
    file = tmp_path / "k.py"
    file.write_text(f"@jit\ndef k(z, w, x, at, n):\n    {body}\n")
    names: dict[str, Any] = {"jit": jit, "np": np}
    exec(compile(file.read_text(), str(file), "exec"), names)
    with pytest.raises(error) as caught:
        names["k"](1, 1, (*numbers("D", "d"), np.zeros(1, np.int32), 2))
    assert (caught.value.message, caught.value.line) == (message, 3)
