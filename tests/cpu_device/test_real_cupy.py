"""The real CuPy on the CPU, where its ROCm wheel is installed: `pip install 'gpuad[cpu-cupy]'`, or a folder with it in GPUAD_CUPY."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import planted
import pytest
from nightly import NIGHTLY

HERE = Path(__file__).parent
PROGRAMS = sorted(path for path in (HERE / "cupy_programs").glob("*.py"))
SEEDS = (None, 1, 2)


@cache
def place() -> str | None:
    """The folder to import it from; None where there is none."""
    if os.environ.get("GPUAD_CUPY"):
        return os.environ["GPUAD_CUPY"]
    found = importlib.util.find_spec("cupy_backends")
    return str(Path(found.submodule_search_locations[0]).parent) if found and found.submodule_search_locations else None


pytestmark = pytest.mark.skipif(place() is None, reason="CuPy's ROCm wheel is not installed: pip install 'gpuad[cpu-cupy]'")


def run(*command: str, status: int = 0) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (place(), os.environ.get("PYTHONPATH"))))}
    ran = subprocess.run(
        [sys.executable, "-m", "gpuad", "run", "--cpu", *command], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == status, ran.stderr[-3000:]
    return ran.stdout + ran.stderr


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_gives_what_its_twin_of_numpy_gives(program: Path, seed: int | None) -> None:
    options = () if seed is None else ("--seed", str(seed))
    assert "agree" in run(*options, str(program))


def test_an_access_outside_is_said_at_the_user_s_line(tmp_path: Path) -> None:
    script = tmp_path / "smooth.py"
    script.write_text(
        "import cupy as cp\n"
        'k = cp.RawKernel(r"""\n'
        'extern "C" __global__ void smooth(const double* u, double* v, int n) {\n'
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) v[i] = u[i] + u[i + 1];\n"
        '}""", "smooth")\n'
        "u = cp.arange(100.0)\n"
        "k((4,), (32,), (u, cp.empty_like(u), 100))\n"
    )
    assert f"{script}:5:" in run("--check", str(script), status=1)


def test_a_race_is_said_at_the_user_s_line(tmp_path: Path) -> None:
    script = tmp_path / "race.py"
    script.write_text(
        "import cupy as cp\n"
        "m = cp.RawModule(code='''\n"
        'extern "C" __global__ void last(double* x) {\n'
        "    x[0] = threadIdx.x;\n"
        "}''')\n"
        'm.get_function("last")((1,), (8,), (cp.zeros(1),))\n'
    )
    assert f"{script}:4:" in run("--check", str(script), status=1)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    script = tmp_path / "absent.py"
    script.write_text("import cupyx.scipy.sparse as s, cupy as cp\ns.csr_matrix(cp.eye(3)) @ cp.ones(3)\n")
    assert "is not made for the CPU" in run(str(script), status=1)


@pytest.mark.skipif(not NIGHTLY, reason="hundreds of launches for each fault: nightly")
@pytest.mark.parametrize("fault", planted.FAULTS)
def test_a_fault_in_how_cupy_is_called_is_found(fault: str) -> None:
    found = [gpu_tests(planted.FAULTS[fault][2], seed, fault) for seed in (1, 2, 3)]
    assert any(status == 1 for status, _ in found), found[0][1][-2000:]


def gpu_tests(chosen: str, seed: int, fault: str = "") -> tuple[int, str]:
    """The exit status of the tests for a GPU of that name on this device, and what they print."""
    root = HERE.parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(HERE), place() or "")), "GPUAD_PLANTED": fault}
    command = ["-m", "pytest", "-q", "-n0", "-x", "-m", "gpu", "-p", "planted", "--gpuad-cpu", "--gpuad-cpu-seed", str(seed), "-k", chosen]
    ran = subprocess.run(
        [sys.executable, *command, "tests/runtime/test_gpu.py"], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    return ran.returncode, ran.stdout
