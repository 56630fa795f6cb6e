"""The cache on disk: what it holds, and what goes first when it is full."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from test_cli import run

from gpuad.errors import CompileError
from gpuad.runtime import disk_cache


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(disk_cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(disk_cache.LIMIT, raising=False)
    disk_cache._since.clear()
    return tmp_path / "cache"


def key(number: int) -> str:
    return disk_cache.key_of(str(number))


def made(number: int, nbytes: int = 1000, age: float = 0.0) -> Path:
    """A library in the cache, of some bytes, used so many seconds ago."""
    path = disk_cache.cached(key(number), ".so", lambda target: target.write_bytes(bytes(nbytes)) and None)
    for file in path.parent.glob(key(number) + ".*"):
        os.utime(file, (time.time() - age,) * 2)
    return path


def test_what_was_not_used_for_longest_goes_first(folder: Path) -> None:
    paths = [made(k, age=1000.0 * (5 - k)) for k in range(5)]
    disk_cache.cached(key(0), ".so", lambda target: pytest.fail("it is there"))  # used now
    disk_cache.trim(folder, 3 * 1064 + 10)
    assert [p.exists() for p in paths] == [True, False, False, True, True]
    assert not (folder / (key(1) + ".sha256")).exists()


def test_the_limit_holds_while_it_is_written_to(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(disk_cache.LIMIT, "20000")
    for k in range(60):
        assert disk_cache.write(key(k), ".facts", bytes(1000))
        assert sum(p.stat().st_size for p in folder.iterdir()) <= 20000 + 20000 // 16 + 1032
    assert disk_cache.read(key(59), ".facts") == bytes(1000)
    assert disk_cache.read(key(0), ".facts") is None


def test_what_is_larger_than_the_limit_serves_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(disk_cache.LIMIT, "500")
    assert made(1).read_bytes() == bytes(1000)
    assert made(2).read_bytes() == bytes(1000)


def test_other_files_are_left_alone(folder: Path) -> None:
    made(1)
    (folder / "notes.txt").write_text("mine")
    (folder / "building-new").mkdir()
    (folder / "building-old").mkdir()
    os.utime(folder / "building-old", (0, 0))
    assert len(disk_cache.clear(folder)) == 1
    assert sorted(p.name for p in folder.iterdir()) == ["building-new", "notes.txt"]


def test_a_library_is_built_elsewhere_where_the_disk_is_full(folder: Path) -> None:
    """Of the compiler, too, that says so."""
    for error in (OSError(28, "No space left on device"), CompileError("g++ rejects: No space left on device")):

        def build(target: Path, error: Exception = error) -> None:
            if folder in target.parents:
                raise error
            target.write_bytes(b"library")

        path = disk_cache.cached(key(len(str(error))), ".so", build)
        assert path.read_bytes() == b"library"
        assert folder not in path.parents


def test_another_error_of_the_compiler_is_raised(folder: Path) -> None:
    def build(_: Path) -> None:
        raise CompileError("no such type")

    with pytest.raises(CompileError, match="no such type"):
        disk_cache.cached(key(1), ".so", build)


@pytest.mark.parametrize("text", ["1e9", "-5", "1 GB"])
def test_a_limit_that_is_no_number(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(disk_cache.LIMIT, text)
    with pytest.raises(CompileError, match="GPUAD_CACHE_LIMIT"):
        disk_cache.limit()


def test_the_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(1)
    disk_cache.write(key(2), ".facts", bytes(2_000_000))
    said = run("cache", "info").stdout
    assert f"{folder}: 2.0 MB of at most 1000.0 MB" in said
    assert "1 compiled kernels" in said
    assert "1 facts about kernels" in said
    assert "removed 2 entries, 2.0 MB" in run("cache", "clear").stdout
    assert not list(folder.iterdir())
    assert "0.0 MB of at most" in run("cache", "info").stdout
    assert run("cache", "info").exit_code == 0
