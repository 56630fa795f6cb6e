"""What makes compilation quicker, precompiled headers and a linker, changes no library, and is done without where it does not work."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from launch_tools import compiled

from gpuad.codegen.cpu.helpers import HEADERS
from gpuad.codegen.cpu.source import host_source
from gpuad.errors import CompileError
from gpuad.runtime import compiler as library
from gpuad.runtime import disk_cache
from gpuad.runtime.compiler import Compiler, find_compiler, has_compiler

TEXT = (
    "#include <vector>\n#include <cmath>\n"
    'extern "C" __attribute__((visibility("default"))) double total(const double* x, int n)\n'
    "{\n    std::vector<double> roots;\n    for (int k = 0; k < n; ++k) roots.push_back(std::sqrt(x[k]));\n"
    "    double sum = 0;\n    for (double r : roots) sum += r;\n    return sum;\n}\n"
)
SAXPY = """extern "C" __global__ void saxpy(float* y, const float* x, float a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = sinf(a * x[i]) + y[i];
}
"""

pytestmark = pytest.mark.skipif(not (has_compiler() and find_compiler().is_gnu), reason="only g++ has such headers")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "total.cpp"
    path.write_text(TEXT)
    return path


@pytest.fixture
def headers(tmp_path: Path) -> Path:
    path = tmp_path / "headers.hpp.gch"
    find_compiler().precompile(HEADERS, path)
    path.with_suffix("").unlink()  # the text of which they are made is not needed any more
    return path


def test_precompiled_headers_change_no_instruction(source: Path, headers: Path, tmp_path: Path) -> None:
    source.write_text(host_source([compiled(SAXPY, "saxpy").primal()]))
    made = []
    for shortcut in (["-include", str(headers.with_suffix(""))], []):
        run = find_compiler()._run(*shortcut, "-S", str(source), "-o", str(tmp_path / "kernel.s"))
        assert run.returncode == 0, run.stderr
        made.append(
            re.sub(r"(\.L[A-Z]+)\d+", r"\1", (tmp_path / "kernel.s").read_text())
        )  # labels are numbered by what was declared before
    assert made[0] == made[1]


def test_neither_shortcut_is_tried_in_vain(source: Path, headers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran, run = [], Compiler._run
    monkeypatch.setattr(Compiler, "_run", lambda self, *more: ran.append(more) or run(self, *more))
    find_compiler().build(source, tmp_path / "total.so", (), headers)
    assert len(ran) == 1 and "-include" in ran[0]


def test_headers_hold_what_kernels_include(source: Path, headers: Path, tmp_path: Path) -> None:
    """A text that includes nothing itself finds them."""
    source.write_text("\n".join(line for line in TEXT.splitlines() if not line.startswith("#")))
    find_compiler().build(source, tmp_path / "total.so", (), headers)
    with pytest.raises(CompileError, match="vector"):
        find_compiler().build(source, tmp_path / "total.so", ())


@pytest.mark.parametrize("state", ["damaged", "absent"])
def test_headers_that_cannot_be_used(state: str, source: Path, headers: Path, tmp_path: Path) -> None:
    if state == "damaged":
        headers.write_bytes(headers.read_bytes()[:1000])
    else:
        headers.unlink()
    find_compiler().build(source, tmp_path / "total.so", (), headers)
    library._loaded(tmp_path / "total.so", ["total"])


def test_a_compiler_that_knows_no_shortcut(source: Path, headers: Path, tmp_path: Path) -> None:
    script, real = tmp_path / "cxx", find_compiler()
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *-fuse-ld*|*-include*|*c++-header*) exit 1;; esac\nexec {shutil.which(real.command[0])} "$@"\n'
    )
    script.chmod(0o755)
    compiler = Compiler((str(script),), real.version)
    compiler.build(source, tmp_path / "total.so", (), headers)
    library._loaded(tmp_path / "total.so", ["total"])
    with pytest.raises(CompileError, match="precompiles no headers"):
        compiler.precompile(HEADERS, tmp_path / "again.hpp.gch")


def test_headers_are_precompiled_once_a_process_compiles_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(disk_cache.VARIABLE, str(tmp_path))
    monkeypatch.setattr(library, "_precompiled", {})
    compiler = find_compiler()
    assert [library._headers(compiler) for _ in range(library._PATIENCE)] == [None] * library._PATIENCE
    made = library._headers(compiler)
    assert made is not None and made.is_file() and made.parent == tmp_path
    monkeypatch.setattr(library, "_precompiled", {})
    library._asked.clear()
    assert library._headers(compiler) == made  # a later process takes them at once
