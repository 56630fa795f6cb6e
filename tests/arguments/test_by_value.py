"""Vectors, complex numbers and structs by value: checked like arrays, and described in a file's cases."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

import gpuad
from gpuad import Active, Duplicated, testing
from gpuad.arguments import layouts
from gpuad.testing import check_gradient
from gpuad.tools.cases import CaseError, read
from gpuad.tools.cli import app

P = np.dtype({"names": ["n", "rate", "w"], "formats": ["i4", "f4", ("f4", 3)], "offsets": [0, 4, 8], "itemsize": 20})
STRUCT = """/*gpuad
[[case]]
kernel = "k"
sizes = {n = 12}
grid = [1]
block = [16]
[case.arguments]
p = {value = "normal", members = {n = "n", rate = 0.5}, active = true}
v = {value = "positive", active = true}
c = {value = 0.3}
x = {shape = ["n"], init = "normal", active = true}
*/
#include <cuComplex.h>
struct P { int n; float rate; float w[3]; };
extern "C" __global__ void k(P p, float2 v, cuFloatComplex c, float* x) {
    int i = threadIdx.x;
    if (i < p.n) x[i] = p.rate * x[i] * x[i] + p.w[i % 3] * v.y + v.x * c.x * c.y;
}
"""


def struct(n: int = 12, rate: float = 0.5) -> Any:
    made = np.zeros((), P)
    made["n"], made["rate"], made["w"] = n, rate, [1.0, -2.0, 3.0]
    return made


def arguments(**given: Any) -> tuple[Any, ...]:
    x = np.linspace(-1, 1, 12, dtype=np.float32)
    return tuple({"p": struct(), "v": (0.5, 2.0), "c": 1 + 2j, "x": x, **given}.values())


def kernel() -> Any:
    return gpuad.kernel(STRUCT, "k")


# --- the check -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [{}, {"p": struct()[()]}, {"v": [np.float32(0.5), 2]}, {"c": np.complex64(1 + 2j)}, {"p": struct(rate=0.0)}],
    ids=str,
)
def test_records_are_varied(given: dict[str, Any]) -> None:
    args = arguments(**given)
    before = [np.array(a).tobytes() for a in args]
    report = check_gradient(kernel(), args, grid=1, block=16)
    assert report.passed and not any("fixed" in note for note in report.notes)
    assert [np.array(a).tobytes() for a in args] == before


@pytest.mark.parametrize("which", ["p", "v", "c"])
def test_those_with_a_shadow_alone_are_varied(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    run = testing.api.autodiff
    monkeypatch.setattr(testing.api, "autodiff", lambda k, g, b, args, **o: (seen.append(args), run(k, g, b, args, **o)))
    args = dict(zip("pvcx", arguments(), strict=True))
    given = {**args, "x": Duplicated(args["x"]), which: layouts.active(args[which])}
    assert check_gradient(kernel(), tuple(given.values()), grid=1, block=16).passed
    assert all([isinstance(a, Active) for a in found] == [name == which for name in given] for found in seen) and seen
    assert not layouts.floats(given[which].shadow).any()  # the caller's shadow is not touched


@pytest.mark.parametrize("number", range(4))
def test_a_wrong_gradient_of_one_float_of_a_struct_is_found(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = testing.api.autodiff

    def wrong(k: Any, g: Any, b: Any, args: Any, mode: Any, **options: Any) -> None:
        run(k, g, b, args, mode=mode, **options)
        if mode is testing.api.Reverse:
            parts = layouts.floats(args[0].shadow)
            parts[number] *= 1.5
            args[0].shadow[...] = layouts.shadow(struct(), np, parts)

    monkeypatch.setattr(testing.api, "autodiff", wrong)
    with pytest.raises(AssertionError, match="FAILED Taylor"):
        check_gradient(kernel(), arguments(), grid=1, block=16)


def test_whole_numbers_by_value_stay() -> None:
    text = 'extern "C" __global__ void k(int2 n, double* y) { if (threadIdx.x < n.y) y[threadIdx.x] *= n.x * y[threadIdx.x]; }'
    assert check_gradient(gpuad.kernel(text, "k"), ((3, 5), np.linspace(0, 1, 7)), grid=1, block=7).passed


def test_a_whole_number_for_a_float_is_varied(monkeypatch: pytest.MonkeyPatch) -> None:
    run, wrong = testing.api.autodiff, []
    text = 'extern "C" __global__ void k(double a, double* y) { y[threadIdx.x] *= a; }'
    monkeypatch.setattr(
        testing.api, "autodiff", lambda k, g, b, args, **o: (wrong.append(isinstance(args[0], Active)), run(k, g, b, args, **o))
    )
    assert check_gradient(gpuad.kernel(text, "k"), (2, np.linspace(1, 2, 7)), grid=1, block=7).passed
    assert wrong and all(wrong)


def test_a_struct_with_halves_is_held_fixed_and_said() -> None:
    text = """#include <cuda_fp16.h>
