"""The lowering of surface trees to core IR: what each construct becomes, and what is refused where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launch_tools import CASES
from surface_tools import (
    E,
    Interpreter,
    atomic,
    break_,
    call,
    cond,
    const,
    continue_,
    declare,
    do_,
    for_,
    function,
    if_,
    launch,
    pointer,
    return_,
    span,
    var,
    while_,
)

from gpuad.errors import UnsupportedError
from gpuad.frontend.cuda import parse
from gpuad.ir import surface
from gpuad.ir.nodes import Accumulate, For, How, If, Kernel, Load, Stmt, Store, Var, While
from gpuad.ir.printer import to_text
from gpuad.ir.rewrite import walk_stmts
from gpuad.ir.types import BOOL, F32, F64, I32, I64, U8, U32, Array, Pointer, Vector
from gpuad.ir.verify import verify
from gpuad.lower.normalize import Aliases, normalize
from gpuad.runtime.base import Memory
from gpuad.runtime.reference import Reference
from gpuad.tools.cases import Case


class Names:
    """Fresh variables of the usual names."""

    def __init__(self) -> None:
        self.x, self.y, self.z = pointer("x"), pointer("y"), pointer("z", I32)
        self.n, self.i, self.j, self.k = var("n"), var("i"), var("j"), var("k")
        self.u, self.long = var("u", U32), var("l", I64)
        self.s, self.t, self.a = var("s", F32), var("t", F32), var("a", F32)
        self.p, self.q, self.m = pointer("p"), pointer("q"), var("m", Array(F32, 4))


@pytest.fixture
def v() -> Names:
    return Names()


def lower(v: Names, *body: Any, aliases: Aliases | None = None) -> Kernel:
    kernel = normalize(function("k", [v.x, v.y, v.z, v.n, v.a], list(body)), aliases or Aliases())
    verify(kernel)
    return kernel


def body_text(kernel: Kernel) -> str:
    lines = to_text(kernel).splitlines()[1:]
    return "\n".join(line[2:] for line in lines)


def kinds(kernel: Kernel) -> list[type[Stmt]]:
    return [type(s) for s in walk_stmts(kernel.body)]


def runs_like_c(v: Names, *body: Any, n: int = 3, a: float = 2.0) -> Kernel:
    """Lowers, runs both, compares all memory."""
    tree = function("k", [v.x, v.y, v.z, v.n, v.a], list(body))
    kernel = normalize(tree)
    verify(kernel)
    arrays = [np.arange(8, dtype=np.float32), np.arange(8, dtype=np.float32) * 10, np.arange(8, dtype=np.int32) + 1]
    lists = [array.tolist() for array in arrays]
    index = {(name, axis): int(name.endswith("Dim")) for name in ("threadIdx", "blockIdx", "blockDim", "gridDim") for axis in "xyz"}
    Interpreter(index).run(tree, [*((values, 0) for values in lists), n, a])
    Reference().launch(kernel, (1, 1, 1), (1, 1, 1), [*map(Memory, arrays), np.int32(n), np.float32(a)])
    assert [array.tolist() for array in arrays] == lists, to_text(kernel)
    return kernel


# --- scalars and names ---


def test_early_return_becomes_a_guard(v: Names) -> None:
    index = (launch("blockIdx") * launch("blockDim") + launch("threadIdx")).to(I32)
    kernel = lower(v, declare(v.i, index), if_(v.i >= v.n, return_()), v.x[v.i].set(v.x[v.i] * v.a))
    assert body_text(kernel) == (
        "int32 i = int32(blockIdx.x * blockDim.x + threadIdx.x)\nif i < n:\n  float32 x.2 = load x[i]\n  x[i] = x.2 * a"
    )


def test_guards_with_or_are_turned_by_de_morgan(v: Names) -> None:
    kernel = lower(v, if_((v.n < 1) | (v.n > 9), return_()), v.x[0].set(1.0))
    assert body_text(kernel) == "if n >= 1 && n <= 9:\n  x[0] = 1.0:float32"


def test_float_comparison_is_not_turned(v: Names) -> None:
    assert body_text(lower(v, if_(v.a < 0.0, return_()), v.x[0].set(1.0))).startswith("if !(a < 0.0:float32):")


def test_a_load_takes_the_name_of_what_it_initialises(v: Names) -> None:
    kernel = lower(v, declare(v.s, v.x[0]), v.y[0].set(v.s * v.x[1]))
    assert [s.var.name for s in kernel.body if isinstance(s, Load)] == ["s", "x"]


def test_trivial_copies_vanish_and_trees_stay_whole(v: Names) -> None:
    kernel = lower(v, declare(v.s, v.a), declare(v.t, v.s + v.a - v.s * 4.0), v.y[0].set(v.t))
    assert body_text(kernel) == "float32 t = a + a - a * 4.0:float32\ny[0] = t"


def test_dead_code_is_removed(v: Names) -> None:
    assert lower(v, declare(v.s, v.x[0]), if_(v.n > 0, v.s.set(1.0))).body == ()


def test_spans_are_the_users(v: Names) -> None:
    store = v.x[0].set(1.0)
    assert lower(v, store).body[0].span == store.tree.span


def test_lowering_is_deterministic() -> None:
    def text() -> str:
        v = Names()
        return to_text(
            lower(
                v, for_(declare(v.j, 0), v.j < v.n, v.j.inc(), [if_(v.x[v.j] > 0.0, break_()), v.a.update("+", v.x[v.j])]), v.y[0].set(v.a)
            )
        )

    assert text() == text()


# --- accumulation ---


@pytest.mark.parametrize(
    "statement",
    [
        lambda v: v.y[v.n].update("+", v.a),
        lambda v: v.y[v.n].set(v.y[v.n] + v.a),
        lambda v: v.y[v.n].set(v.a + v.y[v.n]),
    ],
)
def test_addition_to_memory_is_an_accumulate(v: Names, statement: Any) -> None:
    (stmt,) = lower(v, statement(v)).body
    assert isinstance(stmt, Accumulate) and stmt.how is How.PLAIN and stmt.value == lower(v).scalars[1]


def test_subtraction_adds_the_negative(v: Names) -> None:
    assert body_text(lower(v, v.y[0].update("-", v.a))) == "y[0] += -a  (plain)"
    assert body_text(lower(v, v.y[0].set(v.y[0] - v.a))) == "y[0] += -a  (plain)"


@pytest.mark.parametrize(
    "statement",
    [
        lambda v: v.y[0].update("*", v.a),
        lambda v: v.y[0].set(v.a - v.y[0]),
        lambda v: v.y[0].set(v.y[1] + v.a),
        lambda v: v.x[0].set(v.y[0] + v.a),
        lambda v: v.z[0].update("+", 1),
        lambda v: v.y[0].update("+", const(1.0, F64), F64),
        lambda v: v.a.set(v.y[0].update("+", v.a)),
    ],
)
def test_what_is_no_accumulate(v: Names, statement: Any) -> None:
    assert Accumulate not in kinds(lower(v, statement(v), v.x[1].set(v.a)))


def test_no_accumulate_across_a_write(v: Names) -> None:
    helper = function("touch", [v.p], [v.p[0].set(5.0), return_(const(1.0, F32))], F32)
    runs_like_c(v, v.y[0].set(v.y[0] + call(helper, v.y)))


def test_no_accumulate_if_the_old_content_is_used_again(v: Names) -> None:
    old = v.t.set(v.y[0])
    assert Accumulate not in kinds(runs_like_c(v, declare(v.t, 0.0), v.y[0].set(old + v.a), v.y[1].set(v.t)))


def test_both_reads_of_one_element(v: Names) -> None:
    kernel = runs_like_c(v, v.y[1].update("+", v.y[1] * 2.0))
    assert kinds(kernel) == [Load, Accumulate]


# --- atomics ---


def test_atomics(v: Names) -> None:
    i = var("i")
    kernel = lower(
        v,
        atomic("add", v.y, v.a),
        atomic("sub", v.z, 1),
        declare(i, atomic("add", v.z, 1)),
        atomic("max", v.z + 1, i),
        atomic("cas", v.z + 2, 1, 2),
    )
    assert body_text(kernel) == (
        "y[0] += a  (atomic)\nz[0] += -1  (atomic)\nint32 i = atomic_add z[0] (1)\natomic_max z[1] (i)\natomic_cas z[2] (1, 2)"
    )


def test_an_unused_result_of_an_atomic_is_dropped(v: Names) -> None:
    kernel = lower(v, declare(v.s, atomic("add", v.y, v.a)), declare(v.i, atomic("max", v.z, 1)))
    assert body_text(kernel) == "y[0] += a  (atomic)\natomic_max z[0] (1)"


def test_atomic_on_a_variable_is_refused(v: Names) -> None:
    refuses("belongs to one thread", v, atomic("add", v.a.address, 1.0))


# --- branches ---


def test_short_circuit_guards_loads(v: Names) -> None:
    kernel = lower(v, if_((v.n > 0) & (v.x[v.n - 1] > 0.0), v.y[0].set(1.0)))
    first = kernel.body[0]
    assert isinstance(first, If) and isinstance(first.then[0], Load) and len(first.merges) == 1


def test_pure_sides_become_expressions(v: Names) -> None:
    assert kinds(lower(v, v.y[0].set(cond((v.n > 0) & (v.n < 9), v.a, v.a * 2.0)))) == [Store]


def test_division_by_something_unknown_is_guarded(v: Names) -> None:
    assert If in kinds(runs_like_c(v, v.z[0].set(cond(v.n.ne(0), const(7) / v.n, 0)), n=0))
    assert If not in kinds(lower(v, v.z[0].set(cond(v.n.ne(0), v.n / 2, 0))))


def test_merges_only_what_differs(v: Names) -> None:
    kernel = lower(v, declare(v.s, 1.0), declare(v.t, 2.0), if_(v.n > 0, [v.s.set(v.x[0]), v.t.set(2.0)]), v.y[0].set(v.s + v.t))
    branch = kernel.body[0]
    assert isinstance(branch, If) and [m.var.name for m in branch.merges] == ["s"]


def test_known_conditions_choose(v: Names) -> None:
    assert kinds(lower(v, declare(v.i, 3), if_(v.i.eq(3), v.x[0].set(1.0), v.x[1].set(1.0)))) == [Store]


def test_exit_from_inside_sets_a_flag(v: Names) -> None:
    kernel = runs_like_c(v, if_(v.n > 0, [v.x[0].set(9.0), if_(v.x[1] > 0.0, return_()), v.x[1].set(7.0)]), v.x[2].set(5.0))
    assert "returned" in to_text(kernel)


# --- loops ---


def loop(v: Names, test: E, step: E, *body: Any, start: Any = 0, j: E | None = None) -> list[Any]:
    return [for_(declare(j or v.j, start), test, step, list(body) or [v.z[0].update("+", (j or v.j).to(I32))])]


COUNTED = {
    "<": lambda v: loop(v, v.j < v.n, v.j.inc()),
    "flipped": lambda v: loop(v, v.n > v.j, v.j.inc()),
    "<=": lambda v: loop(v, v.j <= v.n, v.j.inc(prefix=False)),
    "by two": lambda v: loop(v, v.j < v.n, v.j.update("+", 2)),
    "j = j + 2": lambda v: loop(v, v.j < v.n, v.j.set(v.j + 2)),
    "j = 2 + j": lambda v: loop(v, v.j < v.n, v.j.set(const(2) + v.j)),
    "down": lambda v: loop(v, v.j > 0, v.j.inc("-"), start=v.n),
    "down to": lambda v: loop(v, v.j >= 0, v.j.update("-", 2), start=v.n),
    "add negative": lambda v: loop(v, v.j >= 0, v.j.update("+", -1), start=v.n),
    "grid stride": lambda v: loop(v, v.j < v.n, v.j.update("+", launch("blockDim") * launch("gridDim"), U32)),
    "unsigned": lambda v: loop(v, v.u < v.n.to(U32), v.u.inc(), j=v.u),
    "unsigned comparison": lambda v: loop(v, v.j.to(U32) < v.n.to(U32), v.j.inc()),
    "wide comparison": lambda v: loop(v, v.j.to(I64) < v.n.to(I64), v.j.inc()),
    "bound from memory": lambda v: loop(v, v.j < v.z[1], v.j.inc(), v.y[0].update("+", 1.0)),
    "continue": lambda v: loop(v, v.j < v.n, v.j.inc(), if_(v.x[v.j] > 1.0, continue_()), v.z[0].update("+", 1)),
    "no iteration": lambda v: loop(v, v.j < v.n, v.j.inc(), start=9),
    "step set inside": lambda v: loop(v, v.j < 7, v.j.update("+", v.n), v.n.set(2), v.z[0].update("+", v.j)),
    "doubling to a constant": lambda v: loop(v, v.j < 8, v.j.update("*", 2), start=1),
    "while": lambda v: [declare(v.j, 0), while_(v.j < v.n, [v.z[0].update("+", v.j), v.j.inc()]), v.z[1].set(v.j)],
    "while, in steps": lambda v: [declare(v.j, 1), while_(v.j < v.n, [v.z[0].update("+", v.j), v.j.update("+", 3)]), v.z[1].set(v.j)],
    "while, by a name": lambda v: [declare(v.i, 2), declare(v.j, 1), while_(v.j < v.n, [v.z[0].update("+", v.j), v.j.update("+", v.i)])],
    "while of whiles": lambda v: [
        declare(v.j, 0),
        while_(v.j < v.n, [declare(v.i, 0), while_(v.i < v.j, [v.z[0].update("+", v.i), v.i.inc()]), v.j.inc()]),
    ],
    "while around a continue": lambda v: [
        declare(v.j, 0),
        while_(v.j < v.n, [for_(declare(v.i, 0), v.i < 3, v.i.inc(), [if_(v.i.eq(v.j), continue_()), v.z[0].inc()]), v.j.inc()]),
    ],
}
NOT_COUNTED = {
    "while with a continue": lambda v: [
        declare(v.j, 0),
        while_(v.j < v.n, [if_(v.x[v.j] > 1.0, [v.j.update("+", 2), continue_()]), v.z[0].update("+", v.j), v.j.inc()]),
    ],
    "while by what is made inside": lambda v: [
        declare(v.j, 0),
        while_(v.j < v.n, [declare(v.i, v.j + 1), v.z[0].update("+", v.j), v.j.update("+", v.i)]),
    ],
    "while that moves twice": lambda v: [declare(v.j, 0), while_(v.j < v.n, [v.j.inc(), v.z[0].update("+", v.j), v.j.inc()])],
    "while with a break": lambda v: [declare(v.j, 0), while_(v.j < v.n, [if_(v.x[v.j] > 0.0, break_()), v.z[0].inc(), v.j.inc()])],
    "!=": lambda v: loop(v, v.j.ne(v.n), v.j.inc()),
    "moved inside": lambda v: loop(v, v.j < v.n, v.j.inc(), v.j.update("+", 1), v.z[0].update("+", v.j)),
    "moved by pointer": lambda v: loop(v, v.j < v.n, v.j.inc(), v.j.address.deref.update("+", 1), v.z[0].update("+", v.j)),
    "bound moved": lambda v: loop(v, v.j < v.n, v.j.inc(), if_(v.n < 6, v.n.inc()), v.z[0].update("+", v.j)),
    "bound overwritten": lambda v: loop(v, v.j < v.z[1], v.j.inc(), v.z[v.j].set(0), v.y[0].update("+", 1.0)),
    "break": lambda v: loop(v, v.j < v.n, v.j.inc(), if_(v.x[v.j] > 0.0, break_()), v.z[0].update("+", 1)),
    "return": lambda v: loop(v, v.j < v.n, v.j.inc(), if_(v.x[v.j] > 0.0, return_()), v.z[0].update("+", 1)),
    "unsigned down": lambda v: loop(v, v.u > 0, v.u.inc("-"), start=v.n.to(U32), j=v.u),
    "unsigned wraps out": lambda v: loop(v, v.u < 9, v.u.inc("-"), start=v.n.to(U32), j=v.u),
    "unsigned plus -1": lambda v: loop(v, v.u < 9, v.u.update("+", const(-1).to(U32)), start=v.n.to(U32), j=v.u),
    "signed down, unsigned comparison": lambda v: loop(v, v.j.to(U32) > const(0, U32), v.j.inc("-"), start=v.n),
    "unknown step down": lambda v: loop(v, v.j > 0, v.j.update("-", v.n), start=5),
    "step moves": lambda v: loop(v, v.j < 7, v.j.update("+", v.n), v.n.update("*", 2), v.z[0].update("+", v.j)),
    "doubling": lambda v: loop(v, v.j < v.n, v.j.update("*", 2), start=1),
    "bound with effect": lambda v: loop(v, v.j < v.n.inc("-"), v.j.inc()),
    "narrow": lambda v: loop(v, v.j.to(U8) < v.n.to(U8), v.j.inc()),
}


@pytest.mark.parametrize("case", COUNTED)
def test_counted_loops_become_for(v: Names, case: str) -> None:
    found = kinds(runs_like_c(v, *COUNTED[case](v)))
    assert For in found and While not in found


@pytest.mark.parametrize("case", NOT_COUNTED)
def test_other_loops_become_while(v: Names, case: str) -> None:
    found = kinds(runs_like_c(v, *NOT_COUNTED[case](v)))
    assert While in found and For not in found


@pytest.mark.parametrize("n", [-2, 0, 5])
def test_loop_variable_after_the_loop(v: Names, n: int) -> None:
    runs_like_c(v, declare(v.j), for_(v.j.set(1), v.j < v.n, v.j.update("+", 3), v.y[v.j].set(0.0)), v.z[0].set(v.j), n=n)


def test_negative_start_compared_unsigned(v: Names) -> None:
    runs_like_c(v, declare(v.j, -2), for_(None, v.j.to(U32) < const(4, U32), v.j.inc(), v.z[0].inc()), v.z[1].set(v.j))


def test_while_has_a_header_of_loads(v: Names) -> None:
    kernel = runs_like_c(v, declare(v.i, 0), while_(v.x[v.i] < 4.0, v.i.inc()), v.z[0].set(v.i))
    (loop_,) = [s for s in walk_stmts(kernel.body) if isinstance(s, While)]
    assert [type(s) for s in loop_.header] == [Load]
    assert loop_.counter is not None and loop_.count is not None and loop_.counter.type == loop_.count.type == I32


@pytest.mark.parametrize(
    "body",
    [
        lambda v: while_(v.n.inc("-", False) > 0, v.z[0].update("+", v.n)),
        lambda v: while_((v.n < 7) & (v.x[v.n] < 5.0), v.n.inc()),
        lambda v: while_((v.n < 7) | (v.x[v.n - 7] > 5.0), v.n.inc()),
        lambda v: do_([v.n.inc(), if_(v.n.eq(5), continue_()), v.z[1].update("+", v.n)], v.n < 7),
        lambda v: do_([if_(v.n > 4, break_()), v.n.inc()], const(True, (v.n < 0).type)),
        lambda v: for_(None, None, v.n.inc(), [if_(v.n > 6, break_()), v.z[0].update("+", v.n)]),
        lambda v: for_(None, v.x[v.n] < 100.0, v.n.inc(), if_(v.n.eq(7), break_())),
        lambda v: while_(v.i.set(v.z[v.n]) < 7, v.n.set(v.i)),
    ],
)
def test_odd_loops(v: Names, body: Any) -> None:
    runs_like_c(v, declare(v.i, 0), body(v), v.z[2].set(v.n + v.i * 10))


def test_return_out_of_nested_loops(v: Names) -> None:
    inner = for_(declare(v.k, 0), v.k < 3, v.k.inc(), [if_((v.j * 3 + v.k).eq(4), return_()), v.z[0].update("+", 1)])
    runs_like_c(v, for_(declare(v.j, 0), v.j < 3, v.j.inc(), inner), v.z[1].set(99))


def test_carried_values_have_the_users_names(v: Names) -> None:
    kernel = lower(v, declare(v.s, 0.0), *loop(v, v.j < v.n, v.j.inc(), v.s.update("+", v.x[v.j])), v.y[0].set(v.s))
    (loop_,) = [s for s in kernel.body if isinstance(s, For)]
    assert [(c.var.name, c.result.name) for c in loop_.carried] == [("s", "s")]


def test_a_loop_starts_where_the_user_says(v: Names) -> None:
    kernel = lower(v, *loop(v, v.j < v.n, v.j.inc(), v.x[v.j].set(0.0), start=-v.n))
    assert body_text(kernel) == "for int32 j in range(-n, n, 1):\n  x[j] = 0.0:float32"


def test_locals_of_the_body_are_not_carried(v: Names) -> None:
    kernel = lower(v, declare(v.t), *loop(v, v.j < v.n, v.j.inc(), v.t.set(v.x[v.j]), v.y[v.j].set(v.t * v.t)))
    assert [s.carried for s in kernel.body if isinstance(s, For)] == [()]


# --- helpers ---


def test_helper_with_several_returns(v: Names) -> None:
    f = function("f", [v.t], [if_(v.t < 0.0, return_(-v.t)), if_(v.t > 5.0, return_(const(5.0, F32))), return_(v.t * v.t)], F32)
    runs_like_c(v, *(v.x[i].set(call(f, v.x[i] - 2.0)) for i in range(8)))


def test_helper_returns_from_a_loop(v: Names) -> None:
    find = function(
        "find",
        [v.p, v.i],
        [for_(declare(v.j, 0), v.j < 8, v.j.inc(), if_(v.p[v.j].to(I32).eq(v.i), return_(v.j))), return_(-const(1))],
        I32,
    )
    runs_like_c(v, v.z[0].set(call(find, v.x, v.n)), v.z[1].set(call(find, v.x, const(77))))


def test_references_and_pointers_to_variables(v: Names) -> None:
    r, w = var("r", F32, reference=True), pointer("w")
    set_both = function("set_both", [r, w], [r.update("*", 3.0), w.deref.set(r + 1.0)])
    runs_like_c(
        v, declare(v.s, 1.0), declare(v.t, 0.0), call(set_both, v.s, v.t.address), call(set_both, v.x[3], v.y + 2), v.y[0].set(v.s + v.t)
    )


def test_a_loop_sees_what_a_helper_changes(v: Names) -> None:
    r = var("r", reference=True)
    step = function("step", [r], [r.update("+", 2)])
    runs_like_c(v, for_(declare(v.j, 0), v.j < 7, v.j.inc(), [call(step, v.j), v.z[0].update("+", v.j)]))


def test_recursion_is_refused(v: Names) -> None:
    f = function("f", [v.t], [], F32)
    object.__setattr__(f, "body", surface.Block(span(), (return_(call(f, v.t)),)))
    refuses("'f' calls itself", v, v.x[0].set(call(f, v.a)))


def test_a_template_may_call_itself_with_another_argument(v: Names) -> None:
    inner = function("power", [v.t], [return_(v.t + 1.0)], F32)
    outer = function("power", [v.t], [return_(call(inner, v.t * 2.0) + v.t)], F32)
    runs_like_c(v, v.x[0].set(call(outer, v.a)))


# --- pointers and arrays ---


def test_indices_of_parameters_stay_plain_and_sums_are_wide(v: Names) -> None:
    kernel = lower(v, declare(v.p, v.x + v.n), v.y[v.n].set(v.p[0] + v.p[v.n]))
    assert body_text(kernel).splitlines()[:2] == ["float32 x.2 = load x[n]", "float32 x.3 = load x[int64(n) + int64(n)]"]


def test_pointer_chosen_at_run_time(v: Names) -> None:
    kernel = runs_like_c(v, declare(v.p, cond(v.n > 2, v.x, v.y + 1)), v.p[1].set(v.p[0] + 50.0), v.p[2].update("+", 1.0))
    assert If in kinds(kernel)


def test_pointers_swapped_in_a_loop(v: Names) -> None:
    w = pointer("w")
    swap = [declare(w, v.p), v.p.set(v.q), v.q.set(w)]
    kernel = runs_like_c(
        v, declare(v.p, v.x), declare(v.q, v.y), *loop(v, v.j < v.n, v.j.inc(), v.q[v.j].set(v.p[v.j] + 1.0), *swap), v.p[7].set(-1.0)
    )
    assert "next p_tag = q_tag\n" in to_text(kernel)


def test_pointers_that_walk(v: Names) -> None:
    runs_like_c(
        v,
        declare(v.p, v.x),
        declare(v.q, v.x + 5),
        while_(v.p < v.q, [v.p.deref.set(9.0), v.p.update("+", 2)]),
        v.z[0].set((v.q - v.p).to(I32)),
    )


def test_pointer_difference_is_int64(v: Names) -> None:
    kernel = runs_like_c(v, v.z[0].set(((v.x + v.n) - v.x).to(I32)))
    assert body_text(kernel) == "z[0] = n"


def test_local_arrays(v: Names) -> None:
    m = var("m", Array(Array(F32, 3), 2))
    fill = [for_(declare(v.j, 0), v.j < 3, v.j.inc(), m[1][v.j].set(v.x[v.j + 1]))]
    kernel = runs_like_c(v, declare(m, [0.0] * 6), *fill, v.y[0].set(m[1][2]), v.y[1].set(m[0][2]))
    assert "local float32 m[6] = zeros" in to_text(kernel)


def test_array_initialisers(v: Names) -> None:
    kernel = runs_like_c(v, declare(v.m, [1.0, v.a, 3.0, -0.0]), v.y[0].set(v.m[v.n]))
    assert kinds(kernel).count(Store) == 5


def test_a_reference_to_an_array(v: Names) -> None:
    r = var("r", Array(F32, 4), reference=True)
    last = function("last", [r], [r[0].set(5.0), return_(r[3])], F32)
    runs_like_c(v, declare(v.m, [1.0, 2.0, 3.0, 4.0]), v.x[0].set(call(last, v.m)), v.x[1].set(v.m[0]))


def test_an_array_nobody_reads_vanishes(v: Names) -> None:
    assert lower(v, declare(v.m, [1.0, 2.0, 3.0, 4.0]), v.m[0].set(v.a)).body == ()


def test_pointer_to_an_array_whose_scope_ended(v: Names) -> None:
    refuses(
        "no longer exists",
        v,
        declare(v.p, v.x),
        if_(v.n > 0, [declare(v.m), v.p.set(E(surface.Decay(span(), v.p.type, v.m.tree)))]),
        v.p[0].set(1.0),
    )


# --- aliases and parameters ---


def test_equal_pointers_share_a_buffer(v: Names) -> None:
    kernel = lower(v, v.y[v.n].set(v.x[0]), aliases=Aliases.of({1: (0, True)}))
    assert body_text(kernel) == "float32 x.2 = load x[0]\nx[n] = x.2"
    assert [p.name for p in kernel.params] == ["x", "y", "z", "n", "a"]


def test_overlapping_pointers_get_an_offset(v: Names) -> None:
    kernel = lower(v, v.y[v.n].set(1.0), aliases=Aliases.of({1: (0, False)}))
    assert body_text(kernel) == "x[y_offset + int64(n)] = 1.0:float32"
    extra = kernel.params[-1]
    assert isinstance(extra, Var) and (extra.name, extra.type) == ("y_offset", I64)


def test_overlap_keeps_a_loop_from_being_counted(v: Names) -> None:
    w = pointer("w", I32)
    body = for_(declare(v.j, 0), v.j < w[0], v.j.inc(), v.z[v.j].set(0))
    tree = function("k", [v.z, w], [body])
    assert For in kinds(normalize(tree))
    assert While in kinds(normalize(tree, Aliases.of({1: (0, False)})))


def test_overlap_of_other_types_is_refused(v: Names) -> None:
    with pytest.raises(UnsupportedError, match="differ in element type"):
        lower(v, v.y[0].set(1.0), aliases=Aliases.of({2: (0, True)}))


def test_const_parameters(v: Names) -> None:
    w = pointer("w", const=True)
    kernel = normalize(function("k", [v.x, w], [v.x[0].set(w[0])]))
    assert [b.name for b in kernel.const] == ["w"]
    swapped = normalize(function("k", [w, v.x], [v.x[0].set(w[1])]), Aliases.of({1: (0, True)}))
    verify(swapped)
    assert not swapped.const


# --- refusals ---


def refuses(message: str, v: Names, *body: Any) -> None:
    with pytest.raises(UnsupportedError, match=message) as error:
        lower(v, *body)
    assert error.value.line is not None


def test_refusals(v: Names) -> None:
    refuses("__syncthreads", v, if_(launch("threadIdx") < 3, surface.Barrier(span())))
    refuses("used before it has a value", v, declare(v.s), v.y[0].set(v.s))
    refuses("'break' or 'continue' outside", v, break_())
    nothing = E(surface.Constant(span(), Pointer(F32), 0))
    refuses("with null", v, declare(v.p, v.x), v.p.set(nothing), if_(v.p.ne(nothing), v.x[0].set(1.0)))
    refuses("null pointer", v, declare(v.p, E(surface.Constant(span(), Pointer(F32), 0))), v.p[0].set(1.0))
    refuses("into one array", v, if_(v.x < v.y, v.x[0].set(1.0)))
    refuses("beside the variable", v, (v.a.address + 1).deref.set(1.0))
    refuses("a pointer as a condition", v, if_(v.x.to(BOOL), v.x[0].set(1.0)))
    refuses("neither a parameter nor", v, var("nobody", F32).set(1.0))


@pytest.mark.parametrize("kind", [Pointer(Pointer(Pointer(F32))), Pointer(Pointer(Pointer(Vector(F32, 2))))])
def test_types_of_later_releases(v: Names, kind: Any) -> None:
    refuses("later release", v, declare(var("w", kind)))
    with pytest.raises(UnsupportedError, match="later release"):
        normalize(function("k", [var("w", kind)], []))


def test_lists_of_arrays_have_a_length() -> None:
    with pytest.raises(UnsupportedError, match="'w' is a list of arrays, of which a call says how many there are"):
        normalize(function("k", [var("w", Pointer(Pointer(F32)))], []))


def test_const_memory_is_not_written() -> None:
    w = pointer("w", const=True)
    with pytest.raises(UnsupportedError, match="'w' is const, but written"):
        normalize(function("k", [w], [w[0].set(1.0)]))


# --- the kernels that ship ---


@pytest.mark.one_of(4)
@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.id)
def test_shipped_kernels_give_valid_ir(case: Case) -> None:
    tree = parse(case.file).kernel(case.kernel)
    kernel = normalize(tree)
    verify(kernel)
    assert to_text(kernel) == to_text(normalize(tree))
