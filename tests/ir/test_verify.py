"""The verifier: one valid kernel with every kind of node, and one breach of each rule."""

from __future__ import annotations

from typing import Any

import pytest

from gpuad.ir.folding import TRUE
from gpuad.ir.nodes import (
    Accumulate,
    Alloc,
    Assign,
    Atomic,
    Barrier,
    Binary,
    Buffer,
    Call,
    Carried,
    Cast,
    Constant,
    For,
    How,
    If,
    Kernel,
    LaunchIndex,
    Let,
    Load,
    Merge,
    Pop,
    Push,
    Select,
    Shuffle,
    Stack,
    Stmt,
    Store,
    Take,
    Unary,
    Var,
    While,
)
from gpuad.ir.printer import expr_text, to_text
from gpuad.ir.rewrite import blocks, defined, expressions, map_expr, map_stmt_exprs, substitute, walk_stmts
from gpuad.ir.types import BOOL, F32, F64, I32, I64, U32, Space
from gpuad.ir.verify import InvalidIR, verify

X, W = Buffer("x", F32, uid=1), Buffer("w", F32, uid=2)
N, A = Var("n", I32, 3), Var("a", F32, 4)
ZERO, ONE, HALF = Constant(0, I32), Constant(1, I32), Constant(0.5, F32)
LOCAL = Buffer("m", F32, Space.LOCAL, 4, 5)
STACK = Stack("tape", (("s", F32), ("n", I32)))


def f32(name: str, uid: int = 50) -> Var:
    return Var(name, F32, uid)


def kernel(*body: Stmt) -> Kernel:
    return Kernel("k", (X, W, N, A), tuple(body), const=frozenset({W}))


S, T, R, INT, B = f32("s"), f32("t"), f32("r"), Var("i", I32, 60), Var("b", BOOL, 61)
COUNTER, COUNT = Var("it", I32, 62), Var("its", I32, 63)

EVERYTHING = kernel(
    Let(INT, Cast(LaunchIndex("threadIdx", "x"), I32)),
    Let(B, Binary("&&", Binary("<", INT, N, BOOL), Unary("!", Binary("==", A, HALF, BOOL), BOOL), BOOL)),
    Alloc(LOCAL, zero=True),
    Alloc(Buffer("tile", F32, Space.SHARED, 32, 7)),
    If(B, (Load(S, X, INT),), (Let(T, HALF),), (Merge(R, S, T),)),
    Store(LOCAL, ZERO, Select(B, R, A)),
    Accumulate(X, INT, Unary("-", R, F32), How.ATOMIC),
    Take(f32("dx"), X, Cast(INT, I64)),
    For(
        Var("j", I32, 64),
        ZERO,
        N,
        ONE,
        (Let(f32("c2"), Call("sin", (f32("c"),), F32)),),
        (Carried(f32("c"), A, f32("c2"), f32("c3")),),
        True,
    ),
    While(
        (Load(f32("h"), W, COUNTER),),
        Binary("<", f32("h"), f32("d"), BOOL),
        (Let(f32("d2"), Binary("+", f32("h"), f32("d"), F32)),),
        (Carried(f32("d"), A, f32("d2"), f32("d3")),),
        COUNTER,
        COUNT,
    ),
    Atomic("max", None, X, COUNT, (A,)),
    Atomic("cas", f32("old"), X, ZERO, (A, HALF)),
    Barrier(),
    Barrier("warp", Constant(1, U32)),
    Shuffle(f32("other"), "down", Constant(2**32 - 1, U32), A, ONE, Constant(32, I32)),
    Push(STACK, (A, N)),
    Pop(STACK, (f32("pa"), Var("pn", I32, 65))),
    Let(f32("acc"), HALF),
    Assign(f32("acc"), A),
)

