"""The table of attack kernels: what each rule's simpler version gets wrong, written as CuPy users write.

A case is the kernel's parameters and body (every body begins with `int i`, the global x index), its memory and its launch.
`memory`: an int n for n floats, a list for ints, a float for a number by value that is active. `args`: Python text, over the memory's names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

import gpuad
from gpuad.errors import GpuadError, LaunchError, ShadowError, UnsupportedError

INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


@dataclass(frozen=True, eq=False)
class Case:
    """`refused`: the error it must raise, with `match` in its message. `fails`: why the test is expected to fail now. `host`: is checked on
    the CPU's compiled text too. `only_reverse`: forward mode has other limits."""

    rule: str
    name: str
    params: str
    body: str
    args: str
    memory: dict[str, Any]
    grid: Any = 1
    block: Any = 4
    before: str = ""
    refused: type[GpuadError] | None = None
    match: str = ""
    fails: str = ""
    host: bool = False
    only_reverse: bool = False
    way: str = "analysed"
    _made: list[Any] = field(default_factory=list)

    @cached_property
    def source(self) -> str:
        start = "" if self.body.startswith("//") else INDEX
        return f'{self.before}\nextern "C" __global__ void k({self.params}) {{ {start}\n{self.body}\n}}'

    def kernel(self) -> gpuad.api.Kernel:
        if not self._made:
            self._made.append(gpuad.kernel(self.source, "k"))
        kernel: gpuad.api.Kernel = self._made[0]
        return kernel

    @property
    def geometry(self) -> tuple[int, ...]:
        return (*_dim3(self.grid), *_dim3(self.block))

    @property
    def active(self) -> tuple[str, ...]:
        return tuple(n for n, m in self.memory.items() if not isinstance(m, list))

    def state(self) -> dict[str, Any]:
        """The memory before the launch, made anew: numbers between 0.5 and 1.5."""
        return {name: _fresh(content, number) for number, (name, content) in enumerate(self.memory.items())}

    def arguments(self, roots: Any) -> tuple[Any, ...]:
        """The launch's arguments for this memory, annotated or not."""
        return tuple(eval(f"({self.args},)", {}, dict(roots)))


def _fresh(content: Any, number: int) -> Any:
    if isinstance(content, list):
        return np.array(content, np.int32)
    return np.random.default_rng(number).uniform(0.5, 1.5, content) if isinstance(content, int) else content


def _dim3(given: Any) -> tuple[int, int, int]:
    x, y, z = (*(given if isinstance(given, tuple) else (given,)), 1, 1)[:3]
    return x, y, z


CASES: list[Case] = []


def case(rule: str, name: str, params: str, body: str, args: str, memory: dict[str, Any] | None = None, **more: Any) -> None:
    CASES.append(Case(rule, name, params, body, args, {"x": 16, "y": 16} if memory is None else memory, **more))


XY, XYK = "double* x, double* y", "double* x, double* y, int* k"
XYN = "const double* x, double* y, int n"
K16 = {"x": 16, "y": 16, "k": [0, 3, 1, 2] * 4}

# --- 1. overwriting is may or must -----------------------------------------------------------------------------------------------------

case("1", "mask", "double* x, const double* a, const int* m, int n", "if (i < n && m[i]) x[i] = a[i] * x[i];", "x, a, m, 7",
     {"x": 7, "a": 7, "m": [1, 0, 1, 1, 0, 0, 1]}, grid=2)  # fmt: skip
case(
    "1",
    "grid covers half",
    "double* x, const double* a, int n",
    "if (i < n) x[i] = a[i] * x[i] * x[i];",
    "x, a, 17",
    {"x": 17, "a": 17},
    grid=2,
)
case(
    "1", "permuted", "double* x, const double* a, const int* p", "x[p[i]] = a[i] * x[p[i]];", "x, a, p", {"x": 4, "a": 4, "p": [1, 2, 3, 0]}
)
case("1", "break before store", "double* x, const double* a",
     "for (int j = 0; j < 4; j++) { if (a[i] > 1.0 && j == 2) break; x[i*4+j] = a[i] * x[i*4+j] * x[i*4+j]; }", "x, a", {"x": 16, "a": 4})  # fmt: skip
case("1", "inactive overwrites under a guard", XY, "if (i < 2) x[i] = 3.0; y[i] = x[i] * y[i];", "x, y")
case("1", "one trip store of result", XY, "for (int j = 0; j < 4; j++) x[i*4] = exp(.1 * x[i*4]);", "x, y")

# --- 2, 3. neighbours, overlapping arguments --------------------------------------------------------------------------------------------

case("2", "leapfrog in place", "double* p, const double* u, const double* c, int n",
     "if (i > 0 && i < n-1) p[i] = 2*u[i] - p[i] + c[i] * (u[i-1] - 2*u[i] + u[i+1]);", "p, u, c, 9", {"p": 9, "u": 9, "c": 9}, grid=3, host=True)  # fmt: skip
