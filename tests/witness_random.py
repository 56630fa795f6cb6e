"""Random shapes for the witness: sections one after another, loops over the grid among them, that share arrays and what threads carry.

A section is a loop over the grid, a guard, a head, or what each thread does; all loops of a kernel deal the items in the same way. Arrays
are as in `witness_shapes`: some are only read; element i of `v`, `x`, `o` belongs to item i and is stored by one section, and maybe read by
the next; to `y`, `s` everybody adds; element t of `z` belongs to thread t. `g` is what a thread carries, linear in what was read, so that
every kernel is a polynomial of degree four at most in each number.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from witness_shapes import FORMS, Form, Shape, indented

LINES = [name for name, form in FORMS.items() if form.space in ("line", "rows", "block", "plane", "plane_line", "cube")]


class RandomShape:
    """The body of a kernel, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.form: Form = FORMS[self.random.choice(LINES)]
        self.stores = ["v", "x", "o"]
        self.stored: list[str] = []
        self.own = ["z"]
        self.carries = self.chance(0.5)
        self.sizes: dict[str, str] = {}
        self.views: dict[str, tuple[str, str]] = {}

    def shape(self) -> Shape:
        opening, _, items = self.form.text.partition("BEFORE")
        parts = [opening]
        if self.carries:
            parts.append(f"double g = {self.pick('0', '1', 'c[0]', 'c[t % m]', 's_of_c')};".replace("s_of_c", "2.0 * c[m - 1]"))
        parts += [self.section(items) for _ in range(self.random.randint(1, 4))]
        if self.carries:
            parts.append(self.pick("", "atomicAdd(&s[0], g);", "atomicAdd(&y[t % m], g);", self.stored_by_thread("g")))
        if self.chance(0.2) and {"u[", "p["} <= set(re.findall(r"\b[up]\[", " ".join(parts))):
            self.sizes["u"], self.views["p"] = "N + 2", ("u", self.pick("0", "1", "2"))
        return Shape("random", " ".join(parts), self.form.space, self.sizes, self.views)

    # --- choices -------------------------------------------------------------------------------------------------------------------------

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def number(self) -> str:
        return self.pick("2.0", "3.0", "-1.0", "0.5")

    # --- sections ------------------------------------------------------------------------------------------------------------------------

    def section(self, items: str) -> str:
        kinds: list[Callable[[str], str]] = [self.loop, self.loop, self.loop, self.thread, self.head, self.tail, self.times]
        return self.random.choice(kinds)(items)

    def loop(self, items: str) -> str:
        """A loop over the items, or whatever the form has in its place."""
        side = self.side() if self.chance(0.3) else ""
        made = items.replace("BESIDE", side).replace("ITEM", " ".join(self.item() for _ in range(self.random.choice([1, 1, 2]))))
        after = self.side() if self.chance(0.3) else ""
        made = made.replace("AFTER", "")
        if "return;" in made:  # it would leave what comes after to others
            made = made.replace("if (i >= N) return;", "if (i < N) {") + "}"
        return self.guarded(f"{{ {made} }}") + after

    def times(self, items: str) -> str:
        """The same several times over, where all that is done is adding."""
        again = items.replace("BESIDE", "").replace("AFTER", "").replace("if (i >= N) return;", "if (i < N)")
        again = again.replace("ITEM", f"atomicAdd(&{self.sum_of_items()}, {self.value('i', ['h'])});")
        side = self.side("k") if self.chance(0.5) else ""
        return f"for (int h = 0; h < {self.pick('m', '2')}; h++) {{ {{ {again} }} {side} }}"

    def guarded(self, text: str) -> str:
        """Maybe under a condition that threads, blocks or numbers have."""
        condition = self.pick("t % 2 == 0", "blockIdx.x > 0", "m > 1", "n > 2", "mask_of_t")
        condition = condition.replace("mask_of_t", "c[0] > 0.0")
        return f"if ({condition}) {text}" if self.chance(0.15) else text

    def thread(self, _: str) -> str:
        return self.guarded("{ " + self.side() + " }")

    def head(self, _: str) -> str:
        first = self.pick("t == 0", "threadIdx.x == 0", "blockIdx.x == 0", "t == 1", "threadIdx.x == blockDim.x - 1")
        return f"if ({first}) {{ {self.side()} }}"

    def tail(self, _: str) -> str:
        """Items of another number, one a thread, which adds."""
        return f"if (t < m) {{ atomicAdd(&y[{self.pick('t', 'm - 1 - t', '0')}], c[{self.pick('t', '(t + 1) % m', '0')}]); }}"

    # --- what is done --------------------------------------------------------------------------------------------------------------------

    def item(self) -> str:
        kind = self.random.randrange(10)
        if self.carries and kind < 3:
            return f"g += {self.read('i')};" if kind else f"g = {self.pick('g + ', '')}{self.number()} * {self.read('i')};"
        if self.stores and kind < 7:
            name = self.stores.pop(0)
            self.stored.append(name)
            store = f"{name}[i] {self.pick('=', '=', '+=')} {self.value('i')};"
            return f"if ({self.condition()}) {{ {store} }}" if self.chance(0.25) else store
        if self.stored and kind < 8:
            name = self.stored[-1]
            return f"{name}[i] = {self.number()} * {name}[i]{self.pick('', ' + ' + self.read('i'))};"
        if kind < 9:
            return f"for (int k = 0; k < m; k++) {{ atomicAdd(&{self.pick('y[k]', 'y[(i + k) % m]', 's[0]')}, {self.value('i', ['k'])}); }}"
        return f"atomicAdd(&{self.sum_of_items()}, {self.value('i')});"

    def sum_of_items(self) -> str:
        return self.pick("y[i % m]", "s[0]", "y[0]", "y[m - 1]")

    def condition(self) -> str:
        return self.pick("i > 0", "i + 1 < N", "i % 2 == 0", "mask[i]", "i > 0 && i < N - 1", "i < m", "u[i] > 0.0")

    def side(self, index: str = "h") -> str:
        """What a thread does, whatever its items."""
        kind = self.random.randrange(6)
        if kind == 0 and self.own:
            return self.stored_by_thread(self.read("t % m", only="c"))
        if kind == 1:
            return f"atomicAdd(&y[{self.pick('0', 't % m', 'blockIdx.x % m')}], {self.number()} * c[{self.pick('0', 't % m', 'm - 1')}]);"
        if kind == 2:
            return f"for (int {index} = 0; {index} < N; {index}++) {{ atomicAdd(&s[0], {self.pick('u', 'p')}[{index}]); }}"
        if kind == 3 and self.carries:
            return f"for (int {index} = 0; {index} < m; {index}++) {{ g += c[{index}]; }}"
        place = self.pick(index, f"m - 1 - {index}", f"({index} + 1) % m")
        return f"for (int {index} = 0; {index} < m; {index}++) {{ atomicAdd(&y[{place}], {self.number()} * c[{index}]); }}"

    def stored_by_thread(self, value: str) -> str:
        if not self.own:
            return ""
        return f"{self.own.pop()}[t] = {value};" if self.chance(0.7) else f"atomicAdd(&z[t], {value});"

    def value(self, i: str, loops: list[str] | None = None) -> str:
        """A sum of products of two."""
        terms = []
        for _ in range(self.random.choice([1, 1, 2, 3])):
            factor = self.pick(self.number(), self.number(), self.read(i, loops=loops), "a" if self.chance(0.5) else "2.0")
            terms.append(f"{factor} * {self.read(i, loops=loops)}")
        if self.carries and self.chance(0.3):
            terms.append(f"g * {self.read(i, loops=loops)}")
        return " + ".join(terms)

    def read(self, i: str, only: str = "", loops: list[str] | None = None) -> str:
        if only:
            return f"{only}[{i}]"
        name = self.pick("u", "u", "p", "c", "A") if loops or i == "i" else "c"
        if name == "c":
            return f"c[{self.pick(f'{i} % m', '0', 'm - 1', *(loops or ['0']) if loops != ['h'] else ['0'])}]"
        if name == "A":
            k = loops[0] if loops == ["k"] else "0"
            return self.pick(f"A[{i} * m + {k}]", f"A[{k} * N + {i}]")
        extra = [f"({i} + {k}) % N" for k in loops or []]
        j = self.pick(i, i, f"({i} + 1) % N", f"({i} + N - 1) % N", f"N - 1 - {i}", f"{i} / 2", "0", "N - 1",
                      f"min((int){i} + 1, (int)N - 1)", f"max((int){i} - 1, 0)", *extra, *extra)  # fmt: skip
        if self.chance(0.15):
            return f"({i} > 0 ? {name}[{i} - 1] : 0.0)"
        return f"{name}[{j}]"


