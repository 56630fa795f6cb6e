"""Random functions in the language of `cupyx.jit`, as Python text. Each thread reads any element of `a` and `b`, owns an element of `x` and
a row of `y`, and adds atomically to `s`, so that the function run by Python itself, thread after thread, is the model of the kernel.

Real variables begin as float64 (a literal alone would be a float32, as in CuPy); literals are exact in both. Values stay moderate."""

from __future__ import annotations

import importlib.util
import random
import textwrap
from pathlib import Path
from typing import Any

ROW = 3  # elements of a row of y
LITERALS = ("0.5", "0.25", "1.5", "-0.75", "2")


class RandomJit:
    """The text of a module with `kernel(a, b, x, y, s, at, n, few)` and its device functions, from a seed."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.reals: list[str] = []
        self.ints: list[str] = []
        self.counter = 0
        self.loops = 0
        self.in_kernel = True
        self.helpers: list[str] = []
        self.text = self.module()

    def fresh(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def chance(self, p: float) -> bool:
        return self.r.random() < p

    # --- expressions -----------------------------------------------------------------------------------------------------------------

    def wide(self) -> str:
        """Something that is a float64 for certain."""
        places = ["a[i]", "b[i]", "x[i]", f"y[i, {self.index()}]", f"y[i][{self.index()}]", "a[(i + 1) % n]", "b[at[i]]"]
        return self.r.choice([*self.reals, *(places if self.in_kernel else [])])

    def index(self) -> str:
        """A number from 0 to ROW - 1."""
        plain = str(self.r.randrange(ROW))
        return (
            self.r.choice([plain, f"{self.r.choice(self.ints)} % {ROW}", f"({self.r.choice(self.ints)} + 1) % {ROW}"])
            if self.ints
            else plain
        )

    def expr(self, depth: int = 0) -> str:
        if depth > 2 or self.chance(0.25):
            return self.wide()
        e, w = lambda: self.expr(depth + 1), self.wide
        forms = [
            lambda: f"({e()} + {e()})", lambda: f"({e()} - {self.r.choice(LITERALS)} * {w()})", lambda: f"{w()} * {e()}",
            lambda: f"np.sin({e()})", lambda: f"np.tanh({e()})", lambda: f"math.cos({e()})", lambda: f"{w()} / (2 + np.sin({e()}))",
            lambda: f"np.exp(-{self.bounded(e())})", lambda: f"np.sqrt(1.5 + {self.bounded(e())})", lambda: f"max({e()}, {e()})",
            lambda: f"np.minimum({e()}, {e()})", lambda: f"({e()} if {self.condition()} else {e()})", lambda: f"abs({e()})",
            lambda: f"np.tanh({w()}) ** 2", lambda: f"-({e()})", lambda: f"np.float64({self.integer()}) * {w()}",
        ]  # fmt: skip
        if self.helpers:
            forms += [lambda: f"{self.r.choice(self.helpers)}(np.tanh({e()}), {w()}, {self.integer()})"] * 3
        return self.r.choice(forms)()

    def bounded(self, e: str) -> str:
        return f"np.tanh({e}) * np.tanh({e})"

    def integer(self) -> str:
        known = [*self.ints, *(["at[i]", "few", "i"] if self.in_kernel else [])]
        a, c = self.r.choice(known), str(self.r.randrange(1, 4))
        return self.r.choice([a, c, f"({a} + {c})", f"({a} * {c})", f"({a} % {c})", f"({a} // {c})", f"({a} & 3)", f"min({a}, {c})"])

    def condition(self) -> str:
        sign = self.r.choice(["<", ">", "<=", ">=", "==", "!="])
        simple = [f"{self.wide()} {self.r.choice('<>')} {self.wide()}", f"{self.integer()} {sign} {self.integer()}"]
        return self.r.choice([*simple, f"({simple[0]} and {simple[1]})", f"({simple[1]} or {simple[0]})", f"not ({simple[0]})"])

    def few(self) -> str:
        return "few" if self.in_kernel else "k % 3"

    # --- statements ------------------------------------------------------------------------------------------------------------------

    def block(self, depth: int, least: int = 1, most: int = 4) -> str:
        """Statements; the names that they make are known in them alone, as CuPy has it."""
        saved = list(self.reals), list(self.ints)
        made = [self.stmt(depth) for _ in range(self.r.randint(least, most))]
        self.reals, self.ints = saved
        return "\n".join(made)

    def stmt(self, depth: int) -> str:
        forms = [self.declare, self.declare, self.assign, self.assign]
        forms += [self.store, self.store, self.store, self.scatter] if self.in_kernel else []
        forms += [lambda: self.branch(depth), lambda: self.loop(depth)] * 2 if depth < 3 else []
        forms += [lambda: self.while_loop(depth), lambda: self.swap()] if depth < 3 else []
        return self.r.choice(forms)()

    def declare(self) -> str:
        if self.chance(0.3):
            text = f"= {self.integer()} % 4"
            self.ints.append(self.fresh("k"))
            return f"{self.ints[-1]} {text}"
        text = f"= {self.damped(self.wide())}"
        self.reals.append(self.fresh("v"))
        return f"{self.reals[-1]} {text}"

    def damped(self, old: str) -> str:
        new = [f"np.sin({old} + {self.expr(1)})", f"0.5 * {old} + 0.25 * np.tanh({self.expr(1)})", f"np.tanh({self.expr()})"]
        return self.r.choice(new)

    def assign(self) -> str:
        """To a variable of its own; the thread's numbers stay."""
        mine = [v for v in self.reals if v[0] == "v"]
        if not mine:
            return self.declare()
        v = self.r.choice(mine)
        return self.r.choice(
            [
                f"{v} = {self.damped(v)}",
                f"{v} {self.r.choice(['+=', '-='])} 0.25 * np.sin({self.expr(1)})",
                f"{v} *= np.tanh({self.expr(1)})",
            ]
        )

    def store(self) -> str:
        place = self.r.choice(["x[i]", f"y[i, {self.index()}]", f"y[i][{self.index()}]"])
        return self.r.choice(
            [f"{place} = {self.damped(place)}", f"{place} += 0.5 * np.tanh({self.expr(1)})", f"{place} *= np.cos({self.expr(1)})"]
        )

    def scatter(self) -> str:
        return f"jit.atomic_add(s, {self.r.choice(['at[i]', '0', f'{self.integer()} % n'])}, {self.expr(1)})"

    def swap(self) -> str:
        mine = [v for v in self.reals if v[0] == "v"]
        if len(mine) < 2:
            return self.declare()
        u, v = self.r.sample(mine, 2)
        return f"{u}, {v} = {v}, np.sin({u} * {v})"

    def branch(self, depth: int) -> str:
        text = f"if {self.condition()}:\n{self.indented(self.block(depth + 1))}"
        if self.chance(0.5):
            text += f"\nelse:\n{self.indented(self.block(depth + 1))}"
        return text

    def loop(self, depth: int) -> str:
        k = self.fresh("k")
        head = self.r.choice([f"range({self.index()} + 1)", f"range({self.few()})", "range(1, 4)", "range(3, 0, -1)", "range(0, 4, 2)"])
        self.ints.append(k)
        body = self.block(depth + 1)
        self.ints.remove(k)
        return f"for {k} in {head}:\n{self.indented(body)}"

    def while_loop(self, depth: int) -> str:
        k = self.fresh("m")
        test = self.r.choice([f"{k} < {self.few()}", f"{k} < 3 and {self.wide()} < 0.75"])
        return f"{k} = 0\nwhile {test}:\n{self.indented(self.block(depth + 1) + f'{chr(10)}{k} += 1')}"

    # --- functions -------------------------------------------------------------------------------------------------------------------

    def indented(self, text: str) -> str:
        return textwrap.indent(text, "    ")

    def helper(self) -> str:
        name = self.fresh("helper")
        saved = self.reals, self.ints, self.in_kernel
        self.reals, self.ints, self.in_kernel = ["u", "w"], ["k"], False
        body = [self.block(1, 0, 2), f"if {self.condition()}:\n    return {self.damped('u')}", f"return {self.damped('w')}"]
        self.reals, self.ints, self.in_kernel = saved
        self.helpers.append(name)
        return f"@jit.rawkernel(device=True)\ndef {name}(u, w, k):\n{self.indented(chr(10).join(b for b in body if b))}\n"

    def module(self) -> str:
        helpers = [self.helper() for _ in range(self.r.randrange(3))]
        start = self.r.choice(["i = jit.grid(1)", "i = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x"])
        self.reals.append("v0")
        body = ["v0 = a[i] * 0.5", *(self.stmt(0) for _ in range(self.r.randint(3, 7)))]
        body += [f"x[i] += 0.5 * {v}" for v in self.reals[-3:]]
        inner = self.indented("\n".join(body))
        kernel = f"@jit.rawkernel()\ndef kernel(a, b, x, y, s, at, n, few):\n    {start}\n    if i < n:\n{self.indented(inner)}\n"
        return "import math\n\nimport numpy as np\n\nfrom gpuad import jit\n\n\n" + "\n\n".join([*helpers, kernel])


def loaded(text: str, path: Path) -> Any:
    """The module of a text; a file, because a jit function is read from its source."""
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
