"""Random CUDA kernels as text: the language of LANGUAGE.md's tiers base, 1a and 1b, richest where reverse mode goes wrong.

A `Node` is a piece of text with holes for other nodes, so that a kernel can be printed and cut down (see `shrink_cuda`) without knowing
what it means. Every kernel is free of races by construction, deterministic, in bounds, and ends:

| parameter | each thread i |
|---|---|
| `const real* a`, `b`; `const int* idx`, `cnt` | reads any element (neighbours, gathers, trip counts) |
| `real* x`, `int* q` | owns element i, reads and overwrites it |
| `real* y`, `real* z` | owns a row of M elements, `y[i * M + j]` and `z[j * n + i]` |
| `real* s` | adds atomically, never reads |
| `real c`, `d`; `int n`, `m` | numbers |

Values stay moderate and functions away from their singular points; integers are reduced to a few values when they are assigned; loops
run at most a handful of times, and zero times often.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

ROW = 4  # elements of a row: the macro M, and the value of the parameter m
WIDTH = 5  # of a 2D launch: the parameter w


@dataclass(frozen=True)
class Node:
    """Text with `{}` for each child, and ⟨ ⟩ for braces. `type`: 'real', 'int', 'bool' for expressions, 'stmt', or 'block' (a child is a
    statement)."""

    type: str
    text: str
    children: tuple[Node, ...] = ()
    fixed: bool = False  # a statement that shrinking may only remove together with what is around it

    def __str__(self) -> str:
        parts = self.text.replace("⟨", "{").replace("⟩", "}").split("{}")
        return "".join(p + str(c) for p, c in zip(parts, (*self.children, ""), strict=True))


def block(stmts: list[Node]) -> Node:
    return Node("block", "\n".join(["{}"] * len(stmts)), tuple(stmts))


@dataclass(frozen=True)
class Name:
    """A variable. `most`: an int that lies in 0 ... most - 1."""

    text: str
    type: str
    mutable: bool = True
    most: int | None = None
    wide: bool = False  # of another type than `real`


@dataclass(frozen=True)
class Array:
    """Memory that the code may reach: `length` elements (never fewer), `bound` the length as text, `place` the element at an index."""

    place: Callable[[Node], Node]
    length: int
    bound: str
    writable: bool = True
    pointer: str | None = None  # text of a pointer to element 0, where the elements lie side by side
    local: bool = False


@dataclass
class Scope:
    names: list[Name] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)

    def copy(self) -> Scope:
        return Scope(list(self.names), list(self.arrays))


@dataclass(frozen=True)
class Kernel:
    """A random kernel: `real` its floating type, `active` its parameters that carry a gradient, `shape` of its threads. `shift`: None, or b
    is a view of a's memory that starts so many elements later."""

    name: str
    program: Node
    real: str
    active: frozenset[str]
    shape: str
    n: int
    grid: tuple[int, int]
    threads: tuple[int, int]
    shift: int | None = None

    @property
    def text(self) -> str:
        return indented(str(self.program))


def indented(text: str) -> str:
    """The text with each line indented by the braces around it; empty lines are dropped."""
    out, depth = [], 0
    for line in (part.strip() for part in text.split("\n")):
        depth -= line.startswith("}")
        if line:
            out.append("    " * depth + line)
        depth += line.count("{") - line.count("}") + line.startswith("}")
    return "\n".join(out) + "\n"


Maker: TypeAlias = "Callable[[], Node]"


