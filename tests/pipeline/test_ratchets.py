"""What may only become less: docstrings that begin as a clause, modules whose tests are not found by their name, replaced words."""

import ast
from pathlib import Path

import tests_of
from house_figures import text_figures

import gpuad

CLAUSES = 556  # docstrings of functions that begin with "What" or "Whether", of 1,170 once
UNFOUND = 235  # modules without a test of their name and without one that imports from them, of 318 once


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    found: dict[str, int] = {}
    for file in Path(gpuad.__file__).parent.rglob("*.py"):
        functions = (n for n in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(n, ast.FunctionDef))
        begins = [(ast.get_docstring(function) or "").startswith(("What ", "Whether ")) for function in functions]
        found[file.name] = found.get(file.name, 0) + sum(begins)
    assert sum(found.values()) <= CLAUSES, "begin docstrings with a verb, or with the noun that is returned ('True if ...')"


def test_the_tests_of_a_module_are_found_by_its_name() -> None:
    unfound = [module for module in tests_of.modules() if not tests_of.own(module)]
    assert len(unfound) <= UNFOUND, (
        f"a new module has a tests/ROOM/test_MODULE.py (python tests/tests_of.py lists those without): {unfound}"
    )


def test_no_replaced_words() -> None:
    figures = text_figures()
    assert figures["replaced words"] == figures["nobody"] == 0, "tests/house_figures.py has the words"
