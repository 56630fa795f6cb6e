"""What the tests of certificates share: the kernels of a launch's reverse pass as certificates take them, and faults planted in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from launch_tools import running

from gpuad import api, pipeline
from gpuad.affine.certificate import Run, refused
from gpuad.affine.effects import Shape
from gpuad.api import Kernel
from gpuad.ir.nodes import Accumulate, Assign, Binary, Block, Buffer, Constant, Expr, For, If, LaunchIndex, Let, Load, Stmt, Store
from gpuad.ir.rewrite import map_blocks, map_expr
from gpuad.ir.types import I32
from gpuad.pipeline import schedule
from gpuad.pipeline.calls import Call
from gpuad.pipeline.certificates import run_of
from gpuad.pipeline.derived_kernels import Adjoint
from gpuad.pipeline.pattern import Variant


@dataclass(frozen=True, eq=False)
class Launch:
    """The plain adjoint of a launch, the kernels that run in its stead, and the shadows."""

    plain: Run
    made: tuple[Run, ...]
    names: tuple[str, ...]
    shadows: tuple[Buffer, ...]

    def refused(self) -> dict[Buffer, str]:
        return refused(self.plain, self.made, self.shadows)


def launch_of(kernel: Kernel, grid: Any, block: Any, args: Sequence[Any]) -> Launch:
    """The reverse pass of a launch on the host."""
    with running("host"):
        call = kernel.bind(grid, block, tuple(args), 0, None)
        adjoint = kernel.reverse_for(api.pattern_of(kernel, call), call)
        stages = pipeline.stages(adjoint, call)
        return _launch(adjoint, call, stages)


def _launch(adjoint: Adjoint, call: Call, stages: Sequence[schedule.Stage]) -> Launch:
    found = schedule.gathering(adjoint, call)
    plain = schedule.plain_shadows(adjoint, call) - (found.buffers if found is not None else frozenset())
    made = tuple(run_of(adjoint, call, s.kernel.body, s.parameters, s.grid, s.numbers) for s in stages)
    shadows = tuple(p.item for p in adjoint.parameters if p.role == "shadow" and isinstance(p.item, Buffer))
    return Launch(run_of(adjoint, call, adjoint.variant(Variant(plain)).body), made, tuple(s.kernel.name for s in stages), shadows)


# --- faults ------------------------------------------------------------------------------------------------------------------------------

Edit = Callable[[Stmt], "Block | None"]  # what stands in a statement's place, None where the fault does not apply


def _one_off(expr: Expr, by: int) -> Expr:
    return Binary("+", expr, Constant(by, expr.type), expr.type)


def _compared(ops: dict[str, str]) -> Edit:
    def edit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, If):
            return None
        new = map_expr(
            stmt.condition, lambda e: replace(e, op=ops[e.op]) if isinstance(e, Binary) and e.op in ops and e.left.type == I32 else e
        )
        return None if new == stmt.condition else (replace(stmt, condition=new),)

    return edit


def _loop(**shift: int) -> Edit:
    def edit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, For):
            return None
        return (replace(stmt, **{name: _one_off(getattr(stmt, name), by) for name, by in shift.items()}),)

    return edit


def _index(kind: type[Stmt], by: int) -> Edit:
    return lambda stmt: (replace(stmt, index=_one_off(stmt.index, by)),) if isinstance(stmt, kind) else None


def _value(change: Callable[[Expr], Expr]) -> Edit:
    def edit(stmt: Stmt) -> Block | None:
        return (replace(stmt, value=change(stmt.value)),) if isinstance(stmt, Accumulate) else None

    return edit


def _times(expr: Expr, factor: float) -> Expr:
    return Binary("*", expr, Constant(factor, expr.type), expr.type)


FAULTS: dict[str, Edit] = {
    "a guard lets one more in": _compared({"<": "<=", ">": ">="}),
    "a guard keeps one out": _compared({"<=": "<", ">=": ">"}),
    "a guard is turned around": _compared({"<": ">=", ">=": "<"}),
    "a guard is left out": lambda s: s.then if isinstance(s, If) and not s.otherwise and not s.merges and _of_integers(s) else None,
    "a loop begins one late": _loop(start=1),
    "a loop begins one early": _loop(start=-1),
    "a loop ends one early": _loop(stop=-1),
    "a loop ends one late": _loop(stop=1),
    "a loop runs once more as a whole": lambda s: (s, s) if isinstance(s, For) and not s.carried else None,
    "a loop is left out": lambda s: () if isinstance(s, For) and not s.carried else None,
    "a read is one ahead": _index(Load, 1),
    "a read is one behind": _index(Load, -1),
    "an element is one ahead": _index(Accumulate, 1),
    "an element is one behind": _index(Accumulate, -1),
    "an addition is made twice": lambda s: (s, s) if isinstance(s, Accumulate) else None,
    "an addition is left out": lambda s: () if isinstance(s, Accumulate) else None,
    "a term is collected twice": lambda s: (s, s) if isinstance(s, Assign) else None,
    "a term is left out": lambda s: () if isinstance(s, Assign) else None,
    "a sum is negated": _value(lambda e: _times(e, -1.0)),
    "a sum is off by a factor": _value(lambda e: _times(e, 1.0001)),
    "a clear is left out": lambda s: () if isinstance(s, Store) and s.value == Constant(0.0, s.value.type) else None,
    "a clear is one ahead": _index(Store, 1),
    "a sum is not begun anew": lambda s: (replace(s, value=Constant(1.0, s.value.type)),) if isinstance(s, Let) and _is_zero(s) else None,
}


def _begun_before(stmt: Stmt) -> Block | None:
    """What a loop begins anew in each iteration is begun before it."""
    first = stmt.body[0] if isinstance(stmt, For) and stmt.body else None
    return (first, replace(stmt, body=stmt.body[1:])) if isinstance(stmt, For) and isinstance(first, Let) and _is_zero(first) else None


FAULTS["a sum is begun before its loop"] = _begun_before


def _replaced(change: Callable[[Expr], Expr]) -> Edit:
    """An operand of what a statement computes is another one."""

    def edit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Let | Assign | Accumulate):
            return None
        new = map_expr(stmt.value, change)
        return None if new == stmt.value else (replace(stmt, value=new),)

    return edit


def _operator(one: str, other: str, *, floats: bool) -> Edit:
    def change(expr: Expr) -> Expr:
        fits = isinstance(expr, Binary) and expr.op == one and expr.type.is_float == floats
        return replace(expr, op=other) if fits else expr

    return _replaced(change)


def _launch_index(field: str, names: dict[str, str]) -> Edit:
    def change(expr: Expr) -> Expr:
        found = names.get(getattr(expr, field)) if isinstance(expr, LaunchIndex) else None
        return replace(expr, **{field: found}) if found is not None else expr

    return _replaced(change)


def _index_becomes(kind: type[Stmt], change: Callable[[Expr], Expr]) -> Edit:
    """Another index, where it is not the first element's, which stays what it is."""

    def edit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, kind) or stmt.index == Constant(0, stmt.index.type):
            return None
        return (replace(stmt, index=change(stmt.index)),)

    return edit


