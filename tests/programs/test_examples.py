"""The examples: each runs at a small size, its loss falls, it draws its picture; with gpuad it is the program that its author wrote, but
for the import line and what follows the model; and the page shows all of the difference."""

from __future__ import annotations

import ast
import importlib
import importlib.util
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


@pytest.mark.parametrize("name", share(list(SIZES), 3))
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