case(
    "2",
    "unsigned guard",
    "double* v, const double* u",
    "unsigned j = i; if (j - 1u < 7u) v[j] = u[j-1] * u[j+1] * u[j];",
    "v, u",
    {"v": 10, "u": 10},
    grid=3,
)
case("2", "clamp", "double* v, const double* u, int n",
     "if (i < n) { int l = max(i-1, 0), r = min(i+1, n-1); v[i] = u[l]*u[r] + u[i]*v[i]; }", "v, u, 10", {"v": 10, "u": 10}, grid=3)  # fmt: skip
case(
    "2",
    "periodic",
    "double* v, const double* u, int n",
    "if (i < n) v[(i+3) % n] = u[(i+n-1) % n] * u[i];",
    "v, u, 10",
    {"v": 10, "u": 10},
    grid=3,
)
MUL = "const double* a, const double* b, double* y, int n"
case("3", "shifted reads of one array", MUL, "if (i < n) y[i] = a[i] * b[i];", "u[:-1], u[1:], y, 9", {"u": 10, "y": 9}, grid=3, host=True)
case("3", "array passed twice", MUL, "if (i < n) y[i] = a[i] * b[i];", "u, u, y, 10", {"u": 10, "y": 10}, grid=3)
case("3", "in place by another name", MUL, "if (i < n) y[i] = a[i] * b[i];", "u, v, u, 10", {"u": 10, "v": 10}, grid=3)
case("3", "three names", MUL, "if (i < n) y[i] = a[i] * b[i] + a[i];", "u, u, u, 10", {"u": 10}, grid=3)
case("3", "thirds of one array", MUL, "if (i < n) y[i] = a[i] * b[i] + a[i];", "u[:4], u[4:8], u[8:], 4", {"u": 12}, grid=3)
case("3", "result of exp overwritten by another name", XY, "x[i] = exp(x[i]); y[i-1] = y[i-1] * y[i-1];", "x, x[1:]", {"x": 8})
case("3", "exit value under another name", XY, "x[i] = exp(x[i]); y[i] = 2.0;", "x, x", {"x": 8})
case("3", "stores of two names meet", "double* x, double* y, double* z", "y[i] = x[i] * 2; z[i] = x[i] * 3;", "x, y, y[2:]", {"x": 8, "y": 16},
     refused=LaunchError, match="two threads store")  # fmt: skip

# --- injectivity -------------------------------------------------------------------------------------------------------------------------

case("2", "pitch below row", "const double* x, double* y, int p",
     "int j = blockIdx.y*blockDim.y + threadIdx.y; if (i < 6 && j < 5) y[j*6+i] = x[j*p+i] * x[j*p+i];", "x, y, 5", {"x": 40, "y": 40}, grid=(2, 2), host=True)  # fmt: skip
case(
    "2",
    "pitch zero",
    "const double* x, double* y, int p",
    "int t = threadIdx.x, j = blockIdx.x; y[j*4+t] = x[j*p+t] * x[j*p+t];",
    "x, y, 0",
    {"x": 4, "y": 12},
    grid=3,
)
case(
    "2",
    "negative pitch",
    "const double* x, double* y, int p",
    "int t = threadIdx.x, j = blockIdx.x; y[j*4+t] = x[8+j*p+t] * x[8+j*p+t];",
    "x, y, -3",
    {"x": 12, "y": 12},
    grid=3,
)
case(
    "2",
    "grid stride too short",
    XYN,
    "for (int j = i; j < n; j += blockDim.x) atomicAdd(&y[j], x[j] * x[j]);",
    "x, y, 11",
    {"x": 11, "y": 11},
    grid=2,
    block=3,
)
case(
    "2",
    "chunks that overlap",
    XYN,
    "for (int j = i*3+3; j >= i*3; j--) atomicAdd(&y[j], x[j] * x[j]);",
    "x, y, 0",
    {"x": 19, "y": 19},
    grid=2,
    block=3,
)
case(
    "2",
    "columns too near",
    XYN,
    "for (int j = 0; j < 3; j++) atomicAdd(&y[j*n+i], x[j*n+i] * x[j*n+i]);",
    "x, y, 5",
    {"x": 18, "y": 18},
    grid=2,
    block=3,
)
case(
    "2",
    "loop variable moved",
    XYN,
    "for (int j = i; j < n; j += 6) { if (j == 3) j += 1; atomicAdd(&y[j], x[j] * x[j]); }",
    "x, y, 20",
    {"x": 24, "y": 24},
    grid=2,
    block=3,
)
case("2", "axis of the grid unused", "const double* x, double* y", "atomicAdd(&y[i], x[i] * x[i]);", "x, y", {"x": 8, "y": 8}, grid=(2, 3))
case("2", "thread and global index", "const double* x, double* y", "y[i] = x[i] * x[threadIdx.x];", "x, y", {"x": 8, "y": 8}, grid=2)
case(
    "2",
    "block stride below block",
    "const double* x, double* y",
    "int j = blockIdx.x*2 + threadIdx.x; atomicAdd(&y[j], x[j] * x[j]);",
    "x, y",
    {"x": 8, "y": 8},
    grid=2,
    block=3,
)
case(
    "2",
    "narrow index wraps",
    "const double* x, double* y",
    "unsigned char c = i * 128; y[i] = x[c] * x[c];",
    "x, y",
    {"x": 256, "y": 6},
    grid=2,
    block=3,
)
case(
    "2",
    "two guards meet",
    "const double* x, double* y",
    "if (i >= 2 && i <= 4) y[i-2] = x[i-2] * x[i-2]; else if (i < 2) y[i+4] = x[i+1] * 2;",
    "x, y",
    {"x": 8, "y": 6},
    grid=2,
    block=3,
)

