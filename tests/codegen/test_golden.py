"""The text of the generated adjoints: what it is (goldens, renewed with --update-golden), and that it can be read.

Each golden is the text of a launch that tests/gradients/test_gradients.py runs and checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from launch_tools import CASES, arguments, compiled, shipped

from gpuad import Duplicated
from gpuad.frontend.cuda.translation_unit import INCLUDE
from gpuad.ir.nodes import Buffer, Stmt, Var
from gpuad.ir.rewrite import walk_stmts
from gpuad.pipeline.derived_kernels import Adjoint
from gpuad.pipeline.pattern import Pattern


@cache
def adjoint(name: str) -> Any:
    """The adjoint's text for the case's launch."""
    args = arguments(name)
    grid, block, shared_mem = CASES[name].geometry({})
    active = {d.name: type(a) for d, a in zip(shipped(name).parameters, args, strict=True) if d.name in CASES[name].active}
    return shipped(name).adjoint(grid=grid, block=block, args=args, shared_mem=shared_mem, **active)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.cu", f"{adjoint(name).source.rstrip()}\n\n// {str(adjoint(name).explain()).replace(chr(10), chr(10) + '// ')}\n")


def test_the_same_input_gives_the_same_text() -> None:
    again = type(shipped("kepler-orbit"))(CASES["kepler-orbit"].file, "orbit")
    args = arguments("kepler-orbit")
    grid, block, _ = CASES["kepler-orbit"].geometry({})
    active = {d.name: type(a) for d, a in zip(again.parameters, args, strict=True) if d.name in CASES["kepler-orbit"].active}
    assert again.adjoint(grid=grid, block=block, args=args, **active).source == adjoint("kepler-orbit").source


# --- how much of it there is -----------------------------------------------------------------------------------------------------------


def body(text: str, kernel: str) -> list[str]:
    """The lines between a kernel's braces."""
    found = re.search(rf"__global__ void {kernel}\([^)]*\)\n{{\n(.*?)\n}}", text, re.DOTALL)
    assert found, text
    return [line.strip() for line in found[1].split("\n")]


def statements(lines: list[str]) -> list[str]:
    """The lines that say something: no braces, no comments."""
    return [line for line in lines if line.strip("{} ") not in ("", "else") and not line.startswith("//")]


def reverse_of(name: str) -> Adjoint:
    """The adjoint as IR, for arguments that do not overlap."""
    kernel, active = shipped(name), CASES[name].active
    return kernel.reverse(Pattern(kernel.shadow_types(["duplicated" if d.name in active else "const" for d in kernel.parameters])))


def serves_a_stack(stmt: Stmt, made: Adjoint) -> bool:
    """Whether the statement pushes, pops, or counts what is on a stack."""
    scratch = {b for s in made.layout.scratch for b in (s.base, *s.fields)} | {made.layout.overflow}
    buffer = getattr(stmt, "buffer", None)
    local = isinstance(buffer, Buffer) and buffer.length is not None and buffer.name.endswith("_saved")
    variable = getattr(stmt, "var", None)
    counter = isinstance(variable, Var) and re.search(r"^(block|thread)$|_top(_\d+)?$|_at(_\d+)?$|_saved_base", variable.name)
    return buffer in scratch or local or bool(counter)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", CASES)
def test_reverse_is_no_longer_than_it_needs_to_be(name: str) -> None:
    """At most 2.5 times the primal's statements, its stack aside, and one more for each active number: the sum over its block."""
    made = reverse_of(name)
    primal = sum(1 for _ in walk_stmts(shipped(name).primal().body))
    reverse = sum(not serves_a_stack(stmt, made) for stmt in walk_stmts(made.kernel().body))
    numbers = sum(
        isinstance(p.item, Buffer) and isinstance(made.primal.params[p.position], Var) for p in made.parameters if p.role == "shadow"
    )
    assert reverse <= 2.5 * primal + numbers, f"{reverse} statements for {primal}:\n{adjoint(name).source}"


