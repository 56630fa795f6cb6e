"""The gallery: every kernel that ships has a picture or a reason why not, and what draws the pictures runs."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuad.tools.cases import kernel_folder

DOCS = Path(__file__).parents[2] / "docs"
QUICK = ("horner", "insertion_sort", "scatter_max")  # a line, a field and points


def gallery() -> Any:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("gallery", DOCS / "gallery.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gallery"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def test_every_kernel_has_a_picture_or_a_reason() -> None:
    made = gallery()
    shown = {scene.file.partition(".")[0] for scene in made.SCENES}
    there = {file.stem for file in kernel_folder().iterdir() if file.suffix in (".cu", ".py")}
    assert not shown & set(made.WITHOUT)
    assert shown | set(made.WITHOUT) == there, "give it a scene in docs/gallery.py, or a reason in WITHOUT"


def test_the_page_and_its_pictures_are_up_to_date() -> None:
    made = gallery()
    assert (DOCS / "gallery.md").read_text(encoding="utf-8") == made.page(), "python docs/gallery.py"
    pictures = {file.stem: file.stat().st_size for file in (DOCS / "pictures").iterdir()}
    examples = {f"example-{file.stem}" for file in (DOCS.parent / "examples").glob("*.py") if not file.stem.endswith("_forward")}
    assert set(pictures) == {scene.name for scene in made.SCENES} | {"demo-wave", "demo-gray-scott", "demo-long", "budgets"} | examples
    assert sum(pictures.values()) < 1_500_000


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", QUICK if not os.environ.get("GPUAD_NIGHTLY") else [scene.name for scene in gallery().SCENES])
def test_a_picture_is_drawn(name: str) -> None:
    made = gallery()
    (scene,) = (s for s in made.SCENES if s.name == name)
    assert made.picture(scene.panels()).startswith(b"\x89PNG")