TEXT = """\
kernel k(float32* x, const float32* w, int32 n, float32 a)
  int32 i = int32(threadIdx.x)
  bool b = i < n && !(a == 0.5:float32)
  local float32 m[4] = zeros
  shared float32 tile[32]
  if b:
    float32 s = load x[i]
  else:
    float32 t = 0.5:float32
  merge float32 r = s | t
  m[0] = b ? r : a
  x[i] += -r  (atomic)
  float32 dx = take x[int64(i)]  (undecided)
  for int32 j in range(0, n, 1) backward:
    carry float32 c = a
    float32 c2 = sin(c)
    next c = c2
  result float32 c3 = c
  while:  (counter int32 it)
    carry float32 d = a
    float32 h = load w[it]
    break unless h < d
    float32 d2 = h + d
    next d = d2
  result float32 d3 = d
  count int32 its
  atomic_max x[its] (a)
  float32 old = atomic_cas x[0] (a, 0.5:float32)
  barrier block
  barrier warp mask 1:uint32
  float32 other = shuffle_down(4294967295:uint32, a, 1, 32)
  push tape (a, n)
  pop tape (float32 pa, int32 pn)
  float32 acc = 0.5:float32
  acc := a
"""


def test_a_valid_kernel_with_everything() -> None:
    verify(EVERYTHING)


def test_text_of_everything() -> None:
    assert to_text(EVERYTHING) == TEXT


def loop(**changes: Any) -> For:
    parts: dict[str, Any] = {"var": INT, "start": ZERO, "stop": N, "step": ONE, "body": ()}
    return For(**{**parts, **changes})


def spin(**changes: Any) -> While:
    parts: dict[str, Any] = {"header": (), "condition": TRUE, "body": (), "counter": COUNTER, "count": COUNT}
    return While(**{**parts, **changes})


BREACHES: dict[str, tuple[Stmt, ...]] = {
    "used where it is not defined": (Let(S, T),),
    "r#50 is used where": (If(TRUE, (Let(R, A),)), Let(S, R)),
    "defined twice": (Let(S, A), Let(S, A)),
    "i#60 is defined twice": (Let(INT, ZERO), loop()),
    "type int32 where float32": (Let(S, N),),
    "type int32 where bool": (If(N, (), ()),),
    "Assign to s": (Load(S, X, ZERO), Assign(S, A)),
    "Assign to t": (Assign(T, A),),
    "buffer m#5 is not in scope": (Load(S, LOCAL, ZERO),),
    "const buffer w is written": (Store(W, ZERO, A),),
    "index into x has type float32": (Store(X, A, A),),
    "type float64 where float32": (Store(X, ZERO, Constant(1.0, F64)),),
    "i of type int32 from x": (Load(INT, X, ZERO),),
    "array m has length 0": (Alloc(Buffer("m", F32, Space.LOCAL, 0, 5)),),
    "lies in global memory": (Alloc(Buffer("m", F32, Space.GLOBAL, 3, 5)),),
    "made twice": (Alloc(LOCAL), Alloc(LOCAL)),
    "loop with step 0": (loop(step=ZERO),),
    "where int32 belongs": (loop(stop=Constant(3, I64)),),
    "loop variable s": (loop(var=S, start=A, stop=A, step=A),),
    "ends as int32": (loop(carried=(Carried(S, A, A, COUNT),)),),
    "t#50 is used": (loop(carried=(Carried(S, T, A, R),)),),
    "header holds something else": (spin(header=(Store(X, ZERO, A),)),),
    "are int32": (spin(counter=Var("c", I64, 9)),),
    "float32 < int32": (Let(B, Binary("<", A, N, BOOL)),),
    "as float32": (Let(S, Binary("<", A, A, F32)),),
    "float32 % float32": (Let(S, Binary("%", A, A, F32)),),
    "! of int32": (Let(INT, Unary("!", N, I32)),),
    "- of bool": (Let(B, Unary("-", TRUE, BOOL)),),
    "Select of int32": (Let(S, Select(N, A, A)),),
    "Select of bool, float32, int32": (Let(S, Select(TRUE, A, N)),),
    "unknown function sine": (Let(S, Call("sine", (A,), F32)),),
    "takes 2 arguments": (Let(S, Call("pow", (A,), F32)),),
    "arguments differ": (Let(S, Call("pow", (A, Constant(2.0, F64)), F32)),),
    "isnan": (Let(S, Call("isnan", (A,), F32)),),
    "does not fit int32": (Let(INT, Constant(2**31, I32)),),
    "unknown atomic": (Atomic("nand", None, X, ZERO, (A,)),),
    "with 1 operands": (Atomic("cas", None, X, ZERO, (A,)),),
    "has 2 fields, not 1": (Push(STACK, (A,)),),
    "field n of stack tape": (Push(STACK, (A, A)),),
    "field s of stack tape": (Pop(STACK, (INT, INT)),),
    "unknown shuffle": (Shuffle(S, "left", Constant(1, U32), A, ONE, ONE),),
    "shuffle operand": (Shuffle(S, "", Constant(1, U32), A, A, ONE),),
    "barrier of scope": (Barrier("device"),),
    "has no mask": (Barrier("block", Constant(1, U32)),),
}