def test_saxpy_in_four_statements() -> None:
    code = """extern "C" __global__ void saxpy(float a, const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
    text = compiled(code, "saxpy").adjoint(x=Duplicated, y=Duplicated).source
    assert len(statements(body(text, "saxpy_reverse"))) <= 4, text


# --- what it is called -------------------------------------------------------------------------------------------------------------------

CUDA = frozenset({
    "blockIdx", "blockDim", "threadIdx", "gridDim", "x", "y", "z", "if", "else", "for", "while", "bool", "char", "short", "int",
    "long", "unsigned", "signed", "float", "double", "const", "true", "false", "return", "break", "continue", "extern", "C",
    "void", "__global__", "__shared__", "__restrict__", "__syncthreads", "__syncwarp", "atomicAdd", "atomicExch"
})  # fmt: skip
# Numbers of block and thread; a while loop's trips and their index; whether a loop goes on, was left by a break; what && and || came to,
# and what ?: did; whether a thread has not returned; the element that a thread clears; who takes part in a shuffle, and with whom.
MADE = frozenset({
    "block", "thread", "iterations", "iteration", "go", "broken", "both", "either", "choice", "value", "active", "k", "ballot", "distance",
    "other", "dother", "dvalue", "lane", "low", "source", "threads", "threads_x", "threads_y",
})  # fmt: skip


# The library's own headers that are inlined into the kernel, whose names are those of the kernel then.
HEADERS = [
    ("cooperative_groups", INCLUDE / "gpuad/groups.h"),
    ("cooperative_groups/reduce.h", INCLUDE / "std/cooperative_groups/reduce.h"),
    ("curand_kernel.h", INCLUDE / "gpuad/random.h"),
]


def names(lines: list[str]) -> set[str]:
    text = re.sub(r"//[^\n]*|0x[0-9a-fA-F]+u?|\b\d[\w.]*(?:e[+-]\d+f?)?", "", "\n".join(lines))
    return set(re.findall(r"[A-Za-z_]\w*", text))


def root(name: str) -> str:
    """The name without a numeric suffix, and without what a stack, a loop's trips, a pointer's position and a kept number add to it."""
    bare = re.sub(r"(_\d+)+$", "", name)
    return re.sub(r"(_saved)?(_base|_base_end|_base_lane|_depth|_top|_at|_saved|_count|_offset|_partial)(_\d+)?$", "", bare)


def is_function(name: str, lines: list[str]) -> bool:
    return any(re.search(rf"\b{name}\(", line) for line in lines)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", CASES)
def test_names_are_the_users(name: str) -> None:
    lines = body(adjoint(name).source, f"{shipped(name).name}_reverse")
    text = CASES[name].file.text + "".join(h.read_text() for include, h in HEADERS if include in CASES[name].file.text)
    users = names([re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)])
    members = set(re.findall(r"(?:\.|->)([a-z]\w*)", text))
    parts = {*members, "re", "im", "int", "float"}  # components of vectors, and the numbers of another type in an array of structs
    users |= {f"{n}_{part}" for n in users for part in parts} | {f"{n}_{a}_{b}" for n in users for a in members for b in members}
    library = {"re", "im", "m", "angle", "a", "scale", "inverse"}  # what the library's functions of complex numbers call theirs
    users |= library if "complex" in users else set()
    users |= {"a", "b", "a_x", "a_y", "b_x", "b_y"} if {"__half2", "__nv_bfloat162"} & users else set()
    users |= {f"{n}_{what}" for n in users for what in ("old", "new")}  # what an atomic finds, and what it puts there
    known = CUDA | MADE | users | {f"d{n}" for n in users}
    known |= {f"next_{n}" for n in known}  # where one variable's next value is needed for another's
    strange = {
        n for n in names(lines) if root(n) not in known and n not in known and not n.startswith("gpuad_") and not is_function(n, lines)
    }
    assert not strange, sorted(strange)
