"""Prints kernels as C++ for the CPU: the body as in the CUDA text, and an entry that runs it for every thread of the launch.

The loop over x is innermost and runs over the global index where the kernel knows no other, so that compilers vectorise it; the rows around
it are shared out to the workers in contiguous parts. Threads of a launch that touch plain memory only are independent of one another by
premise (no data races), which the loop tells the compiler; with atomics or arrays of its own a thread is not.

Sums over threads are formed in strips: each thread of a strip leaves its contribution in an array, of which each lane of a vector then adds
up its part. So no thread waits for the sum of the one before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import UnsupportedError
from ..ir.nodes import (
    Accumulate,
    Alloc,
    Atomic,
    Barrier,
    Buffer,
    Cast,
    Constant,
    Expr,
    For,
    How,
    Kernel,
    Shuffle,
    Stmt,
    Take,
    Tell,
    Var,
    While,
)
from ..ir.types import F32, F64, Scalar, Space
from .axes import merge_axes
from .cuda import comment, functions, parameters, pointer, wrapped
from .fold import fold
from .host_expressions import HostExpressions
from .host_helpers import ATOMICS, BLOCK_SUMS, PRELUDE, host_helper_text
from .host_threads import THREADS
from .naming import identifier
from .ranges import Bound, Inner, Ranged, inner, take_bounds
from .spelling import c_type
from .statements import INDENT, Statements
from .stride import Flat, flatten
from .structure import statements, written
from .sums import is_sum, sink_sums
from .widen import Wide, widen

STRIP = 32  # threads whose contributions to a sum wait to be added up
_RESERVED = ("gpuad_sums", "gpuad_done")
_CLAMPED = (f"{INDENT}return gpuad_stop > 0 ? gpuad_stop : 0;",)
_DIMENSIONS = ("threadIdx", "blockIdx", "globalIdx", "blockDim", "gridDim")


def host_source(kernels: Sequence[Kernel], wide: bool = True, apart: bool = True) -> str:
    """C++17 text with an entry `int gpuad_launch_<name>(const long long* geometry, const unsigned long long* slots)` for each kernel.

    `geometry` holds the grid (x, y, z), the block (x, y, z) and the greatest number of workers, which is a demand if it is negative.
    `slots` holds each argument in 8 bytes: a pointer, or a scalar in the first of them. The entry returns 0, or 1 if the launch is too
    large, or 2 without memory. `wide`: subscripts are computed in 64 bits, for arrays of less than 2^31 elements and unsigned scalars below
    2^31. `apart`: for arguments of which no written one overlaps another; compile these with -DGPUAD_RESTRICT=__restrict__. Compile with
    -DGPUAD_ATOMICS for several workers on a kernel with atomics. UnsupportedError for what the CPU cannot run.
    """
    texts = [_Entry(kernel, wide, apart) for kernel in kernels]
    helpers = {name for text in texts for name in text.helpers}
    atomics = ATOMICS if any(text.atomic for text in texts) else ""
    scattered = any(text.sums and not text.strips for text in texts)
    includes, sums = ("#include <map>\n", BLOCK_SUMS) if scattered else ("", "")
    parts = [includes, PRELUDE.lstrip("\n"), THREADS, sums, atomics, host_helper_text(helpers)]
    return "".join(parts) + "\n".join(t.body for t in texts) + "\n}  // namespace\n\n" + "\n".join(t.entry for t in texts)


def has_atomics(kernel: Kernel) -> bool:
    """Whether threads of the kernel meet at the same memory: then one worker with plain operations is faster than several with atomics."""
    return any(_is_atomic(s) for s in statements(kernel.body))


def _is_atomic(stmt: Stmt) -> bool:
    if isinstance(stmt, Accumulate) and stmt.how is How.REDUCED:
        return not stmt.buffer.element.is_float  # sums of integers are atomic: a double does not hold them all
    return isinstance(stmt, Atomic) or (isinstance(stmt, Accumulate | Take) and stmt.how is How.ATOMIC)


def is_flat(kernel: Kernel) -> bool:
    """Whether the kernel is a grid-stride loop that the CPU runs as one loop over all elements."""
    return flatten(merge_axes(kernel).kernel).stop is not None


def assertions(kernel: Kernel) -> list[Tell]:
    """What may end a launch, in the order of the text: the status of one that ended is 3 and the number of what did."""
    return list(dict.fromkeys(s for s in statements(kernel.body) if isinstance(s, Tell) and s.stops))


class HostStatements(Statements):
    """Prints a kernel's body for the CPU."""

    expressions_class = HostExpressions

    def __init__(self, kernel: Kernel, reserved: Sequence[str], wide: bool) -> None:
        super().__init__(kernel, reserved)
        self.source = kernel
        self.wide = widen(self.kernel, self.classes) if wide else Wide()
        assert isinstance(self.expressions, HostExpressions)
        self.text: HostExpressions = self.expressions
        self.text.wide = self.wide
        self.sums: list[Sum] = []
        self.repeated = {id(s) for loop in statements(self.kernel.body) if isinstance(loop, For | While) for s in statements((loop,))}
        self.strips = all(isinstance(s.index, Constant) for s in statements(self.kernel.body) if isinstance(s, Accumulate) and is_sum(s))

    def type_name(self, var: Var) -> str:
        return "long long" if var in self.wide else c_type(var.type)

    def initial(self, var: Var, value: Expr) -> str:
        return self.text.widened(value)[0] if var in self.wide and self.wide.is_chain(value) else super().initial(var, value)

    def block_sum(self, element: str, stmt: Accumulate) -> str:
        k = len(self.sums)
        if not self.strips:
            self.sums.append(Sum(stmt, F64))
            return f"gpuad_block_sum(gpuad_sums[{k}], gpuad_done[{k}], &{element}, {self.text.text(stmt.value)});"
        again, value = id(stmt) in self.repeated, stmt.value
        if not again and isinstance(value, Cast) and value.operand.type == F32:
            value = value.operand
        self.sums.append(Sum(stmt, F64 if again else value.type))
        return f"gpuad_sum{k} {'+=' if again else '='} {self.text.text(value)};"

    print_name = "gpuad_print"

    def stop(self, stmt: Tell) -> None:
        self.line(f"throw gpuad_stopped{{{assertions(self.source).index(stmt)}}};", stmt.note)

    def shared(self, stmt: Alloc, kind: str, name: str) -> None:
        raise UnsupportedError("the CPU executor does not run kernels with shared memory yet", stmt.span)

    def barrier(self, stmt: Barrier) -> None:
        raise UnsupportedError("the CPU executor does not run kernels with barriers yet", stmt.span)

    def shuffle(self, stmt: Shuffle) -> None:
        raise UnsupportedError("the CPU executor does not run kernels with shuffles yet", stmt.span)


