"""Launch descriptions: what a header may say, what it makes, and what is refused where."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from gpuad.errors import GpuadError
from gpuad.ir.types import BOOL, F32, F64, I32, U8, Pointer
from gpuad.tools.cases import Case, CaseError, all_cases, kernel_folder, read

HEADER = """// a line before it
/*gpuad
title = "y += a * x"
[[case]]
kernel = "saxpy"
sizes = {n = 1000, m = "2 * n"}
grid = ["(n + 255) // 256"]
block = [256]
[case.arguments]
n = {value = "n"}
a = {value = 1.5, active = true}
x = {shape = ["n"], active = true, init = "normal"}
y = {shape = [2, "m // 4"], init = "integers(0, n)"}
[case.benchmark]
sizes = {n = 4096}
bytes = "12 * n"
*/
extern "C" __global__ void saxpy(int n, float a, float* x, int* y) {}
"""
TYPES = {"n": I32, "a": F32, "x": Pointer(F32), "y": np.dtype("int64")}


def changed(old: str, new: str) -> str:
    assert HEADER.count(old) == 1
    return HEADER.replace(old, new)


def only(text: str) -> Case:
    (case,) = read(text)
    return case


def field(init: str, shape: str = '["n"]', kind: object = F64, sizes: dict[str, int] | None = None) -> np.ndarray:
    text = changed('y = {shape = [2, "m // 4"], init = "integers(0, n)"}', f'y = {{shape = {shape}, init = "{init}"}}')
    return only(text).arrays({**TYPES, "y": kind}, sizes=sizes)["y"]  # type: ignore[dict-item]


def test_what_a_case_says() -> None:
    case = only(HEADER)
    assert (case.kernel, case.title, case.id, case.active) == ("saxpy", "y += a * x", "kernel-saxpy", ("a", "x"))
    assert case.geometry() == ((4, 1, 1), (256, 1, 1), 0)
    assert case.geometry({"n": 257}) == ((2, 1, 1), (256, 1, 1), 0)
    assert case.resolve({"n": 3}) == {"n": 3, "m": 6}
    assert (case.traffic(), case.traffic({"n": 2}), case.operations()) == (12 * 4096, 24, None)


def test_arguments_have_the_types_of_the_parameters_in_their_order() -> None:
    made = only(HEADER).arrays(TYPES)
    assert list(made) == ["n", "a", "x", "y"]
    assert [type(made["n"]), type(made["a"])] == [np.int32, np.float32]
    assert [made[name].dtype for name in ("x", "y")] == [np.float32, np.int64]
    assert [made[name].shape for name in ("x", "y")] == [(1000,), (2, 500)]
    assert all(made[name].flags.c_contiguous and made[name].flags.writeable for name in ("x", "y"))


def test_inputs_depend_on_seed_and_name_alone() -> None:
    case, fewer = only(HEADER), only(changed("a = {value = 1.5, active = true}\n", ""))
    first, again, other = (case.arrays(TYPES, seed) for seed in (0, 0, 1))
    assert np.array_equal(first["x"], again["x"])
    assert not np.array_equal(first["x"], other["x"])
    types = {name: kind for name, kind in TYPES.items() if name != "a"}
    assert np.array_equal(first["x"], fewer.arrays(types)["x"])
    assert len(np.unique(first["x"])) > 990


def test_inputs_of_other_sizes() -> None:
    made = only(HEADER).arrays(TYPES, sizes={"n": 8})
    assert (made["n"], made["x"].shape, made["y"].shape) == (8, (8,), (2, 4))
    with pytest.raises(CaseError, match=r"kernel\.cu:5:1: error: 'saxpy' has no size 'k'; it has n, m"):
        only(HEADER).arrays(TYPES, sizes={"k": 8})


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ("zeros", [0, 0, 0, 0]),
        ("ones()", [1, 1, 1, 1]),
        ("arange // 2", [0, 0, 1, 1]),
        ("2 * arange - 1", [-1, 1, 3, 5]),
        ("-(index(0) + n) % 3", [2, 1, 0, 2]),
        ("min(arange, 2) / 4", [0, 0.25, 0.5, 0.5]),
        ("sqrt(arange * arange)", [0, 1, 2, 3]),
        ("7", [7, 7, 7, 7]),
    ],
)
def test_fields_that_are_known(init: str, expected: list[float]) -> None:
    assert field(init, sizes={"n": 4}).tolist() == expected


def test_fields_that_are_drawn() -> None:
    uniform, positive, integers = field("uniform(2.0, 3.0)"), field("positive"), field("integers(3, 6)", kind=I32)
    assert 2 <= uniform.min() < 2.1 < 2.9 < uniform.max() < 3
    assert 0.5 <= positive.min() < positive.max() < 1.5
    assert np.unique(integers).tolist() == [3, 4, 5]
    assert np.allclose(np.diff(np.sort(field("spread(-1.0, 1.0)"))), 0.002)
    assert not np.all(np.diff(field("spread(-1.0, 1.0)")) > 0)
    assert field("normal(5.0, 0.1)").mean() == pytest.approx(5, abs=0.02)


def test_row_pointers() -> None:
    rows = field("rows(m)", '["n + 1"]', I32)
    assert (rows[0], rows[-1], rows.shape) == (0, 2000, (1001,))
    assert np.all(np.diff(rows) >= 0)


def test_a_field_has_the_shape_of_its_array() -> None:
    assert field("index(1)", "[2, 3]").tolist() == [[0, 1, 2], [0, 1, 2]]
    assert field("index(0)", "[2, 3]").tolist() == [[0, 0, 0], [1, 1, 1]]
    assert field("normal", '[0, "n"]').shape == (0, 1000)
    assert field("1", "[3]", BOOL).dtype == np.bool_


REFUSED = {
    "unknown name": (changed('init = "normal"', 'init = "gauss"'), r"12:36: error: .*the name 'gauss' is not known here; known are n, m"),
    "attribute": (changed('init = "normal"', 'init = "n.real"'), r"12:\d+: error: 'n.real': 'n.real' is not known here"),
    "call of a call": (changed('init = "normal"', 'init = "normal()()"'), r"12:\d+: error: .* is not known here"),
    "subscript": (changed('init = "normal"', 'init = "arange[0]"'), r"12:\d+: error: .* is not known here"),
    "comparison": (changed('init = "normal"', 'init = "n < 3"'), r"12:\d+: error: .* is not known here"),
    "power": (changed('init = "normal"', 'init = "9 ** 9 ** 9"'), r"12:\d+: error: .* is not known here"),
    "string": (changed('init = "normal"', "init = \"'a' * 3\""), r"12:\d+: error: .* is not known here"),
    "keyword": (changed('init = "normal"', 'init = "normal(mean=1)"'), r"12:\d+: error: .* is not known here"),
    "no expression": (changed('init = "normal"', 'init = "1 +"'), r"12:\d+: error: '1 \+' is no expression"),
    "no TOML": (changed('kernel = "saxpy"', 'kernel = "saxpy'), r"kernel\.cu:5:\d+: error: the launch .* is no TOML: Illegal"),
    "no kernel": (changed('kernel = "saxpy"\n', ""), r"4:\d+: error: 'kernel' is missing"),
    "no block": (changed("block = [256]\n", ""), r"4:\d+: error: 'block' is missing"),
    "four axes": (changed("block = [256]", "block = [1, 1, 1, 1]"), r"8:1: error: 'block' has one to three entries"),
    "kernel is a number": (changed('kernel = "saxpy"', "kernel = 3"), r"5:1: error: 'kernel' has to be a string, not 3"),
    "unknown key": (changed("block = [256]", "block = [256]\nstream = 0"), r"9:1: error: 'stream' is not known here"),
    "unknown key of an argument": (changed("value = 1.5,", "value = 1.5, kind = 0,"), r"11:19: error: 'kind' is not known here"),
    "unknown key of the file": (changed('title = "y', 'name = 3\ntitle = "y'), r"3:1: error: 'name' is not known here"),
    "shape without init": (changed(', init = "normal"', ""), r"12:1: error: 'init' is missing"),
    "active is a number": (changed("value = 1.5, active = true", "value = 1.5, active = 1"), r"11:19: error: 'active' has to be a true"),
    "size of the benchmark": (changed("sizes = {n = 4096}", "sizes = {k = 4096}"), r"15:10: error: 'k = 4096' is not one of"),
    "list in an expression": (changed("block = [256]", "block = [[256]]"), r"8:1: error: a number or an expression in quotes belongs here"),
    "size from a later one": (changed('{n = 1000, m = "2 * n"}', '{m = "2 * n", n = 1000}'), r"6:10: error: .*the name 'n' is not known"),
    "no header": ("__global__ void f() {}\n", r"kernel\.cu:1:1: error: no launch description"),
}  # fmt: skip


@pytest.mark.parametrize("text, message", REFUSED.values(), ids=REFUSED)
def test_headers_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(GpuadError, match=message):
        read(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('n = {value = "n"}', "k = {value = 3}", "'saxpy' has a parameter 'n' that the header does not mention"),
        ("a = {value = 1.5, active = true}", "a = {value = 1}\nb = {value = 1}", "'saxpy' has no parameter 'b'; it has n, a, x, y"),
        ("integers(0, n)", "normal", "'normal' has values that int64, the type of 'y', cannot hold"),
        ("integers(0, n)", "index(2)", r"'index\(2\)' cannot be evaluated"),
        ("integers(0, n)", "integers(1, 0)", r"cannot be evaluated: low >= high"),
        ("integers(0, n)", "1 // 0", "cannot be evaluated: integer division or modulo by zero|cannot be evaluated: division by zero"),
        ("m // 4", "m / 3", "which is no count"),
        ("m // 4", "-n", "'-n' is -1000, which is no count"),
    ],
)
def test_inputs_that_cannot_be_made(old: str, new: str, message: str) -> None:
    with pytest.raises(CaseError, match=message) as caught:
        only(changed(old, new)).arrays(TYPES)
    assert caught.value.file == "kernel.cu"
    assert caught.value.line in (5, 10, 12, 13)


def test_values_that_do_not_fit_their_type() -> None:
    with pytest.raises(CaseError, match="cannot hold"):
        field("300", kind=U8)


def test_the_place_of_an_error_in_the_second_case() -> None:
    second = HEADER[HEADER.index("[[case]]") : HEADER.index("*/")].replace('init = "normal"', 'init = "nothing"')
    with pytest.raises(CaseError) as caught:
        read(HEADER.replace("*/", second + "*/"))
    assert caught.value.line == 25
    assert "nothing" in str(caught.value).splitlines()[1]


def test_a_file_is_known_by_the_path_it_was_read_from(tmp_path: Path) -> None:
    file = tmp_path / "saxpy.cu"
    file.write_text(HEADER)
    assert only(str(file)).file.name == str(file)
    assert only(str(file)).id == "saxpy"
    (found,) = all_cases(tmp_path)
    assert found.file.name == "saxpy.cu"  # what is generated does not depend on where the folder lies


def test_what_ships() -> None:
    files = sorted(file.name for file in kernel_folder().glob("*.cu"))
    cases = all_cases()
    assert len(files) >= 17
    assert sorted({case.file.name for case in cases}) == files
    assert len({case.id for case in cases}) == len(cases)


SHIPPED = all_cases()


@pytest.mark.parametrize("case", SHIPPED, ids=lambda case: case.id)
def test_each_kernel_that_ships_has_a_case_and_a_benchmark(case: Case) -> None:
    kernels = re.findall(r"__global__ void (\w+)\(", case.file.text)
    named = [other.kernel.partition("<")[0] for other in SHIPPED if other.file.name == case.file.name]
    assert kernels == list(dict.fromkeys(named))
    assert case.title
    assert case.active
    assert case.traffic()
    (grid, block, _) = case.geometry(case.benchmark.sizes if case.benchmark else None)
    assert max(grid[1:]) <= 65535
    assert 0 < np.prod(block) <= 1024
    assert max(case.resolve().values(), default=0) <= 1000  # small enough for the reference executor
