"""Prints the loops over lanes that `lanes` has made of a kernel, as C++ that compilers vectorise.

Memory for the stacks of the CPU's threads, and where the lanes of a strip lie in it (lane scratch).

How deep a stack gets is not known before. So a row reserves more addresses than it can need, and the system maps pages as they are touched.
A row that grows by copying needs a call in the loop, around which compilers spill all that the loop computes: with it the reverse of a
tomographic projection took 1.8 times as long.

The lanes of a strip share a row in which the elements that all lanes push or pop at once are contiguous. That needs an index which is
uniform over the lanes, as the top of a stack is that they push to in step (`lane_scratch`); where the depth differs from lane to lane,
threads run one by one. As a strip keeps the stacks of all its threads, kernels with very deep ones are run in narrower strips.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...ir import nodes as ir
from ...ir.folding import add, negate
from ...ir.rewrite import holds, walk_stmts
from ..control import COMPARED
from ..cuda import wrapped
from ..scopes import INDENT, PRIMARY
from ..spelling import c_type
from .lane_conflicts import Total
from .lane_loops import DEPTH, Reduction, Tile, Tiled, Tiling
from .lane_uniformity import is_long
from .lanes import Branch, Give, Lanes, Loop, Mask, Masked, Node, Once, Piece, evaluated, lanes
from .printer import HostExpressions, HostStatements
from .vectorisation_legality import is_vectorisable

LANES = 64  # threads of a full strip
_IN_REGISTERS = 1 << 11  # bytes of arrays over the lanes, at most, for loops over them that compilers write out
_IN_CACHE = 1 << 14  # bytes of such arrays, at most, of a strip that is as wide as that it pays to leave them loops
_MARKS = {4: "GPUAD_FLOATS", 8: "GPUAD_DOUBLES"}  # before loops over lanes, by the bytes of what they compute
_AT_MOST = 1 << 16  # bytes of such arrays for all threads of a block, or of the narrowest strip


@dataclass
class LaneExpressions(HostExpressions):
    """Prints the indices of the lane's thread, and outside of loops over lanes those of the strip's first."""

    lane: str = "gpuad_k"
    in_lane: bool = False
    firsts: dict[int, ir.Var] = field(default_factory=dict)  # of each tile the index of its first iteration
    scratch: dict[ir.Buffer, str] = field(default_factory=dict)  # what the present piece accesses in memory of the strip
    tables: set[ir.Buffer] = field(default_factory=set)  # arrays of threads, of each element of which every lane has one

    def printed(self, expr: ir.Expr) -> tuple[str, int]:
        if isinstance(expr, Tiled):
            return (
                f"{_tile(expr.number)}[{self.widened(expr.arguments[0])[0]} - {self.text(self.firsts[expr.number])}][{self.lane}]",
                PRIMARY,
            )
        return super().printed(expr)

    def element(self, buffer: ir.Buffer, index: ir.Expr) -> str:
        if buffer in self.scratch:
            return f"{self.scratch[buffer]}[{self.lane}]"
        element = super().element(buffer, index)
        return f"{element}[{self.lane}]" if buffer in self.tables else element

    def widened(self, expr: ir.Expr) -> tuple[str, int, bool]:
        if self.in_lane and isinstance(expr, ir.LaunchIndex) and expr.axis == "x" and expr.name in ("threadIdx", "globalIdx"):
            return f"({expr.name}.x + {self.lane})", PRIMARY, True
        return super().widened(expr)


class LaneStatements(HostStatements):
    """Prints a kernel's body for a strip; `plan` is None if no loop is run in step by all threads of a strip."""

    expressions_class = LaneExpressions

    def __init__(self, kernel: ir.Kernel, reserved: Sequence[str], wide: bool) -> None:
        super().__init__(kernel, reserved, wide)
        assert isinstance(self.text, LaneExpressions)
        self.lane_text = self.text
        silent = not holds(self.kernel.body, ir.Tell)
        self.reduced: list[str] = []  # what the loop that is printed next adds to
        self.totals: dict[Total, ir.Var] = {}  # the sums over lanes that the present piece forms
        self.span = ""  # how many iterations the present tile has
        self.lanes, self.last_lane = LANES, "gpuad_lanes"
        plan = lanes(self.kernel, self.classes) if silent else None
        fits = plan is not None and _bytes_of_tables(plan) * LANES // 4 <= _AT_MOST
        self.plan: Lanes | None = plan if fits else None

    def strip(self) -> list[str]:
        """The lines of a strip's work."""
        assert self.plan is not None
        self.lanes = _width(bytes_of(self.plan), stacks=bool(self.kernel.rows))
        self.lane_text.tables |= set(self.plan.tables)
        for root in self.plan.arrays:
            self.array(root)
        for param in self.kernel.scalars:
            self.own(param)
        self.nodes(self.plan.nodes)
        return self.lines

    def array(self, root: ir.Var) -> None:
        """Declares an array over the lanes; one that a variable from outside becomes starts with it."""
        given = self.known(root)
        name = self.declare(root)
        self.line(f"{self.type_name(root)} {name}[{self.lanes}];")
        self.visible[-1][root] = f"{name}[{self.lane_text.lane}]"
        if given:
            self.line(f"{self.lane_loop} {name}[{self.lane_text.lane}] = {given};")

    def local(self, stmt: ir.Alloc, kind: str, name: str) -> None:
        """Of each element of a thread's own array, every lane has one."""
        if stmt.buffer in self.lane_text.tables:
            self.line(f"{kind} {name}[{stmt.buffer.length}][{self.lanes}]{' = {}' if stmt.zero else ''};", stmt.note)
        else:
            super().local(stmt, kind, name)

    @property
    def lane_loop(self) -> str:
        lane = self.lane_text.lane
        return f"for (long long {lane} = 0; {lane} < {self.last_lane}; ++{lane})"

    def own(self, param: ir.Var) -> None:
        """What changes a parameter that is the same for all lanes changes a copy of the strip's own."""
        root = self.classes.find(param)
        assert self.plan is not None
        if len(self.classes.of(param)) > 1 and root not in self.plan.arrays:
            given = self.name_of(param)
            self.line(f"{c_type(param.type)} {self.declare(param)} = {given};")

    # --- the plan ---

    def nodes(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self.node(node)

    def node(self, node: Node) -> None:
        self.holds.clear()
        match node:
            case Piece():
                self.lane_piece(node)
            case Once(action=Give(pairs=pairs)):
                self.assign_all(list(pairs))
            case Once(action=ir.Stmt() as stmt):
                self.statement(stmt)
            case Loop(tiling=Tiling() as tiling):
                self.by_tiles(node, tiling)
            case Loop(stmt=ir.For() as stmt, body=body):
                self.count(stmt, self.bounds(stmt), lambda: self.inside(body))
            case Loop():
                self.repeat_nodes(node)
            case Branch():
                self.two_branches(node)
            case Masked(mask=mask, body=body):
                self.helpers.add("gpuad_any")
                self.braces(f"if (gpuad_any({_mask(mask)}, {self.last_lane}))", lambda: self.nodes(body))
        self.holds.clear()

    def by_tiles(self, loop: Loop, tiling: Tiling) -> None:
        """A loop over tiles, each of which is filled and then used."""
        stmt = tiling.loop
        stop = self.text.at(self.stable(tiling.stop, stmt, "end"), COMPARED)
        start = self.text.text(tiling.start)
        first, end = self.declare(tiling.first), self.declare(tiling.end)

        def work() -> None:
            self.line(f"const long long {end} = {stop} - {first} < {DEPTH} ? {stop} : {first} + {DEPTH};")
            for tile in tiling.tiles:
                self.line(f"{c_type(tile.load.type)} {_tile(tile.number)}[{DEPTH}][{self.lanes}];")
                self.lane_text.firsts[tile.number] = tiling.first
            self.filled(loop.fill, f"{end} - {first}")
            self.count(stmt, (tiling.first, tiling.end, stmt.step), lambda: self.inside(loop.body))

        self.braces(f"for (long long {first} = {start}; {first} < {stop}; {first} += {DEPTH})", work)

    def filled(self, fill: Sequence[Node], span: str) -> None:
        """Fills the tiles of so many iterations; compilers do best with a constant number."""
        self.span = str(DEPTH)
        self.braces(f"if ({span} == {DEPTH})", lambda: self.nodes(fill))
        self.lines[-1] += " else {"
        self.span = span
        self.lines += self.inside(fill)
        self.line("}")

    def fill(self, tile: Tile) -> None:
        """Each lane loads its part of a tile."""
        source = f"gpuad_from{tile.number}"
        self.line(f"const {c_type(tile.load.type)}* {source} = &{self.text.element(tile.load.buffer, tile.load.index)};")
        place = f"{_tile(tile.number)}[gpuad_t][{self.lane_text.lane}]"
        self.line(f"for (int gpuad_t = 0; gpuad_t < {self.span}; ++gpuad_t) {place} = {source}[gpuad_t];")

    def reduce(self, action: Reduction) -> None:
        """The lane's own loop, which adds to variables of its own."""
        parts = {total: ir.Var(f"{total.name}_part", total.type, -(1 << 24) - len(self.lines) - k) for k, total in enumerate(action.sums)}
        for part in parts.values():
            self.line(f"{c_type(part.type)} {self.declare(part)} = 0;")
        self.reduced = [self.name_of(part) for part in parts.values()]
        self.statement(action.into(parts))
        for total, part in parts.items():
            self.statement(ir.Assign(total, add(total, part)))

    def announce(self, stmt: ir.For) -> None:
        super().announce(stmt)
        if self.reduced:
            self.line(f"GPUAD_SUMS({', '.join(self.reduced)})")
            self.reduced = []

    def inside(self, nodes: Sequence[Node]) -> list[str]:
        """The lines of an inner block."""
        outer, self.lines = self.lines, []
        self.open()
        self.nodes(nodes)
        self.close()
        outer, self.lines = self.lines, outer
        return outer

    def braces(self, head: str, work: Callable[[], None]) -> None:
        self.line(f"{head} {{" if head else "{")
        self.open()
        work()
        self.close()
        self.line("}")

    def repeat_nodes(self, loop: Loop) -> None:
        assert not isinstance(loop.stmt, ir.For)

        def work() -> None:
            self.nodes(loop.header)
            self.line(f"if ({self.text.text(negate(loop.stmt.condition))}) break;")  # type: ignore[union-attr]
            self.nodes(loop.body)

        self.braces("while (true)", work)

    def two_branches(self, branch: Branch) -> None:
        self.braces(f"if ({self.text.text(branch.condition)})", lambda: self.nodes(branch.then))
        if branch.otherwise:
            self.lines[-1] += " else {"
            self.lines += self.inside(branch.otherwise)
            self.line("}")

    def lane_piece(self, piece: Piece) -> None:
        for action in piece.actions:
            if isinstance(action, Mask):
                self.line(f"int {_mask(action.number)}[{self.lanes}]{' = {}' if piece.mask is not None else ''};")
        self.take_scratch(piece)
        self.declare_totals(piece)
        lines = self.lane_lines(piece)
        self.lane_text.scratch.clear()
        if lines:
            self.lines += [INDENT * self.depth + self.mark(piece)] if self.is_marked(piece) else []
            self.line(f"{self.lane_loop} {{")
            self.lines += lines
            self.line("}")
        for total, var in self.totals.items():
            self.add_total(total, var)

    def mark(self, piece: Piece) -> str:
        """What tells the compiler that the lanes of a piece are independent."""
        totals = [self.name_of(var) for var in self.totals.values()]
        return f"GPUAD_SUMS({', '.join(totals)})" if totals else _MARKS.get(piece.bytes, "GPUAD_LANES")

    def declare_totals(self, piece: Piece) -> None:
        """Declares the sums over lanes that are formed in the piece."""
        self.totals = {a: self.temporary("total", a.type) for a in piece.actions if isinstance(a, Total)}
        for var in self.totals.values():
            self.line(f"{c_type(var.type)} {self.declare(var)} = 0;")

    def add_total(self, total: Total, var: ir.Var) -> None:
        """Adds a sum over lanes to memory; nothing, if no lane was there to add anything."""
        t = total.stmt.value.type
        value: ir.Expr = var if var.type == t else ir.Cast(var, t)
        self.braces(f"if ({self.name_of(var)} != 0)", lambda: self.statement(total.adding(value)))

    def take_scratch(self, piece: Piece) -> None:
        """Finds where the piece accesses memory of the strip."""
        for buffer, index in piece.scratch or ():
            row, shelf = self.name_of(buffer), self.names.new(f"{buffer.name}_here")
            self.line(f"{c_type(buffer.element)}* const {shelf} = {row}.shelf({self.text.subscript(index)}, gpuad_lanes);")
            self.lane_text.scratch[buffer] = shelf

    def is_marked(self, piece: Piece) -> bool:
        """True if the compiler may take the lanes of a piece for independent, and shall vectorise it."""
        if piece.in_turn or any(isinstance(a, Tile | Reduction) for a in piece.actions):
            return False
        return is_vectorisable((*piece.again, *(item for a in piece.actions for item in evaluated(a))), self.no_alias)

    def lane_lines(self, piece: Piece) -> list[str]:
        outer, self.lines = self.lines, []
        self.open()
        self.lane_text.in_lane = True
        for let in piece.again:
            self.define(let.var, let.value)
        if piece.mask is None:
            self.actions(piece)
        else:
            self.braces(f"if ({_mask(piece.mask)}[{self.lane_text.lane}])", lambda: self.actions(piece))
        self.lane_text.in_lane = False
        self.close()
        outer, self.lines = self.lines, outer
        return outer

    def actions(self, piece: Piece) -> None:
        for action in piece.actions:
            match action:
                case Give(pairs=pairs):
                    self.assign_all(list(pairs))
                case Mask(number=number, condition=condition):
                    self.line(f"{_mask(number)}[{self.lane_text.lane}] = {self.text.text(condition)};")
                case Tile():
                    self.fill(action)
                case Reduction():
                    self.reduce(action)
                case Total():
                    self.line(f"{self.name_of(self.totals[action])} += {self.text.text(action.stmt.value)};")
                case ir.Stmt():
                    self.statement(action)


class BlockStatements(LaneStatements):
    """Prints the body of a kernel whose threads are blocks: loops over the threads of a block, and in these their loops in step outside of
    those over the lanes."""

    def counted_loop(self, stmt: ir.For) -> None:
        plan = lanes(self.kernel, self.classes, stmt) if stmt.independent and any(map(is_long, walk_stmts(stmt.body))) else None
        threads = int(stmt.stop.value) if isinstance(stmt.stop, ir.Constant) else 0
        if plan is None or not threads or bytes_of(plan) * threads > _AT_MOST:
            super().counted_loop(stmt)
            return
        self.forget(stmt)
        self.braces("", lambda: self.threads(stmt, plan, threads))
        self.forget(stmt)

    def threads(self, stmt: ir.For, plan: Lanes, count: int) -> None:
        before = self.lane_text.lane, self.lanes, self.last_lane
        self.lanes, self.last_lane = count, str(count)
        self.lane_text.lane = self.declare(stmt.var)
        for root in plan.arrays:
            self.array(root)
        self.nodes(plan.nodes)
        self.lane_text.lane, self.lanes, self.last_lane = before


def _width(size: int, *, stacks: bool) -> int:
    """How many threads a full strip has, of so many bytes of arrays for each of them. Where these are few, compilers write the loops over
    lanes out, and hold what they can in registers. Where they are more, that would spill: in twice as long loops square roots and
    quotients of many lanes are on their way at once. `stacks`: threads keep what may be much, and `narrow` strips do."""
    if LANES * size <= _IN_REGISTERS:
        return LANES
    if 2 * LANES * size <= _IN_CACHE and not stacks:
        return 2 * LANES
    return LANES // 2 if LANES // 2 * size <= _IN_CACHE else LANES // 4


def bytes_of(plan: Lanes) -> int:
    """The bytes that a lane has in arrays."""
    return sum(root.type.size for root in plan.arrays) + _bytes_of_tables(plan)


def _bytes_of_tables(plan: Lanes) -> int:
    return sum((table.length or 0) * table.element.size for table in plan.tables)


def _tile(number: int) -> str:
    return f"gpuad_tile{number}"


def _mask(number: int) -> str:
    return f"gpuad_mask{number}"


def _cut(value: str, shift: int) -> list[str]:
    """Ends a strip where a guard changes."""
    left = f"(long long)({value}) + {shift} - globalIdx.x - gpuad_at"
    shorter = "if (gpuad_left > 0 && gpuad_left < gpuad_lanes) gpuad_lanes = gpuad_left;"
    return ["{", f"{INDENT}const long long gpuad_left = {left};", f"{INDENT}{shorter}", "}"]


def strips(
    printer: LaneStatements, name: str, dimensions: Sequence[str], arguments: Sequence[str], declared: Sequence[str], narrow: str
) -> list[str]:
    """Functions that run a strip of threads along x, and a number of threads from one on: full strips, whose loops over the lanes have a
    constant length, and what is left. Each is a function of its own: a compiler holds registers for masked loads all through a function.
    `declared`: their parameters, of which `arguments` are the names; `narrow`: how many threads a strip may have at most, if that is not
    known before the launch."""
    lines, lanes_ = printer.strip(), printer.lanes
    given = [*declared, *(f"const gpuad_dim {n}" for n in dimensions)]
    some = [*given, "const long long gpuad_lanes"]
    here = ", ".join([*arguments, *dimensions])
    place = [f"{{{n}.x + gpuad_at, {n}.y, {n}.z}}" if n in ("threadIdx", "globalIdx") else n for n in dimensions]
    there = ", ".join([*arguments, *place])
    cuts = [line for bound in printer.plan.cuts for line in _cut(printer.text.text(bound.value), bound.shift)] if printer.plan else []
    most = [f"{INDENT * 2}if (gpuad_lanes > gpuad_most) gpuad_lanes = gpuad_most;"] if narrow else []
    loop = [
        *([f"{INDENT}const long long gpuad_most = {narrow};"] if narrow else []),
        f"{INDENT}long long gpuad_at = 0;",
        f"{INDENT}while (gpuad_at < gpuad_count) {{",
        f"{INDENT * 2}long long gpuad_lanes = gpuad_count - gpuad_at < {lanes_} ? gpuad_count - gpuad_at : {lanes_};",
        *most,
        *(INDENT * 2 + line for line in cuts),
        f"{INDENT * 2}if (gpuad_lanes == {lanes_})",
        f"{INDENT * 3}gpuad_full_{name}({there});",
        f"{INDENT * 2}else",
        f"{INDENT * 3}gpuad_rest_{name}({there}, gpuad_lanes);",
        f"{INDENT * 2}gpuad_at += gpuad_lanes;",
        f"{INDENT}}}",
    ]
    return [
        *_function(f"GPUAD_INLINE void gpuad_strip_{name}", some, lines),
        *_function(f"static GPUAD_NOINLINE void gpuad_full_{name}", given, [f"{INDENT}gpuad_strip_{name}({here}, {lanes_});"]),
        *_function(f"static GPUAD_NOINLINE void gpuad_rest_{name}", some, [f"{INDENT}gpuad_strip_{name}({here}, gpuad_lanes);"]),
        *_function(f"static GPUAD_NOINLINE void gpuad_strips_{name}", [*given, "const long long gpuad_count"], loop),
    ]


def _function(head: str, declared: Sequence[str], lines: Sequence[str]) -> list[str]:
    return [*wrapped(head, [*declared]), "{", *lines, "}", ""]
