"""What every test may ask for: an executor, a golden file, and the rule for tests that need a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import inspect
import itertools
import os
import re
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import fake_cupy
import launch_tools
import ptx_cupy
import ptx_executor
import ptx_record
import pytest
from nightly import NIGHTLY

from gpuad import pipeline
from gpuad.api import kept_kernels, making
from gpuad.runtime import array_locks, compiler
from gpuad.tape.reverse import reversal_plan
from gpuad.testing import gradient_check
from gpuad.tools import check_process, checks

collect_ignore = ["tools/example_repository"]  # which runs in an environment of its own
pytest_plugins = ["pytester"]  # runs pytest on small projects, for the tests of the plugin

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"
KERNELS = TESTS.parent / "kernels"
AS_FOR_A_USER = sorted(KERNELS.glob("*.cu"))[::10]
CPU_TEXTS = (TESTS / "codegen", TESTS / "runtime")
BY_BOTH = (*CPU_TEXTS, TESTS / "gradients" / "test_every_way.py")
EVERY_KERNEL = TESTS / "gradients" / "test_gradients.py"
os.environ.setdefault(kept_kernels.VARIABLE, "0")  # faults are planted here, and what is found out with one holds for no other process
LEVEL = os.environ.get(compiler.LEVEL)  # whoever names one means all tests
PTX = ptx_executor.Ptx("-fmad=false", "-ftz=false")  # rounds as the other executors do


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew in the place of comparing with them")
    parser.addoption(
        "--ptx",
        action="store_true",
        help="run launches on the stand-in for CuPy, and those of NumPy arrays, as the PTX that NVRTC makes of them",
    )


def pytest_configure(config: pytest.Config) -> None:
    """With `--ptx` the tests that ask for the CPU's executor get the one that executes PTX."""
    if not NIGHTLY:  # a wrong gradient is wrong in almost every direction
        inspect.unwrap(gradient_check.check_gradient).__kwdefaults__["directions"] = 1
    making.calling_file = lambda: None  # type: ignore[assignment,return-value]  # tests count the lines of a text from its own first one
    config.pluginmanager.register(Optimisation(), "optimisation")
    gc.set_threshold(100_000, 20)  # thousands of kernels stay: looking through them every 700 objects takes a twentieth of the time
    if config.getoption("--ptx"):
        launch_tools.EXECUTORS["host"] = PTX


def pytest_sessionstart() -> None:
    """Linking takes a fifth of the time of compiling a small text, most of it for reading the C++ library, which is here already. What is
    compiled as for a user is linked as for one: the cache on disk may be the user's."""
    with contextlib.suppress(OSError):
        ctypes.CDLL("libstdc++.so.6", ctypes.RTLD_GLOBAL)
        compiler.Compiler.quick_linker = property(_quick_linker)  # type: ignore[assignment,misc]


def _quick_linker(self: compiler.Compiler, usual: Any = compiler.Compiler.quick_linker.fget) -> tuple[str, ...]:  # type: ignore[attr-defined]
    options = usual(self)
    return (*options, "-nodefaultlibs") if options and compiler.level() == "0" else options


_ended = itertools.count(1)


def pytest_runtest_teardown() -> None:
    """No test leaves a lock behind. What the tests keep for one another, thousands of kernels, is not gone through again by every
    collection of garbage."""
    assert not array_locks._GUARD._is_owned(), "a lock is left behind, for which all other threads would wait"  # type: ignore[attr-defined]
    ended = next(_ended)
    if ended % 2000 == 0:
        gc.collect()
    if ended % 50 == 0:
        gc.freeze()


def pytest_sessionfinish() -> None:
    """Every process of a run says what it has executed as PTX, where that is asked for."""
    ptx_record.write()


@cache
def _no_gpu() -> str | None:
    """Why there is no GPU here, or None."""
    try:
        cupy = importlib.import_module("cupy")
        return None if cupy.cuda.runtime.getDeviceCount() else "no GPU enumerates"
    except Exception as error:  # a missing package, a missing driver, a missing device: each says so itself
        return f"{type(error).__name__}: {error}"


