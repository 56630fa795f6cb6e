"""Whatever is generated of the shipped kernels is what it was: digests of the texts that `texts.py` writes, which show what has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
import texts
from launch_tools import CASES

from gpuad.tools.examples import of_folders
from gpuad.tools.ledger import read
from gpuad.tools.settings import settings

ROOT = Path(__file__).parents[2]


@pytest.mark.one_of(6)
@pytest.mark.parametrize("name", CASES)
def test_generated_texts(name: str, golden: Callable[[str, str], None], tmp_path: Path) -> None:
    texts.write(tmp_path, name)
    files = sorted(tmp_path.iterdir())
    assert {f.suffix for f in files} == {".ir", ".cu", ".cpp"}
    golden(f"texts/{name}", "".join(f"{hashlib.sha256(f.read_bytes()).hexdigest()[:16]} {f.name}\n" for f in files))


def test_every_launch_is_in_the_ledger() -> None:
    """That none of them is worse than it says there is a step of CI of its own: `gpuad ledger --check`."""
    own = settings(ROOT)
    assert {e.id for e in of_folders(own.paths, ROOT)} == set(read(ROOT / own.ledger).entries), "run `gpuad ledger --update`"
