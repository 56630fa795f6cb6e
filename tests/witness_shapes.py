"""Kernel shapes whose reverse gpuad runs with launches of its own: CUDA texts and the launches over which each is to be tried.

A shape is a body and a space of launches; parameters are the names that the body uses, declared in `PARAMETERS`:

| u, p, A | read by the items of a loop | v, x, o | element i belongs to item i |
| c, w | read by everybody; w are the three taps of a filter | y, s | everybody adds to them |
| z | element t belongs to thread t | idx, mask | integers |
| a | a number by value that has a gradient | n, m | sizes; `N` in a text stands for the number of items |

Most shapes are composed: a *form* says which thread does which items (`ITEM`, with the index `i` below `N`, and `t`, the thread's own
number), a *work* what is done with an item, and a *side* what a thread does besides, before its items (`BEFORE`), between two loops over
them, for each of them (`BESIDE`) or after them (`AFTER`). All are free of data races, in bounds, and polynomials of degree four at most in
each number, so that difference quotients with integers are exact. `witness.cu` has
shapes in their own words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path

Three = tuple[int, int, int]
OWN = Path(__file__).parent / "witness.cu"


@dataclass(frozen=True)
class Launch:
    """`numbers`: the values of integers by name."""

    grid: Three
    block: Three
    numbers: Mapping[str, int]

    @property
    def threads(self) -> int:
        g, b = self.grid, self.block
        return g[0] * g[1] * g[2] * b[0] * b[1] * b[2]

    def __str__(self) -> str:
        return f"grid {self.grid}, block {self.block}, " + ", ".join(f"{k} = {v}" for k, v in self.numbers.items())


@dataclass(frozen=True)
class Shape:
    """`sizes`: elements of arrays where they are not as in `PARAMETERS`, expressions in the launch's numbers; `views`: parameters that
    point into another's array, with the offset; `space`: a key of `SPACES`."""

    name: str
    body: str
    space: str
    sizes: Mapping[str, str] = field(default_factory=dict)
    views: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def items(self) -> str:
        return SPACES[self.space][1]

    @property
    def parameters(self) -> list[str]:
        words = set(re.findall(r"(?<![.\w])[a-zA-Z]\w*", self.counted(self.body)))
        return [name for name in PARAMETERS if name in words]

    def counted(self, text: str) -> str:
        """The text with the number of items in place of `N`."""
        return re.sub(r"\bN\b", self.items, text)

    @property
    def text(self) -> str:
        declared = ", ".join(PARAMETERS[name][0] + name for name in self.parameters)
        return indented(f'extern "C" __global__ void k({declared})\n{{\n{self.counted(self.body)}\n}}\n')

    @property
    def launches(self) -> list[Launch]:
        """All small ones, and larger ones in which more launches of gpuad's own are worth their while."""
        large = LARGE[self.space] if "__shared__" not in self.body else []
        return [*SPACES[self.space][0](), *large]

    def size(self, root: str, launch: Launch) -> int:
        """How many elements an array has."""
        text = self.counted(self.sizes.get(root, PARAMETERS[root][1]))
        names = {**launch.numbers, "threads": launch.threads, "blocks": launch.threads // max(1, _product(launch.block))}
        return max(0, int(eval(text, {"max": max, "min": min}, names)))  # our own expressions


PARAMETERS: dict[str, tuple[str, str]] = {
    "u": ("const double* ", "N"),
    "p": ("const double* ", "N"),
    "A": ("const double* ", "N * m"),
    "c": ("const double* ", "m"),
    "w": ("const double* ", "3"),
    "v": ("double* ", "N"),
    "x": ("double* ", "N"),
    "o": ("double* ", "N"),
    "y": ("double* ", "m"),
    "z": ("double* ", "threads"),
    "s": ("double* ", "1"),
    "idx": ("const int* ", "N"),
    "mask": ("const int* ", "N"),
    "a": ("double ", "1"),
    "n": ("int ", ""),
    "m": ("int ", ""),
    "l": ("int ", ""),
}
INTEGERS = ("n", "m", "l")


def _product(three: Three) -> int:
    return three[0] * three[1] * three[2]


def indented(text: str) -> str:
    """One statement a line, indented by the braces around it."""
    broken, within = "", 0
    for c in text:
        within += (c == "(") - (c == ")")
        broken += f"{c}\n" if c in "{};" and not within else c
    out, depth = [], 0
    for line in (part.strip() for part in broken.split("\n")):
        depth -= line.startswith("}")
        if line:
            out.append("    " * depth + line)
        depth += line.count("{") - line.count("}") + line.startswith("}")
    return "\n".join(out) + "\n"


# --- launches ----------------------------------------------------------------------------------------------------------------------------


def _line() -> Iterator[Launch]:
    for n, grid, block in product(range(10), range(1, 4), range(1, 5)):
        yield Launch((grid, 1, 1), (block, 1, 1), {"n": n, "m": 1 + (n + grid + 2 * block) % 4})


def _block() -> Iterator[Launch]:
    """One block."""
    for n, m, block in product(range(10), range(1, 4), range(1, 5)):
        yield Launch((1, 1, 1), (block, 1, 1), {"n": n, "m": m})


def _rows() -> Iterator[Launch]:
    for n, m, grid, block in product(range(5), range(1, 6), range(1, 4), range(1, 5)):
        if (n + m + grid + block) % 2 == 0:
            yield Launch((grid, 1, 1), (block, 1, 1), {"n": n, "m": m})


def _plane() -> Iterator[Launch]:
    for n, m, gx, gy, bx, by in product(range(5), range(1, 5), (1, 2), (1, 2, 3), (1, 2, 3), (1, 2)):
        if (n + 2 * m + gx + 3 * gy + 5 * bx + 2 * by) % 5 == 0:
            yield Launch((gx, gy, 1), (bx, by, 1), {"n": n, "m": m})


def _cube() -> Iterator[Launch]:
    for n, m, l, g, b in product(range(4), (1, 2, 3), (1, 2, 3), product((1, 2), repeat=3), product((1, 2), repeat=3)):  # noqa: E741
        if (n + 2 * m + 3 * l + g[0] + 5 * g[1] + 7 * g[2] + b[0] + 2 * b[1] + 3 * b[2]) % 17 == 0:
            yield Launch(g, b, {"n": n, "m": m, "l": l})


# Launches, and the number of items.
SPACES: dict[str, tuple[Callable[[], Iterator[Launch]], str]] = {
    "line": (_line, "n"),
    "block": (_block, "n"),
    "rows": (_rows, "(n * m)"),
    "plane": (_plane, "(n * m)"),
    "plane_line": (_plane, "n"),
    "cube": (_cube, "(n * m * l)"),
}

_LINES = [Launch((2, 1, 1), (32, 1, 1), {"n": 70, "m": 5}), Launch((3, 1, 1), (24, 1, 1), {"n": 50, "m": 9})]
_PLANES = [Launch((3, 2, 1), (4, 4, 1), {"n": 9, "m": 11}), Launch((2, 2, 1), (3, 8, 1), {"n": 13, "m": 7})]
LARGE: dict[str, list[Launch]] = {
    "line": _LINES,
    "block": [Launch((1, 1, 1), (32, 1, 1), {"n": 50, "m": 5}), Launch((1, 1, 1), (64, 1, 1), {"n": 40, "m": 3})],
    "rows": [Launch((5, 1, 1), (8, 1, 1), {"n": 7, "m": 11}), Launch((12, 1, 1), (16, 1, 1), {"n": 12, "m": 9})],
    "plane": _PLANES,
    "plane_line": _PLANES,
    "cube": [Launch((2, 2, 1), (4, 2, 2), {"n": 3, "m": 5, "l": 9}), Launch((2, 2, 2), (4, 2, 2), {"n": 4, "m": 4, "l": 5})],
}

# --- forms: which thread does which items ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    text: str
    space: str
    loops: bool  # over the grid: a thread may do many items


_T = "int t = blockIdx.x * blockDim.x + threadIdx.x; BEFORE "
_TY = "int t = (blockIdx.y * blockDim.y + threadIdx.y) * gridDim.x * blockDim.x + blockIdx.x * blockDim.x + threadIdx.x; BEFORE "
_GRID = "gridDim.x * blockDim.x"

FORMS: dict[str, Form] = {
    "guard": Form(_T + "int i = t; if (i < N) { BESIDE ITEM } AFTER", "line", False),
    "early": Form(_T + "int i = t; if (i >= N) return; BESIDE ITEM AFTER", "line", False),
    "blocks": Form(_T + "int i = blockIdx.x; if (threadIdx.x == 0 && i < N) { BESIDE ITEM } AFTER", "line", False),
    "lanes": Form(_T + "int i = threadIdx.x; if (i < N) { BESIDE ITEM } AFTER", "block", False),
    "axis_y": Form(_TY + "int i = threadIdx.y + blockIdx.y * blockDim.y;"
                   " if (t % (gridDim.x * blockDim.x) == 0 && i < N) { BESIDE ITEM } AFTER", "plane_line", False),
    "plane": Form(_TY + "int j = blockIdx.x * blockDim.x + threadIdx.x; int r = blockIdx.y * blockDim.y + threadIdx.y;"
                  " if (r < n && j < m) { int i = r * m + j; BESIDE ITEM } AFTER", "plane", False),
    "block_a_row": Form(_T + "int r = blockIdx.x; int j = threadIdx.x; if (r < n && j < m) { int i = r * m + j; BESIDE ITEM } AFTER",
                        "rows", False),
    "cube": Form("int j = blockIdx.x * blockDim.x + threadIdx.x; int r = blockIdx.y * blockDim.y + threadIdx.y;"
                 " int q = blockIdx.z * blockDim.z + threadIdx.z;"
                 " int t = (q * gridDim.y * blockDim.y + r) * gridDim.x * blockDim.x + j;"
                 " BEFORE if (q < n && r < m && j < l) { int i = (q * m + r) * l + j; BESIDE ITEM } AFTER", "cube", False),
    "for": Form(_T + f"for (int i = t; i < N; i += {_GRID}) {{ BESIDE ITEM }} AFTER", "line", True),
    "while": Form(_T + f"int i = t; while (i < N) {{ BESIDE ITEM i += {_GRID}; }} AFTER", "line", True),
    "unsigned": Form(_T + f"for (unsigned int i = t; i < (unsigned int)N; i += {_GRID}) {{ BESIDE ITEM }} AFTER", "line", True),
    "size_t": Form("size_t t = (size_t)blockIdx.x * blockDim.x + threadIdx.x; BEFORE"
                   " for (size_t i = t; i < (size_t)N; i += (size_t)blockDim.x * gridDim.x) { BESIDE ITEM } AFTER", "line", True),
    "long": Form(_T + f"for (long long i = t; i < N; i += {_GRID}) {{ BESIDE ITEM }} AFTER", "line", True),
    "down": Form(_T + f"for (int i = N - 1 - t; i >= 0; i -= {_GRID}) {{ BESIDE ITEM }} AFTER", "line", True),
    "in_block": Form(_T + "for (int i = threadIdx.x; i < N; i += blockDim.x) { BESIDE ITEM } AFTER", "block", True),
    "by_blocks": Form(_T + "for (int i = blockIdx.x; i < N; i += gridDim.x) { if (threadIdx.x == 0) { BESIDE ITEM } } AFTER", "line", True),
    "strips": Form(_T + f"int each = (N + {_GRID} - 1) / ({_GRID});"
                   " for (int i = t * each; i < N && i < (t + 1) * each; i++) { BESIDE ITEM } AFTER", "line", True),
    "flat_plane": Form(_TY + "for (int i = t; i < N; i += gridDim.x * gridDim.y * blockDim.x * blockDim.y) { BESIDE ITEM } AFTER",
                       "plane_line", True),
    "row_loop": Form(_T + "for (int r = blockIdx.x; r < n; r += gridDim.x) { for (int j = threadIdx.x; j < m; j += blockDim.x) {"
                     " int i = r * m + j; BESIDE ITEM } } AFTER", "rows", True),
    "row_columns": Form(_T + "int r = blockIdx.x; if (r < n) { for (int j = threadIdx.x; j < m; j += blockDim.x) {"
                        " int i = r * m + j; BESIDE ITEM } } AFTER", "rows", True),
    "thread_a_row": Form(_T + "if (t < n) { int r = t; for (int j = 0; j < m; j++) { int i = r * m + j; BESIDE ITEM } } AFTER",
                         "rows", True),
    "plane_loops": Form(_TY + "for (int r = blockIdx.y * blockDim.y + threadIdx.y; r < n; r += gridDim.y * blockDim.y)"
                        " { for (int j = blockIdx.x * blockDim.x + threadIdx.x; j < m; j += gridDim.x * blockDim.x) {"
                        " int i = r * m + j; BESIDE ITEM } } AFTER", "plane", True),
    "split": Form(_T + f"for (int o = t; o < N; o += {_GRID}) {{ int r = o / m; int j = o % m; int i = j * n + r; BESIDE ITEM }} AFTER",
                  "rows", True),
    "cube_loops": Form("int t = ((blockIdx.z * blockDim.z + threadIdx.z) * gridDim.y * blockDim.y + blockIdx.y * blockDim.y + threadIdx.y)"
                       " * gridDim.x * blockDim.x + blockIdx.x * blockDim.x + threadIdx.x;"
                       " BEFORE for (int q = blockIdx.z * blockDim.z + threadIdx.z; q < n; q += gridDim.z * blockDim.z) {"
                       " for (int r = blockIdx.y * blockDim.y + threadIdx.y; r < m; r += gridDim.y * blockDim.y) {"
                       " for (int j = blockIdx.x * blockDim.x + threadIdx.x; j < l; j += gridDim.x * blockDim.x) {"
                       " int i = (q * m + r) * l + j; BESIDE ITEM } } } AFTER", "cube", True),
}  # fmt: skip

# --- works: what is done with item i -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    text: str
    sizes: Mapping[str, str] = field(default_factory=dict)
    views: Mapping[str, tuple[str, str]] = field(default_factory=dict)


WORKS: dict[str, Work] = {
    "map": Work("v[i] = 2.0 * u[i];"),
    "add": Work("v[i] += 2.0 * u[i];"),
    "in_place": Work("x[i] = 3.0 * x[i] * x[i];"),
    "in_place_of_two": Work("x[i] = x[i] * u[i];"),
    "number": Work("v[i] = a * u[i];"),
    "atomic": Work("atomicAdd(&y[i % m], 2.0 * u[i]);"),
    "product": Work("v[i] = u[i] * u[(i + 1) % N];"),
    "inside": Work("if (i > 0 && i < N - 1) { v[i] = u[i - 1] - 2.0 * u[i] + u[i + 1]; }"),
    "edges": Work("v[i] = (i > 0 ? 2.0 * u[i - 1] : 0.0) + (i + 1 < N ? u[i + 1] : 3.0 * u[i]);"),
    "clamp": Work("int d = max((int)i - 1, 0); int e = min((int)i + 1, (int)N - 1); v[i] = u[d] + 2.0 * u[e];"),
    "wrap": Work("v[i] = u[(i + N - 1) % N] + 2.0 * u[(i + 1) % N];"),
    "wrap_by_choice": Work("int e = i == 0 ? N - 1 : i - 1; v[i] = u[i] * u[e];"),
    "window": Work("v[i] = u[i] + 2.0 * u[i + 3];", {"u": "N + 3"}),
    "reversed": Work("v[i] = u[N - 1 - i] + 2.0 * u[i];"),
    "strided": Work("v[i] = u[2 * i] + 3.0 * u[2 * i + 1];", {"u": "2 * N"}),
    "halved": Work("v[i] = u[i / 2];"),
    "divided": Work("v[i] = u[i] * p[i / m];"),
    "rest": Work("v[i] = u[i] * c[i % m];"),
    "taps": Work("double f = 0; for (int k = 0; k < 3; k++) { f += w[k] * u[min(max((int)i + k - 1, 0), (int)N - 1)]; } v[i] = f;"),
    "filter": Work("double f = 0; for (int k = -1; k <= 1; k++) { int e = (int)i + k; if (e >= 0 && e < (int)N) { f += w[k + 1] * u[e]; } }"
                   " v[i] = f;"),
    "dense": Work("double f = 0; for (int k = 0; k < m; k++) { f += A[i * m + k] * c[k]; } v[i] = f;"),
    "dense_across": Work("double f = 0; for (int k = 0; k < m; k++) { f += A[k * N + i] * c[k]; } v[i] = f;"),
    "pairs": Work("double f = 0; for (int k = 0; k < N; k++) { f += (u[k] - u[i]) * p[k]; } v[i] = f;"),
    "other_pairs": Work("double f = 0; for (int k = 0; k < N; k++) { if (k != i) { f += u[k] * u[i]; } } v[i] += f;"),
    "kept": Work("double f = 0; for (int k = -1; k <= 1; k++) { f += u[(i + k + N) % N]; } v[i] = f * f;"),
    "prefix": Work("double f = 0; for (int k = 0; k <= i; k++) { f += u[k]; } v[i] = f;"),
    "by_index": Work("v[i] = 2.0 * u[idx[i]];"),
    "to_index": Work("atomicAdd(&v[idx[i]], 2.0 * u[i]);"),
    "masked": Work("if (mask[i]) { v[i] = u[i] + 2.0 * u[(i + 1) % N]; }"),
    "two_outputs": Work("v[i] = u[i] + 2.0 * u[(i + 1) % N]; x[i] = p[(i + 1) % N] * u[i];"),
    "everybody": Work("v[i] = c[0] * u[i] + c[m - 1];"),
    "all_alike": Work("v[i] = 2.0 * p[0]; "),
    "view": Work("v[i] = u[i] + 2.0 * p[i];", {"u": "N + 2"}, {"p": ("u", "2")}),
    "cleared": Work("v[i] = 0.0; atomicAdd(&s[0], u[i]);"),
}  # fmt: skip

# --- sides: what a thread does besides ---------------------------------------------------------------------------------------------------

SIDES: dict[str, str] = {
    "loop": "for (int h = 0; h < m; h++) { atomicAdd(&y[h], c[h]); }",
    "one": "atomicAdd(&y[0], 2.0 * c[0]);",
    "head": "if (t == 0) { y[0] = 3.0 * c[0]; }",
    "head_of_block": "if (threadIdx.x == 0) { atomicAdd(&y[blockIdx.x % m], c[blockIdx.x % m]); }",
    "tail": "if (t < m) { y[t] = 2.0 * c[t]; }",
    "tail_of_neighbours": "if (t + 1 < m) { y[t] = c[t + 1] + 2.0 * c[t]; }",
    "tail_on_y": "if (blockIdx.y * blockDim.y + threadIdx.y < m) { atomicAdd(&y[blockIdx.y * blockDim.y + threadIdx.y], c[0]); }",
    "store": "z[t] = c[t % m];",
    "store_of_all": "double g = 0; for (int h = 0; h < m; h++) { g += c[h]; } z[t] = g;",
    "of_the_items": "for (int h = 0; h < N; h++) { atomicAdd(&s[0], u[h]); }",
}

# Code before the items, and code for each of them, that belong together; the work sees what the items leave.
CARRIED: dict[str, tuple[str, str, str]] = {
    "factor": ("double g = c[t % m];", "v[i] = g * u[i];", ""),
    "factor_of_all": ("double g = 0; for (int h = 0; h < m; h++) { g += c[h]; }", "v[i] = g * u[i];", ""),
    "sum_stored": ("double g = 0;", "g += u[i] * u[(i + 1) % N];", "z[t] = g;"),
    "sum_added": ("double g = c[0];", "g += u[i];", "atomicAdd(&s[0], g);"),
    "sum_of_neighbours": ("double g = 0;", "v[i] = u[(i + 1) % N]; g += c[0];", "atomicAdd(&s[0], g);"),
    "last": ("double g = c[0];", "g = u[i];", "z[t] = 2.0 * g;"),
    "running": ("double g = 1.0;", "g = g + u[i]; v[i] = g;", ""),
    "count": ("int g = 0;", "g++; v[i] = 2.0 * u[i];", "z[t] = g * c[0];"),
}


def composed(form: str, work: str, side: str = "", place: str = "") -> Shape:
    """`place`: where the side stands: BEFORE, BESIDE or AFTER the items, or BETWEEN two loops over them."""
    made, what = FORMS[form], WORKS[work]
    text = made.text
    if place == "BETWEEN":
        again = made.text.partition("BEFORE")[2].replace("ITEM", "x[i] = 2.0 * x[i];")
        text = text.replace("AFTER", f"{SIDES[side]} {{ {again} }}")
    elif place:
        text = text.replace(place, SIDES[side], 1)
    text = re.sub(r"\b(BEFORE|BESIDE|AFTER)\b", "", text).replace("ITEM", what.text)
    name = "-".join(part for part in (form, work, place.lower(), side) if part)
    return Shape(name, text, made.space, what.sizes, what.views)


def carried(form: str, what: str) -> Shape:
    before, item, after = CARRIED[what]
    made = FORMS[form]
    text = made.text.replace("BEFORE", before).replace("ITEM", item).replace("AFTER", after).replace("BESIDE", "")
    return Shape(f"{form}-{what}", text, made.space)


# --- shapes in their own words -----------------------------------------------------------------------------------------------------------


def own_words() -> Iterator[Shape]:
    """Those of `witness.cu`."""
    for part in re.split(r"\n(?=// \w+: )", OWN.read_text(encoding="utf-8"))[1:]:
        head, _, body = part.partition("\n")
        name, _, said = head.removeprefix("// ").partition(": ")
        space, *more = said.split(", ")
        views = dict(m.split(" -> ") for m in more if "->" in m)
        sizes = dict(m.split(" = ") for m in more if "->" not in m)
        yield Shape(name, body.strip()[1:-1], space, sizes, {k: (v.split(" + ")[0], v.split(" + ")[1]) for k, v in views.items()})


@cache
def shapes() -> dict[str, Shape]:
    """All of them by name: those in their own words, each form with works that tell forms apart, each work in three forms, each side in
    each place of loops over the grid, and works that carry something from item to item."""
    made = list(own_words())
    made += [composed(form, work) for form in FORMS for work in ("map", "wrap", "edges", "rest", "atomic", "pairs")]
    made += [composed(form, work) for form in ("guard", "for", "row_loop") for work in WORKS]
    loops = [name for name, form in FORMS.items() if form.loops]
    made += [composed(form, "map", side, "AFTER") for form in loops for side in ("loop", "head", "store")]
    made += [composed(form, "wrap", side, place) for form in ("for", "row_loop") for side in SIDES for place in ("BEFORE", "AFTER")]
    made += [composed(form, "wrap", side, "BESIDE") for form in ("for", "row_loop") for side in ("loop", "one", "of_the_items")]
    made += [composed(form, "dense", side, "AFTER") for form in ("while", "guard", "early", "plane_loops") for side in SIDES]
    between = (("wrap", "loop"), ("map", "one"), ("dense", "store"))
    made += [composed(form, *pair, "BETWEEN") for form in ("for", "while", "plane_loops", "row_loop") for pair in between]
    forms = ("for", "while", "size_t", "row_loop", "plane_loops", "in_block", "thread_a_row")
    made += [carried(form, what) for form in forms for what in CARRIED]
    return {shape.name: shape for shape in made}


def sample(launches: list[Launch], count: int, seed: str) -> list[Launch]:
    """Some of the launches, always the same, and the last one."""
    return launches if len(launches) <= count else [*random.Random(seed).sample(launches[:-1], count - 1), launches[-1]]
