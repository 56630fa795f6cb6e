"""Fixtures and markers for tests of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from gpuad.pytest_plugin import fixtures
from gpuad.runtime import cuda
from gpuad.testing.memory import memory
from gpuad.tools.devices import DeviceError, Found
from gpuad.tools.settings import Settings, settings, size_in_bytes

ROOT = Path(__file__).parents[2]
HEAD = """
import numpy as np, pytest, gpuad

square = gpuad.kernel(r'''extern "C" __global__ void square(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * x[i];
}''', "square")
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project that does not ask for items: fixtures and markers act all the same."""
    monkeypatch.delenv("GPUAD_REQUIRE_GPU", raising=False)
    options = '[tool.pytest.ini_options]\naddopts = "-p gpuad.pytest_plugin -p no:cacheprovider --strict-markers"\n'
    (pytester.path / "pyproject.toml").write_text(options)
    return pytester


def test_memory_is_limited_by_a_marker_alone(project: pytest.Pytester) -> None:
    project.makepyfile(
        HEAD
        + """
@pytest.mark.gpuad_memory(peak="1 MiB")
def test_too_much(): np.ones(1 << 18)

@pytest.mark.gpuad_memory(peak="3 MiB")
def test_enough(): np.ones(1 << 18)

@pytest.mark.gpuad_memory(peak="1 MiB")
def test_passing_by():
    for _ in range(8): np.ones(1 << 15)

@pytest.mark.gpuad_memory(peak="1 MiB")
def test_fails_for_its_own_reason(): assert 0
"""
    )
    result = project.runpytest("--junitxml=report.xml")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["the test took 2* bytes at one time; gpuad_memory allows 1 MiB", ">*assert 0"])
    assert '<property name="gpuad peak bytes" value="2' in (project.path / "report.xml").read_text()


@pytest.mark.parametrize("mark", ["()", '(peak="much")', "(peak=3)", '(limit="1 MiB")'])
def test_a_marker_that_says_nothing_is_an_error(project: pytest.Pytester, mark: str) -> None:
    project.makepyfile(HEAD + f"@pytest.mark.gpuad_memory{mark}\ndef test_it(): pass\n")
    result = project.runpytest()
    assert result.ret != 0
    assert "gpuad_memory" in result.stdout.str() + result.stderr.str() and "passed" not in result.stdout.str()


def test_determinism_holds_within_the_test(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
import pytest
from gpuad.pipeline import in_fixed_point

@pytest.mark.gpuad_deterministic
def test_inside(): assert in_fixed_point()

def test_outside(): assert not in_fixed_point()
"""
    )
    project.runpytest().assert_outcomes(passed=2)


TAPE = """
def test_a_program(gpuad_tape, gpuad_device):
    xp = gpuad_device.xp
    X = gpuad.Duplicated(xp.full(100000, 3, dtype="f"))
    with gpuad_tape:
        square[(1000,), (100,)](X, 100000)
    gpuad_tape.reverse({X: xp.ones(100000, dtype="f")})
    assert xp.all(X.shadow == 6)
"""


def test_a_tape_that_leaves_nothing(project: pytest.Pytester) -> None:
    project.makepyfile(HEAD + TAPE)
    result = project.runpytest("-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*::test_a_program[[]cpu[]] PASSED*"])


def test_a_tape_that_leaks(project: pytest.Pytester) -> None:
    project.makepyfile(
        HEAD
        + """
KEPT = []

def test_an_array(gpuad_tape):
    KEPT.append(np.ones(100000))

def test_an_open_block(gpuad_tape):
    gpuad_tape.__enter__()
"""
    )
    result = project.runpytest()
    result.assert_outcomes(passed=2, errors=2)
    result.stdout.fnmatch_lines(
        [
            "arrays of 800000 bytes that were made in the test are still there:",
            "    800000 bytes made at *test_a_tape_that_leaks.py:11",
            "the tape was still recording at the end of the test: leave its block",
        ]
    )