@dataclass(frozen=True)
class Sum:
    """A sum over threads, and the type of a thread's contribution."""

    stmt: Accumulate
    part: Scalar


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

    def __init__(self, kernel: Kernel, wide: bool, apart: bool) -> None:
        axes = merge_axes(kernel)
        flat = flatten(axes.kernel) if wide and apart and "x" in axes.merged else Flat(axes.kernel)
        self.name = identifier(kernel.name)
        self.loops = {axis: _Loop(axis, axis in axes.merged) for axis in "xyz"}
        summed = fold(sink_sums(flat.kernel))
        ranged = take_bounds(summed) if wide and "x" in axes.merged else Ranged(summed)
        self.bounds, self.stop = ranged.bounds, flat.stop
        self.printer = HostStatements(ranged.kernel, [*functions(kernel), *_DIMENSIONS, *_RESERVED], wide)
        self.declared = list(parameters(self.printer))
        self.kernel = self.printer.kernel
        lines = self.printer.body()
        self.sums = self.printer.sums
        self.strips = bool(self.sums) and self.printer.strips
        self.helpers = self.printer.helpers
        self.atomic = has_atomics(kernel)
        found = inner(ranged.kernel) if wide and "x" in axes.merged and self.independent and not self.sums else None
        self.inner = found
        self.inside = HostStatements(found.kernel, [*functions(kernel), *_DIMENSIONS, *_RESERVED], wide) if found else None
        self.straight = self.independent and not any(isinstance(s, For | While) for s in statements(self.kernel.body))
        inside = self.inner_function()
        self.body = "\n".join([*comment(kernel.header), *self.function(lines), "", *inside, *self.rows(), "", *self.width()])
        self.entry = "\n".join([*self.launch(), ""])

    @property
    def independent(self) -> bool:
        """Whether the compiler may run threads of a row at once."""
        own = any(isinstance(s, Alloc) and s.buffer.space is Space.LOCAL for s in statements(self.kernel.body))
        return not (self.atomic or own or (self.sums and not self.strips))

    def function(self, lines: list[str]) -> list[str]:
        """A thread's work; and once more as a function that is not inlined, for the threads that fill no strip."""
        sums = ["gpuad_partial* gpuad_sums", "std::vector<gpuad_flushed>* gpuad_done"] if self.sums else []
        if self.strips:
            sums = [f"{c_type(s.part)}& gpuad_sum{k}" for k, s in enumerate(self.sums)]
        declared = [*self.declared, *sums, *(f"const gpuad_dim {name}" for name in _DIMENSIONS)]
        text = [*wrapped(f"GPUAD_INLINE void gpuad_body_{self.name}", declared), "{", *lines, "}"]
        if not (self.strips and self.straight):
            return text
        call = f"{INDENT}gpuad_body_{self.name}({', '.join([*self.arguments(), *self.passed(), *_DIMENSIONS])});"
        return [*text, "", *wrapped(f"static GPUAD_NOINLINE void gpuad_thread_{self.name}", declared), "{", call, "}"]

    def inner_function(self) -> list[str]:
        """A thread's work where all guards hold."""
        if self.inside is None:
            return []
        declared = [*parameters(self.inside), *(f"const gpuad_dim {name}" for name in _DIMENSIONS)]
        text = [*wrapped(f"GPUAD_INLINE void gpuad_inner_{self.name}", declared), "{", *self.inside.body(), "}", ""]
        self.helpers |= self.inside.helpers
        return text

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
        head = wrapped(f"static long long gpuad_width_{self.name}", [*self.declared, *dimensions])
        return [*head, "{", f"{INDENT}const long long gpuad_stop = {self.printer.text.text(self.stop)};", *_CLAMPED, "}", ""]

    def rows(self) -> list[str]:
        changed = {written(s) for s in statements(self.kernel.body)}
        declared = [
            f"{pointer(p, p not in changed)} GPUAD_RESTRICT {self.printer.name_of(p)}" if isinstance(p, Buffer) else text
            for p, text in zip(self.kernel.params, self.declared, strict=True)
        ]
        done = ["double* gpuad_totals" if self.strips else "std::vector<gpuad_flushed>* gpuad_done"] if self.sums else []
        numbers = [
            "const gpuad_dim blockDim",
            "const gpuad_dim gridDim",
            *(f"long long gpuad_{n}" for n in ("first", "last", "from", "to")),
        ]
        head = wrapped(f"static void gpuad_rows_{self.name}", [*declared, *done, *numbers])
        before, after = self.around()
        return [*head, "{", *(self.narrowed(bound) for bound in self.bounds), *before, *self.row_loop(), *after, "}"]

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

    def thread_loop(self) -> list[str]:
        """The loop over the threads of a row."""
        if self.strips:
            return self.full_strips() if self.straight else self.strip_loop()
        if self.inner is not None:
            return self.split_loop(self.inner)
        return self.plain_loop("body", "gpuad_from", "gpuad_to")

    def plain_loop(self, function: str, first: str, end: str) -> list[str]:
        return [*self.pragma, f"for (long long gpuad_x = {first}; gpuad_x < {end}; ++gpuad_x)", f"{INDENT}{self.call(function)}"]

    def split_loop(self, found: Inner) -> list[str]:
        """The loop in three parts, in the middle one of which all guards hold."""
        index = {a: f"gpuad_r{a}" if self.loops[a].merged else f"gpuad_r{a} * blockDim.{a} + gpuad_t{a}" for a in "yz"}
        rows = [f"if (!({self.printer.text.text(found.rows)})) gpuad_high = gpuad_low;"] if found.rows is not None else []
        return [
            "long long gpuad_low = gpuad_from, gpuad_high = gpuad_to;",
            f"const gpuad_dim globalIdx = {{0, {index['y']}, {index['z']}}};",
            *(self.narrowed(bound, ("low", "high")).strip() for bound in found.bounds),
            "if (gpuad_low > gpuad_to) gpuad_low = gpuad_to;",
            "if (gpuad_high < gpuad_low) gpuad_high = gpuad_low;",
            *rows,
            *self.plain_loop("body", "gpuad_from", "gpuad_low"),
            *self.plain_loop("inner", "gpuad_low", "gpuad_high"),
            *self.plain_loop("body", "gpuad_high", "gpuad_to"),
        ]

    @property
    def pragma(self) -> list[str]:
        return ["GPUAD_INDEPENDENT"] if self.independent else []

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

    def full_strips(self) -> list[str]:
        """The same where the threads of a strip may run at once: compilers do best with strips of one length, and the rest by itself."""
        return [
            "long long gpuad_strip = gpuad_from;",
            f"for (; gpuad_to - gpuad_strip >= {STRIP}; gpuad_strip += {STRIP}) {{",
            f"{INDENT}GPUAD_INDEPENDENT",
            f"{INDENT}for (int gpuad_k = 0; gpuad_k < {STRIP}; ++gpuad_k) {{",
            f"{INDENT * 2}const long long gpuad_x = gpuad_strip + gpuad_k;",
            *(INDENT * 2 + line for line in (*self.zeros(), self.call("body"), *self.parts("gpuad_k"))),
            f"{INDENT}}}",
            *(INDENT + line for line in self.added("gpuad_part", str(STRIP))),
            "}",
            "for (long long gpuad_x = gpuad_strip; gpuad_x < gpuad_to; ++gpuad_x) {",
            *(INDENT + line for line in (*self.zeros(), self.call("thread"), *self.added("&gpuad_sum", "1"))),
            "}",
        ]

    def zeros(self) -> list[str]:
        return [f"{c_type(s.part)} gpuad_sum{k} = 0;" for k, s in enumerate(self.sums)]

    def parts(self, place: str) -> list[str]:
        return [f"gpuad_part{k}[{place}] = gpuad_sum{k};" for k in range(len(self.sums))]

    def added(self, what: str, count: str) -> list[str]:
        return [f"gpuad_lanes{k}.add({what}{k}, {count});" for k in range(len(self.sums))]

    def call(self, function: str) -> str:
        """The call for one thread."""
        x = self.loops["x"]
        index = {a: f"gpuad_r{a}" if self.loops[a].merged else f"gpuad_r{a} * blockDim.{a} + gpuad_t{a}" for a in "yz"}
        index["x"] = "gpuad_x" if x.merged else "gpuad_rx * blockDim.x + gpuad_x"
        places = ["{gpuad_x, gpuad_ty, gpuad_tz}", "{gpuad_rx, gpuad_ry, gpuad_rz}", f"{{{index['x']}, {index['y']}, {index['z']}}}"]
        return f"gpuad_{function}_{self.name}({', '.join([*self.arguments(), *self.passed(), *places, 'blockDim', 'gridDim'])});"

    def launch(self) -> list[str]:
        x, y, z = (self.loops[a] for a in "xyz")
        count = len(self.sums)
        merged = "true" if x.merged else "false"
        width = "gridDim.x * blockDim.x" if x.merged else "blockDim.x"
        if self.stop is not None:
            width = f"gpuad_width_{self.name}({', '.join([*self.slots(), 'blockDim', 'gridDim'])})"
        kept, done = self.kept(), [f"done.data() + {count} * part"] if count else []
        call = ", ".join([*self.slots(), *done, "blockDim", "gridDim", "first, last, from, to"])
        return [
            f'extern "C" GPUAD_EXPORT int gpuad_launch_{self.name}(const long long* geometry, const unsigned long long* slots)',
            "{",
            "    using namespace gpuad_host;",
            "    const gpuad_dim gridDim = {geometry[0], geometry[1], geometry[2]}, blockDim = {geometry[3], geometry[4], geometry[5]};",
            f"    const long long rows = ({z.rows}) * ({y.rows}) * ({x.rows}), most = 0x7fff0000LL;",
            f"    const long long width = {width}, threads = rows * width * {y.threads} * {z.threads};",
            "    if (gridDim.x * blockDim.x > most || gridDim.y * blockDim.y > most || gridDim.z * blockDim.z > most) return 1;",
            f"    const bool split = {merged} && rows < 4 * std::llabs(geometry[6]);",
            f"    const int workers = gpuad_workers(geometry[6], threads, {self.least_threads()}, split ? width : rows);",
            f"    const int parts = {'workers' if count else 'gpuad_parts(workers, threads, split ? width : rows)'};",
            *([f"    std::vector<{kept}> done({count} * parts);"] if count else []),
            "    const auto work = [&](int part) {",
            "        const long long first = split ? 0 : gpuad_bound(rows, part, parts);",
            "        const long long last = split ? rows : gpuad_bound(rows, part + 1, parts);",
            "        const long long from = split ? gpuad_bound(width, part, parts) : 0;",
            "        const long long to = split ? gpuad_bound(width, part + 1, parts) : width;",
            f"        gpuad_rows_{self.name}({call});",
            "    };",
            *(
                ["    const int status = gpuad_parallel(workers, parts, work);"]
                if count
                else ["    return gpuad_parallel(workers, parts, work);"]
            ),
            *self.combine(),
            "}",
        ]

    def kept(self) -> str:
        """What a worker keeps of each sum."""
        return "double" if self.strips else "std::vector<gpuad_flushed>"

    def slots(self) -> list[str]:
        changed = {written(s) for s in statements(self.kernel.body)}
        kinds = [pointer(p, p not in changed) if isinstance(p, Buffer) else c_type(p.type) for p in self.kernel.params]
        return [f"gpuad_slot<{kind}>(slots, {k})" for k, kind in enumerate(kinds)]

    def combine(self) -> list[str]:
        """Adds the workers' sums to memory."""
        count, kinds = len(self.sums), [c_type(s.stmt.buffer.element) for s in self.sums]
        if not count:
            return []
        if not self.strips:
            return [*(f"    gpuad_combine<{kind}>(done, {k}, {count});" for k, kind in enumerate(kinds)), "    return status;"]
        targets = [f"{self.slots()[self.kernel.params.index(s.stmt.buffer)]} + {self.printer.text.text(s.stmt.index)}" for s in self.sums]
        return [*(f"    gpuad_add_up(done, {k}, {count}, {target});" for k, target in enumerate(targets)), "    return status;"]

    def least_threads(self) -> int:
        """The number of threads from which on it pays to start workers."""
        loops = any(isinstance(s, For | While) for s in statements(self.kernel.body))
        return 1 << (11 if loops else 15)
