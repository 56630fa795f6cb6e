"""A fault planted into each rule of `ad/forward.py` is found by what `check_gradient` compares `hvp` with.

A fault is planted into one of the two kernels of `hvp`: into the tangent of the launch, where the tangent of what it leaves is wrong, or
into the tangent of its adjoint, where the derivative of the gradient is. Either way the kernels are valid. Where hvp refuses a kernel that
forward mode takes, the dot product finds the fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from launch_tools import running

import gpuad
from gpuad.ad import forward
from gpuad.ad.forward import _Forward
from gpuad.ir import folding, nodes
from gpuad.ir.rewrite import edit
from gpuad.ir.types import I32
from gpuad.pipeline import passes
from gpuad.testing import check_gradient

N = 32
Rewrite = Callable[[nodes.Stmt], "tuple[nodes.Stmt, ...]"]
TANGENT, CHANGE, DOT_PRODUCT = "tangent beside hvp", "second derivatives", "dot product 1"
ZERO = folding.const(0, I32)
LAUNCH, ADJOINT = "", "_dot"  # the names of the tangents in either kernel end so


def text(body: str, parameters: str = "") -> str:
    return f"""__device__ void most(double* to, double value) {{
    unsigned long long* bits = (unsigned long long*)to;
    unsigned long long old = *bits, seen;
    do {{
        seen = old;
        if (__longlong_as_double(seen) >= value) return;
        old = atomicCAS(bits, seen, __double_as_longlong(value));
    }} while (seen != old);
}}
extern "C" __global__ void k(double* y, const double* a, float* f, const int* n, double c{parameters}) {{ int t = threadIdx.x; {body} }}"""


def arguments() -> tuple[Any, ...]:
    rng = np.random.default_rng(5)
    return (
        rng.uniform(0.5, 1.5, N),
        rng.uniform(0.6, 1.4, N),
        rng.uniform(0.5, 1.5, N).astype(np.float32),
        np.arange(N, dtype=np.int32) % 3,
        0.7,
    )


def compared(body: str, found: str) -> None:
    with running("reference"):
        check_gradient(
            gpuad.kernel(text(body), "k"), arguments(), grid=1, block=N, directions=1, race_check=False, forward_check=found == DOT_PRODUCT
        )


@dataclass(frozen=True)
class Fault:
    """`where`: the kernel that it is planted into; `plant`: does so, given that name; `body`: of the kernel that shows it; `found`: by
    what, if hvp refuses that one."""

    where: str
    plant: Callable[[pytest.MonkeyPatch, str], None]
    body: str
    found: str = ""


def of_statements(kind: type[nodes.Stmt], rewrite: Callable[[_Forward, nodes.Stmt, Any], Any]) -> Callable[[pytest.MonkeyPatch, str], None]:
    """`rewrite` gets what is made of each statement of a kind, of which there is more than the statement itself."""
    plain = _Forward.stmt

    def plant(patch: pytest.MonkeyPatch, where: str) -> None:
        def stmt(self: _Forward, one: nodes.Stmt) -> nodes.Block:
            made = plain(self, one)
            return tuple(rewrite(self, one, made)) if isinstance(one, kind) and self.suffix == where and made != (one,) else made

        patch.setattr(_Forward, "stmt", stmt)

    return plant


def of_expressions(is_it: Callable[[nodes.Expr], bool]) -> Callable[[pytest.MonkeyPatch, str], None]:
    """The tangent of such expressions is 0."""
    plain = _Forward.tangent

    def plant(patch: pytest.MonkeyPatch, where: str) -> None:
        def tangent(self: _Forward, expr: nodes.Expr, span: Any) -> nodes.Expr:
            return folding.zero(expr.type) if self.suffix == where and is_it(expr) else plain(self, expr, span)

        patch.setattr(_Forward, "tangent", tangent)

    return plant


def of_method(name: str, wrong: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch, str], None]:
    """`wrong` gets the method as it is, the object, and the arguments."""
    plain = getattr(_Forward, name)

    def plant(patch: pytest.MonkeyPatch, where: str) -> None:
        patch.setattr(_Forward, name, lambda self, *args: wrong(plain, self, *args) if self.suffix == where else plain(self, *args))

    return plant


def zeroed(stmt: Any) -> nodes.Stmt:
    return replace(stmt, value=folding.zero(stmt.value.type))


def kept(stmt: nodes.Take) -> nodes.Load:
    """A take that does not clear."""
    return nodes.Load(stmt.var, stmt.buffer, stmt.index)


def lost(stmt: Any) -> nodes.Block:
    """What is read is 0, and memory is as after the statement."""
    cleared = (nodes.Store(stmt.buffer, stmt.index, folding.zero(stmt.buffer.element)),) if isinstance(stmt, nodes.Take) else ()
    return nodes.Let(stmt.var, folding.zero(stmt.var.type)), *cleared


def is_binary(op: str) -> Callable[[nodes.Expr], bool]:
    return lambda e: isinstance(e, nodes.Binary) and e.op == op


def carried_wrong(**wrong: str) -> Callable[..., Any]:
    """The tangents that a loop carries, with one part of them 0."""

    def change(plain: Any, self: _Forward, loop: Any) -> Any:
        own = {c.var for c in loop.carried}
        made = plain(self, loop)
        return tuple(c if c.var in own else replace(c, **{p: folding.zero(c.var.type) for p in wrong}) for c in made)

    return change


def merge_wrong(side: str) -> Callable[..., Any]:
    def change(plain: Any, self: _Forward, merge: Any, span: Any) -> Any:
        first, *rest = plain(self, merge, span)
        return (first, *(replace(m, **{side: folding.zero(m.var.type)}) for m in rest))

    return change


def stack_wrong(plain: Any, self: _Forward, stmt: Any) -> Any:
    made = plain(self, stmt)
    own = len(stmt.stack.fields)
    if not isinstance(made, nodes.Push):
        return made
    return replace(made, values=(*made.values[:own], *(folding.zero(v.type) for v in made.values[own:])))


def unwidened(plain: Any, self: _Forward, expr: nodes.Expr) -> nodes.Expr:
    return expr


def chain_wrong(part: int) -> Callable[..., Any]:
    def change(plain: Any, self: _Forward, expr: Any, span: Any) -> Any:
        if expr.function != "gpuad_chain":
            return plain(self, expr, span)
        seed, partial = expr.arguments
        return folding.chain(self.tangent(seed, span), partial) if part else folding.chain(seed, self.tangent(partial, span))

    return change


def term_wrong(function: str, position: int) -> Callable[..., Any]:
    def change(plain: Any, self: _Forward, expr: Any, argument: Any, entry: Any, tangent: Any) -> Any:
        hit = expr.function == function and argument is expr.arguments[position]
        return folding.zero(expr.type) if hit else plain(self, expr, argument, entry, tangent)

    return change


def no_scalar(plain: Any, self: _Forward, var: Any, memory: Any) -> Any:
    return (nodes.Let(self.tangent_var(var), folding.zero(var.type)),)


def logged_wrong(patch: pytest.MonkeyPatch, where: str) -> None:
    plain = forward.written_down
    patch.setattr(forward, "written_down", lambda one, tangent: plain(one, folding.zero(tangent.type)))


def pending_wrong(patch: pytest.MonkeyPatch, where: str) -> None:
    patch.setattr(forward, "behind", lambda barrier, pending, names: (barrier,))


def handed_out_wrong(name: str) -> Callable[[pytest.MonkeyPatch, str], None]:
    """What `name` hands out of a statement has the tangent 0."""
    plain = getattr(forward, name)

    def wrong(*args: Any) -> Any:
        stmt, left = plain(*args)
        return stmt, [replace(p, tangent=folding.zero(p.tangent.type)) for p in left]

    return lambda patch, where: patch.setattr(forward, name, wrong)


def unresolved(patch: pytest.MonkeyPatch, where: str) -> None:
    """The second launch stores nothing."""
    plain = forward.resolve_extrema

    def resolve(*args: Any) -> nodes.Block:
        return edit(plain(*args), lambda s: (replace(s, value=folding.zero(s.value.type)),) if isinstance(s, nodes.Store) else None)

    patch.setattr(passes, "resolve_extrema", resolve)


def saturated_wrong(patch: pytest.MonkeyPatch, where: str) -> None:
    patch.setattr(forward, "saturated", lambda tangent, entry: folding.zero(tangent.type))


SHARED = "__shared__ double s[1]; if (t == 0) s[0] = 0.0; __syncthreads(); {} __syncthreads(); y[t] = y[t] * s[0];"
SQUARE = "y[t] = y[t] * y[t] * a[t];"
TWICE = "y[t] = y[t] * y[t]; __syncthreads(); y[t] = y[t] * a[t] * a[t];"
STEP = "y[t] = y[t] * y[t]; y[t] = rint(y[t]) + 0.0 * a[t]; y[t] = y[t] * a[t];"
BRANCH = "double v = y[t]; if (n[t] > 0) v = v * v * a[t]; else v = sin(v); y[t] = v * v;"
LOOP = "double v = y[t]; for (int j = 0; j < n[t]; j++) v = sin(v * a[t]); y[t] = v * v;"
WHILE = "double v = y[t]; int j = 0; while (v < 2.0 && j++ < 5) v = v * (1.0 + a[t]); y[t] = v * v;"
STACKED = "for (int j = 0; j < n[t]; j++) y[t] = sin(y[t] * a[t]) * y[t];"
LOCAL = "double s[3] = {y[t], a[t], 1.0}; s[n[t]] = s[n[t]] * s[1]; y[t] = s[0] * s[1] * s[2];"
ADDED = "atomicAdd(&y[t / 2], a[t] * a[t]);"
EXCHANGE = "float v = f[t] * f[t]; atomicExch(&f[t], v * (float)a[t]);"
EXCHANGED = "float v = f[t] * f[t]; f[t] = v; float old = atomicExch(&f[t], v * (float)a[t]); y[t] = old * old;"
NAMED = "double v = sin(y[t]); v = v * v * a[t]; y[t] = v * v * v;"
SHUFFLE = "double v = y[t] * a[t]; v = __shfl_xor_sync(0xffffffff, v * v, 1); y[t] = v * v;"
CONDITIONAL = "double v = sqrt(y[t]) * a[t]; for (int j = 0; j < 1 + n[t]; j++) y[t] = v * v;"

FAULTS = {
    "load": Fault(LAUNCH, of_statements(nodes.Load, lambda f, s, made: (made[0], *lost(made[1]))), SQUARE),
    "load of the adjoint": Fault(ADJOINT, of_statements(nodes.Load, lambda f, s, made: (made[0], *lost(made[1]))), SQUARE),
    "take, not cleared": Fault(ADJOINT, of_statements(nodes.Take, lambda f, s, made: (made[0], kept(made[1]))), TWICE),
    "take, cleared without being read": Fault(ADJOINT, of_statements(nodes.Take, lambda f, s, made: (made[0], *lost(made[1]))), TWICE),
    "take of what does not vary": Fault(ADJOINT, of_statements(nodes.Take, lambda f, s, made: made if f.varies(s.var) else made[:1]), STEP),
    "let": Fault(LAUNCH, of_statements(nodes.Let, lambda f, s, made: (zeroed(made[0]), *made[1:])), NAMED),
    "let of the adjoint": Fault(ADJOINT, of_statements(nodes.Let, lambda f, s, made: (zeroed(made[0]), *made[1:])), NAMED),
    "store": Fault(LAUNCH, of_statements(nodes.Store, lambda f, s, made: made[:1]), SQUARE),
    "store of 0": Fault(
        ADJOINT,
        of_statements(nodes.Store, lambda f, s, made: made[:1]),
        "y[t] = y[t] * a[t]; __syncthreads(); y[t] = 1.5; __syncthreads(); y[t] = y[t] * a[t];",
    ),
    "addition": Fault(ADJOINT, of_statements(nodes.Accumulate, lambda f, s, made: made[:1]), SQUARE),
    "addition, stored": Fault(
        ADJOINT,
        of_statements(nodes.Accumulate, lambda f, s, made: (made[0], nodes.Store(made[1].buffer, made[1].index, made[1].value))),
        SQUARE,
    ),
    "atomic addition": Fault(LAUNCH, of_statements(nodes.Accumulate, lambda f, s, made: made[:1]), ADDED),
    "exchange": Fault(
        LAUNCH,
        of_statements(nodes.Atomic, lambda f, s, made: (made[0], replace(made[1], operands=(folding.zero(s.operands[0].type),)))),
        EXCHANGE,
    ),
    "exchange, not read": Fault(
        LAUNCH,
        of_statements(
            nodes.Atomic,
            lambda f, s, made: (made[0], replace(made[1], var=None), nodes.Let(made[1].var, folding.zero(made[1].var.type))),
        ),
        EXCHANGED,
        DOT_PRODUCT,
    ),
    "shuffle": Fault(LAUNCH, of_statements(nodes.Shuffle, lambda f, s, made: (made[0], zeroed(made[1]))), SHUFFLE),
    "shuffle of the adjoint": Fault(ADJOINT, of_statements(nodes.Shuffle, lambda f, s, made: (made[0], zeroed(made[1]))), SHUFFLE),
    "stack": Fault(ADJOINT, of_method("stack", stack_wrong), STACKED),
    "merge": Fault(LAUNCH, of_method("merge", merge_wrong("then")), BRANCH),
    "merge, other side": Fault(LAUNCH, of_method("merge", merge_wrong("otherwise")), BRANCH),
    "merge of the adjoint": Fault(ADJOINT, of_method("merge", merge_wrong("then")), BRANCH),
    "carried, first": Fault(LAUNCH, of_method("carried", carried_wrong(init="")), LOOP),
    "carried, next": Fault(LAUNCH, of_method("carried", carried_wrong(next="")), LOOP),
    "carried of a while": Fault(LAUNCH, of_method("carried", carried_wrong(next="")), WHILE),
    "carried of the adjoint": Fault(ADJOINT, of_method("carried", carried_wrong(next="")), LOOP),
    "widened": Fault(ADJOINT, of_method("widened", unwidened), CONDITIONAL),
    "number by value": Fault(LAUNCH, of_method("scalar", no_scalar), "y[t] = y[t] * c * c;"),
    "number by value, of the adjoint": Fault(ADJOINT, of_method("scalar", no_scalar), "y[t] = y[t] * c * c;"),
    "variable": Fault(LAUNCH, of_expressions(lambda e: isinstance(e, nodes.Var)), SQUARE),
    "negation": Fault(LAUNCH, of_expressions(lambda e: isinstance(e, nodes.Unary)), "y[t] = -sin(y[t]) * a[t];"),
    "cast": Fault(LAUNCH, of_expressions(lambda e: isinstance(e, nodes.Cast)), "y[t] = y[t] * (double)f[t];"),
    "select": Fault(ADJOINT, of_expressions(lambda e: isinstance(e, nodes.Select)), "y[t] = fmax(y[t] * y[t], a[t]) * y[t];"),
    "sum": Fault(LAUNCH, of_expressions(is_binary("+")), "y[t] = y[t] * y[t] + a[t];"),
    "difference": Fault(LAUNCH, of_expressions(is_binary("-")), "y[t] = y[t] * y[t] - a[t];"),
    "product": Fault(ADJOINT, of_expressions(is_binary("*")), SQUARE),
    "quotient": Fault(LAUNCH, of_expressions(is_binary("/")), "y[t] = y[t] / a[t];"),
    "quotient of the adjoint": Fault(ADJOINT, of_expressions(is_binary("/")), "y[t] = y[t] / a[t];"),
    "quotient by a number": Fault(LAUNCH, of_expressions(is_binary("/")), "y[t] = y[t] * y[t] / 3.0;"),
    "function": Fault(LAUNCH, of_method("term", term_wrong("atan2", 0)), "y[t] = atan2(y[t], a[t]);"),
    "function, second argument": Fault(LAUNCH, of_method("term", term_wrong("atan2", 1)), "y[t] = atan2(y[t], a[t]);"),
    "function of the adjoint": Fault(ADJOINT, of_method("term", term_wrong("cos", 0)), "y[t] = sin(y[t] * a[t]);"),
    "chain, the seed": Fault(ADJOINT, of_method("call", chain_wrong(0)), "y[t] = sqrt(y[t]) / a[t];"),
    "chain, the partial": Fault(ADJOINT, of_method("call", chain_wrong(1)), "y[t] = sqrt(y[t]) / a[t];"),
    "greatest": Fault(LAUNCH, logged_wrong, "most(&y[t % 3], a[t] * a[t]);"),
    "greatest, not stored": Fault(LAUNCH, unresolved, "most(&y[t % 3], a[t] * a[t]);"),
    "greatest of a block": Fault(LAUNCH, pending_wrong, SHARED.format("most(s, a[t] * a[t]);"), DOT_PRODUCT),
    "greatest in a branch": Fault(LAUNCH, handed_out_wrong("out_of_if"), SHARED.format("if (n[t] > 0) most(s, a[t] * a[t]);"), DOT_PRODUCT),
    "greatest in a loop": Fault(
        LAUNCH, handed_out_wrong("out_of_loop"), SHARED.format("for (int j = 0; j < n[t]; j++) most(s, a[t] * a[t] * j);"), DOT_PRODUCT
    ),
    "array": Fault(
        LAUNCH,
        of_statements(
            nodes.Alloc, lambda f, s, made: (*made, nodes.Store(made[1].buffer, ZERO, folding.const(1.0, made[1].buffer.element)))
        ),
        "double s[3] = {}; s[n[t]] = a[t] * y[t]; y[t] = s[0] * a[t];",
    ),
    "array of the adjoint": Fault(
        ADJOINT,
        of_statements(
            nodes.Alloc, lambda f, s, made: (*made, nodes.Store(made[1].buffer, ZERO, folding.const(1.0, made[1].buffer.element)))
        ),
        LOCAL,
    ),
    "saturation": Fault(LAUNCH, saturated_wrong, "y[t] = tanh(exp(y[t]) * a[t]);"),
}


@pytest.mark.one_of(8)
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    found = fault.found or (TANGENT if fault.where == LAUNCH else CHANGE)
    compared(fault.body, found)
    fault.plant(monkeypatch, fault.where)
    with pytest.raises(AssertionError, match=rf"FAILED {found}"):
        compared(fault.body, found)
