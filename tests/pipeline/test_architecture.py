"""The house keeps its shape: imports point down only, rooms on one floor do not know each other, nobody inside imports the package root,
cupy is imported where devices are, and no modules import each other in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "gpuad"

# From the ground up, a room a floor; what stands on one line does not know its neighbours.
FLOORS = (
    {"literals"},
    {"source"},
    {"errors"},
    {"public_calls"},
    {"budget", "context_variables", "deferred_import", "memo", "pages", "progress", "recursion_limit", "traced_numbers"},
    {"ir"},
    {"affine", "analysis"},
    {"optimize"},
    {"lower", "codegen"},
    {"ad"},
    {"accumulate"},
    {"inspect", "frontend"},
    {"runtime"},
    {"cpu_device"},
    {"program"},
    {"arguments"},
    {"pipeline"},
    {"fusion"},
    {"api"},
    {"tape"},
    {"ops"},
    {"interop"},
    {"elementwise"},
    {"jit_kernels", "profiling"},
    {"namespaces"},
    {"cupy", "numpy"},
    {"cupyx"},
    {"distributed", "jax", "torch"},
    {"testing"},
    {"tools"},
    {"pytest_plugin"},
    {"__main__"},
)
IN_PROGRAM = ("region", "regions", "program", "script")  # modules of `program.ir`, from the ground up
ABOVE_IN_TAPES = {"replay": {"reverse"}, "budget": {"replay"}}  # what a part of `tape` knows nothing of
CUPY = ("gpuad.runtime.cuda", "gpuad.cpu_device")


@cache
def modules() -> dict[str, Path]:
    names = {path: ".".join(("gpuad", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in sorted(PACKAGE.rglob("*.py"))}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


@cache
def imported(module: str) -> frozenset[str]:
    """Everything that a module imports, at its top or inside a function, by full name."""
    path = modules()[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return frozenset(name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) for name in _names(node, package))


def _names(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parts = package.split(".")
        base = ".".join([*parts[: len(parts) + 1 - node.level], *filter(None, [node.module])]) if node.level else str(node.module)
        whole = [f"{base}.{alias.name}" for alias in node.names]
        yield from (name if name in modules() else base for name in whole)
    elif isinstance(node, ast.Call) and _name(node.func).endswith("import_module"):
        yield from (argument.value for argument in node.args[:1] if isinstance(argument, ast.Constant))


def _name(function: ast.expr) -> str:
    return str(getattr(function, "id", getattr(function, "attr", "")))


def inside(module: str) -> frozenset[str]:
    """The modules of the package that a module imports."""
    return frozenset(name for name in imported(module) if name.split(".")[0] == "gpuad")


def room(module: str) -> str:
    return module.split(".")[1]


def floor(module: str) -> int:
    found = [number for number, rooms in enumerate(FLOORS) if room(module) in rooms]
    assert found, f"{module} is on no floor: give it one in tests/pipeline/test_architecture.py"
    return found[0]


MODULES = [name for name in modules() if name != "gpuad"]


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    for other in inside(module) - {"gpuad"}:
        if room(other) != room(module):
            assert floor(other) < floor(module), f"{module} imports {other}, which is not below it"


@pytest.mark.parametrize("name", IN_PROGRAM)
def test_floors_inside_the_representation_of_programs(name: str) -> None:
    """Each module there is on a floor, and imports what is below it and what knows of no program."""
    below = {f"gpuad.program.ir.{other}" for other in IN_PROGRAM[: IN_PROGRAM.index(name)]}
    assert {m for m in inside(f"gpuad.program.ir.{name}") if room(m) == "program"} <= below
    assert {m for m in modules() if m.startswith("gpuad.program.ir.")} == {f"gpuad.program.ir.{other}" for other in IN_PROGRAM}


@pytest.mark.parametrize("part", ABOVE_IN_TAPES)
def test_parts_of_tapes_that_know_nothing_of_others(part: str) -> None:
    for module in (m for m in MODULES if m.startswith(f"gpuad.tape.{part}.")):
        above = {m for m in inside(module) for other in ABOVE_IN_TAPES[part] if m.startswith(f"gpuad.tape.{other}.")}
        assert not above, f"{module} imports {sorted(above)}"


@pytest.mark.parametrize("module", MODULES)
def test_nobody_imports_the_root(module: str) -> None:
    assert "gpuad" not in inside(module)


@pytest.mark.parametrize("module", modules())
def test_cupy_is_imported_where_devices_are(module: str) -> None:
    foreign = {name for name in imported(module) if name.split(".")[0] in ("cupy", "cupyx")}
    assert not foreign or module in CUPY, f"{module} imports {sorted(foreign)}"


def test_no_circles() -> None:
    try:
        TopologicalSorter({module: inside(module) for module in modules()}).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]), pytrace=False)
