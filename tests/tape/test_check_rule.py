"""`gpuad.testing.check_rule`: rules that are right pass, each planted fault is found, and which comparison finds it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Active, Duplicated, GpuadError
from gpuad.testing import check_rule

STATE = {"calls": 0}


def _product_reverse(a: Any, b: Any, da: Any, db: Any, dc: Any) -> None:
    if da is not None:
        da += b * dc
    if db is not None:
        db += a * dc


PRODUCT: dict[str, Any] = {"reads": ("a", "b"), "overwrites": ("c",), "needs": {"a": ("before", "b"), "b": ("before", "a")}}


@gpuad.rule(**PRODUCT, reverse=_product_reverse)
def product(a: Any, b: Any, c: Any) -> None:
    np.multiply(a, b, out=c)


def _square_reverse(x: Any, dx: Any, dx_before: Any) -> None:
    dx_before += 2 * x * dx


@gpuad.rule(reads=("x",), overwrites=("x",), needs={"x": "before"}, reverse=_square_reverse)
def squared(x: Any) -> None:
    x *= x


def _accumulate_reverse(scale: float, x: Any, dscale: Any, dx: Any, dy: Any) -> None:
    if dx is not None:
        dx += scale * dy
    if dscale is not None:
        dscale += (x * dy).sum()


@gpuad.rule(reads=("scale", "x"), adds=("y",), needs={"x": ("before", "scale")}, reverse=_accumulate_reverse)
def accumulate(scale: float, x: Any, y: Any) -> None:
    y += scale * x


def _set_reverse(v: Any, dv: Any, dy: Any) -> None:
    if dv is not None:
        dv += np.cos(v) * dy[::2]
    dy[::2] = 0


@gpuad.rule(reads=("v",), sets=("y",), needs={"v": "before"}, reverse=_set_reverse)
def placed(v: Any, y: Any) -> None:
    y[::2] = np.sin(v)


def _blur_reverse(plan: Any, dx: Any, dy: Any) -> None:
    dx += np.fft.irfft(np.conj(plan[0]) * np.fft.rfft(dy), len(dx))


@gpuad.rule(reads=("x",), overwrites=("y",), reverse=_blur_reverse)
def blur(x: Any, y: Any, plan: Any) -> None:
    y[...] = np.fft.irfft(plan[0] * np.fft.rfft(x), len(x))


A, B, C = np.array([0.5, -1.5, 2.0]), np.array([3.0, 0.25, -2.0]), np.array([7.0, 8.0, 9.0])
PLAN = np.fft.rfft(np.array([0.5, 0.25, 0.0, 0.25]))
RIGHT: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "two inputs": (product, (A, B, C)),
    "in place": (squared, (A,)),
    "added to, with a number": (accumulate, (1.5, A, C)),
    "set": (placed, (A, np.arange(6.0))),
    "a constant in a tuple": (blur, (np.arange(4.0), np.zeros(4), (PLAN,))),
    "complex": (product, (A + 1j, B.astype(complex), C.astype(complex))),
    "annotated": (accumulate, (Active(1.5, np.zeros(())), A, Duplicated(C))),
    "single precision": (squared, (A.astype(np.float32),)),
}


def _conjugate_reverse(a: Any, b: Any, da: Any, db: Any, dc: Any) -> None:
    da += np.conj(b) * dc
    db += np.conj(a) * dc


@gpuad.rule(reads=("a", "b"), overwrites=("c",), needs={"a": "before", "b": "before"}, reverse=_conjugate_reverse)
def complex_product(a: Any, b: Any, c: Any) -> None:
    np.multiply(a, b, out=c)


@pytest.mark.parametrize("name", [n for n in RIGHT if n != "complex"])
def test_rules_that_are_right(name: str) -> None:
    rule, args = RIGHT[name]
    before = [np.array(getattr(x, "primal", x), dtype=object if isinstance(x, tuple) else None, copy=True) for x in args]
    report = check_rule(rule, args)
    assert report.passed and any("Taylor" in c.name for c in report.checks)
    for x, was in zip(args, before, strict=True):
        assert isinstance(x, tuple) or np.array_equal(getattr(x, "primal", x), was)


def test_complex_numbers() -> None:
    args = (A + 1j, B - 2j, C + 0j)
    with pytest.raises(AssertionError, match=r"FAILED Taylor"):
        check_rule(product, args)  # its reverse lacks the conjugates
    complex_product.reverse = _both_reverse
    assert check_rule(complex_product, args).passed


def _both_reverse(a: Any, b: Any, da: Any, db: Any, dc: Any) -> None:
    if da is not None:
        da += np.conj(b) * dc
    if db is not None:
        db += np.conj(a) * dc


# --- planted faults ----------------------------------------------------------------------------------------------------------------------


def _rule(function: Any, reverse: Any = None, **declared: Any) -> Any:
    return gpuad.rule(**{**PRODUCT, **declared}, reverse=reverse)(function)


def _times(a: Any, b: Any, c: Any) -> None:
    np.multiply(a, b, out=c)


def _writes_a_read(a: Any, b: Any, c: Any) -> None:
    np.multiply(a, b, out=c)
    b[0] = 0


def _writes_a_constant(x: Any, y: Any, plan: Any) -> None:
    y[...] = plan[0] * x
    plan[0][0] += 1


def _reads_what_it_overwrites(a: Any, b: Any, c: Any) -> None:
    c[...] = a * b + 0.5 * c


def _leaves_an_element(a: Any, b: Any, c: Any) -> None:
    np.multiply(a[1:], b[1:], out=c[1:])


def _scales_what_it_adds_to(scale: float, x: Any, y: Any) -> None:
    y *= 2
    y += scale * x


def _reads_what_it_sets(v: Any, y: Any) -> None:
    y[::2] = np.sin(v) + y[1::2]


def _another_each_time(a: Any, b: Any, c: Any) -> None:
    STATE["calls"] += 1
    c[...] = a * b + STATE["calls"]


def _assigns(a: Any, b: Any, da: Any, db: Any, dc: Any) -> None:
    if da is not None:
        da[...] = b * dc
    if db is not None:
        db += a * dc


def _forgets_one(a: Any, b: Any, da: Any, dc: Any) -> None:
    if da is not None:
        da += b * dc


def _wrong_factor(a: Any, b: Any, da: Any, db: Any, dc: Any) -> None:
    if da is not None:
        da += b * dc
    if db is not None:
        db += 2 * a * dc


def _wrong_sign(a: Any, b: Any, da: Any, db: Any, dc: Any) -> None:
    if da is not None:
        da -= b * dc
    if db is not None:
        db += a * dc


def _binds_in_steps(a: Any, b: Any, da: Any, db: Any, dc: Any) -> None:
    if da is not None:
        da = da + 0.0
        da += b * dc
    if db is not None:
        db += a * dc


def _asks_for_both(a: Any, b: Any, da: Any, db: Any, dc: Any) -> None:
    da += b * dc
    db += a * dc


def _unsteady(a: Any, b: Any, da: Any, db: Any, dc: Any) -> None:
    STATE["calls"] += 1
    if da is not None:
        da += b * dc + 1e-12 * STATE["calls"]
    if db is not None:
        db += a * dc


def _leaves_what_it_set(v: Any, dv: Any, dy: Any) -> None:
    if dv is not None:
        dv += np.cos(v) * dy[::2]


def _clears_too_much(v: Any, dv: Any, dy: Any) -> None:
    if dv is not None:
        dv += np.cos(v) * dy[::2]
    dy[...] = 0


def _writes_what_it_needs(a: Any, b: Any, da: Any, db: Any, dc: Any) -> None:
    if da is not None:
        b *= dc
        da += b
    if db is not None:
        db += a * dc


def _writes_a_seed_to_be_read(scale: float, x: Any, dscale: Any, dx: Any, dy: Any) -> None:
    dy *= scale
    if dx is not None:
        dx += dy
    if dscale is not None:
        dscale += (x * dy).sum() / scale


def _returns(a: Any, b: Any, da: Any, db: Any, dc: Any) -> Any:
    return b * dc, a * dc


SQUARE: dict[str, Any] = {"reads": ("x",), "overwrites": ("x",)}
ADDING: dict[str, Any] = {"reads": ("scale", "x"), "adds": ("y",), "needs": {"x": ("before", "scale")}}
SETTING: dict[str, Any] = {"reads": ("v",), "sets": ("y",), "needs": {"v": "before"}}


def _square(x: Any) -> None:
    x *= x


def _add(scale: float, x: Any, y: Any) -> None:
    y += scale * x


def _place(v: Any, y: Any) -> None:
    y[::2] = np.sin(v)


def _plain_plan(plan: Any, dx: Any, dy: Any) -> None:
    dx += plan[0] * dy


FAULTS: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "writes what it reads": (_rule(_writes_a_read, _product_reverse), (A, B, C), "`b` is only read"),
    "writes a constant": (
        gpuad.rule(reads=("x",), overwrites=("y",), reverse=_plain_plan)(_writes_a_constant), (A, C, [B]), r"`plan\[0\]` is only read",
    ),
    "reads what it overwrites": (_rule(_reads_what_it_overwrites, _product_reverse), (A, B, C), "`c` is overwritten"),
    "leaves an element": (_rule(_leaves_an_element, _product_reverse), (A, B, C), "`c` is overwritten"),
    "scales what it adds to": (gpuad.rule(**ADDING, reverse=_accumulate_reverse)(_scales_what_it_adds_to), (2.0, A, C), "`y` is added to"),
    "reads what it sets": (gpuad.rule(**SETTING, reverse=_set_reverse)(_reads_what_it_sets), (A, np.arange(6.0)), "`y` is set"),
    "not repeatable": (_rule(_another_each_time, _product_reverse), (A, B, C), "repeatable"),
    "assigns a shadow": (_rule(_times, _assigns), (A, B, C), "adds to `da`|Taylor"),
    "forgets an input": (_rule(_times, _forgets_one), (A, B, C), "Taylor"),
    "a wrong factor": (_rule(_times, _wrong_factor), (A, B, C), "Taylor"),
    "a wrong sign": (_rule(_times, _wrong_sign), (A, B, C), "Taylor"),
    "binds a shadow anew, then adds": (_rule(_times, _binds_in_steps), (A, B, C), "Taylor"),
    "takes it that all are active": (_rule(_times, _asks_for_both), (A, B, C), "fails where `a` alone is active"),
    "needs less than it states": (_rule(_times, _product_reverse, needs={"a": ("before", "a"), "b": "before"}), (A, B, C), "`b` alone"),
    "a reverse that is not repeatable": (_rule(_times, _unsteady), (A, B, C), "the reverse is repeatable|alone"),
    "the other version": (gpuad.rule(**SQUARE, needs={"x": "after"}, reverse=_square_reverse)(_square), (A,), "Taylor"),
    "leaves what was set": (gpuad.rule(**SETTING, reverse=_leaves_what_it_set)(_place), (A, np.arange(6.0)), "Taylor"),
    "clears too much": (gpuad.rule(**SETTING, reverse=_clears_too_much)(_place), (A, np.arange(6.0)), "Taylor"),
    "writes a version": (_rule(_times, _writes_what_it_needs), (A, B, C), "writes to an array that it may only read"),
    "writes a seed": (gpuad.rule(**ADDING, reverse=_writes_a_seed_to_be_read)(_add), (2.0, A, C), "writes to an array that it may"),
    "returns a gradient": (_rule(_times, _returns), (A, B, C), "returns something, which is not used"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str) -> None:
    rule, args, found = FAULTS[fault]
    with pytest.raises((AssertionError, GpuadError)) as error:
        check_rule(rule, args)
    failed = [line for line in str(error.value).splitlines() if "FAILED" in line or not ("WRONG" in line or "ok  " in line)]
    assert re.search(found, "\n".join(failed)), str(error.value)


def test_a_rule_without_a_reverse_is_checked_as_far_as_it_goes() -> None:
    report = check_rule(gpuad.rule(reads=("a", "b"), overwrites=("c",))(_times), (A, B, C))
    assert report.passed and report.notes == ("the rule has no reverse",)