# --- 4, 5, 8. by memory, not replayable, outside of views -----------------------------------------------------------------------------------

case("5", "compaction", "const double* x, double* y, int* c, int n", "if (i < n && x[i] > 1.0) { int p = atomicAdd(c, 1); y[p] = x[i] * x[i]; }", "x, y, c, 7",
     {"x": 7, "y": 7, "c": [0]}, grid=2, only_reverse=True)  # fmt: skip
case("5", "trip count from a counter", "const double* x, double* y, int* c, const int* len, int n",
     "if (i < n) { int p = atomicAdd(c, 1); double s = x[i]; int j = 0; while (j < len[p]) { s = s*s*.9 + x[i]; j++; } y[i] = s * p; }",
     "x, y, c, len, 5", {"x": 5, "y": 5, "c": [0], "len": [3, 0, 2, 5, 1]}, grid=2)  # fmt: skip
case("5", "work queue", "const double* x, double* y, int* q, int n", "int j; while ((j = atomicAdd(q, 1)) < n) y[j] = x[j] * x[j];", "x, y, q, 7",
     {"x": 7, "y": 7, "q": [0]}, refused=UnsupportedError, match="inside a loop")  # fmt: skip
case("5", "old value of an active sum", "const double* x, double* y, double* s", "double o = atomicAdd(s, x[i]); y[i] = o * x[i];", "x, y, s",
     {"x": 4, "y": 4, "s": 1}, refused=UnsupportedError, match="whose result is used")  # fmt: skip
case("5", "claims by a counter", XYK, "int p = atomicAdd(k, 1); y[p] = x[i] * x[i];", "x, y, k", {"x": 16, "y": 16, "k": [0]})
case(
    "8",
    "reads beside the view",
    "const double* p, double* y, int n",
    "if (i < n) y[i] = p[i-1] * p[i+1];",
    "u[1:11], u[13:23], 10",
    {"u": 24},
    grid=3,
)
case(
    "8",
    "stores beside the view",
    "const double* p, double* y, int n",
    "if (i < n) y[i-2] = p[i+1] * y[i-2];",
    "u[1:11], u[15:20], 10",
    {"u": 24},
    grid=3,
)
case(
    "8",
    "reaches another argument",
    "const double* a, double* y, int n",
    "if (i < n) y[i] = a[i] * a[i+4];",
    "u[:4], u[8:], 4",
    {"u": 12},
    grid=3,
)

# --- 10, 11. stores that meet ---------------------------------------------------------------------------------------------------------------

case("10", "one value by all threads", "double* m, double a, double b", "m[0] = a * b;", "m, a, b", {"m": 1, "a": 1.3, "b": 0.7}, grid=2)
case(
    "10",
    "one value from memory",
    "double* m, const double* a, double b",
    "m[0] = exp(a[2]) * b;",
    "m, a, b",
    {"m": 1, "a": 3, "b": 0.7},
    grid=2,
)
case(
    "10",
    "one value in a loop",
    "double* m, const double* a, double b",
    "for (int k = 0; k < 3; k++) m[k] = a[k] * b;",
    "m, a, b",
    {"m": 3, "a": 3, "b": 0.7},
    grid=2,
)
case(
    "10",
    "redundant threads",
    "double* y, const double* a, int n",
    "if (i < n) y[i] = a[i] * a[i];",
    "y, a, 8",
    {"y": 8, "a": 8},
    grid=(2, 3),
)
case("10", "duplicates", "double* x, const double* a, const int* p", "x[p[i]] = a[i];", "x, a, p", {"x": 4, "a": 4, "p": [1, 2, 1, 0]},
     refused=LaunchError, match="two threads store")  # fmt: skip
