"""`python tests/tests_of.py gpuad/affine/cells.py ...`: the tests of a module, nearest first; without a name, the modules that have none.

A module's tests are `tests/ROOM/test_MODULE.py`, files whose name begins so, and files that import from it. Behind these come the
tests of the modules that import it, at one remove: what it does is seen there.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@cache
def modules() -> tuple[str, ...]:
    """The modules of the package by their dotted names, without packages."""
    files = (f.relative_to(ROOT).with_suffix("") for f in sorted((ROOT / "gpuad").rglob("*.py")) if not f.name.startswith("__"))
    return tuple(".".join(f.parts) for f in files)


@cache
def imports(file: Path) -> frozenset[str]:
    """All that a file imports, by dotted names: modules, and names of modules."""
    package = file.relative_to(ROOT).with_suffix("").parts[:-1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join([*above, *([node.module] if node.module else [])])
            found |= {origin, *(f"{origin}.{name.name}" for name in node.names)}
    return frozenset(found)


@cache
def tests() -> tuple[Path, ...]:
    """The test files."""
    return tuple(sorted((ROOT / "tests").rglob("test_*.py")))


def by_name(module: str) -> Iterator[Path]:
    """The test files that are called as the module, `test_MODULE.py` or `test_MODULE_....py`, in any folder."""
    name = f"test_{module.rpartition('.')[2]}"
    return (t for t in tests() if t.stem == name or t.stem.startswith(f"{name}_"))


def by_import(module: str) -> Iterator[Path]:
    """The test files that import from the module itself."""
    return (t for t in tests() if module in imports(t))


def own(module: str) -> list[Path]:
    """The test files of a module, nearest first."""
    return list(dict.fromkeys([*by_name(module), *by_import(module)]))


def through(module: str) -> Iterator[str]:
    """The modules that import this one."""
    return (m for m in modules() if module in imports(ROOT / f"{m.replace('.', '/')}.py"))


def main(given: list[str]) -> None:
    """Prints a line for each test file, with the module whose it is."""
    for file in given:
        module = ".".join(Path(file).resolve().relative_to(ROOT).with_suffix("").parts)
        for of in [module, *through(module)]:
            for test in own(of):
                print(f"{test.relative_to(ROOT)}  {of}")
    if not given:
        print("\n".join(m for m in modules() if not own(m)))


if __name__ == "__main__":
    main(sys.argv[1:])