struct P { __half h; float f; };
extern "C" __global__ void k(P p, float* y) { y[threadIdx.x] *= p.f * __half2float(p.h) * y[threadIdx.x]; }"""
    p = np.zeros((), np.dtype({"names": ["h", "f"], "formats": ["f2", "f4"], "offsets": [0, 4], "itemsize": 8}))
    p["h"], p["f"] = 0.5, 2.0
    report = check_gradient(gpuad.kernel(text, "k"), (p, np.linspace(1, 2, 7, dtype=np.float32)), grid=1, block=7)
    assert report.passed and "argument 1 is a struct with halves by value, which has no shadow: it was held fixed" in report.notes


def test_a_shadow_of_bytes() -> None:
    """As on a GPU, where there are no arrays of structs."""
    args = dict(zip("pvcx", arguments(), strict=True))
    shadows = np.zeros((), P), np.zeros(P.itemsize, np.uint8)
    for shadow in shadows:
        gpuad.autodiff(
            kernel(), 1, 16, (Active(args["p"], shadow), *arguments()[1:3], Duplicated(args["x"].copy(), np.ones(12, np.float32)))
        )
    assert shadows[0]["rate"] != 0 and shadows[0].tobytes() == shadows[1].tobytes()
    with pytest.raises(gpuad.ShadowError, match=r"or of its bytes, of shape \(20,\) and dtype uint8"):
        gpuad.autodiff(kernel(), 1, 16, (Active(args["p"], np.zeros(19, np.uint8)), *arguments()[1:]))


# --- numbers as vectors --------------------------------------------------------------------------------------------------------------

VALUES = [
    0.5, np.float32(0.25), 1 + 2j, np.complex64(1 - 1j), (1.0, 2.0, 3.0), [0.5, 1.5], struct(), struct()[()], np.float16(0.5),
    ml_dtypes.bfloat16(0.5),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_there_and_back(value: Any) -> None:
    parts = layouts.floats(value)
    again = layouts.with_floats(value, parts)
    assert type(again) is type(value) and np.array(again).tobytes() == np.array(value).tobytes()
    other = layouts.with_floats(value, 2 * parts)
    assert np.array_equal(layouts.floats(other), 2 * parts)
    assert np.array_equal(layouts.floats(value), parts)  # which is another one
    assert np.array_equal(layouts.gradient(value, layouts.shadow(value, np, parts)), parts)
    assert not layouts.gradient(value, layouts.shadow(value)).any()
    assert (layouts.scales(value) > 0).all()


# --- cases ---------------------------------------------------------------------------------------------------------------------------


def test_a_case_with_records_by_value(tmp_path: Any) -> None:
    path = tmp_path / "k.cu"
    path.write_text(STRUCT)
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 0 and "agrees" in done.output
    (case,) = read(path)
    made = case.arrays({d.name: d.type for d in gpuad.kernel(path, "k").parameters})
    assert (made["p"]["n"], made["p"]["rate"], made["c"]) == (12, 0.5, (np.float32(0.3), np.float32(0.3)))  # cuFloatComplex is a float2
    assert len(made["v"]) == 2 and all(isinstance(x, np.float32) and 0.5 <= x <= 1.5 for x in made["v"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('n = "n", rate', "m = 1, rate", "the struct of 'p' has no field 'm'; it has n, rate, w"),
        ('n = "n", rate', "n = 0.5, rate", "'0.5' has values that int32, the type of 'p', cannot hold"),
        ('members = {n = "n", rate = 0.5}, ', "", "'normal' has values that int32, the type of 'p', cannot hold"),
    ],
)
def test_records_that_cannot_be_made(old: str, new: str, message: str) -> None:
    assert STRUCT.count(old) == 1
    (case,) = read(STRUCT.replace(old, new))
    with pytest.raises(CaseError, match=re.escape(message)):
        case.arrays({d.name: d.type for d in kernel().parameters})