case("10", "two uniform values", "double* m, double a, double b", "if (i == 0) m[0] = a; else if (i == 1) m[0] = b;", "m, a, b",
     {"m": 1, "a": 1.3, "b": 0.7}, refused=LaunchError, match="two threads store")  # fmt: skip
case("10", "equal by accident", XY, "y[0] = x[i] * 0;", "x, y", refused=LaunchError, match="two threads store")
case("10", "index stored in the kernel", XYK, "k[i] = 3 - i; y[k[i]] = x[i] * x[i];", "x, y, k", {"x": 16, "y": 16, "k": [0] * 4})
case("10", "one thread stores twice", XY, "for (int j = 0; j < 4; j++) y[i] = x[i*4+j] * x[i*4+j];", "x, y")
case("11", "neighbours in place", "double* x, int n", "if (i > 0 && i < n-1) x[i] = .5 * (x[i-1] + x[i+1]);", "x, 9", {"x": 9}, grid=3, way="host",
     refused=GpuadError, match="", fails="A5: affine races are not proved before the launch")  # fmt: skip
case("11", "shifted in place", "double* y, const double* a, int n", "if (i < n) y[i] = 2 * a[i];", "u[1:], u[:-1], 9", {"u": 10}, grid=3, way="host",
     refused=GpuadError, match="", fails="A5: affine races are not proved before the launch")  # fmt: skip
case("11", "plain sums meet", "const double* x, double* y, const int* q", "y[q[i]] += x[i];", "x, y, q", {"x": 4, "y": 4, "q": [1, 2, 1, 0]}, way="host",
     refused=GpuadError, match="", fails="A19: colliding plain additions are not refused")  # fmt: skip

# --- further 1, 14: what is overwritten and read again -----------------------------------------------------------------------------------------

case("14", "other index in between", XY, "x[i*4+1] = x[i*4] * x[i*4+2]; x[i*4+2] = x[i*4+1] * x[i*4+1]; y[i] = x[i*4+2] * x[i*4];", "x, y")
case("14", "two recurrences", XY, "for (int j = 1; j < 4; j++) x[i*4+j] = x[i*4+j-1] * x[i*4+j];"
     "for (int j = 2; j >= 0; j--) x[i*4+j] = x[i*4+j+1] * x[i*4+j] * x[i*4+j];", "x, y")  # fmt: skip
case(
    "14",
    "nested recurrence",
    XY,
    "for (int t = 0; t < 3; t++) for (int j = 1; j < 3; j++) x[i*4+j] = x[i*4+j-1]*x[i*4+j+1] + x[i*4+j]*x[i*4+j];",
    "x, y",
    host=True,
)
case("14", "time loop", XY, "for (int t = 0; t < 3; t++) { double s = 0; for (int j = 0; j < 4; j++) s += x[i*4+j]*x[i*4+j];"
     "for (int j = 0; j < 4; j++) x[i*4+j] = x[i*4+j] / sqrt(s) + y[i*4+j]; }", "x, y")  # fmt: skip
case(
    "14",
    "branches that store",
    XY,
    "for (int j = 0; j < 3; j++) { if (x[i*4+j] > 1) x[i*4+j+1] = x[i*4+j]*x[i*4+j+1]; else x[i*4+j] = x[i*4+j]*x[i*4+j+1]; }",
    "x, y",
)
case(
    "14",
    "one element by two pointers",
    XY,
    "double *p = x + i*4, *q = p + 2; p[2] = p[0]*p[1]; q[0] = q[0]*q[-1]; *(p+3) = q[0]*p[2]; y[i] = p[3]*q[1];",
    "x, y",
)
case("14", "moving pointer", XY, "double* p = x + i*4; for (int j = 0; j < 3; j++) { p[1] = p[0]*p[1]; p++; } y[i] = p[0]*p[-1];", "x, y")
case(
    "14",
    "chosen pointer",
    XY,
    "double* p = x[i*4] > 1 ? x + i*4 : y + i*4; for (int j = 0; j < 3; j++) p[j] = p[j+1]*p[j]; y[i*4] = p[0]*p[1];",
    "x, y",
)
case("14", "swapped pointers", XY, "double *p = x + i*4, *q = y + i*4; for (int t = 0; t < 3; t++) {"
     "for (int j = 0; j < 4; j++) q[j] = p[j] * p[(j+1)%4]; double* s = p; p = q; q = s; }", "x, y")  # fmt: skip
case("14", "overwritten index", XYK, "int* q = k + i*4; q[0] = (q[0]+1)%4; y[i*4+q[0]] = x[i*4+q[0]]*x[i*4];"
     "q[0] = (q[0]+1)%4; y[i*4+q[0]] = x[i*4+q[0]]*2*y[i*4];", "x, y, k", K16)  # fmt: skip