@pytest.fixture(autouse=True)
def launches_are_joined_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what joined launches do is seen in every program that comes twice."""
    monkeypatch.setattr(reversal_plan, "PATIENCE", 0.0)


@pytest.fixture
def on_host_unjoined(launches_are_joined_at_once: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CPU's executor. Launches that were joined add up a sum in another order: a tape with a budget joins none."""
    monkeypatch.setattr(reversal_plan, "PATIENCE", float("inf"))
    with launch_tools.running("host"):
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each test that asks for an executor is run by one of the two, in turns, and nightly by both. On a push both run where they are the
    subject, in their rooms; the usual gradient of each kernel that ships; and what was found wrong once (docs/testing.md). Of the
    combinations of a test marked `one_of(n)`, one of n is run on a push, of those marked `nightly` none."""
    left = [] if NIGHTLY else [*filter(_is_other_executor_s, items), *filter(_is_of_the_night, items), *_other_combinations(items)]
    if left:
        gone = set(map(id, left))
        config.hook.pytest_deselected(items=[item for item in items if id(item) in gone])
        items[:] = [item for item in items if id(item) not in gone]


def _is_other_executor_s(item: pytest.Item) -> bool:
    params = getattr(getattr(item, "callspec", None), "params", {})
    executor = params.get("executor")
    if executor not in ("host", "reference") or any(map(item.path.is_relative_to, BY_BOTH)):
        return False
    if item.path == EVERY_KERNEL and params["way"] == "usual":
        return False
    rest = item.nodeid.replace("host", "").replace("reference", "")  # the same in each worker, and for both executors
    return executor != ("host", "reference")[zlib.crc32(rest.encode()) % 2]


def _is_of_the_night(item: pytest.Item) -> bool:
    return item.get_closest_marker("nightly") is not None


def _other_combinations(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Of each test marked `one_of(n)` those that wait for the night. Those are run whose positions in the lists of parameters add up to a
    multiple of n: where one list has n entries, each entry of another is tried with one of them."""
    positions: defaultdict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for item in items:
        marker = item.get_closest_marker("one_of")
        if marker is not None:
            total = 0
            for mark in item.iter_markers("parametrize"):
                first = re.split(r"[,\s]+", mark.args[0])[0] if isinstance(mark.args[0], str) else mark.args[0][0]
                if first == "executor":
                    continue  # of which one is chosen for each of the others
                seen = positions[item.nodeid.partition("[")[0], first]
                total += seen.setdefault(id(item.callspec.params[first]), len(seen))  # type: ignore[attr-defined]
            if total % marker.args[0]:
                yield item


def _is_optimised(item: pytest.Item) -> bool:
    if item.path.is_relative_to(KERNELS):
        return item.path in AS_FOR_A_USER
    return any(map(item.path.is_relative_to, CPU_TEXTS)) and "cupy" not in getattr(item, "fixturenames", ())


SECOND = (TESTS / "ad", TESTS / "tools")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _skip_without_a_device(item)


class Optimisation:
    """What the C++ compiler makes of a text is the subject of two rooms, of every tenth file of kernels/ and of tests marked `optimised`:
    those, and all in the nightly set, are compiled as for a user, the others plainly, at a fifth of the cost. On the stand-in for CuPy it
    is a text for another compiler. Second derivatives take as long as all else of `check_gradient`: on a push they are compared where they
    are the subject, and in every sixth test elsewhere; nightly in all. A plugin, since hooks of this file are not called for items of
    kernels/."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        optimised = NIGHTLY or _is_optimised(item) or item.get_closest_marker("optimised")
        os.environ[compiler.LEVEL] = LEVEL or ("3" if optimised else "0")
        wanted = NIGHTLY or any(map(item.path.is_relative_to, SECOND)) or zlib.crc32(item.nodeid.encode()) % 6 == 0
        inspect.unwrap(gradient_check.check_gradient).__kwdefaults__["second_check"] = bool(wanted)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """On a push the files of kernels/ are checked in this process, which has what is derived of them, in one direction."""
        if NIGHTLY or not item.path.is_relative_to(KERNELS):
            return (yield)
        with pytest.MonkeyPatch.context() as patch:
            here = lambda _, check, example, how: checks.run(check, example, replace(how, directions=1))  # noqa: E731
            patch.setattr(check_process.CheckProcess, "run", here)
            return (yield)


def _skip_without_a_device(item: pytest.Item) -> None:
    """Tests marked `gpu` are skipped with the reason where there is none; with GPUAD_REQUIRE_GPU=1 they fail there. Those marked `cpu` are
    with `--ptx`."""
    if item.get_closest_marker("cpu") is not None and item.config.getoption("--ptx"):
        pytest.skip("it says what the executor of the CPU makes")
    if item.get_closest_marker("gpu") is None or (reason := _no_gpu()) is None:
        return
    if os.environ.get("GPUAD_REQUIRE_GPU") == "1":
        pytest.fail(f"GPUAD_REQUIRE_GPU=1, but {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(autouse=True)
def on_ptx(request: pytest.FixtureRequest) -> Iterator[None]:
    """With `--ptx` NumPy arrays run as PTX, but where a test has the stand-in for CuPy, whose other side they are."""
    if request.config.getoption("--ptx") and "cupy" not in request.fixturenames:
        with pipeline.executor_for_tests(PTX):
            yield
    else:
        yield


@pytest.fixture(params=["reference", "host"])
def executor(request: pytest.FixtureRequest) -> Any:
    """Each executor that works on NumPy arrays."""
    if request.param == "host" and request.config.getoption("--ptx"):
        return PTX
    module, name = {"reference": ("reference", "Reference"), "host": ("host", "Host")}[request.param]
    return getattr(importlib.import_module(f"gpuad.runtime.{module}"), name)()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: `text` is what `tests/golden/<name>` holds; `--update-golden` writes it there."""

    def check(name: str, text: str) -> None:
        file = GOLDEN / name
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert file.is_file(), f"{file} does not exist: write it with --update-golden, and read it"
        assert text == file.read_text(encoding="utf-8")

    return check


@pytest.fixture
def cupy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in for CuPy that runs the generated CUDA text on the host, or with `--ptx` what NVRTC makes of it; tests marked `gpu` have
    the real one."""
    module = (ptx_cupy if request.config.getoption("--ptx") else fake_cupy).module()
    monkeypatch.setitem(sys.modules, "cupy", module)
    pipeline._cuda.cache_clear()
    with fake_cupy.waited():
        yield module
    pipeline._cuda.cache_clear()
