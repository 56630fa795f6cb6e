"""A repository of a user's, on which everything runs as there: gpuad from its wheel, in an environment of its own, on a machine without a
GPU. A clean tree passes; six problems that are planted are each found, with file, line and what to do."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from nightly import NIGHTLY

ROOT = Path(__file__).parents[2]
REPOSITORY = Path(__file__).parent / "example_repository"
KERNELS = "fields/kernels"


@dataclass(frozen=True)
class Plant:
    """A change to one file, and what has to be said of it."""

    file: str
    old: str
    new: str
    said: tuple[str, ...]


# Found by `pytest`.
TESTED = {
    "wrong derivative": Plant(
        "smooth.py", "np.conj(filter) * ", "filter * ",
        (
            "the reverse `smooth_reverse` of the rule `smooth` is wrong",
            ">   def smooth_reverse(filter, du, dv):",
            "E   gradient of `u[",
            "E   Mend the reverse: ",
            "E     pytest fields/kernels/smooth.py::example::gradient --gpuad-seed=0",
            "fields/kernels/smooth.py:8: gradient",
        ),
    ),
    "race": Plant(
        "scatter.cu", "atomicAdd(&laid[cell[i]], carried[i] * carried[i]);", "laid[cell[i]] += carried[i] * carried[i];",
        ("E   data race on `laid`[", "E   Let one thread write the element, put a __syncthreads() between, or add with atomicAdd.",
         "fields/kernels/scatter.cu:17: races"),
    ),
    "out of bounds": Plant(
        "flow.cu", "i > 0 && i < n - 1", "i > 0 && i < n",
        ("but its memory ends at 99: check the sizes that are passed, grid and block.", "reads `u` from element 2 to 100",
         "fields/kernels/flow.cu:18: bounds"),
    ),
    "unsupported line": Plant(
        "saturate.cu", "expf(u[i])", "expf(u[i]) * clock()",
        ("clock", "fields/kernels/saturate.cu:15: unsupported", ">           u[i] = expf(u[i]) * clock();"),
    ),
}  # fmt: skip

# Found by `gpuad ledger --check`.
LEDGERED = {
    "saved bytes": Plant(
        "saturate.cu", "expf(u[i])", "sinf(u[i])",
        ("fields/kernels/saturate.cu:15:21: error: `saturate`: u is saved now, 3.12 B a thread as a copy: needed by `u[i]`, overwritten by",
         "::error file=fields/kernels/saturate.cu,line=15,col=21,title=gpuad ledger::"),
    ),
    "gather turned atomic": Plant(
        "flow.cu", "u[i + 1]);", "u[order[i]]);",
        ("fields/kernels/flow.cu:18:59: error: `flow`: du gather -> atomic: line 18 now reads u[order[i]]",
         "Mend the kernel, or, if this is meant: `gpuad ledger --update` writes it in, for review."),
    ),
    "unsupported line": Plant(
        "scatter.cu", "carried[i] * carried[i]", "carried[i] * clock()",
        ("fields/kernels/scatter.cu:17:", "error: `scatter`: accepted -> refused: "),
    ),
}  # fmt: skip


Command = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment with the wheel; what gpuad needs is that of the tests' own environment."""
    folder = tmp_path_factory.mktemp("environment")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    builder = importlib.util.find_spec("hatchling")
    status, said = _run(build if builder is None else [*build, "--no-build-isolation"], ROOT)
    if status and builder is None:
        pytest.skip(f"the wheel cannot be built here: pip install 'gpuad[test]', which has hatchling\n{said[-500:]}")
    assert status == 0, said
    (wheel,) = folder.glob("*.whl")
    own = folder / "own"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(own)], check=True)
    commands = own / ("Scripts" if os.name == "nt" else "bin")
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    status, said = _run([sys.executable, "-m", "pip", "--python", str(commands / "python"), *install], ROOT)
    assert status == 0, said
    (packages,) = own.rglob("site-packages")
    (packages / "needs.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return commands


def _run(words: list[str], folder: Path, **variables: str) -> tuple[int, str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "GITHUB_", "GPUAD_"))}
    done = subprocess.run(words, cwd=folder, env={**environment, **variables}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def command(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Runs a command of that environment in a folder."""
    cache = tmp_path_factory.mktemp("cache")
    cache.chmod(0o700)

    def run(folder: Path, module: str, *words: str, **variables: str) -> tuple[int, str]:
        return _run([str(environment / "python"), "-m", module, *words], folder, GPUAD_CACHE_DIR=str(cache), **variables)

    return run


def copied(folder: Path, plants: dict[str, Plant]) -> Path:
    """The repository with problems planted."""
    tree = folder / "tree"
    shutil.copytree(REPOSITORY, tree)
    for plant in plants.values():
        file = tree / KERNELS / plant.file
        text = file.read_text()
        assert text.count(plant.old) == 1
        file.write_text(text.replace(plant.old, plant.new))
    return tree


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(tmp_path_factory.mktemp("clean"), {})


@pytest.fixture(scope="module")
def tested(command: Command, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str]:
    return command(copied(tmp_path_factory.mktemp("tested"), TESTED), "pytest", "-p", "no:cacheprovider")


@pytest.fixture(scope="module")
def ledgered(command: Command, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str]:
    return command(copied(tmp_path_factory.mktemp("ledgered"), LEDGERED), "gpuad", "ledger", "--check", GITHUB_ACTIONS="true")


def test_it_is_the_wheel_that_runs(command: Command, clean: Path, environment: Path) -> None:
    status, said = command(clean, "gpuad", "--version")
    assert status == 0 and said.startswith("gpuad ")
    status, said = _run([str(environment / "python"), "-P", "-c", "import gpuad; print(gpuad.__file__)"], clean)
    assert status == 0 and Path(said.strip()).is_relative_to(environment.parent)


def test_a_clean_tree_passes_its_tests(command: Command, clean: Path) -> None:
    chosen = [] if NIGHTLY else [f"{KERNELS}/flow.cu"]
    status, said = command(clean, "pytest", "--durations=3", "-p", "no:cacheprovider", *chosen)
    print(said)  # with the times
    assert status == 0, said
    assert ("23 passed, 6 skipped" if NIGHTLY else " passed") in said


def test_a_clean_tree_is_as_its_ledger_says(command: Command, clean: Path) -> None:
    status, said = command(clean, "gpuad", "ledger", "--check")
    assert status == 0, said
    assert "3 launches" in said and "worse" not in said.replace("none worse", "")


def test_the_templates_can_be_written_into_it(command: Command, tmp_path: Path) -> None:
    status, said = command(copied(tmp_path, {}), "gpuad", "init-ci")
    assert status == 0 and said.count(": written: ") == 4


@pytest.mark.parametrize("name", TESTED)
def test_what_pytest_finds(tested: tuple[int, str], name: str) -> None:
    status, said = tested
    assert status == 1
    for line in TESTED[name].said:
        assert line in said, said


@pytest.mark.parametrize("name", LEDGERED)
def test_what_the_ledger_finds(ledgered: tuple[int, str], name: str) -> None:
    status, said = ledgered
    assert status == 1
    for line in LEDGERED[name].said:
        assert line in said, said