case(
    "14",
    "overwritten bound",
    XYK,
    "for (int j = 0; j < k[i]; j++) { y[i*4+j] = x[i*4+j]*x[i*4+j]; if (j == 1) k[i] = 2; }",
    "x, y, k",
    {"x": 16, "y": 16, "k": [4, 3, 1, 2]},
)
case(
    "14",
    "indices stored in a loop",
    XYK,
    "for (int j = 0; j < 4; j++) { int d = k[i*4+j]; x[i*4+d] = x[i*4+d]*x[i*4+j] + y[i*4+d]; k[i*4+d] = j; }",
    "x, y, k",
    K16,
)
case("14", "index of a result overwritten", "double* x, int* k", "x[k[i]] = exp(x[k[i]]); k[i] = 0;", "x, k", {"x": 8, "k": [3, 1, 5, 2]})
case("14", "result stored twice", XY, "x[i] = exp(x[i]); if (y[i] > 1) x[i] = x[i]*y[i];", "x, y")
case("14", "linked list destroyed", XYK, "int j = i*4; double s = 1; while (j >= 0) { s = s*x[j] + y[j]; x[j] = s; int q = k[j]; k[j] = -1; j = q; } y[i*4] = s;",
     "x, y, k", {"x": 16, "y": 16, "k": [2, -1, 3, 1, 5, -1, -1, -1, 11, -1, 9, 10, -1, -1, -1, -1]})  # fmt: skip
case(
    "14",
    "halving",
    XY,
    "for (int w = 2; w > 0; w >>= 1) for (int j = 0; j < w; j++) x[i*4+j] = x[i*4+j]*x[i*4+j+w]; y[i*4] = x[i*4]*x[i*4];",
    "x, y",
)
case("14", "narrow index met again", XY, "unsigned char p = i, q = (unsigned char)(i + 256); x[p] = x[p]*x[p]; y[i] = x[q]*x[q];", "x, y")
case(
    "14",
    "narrow index in a loop",
    XY,
    "if (i == 0) for (int j = 0; j < 8; j++) { unsigned char p = j*64; x[p] = x[p]*y[j]*x[p]; }",
    "x, y",
    {"x": 193, "y": 8},
)
case(
    "14",
    "unsigned stride wraps",
    XY,
    "if (i == 0) for (unsigned j = 0; j < 4; j++) { unsigned p = j*65536u*65536u; x[p] = x[p]*y[j]*x[p]; }",
    "x, y",
)
for stride in (0, 1):
    case(
        "19",
        f"stride {stride} by a parameter",
        "double* x, double* y, int s",
        "for (int j = 1; j < 4; j++) x[i*4+j*s] = x[i*4+(j-1)*s]*y[i*4+j]*x[i*4+j*s];",
        f"x, y, {stride}",
    )
case(
    "19",
    "stride wraps",
    "double* x, double* y, long long s",
    "if (i == 0) for (int j = 0; j < 4; j++) x[(int)(j*s)] = x[(int)(j*s)]*y[j]*x[(int)(j*s)];",
    f"x, y, {2**32}",
)
case(
    "19",
    "difference of strides is 0",
    "double* x, double* y, int s, int t",
    "for (int j = 0; j < 4; j++) x[i*4+j*(s-t)] = x[i*4+j*(s-t)]*y[j+8]*x[i*4+j*(s-t)];",
    "x, y, 3, 3",
)

# --- local arrays --------------------------------------------------------------------------------------------------------------------------------

case("14", "local array in a loop", XY, "for (int q = 0; q < 3; q++) { double t[4] = {0}; for (int j = 0; j < 4; j++) t[j] += x[i*4+j]*x[i*4+q];"
     "for (int j = 1; j < 4; j++) t[j] = t[j]*t[j-1]; x[i*4+q] = t[3]; }", "x, y", host=True)  # fmt: skip
case("14", "local array sorted", XY, "double t[4]; for (int j = 0; j < 4; j++) t[j] = x[i*4+j]; for (int j = 0; j < 4; j++) for (int m = 0; m < 3; m++)"
     "if (t[m] > t[m+1]) { double s = t[m]; t[m] = t[m+1]; t[m+1] = s; } for (int j = 0; j < 4; j++) y[i*4+j] = t[j]*t[j]*(j+1);", "x, y")  # fmt: skip
case("14", "local array by moving index", XYK, "double t[4] = {1, 2, 3, 4}; int p = 0; for (int j = 0; j < 6; j++) { p = (p + k[i])%4;"
     "t[p] = t[p]*x[i*4+p] + t[(p+1)%4]; } y[i] = t[0]*t[1]*t[2]*t[3];", "x, y, k", K16)  # fmt: skip
