"""The CPU back end: prints kernels as C++, the body as in the CUDA text, and an entry that runs it for every thread of the launch.

The loop over x is innermost and runs over the global index where the kernel knows no other, so that compilers vectorise it; the rows around
it are shared out to the workers in contiguous parts. Threads of a launch that touch plain memory only are independent of one another by
premise (no data races), which the loop tells the compiler if each thread's accesses keep their order then too (`vectorisation_legality`);
with atomics or arrays of its own a thread is not.

Sums over threads are formed in strips: each thread of a strip leaves its contribution in an array, of which each lane of a vector then adds
up its part. So no thread waits for the sum of the one before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.functions import FUNCTIONS
from ...ir.nodes import Alloc, Buffer, Call, For, Kernel, Var, While, walk
from ...ir.rewrite import expressions_in, holds, walk_stmts
from ...ir.types import F32, Space
from ...optimize.scalar_replacement import unroll_local_arrays
from ..cuda import comment, functions, parameters, pointer, wrapped
from ..folded import fold, written
from ..scopes import INDENT
from ..spelling import c_type, identifier
from .grid_stride import Flat, flatten
from .helpers import ATOMICS, BLOCK_SUMS, ROWS, SUMS, WITH_POOL, WITHOUT_POOL, host_helper_text
from .iteration_domain import Bound, Inner, Ranged, iterations, merge_axes, take_bounds
from .lane_conflicts import has_conflict, is_sum, sink_sums
from .lane_text import BlockStatements, LaneStatements, strips
from .printer import HostStatements
from .register_promotion import promote_registers
from .row_loops import delinearise, hoist, split_index_set
from .vectorisation_legality import STRIP as FULL
from .vectorisation_legality import is_vectorisable, may_overlap_tail

_THREADS = 1 << 15  # from which on it pays to start workers
_LOOPING = 1 << 11  # the same of threads that loop
_ITERATIONS = 1 << 17  # of all threads together, however few they are
STRIP = 32  # threads whose contributions to a sum wait to be added up
_RESERVED = ("gpuad_sums", "gpuad_done")
_CLAMPED = (f"{INDENT}return gpuad_stop > 0 ? gpuad_stop : 0;",)
_DIMENSIONS = ("threadIdx", "blockIdx", "globalIdx", "blockDim", "gridDim")


def host_source(kernels: Sequence[Kernel], wide: bool = True, no_alias: bool = True, own_pool: bool = False) -> str:
    """C++14 text with an entry `int gpuad_launch_<name>(const long long* geometry, const unsigned long long* slots)` for each kernel.

    `geometry` holds the grid (x, y, z), the block (x, y, z) and the greatest number of workers, which is a demand if it is negative.
    `slots` holds each argument in 8 bytes: a pointer, or a scalar in the first of them. The entry returns 0, or 1 if the launch is too
    large, or 2 without memory. `wide`: subscripts are computed in 64 bits, for arrays of less than 2^31 elements and unsigned scalars below
    2^31. `no_alias`: for arguments of which no written one overlaps another; compile these with -DGPUAD_RESTRICT=__restrict__. Compile with
    -DGPUAD_ATOMICS for several workers on a kernel with atomics. `own_pool`: the text has threads of its own; else `gpuad_shared_out_by`
    says whose they are (see `tasks`), or all is done by the caller's. UnsupportedError for what the CPU cannot run.
    """
    texts = [_Entry(kernel, wide, no_alias) for kernel in kernels]
    helpers = {name for text in texts for name in text.helpers}
    atomics = ATOMICS if any(text.atomic for text in texts) else ""
    scattered = any(text.sums and not text.strips for text in texts)
    includes = ["#include <vector>\n" * any(text.sums for text in texts), "#include <map>\n" * scattered]
    sums = [SUMS * any(text.strips for text in texts), BLOCK_SUMS * scattered]
    rows = ROWS if any(kernel.rows for kernel in kernels) else ""
    parts = [*includes, WITH_POOL if own_pool else WITHOUT_POOL, rows, *sums, atomics, host_helper_text(helpers)]
    return "".join(parts) + "\n".join(t.body for t in texts) + "\n}  // namespace\n\n" + "\n".join(t.entry for t in texts)


def has_atomics(kernel: Kernel) -> bool:
    """True if threads of the kernel meet at the same memory: then one worker with plain operations is faster than several with atomics."""
    return has_conflict(kernel.body)


_INLINE = frozenset({
    "sqrt", "rsqrt", "fabs", "fmin", "fmax", "floor", "ceil", "trunc", "rint", "nearbyint", "copysign", "fma", "gpuad_chain", "gpuad_half",
    "gpuad_bfloat16", "__fdividef", "__frcp_rn", "__fsqrt_rn", "__frsqrt_rn", "__fadd_rn", "__fsub_rn", "__fmul_rn", "__fdiv_rn",
    "__fmaf_rn", "__dadd_rn", "__dsub_rn", "__dmul_rn", "__ddiv_rn", "__dsqrt_rn", "__drcp_rn", "__fma_rn",
})  # fmt: skip


def library_calls(kernel: Kernel) -> int:
    """How often the text of a kernel calls the C library for a float: compilers do not vectorise what does."""
    calls = (e for x in expressions_in(kernel.body) for e in walk(x) if isinstance(e, Call))
    return sum(1 for e in calls if FUNCTIONS[e.function].domain == "float" and not _is_inline(e))


def _is_inline(call: Call) -> bool:
    return call.function in _INLINE or (call.function == "exp" and call.type == F32)


def is_flat(kernel: Kernel) -> bool:
    """True if the kernel is a grid-stride loop that the CPU runs as one loop over all elements."""
    return flatten(merge_axes(kernel).kernel).stop is not None


@dataclass(frozen=True)
class _Loop:
    """The loop over an axis: over global indices if it is merged, else over blocks and, inside, threads."""

    axis: str
    merged: bool

    @property
    def rows(self) -> str:
        if self.merged:
            return "1" if self.axis == "x" else f"gridDim.{self.axis} * blockDim.{self.axis}"
        return f"gridDim.{self.axis}"

    @property
    def threads(self) -> str:
        return "1" if self.merged and self.axis != "x" else f"blockDim.{self.axis}"


class _Entry:
    """The text of one kernel: its body, the loop over rows, the entry."""

    def __init__(self, kernel: Kernel, wide: bool, no_alias: bool) -> None:
        blocks = any(isinstance(s, For) and s.independent for s in walk_stmts(kernel.body))  # are its threads: their arrays stay
        axes = merge_axes(kernel if blocks or not holds(kernel.body, Alloc) else unroll_local_arrays(kernel, assigned=True))
        loops = holds(axes.kernel.body, For, While)
        flat = flatten(axes.kernel) if loops and wide and no_alias and "x" in axes.merged else Flat(axes.kernel)
        self.name = identifier(kernel.name)
        self.loops = {axis: _Loop(axis, axis in axes.merged) for axis in "xyz"}
        summed = fold(sink_sums(flat.kernel))
        ranged = take_bounds(summed) if wide and "x" in axes.merged else Ranged(summed)
        self.bounds, self.stop = ranged.bounds, flat.stop
        self.iterations = iterations(ranged.kernel)
        summed_up = any(is_sum(s) for s in walk_stmts(ranged.kernel.body))
        columns = delinearise(ranged.kernel) if wide and "x" in axes.merged and not summed_up else None
        self.divided = columns.rows if columns else ()
        self.given = ranged.kernel.params
        rows = hoist(columns.kernel if columns else ranged.kernel)
        self.of_row = rows.values
        reserved = [*functions(kernel), *_DIMENSIONS, *_RESERVED]
        self.printer = (BlockStatements if blocks and no_alias else HostStatements)(rows.kernel, reserved, wide)
        self.printer.no_alias = no_alias
        self.row_fields = kernel.rows
        self.declared = self.parameters(self.printer)
        self.kernel = self.printer.kernel
        lines = self.printer.body()
        self.sums = self.printer.sums
        self.strips = bool(self.sums) and self.printer.strips
        self.helpers = self.printer.helpers
        self.atomic = has_atomics(kernel)
        in_lanes = loops and no_alias and not self.sums and not (blocks and (self.row_fields or not self.interleaved))
        self.lanes = LaneStatements(rows.kernel, reserved, wide) if in_lanes else None
        if self.lanes and self.lanes.plan is None:
            self.lanes = None
        self.straight = self.independent and not holds(self.kernel.body, For, While)
        split = wide and "x" in axes.merged and self.independent and not self.lanes and (self.straight or not self.sums)
        self.inner = split_index_set(rows.kernel) if split else None
        self.inside: HostStatements | None = None
        self.inside_text: tuple[list[str], list[str]] = ([], [])  # of its parameters and of its body
        if self.inner is not None:
            self.take_inside(HostStatements(self.inner.kernel, reserved, wide))
        self.in_order = self.independent and is_vectorisable(self.kernel.body, no_alias)
        self.inner_in_order = self.inside is not None and is_vectorisable(self.inside.kernel.body, no_alias)
        promotes = split and no_alias and (self.inner is not None or not self.sums)
        if promotes and not (self.inner_in_order if self.inside else self.in_order):
            self.promote(rows.kernel, reserved)
        plain = self.inner_in_order and not library_calls(kernel) and not self.sums
        self.in_full = plain and no_alias and self.inside is not None and may_overlap_tail(self.inside.kernel)
        inside = self.inner_function()
        body = [] if self.lanes else [*self.function(lines), ""]
        looped = self.looped()
        before, after = (looped, []) if self.lanes and self.row_fields else ([], looped)
        self.body = "\n".join([*comment(kernel.header), *before, *body, *inside, *self.rows(), "", *self.width(), *after, *self.part()])
        self.entry = "\n".join([*self.launch(), ""])

    def promote(self, kernel: Kernel, reserved: Sequence[str]) -> None:
        """Where a row shows that elements of an array are apart, a thread has them in variables (`register_promotion`)."""
        found = promote_registers(self.inner or Inner(kernel, None, ()))
        if found is None:
            return
        inside = HostStatements(found.inner.kernel, reserved, True)
        if is_vectorisable(inside.kernel.body, True, found.buffers) and self.take_inside(inside):
            self.inner, self.inner_in_order = found.inner, True

    def take_inside(self, printer: HostStatements) -> bool:
        """Takes what a printer writes as a thread's work where all guards hold, unless its contributions to sums are others than elsewhere.
        Whether it was taken."""
        text = self.parameters(printer), printer.body()
        if [(s.stmt.buffer, s.stmt.index, s.part) for s in printer.sums] != [(s.stmt.buffer, s.stmt.index, s.part) for s in self.sums]:
            return False
        self.inside, self.inside_text = printer, text
        return True

    @property
    def independent(self) -> bool:
        """True if the compiler may run threads of a row at once."""
        return self.interleaved and not self.row_fields

    @property
    def interleaved(self) -> bool:
        """True if the operations of threads may be interleaved, if memory for one after the other is made one for each."""
        own = any(isinstance(s, Alloc) and s.buffer.space is Space.LOCAL for s in walk_stmts(self.kernel.body))
        return not (self.atomic or own or (self.sums and not self.strips))

    def function(self, lines: list[str]) -> list[str]:
        """A thread's work; and once more as a function that is not inlined, for the threads that fill no strip."""
        declared = [*self.declared, *self.contributions(), *(f"const gpuad_dim {name}" for name in _DIMENSIONS)]
        text = [*wrapped(f"GPUAD_INLINE void gpuad_body_{self.name}", declared), "{", *lines, "}"]
        if not (self.strips and self.straight):
            return text
        call = f"{INDENT}gpuad_body_{self.name}({', '.join([*self.arguments(), *self.passed(), *_DIMENSIONS])});"
        return [*text, "", *wrapped(f"static GPUAD_NOINLINE void gpuad_thread_{self.name}", declared), "{", call, "}"]

    def contributions(self) -> list[str]:
        """What a thread's function takes for its contributions to sums."""
        if self.strips:
            return [f"{c_type(s.part)}& gpuad_sum{k}" for k, s in enumerate(self.sums)]
        return ["gpuad_partial* gpuad_sums", "std::vector<gpuad_flushed>* gpuad_done"] if self.sums else []

    def inner_function(self) -> list[str]:
        """A thread's work where all guards hold, or the work of strips of threads."""
        if self.lanes is not None:
            declared = self.parameters(self.lanes, " GPUAD_RESTRICT")
            text = strips(self.lanes, self.name, _DIMENSIONS, self.arguments(), declared, self.narrow())
            self.helpers |= self.lanes.helpers
            return text
        if self.inside is None:
            return []
        parameters_, lines = self.inside_text
        declared = [*parameters_, *self.contributions(), *(f"const gpuad_dim {name}" for name in _DIMENSIONS)]
        text = [*wrapped(f"GPUAD_INLINE void gpuad_inner_{self.name}", declared), "{", *lines, "}", ""]
        self.helpers |= self.inside.helpers
        return text

    def narrow(self) -> str:
        """How many threads a strip may have so that what they keep is not too much."""
        if not self.row_fields or self.iterations is None:
            return ""
        numbers = [self.printer.name_of(p) for p in self.given if isinstance(p, Var)]
        return f"gpuad_narrow(gpuad_iterations_{self.name}({', '.join([*numbers, 'blockDim', 'gridDim'])}))"

    def passed(self) -> list[str]:
        """What a thread gets for its contributions to sums."""
        if self.strips:
            return [f"gpuad_sum{k}" for k in range(len(self.sums))]
        return ["gpuad_sums", "gpuad_done"] if self.sums else []

    def arguments(self) -> list[str]:
        return [self.printer.name_of(p) for p in self.kernel.params]

    def width(self) -> list[str]:
        """How many threads a row has if that is no number of the launch."""
        if self.stop is None:
            return []
        dimensions = ["const gpuad_dim blockDim", "const gpuad_dim gridDim"]
        head = wrapped(f"static long long gpuad_width_{self.name}", [*self.declared[: len(self.given)], *dimensions])
        return [*head, "{", f"{INDENT}const long long gpuad_stop = {self.printer.text.text(self.stop)};", *_CLAMPED, "}", ""]

    def looped(self) -> list[str]:
        """About how many iterations a thread makes in its loops."""
        if self.iterations is None:
            return []
        numbers = [text for p, text in zip(self.given, self.declared, strict=False) if isinstance(p, Var)]
        head = wrapped(f"static double gpuad_iterations_{self.name}", [*numbers, "const gpuad_dim blockDim", "const gpuad_dim gridDim"])
        return [*head, "{", f"{INDENT}return {self.printer.text.text(self.iterations)};", "}", ""]

    def parameters(self, printer: HostStatements, qualifier: str = "") -> list[str]:
        """What a thread's function takes: of memory that grows, the row."""
        texts = zip(self.row_params(printer), parameters(printer, qualifier), strict=True)
        return [text if row is None else f"gpuad_row<{row}>& {text.split()[-1]}" for row, text in texts]

    def row_params(self, printer: HostStatements) -> list[str | None]:
        """For each parameter the type of its elements, if it is a row."""
        return [c_type(p.element) if isinstance(p, Buffer) and p in self.row_fields else None for p in printer.kernel.params]

    def rows(self) -> list[str]:
        changed = {written(s) for s in walk_stmts(self.kernel.body)}
        declared = [
            f"{pointer(p, p not in changed)} GPUAD_RESTRICT {self.printer.name_of(p)}" if isinstance(p, Buffer) else text
            for p, text in zip(self.given, self.declared, strict=False)
        ]
        done = ["double* gpuad_totals" if self.strips else "std::vector<gpuad_flushed>* gpuad_done"] if self.sums else []
        numbers = [
            "const gpuad_dim blockDim",
            "const gpuad_dim gridDim",
            *(f"long long gpuad_{n}" for n in ("first", "last", "from", "to")),
        ]
        declared = [text for p, text in zip(self.given, declared, strict=True) if p not in self.row_fields]
        wide = "GPUAD_WIDE " if self.straight and not self.sums else ""
        head = wrapped(f"{wide}static void gpuad_rows_{self.name}", [*declared, *done, *numbers])
        before, after = self.around()
        named = zip(self.kernel.params, self.arguments(), self.row_params(self.printer), strict=True)
        own = [f"{INDENT}gpuad_row<{kind}> {name};" for _, name, kind in named if kind is not None]
        return [*head, "{", *own, *(self.narrowed(bound) for bound in self.bounds), *before, *self.row_loop(), *after, "}"]

    def around(self) -> tuple[list[str], list[str]]:
        """What a worker does for the sums before and after its rows."""
        count = len(self.sums)
        if self.strips:
            parts = [f"{INDENT}{c_type(s.part)} gpuad_part{k}[{STRIP}];" for k, s in enumerate(self.sums)]
            totals = [f"{INDENT}gpuad_totals[{k}] = gpuad_lanes{k}.total();" for k in range(count)]
            return [*parts, *(f"{INDENT}gpuad_lanes gpuad_lanes{k};" for k in range(count))], totals
        if not count:
            return [], []
        flush = "gpuad_flush(gpuad_done[k], gpuad_sums[k].target, gpuad_sums[k].sum)"
        return [f"{INDENT}gpuad_partial gpuad_sums[{count}];"], [f"{INDENT}for (int k = 0; k < {count}; ++k) {flush};"]

    def narrowed(self, bound: Bound, ends: tuple[str, str] = ("from", "to")) -> str:
        """Narrows the range of x to what the kernel's guard lets pass."""
        side, choose = (ends[0], ">") if bound.lower else (ends[1], "<")
        value = f"(long long)({self.printer.text.text(bound.value)}) + {bound.shift}"
        return f"{INDENT}if ({value} {choose} gpuad_{side}) gpuad_{side} = {value};"

    def row_loop(self) -> list[str]:
        x, y, z = (self.loops[a] for a in "xyz")
        return [
            f"{INDENT}for (long long gpuad_row = gpuad_first; gpuad_row < gpuad_last; ++gpuad_row) {{",
            f"{INDENT * 2}const long long gpuad_rx = gpuad_row % ({x.rows});",
            f"{INDENT * 2}const long long gpuad_ry = gpuad_row / ({x.rows}) % ({y.rows});",
            f"{INDENT * 2}const long long gpuad_rz = gpuad_row / ({x.rows}) / ({y.rows});",
            f"{INDENT * 2}for (long long gpuad_tz = 0; gpuad_tz < {z.threads}; ++gpuad_tz)",
            f"{INDENT * 2}for (long long gpuad_ty = 0; gpuad_ty < {y.threads}; ++gpuad_ty) {{",
            *(INDENT * 3 + line for line in self.thread_loop()),
            f"{INDENT * 2}}}",
            f"{INDENT}}}",
        ]

    def row_values(self) -> list[str]:
        """What is computed once for a row."""
        if not self.of_row:
            return []
        dimensions = (f"{name} = {place}" for name, place in zip(_DIMENSIONS, self.places("0"), strict=False))
        declared = (
            f"const {c_type(var.type)} {self.printer.name_of(var)} = {self.printer.text.text(value)};" for var, value in self.of_row
        )
        return [f"const gpuad_dim {', '.join(dimensions)};", *declared]

    def thread_loop(self) -> list[str]:
        """The loop over the threads of a row."""
        if self.strips:
            if self.inner is not None and self.inside is not None:
                return [*self.row_values(), *self.split_strips(self.inner)]
            if not self.straight:
                return [*self.row_values(), *self.strip_loop()]
            return [*self.row_values(), *self.full_strips(), *self.by_themselves("gpuad_strip", "gpuad_to")]
        return self.row_by_row() if self.divided else self.line_loop()

    def row_by_row(self) -> list[str]:
        """The loop over the rows into which the kernel divides its threads."""
        quotients = [(self.printer.name_of(r.quotient), c_type(r.divisor.type), self.printer.text.text(r.divisor)) for r in self.divided]
        self.helpers.add("gpuad_row_of")
        (first, _, width), *_ = quotients
        return [
            "for (long long gpuad_start = gpuad_from, gpuad_next; gpuad_start < gpuad_to; gpuad_start = gpuad_next) {",
            f"{INDENT}gpuad_next = gpuad_to;",
            *(f"{INDENT}const {kind} {q} = gpuad_row_of<{kind}>(gpuad_start, {by}, gpuad_next);" for q, kind, by in quotients),
            f"{INDENT}const long long gpuad_shift = (long long){first} * (long long)({width});",
            f"{INDENT}const long long gpuad_from = gpuad_start - gpuad_shift, gpuad_to = gpuad_next - gpuad_shift;",
            *(INDENT + line for line in self.line_loop()),
            "}",
        ]

    def line_loop(self) -> list[str]:
        """The loop over threads that are neighbours."""
        if self.inner is not None:
            return [*self.row_values(), *self.split_loop(self.inner)]
        if self.lanes is not None:
            return [*self.row_values(), self.call("strips", "gpuad_from", ["gpuad_to - gpuad_from"])]
        return [*self.row_values(), *self.plain_loop("body", "gpuad_from", "gpuad_to")]

    def plain_loop(self, function: str, first: str, end: str) -> list[str]:
        marked = self.inner_in_order if function == "inner" else self.in_order
        return [
            *(["GPUAD_INDEPENDENT"] if marked else []),
            f"for (long long gpuad_x = {first}; gpuad_x < {end}; ++gpuad_x)",
            f"{INDENT}{self.call(function)}",
        ]

    def split_loop(self, found: Inner) -> list[str]:
        """The loop in three parts, in the middle one of which all guards hold."""
        return [
            *self.middle(found),
            *([f"if (gpuad_high - gpuad_low < {FULL}) gpuad_high = gpuad_low;"] if self.in_full else []),
            *self.plain_loop("body", "gpuad_from", "gpuad_low"),
            *(self.full_loop() if self.in_full else self.plain_loop("inner", "gpuad_low", "gpuad_high")),
            *self.plain_loop("body", "gpuad_high", "gpuad_to"),
        ]

    def middle(self, found: Inner) -> list[str]:
        """Where the middle of a row begins and ends."""
        rows = [f"if (!({self.printer.text.text(found.rows)})) gpuad_high = gpuad_low;"] if found.rows is not None else []
        return [
            "long long gpuad_low = gpuad_from, gpuad_high = gpuad_to;",
            *([] if self.of_row else [f"const gpuad_dim globalIdx = {self.places('0')[2]};"]),
            *(self.narrowed(bound, ("low", "high")).strip() for bound in found.bounds),
            "if (gpuad_low > gpuad_to) gpuad_low = gpuad_to;",
            "if (gpuad_high < gpuad_low) gpuad_high = gpuad_low;",
            *rows,
        ]

    def full_loop(self) -> list[str]:
        """The middle in strips of one length, the last of which may begin with threads that were done before."""
        return [
            f"for (long long gpuad_strip = gpuad_low; gpuad_strip < gpuad_high; gpuad_strip += {FULL}) {{",
            f"{INDENT}if (gpuad_high - gpuad_strip < {FULL}) gpuad_strip = gpuad_high - {FULL};",
            f"{INDENT}GPUAD_INDEPENDENT",
            f"{INDENT}for (int gpuad_k = 0; gpuad_k < {FULL}; ++gpuad_k) {{",
            f"{INDENT * 2}const long long gpuad_x = gpuad_strip + gpuad_k;",
            f"{INDENT * 2}{self.call('inner')}",
            f"{INDENT}}}",
            "}",
        ]

    def strip_loop(self) -> list[str]:
        """The threads in strips: what they contribute to the sums is added up after each."""
        last = f"gpuad_to - gpuad_strip < {STRIP} ? gpuad_to : gpuad_strip + {STRIP}"
        return [
            f"for (long long gpuad_strip = gpuad_from; gpuad_strip < gpuad_to; gpuad_strip += {STRIP}) {{",
            f"{INDENT}const long long gpuad_end = {last};",
            f"{INDENT}for (long long gpuad_x = gpuad_strip; gpuad_x < gpuad_end; ++gpuad_x) {{",
            *(INDENT * 2 + line for line in (*self.zeros(), self.call("body"), *self.parts("gpuad_x - gpuad_strip"))),
            f"{INDENT}}}",
            *(INDENT + line for line in self.added("gpuad_part", "gpuad_end - gpuad_strip")),
            "}",
        ]

    def full_strips(self, function: str = "body", first: str = "gpuad_from", end: str = "gpuad_to") -> list[str]:
        """Strips of one length, with which compilers do best, of threads `first` to `end` that may run at once."""
        return [
            f"long long gpuad_strip = {first};",
            f"for (; {end} - gpuad_strip >= {STRIP}; gpuad_strip += {STRIP}) {{",
            *(INDENT + line for line in self.strip(function, str(STRIP))),
            "}",
        ]

    def strip(self, function: str, count: str) -> list[str]:
        """So many threads of a strip, and what they contribute."""
        marked = self.inner_in_order if function == "inner" else self.in_order
        return [
            *(["GPUAD_INDEPENDENT"] if marked else []),
            f"for (int gpuad_k = 0; gpuad_k < {count}; ++gpuad_k) {{",
            f"{INDENT}const long long gpuad_x = gpuad_strip + gpuad_k;",
            *(INDENT + line for line in (*self.zeros(), self.call(function), *self.parts("gpuad_k"))),
            "}",
            *self.added("gpuad_part", count),
        ]

    def split_strips(self, found: Inner) -> list[str]:
        """Strips in the middle of the row, where all guards hold, the last of them as long as is left; the threads on both sides of it by
        themselves."""
        return [
            *self.middle(found),
            *self.by_themselves("gpuad_from", "gpuad_low"),
            *self.full_strips("inner", "gpuad_low", "gpuad_high"),
            *self.strip("inner", "gpuad_high - gpuad_strip"),
            *self.by_themselves("gpuad_high", "gpuad_to"),
        ]

    def by_themselves(self, first: str, end: str) -> list[str]:
        """The loop over threads that fill no strip."""
        return [
            f"for (long long gpuad_x = {first}; gpuad_x < {end}; ++gpuad_x) {{",
            *(INDENT + line for line in (*self.zeros(), self.call("thread"), *self.added("&gpuad_sum", "1"))),
            "}",
        ]

    def zeros(self) -> list[str]:
        return [f"{c_type(s.part)} gpuad_sum{k} = 0;" for k, s in enumerate(self.sums)]

    def parts(self, place: str) -> list[str]:
        return [f"gpuad_part{k}[{place}] = gpuad_sum{k};" for k in range(len(self.sums))]

    def added(self, what: str, count: str) -> list[str]:
        return [f"gpuad_lanes{k}.add({what}{k}, {count});" for k in range(len(self.sums))]

    def call(self, function: str, thread: str = "gpuad_x", more: Sequence[str] = ()) -> str:
        """The call for one thread, or for those from one thread on."""
        given = [*self.arguments(), *self.passed(), *self.places(thread), "blockDim", "gridDim", *more]
        return f"gpuad_{function}_{self.name}({', '.join(given)});"

    def places(self, thread: str) -> list[str]:
        """The indices of a thread of the row, by its number in the row."""
        index = {a: f"gpuad_r{a}" if self.loops[a].merged else f"gpuad_r{a} * blockDim.{a} + gpuad_t{a}" for a in "yz"}
        index["x"] = thread if self.loops["x"].merged else f"gpuad_rx * blockDim.x + {thread}"
        return [f"{{{thread}, gpuad_ty, gpuad_tz}}", "{gpuad_rx, gpuad_ry, gpuad_rz}", f"{{{index['x']}, {index['y']}, {index['z']}}}"]

    def part(self) -> list[str]:
        """The work of a part of a launch."""
        count = len(self.sums)
        done = [f"({self.kept()}*)launch.done + {count} * range.part"] if count else []
        slots = [slot for p, slot in zip(self.given, self.slots("launch.slots"), strict=True) if p not in self.row_fields]
        ends = (f"range.{end}" for end in ("first", "last", "from", "to"))
        call = ", ".join([*slots, *done, "launch.blockDim", "launch.gridDim", *ends])
        return [
            f"static void gpuad_part_{self.name}(const gpuad_launch& launch, const gpuad_range& range)",
            "{",
            f"{INDENT}gpuad_rows_{self.name}({call});",
            "}",
            "",
        ]

    def launch(self) -> list[str]:
        x, y, z = (self.loops[a] for a in "xyz")
        count = len(self.sums)
        width = "gridDim.x * blockDim.x" if x.merged else "blockDim.x"
        if self.stop is not None:
            width = f"gpuad_width_{self.name}({', '.join([*self.slots(), 'blockDim', 'gridDim'])})"
        yes = ("false", "true")
        lines = [
            "using namespace gpuad_host;",
            "gpuad_launch launch;",
            "if (!gpuad_begin(launch, geometry, slots)) return 1;",
            "const gpuad_dim &gridDim = launch.gridDim, &blockDim = launch.blockDim;",
            f"launch.rows = ({z.rows}) * ({y.rows}) * ({x.rows});",
            f"launch.width = {width};",
            f"launch.run = gpuad_part_{self.name};",
            f"const long long threads = launch.rows * launch.width * {y.threads} * {z.threads};",
            f"gpuad_share(launch, geometry[6], threads, {self.pays()}, {yes[x.merged]}, {yes[count > 0]});",
            *([f"std::vector<{self.kept()}> done({count} * launch.parts);", "launch.done = done.data();"] if count else []),
            *(["const int status = gpuad_run(launch);", *self.combine(), "return status;"] if count else ["return gpuad_run(launch);"]),
        ]
        head = f'extern "C" GPUAD_EXPORT int gpuad_launch_{self.name}(const long long* geometry, const unsigned long long* slots)'
        return [head, "{", *(INDENT + line for line in lines), "}"]

    def kept(self) -> str:
        """What a worker keeps of each sum."""
        return "double" if self.strips else "std::vector<gpuad_flushed>"

    def slots(self, where: str = "slots") -> list[str]:
        changed = {written(s) for s in walk_stmts(self.kernel.body)}
        kinds = [pointer(p, p not in changed) if isinstance(p, Buffer) else c_type(p.type) for p in self.given]
        return [f"gpuad_slot<{kind}>({where}, {k})" for k, kind in enumerate(kinds)]

    def combine(self) -> list[str]:
        """Adds the workers' sums to memory."""
        count, kinds = len(self.sums), [c_type(s.stmt.buffer.element) for s in self.sums]
        if not self.strips:
            return [f"gpuad_combine<{kind}>(done, {k}, {count});" for k, kind in enumerate(kinds)]
        targets = [f"{self.slots()[self.given.index(s.stmt.buffer)]} + {self.printer.text.text(s.stmt.index)}" for s in self.sums]
        return [f"gpuad_add_up(done, {k}, {count}, {target});" for k, target in enumerate(targets)]

    def pays(self) -> str:
        """The condition under which starting workers for a launch pays, as C++."""
        if self.iterations is None:
            return f"threads >= {_THREADS}"
        numbers = [slot for p, slot in zip(self.given, self.slots(), strict=True) if isinstance(p, Var)]
        call = f"gpuad_iterations_{self.name}({', '.join([*numbers, 'blockDim', 'gridDim'])})"
        return f"threads >= {_LOOPING} || threads * {call} >= {_ITERATIONS}.0"
