"""What a round of a program takes from the third on, where each round makes something anew: one call more beside 100 multiplications.

Run `python -m benchmarks.rounds`. A program that is not known again is recorded in each round, all of it, which takes tens of times as
long. So the third round is compared with the second, which is recorded in part, and with that of the program without the call. Milliseconds
of record and reverse together; of the third round the least of several that follow it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gpuad
from gpuad import Duplicated, ops

N, MULTIPLICATIONS, ROUNDS = 64, 100, 12
Body = Callable[[Any, int], Any]  # of the product, and the number of the round: what the loss is the sum of


def _fresh_pair(y: Any, number: int) -> Any:
    pair = Duplicated(np.empty(N))
    ops.multiply(y, 2.0, out=pair)
    return pair


BODIES: dict[str, Body] = {
    "nothing more": lambda y, number: y,
    "a transform": lambda y, number: ops.fft(y).real,
    "a complex product": lambda y, number: (ops.astype(y, complex) * (1 + 2j)).imag,
    "an index array": lambda y, number: y[np.arange(number, number + 20)],
    "take": lambda y, number: ops.take(y, np.arange(number, number + 20)),
    "a mask": lambda y, number: y[np.arange(N) % 2 == number % 2],
    "a choice": lambda y, number: ops.where(y > number, y, 0.0),
    "a plain temporary": lambda y, number: y * ops.multiply(np.full(N, 1.0 + number), 2.0),
    "a fresh array": lambda y, number: y * np.full(N, 1.0 + number),
    "a fresh pair": _fresh_pair,
}


def measure(body: Body) -> list[float]:
    """Milliseconds of each round."""
    tape, X = gpuad.Tape(), Duplicated(np.linspace(0.5, 1.5, N), np.zeros(N))
    spent = []
    for number in range(ROUNDS):
        begin = time.perf_counter()
        with tape:
            y = X
            for _ in range(MULTIPLICATIONS):
                y = y * 1.001
            loss = ops.sum(body(y, number))
        tape.reverse({loss: 1.0})
        spent.append((time.perf_counter() - begin) * 1e3)
    return spent


def main() -> None:
    """Prints the figures of all programs."""
    measure(BODIES["nothing more"])  # compiles
    print(f"{MULTIPLICATIONS} multiplications and {'':<20} second    third   times   beside nothing more")
    alone = 0.0
    for name, body in BODIES.items():
        measure(body)
        spent = measure(body)
        third = min(spent[2:])
        alone = alone or third
        print(f"  {name:<40} {spent[1]:8.2f} {third:8.2f} {spent[1] / third:7.1f} {third / alone:7.2f}")


if __name__ == "__main__":
    main()