case(
    "14",
    "local array kept between iterations",
    XY,
    "double t[2]; for (int j = 0; j < 4; j++) { if (j > 0) y[i*4+j] = t[0]*x[i*4+j]; t[0] = x[i*4+j]*x[i*4+j]; t[1] = 0; }",
    "x, y",
)
case(
    "14",
    "local array partly rebuilt",
    XY,
    "double t[3] = {1, 2, 3}; for (int j = 0; j < 4; j++) { t[0] = x[i*4+j]; t[1] = t[0]*t[0]; y[i*4+j] = t[1]*t[2]; if (j == 1) t[2] = x[i*4]; }",
    "x, y",
)
case("14", "local array rebuilt with a gap", XY, "double t[3] = {1, 1, 1}; for (int j = 0; j < 4; j++) { for (int m = 0; m < 3; m += 2) t[m] = x[i*4+m]*y[i*4+j];"
     "t[1] = t[1]*x[i*4+j]; x[i*4+j] = t[0]*t[1]*t[2]; }", "x, y")  # fmt: skip
case("14", "local array rebuilt on a condition", XY, "double t[2]; t[0] = 1; t[1] = 1; for (int j = 0; j < 4; j++) { if (x[i*4+j] > 1) { t[0] = x[i*4+j]; t[1] = 2*t[0]; }"
     "y[i*4+j] = t[0]*t[1]; }", "x, y")  # fmt: skip
case("14", "pointer between local arrays", XY, "double t[2], u[2]; u[0] = 1; u[1] = 2; for (int j = 0; j < 4; j++) { double* p = j%2 ? t : u; p[0] = x[i*4+j];"
     "p[1] = p[0]*p[0]; y[i*4+j] = u[1]*u[0]; }", "x, y", fails="A16: the decay of a conditional of arrays is refused")  # fmt: skip

# --- 12, 13. decisions and trip counts ---------------------------------------------------------------------------------------------------------------

case(
    "12",
    "while by data",
    XY,
    "double s = x[i]; int c = 0; while (s < 5) { s = s*1.3 + x[i+4]; c++; } y[i] = s*c; x[i] = s;",
    "x, y",
    host=True,
)
case("12", "endless loop with return", XY, "double s = x[i]; while (1) { s = s*1.7; if (s > 4) { y[i] = s*s; return; } x[i] = s; }", "x, y")
case("12", "do while", XY, "double s = x[i]; do { s = s*1.3 + x[i+4]*s; } while (s < 5); y[i] = s*s;", "x, y")
case(
    "12",
    "break and continue",
    XY,
    "double s = x[i]; for (int j = 0; j < 4; j++) { if (x[i*4+j] < .8) continue; if (s > 3) break; s *= x[i*4+j] + .7; y[i*4+j] = s; } y[i*4] = s*s;",
    "x, y",
)
case("12", "nested breaks", XY, "double s = x[i]; for (int j = 0; j < 4; j++) { for (int m = 0; m < 4; m++) { if (s > 4) break; s = s*(1 + .3*x[i*4+m]);"
     "if (m == j) continue; s += y[i*4+m]; } if (s > 9) break; } y[i*4] = s*s;", "x, y")  # fmt: skip
case(
    "12",
    "newton in place",
    XY,
    "for (int it = 0; it < 20; it++) { double f = x[i]*x[i] - x[i+4]; if (fabs(f) < 1e-14) break; x[i] -= f/(2*x[i]); } y[i] = x[i]*x[i]*x[i];",
    "x, y",
)
case("12", "return from nested loops", "double* x, const double* y", "for (int j = 0; j < 4; j++) { if (j > i) return; for (int m = 0; m < 4; m++) { if (m > j) break;"
     "if (x[i*4+m] < .6) return; x[i*4+m] = x[i*4+m]*x[i*4+m] + y[j]; } }", "x, y")  # fmt: skip
case("12", "helper with several returns", XY, "y[i] = f(x[i], i) + f(y[i], i+1);", "x, y",
     before="__device__ double f(double a, int m) { if (m%3 == 0) return a*a; for (int j = 0; j < m; j++) { if (a > 3) return a*2; a = a*1.5; } return a-1; }")  # fmt: skip
case("12", "helper that stores and returns", XY, "f(x, y, i);", "x, y",
     before="__device__ void f(double* a, double* b, int i) { if (i == 1) return; for (int j = 0; j < 3; j++) { if (a[i] > 1.3) return; a[i] *= 1.2; b[i] = a[i]*b[i]; } }")  # fmt: skip
