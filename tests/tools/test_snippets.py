"""Every block of code in the README and in `docs` runs, page by page from top to bottom, and prints what the page says it prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from snippets import PAGES, ROOT, Block, Reader, agree, blocks, named_things_exist

NEEDS = {"how-to/torch.md": "torch", "how-to/jax.md": "jax", "how-to/distributed.md": "mpi4py"}  # pages about what need not be installed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in NEEDS.items():
        if page == ROOT / "docs" / name:
            pytest.importorskip(module, reason=f"the page is about {module}, which is not installed")
    monkeypatch.chdir(tmp_path)
    Reader(page).follow()


def test_a_block_that_fails_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "page.md"
    reader = Reader(page)
    reader._python(Block("python", None, "x = 1\nprint(x)\n", 3))
    reader._text(Block("text", None, "1\n", 7))
    with pytest.raises(AssertionError, match="what was printed"):
        reader._text(Block("text", None, "2\n", 7))
    with pytest.raises(AssertionError):
        reader._sh(Block("sh", None, "gpuad grad nowhere.cu\n", 9))
    with pytest.raises(AssertionError):
        reader._sh(Block("sh", None, "python -m pip install 'gpuad[nothing]'\n", 9))
    with pytest.raises(AssertionError):
        named_things_exist("pytest tests/nowhere.py", ["pytest", "tests/nowhere.py"])


def test_blocks_know_their_lines(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('# A\n\n```python\nx = 1\n```\n\n```cuda title="k.cu"\n// k\n```\n\n```\nplain\n```\n')
    assert blocks(page) == [Block("python", None, "x = 1\n", 4), Block("cuda", "k.cu", "// k\n", 8), Block("", None, "plain\n", 12)]


def test_what_differs_from_run_to_run() -> None:
    assert agree("a ... c\n", "a b c") and not agree("a ... c\n", "a b d") and agree("a \nb\n", "a\nb  \n\n")