def _constant_index(kind: type[Stmt]) -> Edit:
    return _index_becomes(kind, lambda index: Constant(0, index.type))


def _doubled(kind: type[Stmt]) -> Edit:
    return _index_becomes(kind, lambda index: Binary("+", index, index, index.type))


def _sums(factor: float) -> Edit:
    """What a loop or a term adds to a variable, off by a factor."""
    return lambda s: (replace(s, value=_times(s.value, factor)),) if isinstance(s, Assign) and s.value.type.is_float else None


FAULTS |= {
    "a loop goes in steps of two": lambda s: (replace(s, step=_one_off(s.step, 1)),) if isinstance(s, For) else None,
    "a loop is one iteration ahead": _loop(start=1, stop=1),
    "a loop is one iteration behind": _loop(start=-1, stop=-1),
    "a guard holds at the end alone": _compared({"<": "==", ">": "=="}),
    "a guard never holds": lambda s: s.otherwise if isinstance(s, If) and not s.merges else None,
    "a read is of the first element": _constant_index(Load),
    "a read is twice as far": _doubled(Load),
    "an addition goes to the first element": _constant_index(Accumulate),
    "an addition goes twice as far": _doubled(Accumulate),
    "a clear is of the first element": _constant_index(Store),
    "a clear is one behind": _index(Store, -1),
    "a clear writes something else": lambda s: (
        (replace(s, value=Constant(1.0, s.value.type)),) if isinstance(s, Store) and s.value.type.is_float else None
    ),
    "a sum is halved": _value(lambda e: _times(e, 0.5)),
    "a sum is squared": _value(lambda e: Binary("*", e, e, e.type)),
    "a sum has an offset": _value(lambda e: Binary("+", e, Constant(0.125, e.type), e.type)),
    "a term is off by a factor": _sums(1.0001),
    "a term is negated": _sums(-1.0),
    "a difference is a sum": _operator("-", "+", floats=True),
    "a product is a sum": _operator("*", "+", floats=True),
    "a thread takes its block's index for its own": _launch_index("name", {"threadIdx": "blockIdx"}),
    "a block takes its thread's index for its own": _launch_index("name", {"blockIdx": "threadIdx"}),
    "a block is as large as the grid": _launch_index("name", {"blockDim": "gridDim"}),
}