case("12", "condition that stores", XY, "int j = 0; while ((y[i] = x[i*4+j]*y[i]) < 1.5 && ++j < 4) y[i] += .3;", "x, y")
case(
    "12",
    "short circuit with increments",
    XYK,
    "int j = i*4; if (k[i] > 0 && x[j++] > .7 && x[j++] > .7) y[i] = x[j]*x[j]; else y[i] = x[j]*3;",
    "x, y, k",
    K16,
)
case(
    "12",
    "active step of a float loop",
    XY,
    "double s = 0; for (double t = 0; t < 1; t += x[i]*.1 + .05) s += sin(t*x[i])*x[i]; y[i] = s;",
    "x, y",
)
case(
    "13",
    "skewed",
    XYK,
    "double s = x[i]; for (int j = 0; j < k[i]; j++) s = sin(s) + .3*s*s; y[i] = s;",
    "x, y, k",
    {"x": 16, "y": 16, "k": [0, 300, -7, 2]},
    grid=2,
    block=2,
    host=True,
)
case(
    "13",
    "bits",
    XYK,
    "double s = x[i]; for (unsigned m = k[i]; m; m >>= 1) if (m & 1) s = s*s*x[i+4]; else s += x[i]; y[i] = s;",
    "x, y, k",
    {"x": 16, "y": 16, "k": [0, 5, 11, 2]},
)
case(
    "13",
    "random walk",
    XY,
    "unsigned r = i*7 + 1; double s = 1; for (int j = 0; j < 5; j++) { r ^= r << 13; r ^= r >> 17; r ^= r << 5; s = s*x[i*4+r%4] + (r & 1); x[i*4+r%4] = s; } y[i] = s;",
    "x, y",
)
case(
    "13",
    "run-time step against the bound",
    XYN + ", int s",
    "for (int j = 5; j < n; j += s) y[i*6+j] = x[j]*x[j];",
    "x, y, 2, -1",
    {"x": 8, "y": 24},
)
case("13", "countdown by wrapping", XY, "for (unsigned j = 3; j < 4; j--) y[i*4+j] = x[i*4+j]*x[i*4+(j+1)%4];", "x, y")
case(
    "13",
    "bound that shrinks",
    XYK,
    "double s = 1; for (int j = 0; j < k[i]; j++) { s *= x[i*4+j]; k[i]--; } y[i] = s;",
    "x, y, k",
    {"x": 16, "y": 16, "k": [4, 3, 2, 1]},
)

# --- 18. reads become writes ---------------------------------------------------------------------------------------------------------------------------

case(
    "18",
    "read past and thrown away",
    "const double* u, double* v, int n",
    "if (i < n) { double r = u[i+1]; v[i] = (i+1 < n) ? u[i]*r : u[i]; }",
    "u[:8], v, 8",
    {"u": 10, "v": 8},
    grid=2,
)
case(
    "18",
    "guarded neighbour",
    XYK,
    "if (i + k[i] >= 0 && i + k[i] < 16 && x[i+k[i]] > .9) y[i] = x[i+k[i]]*x[i]; else y[i] = 0;",
    "x, y, k",
    {"x": 16, "y": 16, "k": [-1, 30, 1, 2]},
)
case("18", "fractions", XY, "y[i] = x[i]*5 - floor(x[i]*5) + fmod(x[i]*7, 2.0)*x[i] + round(x[i]*3)*x[i] + trunc(x[i]*4)*x[i];", "x, y")
case("18", "functions", XY, "y[i] = exp2(x[i]) + log2(x[i]) + log1p(x[i]) + expm1(x[i]) + asinh(x[i]) + acosh(x[i]+1) + atanh(x[i]/2) + erf(x[i]) + hypot(x[i], 2.)"
     "+ atan2(x[i], y[i]) + fma(x[i], y[i], x[i]) + copysign(x[i], -y[i]) + fdim(x[i], y[i]) + j0(x[i]) + j1(x[i]) + remainder(x[i]*5, 2.) + pow(-x[i], 3) + pow(x[i], x[i]);", "x, y")  # fmt: skip

# --- 21. C, as it is -----------------------------------------------------------------------------------------------------------------------------------

