"""Rules of users: effects, needs, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuad
from gpuad import Active, Const, Duplicated, LaunchError, ShadowError, Tape, TapeError


def _product_reverse(a: Any, b: Any, da: Any, db: Any, dc: Any) -> None:
    if da is not None:
        da += b * dc
    if db is not None:
        db += a * dc


@gpuad.rule(reads=("a", "b"), overwrites=("c",), needs={"a": ("before", "b"), "b": ("before", "a")}, reverse=_product_reverse)
def product(a: Any, b: Any, c: Any) -> None:
    """c = a * b"""
    np.multiply(a, b, out=c)


def _square_reverse(x: Any, dx: Any, dx_before: Any) -> None:
    dx_before += 2 * x * dx


@gpuad.rule(reads=("x",), overwrites=("x",), needs={"x": "before"})
def squared(x: Any) -> None:
    x *= x


squared.reverse = _square_reverse


def _exp_reverse(x: Any, dx: Any, dx_before: Any) -> None:
    dx_before += x * dx


@gpuad.rule(reads=("x",), overwrites=("x",), needs={"x": "after"}, reverse=_exp_reverse)
def exponential(x: Any) -> None:
    np.exp(x, out=x)


def _accumulate_reverse(scale: float, x: Any, dscale: Any, dx: Any, dy: Any) -> None:
    if dx is not None:
        dx += scale * dy
    if dscale is not None:
        dscale += (x * dy).sum()


@gpuad.rule(reads=("scale", "x"), adds=("y",), needs={"x": ("before", "scale")}, reverse=_accumulate_reverse)
def accumulate(scale: float, x: Any, y: Any) -> None:
    y += scale * x


def test_versions_are_handed_over() -> None:
    x = Duplicated(np.array([0.5, 1.5]))
    tape = Tape()
    with tape:
        squared(x)
        exponential(x)
        squared(x)
        x.fill(0)
        x += 1.0
        y = x * 1.0
    assert tape.stats.saved_bytes == 32
    tape.reverse({y: 1.0}, allow_unused=True)
    np.testing.assert_array_equal(x.shadow, [0, 0])
    x.primal[...] = [0.5, 1.5]
    with tape:
        squared(x)
        exponential(x)
        squared(x)
        y = x * 1.0
        x.fill(0)
    tape.reverse({y: 1.0})
    old = np.array([0.5, 1.5])
    np.testing.assert_allclose(x.shadow, 4 * old * np.exp(2 * old**2))


def test_needs_depend_on_activity() -> None:
    a, b, c = (Duplicated(np.full(4, v)) for v in (2.0, 3.0, 0.0))
    tape = Tape()
    with tape:
        product(a, b.primal.copy(), c)
        a.fill(0)
    assert tape.stats.saved_bytes == 0
    tape.reverse({c: 1.0})
    np.testing.assert_array_equal(a.shadow, np.full(4, 3.0))
    a.primal.fill(2)
    with tape:
        product(a, b, c)
        a.fill(0)
    assert tape.stats.saved_bytes == 32


def test_views_and_assembled_versions() -> None:
    x, y = Duplicated(np.arange(1.0, 9.0)), Duplicated(np.zeros(4))
    tape = Tape()
    with tape:
        product(x[::-2], x[::2], y)
        x[2:5] = 0.0
    tape.reverse({y: 1.0})
    old = np.arange(1.0, 9.0)
    expected = np.zeros(8)
    expected[::-2] += old[::2]
    expected[::2] += old[::-2]
    np.testing.assert_array_equal(x.shadow, expected)


def test_active_numbers() -> None:
    x, y, ds = Duplicated(np.array([1.0, 2.0])), Duplicated(np.zeros(2)), np.zeros(())
    tape = Tape()
    with tape:
        accumulate(Active(3.0, ds), x, y)
        accumulate(2.0, x, y)
    tape.reverse({y: 1.0})
    np.testing.assert_array_equal(x.shadow, [5, 5])
    np.testing.assert_array_equal(y.shadow, [1, 1])
    assert ds == 3


def test_outside_of_a_tape() -> None:
    a = np.array([2.0])
    squared(a)
    assert a == 4
    with pytest.raises(TapeError):
        squared(Duplicated(a))


def test_inactive_rules_clear_what_they_overwrite() -> None:
    c = Duplicated(np.ones(2))
    tape = Tape()
    with tape:
        y = c * c
        product(np.ones(2), np.ones(2), c.primal)  # bare, but its memory has a shadow
    tape.reverse({y: 1.0, c: 9.0})
    np.testing.assert_array_equal(c.shadow, [2, 2])


def test_a_shadow_that_turns_up_later() -> None:
    c = np.ones(2)
    tape = Tape()
    with tape:
        product(np.full(2, 3.0), np.ones(2), c)
        y = Duplicated(c) * 2.0
    tape.reverse({y: 1.0}, allow_unused=True)


def test_forgotten_shadows_are_refused() -> None:
    a, b, plain = Duplicated(np.ones(2)), np.ones(2), np.zeros(2)
    with Tape(), pytest.raises(ShadowError, match="no shadow"):
        product(a, b, plain)
    with Tape(), pytest.raises(ShadowError, match="read bare"):
        c = a * 1.0
        product(a.primal, b, c)
    with Tape():
        product(a, b, Const(plain))
        with pytest.raises(ShadowError, match="active data"):
            product(plain, b, np.zeros(2))
    with Tape(), pytest.raises(LaunchError, match="overlaps"):
        product(a, b, a)


def test_statements_that_do_not_fit() -> None:
    with pytest.raises(TypeError, match="no parameter"):
        gpuad.rule(reads=("z",))(lambda x: None)
    with pytest.raises(TypeError, match="only an overwritten one"):
        gpuad.rule(overwrites=("x",), adds=("x",))(lambda x: None)
    with pytest.raises(TypeError, match="module-level"):
        gpuad.rule(reads=("x",), reverse=lambda x: None)(lambda x: None)
    with pytest.raises(TypeError, match="nothing that the rule knows"):
        gpuad.rule(reads=("x",), reverse=_product_reverse)(lambda x: None)


@gpuad.rule(reads=("x",), overwrites=("y",))
def without_reverse(x: Any, y: Any) -> None:
    y[...] = x


def test_a_rule_without_a_reverse() -> None:
    x, y = Duplicated(np.ones(2)), Duplicated(np.zeros(2))
    with Tape(), pytest.raises(ShadowError, match="no reverse"):
        without_reverse(x, y)
    tape = Tape()
    with tape:
        without_reverse(np.full(2, 5.0), y)
    tape.reverse({y: 1.0}, allow_unused=True)
    np.testing.assert_array_equal(y.shadow, [0, 0])


def test_one_shadow_for_two_values() -> None:
    x, y, ds = Duplicated(np.array([1.0, 2.0])), Duplicated(np.zeros(2)), np.zeros(())
    with Tape():
        accumulate(Active(3.0, ds), x, y)
        with pytest.raises(ShadowError, match="one shadow for two values"):
            accumulate(Active(3.0 * 0.5, ds), x, y)


def test_a_shadow_as_argument() -> None:
    x, y = Duplicated(np.ones(2)), Duplicated(np.zeros(2))
    with Tape():
        product(x, np.ones(2), y)
        with pytest.raises(ShadowError, match="is the shadow of another"):
            product(np.ones(2), np.ones(2), x.shadow)


def _copied_reverse(dx: Any, dy: Any, room: Any) -> None:
    if dx is not None:
        half = room(dy.shape, dy.dtype)
        np.multiply(dy, 0.5, out=half)
        dx += half
        dx += half


@gpuad.rule(reads=("x",), overwrites=("y",), reverse=_copied_reverse)
def copied(x: Any, y: Any, room: Any = None) -> None:
    between = room(x.shape, x.dtype)
    between[...] = x
    y[...] = between


def test_room_of_the_tape() -> None:
    x, y, tape = Duplicated(np.arange(6.0).reshape(2, 3)), Duplicated(np.zeros((2, 3))), Tape()
    for _ in range(2):
        x.shadow.fill(0)
        with tape:
            copied(x, y)
            x *= 2.0
        tape.reverse({y: 1.0, x: 1.0})
        np.testing.assert_array_equal(x.shadow, 3.0)
    assert tape.stats.allocations == 0
    copied(x.primal, y.primal)  # outside of a tape the library's own memory
    np.testing.assert_array_equal(y.primal, x.primal)


def test_a_call_made_again_is_judged_again_where_it_matters() -> None:
    """The same line, rule and objects; between the calls a shadow turns up, or active data goes into hidden memory."""
    x, hidden = np.full(3, 2.0), np.zeros(3)
    pairs: list[Any] = [Duplicated(np.ones(3)), Duplicated(np.full(3, 3.0)), Duplicated(np.zeros(3))]

    def multiply() -> None:
        product(pairs[0], x, pairs[2])

    with Tape():
        multiply()
        multiply()
        with pytest.raises(ShadowError, match="used without one"):
            product(Duplicated(x), pairs[1], pairs[2])
        with pytest.raises(ShadowError, match="is read bare"):
            multiply()
    with Tape():
        for k in range(2):
            if k:
                gpuad.ops.exp(pairs[1], out=Const(hidden))
                with pytest.raises(ShadowError, match="depend on active data"):
                    product(pairs[0], hidden, pairs[2])
            else:
                product(pairs[0], hidden, pairs[2])


def test_a_broadcast_pair_is_refused_by_rules() -> None:
    memory, shadow = np.ones(1), np.zeros(1)
    wide = Duplicated(*(np.ndarray((3,), np.float64, a, 0, (0,)) for a in (memory, shadow)))
    with Tape(), pytest.raises(LaunchError, match="same memory"):
        product(wide, np.ones(3), Duplicated(np.zeros(3)))


def test_read_only_arrays_are_refused_before_anything_runs() -> None:
    fixed = np.ones(3)
    fixed.flags.writeable = False
    x, y, tape = Duplicated(np.full(3, 2.0)), Duplicated(np.zeros(3)), Tape()
    with tape:
        with pytest.raises(LaunchError, match="read-only array"):
            product(x, x, Duplicated(fixed))
        with pytest.raises(ShadowError, match="read-only array as shadow"):
            product(Duplicated(np.ones(3), fixed), x, y)
        product(x, fixed, y)
    tape.reverse({y: 1.0})
    np.testing.assert_array_equal(x.shadow, 1.0)


# --- what is declared, and what is done (RULES 28) ---------------------------------------------------------------------------------------


def _linear_reverse(p: Any, dx: Any, dy: Any) -> None:
    dx += p * dy


@gpuad.rule(reads=("x",), overwrites=("y",), reverse=_linear_reverse)
def linear(x: Any, y: Any, p: Any) -> None:
    y[...] = p * x


def _planned_reverse(plan: Any, dx: Any, dy: Any) -> None:
    dx += plan["weights"][0] * plan["scale"] * dy


@gpuad.rule(reads=("x",), overwrites=("y",), reverse=_planned_reverse)
def planned(x: Any, y: Any, plan: Any) -> None:
    y[...] = plan["weights"][0] * plan["scale"] * x


@pytest.mark.parametrize("hide", [lambda p: p, lambda p: (1, [p]), lambda p: {"p": p}])
def test_a_pair_that_the_rule_does_not_list_is_refused(hide: Any) -> None:
    x, y, p = Duplicated(np.ones(2)), Duplicated(np.zeros(2)), Duplicated(np.full(2, 4.0))
    with Tape(), pytest.raises(ShadowError, match=r"of linear is Duplicated, but the rule lists `p` nowhere; .* stop_gradient\(p\)"):
        linear(x, y, hide(p))
    with Tape(), pytest.raises(ShadowError, match="is read bare, but its memory has a shadow"):
        z = p * 2.0
        linear(x, y, p.primal)
        assert z is not None
    tape = Tape()
    with tape:
        linear(x, y, gpuad.stop_gradient(p))
    tape.reverse({y: 1.0})
    np.testing.assert_array_equal(x.shadow, 4.0)


def test_a_pair_that_shows_up_after_it_was_a_constant_is_refused() -> None:
    x, y, p = Duplicated(np.ones(2)), Duplicated(np.zeros(2)), np.full(2, 4.0)
    with Tape(), pytest.raises(ShadowError, match="used without one"):
        linear(x, y, p)
        _ = Duplicated(p) * 2.0


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_constant_that_a_recorded_operation_overwrites(rounds: int) -> None:
    x, y, p, tape = Duplicated(np.ones(2)), Duplicated(np.zeros(2)), np.full(2, 4.0), Tape()
    for k in range(1, rounds + 1):
        p[...] = 4
        with tape:
            linear(x, y, p)
            gpuad.ops.multiply(p, 2.0, out=p)
            y *= 2.0
        tape.reverse({y: 1.0})
        np.testing.assert_array_equal(x.shadow, 8.0 * k)
    assert tape.stats.saved_bytes == 16


def test_constants_inside_of_what_is_passed() -> None:
    """Of a dict, a list and a tuple, which may also be changed later."""
    x, y, p, tape = Duplicated(np.ones(2)), Duplicated(np.zeros(2)), np.full(2, 4.0), Tape()
    plan: dict[str, Any] = {"weights": [p], "scale": 3.0}
    with tape:
        planned(x, y, plan)
        gpuad.ops.multiply(p, 2.0, out=p)
        plan["scale"] = 0.0
        plan["weights"].clear()
    tape.reverse({y: 1.0})
    np.testing.assert_array_equal(x.shadow, 12.0)


def test_a_constant_that_is_no_plain_array_is_refused_where_it_is_overwritten() -> None:
    x, y, p, tape = Duplicated(np.ones(2)), Duplicated(np.zeros(2)), np.ma.masked_array(np.full(2, 4.0)), Tape()
    with tape:
        linear(x, y, p)
    tape.reverse({y: 1.0})
    np.testing.assert_array_equal(x.shadow, 4.0)
    with tape:
        linear(x, y, p)
        gpuad.ops.multiply(p.data, 2.0, out=p.data)
    with pytest.raises(TapeError, match="MaskedArray, was overwritten later in the recording"):
        tape.reverse({y: 1.0})
    np.testing.assert_array_equal(x.shadow, 4.0)


def test_constants_of_a_stored_program(tmp_path: Any) -> None:
    x, y, p, tape = Duplicated(np.ones(2)), Duplicated(np.zeros(2)), np.full(2, 4.0), Tape()
    kept = np.full(2, 0.5)
    with tape:
        linear(x, y, p)
        gpuad.ops.multiply(p, 2.0, out=p)
        linear(y, x, kept)
    tape.save(tmp_path, {"x": x, "y": y, "p": p})
    scope: dict[str, Any] = {"__name__": "stored", "__file__": str(tmp_path / "program.py")}
    exec(compile((tmp_path / "program.py").read_text(), str(tmp_path / "program.py"), "exec"), scope)
    shadows = {"x": np.ones(2), "y": np.zeros(2)}
    scope["reverse"]({"x": x.primal, "y": y.primal, "p": p}, shadows)
    np.testing.assert_array_equal(shadows["x"], 2.0)


def _writes(x: Any, y: Any, p: Any) -> None:
    y[...] = x
    x[0] = 9


def _writes_constant(x: Any, y: Any, p: Any) -> None:
    y[...] = x
    p[0] = 9


@pytest.mark.parametrize("function", [_writes, _writes_constant])
@pytest.mark.parametrize("again", [False, True])
def test_a_rule_that_writes_what_it_reads(function: Any, again: bool) -> None:
    """Found where it stands, also where it does so in a later round only; arrays can be written again afterwards."""
    active = [not again]

    def call(x: Any, y: Any, p: Any) -> None:
        if active[0]:
            function(x, y, p)
        else:
            y[...] = p * x

    rule = gpuad.rule(reads=("x",), overwrites=("y",), reverse=_linear_reverse)(call)
    x, y, p, tape = Duplicated(np.ones(2)), Duplicated(np.zeros(2)), np.full(2, 4.0), Tape()
    for _ in range(2 if again else 0):
        with tape:
            rule(x, y, p)
        tape.reverse({y: 1.0})
    active[0] = True
    with pytest.raises(TapeError, match=r"call \(test_rules.py:\d+\) writes to an array that it may only read"), tape:
        rule(x, y, p)
    assert x.primal.tolist() == [1, 1] and p.tolist() == [4, 4]
    x.primal[0] = p[0] = 2.0


def _through_an_address(x: Any, y: Any) -> None:
    y[...] = x
    np.ndarray(x.shape, x.dtype, np.ctypeslib.as_array((np.ctypeslib.ctypes.c_double * x.size).from_address(x.ctypes.data)))[0] = 9


def test_an_exact_check_compares_what_cannot_be_locked() -> None:
    rule = gpuad.rule(reads=("x",), overwrites=("y",), reverse=_copied_reverse)(_through_an_address)
    x, y = Duplicated(np.ones(2)), Duplicated(np.zeros(2))
    with pytest.raises(TapeError, match="has changed `x`, which it may only read"), Tape(check="exact"):
        rule(x, y)


def _binds(dx: Any, dy: Any) -> None:
    if dx is not None:
        dx = dx + dy


def _returns_it(dx: Any, dy: Any) -> Any:
    dx = dx + dy
    return dx  # noqa: RET504


def _binds_in_a_loop(dx: Any, dy: Any) -> None:
    for _ in range(2):
        dx = dx + dy


def _binds_a_view(dx: Any, dy: Any) -> None:
    dx = dx.reshape(-1)
    dx += dy.reshape(-1)


def _binds_for_a_function(dx: Any, dy: Any) -> None:
    dx = dx[:]

    def add() -> None:
        np.add(dx, dy, out=dx)

    add()


def _writes_its_seed(dx: Any, dy: Any) -> None:
    dy *= 2
    dx += dy


def _hands_back(dx: Any, dy: Any) -> Any:
    return dx + dy


def test_a_reverse_that_binds_its_shadow_anew() -> None:
    for reverse in (_binds, _returns_it):
        with pytest.raises(TypeError, match=r"binds `dx` anew, so the gradient is lost: .* \(`dx \+= ...`\)"):
            gpuad.rule(reads=("x",), adds=("y",), reverse=reverse)(lambda x, y: None)
    for reverse in (_binds_a_view, _binds_for_a_function):
        gpuad.rule(reads=("x",), adds=("y",), reverse=reverse)(lambda x, y: None)
    gpuad.rule(reads=("x",), adds=("y",), reverse=_binds_in_a_loop)(lambda x, y: None)  # check_rule finds it


@pytest.mark.parametrize("reverse", [_writes_its_seed, _hands_back])
def test_a_reverse_that_does_what_nobody_sees(reverse: Any) -> None:
    rule = gpuad.rule(reads=("x",), adds=("y",), reverse=reverse)(lambda x, y: np.add(y, x, out=y))
    x, y, tape = Duplicated(np.ones(2)), Duplicated(np.zeros(2)), Tape()
    with tape:
        rule(x, y)
    with pytest.raises(TapeError, match=r"the reverse of <lambda> \(test_rules.py:\d+\) (writes to|returns something)"):
        tape.reverse({y: 1.0})


def _writes_its_version(x: Any, dx: Any, dy: Any) -> None:
    x[...] = 2.0
    dx += dy


def _half_square(x: Any, y: Any) -> None:
    y[...] = x * x


def test_arrays_of_cupy_are_compared(cupy: Any) -> None:
    """They cannot be locked: in a call that is new, and in a reverse that runs for the first time."""
    x, y, p = (Duplicated(cupy.asarray(np.full(2, v)), cupy.zeros(2)) for v in (1.0, 0.0, 4.0))
    for function, name in ((_writes, "x"), (_writes_constant, "p")):
        rule = gpuad.rule(reads=("x",), overwrites=("y",), reverse=_linear_reverse)(function)
        with pytest.raises(TapeError, match=f"has changed `{name}`, which it may only read"), Tape():
            rule(x, y, p.primal)
    rule = gpuad.rule(reads=("x",), overwrites=("y",), needs={"x": "before"}, reverse=_writes_its_version)(_half_square)
    tape = Tape()
    with tape:
        rule(x, y)
    with pytest.raises(TapeError, match=r"the reverse of _?half_square .* has changed `x`"):
        tape.reverse({y: 1.0})