def test_devices_are_those_that_are_configured(project: pytest.Pytester) -> None:
    with (project.path / "pyproject.toml").open("a") as out:
        out.write('[tool.gpuad]\ndevices = ["cpu", "gpu"]\n')
    project.makepyfile(HEAD + TAPE)
    (project.path / "conftest.py").write_text(
        "from gpuad.pytest_plugin import fixtures\nfrom gpuad.tools.devices import DeviceError\n"
        "def none(settings): raise DeviceError('0 (Some GPU) is 97 % busy')\nfixtures.free_device = none\n"
    )
    result = project.runpytest_subprocess("-v", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*no GPU: 0 (Some GPU) is 97 % busy"])
    result = project.runpytest_subprocess("--gpuad-require-gpu")
    assert "a GPU is required, but 0 (Some GPU) is 97 % busy" in result.stdout.str()
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_the_variable_requires_a_gpu_too(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUAD_REQUIRE_GPU", "1")
    with (project.path / "pyproject.toml").open("a") as out:
        out.write('[tool.gpuad]\ndevices = ["gpu"]\n')
    project.makepyfile("def test_it(gpuad_device): pass")
    (project.path / "conftest.py").write_text(
        "from gpuad.pytest_plugin import fixtures\nfrom gpuad.tools.devices import DeviceError\n"
        "def none(settings): raise DeviceError('there is none')\nfixtures.free_device = none\n"
    )
    assert "a GPU is required, but there is none" in project.runpytest_subprocess().stdout.str()


def test_a_free_device_is_made_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    library = SimpleNamespace(__name__="cupy")
    monkeypatch.setattr(fixtures, "free_device", lambda settings: Found(2, "Some GPU"))
    monkeypatch.setattr(cuda, "use_device", lambda index: used.append(index) or library)
    found = fixtures.device("gpu", Settings(ROOT), required=False)
    assert (found.name, found.index, found.xp, used) == ("Some GPU", 2, library, [2])


def test_none_is_skipped_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(settings: Settings) -> Found:
        raise DeviceError("there is none")

    monkeypatch.setattr(fixtures, "free_device", none)
    with pytest.raises(pytest.skip.Exception, match="no GPU: there is none"):
        fixtures.device("gpu", Settings(ROOT), required=False)
    with pytest.raises(pytest.fail.Exception, match="a GPU is required, but there is none"):
        fixtures.device("gpu", Settings(ROOT), required=True)


# --- memory ----------------------------------------------------------------------------------------------------------------------------


def test_memory_of_arrays_on_the_cpu() -> None:
    with memory() as used:
        kept = [np.ones(1 << 15)]
        np.ones(1 << 17)
    assert used.peak == pytest.approx((1 << 20) + (1 << 18), rel=0.05)
    assert used.left == pytest.approx(1 << 18, rel=0.01)
    assert Path(used.kept[0][0].rpartition(":")[0]).name == "test_fixtures.py"
    assert kept[0].nbytes == 1 << 18


class _Hook:
    """Stands in for CuPy's MemoryHook: those that are entered hear of allocations."""

    active: ClassVar[list[_Hook]] = []

    def __enter__(self) -> _Hook:
        self.active.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.active.remove(self)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A memory pool with CuPy's hooks."""

    def malloc(size: int) -> None:
        for hook in _Hook.active:
            hook.malloc_postprocess(device_id=0, size=size, mem_size=-(-size // 512) * 512, mem_ptr=1, pmem_id=1)  # type: ignore[attr-defined]

    def free(size: int) -> None:
        for hook in _Hook.active:
            hook.free_preprocess(device_id=0, mem_size=-(-size // 512) * 512, mem_ptr=1, pmem_id=1)  # type: ignore[attr-defined]

    monkeypatch.setitem(__import__("sys").modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(MemoryHook=_Hook)))
    yield SimpleNamespace(malloc=malloc, free=free)


def test_memory_of_a_pool_on_a_gpu(pool: SimpleNamespace) -> None:
    with memory(SimpleNamespace(__name__="cupy")) as used:
        pool.malloc(1000)
        pool.malloc(5000)
        pool.free(1000)
        pool.malloc(100)
    assert (used.peak, used.left) == (1024 + 5120, 5120 + 512)


# --- settings --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "size"), [("80 MiB", 80 << 20), ("1.5 GB", 1_500_000_000), ("7B", 7), (" 2 KiB ", 2048)])
def test_sizes(text: str, size: int) -> None:
    assert size_in_bytes(text) == size


@pytest.mark.parametrize("text", ["", "80", "MiB", "80 MB/s", "-1 B", "80 TiB", "1 iB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is no size: write a number and one of B, KB"):
        size_in_bytes(text)


def test_settings_are_those_of_the_project_around(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert settings(tmp_path / "a").kernels == ()
    (tmp_path / "pyproject.toml").write_text('[tool.gpuad]\nkernels = ["k", "more/x.cu"]\narchitectures = ["sm_80"]\n')
    found = settings(tmp_path / "a" / "b")
    assert found.root == tmp_path and found.paths == (tmp_path / "k", tmp_path / "more" / "x.cu")
    assert found.architectures == ("sm_80",)
