"""Made-up launches: kernels whose indices, guards and loops come from a generator with a seed, to see what searches and proofs take.

Those that once took minutes come first. The others are gathers at quotients and remainders of the thread's number, stencils with their
edges, scattered additions, loops over pairs, sums of many terms, updates in place.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gpuad import Duplicated

SIZES = 2, 3, 5, 7, 8, 16
ROOM = 4096  # elements of the arrays that are read


@dataclass(frozen=True)
class MadeUp:
    """A launch of a kernel `k(out, a, b)`: its text, geometry, and how many elements `out` has."""

    name: str
    text: str
    grid: int
    block: int
    count: int

    def arguments(self) -> tuple[Any, ...]:
        """New arrays with shadows."""
        return tuple(Duplicated(np.full(n, 0.5), np.ones(n)) for n in (self.count, ROOM, ROOM))


def _kernel(body: str) -> str:
    return f'extern "C" __global__ void k(double* out, double* a, const double* b) {{ {body} }}'


def _every(count: int, body: str) -> str:
    return f"for (int q = blockIdx.x * blockDim.x + threadIdx.x; q < {count}; q += blockDim.x * gridDim.x) {{ {body} }}"


CORRELATION = _every(
    1350,
    "int x = q % 5, y = (q / 5) % 5, n = (q / 25) % 2, v = (q / 50) % 3, u = (q / 150) % 3, c = q / 450, yy = y + u - 1, xx = x + v - 1; "
    "if (yy >= 0 && yy < 5 && xx >= 0 && xx < 5) out[q] = a[((n*3 + c)*5 + y)*5 + x] * b[((n*3 + c)*5 + yy)*5 + xx]; else out[q] = 0;",
)
DIGITS = _every(560, "int i = q % 7, j = q / 7 % 2, k = q / 14 % 5, l = q / 70; out[q] = a[l*8 + j*2 + k*8 + i*2 + 1] * b[i*3 + k*8 + 2];")


def sum_of(terms: int) -> str:
    """A sum of so many terms, each of other elements."""
    added = " + ".join(f"a[i + {k}] * b[i + {k % 7}]" for k in range(terms))
    return f"int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 64) out[i] = {added};"


def examples() -> list[MadeUp]:
    """Those that took minutes."""
    return [
        MadeUp("a correlation of 1,350 threads", _kernel(CORRELATION), 2, 1024, 1350),
        MadeUp("a gather by four digits", _kernel(DIGITS), 2, 128, 560),
        MadeUp("a sum of 1,500 terms", _kernel(sum_of(1500)), 1, 64, 64),
    ]


def made_up(seed: int) -> MadeUp:
    """The launch of a seed."""
    r = random.Random(seed)
    make = KINDS[seed % len(KINDS)]
    count, body = make(r)
    return MadeUp(f"{make.__name__} {seed}", _kernel(body), r.choice((1, 2, 3)), r.choice((32, 100, 128)), count)


def launches(count: int) -> list[MadeUp]:
    """So many, the examples first."""
    return [*examples(), *(made_up(seed) for seed in range(count - len(examples())))]


def _digits(r: random.Random, most: int = 5) -> tuple[int, list[str], str]:
    """How many threads there are, the digits of a thread's number, and their definitions."""
    sizes = [r.choice(SIZES) for _ in range(r.randint(1, most))]
    while prod(sizes) > ROOM // 2:
        sizes.pop()
    lines = [f"int i{k} = q / {prod(sizes[:k])} % {size};" for k, size in enumerate(sizes)]
    return prod(sizes), [f"i{k}" for k in range(len(sizes))], " ".join(lines)


def _index(r: random.Random, digits: list[str]) -> str:
    chosen = r.sample(digits, r.randint(1, len(digits)))
    return " + ".join(f"{digit} * {r.choice((1, 2, 3, 5, 8, 16))}" for digit in chosen) + f" + {r.randint(0, 2)}"


def gather(r: random.Random) -> tuple[int, str]:
    count, digits, lines = _digits(r)
    terms = [f"{array}[{_index(r, digits)}]" for array in "ab"]
    return count, _every(count, f"{lines} out[q] = {r.choice((' * ', ' + ')).join(terms)};")


def scatter(r: random.Random) -> tuple[int, str]:
    count, digits, lines = _digits(r)
    return ROOM, _every(count, f"{lines} atomicAdd(&out[{_index(r, digits)}], a[{_index(r, digits)}] * b[q]);")


def stencil(r: random.Random) -> tuple[int, str]:
    w, h = r.randint(5, 40), r.randint(5, 40)
    far = r.randint(1, 3)
    steps = [(r.randint(-far, far), r.randint(-far, far)) for _ in range(r.randint(2, 9))]
    edge = r.choice(("guard", "wrap", "clamp"))
    places = {
        "guard": "a[(y + {1}) * {w} + x + {0}]",
        "wrap": "a[(y + {1} + {h}) % {h} * {w} + (x + {0} + {w}) % {w}]",
        "clamp": "a[min(max(y + {1}, 0), {h} - 1) * {w} + min(max(x + {0}, 0), {w} - 1)]",
    }
    terms = " + ".join(f"{k + 1}.0 * " + places[edge].format(*step, w=w, h=h) for k, step in enumerate(steps))
    inside = f"if (x >= {far} && x < {w - far} && y >= {far} && y < {h - far}) " if edge == "guard" else ""
    return w * h, _every(w * h, f"int x = q % {w}, y = q / {w}; {inside}out[q] = {terms};")


def pairs(r: random.Random) -> tuple[int, str]:
    n, inner = r.randint(8, 60), r.randint(2, 40)
    index = r.choice((f"q * {inner} + j", f"j * {n} + q", "q + j", "j", f"(q + j) % {n}"))
    other = r.choice(("q", "j", "q + 2 * j"))
    return n, _every(n, f"double s = 0; for (int j = 0; j < {inner}; ++j) s += a[{index}] * sin(b[{other}]); out[q] = s;")


def terms(r: random.Random) -> tuple[int, str]:
    places = [f"a[i * {r.choice((1, 2, 3))} + {r.randint(0, 60)}]" for _ in range(r.randint(20, 200))]
    added = " + ".join(f"{place} * b[{r.choice(('i', '0', str(k)))}]" for k, place in enumerate(places))
    return 64, f"int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 64) out[i] = {added};"


def in_place(r: random.Random) -> tuple[int, str]:
    count, digits, lines = _digits(r, 3)
    place = r.choice((f"q * 2 + {r.randint(0, 1)}", f"{count - 1} - q", f"q + {r.randint(0, 9)}"))
    guard = r.choice(("", f"if ({digits[0]} != {r.randint(0, 3)}) ", f"if (q % 3 < {r.randint(1, 2)}) "))
    return count, _every(count, f"{lines} {guard}{{ a[{place}] = a[{place}] * b[{_index(r, digits)}]; out[q] = a[{place}]; }}")


KINDS: tuple[Callable[[random.Random], tuple[int, str]], ...] = (gather, stencil, gather, scatter, pairs, terms, in_place)
