"""The examples: each runs at a small size, its loss falls, it draws its picture; with gpuad it is the program that its author wrote, but
for the import line and what follows the model; and the page shows all of the difference."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from example_sizes import SIZES
from nightly import share

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NEW = {"fit", "picture", "main"}


def page_of_examples() -> Any:
    spec = importlib.util.spec_from_file_location("docs_examples", ROOT / "docs" / "examples.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def definitions(path: Path) -> dict[str, str]:
    """Functions and classes by name, as text."""
    text = path.read_text(encoding="utf-8")
    return {node.name: ast.get_source_segment(text, node) or "" for node in ast.parse(text).body if hasattr(node, "name")}


def test_each_has_its_two_files_its_size_and_its_title() -> None:
    names = {path.stem.removesuffix("_forward") for path in EXAMPLES.glob("*.py")}
    assert names == set(SIZES) == set(page_of_examples().TITLES)
    assert all((EXAMPLES / f"{name}{end}.py").is_file() for name in names for end in ("", "_forward"))
    assert all((ROOT / "docs" / "pictures" / f"example-{name}.png").is_file() for name in names)


@pytest.mark.parametrize("name", SIZES)
def test_the_model_is_its_authors(name: str) -> None:
    before, after = definitions(EXAMPLES / f"{name}_forward.py"), definitions(EXAMPLES / f"{name}.py")
    assert "gpuad" not in (EXAMPLES / f"{name}_forward.py").read_text(encoding="utf-8")
    assert {key: text for key, text in after.items() if key not in NEW} == before and set(after) >= NEW


@pytest.mark.parametrize("name", share(list(SIZES), 6))
def test_it_is_fitted_and_drawn(name: str, tmp_path: Path) -> None:
    pytest.importorskip("scipy.optimize")
    pytest.importorskip("matplotlib").use("Agg")
    sizes, _, rounds = SIZES[name]
    before, after = importlib.import_module(name).main(tmp_path / "picture.png", rounds, *sizes)
    assert after < before
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_shows_all_of_the_difference(request: pytest.FixtureRequest) -> None:
    text, file = page_of_examples().page(), ROOT / "docs" / "examples.md"
    if request.config.getoption("--update-golden"):
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", page_of_examples().NOTEBOOKS)
def test_a_notebook_is_the_program(name: str, request: pytest.FixtureRequest) -> None:
    text, file = page_of_examples().notebook(name), EXAMPLES / f"{name}.ipynb"
    if request.config.getoption("--update-golden"):
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text
    nodes = ast.parse("\n".join("".join(c["source"]) for c in json.loads(text)["cells"] if c["cell_type"] == "code")).body
    program = ast.parse((EXAMPLES / f"{name}.py").read_text(encoding="utf-8")).body
    assert [*map(ast.dump, nodes[:-1])] == [*map(ast.dump, program[1:-1])]  # but for what it is, and the line that runs it


@pytest.mark.parametrize("name", share(list(page_of_examples().NOTEBOOKS), 3))
def test_a_notebook_runs_from_top_to_bottom(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells, as Jupyter would run them, at the size of the tests."""
    pytest.importorskip("scipy.optimize")
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    sizes, _, rounds = SIZES[name]
    names: dict[str, Any] = {"__name__": "__main__"}
    *cells, last = [c for c in json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    for cell in cells:
        exec(compile("".join(cell["source"]), f"{name}.ipynb", "exec"), names)
    whole = names["main"]
    names["main"] = lambda path: whole(path, rounds, *sizes)
    exec("".join(last["source"]), names)
    assert names["after"] < names["before"]
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
