"""What device, pool and process say, and what they do not, against stand-ins for NVML, CuPy and RMM."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpuad.profiling import device, table
from gpuad.profiling.device import DeviceMemory, Neighbourhood, Nvml, Reading, resident_bytes
from gpuad.profiling.records import Measured
from gpuad.runtime import cuda

GIB = 1 << 30


class NVMLError(Exception):
    """As pynvml's."""


@dataclass
class Card:
    """A stand-in for a device. `processes`: bytes by process; None where the driver has no answer."""

    processes: list[tuple[int, int | None]] | None = field(default_factory=list)
    mask: int | None = 0
    split: bool = False
    told: bool = True


def nvml(card: Card) -> Any:
    def answered(value: Any) -> Any:
        if value is None:
            raise NVMLError("Not Supported")
        return value

    def processes(_: Any) -> Any:
        return [SimpleNamespace(pid=pid, usedGpuMemory=n) for pid, n in answered(card.processes)]

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByPciBusId=lambda address: card,
        nvmlDeviceGetMigMode=lambda _: [int(card.split), 0],
        nvmlDeviceGetMemoryInfo=lambda _: answered(SimpleNamespace(used=20 * GIB, free=60 * GIB) if card.told else None),
        nvmlDeviceGetComputeRunningProcesses=processes,
        nvmlDeviceGetCurrentClocksEventReasons=lambda _: answered(card.mask),
    )


def read(card: Card) -> DeviceMemory:
    return Nvml(nvml(card), "0000:01:00.0", pid=7).read()


def test_used_free_this_process_and_others() -> None:
    assert read(Card([(7, 3 * GIB), (8, 16 * GIB)])) == DeviceMemory(20 * GIB, 60 * GIB, 3 * GIB, 17 * GIB, ())


@pytest.mark.parametrize("value", [None, 2**64 - 1])
def test_under_wddm_and_wsl_bytes_by_process_are_not_told(value: int | None) -> None:
    found = read(Card([(7, value)]))
    assert (found.this_process, found.others, found.used) == (None, None, 20 * GIB) and "WDDM" in found.why


def test_in_a_container_a_process_does_not_find_itself() -> None:
    found = read(Card([(41234, 3 * GIB)]))
    assert (found.this_process, found.others) == (None, None) and "container" in found.why


def test_an_instance_of_a_split_card_is_not_told() -> None:
    found = read(Card([(7, GIB)], split=True))
    assert (found.used, found.free, found.this_process, found.others, found.throttling) == (None,) * 5 and "MIG" in found.why


def test_what_a_driver_does_not_answer_is_not_told() -> None:
    found = read(Card(None, mask=None, told=False))
    assert found == DeviceMemory(why="the driver tells no processes")


@pytest.mark.parametrize(("mask", "names"), [(0x1, ()), (0x4, ("power cap",)), (0x60, ("thermal (software)", "thermal (hardware)"))])
def test_throttling(mask: int, names: tuple[str, ...]) -> None:
    assert read(Card([], mask)).throttling == names


def test_an_older_nvml_calls_throttling_by_another_name() -> None:
    module = nvml(Card([], 0x8))
    module.nvmlDeviceGetCurrentClocksThrottleReasons = module.__dict__.pop("nvmlDeviceGetCurrentClocksEventReasons")
    assert Nvml(module, "0", pid=7).read().throttling == ("hardware slowdown",)


def measured(*readings: Reading, allocator: str = "pool") -> str:
    return "\n".join(table.summary(Measured((), (), readings, (0.0, 1.0), 0.0, allocator)))


def test_the_table_says_not_told() -> None:
    text = measured(Reading(0.0, None, 5, read(Card([(7, None)]))))
    assert "this process not told, others not told" in text and "WDDM" in text and "process: not told resident" in text
    assert "throttling none" in text and "(pool): 5 B" in text
    assert "NVML is not there" in measured(Reading(0.0, 5, None)) and "(rmm): not told" in measured(Reading(0.0, 5), allocator="rmm")