def random_shape(seed: int) -> Shape:
    """The shape of a seed; those that write nothing are passed over."""
    attempts = (RandomShape(seed + (k << 32)).shape() for k in count())
    return replace(next(s for s in attempts if re.search(r"atomicAdd|[vxoz]\[", s.body)), name=f"random_{seed}")


# --- cutting down ------------------------------------------------------------------------------------------------------------------------


def cut_down(shape: Shape, fails: Callable[[Shape], bool]) -> Shape:
    """The shape with as many statements left out as it still fails without."""
    shape = replace(shape, body=indented(shape.body))
    while (smaller := next((s for s in _smaller(shape) if fails(s)), None)) is not None:
        shape = smaller
    return shape


def _smaller(shape: Shape) -> Iterator[Shape]:
    """Each statement left out, the longest first, and each block without what is around it."""
    lines = shape.body.splitlines()
    parts = sorted(((first, _end(lines, first)) for first in range(len(lines))), key=lambda part: part[0] - part[1])
    for first, end in parts:
        if lines[first].strip() == "}" or end > len(lines):
            continue
        yield replace(shape, body="\n".join(lines[:first] + lines[end:]))
        if end - first > 1:
            yield replace(shape, body="\n".join(lines[:first] + lines[first + 1 : end - 1] + lines[end:]))


def _end(lines: list[str], first: int) -> int:
    """The line after the statement that starts in a line."""
    depth = 0
    for k in range(first, len(lines)):
        depth += lines[k].count("{") - lines[k].count("}")
        if depth <= 0:
            return k + 1
    return len(lines) + 1
