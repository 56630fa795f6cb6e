"""The precompiled prelude: a text reads as it does without one."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

import pytest
from nightly import share

from gpuad.errors import GpuadError
from gpuad.frontend.cuda import translation_unit
from gpuad.source import SourceFile

parse = importlib.import_module("gpuad.frontend.cuda.parse")
KERNELS = Path(__file__).parents[2] / "kernels"
REFUSED = {
    "a name": "__global__ void k(float* x) { x[0] = nothing; }",
    "a function's types": "__global__ void k(float* x) { x[0] = sinf(x); }",
    "a function by name": "__global__ void k(float* x) { x[0] = clock(); }",
    "a missing header": '#include "nothing.h"\n__global__ void k(float* x) { x[0] = 1; }',
    "a host's macro": "#ifdef __GNUC__\n#error here\n#endif\n__global__ void k(float* x) { x[0] = GPUAD_F(1); }",
    "an old standard's": "__global__ void k(register float* x) { if constexpr (sizeof(x) == 8) x[0] = y; }",
}
OPTIONS = [(), ("-std=c++14",), ("-DN=4", "-arch=sm_90"), ("-Dsinf=cosf", "-default-device")]


def read(text: SourceFile, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, patience: int) -> list[str]:
    """The trees of a text's kernels, or what is said of it; with a prelude that is precompiled after so many texts."""
    monkeypatch.setattr(translation_unit, "_PATIENCE", patience)
    said = []
    try:
        module = parse._parse(text, options)
        for name in module.kernels:
            try:
                said.append(repr(module.kernel(name)))
            except GpuadError as error:
                said.append(str(error))
    except GpuadError as error:
        said.append(str(error))
    return said


CASES = [*((f.name, ()) for f in sorted(KERNELS.glob("*.cu"))), *((what, options) for what in REFUSED for options in OPTIONS)]


@pytest.mark.one_of(6)
@pytest.mark.parametrize(("what", "options"), share(CASES, 3))
def test_a_text_reads_alike(what: str, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    file = KERNELS / what
    text = SourceFile(what, REFUSED[what]) if what in REFUSED else SourceFile(str(file), file.read_text())
    without, with_one = (read(text, options, monkeypatch, patience) for patience in (10**9, 0))
    assert without == with_one
    assert without


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of an own table, of headers of its own."""
    shutil.copytree(translation_unit.INCLUDE, tmp_path / "include")
    monkeypatch.setattr(translation_unit, "INCLUDE", tmp_path / "include")
    monkeypatch.setattr(translation_unit, "_kept", {})
    monkeypatch.setattr(translation_unit, "_PATIENCE", 0)
    path = after_a_text()
    assert path is not None
    return path


def after_a_text() -> Path | None:
    """The file after a text was read, if it is used."""
    parse._parse(SourceFile("k.cu", "__global__ void k(float* x) { x[0] = expf(x[1]); }"), ()).kernel("k")
    (one,) = translation_unit._kept.values()
    return None if one is None else one.path


def test_a_file_that_was_tidied_away_is_written_anew(kept: Path) -> None:
    kept.unlink()
    kept.parent.rmdir()
    again = after_a_text()
    assert again != kept
    assert again is not None and again.is_file()


def test_a_file_that_is_damaged_is_done_without(kept: Path) -> None:
    kept.write_bytes(kept.read_bytes()[:1000])
    assert after_a_text() is None


def test_headers_that_have_changed_since_are_read_themselves(kept: Path, tmp_path: Path) -> None:
    header = tmp_path / "include" / "gpuad" / "math.h"
    header.write_text(header.read_text() + "\n")
    assert after_a_text() is None


def test_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(translation_unit, "_kept", {})
    monkeypatch.setattr(translation_unit, "_PATIENCE", 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nothing"))
    assert after_a_text() is None