case(
    "21",
    "compound with conversion",
    XYK,
    "int c = k[i]*5; c *= 0.5; short d = k[i]; d *= 30000; d /= 7; y[i] = x[i]*c + d; double e = x[i]; e /= 3.0f; e -= 1.1f*e; y[i] += e*e;",
    "x, y, k",
    K16,
)
case(
    "21",
    "signed and unsigned",
    XYK,
    "unsigned u = 1; if (k[i] - 1 < u) y[i] = x[i]*x[i]; else y[i] = x[i]*((k[i]-5)/2)*((k[i]-5)%3);",
    "x, y, k",
    K16,
)
case(
    "21",
    "sums with themselves",
    XY,
    "y[i] = y[i] + y[i]; y[i] = y[i] + x[i]; y[i] = x[i] - y[i]; y[i] -= x[i]*y[i]; x[i] -= x[i]; y[i] += y[i+4]*y[i]; y[i+4] = -y[i+4];",
    "x, y",
)
case("21", "assignments as values", XY, "double p, q; p = q = x[i]*x[i]; y[i] = x[i] = p*q; y[i] += p *= x[i]; y[i+4] = p;", "x, y")
case(
    "21",
    "references",
    XY,
    "double& r = x[i]; double& q = x[i]; r = r*q; q = q*r; y[i] = r; s(x[i+4], y[i]);",
    "x, y",
    before="__device__ void s(double& a, double& b) { double t = a; a = b*a; b = t; }",
)
case(
    "21",
    "pointers to locals",
    XY,
    "double v = x[i], w; s(&v, &w); y[i] = v*w; s(x + i, &y[i+4]);",
    "x, y",
    before="__device__ void s(double* v, double* o) { *o = *v * *v; *v += *o; }",
)
case("21", "sincos into itself", XY, "double s, c; sincos(x[i], &s, &c); y[i] = s*c*s; sincos(y[i], &y[i], &x[i]);", "x, y")
case(
    "21",
    "pointer loop",
    XY,
    "double* p = x + i*4; double* q = p + 3; int n = q - p; for (; p < q; p++) *p = *p * *p; y[i] = n*x[i*4];",
    "x, y",
)
case(
    "21",
    "loop variable afterwards",
    XY,
    "int j; for (j = 0; j < 4; j++) if (x[i*4+j] > 1.2) break; y[i] = j < 4 ? x[i*4+j]*x[i*4+j] : x[i]; for (j = i; j < 10; j += 3) y[i+4] *= x[j] + j; y[i+8] = y[i+4]*j;",
    "x, y",
)
case("21", "cholesky", XY, "if (i == 0) for (int p = 0; p < 3; p++) { x[p*3+p] = sqrt(x[p*3+p] + 9); for (int q = p+1; q < 3; q++) x[q*3+p] /= x[p*3+p];"
     "for (int q = p+1; q < 3; q++) for (int r = q; r < 3; r++) x[r*3+q] -= x[r*3+p]*x[q*3+p]; }", "x, y", host=True)  # fmt: skip
case(
    "21",
    "insertion sort in place",
    XY,
    "for (int p = 1; p < 4; p++) { double t = x[i*4+p]; int q = p-1; while (q >= 0 && x[i*4+q] > t) { x[i*4+q+1] = x[i*4+q]*1.1; q--; } x[i*4+q+1] = t*t; }",
    "x, y",
)
case("21", "softmax in place", XY, "double m = -1e30; for (int j = 0; j < 4; j++) m = fmax(x[i*4+j], m); double s = 0; for (int j = 0; j < 4; j++) { x[i*4+j] = exp(x[i*4+j] - m); s += x[i*4+j]; }"
     "for (int j = 0; j < 4; j++) x[i*4+j] /= s;", "x, y")  # fmt: skip
case("21", "implicit truncation", XY, "int q = x[i]*3; y[i] = q*x[i];", "x, y", refused=UnsupportedError, match="becomes an integer")

# --- 22. the CPU's text ------------------------------------------------------------------------------------------------------------------------------------

for n in (7, 0, -1):
    case(
        "22",
        f"unsigned against int {n}",
        "double* x, double* y, int n",
        "unsigned j = i; if (j < n) y[j] = x[j]*x[j];",
        f"x, y, {n}",
        grid=3,
        host=n == -1,
    )
case(
    "22",
    "last by unsigned zero",
    "double* x, double* y, unsigned n",
    "unsigned j = i; if (j <= n - 1) y[j] = x[j]*x[j];",
    "x, y, 0",
    grid=3,
    host=True,
)
case(
    "22",
    "unsigned offsets",
    "double* x, double* y, unsigned n",
    "unsigned j = blockIdx.x*4 + threadIdx.x; y[j] = x[j + 1 + n];",
    f"x, y, {2**32 - 1}",
    grid=3,
    host=True,
)
case("22", "short of the bound", "double* x, double* y, short n", "if (i < n) y[i] = x[i]*x[i];", "x, y, 3", grid=3, host=True)

# --- scalars by value -----------------------------------------------------------------------------------------------------------------------------------------

case(
    "25",
    "scalar changed by the kernel",
    "double* x, double* y, double a",
    "a *= x[i]; a += a*a; y[i] = a*x[i];",
    "x, y, a",
    {"x": 8, "y": 8, "a": 0.9},
    grid=2,
)
case(
    "25",
    "scalar in a loop",
    "double* x, double* y, double a",
    "while (a < 5) a = a*1.5 + x[i]; y[i] = a*a;",
    "x, y, a",
    {"x": 8, "y": 8, "a": 0.9},
    grid=2,
)
case(
    "25",
    "scalar as bound and factor",
    "double* x, double* y, double a",
    "double s = 0; for (int j = 0; j < a; j++) s += x[i*4+j]*a; y[i] = s;",
    "x, y, a",
    {"x": 16, "y": 16, "a": 2.5},
)
case("4", "no path", XY, "if (x[i] > 1) y[i] = 2.0; else y[i] = 3.0;", "x, y", refused=ShadowError, match="no path from an active input")