def _without(runs: Sequence[Run], k: int) -> tuple[Run, ...]:
    return (*runs[:k], *runs[k + 1 :])


def _wider(run: Run, **of: int) -> Run:
    x, y, z = run.shape.grid
    return replace(run, shape=Shape((x + of.get("grid", 0), y, z), run.shape.block, run.shape.numbers))


LAUNCHES: dict[str, Callable[[Sequence[Run], int], tuple[Run, ...]]] = {
    "a kernel is not launched": _without,
    "a kernel is launched twice": lambda runs, k: (*runs[: k + 1], *runs[k:]),
    "a grid has a block too few": lambda runs, k: (*runs[:k], _wider(runs[k], grid=-1), *runs[k + 1 :]),
    "a kernel comes last": lambda runs, k: (*_without(runs, k), runs[k]),
}


def _of_integers(stmt: If) -> bool:
    return isinstance(stmt.condition, Binary) and (stmt.condition.op == "&&" or stmt.condition.left.type == I32)


def _is_zero(stmt: Let) -> bool:
    return stmt.var.type.is_float and stmt.value == Constant(0.0, stmt.value.type)


def faulty(launch: Launch, name: str) -> Iterator[Launch]:
    """The launch with a fault, at each place of each of its kernels where there can be one."""
    for number, run in enumerate(launch.made):
        if name in LAUNCHES:
            made = LAUNCHES[name](launch.made, number)
            if made != launch.made:
                yield replace(launch, made=made)
            continue
        for place in range(places(run.body, FAULTS[name])):
            body = edited(run.body, FAULTS[name], [place])
            yield replace(launch, made=(*launch.made[:number], replace(run, body=body), *launch.made[number + 1 :]))


def places(block: Block, edit: Edit) -> int:
    left = [1 << 30]
    edited(block, edit, left)
    return (1 << 30) - left[0]


def edited(block: Block, edit: Edit, left: list[int]) -> Block:
    out: list[Stmt] = []
    for stmt in block:
        found = edit(stmt)
        if found is not None:
            left[0] -= 1
            if left[0] == -1:
                out += found
                continue
        out.append(map_blocks(stmt, lambda inner: edited(inner, edit, left)))
    return tuple(out)


__all__ = ["FAULTS", "LAUNCHES", "Launch", "edited", "faulty", "launch_of", "places"]