def test_resident_memory_grows_with_what_is_written() -> None:
    before = resident_bytes()
    if before is None:
        pytest.skip("the system does not say what is resident")
    block = np.frombuffer(mmap.mmap(-1, 8 << 20), np.uint8)  # pages of its own: the heap may have some left that are resident
    block[...] = 1
    after = resident_bytes()
    assert after is not None and after - before > 6 << 20 and block.any()


# --- CuPy's allocators -------------------------------------------------------------------------------------------------------------------


class Pool:
    """CuPy's own pool."""

    def malloc(self, size: int) -> None: ...

    def used_bytes(self) -> int:
        return 1000


class AsyncPool(Pool):
    """That of the driver."""


class MemoryHook:
    """As CuPy's: those that were entered hear of each allocation, `alloc` of those that the pool has not."""

    entered: list[MemoryHook] = []  # noqa: RUF012

    def __enter__(self) -> MemoryHook:
        self.entered.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.entered.remove(self)


@contextmanager
def cupy_with(monkeypatch: pytest.MonkeyPatch, allocate: Any, card: Card | None = None) -> Iterator[None]:
    fake = SimpleNamespace(
        cuda=SimpleNamespace(
            get_allocator=lambda: allocate,
            MemoryPool=Pool,
            MemoryAsyncPool=AsyncPool,
            MemoryHook=MemoryHook,
            Device=lambda: SimpleNamespace(id=0),
            runtime=SimpleNamespace(getDeviceCount=lambda: 1, deviceGetPCIBusId=lambda k: "0000:01:00.0"),
        ),
        get_default_memory_pool=Pool,
    )
    monkeypatch.setitem(sys.modules, "cupy", fake)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "pynvml", nvml(card) if card else None)  # type: ignore[arg-type]
    yield


def test_the_pool_is_followed_by_its_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """`malloc` and `free` are heard, also of what the pool has had ready; `alloc` is called for new memory only, and not listened to."""
    with cupy_with(monkeypatch, Pool().malloc, Card([(os.getpid(), GIB)])):
        here = Neighbourhood()
        with here.watched():
            assert here.allocator == "pool"
            (hook,) = MemoryHook.entered
            hook.malloc_postprocess(mem_size=512, size=500, device_id=0, mem_ptr=1, pmem_id=1)  # type: ignore[attr-defined]
            hook.malloc_postprocess(mem_size=1024, size=600, device_id=0, mem_ptr=2, pmem_id=2)  # type: ignore[attr-defined]
            hook.free_postprocess(mem_size=512, device_id=0, mem_ptr=1, pmem_id=1)  # type: ignore[attr-defined]
            assert not hasattr(hook, "alloc_postprocess")
            found = here.read(0.0)
        assert found.pool == 1000 + 1024 and found.device is not None and found.device.this_process == GIB
        assert not MemoryHook.entered


def test_the_drivers_pool_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with cupy_with(monkeypatch, AsyncPool().malloc):
        here = Neighbourhood()
        assert (here.allocator, here.read(0.0).pool, here.read(0.0).device) == ("async", 1000, None)


def test_rmm_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def rmm_cupy_allocator(size: int) -> None: ...

    rmm_cupy_allocator.__module__ = "rmm.allocators.cupy"
    with cupy_with(monkeypatch, rmm_cupy_allocator):
        assert Neighbourhood().allocator == "rmm" and Neighbourhood().read(0.0).pool is None
        statistics = SimpleNamespace(get_statistics=lambda: SimpleNamespace(current_bytes=77))
        monkeypatch.setitem(sys.modules, "rmm", SimpleNamespace(statistics=statistics))  # type: ignore[arg-type]
        assert Neighbourhood().read(0.0).pool == 77


def test_an_allocator_of_the_users_is_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with cupy_with(monkeypatch, lambda size: None):
        assert (Neighbourhood().allocator, cuda.allocator_bytes("other")) == ("other", None)


def test_without_cupy_there_is_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    here = Neighbourhood()
    assert (here.allocator == "" and here.read(1.0) == Reading(1.0, here.read(1.0).rss)) or device.resident_bytes() is None
