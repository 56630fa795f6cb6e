"""Random kernels with shared memory: barriers in loops and in uniform branches, arrays written and read in turns, early returns, shuffles.

Within a barrier interval each shared array is either written by each thread at its own place, or read anywhere, or added to atomically,
so that every kernel is free of data races. Values stay bounded, so that finite differences can be trusted.
"""

from __future__ import annotations

import random

SHUFFLES = ("_down", "_up", "_xor", "")


class RandomShared:
    """The text of a kernel `k(x, y, n, few)` for blocks of `block` threads, from a seed."""

    def __init__(self, seed: int, *, warps: bool) -> None:
        self.random = random.Random(seed)
        self.warps = warps
        self.block = 32 if warps else self.random.choice([8, 16])
        self.arrays = ["s", "q"][: self.random.choice([1, 2, 2])]
        self.turn: dict[str, str] = {}
        self.loops = self.depth = 0
        self.inside = False  # of an inner loop
        self.text = self.kernel()

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    # --- expressions ---

    def number(self) -> str:
        return f"{self.random.uniform(0.2, 0.9):.2f}"

    def var(self) -> str:
        return f"v{self.random.randrange(3)}"

    def leaf(self) -> str:
        kind = self.random.randrange(5)
        return self.var() if kind < 2 else self.number() if kind == 2 else self.element()

    def element(self) -> str:
        array, k = self.random.choice(self.arrays), self.random.randrange(self.block)
        if self.turn.get(array) != "read":
            return f"{array}[t]" if self.turn.get(array) == "write" else self.var()
        places = [f"(t + {k}) % {self.block}", f"{self.block - 1} - t", str(k), "t", "t / 2", f"(t * 3 + {k}) % {self.block}"]
        return f"{array}[{self.pick(*places, *(['j'] if self.inside else []))}]"

    def value(self) -> str:
        a, b = self.leaf(), self.leaf()
        return self.pick(
            f"sin({a} * {b})", f"sin({a})", f"({a} + {b}) * 0.5", f"0.7 * {a} - 0.3 * {b}", f"{a} / (1.5 + {b} * {b})", f"fmax({a}, {b})"
        )

    # --- statements of one thread ---

    def statement(self) -> str:
        kind = self.random.randrange(10)
        if kind == 8 and self.depth < 2:
            return self.branch()
        if kind == 9 and self.depth < 2:
            return self.loop()
        array, var = self.random.choice(self.arrays), self.var()
        if kind < 4:
            return f"{var} = {self.value()};"
        match self.turn.get(array):
            case "write":
                change = self.pick("{0}", "{0}", "sin({1}[t] + {0})", "0.9 * sin({1}[t] * {0} + 0.4)").format(self.value(), array)
                return f"{array}[t] = {change};"
            case "add":
                place = f"(t * {self.random.randrange(1, 5)} + {self.random.randrange(self.block)}) % {self.block}"
                return f"atomicAdd(&{array}[{place}], 0.1 * sin({self.number()} * {var}));"
        return f"{var} = sin({var} + 0.6 * {self.element()} * {self.leaf()});"

    def statements(self, most: int) -> str:
        self.depth += 1
        body = " ".join(self.statement() for _ in range(self.random.randrange(1, most + 1)))
        self.depth -= 1
        return body

    def branch(self) -> str:
        condition = self.pick(
            f"t < {self.random.randrange(1, self.block)}", f"t % 2 == {self.random.randrange(2)}", f"{self.var()} > {self.number()}"
        )
        otherwise = f" else {{ {self.statements(1)} }}" if self.random.random() < 0.4 else ""
        return f"if ({condition}) {{ {self.statements(2)} }}{otherwise}"

    def loop(self) -> str:
        before, self.inside = self.inside, True
        body = self.statements(2)
        self.inside = before
        return f"for (int j = 0; j < {self.pick('3', 't % 3', str(self.block // 4))}; ++j) {{ {body} }}"

    # --- what all threads do ---

    def interval(self) -> str:
        for array in self.arrays:
            self.turn[array] = self.pick("write", "write", "read", "read", "read", "add")
        lines = [self.statement() for _ in range(self.random.randrange(1, 4))]
        if self.warps and self.random.random() < 0.5:
            var, width = self.var(), self.pick("", ", 16", ", 8")
            other = f"__shfl{self.pick(*SHUFFLES)}_sync(0xffffffff, sin({self.var()}), {self.random.randrange(32)}{width})"
            lines.append(f"{var} = 0.5 * {var} + 0.4 * {other};")
        return "\n".join([*lines, "__syncthreads();"])

    def together(self, depth: int = 0) -> str:
        kind = self.random.randrange(9)
        if kind < 5 or depth > 2:
            return self.interval()
        self.loops += 1
        m = f"m{self.loops}"
        body = "\n".join(self.together(depth + 1) for _ in range(self.random.randrange(1, 3)))
        match kind:
            case 5:
                return f"for (int {m} = 0; {m} < {self.pick('2', '3', 'few')}; ++{m}) {{\n{body}\n}}"
            case 6:
                return f"for (int {m} = {self.block // 2}; {m} > 0; {m} >>= {self.pick('1', '2')}) {{\n{body}\n}}"
            case 7:
                return f"if (few {self.pick('<', '>')} 1 + blockIdx.x) {{\n{body}\n}} else {{\n{self.together(depth + 1)}\n}}"
        return f"for (int {m} = few; {m};) {{\n{body}\n{m}--;\n}}"

    def kernel(self) -> str:
        arrays = [f"__shared__ double {a}[{self.block}]; {a}[threadIdx.x] = 0.1 * threadIdx.x;" for a in self.arrays]
        start = "int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;\n__syncthreads();"
        values = f"double v0 = i < n ? x[i] : 0.3, v1 = {self.number()} * t / {self.block} + 0.2 * v0, v2 = 0.2 * v0 * v0;"
        parts = [self.together() for _ in range(self.random.randrange(2, 5))]
        if not self.warps and self.random.random() < 0.4:
            parts.insert(self.random.randrange(3) % len(parts), "if (i >= n) return;")
        last = self.arrays[0]
        end = self.pick(f"if (i < n) y[i] = v0 * v1 + v2 + {last}[t];", f"if (i < n) {{ y[i] = v2 * v0; x[i] = v1 + {last}[t] * v0; }}")
        body = "\n".join([*arrays, start, values, *parts, end])
        return f'extern "C" __global__ void k(double* x, double* y, int n, int few) {{\n{body}\n}}\n'
