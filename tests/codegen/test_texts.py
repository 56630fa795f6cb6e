"""Whatever is generated of the shipped kernels is what it was: digests of the texts that `texts.py` writes, which show what has changed;
and their adjoints are no worse than their ledger says."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
import texts
from launch_tools import CASES

from gpuad.tools.examples import of_folders
from gpuad.tools.ledger import compare, read, take
from gpuad.tools.settings import settings

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", CASES)
def test_generated_texts(name: str, golden: Callable[[str, str], None], tmp_path: Path) -> None:
    texts.write(tmp_path, name)
    files = sorted(tmp_path.iterdir())
    assert {f.suffix for f in files} == {".ir", ".cu", ".cpp"}
    golden(f"texts/{name}", "".join(f"{hashlib.sha256(f.read_bytes()).hexdigest()[:16]} {f.name}\n" for f in files))


@pytest.mark.parametrize("part", range(4))
def test_the_ledger_of_the_shipped_kernels(part: int) -> None:
    """`gpuad ledger --check` on this repository, a fourth of it a test."""
    own = settings(ROOT)
    old, examples = read(ROOT / own.ledger), of_folders(own.paths, ROOT)[part::4]
    new = take(examples, own.architectures, old)
    known = {name: old.entries[name] for name in new.entries if name in old.entries}
    worse = [str(c) for c in compare(known, new.entries, old.nvrtc == new.nvrtc) if c.direction == "worse"]
    assert not worse, "mend it, or, if it is meant, run `gpuad ledger --update`:\n" + "\n".join(worse)
    assert part or {e.id for e in of_folders(own.paths, ROOT)} >= set(old.entries), "a launch is gone: run `gpuad ledger --update`"
