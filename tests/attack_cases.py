"""Reads `attacks.cu`: kernels with, above each, lines that begin with `//@`.

    //@ rule: name
    //@ x=16 k=[1,2] a=0.9 <<<grid, block>>>(x, x[1:], k, a, 7)
    //@ host only_reverse
    //@ refused: LaunchError: part of the message
    //@ fails: why the tests of this kernel are expected to fail now

Memory: `x=16` is an array of that many floats between 0.5 and 1.5, `k=[...]` one of int32, `a=0.9` a number by value; floats are active.
The arguments are Python text. `host`: is checked on the CPU's compiled text as well; `only_reverse`: forward mode has other limits; a
kernel that is `refused` has to be so by every executor before anything is written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import gpuad
from gpuad import errors

TABLE = Path(__file__).parent / "attacks.cu"
_LAUNCH = re.compile(r"(?P<memory>.*?)\s*<<<(?P<geometry>.*)>>>\((?P<args>.*)\)$")


@dataclass(frozen=True, eq=False)
class Case:
    """One kernel `k` with its launch. `memory`: length, list of ints, or number for each name."""

    rule: str
    name: str
    source: str
    memory: Mapping[str, Any]
    geometry: tuple[tuple[int, int, int], tuple[int, int, int]]
    args: str
    flags: frozenset[str]
    refused: type[Exception] | None
    match: str
    fails: str

    @cached_property
    def kernel(self) -> Any:
        return gpuad.kernel(self.source, "k")

    @property
    def active(self) -> tuple[str, ...]:
        return tuple(n for n, m in self.memory.items() if not isinstance(m, list))

    def state(self) -> dict[str, Any]:
        """The memory before the launch, made anew."""
        return {name: _fresh(content, number) for number, (name, content) in enumerate(self.memory.items())}

    def arguments(self, roots: Mapping[str, Any]) -> tuple[Any, ...]:
        """The launch's arguments for this memory, annotated or not."""
        return tuple(eval(f"({self.args},)", {}, dict(roots)))


def _fresh(content: Any, number: int) -> Any:
    if isinstance(content, list):
        return np.array(content, np.int32)
    return np.random.default_rng(number).uniform(0.5, 1.5, content) if isinstance(content, int) else content


def _cases(text: str) -> Iterator[Case]:
    for part in re.split(r"\n(?=//@ [\w]+: )(?!//@ (?:refused|fails): )", text)[1:]:
        lines = [line.removeprefix("//@ ") for line in part.splitlines() if line.startswith("//@ ")]
        source = "\n".join(line for line in part.splitlines() if not line.startswith("//@ "))
        yield _case(lines, source)


def _case(lines: list[str], source: str) -> Case:
    rule, name = lines[0].split(": ", 1)
    launch = _LAUNCH.match(lines[1])
    assert launch, lines[1]
    said = dict(line.split(": ", 1) for line in lines[2:] if ": " in line)
    flags = frozenset(word for line in lines[2:] if ": " not in line for word in line.split())
    error, _, match = said.get("refused", "").partition(": ")
    memory = {n: ast.literal_eval(c) for n, c in (word.split("=", 1) for word in launch["memory"].split())}
    grid, block = ast.literal_eval(launch["geometry"])
    geometry = _dim3(grid), _dim3(block)
    refused = getattr(errors, error) if error else None
    return Case(rule, name, source, memory, geometry, launch["args"], flags, refused, match, said.get("fails", ""))


def _dim3(given: Any) -> tuple[int, int, int]:
    x, y, z = (*(given if isinstance(given, tuple) else (given,)), 1, 1)[:3]
    return x, y, z


CASES = tuple(_cases(TABLE.read_text(encoding="utf-8")))
