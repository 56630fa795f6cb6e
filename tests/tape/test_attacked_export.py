"""Found by attacks on stored programs, wrappers, typed views of bytes and control flow."""

from __future__ import annotations

import enum
import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from test_save import launched, loaded, pair, same_bits, weights

import gpuad
from gpuad import Active, Duplicated
from gpuad.errors import TapeError

# --- stored programs: a function is what its text says -----------------------------------------------------------------------------------

FACTOR = 2.0


def _plain(dx: Any, dy: Any) -> None:
    dx += dy


@functools.wraps(_plain)
def _wrapping(dx: Any, dy: Any) -> None:
    dx += 2.0 * dy


def _renamed(dx: Any, dy: Any) -> None:
    dx += 3.0 * dy


functools.update_wrapper(_renamed, _plain)


def _times(dy: Any, factor: float = FACTOR) -> Any:
    return factor * dy


FACTOR = 5.0  # the default has been worked out before


def _with_a_default(dx: Any, dy: Any) -> None:
    dx += FACTOR / 5.0 * _times(dy)


def _twice(dy: Any, *, factor: float = 2.0) -> Any:
    return factor * dy


_twice.__kwdefaults__["factor"] = 3.0  # type: ignore[index]


def _with_a_changed_default(dx: Any, dy: Any) -> None:
    dx += _twice(dy)


def sum(a: Any, b: Any) -> Any:
    return a + b


def _with_a_name_of_pythons(dx: Any, dy: Any) -> None:
    dx += sum(dy, dy)


class _Strange(float):
    def __mul__(self, other: Any) -> Any:
        return 10.0 * other


SCALE = _Strange(2.0)


def _with_a_strange_number(dx: Any, dy: Any) -> None:
    dx += SCALE * dy


