"""Random kernels whose blocks have a piece of global memory each, in which their threads take turns.

Within a barrier interval each array is written by each thread at one place of its own, which is another one in the next such interval, or
by one thread everywhere, or read anywhere, so that every kernel is free of data races.
"""

from __future__ import annotations

from random_shared import RandomShared


class RandomTurns(RandomShared):
    """The text of a kernel `k(x, y, s, q, n, few)` for blocks of `block` threads, with `block` elements of `s` and `q` for each block."""

    def __init__(self, seed: int, *, warps: bool = False) -> None:
        self.place = {"s": "t", "q": "t"}
        super().__init__(seed, warps=warps)

    def element(self) -> str:
        array = self.random.choice(self.arrays)
        if self.turn.get(array) == "write":
            return f"{array}[{self.place[array]}]"
        return super().element() if self.turn.get(array) == "read" else self.var()

    def statement(self) -> str:
        text = super().statement()
        for array in self.arrays:  # where that wrote, or updated, its own place
            if self.turn.get(array) == "write":
                text = text.replace(f"{array}[t]", f"{array}[{self.place[array]}]")
        return text

    def alone(self, array: str) -> str:
        """One thread changes all elements."""
        k, change = self.random.randrange(self.block), self.pick("sin({0}[k] + {1})", "0.8 * {0}[k] * {1}", "{1}", "0.5")
        index = self.pick("k", f"{self.block - 1} - k")
        value = change.format(array, self.var()).replace("[k]", f"[{index}]")
        return f"if (t == {k}) for (int k = 0; k < {self.block}; ++k) {array}[{index}] = {value};"

    def interval(self) -> str:
        written = []
        for array in self.arrays:
            self.turn[array] = self.pick("write", "write", "read", "read", "alone")
            step, shift = self.pick("t", "t", f"{self.block - 1} - t", "5 * t"), self.random.randrange(self.block)
            self.place[array] = f"({step} + {shift}) % {self.block}"
            written += [self.alone(array)] if self.turn[array] == "alone" else []
        lines = [self.statement() for _ in range(self.random.randrange(1, 4))]
        return "\n".join([*lines, *written, "__syncthreads();"])

    def kernel(self) -> str:
        start = f"int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;\ns += blockIdx.x * {self.block}; q += blockIdx.x * {self.block};"
        values = f"double v0 = i < n ? x[i] : 0.3, v1 = {self.number()} * t / {self.block} + 0.2 * v0, v2 = 0.2 * v0 * v0;"
        parts = [self.together() for _ in range(self.random.randrange(2, 5))]
        if self.random.random() < 0.4:
            parts.insert(self.random.randrange(3) % len(parts), "if (i >= n) return;")
        end = self.pick("if (i < n) y[i] = v0 * v1 + v2 + s[t];", "if (i < n) { y[i] = v2 * v0; x[i] = v1 + s[t] * v0; }")
        body = "\n".join([start, values, *parts, end])
        return f'extern "C" __global__ void k(double* x, double* y, double* s, double* q, int n, int few) {{\n{body}\n}}\n'