@pytest.mark.parametrize("message", BREACHES)
def test_breaches(message: str) -> None:
    with pytest.raises(InvalidIR) as error:
        verify(kernel(*BREACHES[message]))
    assert message in str(error.value)


def test_parameters() -> None:
    with pytest.raises(InvalidIR, match="is no parameter"):
        verify(Kernel("k", (), (), const=frozenset({W})))
    with pytest.raises(InvalidIR, match="twice"):
        verify(Kernel("k", (X, X), ()))
    with pytest.raises(InvalidIR, match="is no pointer"):
        verify(Kernel("k", (LOCAL,), ()))


def test_siblings_may_repeat_each_other() -> None:
    verify(kernel(If(TRUE, (Let(S, A),), (Let(S, A),)), loop(body=(Let(S, A),))))


def test_a_merge_sees_only_its_side() -> None:
    with pytest.raises(InvalidIR, match="s#50 is used where"):
        verify(kernel(If(TRUE, (Let(S, A),), (), (Merge(R, S, S),))))


def test_expressions_read_back_with_their_parentheses() -> None:
    def minus(a: Any, b: Any) -> Binary:
        return Binary("-", a, b, I32)

    assert expr_text(minus(N, minus(N, ONE))) == "n - (n - 1)"
    assert expr_text(minus(minus(N, ONE), Constant(-1, I32))) == "n - 1 - -1"
    assert expr_text(Unary("-", Unary("-", N, I32), I32)) == "-(-n)"
    assert expr_text(Binary("*", Select(TRUE, N, ONE), N, I32)) == "(true ? n : 1) * n"
    assert expr_text(Binary("&", Binary("==", N, ONE, BOOL), TRUE, BOOL)) == "n == 1 & true"


# --- rewriting ---


def test_substitution_is_simultaneous_and_keeps_identity() -> None:
    tree = Binary("+", A, S, F32)
    assert substitute(tree, {A: S, S: A}) == Binary("+", S, A, F32)
    assert substitute(tree, {T: A}) is tree
    assert map_expr(tree, lambda e: HALF if e is A else e) == Binary("+", HALF, S, F32)


def test_looking_into_statements() -> None:
    branch, count, spinning = EVERYTHING.body[4], EVERYTHING.body[8], EVERYTHING.body[9]
    assert defined(branch) == (R,) and defined(count) == (f32("c3"),) and defined(spinning) == (f32("d3"), COUNT)
    assert [len(b) for b in blocks(branch)] == [1, 1] and len(blocks(spinning)) == 2
    assert expressions(count) == (ZERO, N, ONE, A, f32("c2"))
    assert len(list(walk_stmts(EVERYTHING.body))) == len(EVERYTHING.body) + 5


def test_rewriting_nothing_gives_an_equal_statement() -> None:
    for stmt in walk_stmts(EVERYTHING.body):
        assert map_stmt_exprs(stmt, lambda e: e) == stmt