@pytest.mark.parametrize(
    ("reverse", "message"),
    [
        (_wrapping, "not a plain `def`"),
        (_renamed, "not what its text says"),
        (_with_a_default, "a default of `_times`"),
        (_with_a_changed_default, "a default of `_twice`"),
        (_with_a_name_of_pythons, "`sum`.* is a name of Python's own"),
        (_with_a_strange_number, "a _Strange that cannot be written down"),
    ],
)
def test_what_is_not_as_its_text_says_is_not_stored(tmp_path: Path, reverse: Any, message: str) -> None:
    """The text of another function was stored, or what a default says now, or a function under whose name the other reverses mean Python's
    own: a stored program with another gradient."""

    def function(x: Any, y: Any) -> None:
        y[...] = x

    rule = gpuad.rule(reads=("x",), overwrites=("y",), reverse=reverse)(function)
    x, y, tape = pair(10, 1), pair(10, 2), gpuad.Tape()
    with tape:
        rule(x, y)
    with pytest.raises(TapeError, match=message):
        tape.save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_file_that_was_edited_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is read when the program is stored; what runs was read when the module was imported."""
    text = "def doubled_reverse(dx, dy):\n    dx += 2 * dy\n"
    (tmp_path / "edited_module.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import edited_module  # type: ignore[import-not-found]

    (tmp_path / "edited_module.py").write_text(text.replace("2", "3 "))
    rule = gpuad.rule(reads=("x",), overwrites=("y",), reverse=edited_module.doubled_reverse)(lambda x, y: None)
    x, y, tape = pair(10, 1), pair(10, 2), gpuad.Tape()
    with tape:
        rule(x, y)
    with pytest.raises(TapeError, match="not what its text says"):
        tape.save(tmp_path / "new")


def test_operands_without_elements_are_stored(tmp_path: Path) -> None:
    """Memory of no size was looked for at an address that was new each time: a KeyError."""
    a, b = (Duplicated(np.zeros(shape), np.zeros(shape)) for shape in ((4, 0), (0, 4)))
    c, x = pair((4, 4), 3), pair((4, 4), 4)
    tape = gpuad.Tape()
    with tape:
        gpuad.ops.matmul(a, b, out=c)
        c += np.exp(x)
        x *= c
    same_bits(tmp_path, tape, {"c": c, "x": x}, {}, {"c": weights((4, 4)), "x": weights((4, 4))})


_NUMBERS = r"""
extern "C" __global__ void scaled(double* x, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = sin(a * x[i]);
}
"""


@pytest.mark.cpu
def test_shadows_of_numbers_are_named_in_the_order_of_the_program(tmp_path: Path) -> None:
    """They were counted from the last launch on, and a temporary of that name moved all of them on."""
    kernel, x, tape = gpuad.kernel(_NUMBERS, "scaled"), pair(20, 1), gpuad.Tape()
    shadows = [np.zeros(()) for _ in range(3)]
    with tape:
        for k, shadow in enumerate(shadows):
            kernel[1, 32](x, Active(0.5 + k, shadow), 20)
            x += x * 0.5  # makes a temporary `a`
    tape.save(tmp_path, {"x": x})
    program = json.loads((tmp_path / "program.json").read_text())
    names = [s["name"] for s in program["shadows"] if not s["own"]]
    assert names == ["x", "a", "a_2", "a_3"]
    np.savez(tmp_path / "arrays.npz", x=x.primal)
    np.savez(tmp_path / "shadows.npz", x=np.ones(20), **dict.fromkeys(names[1:], np.zeros(())))
    x.shadow[...] = 1
    assert launched(tmp_path).returncode == 0
    tape.reverse()
    found = np.load(tmp_path / "result.npz")
    assert [float(found[f"shadow {n}"]) for n in names[1:]] == [float(s) for s in shadows]
    assert len({float(s) for s in shadows}) == 3


@pytest.mark.cpu
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_come_in_the_order_of_the_recording(tmp_path: Path, order: Any) -> None:
    """A shadow in the other order was taken by its bytes: the gradient of an element was that of another one."""
    x, y = (Duplicated(np.array(weights((3, 4), k), order=order)) for k in (1, 2))
    tape = gpuad.Tape()
    with tape:
        y *= np.exp(x)
        y -= y.T.reshape(-1)[:1] if order == "F" else y.reshape(-1)[:1]
    tape.save(tmp_path, {"x": x, "y": y})
    program, arrays, seed = loaded(tmp_path), {"x": x.primal, "y": y.primal}, weights((3, 4), 5)
    tape.reverse({y: seed})
    for how in (order, "flat"):
        shadows = {n: np.zeros((3, 4), order=order) if how == order else np.zeros(12) for n in "xy"}
        program.clear(arrays, shadows)
        shadows["y"][...] = seed if how == order else seed.ravel("K" if order == "C" else "F")
        program.reverse(arrays, shadows)
        got = shadows["x"] if how == order else shadows["x"].reshape((3, 4), order=order)
        assert got.tobytes() == x.shadow.tobytes()
    other = "F" if order == "C" else "C"
    with pytest.raises(program.StoredError, match=f"shadow `x` is in {other} order"):
        program.reverse(arrays, {n: np.zeros((3, 4), order=other) for n in "xy"})
    arrays["x"] = np.array(x.primal, order=other)
    with pytest.raises(program.StoredError, match=f"array `x` is in {other} order"):
        program.reverse(arrays, {n: np.zeros((3, 4), order=order) for n in "xy"})


def _put_reverse(dv: Any, dx: Any, where: Any) -> None:
    dv += dx[where].sum()
    dx[where] = 0


@gpuad.rule(reads=("v",), sets=("x",), reverse=_put_reverse)
def put_number(x: Any, v: Any, where: Any) -> None:
    x[where] = v


@pytest.mark.one_of(2)
@pytest.mark.parametrize("where", [[0, 2], (0, 2), [(0, 1), [2, 2]], ([0, 1], [2, 2])])
def test_lists_stay_lists(tmp_path: Path, where: Any) -> None:
    """A list of rows became a tuple, which names one element."""
    x, v, tape = pair((3, 4), 1), pair((), 2), gpuad.Tape()
    with tape:
        put_number(x, v, where if isinstance(where, tuple) else list(where))
        x *= 2.0
    same_bits(tmp_path, tape, {"x": x, "v": v}, {}, {"x": weights((3, 4))})
    assert v.shadow != 0


class _Way(enum.IntEnum):
    ONE = 1


class _Row(NamedTuple):
    number: int


@pytest.mark.parametrize("where", [_Way.ONE, _Row(1), np.ma.masked_array([0, 1], [True, False]), [_Way.ONE]])
def test_values_that_look_like_others_are_not_stored(tmp_path: Path, where: Any) -> None:
    """What such a value means beyond its number was lost."""
    x, v, tape = pair((3, 4), 1), pair((), 2), gpuad.Tape()
    with tape:
        put_number(x, v, where)
    with pytest.raises(TapeError, match=r"is given `where`, a (_Way|_Row|MaskedArray)"):
        tape.save(tmp_path / "new")