class Grammar:
    """Grows one kernel from a seed."""

    def __init__(self, seed: int, size: int = 30) -> None:
        self.r = random.Random(seed)
        self.seed = seed
        self.real = "float" if self.r.random() < 0.2 else "double"
        self.scope = Scope()
        self.counter = 0
        self.budget = size
        self.loops = 0  # loops around the statement that is being made
        self.leaves = ["return;"]
        self.functions: list[Callable[[int], Node]] = []
        self.outs: list[Maker] = []
        self.tests: list[Maker] = []  # calls that change something and answer a bool: only where C fixes the order of evaluation
        self.counts: list[str] = []
        self.in_kernel = True

    # --- small tools -------------------------------------------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        return self.r.random() < p

    def fresh(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def pick(self, weighted: list[tuple[float, Maker]]) -> Node:
        return self.r.choices([m for _, m in weighted], [w for w, _ in weighted])[0]()

    @contextmanager
    def inner(self) -> Iterator[None]:
        """A scope of its own."""
        outer, self.scope = self.scope, self.scope.copy()
        try:
            yield
        finally:
            self.scope = outer

    def named(self, type_: str, mutable: bool = False) -> list[Name]:
        return [v for v in self.scope.names if v.type == type_ and (v.mutable or not mutable)]

    def some(self, type_: str) -> Name | None:
        """A variable, of those declared last more often."""
        known = self.named(type_)
        if not known:
            return None
        return self.r.choice(known[-4:] if self.chance(0.6) else known)

    def assignable(self, type_: str) -> Name | None:
        known = self.named(type_, mutable=True)
        return self.r.choice(known) if known else None

    # --- real expressions --------------------------------------------------------------------------------------------------------

    def own(self, value: Node) -> Node:
        """The value in the kernel's own type: CUDA's functions of two arguments take float and double together as ambiguous."""
        return Node("real", f"({self.real})({{}})", (value,)) if self.real == "float" else value

    def literal(self) -> Node:
        value = self.r.choice(["0.5", "0.25", "0.7", "1.3", "0.9", "2.0", "0.1", "1.1"])
        return Node("real", value + ("f" if self.real == "float" and self.chance(0.8) else ""))

    def expr(self, depth: int = 0) -> Node:
        if depth >= 3 or self.chance(0.2 + 0.15 * depth):
            return self.leaf()
        deeper = depth + 1
        return self.pick([
            (6, lambda: self.binary(deeper)),
            (4, lambda: self.bounded(deeper)),
            (1, lambda: Node("real", "(-{})", (self.expr(deeper),))),
            (1.5, lambda: Node("real", "({} ? {} : {})", (self.condition(deeper), self.expr(deeper), self.expr(deeper)))),
            (1.2 if self.functions else 0, lambda: self.r.choice(self.functions)(deeper)),
            (0.5, lambda: Node("real", f"({self.real})({{}})", (self.integer(deeper),))),
            (0.3, lambda: self.r.choice([
                lambda: Node("real", "(double)({})", (self.expr(deeper),)),
                lambda: Node("real", "({} * {} / (1 + {} * {}))", (self.expr(2), self.expr(2), *[self.simple()] * 2)),
                lambda: Node("real", "fabs({})", (self.expr(deeper),)),
                lambda: Node("real", "({} ? 1 : 0) * {}", (self.condition(deeper), self.expr(deeper))),
            ])()),
        ])  # fmt: skip

    def binary(self, depth: int) -> Node:
        op = self.r.choice(["+", "+", "-", "*", "*"])
        return Node("real", f"({{}} {op} {{}})", (self.expr(depth), self.expr(depth)))

    def simple(self) -> Node:
        known = self.some("real")
        return Node("real", known.text) if known else self.literal()

    def bounded(self, depth: int) -> Node:
        """Functions whose values and slopes are moderate everywhere."""
        v = self.simple()
        f = "f" if self.real == "float" and self.chance(0.3) else ""

        def two(form: str, first: Node, *rest: Node) -> Node:
            return Node("real", form, (self.own(first), *(self.own(e) for e in rest)))

        def power() -> Node:
            exponent = self.pick(
                [(1, lambda: Node("real", "2")), (1, lambda: Node("real", "1.5")), (1, lambda: Node("real", "tanh({})", (v,)))]
            )
            return two("pow({}, {})", Node("real", "1.2 + {} * {}", (v, v)), exponent)

        def third() -> Node:
            return two("fma({}, {}, {})", self.expr(depth), self.simple(), self.expr(depth))

        return self.pick([
            (3, lambda: Node("real", f"{self.r.choice(['sin', 'cos', 'tanh', 'atan'])}{f}({{}})", (self.expr(depth),))),
            (1, lambda: Node("real", f"exp{f}(-{{}} * {{}})", (v, v))),
            (1, lambda: Node("real", f"sqrt{f}(1 + {{}} * {{}})", (v, v))),
            (0.5, lambda: Node("real", f"log{f}(1.5 + {{}} * {{}})", (v, v))),
            (1, lambda: Node("real", "{} / (1 + {} * {})", (self.expr(depth), v, v))),
            (1, lambda: Node("real", "(1 / (2 + sin({})))", (self.expr(depth),))),
            (1.6, lambda: two(self.r.choice(["fmin", "fmax", "min", "max"]) + "({}, {})", self.expr(depth), self.expr(depth))),
            (0.4, power),
            (0.4, lambda: two("hypot({}, {})", self.expr(depth), Node("real", "1.5"))),
            (0.4, lambda: two("atan2({}, {})", self.expr(depth), Node("real", "1.2 + {} * {}", (v, v)))),
            (0.4, third),
            (0.4, lambda: Node("real", "rsqrt(1.1 + {} * {})", (v, v))),
            (0.3, lambda: Node("real", "(floor({}) * {})", (self.expr(depth), v))),
        ])  # fmt: skip

    def leaf(self) -> Node:
        arrays = self.scope.arrays
        return self.pick([
            (5 if self.named("real") else 0, self.simple),
            (1, self.literal),
            (2.5 if arrays else 0, lambda: self.element(self.r.choice(arrays))),
            (1.5 if self.in_kernel else 0, self.read_only),
            (0.3 if self.named("int") else 0, lambda: Node("real", f"({self.real}){self.some('int').text}")),  # type: ignore[union-attr]
        ])  # fmt: skip

    def read_only(self) -> Node:
        """A load of an array that the kernel does not write: at the own place, at a neighbour's, through an index array."""
        array = self.r.choice("aab")
        return self.pick([
            (2, lambda: Node("real", f"{array}[i]")),
            (1, lambda: Node("real", f"{array}[idx[i]]")),
            (1, lambda: Node("real", f"{array}[min((int)i + {self.r.randint(1, 3)}, n - 1)]")),
            (1, lambda: Node("real", f"{array}[max((int)i - 1, 0)]")),
            (0.7, lambda: Node("real", f"(i + 1 < n ? {array}[i + 1] : {{}})", (self.expr(2),))),
            (0.7, lambda: Node("real", f"{array}[(i + {{}}) % n]", (self.natural(8),))),
            (0.4, lambda: Node("real", f"{array}[n - 1 - i]")),
        ])  # fmt: skip

    def element(self, array: Array) -> Node:
        return array.place(self.index(array))

    def index(self, array: Array) -> Node:
        small = [v for v in self.named("int") if v.most is not None and v.most <= array.length]
        mutable = [v for v in small if v.mutable and v.most is not None]
        length = array.length
        return self.pick([
            (3, lambda: Node("int", str(self.r.randrange(length)))),
            (6 if small else 0, lambda: Node("int", self.r.choice(small[-3:]).text)),
            (0.7 if small else 0, lambda: Node("int", f"{length - 1} - {self.r.choice(small[-3:]).text}")),
            (0.7 if small else 0, lambda: Node("int", f"({self.r.choice(small[-3:]).text} + {self.r.randint(1, 2)}) % {array.bound}")),
            (0.7 if small else 0, lambda: Node("int", f"max({self.r.choice(small[-3:]).text} - 1, 0)")),
            (1, lambda: Node("int", f"min(max({{}}, 0), {array.bound} - 1)", (self.integer(2),))),
            (1, lambda: self.natural(length)),
            (0.2 if mutable else 0, lambda: Node("int", f"{self.r.choice(mutable or small).text}")),
        ])  # fmt: skip

    # --- conditions and integers -------------------------------------------------------------------------------------------------

    def condition(self, depth: int = 0) -> Node:
        compare = self.r.choice(["<", ">", "<=", ">="])
        deeper = depth + 1
        simple = depth >= 3
        return self.pick([
            (4, lambda: Node("bool", f"({{}} {compare} {{}})", (self.expr(max(2, deeper)), self.expr(max(2, deeper))))),
            (3, lambda: Node("bool", f"({{}} {self.r.choice([compare, '==', '!='])} {{}})", (self.integer(2), self.integer(3)))),
            (2 if self.named("bool") else 0, lambda: Node("bool", self.some("bool").text)),  # type: ignore[union-attr]
            (0 if simple else 1, lambda: self.both(deeper)),
            (0 if simple else 0.6, lambda: Node("bool", "!({})", (self.condition(deeper),))),
            (0.5 if self.in_kernel else 0, lambda: Node("bool", f"(i + 1 < n && a[i + 1] {compare} {{}})", (self.expr(3),))),
            (0.4 if self.in_kernel else 0, lambda: Node("bool", f"(i < 1 || b[i - 1] {compare} {{}})", (self.expr(3),))),
            (0.3, lambda: Node("bool", f"({{}} {self.r.choice(['& 1', '% 3'])})", (self.natural(8),))),
        ])  # fmt: skip

    def both(self, depth: int) -> Node:
        return Node("bool", self.r.choice(["({} && {})", "({} || {})"]), (self.condition(depth), self.condition(depth)))

    def integer(self, depth: int = 0) -> Node:
        known = self.some("int")
        leaves: list[tuple[float, Maker]] = [
            (1, lambda: Node("int", str(self.r.randint(-1, 4)))),
            (4 if known else 0, lambda: Node("int", known.text)),  # type: ignore[union-attr]
            (1 if self.in_kernel else 0, lambda: Node("int", self.r.choice(["cnt[i]", "idx[i]", "q[i]", "(int)i", "m"]))),
        ]
        if depth >= 2:
            return self.pick(leaves)
        deeper = depth + 1
        return self.pick([
            *leaves,
            (2, lambda: Node("int", f"({{}} {self.r.choice('+-*')} {{}})", (self.integer(deeper), self.integer(deeper)))),
            (0.5, lambda: Node("int", f"({{}} {self.r.choice(['%', '/'])} {self.r.randint(2, 5)})", (self.integer(deeper),))),
            (0.5, lambda: Node("int", f"({{}} {self.r.choice(['& 3', '& 1', '>> 1', '<< 1', '^ 1', '| 1'])})", (self.integer(deeper),))),
            (0.5, lambda: Node("int", f"{self.r.choice(['min', 'max'])}({{}}, {{}})", (self.integer(deeper), self.integer(deeper)))),
            (0.5, lambda: Node("int", "({} ? {} : {})", (self.condition(2), self.integer(deeper), self.integer(deeper)))),
            (0.5, lambda: Node("int", "(int)(2 * sin({}))", (self.expr(2),))),
            (0.3, lambda: Node("int", "({} > {})", (self.expr(2), self.expr(3)))),
            (0.8 if self.counts else 0, lambda: Node("int", f"{self.r.choice(self.counts)}({{}}, {{}})", (self.expr(2), self.integer(2)))),
        ])  # fmt: skip

    def natural(self, most: int) -> Node:
        """An int in 0 ... most - 1."""
        mask = most & (most - 1) == 0
        form = f"({{}} & {most - 1})" if mask and self.chance(0.6) else f"(abs({{}}) % {most})"
        return Node("int", form, (self.integer(1),))

    # --- statements --------------------------------------------------------------------------------------------------------------

    def stmts(self, depth: int, least: int = 1, most: int = 5) -> list[Node]:
        """Statements of a block; what they declare is mostly used at its end."""
        known = set(self.scope.names)
        with self.inner():
            made = [self.stmt(depth) for _ in range(self.r.randint(least, most)) if self.budget > 0 or least]
            own = [v for v in self.scope.names if v.type == "real" and v not in known]
            if own and self.chance(0.6):
                made.append(self.use(self.r.choice(own).text, known))
            return made

    def use(self, text: str, known: set[Name]) -> Node:
        """The value goes to memory, or to a variable of a scope around."""
        outer = [v for v in self.named("real", True) if v in known]
        if outer and self.chance(0.5):
            v = self.r.choice(outer).text
            return Node("stmt", f"{v} = 0.6 * {v} + 0.5 * sin({text});")
        arrays = [a for a in self.scope.arrays if a.writable]
        if not arrays:
            return block([])
        place = self.element(self.r.choice(arrays))
        return Node("stmt", "{} = 0.7 * {} + 0.4 * " + f"tanh({text});", (place, place))

    def use_all(self) -> list[Node]:
        """What is left in variables and arrays at the end of the kernel goes to memory."""
        reals = [Node("real", v.text) for v in self.named("real")]
        reals += [a.place(Node("int", str(k))) for a in self.scope.arrays if a.local for k in range(a.length)]
        reals += [self.element(a) for a in self.scope.arrays if a.writable]
        self.r.shuffle(reals)
        return [Node("stmt", f"x[i] += {self.r.choice(['0.3', '0.7', '1.3', 'd'])} * {{}};", (v,)) for v in reals[:6]]

    def body(self, depth: int, least: int = 1, most: int = 4) -> Node:
        return block(self.stmts(depth, least, most))

    def stmt(self, depth: int) -> Node:
        self.budget -= 1
        nest = 1.0 if depth < 4 and self.budget > 0 and self.loops < 3 else 0.0
        return self.pick([
            (2, self.declare),
            (4 if self.assignable("real") else 0, self.assign),
            (3 if any(a.writable for a in self.scope.arrays) else 0, self.store),
            (0.4 if self.assignable("real") and any(a.writable for a in self.scope.arrays) else 0, self.chain),
            (1.2 if self.assignable("int") else 0, self.assign_int),
            (0.5 if self.assignable("bool") else 0, self.assign_bool),
            (0.6 if len(self.named("real", True)) > 1 else 0, self.swap),
            (0.8 if self.outs else 0, lambda: self.r.choice(self.outs)()),
            (0.7 if self.in_kernel else 0, self.scatter),
            (0.7, self.local_array),
            (0.15, self.table),
            (0.15 * nest, self.ping_pong),
            (0.4 if any(a.pointer for a in self.scope.arrays) else 0, self.pointer),
            (0.3 if self.in_kernel else 0, lambda: Node("stmt", "q[i] = {};", (self.natural(8),))),
            (2.2 * nest, lambda: self.if_(depth)),
            (2.2 * nest, lambda: self.for_(depth)),
            (0.9 * nest, lambda: self.while_(depth)),
            (0.7 * nest, lambda: self.do_(depth)),
            (0.9 * nest, lambda: self.idiom(depth)),
            (0.8 if depth > 0 else 0, self.leave),
            (0.15 * nest, lambda: Node("stmt", "⟨\n{}\n⟩", (self.body(depth + 1),))),
        ])  # fmt: skip

    def damped(self, old: str) -> Node:
        """A new value for a variable that keeps it moderate even in a loop."""
        return self.pick([
            (2, lambda: Node("real", f"0.5 * {old} + 0.4 * {{}}", (self.bounded(2),))),
            (2, lambda: Node("real", f"sin({old} + {{}})", (self.expr(1),))),
            (1, lambda: Node("real", f"{old} / (1 + {old} * {old}) + 0.3 * {{}}", (self.expr(2),))),
            (1, lambda: Node("real", f"tanh({old} * {{}})", (self.expr(1),))),
            (1, lambda: Node("real", f"{old} * (1 - 0.2 * {old})")),
            (1, lambda: Node("real", f"({{}} ? {old} : {{}})", (self.condition(1), self.expr(2)))),
            (0.6, lambda: Node("real", "fmax({}, {})", (self.own(Node("real", old)), self.own(self.expr(2))))),
        ])  # fmt: skip

    def declare(self) -> Node:
        kind = self.r.choices(["real", "int", "bool"], [5, 2, 1])[0]
        if kind == "real":
            name, made = self.fresh("v"), self.expr()
            type_ = "double" if self.chance(0.1) else ("const " if self.chance(0.1) else "") + self.real
            self.scope.names.append(Name(name, "real", not type_.startswith("const"), wide=type_ != self.real))
            return Node("stmt", f"{type_} {name} = {{}};", (made,))
        if kind == "int":
            name, most = self.fresh("k"), self.r.choice([2, 4, 4, 8])
            node = Node("stmt", f"int {name} = {{}};", (self.natural(most),))
            self.scope.names.append(Name(name, "int", most=most))
            return node
        name = self.fresh("f")
        node = Node("stmt", f"bool {name} = {{}};", (self.condition(),))
        self.scope.names.append(Name(name, "bool"))
        return node

    def assign(self) -> Node:
        v = self.assignable("real").text  # type: ignore[union-attr]
        if self.loops:
            return self.pick([
                (4, lambda: Node("stmt", f"{v} = {{}};", (self.damped(v),))),
                (2, lambda: Node("stmt", f"{v} = {{}};", (self.bounded(1),))),
                (2, lambda: Node("stmt", f"{v} {self.r.choice(['+=', '-='])} {{}};", (self.bounded(1),))),
                (1, lambda: Node("stmt", f"{v} *= 0.8 + 0.2 * sin({{}});", (self.expr(1),))),
                (0.5, lambda: Node("stmt", f"{v} /= 1.5 + tanh({{}});", (self.expr(1),))),
            ])  # fmt: skip
        return Node("stmt", f"{v} {self.r.choice(['=', '=', '+=', '-=', '*='])} {{}};", (self.expr(),))

    def store(self) -> Node:
        array = self.r.choice([a for a in self.scope.arrays if a.writable])
        place = self.element(array)
        text = str(place)
        if self.loops:
            return self.pick([
                (3, lambda: Node("stmt", "{} = {};", (place, self.damped(text)))),
                (3, lambda: Node("stmt", "{} = {};", (place, self.bounded(1)))),
                (2, lambda: Node("stmt", "{} += {};", (place, self.bounded(1)))),
                (1, lambda: Node("stmt", "{} *= 0.8 + 0.2 * cos({});", (place, self.expr(2)))),
            ])  # fmt: skip
        return Node("stmt", f"{{}} {self.r.choice(['=', '=', '+=', '-=', '*='])} {{}};", (place, self.expr()))

    def chain(self) -> Node:
        v = self.assignable("real").text  # type: ignore[union-attr]
        array = self.r.choice([a for a in self.scope.arrays if a.writable])
        value = self.damped(v) if self.loops else self.expr()
        return Node(
            "stmt",
            self.r.choice([f"{{}} = {v} = {{}};", f"{v} = {{}} = {{}};", f"{v} = {{}} += 0.3 * {{}};"]),
            (self.element(array), value),
        )

    def assign_int(self) -> Node:
        v = self.assignable("int")
        assert v is not None
        most = v.most or 4
        return self.pick([
            (2, lambda: Node("stmt", f"{v.text} = {{}};", (self.natural(most),))),
            (2, lambda: Node("stmt", f"{v.text} = ({v.text} + {self.r.randint(1, 3)}) % {most};")),
            (1, lambda: Node("stmt", f"{v.text} = (3 * {v.text} + 1) % {most};")),
            (1, lambda: Node("stmt", f"{v.text} = {v.text} > 0 ? {v.text} - 1 : {{}};", (self.natural(most),))),
        ])  # fmt: skip

    def assign_bool(self) -> Node:
        v = self.assignable("bool")
        assert v is not None
        return Node("stmt", self.r.choice([f"{v.text} = {{}};", f"{v.text} = {v.text} != {{}};"]), (self.condition(),))

    def swap(self) -> Node:
        """Names change places: the values that both had before are needed."""
        names = self.named("real", True)
        u, v = (x.text for x in self.r.sample(names, 2))
        t = self.fresh("t")
        new = self.pick([
            (1, lambda: Node("real", t)),
            (1, lambda: Node("real", f"0.6 * ({t} + {v})")),
            (1, lambda: Node("real", f"sin({t} * {v})")),
        ])  # fmt: skip
        return Node("stmt", f"⟨\n{self.real} {t} = {u};\n{u} = {v};\n{v} = {{}};\n⟩", (new,))

    def scatter(self) -> Node:
        where = self.pick([
            (2, lambda: Node("int", "idx[i]")),
            (1, lambda: Node("int", "0")),
            (1, lambda: Node("int", "(i + {}) % n", (self.natural(4),))),
            (1, lambda: Node("int", "{}", (self.natural(4),))),
        ])  # fmt: skip
        return Node("stmt", "atomicAdd(&s[{}], " + f"({self.real})({{}}));", (where, self.expr(1)))

    def local_array(self) -> Node:
        name, length = self.fresh("w"), self.r.choice([2, 3, 4, 4, 5])
        if self.chance(0.4):
            values = [self.expr(2) for _ in range(length)]
            made = Node("stmt", f"{self.real} {name}[{length}] = ⟨" + ", ".join(["{}"] * length) + "⟩;", tuple(values))
        else:
            k = self.fresh("k")
            with self.inner():
                self.scope.names.append(Name(k, "int", False, length))
                made = Node(
                    "stmt", f"{self.real} {name}[{length}];\nfor (int {k} = 0; {k} < {length}; {k}++) {name}[{k}] = {{}};", (self.expr(1),)
                )
        self.scope.arrays.append(local(name, length))
        return made

    def table(self) -> Node:
        name, k, j = self.fresh("w"), self.fresh("k"), self.fresh("j")
        with self.inner():
            self.scope.names += [Name(k, "int", False, 2), Name(j, "int", False, 3)]
            value = self.expr(1)
        place = f"{name}[{self.r.choice(['0', '1', '{} & 1'])}][{{}}]"
        if place.count("{}") == 2:
            other = self.integer(2)
            made = Array(lambda index: Node("real", place, (other, index)), 3, "3", local=False)
        else:
            made = Array(lambda index: Node("real", place, (index,)), 3, "3", local=False)
        self.scope.arrays.append(made)
        loops = f"for (int {k} = 0; {k} < 2; {k}++)\nfor (int {j} = 0; {j} < 3; {j}++)"
        return Node("stmt", f"{self.real} {name}[2][3];\n{loops} {name}[{k}][{j}] = {{}};", (value,))

    def ping_pong(self) -> Node:
        """Two local arrays that are source and target by turns."""
        u, v, k, j = self.fresh("w"), self.fresh("w"), self.fresh("k"), self.fresh("j")
        r = self.real
        with self.inner():
            self.scope.names.append(Name(j, "int", False, 3))
            first = self.expr(1)
        with self.looping(Name(k, "int", False, 4), Name(j, "int", False, 3)):
            value = self.bounded(2)
        each = f"for (int {j} = 0; {j} < 3; {j}++)"
        step = self.r.choice([
            f"{each} {v}[{j}] = 0.5 * {u}[{j}] + {u}[({j} + 1) % 3] * {{}};\n{each} {u}[{j}] = {v}[{j}];",
            f"{each} {v}[{j}] = sin({u}[({j} + {k}) % 3] + {{}});\n{u}[{k} % 3] = {v}[0] * {v}[1];",
        ])  # fmt: skip
        loop = f"for (int {k} = 0; {k} < {{}}; {k}++) ⟨\n{step}\n⟩"
        self.scope.arrays.append(local(u, 3))
        declared = f"{r} {u}[3], {v}[3];\n{each} ⟨\n{u}[{j}] = {{}};\n{v}[{j}] = 0;\n⟩"
        return Node("stmt", f"{declared}\n{loop}", (first, self.natural(4), value))

    def pointer(self) -> Node:
        """A pointer to memory that the thread owns; the memory stays reachable by its other name."""
        array = self.r.choice([a for a in self.scope.arrays if a.pointer])
        name = self.fresh("p")
        shift = self.r.choice([0, 0, 1]) if array.length > 1 else 0
        text = f"{self.real}* {name} = {array.pointer}{f' + {shift}' if shift else ''};"
        place = self.r.choice([f"{name}[{{}}]", f"*({name} + {{}})"])
        made = Array(
            lambda index: Node("real", place, (index,)), array.length - shift, str(array.length - shift), array.writable, name, array.local
        )
        self.scope.arrays.append(made)
        return Node("stmt", text)

    # --- control -----------------------------------------------------------------------------------------------------------------

    def decision(self) -> Node:
        """The condition of a statement: it may call a helper that changes something, after other conditions in short circuit."""
        if not self.tests or self.chance(0.75):
            return self.condition()
        return Node("bool", self.r.choice(["({} && {})", "({} || {})", "(!{} && {})"]), (self.condition(2), self.r.choice(self.tests)()))

    def if_(self, depth: int) -> Node:
        condition = self.decision()
        then = self.body(depth + 1)
        kind = self.r.random()
        if kind < 0.45:
            return Node("stmt", "if ({}) ⟨\n{}\n⟩", (condition, then))
        if kind < 0.9:
            return Node("stmt", "if ({}) ⟨\n{}\n⟩ else ⟨\n{}\n⟩", (condition, then, self.body(depth + 1)))
        return Node("stmt", "if ({}) ⟨\n{}\n⟩ else if ({}) ⟨\n{}\n⟩ else ⟨\n{}\n⟩",
                    (condition, then, self.condition(), self.body(depth + 1), self.body(depth + 1)))  # fmt: skip

    @contextmanager
    def looping(self, *variables: Name) -> Iterator[None]:
        self.loops += 1
        with self.inner():
            self.scope.names.extend(variables)
            try:
                yield
            finally:
                self.loops -= 1

    def for_(self, depth: int) -> Node:
        k, j = self.fresh("k"), self.fresh("j")
        bound, most = self.bound()
        up = self.r.choice([f"{k}++", f"++{k}", f"{k} += 1"])
        names = [Name(k, "int", False, most)]
        heads: list[tuple[float, str]] = [
            (6, f"int {k} = 0; {k} < {{}}; {up}"),
            (1, f"int {k} = {{}} - 1; {k} >= 0; {self.r.choice([f'{k}--', f'--{k}'])}"),
            (1, f"int {k} = 0; {k} < {{}}; {k} += 2"),
            (1, f"int {k} = 1; {k} < {{}}; {k}++"),
            (1, f"int {k} = 0; {k} <= {{}}; {k}++"),
            (0.5, f"unsigned int {k} = 0; {k} < {{}}; {up}"),
            (0.5, f"int {k} = 0, {j} = {{}} - 1; {k} < {j}; {k}++, {j}--"),
            (0.5, f"int {k} = {{}}; {k} > 0; {k} {self.r.choice(['/= 2', '>>= 1', '-= 2'])}"),
            (0.3, f"{self.real} {k} = 0.1f; {k} < 0.3f * {{}}; {k} += 0.25f"),
        ]
        head = self.r.choices([h for _, h in heads], [w for w, _ in heads])[0]
        if "<=" in head or "> 0" in head:
            names = [Name(k, "int", False, most + 1)]
        if head.startswith("unsigned"):
            names = [Name(f"(int){k}", "int", False, most)]
        if "--" in head and j in head:
            names.append(Name(j, "int", False, most))
        if head.startswith(self.real):
            names = [Name(k, "real", False)]
        with self.looping(*names):
            body = self.body(depth + 1)
            early = self.loop_exit()
        return Node("stmt", f"for ({head}) ⟨\n{{}}\n{{}}\n⟩", (bound, body, early))

    def bound(self) -> tuple[Node, int]:
        """How often a loop runs, often not at all, and the number that it stays at or below."""
        mutable = [v for v in self.named("int", True) if v.most is not None and v.most <= 8]
        return self.pick_bound([
            (3, lambda: (Node("int", str(self.r.choice([2, 3, 4, 4]))), 4)),
            (2 if self.in_kernel else 0, lambda: (Node("int", self.r.choice(["M", "m"])), ROW)),
            (2 if self.in_kernel else 0, lambda: (Node("int", "cnt[i]"), 4)),
            (1 if self.in_kernel else 0, lambda: (Node("int", "q[i]"), 8)),
            (1 if mutable else 0, lambda: (lambda v: (Node("int", v.text), v.most or 8))(self.r.choice(mutable))),
            (2, lambda: (self.natural(4), 4)),
        ])  # fmt: skip

    def pick_bound(self, weighted: list[tuple[float, Callable[[], tuple[Node, int]]]]) -> tuple[Node, int]:
        return self.r.choices([m for _, m in weighted], [w for w, _ in weighted])[0]()

    def while_(self, depth: int) -> Node:
        k = self.fresh("k")
        most = self.r.choice([2, 3, 4])
        condition, flag = self.decision(), self.fresh("f")
        if self.chance(0.15):
            with self.looping(Name(k, "int", False), Name(flag, "bool")):
                body = self.body(depth + 1)
            form = f"bool {flag} = false;\nint {k} = 0;\nwhile (!{flag} && {k}++ < {most}) ⟨\n{{}}\n{flag} = {{}};\n⟩"
            return Node("stmt", f"⟨\n{form}\n⟩", (body, condition))
        form = self.r.choice([
            f"int {k} = 0;\nwhile ({k}++ < {most} && {{}}) ⟨\n{{}}\n{{}}\n⟩",
            f"int {k} = 0;\nwhile ({{}} && {k} < {most}) ⟨\n{k}++;\n{{}}\n{{}}\n⟩",
            f"int {k} = {most};\nwhile ({k}-- && {{}}) ⟨\n{{}}\n{{}}\n⟩",
            f"int {k} = 0;\nwhile (true) ⟨\nif ({k}++ >= {most} || {{}}) break;\n{{}}\n{{}}\n⟩",
            f"for (int {k} = 0; {k} < {most} && {{}}; {k}++) ⟨\n{{}}\n{{}}\n⟩",
        ])  # fmt: skip
        with self.looping(Name(k, "int", False)):
            body = self.body(depth + 1)
            early = self.loop_exit()
        return Node("stmt", f"⟨\n{form}\n⟩", (condition, body, early))

    def do_(self, depth: int) -> Node:
        k = self.fresh("k")
        most = self.r.choice([1, 2, 3, 4])
        with self.looping(Name(k, "int", False)):
            body = self.body(depth + 1)
            early = self.loop_exit()
        condition = self.condition()
        return Node("stmt", f"⟨\nint {k} = 0;\ndo ⟨\n{{}}\n{{}}\n⟩ while (++{k} < {most} && {{}});\n⟩", (body, early, condition))

    def loop_exit(self) -> Node:
        """Often nothing; else a break or continue with something after it."""
        if self.chance(0.7):
            return block([])
        return block([self.leave(), self.assign() if self.assignable("real") else self.declare()])

    def leave(self) -> Node:
        """A conditional jump out."""
        kinds: list[tuple[float, str]] = [(1.0 if self.loops else 0, "break;"), (1.0 if self.loops else 0, "continue;")]
        kinds.append((0.5, self.r.choice(self.leaves)))
        jump = self.r.choices([k for _, k in kinds], [w for w, _ in kinds])[0]
        back = Node("stmt", "return {};", (self.expr(1),)) if jump == "return {}" else Node("stmt", jump)
        if self.chance(0.4) and self.assignable("real"):
            return Node("stmt", "if ({}) ⟨\n{}\n{}\n⟩", (self.condition(), self.assign(), back))
        return Node("stmt", "if ({}) {}", (self.condition(), back))

    # --- idioms ------------------------------------------------------------------------------------------------------------------

    def idiom(self, depth: int) -> Node:
        rows = [a for a in self.scope.arrays if a.writable and a.length >= 3]
        reals = [v.text for v in self.named("real", True)]
        return self.pick([
            (2 if rows else 0, lambda: self.recurrence(self.r.choice(rows))),
            (1 if rows else 0, lambda: self.sort(self.r.choice(rows))),
            (1 if rows else 0, lambda: self.shift(self.r.choice(rows))),
            (1 if rows and reals else 0, lambda: self.maximum(self.r.choice(rows), self.r.choice(reals))),
            (1 if reals else 0, lambda: self.newton(self.r.choice(reals))),
            (1 if rows else 0, lambda: self.walk(self.r.choice(rows))),
            (1 if rows else 0, lambda: self.append(self.r.choice(rows), depth)),
            (1 if rows else 0, lambda: self.two_pass(self.r.choice(rows))),
            (0.6 if len(reals) > 1 else 0, lambda: self.fibonacci(reals)),
            (0.3, lambda: self.if_(depth)),
        ])  # fmt: skip

    def recurrence(self, array: Array) -> Node:
        """An element from the one before, in place."""
        k = self.fresh("k")
        here, before = array.place(Node("int", k)), array.place(Node("int", f"{k} - 1"))
        after = array.place(Node("int", f"{k} + 1"))
        forward = f"for (int {k} = 1; {k} < {array.bound}; {k}++)"
        backward = f"for (int {k} = {array.bound} - 2; {k} >= 0; {k}--)"
        short = f"for (int {k} = 0; {k} + 1 < {array.bound}; {k}++)"
        with self.looping(Name(k, "int", False, array.length)):
            return self.pick([
                (1, lambda: Node("stmt", f"{forward} {{}} *= 0.9 * {{}};", (here, before))),
                (1, lambda: Node("stmt", f"{forward} {{}} = sin({{}} * {{}} + {{}});", (here, before, here, self.expr(2)))),
                (1, lambda: Node("stmt", f"{forward} {{}} -= 0.5 * {{}};", (here, before))),
                (1, lambda: Node("stmt", f"{backward} {{}} = 0.5 * {{}} + 0.4 * {{}} * {{}};", (here, here, after, after))),
                (1, lambda: Node("stmt", f"{short} {{}} = tanh({{}} - {{}});", (here, after, here))),
            ])  # fmt: skip

    def sort(self, array: Array) -> Node:
        k, j, t = self.fresh("k"), self.fresh("j"), self.fresh("t")
        at = array.place
        if self.chance(0.5):
            return Node(
                "stmt",
                f"for (int {k} = 1; {k} < {array.bound}; {k}++) ⟨\n{self.real} {t} = {{}};\nint {j} = {k} - 1;\n"
                f"while ({j} >= 0 && {{}} > {t}) ⟨\n{{}} = {{}};\n{j}--;\n⟩\n{{}} = {t};\n⟩",
                (at(Node("int", k)), at(Node("int", j)), at(Node("int", f"{j} + 1")), at(Node("int", j)), at(Node("int", f"{j} + 1"))),
                fixed=True,
            )
        first, second = at(Node("int", j)), at(Node("int", f"{j} + 1"))
        return Node(
            "stmt",
            f"for (int {k} = 0; {k} < {array.bound}; {k}++)\nfor (int {j} = 0; {j} + 1 < {array.bound}; {j}++) ⟨\n"
            f"if ({{}} > {{}}) ⟨\n{self.real} {t} = {{}};\n{{}} = {{}};\n{{}} = {t};\n⟩\n⟩",
            (first, second, first, first, second, second),
        )

    def shift(self, array: Array) -> Node:
        """A window moves by one, in a loop that uses it."""
        k, j = self.fresh("k"), self.fresh("j")
        at = array.place
        with self.looping(Name(k, "int", False, 4)):
            new = self.bounded(1)
            use = self.assign() if self.assignable("real") else block([])
        return Node(
            "stmt",
            f"for (int {k} = 0; {k} < {{}}; {k}++) ⟨\n"
            f"for (int {j} = {array.bound} - 1; {j} > 0; {j}--) {{}} = {{}};\n{{}} = {{}};\n{{}}\n⟩",
            (self.natural(4), at(Node("int", j)), at(Node("int", f"{j} - 1")), at(Node("int", "0")), new, use),
        )

    def maximum(self, array: Array, v: str) -> Node:
        k, best = self.fresh("k"), self.fresh("k")
        self.scope.names.append(Name(best, "int", True, array.length))
        at = array.place
        return Node(
            "stmt",
            f"int {best} = 0;\nfor (int {k} = 0; {k} < {array.bound}; {k}++) ⟨\nif ({{}} > {{}}) {best} = {k};\n⟩\n{v} = 0.5 * {v} + {{}};",
            (at(Node("int", k)), at(Node("int", best)), at(Node("int", best))),
        )

    def newton(self, v: str) -> Node:
        k, f = self.fresh("k"), self.fresh("t")
        return Node(
            "stmt",
            f"for (int {k} = 0; {k} < 4; {k}++) ⟨\n{self.real} {f} = ({v} - 0.5 * sin({v}) - {{}}) / (1 - 0.5 * cos({v}));\n"
            f"{v} -= {f};\nif (fabs({f}) < {{}}) break;\n⟩",
            (self.bounded(2), Node("real", self.r.choice(["0.3", "0.05", "1e-3"]))),
        )

    def walk(self, array: Array) -> Node:
        """A pointer that moves along."""
        if not array.pointer:
            return self.recurrence(array)
        p, k = self.fresh("p"), self.fresh("k")
        with self.looping(Name(k, "int", False, array.length)):
            value = self.bounded(2)
        form = self.r.choice([
            f"*{p} = sin(*{p}) * {{}};\n{p}++;",
            f"*{p}++ += {{}};",
            f"{p}[0] = 0.5 * {p}[0] + {{}};\n{p} += 1;",
        ])  # fmt: skip
        return Node(
            "stmt", f"⟨\n{self.real}* {p} = {array.pointer};\nfor (int {k} = 0; {k} < {array.bound}; {k}++) ⟨\n{form}\n⟩\n⟩", (value,)
        )

    def append(self, array: Array, depth: int) -> Node:
        """Values are filtered into the front of an array; how many is found on the way."""
        k, count = self.fresh("k"), self.fresh("k")
        with self.looping(Name(k, "int", False, 4)):
            condition, value = self.condition(1), self.bounded(1)
        self.scope.names.append(Name(count, "int", False))
        at = array.place(Node("int", f"{count}++"))
        return Node(
            "stmt",
            f"int {count} = 0;\nfor (int {k} = 0; {k} < {min(4, array.length)}; {k}++) ⟨\nif ({{}}) {{}} = {{}};\n⟩\n"
            f"for (int {k} = 0; {k} < {count}; {k}++) {{}} *= 0.9 + 0.1 * {{}};",
            (condition, at, value, array.place(Node("int", k)), array.place(Node("int", k))),
        )

    def two_pass(self, array: Array) -> Node:
        """A sum over the row, then the row by the sum: softmax and norms are like this."""
        t, k = self.fresh("v"), self.fresh("k")
        at = array.place(Node("int", k))
        loop = f"for (int {k} = 0; {k} < {array.bound}; {k}++)"
        made = Node("stmt", f"{self.real} {t} = 1;\n{loop} {t} += {{}} * {{}};\n{loop} {{}} /= {t};", (at, at, at))
        self.scope.names.append(Name(t, "real"))
        return made

    def fibonacci(self, reals: list[str]) -> Node:
        k, t = self.fresh("k"), self.fresh("t")
        u, v = self.r.sample(reals, 2)
        new = self.r.choice([f"0.5 * ({u} + {v})", f"{u} * 0.7 + sin({v} * {u})"])
        return Node(
            "stmt",
            f"for (int {k} = 0; {k} < {{}}; {k}++) ⟨\n{self.real} {t} = {v};\n{v} = {new};\n{u} = {t};\n⟩",
            (self.natural(4),),
        )

    # --- helpers -----------------------------------------------------------------------------------------------------------------

    def helper(self) -> Node:
        """A device function; how to call it is noted."""
        return self.r.choices(
            [self.valued, self.reference, self.updating, self.reading, self.counting, self.testing], [3, 2, 2, 1, 1, 1.5]
        )[0]()

    @contextmanager
    def function(self, leaves: list[str], *names: Name) -> Iterator[None]:
        saved = self.scope, self.leaves, self.budget, self.in_kernel, self.loops
        self.scope, self.leaves, self.budget, self.in_kernel, self.loops = Scope(list(names)), leaves, self.r.randint(3, 8), False, 0
        try:
            yield
        finally:
            self.scope, self.leaves, self.budget, self.in_kernel, self.loops = saved

    def valued(self) -> Node:
        name = self.fresh("value")
        with self.function(["return {}"], Name("u", "real"), Name("v", "real"), Name("k", "int", False, 4)):
            stmts = [self.stmt(1 if self.chance(0.7) else 0) for _ in range(self.r.randint(0, 4))]
            last = self.bounded(0)
        self.functions.append(
            lambda d: Node("real", f"{name}({{}}, {{}}, {{}})", (self.expr(max(2, d)), self.expr(max(2, d)), self.natural(4)))
        )
        r = self.real
        return Node("stmt", f"__device__ {r} {name}({r} u, {r} v, int k) ⟨\n{{}}\nreturn {{}};\n⟩", (block(stmts), last))

    def reference(self) -> Node:
        """Results through a reference and a pointer, which are also read."""
        name = self.fresh("change")
        with self.function(["return;"], Name("u", "real"), Name("r", "real"), Name("*o", "real")):
            stmts = [self.stmt(1) for _ in range(self.r.randint(1, 3))]
            stmts.append(Node("stmt", "r = {};", (self.damped("r"),)))
            stmts.append(self.assign())

        def call() -> Node:
            names = [v.text for v in self.named("real", True) if not v.wide and not v.text.startswith("*")]
            places = [a for a in self.scope.arrays if a.writable]
            options = self.r.sample(names, min(len(names), 2))
            if len(options) < 2:
                return self.declare()
            first, second = options
            target = Node("real", f"&{second}")
            if places and self.chance(0.5):
                target = Node("real", "&{}", (self.element(self.r.choice(places)),))
            return Node("stmt", f"{name}({{}}, {first}, {{}});", (self.expr(2), target))

        self.outs.append(call)
        r = self.real
        return Node("stmt", f"__device__ void {name}({r} u, {r}& r, {r}* o) ⟨\n{{}}\n⟩", (block(stmts),))

    def updating(self) -> Node:
        """An array is changed in place."""
        name = self.fresh("update")
        with self.function(["return;"], Name("u", "real")):
            self.scope.arrays.append(replace(local("w", 2), local=False))
            k = self.fresh("k")
            with self.looping(Name(k, "int", False, 2)):
                inner = self.body(2, 1, 3)
            stmts = [self.stmt(1) for _ in range(self.r.randint(0, 2))]
            stmts.insert(self.r.randint(0, len(stmts)), Node("stmt", f"for (int {k} = 0; {k} < 2; {k}++) ⟨\n{{}}\n⟩", (inner,)))

        def call() -> Node:
            rows = [a for a in self.scope.arrays if a.pointer and a.writable and a.length >= 2]
            if not rows:
                return self.local_array()
            array = self.r.choice(rows)
            shift = self.r.randint(0, array.length - 2)
            pointer = Node(
                "real",
                f"{array.pointer}{f' + {shift}' if shift else ''}" if self.chance(0.7) else f"&{array.place(Node('int', str(shift)))}",
            )
            return Node("stmt", f"{name}({{}}, {{}});", (pointer, self.expr(2)))

        self.outs.append(call)
        r = self.real
        return Node("stmt", f"__device__ void {name}({r}* w, {r} u) ⟨\n{{}}\n⟩", (block(stmts),))

    def reading(self) -> Node:
        """A value from a part of an array, by a loop with a return in it."""
        name, k = self.fresh("look"), self.fresh("k")
        with self.function(["return {}"], Name("u", "real"), Name("n1", "int", False, 3)):
            self.scope.arrays.append(replace(local("w", 2), writable=False, pointer=None))
            with self.looping(Name(k, "int", False, 2)):
                inner = self.body(2, 1, 2)
                early = Node("stmt", "if ({}) return {};", (self.condition(1), self.expr(1)))
            last = self.bounded(1)

        def call(depth: int) -> Node:
            rows = [a for a in self.scope.arrays if a.pointer and a.length >= 2]
            if not rows:
                return self.leaf()
            return Node("real", f"{name}({self.r.choice(rows).pointer}, {{}}, {{}})", (self.expr(max(2, depth)), self.natural(2)))

        self.functions.append(call)
        r = self.real
        return Node(
            "stmt",
            f"__device__ {r} {name}(const {r}* w, {r} u, int n1) ⟨\n"
            f"for (int {k} = 0; {k} < 2 && {k} <= n1; {k}++) ⟨\n{{}}\n{{}}\n⟩\nreturn {{}};\n⟩",
            (inner, early, last),
        )

    def counting(self) -> Node:
        """A number in 0 ... 3 from a real."""
        name = self.fresh("count")
        with self.function(["return 1;", "return 3;", "return k & 3;"], Name("u", "real"), Name("k", "int", False)):
            stmts = [self.stmt(1) for _ in range(self.r.randint(0, 3))]
            last = self.natural(4)
        self.counts.append(name)
        return Node("stmt", f"__device__ int {name}({self.real} u, int k) ⟨\n{{}}\nreturn {{}};\n⟩", (block(stmts), last))

    def testing(self) -> Node:
        """Changes a number and answers whether to go on."""
        name = self.fresh("step")
        with self.function(["return true;", "return r > u;"], Name("u", "real", False), Name("r", "real")):
            stmts = [self.stmt(1) for _ in range(self.r.randint(0, 2))]
            stmts.append(Node("stmt", "r = {};", (self.damped("r"),)))
            stmts += [self.stmt(1) for _ in range(self.r.randint(0, 2))]
            last = self.condition(1)

        def call() -> Node:
            names = [v.text for v in self.named("real", True) if not v.wide and not v.text.startswith("*")]
            places = [a for a in self.scope.arrays if a.writable]
            if places and (not names or self.chance(0.4)):
                return Node("bool", f"{name}({{}}, {{}})", (self.expr(2), self.element(self.r.choice(places))))
            if not names:
                return self.condition()
            return Node("bool", f"{name}({{}}, {self.r.choice(names)})", (self.expr(2),))

        self.tests.append(call)
        return Node("stmt", f"__device__ bool {name}({self.real} u, {self.real}& r) ⟨\n{{}}\nreturn {{}};\n⟩", (block(stmts), last))

    # --- the kernel --------------------------------------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        helpers = [self.helper() for _ in range(self.r.choice([0, 0, 1, 2, 3]))]
        r = self.real
        shape = self.r.choices(["return", "if", "stride", "plane", "exact"], [4, 3, 2, 2, 0.5])[0]
        self.scope = Scope([Name("c", "real"), Name("d", "real", False), Name("n", "int", False), Name("m", "int", False, 5)])
        self.scope.arrays = [
            Array(lambda k: Node("real", "x[i]"), 1, "1", pointer="&x[i]"),
            Array(lambda k: Node("real", "y[i * M + {}]", (k,)), ROW, "M", pointer="(y + i * M)"),
            Array(lambda k: Node("real", "z[({}) * n + i]", (k,)), ROW, "m"),
        ]
        keep = self.scope.copy()
        self.scope.arrays = []
        self.in_kernel = False
        before = [self.declare() for _ in range(self.r.choice([0, 0, 0, 1, 2]))]
        outer = self.scope
        self.scope = Scope(outer.names, keep.arrays)
        self.in_kernel = True
        self.loops = int(shape == "stride")
        self.leaves = ["return;"]
        program = self.shaped(shape, block(helpers), block(before), self.thread())
        n = self.r.choice([7, 9, 12])
        if shape == "plane":
            n = WIDTH * 3
        grid, threads = self.geometry(shape, n)
        active = frozenset(p for p in "abxyzscd" if p in "xyzs" or self.chance(0.8))
        shift = self.r.choice([None, None, None, None, 0, 2])
        if shift is not None:
            active = active - {"b"} | (active & {"a"} and {"b"})
        return Kernel(f"k{self.seed}", program, r, active, shape, n, grid, threads, shift)

    def thread(self) -> Node:
        """What a thread does with its elements."""
        body = [self.stmt(0) for _ in range(self.r.randint(3, 9))]
        return block([*body, self.store(), *self.use_all(), self.store()])

    def geometry(self, shape: str, n: int) -> tuple[tuple[int, int], tuple[int, int]]:
        if shape == "plane":
            return (self.r.choice([(2, 2), (3, 1)]), (3, 2) if self.chance(0.5) else (2, 3))
        if shape == "stride":
            return ((2, 1), (2, 1))
        if shape == "exact":
            return ((n, 1), (1, 1))
        return ((-(-n // 4), 1), (4, 1)) if self.chance(0.8) else ((2, 1), (3, 1))

    def shaped(self, shape: str, helpers: Node, before: Node, body: Node) -> Node:
        r = self.real
        index = self.r.choice(["int", "int", "int", "unsigned int", "long long"])
        thread = "blockIdx.x * blockDim.x + threadIdx.x"
        head = (
            f'#define M {ROW}\n{{}}\nextern "C" __global__ void k{self.seed}(const {r}* a, const {r}* b,\n'
            f"{r}* x, {r}* y, {r}* z, {r}* s, int* q, const int* idx, const int* cnt, {r} c, {r} d, int n, int m, int w) ⟨\n"
        )
        tail = {
            "return": f"{index} i = {thread};\nif (i >= n) return;\n{{}}\n{{}}\n⟩",
            "if": f"{index} i = {thread};\n{{}}\nif (i < n) ⟨\n{{}}\n⟩\n⟩",
            "stride": f"{{}}\nfor (int i = {thread}; i < n; i += blockDim.x * gridDim.x) ⟨\n{{}}\n⟩\n⟩",
            "plane": f"int gx = {thread};\nint gy = {thread.replace('.x', '.y')};\n"
            "{}\nif (gx >= w || gy * w + gx >= n) return;\nint i = gy * w + gx;\n{}\n⟩",
            "exact": "int i = blockIdx.x;\n{}\n{}\n⟩",
            "open": f"{index} i = {thread};\n{{}}\n{{}}\n⟩",
        }[shape]
        return Node("stmt", head + tail, (helpers, before, body))


def local(name: str, length: int) -> Array:
    return Array(lambda k: Node("real", f"{name}[{{}}]", (k,)), length, str(length), pointer=name, local=True)


def random_kernel(seed: int) -> Kernel:
    """The kernel of a seed: the same text for the same seed."""
    sizes = random.Random(~seed)
    return Grammar(seed, sizes.choice([8, 15, 25, 40])).kernel()
