"""The pytest plugin: described launches as test items, fixtures and markers for tests of one's own.

Installed with gpuad, and off: nothing is collected until the project's configuration says `gpuad = true` (or the command line `--gpuad`).
Fixtures and markers act wherever they are used. This module is imported by every run of pytest that finds gpuad installed, so it imports
nothing but pytest and `options`; `collection`, `outputs` and the rest of gpuad are imported when they are needed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from .options import asked_for, configured_by, is_on, requires_gpu, settings_of

if TYPE_CHECKING:
    from ..tape.facade import Tape
    from .fixtures import Device

MARKERS = (
    'gpuad_memory(peak="80 MiB"): the test fails if its arrays take more at one time, on the device of `gpuad_device`, else on the CPU',
    "gpuad_deterministic: within the test every reverse pass gives the same bits in every run, and is refused where that cannot be",
)
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("gpuad", "collect what .cu files and examples of Python files describe", type="bool", default=False)
    group = parser.getgroup("gpuad", "gradients of CUDA kernels")
    group.addoption("--gpuad", action="store_true", help="as `gpuad = true` in the configuration")
    group.addoption("--gpuad-seed", type=int, metavar="N", help="of inputs and directions; default: `seed` of [tool.gpuad], else 0")
    group.addoption("--gpuad-require-gpu", action="store_true", help="fail where a GPU is wanted and none is free, as GPUAD_REQUIRE_GPU=1")
    group.addoption("--gpuad-sarif", metavar="FILE", help="write what was found as SARIF, for code scanning")
    group.addoption("--gpuad-code-quality", metavar="FILE", help="write what was found as GitLab's code quality")
    group.addoption("--gpuad-cpu", action="store_true", help="CuPy runs on the CPU, by its ROCm wheel (pip install cupy-rocm-7-0)")
    group.addoption("--gpuad-cpu-seed", type=int, metavar="N", help="with it, work runs late and in a random order that streams allow")
    group.addoption("--sanitizer", action="store_true", help="run described launches under compute-sanitizer, too; needs a GPU")
    group.addoption("--sanitizer-tools", default=",".join(TOOLS), metavar="A,B", help="its tools; default: %(default)s")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--gpuad-cpu"):
        from ..cpu_device import enable
        from ..errors import GpuadError

        try:
            enable(seed=config.getoption("--gpuad-cpu-seed"))
        except GpuadError as error:
            raise pytest.UsageError(f"--gpuad-cpu: {error}") from None
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if not is_on(config):
        if option := asked_for(config):
            raise pytest.UsageError(f"{option}: gpuad is off: no `gpuad = true` is read. {configured_by(config)}; -c FILE names another")
        return
    from .collection import Collection
    from .outputs import Outputs

    tools = config.getoption("--sanitizer-tools").split(",")
    if unknown := [tool for tool in tools if tool not in TOOLS]:
        raise pytest.UsageError(f"--sanitizer-tools: compute-sanitizer has no tool {unknown[0]!r}; it has {', '.join(TOOLS)}")
    config.pluginmanager.register(Collection(config, settings_of(config), tools), "gpuad-collection")
    if not hasattr(config, "workerinput"):  # the controller hears of everything
        config.pluginmanager.register(Outputs(config), "gpuad-outputs")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "gpuad_device" in metafunc.fixturenames:
        metafunc.parametrize("gpuad_device", settings_of(metafunc.config).devices, indirect=True, scope="function")


@pytest.fixture
def gpuad_device(request: pytest.FixtureRequest) -> Device:
    """Where a test runs: once for each of `devices` in [tool.gpuad]. `.xp` is the array library (numpy or cupy), `.name` says which device
    it is. A test that gets no GPU is skipped with the reason, or fails under --gpuad-require-gpu."""
    from .fixtures import device

    return device(str(request.param), settings_of(request.config), requires_gpu(request.config))


@pytest.fixture
def gpuad_tape(request: pytest.FixtureRequest) -> Iterator[Tape]:
    """A tape of the test's own. At the end of the test it is emptied; the test fails if it was still recording, or if arrays that were made
    in the test are still there then."""
    from .fixtures import checked_tape

    yield from checked_tape(request)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    if item.get_closest_marker("gpuad_memory") is None and item.get_closest_marker("gpuad_deterministic") is None:
        return (yield)
    from .fixtures import marked

    with marked(item):
        return (yield)
